"""Limits what a model's folder can load: weights from files of tensors, attention from torch.

A pickle can run any code on the machine that opens it, and so can an attention kernel that is fetched from the Hub.

`_load_pretrained_model` is a private hook of transformers, checked on 5.17 and 5.23.
"""

import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file


# Attention of torch itself. transformers fetches any other from the Hub, or takes it from an installed package.
_ATTENTION_OF_TORCH = (None, "eager", "sdpa", "flex_attention")
_FILE_OF_TENSORS = re.compile(r"[^/\\:\0]+\.safetensors")
# Options that say where on the Hub, or in which cache, a file is.
_PLACE = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")


class SafetensorsOnly:
    """Makes `from_pretrained` of a model read safetensors alone.

    Attributes:
        loaded_from: The options of `from_pretrained` that say where its files are, but for the token, which is secret.
    """

    loaded_from: Mapping = MappingProxyType({})

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers, but weights that exist as a pickle only (`pytorch_model.bin`) are refused.

        Raises:
            ValueError: `use_safetensors=False`, or the folder leads to something other than a file of tensors beside
                it.
            OSError: There are no weights in safetensors; and whatever transformers raises.
        """
        if kwargs.get("use_safetensors") is False:
            raise ValueError("use_safetensors=False is refused: weights are read from safetensors, never a pickle.")
        check_weights(pretrained_model_name_or_path, kwargs)
        try:
            found = super().from_pretrained(pretrained_model_name_or_path, *args, **{**kwargs, "use_safetensors": True})
        except OSError as error:
            if "safetensors" not in str(error):
                raise
            raise OSError(
                f"{pretrained_model_name_or_path} has no weights in safetensors. If it has a pickle "
                "(pytorch_model.bin), that is not read: it could run any code. Whoever made it can save it again with "
                "save_pretrained; on the Hub, huggingface.co/spaces/safetensors/convert opens a pull request with "
                f"safetensors, whose revision is refs/pr/NUMBER. ({error})"
            ) from error
        model = found[0] if isinstance(found, tuple) else found  # with `output_loading_info`
        model.loaded_from = {name: value for name, value in _place(kwargs).items() if name != "token"}
        return found

    @classmethod
    def _load_pretrained_model(cls, model, state_dict, checkpoint_files, *args, **kwargs):
        """All weights enter a model here, an adapter's too."""
        for file in checkpoint_files or ():
            _check_name(os.path.basename(file), os.path.dirname(file))
        return super()._load_pretrained_model(model, state_dict, checkpoint_files, *args, **kwargs)


def check_configuration(fields: Mapping, asked: Mapping) -> None:
    """Refuses a `config.json` that would fetch code, or read weights from elsewhere.

    Args:
        fields: The content of the file.
        asked: The user's own options. They may ask for more, and override the file.

    Raises:
        ValueError: It would do so; the message names the field.
    """
    if fields.get("attribute_map"):
        raise ValueError("config.json has an attribute_map, which could hide other fields: remove it from the file.")
    for name in ("attn_implementation", "_attn_implementation"):
        value = fields.get(name)
        if value not in _ATTENTION_OF_TORCH and asked.get("attn_implementation") is None:
            raise ValueError(
                f"config.json asks for {name} = {str(value)[:100]!r}, which is not torch's and may be fetched code: "
                'remove it from the file, or choose yourself with attn_implementation="..." when you load the model.'
            )
    if (file := fields.get("transformers_weights")) is not None:
        _check_name(file, "config.json")


def check_weights(path, options: Mapping) -> None:
    """Refuses a file other than safetensors, and an index that is damaged or leads to such a file.

    Args:
        path: The argument of `from_pretrained`: a folder, a file, or a repository of the Hub.
        options: The other arguments, which say where on the Hub to look.

    Raises:
        ValueError: It is such a file, or such an index.
    """
    if path is None or options.get("gguf_file") is not None:
        return
    subfolder, variant = options.get("subfolder") or "", options.get("variant")
    if os.path.isfile(os.path.join(subfolder, path)):
        _check_name(os.path.basename(path), os.path.dirname(path))
        return
    place = _place(options)
    names = [_of_variant(name, variant) for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)]
    for name in names:  # if one file has all weights, an index beside it is not read
        file = cached_file(path, name, **place, _raise_exceptions_for_missing_entries=False)
        if file is not None:
            break
    if file is not None and name == names[1]:
        _check_index(file)


def _place(options: Mapping) -> dict:
    return {name: options[name] for name in _PLACE if options.get(name) is not None}


def _check_index(file: str) -> None:
    try:
        with open(file, encoding="utf-8") as opened:
            index = json.load(opened)
        shards = set(index["weight_map"].values())
        index["metadata"].keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file} is not an index of weights ({type(error).__name__}): save the model again."
        ) from error
    for shard in sorted(shards, key=str):
        _check_name(shard, file)


def _check_name(name, where) -> None:
    if not isinstance(name, str) or not _FILE_OF_TENSORS.fullmatch(name):
        raise ValueError(
            f"{where} leads to the weights {str(name)[:100]!r}: only a file NAME.safetensors beside it is read, never "
            "a pickle, which could run any code. Whoever made it can save it again with save_pretrained."
        )


def _of_variant(name: str, variant: str | None) -> str:
    """`model.fp16.safetensors` for `model.safetensors` and "fp16", as transformers names it."""
    stem, _, ending = name.rpartition(".")
    return name if variant is None else f"{stem}.{variant}.{ending}"


__all__ = ["SafetensorsOnly", "check_configuration", "check_weights"]
