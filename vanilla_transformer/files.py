"""Text comes in line by line, checked; what goes out is there as a whole or not at all."""

import codecs
import gzip
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TextIO
from uuid import uuid4


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def text_lines(*paths: str | PathLike[str]) -> Iterator[str]:
    r"""Reads the lines of UTF-8 text files, one file after the other.

    A byte-order mark at a file's beginning is no text.
    Only `\n` and `\r\n` end a line: other separators of Unicode (U+2028, U+0085 ...) are text, as in parallel corpora.

    Args:
        *paths: Files of plain text, or gzip if their name ends in `.gz`.

    Returns:
        An iterator over the lines, without their ends.

    Raises:
        FileNotFoundError, IsADirectoryError: A file is missing, or a folder. Raised at once, before anything is read.
        ValueError: A line is not UTF-8 (file and line are named), or a `.gz` file is damaged. Raised on reading it.
    """
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(f"there is no text file {str(path)!r}")
        if Path(path).is_dir():
            raise IsADirectoryError(f"{str(path)!r} is a folder; name a text file in it")
    return (line for path in paths for line in _lines_of(Path(path)))


def _lines_of(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decoded_lines(file, str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no complete gzip file ({error}); fetch or pack it again") from error


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a binary stream as `text_lines` reads them.

    Args:
        file: Lines of bytes, as an open binary file gives them.
        name: What errors call the stream.

    Raises:
        ValueError: A line is not UTF-8; the message has its number.
    """
    for number, line in enumerate(file, start=1):
        yield _decoded(line, name, number)


def _decoded(line: bytes, name: str, number: int) -> str:
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    if line.endswith(b"\n"):
        line = line[:-1].removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number} is not UTF-8 ({error}); convert the file, e.g. with iconv") from error


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Adds the name of the file to errors that lack it: that of a full disk comes with writing, which knows no names.

    Raises:
        OSError: As inside, with `path`.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replaced_file(path: Path) -> Iterator[TextIO]:
    """Gives a file to write, which takes the place of `path` if nothing went wrong and vanishes otherwise.

    Raises:
        OSError: There can be no such file; raised at once.
    """
    check_replaceable(path)
    if path.exists() and not path.is_file():  # a pipe, or /dev/stdout: nothing that could be replaced
        with named_in_errors(path), path.open("w", encoding="utf-8") as file:
            yield file
        return
    with replaced_path(path) as beside, named_in_errors(path), beside.open("w", encoding="utf-8") as file:
        yield file


def check_replaceable(path: Path) -> None:
    """Refuses a place where there can be no file.

    Raises:
        IsADirectoryError: There is a folder.
        FileNotFoundError: It is in a folder that is not there.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to: make it first.")


@contextmanager
def replaced_path(path: Path) -> Iterator[Path]:
    """Gives a place to write a file at, which takes that of `path` if nothing went wrong and vanishes otherwise.

    Raises:
        OSError: As inside; it names `path` where it would have named that place.
    """
    beside = _beside(path)
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        if error.filename != str(beside):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file that is complete from the moment it is there."""
    with replaced_file(path) as file:
        file.write(text)


def write_json(path: Path, content) -> None:
    """Writes JSON that people can read; the file is complete from the moment it is there."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives an empty folder to fill, which becomes `path` if nothing went wrong and vanishes otherwise.

    Raises:
        FileExistsError: `path` exists.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already: remove it or choose another place.")
    beside = _beside(path)
    beside.mkdir(parents=True)
    try:
        yield beside
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Gives a place to make a folder at, which then takes the place of `path`; if anything goes wrong `path` stays."""
    beside, old = _beside(path), _beside(path)
    try:
        yield beside
        if not beside.exists():
            raise FileNotFoundError(f"Nothing was made to take the place of {path}.")
        if path.exists():
            path.rename(old)
        beside.rename(path)
    finally:
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}")


def remove_leftovers(folder: Path) -> None:
    """Removes what the functions above had not finished when their process was killed."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{32}", path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second process out of a folder, which is made if it is missing (where the system has such locks).

    Raises:
        FileExistsError: Another process is in it, or it is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + 3  # the workers of a process that was killed hold on for the blink of an eye
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                message = f"Another process is at work in {folder}: wait for it, or choose another folder."
                raise FileExistsError(message) from error
            time.sleep(0.05)
