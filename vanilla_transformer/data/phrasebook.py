"""An endless English-German phrasebook: sentence pairs from a small grammar of both languages.

The phrasebook is the corpus that needs no download. A few hundred words make millions of sentences, and the German has
what makes German hard: gender and case, verb-second and verb-final order, separable verbs, *nicht* and *kein*, relative
clauses. Every English sentence has one German translation, so that a small Transformer can learn the whole mapping.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple
from zlib import crc32

from . import phrasebook_lexicon as lexicon


# Of every four English sentences, one is for validation, one for test and two are for training.
SPLIT_OF_REMAINDER = ("validation", "test", "train", "train")

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
THIRD, THIRD_PLURAL = 2, 4  # of five persons: I, you, she, we, they
# The order of what German puts after its verb: "Anna gibt ihm | heute | ein Buch", "wartet | heute | nicht | auf ihn".
KNOWN, TIME, NOT, NEW = range(4)

# Endings in the three cases of masculine, feminine, neuter and plural; "-" is no ending.
DER = {"m": "er en em", "f": "ie ie er", "n": "as as em", "p": "ie ie en"}
STRONG = {"m": "er en em", "f": "e e er", "n": "es es em", "p": "e e en"}
EIN = {"m": "- en em", "f": "e e er", "n": "- - em", "p": "e e en"}
NONE = dict.fromkeys("mfnp", "- - -")
WEAK = {"m": "e en en", "f": "e e en", "n": "e e en", "p": "en en en"}

# English article in the singular and the plural, German stem and its endings.
A, SOME, NO = ("a", "", "ein", EIN), ("", "", "", NONE), ("a", "", "kein", EIN)
THE, THIS, WHICH = ("the", "the", "d", DER), ("this", "these", "dies", STRONG), ("which", "which", "welch", STRONG)

BE, DO = ("am", "are", "is", "are", "are"), ("do", "do", "does", "do", "do")
HABEN_AND_SEIN = {"hat": ("habe", "hast", "hat", "haben", "haben"), "ist": ("bin", "bist", "ist", "sind", "sind")}


def phrasebook(split: str = "train", *, seed: int = 0) -> Iterator[dict[str, str]]:
    """Endless stream of sentence pairs such as ``{"en": "Anna is sleeping.", "de": "Anna schläft."}``.

    The same split and seed give the same sentences in every process. No sentence is in two splits, whatever their
    seeds, because the sentence itself decides where it belongs; so a stream leaves out the sentences of the others.

    Args:
        split: "train", "validation" or "test".
        seed: Selects one of the streams of the split.

    Raises:
        ValueError: There is no such split.
    """
    if split not in SPLIT_OF_REMAINDER:
        raise ValueError(f'split must be "train", "validation" or "test", got {split!r}')
    pairs = ({"en": english, "de": german} for english, german in sentences(seed))
    return (pair for pair in pairs if SPLIT_OF_REMAINDER[crc32(pair["en"].encode()) % 4] == split)


def sentences(seed: int) -> Iterator[tuple[str, str]]:
    """Yields the sentences of all splits."""
    random = Random(f"phrasebook {seed}").random

    def draw(pool):
        return (list(pool.items()) if isinstance(pool, dict) else pool)[int(random() * len(pool))]

    while True:
        english, german = draw((statement,) * 3 + (question,) * 2 + (description, report, reason, relative))(draw)
        end = "" if english.endswith("?") else "."
        yield english[0].upper() + english[1:] + end, german[0].upper() + german[1:] + end


class Phrase(NamedTuple):
    """Words that stay together. `about` says whom a noun or pronoun means, so that people never wait for themselves."""

    english: str
    german: str
    rank: int = NEW
    person: int = THIRD
    gender: str = ""
    about: str = ""


class Noun:
    """A noun with its German forms and the adjectives that fit it."""

    def __init__(self, kind, row):
        self.english, plural, article, german, german_plural = row.split()
        self.plural, self.german_plural = plural.strip("-"), german_plural.strip("-")
        self.kind, self.gender = kind, {"der": "m", "die": "f", "das": "n"}[article]
        self.nominative, self.oblique = german.split("/")[0], german.split("/")[-1]
        fitting = [row[:2] for row in rows(lexicon.ADJECTIVES) if {kind, self.english} & set(row[2].split())]
        self.adjectives = [(english, *(german.split("/") * 2)[:2]) for english, german in fitting]

    def phrase(self, draw, case=NOMINATIVE, known=True, negated=False, determiner=None, plain=False):
        """Draws determiner, adjective and number; if not known, the noun gets "ein", or in a negated clause "kein"."""
        plural = bool(self.plural) and draw(range(4)) == 0
        known = known or self.kind == "relative"
        if known and not determiner:
            owned = self.kind == "relative" or (self.kind not in ("stranger", "building") and draw((True, False)))
            determiner = draw(OWNERS) if owned else draw((THE, THE, THE, THIS))
        *articles, stem, endings = determiner or (NO if negated else SOME if plural or not self.plural else A)
        person, gender, english = (THIRD_PLURAL, "p", self.plural) if plural else (THIRD, self.gender, self.english)
        article, ending = articles[plural], endings[gender].split()[case]
        german = self.german_plural if plural else self.nominative if case == NOMINATIVE else self.oblique
        if plural and case == DATIVE and german[-1] not in "ns":
            german += "n"
        if not plain and draw(range(5)) < 2:
            adjective, _, german_stem = draw(self.adjectives)
            # Where the determiner does not show gender and case, the adjective does: "das rote", but "ein rotes".
            adjective_ending = (STRONG if ending == "-" else WEAK)[gender].split()[case]
            english, german = f"{adjective} {english}", f"{german_stem}{adjective_ending} {german}"
        if article == "a":
            article = "" if not self.plural else "an" if english[0] in "aeiou" else "a"
        texts = words(article, english), words(stem + ending.strip("-"), german)
        return Phrase(*texts, KNOWN if known else NEW, person, gender, self.english)


class Verb:
    """A verb of the lexicon, with its tenses where no time is given."""

    def __init__(self, english, german, governed, objects, gifts=""):
        *forms, behind = f"{english} ".split(" ", 4)
        self.base, self.third, self.gerund, self.past = (words(form, behind.strip()) for form in forms)
        infinitive, third, self.auxiliary, self.participle = german.split()
        self.prefix, _, stem = infinitive.rpartition("|")
        first = stem.removesuffix("n").removesuffix("e") + "e" if third.endswith("t") else third
        second = third.removesuffix("t").removesuffix("s") + "st"
        self.present, self.infinitive = (first, second, third, stem, stem), self.prefix + stem
        *preposition, case = governed.split()
        self.preposition, self.case = "".join(preposition), DATIVE if case == "dat" else ACCUSATIVE
        self.objects, self.gifts, self.of_people = nouns_of(objects), nouns_of(gifts), objects == "people"
        self.adverbials = lexicon.ADVERBIALS.get(objects, {})
        self.tenses = ("progressive",) * 3 + ("past",) * 3 + tuple(lexicon.MODALS)
        if "-" in self.gerund:
            self.tenses = ("simple",) if "-" in self.past else ("past", "past", "will")

    def forms(self, tense, person):
        """Returns "is", "calling" and joined "is calling"; "ruft", "an" and joined at the end "anruft"."""
        present = self.present[person], self.prefix, self.prefix + self.present[person]
        if tense == "progressive":
            return BE[person], self.gerund, f"{BE[person]} {self.gerund}", *present
        if tense == "simple":
            return DO[person], self.base, self.third if person == THIRD else self.base, *present
        if tense == "past":
            finite = HABEN_AND_SEIN[self.auxiliary][person]
            return "did", self.base, self.past, finite, self.participle, f"{self.participle} {finite}"
        others, german = lexicon.MODALS[tense]
        modal, finite = tense if person == THIRD else others, german.split()[person]
        auxiliary, rest = (DO[person], f"{others} {self.base}") if " " in tense else (modal, self.base)
        return auxiliary, rest, f"{modal} {self.base}", finite, self.infinitive, f"{self.infinitive} {finite}"


class Clause(NamedTuple):
    """A subject, the forms of its verb, and what follows in the English order; German sorts that by rank."""

    subject: Phrase
    forms: tuple[str, ...]
    parts: list[Phrase]
    negated: bool = False

    def in_order(self, order):
        """Puts the German verb second ("main"), first ("inverted", and "question" in both languages), or last."""
        auxiliary, rest, affirmative, finite, bracket, final = self.forms
        predicate = words("cannot" if auxiliary == "can" else f"{auxiliary} not", rest) if self.negated else affirmative
        start = (auxiliary, self.subject.english, rest) if order == "question" else (self.subject.english, predicate)
        english = words(*start, *(part.english for part in self.parts))
        no_kein = not any(part.german.startswith("kein") for part in self.parts)
        parts = self.parts + [Phrase("", "nicht", NOT)] * (self.negated and no_kein)
        middle = words(*(part.german for part in sorted(parts, key=lambda part: part.rank)))
        if order == "last":
            return english, words(self.subject.german, middle, final)
        start = (self.subject.german, finite) if order == "main" else (finite, self.subject.german)
        return english, words(*start, middle, bracket)


def rows(table):
    """Returns the cells of a table of the lexicon."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.strip().splitlines()]


