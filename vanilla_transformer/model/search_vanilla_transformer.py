"""Beam search, greedy search and sampling over the model's own layers, in which a step costs as little as it can.

The hypotheses of a sentence are the target axis of the model's forward pass: their newest tokens are (batch, beams),
and a mask of ancestors, not a copy of the cache, says whose history is whose. The encoder's keys and values are
projected once per sentence. Sentences that are done leave the batch. The best few tokens are found without sorting the
vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput


if TYPE_CHECKING:
    from .constraints_vanilla_transformer import LexicalConstraints


class GrowingLayer(DynamicLayer):
    """A layer's keys and values with room for more: `DynamicLayer` copies all of them for each new one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.used = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends (batch, heads, new, dim) to both and returns all that there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        end = self.used + key_states.shape[2]
        if end > self.keys.shape[2]:
            self.keys, self.values = self._more_room(self.keys, key_states), self._more_room(self.values, value_states)
        self.keys[:, :, self.used : end], self.values[:, :, self.used : end] = key_states, value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _more_room(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Twice the room, or for 32 steps to begin with, with what was there."""
        grown = new.new_empty(*new.shape[:2], max(2 * self.used, 32 * new.shape[2]), new.shape[3])
        grown[:, :, : self.used] = old[:, :, : self.used]
        return grown

    def get_seq_length(self) -> int:
        """Positions in use."""
        return self.used


class StepwiseDecoder:
    """A model for one more token of every hypothesis at a time.

    Args:
        model: A [`VanillaTransformerForConditionalGeneration`] in evaluation mode.
        encoder_states: (batch, source, d_model), each sentence once.
        source_mask: (batch, source), 1 for tokens and 0 for padding; None if nothing is padded.
        beams: Hypotheses of a sentence.
    """

    def __init__(self, model, encoder_states: torch.Tensor, source_mask: torch.Tensor | None, beams: int):
        self.model, self.states, self.beams = model, encoder_states, beams
        self.length = 0
        self.cache = EncoderDecoderCache(Cache(layer_class_to_replicate=GrowingLayer), DynamicCache())
        hidden = torch.finfo(encoder_states.dtype).min
        self.source_mask = None
        if source_mask is not None and not bool(source_mask.all()):
            mask = torch.zeros_like(source_mask, dtype=encoder_states.dtype).masked_fill_(source_mask == 0, hidden)
            self.source_mask = mask[:, None, None]  # (batch, 1, 1, source)
        self.ancestors = encoder_states.new_empty(len(encoder_states), 1, beams, 0)
        self.itself = encoder_states.new_full((beams, beams), hidden).fill_diagonal_(0)

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """float32 scores (batch, beams, vocabulary) of what follows (batch, beams) tokens more."""
        itself = self.itself.expand(len(tokens), 1, -1, -1)
        self.ancestors = torch.cat((self.ancestors, itself), dim=3)  # (batch, 1, beams, beams * (length + 1))
        outputs = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.states),
            attention_mask=self.source_mask,
            decoder_input_ids=tokens,
            decoder_attention_mask=self.ancestors,
            decoder_position_ids=tokens.new_full((1, 1), self.length),
            past_key_values=self.cache,
        )
        self.length += 1
        return outputs.logits.float()

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of a sentence a continuation of `parents[:, k]`; `parents` is (batch, beams)."""
        if self.beams > 1:
            self.ancestors = self.ancestors.gather(2, parents[:, None, :, None].expand_as(self.ancestors))

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        for layer in (*self.cache.self_attention_cache.layers, *self.cache.cross_attention_cache.layers):
            layer.batch_select_indices(sentences)
        self.states, self.ancestors = self.states[sentences], self.ancestors[sentences]
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]


def mean_log_probabilities(scores: list[torch.Tensor]) -> torch.Tensor:
    """float32 log-probabilities of the geometric mean of several models' distributions, from their scores."""
    if len(scores) == 1:
        return scores[0].float().log_softmax(dim=-1)
    return torch.stack([each.float().log_softmax(dim=-1) for each in scores]).mean(dim=0).log_softmax(dim=-1)


class EnsembleDecoder:
    """Several decoders that go the same way, each the [`StepwiseDecoder`] of a model."""

    def __init__(self, members: list[StepwiseDecoder]):
        self.members, self.beams = members, members[0].beams

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """Averaged log-probabilities (batch, beams, vocabulary) of what follows (batch, beams) tokens more."""
        return mean_log_probabilities([member.scores(tokens) for member in self.members])

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of a sentence a continuation of `parents[:, k]`; `parents` is (batch, beams)."""
        for member in self.members:
            member.continue_from(parents)

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        for member in self.members:
            member.keep(sentences)


def exact_top_k(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What `values.topk(count)` returns for (rows, columns), several times faster on a CPU when the columns are many.

    Columns are dealt out to groups. The best `count` values lie in the `count` groups with the best maxima, and maxima
    are cheap: only those groups are sorted.
    """
    columns = values.shape[1]
    groups = 2 ** round(math.log2(math.sqrt(count * columns)))  # about as many as each of the groups chosen has members
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
    """An open hypothesis: its last token, and the one that it continues (None: the prefix)."""

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
    """What holds for all sentences of a beam search: see [`beam_search`]."""

    beams: int
    eos_ids: set[int]
    penalty: Callable[[int], float]
    early_stopping: bool | str

    @property
    def looks_ahead(self) -> bool:
        """Where the penalty grows with the length, the best an open hypothesis can become it becomes at its limit."""
        return self.early_stopping == "never" and self.penalty(2) > self.penalty(1)


