"""One more token for every hypothesis: the decoder in a search, with steps that cost as little as they can.

The hypotheses of a sentence are the target axis of the decoder: their newest tokens are (batch, beams), and a mask of
ancestors, not a copy of the cache, says whose history is whose. The encoder's keys and values are projected once per
sentence.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
from torch import nn
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from .linear_vanilla_transformer import is_hooked, is_its_weights
from .masks_vanilla_transformer import additive_mask, is_better_plain, without_cudnn


# On a CPU, torch's fused attention takes longer to begin with each head of each sentence than to compute it for a few
# hypotheses. From this many on, the plain formula makes beam search of a small model 1.08 times as fast. With one
# hypothesis, both are equally fast.
_MANY_HEADS = 32
_ELEMENTWISE = {nn.ReLU, nn.GELU, nn.SiLU}  # activations of any shape


class StepwiseDecoder:
    """Runs a model on one more token of every hypothesis at a time.

    Args:
        model: A [`VanillaTransformerForConditionalGeneration`] in evaluation mode.
        encoder_states: (batch, source, d_model), each sentence once.
        source_mask: (batch, source), 1 for tokens and 0 for padding; None if nothing is padded.
        beams: Hypotheses per sentence.
    """

    def __init__(self, model, encoder_states: torch.Tensor, source_mask: torch.Tensor | None, beams: int):
        self.beams, self.vocab_size = beams, model.config.vocab_size
        self.length = 0
        hidden = torch.finfo(encoder_states.dtype).min
        self.source_mask = None
        if source_mask is not None and not bool(source_mask.all()):
            mask = torch.zeros_like(source_mask, dtype=encoder_states.dtype).masked_fill_(source_mask == 0, hidden)
            self.source_mask = mask[:, None, None]  # (batch, 1, 1, source)
        self.ancestors = encoder_states.new_empty(len(encoder_states), 1, beams, 0)
        self.itself = encoder_states.new_full((beams, beams), hidden).fill_diagonal_(0)
        steps = _LayerSteps if model.has_plain_decoder() else _WholePasses
        self.steps = steps(model, encoder_states, beams)

    def states(self, tokens: torch.LongTensor) -> torch.Tensor:
        """Takes one more token of each hypothesis, (batch, beams); returns the states that `scores_of` takes."""
        if self.beams > 1:
            itself = self.itself.expand(len(tokens), 1, -1, -1)
            self.ancestors = torch.cat((self.ancestors, itself), dim=3)  # (batch, 1, beams, beams * (length + 1))
        ancestors = self.ancestors if self.beams > 1 else None  # a single hypothesis sees all positions
        states = self.steps.states(tokens, self.length, ancestors, self.source_mask)
        self.length += 1
        return states

    def scores_of(self, states: torch.Tensor, sentences: slice = slice(None)) -> torch.Tensor:
        """float32 scores (sentences, beams, vocabulary) of the next token from `states`; valid until the next call."""
        return self.steps.scores_of(states[sentences]).float()

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """float32 scores (batch, beams, vocabulary) after (batch, beams) more tokens; valid until the next call."""
        return self.scores_of(self.states(tokens))

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of a sentence a continuation of `parents[:, k]`; `parents` is (batch, beams)."""
        if self.beams > 1:
            self.ancestors = self.ancestors.gather(2, parents[:, None, :, None].expand_as(self.ancestors))

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        self.steps.keep(sentences)
        self.ancestors = self.ancestors.index_select(0, sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)


def mean_log_probabilities(scores: list[torch.Tensor]) -> torch.Tensor:
    """float32 log-probabilities of the geometric mean of several models' distributions, from their scores."""
    if len(scores) == 1:
        return scores[0].float().log_softmax(dim=-1)
    return torch.stack([each.float().log_softmax(dim=-1) for each in scores]).mean(dim=0).log_softmax(dim=-1)


