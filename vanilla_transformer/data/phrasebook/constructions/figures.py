"""Sentences with numbers, dates and times."""

from ..clauses import Clause, Draw, Pair, clause_with, conjugated, introduced, question_about
from ..conjugation import IS, PAST, QUESTION, TIMELESS, simple_present
from ..declension import ACCUSATIVE, NOMINATIVE, POSSESSIVES, Determiner, decline_determiner, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon.verbs import COUNTED, HISTORIC
from ..nominals import NAMED_OWNERS, definites, people
from ..phrases import THIRD, Phrase, phrases
from ..times import AT, clock_times, dates, days_of_travel, spelled, years
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
    return Clause(thing, COSTS[thing.person], number.followed_by(Phrase("euros", "Euro"))).declarative()


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
    return Clause(subject, form, draw(spelled(2, 100)).followed_by(things)).declarative()


def how_many(draw: Draw) -> Pair:
    """How many books has Anna sold? - Wie viele Bücher hat Anna verkauft?"""
    verb = draw(verbs_named(COUNTED))
    subject, form = conjugated(draw, verb, QUESTION)
    return question_about(Phrase("how many", "wie viele").followed_by(counted(draw, verb)), subject, form)


def age(draw: Draw) -> Pair:
    """My old neighbour is ninety-one years old. - Mein alter Nachbar ist einundneunzig Jahre alt."""
    subject = draw(draw(people()))
    lived = draw(spelled(2, 100)).followed_by(Phrase("years old", "Jahre alt"))
    return Clause(subject, IS[subject.person], lived).declarative()


def owned(owner: Determiner, english: str, german: str, gender: str) -> Phrase:
    """Returns something that everybody has, for example "my number" or "Anna's number"."""
    return Phrase(f"{owner.english} {english}", f"{decline_determiner(owner, gender, NOMINATIVE)} {german}")


def naming_a_number(draw: Draw) -> Pair:
    """My number is seven hundred and eight. - Meine Nummer ist siebenhundertacht."""
    number = owned(draw(OWNERS), "number", "Nummer", "feminine")
    return Clause(number, IS[THIRD], draw(spelled(*draw(NUMBERS)))).declarative()


def year(draw: Draw) -> Pair:
    """Anna bought the house in the year two thousand and one. - Anna hat das Haus im Jahr zweitausendeins gekauft."""
    event = clause_with(draw, draw(verbs_named(HISTORIC)), PAST)
    return event.with_adverbial(Phrase("in the year", "im Jahr").followed_by(draw(years(1900, 2026)))).declarative()


def addition(draw: Draw) -> Pair:
    """Seven plus eight is fifteen. - Sieben plus acht ist fünfzehn."""
    first, second = draw(range(100)), draw(range(100))
    one, other, total = (spelled(0, 200)[number] for number in (first, second, first + second))
    plus = Phrase(f"{one.english} plus {other.english}", f"{one.german} plus {other.german}")
    return Clause(plus, IS[THIRD], total).declarative()


def departure(draw: Draw) -> Pair:
    """On Monday the train to Rome leaves at half past six. - Am Montag fährt der Zug nach Rom um halb sieben ab."""
    day, vehicle = draw(days_of_travel()), draw(phrases(lexicon.TRANSPORT))
    city, time = draw(phrases(lexicon.CITIES)), draw(clock_times())
    to, nach, leaves = draw(DEPARTURES)
    train = Phrase(f"the {vehicle.english} {to} {city.english}", f"{vehicle.german} {nach} {city.german}")
    return introduced(day, Clause(train, leaves[THIRD], AT.followed_by(time)).inverted())


def time_of_day(draw: Draw) -> Pair:
    """It is already ten past six. - Es ist schon zehn nach sechs."""
    time = draw(phrases(lexicon.PUNCTUALITY)).followed_by(draw(clock_times()))
    return Clause(Phrase("it", "es"), IS[THIRD], time).declarative()


def calendar_day(draw: Draw) -> Pair:
    """Today is Monday, the third of May. - Heute ist Montag, der dritte Mai."""
    english, nominative, _ = draw(dates())
    day, weekday = draw(phrases(lexicon.FUTURE_TIMES)[:2]), draw(phrases(lexicon.WEEKDAYS))
    date = Phrase(f"{weekday.english}, {english}", f"{weekday.german}, der {nominative}")
    return Clause(day, IS[THIRD], date).declarative()


def birthday(draw: Draw) -> Pair:
    """Anna's birthday is on the third of May. - Annas Geburtstag ist am dritten Mai."""
    english, _, dative = draw(dates())
    owner = owned(draw(OWNERS), "birthday", "Geburtstag", "masculine")
    return Clause(owner, IS[THIRD], Phrase(f"on {english}", f"am {dative}")).declarative()


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
