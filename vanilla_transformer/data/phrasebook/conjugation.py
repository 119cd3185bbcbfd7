"""Verbs in their tenses and persons, in English and in German."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from .lexicon import rows, verbs


# Every paradigm has five persons: "I", "you", "she", "we", "they".
BE = ("am", "are", "is", "are", "are")
HAVE = ("have", "have", "has", "have", "have")
DO = ("do", "do", "does", "do", "do")
SEIN = ("bin", "bist", "ist", "sind", "sind")
WERDEN = ("werde", "wirst", "wird", "werden", "werden")

# Which tenses go with a clause: without time, with a time to come, with a time gone by; habits and conditions; in
# questions; negated; after a condition. German has the perfect for the simple past, which English has only with a time
# or with "did": "they read" is never a past.
TIMELESS, FUTURE, PAST, HABIT, QUESTION, NEGATION, PROSPECT = range(7)


class VerbForm(NamedTuple):
    """A verb in one tense and person, taken apart the way each word order needs it.

    In "Anna does not call Peter" the auxiliary is "does" and the remainder " call". In "Anna ruft Peter an" the finite
    verb is "ruft" and the right bracket " an"; at the end of a clause both are one word, "anruft".
    """

    english: str
    negated: str
    auxiliary: str
    remainder: str
    finite: str
    bracket: str
    final: str


Paradigm: TypeAlias = tuple[VerbForm, ...]


def conjugate(infinitive: str, third_person: str) -> tuple[str, ...]:
    """Returns the five persons of a German verb, which its infinitive and its third person decide.

    A third person that does not end in -t ("mag", "kann", "sollte") is also the first person.
    """
    if infinitive == "werden":
        return WERDEN
    stem = third_person.removesuffix("t")
    second = stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else "st")
    first = infinitive.removesuffix("n").removesuffix("e") + "e" if stem != third_person else third_person
    return first, second, third_person, infinitive, infinitive


def third_person(base: str) -> str:
    """Returns "reads", "washes", "tries", "has"."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def gerund(base: str) -> str:
    """Returns "reading", "writing", "cutting", and with the British double l "travelling"."""
    if base.endswith("e"):
        return f"{base[:-1]}ing"
    doubles_its_consonant = re.fullmatch("[^aeiou]+[aeiou][^aeiouwxy]|.*[^aeiou][aeiou]l", base)
    return base + (base[-1] if doubles_its_consonant else "") + "ing"


def paradigm(
    auxiliaries: Sequence[str],
    remainder: str,
    finites: Sequence[str],
    bracket: str = "",
    affirmative: Sequence[str] | None = None,
) -> Paradigm:
    """Returns a verb in five persons, of which affirmative English may need no auxiliary.

    The bracket follows the finite German verb, and precedes it in a subordinate clause; it ends in a blank unless it is
    a separable prefix, which is then written as one word with the verb.
    """
    remainder = f" {remainder}".rstrip()
    right_bracket = f" {bracket}".rstrip()
    forms = []
    for person, (auxiliary, finite) in enumerate(zip(auxiliaries, finites, strict=True)):
        english = affirmative[person] if affirmative else auxiliary + remainder
        negated = ("cannot" if auxiliary == "can" else f"{auxiliary} not") + remainder
        forms.append(VerbForm(english, negated, auxiliary, remainder, finite, right_bracket, bracket + finite))
    return tuple(forms)


def simple_present(base: str, infinitive: str, german_third: str) -> Paradigm:
    """Returns a verb in the simple present, for example "calls" and "ruft … an" for "call" and "an|rufen"."""
    prefix, _, stem = infinitive.rpartition("|")
    verb, blank, particle = base.partition(" ")
    affirmative = [third_person(verb) + blank + particle if word == "does" else base for word in DO]
    return paradigm(DO, base, conjugate(stem, german_third), prefix, affirmative)


def modal_paradigms(base: str, infinitive: str) -> dict[str, Paradigm]:
    """Returns a verb under each modal of the lexicon, for example "has to read" and "muss lesen"."""
    paradigms = {}
    for singular, plural, german_modal, german_third in rows(verbs.MODALS):
        auxiliary, _, rest = singular.partition(" ")
        auxiliaries, remainder, affirmative = (auxiliary,) * 5, f"{rest} {base}".strip(), None
        if auxiliary == "is":
            auxiliaries = BE
        elif singular != plural:
            auxiliaries, remainder = DO, f"{plural} {base}"
            affirmative = [f"{singular if word == 'does' else plural} {base}" for word in DO]
        finites = conjugate(german_modal, german_third)
        paradigms[singular] = paradigm(auxiliaries, remainder, finites, f"{infinitive} ", affirmative)
    return paradigms


def tenses_of(english: str, german: str, style: str) -> tuple[tuple[Paradigm, ...], ...]:
    """Returns the tenses of a verb of the lexicon; the style is "action", "thought", "achievement" or "state".

    Modals go with actions, and the progressive with neither achievements ("is finding") nor states ("is knowing").
    """
    base, past, participle, *particles = english.split()
    particle = "".join(f" {word}" for word in particles)
    infinitive, german_third, perfect_auxiliary, german_participle = german.split()
    prefix, _, stem = infinitive.rpartition("|")
    simple = simple_present(base + particle, infinitive, german_third)
    if style == "state":
        return (simple,), (), (), (), (simple,), (simple,), ()
    perfect_german = (SEIN if perfect_auxiliary == "ist" else conjugate("haben", "hat"), f"{german_participle} ")
    simple_past = paradigm(("did",) * 5, base + particle, *perfect_german, (past + particle,) * 5)
    perfect = paradigm(HAVE, participle + particle, *perfect_german)
    modals = modal_paradigms(base + particle, prefix + stem)
    will = modals["will"]
    if style == "achievement":
        told = (perfect, will)
        return told, (will,), (simple_past,), (simple,), (*told, simple_past), (*told, simple_past), ()
    progressive = paradigm(BE, gerund(base) + particle, conjugate(stem, german_third), prefix)
    told = (progressive,) * 3 + (perfect,) * 3
    asked = (*told, simple_past, simple_past)
    if style == "thought":
        return told, (will,), (simple_past,), (simple,), asked, asked, ()
    everyday = [modal for name, modal in modals.items() if name != "would like to"]
    prospect = (will, modals["can"], modals["has to"])
    return (
        (*told, *modals.values()),
        (progressive, progressive, *prospect),
        (simple_past,),
        (simple,),
        (*asked, *modals.values()),
        (*asked, *everyday),
        prospect,
    )


IS = paradigm(BE, "", SEIN)
WAS = paradigm(("was", "were", "was", "were", "were"), "", conjugate("waren", "war"))
WILL_BE = paradigm(("will",) * 5, "be", WERDEN, "sein ")
