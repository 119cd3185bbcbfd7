"""Beam search for translations that must contain given phrases (lexical constraints).

Dynamic beam allocation (Post and Vilar 2018, https://aclanthology.org/N18-1119): besides the best tokens overall, each
step considers the tokens that advance a hypothesis in a phrase, and each hypothesis's best token. Candidates that lack
the same number of tokens of their phrases form a bank, and the banks share the beams. A hypothesis may end when it
lacks no phrase. It pursues all phrases at once, as with the multi-state tries of Hu et al. (2019,
https://aclanthology.org/N19-1090).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, zip_longest
from operator import index, mul
from typing import NamedTuple

import torch
from transformers import StoppingCriteria
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput

from .search_vanilla_transformer import Hypotheses, Places, Rules, Sentence, exact_top_k


Phrase = tuple[int, ...]  # of token ids
Constraint = tuple[Phrase, ...]  # alternatives, one of which must be in the translation


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a hypothesis through the phrases of its sentence: a state of [`PhraseAutomaton`]."""

    under_way: int  # bits of the tokens that phrases have reached
    left: tuple[int, ...]  # how many more times each constraint must be met
    pursued: int  # bits of the constraints that are left
    missing: int  # fewest tokens that are still needed
    wanted: frozenset[int]  # tokens that advance it


class _PhraseToken(NamedTuple):
    """A token of a phrase of a [`PhraseAutomaton`]."""

    token: int
    rest: int  # how many tokens of the phrase follow it
    constraint: int  # the number of the constraint that has the phrase


class PhraseAutomaton:
    """Follows a hypothesis token by token, and knows which phrases it contains.

    It is Shift-And (Baeza-Yates and Gonnet 1992). All tokens of all phrases are laid end to end, and bit i of a state D
    says that the hypothesis ends with a phrase's tokens up to the i-th. After a token c the state is
    `((D << 1) | starts) & places[c]`: phrases may overlap, and a mismatch leads back to the longest beginning that
    still fits.

    A constraint is met where one of its alternatives ends. One that is given n times must be met n times, at places
    that do not overlap; different constraints may overlap.

    Args:
        constraints: Those of a sentence; no phrase is empty.
    """

    def __init__(self, constraints: Sequence[Constraint]):
        times = Counter(tuple(sorted(set(alternatives))) for alternatives in constraints)
        self.phrase_tokens: list[_PhraseToken] = []  # of all phrases; a token's index here is its bit
        self.places, self.masks = {}, []  # bits of each token, and of each constraint
        self.starts = self.ends = 0
        for number, alternatives in enumerate(times):
            first = len(self.phrase_tokens)
            for phrase in alternatives:
                self.starts |= 1 << len(self.phrase_tokens)
                for rest, token in zip(range(len(phrase))[::-1], phrase, strict=True):
                    self.places[token] = self.places.get(token, 0) | 1 << len(self.phrase_tokens)
                    self.phrase_tokens.append(_PhraseToken(token, rest, number))
                self.ends |= 1 << len(self.phrase_tokens) - 1
            self.masks.append((1 << len(self.phrase_tokens)) - (1 << first))
        self.shortest = [min(map(len, alternatives)) for alternatives in times]
        self._states: dict[tuple[int, tuple[int, ...]], Progress] = {}
        self._left: dict[tuple[int, ...], tuple] = {}
        self.start = self._state(0, tuple(times.values()))

    def after(self, progress: Progress, token: int) -> Progress:
        """The state after one more token."""
        bits = ((progress.under_way << 1) | self.starts) & self.places.get(token, 0) & progress.pursued
        if not bits & self.ends:
            return self._state(bits, progress.left)
        left = list(progress.left)
        for number, mask in enumerate(self.masks):
            if bits & self.ends & mask:
                left[number] -= 1
                bits &= ~mask  # the next occurrence begins after this one
        return self._state(bits, tuple(left))

    def _state(self, bits: int, left: tuple[int, ...]) -> Progress:
        if (bits, left) not in self._states:
            pursued, missing, first = self._what_is_left(left)
            under_way = _bits_of(bits)
            reached = [self.phrase_tokens[place] for place in under_way]
            # A token counts for one phrase only: two phrases that share it may differ in the next.
            gains = [self.shortest[each.constraint] - each.rest for each in reached]
            wanted = first.union(self.phrase_tokens[place + 1].token for place in under_way)
            self._states[bits, left] = Progress(bits, left, pursued, missing - max([0, *gains]), wanted)
        return self._states[bits, left]

    def _what_is_left(self, left: tuple[int, ...]) -> tuple[int, int, frozenset[int]]:
        """Bits of the constraints that are left, how many tokens they take, and their phrases' first tokens."""
        if left not in self._left:
            pursued = sum(mask for mask, count in zip(self.masks, left, strict=True) if count)
            first = frozenset(self.phrase_tokens[place].token for place in _bits_of(self.starts & pursued))
            self._left[left] = pursued, sum(map(mul, left, self.shortest)), first
        return self._left[left]


