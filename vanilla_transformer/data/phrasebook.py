"""An endless English-German phrasebook: sentence pairs from a small grammar of both languages.

The phrasebook is the corpus that needs no download. Its sentences are made of the words in
:mod:`vanilla_transformer.data.phrasebook_lexicon`, and the German has what makes German hard: gender, case and three
declensions of the adjective, verb-second and verb-final order, separable verbs, *nicht* and *kein*, relative clauses.
Every English sentence has exactly one German translation, so that a small Transformer can learn the whole mapping.

The module goes from words to sentences: numbers, declension (nouns), conjugation (verbs), clauses, and at last the
constructions, which are short functions that draw words and put them in the order of each language.

Spaces follow one rule: a piece that may be empty (a complement, a right bracket) brings its leading blank with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from vanilla_transformer.data import phrasebook_lexicon as lexicon


__all__ = ["number_in_english", "number_in_german", "phrasebook"]

# ----------------------------------------------------------------------------------------------------------------------
# Tables
# ----------------------------------------------------------------------------------------------------------------------


def rows(table: str) -> list[list[str]]:
    """Returns the cells of a table of the lexicon, whose columns are two or more blanks apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines() if line.strip()]


def word_lists(table: str) -> tuple[list[str], list[str]]:
    """Returns the English and the German words of a table that lists the ones, an empty line, and the others."""
    english, german = table.split("\n\n")
    return english.split(), german.split()


# ----------------------------------------------------------------------------------------------------------------------
# Numbers
# ----------------------------------------------------------------------------------------------------------------------

LARGEST_NUMBER = 9999
ENGLISH_NUMBERS, GERMAN_NUMBERS = word_lists(lexicon.NUMBERS)
ENGLISH_TENS, GERMAN_TENS = word_lists(lexicon.TENS)
ENGLISH_ORDINALS, GERMAN_ORDINALS = word_lists(lexicon.ORDINALS)


def number_in_english(n: int) -> str:
    """Spells a number in English, the British way: "one thousand two hundred and thirty-four".

    Args:
        n: A number from 0 to 9999.

    Returns:
        The number in words.

    Raises:
        ValueError: If the number is outside that range.
    """
    check_number(n)
    if n < 20:
        return ENGLISH_NUMBERS[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH_NUMBERS[ones]}" if ones else "")
    thousands, below_thousand = divmod(n, 1000)
    hundreds, below_hundred = divmod(below_thousand, 100)
    words = [f"{ENGLISH_NUMBERS[thousands]} thousand"] if thousands else []
    if hundreds:
        words.append(f"{ENGLISH_NUMBERS[hundreds]} hundred")
    if below_hundred:
        words.append(f"and {number_in_english(below_hundred)}")
    return " ".join(words)


def number_in_german(n: int) -> str:
    """Spells a number in German, in one word: "eintausendzweihundertvierunddreißig".

    Args:
        n: A number from 0 to 9999.

    Returns:
        The number in words, as one counts: 1 is "eins", also at the end of "einhunderteins".

    Raises:
        ValueError: If the number is outside that range.
    """
    check_number(n)
    if n < 20:
        return GERMAN_NUMBERS[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return (f"{german_multiplier(ones)}und" if ones else "") + GERMAN_TENS[tens - 2]
    unit, name = (1000, "tausend") if n >= 1000 else (100, "hundert")
    multiplier, remainder = divmod(n, unit)
    return f"{german_multiplier(multiplier)}{name}" + (number_in_german(remainder) if remainder else "")


def german_multiplier(digit: int) -> str:
    """Returns a digit as it stands inside a number: "ein" in "einundzwanzig" and "eintausend", not "eins"."""
    return "ein" if digit == 1 else GERMAN_NUMBERS[digit]


def check_number(n: int) -> None:
    """Raises a ValueError for a number that the phrasebook cannot spell."""
    if not 0 <= n <= LARGEST_NUMBER:
        raise ValueError(f"n must be between 0 and {LARGEST_NUMBER}, got {n}")


def ordinal_in_english(n: int) -> str:
    """Returns "third", "twentieth", "twenty-first" for a day of the month."""
    if n < 20:
        return ENGLISH_ORDINALS[n - 1]
    tens, ones = divmod(n, 10)
    name = ENGLISH_TENS[tens - 2]
    return f"{name}-{ENGLISH_ORDINALS[ones - 1]}" if ones else f"{name[:-1]}ieth"


def ordinal_in_german(n: int) -> str:
    """Returns the stem "dritt", "zwanzigst", "einundzwanzigst" for a day of the month."""
    return GERMAN_ORDINALS[n - 1] if n < 20 else f"{number_in_german(n)}st"


# ----------------------------------------------------------------------------------------------------------------------
# Declension
# ----------------------------------------------------------------------------------------------------------------------

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"acc": ACCUSATIVE, "dat": DATIVE}

# Rows are the genders, and the plural, which has none; columns are the four cases.
ARTICLES = {
    "masculine": ("der", "den", "dem", "des"),
    "feminine": ("die", "die", "der", "der"),
    "neuter": ("das", "das", "dem", "des"),
    "plural": ("die", "die", "den", "der"),
}
DETERMINER_ENDINGS = {
    "masculine": ("er", "en", "em", "es"),
    "feminine": ("e", "e", "er", "er"),
    "neuter": ("es", "es", "em", "es"),
    "plural": ("e", "e", "en", "er"),
}
WEAK_ENDINGS = {
    "masculine": ("e", "en", "en", "en"),
    "feminine": ("e", "e", "en", "en"),
    "neuter": ("e", "e", "en", "en"),
    "plural": ("en", "en", "en", "en"),
}
STRONG_ENDINGS = {
    "masculine": ("er", "en", "em", "en"),
    "feminine": ("e", "e", "er", "er"),
    "neuter": ("es", "es", "em", "en"),
    "plural": ("e", "e", "en", "er"),
}
# The forms in which "ein", "kein" and "mein" show no ending.
BARE_FORMS = {("masculine", NOMINATIVE), ("neuter", NOMINATIVE), ("neuter", ACCUSATIVE)}
GENDERS = {"der": "masculine", "die": "feminine", "das": "neuter"}
PRONOUNS_OF_THINGS = {"masculine": "er", "feminine": "sie", "neuter": "es", "plural": "sie"}


class Adjective(NamedTuple):
    """An adjective: "expensive", "teuer", and "teur", the stem that takes the endings."""

    english: str
    german: str
    stem: str


class Noun(NamedTuple):
    """A noun with the adjectives that go with it; a plural is None where nobody uses it."""

    english: str
    english_plural: str | None
    german: tuple[str, str, str, str]
    german_plural: tuple[str, str, str, str] | None
    gender: str
    kind: str
    adjectives: tuple[Adjective, ...]


class Determiner(NamedTuple):
    """A determiner; the style says how it is declined: "der", "dieser", "ein", or not at all ("Annas", or none)."""

    english: str
    english_plural: str
    german: str
    style: str


PRONOUN_ROWS = rows(lexicon.PRONOUNS)
POSSESSIVES = tuple(Determiner(row[2], row[2], row[6], "ein") for row in PRONOUN_ROWS)
THE = Determiner("the", "the", "d", "der")
THIS = Determiner("this", "these", "dies", "dieser")
WHICH = Determiner("which", "which", "welch", "dieser")
A = Determiner("a", "", "ein", "ein")
NO = Determiner("no", "no", "kein", "ein")
BARE = Determiner("", "", "", "none")


def selects(selection: str, noun: str, kind: str) -> bool:
    """Tells whether a list of nouns, kinds and groups of kinds includes a noun."""
    names = selection.split()
    return noun in names or kind in names or any(kind in lexicon.GROUPS.get(name, "").split() for name in names)


def german_singular(nominative: str, oblique: str, gender: str) -> tuple[str, str, str, str]:
    """Returns a noun in the four cases; the genitive of a monosyllable is "Mannes", that of others "Lehrers"."""
    if oblique:  # the n-declension
        return nominative, oblique, oblique, oblique
    if gender == "feminine":
        return nominative, nominative, nominative, nominative
    vowels = [letter in "aeiouyäöü" for letter in nominative.lower()]
    syllables = sum(vowel and not before for before, vowel in zip([False, *vowels], vowels, strict=False))
    return nominative, nominative, nominative, nominative + ("es" if syllables == 1 else "s")


def german_plural(nominative: str) -> tuple[str, str, str, str]:
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
            countable = plural != "-"
            collected.append(
                Noun(
                    english,
                    plural if countable else None,
                    german_singular(nominative, oblique, GENDERS[article]),
                    german_plural(plural_in_german) if countable else None,
                    GENDERS[article],
                    kind,
                    tuple(adjective for adjective, selection in adjectives if selects(selection, english, kind)),
                )
            )
    return tuple(collected)


@cache
def nouns_among(selection: str) -> tuple[Noun, ...]:
    """Returns the nouns that a list of nouns, kinds and groups of kinds names."""
    return tuple(noun for noun in nouns() if selects(selection, noun.english, noun.kind))


