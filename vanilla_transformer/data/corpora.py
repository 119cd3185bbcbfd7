"""Corpora of sentence pairs, from files and from the Hub. Callers need not know where they come from.

Each has a `fingerprint`, gives its text by `texts()` and its token ids by `encoded(tokenizer, limits)`:

    read_corpus    all pairs in memory
    open_stream    a unit of some ten thousand pairs at a time, from any place on, whatever breaks meanwhile
    mixture.open_mixture    several of these as one, with weights and tags
    prepared.load_prepared    ids that `vanilla-transformer prepare` has made
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import sha256_of
from ..hub import StreamLostError, Waits, broken_connections, dataset_commit, one_line, persistently
from .context import Context, pairs_in_context
from .readers import FORMS, files_of, pair_of, pairs_of, parquet_pairs, parquet_units


if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast

    from .batch_stream import TokenBatchStream
    from .encoding import EncodingReport, PairLimits
    from .tokenizer import TokenizerSettings

ROWS_PER_UNIT = 10_000

Pair = tuple[str, str]


class Corpus:
    """A corpus of any kind. It has `name`, for messages; `identity`, which distinguishes it; `fingerprint`, its
    SHA-256; and `tags`, the tokens in front of its sources that its vocabulary must have.
    """

    tags: tuple[str, ...] = ()

    @property
    def context_sentences(self) -> int:
        """Maximum number of preceding sentences that are read with a source."""
        return self.identity.get("context_sentences", 0)

    def texts(self) -> Iterator[Pair]:
        """All pairs of source and target."""
        raise NotImplementedError

    def encoded(
        self, tokenizer: "PreTrainedTokenizerFast", limits: "PairLimits | None" = None, **batches
    ) -> "tuple[Dataset | TokenBatchStream, EncodingReport | None]":
        """Token ids for training or measuring, and a report of the pairs kept and dropped, if known beforehand.

        Args:
            tokenizer: The tokenizer of the text.
            limits: Which pairs are kept; None keeps all, as a test set must.
            **batches: Arguments of [`TokenBatchStream`], which a stream returns. Other corpora return rows of
                `input_ids` and `labels`, lists of ids ending in `</s>`.
        """
        raise NotImplementedError

    def save_tokenizer(self, folder: Path, settings: "TokenizerSettings", *, show_progress: bool = False) -> None:
        """Learns a vocabulary from the text and saves it, with the list of the sources' words.

        If tags mark terms, it also saves a lexicon of terms.
        """
        from .known_words import WordList
        from .terms import TERM_MARKERS, learn_lexicon
        from .tokenizer import as_read_by, learn_tokenizer

        words = WordList()
        tokenizer = learn_tokenizer(words.reading(self.texts()), settings, tags=self.tags, show_progress=show_progress)
        tokenizer.save_pretrained(folder)
        words.save(folder, tokenizer)
        if set(TERM_MARKERS) <= set(self.tags):
            learn_lexicon(self.texts(), as_read_by(tokenizer)).save(folder)


@dataclass
class TextCorpus(Corpus):
    """All pairs of a corpus, in memory; with `contexts`, the sentences before each source, if it was read with them."""

    name: str
    pairs: list[Pair]
    identity: dict
    tag: str | None = None  # in front of every source
    contexts: list[Context] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all pairs in their order; the same text has the same one in any format."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            by_language = sorted(zip(self.identity["languages"], pair, strict=True))
            digest.update(json.dumps(by_language, ensure_ascii=False).encode())
        for context in self.contexts or ():
            digest.update(json.dumps(context, ensure_ascii=False).encode())
        return digest.hexdigest()

    def texts(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def rows(self) -> list[tuple]:
        """The pairs, each followed by the tag and by its context, if there are any."""
        rows = self.pairs if self.tag is None else [(*pair, self.tag) for pair in self.pairs]
        if self.contexts is None:
            return rows
        return [(*row, context) for row, context in zip(rows, self.contexts, strict=True)]

    def encoded(self, tokenizer, limits=None, **batches):
        """See [`Corpus.encoded`]. Raises ValueError if no pair is left."""
        from datasets import Dataset, Features, List, Value

        from .encoding import encode_pairs

        sources, targets, report = encode_pairs(tokenizer, self.rows(), limits)
        if not report.kept:
            raise ValueError(f"No pair is left to use: {report}.")
        rows = {"input_ids": sources, "labels": targets}
        return Dataset.from_dict(rows, features=Features({name: List(Value("int32")) for name in rows})), report


@dataclass
class PairStream(Corpus):
    """A corpus in units that can be read one by one: some ten thousand rows of Parquet files, or a whole file of
    another kind.
    """

    name: str
    units: int
    # From a unit's number to its pairs, always the same in the same order; tags and contexts may follow each pair.
    open: Callable[[int], Iterator[tuple]]
    identity: dict = field(default_factory=dict)
    bounded: bool = True  # a unit may be held in memory
    patience: float = 3600.0  # reading is given up after so many seconds without a new pair; 0: errors are raised as is
    stop: threading.Event = field(default_factory=threading.Event)  # set to end reading, and waiting for a connection
    pairs: int | None = None  # in all, where that is known without reading them

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    def texts(self) -> Iterator[Pair]:
        for unit in range(self.units):
            for pair in self.read(unit):
                yield pair[:2]

    def encoded(self, tokenizer, limits=None, **batches):
        """Endless batches; see [`Corpus.encoded`]. The batches report the pairs kept and dropped."""
        from .batch_stream import TokenBatchStream

        return TokenBatchStream(self, tokenizer, limits=limits, **batches), None

    def read(self, unit: int, start: int = 0) -> Iterator[tuple]:
        """The pairs of a unit from number `start` on. If the connection breaks, reading resumes after the last pair.

        Raises:
            StreamLostError: Nothing arrived for `patience` seconds.
            ValueError: The corpus is malformed.
        """
        done, waits = start, Waits(pause=self.stop.wait)
        while True:
            try:
                for pair in islice(self.open(unit), done, None):
                    yield pair
                    done += 1
                    waits.succeeded()
                return
            except broken_connections() as error:
                if not self.patience:
                    raise
                if (waited := waits.seconds()) > self.patience or self.stop.is_set():
                    raise StreamLostError(
                        f"{self.name} cannot be read any more: nothing has come for {waited:.0f} seconds "
                        f"({one_line(error)})."
                    ) from error
                told = "%s broke off (%s); trying again in %.0f seconds, from the same place."
                waits.wait(told, self.name, one_line(error))


# ------------------------------------------------------------------------------------------------------------- opening


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
            [SOURCE, TARGET]: two text files, line k of one belonging to line k of the other, plain or .gz (a.en is
            also found as a.en.gz);
            FILE.tsv: source TAB target on each line; an optional first line of language codes gives the order;
            FILE.jsonl: on each line `{"translation": {"en": ..., "de": ...}}` or just `{"en": ..., "de": ...}`;
            FILE.parquet: a column `translation`, or one column per language;
            FOLDER: written by `Dataset.save_to_disk`, with such columns;
            phrasebook:SPLIT:PAIRS: this many pairs of the built-in phrasebook (en and de);
            {"hub": NAME, "config": ..., "split": ..., "revision": ...}: a dataset of the Hub (the default split is
            train), with a column `translation` or one per language.
        source_language, target_language: Language codes, say "en" and "de".
        folder: The folder that relative paths start from.

    Returns:
        A dataset with the one column `translation`, in the corpus's order.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The corpus is empty or malformed; the message names file and line, and what to do.
    """
    from datasets import Dataset, Features, Translation

    languages = [source_language, target_language]
    corpus = read_corpus(where, *languages, folder=folder)
    rows = [dict(zip(languages, pair, strict=True)) for pair in corpus.pairs]
    return Dataset.from_dict({"translation": rows}, features=Features({"translation": Translation(languages)}))


