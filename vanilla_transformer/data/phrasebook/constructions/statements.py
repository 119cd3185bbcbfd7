"""Main clauses."""

from ..clauses import Clause, Draw, Pair, clause, clause_with, conjugated, introduced
from ..conjugation import FUTURE, HABIT, IS, NEGATION, PAST, TIMELESS, WAS, paradigm
from ..declension import nouns, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon.verbs import APPOINTMENTS, LOCATED, PLACING
from ..nominals import PLAIN, comparatives, definites, indefinites, possessions, spatial_phrases
from ..phrases import PRONOUNS, Phrase, acquaintances, adverbials, object_pronouns, phrases
from ..times import AT, clock_times, times
from ..verbs import giving_verbs, resting_verbs, verbs_about, verbs_in, verbs_named, verbs_with_objects
from .choices import PLACEABLE, TENSES_AND_TIMES, graded


OWNABLE = "clothing vehicle thing device home reading"
ORDERS = (Clause.declarative, Clause.declarative, Clause.negative, Clause.interrogative)
THERE_IS, THERE_WAS = (
    paradigm([form.english for form in be], "", (finite,) * 5) for be, finite in ((IS, "gibt es"), (WAS, "gab es"))
)


def statement(draw: Draw) -> Pair:
    """Anna is buying a red car. - Anna kauft ein rotes Auto."""
    return clause(draw, TIMELESS).declarative()


def statement_with_time(draw: Draw) -> Pair:
    """Anna bought a red car yesterday. - Anna hat gestern ein rotes Auto gekauft."""
    tense, table = draw(TENSES_AND_TIMES)
    return clause(draw, tense).with_adverbial(draw(draw(times(table)))).declarative()


def time_first(draw: Draw) -> Pair:
    """On Monday Anna is buying a red car. - Am Montag kauft Anna ein rotes Auto."""
    tense, table = draw(TENSES_AND_TIMES)
    return introduced(draw(draw(times(table))), clause(draw, tense).inverted())


def appointment(draw: Draw) -> Pair:
    """Anna will call the doctor at half past seven. - Anna wird um halb acht den Arzt anrufen."""
    tense = draw((FUTURE, PAST))
    meeting = clause_with(draw, draw(verbs_named(APPOINTMENTS)), tense)
    return meeting.with_adverbial(AT.followed_by(draw(clock_times()))).declarative()


def habit(draw: Draw) -> Pair:
    """Anna often reads old books. - Anna liest oft alte Bücher."""
    verb = draw(verbs_in(HABIT))
    subject, form = conjugated(draw, verb, HABIT)
    complement, frequency = draw(draw(verb.habits)), draw(phrases(lexicon.FREQUENCIES))
    _, german = Clause(subject, form, complement.with_adverbial(frequency)).declarative()
    return f"{subject.english} {frequency.english} {form.english} {complement.english}", german


def negation(draw: Draw) -> Pair:
    """Anna is not buying a car. - Anna kauft kein Auto. / Anna did not buy it. - Anna hat es nicht gekauft."""
    return clause(draw, NEGATION).negative()


def action_at_place(draw: Draw) -> Pair:
    """Anna is reading the book in the park. - Anna liest das Buch im Park. But: Anna liest im Park ein Buch."""
    verb = draw(verbs_named(LOCATED))
    subject, form = conjugated(draw, verb, TIMELESS)
    place = draw(adverbials("place"))
    known_or_new, arranged = draw(((definites, Phrase.followed_by), (indefinites, Phrase.with_adverbial)))
    complement = draw(draw(known_or_new(draw(verb.nouns), verb.governed)))
    return Clause(subject, form, arranged(complement, place)).declarative()


def pronoun_object(draw: Draw) -> Pair:
    """Anna is not waiting for him. - Anna wartet nicht auf ihn."""
    verb = draw(verbs_about("people"))
    order, tense = draw(((Clause.declarative, TIMELESS), (Clause.declarative, TIMELESS), (Clause.negative, NEGATION)))
    subject, form = conjugated(draw, verb, tense)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    return particle_last(order(Clause(subject, form, pronoun)), pronoun)


def pronoun_object_with_time(draw: Draw) -> Pair:
    """Anna picked him up yesterday. - Anna hat ihn gestern abgeholt. But: Anna hat gestern auf ihn gewartet."""
    tense, table = draw(TENSES_AND_TIMES)
    verb = draw(verbs_about("people"))
    while not verb.tenses[tense]:
        verb = draw(verbs_about("people"))
    subject, form = conjugated(draw, verb, tense)
    pronoun = draw(object_pronouns(verb.governed)[subject.person])
    arranged = Phrase.followed_by if verb.governed in ("acc", "dat") else Phrase.with_adverbial
    return particle_last(Clause(subject, form, arranged(pronoun, draw(draw(times(table))))).declarative(), pronoun)


