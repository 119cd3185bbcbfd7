"""A run that begins with the weights and the vocabulary of another model, in place of random ones and a new one."""

import logging
from dataclasses import fields
from pathlib import Path

from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from ..data.corpora import Corpus
from ..data.known_words import WordList, load_known_words
from ..data.prepared import PreparedCorpus
from ..data.tokenizer import load_tokenizer
from ..run.loading import find_model, load_model


logger = logging.getLogger(__name__)

# Fields that may differ, beside those of dropout: nothing that the weights mean depends on them.
_OF_TRAINING = {"label_smoothing", "r_drop_alpha", "use_cache", "classifier_pooling"}


def take_weights(model: PreTrainedModel, path: str) -> None:
    """Gives a new model the weights of the one that `find_model` finds at `path`.

    Raises:
        ValueError: That is a model of another shape; the message names a field that differs.
        FileNotFoundError: There is no model at `path`.
    """
    initial, _ = load_model(path, "cpu")
    names = {field.name for field in fields(model.config)} - {field.name for field in fields(PreTrainedConfig)}
    for name in sorted(names - _OF_TRAINING):
        wanted, there = getattr(model.config, name), getattr(initial.config, name)
        if wanted != there and not name.endswith(("dropout", "layerdrop")):
            raise ValueError(f"model.{name} is {wanted!r}, and in initial_model ({path}) {there!r}: make it the same.")
    model.load_state_dict(initial.state_dict())
    logger.info("The weights are those of %s to begin with.", path)


def save_its_tokenizer(path: str, folder: Path, corpus: Corpus) -> None:
    """Copies the vocabulary of the model at `path`. The words that it knows and those of the corpus become one list.

    Raises:
        ValueError: Its tokenizer is none that a run can use, or the corpus was prepared with another.
        FileNotFoundError: There is no model at `path`.
    """
    found = find_model(path)
    tokenizer, known = load_tokenizer(found), load_known_words(found)
    if isinstance(corpus, PreparedCorpus) and corpus.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise ValueError(
            f"{corpus.folder} was prepared with another vocabulary than that of initial_model ({path}): prepare it "
            f"again with --tokenizer {found}."
        )
    tokenizer.save_pretrained(folder)
    if known is not None:  # half a list would call words unknown that the model has learned
        words = WordList()
        words.strings |= known
        for _ in words.reading(corpus.texts()):
            pass
        words.save(folder, tokenizer)
