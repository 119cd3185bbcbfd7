"""The text of a run: what is trained on and measured on, the vocabulary, and the account of both."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from ..data.batch_stream import TokenBatchStream
from ..data.collator import TranslationCollator
from ..data.corpora import corpus_fingerprint, whole_corpus
from ..data.encoding import encode_corpus
from ..data.preparing import load_prepared
from ..data.streams import PairStream, open_stream
from ..data.tokenizer import learn_tokenizer, load_tokenizer
from ..files import write_json, written_beside
from ..run_folder import RunFolder
from .arguments import VanillaTransformerTrainingArguments
from .recipe import Recipe


logger = logging.getLogger(__name__)


@dataclass
class PreparedCorpus:
    """What `prepare` made of a training corpus: rows of token ids, their tokenizer, and the account of both.

    Its batches are those of the same corpus read as text and held in memory, to the last bit. They are not those of the
    corpus read as a stream: a stream can sort and shuffle only what its buffer holds, a folder all of its pairs.
    """

    pairs: Dataset
    tokenizer: PreTrainedTokenizerFast
    record: dict

    @classmethod
    def load(cls, recipe: Recipe) -> "PreparedCorpus":
        """Loads the folder that a recipe names.

        Raises:
            FileNotFoundError, ValueError: There is no such folder, or it was prepared otherwise than the recipe says.
        """
        data = recipe.data
        if data.stream or set(data.train) != {"prepared"}:
            raise ValueError(
                "data.train: {prepared: FOLDER} is read as a whole: leave out data.stream and other fields."
            )
        found = cls(*load_prepared(Path(data.folder) / data.train["prepared"]))
        languages, limits = [data.source_language, data.target_language], dataclasses.asdict(data.limits)
        learned = dataclasses.asdict(recipe.tokenizer)
        for name, prepared, wanted in (
            ("languages", found.record["corpus"]["languages"], languages),
            ("limits", found.record["limits"], limits),
            ("tokenizer", found.record["vocabulary"].get("learned", learned), learned),  # one that was given is right
        ):
            if prepared != wanted:
                raise ValueError(
                    f"{data.train['prepared']} was prepared with the {name} {prepared}, and the recipe has {wanted}: "
                    "prepare it again, or change the recipe."
                )
        return found

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what decides the rows."""
        decisive = {name: self.record[name] for name in ("corpus", "vocabulary", "limits")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


@dataclass
class RunData:
    """The corpora of a run.

    Attributes:
        recipe: What says where they are.
        train: All training pairs, a stream of them, or what `prepare` made of them.
        measured: Validation and test sets by name.
        origins: Identity of the stream that each comes from, by name.
    """

    recipe: Recipe
    train: Dataset | PairStream | PreparedCorpus
    measured: dict[str, Dataset]
    origins: dict[str, dict]

    @classmethod
    def open(cls, recipe: Recipe, folder: RunFolder, arguments: VanillaTransformerTrainingArguments) -> "RunData":
        """Opens all text of a run, test sets too: what is wrong with them shows before training, not after it.

        Of a repository on the Hub, which may change at any time, a run reads one commit in all its sessions and in all
        its processes.

        Raises:
            FileNotFoundError, ValueError: A corpus is missing or malformed.
        """
        if arguments.world_size == 1:
            return cls._open(recipe, _origins_in(folder))
        if arguments.process_index == 0:
            try:
                data = cls._open(recipe, _origins_in(folder))
            except Exception as error:
                broadcast_object_list([None, str(error)])
                raise
            broadcast_object_list([data.origins, None])
            return data
        origins, failure = broadcast_object_list([None, None])
        if failure is not None:
            raise ValueError(failure)
        return cls._open(recipe, origins)

    @classmethod
    def _open(cls, recipe: Recipe, begun: Mapping[str, dict]) -> "RunData":
        data, origins = recipe.data, {}

        def stream_of(name: str, where) -> PairStream:
            languages = data.source_language, data.target_language
            stream = open_stream(where, *languages, folder=data.folder, patience=data.patience, begun=begun.get(name))
            origins[name] = stream.identity
            return stream

        if isinstance(data.train, Mapping) and "prepared" in data.train:
            train = PreparedCorpus.load(recipe)
            origins["train"] = train.record["corpus"]
        else:
            train = stream_of("train", data.train)
            train = train if data.stream else whole_corpus(train)
        places = {"validation": data.validation, **data.test}
        return cls(recipe, train, {name: whole_corpus(stream_of(name, at)) for name, at in places.items()}, origins)

    def check_same(self, folder: RunFolder) -> None:
        """Compares with what the run was begun with.

        Raises:
            ValueError: It is other text.
        """
        if not folder.data.exists():
            return
        before = json.loads(folder.data.read_text(encoding="utf-8"))
        for name, new in self._fingerprints().items():
            old = before.get(name, {}).get("fingerprint", "")
            if old and old != new:
                raise ValueError(
                    f"The {name} text is not the one that {folder.path} was begun with (fingerprint {new[:12]}…, not "
                    f"{old[:12]}…): restore it, or choose another output folder."
                )

    def make_tokenizer(self, folder: RunFolder, show_progress: bool) -> None:
        """Learns the vocabulary from the training text, or takes that of a prepared corpus, unless the run has one."""
        if folder.tokenizer.exists():
            return
        if isinstance(self.train, PreparedCorpus):
            tokenizer = self.train.tokenizer
        else:
            tokenizer = learn_tokenizer(self._texts(), self.recipe.tokenizer, show_progress=show_progress)
            logger.info("Learned a %s vocabulary of %s pieces.", self.recipe.tokenizer.kind, f"{len(tokenizer):,}")
        with written_beside(folder.tokenizer) as beside:
            tokenizer.save_pretrained(beside)

    def encode(
        self, folder: RunFolder, arguments: VanillaTransformerTrainingArguments
    ) -> tuple[PreTrainedTokenizerFast, Dataset | TokenBatchStream, Dataset]:
        """Tokenizer, training pairs and validation pairs as ids; the account of them goes into the folder."""
        tokenizer = load_tokenizer(folder.tokenizer)
        languages = self.recipe.data.source_language, self.recipe.data.target_language
        fingerprints = self._fingerprints()
        if isinstance(self.train, PairStream):
            train = self._batch_stream(tokenizer, arguments)
            records = {"train": {}}
        elif isinstance(self.train, PreparedCorpus):
            train, records = self.train.pairs, {"train": self.train.record["report"]}
        else:
            train, report = encode_corpus(self.train, tokenizer, *languages, self.recipe.data.limits)
            records = {"train": dataclasses.asdict(report)}
            logger.info("train: %s", report)
        encoded = {}
        for name, corpus in self.measured.items():  # nothing is left out of what is measured
            encoded[name], report = encode_corpus(corpus, tokenizer, *languages)
            records[name] = dataclasses.asdict(report)
            logger.info("%s: %s", name, report)
        records = {
            name: {"fingerprint": fingerprints[name], "corpus": self.origins[name], **record}
            for name, record in records.items()
        }
        if arguments.should_save:
            write_json(folder.data, records)
        return tokenizer, train, encoded["validation"]

    def _batch_stream(self, tokenizer, arguments: VanillaTransformerTrainingArguments) -> TokenBatchStream:
        limits = self.recipe.data.limits
        longest = max(limits.max_source_length, limits.max_target_length)
        if longest > arguments.max_tokens:  # a pair that is too long may come after days
            raise ValueError(
                f"data.max_source_length and data.max_target_length let pairs of {longest} tokens through, and a batch "
                f"has training.max_tokens = {arguments.max_tokens}: raise this, or lower those."
            )
        return TokenBatchStream(
            self.train,
            tokenizer,
            arguments.max_tokens,
            limits=limits,
            buffer_pairs=self.recipe.data.buffer_pairs,
            seed=arguments.seed if arguments.data_seed is None else arguments.data_seed,
            rank=arguments.process_index,
            world_size=arguments.world_size,
            collate=TranslationCollator(),
        )

    def _fingerprints(self) -> dict[str, str]:
        whole = isinstance(self.train, Dataset)
        train = corpus_fingerprint(self.train) if whole else self.train.fingerprint
        return {"train": train} | {name: corpus_fingerprint(corpus) for name, corpus in self.measured.items()}

    def _texts(self) -> Iterator[str]:
        if isinstance(self.train, Dataset):
            yield from (text for pair in self.train["translation"] for text in pair.values())
            return
        for unit in range(self.train.units):
            for pair in self.train.read(unit):
                yield from pair


def _origins_in(folder: RunFolder) -> dict[str, dict]:
    """What each corpus of a run was when it began; nothing if it is yet to begin."""
    if not folder.good_checkpoints() or not folder.data.exists():
        return {}
    records = json.loads(folder.data.read_text(encoding="utf-8"))
    return {name: record["corpus"] for name, record in records.items() if "corpus" in record}
