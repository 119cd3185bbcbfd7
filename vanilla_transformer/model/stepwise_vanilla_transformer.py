"""The decoder one token at a time, for all hypotheses of all sentences at once, at as little cost as can be.

The encoder's keys and values are projected once per sentence and shared by its hypotheses. The decoder's own are only
ever appended to: the hypotheses of a sentence share one block, and a mask of ancestors, not a copy, says whose history
is whose.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


def query_key_value(attention: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias of the three projections of an attention's states as one; 1 / sqrt(d_k) is in the queries'."""
    query, *others = attention.q_proj, attention.k_proj, attention.v_proj
    weight = torch.cat([query.weight * attention.scaling, *(other.weight for other in others)])
    if query.bias is None:
        return weight, None
    return weight, torch.cat([query.bias * attention.scaling, *(other.bias for other in others)])


class _Linear:
    """A linear layer for many products with the same matrix: on a CPU a large one is laid out for oneDNN's kernels.

    `torch.ops.mkldnn` is what torch.compile uses for frozen weights; where it is missing or would not pay, this is
    `F.linear`. Checked on torch 2.13.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, rows: int):
        self.weight, self.bias, self.packed = weight, bias, None
        pays = weight.numel() >= (2**18 if rows >= 16 else 2**24)  # measured on an AMD EPYC with AVX-512
        fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if pays and fits and torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        if self.packed is None:
            return F.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")


def _fast(layer: nn.Module, rows: int) -> Callable:
    """A layer for many calls with about so many rows; one that is not linear knows what is fast by itself."""
    return _Linear(layer.weight, layer.bias, rows) if isinstance(layer, nn.Linear) else layer


class _Layer:
    """A decoder layer for the newest states of every hypothesis, with the keys and values of all that came before.

    States are (batch * beams, d_model) here: a hypothesis has one position at a time.
    """

    def __init__(self, layer, encoder_states: torch.Tensor, beams: int):
        own, cross = layer.self_attn, layer.encoder_attn
        rows = len(encoder_states) * beams

        self.layer, self.beams = layer, beams
        self.head_dim, self.value_head_dim = own.head_dim, own.value_head_dim
        # Who puts other layers in the place of linear ones joins these three.
        self.query_key_value = getattr(own, "query_key_value", None) or _Linear(*query_key_value(own), rows)
        self.sizes = [projection.out_features for projection in (own.q_proj, own.k_proj, own.v_proj)]
        self.own_output, self.cross_output = _fast(own.out_proj, rows), _fast(cross.out_proj, rows)
        self.cross_query = _fast(cross.q_proj, rows)
        self.fc1, self.fc2 = _fast(layer.fc1, rows), _fast(layer.fc2, rows)
        source_keys = (cross.k_proj(encoder_states) * cross.scaling).unflatten(-1, (-1, self.head_dim))
        source_values = cross.v_proj(encoder_states).unflatten(-1, (-1, self.value_head_dim))
        self.source_keys = source_keys.permute(0, 2, 3, 1).contiguous()  # (batch, heads, head_dim, source)
        self.source_values = source_values.transpose(1, 2).contiguous()  # (batch, heads, source, value_head_dim)
        self.keys = self.values = encoder_states.new_empty(0, 0, 0, 0)  # (batch, heads, beams * length, ...)

    def __call__(self, states: torch.Tensor, used: int, ancestors, source_mask) -> torch.Tensor:
        layer = self.layer
        states = self._residual(states, lambda x: self._on_itself(x, used, ancestors), layer.self_attn_layer_norm)
        states = self._residual(states, lambda x: self._on_source(x, source_mask), layer.encoder_attn_layer_norm)
        return self._residual(states, lambda x: self.fc2(layer.activation_fn(self.fc1(x))), layer.final_layer_norm)

    def _residual(self, states: torch.Tensor, sub_layer: Callable, norm) -> torch.Tensor:
        if self.layer.norm_first:
            return states + sub_layer(F.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps))
        return F.layer_norm(states + sub_layer(states), norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def _heads(self, states: torch.Tensor, head_dim: int) -> torch.Tensor:
        return states.view(-1, self.beams, states.shape[1] // head_dim, head_dim).transpose(1, 2)

    def _on_itself(self, states: torch.Tensor, used: int, ancestors: torch.Tensor | None) -> torch.Tensor:
        """Appends keys and values behind the `used` ones and attends to all of them that are ancestors."""
        query, key, value = self.query_key_value(states).split(self.sizes, dim=1)
        end = used + self.beams
        key, value = self._heads(key, self.head_dim), self._heads(value, self.value_head_dim)
        if end > self.keys.shape[2]:
            self.keys, self.values = self._more_room(self.keys, key, used), self._more_room(self.values, value, used)
        self.keys[:, :, used:end], self.values[:, :, used:end] = key, value
        scores = self._heads(query, self.head_dim) @ self.keys[:, :, :end].transpose(2, 3)  # (batch, heads, beams, end)
        if ancestors is not None:
            scores += ancestors
        attended = scores.softmax(dim=-1) @ self.values[:, :, :end]
        return self.own_output(attended.transpose(1, 2).reshape(len(states), -1))

    def _on_source(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        scores = (
            self._heads(self.cross_query(states), self.head_dim) @ self.source_keys
        )  # (batch, heads, beams, source)
        if mask is not None:
            scores += mask
        attended = scores.softmax(dim=-1) @ self.source_values
        return self.cross_output(attended.transpose(1, 2).reshape(len(states), -1))

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
        self.decoder, self.beams = model.model.decoder, beams
        self.lm_head = _fast(model.lm_head, len(encoder_states) * beams)
        self.layers = [_Layer(layer, encoder_states, beams) for layer in self.decoder.layers]
        self.length = 0
        self.source_mask = self.ancestors = None
        hidden = torch.finfo(encoder_states.dtype).min
        if source_mask is not None and not bool(source_mask.all()):
            mask = torch.zeros_like(source_mask, dtype=encoder_states.dtype).masked_fill_(source_mask == 0, hidden)
            self.source_mask = mask[:, None, None]  # (batch, 1, 1, source)
        if beams > 1:
            self.ancestors = encoder_states.new_empty(len(encoder_states), 1, beams, 0)
            self.itself = encoder_states.new_full((beams, beams), hidden).fill_diagonal_(0)

    def append(self, tokens: torch.LongTensor) -> torch.Tensor:
        """States (batch * beams, d_model) of the hypotheses after (batch, beams) tokens more."""
        used = self.length * self.beams
        states = self.decoder.embed(self.decoder.embed_tokens(tokens.reshape(-1, 1)), self.length)[:, 0]
        if self.ancestors is not None:
            itself = self.itself.expand(len(tokens), 1, -1, -1)
            self.ancestors = torch.cat((self.ancestors, itself), dim=3)  # (batch, 1, beams, beams * (length + 1))
        for layer in self.layers:
            states = layer(states, used, self.ancestors, self.source_mask)
        self.length += 1
        return self.decoder.layer_norm(states)

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """float32 scores (batch, beams, vocabulary) of what follows (batch, beams) tokens more."""
        return self.lm_head(self.append(tokens)).float().view(*tokens.shape, -1)

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


def mean_log_probabilities(scores: list[torch.Tensor]) -> torch.Tensor:
    """float32 log-probabilities of the geometric mean of several models' distributions, from their scores."""
    if len(scores) == 1:
        return scores[0].float().log_softmax(dim=-1)
    return torch.stack([each.float().log_softmax(dim=-1) for each in scores]).mean(dim=0).log_softmax(dim=-1)


class EnsembleDecoder:
    """Several decoders that go the same way, each the [`StepwiseDecoder`] of a model."""

    def __init__(self, members: list[StepwiseDecoder]):
        self.members, self.beams = members, members[0].beams

    def append(self, tokens: torch.LongTensor):
        """One token more of every hypothesis: (batch, beams)."""
        for member in self.members:
            member.append(tokens)

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