def read_corpus(
    where, source_language: str, target_language: str, *, folder=".", patience=3600.0, begun=None, context_sentences=0
):
    """Reads all pairs of a corpus into a [`TextCorpus`]; text files are hashed as they are read.

    Args:
        where, source_language, target_language, folder: As for `load_corpus`.
        patience, begun, context_sentences: As for `open_stream`.
    """
    languages, folder = _two_languages(source_language, target_language), Path(folder)
    if isinstance(where, Mapping) or _is_parquet(where, folder):
        options = {"patience": patience, "begun": begun, "context_sentences": context_sentences}
        stream = open_stream(where, *languages, folder=folder, **options)
        rows = [row for unit in range(stream.units) for row in stream.read(unit)]
        corpus = TextCorpus(stream.name, rows, stream.identity)
    else:
        digests: dict[Path, str] = {}
        rows = list(_in_context(context_sentences, pairs_of, where, languages, folder, digests))
        identity = _local_identity(where, languages, folder, digests) | _context_identity(context_sentences)
        corpus = TextCorpus(_name_of(where), rows, identity)
    if context_sentences:
        corpus.pairs, corpus.contexts = [row[:2] for row in rows], [row[2] for row in rows]
    if not corpus.pairs:
        raise ValueError(f"The corpus {corpus.name} is empty.")
    return corpus


