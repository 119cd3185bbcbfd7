"""From a dirty corpus to a clean one: rules, repeats, scores, and an account of every pair that is left out.

A rule of a pair is a function and a line in the tables of `rules.py`; `clean` applies them all, to a corpus of any
size.
"""

from .cleaning import clean
from .report import CleaningReport
from .rules import REASONS, CleaningSettings, check_pair
from .scoring import Scoring, dual_cross_entropy_scores


__all__ = [
    "REASONS",
    "CleaningReport",
    "CleaningSettings",
    "Scoring",
    "check_pair",
    "clean",
    "dual_cross_entropy_scores",
]
