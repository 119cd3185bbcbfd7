"""Where sentence pairs come from, all as one translation feature: `{"translation": {"en": ..., "de": ...}}`."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import text_lines


if TYPE_CHECKING:
    from datasets import Dataset

FORMS = (
    "two line-aligned text files [SOURCE, TARGET], one .tsv, .jsonl or .parquet file (text may be .gz), "
    "a folder saved by datasets, or phrasebook:SPLIT:PAIRS"
)


def load_corpus(
    where: str | Path | Sequence[str | Path],
    source_language: str,
    target_language: str,
    *,
    folder: str | Path = ".",
) -> "Dataset":
    """Reads all pairs of a corpus.

    Args:
        where: One of
            [SOURCE, TARGET]: two text files, line k of one belonging to line k of the other, plain or .gz (which
            need not be said: a.en is also found as a.en.gz);
            FILE.tsv: source TAB target on each line; a first line of language codes, if there, says which is where;
            FILE.jsonl: on each line `{"translation": {"en": ..., "de": ...}}` or just `{"en": ..., "de": ...}`;
            FILE.parquet: a column `translation`, or one column per language;
            FOLDER: what `Dataset.save_to_disk` wrote, with such columns;
            phrasebook:SPLIT:PAIRS: so many pairs of the built-in phrasebook (en and de).
        source_language: Language code of the source, say "en".
        target_language: Language code of the target, say "de".
        folder: What relative paths are relative to.

    Returns:
        A dataset with the one column `translation`, in the corpus's order.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The corpus is empty or malformed; the message names file and line, and what to do.
    """
    from datasets import Dataset, Features, Translation

    if source_language == target_language:
        raise ValueError(f"Source and target language are both {source_language!r}; give two different codes.")
    languages = (source_language, target_language)
    sources, targets = [], []
    for source, target in _pairs(where, languages, Path(folder)):
        sources.append(source)
        targets.append(target)
    if not sources:
        raise ValueError(f"The corpus {where} is empty.")
    rows = [dict(zip(languages, pair, strict=True)) for pair in zip(sources, targets, strict=True)]
    features = Features({"translation": Translation(languages=list(languages))})
    return Dataset.from_dict({"translation": rows}, features=features)


def corpus_fingerprint(corpus: "Dataset") -> str:
    """SHA-256 over all pairs in their order: the same text gives the same fingerprint in whatever format it is kept."""
    digest = hashlib.sha256()
    for row in corpus["translation"]:
        digest.update(json.dumps(sorted(row.items()), ensure_ascii=False).encode())
    return digest.hexdigest()


def _pairs(where, languages: tuple[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    if not isinstance(where, (str, Path)):
        if not isinstance(where, (list, tuple)) or len(where) != 2:
            raise ValueError(f"{where!r} is no corpus: give {FORMS}.")
        return _aligned(_maybe_packed(folder / where[0]), _maybe_packed(folder / where[1]))
    if str(where).partition(":")[0] == "phrasebook":
        return _phrasebook(str(where), languages)
    path = _maybe_packed(folder / where)
    if not path.exists():
        raise FileNotFoundError(f"There is no corpus {path}: give {FORMS}.")
    readers = {".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _table}
    suffix = Path(path.name.removesuffix(".gz")).suffix
    reader = _table if path.is_dir() else readers.get(suffix)
    if reader is None:
        raise ValueError(f"{path} is of no known kind: give {FORMS}.")
    return reader(path, languages)


def _maybe_packed(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return packed if not path.exists() and packed.exists() else path


def _phrasebook(where: str, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    from .phrasebook import phrasebook

    name, _, rest = where.partition(":")
    split, _, pairs = rest.partition(":")
    if name != "phrasebook" or not pairs.isdecimal() or set(languages) != {"en", "de"}:
        raise ValueError(
            f"{where!r} from {languages[0]} to {languages[1]} is no corpus: the built-in one is "
            "phrasebook:SPLIT:PAIRS, say phrasebook:train:50000, between en and de."
        )
    return ((pair[languages[0]], pair[languages[1]]) for pair in islice(phrasebook(split), int(pairs)))


def _aligned(source_path: Path, target_path: Path) -> Iterator[tuple[str, str]]:
    source_lines, target_lines = text_lines(source_path), text_lines(target_path)
    if source_path.samefile(target_path):
        raise ValueError(f"{source_path} is given as source and as target: give two files.")
    differ, last = False, 0
    for last, (source, target) in enumerate(zip_longest(source_lines, target_lines), start=1):
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


def _tsv(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    columns, expected = (0, 1), ["source", "target"]
    for number, line in enumerate(text_lines(path), start=1):
        cells = line.split("\t")
        if number == 1 and _is_header(cells, languages):
            missing = [language for language in languages if language not in cells]
            if missing:
                raise ValueError(f"{path} has columns for {', '.join(cells)} but none for {missing[0]!r}.")
            columns, expected = tuple(map(cells.index, languages)), cells
        elif len(cells) != len(expected):
            raise ValueError(f"{path}, line {number} has {len(cells)} columns: expected {' TAB '.join(expected)}.")
        else:
            yield cells[columns[0]], cells[columns[1]]


def _is_header(cells: list[str], languages: tuple[str, str]) -> bool:
    return bool(set(cells) & set(languages)) and all(re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", cell) for cell in cells)


def _jsonl(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text_lines(path), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error}).") from error
        yield _pair(row, languages, f"{path}, line {number}")


def _table(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(_rows(path), start=1):
        yield _pair(row, languages, f"{path}, row {number}")


def _rows(path: Path) -> Iterable[dict]:
    from datasets import Dataset, load_from_disk
    from pyarrow import ArrowException, parquet

    if not path.is_dir():
        try:
            return parquet.read_table(path).to_pylist()
        except (ArrowException, OSError) as error:
            raise ValueError(f"{path} is no Parquet file ({error}): write or fetch it again.") from error
    try:
        dataset = load_from_disk(str(path))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is no folder saved by datasets: give {FORMS}.") from error
    except IndexError:  # what datasets raises for a table without rows
        return []
    if not isinstance(dataset, Dataset):
        raise ValueError(f"{path} holds several splits: give one of {', '.join(f'{path}/{name}' for name in dataset)}.")
    return dataset


def _pair(row, languages: tuple[str, str], place: str) -> tuple[str, str]:
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
        raise ValueError(f"{place} holds half of a surrogate pair, which is no character ({error}).") from error
    return pair
