"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), read from top to bottom in the paper's order.

Section 3.5 positions, section 3.2 attention, section 3.3 feed-forward network, section 3.1 layers and stacks, section
3.4 embeddings and output, section 5.4 the label-smoothed loss. Module names are BART's and Marian's, which converters
know. Shapes stand at the end of the line; `heads * head_dim` is d_model in all but row B of the paper's Table 3.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .checks_vanilla_transformer import (
    check_source_mask,
    check_target,
    is_recorded,
    unknown_id,
)
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout_vanilla_transformer import add_dropout, dropout, word_dropout
from .generation_vanilla_transformer import PaperGeneration, default_generation_config
from .linear_vanilla_transformer import is_hooked, is_its_weights, projected
from .loss_vanilla_transformer import cross_entropy, guided_alignment_loss, linear_cross_entropy, twice
from .masks_vanilla_transformer import (
    BROADCASTING,
    additive_mask,
    causal_mask,
    is_better_plain,
    padding_mask,
    without_cudnn,
)
from .weights_vanilla_transformer import SafetensorsOnly


# ---------------------------------------------------------------------------------------------- section 3.5: positions


def sinusoids(positions: torch.Tensor, d_model: int, layout: str = "interleaved") -> torch.Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same) (section 3.5).

    Args:
        positions: Whole numbers from 0, of any shape.
        d_model: Width of the encoding, even.
        layout: "interleaved" as in the paper, or "halves": all sines, then all cosines.

    Returns:
        float32 tensor of shape (*positions.shape, d_model).
    """
    two_i = torch.arange(0, d_model, 2, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(two_i * (-math.log(10000.0) / d_model))  # (..., d_model / 2)
    pairs = torch.stack((angles.sin(), angles.cos()), dim=-1 if layout == "interleaved" else -2)
    return pairs.flatten(-2)  # (..., d_model)


class VanillaTransformerSinusoidalPositions(nn.Module):
    """Sinusoids computed when they are needed: no table, therefore no limit and nothing to store or to cast."""

    endless = True  # so a search may ask for positions that it will perhaps not reach

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.d_model = config.d_model
        self.layout = config.sinusoid_layout

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return sinusoids(positions, self.d_model, self.layout)


class VanillaTransformerLearnedPositions(nn.Embedding):
    """One learned vector per position (Table 3, row E), as many as `config.max_position_embeddings`."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config.max_position_embeddings, config.d_model)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        """(*positions.shape, d_model).

        Raises:
            ValueError: A position is beyond the last; on a GPU it is torch's own error.
        """
        try:
            return super().forward(positions)
        except IndexError as error:
            raise ValueError(
                f"{int(positions.max()) + 1} tokens, but max_position_embeddings is {self.num_embeddings}: learned "
                "positions end there. Shorten the input or train with more."
            ) from error


# ---------------------------------------------------------------------------------------------- section 3.2: attention


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,  # (batch, heads, target, head_dim)
    key: torch.Tensor,  # (batch, heads, source, head_dim)
    value: torch.Tensor,  # (batch, heads, source, value_head_dim)
    attention_mask: torch.Tensor | None,  # broadcastable to (batch, 1, target, source): True, or 0, where allowed
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (equation 1).

    Returns:
        The attended values (batch, target, heads, value_head_dim) and the weights (batch, heads, target, source).
    """
    scores = torch.matmul(query * scaling, key.transpose(2, 3))  # (batch, heads, target, source)
    if attention_mask is None and getattr(module, "is_causal", False) and query.shape[2] > 1:
        attention_mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril()
    if attention_mask is not None:
        scores = scores + additive_mask(attention_mask, scores.dtype)
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    if dropout and module.training:
        weights = F.dropout(weights, dropout)
    return torch.matmul(weights, value).transpose(1, 2), weights