def indefinite_article(word: str) -> str:
    """Returns "a" or "an" by the sound that follows: "an old dog", "an hour", "a university"."""
    return "an" if word.startswith(("a", "e", "i", "o", "u", "hour")) and not word.startswith("univ") else "a"


def decline_determiner(determiner: Determiner, gender: str, case: int) -> str:
    """Returns the form of a determiner, for example "dem", "diesem" or "einem"."""
    if determiner.style == "der":
        return ARTICLES[gender][case]
    if determiner.style == "none" or (determiner.style == "ein" and (gender, case) in BARE_FORMS):
        return determiner.german
    return determiner.german + DETERMINER_ENDINGS[gender][case]


def noun_phrase(
    noun: Noun, determiner: Determiner, adjective: Adjective | None, plural: bool, case: int
) -> tuple[str, str]:
    """Returns a noun phrase in English and in German, for example ("an old dog", "einem alten Hund")."""
    noun_in_english = noun.english_plural if plural else noun.english
    noun_in_german = noun.german_plural if plural else noun.german
    if noun_in_english is None or noun_in_german is None:
        raise ValueError(f"{noun.english} has no plural")
    english, german = [noun_in_english], [noun_in_german[case]]
    gender = "plural" if plural else noun.gender
    if adjective:
        shows_no_case = determiner.style == "none" or (determiner.style == "ein" and (gender, case) in BARE_FORMS)
        endings = STRONG_ENDINGS if shows_no_case else WEAK_ENDINGS
        english.insert(0, adjective.english)
        german.insert(0, adjective.stem + endings[gender][case])
    word = determiner.english_plural if plural else determiner.english
    if word:
        english.insert(0, indefinite_article(english[0]) if determiner is A and not plural else word)
    if determiner.german and not (determiner is A and plural):
        german.insert(0, decline_determiner(determiner, gender, case))
    return " ".join(english), " ".join(german)


def contract(preposition: str, phrase: str) -> str:
    """Joins a preposition and a noun phrase: "von" and "dem Auto" are "vom Auto"."""
    return f"vom {phrase[4:]}" if preposition == "von" and phrase.startswith("dem ") else f"{preposition} {phrase}"


# ----------------------------------------------------------------------------------------------------------------------
# Phrases, ready to be drawn
# ----------------------------------------------------------------------------------------------------------------------


# Pools hold pools: one draws twice, first what kind of phrase, then the phrase.
Pools: TypeAlias = tuple[tuple[Any, ...], ...]
# The first of the two pools of a noun has no adjectives: it is for sentences that go on to say what something is like.
PLAIN = 0
Draw: TypeAlias = Callable[[Sequence[Any]], Any]
Pair: TypeAlias = tuple[str, str]
Paradigm: TypeAlias = "tuple[VerbForm, ...]"


class Phrase(NamedTuple):
    """Words that never change, in both languages."""

    english: str
    german: str


class Complement(NamedTuple):
    """What a verb takes, each with its leading blank; the negation has its "nicht" or "kein" inside."""

    english: str
    german: str
    negated: str
    plural: bool = False


class Subject(NamedTuple):
    """A subject, and which of the five persons its verb takes."""

    english: str
    german: str
    person: int


class Antecedent(NamedTuple):
    """A noun phrase that a relative clause can follow, in three cases of German."""

    english: str
    german: tuple[str, str, str]
    gender: str
    person: int


FIRST, SECOND, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(5)
PRONOUN_PERSONS = (FIRST, SECOND, THIRD, THIRD, FIRST_PLURAL, THIRD_PLURAL)
PRONOUN_SUBJECTS = tuple(
    Subject(row[0], row[3], person) for row, person in zip(PRONOUN_ROWS, PRONOUN_PERSONS, strict=True)
)
NAMED_SUBJECTS = tuple(Subject(name, name, THIRD) for name, _ in rows(lexicon.NAMES))


@cache
def phrases(table: str) -> tuple[Phrase, ...]:
    """Returns the phrases of a table with two columns."""
    return tuple(Phrase(english, german) for english, german in rows(table))


def definite_determiners(noun: Noun) -> tuple[tuple[Determiner, bool], ...]:
    """Returns the determiners of known things, each with whether it makes a plural: nobody owns a boy or a river."""
    if noun.kind == "relative":
        choices = [*[(possessive, False) for possessive in POSSESSIVES], *[(POSSESSIVES[0], True)]]
    elif noun.kind in ("stranger", "building", "nature", "food"):
        choices = [(THE, False), (THE, False), (THIS, False), (THE, True), (THIS, True)]
    else:
        owned = [(possessive, False) for possessive in POSSESSIVES]
        choices = [*[(THE, False)] * 4, *owned, (THIS, False), (THE, True), (THIS, True), (POSSESSIVES[0], True)]
    return tuple(choice for choice in choices if noun.english_plural or not choice[1])


def shapes(
    noun: Noun, choices: Sequence[tuple[Any, bool]], build: Callable[[Any, Adjective | None, bool], Any]
) -> Pools:
    """Returns two pools for a noun, without and with an adjective, so that long phrases do not crowd out short ones.

    Args:
        noun: The noun.
        choices: The determiners (or owners) that the noun goes with, each with whether the noun is plural.
        build: Makes the phrase of a determiner, an adjective and a number.
    """
    plain = tuple(build(determiner, None, plural) for determiner, plural in choices)
    attributive = tuple(
        build(determiner, adjective, plural) for adjective in noun.adjectives for determiner, plural in choices
    )
    return tuple(pool for pool in (plain, attributive) if pool)


@cache
def complements_of(noun: Noun, governed: str, definite: bool, generic: bool = False) -> Pools:
    """Returns a noun as a complement.

    Args:
        noun: The noun.
        governed: What the verb governs, for example "acc" or "mit dat".
        definite: Whether the phrases name something known; if not, they are negated by "kein".
        generic: Whether to leave out "a" and keep what one says of habits: "books", "cold milk".
    """
    *preposition, case_name = governed.split()
    case = CASES[case_name]

    def build(determiner: Determiner, adjective: Adjective | None, plural: bool) -> Complement:
        english, german = noun_phrase(noun, determiner, adjective, plural, case)
        if preposition:
            german = contract(preposition[0], german)
            negated = f"nicht {german}"
        elif definite:
            negated = f"{german} nicht"
        else:
            negated = noun_phrase(noun, NO, adjective, plural, case)[1]
        return Complement(f" {english}", f" {german}", f" {negated}", plural)

    if definite:
        return shapes(noun, definite_determiners(noun), build)
    if noun.kind == "relative":
        return ()
    if noun.english_plural is None:
        return shapes(noun, [(BARE, False)], build)
    return shapes(noun, [(BARE, True)] if generic else [*[(A, False)] * 4, (BARE, True)], build)


@cache
def nominatives(noun: Noun) -> Pools:
    """Returns a noun as a subject."""

    def build(determiner: Determiner, adjective: Adjective | None, plural: bool) -> Subject:
        return Subject(*noun_phrase(noun, determiner, adjective, plural, NOMINATIVE), THIRD_PLURAL if plural else THIRD)

    return shapes(noun, definite_determiners(noun), build)


@cache
def antecedents(noun: Noun) -> Pools:
    """Returns a noun as the antecedent of a relative clause, which decides which one is meant."""

    def build(determiner: Determiner, adjective: Adjective | None, plural: bool) -> Antecedent:
        forms = [noun_phrase(noun, determiner, adjective, plural, case) for case in (NOMINATIVE, ACCUSATIVE, DATIVE)]
        nominative, accusative, dative = (german for _, german in forms)
        gender = "plural" if plural else noun.gender
        return Antecedent(forms[0][0], (nominative, accusative, dative), gender, THIRD_PLURAL if plural else THIRD)

    return shapes(noun, [(THE, False), (THE, True)] if noun.english_plural else [(THE, False)], build)


@cache
def people() -> Pools:
    """Returns the subjects of what people do: pronouns, names and noun phrases."""
    phrases_of_people = [pool for noun in nouns_among("people") for pool in nominatives(noun)]
    return (*acquaintances() * 12, *phrases_of_people)


@cache
def acquaintances() -> Pools:
    """Returns pronouns and names: subjects of what one does to people, so that no teacher visits the teacher."""
    return (PRONOUN_SUBJECTS, PRONOUN_SUBJECTS, NAMED_SUBJECTS)


# ----------------------------------------------------------------------------------------------------------------------
# Conjugation
# ----------------------------------------------------------------------------------------------------------------------

BE = ("am", "are", "is", "are", "are")
WAS = ("was", "were", "was", "were", "were")
HAVE = ("have", "have", "has", "have", "have")
DO = ("do", "do", "does", "do", "do")
DID = ("did",) * 5
SEIN = ("bin", "bist", "ist", "sind", "sind")
WERDEN = ("werde", "wirst", "wird", "werden", "werden")


