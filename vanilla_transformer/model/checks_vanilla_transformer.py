"""Invalid arguments get one clear error, where reading the values costs nothing.

On a GPU, reading values means waiting for the GPU, and a recorded graph (compiled, exported, traced) cannot branch on
them. There, values are not checked, and an id outside the vocabulary raises torch's own error. Shapes are checked
everywhere, except for the target's in compiled graphs, whose lengths the check would fix.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch.fx.experimental import proxy_tensor
from transformers.utils import GENERATION_CONFIG_NAME


# Our fields of the generation config, and their values when a config lacks them.
OUR_GENERATION_FIELDS = {"length_penalty_type": "length", "max_length_offset": None, "minimum_bayes_risk": False}
# Features of a generation config that no model here supports, and the values that do not ask for them.
UNSUPPORTED = {
    "penalty_alpha": ("contrastive search", (None, 0)),
    "num_beam_groups": ("a beam search in groups", (None, 0, 1)),
    "dola_layers": ("a search that compares layers", (None,)),
    "stop_strings": ("an end at given strings", (None, [])),
    "token_healing": ("a prefix that is cut anew", (None, False)),
    "guidance_scale": ("guidance by a second prompt", (None, 1)),
    "assistant_early_exit": ("drafts by lower layers", (None,)),
}
_WHOLE_NUMBERS = {
    "num_beams": 1, "num_return_sequences": 1, "max_length": 2, "max_new_tokens": 1, "min_length": 0,
    "min_new_tokens": 0, "top_k": 0, "no_repeat_ngram_size": 0,
}  # fmt: skip
_NUMBERS = ("length_penalty", "temperature", "top_p", "repetition_penalty")
_LARGEST_EXPONENT = 50  # a million tokens to this power are still a float
_ENDS = ("eos_token_id", "forced_eos_token_id")  # there may be several
_TOKENS = ("bos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id", *_ENDS)


def check_saved_decoding(folder: str | os.PathLike, vocab_size: int | None = None) -> None:
    """Refuses a model's `generation_config.json`, if there is one, as [`check_decoding`] does.

    Raises:
        ValueError: It is not a JSON mapping, or a field is refused; the message names the file.
    """
    path = os.path.join(folder, GENERATION_CONFIG_NAME)
    if not os.path.isfile(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): save the model again.") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is not a mapping of fields: save the model again.")
    try:
        check_decoding(fields, vocab_size)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_decoding(fields: Mapping, vocab_size: int | None = None) -> None:
    """Refuses fields of a generation config that would fail only during translation, or fetch code.

    Args:
        fields: By name, as in its file or in a recipe.
        vocab_size: Number of token ids, if known.

    Raises:
        ValueError: A field is refused; the message begins with its name.
    """
    for name, (what, neutral) in UNSUPPORTED.items():
        if name in fields and fields[name] not in neutral:
            raise ValueError(f"{name} = {_short(fields[name])} asks for {what}, which is not supported: remove {name}.")
    for name in ("constraints", "force_words_ids"):
        if fields.get(name):
            raise ValueError(f"{name} cannot be saved with a model: give it to generate().")
    for name, least in _WHOLE_NUMBERS.items():
        value = fields.get(name)
        if value is not None and (type(value) is not int or value < least):
            raise ValueError(f"{name} must be a whole number of at least {least}, not {_short(value)}.")
    for name in _NUMBERS:
        value = fields.get(name)
        if value is not None and (type(value) not in (int, float) or not abs(value) <= sys.float_info.max):
            raise ValueError(f"{name} must be a number, not {_short(value)}.")
    for name in ("repetition_penalty", *(["temperature"] if fields.get("do_sample") else [])):
        value = fields.get(name)
        if value not in (None, 1) and not (type(value) is float and value > 0):  # transformers takes no other
            raise ValueError(f"{name} must be above 0, with a decimal point (2.0, not 2), not {_short(value)}.")
    check_length_penalty(fields.get("length_penalty"))
    check_our_fields(**{name: fields[name] for name in OUR_GENERATION_FIELDS if name in fields})
    for name in _TOKENS:
        check_token(name, fields.get(name), vocab_size)


def check_length_penalty(alpha: float | None) -> None:
    """Refuses an exponent that makes the length penalty of a long translation 0 or not finite.

    Raises:
        ValueError: It is too large or too small.
    """
    if alpha is not None and not abs(alpha) <= _LARGEST_EXPONENT:
        span = f"from -{_LARGEST_EXPONENT} to {_LARGEST_EXPONENT}"
        raise ValueError(f"length_penalty must be {span}, not {_short(alpha)}: it is an exponent, usually from 0 to 2.")


def check_our_fields(
    length_penalty_type: str = "length", max_length_offset: int | None = None, minimum_bayes_risk: bool = False
) -> None:
    """Refuses values of the fields that are ours. The message begins with the name."""
    if length_penalty_type not in ("gnmt", "length"):
        raise ValueError(f'length_penalty_type must be "gnmt" or "length", not {_short(length_penalty_type)}.')
    if max_length_offset is not None and (type(max_length_offset) is not int or max_length_offset < 0):
        given = _short(max_length_offset)
        raise ValueError(f"max_length_offset must be None or a number of tokens from 0, not {given}.")
    if type(minimum_bayes_risk) is not bool:
        raise ValueError(f"minimum_bayes_risk must be true or false, not {_short(minimum_bayes_risk)}.")


def check_token(name: str, value, vocab_size: int | None = None) -> None:
    """Refuses anything but a special token's id, a whole number below `vocab_size`; for an end also a list.

    Raises:
        ValueError: It is something else; the message begins with the name.
    """
    ids = value if name in _ENDS and isinstance(value, list) and value else [value]
    for each in ids:
        if each is None and value is None:
            continue
        if type(each) is not int:
            raise ValueError(f"{name} must be a token's id, a whole number, not {_short(value)}.")
        if vocab_size is not None and not 0 <= each < vocab_size:
            raise ValueError(f"{name} must be a token's id, from 0 to {vocab_size - 1}, not {_short(value)}.")


def _short(value) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with too many digits for Python to write; lists nested too deeply
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 100 else f"{text[:100]}…"


def unknown_id(ids: torch.Tensor, vocab_size: int) -> ValueError:
    """The error for ids, of any shape, that include one without a row in the embedding matrix."""
    lowest, highest = map(int, ids.aminmax())
    odd = lowest if lowest < 0 else highest
    return ValueError(f"Token id {odd} is not in the vocabulary, whose ids are 0 to {vocab_size - 1}.")


def check_source_mask(mask: torch.Tensor | None, states: torch.Tensor) -> None:
    """Checks that a mask per token fits the source's states (batch, source, d_model) and does not hide every token.

    Raises:
        ValueError: The mask has another shape, or hides every token of every source.
    """
    if mask is None or mask.dim() == 4:  # already prepared for attention
        return
    if mask.shape != states.shape[:2]:
        shape, expected = tuple(mask.shape), tuple(states.shape[:2])
        raise ValueError(f"The attention_mask has shape {shape}, not the source's (batch, length), {expected}.")
    if mask.device.type == "cpu" and not is_recorded():
        with suppress(RuntimeError):  # torch.func's tensors and fake ones have no values to look at
            if not mask.any():
                raise ValueError("The attention_mask hides every token of every source: there is nothing to attend to.")


def check_target(mask: torch.Tensor | None, embeddings: torch.Tensor, encoder_states, has_cache: bool) -> None:
    """Checks that each target (batch, target, d_model) has its source, and that the mask fits targets and cache.

    Raises:
        ValueError: There are more or fewer targets than sources, or the mask has another shape.
    """
    if torch.compiler.is_compiling():
        return
    batch, length = embeddings.shape[:2]
    if encoder_states is not None and encoder_states.shape[0] != batch:
        raise ValueError(f"There are {batch} targets for {encoder_states.shape[0]} sources: give one for each.")
    if mask is None or mask.dim() == 4:
        return
    fits = mask.dim() == 2 and mask.shape[0] == batch
    if not fits or (mask.shape[1] < length if has_cache else mask.shape[1] != length):
        expected = f"({batch}, {'cached + ' if has_cache else ''}{length})"
        raise ValueError(f"The decoder_attention_mask has shape {tuple(mask.shape)}, not (batch, length), {expected}.")


def is_recorded() -> bool:
    """Whether torch.compile, torch.export, torch.jit.trace or make_fx is recording this call, for other values."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or proxy_tensor.get_proxy_mode() is not None
