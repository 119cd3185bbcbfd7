"""Corpora that are read a piece at a time: from the Hub or from files, from any place on, whatever breaks meanwhile."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from .readers import FORMS, pair_of, pairs_of, parquet_pairs, parquet_units


logger = logging.getLogger(__name__)

ROWS_PER_UNIT = 10_000
HUB_FIELDS = ("hub", "config", "split", "revision")  # the last three may be left out

Pair = tuple[str, str]


class StreamLostError(OSError):
    """A stream broke and could not be read again for as long as it was to be tried."""


@dataclass
class PairStream:
    """A corpus in units, each of which can be read by itself.

    Attributes:
        name: What messages call it.
        units: How many there are; a unit is some ten thousand rows of Parquet files, or a whole file of another kind.
        open: From a unit's number to its (source, target) pairs, always the same in the same order.
        identity: What tells this corpus from another, for instance the revision of a repository.
        bounded: Whether a unit may be held in memory.
        patience: Seconds without a single new pair after which reading is given up; 0: errors are raised as they are.
        stop: Set by whoever wants no more: a reader that waits for a connection then gives up at once.
        pairs: How many pairs there are in all, where that is known without reading them.
    """

    name: str
    units: int
    open: Callable[[int], Iterator[Pair]]
    identity: dict = field(default_factory=dict)
    bounded: bool = True
    patience: float = 3600.0
    stop: threading.Event = field(default_factory=threading.Event)
    pairs: int | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the identity: of another corpus it is another."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    def read(self, unit: int, start: int = 0) -> Iterator[Pair]:
        """The pairs of a unit from number `start` on. A connection that breaks is taken up again behind the last pair.

        Raises:
            StreamLostError: Nothing came for `patience` seconds.
            ValueError: The corpus is malformed.
        """
        done, delay, last_success = start, 1.0, time.monotonic()
        while True:
            try:
                for pair in islice(self.open(unit), done, None):
                    yield pair
                    done, delay, last_success = done + 1, 1.0, time.monotonic()
                return
            except _broken_connections() as error:
                if not self.patience:
                    raise
                waited = time.monotonic() - last_success
                if waited > self.patience or self.stop.is_set():
                    raise StreamLostError(
                        f"{self.name} cannot be read any more: nothing has come for {waited:.0f} seconds "
                        f"({_one_line(error)})."
                    ) from error
                logger.warning(
                    "%s broke off (%s); trying again in %.0f seconds, from the same place.",
                    self.name,
                    _one_line(error),
                    delay,
                )
                self.stop.wait(delay)
                delay = min(2 * delay, 60.0)


def open_stream(
    where,
    source_language: str,
    target_language: str,
    *,
    folder: str | Path = ".",
    patience: float = 3600.0,
    begun: Mapping | None = None,
) -> PairStream:
    """Opens a corpus for reading a piece at a time.

    Args:
        where: What `load_corpus` takes. Parquet files, those of the Hub too, are read in units of some ten thousand
            rows, files of other kinds as one unit.
        source_language: Language code of the source, say "en".
        target_language: Language code of the target, say "de".
        folder: What relative paths are relative to.
        patience: See [`PairStream`]; for a corpus of the Hub.
        begun: Identity of a stream that this one goes on with. If it is of the same place on the Hub, its commit is
            read, whatever has been added there since.

    Raises:
        FileNotFoundError: A file, a dataset or the commit to go on with is missing.
        ValueError: There can be no such corpus.
    """
    if source_language == target_language:
        raise ValueError(f"Source and target language are both {source_language!r}; give two different codes.")
    languages = (source_language, target_language)
    if isinstance(where, Mapping):
        return _hub_stream(where, languages, patience, begun or {})
    folder = Path(folder)
    if isinstance(where, (str, Path)) and str(where).endswith(".parquet") and (folder / where).is_file():
        return _parquet_stream(folder / where, languages)
    pairs_of(where, languages, folder)  # so that what is missing shows at once
    files = _files_of(where, folder)
    identity = {**({"files": files} if files else {"corpus": str(where)}), "languages": list(languages)}
    return PairStream(str(where), 1, lambda _: pairs_of(where, languages, folder), identity, False, patience=0.0)


def _files_of(where, folder: Path) -> list[str]:
    """SHA-256 of each of a corpus's files: their names and sizes may stay as they are while the text does not."""
    parts = [where] if isinstance(where, (str, Path)) else where
    places = [place for part in parts for place in (folder / part, folder / f"{part}.gz") if place.exists()]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    # Whoever works with a folder of `datasets` leaves results of his own in it.
    return [_sha256(file) for file in files if file.is_file() and not file.name.startswith("cache-")]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _parquet_stream(path: Path, languages: tuple[str, str]) -> PairStream:
    units = parquet_units(path, ROWS_PER_UNIT)
    return PairStream(
        str(path),
        len(units),
        lambda unit: parquet_pairs(path, units[unit], languages),
        {"files": [_sha256(path)], "units": len(units), "languages": list(languages)},
        bounded=all(unit.rows <= 10 * ROWS_PER_UNIT for unit in units),
        patience=0.0,
        pairs=sum(unit.rows for unit in units),
    )


