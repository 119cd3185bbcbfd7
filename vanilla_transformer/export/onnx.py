"""Our models as ONNX, which onnxruntime and many other engines run without torch.

There are two graphs. The encoder's ends with the keys and values that the decoder's layers attend to, the same in every
step. The decoder's adds any number of tokens, given the keys and values of those before.
"""

import copy
import logging
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from ..files import written_beside
from ..model.generation_vanilla_transformer import wanted_max_length
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .saved_decoding import check_supported


try:
    import onnx
    import onnxscript  # noqa: F401  torch.onnx.export needs it, and notices too late
except ImportError as error:
    raise ImportError('The export to ONNX needs its packages: pip install "vanilla-transformer[onnx]"') from error


# The version of ONNX's operators that torch.onnx is written for; it would have to convert to others.
OPSET = 18

QUANTIZATIONS = ("float32", "int8")

# Added to the scores of positions hidden from attention. (With infinity, a row with nothing else would be 0 / 0.)
_HIDDEN = torch.finfo(torch.float32).min


def to_onnx(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    quantization: str | None = None,
    attentions: bool = False,
    files: Iterable[Path] = (),
) -> None:
    """Writes a folder with `encoder.onnx`, `decoder.onnx`, and the model's configurations and tokenizer beside them.

    Weights are float32, ids and masks int64; all lengths are free. For each layer L of the decoder, from 0:

    - `encoder.onnx` takes `input_ids` and `attention_mask` (batch, source) and returns the layer's `encoder.L.key` and
      `encoder.L.value` (batch, heads, source, head_dim).
    - `decoder.onnx` takes `input_ids` (batch, target), the same `attention_mask`, those keys and values, and
      `past.L.key` and `past.L.value` (batch, heads, past, head_dim), at first with a past of length 0. It returns the
      `logits` (batch, target, vocab_size) of the token after each one, and `present.L.key` and `present.L.value`
      (batch, heads, past + target, head_dim), the next step's past.

    With `attentions`, the graphs also return the attention weights of each head, in layers counted from 0:
    `encoder_attentions.L` (batch, heads, source, source), `decoder_attentions.L` (batch, heads, target, past + target)
    and `cross_attentions.L` (batch, heads, target, source).

    [`OnnxTranslator`] translates with such a folder: greedy search finds the same tokens as ours.

    Args:
        model: The model, in any floating-point type; it is left as it is.
        tokenizer: The model's tokenizer.
        output: The folder to make.
        quantization: How matrices are stored, one of `QUANTIZATIONS`; None is float32. With int8 the files are a
            quarter of the size. Engines compute in float32 all the same.
        attentions: Whether the graphs return attention weights.
        files: Files to copy into the folder.

    Raises:
        ValueError: There is no such quantization, the tokenizer has more tokens than the model, or the generation
            config has an option that neither [`OnnxTranslator`] nor the page of [`to_web`] supports.
        FileExistsError: `output` exists.

    Example:
        >>> to_onnx(model, tokenizer, Path("translator"))
        >>> OnnxTranslator("translator").translate(["The dog is old."])
        ['Der Hund ist alt.']
    """
    if quantization not in (None, *QUANTIZATIONS):
        raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, not {quantization!r}.")
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"The model's vocab_size is {model.config.vocab_size:,}, but the tokenizer has {len(tokenizer):,} tokens: "
            "give the model's own."
        )
    check_supported(model.generation_config, "ONNX", "The model's generation config")
    own = copy.deepcopy(model).to("cpu", torch.float32).eval()
    own.set_attn_implementation("eager")  # equation 1 as written, with products and a softmax
    own.generation_config.max_length = wanted_max_length(own.generation_config)
    ids = torch.full((2, 3), own.config.decoder_start_token_id or 0)
    source = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    encoder, decoder = EncoderGraph(own, attentions).eval(), DecoderGraph(own, attentions).eval()
    with written_beside(Path(output)) as beside, torch.no_grad():
        _export(encoder, source, beside / "encoder.onnx")
        encoded, *_ = encoder(**source)
        past = [tensor[:, :, :2] for tensor in encoded]  # any numbers will do
        _export(decoder, {**source, "encoder": encoded, "past": past}, beside / "decoder.onnx")
        if quantization == "int8":
            for name in ("encoder.onnx", "decoder.onnx"):
                _store_in_int8(beside / name)
        own.config.to_json_file(beside / "config.json", use_diff=False)  # without the model's code
        own.generation_config.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        for each in files:
            shutil.copy(each, beside)


class EncoderGraph(nn.Module):
    """From sources to the keys and values that the decoder's layers attend to."""

    lengths = {"input_ids": "source", "attention_mask": "source"}

    def __init__(self, model: VanillaTransformerForConditionalGeneration, attentions: bool = False):
        super().__init__()
        self.encoder = model.model.encoder
        self.encoder_attentions = nn.ModuleList(layer.encoder_attn for layer in model.model.decoder.layers)
        self.watched = {"encoder_attentions": [layer.self_attn for layer in self.encoder.layers]} if attentions else {}
        self.names = {"encoder": _keys_and_values("encoder", len(self.encoder_attentions))}
        self.outputs = [*self.names["encoder"], *_numbered(self.watched)]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[list[torch.Tensor], ...]:
        states, mask = self.encoder.embed(self.encoder.embed_tokens(input_ids)), _source_mask(attention_mask)
        with _weights_of(self.watched) as weights:
            for layer in self.encoder.layers:
                states = layer(states, mask)
        states = self.encoder.layer_norm(states)
        return [tensor for each in self.encoder_attentions for tensor in each.keys_and_values(states)], *weights


