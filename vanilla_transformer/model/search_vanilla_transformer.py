"""Beam search, greedy search and sampling in which a step costs as little as it can.

The encoder's keys and values are projected once per sentence and shared by its hypotheses. The decoder's own are only
ever appended to: the hypotheses of a sentence share one block, and a mask of ancestors, not a copy, says whose history
is whose. Sentences that are done leave the batch. The best few tokens are found without sorting the vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F


# ---------------------------------------------------------------------------------------------- one step of the decoder


class _Layer:
    """One decoder layer: its matrices for the same states joined, and the keys and values of all sentences."""

    def __init__(self, layer, encoder_states: torch.Tensor):
        own, cross = layer.self_attn, layer.encoder_attn
        self.layer = layer
        self.head_dim, self.value_head_dim = own.head_dim, own.value_head_dim
        joined = (own.q_proj, own.k_proj, own.v_proj)
        self.sizes = [projection.out_features for projection in joined]
        self.weight = torch.cat([own.q_proj.weight * own.scaling, own.k_proj.weight, own.v_proj.weight])
        self.bias = self.cross_bias = None
        self.cross_weight = cross.q_proj.weight * cross.scaling
        if own.q_proj.bias is not None:
            self.bias = torch.cat([own.q_proj.bias * own.scaling, own.k_proj.bias, own.v_proj.bias])
            self.cross_bias = cross.q_proj.bias * cross.scaling
        self.source_keys = self._heads(cross.k_proj(encoder_states), self.head_dim).transpose(2, 3).contiguous()
        self.source_values = self._heads(cross.v_proj(encoder_states), self.value_head_dim).contiguous()
        self.keys = self.values = encoder_states.new_empty(0, 0, 0, 0)

    @staticmethod
    def _heads(states: torch.Tensor, head_dim: int) -> torch.Tensor:
        return states.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # (batch, heads, length, head_dim)

    def __call__(self, states: torch.Tensor, used: int, ancestors, source_mask) -> torch.Tensor:
        """The layer's output for (batch, beams, d_model), the newest states of every hypothesis."""
        layer = self.layer
        states = layer.residual(states, lambda x: self._on_itself(x, used, ancestors), layer.self_attn_layer_norm)
        states = layer.residual(states, lambda x: self._on_source(x, source_mask), layer.encoder_attn_layer_norm)
        return layer.residual(states, layer.feed_forward, layer.final_layer_norm)

    def _on_itself(self, states: torch.Tensor, used: int, ancestors: torch.Tensor | None) -> torch.Tensor:
        """Appends keys and values behind the `used` ones and attends to all of them that are ancestors."""
        query, key, value = F.linear(states, self.weight, self.bias).split(self.sizes, dim=-1)
        end = used + states.shape[1]
        key, value = self._heads(key, self.head_dim), self._heads(value, self.value_head_dim)
        if end > self.keys.shape[2]:
            self.keys, self.values = self._more_room(self.keys, key, used), self._more_room(self.values, value, used)
        self.keys[:, :, used:end], self.values[:, :, used:end] = key, value
        scores = self._heads(query, self.head_dim) @ self.keys[:, :, :end].transpose(2, 3)  # (batch, heads, beams, end)
        if ancestors is not None:
            scores += ancestors
        attended = scores.softmax(dim=-1) @ self.values[:, :, :end]
        return self.layer.self_attn.out_proj(attended.transpose(1, 2).flatten(2))

    def _on_source(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        query = self._heads(F.linear(states, self.cross_weight, self.cross_bias), self.head_dim)
        scores = query @ self.source_keys  # (batch, heads, beams, source)
        if mask is not None:
            scores += mask
        attended = scores.softmax(dim=-1) @ self.source_values
        return self.layer.encoder_attn.out_proj(attended.transpose(1, 2).flatten(2))

    @staticmethod
    def _more_room(old: torch.Tensor, new: torch.Tensor, used: int) -> torch.Tensor:
        """Twice the room, or for 32 steps to begin with, with what was there."""
        grown = new.new_empty(*new.shape[:2], max(2 * used, 32 * new.shape[2]), new.shape[3])
        if used:
            grown[:, :, :used] = old[:, :, :used]
        return grown

    def keep(self, sentences: torch.Tensor, used: int):
        """Forgets all sentences but these."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            kept = old.new_empty(len(sentences), *old.shape[1:])
            kept[:, :, :used] = old[sentences, :, :used]
            setattr(self, name, kept)
        self.source_keys, self.source_values = self.source_keys[sentences], self.source_values[sentences]


class StepwiseDecoder:
    """The decoder and output layer of a model, for one more token of every hypothesis at a time.

    Args:
        model: A [`VanillaTransformerForConditionalGeneration`] in evaluation mode.
        encoder_states: (batch, source, d_model), each sentence once.
        source_mask: (batch, source), 1 for tokens and 0 for padding; None if nothing is padded.
        beams: Hypotheses of a sentence.
    """

    def __init__(self, model, encoder_states: torch.Tensor, source_mask: torch.Tensor | None, beams: int):
        self.decoder, self.lm_head, self.beams = model.model.decoder, model.lm_head, beams
        self.layers = [_Layer(layer, encoder_states) for layer in self.decoder.layers]
        self.length = 0
        self.source_mask = self.ancestors = None
        self.hidden = torch.finfo(encoder_states.dtype).min
        if source_mask is not None and not bool(source_mask.all()):
            mask = torch.zeros_like(source_mask, dtype=encoder_states.dtype).masked_fill_(source_mask == 0, self.hidden)
            self.source_mask = mask[:, None, None]  # (batch, 1, 1, source)
        if beams > 1:
            self.ancestors = encoder_states.new_empty(len(encoder_states), 1, beams, 0)
            self.itself = encoder_states.new_full((beams, beams), self.hidden).fill_diagonal_(0)

    def append(self, tokens: torch.LongTensor) -> torch.Tensor:
        """States (batch, beams, d_model) of the hypotheses after (batch, beams) tokens more."""
        used = self.length * self.beams
        # A hypothesis is a sequence of its own, at one position with all others.
        embeddings = self.decoder.embed_tokens(tokens.flatten()[:, None])
        states = self.decoder.embed(embeddings, self.length).view(*tokens.shape, -1)
        if self.ancestors is not None:
            itself = self.itself.expand(len(tokens), 1, -1, -1)
            self.ancestors = torch.cat((self.ancestors, itself), dim=3)  # (batch, 1, beams, beams * (length + 1))
        for layer in self.layers:
            states = layer(states, used, self.ancestors, self.source_mask)
        self.length += 1
        return self.decoder.layer_norm(states)

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """Scores (batch, beams, vocabulary) of what follows (batch, beams) tokens more."""
        return self.lm_head(self.append(tokens))

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of a sentence a continuation of `parents[:, k]`; `parents` is (batch, beams)."""
        if self.ancestors is not None:
            self.ancestors = self.ancestors.gather(2, parents[:, None, :, None].expand_as(self.ancestors))

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        for layer in self.layers:
            layer.keep(sentences, self.length * self.beams)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]
        if self.ancestors is not None:
            self.ancestors = self.ancestors[sentences]


