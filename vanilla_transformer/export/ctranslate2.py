"""Our models for CTranslate2 (https://github.com/OpenNMT/CTranslate2), which translates without torch.

CTranslate2 runs Transformers from a specification: a tree of named weights and flags. This file fills it with ours.

CTranslate2's own converter, `ctranslate2.converters.TransformersConverter`, knows our models once this package is
imported (see `_registration.py`). As a command, with the package imported, it is

    python -m vanilla_transformer.export.ctranslate2 --model runs/phrasebook --output_dir for_ctranslate2 \\
        --copy_files generation_config.json tokenizer.json tokenizer_config.json

Without the copied files, only `ctranslate2.Translator` can use the folder.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ..files import written_beside
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, sinusoids
from .saved_decoding import check_supported, end_and_bad_tokens


try:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
except ImportError as error:
    raise ImportError(
        'The export to CTranslate2 needs its package: pip install "vanilla-transformer[ctranslate2]"'
    ) from error


QUANTIZATIONS = (
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
)  # fmt: skip

# How many sinusoids CTranslate2 gets; here they are unlimited. By default it reads this many tokens of a source.
POSITIONS = 1024

_ACTIVATIONS = {
    "relu": Activation.RELU, "gelu": Activation.GELU, "gelu_fast": Activation.GELUTanh,
    "gelu_new": Activation.GELUTanh, "gelu_pytorch_tanh": Activation.GELUTanh, "quick_gelu": Activation.GELUSigmoid,
    "silu": Activation.SWISH, "swish": Activation.SWISH, "tanh": Activation.Tanh,
}  # fmt: skip

# Added to the scores of tokens that must not be generated. Not infinity, which some number formats lack.
_NEVER = -1e4


def to_ctranslate2(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    quantization: str | None = None,
    positions: int = POSITIONS,
    files: Iterable[Path] = (),
) -> None:
    """Writes a folder for `ctranslate2.Translator`, with tokenizer and generation config beside the model.

    [`translate`] takes the folder as `ExportedModel(output)` and handles everything described below.

    Sources are the tokenizer's tokens, their `</s>` included. In float32, greedy search finds the same tokens as ours,
    and beam search the same as ours with `length_penalty_type="length"` and `early_stopping=True`, not the paper's,
    which CTranslate2 does not have. It needs options that are not its defaults: `return_end_token`, because its
    |Y|^alpha counts the end token only then; `min_decoding_length=0`, because it otherwise never ends a translation at
    once; and limits, because it reads only 1,024 tokens of a source (`max_input_length`) and writes 256
    (`max_decoding_length`).

    Args:
        model: The model, in any floating-point type.
        tokenizer: The model's tokenizer.
        output: The folder to make.
        quantization: How weights are stored, one of `QUANTIZATIONS`; None is float32. CTranslate2 computes in the
            same type where the processor can.
        positions: How many sinusoids to write; CTranslate2 refuses longer texts. A learned table is written as it is.
        files: Files to copy into the folder.

    Raises:
        ValueError: There is no such quantization, tokenizer and model have different vocabularies, or CTranslate2
            lacks an option of the model or its generation config; the message names the field.
        FileExistsError: `output` exists.

    Example:
        >>> to_ctranslate2(model, tokenizer, Path("translator"))
        >>> translator = ctranslate2.Translator("translator")
        >>> tokens = tokenizer.convert_ids_to_tokens(tokenizer("The dog is old.").input_ids)
        >>> options = {"beam_size": 4, "length_penalty": 0.6, "min_decoding_length": 0, "return_end_token": True}
        >>> [result] = translator.translate_batch([tokens], **options)
        >>> found = tokenizer.convert_tokens_to_ids(result.hypotheses[0])
        >>> tokenizer.decode(found, skip_special_tokens=True)
        'Der Hund ist alt.'
    """
    if quantization not in (None, *QUANTIZATIONS):
        raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, not {quantization!r}.")
    check_supported(model.generation_config, "CTranslate2", "The model's generation config")
    spec = specification(model, tokenizer, positions)
    spec.validate()
    spec.optimize(quantization)
    with written_beside(Path(output)) as beside:
        spec.save(str(beside))
        tokenizer.save_pretrained(beside)
        model.generation_config.save_pretrained(beside)
        for each in files:
            shutil.copy(each, beside)


def specification(
    model: VanillaTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, positions: int = POSITIONS
) -> TransformerSpec:
    """CTranslate2's specification of a model, filled. Arguments and errors are those of [`to_ctranslate2`]."""
    _check(model.config)
    tokens = _vocabulary(model.config, tokenizer)
    spec = _filled_spec(model, positions)
    for name, value in _special_tokens(model, tokenizer, tokens).items():
        setattr(spec.config, name, value)
    spec.config.layer_norm_epsilon = model.config.layer_norm_eps
    # CTranslate2 does not use this, but its callers do.
    spec.config.add_attribute("positions", len(spec.encoder.position_encodings.encodings))
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    return spec


def check_exportable(config: VanillaTransformerConfig, decoding: GenerationConfig, place: str) -> None:
    """Raises ValueError, naming the field, for a model or a decoding that CTranslate2 cannot run; `place` has it."""
    check_supported(decoding, "CTranslate2", place)
    _check(config)


