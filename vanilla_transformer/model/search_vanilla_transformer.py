"""Beam search, greedy search and sampling, step by step with a [`StepwiseDecoder`].

Sentences that are done leave the batch. The best few tokens are found without sorting the vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from .steps_vanilla_transformer import EnsembleDecoder, StepwiseDecoder


if TYPE_CHECKING:
    from .constraints_vanilla_transformer import LexicalConstraints


def exact_top_k(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as `values.topk(count)` for (rows, columns), several times faster on a CPU when there are many columns.

    Columns are dealt out to groups. The best `count` values lie in the `count` groups with the best maxima, and maxima
    are cheap: only those groups are sorted.
    """
    columns = values.shape[1]
    groups = 2 ** round(math.log2(math.sqrt(count * columns)))  # about as many as the chosen groups have members
    if columns < 4 * groups or len(values) == 1:
        return tuple(values.topk(count, dim=1))
    whole = columns - columns % groups
    maxima = values[:, :whole].unflatten(1, (-1, groups)).amax(dim=1)  # (rows, groups)
    if whole < columns:
        rest = values[:, whole:]
        maxima[:, : rest.shape[1]] = maxima[:, : rest.shape[1]].maximum(rest)
    chosen = maxima.topk(count, dim=1).indices  # (rows, count)
    places = chosen[..., None] + torch.arange(0, columns, groups, device=values.device)
    places = places.flatten(1)  # (rows, count * members)
    members = values.gather(1, places.clamp(max=columns - 1)).masked_fill_(places >= columns, -torch.inf)
    best = members.topk(count, dim=1)
    return best.values, places.gather(1, best.indices)


@dataclass(slots=True)
class OpenHypothesis:
    """An open hypothesis: its last token, and the hypothesis that it continues (None: the prefix)."""

    parent: "OpenHypothesis | None" = None
    token: int = -1

    def tokens(self) -> list[int]:
        """All of its tokens, without the prefix."""
        found, each = [], self
        while each.parent is not None:
            found.append(each.token)
            each = each.parent
        return found[::-1]


