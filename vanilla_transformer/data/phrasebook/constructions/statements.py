"""Main clauses."""

from ..clauses import (
    Draw,
    Pair,
    clause,
    clause_with,
    conjugated,
    declarative,
    followed_by,
    interrogative,
    introduced,
    inverted,
    negative,
    with_adverbial,
)
from ..conjugation import FUTURE, HABIT, IS, NEGATION, PAST, TIMELESS, WAS, paradigm
from ..declension import nouns, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon.verbs import APPOINTMENTS, LOCATED
from ..phrases import (
    PLAIN,
    PRONOUNS,
    Phrase,
    acquaintances,
    adverbials,
    comparatives,
    definites,
    indefinites,
    object_pronouns,
    phrases,
    possessions,
    spatial_phrases,
)
from ..times import clock_times, times
from ..verbs import giving_verbs, placing_verbs, resting_verbs, verbs_about, verbs_in, verbs_named
from .choices import PLACEABLE, TENSES_AND_TIMES, graded


OWNABLE = "clothing vehicle thing device home reading"
ORDERS = (declarative, declarative, negative, interrogative)
THERE_IS, THERE_WAS = (
    paradigm([form.english for form in be], "", (finite,) * 5) for be, finite in ((IS, "gibt es"), (WAS, "gab es"))
)


def statement(draw: Draw) -> Pair:
    """Anna is buying a red car. - Anna kauft ein rotes Auto."""
    return declarative(*clause(draw, TIMELESS))


def statement_with_time(draw: Draw) -> Pair:
    """Anna bought a red car yesterday. - Anna hat gestern ein rotes Auto gekauft."""
    tense, table = draw(TENSES_AND_TIMES)
    subject, verb, complement = clause(draw, tense)
    return declarative(subject, verb, with_adverbial(complement, draw(draw(times(table)))))


def time_first(draw: Draw) -> Pair:
    """On Monday Anna is buying a red car. - Am Montag kauft Anna ein rotes Auto."""
    tense, table = draw(TENSES_AND_TIMES)
    return introduced(draw(draw(times(table))), inverted(*clause(draw, tense)))


def appointment(draw: Draw) -> Pair:
    """Anna will call the doctor at half past seven. - Anna wird um halb acht den Arzt anrufen."""
    tense = draw((FUTURE, PAST))
    subject, verb, complement = clause_with(draw, draw(verbs_named(APPOINTMENTS)), tense)
    time = draw(clock_times())
    return declarative(subject, verb, with_adverbial(complement, Phrase(f"at {time.english}", f"um {time.german}")))


def habit(draw: Draw) -> Pair:
    """Anna often reads old books. - Anna liest oft alte Bücher."""
    verb = draw(verbs_in(HABIT))
    subject, form = conjugated(draw, verb, HABIT)
    complement, frequency = draw(draw(verb.habits)), draw(phrases(lexicon.FREQUENCIES))
    _, german = declarative(subject, form, with_adverbial(complement, frequency))
    return f"{subject.english} {frequency.english} {form.english} {complement.english}", german


def negation(draw: Draw) -> Pair:
    """Anna is not buying a car. - Anna kauft kein Auto. / Anna did not buy it. - Anna hat es nicht gekauft."""
    return negative(*clause(draw, NEGATION))


def action_at_place(draw: Draw) -> Pair:
    """Anna is reading the book in the park. - Anna liest das Buch im Park. But: Anna liest im Park ein Buch."""
    verb = draw(verbs_named(LOCATED))
    subject, form = conjugated(draw, verb, TIMELESS)
    place = draw(adverbials("place"))
    known_or_new, arranged = draw(((definites, followed_by), (indefinites, with_adverbial)))
    complement = draw(draw(known_or_new(draw(verb.nouns), verb.governed)))
    return declarative(subject, form, arranged(complement, place))


def pronoun_object(draw: Draw) -> Pair:
    """Anna is not waiting for him. - Anna wartet nicht auf ihn."""
    verb = draw(verbs_about("people"))
    order, tense = draw(((declarative, TIMELESS), (declarative, TIMELESS), (negative, NEGATION)))
    subject, form = conjugated(draw, verb, tense)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    return particle_last(order(subject, form, pronoun), pronoun)


def pronoun_object_with_time(draw: Draw) -> Pair:
    """Anna picked him up yesterday. - Anna hat ihn gestern abgeholt. But: Anna hat gestern auf ihn gewartet."""
    tense, table = draw(TENSES_AND_TIMES)
    verb = draw(verbs_about("people"))
    while not verb.tenses[tense]:
        verb = draw(verbs_about("people"))
    subject, form = conjugated(draw, verb, tense)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    arranged = followed_by if verb.governed in ("acc", "dat") else with_adverbial
    return particle_last(declarative(subject, form, arranged(pronoun, draw(draw(times(table))))), pronoun)


