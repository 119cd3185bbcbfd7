"""The commands that make one thing from another: a vocabulary, an average, a converted or an exported model."""

import logging
import sys
from pathlib import Path

from .process import UsageError


logger = logging.getLogger(__name__)


def tokenizer(files: list[Path], *, output: Path, kind: str = "bpe", vocab_size: int = 37_000, lowercase: bool = False):
    """Learns a vocabulary from text files and saves it for `AutoTokenizer.from_pretrained`.

    Args:
        files: Text files, plain or .gz: source and target together for a shared vocabulary.
        output: Folder to save it in; it must not exist yet.
        kind: bpe or wordpiece.
        vocab_size: Number of pieces, special tokens and single bytes included; a million at most.
        lowercase: Lower-case all text.
    """
    from ..data.tokenizer import TokenizerSettings, learn_tokenizer
    from ..files import text_lines, written_beside

    settings = TokenizerSettings(kind, vocab_size, lowercase)
    with written_beside(output) as beside:
        learn_tokenizer(text_lines(*files), settings, show_progress=sys.stderr.isatty()).save_pretrained(beside)
    logger.info("Saved the vocabulary in %s.", output)


def average(checkpoints: list[Path], *, output: Path, last: int | None = None) -> None:
    """Averages the weights of checkpoints into one model.

    Args:
        checkpoints: Checkpoint folders, or one run folder, whose last checkpoints are taken.
        output: Folder of the averaged model; it must not exist yet.
        last: How many of a run folder's last checkpoints to take; 5 if it is not given.
    """
    from ..run.folder import RunFolder
    from ..training.averaging import average_checkpoints

    if len(checkpoints) == 1 and (found := RunFolder(checkpoints[0]).good_checkpoints()):
        last = 5 if last is None else last
        if not 1 <= last <= len(found):
            raise UsageError(f"{checkpoints[0]} has {len(found)} checkpoints: choose --last from 1 to {len(found)}.")
        checkpoints = found[-last:]
    elif last is not None:
        raise UsageError("--last is for one run folder with checkpoints: leave it out.")
    average_checkpoints(checkpoints, output)
    logger.info("Averaged %d checkpoints into %s.", len(checkpoints), output)


def convert(model: str, *, output: Path) -> None:
    """Turns a Marian (OPUS-MT) translation model into one of ours, with its tokenizer and its decoding.

    Args:
        model: A folder, or a repository on the Hub, say Helsinki-NLP/opus-mt-en-de. Its weights must be in safetensors.
            If it only has a pickle, the Hub's converter opens a pull request: USER/NAME@refs/pr/NUMBER.
        output: Folder to save the model in; it must not exist yet.
    """
    from transformers import AutoTokenizer
    from transformers.configuration_utils import PreTrainedConfig

    from ..files import written_beside
    from ..model.checks_vanilla_transformer import check_saved_decoding
    from ..model.conversion_vanilla_transformer import SafeMarianModel, from_marian
    from ..model.weights_vanilla_transformer import check_configuration
    from ..run.loading import find_model, load_weights

    folder = find_model(model)
    fields, _ = PreTrainedConfig.get_config_dict(folder)
    check_configuration(fields, {})
    check_saved_decoding(folder, fields.get("vocab_size"))
    if (kind := fields.get("model_type")) != "marian":
        raise ValueError(f"{model} is not a Marian model but one of the kind {kind}: only Marian's can be converted.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, split_special_tokens=True)
    except ImportError as error:
        raise ValueError(
            'Marian\'s tokenizers need sentencepiece: pip install "vanilla-transformer[marian]"'
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{model} has no whole Marian tokenizer, of source.spm, target.spm and vocab.json ({error}): restore it."
        ) from error
    with written_beside(output) as beside:
        marian = load_weights(SafeMarianModel, folder, attn_implementation="sdpa")
        from_marian(marian).save_pretrained(beside)
        tokenizer.save_pretrained(beside)
    logger.info("Saved the model and its tokenizer in %s.", output)


def export(
    model: str, *, output: Path, to: str = "ctranslate2", quantization: str | None = None, runtime: Path | None = None
) -> None:
    """Exports a model and its tokenizer, to translate without torch: for CTranslate2, ONNX or a browser.

    `translate --backend ctranslate2` takes an export for CTranslate2. An export for a browser is a page for any static
    server.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub.
        output: Folder to save it in; it must not exist yet.
        to: The engine: ctranslate2, onnx or web.
        quantization: How weights are stored, by default float32. ONNX and the page have float32 and int8; CTranslate2
            has float32, float16, bfloat16, int16, int8, int8_float32, int8_float16 and int8_bfloat16.
        runtime: With --to web, the npm package of onnxruntime-web, packed or unpacked. By default npm fetches it.
    """
    if to not in ("ctranslate2", "onnx", "web"):
        raise UsageError(f"There is no engine {to!r} to export to: choose ctranslate2, onnx or web.")
    if runtime is not None and to != "web":
        raise UsageError("--runtime is for --to web.")
    if runtime is not None and not runtime.exists():
        raise UsageError(f"There is no --runtime {runtime}: give the npm package onnxruntime-web, or leave it out.")
    from ..data.known_words import KNOWN_WORDS
    from ..run.loading import find_model, load_model

    if to == "ctranslate2":
        from ..export.ctranslate2 import QUANTIZATIONS, to_ctranslate2
    else:
        from ..export.onnx import QUANTIZATIONS, to_onnx
        from ..export.web import to_web
    if quantization not in (None, *QUANTIZATIONS):
        raise UsageError(f"There is no quantization {quantization!r} for {to}: choose {', '.join(QUANTIZATIONS)}.")
    if to == "web":
        introduction = _introduction(find_model(model) / "recipe.yaml")
        to_web(*load_model(model), output, quantization=quantization, runtime=runtime, **introduction)
        logger.info("Saved the page in %s. Show it with: python -m http.server --directory %s", output, output)
        return
    words = find_model(model) / KNOWN_WORDS
    export_to = to_onnx if to == "onnx" else to_ctranslate2
    export_to(*load_model(model), output, quantization=quantization, files=[words] if words.is_file() else [])
    logger.info("Saved the model and its tokenizer in %s.", output)


def _introduction(recipe: Path) -> dict:
    """The languages and examples that a model's recipe names; empty if no recipe can be read."""
    from ..run.recipe import load_recipe

    try:
        found = load_recipe(recipe)
    except (OSError, ValueError):
        return {}
    sources, targets = found.data.source_languages, found.data.target_languages
    one_way = (*sources, *targets) if len(sources) == len(targets) == 1 else None
    return {"languages": one_way, "examples": found.evaluation.examples}