def particle_last(clause: Pair, pronoun: Phrase) -> Pair:
    """Turns "picked up him" into "picked him up"."""
    english, german = clause
    return english.replace(f" up {pronoun.english}", f" {pronoun.english} up"), german


def giving(draw: Draw) -> Pair:
    """Anna is giving the old man a red apple. - Anna gibt dem alten Mann einen roten Apfel."""
    verb, gifts = draw(giving_verbs())
    return clause_with(draw, verb, TIMELESS).followed_by(draw(draw(gifts))).declarative()


def companionship(draw: Draw) -> Pair:
    """Anna is going to the park with her friend. - Anna geht mit ihrem Freund in den Park."""
    verb = draw(verbs_named("go, run, drive, travel, fly, work, dance, sing"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(draw(acquaintances())))
    preposition, governed = draw((("with", "mit dat"), ("without", "ohne acc")))
    companion = draw(draw(definites(draw(nouns_among("people")), governed)))
    adverbial = Phrase(f"{preposition} {companion.english}", companion.german)
    return Clause(subject, form, draw(draw(verb.complements)).with_adverbial(adverbial)).declarative()


def placing(draw: Draw) -> Pair:
    """Anna is putting the key on the table. - Anna legt den Schlüssel auf den Tisch."""
    verb = draw(verbs_with_objects(PLACING, "action", known=True))
    return clause_with(draw, verb, TIMELESS).followed_by(draw(spatial_phrases("acc"))).declarative()


def position(draw: Draw) -> Pair:
    """The key is not on the table. - Der Schlüssel ist nicht auf dem Tisch. / Is the key on the table?"""
    thing = draw(draw(definites(draw(nouns_among(PLACEABLE)))))
    place = draw(spatial_phrases("dat"))
    verb = draw((IS, WAS))[thing.person]
    return draw(ORDERS)(Clause(thing, verb, place))


def resting_animal(draw: Draw) -> Pair:
    """The old dog is sleeping under the table. - Der alte Hund schläft unter dem Tisch."""
    animal = draw(draw(definites(draw(nouns_among("dog cat")))))
    verb = draw(resting_verbs())[animal.person]
    places = spatial_phrases("dat") if draw((True, False)) else adverbials("place")[:5]
    return Clause(animal, verb, draw(places)).declarative()


def existence(draw: Draw) -> Pair:
    """There is no old castle in Rome. - In Rom gibt es kein altes Schloss. / Is there an old castle in Rome?"""
    sight = draw(draw(indefinites(draw(nouns_among("building home lake")), "acc")))
    city = draw(phrases(lexicon.CITIES))
    verb = draw((THERE_IS, THERE_WAS))[sight.person]
    order = draw(ORDERS)
    english, german = sight.english, sight.german
    if order is Clause.negative:
        order, german = Clause.declarative, sight.negated
        english = f"no {english.removeprefix('an ').removeprefix('a ')}"
    there = Phrase("there", f"in {city.german}")
    return order(Clause(there, verb, Phrase(f"{english} in {city.english}", german)))


def description(draw: Draw) -> Pair:
    """The soup was too hot. - Die Suppe war zu heiß. / Is the soup hot? - Ist die Suppe heiß?"""
    noun = draw(nouns())
    thing = draw(definites(noun)[PLAIN])
    adjective = draw(noun.adjectives)
    verb = draw((IS, WAS))[thing.person]
    if draw((False, False, True)):
        return Clause(thing, verb, adjective).interrogative()
    return Clause(thing, verb, graded(draw, adjective)).declarative()


def comparison(draw: Draw) -> Pair:
    """My brother is taller than Anna. - Mein Bruder ist größer als Anna."""
    comparative, compared = draw(comparatives())
    first = draw(compared)
    second = draw(compared)
    while second is first:
        second = draw(compared)
    first, second = draw(first), draw(second)
    than = Phrase(f"than {second.english}", f"als {second.german}")
    return Clause(first, IS[first.person], comparative.followed_by(than)).declarative()


def possession(draw: Draw) -> Pair:
    """Anna's old car is expensive. - Annas altes Auto ist teuer. / the teacher's car - das Auto des Lehrers"""
    noun = draw(nouns_among(OWNABLE))
    adjective = draw(noun.adjectives)
    thing = draw(draw(possessions(noun, "nom"))[PLAIN])
    return Clause(thing, IS[thing.person], adjective).declarative()


def possession_as_object(draw: Draw) -> Pair:
    """We have repaired the teacher's car. - Wir haben das Auto des Lehrers repariert."""
    verb = draw(verbs_named("sell, repair, use, look for, find, see, read, wash, like"))
    subject, form = conjugated(draw, verb, TIMELESS, draw(PRONOUNS))
    return Clause(subject, form, draw(draw(draw(possessions(draw(verb.nouns), "acc"))))).declarative()


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
