"""Text comes in line by line, checked; output appears whole or not at all."""

import codecs
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from .signals import cleared_up


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def text_lines(
    *paths: str | PathLike[str], digests: dict[Path, str] | None = None, errors: str = "strict"
) -> Iterator[str]:
    r"""Reads the lines of UTF-8 text files, one file after another.

    A byte-order mark at a file's beginning is not text.
    Only `\n` and `\r\n` end a line: other separators of Unicode (U+2028, U+0085 ...) are text, as in parallel corpora.

    Args:
        *paths: Files of plain text, or gzip if their name ends in `.gz`.
        digests: Gets the SHA-256 of each file once its end has been read.
        errors: How to treat bytes that are not UTF-8, as for `bytes.decode`.

    Returns:
        An iterator over the lines, without their ends.

    Raises:
        FileNotFoundError, IsADirectoryError: A file is missing, or is a folder. Raised at once, before anything is
            read.
        ValueError: A line is not UTF-8 (file and line are named), or a `.gz` file is damaged. Raised on reading it.
    """
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(f"there is no text file {str(path)!r}")
        if Path(path).is_dir():
            raise IsADirectoryError(f"{str(path)!r} is a folder; name a text file in it")
    return (line for path in paths for line in _lines_of(Path(path), digests, errors))


def _lines_of(path: Path, digests: dict[Path, str] | None, errors: str) -> Iterator[str]:
    try:
        with _Hashed(path) if digests is not None else path.open("rb") as raw:
            packed = raw if digests is None else io.BufferedReader(raw)
            with gzip.open(packed) if path.suffix == ".gz" else packed as file:
                yield from decoded_lines(file, str(path), errors)
            if digests is not None:
                digests[path] = raw.digest.hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file ({error}); fetch or pack it again") from error


class _Hashed(io.FileIO):
    """A file that hashes everything that is read from it."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.digest = hashlib.sha256()

    def readinto(self, buffer) -> int:
        count = super().readinto(buffer)
        self.digest.update(memoryview(buffer)[:count])
        return count


def decoded_lines(file: Iterable[bytes], name: str, errors: str = "strict") -> Iterator[str]:
    """The lines of a binary stream as `text_lines` reads them; messages call it `name`."""
    for number, line in enumerate(file, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.endswith(b"\n"):
            line = line[:-1].removesuffix(b"\r")
        try:
            yield line.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number} is not UTF-8 ({error}); convert the file, e.g. with iconv"
            ) from error


def json_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, object]]:
    """For each line of a file of JSON lines, a name for its place (file and line), and its value.

    Raises:
        ValueError: A line is not JSON. Raised on reading it.
    """
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            yield place, json.loads(line)
        except (ValueError, RecursionError) as error:  # also numbers too long, and lists too deep
            raise ValueError(f"{place} is not JSON ({error}).") from error


def blocks_of(path: Path) -> Iterator[bytes]:
    """A file's bytes, a million at a time."""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            yield block


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    for block in blocks_of(path):
        digest.update(block)
    return digest.hexdigest()


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Adds the name of the file to errors that lack it: writing to a full disk raises one without a name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replaced_file(path: Path) -> Iterator[TextIO]:
    """Gives a file to write, which takes the place of `path` if nothing went wrong and vanishes otherwise."""
    check_replaceable(path)
    if stream := re.fullmatch(r"/dev/std(out|err)|(?:/dev|/proc/self)/fd/(\d+)", str(path)):
        # It may lead to a file that the shell goes on writing to, so it must be neither replaced nor truncated.
        number = int(stream[2]) if stream[2] else {"out": 1, "err": 2}[stream[1]]
        with named_in_errors(path), open(os.dup(number), "w", encoding="utf-8") as file:
            yield file
        return
    if path.exists() and not path.is_file():  # a pipe, which cannot be replaced
        with named_in_errors(path), path.open("w", encoding="utf-8") as file:
            yield file
        return
    opened = gzip.open if path.suffix == ".gz" else open
    with replaced_path(path) as beside, named_in_errors(path), opened(beside, "wt", encoding="utf-8") as file:
        yield file