class EnsembleDecoder:
    """Several decoders that take the same steps, each the [`StepwiseDecoder`] of a model."""

    def __init__(self, members: list[StepwiseDecoder]):
        self.members, self.beams, self.vocab_size = members, members[0].beams, members[0].vocab_size

    def states(self, tokens: torch.LongTensor) -> list[torch.Tensor]:
        """The states of each member, as a [`StepwiseDecoder`] returns them."""
        return [member.states(tokens) for member in self.members]

    def scores_of(self, states: list[torch.Tensor], sentences: slice = slice(None)) -> torch.Tensor:
        """Averaged log-probabilities (sentences, beams, vocabulary) of the next token, from `states`."""
        scores = [member.scores_of(own, sentences) for member, own in zip(self.members, states, strict=True)]
        return mean_log_probabilities(scores)

    def scores(self, tokens: torch.LongTensor) -> torch.Tensor:
        """Averaged log-probabilities (batch, beams, vocabulary) after these (batch, beams) tokens."""
        return self.scores_of(self.states(tokens))

    def continue_from(self, parents: torch.LongTensor):
        """Makes hypothesis k of a sentence a continuation of `parents[:, k]`; `parents` is (batch, beams)."""
        for member in self.members:
            member.continue_from(parents)

    def keep(self, sentences: torch.LongTensor):
        """Forgets all sentences but these."""
        for member in self.members:
            member.keep(sentences)


# ------------------------------------------------------------------------------------------------ keys and values


class GrowingLayer(DynamicLayer):
    """A layer's keys and values with spare capacity, because `DynamicLayer` copies all of them for each new one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.used = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends (batch, heads, new, dim) to both and returns all of them."""
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
        """A tensor of twice the capacity, or at first with space for 32 steps, that holds the old values."""
        grown = new.new_empty(*new.shape[:2], max(2 * self.used, 32 * new.shape[2]), new.shape[3])
        grown[:, :, : self.used] = old[:, :, : self.used]
        return grown

    def batch_select_indices(self, indices: torch.LongTensor):
        """Keeps these rows of the batch, and copies only the positions in use."""
        if self.used:
            self.keys, self.values = (self._selected(each, indices) for each in (self.keys, self.values))

    def _selected(self, old: torch.Tensor, indices: torch.LongTensor) -> torch.Tensor:
        """These rows, with the same capacity: without it the next step would copy them again."""
        kept = old.new_empty(len(indices), *old.shape[1:])
        # Indexing with brackets is slower. Both together make beam search of a small model 1.05 times as fast.
        kept[:, :, : self.used] = old[:, :, : self.used].index_select(0, indices)
        return kept

    def get_seq_length(self) -> int:
        """Positions in use."""
        return self.used


class _WholePasses:
    """Calls the model itself, with whatever was changed in it: hooks, other classes."""

    def __init__(self, model, encoder_states: torch.Tensor, beams: int):
        self.model, self.encoder_states = model, encoder_states
        self.cache = EncoderDecoderCache(Cache(layer_class_to_replicate=GrowingLayer), DynamicCache())

    def states(
        self, tokens: torch.LongTensor, position: int, ancestors: torch.Tensor | None, source_mask: torch.Tensor | None
    ) -> torch.Tensor:
        outputs = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.encoder_states),
            attention_mask=source_mask,
            decoder_input_ids=tokens,
            decoder_attention_mask=ancestors,
            decoder_position_ids=tokens.new_full((1, 1), position),
            past_key_values=self.cache,
            return_dict=True,
        )
        return outputs.logits

    def scores_of(self, states: torch.Tensor) -> torch.Tensor:
        return states  # the model has computed them

    def keep(self, sentences: torch.LongTensor):
        for layer in (*self.cache.self_attention_cache.layers, *self.cache.cross_attention_cache.layers):
            layer.batch_select_indices(sentences)
        self.encoder_states = self.encoder_states.index_select(0, sentences)


class _LayerSteps:
    """Goes through the layers of a model as it was built, and calls only their matrices, norms and activations.

    The overhead of the model's own forward pass takes longer than the products of one sentence: without it, a single
    sentence is translated in half the time.
    """

    def __init__(self, model, encoder_states: torch.Tensor, beams: int):
        self.decoder, self.output = model.model.decoder, _OutputLayer(model.lm_head)
        self.layers = [_LayerStep(layer, encoder_states, beams) for layer in self.decoder.layers]
        # Sinusoids are computed for several steps at once. One by one they are a twentieth of the time of a single
        # sentence. Other encodings may end somewhere.
        module = self.decoder.embed_positions
        self.ahead = 32 if "endless" in vars(type(module)) and not is_hooked(module) else 1
        self.encodings: torch.Tensor | None = None  # (self.ahead, d_model)

    def states(
        self, tokens: torch.LongTensor, position: int, ancestors: torch.Tensor | None, source_mask: torch.Tensor | None
    ) -> torch.Tensor:
        if position % self.ahead == 0:
            coming = torch.arange(position, position + self.ahead, device=tokens.device)
            self.encodings = self.decoder.embed_positions(coming)
        embeddings = self.decoder.token_embeddings(tokens, None)
        states = self.decoder.embed(embeddings, encodings=self.encodings[position % self.ahead])
        rows = states.flatten(0, 1)  # torch has less to do for products of matrices
        for layer in self.layers:
            rows = layer(rows, ancestors, source_mask)
        return self.decoder.layer_norm(rows.view_as(states))

    def scores_of(self, states: torch.Tensor) -> torch.Tensor:
        return self.output(states)

    def keep(self, sentences: torch.LongTensor):
        for layer in self.layers:
            layer.keep(sentences)


