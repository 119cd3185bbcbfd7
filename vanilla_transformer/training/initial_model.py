"""A run that begins with the weights and the vocabulary of another model, in place of random ones and a new one.

The vocabulary may grow. A new piece begins as the mean of the pieces that the old vocabulary makes of it, in every
matrix of embeddings and in the output layer. The logits of old pieces stay as they were, and so do the ratios of their
probabilities.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.configuration_utils import PreTrainedConfig

from ..data.corpora import Corpus
from ..data.growing import grow_tokenizer, parts_of
from ..data.known_words import WordList, load_word_counts
from ..data.prepared import PreparedCorpus
from ..data.tokenizer import load_tokenizer
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run.loading import find_model, load_model


logger = logging.getLogger(__name__)

# Fields that may differ, besides those of dropout: the meaning of the weights does not depend on them.
_OF_TRAINING = {"label_smoothing", "r_drop_alpha", "use_cache", "classifier_pooling"}


GROWN_FROM = "grown_from"  # in tokenizer_config.json: how many pieces it had before
# Suffixes of the parameters that have a row for each piece.
MATRICES_OF_PIECES = ("shared.weight", "embed_tokens.weight", "lm_head.weight")
ROWS_OF_PIECES = (*MATRICES_OF_PIECES, "lm_head.bias")


def shape_of(config: VanillaTransformerConfig) -> dict[str, Any]:
    """The fields of a recipe's section `model` that differ from their defaults, but those of `_OF_TRAINING`."""
    described = {field.name for field in fields(config)} - {field.name for field in fields(PreTrainedConfig)}
    # As saved: there the width of a head is None if the number of heads decides, which the decoder may have more of.
    its, plain = config.to_dict(), VanillaTransformerConfig().to_dict()
    left_out = _OF_TRAINING - {"classifier_pooling"} | {"vocab_size"}
    return {name: its[name] for name in sorted(described - left_out) if its[name] != plain[name]}


def take_weights(model: PreTrainedModel, path: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """Gives a new model the weights of the one that `find_model` finds at `path`.

    Args:
        model: The new model.
        path: The other one.
        tokenizer: The vocabulary of the new model: the other one's, or the one that `grow_tokenizer` made of it.

    Raises:
        ValueError: The other model has another shape; the message names a field that differs.
        FileNotFoundError: There is no model at `path`.
    """
    initial, old = load_model(path, "cpu")
    config = initial.config
    if len(tokenizer) > len(old):
        config.vocab_size += len(tokenizer) - len(old)
    names = {field.name for field in fields(model.config)} - {field.name for field in fields(PreTrainedConfig)}
    for name in sorted(names - _OF_TRAINING):
        wanted, there = getattr(model.config, name), getattr(config, name)
        if wanted != there and not name.endswith(("dropout", "layerdrop")):
            raise ValueError(f"model.{name} is {wanted!r}, and in initial_model ({path}) {there!r}: make it the same.")
    pieces = tokenizer.convert_ids_to_tokens(range(len(old), len(tokenizer)))
    weights = with_new_rows(initial.state_dict(), parts_of(old.backend_tokenizer, pieces))
    model.load_state_dict(weights)
    logger.info("The weights are those of %s to begin with.", path)


def with_new_rows(weights: Mapping[str, torch.Tensor], parts: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """The weights of a model with one more row for each new piece: the mean of the rows of its parts.

    Args:
        weights: By name; those with a row for each piece are (pieces, d_model), or (pieces,) for a bias.
        parts: For each new piece, the ids of the old ones that it is made of.
    """
    if not parts:
        return dict(weights)
    return {
        name: torch.cat([weight, torch.stack([weight[each].mean(0) for each in parts])])
        if name.endswith(ROWS_OF_PIECES)
        else weight
        for name, weight in weights.items()
    }


def save_its_tokenizer(path: str, folder: Path, corpus: Corpus, growth: int | str = 0) -> None:
    """Copies the vocabulary of the model at `path`, and joins its list of known words with the words of the corpus.

    With `growth` (see `grow_tokenizer`), the vocabulary gets pieces of the corpus too.

    Raises:
        ValueError: Its tokenizer is not one that a run can use, or the corpus was prepared with another.
        FileNotFoundError: There is no model at `path`.
    """
    found = find_model(path)
    tokenizer, known = load_tokenizer(found), load_word_counts(found)
    if isinstance(corpus, PreparedCorpus) and corpus.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise ValueError(
            f"{corpus.folder} was prepared with another vocabulary than that of initial_model ({path}): prepare it "
            f"again with --tokenizer {found}."
        )
    tokenizer.init_kwargs.pop(GROWN_FROM, None)  # from an earlier run
    if growth:
        tokenizer.init_kwargs[GROWN_FROM] = len(tokenizer)
    tokenizer.save_pretrained(folder)
    if growth:
        if isinstance(corpus, PreparedCorpus):
            raise ValueError(f"{corpus.folder} holds token ids: give the text, or set grow_vocabulary to 0.")
        grow_tokenizer(folder, (text for pair in corpus.texts() for text in pair[:2]), growth)
    if known is not None:  # half a list would call words unknown that the model has learned
        words = WordList()
        words.known = known
        for _ in words.reading(corpus.texts()):
            pass
        words.save(folder, tokenizer)
