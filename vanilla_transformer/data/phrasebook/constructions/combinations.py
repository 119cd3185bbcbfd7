"""Sentences of more than one clause."""

from ..clauses import Clause, Draw, Pair, clause, clause_about_another, clause_with, conjugated, introduced, linked
from ..conjugation import HABIT, IS, PROSPECT, TIMELESS, WILL_BE
from ..declension import ARTICLES, THE, nouns_among
from ..lexicon import expressions as lexicon
from ..lexicon.verbs import PURPOSES
from ..nominals import PLAIN, definites, determined
from ..phrases import COREFERENTS, PRONOUNS_OF_THINGS, Phrase, acquaintances, in_case, phrases
from ..verbs import Verb, actions, infinitive_verbs, intransitives, verbs_about, verbs_named, verbs_of_bystanders
from .choices import ANTECEDENTS, graded, noun_of_many


CONJUNCTIONS = ((" and", " und"), (", but", ", aber"))
RELATIVE_PRONOUNS = {**ARTICLES, "plural": ("die", "die", "denen", "deren")}
IF = Phrase("if", "wenn")


def coordination(draw: Draw) -> Pair:
    """Anna is reading a book, but Peter is sleeping. - Anna liest ein Buch, aber Peter schläft."""
    english, german = draw(CONJUNCTIONS)
    first = clause(draw, TIMELESS)
    second = clause_about_another(draw, TIMELESS, first.subject)
    return linked(first.declarative(), english, german, second.declarative())


def objection(draw: Draw) -> Pair:
    """Anna wants to buy the coat, but it is too expensive. - Anna will den Mantel kaufen, aber er ist zu teuer."""
    verb = draw(verbs_named("buy, read, wear, use, rent, repair, look for, need, have, like"))
    noun = draw(verb.nouns)
    adjective = draw(noun.adjectives)
    subject, form = conjugated(draw, verb, TIMELESS)
    thing = draw(definites(noun, verb.governed)[PLAIN])
    fault = Clause(PRONOUNS_OF_THINGS[thing.gender], IS[thing.person], graded(draw, adjective)).declarative()
    return linked(Clause(subject, form, thing).declarative(), ", but", ", aber", fault)


def relative_clause(draw: Draw, person: Phrase) -> Pair:
    """Draws what somebody does: "who has bought the car", "der das Auto gekauft hat"."""
    verb = draw(verbs_of_bystanders())
    who = Phrase("who", RELATIVE_PRONOUNS[person.gender][0], person.person)
    return clause_with(draw, verb, TIMELESS, who).subordinate()


def with_relative_clause(antecedent: Phrase, clause: Pair) -> Phrase:
    """Returns a subject with its relative clause between commas in German."""
    return Phrase(f"{antecedent.english} {clause[0]}", f"{antecedent.german}, {clause[1]},", antecedent.person)


def relative_subject(draw: Draw) -> Pair:
    """The man who bought the car is rich. - Der Mann, der das Auto gekauft hat, ist reich."""
    noun = draw(nouns_among(ANTECEDENTS))
    person = draw(determined(noun, THE, "nom")[PLAIN])
    subject = with_relative_clause(person, relative_clause(draw, person))
    return Clause(subject, IS[person.person], draw(noun.adjectives)).declarative()


def relative_after_object(draw: Draw) -> Pair:
    """I am calling the man who sold the car. - Ich rufe den Mann an, der das Auto verkauft hat."""
    verb = draw(verbs_about("people"))
    subject, form = conjugated(draw, verb, TIMELESS)
    person = draw(draw(determined(draw(nouns_among(ANTECEDENTS)), THE, verb.governed)))
    return linked(Clause(subject, form, person).declarative(), "", ",", relative_clause(draw, person))