def conjugate(infinitive: str, third_person: str) -> tuple[str, str, str, str, str]:
    """Returns the five persons of a German verb, which its infinitive and its third person decide.

    A third person that does not end in -t ("mag", "kann", "sollte") is also the first person.
    """
    if infinitive == "werden":
        return WERDEN
    stem = third_person.removesuffix("t")
    second = stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else "st")
    first = infinitive.removesuffix("n").removesuffix("e") + "e" if stem != third_person else third_person
    return first, second, third_person, infinitive, infinitive


HABEN = conjugate("haben", "hat")
WAR = conjugate("waren", "war")


class VerbForm(NamedTuple):
    """A verb in one tense and person, taken apart the way each word order needs it.

    In "Anna does not call Peter" the auxiliary is "does" and the remainder "call". In "Anna ruft Peter an" the finite
    verb is "ruft" and the right bracket " an"; at the end of a clause both are one word, "anruft".
    """

    english: str
    negated: str
    auxiliary: str
    remainder: str
    finite: str
    bracket: str
    final: str


class Verb(NamedTuple):
    """A verb with everything that is drawn for its clauses; the tenses are indexed by the constants below."""

    english: str
    zu_infinitive: str
    tenses: tuple[tuple[Paradigm, ...], ...]
    governed: str
    nouns: tuple[Noun, ...]
    subjects: Pools
    complements: Pools
    habits: Pools


# Which tenses go with a clause: without time, with a time to come, with a time gone by; habits and conditions; in
# questions; negated; after a condition. German has the perfect for the simple past, which English has only with a time
# or with "did": "they read" is never a past.
TIMELESS, FUTURE, PAST, HABIT, QUESTION, NEGATION, PROSPECT = range(7)


def paradigm(
    auxiliaries: Sequence[str],
    remainder: str,
    finites: Sequence[str],
    bracket: str,
    affirmative: Sequence[str] | None = None,
) -> Paradigm:
    """Returns a verb in five persons.

    Args:
        auxiliaries: The English auxiliary of questions and negations.
        remainder: The English words after it.
        finites: The German finite verb.
        bracket: What follows the finite verb, and precedes it in a subordinate clause; it ends in a blank unless it
            is a separable prefix, which is then written as one word with the verb.
        affirmative: The English without an auxiliary, where affirmation needs none.
    """
    forms = []
    for person, (auxiliary, finite) in enumerate(zip(auxiliaries, finites, strict=True)):
        negated = "cannot" if auxiliary == "can" else f"{auxiliary} not"
        forms.append(
            VerbForm(
                affirmative[person] if affirmative else f"{auxiliary} {remainder}",
                f"{negated} {remainder}",
                auxiliary,
                remainder,
                finite,
                f" {bracket.rstrip()}" if bracket else "",
                bracket + finite,
            )
        )
    return tuple(forms)


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


def modal_paradigms(base: str, infinitive: str) -> dict[str, Paradigm]:
    """Returns a verb under each modal of the lexicon, for example "has to read" and "muss lesen"."""
    paradigms = {}
    for singular, plural, german_modal, german_third in rows(lexicon.MODALS):
        finites = conjugate(german_modal, german_third)
        auxiliary, _, rest = singular.partition(" ")
        affirmative = None
        if auxiliary == "is":
            auxiliaries, remainder = BE, f"{rest} {base}"
        elif singular == plural:
            auxiliaries, remainder = (auxiliary,) * 5, f"{rest} {base}".strip()
        else:
            auxiliaries, remainder = DO, f"{plural} {base}"
            affirmative = [f"{singular if word == 'does' else plural} {base}" for word in DO]
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
    finites = conjugate(stem, german_third)
    base += particle
    forms = [third_person(base.split()[0]) + particle if word == "does" else base for word in DO]
    simple = paradigm(DO, base, finites, prefix, forms)
    if style == "state":
        return (simple,), (), (), (), (simple,), (simple,), ()
    perfect_german = (SEIN if perfect_auxiliary == "ist" else HABEN, f"{german_participle} ")
    simple_past = paradigm(DID, base, *perfect_german, (past + particle,) * 5)
    perfect = paradigm(HAVE, participle + particle, *perfect_german)
    modals = modal_paradigms(base, prefix + stem)
    will = modals["will"]
    if style == "achievement":
        told = (perfect, will)
        return told, (will,), (simple_past,), (simple,), (*told, simple_past), (*told, simple_past), ()
    progressive = paradigm(BE, gerund(base.split()[0]) + particle, finites, prefix)
    told = (progressive,) * 3 + (perfect,) * 3
    if style == "thought":
        asked = (*told, simple_past, simple_past)
        return told, (will,), (simple_past,), (simple,), asked, asked, ()
    everyday = [modal for name, modal in modals.items() if name != "would like to"]
    prospect = (will, modals["can"], modals["has to"])
    return (
        (*told, *modals.values()),
        (progressive, progressive, *prospect),
        (simple_past,),
        (simple,),
        (*told, simple_past, simple_past, *modals.values()),
        (*told, simple_past, simple_past, *everyday),
        prospect,
    )


def zu_infinitive_of(infinitive: str) -> str:
    """Returns "zu lesen", "anzurufen"."""
    prefix, _, stem = infinitive.rpartition("|")
    return f"{prefix}zu{stem}" if prefix else f"zu {stem}"


def base_of(english: str) -> str:
    """Returns "pick up" for "pick picked picked up"."""
    base, _, _, *particles = english.split()
    return " ".join([base, *particles])


def verbs_with_objects(table: str, style: str, known: bool = False) -> tuple[Verb, ...]:
    """Returns the verbs of a table; if ``known``, they are only said of what is known: "likes the book"."""
    verbs = []
    for english, german, governed, selection in rows(table):
        objects = nouns_among(selection)
        definite = tuple(pool for noun in objects for pool in complements_of(noun, governed, True))
        indefinite = tuple(pool for noun in objects for pool in complements_of(noun, governed, False))
        generic = tuple(pool for noun in objects for pool in complements_of(noun, governed, False, True))
        has_people = any(noun.kind == "person" or noun.kind == "relative" for noun in objects)
        verbs.append(
            Verb(
                base_of(english),
                zu_infinitive_of(german.split()[0]),
                tenses_of(english, german, style),
                governed,
                objects,
                acquaintances() if has_people else people(),
                definite if known else definite + indefinite,
                definite if has_people else generic,
            )
        )
    return tuple(verbs)


@cache
def adverbials(name: str) -> tuple[Complement, ...]:
    """Returns the places, the goals, the cities to go to, or one manner, as complements."""
    if name == "place":
        found = [(place, german) for place, _, german, _ in rows(lexicon.PLACES)]
        found += [(f"in {city}", f"in {german}") for city, german in rows(lexicon.CITIES)]
    elif name == "goal":
        found = [(goal, german) for _, goal, _, german in rows(lexicon.PLACES)]
    elif name == "city":
        found = [(f"to {city}", f"nach {german}") for city, german in rows(lexicon.CITIES)]
    else:
        found = [(name, german) for english, german in rows(lexicon.MANNERS) if english == name]
    return tuple(Complement(f" {english}", f" {german}", f" nicht {german}") for english, german in found)


@cache
def intransitives() -> tuple[Verb, ...]:
    """Returns the verbs without an object."""
    verbs = []
    for english, german, names in rows(lexicon.INTRANSITIVES):
        pools = tuple(adverbials(name) for name in names.split(", "))
        zu_infinitive = zu_infinitive_of(german.split()[0])
        verbs.append(
            Verb(base_of(english), zu_infinitive, tenses_of(english, german, "action"), "", (), people(), pools, pools)
        )
    return tuple(verbs)


@cache
def actions() -> tuple[Verb, ...]:
    """Returns the verbs for what people do."""
    return verbs_with_objects(lexicon.ACTIONS, "action")


@cache
def verbs_in(tense: int) -> tuple[Verb, ...]:
    """Returns all verbs that have a tense."""
    verbs = (
        *actions(),
        *intransitives(),
        *verbs_with_objects(lexicon.THOUGHTS, "thought"),
        *verbs_with_objects(lexicon.ACHIEVEMENTS, "achievement"),
        *verbs_with_objects(lexicon.STATES, "state"),
        *verbs_with_objects(lexicon.ATTITUDES, "state", known=True),
    )
    return tuple(verb for verb in verbs if verb.tenses[tense])


@cache
def verbs_named(names: str) -> tuple[Verb, ...]:
    """Returns the verbs of a list of English verbs."""
    return tuple(verb for verb in verbs_in(TIMELESS) if verb.english in names.split(", "))


@cache
def verbs_about(kind_of_object: str) -> tuple[Verb, ...]:
    """Returns the verbs whose objects are "people", or only "things"."""
    verbs = [verb for verb in verbs_in(QUESTION) if verb.nouns]
    if kind_of_object == "people":
        return tuple(verb for verb in verbs if verb.subjects is acquaintances())
    return tuple(verb for verb in verbs if verb.subjects is people())