@dataclass(slots=True)
class Translation:
    """One of the best translations of a sentence: its tokens after the prefix, and its score."""

    tokens: list[int]
    score: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings for all sentences of a beam search: see [`beam_search`]."""

    beams: int
    eos_ids: set[int]
    penalty: Callable[[int], float]
    early_stopping: bool | str

    @property
    def looks_ahead(self) -> bool:
        """Whether to judge an open hypothesis at its limit, where it scores best if the penalty grows with length."""
        return self.early_stopping == "never" and self.penalty(2) > self.penalty(1)


@dataclass(slots=True)
class Sentence:
    """A sentence in the search."""

    limit: int  # tokens that a translation may have
    open: list[OpenHypothesis]
    finished: list[tuple[float, OpenHypothesis]] = field(default_factory=list)  # best first
    done: bool = False

    def advance(self, candidates: list[tuple[float, int, int]], length: int, rules: Rules) -> list:
        """Takes the next tokens: ends hypotheses, continues the best others, and checks whether the sentence is done.

        Args:
            candidates: (log-probability, number of the hypothesis continued, token), best first.
            length: How many tokens the hypotheses have, with these.
            rules: Those of the search.

        Returns:
            The candidates that are open now.
        """
        enough = rules.early_stopping is True and len(self.finished) == rules.beams
        going_on = []
        for rank, (log_probability, beam, token) in enumerate(candidates):
            if log_probability == -math.inf or len(going_on) == rules.beams:
                break
            if token not in rules.eos_ids and length < self.limit:
                going_on.append((log_probability, beam, token))
            elif rank < rules.beams and not enough:  # later ones only provide open hypotheses
                self.finished.append((log_probability / rules.penalty(length), OpenHypothesis(self.open[beam], token)))
        self.go_on_with(going_on, length, rules)
        return going_on

    def go_on_with(self, going_on: list[tuple[float, int, int]], length: int, rules: Rules) -> None:
        """Makes these candidates its open hypotheses, best first, and checks whether the sentence is done."""
        self.finished.sort(key=lambda each: -each[0])
        del self.finished[rules.beams :]
        self.open = [OpenHypothesis(self.open[beam], token) for _, beam, token in going_on]
        self.done = not going_on
        if going_on and len(self.finished) == rules.beams:
            best = going_on[0][0] / rules.penalty(self.limit if rules.looks_ahead else length)
            self.done = rules.early_stopping is True or best <= self.finished[-1][0]


@dataclass(slots=True)
class _Sample:
    """A sentence for which samples are drawn."""

    limit: int
    translations: list[list[int]]
    done: bool = False

    def is_over(self, translation: list[int], eos_ids: set[int]) -> bool:
        return len(translation) >= self.limit or (bool(translation) and translation[-1] in eos_ids)


def _blocks(decoder: StepwiseDecoder | EnsembleDecoder, count: int, device: torch.device) -> Iterator[slice]:
    """Slices of a batch of `count` sentences, whose next tokens can be chosen one slice after another.

    On a CPU the scores of a part stay in its cache until the best are found. With 256 sentences, 5 hypotheses each and
    8,000 tokens, scores and best tokens take half the time. Smaller parts would only read the output layer's weights
    more often.
    """
    rows = max(128, 2**20 // decoder.vocab_size) if device.type == "cpu" else count * decoder.beams
    size = max(1, rows // decoder.beams)
    return (slice(first, first + size) for first in range(0, count, size))


def _on_host(scores: torch.Tensor, places: torch.LongTensor) -> tuple[list, list]:
    """Both as lists. One float64 tensor holds both exactly, so that the host waits only once for CUDA.

    Apple's GPUs have no float64.
    """
    if scores.device.type != "cuda":
        return scores.tolist(), places.tolist()
    scores, places = torch.stack([scores.double(), places.double()]).tolist()
    return scores, [list(map(int, row)) for row in places]


def _on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Moves a tensor of the host without waiting for a GPU, which reads pinned memory when it gets there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _move_together(decoder: StepwiseDecoder | EnsembleDecoder, sentences: list, *tensors: torch.Tensor) -> tuple:
    """Removes finished sentences from the batch, as soon as an eighth of it is finished.

    Compacting the batch after each one would cost more than a few superfluous rows.
    """
    stay = [i for i, sentence in enumerate(sentences) if not sentence.done]
    if not stay or 8 * (len(sentences) - len(stay)) < len(sentences):
        return sentences, *tensors
    places = _on_device(torch.tensor(stay), tensors[0].device)
    decoder.keep(places)
    return [sentences[i] for i in stay], *(tensor[places] for tensor in tensors)


@torch.no_grad()
def beam_search(
    decoder: StepwiseDecoder | EnsembleDecoder,
    prefix: torch.LongTensor,
    limits: list[int],
    *,
    eos_ids: set[int],
    penalty: Callable[[int], float],
    early_stopping: bool | str = "never",
    constraints: "LexicalConstraints | None" = None,
) -> list[list[Translation]]:
    """The best translations of each sentence that a search with `decoder.beams` hypotheses finds (section 6.1).

    Args:
        decoder: A new one for the sentences.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: How many tokens a translation of each sentence may have after the prefix; one that is cut there counts
            as finished.
        eos_ids: Tokens that end a translation.
        penalty: From a number of tokens to the divisor of the log-probability of such a translation.
        early_stopping: When a sentence is done, as in transformers: True as soon as it has enough finished
            hypotheses; False when the best open one, ended now, could not enter them; "never" when it could not
            however long it grew.
        constraints: Phrases that the translations must contain. Sentences without any are searched as if there were no
            constraints.

    Returns:
        For each sentence up to `decoder.beams` translations, best first; none where the limit came before the phrases.

    Raises:
        ValueError: The constraints are for another number of sentences, or are malformed.
    """
    rules = Rules(decoder.beams, eos_ids, penalty, early_stopping)
    beams = rules.beams
    # Enough that `beams` of them can continue, however many end.
    candidates = max(2, 1 + len(eos_ids)) * beams
    everything = sentences = [Sentence(limit, [OpenHypothesis()] * beams) for limit in limits]
    if constraints is not None:
        everything = sentences = constraints.put_on(sentences, prefix, eos_ids)
    so_far = torch.full((len(prefix), beams), -torch.inf, device=prefix.device)
    so_far[:, 0] = 0  # all hypotheses start out the same
    for position in range(prefix.shape[1] - 1):
        decoder.states(prefix[:, position, None].expand(-1, beams))
    tokens, length = prefix[:, -1, None].expand(-1, beams), 0
    while not all(sentence.done for sentence in sentences):
        length += 1
        states, chosen = decoder.states(tokens), []
        for block in _blocks(decoder, len(sentences), prefix.device):
            # On a CPU this kernel is twice as fast as `logsumexp`, which makes a separate pass for each operation.
            scores = decoder.scores_of(states, block)  # (sentences, beams, vocabulary)
            scores = torch.log_softmax(scores, dim=-1, out=scores).add_(so_far[block, :, None])
            vocabulary, part = scores.shape[2], sentences[block]
            further = [()] * len(part)
            if constraints is not None:
                further = constraints.candidates(part, scores, length, rules)
            values, places = _on_host(*exact_top_k(scores.flatten(1), min(candidates, beams * vocabulary)))
            for sentence, value, place, more in zip(part, values, places, further, strict=True):
                going_on = []
                if not sentence.done:  # a finished one may still be in the batch
                    found = [(each, *divmod(number, vocabulary)) for each, number in zip(value, place, strict=True)]
                    going_on = sentence.advance([*found, *more], length, rules)
                chosen.append(going_on + [(-math.inf, 0, 0)] * (beams - len(going_on)))
        table = torch.tensor(chosen, dtype=torch.float64)  # (sentences, beams, 3)
        so_far = _on_device(table[..., 0].to(torch.get_default_dtype()), prefix.device)
        parents, tokens = _on_device(table[..., 1:].long(), prefix.device).unbind(-1)
        decoder.continue_from(parents)
        sentences, so_far, tokens = _move_together(decoder, sentences, so_far, tokens)
    return [[Translation(each.tokens(), score) for score, each in sentence.finished] for sentence in everything]


@torch.no_grad()
def sample(
    decoder: StepwiseDecoder | EnsembleDecoder,
    prefix: torch.LongTensor,
    limits: list[int],
    *,
    eos_ids: set[int],
    choose: Callable[[torch.Tensor], torch.LongTensor],
) -> list[list[list[int]]]:
    """Translations that grow by one chosen token at a time: greedy search, or samples.

    Args:
        decoder: A new one for the sentences; its hypotheses grow independently of each other.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: How many tokens a translation of each sentence may have after the prefix.
        eos_ids: Tokens that end a translation.
        choose: From scores (rows, vocabulary) to tokens (rows,).

    Returns:
        For each sentence `decoder.beams` translations, each as its tokens after the prefix.
    """
    beams = decoder.beams
    everything = sentences = [_Sample(limit, [[] for _ in range(beams)]) for limit in limits]
    for position in range(prefix.shape[1] - 1):
        decoder.states(prefix[:, position, None].expand(-1, beams))
    tokens = prefix[:, -1, None].expand(-1, beams)
    while not all(sentence.done for sentence in sentences):
        tokens = choose(decoder.scores(tokens).flatten(0, 1)).view(-1, beams)
        for sentence, row in zip(sentences, tokens.tolist(), strict=True):
            for translation, token in zip(sentence.translations, row, strict=True):
                if not sentence.is_over(translation, eos_ids):
                    translation.append(token)
            sentence.done = all(sentence.is_over(translation, eos_ids) for translation in sentence.translations)
        sentences, tokens = _move_together(decoder, sentences, tokens)
    return [sentence.translations for sentence in everything]