def log_softmax_attention(
    query: torch.Tensor,  # (batch, target, head_dim)
    key: torch.Tensor,  # (batch, source, head_dim)
    attention_mask: torch.Tensor | None,  # broadcastable to (batch, target, source)
    scaling: float,
) -> torch.Tensor:
    """The logarithms of one head's weights in equation 1, (batch, target, source), in float32 and without dropout.

    They are not computed from the weights: those underflow, and then have no gradient or an infinite one.
    """
    scores = torch.matmul(query * scaling, key.transpose(1, 2)).float()
    if attention_mask is not None:
        scores = scores + additive_mask(attention_mask, scores.dtype)
    return scores.log_softmax(dim=-1)


class VanillaTransformerAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 .. head_h) W^O (section 3.2.2), of a layer on itself or on the encoder."""

    def __init__(self, config: VanillaTransformerConfig, num_heads: int, is_causal: bool, layer_idx: int | None = None):
        super().__init__()
        self.config = config
        self.is_causal = is_causal
        self.layer_idx = layer_idx
        self.num_heads = num_heads
        self.head_dim, self.value_head_dim = config.head_dims(num_heads)
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.q_proj = nn.Linear(config.d_model, num_heads * self.head_dim, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.d_model, num_heads * self.head_dim, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.d_model, num_heads * self.value_head_dim, bias=config.attention_bias)
        self.out_proj = nn.Linear(num_heads * self.value_head_dim, config.d_model, bias=config.attention_bias)
        # W^Q, W^K and W^V start like one matrix of three times the width, as in the paper's own code: with the smaller
        # scores attention starts out even, which keeps a post-norm stack stable.
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            projection.init_gain = 2**-0.5

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, target, d_model)
        encoder_hidden_states: torch.Tensor | None = None,  # (batch, source, d_model); None: attend to itself
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        with_log: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor | None, ...]:
        """Returns the output (batch, target, d_model) and, if the implementation has them, the attention weights.

        With `with_log` also `log_softmax_attention` of the first head.
        """
        if encoder_hidden_states is None:
            query, key, value = self._heads(hidden_states, self.q_proj, self.k_proj, self.v_proj)
            if past_key_values is not None:
                cache = getattr(past_key_values, "self_attention_cache", past_key_values)
                key, value = cache.update(key, value, self.layer_idx)
        else:
            (query,) = self._heads(hidden_states, self.q_proj)
            key, value = self._encoder_keys_and_values(encoder_hidden_states, past_key_values)
        implementation = self.config._attn_implementation
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if implementation == "sdpa":
            wants_weights = kwargs.get("output_attentions", self.config.output_attentions)
            if wants_weights or is_better_plain(query, key):
                attend = eager_attention_forward
        p = self.dropout if self.training else 0.0
        with without_cudnn(query):
            attended, weights = attend(
                self, query, key, value, attention_mask, scaling=self.scaling, dropout=p, **kwargs
            )  # (batch, target, heads, value_head_dim)
        (output,) = projected(attended.flatten(2), self.out_proj)
        if not with_log:
            return output, weights
        if implementation not in BROADCASTING:
            raise ValueError(f"alignment needs attn_implementation {' or '.join(BROADCASTING)}, not {implementation}.")
        mask = None if attention_mask is None else attention_mask[:, 0]
        return output, weights, log_softmax_attention(query[:, 0], key[:, 0], mask, self.scaling)

    def _heads(self, states: torch.Tensor, *projections: nn.Module) -> list[torch.Tensor]:
        every = projected(states, *projections)
        return [one.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for one in every]  # (batch, heads, length, dim)

    def keys_and_values(self, states: torch.Tensor) -> list[torch.Tensor]:
        return self._heads(states, self.k_proj, self.v_proj)

    def _encoder_keys_and_values(
        self, encoder_hidden_states: torch.Tensor, past_key_values: Cache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The encoder's keys and values do not change while the target grows: the first step's are kept."""
        if not isinstance(past_key_values, EncoderDecoderCache):
            return self.keys_and_values(encoder_hidden_states)
        cache = past_key_values.cross_attention_cache
        if past_key_values.is_updated.get(self.layer_idx):
            return cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        key, value = cache.update(*self.keys_and_values(encoder_hidden_states), self.layer_idx)
        past_key_values.is_updated[self.layer_idx] = True
        return key, value