# ----------------------------------------------------------------------------------------------------------------------
# Times and dates
# ----------------------------------------------------------------------------------------------------------------------


@cache
def dates() -> tuple[tuple[str, str, str], ...]:
    """Returns the days of the year: "the third of May", "dritte Mai" (nominative), "dritten Mai" (dative)."""
    return tuple(
        (f"the {ordinal_in_english(day)} of {english}", f"{stem}e {german}", f"{stem}en {german}")
        for english, german, days in rows(lexicon.MONTHS)
        for day in range(1, int(days) + 1)
        for stem in [ordinal_in_german(day)]
    )


@cache
def clock_times() -> tuple[Phrase, ...]:
    """Returns the times of the clock, in steps of five minutes: "ten past six" and "zehn nach sechs"."""
    times = []
    for hour in range(1, 13):
        english_hour, german_hour = number_in_english(hour), number_in_german(hour)
        times.append(Phrase(f"{english_hour} o'clock", f"{german_multiplier(hour)} Uhr"))
        for english, german in rows(lexicon.MINUTES):
            named_hour = number_in_german(hour % 12 + 1) if german == "halb" else german_hour
            english = "a " + english if english.startswith("quarter") else english
            times.append(Phrase(f"{english} {english_hour}", f"{german} {named_hour}"))
    return tuple(times)


@cache
def times(table: str) -> Pools:
    """Returns the times of a table, most often, and the weekdays, months and dates."""
    weekdays = tuple(Phrase(f"on {english}", f"am {german}") for english, german in rows(lexicon.WEEKDAYS))
    months = tuple(Phrase(f"in {english}", f"im {german}") for english, german, _ in rows(lexicon.MONTHS))
    days = tuple(Phrase(f"on {english}", f"am {dative}") for english, _, dative in dates())
    return (*[phrases(table)] * 5, weekdays, weekdays, months, days)


# ----------------------------------------------------------------------------------------------------------------------
# Clauses
# ----------------------------------------------------------------------------------------------------------------------


class Clause(NamedTuple):
    """A subject, its verb and what the verb takes, before they are put in order."""

    subject: Subject
    verb: VerbForm
    complement: Complement


def conjugated(draw: Draw, verb: Verb, tense: int, subject: Subject | None = None) -> tuple[Subject, VerbForm]:
    """Draws a subject for a verb, unless it is given, and the form of the verb that agrees with it."""
    subject = subject or draw(draw(verb.subjects))
    return subject, draw(verb.tenses[tense])[subject.person]


def clause(draw: Draw, tense: int, subject: Subject | None = None) -> Clause:
    """Draws a clause with any verb."""
    verb = draw(verbs_in(tense))
    return Clause(*conjugated(draw, verb, tense, subject), draw(draw(verb.complements)))


def clause_about_another(draw: Draw, tense: int, subject: Subject) -> Clause:
    """Draws a clause whose subject is not the one given: nobody says that Anna is sad because Anna is late."""
    drawn = clause(draw, tense)
    while drawn.subject.english == subject.english:
        drawn = clause(draw, tense)
    return drawn


def declarative(clause: Clause) -> Pair:
    """Puts the German verb second, after the subject: "Anna ruft den Arzt an"."""
    subject, verb, complement = clause
    return (
        f"{subject.english} {verb.english}{complement.english}",
        f"{subject.german} {verb.finite}{complement.german}{verb.bracket}",
    )


def after_first_field(clause: Clause) -> Pair:
    """Puts the German verb before its subject, as after "heute"; English does not care."""
    subject, verb, complement = clause
    return (
        f"{subject.english} {verb.english}{complement.english}",
        f"{verb.finite} {subject.german}{complement.german}{verb.bracket}",
    )


def interrogative(clause: Clause) -> Pair:
    """Puts the finite verb before the subject in both languages: "is Anna reading", "liest Anna"."""
    subject, verb, complement = clause
    return (
        f"{verb.auxiliary} {subject.english} {verb.remainder}{complement.english}",
        f"{verb.finite} {subject.german}{complement.german}{verb.bracket}",
    )


def subordinate(clause: Clause) -> Pair:
    """Puts the German verb last, as after "dass": "Anna den Arzt anruft"."""
    subject, verb, complement = clause
    return (
        f"{subject.english} {verb.english}{complement.english}",
        f"{subject.german}{complement.german} {verb.final}",
    )


# ----------------------------------------------------------------------------------------------------------------------
# What particular constructions draw from
# ----------------------------------------------------------------------------------------------------------------------

RELATIVE_PRONOUNS = {**ARTICLES, "plural": ("die", "die", "denen", "deren")}
WHO = Subject("who", "wer", THIRD)
TENSES_AND_TIMES = ((FUTURE, lexicon.FUTURE_TIMES), (PAST, lexicon.PAST_TIMES))
NO_TIME = ""
ADVERB_QUESTIONS = (Phrase("why", "warum"), Phrase("when", "wann"), Phrase("where", "wo"))
PLACEABLE = "key bag book letter newspaper hat knife camera"
OWNABLE = "clothing vehicle thing device home reading"
ANTECEDENTS = "stranger person"
ORDERS = ("affirmation", "affirmation", "negation", "question")
NO_DEGREE = Phrase("", "")
UNGRADED_DEGREES = (NO_DEGREE, Phrase("not ", "nicht "))
DEGREES = (NO_DEGREE, NO_DEGREE, *(Phrase(f"{english} ", f"{german} ") for english, german in rows(lexicon.DEGREES)))
OWNERS_BY_NAME = (
    *POSSESSIVES,
    *(Determiner(f"{name.english}'s", f"{name.english}'s", f"{name.german}s", "none") for name in NAMED_SUBJECTS),
)
# Small numbers come up more often than their share.
NUMBERS = (range(100), *[range(LARGEST_NUMBER + 1)] * 4)
PLURAL_NUMBERS = (range(2, 100), range(2, LARGEST_NUMBER + 1), range(2, LARGEST_NUMBER + 1))
YEARS = range(1900, 2031)


def whom(governed: str) -> str:
    """Returns the question for a person: "wen", "wem", "auf wen"."""
    *preposition, case = governed.split()
    return " ".join([*preposition, "wem" if case == "dat" else "wen"])


@cache
def object_pronouns(governed: str) -> tuple[tuple[Complement, ...], ...]:
    """Returns the personal pronouns as objects, for each person of the subject: nobody acts on "I" or "we" alone."""
    *preposition, case_name = governed.split()
    pronouns = []
    for row, person in zip(PRONOUN_ROWS, PRONOUN_PERSONS, strict=True):
        german = row[4] if case_name == "acc" else row[5]
        phrase = " ".join([*preposition, german])
        negated = f" nicht {phrase}" if preposition else f" {phrase} nicht"
        pronouns.append((Complement(f" {row[1]}", f" {phrase}", negated), person))
    speakers = (FIRST, FIRST_PLURAL)
    return tuple(
        tuple(
            pronoun
            for pronoun, person in pronouns
            if not (subject in speakers and person in speakers) and not subject == person == SECOND
        )
        for subject in range(5)
    )


@cache
def giving_verbs() -> tuple[tuple[Verb, Pools], ...]:
    """Returns the verbs of giving, whose complements are the recipients, each with the gifts."""
    pairs = []
    for english, german, governed, gifts in rows(lexicon.GIVING):
        (verb,) = verbs_with_objects(f"{english}  {german}  {governed}  people", "action", known=True)
        nouns_given = nouns_among(gifts)
        pools = [pool for noun in nouns_given for known in (True, False) for pool in complements_of(noun, "acc", known)]
        pairs.append((verb, tuple(pools)))
    return tuple(pairs)


@cache
def placing_verbs() -> tuple[Verb, ...]:
    """Returns the verbs that put something somewhere, in the sense in which it is known."""
    return verbs_with_objects(lexicon.PLACING, "action", known=True)


@cache
def spatial_phrases(case: str) -> tuple[Complement, ...]:
    """Returns phrases such as "on the table", "auf dem Tisch"; in the accusative "auf den Tisch"."""
    phrases_of_furniture = []
    for english, german in rows(lexicon.SPATIAL_PREPOSITIONS):
        for noun in nouns_among("furniture"):
            for adjective in (None, *noun.adjectives):
                name, german_name = noun_phrase(noun, THE, adjective, False, CASES[case])
                place = f"{german} {german_name}"
                repeated = 1 if adjective else len(noun.adjectives)
                phrases_of_furniture += [Complement(f" {english} {name}", f" {place}", f" nicht {place}")] * repeated
    return tuple(phrases_of_furniture)


@cache
def resting_verbs() -> tuple[tuple[str, str, str], ...]:
    """Returns what animals do, in English and in the German singular and plural."""
    return tuple((english, singular, plural) for english, singular, plural in rows(lexicon.RESTING))