def relative_object(draw: Draw) -> Pair:
    """The woman whom Peter is helping is tired. - Die Frau, der Peter hilft, ist müde."""
    verb = draw(verbs_about(draw(("people", "things"))))
    noun = noun_of_many(draw, verb)
    antecedent = draw(determined(noun, THE, "nom")[PLAIN])
    subject, form = conjugated(draw, verb, TIMELESS)
    relative = "whom" if noun.kind in ("person", "stranger") else "that"
    _, accusative, dative, _ = RELATIVE_PRONOUNS[antecedent.gender]
    pronoun = in_case(verb.governed, accusative, dative)
    clause = f"{relative} {subject.english} {form.english}", f"{pronoun} {subject.german} {form.final}"
    return Clause(with_relative_clause(antecedent, clause), IS[antecedent.person], draw(noun.adjectives)).declarative()


def reported_clause(draw: Draw) -> Pair:
    """I know that Anna has read the book. - Ich weiß, dass Anna das Buch gelesen hat. / whether - ob"""
    return introduced(draw(phrases(lexicon.REPORTS)), clause(draw, TIMELESS).subordinate())


def cause(draw: Draw) -> Pair:
    """Anna is sad because she has lost the key. - Anna ist traurig, weil sie den Schlüssel verloren hat."""
    emotion = draw(phrases(lexicon.EMOTIONS))
    subject, pronoun = draw(COREFERENTS)
    about_the_same = draw((True, False))
    reason = clause(draw, TIMELESS, pronoun) if about_the_same else clause_about_another(draw, TIMELESS, subject)
    feeling = Clause(subject, IS[subject.person], emotion)
    return linked(feeling.declarative(), " because", ", weil", reason.subordinate())


def concession(draw: Draw) -> Pair:
    """Although Anna is tired, she has to work. - Obwohl Anna müde ist, muss sie arbeiten."""
    handicap = draw(phrases(lexicon.HANDICAPS))
    subject, pronoun = draw(COREFERENTS)
    although = introduced(Phrase("although", "obwohl"), Clause(subject, IS[subject.person], handicap).subordinate())
    return linked(although, ",", ",", clause(draw, TIMELESS, pronoun).inverted())


def condition(draw: Draw) -> Pair:
    """If Anna sells the house, Peter will be sad. - Wenn Anna das Haus verkauft, wird Peter traurig sein."""
    subject = draw(draw(acquaintances()))
    if_so = introduced(IF, clause_about_another(draw, HABIT, subject).subordinate())
    return linked(if_so, ",", ",", Clause(subject, WILL_BE[subject.person], draw(phrases(lexicon.EMOTIONS))).inverted())


def weather_condition(draw: Draw) -> Pair:
    """If it rains, we will stay at home. - Wenn es regnet, werden wir zu Hause bleiben."""
    weather = IF.followed_by(draw(phrases(lexicon.WEATHER)))
    return linked((weather.english, weather.german), ",", ",", clause(draw, PROSPECT).inverted())


def infinitive_clause(draw: Draw, verb: Verb) -> Pair:
    """Draws what a verb takes: "call the doctor", "den Arzt anzurufen"."""
    complement = draw(draw(verb.complements))
    return f"{verb.english} {complement.english}", f"{complement.german} {verb.zu_infinitive}"


def infinitive(draw: Draw) -> Pair:
    """Anna has forgotten to call the doctor. - Anna hat vergessen, den Arzt anzurufen."""
    matrix = draw(infinitive_verbs())
    verb = draw(actions() if draw((True, True, False)) else intransitives())
    subject = draw(draw(verb.subjects))
    form = matrix[subject.person]
    main_clause = f"{subject.english} {form.english}", f"{subject.german} {form.finite}{form.bracket}"
    return linked(main_clause, "", ",", infinitive_clause(draw, verb))


def purpose(draw: Draw) -> Pair:
    """Anna is going to the city to buy a coat. - Anna geht in die Stadt, um einen Mantel zu kaufen."""
    verb = draw(verbs_named(PURPOSES))
    motion = draw(verbs_named("go, run, drive, travel, fly"))
    motion_clause = clause_with(draw, motion, TIMELESS, draw(draw(verb.subjects)))
    return linked(motion_clause.declarative(), " to", ", um", infinitive_clause(draw, verb))


WEIGHTS = {
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
}
