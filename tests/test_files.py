"""Text is read line by line and checked; writing is all or nothing."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vanilla_transformer.files import (
    remove_leftovers,
    replaced_file,
    replaced_folder,
    replaced_path,
    temporary_folder,
    text_lines,
    write_json,
    write_text,
    written_beside,
)


NOBODY = 65534  # a user id


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail(writing, error, begin):
    """Starts to write something, and fails."""
    with writing as begun:
        begin(begun)
        raise error


@pytest.fixture
def old(tmp_path):
    """A folder with a file in it, to be replaced."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").touch()
    return tmp_path / "old"


def assert_alone(old):
    assert names(old.parent) == ["old"]
    assert names(old) == ["config.json"]


def test_only_newlines_end_a_line(tmp_path):
    content = "one\r\ntwo\u2028still two\x85\x0b\x0c\x1c\n\n läuft \r \nlast\r"
    lines = ["one", "two\u2028still two\x85\x0b\x0c\x1c", "", " läuft \r ", "last\r"]
    (tmp_path / "plain.txt").write_bytes(content.encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "empty").touch()
    assert list(text_lines(tmp_path / "plain.txt")) == lines
    assert list(text_lines(str(tmp_path / "packed.gz"), tmp_path / "empty", tmp_path / "plain.txt")) == lines * 2
    assert list(text_lines()) == []


def test_invalid_utf8_error_names_file_and_line(tmp_path):
    content = b"fine\nalso fine\nL\xe4uft\n"
    for name, packed in (("bad.txt", content), ("bad.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        lines = text_lines(tmp_path / name)
        assert [next(lines), next(lines)] == ["fine", "also fine"]
        with pytest.raises(ValueError, match=f"{name}, line 3 is not UTF-8"):
            next(lines)


def test_files_are_hashed_as_they_are_read(tmp_path):
    for name, content in (("a.txt", b"one\ntwo"), ("b.gz", gzip.compress(b"x\n" * 99_999) + bytes(99)), ("c", b"")):
        (tmp_path / name).write_bytes(content)
        digests = {}
        plain = list(text_lines(tmp_path / name))
        lines = text_lines(tmp_path / name, digests=digests)
        assert not digests
        assert list(lines) == plain
        assert digests == {tmp_path / name: hashlib.sha256(content).hexdigest()}


def test_missing_files_and_damaged_gzip_raise(tmp_path):
    (tmp_path / "there").write_text("text")
    with pytest.raises(FileNotFoundError, match=r"no text file .*missing\.de"):
        text_lines(tmp_path / "there", tmp_path / "missing.de")
    packed = gzip.compress(b"some text\n" * 99)
    damaged = {"no.gz": b"plain text\n", "cut.gz": packed[:-9], "wrong.gz": packed[:12] + b"xxxx" + packed[16:]}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a complete gzip file"):
            list(text_lines(tmp_path / name))


def test_gz_files_are_written_compressed(tmp_path):
    with replaced_file(tmp_path / "x.gz") as file:
        file.write("Hallo\nWelt\n")
    assert list(text_lines(tmp_path / "x.gz")) == ["Hallo", "Welt"]
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == b"Hallo\nWelt\n"


def test_text_and_json_are_written_atomically(tmp_path):
    content = {"b": [1, 2.5, None], "a": "größer"}
    write_text(tmp_path / "a.txt", "größer\n")
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "größer" in text
    assert text.startswith('{\n  "b"')
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "new\ud800")
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text
    assert names(tmp_path) == ["a.json", "a.txt"]


def test_folder_appears_only_when_it_is_complete(tmp_path):
    with written_beside(tmp_path / "new") as beside:
        (beside / "file").write_text("x")
        assert not (tmp_path / "new").exists()
        assert beside.parent == tmp_path  # on the same disk, so that renaming is one step
    assert names(tmp_path) == ["new"]
    assert names(tmp_path / "new") == ["file"]


def test_failed_folder_vanishes_and_existing_one_stays(old, tmp_path):
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(written_beside(tmp_path / "new"), error, lambda beside: (beside / "file").write_text("x"))
        with pytest.raises(error):
            fail(replaced_folder(old), error, lambda beside: beside.mkdir())
        assert_alone(old)
    with pytest.raises(FileExistsError, match=r"old exists already: remove it"), written_beside(old):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match=r"link exists already"), written_beside(tmp_path / "link"):
        pass
    (tmp_path / "link").unlink()
    with pytest.raises(FileNotFoundError, match="Nothing was made"), replaced_folder(old):
        pass
    assert_alone(old)


def test_folder_replaces_the_old_one_completely(tmp_path):
    for content in ("first", "second"):
        with replaced_folder(tmp_path / "model") as beside:
            beside.mkdir()
            (beside / content).touch()
        assert names(tmp_path) == ["model"]
        assert names(tmp_path / "model") == [content]


def test_rewritten_file_keeps_its_permissions(tmp_path):
    (tmp_path / "secret.txt").touch(0o600)
    for mode in (0o600, 0o640):
        (tmp_path / "secret.txt").chmod(mode)
        write_text(tmp_path / "secret.txt", "x")
        assert (tmp_path / "secret.txt").stat().st_mode & 0o777 == mode