@cache
def comparatives() -> tuple[tuple[str, str, Pools], ...]:
    """Returns the comparatives with pools of what is compared; two different pools make a comparison."""
    collected = []
    for english, german, selection in rows(lexicon.COMPARATIVES):
        pools = tuple(nominatives(noun)[PLAIN] for noun in nouns_among(selection))
        collected.append((english, german, (*pools, NAMED_SUBJECTS) if "people" in selection else pools))
    return tuple(collected)


@cache
def owners() -> tuple[tuple[str, str], ...]:
    """Returns people as owners: "the old teacher's", "des alten Lehrers"."""
    found = []
    for noun in nouns_among("people"):
        for determiner, plural in definite_determiners(noun):
            if not plural:
                english, german = noun_phrase(noun, determiner, None, False, GENITIVE)
                found.append((f"{english}'s", german))
    return tuple(found)


@cache
def possessions(noun: Noun, case: int) -> tuple[Pools, Pools]:
    """Returns what somebody has, in English, German and person: "Annas Auto", but "das Auto des Lehrers"."""

    def by_name(determiner: Determiner, adjective: Adjective | None, plural: bool) -> tuple[str, str, int]:
        return *noun_phrase(noun, determiner, adjective, plural, case), THIRD_PLURAL if plural else THIRD

    def by_person(owner: tuple[str, str], adjective: Adjective | None, plural: bool) -> tuple[str, str, int]:
        english_owner, german_owner = owner
        english, _ = noun_phrase(noun, BARE, adjective, plural, case)
        _, german = noun_phrase(noun, THE, adjective, plural, case)
        return f"{english_owner} {english}", f"{german} {german_owner}", THIRD_PLURAL if plural else THIRD

    numbers = (False, True)
    names = [(name, plural) for name in OWNERS_BY_NAME[len(POSSESSIVES) :] for plural in numbers]
    people_who_own = [(owner, plural) for owner in owners() for plural in numbers]
    return shapes(noun, names, by_name), shapes(noun, people_who_own, by_person)


@cache
def questioned(noun: Noun, governed: str) -> Pools:
    """Returns a noun after "which": "which coat", "welchen Mantel", "auf welchen Lehrer"."""
    *preposition, case = governed.split()

    def build(determiner: Determiner, adjective: Adjective | None, plural: bool) -> Phrase:
        english, german = noun_phrase(noun, determiner, adjective, plural, CASES[case])
        return Phrase(english, " ".join([*preposition, german]))

    return shapes(noun, [(WHICH, False), (WHICH, True)] if noun.english_plural else [(WHICH, False)], build)


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
def coreferents() -> tuple[tuple[Subject, Subject], ...]:
    """Returns subjects with the pronouns that refer to them."""
    pronouns = {pronoun.english: pronoun for pronoun in PRONOUN_SUBJECTS}
    named = tuple((Subject(name, name, THIRD), pronouns[pronoun]) for name, pronoun in rows(lexicon.NAMES))
    return (*named, *((pronoun, pronoun) for pronoun in PRONOUN_SUBJECTS))


@cache
def infinitive_verbs() -> tuple[tuple[str, str, tuple[str, ...], str], ...]:
    """Returns the verbs that take an infinitive with "zu", with the German right bracket."""
    return tuple(
        (singular, plural, conjugate(german, german_third), "" if bracket == "-" else f" {bracket}")
        for singular, plural, german, german_third, bracket in rows(lexicon.INFINITIVE_VERBS)
    )


@cache
def days_of_travel() -> tuple[Phrase, ...]:
    """Returns "today", "tomorrow" and the weekdays."""
    weekdays = [Phrase(f"on {english}", f"am {german}") for english, german in rows(lexicon.WEEKDAYS)]
    return (*phrases(lexicon.FUTURE_TIMES)[:2], *weekdays)


# ----------------------------------------------------------------------------------------------------------------------
# Constructions: main clauses
# ----------------------------------------------------------------------------------------------------------------------


def statement(draw: Draw) -> Pair:
    """Anna is buying a red car. - Anna kauft ein rotes Auto."""
    english, german = declarative(clause(draw, TIMELESS))
    return f"{english}.", f"{german}."


def statement_with_time(draw: Draw) -> Pair:
    """Anna bought a red car yesterday. - Anna hat gestern ein rotes Auto gekauft."""
    tense, table = draw(TENSES_AND_TIMES)
    subject, verb, complement = clause(draw, tense)
    time = draw(draw(times(table)))
    return (
        f"{subject.english} {verb.english}{complement.english} {time.english}.",
        f"{subject.german} {verb.finite} {time.german}{complement.german}{verb.bracket}.",
    )


def time_first(draw: Draw) -> Pair:
    """On Monday Anna is buying a red car. - Am Montag kauft Anna ein rotes Auto."""
    tense, table = draw(TENSES_AND_TIMES)
    time = draw(draw(times(table)))
    english, german = after_first_field(clause(draw, tense))
    return f"{time.english} {english}.", f"{time.german} {german}."


def appointment(draw: Draw) -> Pair:
    """Anna will call the doctor at half past seven. - Anna wird um halb acht den Arzt anrufen."""
    tense, _ = draw(TENSES_AND_TIMES)
    verb = draw(verbs_named(lexicon.APPOINTMENTS))
    subject, form = conjugated(draw, verb, tense)
    complement = draw(draw(verb.complements))
    time = draw(clock_times())
    return (
        f"{subject.english} {form.english}{complement.english} at {time.english}.",
        f"{subject.german} {form.finite} um {time.german}{complement.german}{form.bracket}.",
    )


def habit(draw: Draw) -> Pair:
    """Anna often reads old books. - Anna liest oft alte Bücher."""
    verb = draw(verbs_in(HABIT))
    subject, form = conjugated(draw, verb, HABIT)
    complement = draw(draw(verb.habits))
    frequency = draw(phrases(lexicon.FREQUENCIES))
    return (
        f"{subject.english} {frequency.english} {form.english}{complement.english}.",
        f"{subject.german} {form.finite} {frequency.german}{complement.german}{form.bracket}.",
    )


def negation(draw: Draw) -> Pair:
    """Anna is not buying a car. - Anna kauft kein Auto. / Anna did not buy it. - Anna hat es nicht gekauft."""
    subject, verb, complement = clause(draw, NEGATION)
    return (
        f"{subject.english} {verb.negated}{complement.english}.",
        f"{subject.german} {verb.finite}{complement.negated}{verb.bracket}.",
    )


def action_at_place(draw: Draw) -> Pair:
    """Anna is reading the book in the park. - Anna liest das Buch im Park. But: Anna liest im Park ein Buch."""
    verb = draw(verbs_named(lexicon.LOCATED))
    subject, form = conjugated(draw, verb, TIMELESS)
    place = draw(adverbials("place"))
    definite = draw((True, False))
    complement = draw(draw(complements_of(draw(verb.nouns), verb.governed, definite)))
    middle = complement.german + place.german if definite else place.german + complement.german
    return (
        f"{subject.english} {form.english}{complement.english}{place.english}.",
        f"{subject.german} {form.finite}{middle}{form.bracket}.",
    )


def pronoun_object(draw: Draw) -> Pair:
    """Anna is not waiting for him. - Anna wartet nicht auf ihn."""
    verb = draw(verbs_about("people"))
    negative = draw((False, False, True))
    subject, form = conjugated(draw, verb, NEGATION if negative else TIMELESS)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    english = with_pronoun(form.negated if negative else form.english, pronoun)
    german = pronoun.negated if negative else pronoun.german
    return f"{subject.english} {english}.", f"{subject.german} {form.finite}{german}{form.bracket}."


def pronoun_object_with_time(draw: Draw) -> Pair:
    """Anna picked him up yesterday. - Anna hat ihn gestern abgeholt. But: Anna hat gestern auf ihn gewartet."""
    tense, table = draw(TENSES_AND_TIMES)
    verb = draw(verbs_about("people"))
    while not verb.tenses[tense]:
        verb = draw(verbs_about("people"))
    subject, form = conjugated(draw, verb, tense)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    time = draw(draw(times(table)))
    english = with_pronoun(form.english, pronoun)
    stands_before_time = verb.governed in CASES
    german = f"{pronoun.german} {time.german}" if stands_before_time else f" {time.german}{pronoun.german}"
    return (
        f"{subject.english} {english} {time.english}.",
        f"{subject.german} {form.finite}{german}{form.bracket}.",
    )


def with_pronoun(english_verb: str, pronoun: Complement) -> str:
    """Returns "called him" and "waited for him", but "picked him up"."""
    particle = " up" if english_verb.endswith(" up") else ""
    return english_verb.removesuffix(particle) + pronoun.english + particle


def giving(draw: Draw) -> Pair:
    """Anna is giving the old man a red apple. - Anna gibt dem alten Mann einen roten Apfel."""
    verb, gifts = draw(giving_verbs())
    subject, form = conjugated(draw, verb, TIMELESS)
    recipient, gift = draw(draw(verb.complements)), draw(draw(gifts))
    return (
        f"{subject.english} {form.english}{recipient.english}{gift.english}.",
        f"{subject.german} {form.finite}{recipient.german}{gift.german}{form.bracket}.",
    )


