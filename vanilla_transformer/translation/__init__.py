"""From lines to translations.

[`translate`] and [`translate_lines`] cut lines into sentences and these into batches, settle in a [`Decoding`] how to
translate, and hand both to an engine. An engine is a class made of a model, a tokenizer and a `Decoding`, with
`at_work(workers)` and `translate(batches)`; a new one is a file like `by_onnx.py` and a line in `sentences.py`.
"""

from .by_ctranslate2 import ExportedModel
from .by_onnx import OnnxTranslator
from .casing import Casing
from .decoding import Decoding, Hypothesis
from .glossary import FoundTerm, Glossary, Term, UsedTerm, load_glossary
from .lines import as_they_come, in_blocks
from .punctuation import Punctuation
from .sentences import PairScore, score_pairs, translate, translate_lines
from .spelling import Spelling


__all__ = [
    "Casing",
    "Decoding",
    "ExportedModel",
    "FoundTerm",
    "Glossary",
    "Hypothesis",
    "OnnxTranslator",
    "PairScore",
    "Punctuation",
    "Spelling",
    "Term",
    "UsedTerm",
    "as_they_come",
    "in_blocks",
    "load_glossary",
    "score_pairs",
    "translate",
    "translate_lines",
]