def words(*several):
    """Puts blanks between words, and leaves out the empty ones."""
    return " ".join(filter(None, several))


def nouns_of(names):
    """Returns the nouns of some kinds and single nouns."""
    named = names.replace("people", "stranger person relative").split()
    return [noun for noun in NOUNS if noun.kind in named or noun.english in named]


def pronoun(row, case=NOMINATIVE):
    """Returns a personal pronoun; "we" is about "I" as well."""
    return Phrase(row[min(case, 1)], row[3 + case], KNOWN, int(row[7]), about=row[0].replace("we", "I"))


NOUNS = [Noun(kind, row) for kind, several in rows(lexicon.NOUNS) for row in several.split(", ")]
PEOPLE = nouns_of("people")
VERBS = [Verb(*row) for row in rows(lexicon.VERBS)]
VERBS_WITH_ONE_OBJECT = [verb for verb in VERBS if verb.objects and not verb.gifts]
PRONOUNS = rows(lexicon.PRONOUNS)
NAMES = [Phrase(name, name, KNOWN, about=name) for name in lexicon.NAMES]
OWNERS = [(row[2], row[2], row[6], EIN) for row in PRONOUNS]
WHO_FEELS = [(pronoun(row), pronoun(row)) for row in PRONOUNS]
WHO_FEELS += [(name, pronoun(row)) for name in NAMES for row in PRONOUNS if row[0] == lexicon.NAMES[name.about]]