def _bits_of(number: int) -> list[int]:
    found = []
    while number:
        found.append(number.bit_length() - 1)
        number ^= 1 << found[-1]
    return found


@dataclass(slots=True)
class ConstrainedSentence(Sentence):
    """A sentence in the search whose translations must contain phrases."""

    automaton: PhraseAutomaton = None
    progress: list[Progress] = field(default_factory=list)  # of each open hypothesis

    def select(self, candidates: list[tuple[float, int, int]], length: int, rules: Rules) -> tuple[list, list]:
        """Selects the candidates that continue and those that end, best first, and follows the former's progress.

        The banks share the beams, and a hypothesis may end only with all phrases.

        Args:
            candidates: (log-probability, number of the hypothesis continued, token).
            length: How many tokens the hypotheses have with them.
            rules: Those of the search.
        """
        banks: dict[int, list] = {}  # by the number of missing tokens: (log-probability, hypothesis, token), best first
        states = {}
        for candidate in sorted(set(candidates), reverse=True):
            log_probability, beam, token = candidate
            if log_probability > -math.inf:
                states[beam, token] = self.automaton.after(self.progress[beam], token)
                banks.setdefault(states[beam, token].missing, []).append(candidate)
        complete, banks[0] = banks.get(0, []), []
        ended = []
        for rank, candidate in enumerate(complete):
            if candidate[2] not in rules.eos_ids and length < self.limit:
                banks[0].append(candidate)
            elif rank < rules.beams:
                ended.append(candidate)
        continuing = sorted(shared_out(banks, rules.beams), reverse=True) if length < self.limit else []
        self.progress = [states[beam, token] for _, beam, token in continuing]
        return continuing, ended


def shared_out(banks: dict[int, list], beams: int) -> list:
    """The candidates that stay in the beams: the banks take turns, the one that lacks the fewest tokens first.

    Args:
        banks: Candidates by the number of tokens that they lack, best first.
        beams: How many stay, at most.
    """
    turns = zip_longest(*(islice(banks[missing], beams) for missing in sorted(banks)))
    return [each for turn in turns for each in turn if each is not None][:beams]