# ---------------------------------------------------------------- sections 3.1 and 3.3: sub-layers, layers and stacks


class VanillaTransformerLayer(GradientCheckpointingLayer):
    """The common part of both stacks' layers: the feed-forward network and the residual connection of a sub-layer."""

    def __init__(self, config: VanillaTransformerConfig, ffn_dim: int):
        super().__init__()
        self.norm_first = config.norm_first
        self.dropout = config.dropout
        self.activation_dropout = config.activation_dropout
        self.activation_fn = ACT2FN[config.activation_function]
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""
        (inner,) = projected(hidden_states, self.fc1)
        inner = dropout(self.activation_fn(inner), self.activation_dropout, self.training)  # (batch, length, ffn_dim)
        (output,) = projected(inner, self.fc2)
        return output

    def residual(self, hidden_states: torch.Tensor, sub_layer: Callable, layer_norm: nn.LayerNorm) -> torch.Tensor:
        """LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1, 5.4), or x + Dropout(Sublayer(LayerNorm(x)))."""
        if self.norm_first:
            return add_dropout(hidden_states, sub_layer(layer_norm(hidden_states)), self.dropout, self.training)
        return layer_norm(add_dropout(hidden_states, sub_layer(hidden_states), self.dropout, self.training))


class VanillaTransformerEncoderLayer(VanillaTransformerLayer):
    """Self-attention, then the feed-forward network (section 3.1, "Encoder")."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, config.encoder_ffn_dim)
        self.self_attn = VanillaTransformerAttention(config, config.encoder_attention_heads, is_causal=False)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, source, d_model)
        attention_mask: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        def self_attention(states):
            return self.self_attn(states, attention_mask=attention_mask, **kwargs)[0]

        hidden_states = self.residual(hidden_states, self_attention, self.self_attn_layer_norm)
        return self.residual(hidden_states, self.feed_forward, self.final_layer_norm)


class VanillaTransformerDecoderLayer(VanillaTransformerLayer):
    """Masked self-attention, attention on the encoder, then the feed-forward network (section 3.1, "Decoder")."""

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int):
        super().__init__(config, config.decoder_ffn_dim)
        heads = config.decoder_attention_heads
        self.self_attn = VanillaTransformerAttention(config, heads, is_causal=True, layer_idx=layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn = VanillaTransformerAttention(config, heads, is_causal=False, layer_idx=layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, target, d_model)
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,  # (batch, source, d_model)
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        with_log: bool = False,  # also return `log_softmax_attention` of the first head
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        log_weights = []

        def self_attention(states):
            return self.self_attn(states, attention_mask=attention_mask, past_key_values=past_key_values, **kwargs)[0]

        def encoder_attention(states):
            more = {"past_key_values": past_key_values, "with_log": with_log, **kwargs}
            output, _, *logs = self.encoder_attn(states, encoder_hidden_states, encoder_attention_mask, **more)
            log_weights.extend(logs)
            return output

        hidden_states = self.residual(hidden_states, self_attention, self.self_attn_layer_norm)
        if encoder_hidden_states is not None:
            hidden_states = self.residual(hidden_states, encoder_attention, self.encoder_attn_layer_norm)
        hidden_states = self.residual(hidden_states, self.feed_forward, self.final_layer_norm)
        return (hidden_states, *log_weights) if with_log else hidden_states


class VanillaTransformerPreTrainedModel(SafetensorsOnly, PreTrainedModel):
    """What transformers needs to know about every model of this file: its capabilities and its initial weights."""

    config: VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["VanillaTransformerEncoderLayer", "VanillaTransformerDecoderLayer"]
    _supports_sdpa = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """Xavier-uniform matrices, zero biases, embeddings of variance 1 / d_model (so 1 after sqrt(d_model))."""
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight, gain=getattr(module, "init_gain", 1.0))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5)
        else:
            super()._init_weights(module)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args, **kwargs) -> nn.Embedding:
        """As in transformers; without tying, the decoder's own matrix is resized too."""
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        decoder = getattr(self.base_model, "decoder", None)
        if decoder is not None and not self.config.tie_word_embeddings:
            decoder.resize_token_embeddings(new_num_tokens, *args, **kwargs)
        return embeddings

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        input_ids = torch.tensor([[5, 6, 7, 2], [8, 9, 2, self.config.pad_token_id]], device=self.device)
        mask = input_ids.ne(self.config.pad_token_id).long()
        return {"input_ids": input_ids, "attention_mask": mask, "decoder_input_ids": input_ids}


