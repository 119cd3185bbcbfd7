"""Phrases in both languages, gathered in pools to draw from.

Pools hold pools: one draws twice, first what kind of phrase, then the phrase, so that long phrases do not crowd out
short ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeAlias

from .declension import PRONOUN_ROWS, Adjective
from .lexicon import expressions, rows, verbs
from .lexicon import nouns as lexicon


FIRST, SECOND, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(5)


class Phrase(NamedTuple):
    """Words that stay together, in both languages.

    A subject has the person that its verb takes, a noun its gender or "plural", and what a verb takes has a negation,
    with the "nicht" or "kein" inside.
    """

    english: str
    german: str
    person: int = THIRD
    negated: str = ""
    gender: str = ""

    def followed_by(self, second: Phrase | Adjective) -> Phrase:
        """Puts two phrases one after the other in both languages."""
        return Phrase(f"{self.english} {second.english}", f"{self.german} {second.german}", self.person)

    def with_adverbial(self, adverbial: Phrase) -> Phrase:
        """Adds a time or a place, which German puts before the complement: "gestern ein Buch"."""
        return Phrase(f"{self.english} {adverbial.english}", f"{adverbial.german} {self.german}")


Pools: TypeAlias = tuple[tuple[Any, ...], ...]

PRONOUN_PERSONS = (FIRST, SECOND, THIRD, THIRD, FIRST_PLURAL, THIRD_PLURAL)
PRONOUNS = tuple(Phrase(row[0], row[3], person) for row, person in zip(PRONOUN_ROWS, PRONOUN_PERSONS, strict=True))
PRONOUN_OF = {pronoun.english: pronoun for pronoun in PRONOUNS}
PRONOUNS_OF_THINGS = {
    "masculine": Phrase("it", "er"),
    "feminine": Phrase("it", "sie"),
    "neuter": Phrase("it", "es"),
    "plural": PRONOUN_OF["they"],
}
NAMES = tuple(Phrase(name, name) for name, _ in rows(lexicon.NAMES))
# Subjects with the pronouns that refer to them.
COREFERENTS = (
    *((Phrase(name, name), PRONOUN_OF[pronoun]) for name, pronoun in rows(lexicon.NAMES)),
    *((pronoun, pronoun) for pronoun in PRONOUNS),
)


@cache
def phrases(table: str) -> tuple[Phrase, ...]:
    """Returns the phrases of a table with two columns."""
    return tuple(Phrase(english, german) for english, german in rows(table))


def in_case(governed: str, accusative: str, dative: str) -> str:
    """Returns the form that is governed by a verb, for example "auf ihn" for "auf acc"."""
    *preposition, case = governed.split()
    return " ".join([*preposition, accusative if case == "acc" else dative])


@cache
def acquaintances() -> Pools:
    """Returns pronouns and names: subjects of what one does to people, so that no teacher visits the teacher."""
    return PRONOUNS, PRONOUNS, NAMES


@cache
def object_pronouns(governed: str) -> Pools:
    """Returns the personal pronouns as objects, for each person of the subject: nobody acts on "I" or "we" alone."""
    pronouns = []
    for row, person in zip(PRONOUN_ROWS, PRONOUN_PERSONS, strict=True):
        german = in_case(governed, row[4], row[5])
        negated = f"nicht {german}" if " " in german else f"{german} nicht"
        pronouns.append(Phrase(row[1], german, person, negated))
    overlaps = ({FIRST, FIRST_PLURAL}, {SECOND})
    return tuple(
        tuple(pronoun for pronoun in pronouns if not any({subject, pronoun.person} <= both for both in overlaps))
        for subject in range(5)
    )


@cache
def adverbials(name: str) -> tuple[Phrase, ...]:
    """Returns the places, the goals, the cities to go to, or one manner."""
    places, cities = rows(expressions.PLACES), rows(expressions.CITIES)
    if name == "place":
        found = [(place, german) for place, _, german, _ in places]
        found += [(f"in {city}", f"in {german}") for city, german in cities]
    elif name == "goal":
        found = [(goal, german) for _, goal, _, german in places]
    elif name == "city":
        found = [(f"to {city}", f"nach {german}") for city, german in cities]
    else:
        found = [(name, german) for english, german in rows(verbs.MANNERS) if english == name]
    return tuple(Phrase(english, german, negated=f"nicht {german}") for english, german in found)
