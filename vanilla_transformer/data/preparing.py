"""A training corpus tokenised once, on all cores, into a folder of Arrow files from which training starts in seconds.

    stream -> chunks of pairs -> worker processes -> ids, in the stream's order -> data-00000.arrow, data-00001 ...

The folder is laid out as by `Dataset.save_to_disk`, with the tokenizer and a record beside the data. After every
complete shard the record says how far the corpus has been read: whatever ends the process, the next one resumes
there. A shard is a fixed number of pairs of the corpus, read in its natural order, so neither the workers nor
interruptions show in the files.
"""

import copy
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..files import alone_in, remove_leftovers, write_json, written_beside
from ..resuming import check_begun_with
from ..signals import cleared_up
from ..worker_processes import processors
from .corpora import PairStream
from .encoding import Chunk, EncodedChunk, EncodingReport, PairLimits, encoded_in_workers
from .known_words import WordList
from .languages import tag_ids
from .mixture import without_places
from .prepared import RECORD, STATE, TOKENIZER, Preparation, file_entry, writing
from .terms import TERM_MARKERS, TermLexicon, learn_lexicon
from .tokenizer import TokenizerSettings, as_read_by, learn_tokenizer, load_tokenizer


if TYPE_CHECKING:
    from datasets import Features
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

CHUNK_PAIRS = 2_000  # some 0.2 seconds of one core
SHARD_PAIRS = 200_000  # some 50 MB

UNFINISHED_SHARD = ".unfinished.arrow"


def prepare(
    stream: PairStream,
    tokenizer: "PreTrainedTokenizerFast | TokenizerSettings",
    output: str | Path,
    *,
    limits: PairLimits | None = None,
    workers: int | None = None,
    shard_pairs: int = SHARD_PAIRS,
    on_progress: Callable[[str, int], None] = lambda step, pairs: None,
) -> EncodingReport:
    """Tokenises a corpus into a folder that `load_prepared` and `datasets.load_from_disk` read.

    Its rows are those of `TextCorpus.encoded`: `input_ids` and `labels`, int32 ids ending in `</s>`; and their
    lengths, `source_length` and `target_length`. The same arguments give the same bytes. Interrupted work is resumed;
    complete work stays as it is. Memory does not depend on the size of the corpus, except for learning a vocabulary,
    which counts all its different words.

    Args:
        stream: The corpus.
        tokenizer: The tokenizer, or what kind of vocabulary to learn from the same corpus first.
        output: The folder; it may be missing, empty, or left by an interrupted call.
        limits: Which pairs are kept; None keeps all.
        workers: Processes that tokenise; None: one per core.
        shard_pairs: Pairs of the corpus per Arrow file; at most these are lost if the process is killed.
        on_progress: Called every few thousand pairs with "learning" or "tokenising" and the pairs read so far.

    Returns:
        The counts of pairs and tokens.

    Raises:
        FileExistsError: `output` is something else, or another process works in it.
        ValueError: `output` was begun with another corpus, vocabulary or limits, or is damaged; no pair is left; the
            corpus is malformed.
        OSError: A file cannot be written, the corpus cannot be read any more (`StreamLostError`), or a worker died
            (`ChildProcessError`). Call again to resume after any of these.
    """
    if workers is None:
        workers = processors()
    if min(workers, shard_pairs) < 1:
        raise ValueError(f"workers ({workers}) and shard_pairs ({shard_pairs}) must be at least 1.")
    output = Path(output)
    if not isinstance(tokenizer, TokenizerSettings):
        tag_ids(tokenizer, stream.tags)  # that it has them all
    with alone_in(output):
        record = _open_folder(output, _begun(stream, tokenizer, limits, shard_pairs))
        if (output / STATE).exists():
            logger.info("%s is complete already: %s.", output, record.report)
            return record.report
        if record.shards:
            logger.info("%s continues after %s pairs.", output, f"{record.report.pairs:,}")
        stream.stop.clear()
        tokenizer = _vocabulary(output, stream, tokenizer, on_progress)
        if not record.tokenizer:
            record.tokenizer = [file_entry(output, path) for path in sorted((output / TOKENIZER).iterdir())]
            record.save(output)
        with encoded_in_workers(_chunks(stream, record), tokenizer, limits, workers) as chunks:
            _write_shards(output, record, chunks, on_progress)
        if not record.report.kept:
            shutil.rmtree(output / TOKENIZER)  # so that the next call may have other limits
            (output / RECORD).unlink()
            raise ValueError(f"No pair of {stream.name} is left to use: {record.report}.")
        _finish(output, record)
    return record.report


