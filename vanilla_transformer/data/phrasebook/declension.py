"""Nouns, adjectives and determiners, and how German declines them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from .lexicon import nouns as lexicon
from .lexicon import rows


CASES = {"nom": 0, "acc": 1, "dat": 2, "gen": 3}
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = CASES.values()

# Rows are the genders, and the plural, which has none; columns are the definite article, the endings of "dies-" and
# "mein-", those of an adjective after them, and those of an adjective that has to show the case itself.
DECLENSION = """
    masculine  der den dem des  er en em es  e en en en   er en em en
    feminine   die die der der  e e er er    e e en en    e e er er
    neuter     das das dem des  es es em es  e e en en    es es em en
    plural     die die den der  e e en er    en en en en  e e en er
"""
ARTICLES, DETERMINER_ENDINGS, WEAK_ENDINGS, STRONG_ENDINGS = (
    {gender: cells[column].split() for gender, *cells in rows(DECLENSION)} for column in range(4)
)
# The forms in which "ein", "kein" and "mein" show no ending.
BARE_FORMS = {("masculine", NOMINATIVE), ("neuter", NOMINATIVE), ("neuter", ACCUSATIVE)}
GENDERS = {"der": "masculine", "die": "feminine", "das": "neuter"}


class Adjective(NamedTuple):
    """An adjective: "expensive", "teuer", and "teur", the stem that takes the endings."""

    english: str
    german: str
    stem: str


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun with the adjectives that go with it; a plural is None where nobody uses it."""

    english: str
    english_plural: str | None
    german: tuple[str, ...]
    german_plural: tuple[str, ...] | None
    gender: str
    kind: str
    adjectives: tuple[Adjective, ...]


class Determiner(NamedTuple):
    """A determiner.

    Its style says how it is declined: "der", "dieser", "ein", or not at all ("Annas", or none). What follows the noun
    is the owner: "the teacher's car" is "das Auto des Lehrers".
    """

    english: str
    german: str
    style: str
    english_plural: str = ""
    owner: str = ""


PRONOUN_ROWS = rows(lexicon.PRONOUNS)
POSSESSIVES = tuple(Determiner(row[2], row[6], "ein") for row in PRONOUN_ROWS)
THE = Determiner("the", "d", "der")
THIS = Determiner("this", "dies", "dieser", english_plural="these")
WHICH = Determiner("which", "welch", "dieser")
A = Determiner("a", "ein", "ein")
NO = Determiner("no", "kein", "ein")
BARE = Determiner("", "", "none")


def selects(selection: str, noun: str, kind: str) -> bool:
    """Tells whether a list of nouns, kinds and groups of kinds includes a noun."""
    names = {name for entry in selection.split() for name in lexicon.GROUPS.get(entry, entry).split()}
    return noun in names or kind in names


def german_singular(nominative: str, oblique: str, gender: str) -> tuple[str, ...]:
    """Returns a noun in the four cases; the genitive of a monosyllable is "Mannes", that of others "Lehrers"."""
    if oblique or gender == "feminine":  # the n-declension has one form for the other cases
        return nominative, *[oblique or nominative] * 3
    vowels = [letter in "aeiouyäöü" for letter in nominative.lower()]
    syllables = sum(vowel and not before for before, vowel in zip([False, *vowels], vowels, strict=False))
    return nominative, nominative, nominative, nominative + ("es" if syllables == 1 else "s")


def german_plural(nominative: str) -> tuple[str, ...]:
    """Returns a plural in the four cases: the dative adds -n, except to "Frauen" and "Autos"."""
    return nominative, nominative, nominative + ("" if nominative.endswith(("n", "s")) else "n"), nominative


@cache
def nouns() -> tuple[Noun, ...]:
    """Returns the nouns of the lexicon."""
    adjectives = []
    for english, german, selection in rows(lexicon.ADJECTIVES):
        predicative, _, stem = german.partition("/")
        adjectives.append((Adjective(english, predicative, stem or predicative), selection))
    collected = []
    for kind, table in lexicon.NOUNS.items():
        for english, plural, german, plural_in_german in rows(table):
            article, _, forms = german.partition(" ")
            nominative, _, oblique = forms.partition("/")
            gender, countable = GENDERS[article], plural != "-"
            declined = german_singular(nominative, oblique, gender)
            declined_plural = german_plural(plural_in_german) if countable else None
            fitting = tuple(adjective for adjective, selection in adjectives if selects(selection, english, kind))
            collected.append(
                Noun(english, plural if countable else None, declined, declined_plural, gender, kind, fitting)
            )
    return tuple(collected)


@cache
def nouns_among(selection: str) -> tuple[Noun, ...]:
    """Returns the nouns that a list of nouns, kinds and groups of kinds names."""
    return tuple(noun for noun in nouns() if selects(selection, noun.english, noun.kind))


def indefinite_article(word: str) -> str:
    """Returns "a" or "an" by the sound that follows: "an old dog", "an hour", "a university"."""
    return "an" if word.startswith(("a", "e", "i", "o", "u", "hour")) and not word.startswith("univ") else "a"


def has_no_ending(determiner: Determiner, gender: str, case: int) -> bool:
    """Tells whether a determiner leaves it to the adjective to show gender and case."""
    return determiner.style == "none" or (determiner.style == "ein" and (gender, case) in BARE_FORMS)


def decline_determiner(determiner: Determiner, gender: str, case: int) -> str:
    """Returns the form of a determiner, for example "dem", "diesem" or "einem"."""
    if determiner.style == "der":
        return ARTICLES[gender][case]
    return determiner.german + ("" if has_no_ending(determiner, gender, case) else DETERMINER_ENDINGS[gender][case])


def noun_phrase(
    noun: Noun, determiner: Determiner, adjective: Adjective | None, plural: bool, case: int
) -> tuple[str, str]:
    """Returns a noun phrase in English and in German, for example ("an old dog", "einem alten Hund")."""
    english, declined = (noun.english_plural, noun.german_plural) if plural else (noun.english, noun.german)
    if english is None or declined is None:
        raise ValueError(f"{noun.english} has no plural")
    gender = "plural" if plural else noun.gender
    german = declined[case]
    if adjective:
        endings = STRONG_ENDINGS if has_no_ending(determiner, gender, case) else WEAK_ENDINGS
        english, german = f"{adjective.english} {english}", f"{adjective.stem}{endings[gender][case]} {german}"
    word = (plural and determiner.english_plural) or determiner.english
    if determiner is A:
        word = indefinite_article(english)
    article = decline_determiner(determiner, gender, case)
    return f"{word} {english}".lstrip(), f"{article} {german}{determiner.owner}".lstrip()
