"""Nouns as phrases: subjects, complements and owners."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from .declension import (
    BARE,
    CASES,
    NO,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Adjective,
    Determiner,
    Noun,
    noun_phrase,
    nouns_among,
)
from .lexicon import expressions, rows
from .lexicon import nouns as lexicon
from .phrases import NAMES, THIRD, THIRD_PLURAL, Phrase, Pools, acquaintances


Choices: TypeAlias = Sequence[tuple[Determiner, bool]]

# The first of the two pools of a noun has no adjectives: it is for sentences that go on to say what something is like.
PLAIN = 0
NAMED_OWNERS = tuple(Determiner(f"{name.english}'s", f"{name.german}s", "none") for name in NAMES)


def nominal(noun: Noun, determiner: Determiner, adjective: Adjective | None, plural: bool, governed: str) -> Phrase:
    """Returns a noun phrase as the verb governs it, for example by "acc" or "mit dat"; "kein" negates "ein"."""
    *preposition, case = governed.split()
    english, german = noun_phrase(noun, determiner, adjective, plural, CASES[case])
    negated = f"{german} nicht"
    if preposition:
        dem_follows_von = preposition == ["von"] and german.startswith("dem ")
        german = f"vom {german[4:]}" if dem_follows_von else f"{preposition[0]} {german}"
        negated = f"nicht {german}"
    elif determiner in (A, BARE):
        _, negated = noun_phrase(noun, NO, adjective, plural, CASES[case])
    person, gender = (THIRD_PLURAL, "plural") if plural else (THIRD, noun.gender)
    return Phrase(english, german, person, negated, gender)


def pools_of(noun: Noun, choices: Choices, governed: str) -> Pools:
    """Returns the pools of a noun without and with an adjective; the choices are determiners, singular or plural."""
    plain = tuple(nominal(noun, determiner, None, plural, governed) for determiner, plural in choices)
    attributive = tuple(
        nominal(noun, determiner, adjective, plural, governed)
        for adjective in noun.adjectives
        for determiner, plural in choices
    )
    return tuple(pool for pool in (plain, attributive) if pool)


def definite_determiners(noun: Noun) -> Choices:
    """Returns the determiners of known things, each with whether it makes a plural: nobody owns a boy or a river."""
    owned = [(possessive, False) for possessive in POSSESSIVES]
    if noun.kind == "relative":
        choices = [*owned, (POSSESSIVES[0], True)]
    elif noun.kind in ("stranger", "building", "nature", "food"):
        choices = [(THE, False), (THE, False), (THIS, False), (THE, True), (THIS, True)]
    else:
        choices = [*[(THE, False)] * 4, *owned, (THIS, False), (THE, True), (THIS, True), (POSSESSIVES[0], True)]
    return [choice for choice in choices if noun.english_plural or not choice[1]]


@cache
def definites(noun: Noun, governed: str = "nom") -> Pools:
    """Returns a noun as something known."""
    return pools_of(noun, definite_determiners(noun), governed)


@cache
def indefinites(noun: Noun, governed: str, generic: bool = False) -> Pools:
    """Returns a noun as something new; if generic, as one speaks of it in general: "books", "cold milk"."""
    if noun.kind == "relative":
        return ()
    several = [(BARE, noun.english_plural is not None)]
    return pools_of(noun, several if generic or not noun.english_plural else [(A, False)] * 4 + several, governed)


@cache
def determined(noun: Noun, determiner: Determiner, governed: str) -> Pools:
    """Returns a noun with one determiner."""
    return pools_of(
        noun, [(determiner, plural) for plural in (False, True)[: 2 if noun.english_plural else 1]], governed
    )


@cache
def owners() -> tuple[Determiner, ...]:
    """Returns people as owners: "the old teacher's", "des alten Lehrers"."""
    phrases_of_owners = [
        noun_phrase(noun, determiner, None, False, CASES["gen"])
        for noun in nouns_among("people")
        for determiner, plural in definite_determiners(noun)
        if not plural
    ]
    return tuple(Determiner(f"{english}'s", "d", "der", owner=f" {german}") for english, german in phrases_of_owners)


@cache
def possessions(noun: Noun, governed: str) -> tuple[Pools, Pools]:
    """Returns what somebody has: "Annas Auto", but "das Auto des Lehrers"."""
    by_name, by_person = (
        pools_of(noun, [(owner, plural) for owner in having for plural in (False, True)], governed)
        for having in (NAMED_OWNERS, owners())
    )
    return by_name, by_person


@cache
def people() -> Pools:
    """Returns the subjects of what people do: pronouns, names and noun phrases."""
    return (*acquaintances() * 12, *(pool for noun in nouns_among("people") for pool in definites(noun)))


@cache
def comparatives() -> tuple[tuple[Phrase, Pools], ...]:
    """Returns the comparatives with pools of what is compared; two different pools make a comparison."""
    collected = []
    for english, german, selection in rows(lexicon.COMPARATIVES):
        pools = tuple(definites(noun)[PLAIN] for noun in nouns_among(selection))
        collected.append((Phrase(english, german), (*pools, NAMES) if "people" in selection else pools))
    return tuple(collected)


@cache
def spatial_phrases(case: str) -> tuple[Phrase, ...]:
    """Returns phrases such as "on the table", "auf dem Tisch"; in the accusative "auf den Tisch"."""
    return tuple(
        phrase._replace(english=f"{english} {phrase.english}")
        for english, german in rows(expressions.SPATIAL_PREPOSITIONS)
        for noun in nouns_among("furniture")
        for adjective in (*[None] * len(noun.adjectives), *noun.adjectives)
        for phrase in [nominal(noun, THE, adjective, False, f"{german} {case}")]
    )
