"""What several constructions choose from."""

from ..clauses import Draw
from ..conjugation import FUTURE, PAST
from ..declension import Adjective, Noun, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon import rows
from ..lexicon.nouns import UNGRADED
from ..phrases import Phrase
from ..verbs import Verb


TENSES_AND_TIMES = ((FUTURE, lexicon.FUTURE_TIMES), (PAST, lexicon.PAST_TIMES))
PLACEABLE = "key bag book letter newspaper hat knife camera"
ANTECEDENTS = "stranger person"
NO_DEGREE = Phrase("", "")
DEGREES = (NO_DEGREE, NO_DEGREE, *(Phrase(f"{english} ", f"{german} ") for english, german in rows(lexicon.DEGREES)))
UNGRADED_DEGREES = (NO_DEGREE, Phrase("not ", "nicht "))


def graded(draw: Draw, adjective: Adjective) -> Phrase:
    """Draws a degree for an adjective, for example "too hot"."""
    degree = draw(DEGREES if adjective.english not in UNGRADED.split() else UNGRADED_DEGREES)
    return Phrase(degree.english + adjective.english, degree.german + adjective.german)


def noun_of_many(draw: Draw, verb: Verb) -> Noun:
    """Draws an object of a verb of which there is more than one: nobody asks which father, or which of them."""
    noun = draw(verb.nouns)
    return draw(nouns_among(ANTECEDENTS)) if noun.kind == "relative" else noun
