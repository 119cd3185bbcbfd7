"""How likely a model finds given translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..model.generation_vanilla_transformer import length_penalty
from .lines import batches_by_length


@dataclass(frozen=True)
class PairScore:
    """How likely a model finds a translation.

    `log_probability` is of the whole translation, `</s>` included, in nats; `tokens` is how many tokens that is;
    `score` is the log-probability divided by the model's length penalty, as beam search ranks translations.
    """

    log_probability: float
    tokens: int
    score: float

    @property
    def per_token(self) -> float:
        """Log-probability of a token, on average."""
        return self.log_probability / self.tokens


@torch.no_grad()
def score_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Sequence[tuple[str, str]],
    *,
    batch_tokens: int = 2048,
    on_progress: Callable[[int], None] | None = None,
) -> list[PairScore]:
    """Scores given translations.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode.
        tokenizer: The model's tokenizer.
        pairs: Source and translation of each.
        batch_tokens: Padded tokens of a batch, at most; a longer pair is a batch of its own.
        on_progress: Called after every batch with the number of pairs that it finished.

    Returns:
        One score per pair, in the order given.
    """
    if not pairs:
        return []
    sources = tokenizer([source for source, _ in pairs]).input_ids
    targets = tokenizer(text_target=[target for _, target in pairs]).input_ids
    alpha = model.generation_config.length_penalty
    kind = getattr(model.generation_config, "length_penalty_type", "length")
    found: dict[int, PairScore] = {}
    was_training = model.training
    model.eval()
    try:
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for batch in batches_by_length(range(len(pairs)), lengths, batch_tokens):
            inputs = tokenizer.pad({"input_ids": [sources[i] for i in batch]}, return_tensors="pt").to(model.device)
            labels = pad_sequence([torch.tensor(targets[i]) for i in batch], batch_first=True, padding_value=-100)
            labels = labels.to(model.device)
            scores = model(**inputs, labels=labels).logits.float().log_softmax(dim=-1)  # (batch, target, vocabulary)
            chosen = scores.gather(2, labels.clamp(min=0)[..., None])[..., 0].masked_fill(labels == -100, 0)
            for i, total in zip(batch, chosen.sum(dim=1).tolist(), strict=True):
                tokens = len(targets[i])
                penalty = length_penalty(tokens, 1.0 if alpha is None else alpha, kind)
                found[i] = PairScore(total, tokens, total / penalty)
            if on_progress is not None:
                on_progress(len(batch))
    finally:
        model.train(was_training)
    return [found[i] for i in range(len(pairs))]