# --------------------------------------------------------------------------------------------------------------- Hub


def _hub_stream(where: Mapping, languages: tuple[str, str], patience: float, begun: Mapping) -> PairStream:
    from datasets import load_dataset
    from huggingface_hub import HfApi

    if "hub" not in where or where.keys() - set(HUB_FIELDS):
        raise ValueError(f"{dict(where)!r} is no corpus: give {FORMS}.")
    repository, config, split = where["hub"], where.get("config"), where.get("split", "train")
    name = f"{repository} ({', '.join(filter(None, (config, split)))})"
    asked, revision = where.get("revision"), where.get("revision")
    goes_on = all(begun.get(key) == value for key, value in (("hub", repository), ("config", config), ("split", split)))
    if goes_on and asked in (begun.get("asked"), begun["revision"]):
        asked, revision = begun.get("asked"), begun["revision"]
    try:
        commit = persistently(lambda: HfApi().dataset_info(repository, revision=revision).sha, name, patience)
    except FileNotFoundError as error:
        if not goes_on or revision != begun["revision"]:
            raise
        raise FileNotFoundError(
            f"{error} It was begun with its commit {revision}, without which it cannot go on as it was: begin anew in "
            "another folder."
        ) from error
    rows = persistently(
        lambda: load_dataset(repository, config, split=split, revision=commit, streaming=True), name, patience
    )
    identity = {"hub": repository, "config": config, "split": split, "asked": asked, "revision": commit}
    return _row_stream(name, rows, languages, identity, patience)


def _row_stream(name: str, rows, languages: tuple[str, str], identity: dict, patience: float) -> PairStream:
    """A stream of `datasets`, cut into units where its row groups allow it."""
    groups = persistently(rows.reshard, name, patience)  # of Parquet one shard per row group, else per file
    split = rows.info.splits.get(rows.split) if rows.info.splits and rows.split else None
    known = split.num_examples if split is not None and split.num_examples else None
    units = groups.num_shards if known is None else min(groups.num_shards, max(1, -(-known // ROWS_PER_UNIT)))
    in_row_groups = groups.num_shards > rows.num_shards

    def open_unit(unit: int) -> Iterator[Pair]:
        some = groups.shard(num_shards=units, index=unit)
        each = (row for group in range(some.num_shards) for row in _rows_of(some, group))
        for number, row in enumerate(each, start=1):
            yield pair_of(row, languages, f"{name}, unit {unit}, row {number}")

    bounded = in_row_groups or (known is not None and known <= 10 * ROWS_PER_UNIT * units)
    identity |= {"languages": list(languages), "units": units}
    return PairStream(name, units, open_unit, identity, bounded, patience, pairs=known)


def _rows_of(rows, shard: int) -> Iterator[dict]:
    from pyarrow import ArrowInvalid

    try:
        yield from rows.shard(num_shards=rows.num_shards, index=shard)
    except ArrowInvalid as error:
        # datasets reads as many rows at a time as there are in a row group, were it none.
        if "BatchSize must be greater than 0" not in str(error):
            raise


def persistently(action: Callable, name: str, patience: float):
    """What `action()` returns, tried again with growing pauses while a connection is broken.

    Raises:
        FileNotFoundError: There is nothing to wait for.
        StreamLostError: It has been for `patience` seconds.
    """
    begun, delay = time.monotonic(), 1.0
    while True:
        try:
            return action()
        except (*_broken_connections(), json.JSONDecodeError) as error:  # the latter: it was not the Hub that answered
            if _is_final(error):
                raise FileNotFoundError(f"There is no {name}, or not for you ({_one_line(error)}).") from error
            if time.monotonic() - begun > patience:
                raise StreamLostError(f"{name} cannot be reached ({_one_line(error)}).") from error
            logger.warning("%s cannot be reached (%s); trying again in %.0f seconds.", name, _one_line(error), delay)
            time.sleep(delay)
            delay = min(2 * delay, 60.0)


def _broken_connections() -> tuple[type[Exception], ...]:
    """What `datasets` and its parts raise when a connection or a server fails, or a file is not whole."""
    from huggingface_hub.errors import HTTPError
    from pyarrow import ArrowException

    return (OSError, HTTPError, ArrowException)


def _is_final(error: Exception) -> bool:
    """Whether a place was never right, which waiting does not mend."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    links = [error]
    while link := links[-1].__cause__ or links[-1].__context__:
        links.append(link)
    if any(isinstance(link, LocalEntryNotFoundError) for link in links):
        return False  # what datasets calls a file that is not there, but the Hub was not reached and the cache lacks it
    if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
        return True
    never_there = (RepositoryNotFoundError, RevisionNotFoundError, OfflineModeIsEnabled)
    return isinstance(error, (FileNotFoundError, PermissionError, *never_there))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
