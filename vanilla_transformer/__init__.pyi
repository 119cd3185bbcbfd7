"""What type checkers see of `__init__.py`, which loads these names when they are first used."""

from .data.batching import TokenBatchSampler as TokenBatchSampler
from .data.batching import TranslationCollator as TranslationCollator
from .data.corpora import load_corpus as load_corpus
from .data.phrasebook import phrasebook as phrasebook
from .data.tokenizer import TokenizerSettings as TokenizerSettings
from .data.tokenizer import learn_tokenizer as learn_tokenizer
from .data.tokenizer import load_tokenizer as load_tokenizer
from .evaluation.scores import Comparison as Comparison
from .evaluation.scores import Score as Score
from .evaluation.scores import compare_systems as compare_systems
from .evaluation.scores import score_segments as score_segments
from .evaluation.scores import score_translations as score_translations
from .export.ctranslate2 import to_ctranslate2 as to_ctranslate2
from .export.onnx import to_onnx as to_onnx
from .export.web import to_web as to_web
from .model.classification_vanilla_transformer import (
    VanillaTransformerForSequenceClassification as VanillaTransformerForSequenceClassification,
)
from .model.confidence_vanilla_transformer import Calibration as Calibration
from .model.confidence_vanilla_transformer import load_calibration as load_calibration
from .model.configuration_vanilla_transformer import VanillaTransformerConfig as VanillaTransformerConfig
from .model.conversion_vanilla_transformer import from_marian as from_marian
from .model.conversion_vanilla_transformer import to_marian as to_marian
from .model.ensemble_vanilla_transformer import EnsembleForConditionalGeneration as EnsembleForConditionalGeneration
from .model.generation_vanilla_transformer import paper_generation_config as paper_generation_config
from .model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration as VanillaTransformerForConditionalGeneration,
)
from .model.modeling_vanilla_transformer import VanillaTransformerModel as VanillaTransformerModel
from .model.pipeline_vanilla_transformer import TranslationPipeline as TranslationPipeline
from .run.recipe import Recipe as Recipe
from .run.recipe import load_recipe as load_recipe
from .training.arguments import VanillaTransformerTrainingArguments as VanillaTransformerTrainingArguments
from .training.arguments import create_noam_scheduler as create_noam_scheduler
from .training.arguments import noam as noam
from .training.averaging import average_checkpoints as average_checkpoints
from .training.trainer import VanillaTransformerTrainer as VanillaTransformerTrainer
from .translation import Casing as Casing
from .translation import ExportedModel as ExportedModel
from .translation import Glossary as Glossary
from .translation import Hypothesis as Hypothesis
from .translation import OnnxTranslator as OnnxTranslator
from .translation import PairScore as PairScore
from .translation import Punctuation as Punctuation
from .translation import Spelling as Spelling
from .translation import in_blocks as in_blocks
from .translation import load_glossary as load_glossary
from .translation import score_pairs as score_pairs
from .translation import translate as translate
from .translation import translate_lines as translate_lines
from .translation.int8 import quantize_int8 as quantize_int8

__version__: str
