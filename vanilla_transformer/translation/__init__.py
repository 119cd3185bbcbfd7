"""From sentences to translations and what can be said of them."""

from .lines import as_they_come, in_blocks
from .scoring import PairScore, score_pairs
from .sentences import Hypothesis, translate, translate_lines


__all__ = ["Hypothesis", "PairScore", "as_they_come", "in_blocks", "score_pairs", "translate", "translate_lines"]