def test_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(Path("far", "file"))
    for text in ("first", "second"):  # the link leads nowhere at first
        write_text(tmp_path / "link", text)
        assert (tmp_path / "far" / "file").read_text() == text
    assert (tmp_path / "link").is_symlink()
    assert (names(tmp_path), names(tmp_path / "far")) == (["far", "link"], ["file"])


def test_pipe_is_written_to_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        write_text(tmp_path / "pipe", "läuft\n")
        assert read.result(timeout=10) == "läuft\n"
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_redirected_output_is_appended_to(name, tmp_path):
    with (tmp_path / "out").open("w") as file:
        code = f"from vanilla_transformer.files import *; print('a', flush=True); write_text(Path('{name}'), 'b\\n')"
        subprocess.run([sys.executable, "-c", f"{code}; print('c')"], stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"


def test_failed_file_vanishes_and_the_old_one_stays(old):
    write_text(old / "config.json", "old")
    with pytest.raises(KeyboardInterrupt):
        fail(replaced_file(old / "config.json"), KeyboardInterrupt, lambda file: file.write("half"))
    assert (old / "config.json").read_text() == "old"
    assert_alone(old)


def test_unwritable_place_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*missing to write a\.txt to"):
        replaced_file(tmp_path / "missing" / "a.txt").__enter__()
    with pytest.raises(IsADirectoryError, match="is a folder: name a file"):
        replaced_file(tmp_path).__enter__()


def test_only_leftovers_are_removed(tmp_path):
    hexadecimal = "0123456789abcdef" * 2
    (tmp_path / f".best.{hexadecimal}").mkdir()
    (tmp_path / f".best.{hexadecimal}" / "model.safetensors").touch()
    (tmp_path / f".scores.json.{hexadecimal}").touch()
    for name in (".hidden", "scores.json", f"best.{hexadecimal}"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted([".hidden", "scores.json", f"best.{hexadecimal}"])


# Leaves writing unfinished in several places, forks a child that outlives it, and waits.
UNFINISHED = """
import os, sys, time
from contextlib import ExitStack
from pathlib import Path
from vanilla_transformer import files
place = Path(sys.argv[1])
with ExitStack() as stack:
    stack.enter_context(files.replaced_file(place / "out.txt"))
    stack.enter_context(files.written_beside(place / "model"))
    stack.enter_context(files.written_beside(stack.enter_context(files.replaced_folder(place / "best"))))
    stack.enter_context(files.temporary_folder())
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # the child, once it has released its parent's claims
    time.sleep(600)
"""


def written_again(place, monkeypatch):
    """Writes what UNFINISHED leaves unfinished, except `best`."""
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with replaced_file(place / "out.txt"), written_beside(place / "model"), temporary_folder():
        pass
    (place / "model").rmdir()
    (place / "out.txt").unlink()


def test_rewriting_removes_leftovers_of_killed_processes_only(tmp_path, monkeypatch):
    theirs = tmp_path / f".notes.txt.{'0123456789abcdef' * 2}"  # of another file
    theirs.touch()
    words = [sys.executable, "-c", UNFINISHED, tmp_path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}) as one:
        child = int(one.stdout.readline())
        unfinished = names(tmp_path)
        assert [name.strip(".").partition(".")[0] for name in unfinished] == [
            "best", "model", "notes", "out", "vanilla-transformer"
        ]  # fmt: skip
        try:
            written_again(tmp_path, monkeypatch)
            remove_leftovers(tmp_path)
            assert names(tmp_path) == sorted({*unfinished} - {theirs.name})
            theirs.touch()
            one.kill()
            one.wait()
            written_again(tmp_path, monkeypatch)  # although its child, which inherited the files, still runs
            assert [name.strip(".").partition(".")[0] for name in names(tmp_path)] == ["best", "notes"]
            with replaced_path(tmp_path / "best"):  # its leftover has a leftover of its own
                pass
            assert names(tmp_path) == sorted([theirs.name, "best"])
        finally:
            os.kill(child, 9)


def test_unlistable_folder_can_be_written_to(tmp_path):
    folder = tmp_path / "drop"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o300)
    if (child := os.fork()) == 0:  # root may list any folder, so the child becomes another user
        status = 1
        try:
            os.chdir(folder)
            if os.getuid() == 0:
                os.setuid(NOBODY)
            with pytest.raises(PermissionError):
                os.listdir()
            write_text(Path("a.txt"), "x")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    folder.chmod(0o700)
    assert names(folder) == ["a.txt"]


def test_old_folder_is_restored_if_replacing_fails(old, monkeypatch):
    rename = Path.rename

    def interrupted(path, target):
        monkeypatch.undo()
        rename(path, target)
        raise KeyboardInterrupt

    def replace():
        with replaced_folder(old) as beside:
            beside.mkdir()
            monkeypatch.setattr(Path, "rename", interrupted)

    with pytest.raises(KeyboardInterrupt):
        replace()
    assert_alone(old)
