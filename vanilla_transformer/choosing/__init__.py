"""`train auto`: a recipe chosen by the text, the time available, and the speed of the machine.

    pairs -> facts of the text -> speed of each size of model here -> choices, each with its reason -> YAML

The rule is [`choose`]. It is fixed: nothing is tuned on the user's text. It depends on the size of the text, on whether
its words have apostrophes, on the time, and on the speed. The documentation (Little text) says where the rule's numbers
come from.
"""

from .decoding import choose_decoding
from .recipes import FEWEST_PAIRS, chosen_recipe
from .rule import Choice, TextFacts, choose, facts_of, measure_speeds


__all__ = [
    "AUTO",
    "FEWEST_PAIRS",
    "Choice",
    "TextFacts",
    "choose",
    "choose_decoding",
    "chosen_recipe",
    "facts_of",
    "measure_speeds",
]

AUTO = "auto"  # as in `train auto`