def _check(config: VanillaTransformerConfig) -> None:
    """Raises ValueError, naming the field, for a model that CTranslate2 cannot run."""
    for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
        head_dim, value_head_dim = config.head_dims(heads)
        if value_head_dim != head_dim:
            raise ValueError(f"CTranslate2 has no value_head_dim ({value_head_dim}) other than head_dim ({head_dim}).")
    if config.activation_function not in _ACTIVATIONS:
        raise ValueError(
            f"CTranslate2 has no activation_function {config.activation_function!r}: it has {', '.join(_ACTIVATIONS)}."
        )


def _vocabulary(config: VanillaTransformerConfig, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The tokens in the order of their ids; spare rows of the embedding matrix get made-up ones."""
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"The model's vocab_size is {config.vocab_size:,}, but the tokenizer has {len(tokenizer):,} tokens: "
            "give the model's own."
        )
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return tokens + [f"<unused {number}>" for number in range(len(tokens), config.vocab_size)]


def _special_tokens(
    model: VanillaTransformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, tokens: list[str]
) -> dict[str, str]:
    """The special tokens in CTranslate2's config.json. (It adds none to sources: the tokenizer does.)"""
    ours = {"bos_token": tokenizer.bos_token, "unk_token": tokenizer.unk_token}
    found = {name: token for name, token in ours.items() if token is not None}
    for name in ("eos_token_id", "decoder_start_token_id"):
        ids = getattr(model.generation_config, name)
        ids = getattr(model.config, name) if ids is None else ids
        ids = ids if isinstance(ids, list) else [ids]
        if len(ids) != 1 or ids[0] is None:
            raise ValueError(f"CTranslate2 needs exactly one {name}, not {ids}.")
        found[name.removesuffix("_id")] = tokens[ids[0]]
    return found


def _filled_spec(model: VanillaTransformerForConditionalGeneration, positions: int) -> TransformerSpec:
    config = model.config

    def stack(kind: type, layers: int, heads: int) -> TransformerEncoderSpec | TransformerDecoderSpec:
        head_dim, _ = config.head_dims(heads)
        head_dim = None if head_dim * heads == config.d_model else head_dim
        activation = _ACTIVATIONS[config.activation_function]
        return kind(layers, heads, pre_norm=config.norm_first, activation=activation, head_dim=head_dim)

    spec = TransformerSpec(
        stack(TransformerEncoderSpec, config.encoder_layers, config.encoder_attention_heads),
        stack(TransformerDecoderSpec, config.decoder_layers, config.decoder_attention_heads),
    )
    encoder, decoder = model.model.encoder, model.model.decoder
    _fill_stack(spec.encoder, encoder, positions)
    spec.encoder.embeddings[0].weight = _array(encoder.embed_tokens.weight)
    _fill_stack(spec.decoder, decoder, positions)
    spec.decoder.embeddings.weight = _array(decoder.embed_tokens.weight)
    _fill_linear(spec.decoder.projection, model.lm_head)
    _, bad = end_and_bad_tokens(model.generation_config)
    if bad:
        bias = spec.decoder.projection.bias if spec.decoder.projection.has_bias() else np.zeros(config.vocab_size, "f")
        bias[bad] += _NEVER
        spec.decoder.projection.bias = bias
    return spec


def _fill_stack(spec: TransformerEncoderSpec | TransformerDecoderSpec, stack, positions: int) -> None:
    """Fills the parts that encoder and decoder share, and their layers."""
    config = stack.config
    spec.scale_embeddings = config.scale_embedding
    if config.position_embedding_type == "learned":
        spec.position_encodings.encodings = _array(stack.embed_positions.weight)
    else:
        table = sinusoids(torch.arange(positions), config.d_model, config.sinusoid_layout)
        spec.position_encodings.encodings = _array(table)
    if config.norm_first:
        _fill_norm(spec.layer_norm, stack.layer_norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        own = layer.self_attn
        _fill_linear(layer_spec.self_attention.linear[0], own.q_proj, own.k_proj, own.v_proj)
        _fill_linear(layer_spec.self_attention.linear[1], own.out_proj)
        _fill_norm(layer_spec.self_attention.layer_norm, layer.self_attn_layer_norm)
        if hasattr(layer, "encoder_attn"):
            cross = layer.encoder_attn
            _fill_linear(layer_spec.attention.linear[0], cross.q_proj)
            _fill_linear(layer_spec.attention.linear[1], cross.k_proj, cross.v_proj)
            _fill_linear(layer_spec.attention.linear[2], cross.out_proj)
            _fill_norm(layer_spec.attention.layer_norm, layer.encoder_attn_layer_norm)
        _fill_linear(layer_spec.ffn.linear_0, layer.fc1)
        _fill_linear(layer_spec.ffn.linear_1, layer.fc2)
        _fill_norm(layer_spec.ffn.layer_norm, layer.final_layer_norm)


def _fill_linear(spec: LinearSpec, *projections: nn.Linear) -> None:
    """Several projections of the same states become one, as in CTranslate2."""
    spec.weight = np.concatenate([_array(each.weight) for each in projections])
    if projections[0].bias is not None:
        spec.bias = np.concatenate([_array(each.bias) for each in projections])


def _fill_norm(spec: LayerNormSpec, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """A copy in float32: CTranslate2 quantises in place, and that must not reach the model."""
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()


if __name__ == "__main__":
    from ctranslate2.converters.transformers import main

    main()
