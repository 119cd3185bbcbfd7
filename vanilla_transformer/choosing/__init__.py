"""`train auto`: a recipe chosen by the text there is, the time there is, and the speed of the machine.

    pairs -> what is known of the text -> speed of each size of model here -> choices, each with its reason -> YAML

The rule is [`choose`]. It is fixed: nothing is tuned on the user's text, which decides by its size alone. Where its
numbers come from stands in the documentation (Little text), with the runs that they were taken from.
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

AUTO = "auto"  # what `train` calls it
