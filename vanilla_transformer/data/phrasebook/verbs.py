"""Verbs with everything that is drawn for their clauses."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from .conjugation import BE, HAVE, QUESTION, TIMELESS, Paradigm, conjugate, paradigm, tenses_of
from .declension import Noun, nouns_among
from .lexicon import rows
from .lexicon import verbs as lexicon
from .nominals import definites, indefinites, people
from .phrases import Pools, acquaintances, adverbials


class Verb(NamedTuple):
    """A verb with what it governs and what it is said of; the tenses are indexed by the constants of conjugation."""

    english: str
    zu_infinitive: str
    tenses: tuple[tuple[Paradigm, ...], ...]
    governed: str
    nouns: tuple[Noun, ...]
    subjects: Pools
    complements: Pools
    habits: Pools


def conjugated_verb(english: str, german: str, style: str) -> tuple[str, str, tuple[tuple[Paradigm, ...], ...]]:
    """Returns "pick up", "abzuholen" and the tenses for "pick picked picked up" and "ab|holen holt hat abgeholt"."""
    base, _, _, *particles = english.split()
    prefix, _, stem = german.split()[0].rpartition("|")
    zu_infinitive = f"{prefix}zu{stem}" if prefix else f"zu {stem}"
    return " ".join([base, *particles]), zu_infinitive, tenses_of(english, german, style)


@cache
def verbs_with_objects(table: str, style: str, known: bool = False) -> tuple[Verb, ...]:
    """Returns the verbs of a table; if ``known``, they are only said of what is known: "likes the book"."""
    verbs = []
    for english, german, governed, selection in rows(table):
        objects = nouns_among(selection)
        definite = tuple(pool for noun in objects for pool in definites(noun, governed))
        indefinite = tuple(pool for noun in objects for pool in indefinites(noun, governed))
        generic = tuple(pool for noun in objects for pool in indefinites(noun, governed, True))
        has_people = any(noun.kind in ("person", "relative") for noun in objects)
        subjects, habits = (acquaintances(), definite) if has_people else (people(), generic)
        complements = definite if known else definite + indefinite
        verbs.append(Verb(*conjugated_verb(english, german, style), governed, objects, subjects, complements, habits))
    return tuple(verbs)


@cache
def intransitives() -> tuple[Verb, ...]:
    """Returns the verbs without an object."""
    verbs = []
    for english, german, names in rows(lexicon.INTRANSITIVES):
        pools = tuple(adverbials(name) for name in names.split(", "))
        verbs.append(Verb(*conjugated_verb(english, german, "action"), "", (), people(), pools, pools))
    return tuple(verbs)


@cache
def actions() -> tuple[Verb, ...]:
    """Returns the verbs for what people do."""
    return verbs_with_objects(lexicon.ACTIONS, "action")


@cache
def all_verbs() -> tuple[Verb, ...]:
    """Returns the verbs that make a clause with one complement."""
    return (
        *actions(),
        *intransitives(),
        *verbs_with_objects(lexicon.THOUGHTS, "thought"),
        *verbs_with_objects(lexicon.ACHIEVEMENTS, "achievement"),
        *verbs_with_objects(lexicon.STATES, "state"),
        *verbs_with_objects(lexicon.ATTITUDES, "state", known=True),
    )


@cache
def verbs_in(tense: int) -> tuple[Verb, ...]:
    """Returns all verbs that have a tense."""
    return tuple(verb for verb in all_verbs() if verb.tenses[tense])


@cache
def verbs_named(names: str) -> tuple[Verb, ...]:
    """Returns the verbs of a list of English verbs."""
    return tuple(verb for verb in all_verbs() if verb.english in names.split(", "))


@cache
def verbs_about(kind_of_object: str) -> tuple[Verb, ...]:
    """Returns the verbs whose objects are "people", or only "things"."""
    subjects = acquaintances() if kind_of_object == "people" else people()
    return tuple(verb for verb in verbs_in(QUESTION) if verb.nouns and verb.subjects is subjects)


@cache
def verbs_asked_by_what() -> tuple[Verb, ...]:
    """Returns the verbs to whose object one asks "what": no prepositions ("womit"), no living beings."""
    return tuple(
        verb
        for verb in verbs_about("things")
        if verb.governed == "acc" and any(noun.kind != "animal" for noun in verb.nouns)
    )


@cache
def verbs_of_bystanders() -> tuple[Verb, ...]:
    """Returns the verbs whose subject may be any person, because people are not their objects."""
    return tuple(verb for verb in verbs_in(TIMELESS) if verb.subjects is people())


@cache
def giving_verbs() -> tuple[tuple[Verb, Pools], ...]:
    """Returns the verbs of giving, whose complements are the recipients, each with the gifts."""
    pairs = []
    for english, german, governed, gifts in rows(lexicon.GIVING):
        (verb,) = verbs_with_objects(f"{english}  {german}  {governed}  people", "action", known=True)
        pools = [(*definites(noun, "acc"), *indefinites(noun, "acc")) for noun in nouns_among(gifts)]
        pairs.append((verb, sum(pools, ())))
    return tuple(pairs)


@cache
def infinitive_verbs() -> tuple[Paradigm, ...]:
    """Returns the verbs that take an infinitive with "zu": "is trying to" and "has forgotten to"."""
    paradigms = []
    for english, german, german_third, bracket in rows(lexicon.INFINITIVE_VERBS):
        auxiliary, remainder = english.split(maxsplit=1)
        auxiliaries = {"is": BE, "has": HAVE}[auxiliary]
        paradigms.append(paradigm(auxiliaries, remainder, conjugate(german, german_third), bracket.strip("-")))
    return tuple(paradigms)


@cache
def resting_verbs() -> tuple[Paradigm, ...]:
    """Returns what animals do, for example "is sleeping" and "schläft"."""
    return tuple(
        paradigm(BE, english, conjugate(plural, singular)) for english, singular, plural in rows(lexicon.RESTING)
    )
