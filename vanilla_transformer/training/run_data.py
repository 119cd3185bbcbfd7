"""The text of a run: what is trained on and measured on, the vocabulary, and the account of both."""

import dataclasses
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from ..data.batch_stream import TokenBatchStream
from ..data.collator import TranslationCollator
from ..data.corpora import corpus_fingerprint, load_corpus
from ..data.encoding import encode_corpus
from ..data.streams import PairStream, open_stream
from ..data.tokenizer import learn_tokenizer, load_tokenizer
from ..files import write_json, written_beside
from ..run_folder import RunFolder
from .arguments import VanillaTransformerTrainingArguments
from .recipe import Recipe


logger = logging.getLogger(__name__)


@dataclass
class RunData:
    """The corpora of a run.

    Attributes:
        recipe: What says where they are.
        train: All training pairs, or a stream of them.
        measured: Validation and test sets by name.
    """

    recipe: Recipe
    train: Dataset | PairStream
    measured: dict[str, Dataset]

    @classmethod
    def open(cls, recipe: Recipe) -> "RunData":
        """Opens all text of a run, test sets too: what is wrong with them shows before training, not after it."""
        data = recipe.data
        languages = data.source_language, data.target_language
        if data.stream:
            train = open_stream(data.train, *languages, folder=data.folder, patience=data.patience)
        else:
            train = load_corpus(data.train, *languages, folder=data.folder)
        places = {"validation": data.validation, **data.test}
        return cls(
            recipe, train, {name: load_corpus(at, *languages, folder=data.folder) for name, at in places.items()}
        )

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
        """Learns the vocabulary from the training text, unless the run has one."""
        if folder.tokenizer.exists():
            return
        tokenizer = learn_tokenizer(self._texts(), self.recipe.tokenizer, show_progress=show_progress)
        with written_beside(folder.tokenizer) as beside:
            tokenizer.save_pretrained(beside)
        logger.info("Learned a %s vocabulary of %s pieces.", self.recipe.tokenizer.kind, f"{len(tokenizer):,}")

    def encode(
        self, folder: RunFolder, arguments: VanillaTransformerTrainingArguments
    ) -> tuple[PreTrainedTokenizerFast, Dataset | TokenBatchStream, Dataset]:
        """Tokenizer, training pairs and validation pairs as ids; the account of them goes into the folder."""
        tokenizer = load_tokenizer(folder.tokenizer)
        languages = self.recipe.data.source_language, self.recipe.data.target_language
        encoded, records, fingerprints = {}, {}, self._fingerprints()
        whole = self.measured if self._streams else {"train": self.train, **self.measured}
        for name, corpus in whole.items():
            limits = self.recipe.data.limits if name == "train" else None  # nothing is left out of what is measured
            encoded[name], report = encode_corpus(corpus, tokenizer, *languages, limits)
            records[name] = {"fingerprint": fingerprints[name], **dataclasses.asdict(report)}
            logger.info("%s: %s", name, report)
        if self._streams:
            encoded["train"] = self._batch_stream(tokenizer, arguments)
            records = {"train": {"fingerprint": fingerprints["train"], "stream": self.train.identity}} | records
        if arguments.should_save:
            write_json(folder.data, records)
        return tokenizer, encoded["train"], encoded["validation"]

    @property
    def _streams(self) -> bool:
        return isinstance(self.train, PairStream)

    def _batch_stream(self, tokenizer, arguments: VanillaTransformerTrainingArguments) -> TokenBatchStream:
        return TokenBatchStream(
            self.train,
            tokenizer,
            arguments.max_tokens,
            limits=self.recipe.data.limits,
            buffer_pairs=self.recipe.data.buffer_pairs,
            seed=arguments.seed if arguments.data_seed is None else arguments.data_seed,
            rank=arguments.process_index,
            world_size=arguments.world_size,
            collate=TranslationCollator(),
        )

    def _fingerprints(self) -> dict[str, str]:
        train = self.train.fingerprint if self._streams else corpus_fingerprint(self.train)
        return {"train": train} | {name: corpus_fingerprint(corpus) for name, corpus in self.measured.items()}

    def _texts(self) -> Iterator[str]:
        if not self._streams:
            yield from (text for pair in self.train["translation"] for text in pair.values())
            return
        for unit in range(self.train.units):
            for pair in self.train.read(unit):
                yield from pair