class VanillaTransformerStack(VanillaTransformerPreTrainedModel):
    """The common part of encoder and decoder: embeddings, positions, dropout on their sum, and the layers."""

    word_dropout: float
    layerdrop: float
    start_tokens: int  # tokens at the start of a row that word dropout leaves alone

    def __init__(self, config: VanillaTransformerConfig, layers: list[VanillaTransformerLayer]):
        super().__init__(config)
        self.dropout = config.dropout
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.position_embedding_type == "learned"
        positions = VanillaTransformerLearnedPositions if learned else VanillaTransformerSinusoidalPositions
        self.embed_positions = positions(config)
        self.layers = nn.ModuleList(layers)
        # Pre-norm layers leave their sum unnormalised, so the stack does it once at the end.
        norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if config.norm_first else nn.Identity()
        self.layer_norm = norm
        self.gradient_checkpointing = False
        self.post_init()

    def token_embeddings(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Rows of the embedding matrix (batch, length, d_model), not yet multiplied by sqrt(d_model)."""
        if (input_ids is None) == (inputs_embeds is None):
            name = "decoder_" if isinstance(self, VanillaTransformerDecoder) else ""
            raise ValueError(f"Give either {name}input_ids or {name}inputs_embeds: one of the two, not both.")
        if inputs_embeds is not None:
            return inputs_embeds
        try:
            return self.embed_tokens(input_ids)
        except IndexError as error:  # torch's own says "index out of range in self"; on a GPU it stays
            raise unknown_id(input_ids, self.config.vocab_size) from error

    def embed(
        self,
        embeddings: torch.Tensor,
        past_length: int | torch.Tensor = 0,
        position_ids: torch.LongTensor | None = None,
        encodings: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Dropout(E sqrt(d_model) + PE) (sections 3.4, 3.5 and 5.4); word dropout may zero whole rows of E.

        Args:
            embeddings: (batch, length, d_model), rows of the embedding matrix.
            past_length: The position of the first of them.
            position_ids: (batch or 1, length or 1) positions, if they are not consecutive.
            encodings: PE, if it is known: of a shape that can be added to the embeddings.
        """
        if encodings is None:
            positions = position_ids
            if positions is None:
                positions = torch.arange(embeddings.shape[1], device=embeddings.device) + past_length
            encodings = self.embed_positions(positions)
        embeddings = word_dropout(embeddings, self.word_dropout, self.training, self.start_tokens)
        hidden_states = embeddings * self.embed_scale + encodings.to(embeddings.dtype)
        return dropout(hidden_states, self.dropout, self.training)

    def layers_of_this_pass(self) -> Sequence[nn.Module]:
        """All layers; in training x <- x in place of x <- Layer(x) with probability `layerdrop` (Fan et al. 2020).

        "Reducing Transformer Depth on Demand with Structured Dropout": each layer is drawn independently.
        """
        if not self.training or self.layerdrop == 0:
            return self.layers
        draws = torch.rand(len(self.layers), device="cpu").tolist()  # so that nothing waits for a GPU
        return [layer for layer, draw in zip(self.layers, draws, strict=True) if draw >= self.layerdrop]


class VanillaTransformerEncoder(VanillaTransformerStack):
    """The encoder: N layers over the embedded source (section 3.1)."""

    _can_record_outputs = {
        "hidden_states": VanillaTransformerEncoderLayer,
        "attentions": VanillaTransformerAttention,
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, [VanillaTransformerEncoderLayer(config) for _ in range(config.encoder_layers)])
        self.word_dropout, self.layerdrop, self.start_tokens = config.source_word_dropout, config.encoder_layerdrop, 0

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encodes a batch of sources.

        Args:
            input_ids: (batch, source) token ids.
            attention_mask: (batch, source), 1 for tokens and 0 for padding; None if nothing is padded.
            inputs_embeds: (batch, source, d_model) instead of `input_ids`: rows as `embed_tokens` gives them.

        Returns:
            `last_hidden_state` of shape (batch, source, d_model).

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, or `attention_mask` has
                another shape. On a CPU, also if it hides every token of every source, or an id is not in the
                vocabulary.
        """
        kwargs.pop("use_cache", None)  # the library fills it in for every stack; an encoder has no use for it
        embeddings = self.token_embeddings(input_ids, inputs_embeds)
        check_source_mask(attention_mask, embeddings)
        mask = padding_mask(self.config, embeddings, attention_mask)
        hidden_states = self.embed(embeddings)
        for layer in self.layers_of_this_pass():
            hidden_states = layer(hidden_states, mask, **kwargs)
        return BaseModelOutput(last_hidden_state=self.layer_norm(hidden_states))


class VanillaTransformerDecoder(VanillaTransformerStack):
    """The decoder: N layers over the target so far and the encoder's output (section 3.1)."""

    _can_record_outputs = {
        "hidden_states": VanillaTransformerDecoderLayer,
        "attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, [VanillaTransformerDecoderLayer(config, i) for i in range(config.decoder_layers)])
        self.word_dropout, self.layerdrop, self.start_tokens = config.target_word_dropout, config.decoder_layerdrop, 1

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | None = None,
        log_attention: list[torch.Tensor] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decodes a batch of targets; each position sees only itself and those before it.

        Args:
            input_ids: (batch, target) token ids, beginning with the decoder's start token or after the cached ones.
            attention_mask: (batch, cached + target), 1 for tokens and 0 for padding; None if nothing is padded.
            encoder_hidden_states: (batch, source, d_model), the encoder's output.
            encoder_attention_mask: (batch, source), 1 for tokens and 0 for padding.
            past_key_values: Keys and values of the positions before `input_ids`.
            inputs_embeds: (batch, target, d_model) instead of `input_ids`.
            use_cache: Whether to return `past_key_values`.
            position_ids: (batch or 1, target or 1) positions of the targets; None: they follow those cached.
            log_attention: A list that gets the last layer's `log_softmax_attention` on the encoder (batch, target,
                source); nothing if that layer is skipped.

        Returns:
            `last_hidden_state` of shape (batch, target, d_model) and `past_key_values`.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, the numbers of targets and
                sources differ, or a mask has another shape. On a CPU, also if `encoder_attention_mask` hides every
                token of every source, or an id is not in the vocabulary.
        """
        embeddings = self.token_embeddings(input_ids, inputs_embeds)
        check_target(attention_mask, embeddings, encoder_hidden_states, past_key_values is not None)
        if encoder_hidden_states is not None:
            check_source_mask(encoder_attention_mask, encoder_hidden_states)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        self_cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        mask = causal_mask(self.config, embeddings, attention_mask, self_cache)
        encoder_mask = padding_mask(self.config, embeddings, encoder_attention_mask, encoder_hidden_states)
        past_length = 0 if self_cache is None else self_cache.get_seq_length()
        hidden_states = self.embed(embeddings, past_length, position_ids)
        # With a cache, which must have keys and values of every layer, no layer is skipped.
        for layer in self.layers if past_key_values is not None else self.layers_of_this_pass():
            with_log = log_attention is not None and layer is self.layers[-1]
            output = layer(
                hidden_states,
                mask,
                encoder_hidden_states,  # by position: gradient checkpointing watches positional arguments only
                encoder_attention_mask=encoder_mask,
                past_key_values=past_key_values,
                with_log=with_log,
                **kwargs,
            )
            hidden_states, *logs = output if with_log else (output,)
            if with_log:
                log_attention.extend(logs)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )


class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
    """Encoder and decoder without the output layer (Figure 1 up to the last "Add & Norm")."""

    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        if config.tie_word_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = VanillaTransformerEncoder(config)
        self.decoder = VanillaTransformerDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.shared if self.config.tie_word_embeddings else self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding):
        """Replaces the one matrix of source and target, or the source's alone if `tie_word_embeddings` is off."""
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.shared = value
            self.decoder.embed_tokens = value

    def shift_right(self, ids: torch.Tensor) -> torch.Tensor:
        """Start token + ids but the last ("outputs shifted right", Figure 1), padding in place of -100.

        Raises:
            ValueError: The configuration has no start token, or no padding token.
        """
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            name = "decoder_start_token_id" if start is None else "pad_token_id"
            raise ValueError(f"The configuration's {name} is None: set it, or give decoder_input_ids.")
        shifted = ids.roll(1, dims=1)  # (batch, target)
        shifted[:, 0] = start
        return shifted.masked_fill(shifted == -100, pad)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        log_attention: list[torch.Tensor] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Encodes the source (unless `encoder_outputs` are given) and decodes the target.

        Args:
            input_ids: (batch, source) source token ids.
            attention_mask: (batch, source), 1 for tokens and 0 for padding.
            decoder_input_ids: (batch, target) target token ids, beginning with the decoder's start token. Without a
                target, the source is decoded, shifted right, as BART does when only its states are wanted.
            decoder_attention_mask: (batch, target), 1 for tokens and 0 for padding.
            encoder_outputs: The encoder's output for this source, if already computed.
            past_key_values: Keys and values of earlier steps.
            inputs_embeds: (batch, source, d_model) instead of `input_ids`.
            decoder_inputs_embeds: (batch, target, d_model) instead of `decoder_input_ids`.
            use_cache: Whether to return `past_key_values`; None: as the configuration says, but not in training.
            decoder_position_ids: (batch or 1, target or 1) positions of the target; None: they follow those cached.
            log_attention: A list that gets the last layer's `log_softmax_attention` on the encoder (batch, target,
                source).

        Returns:
            `last_hidden_state` (batch, target, d_model), `encoder_last_hidden_state` (batch, source, d_model), and
            whatever else was asked for.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **kwargs,
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            if isinstance(encoder_outputs, ModelOutput):  # of another class, with other fields
                names = ("last_hidden_state", "hidden_states", "attentions")
                encoder_outputs = [encoder_outputs.get(name) for name in names]
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        if decoder_input_ids is None and decoder_inputs_embeds is None and input_ids is not None:
            decoder_input_ids = self.shift_right(input_ids)
        if use_cache is None and self.training and past_key_values is None:
            use_cache = False  # the configuration's would keep the decoder from skipping layers
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            position_ids=decoder_position_ids,
            log_attention=log_attention,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


