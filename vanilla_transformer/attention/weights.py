"""What a model looks at while it translates (section 3.2.3): for pictures like the paper's, and word by word."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from ..data.context import Context, sources_in_context
from ..model.confidence_vanilla_transformer import mode_of
from .pieces import merged, piece_labels, words


@dataclass(frozen=True)
class Attentions:
    """The attention weights of every head of a model while it reads a sentence and writes its translation.

    Each row of weights sums to 1. Names are pieces, or words.
    """

    encoder: torch.Tensor  # (layers, heads, source, source)
    decoder: torch.Tensor  # (layers, heads, target, target), 0 above the diagonal; rows are what the decoder reads
    cross: torch.Tensor  # (layers, heads, target, source); rows are what it writes, with the weights that predicted it
    source: list[str]
    read: list[str]  # by the decoder: its start symbol, then the translation
    written: list[str]  # one step later

    def of(self, attention: str) -> tuple[torch.Tensor, list[str], list[str]]:
        """The weights (layers, heads, queries, keys) of encoder, decoder or cross, and names of queries and keys."""
        names = {"encoder": (self.source, self.source), "decoder": (self.read, self.read)}
        names["cross"] = (self.written, self.source)
        if attention not in names:
            raise ValueError(f"There is no attention {attention!r}: choose {', '.join(names)}.")
        return getattr(self, attention), *names[attention]


@torch.no_grad()
def attentions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    *,
    by_words: bool = False,
    source_ids: Sequence[int] | None = None,
) -> Attentions:
    """The attention weights of all heads of a model while it translates a sentence.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        source, target: The sentence, and its translation; None: the model's own.
        by_words: Whether to merge the pieces of a word, as `pieces.merged` does.
        source_ids: Token ids of the sentence as the model read it, say with soft terms. None: the tokenizer's. Pieces
            that are not in the sentence belong to no word, so this cannot be combined with `by_words`.
    """
    if by_words and source_ids is not None:
        raise ValueError("by_words and source_ids do not go together: leave one out.")
    sources = tokenizer([source.strip()])
    source_ids = sources.input_ids[0] if source_ids is None else list(source_ids)
    inputs = torch.tensor([source_ids], device=model.device)
    if target is None:
        with mode_of(model, training=False):
            ids = model.generate(inputs, return_dict_in_generate=False)[0]  # whatever the model's own setting is
        target = tokenizer.decode(ids, skip_special_tokens=True)
    targets = tokenizer(text_target=[target])
    written = targets.input_ids[0]
    read = [model.config.decoder_start_token_id, *written[:-1]]
    with handing_out_attention(model):
        outputs = model.base_model(
            input_ids=inputs,
            decoder_input_ids=torch.tensor([read], device=model.device),
            output_attentions=True,
            return_dict=True,
        )
    kinds = (outputs.encoder_attentions, outputs.decoder_attentions, outputs.cross_attentions)
    weights = [torch.stack([layer[0].float().cpu() for layer in layers]) for layers in kinds]
    if not by_words:
        return Attentions(*weights, *(piece_labels(tokenizer, ids) for ids in (source_ids, read, written)))
    source_names, source_places = _words_and_the_rest(tokenizer, sources)
    written_names, written_places = _words_and_the_rest(tokenizer, targets)
    # The decoder reads what it wrote, one step later: the end is never read.
    read_names = [*piece_labels(tokenizer, read[:1]), *written_names[:-1]]
    read_places = [[0], *([place + 1 for place in places] for places in written_places[:-1])]
    # For each kind, the words that look and those that are looked at.
    sides = ((source_places, source_places), (read_places, read_places), (written_places, source_places))
    weights = [merged(by_pieces, *places) for by_pieces, places in zip(weights, sides, strict=True)]
    return Attentions(*weights, source_names, read_names, written_names)


def _words_and_the_rest(
    tokenizer: PreTrainedTokenizerBase, encoded: BatchEncoding
) -> tuple[list[str], list[list[int]]]:
    """Names and places of the words of a batch's only text; a piece outside words, such as `</s>`, counts as one."""
    found = words(tokenizer, encoded, 0)
    in_words = {place for _, places in found for place in places}
    labels = piece_labels(tokenizer, encoded.input_ids[0])
    found += [(label, [place]) for place, label in enumerate(labels) if place not in in_words]
    found.sort(key=lambda word: word[1])
    return [name for name, _ in found], [places for _, places in found]


