"""Beam search, greedy search and sampling, step by step with a [`StepwiseDecoder`].

Sentences that are done leave the batch. The best few tokens are found without sorting the vocabulary or writing its
log-probabilities.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import torch

from .steps_vanilla_transformer import EnsembleDecoder, StepwiseDecoder


if TYPE_CHECKING:
    from .constraints_vanilla_transformer import LexicalConstraints


_NO_TOKEN = -1  # in place of a token after the end of a translation
_LOG2_E = 1 / math.log(2)

Places = tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]
"""Indices of some of the scores (sentences, beams, vocabulary)."""


def exact_top_k(
    values: torch.Tensor, count: int, offsets: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as `values.topk(count)` for (rows, columns), several times faster on a CPU when there are many columns.

    Columns are dealt out to groups. The best `count` values lie in the `count` groups with the best maxima, and maxima
    are cheap: only those groups are sorted. In a row with too few finite values, places of minus infinity may repeat.

    Args:
        values: (rows, columns); or, with offsets, (rows, parts, columns).
        count: How many of each row.
        offsets: (rows, parts). Each is added to a part of a row: the result is that of
            `(values + offsets[..., None]).flatten(1).topk(count)`, without writing that tensor.
    """
    if offsets is None:
        values, offsets = values[:, None], values.new_zeros(len(values), 1)
    parts, columns = values.shape[1:]
    # About as many groups in a row as the chosen ones have members.
    groups = 2 ** max(0, round(math.log2(math.sqrt(count * columns / parts))))
    if columns < 4 * groups or (len(values) == 1 and parts * columns < 2**16):
        return tuple((values + offsets[..., None]).flatten(1).topk(count, dim=1))
    whole = columns - columns % groups
    maxima = values[..., :whole].unflatten(2, (-1, groups)).amax(dim=2)  # (rows, parts, groups)
    if whole < columns:
        rest = values[..., whole:]
        maxima[..., : rest.shape[2]] = maxima[..., : rest.shape[2]].maximum(rest)
    chosen = (maxima + offsets[..., None]).flatten(1).topk(count, dim=1).indices  # (rows, count)
    part, group = chosen // groups, chosen % groups
    members = group[..., None] + torch.arange(0, columns, groups, device=values.device)  # (rows, count, members)
    missing = members >= columns  # the last members of some groups
    members = members.where(~missing, members - groups)  # any that exist: they have minus infinity
    places = (members + (part * columns)[..., None]).flatten(1)
    found = values.flatten(1).gather(1, places).view_as(members) + offsets.gather(1, part)[..., None]
    best = found.masked_fill_(missing, -torch.inf).flatten(1).topk(count, dim=1)
    return best.values, places.gather(1, best.indices)


