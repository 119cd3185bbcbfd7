"""Records the size and SHA-256 of every file in a folder of ours, and checks the files against them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ..files import flush, read_json, sha256_of, write_json


DIGESTS = "digests.json"
# The files that determine how a model translates.
_DECISIVE = ("*.safetensors", "config.json", "generation_config.json", "token*.json", "vocab.json", "*.spm")


class DamagedError(ValueError):
    """A file is not the one that was written; the message names it."""


def write_digests(folder: Path, names: Iterable[str] | None = None, **facts) -> None:
    """Syncs the named files of a folder (default: all) to disk, and lists them and the facts in `digests.json`."""
    found = sorted(path.name for path in folder.iterdir() if path.is_file()) if names is None else sorted(names)
    files = {}
    for path in (folder / name for name in found if name != DIGESTS):
        flush(path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    write_json(folder / DIGESTS, {**facts, "files": files})


def read_digests(folder: Path) -> dict | None:
    """The record of `write_digests`: `files`, and the facts. None without a record; DamagedError if it is damaged."""
    path = folder / DIGESTS
    if not path.is_file():
        return None
    try:
        record = read_json(path)
    except ValueError as error:
        raise DamagedError(str(error)) from error
    files = record.get("files")
    if not isinstance(files, dict) or not all(
        name == Path(name).name
        and name not in ("", ".", "..")
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and type(entry.get("sha256")) is str
        for name, entry in files.items()
    ):
        raise DamagedError(f"{path} is damaged: it is not a list of files with their digests.")
    return record


def check_digests(folder: Path, names: Iterable[str] | None = None, *, contents: bool = True) -> None:
    """Compares the named files of a folder (default: all) with its list; unlisted files are the user's.

    Without `contents` only sizes are compared, and no file is read. DamagedError if one is missing or differs.
    """
    record = read_digests(folder)
    files = {} if record is None else record["files"]
    for name in files if names is None else files.keys() & set(names):
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing.")
        if path.stat().st_size != files[name]["bytes"]:
            raise DamagedError(
                f"{path} is damaged: it has {path.stat().st_size:,} bytes and was written with "
                f"{files[name]['bytes']:,}."
            )
        if contents and sha256_of(path) != files[name]["sha256"]:
            raise DamagedError(f"{path} is damaged: its content is not what was written.")


def sha256_of_model(folder: Path) -> str:
    """One digest of the weights, configurations and tokenizer in a model's folder, wherever that lies."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _DECISIVE for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