@dataclass(frozen=True)
class WordAlignment:
    """For every word of a translation, the word of its source that the model looked at most.

    `links` are positions in `source`, one for each word of `target`; `weights` are the shares of attention, 0 to 1.
    Punctuation marks are words too.
    """

    source: list[str]
    target: list[str]
    links: list[int]
    weights: list[float]

    def __str__(self) -> str:
        """`Ein=A Mann=man`."""
        return " ".join(f"{word}={self.source[i]}" for word, i in zip(self.target, self.links, strict=True))

    def __add__(self, other: "WordAlignment") -> "WordAlignment":
        """The alignment of two texts, one after another."""
        links = self.links + [len(self.source) + i for i in other.links]
        return WordAlignment(
            self.source + other.source, self.target + other.target, links, self.weights + other.weights
        )


@dataclass(frozen=True)
class AlignmentHead:
    """The attention of the decoder on the source that tells where a word came from.

    The default aligns best in the models measured here, of two and four layers (`scripts/experiments/alignment.py`;
    alignment error rate 0.08 on the phrasebook): the mean of the last layer's heads, at the state that predicts the
    word. In a model of six layers Garg et al. (2019, "Jointly Learning to Align and Translate with Transformer Models")
    found the fifth best, and Chen et al. (2020, "Accurate Word Alignment Induction from Neural Machine Translation")
    the state that reads the word: measure a deep model before you rely on it.
    """

    layer: int = -1  # counted from 0, or from the end; if a small model lacks it, its first
    head: int | None = None  # counted from 0; None: the mean of all
    reads: bool = False  # the state that reads the word, one step after the one that predicts it

    def of(self, layers: Sequence[torch.Tensor]) -> torch.Tensor:
        """Attention (batch, words written, source) from that of all layers (batch, heads, target, source)."""
        layer = layers[self.layer] if -len(layers) <= self.layer < len(layers) else layers[0]
        weights = layer.float().mean(dim=1) if self.head is None else layer[:, self.head].float()
        return weights[:, 1:] if self.reads else weights


ALIGNMENT_HEAD = AlignmentHead()  # the default of `align_words`


@torch.no_grad()
def align_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    *,
    contexts: Sequence[Context] | None = None,
    head: AlignmentHead = ALIGNMENT_HEAD,
) -> list[WordAlignment]:
    """Aligns translations with their sources by the attention of a decoder layer, averaged over its heads.

    Attention between words is that of `pieces.merged`; `</s>` is left out.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        pairs: Sources and translations, in one batch: memory grows with their number and lengths.
        contexts: For each pair, the sentences before its source, if the model reads them: nothing is aligned with
            them. None: no contexts.
        head: Which layer, head and state.
    """
    return [found for [found] in alignments_by_heads(model, tokenizer, pairs, [head], contexts=contexts)]


@torch.no_grad()
def alignments_by_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    heads: Sequence[AlignmentHead],
    *,
    contexts: Sequence[Context] | None = None,
) -> list[list[WordAlignment]]:
    """For each pair, the alignments by several heads, from one pass; the arguments are those of [`align_words`]."""
    sources = tokenizer([source for source, _ in pairs])
    targets = tokenizer(text_target=[target for _, target in pairs])
    read = sources_in_context(tokenizer, sources.input_ids, contexts)
    batch = tokenizer.pad({"input_ids": read}, return_tensors="pt").to(model.device)
    labels = pad_sequence([torch.tensor(ids) for ids in targets.input_ids], batch_first=True, padding_value=-100)
    with handing_out_attention(model):
        outputs = model(**batch, labels=labels.to(model.device), output_attentions=True, return_dict=True)
    of_heads = [head.of(outputs.cross_attentions).cpu() for head in heads]
    found = []
    for i in range(len(pairs)):
        source, target = words(tokenizer, sources, i), words(tokenizer, targets, i)
        before = len(read[i]) - len(sources.input_ids[i])
        names, written = [word for word, _ in source], [word for word, _ in target]
        if not source or not target:
            found.append([WordAlignment(names, [], [], [])] * len(heads))
            continue
        places = [places for _, places in target], [[before + place for place in places] for _, places in source]
        best = [merged(weights[i], *places).max(dim=1) for weights in of_heads]
        found.append([WordAlignment(names, written, each.indices.tolist(), each.values.tolist()) for each in best])
    return found


@contextmanager
def handing_out_attention(model: PreTrainedModel) -> Iterator[None]:
    """Lets the model return its attention weights, which only eager attention has, and restores it afterwards."""
    before, was_training = model.config._attn_implementation, model.training
    model.set_attn_implementation("eager")
    model.eval()
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        model.train(was_training)
