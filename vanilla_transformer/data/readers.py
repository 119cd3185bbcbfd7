"""Reads sentence pairs from files of every format."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from ..files import json_rows, text_lines
from .languages import is_language_code


DOCUMENT = "document"  # the column that tells one document from the next
FORMS = (
    "two line-aligned text files [SOURCE, TARGET], one .tsv, .jsonl or .parquet file (text may be .gz), "
    "a folder saved by datasets, phrasebook:SPLIT:PAIRS, or {hub: NAME, config: ..., split: ...}"
)


def pairs_of(
    where,
    languages: tuple[str, str],
    folder: Path,
    digests: dict[Path, str] | None = None,
    errors: str = "strict",
    documents: bool = False,
) -> Iterator[tuple]:
    """The (source, target) pairs of a local corpus or the phrasebook, in their order, as `load_corpus` takes them.

    `digests` gets the SHA-256 of each text file that has been read to its end. `errors` is as for `text_lines`; JSON
    must be UTF-8. With `documents`, a pair of a table has the value of its column `document` as a third item, None if
    it has none.

    Raises:
        FileNotFoundError: A file is missing. Raised at once, before anything is read.
        ValueError: The corpus is malformed; the message names file and line, and what to do.
    """
    if not isinstance(where, (str, Path)):
        parts = where if isinstance(where, (list, tuple)) else []
        if len(parts) != 2 or not all(isinstance(part, (str, Path)) for part in parts):
            raise ValueError(f"{where!r} is not a corpus: give {FORMS}.")
        paths = [plain_or_packed(folder / part) for part in where]
        lines = [text_lines(path, digests=digests, errors=errors) for path in paths]
        if paths[0].samefile(paths[1]):
            raise ValueError(f"{paths[0]} is given as source and as target: give two files.")
        return _aligned(*paths, zip_longest(*lines))
    if str(where).partition(":")[0] == "phrasebook":
        return _phrasebook(str(where), languages)
    path = plain_or_packed(folder / where)
    if not path.exists():
        raise FileNotFoundError(f"There is no corpus {path}: give {FORMS}.")
    if path.is_dir():
        return _table(path, languages, documents)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in (".tsv", ".jsonl"):
        raise ValueError(f"{path} is of no known kind: give {FORMS}.")
    if suffix == ".tsv":
        return _tsv(path, languages, text_lines(path, digests=digests, errors=errors), documents)
    rows = json_rows(path, text_lines(path, digests=digests))
    return (pair_of(row, languages, place, documents) for place, row in rows)


def files_of(where, folder: Path) -> list[Path]:
    """The files of a local corpus."""
    parts = [where] if isinstance(where, (str, Path)) else where
    places = [place for part in parts if (place := plain_or_packed(folder / part)).exists()]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    # Working with a folder of `datasets` leaves cached results in it.
    return [file for file in files if file.is_file() and not file.name.startswith("cache-")]


def plain_or_packed(path: Path) -> Path:
    """The file, or the one with `.gz` added if only that one is there."""
    packed = Path(f"{path}.gz")  # of "." too, which has no name
    return packed if not path.exists() and packed.exists() else path


def _phrasebook(where: str, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    from .phrasebook import phrasebook

    name, _, rest = where.partition(":")
    split, _, pairs = rest.partition(":")
    if name != "phrasebook" or not pairs.isdecimal() or len(pairs) > 15 or set(languages) != {"en", "de"}:
        raise ValueError(
            f"{where!r} from {languages[0]} to {languages[1]} is not a corpus: the built-in one is "
            "phrasebook:SPLIT:PAIRS, say phrasebook:train:50000, between en and de."
        )
    return ((pair[languages[0]], pair[languages[1]]) for pair in islice(phrasebook(split), int(pairs)))


def _aligned(source_path: Path, target_path: Path, lines: Iterable) -> Iterator[tuple[str, str]]:
    differ, last = False, 0
    for last, (source, target) in enumerate(lines, start=1):
        if source is None or target is None:
            shorter, longer = (source_path, target_path) if source is None else (target_path, source_path)
            raise ValueError(
                f"{shorter} ends after line {last - 1}, but {longer} goes on: line k of one must belong to line k of "
                "the other."
            )
        differ = differ or source != target
        yield source, target
    if last and not differ:
        raise ValueError(f"{source_path} and {target_path} hold the same text: give source and target.")


def _tsv(path: Path, languages: tuple[str, str], lines: Iterable[str], documents: bool) -> Iterator[tuple]:
    columns, expected = (0, 1), ["source", "target"]
    wanted = [language.lower() for language in languages]
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        heads = [cell.lower() for cell in cells]
        has_heads = number == 1 and all(head == DOCUMENT or is_language_code(head) for head in heads)
        if has_heads and set(heads) & set(wanted):
            if missing := [language for language in languages if language.lower() not in heads]:
                raise ValueError(f"{path} has columns for {', '.join(cells)} but none for {missing[0]!r}.")
            columns, expected = tuple(map(heads.index, wanted)), cells
            if documents and DOCUMENT in heads:
                columns = (*columns, heads.index(DOCUMENT))
        elif documents and not line.strip():  # it ends a document
            yield "", ""
        elif len(cells) != len(expected):
            found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise ValueError(f"{path}, line {number} has {found}: expected {' TAB '.join(expected)}.")
        else:
            yield tuple(cells[column] for column in columns)


def _table(path: Path, languages: tuple[str, str], documents: bool) -> Iterator[tuple]:
    from datasets import Dataset, load_from_disk

    if not ((path / "state.json").is_file() or (path / "dataset_dict.json").is_file()):
        raise ValueError(f"{path} is not a folder saved by datasets: give {FORMS}.")
    try:
        dataset = load_from_disk(str(path))
    except IndexError:  # datasets raises this for a table without rows
        return
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): save it again.") from error
    if not isinstance(dataset, Dataset):
        raise ValueError(f"{path} holds several splits: give one of {', '.join(f'{path}/{name}' for name in dataset)}.")
    for number, row in enumerate(dataset, start=1):
        yield pair_of(row, languages, f"{path}, row {number}", documents)


@dataclass(frozen=True)
class ParquetUnit:
    """Consecutive row groups of a Parquet file: their numbers, the rows before them, and their own."""

    groups: tuple[int, ...]
    first_row: int
    rows: int


def parquet_units(path: Path, rows: int) -> list[ParquetUnit]:
    """Cuts a Parquet file into units of at least this many rows, except the last, at the ends of its row groups."""
    from pyarrow import ArrowException, parquet

    try:
        metadata = parquet.read_metadata(path)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file ({error}): write or fetch it again.") from error
    units, groups, first_row, found = [], [], 0, 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        found += metadata.row_group(group).num_rows
        if found >= rows or group == metadata.num_row_groups - 1:
            units.append(ParquetUnit(tuple(groups), first_row, found))
            groups, first_row, found = [], first_row + found, 0
    return units


def parquet_pairs(
    path: Path, unit: ParquetUnit, languages: tuple[str, str], documents: bool = False
) -> Iterator[tuple]:
    """The pairs of some row groups of a Parquet file, as `pairs_of` gives them. ValueError names file and row."""
    from pyarrow import ArrowException, parquet

    number = unit.first_row
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1000, row_groups=list(unit.groups)):
                for row in batch.to_pylist():
                    number += 1
                    yield pair_of(row, languages, f"{path}, row {number}", documents)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged after row {number} ({error}): write or fetch it again.") from error


def pair_of(row, languages: tuple[str, str], place: str, documents: bool = False) -> tuple:
    """Source and target of a row with a `translation`, or with a column per language; with `documents`, its document.

    Raises:
        ValueError: A language is missing, or its value is not text; the message begins with `place`.
    """
    document = row.get(DOCUMENT) if documents and isinstance(row, dict) else None
    row = row.get("translation", row) if isinstance(row, dict) else {}
    row = row if isinstance(row, dict) else {}
    for language in languages:
        if not isinstance(row.get(language), str):
            found = ", ".join(map(repr, row)) or "none"
            raise ValueError(f"{place} has no text for {language!r}; the columns are: {found}.")
    pair = row[languages[0]], row[languages[1]]
    try:
        "".join(pair).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} holds half of a surrogate pair, which is not a character ({error}).") from error
    return (*pair, document) if documents else pair
