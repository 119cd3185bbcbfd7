"""A training corpus tokenised once, on all cores, into a folder of Arrow files from which training starts in seconds.

    stream -> chunks of pairs -> worker processes -> ids, in the stream's order -> data-00000.arrow, data-00001 ...

The folder is one of `Dataset.save_to_disk`, with the tokenizer and a record beside the data. After every complete shard
the record says how far the corpus has been read: whatever ends the process, the next one goes on from there. A shard is
so many pairs of the corpus, read in its natural order, so neither the workers nor the interruptions show in the files.
"""

import copy
import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import alone_in, remove_leftovers, write_json, written_beside
from .encoding import EncodingReport, PairLimits
from .encoding_workers import Chunk, encoded_in_workers
from .streams import PairStream
from .tokenizer import TokenizerSettings, learn_tokenizer, load_tokenizer


if TYPE_CHECKING:
    from datasets import Dataset, Features
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

CHUNK_PAIRS = 2_000  # some 0.2 seconds of one core
SHARD_PAIRS = 200_000  # some 50 MB

RECORD = "preparation.json"
TOKENIZER = "tokenizer"
# The two files that make a folder one of `save_to_disk`. Without the last, which is written last, it is unfinished.
INFO, STATE = "dataset_info.json", "state.json"
UNFINISHED_SHARD = ".unfinished.arrow"


@dataclass
class Preparation:
    """What `preparation.json` says: of what the data are made, and how far.

    Attributes:
        corpus: Identity of the stream.
        vocabulary: `{"learned": its settings}` or `{"given": SHA-256 of the tokenizer}`.
        limits: Fields of `PairLimits`; None if all pairs are kept.
        shard_pairs: Pairs of the corpus, those that are dropped too, for each shard.
        versions: Of the packages it was begun with.
        place: Unit of the stream, and the row in it, behind the last complete shard.
        report: What became of the pairs before that place.
        tokenizer: File name, bytes and CRC-32 of each file of the tokenizer, once it is there.
        shards: The same, and rows, of each complete shard; of pairs that are all dropped there is none.
    """

    corpus: dict
    vocabulary: dict
    limits: dict | None
    shard_pairs: int
    versions: dict = field(default_factory=lambda: {name: version(name) for name in _PACKAGES})
    place: tuple[int, int] = (0, 0)
    report: EncodingReport = field(default_factory=EncodingReport)
    tokenizer: list[dict] = field(default_factory=list)
    shards: list[dict] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        with _writing(folder):
            write_json(folder / RECORD, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Preparation":
        """Raises ValueError if the record is none, or the files are not those that it lists."""
        try:
            content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            found = cls(**{**content, "report": EncodingReport(**content["report"])})
            files = [(each["file"], each["bytes"], each["crc32"]) for each in (*found.tokenizer, *found.shards)]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder / RECORD} is no record of a preparation ({error}): remove {folder}.") from error
        for name, size, checksum in files:
            path = folder / name
            if not path.is_file() or path.stat().st_size != size or _crc32(path) != checksum:
                raise ValueError(f"{path} is missing or damaged: remove {folder} and prepare the corpus again.")
        return found


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


