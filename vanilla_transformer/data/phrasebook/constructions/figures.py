"""Sentences with numbers, dates and times."""

from ..clauses import (
    Draw,
    Pair,
    clause_with,
    conjugated,
    declarative,
    followed_by,
    introduced,
    inverted,
    question_about,
    with_adverbial,
)
from ..conjugation import IS, PAST, QUESTION, TIMELESS, simple_present
from ..declension import ACCUSATIVE, NOMINATIVE, POSSESSIVES, Determiner, decline_determiner, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon.verbs import COUNTED, HISTORIC
from ..phrases import NAMED_OWNERS, THIRD, Phrase, definites, people, phrases
from ..times import clock_times, dates, days_of_travel, spelled
from ..verbs import Verb, verbs_named


OWNERS = (*POSSESSIVES, *NAMED_OWNERS)
# Small numbers come up more often than their share.
NUMBERS = ((0, 100), *[(0, 10_000)] * 4)
PRICES = ((2, 100), (2, 10_000), (2, 10_000))
COSTS = simple_present("cost", "kosten", "kostet")
DEPARTURES = (
    ("to", "nach", simple_present("leave", "ab|fahren", "fährt")),
    ("from", "aus", simple_present("arrive", "an|kommen", "kommt")),
)


def price(draw: Draw) -> Pair:
    """The new car costs four thousand euros. - Das neue Auto kostet viertausend Euro."""
    thing = draw(draw(definites(draw(nouns_among("goods")))))
    number = draw(spelled(*draw(PRICES)))
    return declarative(thing, COSTS[thing.person], followed_by(number, Phrase("euros", "Euro")))


def counted(draw: Draw, verb: Verb) -> Phrase:
    """Draws things that a verb counts."""
    noun = draw(verb.nouns)
    while not noun.german_plural:
        noun = draw(verb.nouns)
    return Phrase(noun.english_plural, noun.german_plural[ACCUSATIVE])


def counting(draw: Draw) -> Pair:
    """Anna has sold thirty-one apples. - Anna hat einunddreißig Äpfel verkauft."""
    verb = draw(verbs_named(COUNTED))
    subject, form = conjugated(draw, verb, TIMELESS)
    things = counted(draw, verb)
    return declarative(subject, form, followed_by(draw(spelled(2, 100)), things))


def how_many(draw: Draw) -> Pair:
    """How many books has Anna sold? - Wie viele Bücher hat Anna verkauft?"""
    verb = draw(verbs_named(COUNTED))
    subject, form = conjugated(draw, verb, QUESTION)
    return question_about(followed_by(Phrase("how many", "wie viele"), counted(draw, verb)), subject, form)


def age(draw: Draw) -> Pair:
    """My old neighbour is ninety-one years old. - Mein alter Nachbar ist einundneunzig Jahre alt."""
    subject = draw(draw(people()))
    years = followed_by(draw(spelled(2, 100)), Phrase("years old", "Jahre alt"))
    return declarative(subject, IS[subject.person], years)


def owned(owner: Determiner, english: str, german: str, gender: str) -> Phrase:
    """Returns something that everybody has, for example "my number" or "Anna's number"."""
    return Phrase(f"{owner.english} {english}", f"{decline_determiner(owner, gender, NOMINATIVE)} {german}")


def naming_a_number(draw: Draw) -> Pair:
    """My number is seven hundred and eight. - Meine Nummer ist siebenhundertacht."""
    number = owned(draw(OWNERS), "number", "Nummer", "feminine")
    return declarative(number, IS[THIRD], draw(spelled(*draw(NUMBERS))))


def year(draw: Draw) -> Pair:
    """Anna bought the house in the year two thousand and one. - Anna hat das Haus im Jahr zweitausendeins gekauft."""
    subject, verb, complement = clause_with(draw, draw(verbs_named(HISTORIC)), PAST)
    time = followed_by(Phrase("in the year", "im Jahr"), draw(spelled(1900, 2031)))
    return declarative(subject, verb, with_adverbial(complement, time))


def addition(draw: Draw) -> Pair:
    """Seven plus eight is fifteen. - Sieben plus acht ist fünfzehn."""
    first, second = draw(range(100)), draw(range(100))
    one, other, total = (spelled(0, 200)[number] for number in (first, second, first + second))
    plus = Phrase(f"{one.english} plus {other.english}", f"{one.german} plus {other.german}")
    return declarative(plus, IS[THIRD], total)


def departure(draw: Draw) -> Pair:
    """On Monday the train to Rome leaves at half past six. - Am Montag fährt der Zug nach Rom um halb sieben ab."""
    day, vehicle = draw(days_of_travel()), draw(phrases(lexicon.TRANSPORT))
    city, time = draw(phrases(lexicon.CITIES)), draw(clock_times())
    to, nach, leaves = draw(DEPARTURES)
    train = Phrase(f"the {vehicle.english} {to} {city.english}", f"{vehicle.german} {nach} {city.german}")
    return introduced(day, inverted(train, leaves[THIRD], followed_by(Phrase("at", "um"), time)))


def time_of_day(draw: Draw) -> Pair:
    """It is already ten past six. - Es ist schon zehn nach sechs."""
    time = followed_by(draw(phrases(lexicon.PUNCTUALITY)), draw(clock_times()))
    return declarative(Phrase("it", "es"), IS[THIRD], time)


def calendar_day(draw: Draw) -> Pair:
    """Today is Monday, the third of May. - Heute ist Montag, der dritte Mai."""
    english, nominative, _ = draw(dates())
    day, weekday = draw(phrases(lexicon.FUTURE_TIMES)[:2]), draw(phrases(lexicon.WEEKDAYS))
    date = Phrase(f"{weekday.english}, {english}", f"{weekday.german}, der {nominative}")
    return declarative(day, IS[THIRD], date)


def birthday(draw: Draw) -> Pair:
    """Anna's birthday is on the third of May. - Annas Geburtstag ist am dritten Mai."""
    english, _, dative = draw(dates())
    owner = owned(draw(OWNERS), "birthday", "Geburtstag", "masculine")
    return declarative(owner, IS[THIRD], Phrase(f"on {english}", f"am {dative}"))


WEIGHTS = {
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
