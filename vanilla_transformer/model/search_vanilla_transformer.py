"""Greedy and beam search in which a step costs as little as it can: what `generate()` uses for the plain cases.

The encoder's keys and values are projected once per sentence and shared by its hypotheses. The decoder's own are only
ever appended to: hypotheses of one sentence share one block, and a mask of ancestors, not a copy, says whose history
is whose. Sentences that are done leave the batch. No softmax over the vocabulary is written down: log-probabilities
of the best few tokens are their scores minus the log of the sum.
"""

import torch
from torch import nn
from torch.nn import functional as F


_NEVER = -1e9  # transformers' minus infinity for hypotheses
_CHUNK = 128  # pieces of the vocabulary that the first stage of the top-k looks at together


def length_penalty(length, alpha: float, kind: str):
    """What a log-probability is divided by: ((5 + |Y|) / 6)^alpha ("gnmt", section 6.1) or |Y|^alpha ("length")."""
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


# ------------------------------------------------------------------------------------------------------- the decoder


def _joined(projections: list[nn.Linear], scales: list[float]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Several projections of the same states as one matrix; 1 / sqrt(d_k) goes into the queries' rows."""
    weights = [p.weight * scale if scale != 1 else p.weight for p, scale in zip(projections, scales, strict=True)]
    if projections[0].bias is None:
        return torch.cat(weights), None
    return torch.cat(weights), torch.cat([p.bias * scale for p, scale in zip(projections, scales, strict=True)])


class _Layer:
    """One decoder layer with its matrices joined, and the keys and values of all sentences."""

    def __init__(self, layer, encoder_states: torch.Tensor):
        own, cross = layer.self_attn, layer.encoder_attn
        self.layer = layer
        self.head_dim, self.value_head_dim = own.head_dim, own.value_head_dim
        self.heads = own.q_proj.out_features // own.head_dim
        self.projection = _joined([own.q_proj, own.k_proj, own.v_proj], [own.scaling, 1, 1])
        self.sizes = [p.out_features for p in (own.q_proj, own.k_proj, own.v_proj)]
        self.cross_query = _joined([cross.q_proj], [cross.scaling])
        self.source_keys = self._heads(cross.k_proj(encoder_states), self.head_dim).transpose(2, 3).contiguous()
        self.source_values = self._heads(cross.v_proj(encoder_states), self.value_head_dim).contiguous()
        self.keys = self.values = None

    @staticmethod
    def _heads(states: torch.Tensor, head_dim: int) -> torch.Tensor:
        return states.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # (batch, heads, length, head_dim)

    def attend_to_itself(self, states: torch.Tensor, used: int, ancestors: torch.Tensor | None) -> torch.Tensor:
        """Appends keys and values of (batch, beams, d_model) states behind the `used` ones and looks at all of them."""
        query, key, value = (
            self._heads(part, dim)
            for part, dim in zip(
                F.linear(states, *self.projection).split(self.sizes, dim=-1),
                (self.head_dim, self.head_dim, self.value_head_dim),
                strict=True,
            )
        )
        end = used + states.shape[1]
        self._make_room(key, value, used, end)
        self.keys[:, :, used:end], self.values[:, :, used:end] = key, value
        scores = query @ self.keys[:, :, :end].transpose(2, 3)  # (batch, heads, beams, end)
        if ancestors is not None:
            scores = scores + ancestors
        attended = scores.softmax(dim=-1) @ self.values[:, :, :end]
        return self.layer.self_attn.out_proj(attended.transpose(1, 2).flatten(2))

    def attend_to_source(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        query = self._heads(F.linear(states, *self.cross_query), self.head_dim)
        scores = query @ self.source_keys  # (batch, heads, beams, source)
        if mask is not None:
            scores = scores + mask
        attended = scores.softmax(dim=-1) @ self.source_values
        return self.layer.encoder_attn.out_proj(attended.transpose(1, 2).flatten(2))

    def _make_room(self, key: torch.Tensor, value: torch.Tensor, used: int, end: int):
        """Doubles the room for keys and values when it is full."""
        if self.keys is not None and end <= self.keys.shape[2]:
            return
        room = max(2 * used, 32 * key.shape[2])
        for name, new in (("keys", key), ("values", value)):
            grown = new.new_empty(*new.shape[:2], room, new.shape[3])
            if used:
                grown[:, :, :used] = getattr(self, name)[:, :, :used]
            setattr(self, name, grown)

    def keep(self, sentences: torch.Tensor, used: int):
        """Forgets all sentences but these."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(len(sentences), *old.shape[1:])
            new[:, :, :used] = old[sentences, :, :used]
            setattr(self, name, new)
        self.source_keys, self.source_values = self.source_keys[sentences], self.source_values[sentences]


class StepwiseDecoder:
    """The decoder of a model, one token of every hypothesis at a time.

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
        if source_mask is not None and not bool(source_mask.all()):
            hidden = torch.finfo(encoder_states.dtype).min
            mask = encoder_states.new_zeros(source_mask.shape).masked_fill_(source_mask == 0, hidden)
            self.source_mask = mask[:, None, None]  # (batch, 1, 1, source)
        if beams > 1:
            self.ancestors = encoder_states.new_empty(len(encoder_states), beams, 0)  # (batch, beams, beams * length)
            hidden = torch.finfo(encoder_states.dtype).min
            self.newest = encoder_states.new_full((beams, beams), hidden).fill_diagonal_(0)

    def step(self, tokens: torch.LongTensor) -> torch.Tensor:
        """Scores (batch * beams, vocabulary) of what follows when (batch, beams) tokens are appended."""
        decoder, used = self.decoder, self.length * self.beams
        embedded = decoder.embed(
            decoder.embed_tokens(tokens.reshape(-1, 1)), self.length
        )  # (batch * beams, 1, d_model)
        states = embedded.view(*tokens.shape, -1)
        ancestors = None
        if self.ancestors is not None:
            newest = self.newest.expand(len(tokens), -1, -1)
            self.ancestors = torch.cat((self.ancestors, newest), dim=2)
            ancestors = self.ancestors[:, None]  # (batch, 1, beams, beams * (length + 1))
        for each in self.layers:
            layer = each.layer
            states = layer.residual(
                states, lambda x, each=each: each.attend_to_itself(x, used, ancestors), layer.self_attn_layer_norm
            )
            states = layer.residual(
                states, lambda x, each=each: each.attend_to_source(x, self.source_mask), layer.encoder_attn_layer_norm
            )
            states = layer.residual(states, layer.feed_forward, layer.final_layer_norm)
        self.length += 1
        return self.lm_head(decoder.layer_norm(states)).flatten(0, 1)

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of each sentence a continuation of `parents[:, k]`: (batch, beams)."""
        if self.ancestors is not None:
            self.ancestors = self.ancestors.gather(1, parents[..., None].expand(-1, -1, self.ancestors.shape[2]))

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        for layer in self.layers:
            layer.keep(sentences, self.length * self.beams)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]
        if self.ancestors is not None:
            self.ancestors = self.ancestors[sentences]


# -------------------------------------------------------------------------------------------------------- the search


def best_continuations(scores: torch.Tensor, so_far: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """The best tokens to append to any hypothesis of each sentence, exactly, without sorting the whole vocabulary.

    Args:
        scores: (batch * beams, vocabulary) unnormalised.
        so_far: (batch, beams) log-probabilities of the hypotheses.
        count: How many continuations of each sentence.

    Returns:
        Their log-probabilities, the hypotheses that they continue and their tokens: (batch, count) each, best first.
    """
    batch, beams = so_far.shape
    vocabulary = scores.shape[1]
    offset = so_far - scores.float().logsumexp(dim=1).view(batch, beams)  # (batch, beams)
    if vocabulary % _CHUNK:
        scores = F.pad(scores, (0, -vocabulary % _CHUNK), value=-torch.inf)
    chunks = scores.view(batch, beams, -1, _CHUNK)
    per_beam = chunks.shape[2]
    # The best `count` tokens lie in the `count` chunks with the best maxima.
    maxima = (chunks.amax(dim=-1).float() + offset[..., None]).flatten(1)  # (batch, beams * chunks)
    chosen = maxima.topk(min(count, maxima.shape[1]), dim=1).indices  # (batch, count)
    inside = chunks.flatten(1, 2).gather(1, chosen[..., None].expand(-1, -1, _CHUNK)).float()
    inside = inside + offset.gather(1, chosen // per_beam)[..., None]
    best = inside.flatten(1).topk(count, dim=1)
    chunk = chosen.gather(1, best.indices // _CHUNK)
    return best.values, chunk // per_beam, chunk % per_beam * _CHUNK + best.indices % _CHUNK


@torch.no_grad()
def beam_search(
    decoder: StepwiseDecoder,
    prefix: torch.LongTensor,
    limits: torch.LongTensor,
    *,
    eos_ids: list[int],
    pad_id: int,
    alpha: float,
    penalty: str,
    early_stopping: bool | str,
) -> tuple[torch.LongTensor, torch.Tensor]:
    """The `decoder.beams` best translations of each sentence.

    Args:
        decoder: Fresh, over the sentences.
        prefix: (batch, length) tokens that every translation begins with, the start token first.
        limits: (batch,) tokens that a translation may have beyond the prefix; one cut there counts as finished.
        eos_ids: Tokens that end a translation.
        pad_id: Fills up what is returned.
        alpha: Exponent of the length penalty.
        penalty: "gnmt" or "length", see [`length_penalty`].
        early_stopping: When a sentence is done, as in transformers: True as soon as it has enough finished
            hypotheses; False when the best open one, ended now, could not enter them; "never" when it could not
            however long it grew.

    Returns:
        Sequences (batch, beams, length), prefix included, and their scores (batch, beams), best first.
    """
    batch, beams = len(prefix), decoder.beams
    device = prefix.device
    start, longest = prefix.shape[1], int(limits.max())
    candidates = max(2, 1 + len(eos_ids)) * beams
    eos = torch.tensor(eos_ids, device=device)
    sequences = prefix.new_full((batch, beams, start + longest), pad_id)
    sequences[:, :, :start] = prefix[:, None]
    done, done_scores = sequences.clone(), torch.full((batch, beams), _NEVER, device=device)
    found, found_scores = sequences.clone(), done_scores.clone()  # what is returned, in the order given
    alive = torch.arange(batch, device=device)
    so_far = torch.full((batch, beams), _NEVER, device=device)
    so_far[:, 0] = 0
    for i in range(start - 1):
        decoder.step(sequences[:, :, i])
    for length in range(1, longest + 1):
        scores = decoder.step(sequences[:, :, start + length - 2])
        values, parents, tokens = best_continuations(scores, so_far, candidates)
        ends = torch.isin(tokens, eos) | (length >= limits[alive])[:, None]  # (alive, candidates)
        # Finished ones enter the best of the sentence, if they are among the first `beams` candidates.
        finished = ends.clone()
        finished[:, beams:] = False
        if bool(finished.any()):
            ended = (values / length_penalty(length, alpha, penalty)).masked_fill(~finished, _NEVER)
            if early_stopping is True:
                ended = ended.masked_fill((done_scores > _NEVER).all(dim=1, keepdim=True), _NEVER)
            grown = sequences.gather(1, parents[..., None].expand(-1, -1, sequences.shape[2])).clone()
            grown[:, :, start + length - 1] = tokens
            merged = torch.cat((done_scores, ended), dim=1)
            done_scores, order = merged.topk(beams, dim=1)
            done = torch.cat((done, grown), dim=1).gather(1, order[..., None].expand(-1, -1, done.shape[2]))
        # The best open ones go on.
        so_far, order = values.masked_fill(ends, _NEVER).topk(beams, dim=1)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        sequences = sequences.gather(1, parents[..., None].expand(-1, -1, sequences.shape[2]))
        sequences[:, :, start + length - 1] = tokens
        decoder.continue_from(parents)
        # Sentences none of whose open hypotheses can still win leave.
        over = (so_far <= _NEVER / 2).all(dim=1)
        full = (done_scores > _NEVER / 2).all(dim=1)
        if early_stopping is True:
            over |= full
        else:
            reach = limits[alive] if early_stopping == "never" and alpha > 0 else torch.full_like(alive, length)
            over |= full & (so_far[:, 0] / length_penalty(reach, alpha, penalty) <= done_scores[:, -1])
        if bool(over.any()):
            found[alive[over]], found_scores[alive[over]] = done[over], done_scores[over]
            stay = (~over).nonzero()[:, 0]
            if not len(stay):
                break
            decoder.keep(stay)
            alive, sequences, done = alive[stay], sequences[stay], done[stay]
            so_far, done_scores = so_far[stay], done_scores[stay]
    return found, found_scores


@torch.no_grad()
def greedy_search(
    decoder: StepwiseDecoder,
    prefix: torch.LongTensor,
    limits: torch.LongTensor,
    *,
    eos_ids: list[int],
    pad_id: int,
) -> torch.LongTensor:
    """The translation of each sentence that takes the best token at every step: (batch, length), prefix included."""
    batch, start, longest = len(prefix), prefix.shape[1], int(limits.max())
    found = prefix.new_full((batch, start + longest), pad_id)
    found[:, :start] = prefix
    eos = torch.tensor(eos_ids, device=prefix.device)
    alive = torch.arange(batch, device=prefix.device)
    for i in range(start - 1):
        decoder.step(prefix[:, i : i + 1])
    tokens = prefix[:, -1]
    for length in range(1, longest + 1):
        tokens = decoder.step(tokens[:, None]).argmax(dim=1)
        found[alive, start + length - 1] = tokens
        over = torch.isin(tokens, eos) | (length >= limits[alive])
        if bool(over.any()):
            stay = (~over).nonzero()[:, 0]
            if not len(stay):
                break
            decoder.keep(stay)
            alive, tokens = alive[stay], tokens[stay]
    return found[:, : start + length]