_PACKAGES = ("vanilla-transformer", "tokenizers", "transformers", "datasets")


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

    Its rows are those of `encode_corpus`: `input_ids` and `labels`, int32 ids ending in `</s>`, and in `source_length`
    and `target_length` how many there are. The same arguments give the same bytes, with however many workers. What was
    interrupted goes on behind its last complete shard; what is complete stays as it is. Memory does not depend on the
    size of the corpus, but for learning a vocabulary, which counts all its different words.

    Args:
        stream: The corpus.
        tokenizer: What makes ids of text, or what kind of vocabulary to learn from the same corpus first.
        output: The folder; missing, empty, or one that this function was interrupted in.
        limits: Which pairs are kept; None keeps all.
        workers: Processes that tokenise; None: one for each core.
        shard_pairs: Pairs of the corpus for each Arrow file; what is lost at most when the process is killed.
        on_progress: Called every few thousand pairs with "learning" or "tokenising" and the pairs read so far.

    Returns:
        What became of the pairs.

    Raises:
        FileExistsError: `output` is something else, or another process works in it.
        ValueError: `output` was begun with another corpus, vocabulary or limits, or is damaged; no pair is left; the
            corpus is malformed.
        OSError: A file cannot be written, the corpus cannot be read any more (`StreamLostError`), or a worker died
            (`ChildProcessError`). All three can be gone on from.
    """
    workers = _cores() if workers is None else workers
    if min(workers, shard_pairs) < 1:
        raise ValueError(f"workers ({workers}) and shard_pairs ({shard_pairs}) must be at least 1.")
    output = Path(output)
    with alone_in(output):
        record = _open_folder(output, _begun(stream, tokenizer, limits, shard_pairs))
        if (output / STATE).exists():
            logger.info("%s is complete already: %s.", output, record.report)
            return record.report
        if record.shards:
            logger.info("%s goes on behind %s pairs.", output, f"{record.report.pairs:,}")
        stream.stop.clear()
        tokenizer = _vocabulary(output, stream, tokenizer, on_progress)
        if not record.tokenizer:
            record.tokenizer = [
                {"file": f"{TOKENIZER}/{path.name}", "bytes": path.stat().st_size, "crc32": _crc32(path)}
                for path in sorted((output / TOKENIZER).iterdir())
            ]
            record.save(output)
        with encoded_in_workers(_chunks(stream, record), tokenizer, limits, workers) as chunks:
            _write_shards(output, record, chunks, on_progress)
        if not record.report.kept:
            raise ValueError(f"No pair of {stream.name} is left to use: {record.report}.")
        _finish(output, record)
    return record.report


def corpus_begun_with(folder: str | Path) -> dict | None:
    """Identity of the stream that a folder of `prepare` was begun with, for `open_stream`; None if it is none yet.

    Raises:
        ValueError: The folder is damaged.
    """
    return Preparation.load(Path(folder)).corpus if (Path(folder) / RECORD).exists() else None


def load_prepared(folder: str | Path) -> tuple["Dataset", "PreTrainedTokenizerFast", dict]:
    """The training corpus in a folder of `prepare`.

    Returns:
        The rows, mapped into memory and not read; the tokenizer; what is in `preparation.json`.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: It is none of `prepare`, unfinished or damaged; the message says what to do.
    """
    from datasets import load_from_disk

    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}: vanilla-transformer prepare RECIPE --output {folder}")
    if not (folder / RECORD).is_file():
        raise ValueError(
            f"{folder} is no prepared corpus, it has no {RECORD}: make one with vanilla-transformer prepare RECIPE "
            "--output FOLDER"
        )
    record = Preparation.load(folder)
    if not (folder / STATE).is_file():
        raise ValueError(
            f"{folder} is not finished, it has {record.report.pairs:,} pairs so far: run the same "
            f"vanilla-transformer prepare RECIPE --output {folder} again, it goes on from there."
        )
    try:
        return load_from_disk(str(folder)), load_tokenizer(folder / TOKENIZER), asdict(record)
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{folder} is damaged ({error}): remove it and prepare the corpus again.") from error


# ------------------------------------------------------------------------------------------------------------- begin


def _begun(stream: PairStream, tokenizer, limits: PairLimits | None, shard_pairs: int) -> Preparation:
    """The record of a preparation that has just begun, as its file gives it back: with lists for tuples."""
    if isinstance(tokenizer, TokenizerSettings):
        vocabulary = {"learned": asdict(tokenizer)}
    else:
        vocabulary = {"given": _fingerprint(tokenizer)}
    identity = json.loads(json.dumps(stream.identity))
    return Preparation(identity, vocabulary, None if limits is None else asdict(limits), shard_pairs)


def _fingerprint(tokenizer: "PreTrainedTokenizerFast") -> str:
    """SHA-256 of all that decides which ids a text gets."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()  # left behind by whoever called it last
    backend.no_padding()
    return hashlib.sha256(f"{backend.to_str()} {tokenizer.split_special_tokens}".encode()).hexdigest()