def check_replaceable(path: Path) -> None:
    """Raises OSError if no file can be there: the path is a folder, or its folder is missing."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to: make it first.")


@contextmanager
def replaced_path(path: Path) -> Iterator[Path]:
    """Gives an empty file to write, which takes the place of `path` if nothing went wrong and vanishes otherwise.

    Leftovers of the same file from killed processes are removed. The new file has the permissions of an old one. If
    `path` is a symbolic link, the file that it leads to is replaced, as by a shell's `>`. Errors name that file.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    remove_leftovers(path.parent, path.name)
    try:
        with _claimed(path, lambda beside: beside.touch(exist_ok=False)) as beside:
            yield beside
            flush(beside)
            with suppress(FileNotFoundError):
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            os.replace(beside, path)
    except OSError as error:
        if error.filename is None or not _leftovers_of(path.name).fullmatch(Path(error.filename).name):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Writes a file that is complete from the moment it appears."""
    with replaced_file(path) as file:
        file.write(text)


def write_json(path: Path, content) -> None:
    """Writes JSON that people can read; the file is complete from the moment it appears."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str = "", kind: type = dict) -> Any:
    """Reads a JSON file that holds a mapping, or a list if the kind is `list`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else; the message ends with the remedy.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, kind):
            return content
        said = f"it holds {type(content).__name__}, not {'a mapping' if kind is dict else 'a list'}"
    except RecursionError:
        said = "it is nested too deeply"
    except ValueError as error:  # not UTF-8, or not JSON
        said = str(error)
    raise ValueError(f"{path} is damaged ({said}). {remedy}".rstrip())


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives an empty folder to fill, which becomes `path` if nothing went wrong and vanishes otherwise.

    Leftovers of the same folder from killed processes are removed.

    Raises:
        FileExistsError: `path` exists.
    """
    if path.parent.is_dir():
        remove_leftovers(path.parent, path.name)
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists already: remove it or choose another place.")
    with _claimed(path, lambda beside: beside.mkdir(parents=True)) as beside:
        yield beside
        flush(beside)
        beside.rename(path)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Gives an empty folder in the system's place for temporary ones; removes leftovers of killed processes there."""
    place = Path(tempfile.gettempdir(), "vanilla-transformer")
    remove_leftovers(place.parent, place.name)
    with _claimed(place, lambda beside: beside.mkdir(mode=0o700)) as folder:
        yield folder


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Gives a place to make a folder, which then takes the place of `path`; if anything goes wrong, `path` stays."""
    beside, old = place_beside(path), place_beside(path)

    def clear_up() -> None:
        if old.exists() and not path.exists():
            old.rename(path)
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)

    with cleared_up(clear_up):
        yield beside
        if not beside.exists():
            raise FileNotFoundError(f"Nothing was made to take the place of {path}.")
        flush(beside)
        if path.exists():
            path.rename(old)
        beside.rename(path)


def relative_to(folder: str | Path, path: Path) -> str:
    """A path relative to a folder if both were typed relative (recipes and cards are published), else absolute."""
    folder = Path(folder)
    if not (folder.is_absolute() or path.is_absolute()):
        relative = os.path.relpath(path, folder)
        if (folder / relative).resolve() == path.resolve():  # else the folder is a symbolic link
            return relative
    return str(path.resolve())


def flush(path: Path) -> None:
    """Makes the system write a file, or every file in a folder, to the disk.

    Without that, a file's name may survive a loss of power while its content does not.
    """
    for each in path.rglob("*") if path.is_dir() else [path]:
        if each.is_file() and os.name != "nt":  # on Windows only the writer of a file can do this
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def place_beside(path: Path) -> Path:
    """A free name in the same folder, under which to make or remove `path` as a whole."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def is_leftover(path: Path, *names: str) -> bool:
    """Whether a path has the name of an unfinished file or folder: one for these names, or any if none are given."""
    return any(_leftovers_of(name).fullmatch(path.name) for name in names or (None,))


def _leftovers_of(name: str | None) -> re.Pattern:
    """Names of places beside `name`, or beside such a place; None: beside anything."""
    return re.compile(rf"\.+{'.+' if name is None else re.escape(name)}(\.[0-9a-f]{{32}})+")


# Descriptors of what this process is writing, each with a lock that the system releases when the process ends. A forked
# worker closes them, since the lock would last as long as the worker.
_claims: set[int] = set()


def _forget_claims() -> None:
    for descriptor in _claims:
        os.close(descriptor)
    _claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_claims)


@contextmanager
def _claimed(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Makes a file or a folder beside `path`, which is locked, and exists only as long as the context lasts."""
    beside = place_beside(path)
    with cleared_up(lambda: _remove(beside)), ExitStack() as locks:
        while not beside.exists():  # until it is locked, another process may take it for abandoned and remove it
            make(beside)
            with suppress(FileNotFoundError):
                locks.enter_context(_locked(beside))
        yield beside


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    _claims.add(descriptor)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor in _claims:  # and not in a forked process
            _claims.discard(descriptor)
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, *names: str) -> None:
    """Removes unfinished files and folders that killed processes left: for these names, or all if none are given."""
    with suppress(OSError):  # the folder may be writable, but not listable
        for path in [path for path in folder.iterdir() if is_leftover(path, *names)]:
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                continue
            with suppress(OSError), ExitStack() as lock:  # it is in use, or another user's
                if fcntl is None and time.time() - path.stat().st_mtime < 86_400:  # who knows whether it is in use
                    continue
                if fcntl is not None:
                    descriptor = os.open(path, os.O_RDONLY)
                    lock.callback(os.close, descriptor)
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second process out of a folder, where the system has such locks; makes the folder if it is missing.

    Raises:
        FileExistsError: Another process works in it, or it is not a folder.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + 3  # the workers of a killed process hold on for a moment
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    message = f"Another process is at work in {folder}: wait for it, or choose another folder."
                    raise FileExistsError(message) from error
                time.sleep(0.05)
            except OSError:  # some file systems have no locks
                break
        yield
    finally:
        os.close(descriptor)
