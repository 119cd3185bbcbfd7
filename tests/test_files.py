"""Text is read line by line and checked; nothing that is written is ever half there."""

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from vanilla_transformer.files import (
    remove_leftovers,
    replaced_file,
    replaced_folder,
    text_lines,
    write_json,
    write_text,
    written_beside,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --------------------------------------------------------------------------------------------------------- reading


def test_only_newlines_end_a_line(tmp_path):
    content = "one\r\ntwo\u2028still two\x85\x0b\x0c\x1c\n\n läuft \r \nlast\r"
    lines = ["one", "two\u2028still two\x85\x0b\x0c\x1c", "", " läuft \r ", "last\r"]
    (tmp_path / "plain.txt").write_bytes(content.encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "empty").touch()
    assert list(text_lines(tmp_path / "plain.txt")) == lines
    assert list(text_lines(str(tmp_path / "packed.gz"), tmp_path / "empty", tmp_path / "plain.txt")) == lines * 2
    assert list(text_lines()) == []


@pytest.mark.parametrize("name", ["bad.txt", "bad.gz"])
def test_invalid_utf8_is_named_by_file_and_line(tmp_path, name):
    content = b"fine\nalso fine\nL\xe4uft\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    lines = text_lines(tmp_path / name)
    assert [next(lines), next(lines)] == ["fine", "also fine"]
    with pytest.raises(ValueError, match=f"{name}, line 3 is not UTF-8"):
        next(lines)


def test_missing_file_is_noticed_before_reading(tmp_path):
    (tmp_path / "there").write_text("text")
    with pytest.raises(FileNotFoundError, match=r"no text file .*missing\.de"):
        text_lines(tmp_path / "there", tmp_path / "missing.de")


def test_damaged_gzip_is_named(tmp_path):
    packed = gzip.compress(b"some text\n" * 99)
    for name, content in {
        "no.gz": b"plain text\n",
        "cut.gz": packed[:-9],
        "wrong.gz": packed[:12] + b"xxxx" + packed[16:],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is no complete gzip file"):
            list(text_lines(tmp_path / name))


# --------------------------------------------------------------------------------------------------------- writing


def test_written_text_is_there_alone(tmp_path):
    write_text(tmp_path / "a.txt", "größer\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert names(tmp_path) == ["a.txt"]


def test_failed_write_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "new\ud800")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_json_is_readable_and_comes_back(tmp_path):
    content = {"b": [1, 2.5, None], "a": "größer"}
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "größer" in text
    assert text.startswith('{\n  "b"')


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert (tmp_path / "a.json").read_text() == "1\n"
    assert names(tmp_path) == ["a.json"]


def test_folder_appears_only_when_it_is_complete(tmp_path):
    with written_beside(tmp_path / "new") as beside:
        (beside / "file").write_text("x")
        assert not (tmp_path / "new").exists()
        assert beside.parent == tmp_path  # on the same disk, so that renaming is one step
    assert names(tmp_path) == ["new"]
    assert names(tmp_path / "new") == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_folder_vanishes(error, tmp_path):
    def fail():
        with written_beside(tmp_path / "new") as beside:
            (beside / "file").write_text("x")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


def test_existing_folder_is_not_touched(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").touch()
    with pytest.raises(FileExistsError, match=r"old exists already: remove it"), written_beside(tmp_path / "old"):
        pass
    assert names(tmp_path) == ["old"]
    assert names(tmp_path / "old") == ["config.json"]


def test_folder_takes_the_place_of_the_old_one_whole(tmp_path):
    for content in ("first", "second"):
        with replaced_folder(tmp_path / "model") as beside:
            beside.mkdir()
            (beside / content).touch()
        assert names(tmp_path) == ["model"]
        assert names(tmp_path / "model") == [content]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, None])
def test_old_folder_stays_when_the_new_one_fails(error, tmp_path):
    def fail():
        with replaced_folder(tmp_path / "old") as beside:
            if error:
                beside.mkdir()
                raise error

    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").touch()
    with pytest.raises(error or FileNotFoundError):
        fail()
    assert names(tmp_path) == ["old"]
    assert names(tmp_path / "old") == ["config.json"]


def test_what_cannot_be_replaced_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        write_text(tmp_path / "pipe", "läuft\n")
        assert read.result(timeout=10) == "läuft\n"
    assert (tmp_path / "pipe").is_fifo()


def test_failed_file_vanishes_and_the_old_one_stays(tmp_path):
    def fail():
        with replaced_file(tmp_path / "a.txt") as file:
            file.write("half")
            raise KeyboardInterrupt

    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*missing to write a\.txt to"):
        replaced_file(tmp_path / "missing" / "a.txt").__enter__()
    with pytest.raises(IsADirectoryError, match="is a folder: name a file"):
        replaced_file(tmp_path).__enter__()


def test_leftovers_of_a_killed_process_go_and_nothing_else(tmp_path):
    hexadecimal = "0123456789abcdef" * 2
    (tmp_path / f".best.{hexadecimal}").mkdir()
    (tmp_path / f".best.{hexadecimal}" / "model.safetensors").touch()
    (tmp_path / f".scores.json.{hexadecimal}").touch()
    for name in (".hidden", "scores.json", f"best.{hexadecimal}"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted([".hidden", "scores.json", f"best.{hexadecimal}"])