class DecoderGraph(nn.Module):
    """From tokens, and the keys and values of earlier ones, to the scores of the tokens that follow."""

    lengths = {"input_ids": "target", "attention_mask": "source", "encoder": "source", "past": "past"}

    def __init__(self, model: VanillaTransformerForConditionalGeneration, attentions: bool = False):
        super().__init__()
        self.decoder, self.lm_head = model.model.decoder, model.lm_head
        layers = self.decoder.layers
        self.watched = (
            {
                "decoder_attentions": [layer.self_attn for layer in layers],
                "cross_attentions": [layer.encoder_attn for layer in layers],
            }
            if attentions
            else {}
        )
        self.names = {name: _keys_and_values(name, len(layers)) for name in ("encoder", "past", "present")}
        self.outputs = ["logits", *self.names["present"], *_numbered(self.watched)]

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        encoder: list[torch.Tensor],
        past: list[torch.Tensor],
    ) -> tuple[torch.Tensor | list[torch.Tensor], ...]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for number in range(len(self.decoder.layers)):
            key_and_value = slice(2 * number, 2 * number + 2)
            cache.cross_attention_cache.update(*encoder[key_and_value], number)
            cache.self_attention_cache.update(*past[key_and_value], number)
            cache.is_updated[number] = True
        before = past[0].shape[2]
        states = self.decoder.embed(self.decoder.embed_tokens(input_ids), before)
        places = torch.arange(before + input_ids.shape[1])
        future = torch.where(places > places[before:, None], _HIDDEN, 0.0)  # (target, past + target)
        mask = _source_mask(attention_mask)
        with _weights_of(self.watched) as weights:
            for layer in self.decoder.layers:
                states = layer(states, future[None, None], states, mask, past_key_values=cache)
        present = [tensor for layer in cache.self_attention_cache.layers for tensor in (layer.keys, layer.values)]
        return self.lm_head(self.decoder.layer_norm(states)), present, *weights


@contextmanager
def _weights_of(watched: dict[str, list[nn.Module]]) -> Iterator[list[list[torch.Tensor]]]:
    """For each kind of attention, the weights that its layers compute in the block, (batch, heads, queries, keys)."""
    found, hooks = [[] for _ in watched], []
    for layers, weights in zip(watched.values(), found, strict=True):
        for layer in layers:
            hooks.append(layer.register_forward_hook(lambda _, __, output, to=weights: to.append(output[1])))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _source_mask(mask: torch.Tensor) -> torch.Tensor:
    """From 1 for tokens and 0 for padding (batch, source) to a term added to scores (batch, 1, 1, source)."""
    return torch.where(mask == 0, _HIDDEN, 0.0)[:, None, None]


def _export(graph: EncoderGraph | DecoderGraph, inputs: dict, path: Path) -> None:
    """Writes a graph whose inputs have the names, types and free sizes of these."""
    free = {name: torch.export.Dim(name) for name in ("batch", *graph.lengths.values())}
    shapes = {}
    for name, value in inputs.items():
        length = free[graph.lengths[name]]
        if isinstance(value, list):  # of (batch, heads, length, head_dim)
            shapes[name] = [{0: free["batch"], 2: length}] * len(value)
        else:
            shapes[name] = {0: free["batch"], 1: length}
    with _silence():
        torch.onnx.export(
            graph,
            kwargs=inputs,
            f=path,
            input_names=[each for name in inputs for each in graph.names.get(name, [name])],
            output_names=graph.outputs,
            dynamic_shapes=shapes,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,  # only weights over 2 GB, which no such file may hold, lie beside it
            verbose=False,
        )


def _keys_and_values(name: str, layers: int) -> list[str]:
    """The names of the keys and values of a decoder's layers."""
    return [f"{name}.{number}.{part}" for number in range(layers) for part in ("key", "value")]


def _numbered(watched: dict[str, list[nn.Module]]) -> list[str]:
    return [f"{name}.{number}" for name, layers in watched.items() for number in range(len(layers))]


def _store_in_int8(path: Path) -> None:
    """Rewrites a graph with int8 matrices W8 and float32 scales s in place of each matrix W = s * W8, rounded.

    There is one scale per row, or per column, whichever comes nearer to the matrix. The products that make W again
    depend on no input: onnxruntime computes them once, when it loads the graph.
    """
    model = onnx.load(path)
    graph, first = model.graph, []
    for matrix in [each for each in graph.initializer if len(each.dims) == 2]:
        values = onnx.numpy_helper.to_array(matrix)
        if values.dtype != np.float32:
            continue
        rounded, scales = min((_rounded(values, axis) for axis in (0, 1)), key=lambda each: _error(values, *each))
        name = matrix.name
        graph.initializer.remove(matrix)
        graph.initializer.append(onnx.numpy_helper.from_array(rounded, f"{name}.int8"))
        graph.initializer.append(onnx.numpy_helper.from_array(scales, f"{name}.scales"))
        first += [
            onnx.helper.make_node("Cast", [f"{name}.int8"], [f"{name}.float"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Mul", [f"{name}.float", f"{name}.scales"], [name]),
        ]
    nodes = [*first, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, path)


def _rounded(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 numbers from -127 to 127, and their scales, one for all values along an axis."""
    scales = np.maximum(np.abs(values).max(axis=axis, keepdims=True) / 127, np.finfo(np.float32).tiny)
    return np.round(values / scales).astype(np.int8), scales.astype(np.float32)


def _error(values: np.ndarray, rounded: np.ndarray, scales: np.ndarray) -> float:
    return float(np.square(values - rounded * scales).sum())


@contextmanager
def _silence() -> Iterator[None]:
    """Mutes torch.onnx, which reports on its own internals and on a missing torchvision."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