def particle_last(clause: Pair, pronoun: Phrase) -> Pair:
    """Turns "picked up him" into "picked him up"."""
    english, german = clause
    return english.replace(f" up {pronoun.english}", f" {pronoun.english} up"), german


def giving(draw: Draw) -> Pair:
    """Anna is giving the old man a red apple. - Anna gibt dem alten Mann einen roten Apfel."""
    verb, gifts = draw(giving_verbs())
    subject, form, recipient = clause_with(draw, verb, TIMELESS)
    return declarative(subject, form, followed_by(recipient, draw(draw(gifts))))


def companionship(draw: Draw) -> Pair:
    """Anna is going to the park with her friend. - Anna geht mit ihrem Freund in den Park."""
    verb = draw(verbs_named("go, run, drive, travel, fly, work, dance, sing"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(draw(acquaintances())))
    preposition, governed = draw((("with", "mit dat"), ("without", "ohne acc")))
    companion = draw(draw(definites(draw(nouns_among("people")), governed)))
    adverbial = Phrase(f"{preposition} {companion.english}", companion.german)
    return declarative(subject, form, with_adverbial(draw(draw(verb.complements)), adverbial))


def placing(draw: Draw) -> Pair:
    """Anna is putting the key on the table. - Anna legt den Schlüssel auf den Tisch."""
    subject, verb, thing = clause_with(draw, draw(placing_verbs()), TIMELESS)
    return declarative(subject, verb, followed_by(thing, draw(spatial_phrases("acc"))))


def position(draw: Draw) -> Pair:
    """The key is not on the table. - Der Schlüssel ist nicht auf dem Tisch. / Is the key on the table?"""
    thing = draw(draw(definites(draw(nouns_among(PLACEABLE)))))
    place = draw(spatial_phrases("dat"))
    verb = draw((IS, WAS))[thing.person]
    return draw(ORDERS)(thing, verb, place)


def resting_animal(draw: Draw) -> Pair:
    """The old dog is sleeping under the table. - Der alte Hund schläft unter dem Tisch."""
    animal = draw(draw(definites(draw(nouns_among("dog cat")))))
    verb = draw(resting_verbs())[animal.person]
    return declarative(animal, verb, draw(spatial_phrases("dat") if draw((True, False)) else adverbials("place")[:5]))


def existence(draw: Draw) -> Pair:
    """There is no old castle in Rome. - In Rom gibt es kein altes Schloss. / Is there an old castle in Rome?"""
    sight = draw(draw(indefinites(draw(nouns_among("building home lake")), "acc")))
    city = draw(phrases(lexicon.CITIES))
    verb = draw((THERE_IS, THERE_WAS))[sight.person]
    order = draw(ORDERS)
    english, german = sight.english, sight.german
    if order is negative:
        order, german = declarative, sight.negated
        english = f"no {english.removeprefix('an ').removeprefix('a ')}"
    place = Phrase("there", f"in {city.german}")
    return order(place, verb, Phrase(f"{english} in {city.english}", german))


def description(draw: Draw) -> Pair:
    """The soup was too hot. - Die Suppe war zu heiß. / Is the soup hot? - Ist die Suppe heiß?"""
    noun = draw(nouns())
    thing = draw(definites(noun)[PLAIN])
    adjective = draw(noun.adjectives)
    verb = draw((IS, WAS))[thing.person]
    if draw((False, False, True)):
        return interrogative(thing, verb, adjective)
    return declarative(thing, verb, graded(draw, adjective))


def comparison(draw: Draw) -> Pair:
    """My brother is taller than Anna. - Mein Bruder ist größer als Anna."""
    comparative, compared = draw(comparatives())
    first = draw(compared)
    second = draw(compared)
    while second is first:
        second = draw(compared)
    first, second = draw(first), draw(second)
    than = Phrase(f"than {second.english}", f"als {second.german}")
    return declarative(first, IS[first.person], followed_by(comparative, than))


def possession(draw: Draw) -> Pair:
    """Anna's old car is expensive. - Annas altes Auto ist teuer. / the teacher's car - das Auto des Lehrers"""
    noun = draw(nouns_among(OWNABLE))
    adjective = draw(noun.adjectives)
    thing = draw(draw(possessions(noun, "nom"))[PLAIN])
    return declarative(thing, IS[thing.person], adjective)


def possession_as_object(draw: Draw) -> Pair:
    """We have repaired the teacher's car. - Wir haben das Auto des Lehrers repariert."""
    verb = draw(verbs_named("sell, repair, use, look for, find, see, read, wash, like"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(PRONOUNS))
    return declarative(subject, form, draw(draw(draw(possessions(draw(verb.nouns), "acc")))))


WEIGHTS = {
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
}