@dataclass(slots=True)
class Sentence:
    """A sentence in the search."""

    limit: int  # tokens that a translation may have
    open: list[OpenHypothesis]
    finished: list[tuple[float, OpenHypothesis]] = field(default_factory=list)  # best first
    done: bool = False

    def advance(self, candidates: list[tuple[float, int, int]], length: int, rules: Rules) -> list:
        """Takes the next tokens: ends hypotheses, goes on with the best others, and sees whether that was all.

        Args:
            candidates: (log-probability, number of the hypothesis continued, token), best first.
            length: How many tokens that makes.
            rules: Those of the search.

        Returns:
            Those of the candidates that are open now.
        """
        enough = rules.early_stopping is True and len(self.finished) == rules.beams
        going_on = []
        for rank, (log_probability, beam, token) in enumerate(candidates):
            if log_probability == -math.inf or len(going_on) == rules.beams:
                break
            if token not in rules.eos_ids and length < self.limit:
                going_on.append((log_probability, beam, token))
            elif rank < rules.beams and not enough:  # the later ones are there for the open hypotheses only
                self.finished.append((log_probability / rules.penalty(length), OpenHypothesis(self.open[beam], token)))
        self.go_on_with(going_on, length, rules)
        return going_on

    def go_on_with(self, going_on: list[tuple[float, int, int]], length: int, rules: Rules) -> None:
        """Has these candidates for its open hypotheses, best first, and sees whether that was all."""
        self.finished.sort(key=lambda each: -each[0])
        del self.finished[rules.beams :]
        self.open = [OpenHypothesis(self.open[beam], token) for _, beam, token in going_on]
        self.done = not going_on
        if going_on and len(self.finished) == rules.beams:
            best = going_on[0][0] / rules.penalty(self.limit if rules.looks_ahead else length)
            self.done = rules.early_stopping is True or best <= self.finished[-1][0]


@dataclass(slots=True)
class _Sample:
    """A sentence of which samples are drawn."""

    limit: int
    translations: list[list[int]]
    done: bool = False

    def is_over(self, translation: list[int], eos_ids: set[int]) -> bool:
        return len(translation) >= self.limit or (bool(translation) and translation[-1] in eos_ids)


def _move_together(decoder: StepwiseDecoder | EnsembleDecoder, sentences: list, *tensors: torch.Tensor) -> tuple:
    """Takes the sentences that are done out of the batch, as soon as an eighth of them is.

    Moving everything together for each of them would cost more than a few rows too many.
    """
    stay = [i for i, sentence in enumerate(sentences) if not sentence.done]
    if not stay or 8 * (len(sentences) - len(stay)) < len(sentences):
        return sentences, *tensors
    places = torch.tensor(stay, device=tensors[0].device)
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
        decoder: Fresh, over the sentences.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: How many tokens a translation of each sentence may have after the prefix; one cut there is finished.
        eos_ids: Tokens that end a translation.
        penalty: What the log-probability of a translation of so many tokens is divided by.
        early_stopping: When a sentence is done, as in transformers: True as soon as it has enough finished
            hypotheses; False when the best open one, ended now, could not enter them; "never" when it could not
            however long it grew.
        constraints: Phrases that the translations must contain. Sentences that have none take the way of a search
            without any.

    Returns:
        For each sentence up to `decoder.beams` translations, best first; none where the limit came before the phrases.

    Raises:
        ValueError: The constraints are not those of so many sentences, or cannot be any.
    """
    rules = Rules(decoder.beams, eos_ids, penalty, early_stopping)
    beams = rules.beams
    # As many as ending may take away, and as many again to go on with.
    candidates = max(2, 1 + len(eos_ids)) * beams
    everything = sentences = [Sentence(limit, [OpenHypothesis()] * beams) for limit in limits]
    if constraints is not None:
        everything = sentences = constraints.put_on(sentences, prefix, eos_ids)
    so_far = torch.full((len(prefix), beams), -torch.inf, device=prefix.device)
    so_far[:, 0] = 0  # all hypotheses are the same to begin with
    for position in range(prefix.shape[1] - 1):
        decoder.scores(prefix[:, position, None].expand(-1, beams))
    tokens, length = prefix[:, -1, None].expand(-1, beams), 0
    while not all(sentence.done for sentence in sentences):
        length += 1
        # On a CPU this kernel is twice as fast as `logsumexp`, which makes a pass of its own of each operation.
        scores = decoder.scores(tokens).log_softmax(dim=-1).add_(so_far[..., None])  # (open, beams, vocabulary)
        vocabulary = scores.shape[2]
        further = [()] * len(sentences)
        if constraints is not None:
            further = constraints.candidates(sentences, scores, length, rules)
        values, places = exact_top_k(scores.flatten(1), min(candidates, beams * vocabulary))
        chosen = []
        for sentence, value, place, more in zip(sentences, values.tolist(), places.tolist(), further, strict=True):
            going_on = []
            if not sentence.done:  # else it is only still in the batch
                found = [(each, *divmod(number, vocabulary)) for each, number in zip(value, place, strict=True)]
                going_on = sentence.advance([*found, *more], length, rules)
            chosen.append(going_on + [(-math.inf, 0, 0)] * (beams - len(going_on)))
        so_far = torch.tensor([[each[0] for each in row] for row in chosen], device=prefix.device)
        parents = torch.tensor([[each[1] for each in row] for row in chosen], device=prefix.device)
        tokens = torch.tensor([[each[2] for each in row] for row in chosen], device=prefix.device)
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
        decoder: Fresh, over the sentences; its hypotheses grow independently of each other.
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
        decoder.scores(prefix[:, position, None].expand(-1, beams))
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