class Normalisers:
    """What to subtract from scores (..., vocabulary) for log-probabilities, as (...): `scores.logsumexp(-1)`.

    On a CPU, the maximum is not subtracted first unless that is needed, and the exponentials of one part after another
    go to the same memory, which is mapped and stays in the processor's cache: that is faster than `logsumexp`. Few
    scores become log-probabilities in place, which takes fewer calls; then there is nothing to subtract.
    """

    def __init__(self):
        self.room: torch.Tensor | None = None

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        if scores.numel() < 2**17:
            return torch.log_softmax(scores, dim=-1, out=scores).new_zeros(scores.shape[:-1])
        if scores.device.type == "cpu":
            rows = scores.flatten(0, -2)
            if self.room is None or self.room.shape[1] != rows.shape[1]:
                self.room = rows.new_empty(max(1, 2**17 // rows.shape[1]), rows.shape[1])
            # exp(x) = 2^(x / ln 2): torch leaves `exp` to MKL, which takes twice as long for it on an AMD EPYC.
            parts = (torch.mul(part, _LOG2_E, out=self.room[: len(part)]) for part in rows.split(len(self.room)))
            sums = torch.cat([torch.exp2(part, out=part).sum(dim=1) for part in parts])
            if bool(((sums > 1e-20) & (sums < torch.inf)).all()):
                return sums.log_().view(scores.shape[:-1])
        return scores.logsumexp(dim=-1)


def drawn(scores: torch.Tensor) -> torch.LongTensor:
    """(rows,) columns drawn with the probabilities softmax(scores), for (rows, columns); RuntimeError for NaN."""
    probabilities = scores.softmax(dim=-1)
    if scores.device.type != "cpu":
        return torch.multinomial(probabilities, num_samples=1)[:, 0]
    # On a CPU `multinomial` draws a random number for every column, which takes several times as long as the rest.
    sums = probabilities.cumsum(dim=-1, dtype=torch.float64)
    if not bool(sums[:, -1].isfinite().all()):  # as `multinomial` does
        raise RuntimeError("There are no probabilities to draw from: scores are not numbers, or no token is allowed.")
    points = torch.rand(len(sums), 1, dtype=torch.float64, device="cpu") * sums[:, -1:]
    return torch.searchsorted(sums, points, right=True)[:, 0].clamp_(max=scores.shape[1] - 1)


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Which tokens a search may choose, like transformers' processors of the settings in brackets.

    Attributes:
        forbidden: Tokens that no translation has (`bad_words_ids` of one token each).
        unrepeated: No run of this many tokens comes twice in a translation, its prefix included
            (`no_repeat_ngram_size`). 0: any may.
        last: The greatest length of a translation, and the token that must be in that place (`forced_eos_token_id`).
            None: any may.
        renormalized: The probabilities of the tokens that may be chosen sum to 1 (`renormalize_logits`).
    """

    forbidden: tuple[int, ...] = ()
    unrepeated: int = 0
    last: tuple[int, int] | None = None
    renormalized: bool = False

    def on(
        self, scores: torch.Tensor, length: int, before: torch.LongTensor | None, spared: Places | None = None
    ) -> torch.Tensor:
        """Changes the scores of the next tokens, (sentences, beams, vocabulary), in place.

        Args:
            scores: Logits or log-probabilities.
            length: How many tokens the translations will have, without the prefix.
            before: Their tokens up to now, with the prefix, (sentences, beams, tokens); needed for `unrepeated`.
            spared: Places of `scores` that may repeat a run.
        """
        if self.last is not None and length == self.last[0]:
            scores.fill_(-torch.inf)[..., self.last[1]] = 0
            return scores
        if self.forbidden:
            scores[..., self.forbidden] = -torch.inf
        if 0 < self.unrepeated <= before.shape[2]:
            kept = None if spared is None else scores[spared]
            runs = before.unfold(2, self.unrepeated, 1)  # (sentences, beams, places, unrepeated)
            begun = before[:, :, None, before.shape[2] + 1 - self.unrepeated :]
            again = (runs[..., :-1] == begun).all(dim=3)
            added = torch.zeros(again.shape, dtype=scores.dtype, device=scores.device).masked_fill_(again, -torch.inf)
            scores.scatter_add_(2, runs[..., -1], added)  # one run of several that end alike is enough
            if spared is not None:
                scores[spared] = kept
        return scores

    def normalised(
        self,
        scores: torch.Tensor,
        length: int,
        before: torch.LongTensor | None,
        spared: Places | None,
        normalisers: Normalisers,
    ) -> torch.Tensor:
        """The normalisers of logits (sentences, beams, vocabulary), which are changed as by `on`."""
        if self.renormalized:
            return normalisers(self.on(scores, length, before, spared))
        found = normalisers(scores)
        self.on(scores, length, before, spared)
        return torch.zeros_like(found) if self.last is not None and length == self.last[0] else found


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
    finished: list[Translation] = field(default_factory=list)  # best first
    done: bool = False

    def end(self, ended: list[Translation], rules: Rules) -> None:
        """Takes the hypotheses that end in this step, and keeps the best of all."""
        if rules.early_stopping is True and len(self.finished) == rules.beams:
            return  # enough
        self.finished += ended
        self.finished.sort(key=lambda each: -each.score)
        del self.finished[rules.beams :]

    def is_decided(self, best: float, length: int, rules: Rules) -> bool:
        """Whether the search of this sentence is over; `best` is the highest log-probability of an open hypothesis."""
        if len(self.finished) < rules.beams:
            return False
        score = best / rules.penalty(self.limit if rules.looks_ahead else length)
        return rules.early_stopping is True or score <= self.finished[-1].score


class Hypotheses:
    """The open hypotheses of a batch, on the host.

    Each step handles all sentences together. One by one, 64 sentences with 4 hypotheses each would take up a seventh of
    the time of a small model's search on a CPU.

    Attributes:
        sentences: Those in the batch.
        tokens: (sentences, beams, length), without the prefix.
    """

    def __init__(self, sentences: list[Sentence], beams: int):
        self.sentences = sentences
        self.tokens = torch.zeros(len(sentences), beams, 0, dtype=torch.long, device="cpu")

    def advance(
        self, values: torch.Tensor, places: torch.LongTensor, vocabulary: int, further: list[list], rules: Rules
    ) -> tuple[torch.Tensor, torch.LongTensor, torch.LongTensor]:
        """Takes the next tokens: ends hypotheses, continues the best others, and sees which sentences are done.

        Args:
            values: Log-probabilities of the candidates, (sentences, candidates), best first. They may be overwritten,
                as may the places.
            places: Their hypotheses and tokens, as hypothesis * vocabulary + token.
            vocabulary: Number of tokens.
            further: More candidates of each sentence that selects its own, as (log-probability, hypothesis, token);
                empty if no sentence does.
            rules: Those of the search.

        Returns:
            Log-probabilities, parents and tokens of the hypotheses that are open now, (sentences, beams) each. Where
            there is none, the log-probability is minus infinity.
        """
        length, beams = self.tokens.shape[2] + 1, rules.beams
        ends = _is_in(places % vocabulary, rules.eos_ids)
        if any(at_limit := [length >= sentence.limit for sentence in self.sentences]):
            ends |= torch.tensor(at_limit, device="cpu")[:, None]
        impossible = values == -torch.inf
        for row, more in enumerate(further):
            if more:
                continuing, ended = self.sentences[row].select(
                    _candidates(values[row], places[row], vocabulary) + more, length, rules
                )
                self._end(row, ended, rules)
                ends[row], impossible[row] = False, torch.arange(values.shape[1], device="cpu") >= len(continuing)
                for number, (value, parent, token) in enumerate(continuing):
                    values[row, number], places[row, number] = value, parent * vocabulary + token
        stopped = ends | impossible
        if bool(stopped.any()):
            # Candidates beyond the first `beams` are there for the open hypotheses only.
            ending = (ends & ~impossible)[:, :beams].nonzero(as_tuple=True)
            ended = _candidates(values[ending], places[ending], vocabulary)
            for row, group in groupby(zip(ending[0].tolist(), ended, strict=True), key=itemgetter(0)):
                self._end(row, [candidate for _, candidate in group], rules)
            order = stopped.sort(dim=1, stable=True).indices[:, :beams]  # those that continue come first
            stopped, values, places = (each.gather(1, order) for each in (stopped, values, places))
            values, places = values.masked_fill(stopped, -torch.inf), places.masked_fill(stopped, 0)
        values, places = values[:, :beams], places[:, :beams]
        parents, tokens = places // vocabulary, places % vocabulary
        continued = self.tokens.gather(1, parents[..., None].expand_as(self.tokens))
        self.tokens = torch.cat((continued, tokens[..., None]), dim=2)
        for row, (sentence, best) in enumerate(zip(self.sentences, values[:, 0].tolist(), strict=True)):
            if not sentence.done and (best == -math.inf or sentence.is_decided(best, length, rules)):
                sentence.done, values[row] = True, -torch.inf
        return values, parents, tokens

    def _end(self, row: int, ended: list[tuple[float, int, int]], rules: Rules) -> None:
        """Ends hypotheses of a sentence: (log-probability, number of the hypothesis, token)."""
        if self.sentences[row].done:  # it only waits to leave the batch
            return
        penalty, before = rules.penalty(self.tokens.shape[2] + 1), self.tokens[row].tolist()
        self.sentences[row].end([Translation([*before[i], token], value / penalty) for value, i, token in ended], rules)

    def keep(self, rows: list[int]) -> None:
        """Forgets all sentences but these."""
        self.sentences, self.tokens = [self.sentences[row] for row in rows], self.tokens[rows]


class _Samples:
    """The translations of a batch that grow by one token at a time, on the host."""

    def __init__(self, limits: list[int], beams: int):
        self.limits, self.beams, self.rows = limits, beams, list(range(len(limits)))  # rows: sentences in the batch
        self.over = torch.tensor([[limit <= 0] * beams for limit in limits], dtype=torch.bool, device="cpu")
        self.steps: list[tuple[list[int], list[list[int]]]] = []  # rows of each step, and their tokens

    def done(self) -> list[bool]:
        """Whether each sentence in the batch is done."""
        return self.over.all(dim=1).tolist()

    def append(self, tokens: torch.LongTensor, eos_ids: set[int]) -> None:
        """Takes the next tokens, (sentences in the batch, beams)."""
        self.steps.append((self.rows, tokens.masked_fill(self.over, _NO_TOKEN).tolist()))
        self.over = self.over | _is_in(tokens, eos_ids)
        if any(at_limit := [len(self.steps) >= self.limits[row] for row in self.rows]):
            self.over |= torch.tensor(at_limit, device="cpu")[:, None]

    def keep(self, rows: list[int]) -> None:
        """Forgets all sentences of the batch but these."""
        self.rows, self.over = [self.rows[row] for row in rows], self.over[rows]

    def translations(self) -> list[list[list[int]]]:
        found = [[[] for _ in range(self.beams)] for _ in self.limits]
        for rows, tokens in self.steps:
            for row, of_sentence in zip(rows, tokens, strict=True):
                for translation, token in zip(found[row], of_sentence, strict=True):
                    if token != _NO_TOKEN:
                        translation.append(token)
        return found


def sums_dtype() -> torch.dtype:
    """The type of sums of log-probabilities: torch's default, unless that has 16 bits, which would round them."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def _candidates(values: torch.Tensor, places: torch.LongTensor, vocabulary: int) -> list[tuple[float, int, int]]:
    """As (log-probability, number of the hypothesis, token)."""
    return [(value, *divmod(place, vocabulary)) for value, place in zip(values.tolist(), places.tolist(), strict=True)]


def _is_in(tokens: torch.LongTensor, eos_ids: set[int]) -> torch.BoolTensor:
    if not eos_ids:
        return torch.zeros_like(tokens, dtype=torch.bool)
    return reduce(torch.logical_or, (tokens == each for each in eos_ids))  # `torch.isin` takes longer


def _blocks(decoder: StepwiseDecoder | EnsembleDecoder, count: int, device: torch.device) -> Iterator[slice]:
    """Slices of a batch of `count` sentences, whose next tokens can be chosen one slice after another.

    On a CPU the scores of a part stay in its cache until the best are found. With 256 sentences, 5 hypotheses each and
    8,000 tokens, scores and best tokens take half the time. Smaller parts would only read the output layer's weights
    more often.
    """
    rows = max(128, 2**20 // decoder.vocab_size) if device.type == "cpu" else count * decoder.beams
    size = max(1, rows // decoder.beams)
    return (slice(first, first + size) for first in range(0, count, size))


def _on_host(scores: torch.Tensor, places: torch.LongTensor) -> tuple[torch.Tensor, torch.LongTensor]:
    """Both on the CPU, the scores in float64.

    As one tensor of float64, which holds both exactly, they make the host wait once for CUDA. Apple's GPUs have no
    float64.
    """
    if scores.device.type == "cuda":
        scores, places = torch.stack([scores.double(), places.double()]).cpu()
    return scores.cpu().double(), places.cpu().long()


def _on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Moves a tensor of the host without waiting for a GPU, which reads pinned memory when it gets there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _rows_to_keep(done: Sequence[bool]) -> list[int] | None:
    """Rows of the batch that stay if an eighth of it or more is done, but not all; else None.

    Compacting the batch after every sentence would cost more than computing a few rows too many.
    """
    stay = [row for row, is_done in enumerate(done) if not is_done]
    return stay if stay and 8 * (len(done) - len(stay)) >= len(done) else None


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
    restrictions: Restrictions = Restrictions(),
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
        restrictions: Which tokens may be chosen. Phrases of the constraints may repeat tokens all the same.

    Returns:
        For each sentence up to `decoder.beams` translations, best first; none where the limit came before the phrases.

    Raises:
        ValueError: The constraints are for another number of sentences, or are malformed.
    """
    rules = Rules(decoder.beams, eos_ids, penalty, early_stopping)
    beams, device = rules.beams, prefix.device
    # All that can end, and enough to continue with.
    count = max(2, 1 + len(eos_ids)) * beams
    everything = [Sentence(limit) for limit in limits]
    if constraints is not None:
        everything = constraints.put_on(everything, prefix, rules)
    hypotheses = Hypotheses(everything, beams)
    so_far = torch.full((len(prefix), beams), -torch.inf, dtype=sums_dtype(), device=device)
    so_far[:, 0] = 0  # all hypotheses are the same to begin with
    before = prefix[:, None].expand(-1, beams, -1) if restrictions.unrepeated else None
    normalisers = Normalisers()
    for position in range(prefix.shape[1] - 1):
        decoder.states(prefix[:, position, None].expand(-1, beams))
    tokens = prefix[:, -1, None].expand(-1, beams)
    while not all(sentence.done for sentence in hypotheses.sentences):
        states, best, further = decoder.states(tokens), [], []
        for block in _blocks(decoder, len(hypotheses.sentences), device):
            scores = decoder.scores_of(states, block)  # (sentences, beams, vocabulary)
            length = hypotheses.tokens.shape[2] + 1
            before_these = spared = None
            if before is not None:
                before_these = before[block]
                spared = None if constraints is None else constraints.wanted(hypotheses, block, device)
            offsets = so_far[block] - restrictions.normalised(scores, length, before_these, spared, normalisers)
            vocabulary = scores.shape[2]
            if constraints is not None:
                scores, offsets = scores.add_(offsets[..., None]), torch.zeros_like(offsets)
                further += constraints.candidates(hypotheses, block, scores, rules)
            best.append(_on_host(*exact_top_k(scores, min(count, scores[0].numel()), offsets)))
        values, places = map(torch.cat, zip(*best, strict=True))
        so_far, *chosen = hypotheses.advance(values, places, vocabulary, further, rules)
        so_far, parents, tokens = (_on_device(each, device) for each in (so_far.to(sums_dtype()), *chosen))
        decoder.continue_from(parents)
        if before is not None:
            before = torch.cat((before.gather(1, parents[..., None].expand_as(before)), tokens[..., None]), dim=2)
        if (rows := _rows_to_keep([sentence.done for sentence in hypotheses.sentences])) is not None:
            hypotheses.keep(rows)
            rows = _on_device(torch.tensor(rows, device="cpu"), device)
            decoder.keep(rows)
            so_far, tokens = so_far.index_select(0, rows), tokens.index_select(0, rows)
            before = None if before is None else before.index_select(0, rows)
    return [sentence.finished for sentence in everything]


@torch.no_grad()
def sample(
    decoder: StepwiseDecoder | EnsembleDecoder,
    prefix: torch.LongTensor,
    limits: list[int],
    *,
    eos_ids: set[int],
    choose: Callable[[torch.Tensor], torch.LongTensor],
    restrictions: Restrictions = Restrictions(),
) -> list[list[list[int]]]:
    """Translations that grow by one chosen token at a time: greedy search, or samples.

    Args:
        decoder: A new one for the sentences; its hypotheses grow independently of each other.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: How many tokens a translation of each sentence may have after the prefix.
        eos_ids: Tokens that end a translation.
        choose: From scores (rows, vocabulary) to tokens (rows,).
        restrictions: Which tokens may be chosen.

    Returns:
        For each sentence `decoder.beams` translations, each as its tokens after the prefix.
    """
    samples, device = _Samples(limits, decoder.beams), prefix.device
    for position in range(prefix.shape[1] - 1):
        decoder.states(prefix[:, position, None].expand(-1, decoder.beams))
    tokens = prefix[:, -1, None].expand(-1, decoder.beams)
    before = prefix[:, None].expand(-1, decoder.beams, -1) if restrictions.unrepeated else None
    while not all(done := samples.done()):
        if (rows := _rows_to_keep(done)) is not None:
            samples.keep(rows)
            rows = _on_device(torch.tensor(rows, device="cpu"), device)
            decoder.keep(rows)
            tokens = tokens.index_select(0, rows)
            before = None if before is None else before.index_select(0, rows)
        scores = restrictions.on(decoder.scores(tokens), len(samples.steps) + 1, before)
        if before is not None:  # translations that are over still grow, and may have no token left
            scores.masked_fill_(_on_device(samples.over, device)[..., None], 0)
        tokens = choose(scores.flatten(0, 1)).view(-1, decoder.beams)
        before = None if before is None else torch.cat((before, tokens[..., None]), dim=2)
        samples.append(tokens.cpu(), eos_ids)
    return samples.translations()


# ------------------------------------------------------------------------------------------------- minimum Bayes risk

_ORDERS = (1, 2)  # lengths of the n-grams
_RECALL = 4  # beta squared: recall weighs as much as in chrF2


def least_risk_first(candidates: Sequence[Sequence[int]]) -> list[int]:
    """The places of candidate translations, that of the lowest Bayes risk first (Kumar and Byrne 2004).

    The utility of y, if y' were right, is the F-score of their n-grams, computed as chrF is (Popovic 2015), but of
    tokens instead of characters. P and R are the mean precision and recall of n-grams of one and two tokens:

        u(y, y') = (1 + beta^2) P R / (beta^2 P + R), beta = 2

    The first is the y with the highest sum of u(y, y') over all candidates y': the one most like the others. Where
    there is no difference, the order stays as it is.

    Args:
        candidates: Tokens of each, without prefix and end.

    Example:
        >>> least_risk_first([[7], [5, 6, 8], [5, 6, 9], [4, 5, 6]])
        [1, 2, 3, 0]
    """
    counts = [
        [Counter(zip(*(tokens[begin:] for begin in range(order)), strict=False)) for order in _ORDERS]
        for tokens in candidates
    ]
    totals = [[each.total() for each in of_orders] for of_orders in counts]
    utilities = [0.0] * len(candidates)
    for one, other in combinations(range(len(candidates)), 2):
        found = [
            ((a & b).total(), total_a, total_b)
            for a, b, total_a, total_b in zip(counts[one], counts[other], totals[one], totals[other], strict=True)
            if total_a and total_b
        ]
        if any(shared for shared, *_ in found):
            precision = sum(shared / total for shared, total, _ in found) / len(found)  # of the one
            recall = sum(shared / total for shared, _, total in found) / len(found)
            both = (1 + _RECALL) * (precision * recall)
            utilities[one] += both / (_RECALL * precision + recall)
            utilities[other] += both / (_RECALL * recall + precision)
    return sorted(range(len(candidates)), key=lambda place: -utilities[place])
