"""Where sentence pairs come from, all as one translation feature: `{"translation": {"en": ..., "de": ...}}`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .streams import PairStream, open_stream


if TYPE_CHECKING:
    from datasets import Dataset


def load_corpus(
    where: str | Path | Sequence[str | Path] | Mapping[str, str],
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
            phrasebook:SPLIT:PAIRS: so many pairs of the built-in phrasebook (en and de);
            {"hub": NAME, "config": ..., "split": ..., "revision": ...}: a dataset of the Hub (the default split is
            train), with a column `translation` or one per language.
        source_language: Language code of the source, say "en".
        target_language: Language code of the target, say "de".
        folder: What relative paths are relative to.

    Returns:
        A dataset with the one column `translation`, in the corpus's order.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The corpus is empty or malformed; the message names file and line, and what to do.
    """
    return whole_corpus(open_stream(where, source_language, target_language, folder=folder))


def whole_corpus(stream: PairStream) -> "Dataset":
    """All pairs of a stream, as `load_corpus` gives them.

    Raises:
        ValueError: There are none, or they are malformed.
    """
    from datasets import Dataset, Features, Translation

    languages = stream.identity["languages"]
    sources, targets = [], []
    for unit in range(stream.units):
        for source, target in stream.read(unit):
            sources.append(source)
            targets.append(target)
    if not sources:
        raise ValueError(f"The corpus {stream.name} is empty.")
    rows = [dict(zip(languages, pair, strict=True)) for pair in zip(sources, targets, strict=True)]
    features = Features({"translation": Translation(languages=languages)})
    return Dataset.from_dict({"translation": rows}, features=features)


def corpus_fingerprint(corpus: "Dataset") -> str:
    """SHA-256 over all pairs in their order: the same text gives the same fingerprint in whatever format it is kept."""
    digest = hashlib.sha256()
    for row in corpus["translation"]:
        digest.update(json.dumps(sorted(row.items()), ensure_ascii=False).encode())
    return digest.hexdigest()