class _LayerStep:
    """A [`VanillaTransformerDecoderLayer`] for one more token of every hypothesis, with its keys and values."""

    def __init__(self, layer, encoder_states: torch.Tensor, beams: int):
        own, cross = layer.self_attn, layer.encoder_attn
        self.own, self.cross, self.cache, self.beams = own, cross, GrowingLayer(), beams
        self.fused = own.config._attn_implementation == "sdpa"  # transformers takes time to look such attributes up
        self.norm_first, self.activation = layer.norm_first, layer.activation_fn
        if type(self.activation) not in _ELEMENTWISE or is_hooked(self.activation):
            self.activation = _of_sentences(self.activation, beams)
        called = partial(_called, beams=beams)
        norms = (layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm)
        self.norms = [called(each) for each in norms]
        self.project = _together((own.q_proj, own.k_proj, own.v_proj), beams)
        self.own_out, self.query, self.cross_out = called(own.out_proj), called(cross.q_proj), called(cross.out_proj)
        self.fc1, self.fc2 = called(layer.fc1), called(layer.fc2)
        keys, values = cross.keys_and_values(encoder_states)
        self._lay_out(keys, values)

    def __call__(
        self, states: torch.Tensor, ancestors: torch.Tensor | None, source_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """From (batch * beams, d_model) to (batch * beams, d_model)."""
        states = self._residual(states, self.norms[0], self._self_attention, ancestors)
        states = self._residual(states, self.norms[1], self._encoder_attention, source_mask)
        return self._residual(states, self.norms[2], self._feed_forward)

    def _residual(self, states: torch.Tensor, norm: nn.Module, sub_layer: Callable, *given) -> torch.Tensor:
        if self.norm_first:
            return states + sub_layer(norm(states), *given)
        return norm(states + sub_layer(states, *given))

    def _feed_forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.activation(self.fc1(states)))

    def _self_attention(self, states: torch.Tensor, ancestors: torch.Tensor | None) -> torch.Tensor:
        own, projected = self.own, self.project(states)
        if own.head_dim == own.value_head_dim:  # fewer views
            query, key, value = self._heads(projected, 3 * own.num_heads).split_with_sizes([own.num_heads] * 3, dim=1)
        else:
            widths = [own.num_heads * dim for dim in (own.head_dim, own.head_dim, own.value_head_dim)]
            query, key, value = (self._heads(each, own.num_heads) for each in projected.split_with_sizes(widths, dim=1))
        keys, values = self.cache.update(key, value)
        return self.own_out(_attended(query, keys, values, ancestors, own.scaling, self.fused))

    def _encoder_attention(self, states: torch.Tensor, source_mask: torch.Tensor | None) -> torch.Tensor:
        query = self._heads(self.query(states), self.cross.num_heads)
        return self.cross_out(_attended(query, self.keys, self.values, source_mask, self.cross.scaling, self.fused))

    def _heads(self, rows: torch.Tensor, num_heads: int) -> torch.Tensor:
        """From (batch * beams, num_heads * dim) to (batch, num_heads, beams, dim)."""
        return rows.view(-1, self.beams, num_heads, rows.shape[1] // num_heads).transpose(1, 2)

    def _lay_out(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Takes (batch, heads, source, dim) keys and values of the encoder, in memory as the products want them."""
        # Products of heads want each head's rows contiguous. Those of queries and keys are faster if the keys are
        # transposed in memory. For the keys of the target that would not pay: new ones would be scattered over it.
        transposed = _is_many(keys.device, *keys.shape[:2], self.beams)
        self.keys = keys.mT.contiguous().mT if transposed else keys.contiguous()
        self.values = values.contiguous()

    def keep(self, sentences: torch.LongTensor):
        self._lay_out(*(each.index_select(0, sentences) for each in (self.keys, self.values)))
        self.cache.batch_select_indices(sentences)


class _OutputLayer:
    """The output layer for one token after another: on a CPU, new scores overwrite the last ones.

    Scores are by far the largest tensor of a step, and memory that is in the cache, or at least mapped, is there at
    once.
    """

    def __init__(self, head: nn.Module):
        self.head, self.is_weights, self.room = head, is_its_weights(head), None

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, beams, vocabulary), valid until the next call."""
        rows, head = states.flatten(0, 1), self.head
        matrix = head.weight if self.is_weights else head.plain_matrix(len(rows)) if _is_packed(head) else None
        if matrix is None or states.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return head(states)
        if self.room is None or len(self.room) < len(rows):
            self.room = rows.new_empty(len(rows), head.out_features)
        scores = torch.mm(rows, matrix.t(), out=self.room[: len(rows)])
        if head.bias is not None:
            scores += head.bias
        return scores.view(*states.shape[:2], -1)


def _called(module: nn.Module, beams: int) -> Callable:
    """What a module does with (batch * beams, width): calling the module itself takes longer than a small product."""
    if is_its_weights(module):
        return _product(module.weight, module.bias)
    if _is_packed(module):
        return module.forward
    if type(module) is nn.LayerNorm and not is_hooked(module):
        # F.layer_norm first checks whether its arguments override it.
        return partial(_layer_norm, module.normalized_shape, module.weight, module.bias, module.eps)
    return _of_sentences(module, beams)


def _of_sentences(function: Callable, beams: int) -> Callable:
    """The same for (batch * beams, width): what was put into a model, say a hook, may ask for (batch, beams, width)."""
    return lambda rows: function(rows.unflatten(0, (-1, beams))).flatten(0, 1)


def _is_packed(module: nn.Module) -> bool:
    """Whether a layer is its matrix, laid out for fast products ([`PackedLinear`])."""
    return hasattr(module, "together_with") and not is_hooked(module)


def _layer_norm(shape, weight, bias, eps: float, states: torch.Tensor) -> torch.Tensor:
    return torch.layer_norm(states, shape, weight, bias, eps)


def _product(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable:
    """F.linear of (rows, in_features), with less work for torch around the product."""
    device = weight.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return partial(F.linear, weight=weight, bias=bias)  # autocast casts parameters once, and views every time
    columns = weight.detach().t()
    if bias is None:
        return lambda rows: torch.mm(rows, columns)
    bias = bias.detach()
    return lambda rows: torch.addmm(bias, rows, columns)


def _together(projections: Sequence[nn.Module], beams: int) -> Callable:
    """What several modules do with the same rows, side by side: one product where they are just matrices."""
    if all(_is_packed(each) for each in projections):
        return projections[0].together_with(*projections[1:]).forward
    if all(is_its_weights(each) for each in projections):
        weights = [each.weight for each in projections]
        if all(each.t().is_contiguous() for each in weights):  # stored by columns, see `pack_linear`
            weight = torch.cat([each.t() for each in weights], dim=1).t()
        else:
            weight = torch.cat(weights)
        biases = [each.bias for each in projections if each.bias is not None]
        return _product(weight, torch.cat(biases) if biases else None)
    called = [_called(each, beams) for each in projections]
    return lambda rows: torch.cat([each(rows) for each in called], dim=1)


def _is_many(device: torch.device, batch: int, heads: int, beams: int) -> bool:
    return device.type == "cpu" and batch * heads >= _MANY_HEADS and beams > 1


@lru_cache
def _is_fast_fused(dtype: torch.dtype) -> bool:
    """Whether torch's fused attention of few queries is faster in this type of 16 bits on this CPU: with AMX.

    Processors without AMX have not been measured.
    """
    return dtype == torch.bfloat16 and getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16", False)


def _attended(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    fused: bool,
) -> torch.Tensor:
    """Equation 1 for (batch, heads, beams, dim) queries: (batch * beams, heads * value_head_dim)."""
    if mask is not None:
        mask = additive_mask(mask, query.dtype)
    batch, heads, beams, _ = query.shape
    plain = _is_many(query.device, batch, heads, beams)
    plain = plain or (not _is_fast_fused(query.dtype) and is_better_plain(query, keys))
    if fused and not plain:
        with without_cudnn(query):
            found = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling)
    else:
        scores = torch.matmul(query * scaling, keys.transpose(2, 3))  # (batch, heads, beams, positions)
        if mask is not None:
            scores += mask
        weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
        found = torch.matmul(weights, values)
    return found.transpose(1, 2).reshape(-1, heads * values.shape[3])
