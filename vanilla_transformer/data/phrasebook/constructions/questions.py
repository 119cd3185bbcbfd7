"""Questions."""

from ..clauses import Clause, Draw, Pair, clause, clause_with, conjugated, introduced, question_about
from ..conjugation import HAVE, IS, QUESTION, TIMELESS
from ..declension import WHICH, nouns_among
from ..lexicon.verbs import LOCATED
from ..nominals import definites, determined, spatial_phrases
from ..phrases import PRONOUNS_OF_THINGS, Phrase, in_case, phrases
from ..verbs import actions, verbs_about, verbs_asked_by_what, verbs_in, verbs_named
from .choices import PLACEABLE, TENSES_AND_TIMES, noun_of_many


WHO = Phrase("who", "wer")
ADVERBS = (Phrase("why", "warum"), Phrase("when", "wann"), Phrase("where", "wo"))


def yes_no_question(draw: Draw) -> Pair:
    """Did Anna buy the car? - Hat Anna das Auto gekauft?"""
    return clause(draw, QUESTION).interrogative()


def adverb_question(draw: Draw) -> Pair:
    """Why is Anna calling the doctor? - Warum ruft Anna den Arzt an?"""
    word = draw(ADVERBS)
    verb = draw(verbs_named(LOCATED) if word.english == "where" else actions())
    asked = clause_with(draw, verb, QUESTION)
    while word.english != "why" and asked.verb.auxiliary in HAVE:  # "when have you come" is no English
        asked = clause_with(draw, verb, QUESTION)
    return introduced(word, asked.interrogative())


def object_question(draw: Draw) -> Pair:
    """What did Anna buy yesterday? - Was hat Anna gestern gekauft? / Whom is Anna helping? - Wem hilft Anna?"""
    word, verbs = draw((("what", verbs_asked_by_what()), ("whom", verbs_about("people"))))
    verb = draw(verbs)
    asked = Phrase(word, "was" if word == "what" else in_case(verb.governed, "wen", "wem"))
    tense, table = draw(((QUESTION, ""), *TENSES_AND_TIMES))
    if not table or not verb.tenses[tense]:
        return question_about(asked, *conjugated(draw, verb, QUESTION))
    time = draw(phrases(table))
    return introduced(asked, Clause(*conjugated(draw, verb, tense), time).interrogative())


def subject_question(draw: Draw) -> Pair:
    """Who has read the newspaper? - Wer hat die Zeitung gelesen?"""
    english, german = clause(draw, TIMELESS, WHO).declarative()
    return f"{english}?", f"{german}?"


def which_question(draw: Draw) -> Pair:
    """Which coat is Anna trying on? - Welchen Mantel probiert Anna an?"""
    verb = draw(verbs_in(QUESTION))
    while not verb.nouns:
        verb = draw(verbs_in(QUESTION))
    subject, form = conjugated(draw, verb, QUESTION)
    asked = draw(draw(determined(noun_of_many(draw, verb), WHICH, verb.governed)))
    return question_about(asked, subject, form)


def reference(draw: Draw) -> Pair:
    """Where is my red cup? It is on the table. - Wo ist meine rote Tasse? Sie ist auf dem Tisch."""
    thing = draw(draw(definites(draw(nouns_among(PLACEABLE)))))
    verb, it = IS[thing.person], PRONOUNS_OF_THINGS[thing.gender]
    english, german = Clause(it, verb, draw(spatial_phrases("dat"))).declarative()
    return (
        f"where {verb.english} {thing.english}? {english[0].upper()}{english[1:]}",
        f"wo {verb.finite} {thing.german}? {german[0].upper()}{german[1:]}",
    )


WEIGHTS = {
    yes_no_question: 12,
    adverb_question: 8,
    object_question: 4,
    subject_question: 4,
    which_question: 5,
    reference: 4,
}
