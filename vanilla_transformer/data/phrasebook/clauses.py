"""Clauses: a subject, a verb and what the verb takes, put in the order of each language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .conjugation import VerbForm
from .declension import Adjective
from .phrases import Phrase
from .verbs import Verb, verbs_in


Draw: TypeAlias = Callable[[Sequence[Any]], Any]
Pair: TypeAlias = tuple[str, str]
Clause: TypeAlias = tuple[Phrase, VerbForm, Phrase]


def conjugated(draw: Draw, verb: Verb, tense: int, subject: Phrase | None = None) -> tuple[Phrase, VerbForm]:
    """Draws a subject for a verb, unless it is given, and the form of the verb that agrees with it."""
    subject = subject or draw(draw(verb.subjects))
    return subject, draw(verb.tenses[tense])[subject.person]


def clause_with(draw: Draw, verb: Verb, tense: int, subject: Phrase | None = None) -> Clause:
    """Draws a clause with a verb."""
    return *conjugated(draw, verb, tense, subject), draw(draw(verb.complements))


def clause(draw: Draw, tense: int, subject: Phrase | None = None) -> Clause:
    """Draws a clause with any verb."""
    return clause_with(draw, draw(verbs_in(tense)), tense, subject)


def clause_about_another(draw: Draw, tense: int, subject: Phrase) -> Clause:
    """Draws a clause whose subject is not the one given: nobody says that Anna is sad because Anna is late."""
    drawn = clause(draw, tense)
    while drawn[0].english == subject.english:
        drawn = clause(draw, tense)
    return drawn


def declarative(subject: Phrase, verb: VerbForm, complement: Phrase | Adjective) -> Pair:
    """Puts the German verb second, after the subject: "Anna ruft den Arzt an"."""
    return (
        f"{subject.english} {verb.english} {complement.english}",
        f"{subject.german} {verb.finite} {complement.german}{verb.bracket}",
    )


def negative(subject: Phrase, verb: VerbForm, complement: Phrase) -> Pair:
    """Negates a declarative clause: "Anna ruft den Arzt nicht an"."""
    return (
        f"{subject.english} {verb.negated} {complement.english}",
        f"{subject.german} {verb.finite} {complement.negated}{verb.bracket}",
    )


def interrogative(subject: Phrase, verb: VerbForm, complement: Phrase | Adjective) -> Pair:
    """Puts the finite verb before the subject in both languages: "is Anna reading a book?", "liest Anna ein Buch?"."""
    return (
        f"{verb.auxiliary} {subject.english}{verb.remainder} {complement.english}?",
        f"{verb.finite} {subject.german} {complement.german}{verb.bracket}?",
    )


def inverted(subject: Phrase, verb: VerbForm, complement: Phrase) -> Pair:
    """Puts the German verb before its subject, as after "heute"; English does not care."""
    return (
        f"{subject.english} {verb.english} {complement.english}",
        f"{verb.finite} {subject.german} {complement.german}{verb.bracket}",
    )


def subordinate(subject: Phrase, verb: VerbForm, complement: Phrase) -> Pair:
    """Puts the German verb last, as after "dass": "Anna den Arzt anruft"."""
    return (
        f"{subject.english} {verb.english} {complement.english}",
        f"{subject.german} {complement.german} {verb.final}",
    )


def question_about(asked: Phrase, subject: Phrase, verb: VerbForm) -> Pair:
    """Asks for the complement: "which coat is Anna trying on?", "welchen Mantel probiert Anna an?"."""
    return (
        f"{asked.english} {verb.auxiliary} {subject.english}{verb.remainder}?",
        f"{asked.german} {verb.finite} {subject.german}{verb.bracket}?",
    )


def with_adverbial(complement: Phrase, adverbial: Phrase) -> Phrase:
    """Adds a time or a place, which German puts before the complement: "gestern ein Buch"."""
    return Phrase(f"{complement.english} {adverbial.english}", f"{adverbial.german} {complement.german}")


def followed_by(first: Phrase, second: Phrase | Adjective) -> Phrase:
    """Puts two phrases one after the other in both languages."""
    return Phrase(f"{first.english} {second.english}", f"{first.german} {second.german}", first.person)


def linked(first: Pair, english: str, german: str, second: Pair) -> Pair:
    """Links two clauses by a comma, a conjunction, or both."""
    return f"{first[0]}{english} {second[0]}", f"{first[1]}{german} {second[1]}"


def introduced(phrase: Phrase, clause: Pair) -> Pair:
    """Puts a phrase before a clause: "on Monday", "why", "I know that"."""
    return f"{phrase.english} {clause[0]}", f"{phrase.german} {clause[1]}"
