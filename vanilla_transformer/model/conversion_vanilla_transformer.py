"""Converts Marian (OPUS-MT) models to ours and back: the same function in another form.

Marian is the paper's Transformer with three options: biases in attention and output, all sines before all cosines in
the positions, and usually another activation. Its modules have the same names as ours.
"""

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .generation_vanilla_transformer import wanted_max_length
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .weights_vanilla_transformer import SafetensorsOnly


# Fields that mean the same on both sides.
_SHARED_FIELDS = (
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "max_position_embeddings",
    "scale_embedding",
    "bos_token_id",
    "pad_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)
# Tensors that only a Marian model has: tables of sinusoids, which we compute, and a buffer for the bias.
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_BIAS = "final_logits_bias"


class SafeMarianModel(SafetensorsOnly, MarianMTModel):
    """A Marian model whose weights are read from safetensors alone."""


def from_marian(marian: MarianMTModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a Marian model to one of ours, with the same weights, logits and decoding.

    Args:
        marian: The model, in any floating-point type.

    Raises:
        ValueError: If source and target have vocabularies of different sizes.
    """
    theirs = marian.config
    if theirs.decoder_vocab_size not in (None, theirs.vocab_size):
        raise ValueError(
            f"This Marian model has {theirs.vocab_size} source and {theirs.decoder_vocab_size} target pieces; a model "
            "of ours has one size for both."
        )
    tied = bool(theirs.tie_word_embeddings and theirs.share_encoder_decoder_embeddings)
    config = VanillaTransformerConfig(
        **{name: getattr(theirs, name) for name in _SHARED_FIELDS},
        tie_word_embeddings=tied,
        attention_bias=True,
        output_bias=True,
        sinusoid_layout="halves",
    )
    weights = {name: weight for name, weight in marian.state_dict().items() if name not in _POSITIONS}
    weights["lm_head.bias"] = weights.pop(_BIAS)[0]
    if not tied:
        weights.pop("model.shared.weight", None)
    return _filled(VanillaTransformerForConditionalGeneration, config, weights, marian)


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Converts our model to a Marian one: the same weights and logits, and as much of its decoding as Marian has.

    Marian's search has no length penalty of GNMT, no limit that depends on the source and no minimum Bayes risk. Biases
    that the model lacks become zeros. Converted back, the result is the same function again.

    Raises:
        ValueError: If the model has an option that Marian lacks; the message names it.
    """
    ours = model.config
    needed = {"norm_first": False, "position_embedding_type": "sinusoidal", "sinusoid_layout": "halves"}
    needed |= {"layer_norm_eps": 1e-5}
    for name, value in needed.items():
        if getattr(ours, name) != value:
            raise ValueError(f"Marian has no {name} = {getattr(ours, name)!r}: only models with {value!r} convert.")
    for heads in (ours.encoder_attention_heads, ours.decoder_attention_heads):
        for name, width in zip(("head_dim", "value_head_dim"), ours.head_dims(heads), strict=True):
            if width * heads != ours.d_model:
                raise ValueError(
                    f"Marian has no {name} = {width} with {heads} heads: only models with d_model / heads convert."
                )
    config = MarianConfig(
        **{name: getattr(ours, name) for name in _SHARED_FIELDS},
        decoder_vocab_size=ours.vocab_size,
        tie_word_embeddings=ours.tie_word_embeddings,
        share_encoder_decoder_embeddings=ours.tie_word_embeddings,
        forced_eos_token_id=model.generation_config.forced_eos_token_id,
    )
    weights = dict(model.state_dict())
    bias = weights.pop("lm_head.bias", None)
    weights[_BIAS] = torch.zeros(1, ours.vocab_size) if bias is None else bias[None]
    if not ours.attention_bias:
        for name in [name for name in weights if name.endswith("_proj.weight")]:
            weights[name.replace(".weight", ".bias")] = torch.zeros(weights[name].shape[0])
    found = _filled(MarianMTModel, config, weights, model)
    decoding = found.generation_config
    by_source = getattr(decoding, "max_length_offset", None) is not None
    if by_source and decoding.max_new_tokens is None and wanted_max_length(decoding) is None:
        decoding.max_length = config.max_position_embeddings  # transformers would end translations after 20 tokens
    return found


def _filled(kind: type, config, weights: dict[str, torch.Tensor], source):
    """A model of that kind with these weights, and with the decoding, type and mode of the model they come from."""
    model = kind(config).to(source.dtype)
    expected = {name for name in model.state_dict() if name not in _POSITIONS}
    if expected != weights.keys():
        odd = sorted(expected ^ weights.keys())[0]
        raise ValueError(f"The weights do not fit: {odd} is on one side only.")
    model.load_state_dict(weights, strict=False)
    model.generation_config = GenerationConfig.from_dict(source.generation_config.to_dict())
    return model.train(source.training)


__all__ = ["SafeMarianModel", "from_marian", "to_marian"]