def open_stream(
    where,
    source_language: str,
    target_language: str,
    *,
    folder: str | Path = ".",
    patience: float = 3600.0,
    begun: Mapping | None = None,
    errors: str = "strict",
    context_sentences: int = 0,
) -> PairStream:
    """Opens a corpus for reading a piece at a time.

    Args:
        where, source_language, target_language, folder: As for `load_corpus`. Parquet files, those of the Hub too, are
            read in units of some ten thousand rows, files of other kinds as one unit.
        patience: See [`PairStream`]; for a corpus of the Hub.
        begun: Identity of the stream that this one continues. If it comes from the same place on the Hub, its commit is
            read, whatever has been added there since.
        errors: How to treat bytes in text files that are not UTF-8, as for `bytes.decode`.
        context_sentences: At most this many sentences before a source in its document are read with it. A pair that is
            blank on both sides then ends a document, and is not a pair of the corpus. Another value in a column
            `document` and the end of a unit also end a document.

    Raises:
        FileNotFoundError: A file, a dataset or the commit to continue with is missing.
        ValueError: The arguments describe no valid corpus.
    """
    languages, folder = _two_languages(source_language, target_language), Path(folder)
    if isinstance(where, Mapping):
        return _hub_stream(where, languages, patience, begun or {}, context_sentences)
    if not _is_parquet(where, folder):
        pairs_of(where, languages, folder)  # so that missing files show at once
        identity = _local_identity(where, languages, folder, {}) | _context_identity(context_sentences)

        def read_all(_) -> Iterator[tuple]:
            return _in_context(context_sentences, pairs_of, where, languages, folder, errors=errors)

        return PairStream(_name_of(where), 1, read_all, identity, False, patience=0.0)
    path = folder / where
    units = parquet_units(path, ROWS_PER_UNIT)
    if not any(unit.rows for unit in units):
        raise ValueError(f"The corpus {path} is empty.")
    return PairStream(
        str(path),
        len(units),
        lambda unit: _in_context(context_sentences, parquet_pairs, path, units[unit], languages),
        {"files": [sha256_of(path)], "units": len(units), "languages": list(languages)}
        | _context_identity(context_sentences),
        bounded=all(unit.rows <= 10 * ROWS_PER_UNIT for unit in units),
        patience=0.0,
        pairs=sum(unit.rows for unit in units),
    )