# ------------------------------------------------------------------------------- section 3.4: from states to next words


class VanillaTransformerForConditionalGeneration(VanillaTransformerPreTrainedModel, PaperGeneration, GenerationMixin):
    """The whole Transformer (Figure 1): the model that the paper trains and translates with."""

    _tied_weights_keys = {
        "lm_head.weight": "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        self.generation_config = default_generation_config(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool = True,
        alignment: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Scores every next token of the target; with `labels`, also computes the loss.

        The first eight arguments are those of [`VanillaTransformerModel`].

        Args:
            labels: (batch, target) the target with its `</s>`, -100 where nothing is to be predicted, as at padding: a
                label `<pad>` would be learned, as in any model of transformers. Labels alone are enough: the decoder's
                inputs are then the start token and all labels but the last.
            use_cache: Whether to return `past_key_values`; never with `labels`.
            num_items_in_batch: Number of real target tokens that the sum of losses is divided by: those of the whole
                accumulated batch, which Trainer counts and gives. None: those of `labels`.
            return_logits: False, with `labels`: `logits` is None, and the loss, which is the same, takes less time and
                memory. [`VanillaTransformerTrainer`] trains and validates this way. It has first derivatives only, and
                torch.func has no rules for it.
            alignment: (batch, target, source), with `labels`: how much the first head of the decoder's last layer
                should attend to each source token (guided alignment, see `guided_alignment_loss`): 0 at padding.

        Returns:
            `loss`, a scalar: in training mode label-smoothed by `config.label_smoothing` (section 5.4), in evaluation
            mode the plain negative log-likelihood in nats per token, whose exponential is the perplexity. With
            `alignment`, in either mode, the loss of that is added.
            `logits` (batch, target, vocab_size).

            With `labels`, in training mode and with `config.r_drop_alpha` each pair passes twice: the loss is that of
            R-Drop, see `linear_cross_entropy`, and all else returned has the rows of the first pass and then those of
            the second, (2 batch, ...).

        Raises:
            ValueError: There is no target: neither `labels` nor `decoder_input_ids` nor `decoder_inputs_embeds`; or
                `alignment` is given with an attention function from elsewhere.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        elif decoder_input_ids is None and decoder_inputs_embeds is None:
            # The base model would decode the source, and nobody wants that scored.
            raise ValueError(
                "Give labels or decoder_input_ids. (A Trainer that smooths or computes the loss itself takes labels "
                "away: give its collator the model, DataCollatorForSeq2Seq(tokenizer, model=model).)"
            )
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
            "inputs_embeds": inputs_embeds,
            "decoder_inputs_embeds": decoder_inputs_embeds,
            **kwargs,
        }
        if labels is not None and num_items_in_batch is None:
            num_items_in_batch = (labels != -100).sum()
        if labels is not None and self.training and self.config.r_drop_alpha:
            inputs, labels = twice(inputs, batch=len(labels)), torch.cat((labels, labels))
        log_attention = [] if labels is not None and alignment is not None else None
        outputs = self.model(**inputs, use_cache=use_cache, log_attention=log_attention, return_dict=True)
        loss = logits = None
        without_logits = labels is not None and not return_logits
        if without_logits and not is_recorded():
            loss = self._loss_without_logits(outputs.last_hidden_state, labels)
        else:
            logits = self.lm_head(outputs.last_hidden_state)  # (batch, target, vocab_size)
            loss = None if labels is None else self._loss(logits, labels)
        if log_attention:  # there is none if LayerDrop skipped the last layer
            loss = loss + guided_alignment_loss(*log_attention, alignment)
        return Seq2SeqLMOutput(
            loss=None if loss is None else loss / num_items_in_batch,
            logits=None if without_logits else logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    def _regularisation(self) -> tuple[float, float]:
        """Label smoothing and R-Drop's alpha, which are 0 in evaluation mode."""
        return (self.config.label_smoothing, self.config.r_drop_alpha) if self.training else (0.0, 0.0)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, labels, *self._regularisation())

    def _loss_without_logits(self, hidden_states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The same sum as `_loss`, faster and without the largest tensor of all."""
        padded = hidden_states.device.type != "cpu"  # removing padding would make the host wait for the device
        real = ... if padded else labels != -100  # (batch, target)
        states, labels = hidden_states[real].flatten(0, -2), labels[real].flatten()
        head = self.lm_head
        if not is_its_weights(head) or head.bias is not None:
            return self._loss(head(states), labels)
        return linear_cross_entropy(states, head.weight, labels, *self._regularisation(), padded=padded)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The decoder's inputs (batch, target) in training: [`VanillaTransformerModel.shift_right`] of the labels."""
        return self.model.shift_right(labels)

    def has_plain_decoder(self) -> bool:
        """Whether a search may run the decoder's layers itself: they are of this file's classes, without hooks.

        The search still calls matrices, norms and activations.
        """
        decoder = self.model.decoder
        attentions = [each for layer in decoder.layers for each in (layer.self_attn, layer.encoder_attn)]
        return all(
            type(module) in _PLAIN and not is_hooked(module)
            for module in (self, self.model, decoder, *decoder.layers, *attentions)
        )


_PLAIN = {
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
    VanillaTransformerAttention,
}


__all__ = [
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
]