def companionship(draw: Draw) -> Pair:
    """Anna is going to the park with her friend. - Anna geht mit ihrem Freund in den Park."""
    verb = draw(verbs_named("go, run, drive, travel, fly, work, dance, sing"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(draw(acquaintances())))
    preposition, governed = draw((("with", "mit dat"), ("without", "ohne acc")))
    companion = draw(draw(complements_of(draw(nouns_among("people")), governed, True)))
    complement = draw(draw(verb.complements))
    return (
        f"{subject.english} {form.english}{complement.english} {preposition}{companion.english}.",
        f"{subject.german} {form.finite}{companion.german}{complement.german}{form.bracket}.",
    )


def placing(draw: Draw) -> Pair:
    """Anna is putting the key on the table. - Anna legt den Schlüssel auf den Tisch."""
    verb = draw(placing_verbs())
    subject, form = conjugated(draw, verb, TIMELESS)
    thing, goal = draw(draw(verb.complements)), draw(spatial_phrases("acc"))
    return (
        f"{subject.english} {form.english}{thing.english}{goal.english}.",
        f"{subject.german} {form.finite}{thing.german}{goal.german}{form.bracket}.",
    )


def position(draw: Draw) -> Pair:
    """The key is not on the table. - Der Schlüssel ist nicht auf dem Tisch. / Is the key on the table?"""
    thing = draw(draw(nominatives(draw(nouns_among(PLACEABLE)))))
    place = draw(spatial_phrases("dat"))
    is_, ist = draw(((BE, SEIN), (WAS, WAR)))
    is_, ist = is_[thing.person], ist[thing.person]
    order = draw(ORDERS)
    if order == "question":
        return f"{is_} {thing.english}{place.english}?", f"{ist} {thing.german}{place.german}?"
    if order == "negation":
        return f"{thing.english} {is_} not{place.english}.", f"{thing.german} {ist}{place.negated}."
    return f"{thing.english} {is_}{place.english}.", f"{thing.german} {ist}{place.german}."


def resting_animal(draw: Draw) -> Pair:
    """The old dog is sleeping under the table. - Der alte Hund schläft unter dem Tisch."""
    animal = draw(draw(nominatives(draw(nouns_among("dog cat")))))
    english, singular, plural = draw(resting_verbs())
    place = draw(spatial_phrases("dat") if draw((True, False)) else adverbials("place")[:5])
    verb = plural if animal.person == THIRD_PLURAL else singular
    return f"{animal.english} {BE[animal.person]} {english}{place.english}.", f"{animal.german} {verb}{place.german}."


def existence(draw: Draw) -> Pair:
    """There is no old castle in Rome. - In Rom gibt es kein altes Schloss. / Is there an old castle in Rome?"""
    sight = draw(draw(complements_of(draw(nouns_among("building home lake")), "acc", False)))
    city = draw(phrases(lexicon.CITIES))
    is_, gibt = draw((("are", "gibt"), ("were", "gab")) if sight.plural else (("is", "gibt"), ("was", "gab")))
    order = draw(ORDERS)
    if order == "question":
        return f"{is_} there{sight.english} in {city.english}?", f"{gibt} es in {city.german}{sight.german}?"
    if order == "negation":
        words = sight.english if sight.plural else sight.english.removeprefix(" an").removeprefix(" a")
        return f"there {is_} no{words} in {city.english}.", f"in {city.german} {gibt} es{sight.negated}."
    return f"there {is_}{sight.english} in {city.english}.", f"in {city.german} {gibt} es{sight.german}."


def description(draw: Draw) -> Pair:
    """The soup was too hot. - Die Suppe war zu heiß. / Is the soup hot? - Ist die Suppe heiß?"""
    noun = draw(nouns())
    thing = draw(nominatives(noun)[PLAIN])
    adjective = draw(noun.adjectives)
    is_, ist = draw(((BE, SEIN), (WAS, WAR)))
    is_, ist = is_[thing.person], ist[thing.person]
    if draw((False, False, True)):
        return f"{is_} {thing.english} {adjective.english}?", f"{ist} {thing.german} {adjective.german}?"
    degree = draw(DEGREES if adjective.english not in lexicon.UNGRADED.split() else UNGRADED_DEGREES)
    return (
        f"{thing.english} {is_} {degree.english}{adjective.english}.",
        f"{thing.german} {ist} {degree.german}{adjective.german}.",
    )


def comparison(draw: Draw) -> Pair:
    """My brother is taller than Anna. - Mein Bruder ist größer als Anna."""
    english, german, compared = draw(comparatives())
    first = draw(compared)
    second = draw(compared)
    while second is first:
        second = draw(compared)
    first, second = draw(first), draw(second)
    return (
        f"{first.english} {BE[first.person]} {english} than {second.english}.",
        f"{first.german} {SEIN[first.person]} {german} als {second.german}.",
    )


def possession(draw: Draw) -> Pair:
    """Anna's old car is expensive. - Annas altes Auto ist teuer. / the teacher's car - das Auto des Lehrers"""
    noun = draw(nouns_among(OWNABLE))
    adjective = draw(noun.adjectives)
    english, german, person = draw(draw(possessions(noun, NOMINATIVE))[PLAIN])
    return f"{english} {BE[person]} {adjective.english}.", f"{german} {SEIN[person]} {adjective.german}."


def possession_as_object(draw: Draw) -> Pair:
    """We have repaired the teacher's car. - Wir haben das Auto des Lehrers repariert."""
    verb = draw(verbs_named("sell, repair, use, look for, find, see, read, wash, like"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(PRONOUN_SUBJECTS))
    english, german, _ = draw(draw(draw(possessions(draw(verb.nouns), ACCUSATIVE))))
    return f"{subject.english} {form.english} {english}.", f"{subject.german} {form.finite} {german}{form.bracket}."


# ----------------------------------------------------------------------------------------------------------------------
# Constructions: questions
# ----------------------------------------------------------------------------------------------------------------------


def yes_no_question(draw: Draw) -> Pair:
    """Did Anna buy the car? - Hat Anna das Auto gekauft?"""
    english, german = interrogative(clause(draw, QUESTION))
    return f"{english}?", f"{german}?"


def adverb_question(draw: Draw) -> Pair:
    """Why is Anna calling the doctor? - Warum ruft Anna den Arzt an?"""
    word = draw(ADVERB_QUESTIONS)
    verb = draw(verbs_named(lexicon.LOCATED) if word.english == "where" else actions())
    subject, form = conjugated(draw, verb, QUESTION)
    english, german = interrogative(Clause(subject, form, draw(draw(verb.complements))))
    return f"{word.english} {english}?", f"{word.german} {german}?"


def object_question(draw: Draw) -> Pair:
    """What did Anna buy yesterday? - Was hat Anna gestern gekauft? / Whom is Anna helping? - Wem hilft Anna?"""
    english_word, verbs = draw((("what", verbs_asked_by_what()), ("whom", verbs_about("people"))))
    verb = draw(verbs)
    german_word = "was" if english_word == "what" else whom(verb.governed)
    tense, time = draw(((QUESTION, NO_TIME), (FUTURE, lexicon.FUTURE_TIMES), (PAST, lexicon.PAST_TIMES)))
    if time is NO_TIME or not verb.tenses[tense]:
        tense, english_time, german_time = QUESTION, "", ""
    else:
        english_time, german_time = draw(phrases(time))
        english_time, german_time = f" {english_time}", f" {german_time}"
    subject, form = conjugated(draw, verb, tense)
    return (
        f"{english_word} {form.auxiliary} {subject.english} {form.remainder}{english_time}?",
        f"{german_word} {form.finite} {subject.german}{german_time}{form.bracket}?",
    )


def subject_question(draw: Draw) -> Pair:
    """Who has read the newspaper? - Wer hat die Zeitung gelesen?"""
    english, german = declarative(clause(draw, TIMELESS, WHO))
    return f"{english}?", f"{german}?"


def which_question(draw: Draw) -> Pair:
    """Which coat is Anna trying on? - Welchen Mantel probiert Anna an?"""
    verb = draw(verbs_in(QUESTION))
    while not verb.nouns:
        verb = draw(verbs_in(QUESTION))
    subject, form = conjugated(draw, verb, QUESTION)
    noun = draw(verb.nouns)
    while noun.kind == "relative":  # one has only one father
        noun = draw(nouns_among(ANTECEDENTS))
    english, german = draw(draw(questioned(noun, verb.governed)))
    return (
        f"{english} {form.auxiliary} {subject.english} {form.remainder}?",
        f"{german} {form.finite} {subject.german}{form.bracket}?",
    )


def reference(draw: Draw) -> Pair:
    """Where is my red cup? It is on the table. - Wo ist meine rote Tasse? Sie ist auf dem Tisch."""
    noun = draw(nouns_among(PLACEABLE))
    thing = draw(draw(nominatives(noun)))
    place = draw(spatial_phrases("dat"))
    is_, ist = BE[thing.person], SEIN[thing.person]
    plural = thing.person == THIRD_PLURAL
    it, er = ("They", "Sie") if plural else ("It", PRONOUNS_OF_THINGS[noun.gender].capitalize())
    return (
        f"where {is_} {thing.english}? {it} {is_}{place.english}.",
        f"wo {ist} {thing.german}? {er} {ist}{place.german}.",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Constructions: more than one clause
# ----------------------------------------------------------------------------------------------------------------------


def coordination(draw: Draw) -> Pair:
    """Anna is reading a book, but Peter is sleeping. - Anna liest ein Buch, aber Peter schläft."""
    english_conjunction, german_conjunction = draw(((" and", " und"), (", but", ", aber")))
    first = clause(draw, TIMELESS)
    english_first, german_first = declarative(first)
    english_second, german_second = declarative(clause_about_another(draw, TIMELESS, first.subject))
    return (
        f"{english_first}{english_conjunction} {english_second}.",
        f"{german_first}{german_conjunction} {german_second}.",
    )


def objection(draw: Draw) -> Pair:
    """Anna wants to buy the coat, but it is too expensive. - Anna will den Mantel kaufen, aber er ist zu teuer."""
    verb = draw(verbs_named("buy, read, wear, use, rent, repair, look for, need, have, like"))
    noun = draw(verb.nouns)
    adjective = draw(noun.adjectives)
    subject, form = conjugated(draw, verb, TIMELESS)
    thing = draw(complements_of(noun, verb.governed, True)[PLAIN])
    degree = draw(DEGREES if adjective.english not in lexicon.UNGRADED.split() else UNGRADED_DEGREES)
    it, er, is_, ist = (
        ("they", "sie", "are", "sind") if thing.plural else ("it", PRONOUNS_OF_THINGS[noun.gender], "is", "ist")
    )
    return (
        f"{subject.english} {form.english}{thing.english}, but {it} {is_} {degree.english}{adjective.english}.",
        f"{subject.german} {form.finite}{thing.german}{form.bracket}, "
        f"aber {er} {ist} {degree.german}{adjective.german}.",
    )


def relative_subject(draw: Draw) -> Pair:
    """The man who bought the car is rich. - Der Mann, der das Auto gekauft hat, ist reich."""
    noun = draw(nouns_among(ANTECEDENTS))
    person = draw(antecedents(noun)[PLAIN])
    verb = draw(verbs_of_bystanders())
    form = draw(verb.tenses[TIMELESS])[person.person]
    complement = draw(draw(verb.complements))
    adjective = draw(noun.adjectives)
    pronoun = RELATIVE_PRONOUNS[person.gender][NOMINATIVE]
    return (
        f"{person.english} who {form.english}{complement.english} {BE[person.person]} {adjective.english}.",
        f"{person.german[NOMINATIVE]}, {pronoun}{complement.german} {form.final}, "
        f"{SEIN[person.person]} {adjective.german}.",
    )


def relative_after_object(draw: Draw) -> Pair:
    """I am calling the man who sold the car. - Ich rufe den Mann an, der das Auto verkauft hat."""
    matrix = draw(verbs_about("people"))
    subject, matrix_form = conjugated(draw, matrix, TIMELESS)
    person = draw(draw(antecedents(draw(nouns_among(ANTECEDENTS)))))
    *preposition, case = matrix.governed.split()
    german_person = " ".join([*preposition, person.german[CASES[case]]])
    verb = draw(verbs_of_bystanders())
    form = draw(verb.tenses[TIMELESS])[person.person]
    complement = draw(draw(verb.complements))
    pronoun = RELATIVE_PRONOUNS[person.gender][NOMINATIVE]
    return (
        f"{subject.english} {matrix_form.english} {person.english} who {form.english}{complement.english}.",
        f"{subject.german} {matrix_form.finite} {german_person}{matrix_form.bracket}, "
        f"{pronoun}{complement.german} {form.final}.",
    )


def relative_object(draw: Draw) -> Pair:
    """The woman whom Peter is helping is tired. - Die Frau, der Peter hilft, ist müde."""
    verb = draw(verbs_about(draw(("people", "things"))))
    noun = draw(verb.nouns)
    while noun.kind == "relative":
        noun = draw(nouns_among(ANTECEDENTS))
    antecedent = draw(antecedents(noun)[PLAIN])
    subject, form = conjugated(draw, verb, TIMELESS)
    *preposition, case = verb.governed.split()
    pronoun = " ".join([*preposition, RELATIVE_PRONOUNS[antecedent.gender][CASES[case]]])
    adjective = draw(noun.adjectives)
    relative = "whom" if noun.kind in ("person", "stranger") else "that"
    return (
        f"{antecedent.english} {relative} {subject.english} {form.english} "
        f"{BE[antecedent.person]} {adjective.english}.",
        f"{antecedent.german[NOMINATIVE]}, {pronoun} {subject.german} {form.final}, "
        f"{SEIN[antecedent.person]} {adjective.german}.",
    )


def reported_clause(draw: Draw) -> Pair:
    """I know that Anna has read the book. - Ich weiß, dass Anna das Buch gelesen hat. / whether - ob"""
    report = draw(phrases(lexicon.REPORTS))
    english, german = subordinate(clause(draw, TIMELESS))
    return f"{report.english} {english}.", f"{report.german} {german}."


def cause(draw: Draw) -> Pair:
    """Anna is sad because she has lost the key. - Anna ist traurig, weil sie den Schlüssel verloren hat."""
    emotion = draw(phrases(lexicon.EMOTIONS))
    subject, pronoun = draw(coreferents())
    about_the_same = draw((True, False))
    reason = clause(draw, TIMELESS, pronoun) if about_the_same else clause_about_another(draw, TIMELESS, subject)
    english, german = subordinate(reason)
    return (
        f"{subject.english} {BE[subject.person]} {emotion.english} because {english}.",
        f"{subject.german} {SEIN[subject.person]} {emotion.german}, weil {german}.",
    )


def concession(draw: Draw) -> Pair:
    """Although Anna is tired, she has to work. - Obwohl Anna müde ist, muss sie arbeiten."""
    handicap = draw(phrases(lexicon.HANDICAPS))
    subject, pronoun = draw(coreferents())
    english, german = after_first_field(clause(draw, TIMELESS, pronoun))
    return (
        f"although {subject.english} {BE[subject.person]} {handicap.english}, {english}.",
        f"obwohl {subject.german} {handicap.german} {SEIN[subject.person]}, {german}.",
    )


def condition(draw: Draw) -> Pair:
    """If Anna sells the house, Peter will be sad. - Wenn Anna das Haus verkauft, wird Peter traurig sein."""
    subject = draw(draw(acquaintances()))
    english, german = subordinate(clause_about_another(draw, HABIT, subject))
    emotion = draw(phrases(lexicon.EMOTIONS))
    return (
        f"if {english}, {subject.english} will be {emotion.english}.",
        f"wenn {german}, {WERDEN[subject.person]} {subject.german} {emotion.german} sein.",
    )


def weather_condition(draw: Draw) -> Pair:
    """If it rains, we will stay at home. - Wenn es regnet, werden wir zu Hause bleiben."""
    weather = draw(phrases(lexicon.WEATHER))
    english, german = after_first_field(clause(draw, PROSPECT))
    return f"if {weather.english}, {english}.", f"wenn {weather.german}, {german}."


def infinitive(draw: Draw) -> Pair:
    """Anna has forgotten to call the doctor. - Anna hat vergessen, den Arzt anzurufen."""
    english_singular, english_plural, finites, bracket = draw(infinitive_verbs())
    verb = draw(actions() if draw((True, True, False)) else intransitives())
    subject = draw(draw(verb.subjects))
    complement = draw(draw(verb.complements))
    english_verb = english_singular if subject.person == THIRD else english_plural
    if subject.person == FIRST:  # "are trying", but "I am trying"
        english_verb = english_verb.replace("are ", "am ")
    return (
        f"{subject.english} {english_verb} {verb.english}{complement.english}.",
        f"{subject.german} {finites[subject.person]}{bracket},{complement.german} {verb.zu_infinitive}.",
    )


def purpose(draw: Draw) -> Pair:
    """Anna is going to the city to buy a coat. - Anna geht in die Stadt, um einen Mantel zu kaufen."""
    verb = draw(verbs_named(lexicon.PURPOSES))
    motion = draw(verbs_named("go, run, drive, travel, fly"))
    subject, form = conjugated(draw, motion, TIMELESS, draw(draw(verb.subjects)))
    goal = draw(draw(motion.complements))
    complement = draw(draw(verb.complements))
    return (
        f"{subject.english} {form.english}{goal.english} to {verb.english}{complement.english}.",
        f"{subject.german} {form.finite}{goal.german}{form.bracket}, um{complement.german} {verb.zu_infinitive}.",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Constructions: numbers, dates and times
# ----------------------------------------------------------------------------------------------------------------------


def price(draw: Draw) -> Pair:
    """The new car costs four thousand euros. - Das neue Auto kostet viertausend Euro."""
    thing = draw(draw(nominatives(draw(nouns_among("goods")))))
    number = draw(draw(PLURAL_NUMBERS))
    costs, kostet = ("cost", "kosten") if thing.person == THIRD_PLURAL else ("costs", "kostet")
    return (
        f"{thing.english} {costs} {number_in_english(number)} euros.",
        f"{thing.german} {kostet} {number_in_german(number)} Euro.",
    )


def counting(draw: Draw) -> Pair:
    """Anna has sold thirty-one apples. - Anna hat einunddreißig Äpfel verkauft."""
    verb = draw(verbs_named(lexicon.COUNTED))
    subject, form = conjugated(draw, verb, TIMELESS)
    noun = draw(verb.nouns)
    while not noun.german_plural:
        noun = draw(verb.nouns)
    number = draw(PLURAL_NUMBERS[0])
    return (
        f"{subject.english} {form.english} {number_in_english(number)} {noun.english_plural}.",
        f"{subject.german} {form.finite} {number_in_german(number)} {noun.german_plural[ACCUSATIVE]}{form.bracket}.",
    )


def how_many(draw: Draw) -> Pair:
    """How many books has Anna sold? - Wie viele Bücher hat Anna verkauft?"""
    verb = draw(verbs_named(lexicon.COUNTED))
    subject, form = conjugated(draw, verb, QUESTION)
    noun = draw(verb.nouns)
    while not noun.german_plural:
        noun = draw(verb.nouns)
    return (
        f"how many {noun.english_plural} {form.auxiliary} {subject.english} {form.remainder}?",
        f"wie viele {noun.german_plural[ACCUSATIVE]} {form.finite} {subject.german}{form.bracket}?",
    )


def age(draw: Draw) -> Pair:
    """My old neighbour is ninety-one years old. - Mein alter Nachbar ist einundneunzig Jahre alt."""
    subject = draw(draw(people()))
    number = draw(PLURAL_NUMBERS[0])
    return (
        f"{subject.english} {BE[subject.person]} {number_in_english(number)} years old.",
        f"{subject.german} {SEIN[subject.person]} {number_in_german(number)} Jahre alt.",
    )


def naming_a_number(draw: Draw) -> Pair:
    """My number is seven hundred and eight. - Meine Nummer ist siebenhundertacht."""
    owner = draw(OWNERS_BY_NAME)
    number = draw(draw(NUMBERS))
    return (
        f"{owner.english} number is {number_in_english(number)}.",
        f"{decline_determiner(owner, 'feminine', NOMINATIVE)} Nummer ist {number_in_german(number)}.",
    )


def year(draw: Draw) -> Pair:
    """Anna bought the house in the year two thousand and one. - Anna hat das Haus im Jahr zweitausendeins gekauft."""
    verb = draw(verbs_named(lexicon.HISTORIC))
    subject, form = conjugated(draw, verb, PAST)
    complement = draw(draw(verb.complements))
    number = draw(YEARS)
    return (
        f"{subject.english} {form.english}{complement.english} in the year {number_in_english(number)}.",
        f"{subject.german} {form.finite} im Jahr {number_in_german(number)}{complement.german}{form.bracket}.",
    )


def addition(draw: Draw) -> Pair:
    """Seven plus eight is fifteen. - Sieben plus acht ist fünfzehn."""
    first, second = draw(NUMBERS[0]), draw(NUMBERS[0])
    total = first + second
    return (
        f"{number_in_english(first)} plus {number_in_english(second)} is {number_in_english(total)}.",
        f"{number_in_german(first)} plus {number_in_german(second)} ist {number_in_german(total)}.",
    )


def departure(draw: Draw) -> Pair:
    """On Monday the train to Rome leaves at half past six. - Am Montag fährt der Zug nach Rom um halb sieben ab."""
    day = draw(days_of_travel())
    vehicle, city, time = draw(phrases(lexicon.TRANSPORT)), draw(phrases(lexicon.CITIES)), draw(clock_times())
    if draw((True, False)):
        return (
            f"{day.english} the {vehicle.english} to {city.english} leaves at {time.english}.",
            f"{day.german} fährt {vehicle.german} nach {city.german} um {time.german} ab.",
        )
    return (
        f"{day.english} the {vehicle.english} from {city.english} arrives at {time.english}.",
        f"{day.german} kommt {vehicle.german} aus {city.german} um {time.german} an.",
    )


def time_of_day(draw: Draw) -> Pair:
    """It is already ten past six. - Es ist schon zehn nach sechs."""
    adverb, time = draw(phrases(lexicon.PUNCTUALITY)), draw(clock_times())
    return f"it is {adverb.english} {time.english}.", f"es ist {adverb.german} {time.german}."


def calendar_day(draw: Draw) -> Pair:
    """Today is Monday, the third of May. - Heute ist Montag, der dritte Mai."""
    english, nominative, _ = draw(dates())
    day, weekday = draw(phrases(lexicon.FUTURE_TIMES)[:2]), draw(phrases(lexicon.WEEKDAYS))
    return (
        f"{day.english} is {weekday.english}, {english}.",
        f"{day.german} ist {weekday.german}, der {nominative}.",
    )


def birthday(draw: Draw) -> Pair:
    """Anna's birthday is on the third of May. - Annas Geburtstag ist am dritten Mai."""
    english, _, dative = draw(dates())
    owner = draw(OWNERS_BY_NAME)
    return (
        f"{owner.english} birthday is on {english}.",
        f"{decline_determiner(owner, 'masculine', NOMINATIVE)} Geburtstag ist am {dative}.",
    )


# ----------------------------------------------------------------------------------------------------------------------
# The phrasebook
# ----------------------------------------------------------------------------------------------------------------------

# How often each construction comes up, relative to the others.
WEIGHTS: dict[Callable[[Draw], Pair], int] = {
    statement: 16,
    statement_with_time: 14,
    time_first: 14,
    appointment: 5,
    habit: 8,
    negation: 14,
    action_at_place: 8,
    pronoun_object: 3,
    pronoun_object_with_time: 4,
    giving: 8,
    companionship: 6,
    placing: 4,
    position: 5,
    resting_animal: 2,
    existence: 2,
    description: 6,
    comparison: 5,
    possession: 5,
    possession_as_object: 4,
    yes_no_question: 12,
    adverb_question: 8,
    object_question: 4,
    subject_question: 4,
    which_question: 5,
    reference: 4,
    coordination: 6,
    objection: 6,
    relative_subject: 8,
    relative_after_object: 6,
    relative_object: 8,
    reported_clause: 12,
    cause: 10,
    concession: 5,
    condition: 6,
    weather_condition: 4,
    infinitive: 8,
    purpose: 6,
    price: 6,
    counting: 5,
    how_many: 2,
    age: 3,
    naming_a_number: 5,
    year: 4,
    addition: 2,
    departure: 3,
    time_of_day: 1,
    calendar_day: 2,
    birthday: 2,
}
CONSTRUCTIONS = tuple(construction for construction, weight in WEIGHTS.items() for _ in range(weight))

SPLITS = ("train", "validation", "test")
# Of twenty English sentences one is for validation and one for test.
SPLIT_OF_REMAINDER = ("validation", "test", *["train"] * 18)


def split_of(english: str) -> str:
    """Returns the split that an English sentence belongs to, which nothing but the sentence itself decides."""
    return SPLIT_OF_REMAINDER[crc32(english.encode()) % 20]


def phrasebook(split: str = "train", *, seed: int = 0) -> Iterator[dict[str, str]]:
    """Endless stream of English-German sentence pairs.

    The same split and seed give the same sentences in every process. No sentence is in two splits, whatever their
    seeds, because the sentence itself decides where it belongs; so a stream leaves out the sentences of the others.

    Args:
        split: "train", "validation" or "test".
        seed: Which of the streams of the split.

    Returns:
        An iterator over pairs such as ``{"en": "Anna is sleeping.", "de": "Anna schläft."}``.

    Raises:
        ValueError: If there is no such split.
    """
    if split not in SPLITS:
        raise ValueError(f'split must be "train", "validation" or "test", got {split!r}')
    return sentences(split, seed)


def sentences(split: str, seed: int) -> Iterator[dict[str, str]]:
    """Yields the sentence pairs of :func:`phrasebook`."""
    random = Random(f"phrasebook {seed}").random

    def draw(pool: Sequence[Any]) -> Any:
        return pool[int(random() * len(pool))]

    while True:
        english, german = draw(CONSTRUCTIONS)(draw)
        english = english[0].upper() + english[1:]
        if split_of(english) == split:
            yield {"en": english, "de": german[0].upper() + german[1:]}