def somebody(draw, case=NOMINATIVE, known=True):
    """Draws a pronoun, a name or a noun."""
    kind = draw(("pronoun", "pronoun", "name", "noun", "noun"))
    if kind == "noun":
        return draw(PEOPLE).phrase(draw, case, known)
    return draw(NAMES) if kind == "name" else pronoun(draw(PRONOUNS), case)


def clause(draw, tense="", subject=None, time=None, negated=None, asked=None):
    """Draws the parts that are not given; a clause with the verb ``asked`` leaves its object out."""
    verb = asked or draw([verb for verb in VERBS if not tense or tense.replace("simple", "progressive") in verb.tenses])
    subject = subject or somebody(draw, known=draw(range(6)) > 0)
    negated = draw(range(8)) == 0 if negated is None else negated
    tense = tense or draw(verb.tenses)
    if tense == "past" and verb.past == verb.base and subject.person != THIRD and not time:
        tense = "progressive"  # "they read" would be present as well
    known = verb.base in lexicon.KNOWN_OBJECTS or (verb.of_people and (negated or verb.gifts)) or draw((True, False))
    parts, thing = [], subject
    while verb.objects and not asked and thing.about == subject.about:
        thing = somebody(draw, verb.case, known)
        if not verb.of_people:
            thing = draw(verb.objects).phrase(draw, verb.case, known, negated)
        rank = NEW if verb.preposition else thing.rank
        parts = [thing._replace(german=words(verb.preposition, thing.german), rank=rank)]
    if verb.gifts:
        parts.append(draw(verb.gifts).phrase(draw, ACCUSATIVE, draw((True, False)), negated))
    if verb.adverbials and (verb.base == "go" or draw(range(4))):
        parts.append(Phrase(*draw(verb.adverbials)))
    parts += [Phrase(*time, TIME)] if time else []
    return Clause(subject, verb.forms(tense, subject.person), parts, negated)


def being(subject, predicate):
    """Says what somebody or something is."""
    english, german = BE[subject.person], HABEN_AND_SEIN["ist"][subject.person]
    return Clause(subject, (english, "", english, german, "", german), [Phrase(*predicate)])


def linked(first, second, english="", german=""):
    """Puts one clause or phrase after the other, with something between."""
    return f"{first[0]}{english} {second[0]}", f"{first[1]}{german} {second[1]}"