# ------------------------------------------------------------------------------------------------------------- begin


def _begun(stream: PairStream, tokenizer, limits: PairLimits | None, shard_pairs: int) -> Preparation:
    """The record of a preparation that has just begun."""
    if isinstance(tokenizer, TokenizerSettings):
        vocabulary = {"learned": asdict(tokenizer)}
    else:  # SHA-256 of everything that decides which ids a text gets
        backend = copy.deepcopy(tokenizer.backend_tokenizer)
        backend.no_truncation()  # left behind by an earlier call
        backend.no_padding()
        decisive = f"{backend.to_str()} {tokenizer.split_special_tokens}"
        vocabulary = {"given": hashlib.sha256(decisive.encode()).hexdigest()}
    identity = json.loads(json.dumps(stream.identity))  # as read back from the record's file, with lists for tuples
    return Preparation(identity, vocabulary, None if limits is None else asdict(limits), shard_pairs)


def _open_folder(folder: Path, new: Preparation) -> Preparation:
    """The record of a folder; `new` if nothing has been done in it. ValueError if it was begun differently."""
    strangers = [path.name for path in folder.iterdir() if not re.match(rf"\.?{re.escape(RECORD)}", path.name)]
    if strangers and not (folder / RECORD).exists():
        raise FileExistsError(f"{folder} is not a prepared corpus, it holds {min(strangers)}: choose another folder.")
    remove_leftovers(folder)
    found = Preparation.load(folder) if (folder / RECORD).exists() else new
    if not (found.report.pairs or (folder / TOKENIZER).exists()):  # nothing has been done that could be kept
        new.save(folder)
        return new
    records = (asdict(each) | {"corpus": without_places(each.corpus)} for each in (found, new))
    names = ("corpus", "vocabulary", "limits", "shard_pairs")
    check_begun_with(folder, *({name: each[name] for name in names} for each in records))
    return found


def _vocabulary(folder: Path, stream: PairStream, tokenizer, on_progress: Callable) -> "PreTrainedTokenizerFast":
    """The tokenizer in the folder. It is saved before any shard, so that it is never learned twice."""
    if (folder / TOKENIZER).exists():
        return load_tokenizer(folder / TOKENIZER)

    def texts() -> Iterator[tuple[str, str]]:
        for number, pair in enumerate(stream.texts()):
            if number % CHUNK_PAIRS == 0:
                on_progress("learning", number)
            yield pair

    # For a given vocabulary: the text is not read, and there is no list of words.
    words: WordList | None = None
    terms: TermLexicon | None = None
    if isinstance(tokenizer, TokenizerSettings):
        words = WordList()
        tokenizer = learn_tokenizer(words.reading(texts()), tokenizer, tags=stream.tags)
        if set(TERM_MARKERS) <= set(stream.tags):
            terms = learn_lexicon(stream.texts(), as_read_by(tokenizer))
    with writing(folder), written_beside(folder / TOKENIZER) as beside:
        try:
            tokenizer.save_pretrained(beside)
        except Exception as error:  # tokenizers raises a plain Exception for a full disk
            raise OSError(f"the tokenizer could not be saved: {error}") from error
        if words is not None:
            words.save(beside, tokenizer)
        if terms is not None:
            terms.save(beside)
    return load_tokenizer(folder / TOKENIZER)


