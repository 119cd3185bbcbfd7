"""Models, tokenizers and ensembles: from a run, from any folder, from the Hub."""

import logging
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, initialization

from ..data.context import context_settings
from ..data.known_words import KNOWN_WORDS, load_word_counts
from ..data.tokenizer import load_tokenizer
from ..hub import fetched_model, is_of_the_hub
from ..model.checks_vanilla_transformer import check_saved_decoding, check_token
from ..model.confidence_vanilla_transformer import Calibration, load_calibration
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.ensemble_vanilla_transformer import EnsembleForConditionalGeneration
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..translation.by_ctranslate2 import ExportedModel
from ..translation.int8 import quantize_int8
from ..translation.precision import in_precision
from .folder import RunFolder, typed_to_resume


logger = logging.getLogger(__name__)


DEVICES = ("auto", "cpu", "cuda", "mps")


def chosen_device(name: str | torch.device = "auto") -> torch.device:
    """The device with this name; for "auto" the best there is: a GPU of NVIDIA or AMD, one of Apple, the processor.

    Args:
        name: "auto", "cpu", "cuda" or "mps"; a device is returned as it is.

    Raises:
        ValueError: There is no such device, or not on this machine.
    """
    if isinstance(name, torch.device):
        return name
    if name not in DEVICES:
        raise ValueError(f"There is no device {name!r}: choose {', '.join(DEVICES[:-1])} or {DEVICES[-1]}.")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    found = [each for each, is_there in there.items() if is_there]
    if name not in ("auto", *found):
        raise ValueError(f"torch finds no device {name} on this machine: choose {' or '.join(['auto', *found])}.")
    return torch.device(found[0] if name == "auto" else name)


def find_model(path: str | Path) -> Path:
    """The folder to load a model from: `path` itself, whether of a run or of any model.

    A run of version 0.1.0 has no model of its own: its averaged model is taken, else the best.

    Args:
        path: A folder; or USER/NAME, or USER/NAME@REVISION, of a model of the Hub, where there is no folder USER. The
            files needed are fetched, unless they are in the cache already; code never is.

    Raises:
        FileNotFoundError: There is no model at `path`.
        ConnectionError: The Hub cannot be reached.
        PermissionError: The Hub does not know the token.
    """
    run = RunFolder(path)
    for folder in (run.path, run.averaged, run.best):
        if (folder / "config.json").is_file():
            return folder
    if is_of_the_hub(path):
        return fetched_model(str(path), ("*.json", "*.safetensors", "*.spm", "recipe.yaml", KNOWN_WORDS))
    if run.checkpoints.is_dir() and run.recipe.is_file():
        raise FileNotFoundError(
            f"The run in {path} is not finished and has no model yet, only checkpoints: give one of them, or continue "
            f"it: {shlex.join(['vanilla-transformer', 'train', '--resume', typed_to_resume(path)])}"
        )
    raise FileNotFoundError(f"There is no model in {path}: give a run folder, a checkpoint or a saved model.")


def load_weights(kind: type, path: str | Path, **options):
    """`kind.from_pretrained(path)`; ValueError if weights are damaged or missing, which transformers would make up."""
    with initialization.no_init_weights():  # all of them are read, or there is an error
        try:
            model, report = kind.from_pretrained(path, **options, output_loading_info=True)
        except SafetensorError as error:
            raise ValueError(f"The weights in {path} are damaged ({error}): restore or save them again.") from error
        except RuntimeError as error:  # its message only points to a report in the log
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise ValueError(
                f"The weights in {path} have other shapes than its config.json says: restore one of them."
            ) from error
    if missing := sorted(report["missing_keys"]):
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        raise ValueError(f"The weights in {path} are not complete: {missing[0]}{more} missing.")
    return model


