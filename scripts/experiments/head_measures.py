"""What each head of a model does, measured over a set of sentences, and compared with words aligned by people."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from os import PathLike

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.attention.pieces import merged, piece_labels
from vanilla_transformer.attention.weights import handing_out_attention
from vanilla_transformer.files import text_lines


MEASURES = {
    "previous": "mean attention of a position to the one before it",
    "same": "mean attention of a position to itself (cross-attention: to the source's of the same number)",
    "next": "mean attention of a position to the one after it",
    "end": "mean attention to the symbol that ends the source, or that begins what the decoder reads",
    "punctuation": "mean attention to all pieces that are nothing but punctuation",
    "entropy": "mean entropy of where a position looks, in nats",
    "relative_entropy": "mean of entropy / log(number of positions that may be looked at), where there are several",
}
ATTENTIONS = ("encoder", "decoder", "cross")
_LINK = re.compile(r"(\d+)([-?p])(\d+)", flags=re.ASCII | re.IGNORECASE)
_MOST_PAIRS = 32  # in a batch
_MOST_CELLS = 2**18  # in a batch's attention matrix: 1 MB in each head of each layer
_MOST_TOKENS = 4096  # in a batch, padding included


@dataclass(frozen=True)
class GoldAlignment:
    """Which words of a source and its translation belong together, as judged by people.

    Attributes:
        sure: Positions (source word, target word), counted from 0.
        possible: The sure links, and links that may also be left out.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def read_alignments(path: str | PathLike[str]) -> Iterator[GoldAlignment]:
    """Reads alignments in the format of Pharaoh: one sentence pair per line, `0-0 1-2 2?1`.

    `i-j` is a sure link of word i of the source with word j of the target, `i?j` or `ipj` a possible one. Words are
    separated by blanks and counted from 0.

    Raises:
        FileNotFoundError, IsADirectoryError: There is no such file. Raised at once.
        ValueError: A line has something else; the message names file, line and link. Raised when the line is read.
    """
    return (_alignment(line, f"{path}, line {number}") for number, line in enumerate(text_lines(path), start=1))


def _alignment(line: str, place: str) -> GoldAlignment:
    sure, possible = set(), set()
    for text in line.split():
        link = _LINK.fullmatch(text)
        if link is None:
            raise ValueError(f"{place}: {text!r} is not a link: 0-0 is a sure one, 0?0 or 0p0 a possible one.")
        possible.add((int(link[1]), int(link[3])))
        if link[2] == "-":
            sure.add((int(link[1]), int(link[3])))
    return GoldAlignment(frozenset(sure), frozenset(possible))


@dataclass
class AlignmentError:
    """Alignment error rate of sentences (Och and Ney 2003): 1 - (|A and sure| + |A and possible|) / (|A| + |sure|)."""

    links: int = 0
    sure: int = 0
    agreeing: int = 0

    def add(self, links: set[tuple[int, int]], gold: GoldAlignment) -> None:
        """Counts the links (source word, target word) of a sentence."""
        self.links += len(links)
        self.sure += len(gold.sure)
        self.agreeing += len(links & gold.sure) + len(links & gold.possible)

    @property
    def rate(self) -> float | None:
        """From 0, the best, to 1; None if there was nothing to align."""
        return 1 - self.agreeing / (self.links + self.sure) if self.links + self.sure else None


@dataclass(frozen=True)
class Head:
    """A head and its measures.

    Attributes:
        attention: encoder, decoder or cross.
        layer: Counted from 1; None for the head that looks evenly at everything it may look at.
        head: Counted from 1, or None.
        measures: For each of `MEASURES`, a mean over all positions of all sentences, or None where there is no such
            position (the decoder never sees the next one); for cross-attention also `aer`, the alignment error rate
            (0 to 1), if there were alignments to compare with.
    """

    attention: str
    layer: int | None
    head: int | None
    measures: dict[str, float | None]


