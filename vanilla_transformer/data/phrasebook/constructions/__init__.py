"""The constructions: short functions that draw words and put them in the order of each language.

A construction leaves the first letter small and writes no full stop at its end; only a question brings its mark.
"""

from . import combinations, figures, questions, statements


# How often each construction comes up, relative to the others.
WEIGHTS = statements.WEIGHTS | questions.WEIGHTS | combinations.WEIGHTS | figures.WEIGHTS
CONSTRUCTIONS = tuple(construction for construction, weight in WEIGHTS.items() for _ in range(weight))