def statement(draw):
    """Anna is not buying a car. - Anna kauft kein Auto. / Yesterday Anna … - Gestern hat Anna …"""
    kind = draw(("plain", "time", "time first", "habit"))
    if kind == "plain":
        return clause(draw, negated=draw((True, False))).in_order("main")
    if kind == "habit":
        subject, (english, german) = somebody(draw), draw(lexicon.FREQUENCIES)
        often = subject._replace(english=words(subject.english, english))
        return clause(draw, "simple", often, ("", german), negated=False).in_order("main")
    tense, times = draw(lexicon.TIMES)
    if kind == "time":
        return clause(draw, tense, time=draw(times)).in_order("main")
    return linked(draw(times), clause(draw, tense).in_order("inverted"))


def question(draw):
    """Why did Anna help him? - Warum hat Anna ihm geholfen? / Which man … - Welchem Mann …"""
    kind = draw(("whether", "why", "who", "what", "which"))
    if kind == "who":
        pair = clause(draw, subject=Phrase("who", "wer")).in_order("main")
    elif kind == "whether":
        pair = clause(draw, negated=False).in_order("question")
    elif kind == "why":
        pair = linked(("why", "warum"), clause(draw, negated=False).in_order("question"))
    else:
        verb = draw(VERBS_WITH_ONE_OBJECT)
        noun = draw([noun for noun in verb.objects if noun.kind != "relative"])
        english, german = noun.phrase(draw, verb.case, determiner=WHICH)[:2]
        if kind == "what":
            english, german = ("whom", ("wen", "wem")[verb.case - 1]) if verb.of_people else ("what", "was")
        asked = english, words(verb.preposition, german)
        pair = linked(asked, clause(draw, negated=False, asked=verb).in_order("question"))
    return f"{pair[0]}?", f"{pair[1]}?"


def description(draw):
    """The soup is too hot. - Die Suppe ist zu heiß. / My key is on the table. - Mein Schlüssel ist auf dem Tisch."""
    noun = draw(NOUNS)
    if noun.kind in ("thing", "reading"):
        place = draw(nouns_of("furniture")).phrase(draw, DATIVE)
        return being(noun.phrase(draw), linked(draw(lexicon.POSITIONS), place)).in_order("main")
    quality = draw(noun.adjectives)[:2]
    if quality[0] not in lexicon.UNGRADED:
        quality = linked(draw(lexicon.DEGREES), quality)
    return being(noun.phrase(draw, plain=True), quality).in_order("main")


def report(draw):
    """I know that Anna called the doctor. - Ich weiß, dass Anna den Arzt angerufen hat. / If … - Wenn …"""
    if draw(range(3)) == 0:
        then = clause(draw, draw(("will", "can", "has to"))).in_order("inverted")
        return linked(draw(lexicon.CONDITIONS), then, ",", ",")
    return linked(draw(lexicon.REPORTS), clause(draw).in_order("last"))


def reason(draw):
    """Anna is sad because she lost her key. - Anna ist traurig, weil sie ihren Schlüssel verloren hat. / Although …"""
    subject, it = draw(WHO_FEELS)
    it = it._replace(about=subject.about)
    in_spite, fact = draw((True, False)), clause(draw, subject=it)
    feeling = being(subject, draw(lexicon.HANDICAPS if in_spite else lexicon.FEELINGS))
    if in_spite:
        although = linked(("although", "obwohl"), feeling.in_order("last"))
        return linked(although, fact.in_order("inverted"), ",", ",")
    return linked(feeling.in_order("main"), fact.in_order("last"), " because", ", weil")


def relative(draw):
    """The man who helped me is old. - Der Mann, der mir geholfen hat, ist alt. / The man whom I helped … - …, dem …"""
    verb, is_subject = draw(VERBS_WITH_ONE_OBJECT), draw((True, False))
    noun = draw([noun for noun in (PEOPLE if is_subject else verb.objects) if noun.kind != "relative"])
    thing, case = noun.phrase(draw, determiner=THE, plain=True), NOMINATIVE if is_subject else verb.case
    pronoun = "denen" if thing.gender == "p" and case == DATIVE else "d" + DER[thing.gender].split()[case]
    if is_subject:
        who = Phrase("who", pronoun, person=thing.person, about=noun.english)
        english, german = clause(draw, subject=who).in_order("last")
    else:
        asked = "whom" if verb.of_people else "that", words(verb.preposition, pronoun)
        english, german = linked(asked, clause(draw, asked=verb).in_order("last"))
    subject = Phrase(f"{thing.english} {english}", f"{thing.german}, {german},", person=thing.person)
    return being(subject, draw(noun.adjectives)[:2]).in_order("main")
