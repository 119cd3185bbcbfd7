"""The original Transformer of "Attention Is All You Need" as a plugin of Hugging Face transformers 5.

Importing this package makes the Auto classes of transformers know the `vanilla_transformer`
architecture. Its own names are loaded when they are first used.
"""

from importlib import import_module

from ._registration import register_with_transformers


__version__ = "0.1.0"

_HOMES = {
    "model.configuration_vanilla_transformer": ("VanillaTransformerConfig",),
    "model.confidence_vanilla_transformer": ("Calibration", "load_calibration"),
    "model.classification_vanilla_transformer": ("VanillaTransformerForSequenceClassification",),
    "model.conversion_vanilla_transformer": ("from_marian", "to_marian"),
    "model.modeling_vanilla_transformer": ("VanillaTransformerForConditionalGeneration", "VanillaTransformerModel"),
    "model.ensemble_vanilla_transformer": ("EnsembleForConditionalGeneration",),
    "model.generation_vanilla_transformer": ("paper_generation_config",),
    "model.pipeline_vanilla_transformer": ("TranslationPipeline",),
    "data.batching": ("TokenBatchSampler", "TranslationCollator"),
    "data.corpora": ("load_corpus",),
    "data.phrasebook": ("phrasebook",),
    "data.tokenizer": ("TokenizerSettings", "learn_tokenizer", "load_tokenizer"),
    "evaluation.scores": ("Comparison", "Score", "compare_systems", "score_segments", "score_translations"),
    "export.ctranslate2": ("to_ctranslate2",),
    "export.onnx": ("to_onnx",),
    "export.web": ("to_web",),
    "translation": (
        "Casing",
        "ExportedModel",
        "Glossary",
        "Hypothesis",
        "OnnxTranslator",
        "PairScore",
        "Punctuation",
        "Spelling",
        "in_blocks",
        "load_glossary",
        "score_pairs",
        "translate",
        "translate_lines",
    ),
    "translation.int8": ("quantize_int8",),
    "training.arguments": ("VanillaTransformerTrainingArguments", "create_noam_scheduler", "noam"),
    "training.averaging": ("average_checkpoints",),
    "run.recipe": ("Recipe", "load_recipe"),
    "training.trainer": ("VanillaTransformerTrainer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
# `from vanilla_transformer import *` leaves out names that need an extra: it would fail where that is not installed.
__all__ = [*sorted(name for name, home in _HOME_OF.items() if not home.startswith("export.")), "__version__"]


def __getattr__(name: str):
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


register_with_transformers()