def load_model(
    path: str | Path, device: str | torch.device = "auto"
) -> tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]:
    """Loads the model that `find_model` finds, onto the device that `chosen_device` chooses, and its tokenizer.

    The model is in float32, in whatever precision it was saved.

    Raises:
        FileNotFoundError: There is no model at `path`.
        ValueError: There is no tokenizer beside it, some of its weights are missing, its configurations ask for
            something that does not exist, it is for CTranslate2, or there is no such device.
    """
    place = chosen_device(device)
    found = find_model(path)
    if ExportedModel.is_in(found):
        raise ValueError(
            f"The model in {found} was exported: CTranslate2 can run it (translate --backend ctranslate2)."
        )
    config = VanillaTransformerConfig.from_pretrained(found)
    check_token("decoder_start_token_id", config.decoder_start_token_id, config.vocab_size)
    check_saved_decoding(found, config.vocab_size)
    model = load_weights(VanillaTransformerForConditionalGeneration, found)
    return model.to(place, torch.float32), load_its_tokenizer(found)


def load_its_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer beside a model: ours, which is checked, or Marian's. Raises ValueError if there is none."""
    if (folder / "source.spm").is_file():
        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except TypeError as error:  # a special token that is not text
            raise ValueError(f"The tokenizer in {folder} cannot be read ({error}): convert the model again.") from error
    return load_tokenizer(folder)


def load_ensemble(
    paths: Sequence[str | Path], device: str | torch.device = "auto"
) -> tuple[VanillaTransformerForConditionalGeneration | EnsembleForConditionalGeneration, PreTrainedTokenizerBase]:
    """Loads a model as `load_model` does, or several as an ensemble; ValueError if vocabularies differ."""
    models, tokenizers = zip(*(load_model(path, device) for path in paths), strict=True)
    for path, tokenizer in zip(paths, tokenizers, strict=True):
        if tokenizer.get_vocab() != tokenizers[0].get_vocab():
            raise ValueError(f"{path} has another vocabulary than {paths[0]}: an ensemble has one.")
        own, first = (context_settings(each).sentences for each in (tokenizer, tokenizers[0]))
        if own != first:
            raise ValueError(
                f"{path} reads {own} sentences before a source, and {paths[0]} {first}: an ensemble reads one text."
            )
    return models[0] if len(models) == 1 else EnsembleForConditionalGeneration(list(models)), tokenizers[0]


def load_engine(
    models: Sequence[str | Path],
    backend: str = "torch",
    device: str = "auto",
    *,
    int8: bool = False,
    precision: str = "float32",
):
    """A model for `translate_lines` to translate with as fast as it can, and its tokenizer.

    Args:
        models: For torch as for `load_ensemble`; for ctranslate2 one folder that `to_ctranslate2` has written.
        backend: torch or ctranslate2.
        device: As for `chosen_device`.
        int8: For torch on a CPU: round the weights to 8 bits.
        precision: For torch without `int8`: float32, bfloat16 or auto, see `in_precision`.
    """
    if backend == "ctranslate2":
        return ExportedModel(models[0], device), load_its_tokenizer(Path(models[0]))
    model, tokenizer = load_ensemble(models, "cpu" if int8 and device == "auto" else device)
    if int8:
        quantize_int8(model)
        return model, tokenizer
    return in_precision(model, precision), tokenizer


def word_counts_of(paths: Sequence[str | Path]) -> dict[str, int] | None:
    """How often each word occurs in the training texts of several models: the highest of their counts.

    None if a model came without a list, or with a damaged one. Damage only causes a warning: translation still works.
    """
    try:
        lists = [load_word_counts(find_model(path)) for path in paths]
    except ValueError as error:
        logger.warning("%s Unknown words will not be reported.", error)
        return None
    return None if None in lists else dict(reduce(or_, map(Counter, lists)))


def calibration_of(paths: Sequence[str | Path]) -> Calibration:
    """The calibration of a model.

    Raises:
        FileNotFoundError: The model has no calibration; the message says how to make one.
        ValueError: The calibration is damaged or for other weights, or there are several models (an ensemble).
    """
    if len(paths) > 1:
        raise ValueError("A calibration is of one model: an ensemble has no confidence.")
    return load_calibration(find_model(paths[0]))