def sums_of_measures(
    weights: torch.Tensor,
    queries: torch.Tensor,
    keys: torch.Tensor,
    ends: torch.Tensor,
    punctuation: torch.Tensor,
    *,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Adds up `MEASURES` over the positions of a batch.

    Args:
        weights: Attention of shape (batch, heads, queries, keys); where either is padding, it may be anything.
        queries: (batch, queries), true where there is no padding.
        keys: (batch, keys), likewise.
        ends: (batch, keys), true at the symbol that counts as the end.
        punctuation: (batch, keys), true at punctuation.
        causal: Whether positions see only themselves and those before them.

    Returns:
        The sums (heads, measures) in float64, and the number of positions (measures).
    """
    allowed = queries[:, :, None] & keys[:, None, :]  # (batch, queries, keys)
    if causal:
        allowed = allowed & torch.ones_like(allowed[0]).tril()
    weights = weights.double().masked_fill(~allowed[:, None], 0.0)
    choices = allowed.sum(dim=-1)  # (batch, queries)
    entropy = torch.special.entr(weights).sum(dim=-1)  # (batch, heads, queries)
    free = choices > 1
    evenly = choices.clamp(min=2).double().log()[:, None]
    sums, counts = {}, dict.fromkeys(MEASURES, queries.sum())
    for name, offset in (("previous", -1), ("same", 0), ("next", 1)):
        sums[name] = _diagonal(weights, offset).sum(dim=(0, -1))
        counts[name] = _diagonal(allowed, offset).sum()
    for name, there in (("end", ends), ("punctuation", punctuation)):
        sums[name] = (weights * there[:, None, None]).sum(dim=(0, 2, 3))
    sums["entropy"] = entropy.sum(dim=(0, 2))
    sums["relative_entropy"] = (entropy / evenly * free[:, None]).sum(dim=(0, 2))
    counts["relative_entropy"] = free.sum()
    return torch.stack([sums[name] for name in MEASURES], dim=-1), torch.stack([counts[name] for name in MEASURES])


def _diagonal(matrices: torch.Tensor, offset: int) -> torch.Tensor:
    """Element (i, i + offset) of the last two dimensions; empty if the matrix is too small."""
    if not -matrices.shape[-2] < offset < matrices.shape[-1]:
        return matrices[..., 0, :0]
    return matrices.diagonal(offset=offset, dim1=-2, dim2=-1)


@torch.no_grad()
def measure_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Iterable[tuple[str, str]],
    alignments: Iterable[GoldAlignment] | None = None,
) -> list[Head]:
    """Measures what all heads of a model do over a set of sentences, in batches of at most 32 pairs.

    Positions are pieces of the vocabulary. A row of cross-attention belongs to the piece that it predicts. To compare
    with alignments, attention is merged into words, which blanks separate in the text: it is summed over the pieces of
    a source word and averaged over those of a target word; each target word is linked with the source word that it
    looks at most, and `</s>` is left out.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        pairs: Sources and their translations, read once.
        alignments: Which words belong together in each pair.

    Returns:
        For each attention, first a head that looks evenly, for comparison, then every head, layer by layer.

    Raises:
        ValueError: There is no pair; there are not as many alignments as pairs; or a pair lacks words that its
            alignment links, or has words that the tokenizer merges. The message names the pair.
    """
    found = _Collected()
    with handing_out_attention(model):
        for batch in _batches(tokenizer, pairs, alignments):
            _add(found, model, tokenizer, batch)
    if not found.sums:
        raise ValueError("There is no sentence pair to measure heads on.")
    return found.heads()


@dataclass(frozen=True)
class _Pair:
    number: int
    texts: tuple[str, str]
    source: list[int]
    target: list[int]
    gold: GoldAlignment | None


class _Collected:
    """Sums over all batches so far."""

    def __init__(self):
        self.sums: dict[tuple, torch.Tensor] = {}  # by (attention, layer): (heads, measures)
        self.counts: dict[str, torch.Tensor] = {}  # by attention: (measures)
        self.errors: dict[tuple[int, int], AlignmentError] = {}  # by (layer, head) of cross-attention

    def add(self, attention: str, layer: int | None, sums: torch.Tensor) -> None:
        key = (attention, layer)
        self.sums[key] = self.sums[key] + sums if key in self.sums else sums

    def heads(self) -> list[Head]:
        found = []
        for attention in ATTENTIONS:
            counts = self.counts[attention].tolist()
            layers = [layer for name, layer in self.sums if name == attention]
            for layer in layers:  # None, for the head that looks evenly, came first
                for head, sums in enumerate(self.sums[attention, layer].tolist(), start=1):
                    means = (value / count if count else None for value, count in zip(sums, counts, strict=True))
                    measures = dict(zip(MEASURES, means, strict=True))
                    if attention == "cross" and (layer, head) in self.errors:
                        measures["aer"] = self.errors[layer, head].rate
                    found.append(Head(attention, layer, None if layer is None else head, measures))
        return found


def _batches(tokenizer, pairs: Iterable[tuple[str, str]], alignments: Iterable[GoldAlignment] | None):
    batch: list[_Pair] = []
    for number, (texts, gold) in enumerate(_side_by_side(pairs, alignments), start=1):
        source = tokenizer(texts[0]).input_ids
        pair = _Pair(number, texts, source, tokenizer(text_target=texts[1]).input_ids, gold)
        longest = max(len(ids) for each in (*batch, pair) for ids in (each.source, each.target))
        size = len(batch) + 1
        if batch and (size > _MOST_PAIRS or size * longest**2 > _MOST_CELLS or size * longest > _MOST_TOKENS):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def _side_by_side(pairs, alignments) -> Iterator[tuple[tuple[str, str], GoldAlignment | None]]:
    if alignments is None:
        yield from zip(pairs, repeat(None), strict=False)
        return
    for number, (pair, gold) in enumerate(zip_longest(pairs, alignments), start=1):
        if pair is None or gold is None:
            short, long = ("sentence pairs", "alignments") if pair is None else ("alignments", "sentence pairs")
            raise ValueError(f"There are only {number - 1} {short}, but more {long}: line k belongs to line k.")
        yield pair, gold


def _add(found: _Collected, model, tokenizer, batch: Sequence[_Pair]) -> None:
    """Runs a batch through the model and adds its heads' measures."""
    start, end = model.config.decoder_start_token_id, tokenizer.eos_token_id
    source, source_real = _padded([pair.source for pair in batch], model)
    read, read_real = _padded([[start, *pair.target[:-1]] for pair in batch], model)
    outputs = model.base_model(
        input_ids=source, attention_mask=source_real.long(), decoder_input_ids=read, output_attentions=True
    )
    source_signs = _padded([_punctuation(tokenizer, pair.source) for pair in batch], model)[0] == 1
    read_signs = _padded([[0, *_punctuation(tokenizer, pair.target[:-1])] for pair in batch], model)[0] == 1
    begins = torch.zeros_like(read_real)
    begins[:, 0] = True
    on_source = {"keys": source_real, "ends": (source == end) & source_real, "punctuation": source_signs & source_real}
    on_read = {"keys": read_real, "ends": begins, "punctuation": read_signs & read_real, "causal": True}
    # Cross-attention has one row for each piece that the decoder reads: each row predicts a piece to write.
    for attention, layers, queries, looked_at in (
        ("encoder", outputs.encoder_attentions, source_real, on_source),
        ("decoder", outputs.decoder_attentions, read_real, on_read),
        ("cross", outputs.cross_attentions, read_real, on_source),
    ):
        evenly, counts = _of_a_head_that_looks_evenly(queries, looked_at)
        found.add(attention, None, evenly)
        found.counts[attention] = found.counts.get(attention, 0) + counts
        for layer, weights in enumerate(layers, start=1):
            found.add(attention, layer, sums_of_measures(weights, queries, **looked_at)[0].cpu())
    for row, pair in enumerate(batch):
        if pair.gold is not None:
            _add_links(found, tokenizer, pair, [layer[row] for layer in outputs.cross_attentions])


def _of_a_head_that_looks_evenly(queries: torch.Tensor, looked_at: dict) -> tuple[torch.Tensor, torch.Tensor]:
    allowed = (queries[:, :, None] & looked_at["keys"][:, None, :]).double()
    if looked_at.get("causal"):
        allowed = allowed.tril()
    weights = allowed / allowed.sum(dim=-1, keepdim=True).clamp(min=1)
    sums, counts = sums_of_measures(weights[:, None], queries, **looked_at)
    return sums.cpu(), counts.cpu()


def _padded(rows: list[list[int]], model: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as one tensor (batch, longest), and where they are not padding."""
    pad = model.config.pad_token_id
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(ids.shape[1])[None] < lengths[:, None]
    return ids.to(model.device), real.to(model.device)


def _punctuation(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """1 for each piece with nothing but punctuation, 0 for the others."""
    special = set(tokenizer.all_special_ids)
    labels = piece_labels(tokenizer, ids)
    return [
        int(i not in special and all(unicodedata.category(character)[0] == "P" for character in label.split()[0]))
        for i, label in zip(ids, labels, strict=True)
    ]


def _add_links(found: _Collected, tokenizer, pair: _Pair, layers: list[torch.Tensor]) -> None:
    """Compares where each head of cross-attention (heads, target, source) looks most with people's links."""
    words = [len(text.split()) for text in pair.texts]
    for link in pair.gold.possible:
        if any(number >= count for number, count in zip(link, words, strict=True)):
            raise ValueError(
                f"Sentence pair {pair.number} has {words[0]} and {words[1]} words, but its alignment links word "
                f"{link[0]} with word {link[1]} (counted from 0): give the text that was aligned, words and all."
            )
    try:
        sides = zip((pair.source, pair.target), pair.texts, strict=True)
        source, target = (words_between_blanks(tokenizer, ids, text) for ids, text in sides)
    except ValueError as error:
        raise ValueError(f"Sentence pair {pair.number}: {error}") from error
    for layer, weights in enumerate(layers, start=1):
        places = merged(weights, target, source).argmax(dim=-1).tolist() if source and target else [[]] * len(weights)
        for head, looked_at in enumerate(places, start=1):
            links = {(there, here) for here, there in enumerate(looked_at)}
            found.errors.setdefault((layer, head), AlignmentError()).add(links, pair.gold)


def words_between_blanks(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str) -> list[list[int]]:
    """The places of the pieces of every word of a text; blanks separate words.

    A piece belongs to the last word of the text up to it. The special symbols at the end belong to no word.

    Args:
        tokenizer: The tokenizer that made the pieces.
        ids: The pieces of the text.
        text: The text.

    Raises:
        ValueError: The pieces do not make as many words as the text has.
    """
    places: list[list[int]] = [[] for _ in text.split()]
    end = len(ids)
    while end and ids[end - 1] in tokenizer.all_special_ids:
        end -= 1
    for place in range(end):
        number = len(tokenizer.decode(ids[: place + 1]).split())
        if number > len(places):
            break
        if number:  # a blank before the first word belongs to no word
            places[number - 1].append(place)
    if not all(places) or (end and number != len(places)):
        raise ValueError(f"the tokenizer does not keep the {len(places)} words of {text!r:.80} apart")
    return places