# -------------------------------------------------------------------------------------------------------------- data


def _chunks(stream: PairStream, record: Preparation) -> Iterator[Chunk]:
    """The rest of the corpus in pieces, none of them across two shards."""
    (first, start), pairs, in_shard, end = record.place, [], 0, record.place
    for unit in range(first, stream.units):
        for row, pair in enumerate(stream.read(unit, start), start=start + 1):
            pairs.append(pair)
            end = (unit, row)
            shard_ends = in_shard + len(pairs) == record.shard_pairs
            if shard_ends or len(pairs) == CHUNK_PAIRS:
                yield Chunk(pairs, end, shard_ends)
                in_shard = 0 if shard_ends else in_shard + len(pairs)
                pairs = []
        start = 0
    if pairs or in_shard:
        yield Chunk(pairs, end, True)


def _write_shards(folder: Path, record: Preparation, chunks: Iterator, on_progress: Callable[[str, int], None]) -> None:
    report, shard = record.report, None
    on_progress("tokenising", report.pairs)

    def clear_up() -> None:
        if shard:
            shard.file.close()
        # Half a file is useless. It may be there without a shard: an interrupt can come at any moment.
        (folder / UNFINISHED_SHARD).unlink(missing_ok=True)

    with cleared_up(clear_up):
        for chunk, encoded in chunks:
            report = report + encoded.report
            with writing(folder):
                if encoded.report.kept:
                    shard = shard or _Shard(folder)
                    shard.write(encoded)
                if chunk.shard_ends and shard:
                    record.shards.append(shard.complete(f"data-{len(record.shards):05d}.arrow"))
                    shard = None
            if chunk.shard_ends:
                record.place, record.report = chunk.end, report
                record.save(folder)
            on_progress("tokenising", report.pairs)


class _Shard:
    """An Arrow file that gets its name when it is complete."""

    def __init__(self, folder: Path):
        from datasets.arrow_writer import ArrowWriter
        from pyarrow import OSFile

        self.path, self.rows = folder / UNFINISHED_SHARD, 0
        self.file = OSFile(str(self.path), "wb")  # without a buffer that would be written too late on a full disk
        self.writer = ArrowWriter(features=_features(), stream=self.file)

    def write(self, encoded: EncodedChunk) -> None:
        from pyarrow import ListArray, Table, array

        ends = [np.cumsum([0, *lengths], dtype=np.int32) for lengths in encoded.lengths]
        columns = [*map(ListArray.from_arrays, ends, encoded.ids), *map(array, encoded.lengths)]
        table = Table.from_arrays(columns, schema=_features().arrow_schema)
        self.writer.write_table(table, writer_batch_size=len(table))
        self.rows += len(table)

    def complete(self, name: str) -> dict:
        """Gives the file its name, and returns its entry in the record, which is true even if the power fails."""
        self.writer.finalize()
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        entry = file_entry(self.path.parent, self.path, rows=self.rows)
        os.replace(self.path, self.path.with_name(name))
        return {**entry, "file": name}


def _features() -> "Features":
    from datasets import Features, List, Value

    ids, length = List(Value("int32")), Value("int32")
    return Features({"input_ids": ids, "labels": ids, "source_length": length, "target_length": length})


def _finish(folder: Path, record: Preparation) -> None:
    """Lays the folder out as `save_to_disk` does."""
    from datasets import DatasetInfo

    identity = json.dumps([record.corpus, record.vocabulary, record.limits], sort_keys=True)
    state = {
        "_data_files": [{"filename": shard["file"]} for shard in record.shards],
        "_fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": "train",
    }
    with writing(folder):
        (folder / UNFINISHED_SHARD).unlink(missing_ok=True)
        DatasetInfo(features=_features()).write_to_directory(str(folder))
        write_json(folder / STATE, state)
