"""Clauses: a subject, a verb and what the verb takes, put in the order of each language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .conjugation import VerbForm
from .declension import Adjective
from .phrases import Phrase
from .verbs import Verb, verbs_in


Draw: TypeAlias = Callable[[Sequence[Any]], Any]
Pair: TypeAlias = tuple[str, str]


class Clause(NamedTuple):
    """A subject, its verb and what the verb takes, in the word orders of both languages."""

    subject: Phrase
    verb: VerbForm
    complement: Phrase | Adjective

    def with_adverbial(self, adverbial: Phrase) -> Clause:
        """Adds a time or a place, which German puts before the complement: "gestern ein Buch"."""
        return Clause(self.subject, self.verb, self.complement.with_adverbial(adverbial))

    def followed_by(self, second: Phrase) -> Clause:
        """Adds a second complement after the first in both languages."""
        return Clause(self.subject, self.verb, self.complement.followed_by(second))

    def in_english(self) -> str:
        """Returns the clause in English, which has one order in main and subordinate clauses."""
        subject, verb, complement = self
        return f"{subject.english} {verb.english} {complement.english}"

    def declarative(self) -> Pair:
        """Puts the German verb second, after the subject: "Anna ruft den Arzt an"."""
        subject, verb, complement = self
        return self.in_english(), f"{subject.german} {verb.finite} {complement.german}{verb.bracket}"

    def negative(self) -> Pair:
        """Negates a declarative clause: "Anna ruft den Arzt nicht an"."""
        subject, verb, complement = self
        return (
            f"{subject.english} {verb.negated} {complement.english}",
            f"{subject.german} {verb.finite} {complement.negated}{verb.bracket}",
        )

    def interrogative(self) -> Pair:
        """Puts the finite verb before the subject in both languages: "is Anna reading?", "liest Anna?"."""
        subject, verb, complement = self
        return (
            f"{verb.auxiliary} {subject.english}{verb.remainder} {complement.english}?",
            f"{verb.finite} {subject.german} {complement.german}{verb.bracket}?",
        )

    def inverted(self) -> Pair:
        """Puts the German verb before its subject, as after "heute"; English does not care."""
        subject, verb, complement = self
        return self.in_english(), f"{verb.finite} {subject.german} {complement.german}{verb.bracket}"

    def subordinate(self) -> Pair:
        """Puts the German verb last, as after "dass": "Anna den Arzt anruft"."""
        subject, verb, complement = self
        return self.in_english(), f"{subject.german} {complement.german} {verb.final}"


def conjugated(draw: Draw, verb: Verb, tense: int, subject: Phrase | None = None) -> tuple[Phrase, VerbForm]:
    """Draws a subject for a verb, unless it is given, and the form of the verb that agrees with it."""
    subject = subject or draw(draw(verb.subjects))
    return subject, draw(verb.tenses[tense])[subject.person]


def clause_with(draw: Draw, verb: Verb, tense: int, subject: Phrase | None = None) -> Clause:
    """Draws a clause with a verb."""
    return Clause(*conjugated(draw, verb, tense, subject), draw(draw(verb.complements)))


def clause(draw: Draw, tense: int, subject: Phrase | None = None) -> Clause:
    """Draws a clause with any verb."""
    return clause_with(draw, draw(verbs_in(tense)), tense, subject)


def clause_about_another(draw: Draw, tense: int, subject: Phrase) -> Clause:
    """Draws a clause whose subject is not the one given: nobody says that Anna is sad because Anna is late."""
    drawn = clause(draw, tense)
    while drawn.subject.english == subject.english:
        drawn = clause(draw, tense)
    return drawn


def question_about(asked: Phrase, subject: Phrase, verb: VerbForm) -> Pair:
    """Asks for the complement: "which coat is Anna trying on?", "welchen Mantel probiert Anna an?"."""
    return (
        f"{asked.english} {verb.auxiliary} {subject.english}{verb.remainder}?",
        f"{asked.german} {verb.finite} {subject.german}{verb.bracket}?",
    )


def linked(first: Pair, english: str, german: str, second: Pair) -> Pair:
    """Links two clauses by a comma, a conjunction, or both."""
    return f"{first[0]}{english} {second[0]}", f"{first[1]}{german} {second[1]}"


def introduced(phrase: Phrase, clause: Pair) -> Pair:
    """Puts a phrase before a clause: "on Monday", "why", "I know that"."""
    return f"{phrase.english} {clause[0]}", f"{phrase.german} {clause[1]}"
