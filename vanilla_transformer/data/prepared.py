"""The folder that `prepare` writes: its record, and a corpus of token ids that training starts from in seconds."""

import hashlib
import json
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, reduce
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import blocks_of, write_json
from .context import texts_in_context
from .corpora import Corpus
from .encoding import EncodingReport, PairLimits
from .known_words import KNOWN_WORDS
from .mixture import without_places
from .terms import TERM_LEXICON
from .tokenizer import TokenizerSettings, load_tokenizer


if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast

RECORD = "preparation.json"
TOKENIZER = "tokenizer"
STATE = "state.json"  # of `save_to_disk`; written last: without it the folder is unfinished
_PACKAGES = ("vanilla-transformer", "tokenizers", "transformers", "datasets")


@dataclass
class Preparation:
    """The content of `preparation.json`: what the data are made from, and how far the work has got.

    A file's entry has its name, bytes and CRC-32, and rows if it is a shard. A shard of only dropped pairs has no file.
    """

    corpus: dict  # identity of the stream
    vocabulary: dict  # {"learned": its settings} or {"given": SHA-256 of the tokenizer}
    limits: dict | None  # fields of `PairLimits`; None if all pairs are kept
    shard_pairs: int  # pairs of the corpus per shard, dropped ones included
    versions: dict = field(default_factory=lambda: {name: version(name) for name in _PACKAGES})
    place: tuple[int, int] = (0, 0)  # unit of the stream, and the row in it, after the last complete shard
    report: EncodingReport = field(default_factory=EncodingReport)  # of the pairs before that place
    tokenizer: list[dict] = field(default_factory=list)  # an entry for each file, once they are there
    shards: list[dict] = field(default_factory=list)  # an entry for each complete one

    def save(self, folder: Path) -> None:
        with writing(folder):
            write_json(folder / RECORD, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Preparation":
        """Reads the record in a folder.

        Raises:
            FileNotFoundError: There is no record.
            ValueError: It is not a record, or the files are not those that it lists.
        """
        try:
            content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            found = cls(**{**content, "report": EncodingReport(**content["report"])})
            files = [(each["file"], each["bytes"], each["crc32"]) for each in (*found.tokenizer, *found.shards)]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{folder / RECORD} is not a record of a preparation ({error}): remove {folder}."
            ) from error
        for name, size, checksum in files:
            path = folder / name
            if not path.is_file() or path.stat().st_size != size or _crc32(path) != checksum:
                raise ValueError(f"{path} is missing or damaged: remove {folder} and prepare the corpus again.")
        return found


def file_entry(folder: Path, path: Path, **facts) -> dict:
    """The entry of a file in the record."""
    file = path.relative_to(folder).as_posix()
    return {"file": file, **facts, "bytes": path.stat().st_size, "crc32": _crc32(path)}


def _crc32(path: Path) -> int:
    return reduce(lambda checksum, block: zlib.crc32(block, checksum), blocks_of(path), 0)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written ({error}): what is complete stays; make room and do the same again to go on."
        ) from error


def corpus_begun_with(folder: str | Path) -> dict | None:
    """Identity of the stream that `prepare` began a folder with, for `open_stream`; None without a record."""
    return Preparation.load(Path(folder)).corpus if (Path(folder) / RECORD).exists() else None


@dataclass
class PreparedCorpus(Corpus):
    """A training corpus made by `prepare`: rows of ids, mapped into memory, their tokenizer, and the record.

    Its batches are bit for bit those of the same corpus read as text and held in memory. They differ from those of a
    stream: a stream can sort and shuffle only what its buffer holds, a folder all of its pairs.
    """

    rows: "Dataset"
    tokenizer: "PreTrainedTokenizerFast"
    record: dict
    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def identity(self) -> dict:
        return self.record["corpus"]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the rows."""
        decisive = {name: self.record[name] for name in ("vocabulary", "limits")}
        decisive["corpus"] = without_places(self.identity)
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def texts(self) -> Iterator[tuple[str, str]]:
        """The kept pairs, decoded from their ids."""
        for row in self.rows:
            [source], _ = texts_in_context(self.tokenizer, [row["input_ids"]])
            yield source, self.tokenizer.decode(row["labels"], skip_special_tokens=True)

    def encoded(self, tokenizer, limits=None, **batches):
        """The rows as they are: `check` says whether they fit this tokenizer and these limits."""
        return self.rows, EncodingReport(**self.record["report"])

    def save_tokenizer(self, folder: Path, settings: TokenizerSettings, *, show_progress: bool = False) -> None:
        """Copies the tokenizer that it was made with, with its list of words and lexicon of terms, if any."""
        self.tokenizer.save_pretrained(folder)
        for name in (KNOWN_WORDS, TERM_LEXICON):
            if (path := self.folder / TOKENIZER / name).is_file():
                shutil.copy(path, folder)

    def check(
        self, name: str, languages: list[str], limits: PairLimits, settings: TokenizerSettings, context_sentences: int
    ) -> None:
        """Raises ValueError if it was not prepared as the recipe wants; the message calls this folder `name`."""
        learned = asdict(settings)
        parts = [part["corpus"]["languages"] for part in self.identity.get("mixture", ())]
        targets = {target for _, target in parts}
        if len(targets) > 1:
            raise ValueError(
                f"{name} has several target languages ({', '.join(sorted(targets))}), and only one can be trained on "
                "from prepared text: train from the text itself."
            )
        for what, prepared, wanted in (
            # Those of the recipe are the languages of its validation set.
            ("languages", languages if languages in parts else self.identity["languages"], languages),
            ("limits", self.record["limits"], asdict(limits)),
            ("context_sentences", self.context_sentences, context_sentences),
            ("tokenizer", self.record["vocabulary"].get("learned", learned), learned),  # a given one is right
        ):
            if prepared != wanted:
                raise ValueError(
                    f"{name} was prepared with the {what} {prepared}, and the recipe has {wanted}: prepare it again, "
                    "or change the recipe."
                )


def load_prepared(folder: str | Path) -> PreparedCorpus:
    """The training corpus in a folder of `prepare`.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: `prepare` did not make it, or it is unfinished or damaged; the message says what to do.
    """
    from datasets import load_from_disk

    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}: vanilla-transformer prepare RECIPE --output {folder}")
    if not (folder / RECORD).is_file():
        raise ValueError(
            f"{folder} is not a prepared corpus, it has no {RECORD}: make one with vanilla-transformer prepare RECIPE "
            "--output FOLDER"
        )
    record = Preparation.load(folder)
    if not (folder / STATE).is_file():
        raise ValueError(
            f"{folder} is not finished, it has {record.report.pairs:,} pairs so far: run the same "
            f"vanilla-transformer prepare RECIPE --output {folder} again, it goes on from there."
        )
    try:
        rows, tokenizer = load_from_disk(str(folder)), load_tokenizer(folder / TOKENIZER)
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{folder} is damaged ({error}): remove it and prepare the corpus again.") from error
    return PreparedCorpus(rows, tokenizer, asdict(record), folder)
