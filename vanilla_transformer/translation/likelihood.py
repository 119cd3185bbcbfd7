"""How likely a model finds given translations, token by token and word by word: the basis of confidence."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..attention.pieces import words
from ..data.context import Context, ids_in_context
from ..model.confidence_vanilla_transformer import dropout_log_probabilities, mode_of, token_log_probabilities
from .lines import batches_by_length


_BATCH_TOKENS = 2048  # padded target tokens, each with a score for every piece of the vocabulary


@dataclass(frozen=True)
class WordProbability:
    """A word of a translation, or a punctuation mark, and the geometric mean of the probabilities of its pieces."""

    word: str
    probability: float


@dataclass(frozen=True)
class Likelihood:
    """How likely a model finds a translation.

    Attributes:
        tokens: Log-probability of each token, `</s>` included, in nats.
        words: Its words, in their order.
        samples: Log-probability of the whole translation in each pass with dropout, if there were any.
    """

    tokens: list[float]
    words: list[WordProbability]
    samples: list[float] = field(default_factory=list)

    def __add__(self, other: "Likelihood") -> "Likelihood":
        """The likelihood of two translations, one after the other."""
        samples = [a + b for a, b in zip(self.samples, other.samples, strict=True)]
        return Likelihood(self.tokens + other.tokens, self.words + other.words, samples)


def likelihoods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    *,
    contexts: Sequence[Context] | None = None,
    sources: Sequence[list[int]] | None = None,
    dropout_samples: int = 0,
    seed: int = 0,
) -> list[Likelihood]:
    """How likely a model finds translations.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode.
        tokenizer: The model's tokenizer.
        pairs: Sources and translations.
        contexts: The sentences before each source, for a model that reads these; None: the sources are in document
            order, and a blank one ends a document.
        sources: Token ids of the sources as the model read them, with contexts and soft terms; None: the tokenizer's
            ids of the pairs and contexts.
        dropout_samples: Passes with dropout for each pair; 0 for none.
        seed: Seed of these passes: they are the same each time, whatever other pairs there are.

    Returns:
        One for each pair, in the order given.
    """
    if not pairs:
        return []
    if sources is None:
        sources = ids_in_context(tokenizer, [source for source, _ in pairs], contexts)
    targets = tokenizer(text_target=[target for _, target in pairs])
    found: dict[int, Likelihood] = {}
    for batch, chosen in target_log_probabilities(model, tokenizer, sources, targets.input_ids):
        for i, row in zip(batch, chosen.tolist(), strict=True):
            target = targets.input_ids[i]
            tokens, samples = row[: len(target)], []
            if dropout_samples:
                samples = dropout_log_probabilities(model, sources[i], target, dropout_samples, seed)
            found[i] = Likelihood(tokens, _words(tokenizer, targets, i, tokens), samples)
    return [found[i] for i in range(len(pairs))]


def _words(tokenizer: PreTrainedTokenizerBase, targets, row: int, tokens: list[float]) -> list[WordProbability]:
    return [
        WordProbability(word, math.exp(math.fsum(tokens[place] for place in places) / len(places)))
        for word, places in words(tokenizer, targets, row)
    ]


def target_log_probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    batch_tokens: int = _BATCH_TOKENS,
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Log-probabilities of the tokens of given translations, in batches by length, by the model in evaluation mode.

    Args:
        model, tokenizer: As for [`likelihoods`].
        sources, targets: Token ids.
        batch_tokens: Padded tokens of a batch, at most; a longer pair is a batch of its own.

    Yields:
        The numbers of a batch's pairs, and float32 (batch, target), 0 at padding.
    """
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_length(range(len(sources)), lengths, batch_tokens):
        inputs = tokenizer.pad({"input_ids": [sources[i] for i in batch]}, return_tensors="pt").to(model.device)
        labels = pad_sequence([torch.tensor(targets[i]) for i in batch], batch_first=True, padding_value=-100)
        with mode_of(model, training=False):
            found = token_log_probabilities(model, inputs, labels.to(model.device))
        yield batch, found
