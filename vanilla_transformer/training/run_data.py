"""The text of a run: corpora to train on and to measure on, the vocabulary, and the record of both."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedTokenizerFast

from ..data.batch_stream import TokenBatchStream
from ..data.batching import TranslationCollator
from ..data.context import ContextSettings, context_settings, set_context
from ..data.corpora import Corpus, PairStream, TextCorpus, naming_in_errors, open_stream, read_corpus
from ..data.languages import base_of, language_tag, target_languages
from ..data.mixture import Mixture, difference, open_mixture
from ..data.prepared import load_prepared
from ..data.terms import TERM_LEXICON, learn_lexicon, marker_ids
from ..data.tokenizer import as_read_by, load_tokenizer
from ..files import write_json, written_beside
from ..run.digests import check_digests, write_digests
from ..run.folder import RunFolder, typed_to_resume
from ..run.recipe import DataSettings, Recipe, is_validation
from .arguments import VanillaTransformerTrainingArguments
from .initial_model import save_its_tokenizer
from .processes import patient_broadcast


logger = logging.getLogger(__name__)


def check_batches(data: DataSettings, max_tokens: int) -> None:
    """Raises ValueError if the length limits let pairs through that no batch has room for.

    In a stream such a pair may come only after days.
    """
    if (longest := max(data.max_source_length, data.max_target_length)) > max_tokens:
        raise ValueError(
            f"data.max_source_length and data.max_target_length let pairs of {longest} tokens through, and a batch "
            f"has training.max_tokens = {max_tokens}: raise this, and update_tokens if it is set, or lower those."
        )


@dataclass
class RunData:
    """The corpora of a run: the training corpus, and validation and test sets by name."""

    recipe: Recipe
    train: Corpus
    measured: dict[str, TextCorpus]

    @classmethod
    def open(cls, recipe: Recipe, folder: RunFolder, arguments: VanillaTransformerTrainingArguments) -> "RunData":
        """Opens all text of a run, test sets too: their errors show before training, not after it.

        A repository on the Hub may change any time, so all sessions and processes of a run read one commit of it.

        Raises:
            FileNotFoundError: A corpus is missing.
            ValueError: A corpus is malformed or empty, a prepared one does not fit the recipe, no training corpus
                has the target language of a measured set, or a process finds another text than the first. All
                processes but the first raise it for any error of the first.
        """
        tell = patient_broadcast(arguments)
        if arguments.process_index > 0:
            begun, failure = tell(None)
            if failure is not None:
                raise ValueError(failure)
            data = cls._open(recipe, {name: record["corpus"] for name, record in begun.items()})
            for name, corpus in data.corpora.items():
                if corpus.fingerprint != begun[name]["fingerprint"]:
                    raise ValueError(
                        f"The {name} text of process {arguments.process_index} is not that of the first process: all "
                        "machines must have the same files."
                    )
            return data
        try:
            records = folder.data_record() if folder.good_checkpoints() else {}
            data = cls._open(recipe, {name: record["corpus"] for name, record in records.items() if "corpus" in record})
        except Exception as error:
            tell((None, str(error)))
            raise
        if arguments.world_size > 1:
            tell((data.records, None))
        return data

    @classmethod
    def _open(cls, recipe: Recipe, begun: Mapping[str, dict]) -> "RunData":
        data = recipe.data
        languages = data.source_language, data.target_language

        def opened(open_corpus, name: str, where, source: str = languages[0], target: str = languages[1], **options):
            options |= {"folder": data.folder, "patience": data.patience, "begun": begun.get(name)}
            options["context_sentences"] = data.context_sentences
            return open_corpus(where, source, target, **options)

        if data.mixture:
            options = {"stream": data.stream, "temperature": data.sampling_temperature}
            train = opened(open_mixture, "train", data.mixture, **options)
        elif not isinstance(data.train, Mapping) or "prepared" not in data.train:
            with naming_in_errors("data.train"):
                train = opened(open_stream if data.stream else read_corpus, "train", data.train)
        elif data.stream or set(data.train) != {"prepared"}:
            raise ValueError(
                "data.train: {prepared: FOLDER} is read as a whole: leave out data.stream and other fields."
            )
        elif not isinstance(data.train["prepared"], str):
            raise ValueError(f"data.train: {data.train['prepared']!r} is not the folder of a prepared corpus.")
        else:
            train = load_prepared(Path(data.folder) / data.train["prepared"])
            train.check(data.train["prepared"], [*languages], data.limits, recipe.tokenizer, data.context_sentences)
        train.tags = (*train.tags, *recipe.added_tokens)
        measured = {}
        for name, (where, source, target) in data.measured.items():
            with naming_in_errors(f"data.test.{name}" if name in data.test else "data.validation"):
                measured[name] = opened(read_corpus, name, where, source, target)
            several = len(data.target_languages) > 1
            as_known = str if several else base_of  # for one language, pt is like pt_BR
            if as_known(target) not in map(as_known, data.target_languages):
                raise ValueError(f"{name}: no training corpus has the target language {target!r}.")
            if several:
                measured[name].tag = language_tag(target)
        return cls(recipe, train, measured)

    @property
    def corpora(self) -> dict[str, Corpus]:
        """All corpora by name."""
        return {"train": self.train, **self.measured}

    @property
    def records(self) -> dict[str, dict]:
        """What distinguishes each corpus from others, by name."""
        return {
            name: {"fingerprint": corpus.fingerprint, "corpus": corpus.identity}
            for name, corpus in self.corpora.items()
        }

    def check_same(self, folder: RunFolder) -> None:
        """Raises ValueError if the text is not the one that the run began with, or the record of it is damaged."""
        before = folder.data_record()
        remedy = (
            f"go on with the run's own recipe (vanilla-transformer train --resume {typed_to_resume(folder.path)}), or "
            "choose another output folder."
        )
        for name, corpus in self.corpora.items():
            old, new = before.get(name, {}).get("fingerprint", ""), corpus.fingerprint
            if not old:
                continue
            if changed := difference(before[name].get("corpus", {}), corpus.identity):
                raise ValueError(f"{folder.path} was begun with {changed}: {remedy}")
            if old != new:
                raise ValueError(
                    f"The {name} text is not the one that {folder.path} was begun with (fingerprint {new[:12]}…, not "
                    f"{old[:12]}…): restore it, {remedy}"
                )
        began, now = ({name for name in names if is_validation(name)} for names in (before, self.measured))
        if began and began != now:  # the scores of the checkpoints so far are of those
            began, now = (" and ".join(sorted(names)) for names in (began, now))
            raise ValueError(f"{folder.path} was begun with other validation sets ({began}, not {now}): {remedy}")

    def make_tokenizer(self, folder: RunFolder, show_progress: bool) -> None:
        """Takes the vocabulary of the initial model or of a prepared corpus, or learns one; unless the run has one.

        The lexicon of soft terms is beside it. The vocabulary says how many sentences before a source are read.
        """
        if folder.tokenizer.exists():
            check_digests(folder.tokenizer)
            return
        with written_beside(folder.tokenizer) as beside:
            if self.recipe.initial_model is None:
                self.train.save_tokenizer(beside, self.recipe.tokenizer, show_progress=show_progress)
            else:
                save_its_tokenizer(self.recipe.initial_model, beside, self.train, self.recipe.grow_vocabulary)
            tokenizer, data = load_tokenizer(beside), self.recipe.data
            if self.recipe.term_markers:
                marker_ids(tokenizer)  # raises if another model's vocabulary lacks them
                if not (beside / TERM_LEXICON).is_file():
                    learn_lexicon(self.train.texts(), as_read_by(tokenizer)).save(beside)
            if (several := target_languages(tokenizer)) and len(data.target_languages) == 1:  # sources have no tags
                raise ValueError(
                    f"The vocabulary is that of a model that translates into {', '.join(several)}, and data.train has "
                    f"only {data.target_language}: make data.train a list with corpora of at least two of these "
                    "languages, or train it by `vanilla-transformer finetune`, which takes one."
                )
            before = context_settings(tokenizer)  # of the initial model
            set_context(tokenizer, ContextSettings(data.context_sentences, data.max_source_length))
            if context_settings(tokenizer) != before:
                tokenizer.save_pretrained(beside)
            write_digests(beside)

    def encode(
        self, folder: RunFolder, arguments: VanillaTransformerTrainingArguments
    ) -> tuple[PreTrainedTokenizerFast, Dataset | TokenBatchStream, dict[str, Dataset]]:
        """The tokenizer, and the training pairs and measured sets as ids; the record goes into the folder.

        Raises:
            ValueError: The tokenizer does not fit this package, no pair is left, or the length limits of a stream
                exceed `training.max_tokens`.
        """
        data, tokenizer = self.recipe.data, load_tokenizer(folder.tokenizer)
        if isinstance(self.train, PairStream):
            check_batches(data, arguments.max_tokens)
        if isinstance(self.train, Mixture):
            logger.info("train: a pass has %s", self.train)
        train, report = self.train.encoded(
            tokenizer,
            data.limits,
            max_tokens=arguments.max_tokens,
            buffer_pairs=data.buffer_pairs,
            seed=arguments.order_seed,
            rank=arguments.process_index,
            world_size=arguments.world_size,
            collate=TranslationCollator(),
        )
        encoded, reports = {}, {"train": report}
        for name, corpus in self.measured.items():  # measured sets keep all pairs
            encoded[name], reports[name] = corpus.encoded(tokenizer)
        # Checkpoints are chosen by all validation sets together.
        parts = [encoded[name] for name in self.measured if name not in data.test]
        encoded["validation"] = parts[0] if len(parts) == 1 else concatenate_datasets(parts)
        records = self.records
        for name, report in reports.items():
            if report is not None:
                records[name] |= dataclasses.asdict(report)
                logger.info("%s: %s", name, report)
        if arguments.should_save:
            write_json(folder.data, records)
        del self.train  # with all of its text
        return tokenizer, train, encoded