def _open_folder(folder: Path, new: Preparation) -> Preparation:
    """How far the folder is, if it was begun with the same; `new` if nothing has been done in it."""
    strangers = [path.name for path in folder.iterdir() if not re.match(rf"\.?{re.escape(RECORD)}", path.name)]
    if strangers and not (folder / RECORD).exists():
        raise FileExistsError(f"{folder} is no prepared corpus, it holds {min(strangers)}: choose another folder.")
    remove_leftovers(folder)
    found = Preparation.load(folder) if (folder / RECORD).exists() else new
    if not (found.report.pairs or (folder / TOKENIZER).exists()):  # nothing has been done that could be kept
        new.save(folder)
        return new
    for name in ("corpus", "vocabulary", "limits", "shard_pairs"):
        before, now = getattr(found, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"{folder} was begun with another {name}, {before} and not {now}: give the same again, or choose "
                "another folder."
            )
    return found


def _vocabulary(folder: Path, stream: PairStream, tokenizer, on_progress: Callable) -> "PreTrainedTokenizerFast":
    """The tokenizer in the folder. It is saved before any shard is, so that nobody learns it twice."""
    if not (folder / TOKENIZER).exists():
        if isinstance(tokenizer, TokenizerSettings):
            tokenizer = learn_tokenizer(_texts(stream, on_progress), tokenizer)
            logger.info("Learned a vocabulary of %s pieces.", f"{len(tokenizer):,}")
        with _writing(folder), written_beside(folder / TOKENIZER) as beside:
            try:
                tokenizer.save_pretrained(beside)
            except Exception as error:  # tokenizers has a kind of its own for a full disk, which is any Exception
                raise OSError(f"the tokenizer could not be saved: {error}") from error
    return load_tokenizer(folder / TOKENIZER)


def _texts(stream: PairStream, on_progress: Callable[[str, int], None]) -> Iterator[str]:
    pairs = (pair for unit in range(stream.units) for pair in stream.read(unit))
    for number, pair in enumerate(pairs):
        if number % CHUNK_PAIRS == 0:
            on_progress("learning", number)
        yield from pair


# -------------------------------------------------------------------------------------------------------------- data


def _chunks(stream: PairStream, record: Preparation) -> Iterator[Chunk]:
    """The rest of the corpus in pieces, none of which belongs to two shards."""
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
    try:
        for chunk, encoded in chunks:
            report = report + encoded.report
            with _writing(folder):
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
    finally:
        if shard:
            shard.file.close()
        # Half a file is of no use. It may be there without a shard: an interrupt comes at any moment.
        (folder / UNFINISHED_SHARD).unlink(missing_ok=True)


class _Shard:
    """An Arrow file that gets its name when it is complete."""

    def __init__(self, folder: Path):
        from datasets.arrow_writer import ArrowWriter
        from pyarrow import OSFile

        self.path = folder / UNFINISHED_SHARD
        self.rows = 0
        self.file = OSFile(str(self.path), "wb")  # it has no buffer that would be written too late on a full disk
        self.writer = ArrowWriter(features=_features(), stream=self.file)

    def write(self, encoded) -> None:
        from pyarrow import ListArray, Table, array

        columns = [
            *(ListArray.from_arrays(side.offsets, side.ids) for side in encoded.sides),
            *(array(side.lengths) for side in encoded.sides),
        ]
        table = Table.from_arrays(columns, schema=_features().arrow_schema)
        self.writer.write_table(table, writer_batch_size=len(table))
        self.rows += len(table)

    def complete(self, name: str) -> dict:
        """Gives the file its name; what the record then says of it is true even if the power fails."""
        self.writer.finalize()
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        record = {
            "file": name,
            "rows": self.rows,
            "bytes": self.path.stat().st_size,
            "crc32": _crc32(self.path),
        }
        os.replace(self.path, self.path.with_name(name))
        return record


def _features() -> "Features":
    from datasets import Features, List, Value

    ids, length = List(Value("int32")), Value("int32")
    return Features({"input_ids": ids, "labels": ids, "source_length": length, "target_length": length})


def _finish(folder: Path, record: Preparation) -> None:
    """Makes it a folder of `save_to_disk`."""
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
    with _writing(folder):
        (folder / UNFINISHED_SHARD).unlink(missing_ok=True)
        DatasetInfo(features=_features()).write_to_directory(str(folder))
        write_json(folder / STATE, state)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written ({error}): what is complete stays; make room and do the same again to go on."
        ) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