@contextmanager
def naming_in_errors(field: str) -> Iterator[None]:
    """Puts a corpus's field in the recipe in front of error messages about it."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{field}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _two_languages(source: str, target: str) -> tuple[str, str]:
    if source == target:
        raise ValueError(f"Source and target language are both {source!r}; give two different codes.")
    return source, target


def _in_context(sentences: int, read: Callable[..., Iterator[tuple]], *arguments, **options) -> Iterator[tuple]:
    """The rows that `read` gives, with the sentences before each source if they are wanted."""
    if not sentences:
        return read(*arguments, **options)
    return pairs_in_context(read(*arguments, **options, documents=True), sentences)


def _context_identity(sentences: int) -> dict:
    return {"context_sentences": sentences} if sentences else {}


def _name_of(where) -> str:
    """The name of a corpus of local files in messages."""
    return " and ".join(map(str, where)) if isinstance(where, (list, tuple)) else str(where)


def _is_parquet(where, folder: Path) -> bool:
    return isinstance(where, (str, Path)) and str(where).endswith(".parquet") and (folder / where).is_file()


def _local_identity(where, languages: tuple[str, str], folder: Path, digests: Mapping[Path, str]) -> dict:
    """SHA-256 of each of a corpus's files: names and sizes may stay the same when the text changes."""
    files = [digests.get(file) or sha256_of(file) for file in files_of(where, folder)]
    return {**({"files": files} if files else {"corpus": str(where)}), "languages": list(languages)}


def _hub_stream(
    where: Mapping, languages: tuple[str, str], patience: float, begun: Mapping, context_sentences: int
) -> PairStream:
    from datasets import load_dataset

    words_only = all(isinstance(each, str) or each is None for each in where.values())
    if not where.get("hub") or where.keys() - {"hub", "config", "split", "revision"} or not words_only:
        raise ValueError(f"{dict(where)!r} is not a corpus: give {FORMS}.")
    repository, config, split = where["hub"], where.get("config"), where.get("split") or "train"
    name = f"{repository} ({', '.join(filter(None, (config, split)))})"
    asked, revision = where.get("revision"), where.get("revision")
    goes_on = all(begun.get(key) == value for key, value in (("hub", repository), ("config", config), ("split", split)))
    if goes_on and asked in (begun.get("asked"), begun["revision"]):
        asked, revision = begun.get("asked"), begun["revision"]
    try:
        commit = dataset_commit(repository, revision, name, patience)
    except FileNotFoundError as error:
        if not goes_on or revision != begun["revision"]:
            raise
        raise FileNotFoundError(
            f"{error} The work was begun with commit {revision} and cannot continue without it: start over in another "
            "folder."
        ) from error
    rows = persistently(
        lambda: load_dataset(repository, config, split=split, revision=commit, streaming=True), name, patience
    )
    groups = persistently(rows.reshard, name, patience)  # for Parquet one shard per row group, else one per file
    told = rows.info.splits.get(rows.split) if rows.info.splits and rows.split else None
    known = (told and told.num_examples) or None
    units = groups.num_shards if known is None else min(groups.num_shards, max(1, -(-known // ROWS_PER_UNIT)))

    def read_unit(unit: int, documents: bool = False) -> Iterator[tuple]:
        some = groups.shard(num_shards=units, index=unit)
        each = (row for group in range(some.num_shards) for row in _rows_of(some, group))
        for number, row in enumerate(each, start=1):
            yield pair_of(row, languages, f"{name}, unit {unit}, row {number}", documents)

    def open_unit(unit: int) -> Iterator[tuple]:
        return _in_context(context_sentences, read_unit, unit)

    in_row_groups = groups.num_shards > rows.num_shards
    bounded = in_row_groups or (known is not None and known <= 10 * ROWS_PER_UNIT * units)
    identity = {"hub": repository, "config": config, "split": split, "asked": asked, "revision": commit}
    identity |= {"languages": list(languages), "units": units} | _context_identity(context_sentences)
    return PairStream(name, units, open_unit, identity, bounded, patience, pairs=known)


def _rows_of(rows, shard: int) -> Iterator[dict]:
    from pyarrow import ArrowInvalid

    try:
        yield from rows.shard(num_shards=rows.num_shards, index=shard)
    except ArrowInvalid as error:
        # datasets takes the number of rows of a row group as its batch size, even 0.
        if "BatchSize must be greater than 0" not in str(error):
            raise
