"""Checks for resumed work: it has the inputs that it was begun with, and earlier results are undamaged."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path


def check_begun_with(path: Path, before: Mapping, now: Mapping) -> None:
    """Checks that nested records of work as it was begun and as it is now agree, except for entries named "path".

    Raises:
        ValueError: They differ; the message begins with `path`, the file that has the record, and names the entry.
    """
    old, new = dict(facts_of(before)), dict(facts_of(now))
    for name in new | old:
        if old.get(name) != new.get(name) and name.rpartition(".")[2] != "path":
            raise ValueError(
                f"{path} was begun with {name} = {old.get(name)}, not {new.get(name)}: give the same again, or "
                "choose another folder."
            )


def facts_of(content, name: str = "") -> Iterator[tuple[str, object]]:
    """Everything in a nested record, by dotted name."""
    if isinstance(content, (Mapping, list, tuple)):
        entries = content.items() if isinstance(content, Mapping) else enumerate(content, start=1)
        for key, value in entries:
            yield from facts_of(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, content


def check_free(path: Path) -> None:
    """Raises FileExistsError if something of that name exists."""
    if path.exists():
        raise FileExistsError(f"{path} exists already: move it elsewhere, or choose another folder.")


def check_digest(path: Path, entry: Mapping, remedy: str) -> "hashlib._Hash":
    """The running digest of what was written to a file; ValueError if the file is missing, or begins otherwise.

    Args:
        path: The file, which may have more after it.
        entry: Its "bytes" and their "sha256".
        remedy: What the message tells the user to do.
    """
    digest = hashlib.sha256()
    if not path.is_file():
        raise ValueError(f"{path} is missing. {remedy}")
    with path.open("rb") as file:
        left = entry["bytes"]
        while block := file.read(min(left, 1 << 20)):
            digest.update(block)
            left -= len(block)
    if left or digest.hexdigest() != entry["sha256"]:
        raise ValueError(f"{path} is damaged: its content is not what was written. {remedy}")
    return digest
