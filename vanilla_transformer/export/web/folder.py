"""Puts together all that a browser needs to translate: a page, onnxruntime-web, and the model as ONNX."""

import gzip
import json
import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ...data.languages import target_languages
from ...files import write_json, written_beside
from ...model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..onnx import to_onnx
from .runtime import runtime_files


# The steps that the page can do: those of `learn_tokenizer`, and no others.
_NORMALIZERS = (["NFC", "Prepend"], ["Lowercase", "NFC", "Prepend"])
_PRE_TOKENIZERS = ["Split", "ByteLevel"]
_MODELS = ("BPE", "WordPiece")

# For the Hub, which takes a folder with these lines for a Space.
_README = "---\ntitle: {title}\nsdk: static\n---\n\nMade by `vanilla-transformer export --to web`. {how}\n"
_HOW = "Any static server shows it, for example `python -m http.server`: open the address it prints."


def to_web(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    quantization: str | None = None,
    runtime: Path | None = None,
    languages: tuple[str, str] | None = None,
    examples: Sequence[str] = (),
) -> None:
    """Writes a folder of static files: a page that translates in the browser and shows what every head looks at.

    Any static server shows it. The page asks no other machine for anything; its Content-Security-Policy forbids it.
    Its searches are greedy and beam search by the model's generation config; greedy search finds the same tokens as
    `generate(num_beams=1)`. In the folder, `model` is written by [`to_onnx`], with attention weights.

    Args:
        model: The model; it is left as it is.
        tokenizer: The model's tokenizer, made by [`learn_tokenizer`].
        output: The folder to make.
        quantization: How matrices are stored: float32 or int8; None is float32.
        runtime: The package of onnxruntime-web, packed or unpacked; None: npm fetches it.
        languages: Codes of the languages of source and target, say `("en", "de")`, for the page's headings.
        examples: Sentences to try.

    Raises:
        ValueError: There is no such quantization; the tokenizer is of another kind, or has more tokens than the model.
        FileExistsError: `output` exists.
        OSError: onnxruntime-web is missing.
    """
    if several := target_languages(tokenizer):
        raise ValueError(
            f"The page translates into one language, and this model into {', '.join(several)}: export it to onnx or "
            "ctranslate2."
        )
    _check_tokenizer(tokenizer)
    with written_beside(Path(output)) as beside:
        runtime_folder = beside / "onnxruntime"
        runtime_folder.mkdir()
        for name, content in runtime_files(runtime).items():
            if name.endswith(".wasm"):  # a quarter of the size, whether the server compresses or not
                name, content = f"{name}.gz", gzip.compress(content, mtime=0)
            (runtime_folder / name).write_bytes(content)
        to_onnx(model, tokenizer, beside / "model", quantization=quantization, attentions=True)
        with as_file(files(__package__) / "page") as page:
            for file in page.iterdir():  # copytree would copy the permissions of an installed package, too
                shutil.copyfile(file, beside / file.name)
        source, target = languages or (None, None)
        settings = {"source_language": source, "target_language": target, "examples": list(examples)}
        write_json(beside / "page.json", settings)
        title = f"Translation from {source} to {target}" if languages else "Translation"
        (beside / "README.md").write_text(_README.format(title=title, how=_HOW), encoding="utf-8")


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError for a tokenizer whose steps the page cannot do."""
    if tokenizer.is_fast:
        saved = json.loads(tokenizer.backend_tokenizer.to_str())
        normalizers, pre_tokenizers = (
            [step["type"] for step in (saved[part] or {}).get(steps, [])]
            for part, steps in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"))
        )
        if words := [each["content"] for each in saved["added_tokens"] if not each["special"]]:
            raise ValueError(
                f"The page cannot read words that were added to the vocabulary ({', '.join(words)}): export it to onnx "
                "or ctranslate2."
            )
        if saved["model"]["type"] in _MODELS and normalizers in _NORMALIZERS and pre_tokenizers == _PRE_TOKENIZERS:
            return
    raise ValueError(
        f"The page has no tokenizer of this kind ({type(tokenizer).__name__}): it has the byte-level BPE and WordPiece "
        "that learn_tokenizer learns."
    )
