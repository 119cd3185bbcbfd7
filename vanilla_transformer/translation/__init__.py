"""From sentences to translations and what can be said of them."""

from .by_ctranslate2 import ExportedModel
from .hypotheses import Hypothesis
from .lines import as_they_come, in_blocks
from .scoring import PairScore, score_pairs
from .sentences import translate, translate_lines


__all__ = [
    "ExportedModel",
    "Hypothesis",
    "PairScore",
    "as_they_come",
    "in_blocks",
    "score_pairs",
    "translate",
    "translate_lines",
]
