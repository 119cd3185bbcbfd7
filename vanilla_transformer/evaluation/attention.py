"""What a model looks at while it translates (section 3.2.3): for pictures such as the paper's, and word by word."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@torch.no_grad()
def cross_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    layer: int = -1,
) -> tuple[torch.Tensor, list[str], list[str]]:
    """Attention of every target token's prediction on the source, in one decoder layer.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        source: The sentence to translate.
        target: Its translation; None: the model's own.
        layer: Which decoder layer; the last by default.

    Returns:
        Weights of shape (heads, target, source), the source's tokens, and the target's tokens, each target token with
        the weights that predicted it.
    """
    batch = tokenizer([source], return_tensors="pt").to(model.device)
    if target is None:
        ids = model.generate(**batch)
        target = tokenizer.decode(ids[0], skip_special_tokens=True)
    labels = tokenizer(text_target=[target], return_tensors="pt").input_ids.to(model.device)
    with _handing_out_attention(model):
        outputs = model(**batch, labels=labels, output_attentions=True)
    tokens = [[tokenizer.decode([i]) or "·" for i in ids.tolist()] for ids in (batch.input_ids[0], labels[0])]
    return outputs.cross_attentions[layer][0].float().cpu(), *tokens


@dataclass(frozen=True)
class WordAlignment:
    """For every word of a translation the word of its source that the model looked at most.

    `links` are positions in `source`, one for each word of `target`; `weights` are the shares of attention, 0 to 1.
    Punctuation marks are words of their own.
    """

    source: list[str]
    target: list[str]
    links: list[int]
    weights: list[float]

    def __str__(self) -> str:
        """`Ein=A Mann=man`."""
        return " ".join(f"{word}={self.source[i]}" for word, i in zip(self.target, self.links, strict=True))

    def __add__(self, other: "WordAlignment") -> "WordAlignment":
        """The alignment of two texts one behind the other."""
        links = self.links + [len(self.source) + i for i in other.links]
        return WordAlignment(
            self.source + other.source, self.target + other.target, links, self.weights + other.weights
        )


@torch.no_grad()
def align_words(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], *, layer: int = -1
) -> list[WordAlignment]:
    """Aligns translations with their sources by the attention of a decoder layer, averaged over its heads.

    A word's attention on another is summed over the pieces of the other and averaged over its own; `</s>` is left out.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        pairs: Source and translation of each, translated together: memory grows with their number and lengths.
        layer: Which decoder layer; the last by default.
    """
    sources = tokenizer([source for source, _ in pairs])
    targets = tokenizer(text_target=[target for _, target in pairs])
    batch = tokenizer.pad({"input_ids": sources.input_ids}, return_tensors="pt").to(model.device)
    labels = pad_sequence([torch.tensor(ids) for ids in targets.input_ids], batch_first=True, padding_value=-100)
    with _handing_out_attention(model):
        outputs = model(**batch, labels=labels.to(model.device), output_attentions=True)
    attention = outputs.cross_attentions[layer].float().mean(dim=1).cpu()  # (pairs, target, source)
    return [
        _aligned(weights, _words(tokenizer, sources, i), _words(tokenizer, targets, i))
        for i, weights in enumerate(attention)
    ]


def _aligned(attention: torch.Tensor, source: dict[str, list[int]], target) -> WordAlignment:
    """From attention (target, source) between tokens, and the words with the places of their tokens."""
    source_words, target_words = [word for word, _ in source], [word for word, _ in target]
    if not source_words or not target_words:
        return WordAlignment(source_words, [], [], [])
    columns = torch.stack([attention[:, places].sum(dim=1) for _, places in source], dim=1)
    rows = torch.stack([columns[places].mean(dim=0) for _, places in target])  # (target words, source words)
    weights, links = rows.max(dim=1)
    return WordAlignment(source_words, target_words, links.tolist(), weights.tolist())


def _words(tokenizer: PreTrainedTokenizerBase, encoded, row: int) -> list[tuple[str, list[int]]]:
    """The words of a text of a batch, each with the places of its tokens."""
    ids, words = encoded.input_ids[row], []
    if tokenizer.is_fast:
        numbers = encoded.word_ids(row)
    else:  # sentencepiece marks where words begin
        tokens, numbers = tokenizer.convert_ids_to_tokens(ids), []
        for token, i in zip(tokens, ids, strict=True):
            begins = token.startswith("▁") or not numbers
            last = next((n for n in reversed(numbers) if n is not None), -1)
            numbers.append(None if i in tokenizer.all_special_ids else last + begins)
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        if number is not None:
            places.setdefault(number, []).append(place)
    for each in places.values():
        if word := "".join(tokenizer.decode([ids[place] for place in each]).split()):
            words.append((word, each))
    return words


@contextmanager
def _handing_out_attention(model: PreTrainedModel) -> Iterator[None]:
    """Lets the model return its attention weights, which only eager attention has, and puts it back."""
    before, was_training = model.config._attn_implementation, model.training
    model.set_attn_implementation("eager")
    model.eval()
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        model.train(was_training)