class LexicalConstraints(StoppingCriteria):
    """The constraints of a call of `generate`.

    They pass through `generate` as a stopping criterion that never stops anything. A search that does not know them
    calls it like any other criterion, and fails.

    Args:
        for_all: Constraints of every sentence (`force_words_ids`): each a phrase, which is a list of token ids, or a
            list of phrases, one of which is enough.
        for_each: A list of such constraints for each sentence of the batch (`constraints`).
        vocabulary: Number of tokens in the vocabulary.

    Raises:
        ValueError: They are malformed.
    """

    def __init__(self, for_all: Sequence | None, for_each: Sequence | None, vocabulary: int):
        self.for_all = _constraints("force_words_ids", for_all, vocabulary)
        self.for_each = None
        if for_each is not None:
            self.for_each = [_constraints(f"constraints[{i}]", each, vocabulary) for i, each in enumerate(for_each)]

    def __bool__(self) -> bool:
        """Whether any sentence has a constraint."""
        return bool(self.for_all or any(self.for_each or ()))

    def __call__(self, input_ids, scores, **kwargs):
        raise ValueError(
            "Constraints need the plain beam search of this package: num_beams of 2 or more, do_sample=False, a model "
            "in evaluation mode, no logits processors but those of no_repeat_ngram_size, single bad words, a forced "
            "end and renormalised scores, no stopping criteria, no scores or attentions of every step, and no other "
            "cache, inputs or attention implementation than usual."
        )

    def put_on(self, sentences: list[Sentence], prefix: torch.LongTensor, rules: Rules) -> list[Sentence]:
        """The sentences of a batch; those with unmet constraints become [`ConstrainedSentence`].

        Args:
            sentences: Before the first step.
            prefix: (batch, length) tokens that their translations begin with; phrases in it count.
            rules: Those of the search.

        Raises:
            ValueError: The number of lists in `constraints` is not that of the sentences, or a phrase has a token that
                ends a translation.
        """
        for_each = [[]] * len(sentences) if self.for_each is None else self.for_each
        if len(for_each) != len(sentences):
            raise ValueError(f"constraints has {len(for_each)} lists for {len(sentences)} sentences: give one each.")
        found = []
        for sentence, own, beginning in zip(sentences, for_each, prefix.tolist(), strict=True):
            constraints = [*self.for_all, *own]
            if ends := {token for each in constraints for phrase in each for token in phrase} & rules.eos_ids:
                raise ValueError(
                    f"A phrase has the token {min(ends)}, which ends a translation: tokenise phrases with "
                    "add_special_tokens=False."
                )
            automaton = PhraseAutomaton(constraints)
            *_, state = accumulate(beginning, automaton.after, initial=automaton.start)
            if state.missing:
                progress = [state] * rules.beams
                sentence = ConstrainedSentence(sentence.limit, automaton=automaton, progress=progress)
            found.append(sentence)
        return found

    def wanted(self, hypotheses: Hypotheses, block: slice, device: torch.device) -> Places:
        """The tokens that advance hypotheses of part of a batch in their phrases, as places of their scores."""
        wanted = [(i, beam, token) for i, beam, state in _open(hypotheses.sentences[block]) for token in state.wanted]
        return _index(wanted, device)

    def candidates(self, hypotheses: Hypotheses, block: slice, scores: torch.Tensor, rules: Rules) -> list:
        """The candidates that constrained sentences must consider besides the best ones overall.

        Args:
            hypotheses: Those of the batch.
            block: A part of its sentences.
            scores: (sentences, beams, vocabulary) log-probabilities of the extended hypotheses. Those of ends that
                come too early become minus infinity.
            rules: Those of the search.

        Returns:
            For each sentence a list of (log-probability, number of the hypothesis, token).
        """
        sentences, length = hypotheses.sentences[block], hypotheses.tokens.shape[2] + 1
        states, found = _open(sentences), [[] for _ in sentences]
        if not states:
            return found
        rows = list(dict.fromkeys(i for i, _, _ in states))
        too_early = [(i, beam, token) for i, beam, state in states if state.missing for token in rules.eos_ids]
        if too_early:
            scores[_index(too_early, scores.device)] = -math.inf
        # One more than there are end tokens, so that each can continue; at the limit, as many as there can be results.
        last = {i for i in rows if length == sentences[i].limit}
        count = 1 + len(rules.eos_ids)
        best = exact_top_k(scores[rows].flatten(0, 1), min(max(count, bool(last) * rules.beams), scores.shape[2]))[1]
        best = dict(zip(rows, best.unflatten(0, (len(rows), -1)).tolist(), strict=True))
        more = [(i, beam, token) for i, beam, state in states for token in state.wanted]
        more += [(i, beam, token) for i, beam, _ in states for token in best[i][beam][: None if i in last else count]]
        for (i, beam, token), value in zip(more, scores[_index(more, scores.device)].tolist(), strict=True):
            found[i].append((value, beam, token))
        return found


def _open(sentences: Sequence[Sentence]) -> list[tuple[int, int, Progress]]:
    """The progress of the open hypotheses of constrained sentences: sentence and hypothesis, counted from 0, and it."""
    constrained = [(i, each) for i, each in enumerate(sentences) if isinstance(each, ConstrainedSentence)]
    return [(i, beam, state) for i, each in constrained if not each.done for beam, state in enumerate(each.progress)]


def _index(places: list[tuple[int, int, int]], device: torch.device) -> Places:
    return tuple(torch.tensor(places, dtype=torch.long, device=device).view(-1, 3).T)


def _constraints(name: str, given: Sequence | None, vocabulary: int) -> list[Constraint]:
    """Constraints as they are given to `generate`, checked; errors call them `name`."""
    try:
        found = [_alternatives(each) for each in given or ()]
        good = all(phrase and 0 <= min(phrase) <= max(phrase) < vocabulary for each in found for phrase in each)
    except TypeError:
        good = False
    if not good or not all(found):
        raise ValueError(
            f"{name} must be a list of phrases, each a list of token ids from 0 to {vocabulary - 1}, or of lists of "
            f"phrases, one of which is enough; it is {given!r:.200}."
        )
    return found


def _alternatives(given: Sequence) -> Constraint:
    """`[5, 6]` or `[[5, 6], [7]]`."""
    if len(given) and not hasattr(given[0], "__len__"):
        given = [given]
    return tuple(tuple(map(index, phrase)) for phrase in given)


@dataclass
class ConstrainedOutput(GenerateBeamEncoderDecoderOutput):
    """The output of a constrained beam search with `return_dict_in_generate`.

    `constraints_met` (batch * translations of a sentence,) says which translations contain all of their phrases.
    """

    constraints_met: torch.BoolTensor | None = None


__all__ = ["ConstrainedOutput", "LexicalConstraints", "PhraseAutomaton"]