# -------------------------------------------------------------------------------------------------------- the searches


def exact_top_k(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What `values.topk(count)` returns for (rows, columns), several times faster on a CPU when the columns are many.

    Columns are dealt out to groups. The best `count` values lie in the `count` groups with the best maxima, and maxima
    are cheap: only those groups are sorted.
    """
    columns = values.shape[1]
    groups = 2 ** round(math.log2(math.sqrt(count * columns)))  # about as many as each of the groups chosen has members
    if columns < 4 * groups:
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


class _OpenSentences:
    """Which sentences the decoder's batch still holds, and what became of those that have left it."""

    def __init__(self, decoder: StepwiseDecoder, *results: torch.Tensor):
        """`results` are tensors (batch, ...) to be filled."""
        self.decoder, self.results = decoder, results
        self.places = torch.arange(len(results[0]), device=results[0].device)  # in the batch that was given
        self.done = torch.zeros_like(self.places, dtype=torch.bool)

    def leave(self, done: torch.Tensor, *results: torch.Tensor):
        """Writes down the results of the sentences that are `done` (open,) now and were not before."""
        now = done & ~self.done
        if bool(now.any()):
            self.done |= now
            for kept, result in zip(self.results, results, strict=True):
                kept[self.places[now]] = result[now]

    def go_on(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        """What is left of tensors (open, ...) when an eighth of the sentences is done; None when all are."""
        done = int(self.done.sum())
        if done == len(self.done):
            return None
        if 8 * done < len(self.done):  # moving everything together costs more than a few rows too many
            return tensors
        stay = (~self.done).nonzero()[:, 0]
        self.decoder.keep(stay)
        self.places, self.done = self.places[stay], self.done[stay]
        return tuple(tensor[stay] for tensor in tensors)


def beam_search(
    decoder: StepwiseDecoder,
    prefix: torch.LongTensor,
    limits: torch.LongTensor,
    *,
    eos_ids: list[int],
    pad_id: int,
    penalty: Callable[[int | torch.Tensor], float | torch.Tensor],
    early_stopping: bool | str,
) -> tuple[torch.LongTensor, torch.Tensor, torch.LongTensor]:
    """The `decoder.beams` best translations of each sentence that a search as wide finds (section 6.1).

    Args:
        decoder: Fresh, over the sentences.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: (batch,) tokens that a translation may have after the prefix; one cut there counts as finished.
        eos_ids: Tokens that end a translation.
        pad_id: Fills up what is returned.
        penalty: What the log-probability of a translation of so many tokens is divided by.
        early_stopping: When a sentence is done, as in transformers: True as soon as it has enough finished
            hypotheses; False when the best open one, ended now, could not enter them; "never" when it could not
            however long it grew.

    Returns:
        Sequences (batch, beams, length), prefix included, their scores (batch, beams), best first, and how many tokens
        each has after the prefix (batch, beams). Where there are fewer translations than hypotheses the scores of the
        rest are minus infinity.
    """
    beams, start, longest = decoder.beams, prefix.shape[1], int(limits.max())
    sequences = F.pad(prefix, (0, longest), value=pad_id)[:, None].repeat(1, beams, 1)  # of the open hypotheses
    so_far = torch.full((len(prefix), beams), -torch.inf, device=prefix.device)
    finished, finished_scores, lengths = sequences.clone(), so_far.clone(), torch.zeros_like(sequences[..., 0])
    found = (finished.clone(), finished_scores.clone(), lengths.clone())
    sentences = _OpenSentences(decoder, *found)
    so_far[:, 0] = 0  # all hypotheses are the same to begin with
    candidates = max(2, 1 + len(eos_ids)) * beams
    eos = torch.tensor(eos_ids, device=prefix.device)
    # Where the penalty grows with the length, the best that an open hypothesis can become it becomes at its limit.
    grows = penalty(2) > penalty(1)
    for position in range(start - 1):
        decoder.append(sequences[:, :, position])
    for length in range(1, longest + 1):
        newest = start + length - 1
        scores = decoder.scores(sequences[:, :, newest - 1]).float().log_softmax(dim=-1)  # (open, beams, vocabulary)
        vocabulary = scores.shape[2]
        values, places = exact_top_k(scores.add_(so_far[..., None]).flatten(1), min(candidates, beams * vocabulary))
        parents, tokens = places // vocabulary, places % vocabulary  # (open, candidates)
        ends = torch.isin(tokens, eos) | (length >= limits)[:, None]
        # Those of the first `beams` that end compete with what is finished; the others are there for the open ones.
        ended = values[:, :beams].masked_fill(~ends[:, :beams], -torch.inf) / penalty(length)
        if early_stopping is True:
            ended = ended.masked_fill((finished_scores > -torch.inf).all(dim=1, keepdim=True), -torch.inf)
        if bool((ended > finished_scores[:, -1:]).any()):
            grown = _rows(sequences, parents[:, :beams])
            grown[:, :, newest] = tokens[:, :beams]
            finished_scores, order = torch.cat((finished_scores, ended), dim=1).topk(beams, dim=1)
            finished = _rows(torch.cat((finished, grown), dim=1), order)
            lengths = torch.cat((lengths, torch.full_like(lengths, length)), dim=1).gather(1, order)
        so_far, order = values.masked_fill(ends, -torch.inf).topk(beams, dim=1)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        sequences = _rows(sequences, parents)
        sequences[:, :, newest] = tokens
        decoder.continue_from(parents)
        over = (finished_scores > -torch.inf).all(dim=1)
        if early_stopping is not True:
            reach = limits if early_stopping == "never" and grows else length
            over &= so_far[:, 0] / penalty(reach) <= finished_scores[:, -1]
        over |= so_far[:, 0] == -torch.inf
        sentences.leave(over, finished, finished_scores, lengths)
        going_on = sentences.go_on(sequences, finished, finished_scores, lengths, so_far, limits)
        if going_on is None:
            break
        sequences, finished, finished_scores, lengths, so_far, limits = going_on
    return found


def _rows(hypotheses: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Of each sentence's hypotheses (batch, any, length), those at `places` (batch, chosen)."""
    return hypotheses.gather(1, places[..., None].expand(-1, -1, hypotheses.shape[2]))


def sample(
    decoder: StepwiseDecoder,
    prefix: torch.LongTensor,
    limits: torch.LongTensor,
    *,
    eos_ids: list[int],
    pad_id: int,
    choose: Callable[[torch.Tensor], torch.LongTensor],
) -> torch.LongTensor:
    """Translations that grow by one chosen token at a time: greedy search, or samples.

    Args:
        decoder: Fresh, over the sentences; its hypotheses grow independently of each other.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: (batch,) tokens that a translation may have after the prefix.
        eos_ids: Tokens that end a translation.
        pad_id: Fills up what is returned.
        choose: From scores (rows, vocabulary) to tokens (rows,).

    Returns:
        Sequences (batch, beams, length), prefix included.
    """
    start, longest = prefix.shape[1], int(limits.max())
    sequences = F.pad(prefix, (0, longest), value=pad_id)[:, None].repeat(1, decoder.beams, 1)
    found = sequences.clone()
    sentences = _OpenSentences(decoder, found)
    ended = torch.zeros(sequences.shape[:2], dtype=torch.bool, device=prefix.device)
    eos = torch.tensor(eos_ids, device=prefix.device)
    for position in range(start - 1):
        decoder.append(sequences[:, :, position])
    for length in range(1, longest + 1):
        newest = start + length - 1
        scores = decoder.scores(sequences[:, :, newest - 1]).float()  # (open, beams, vocabulary)
        tokens = choose(scores.flatten(0, 1)).view(ended.shape).masked_fill(ended, pad_id)
        sequences[:, :, newest] = tokens
        ended = ended | torch.isin(tokens, eos) | (length >= limits)[:, None]
        sentences.leave(ended.all(dim=1), sequences)
        going_on = sentences.go_on(sequences, ended, limits)
        if going_on is None:
            break
        sequences, ended, limits = going_on
    return found[:, :, : start + length]
