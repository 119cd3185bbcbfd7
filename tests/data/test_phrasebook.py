"""The phrasebook's German, checked against hand-typed sentences, articles and endings; and its splits."""

import os
import re
import subprocess
import sys
from itertools import islice

import pytest

from vanilla_transformer.data.phrasebook import phrasebook, sentences


BY_HAND = """
    She does not know me. = Sie kennt mich nicht.
    He is not calling me. = Er ruft mich nicht an. | Did they arrive late? = Sind sie spät angekommen?
    Anna often listens to us. = Anna hört uns oft zu. | Is Peter sleeping at home? = Schläft Peter zu Hause?
    Whom did Anna wait for? = Auf wen hat Anna gewartet? | She always waits for you. = Sie wartet immer auf dich.
    Tomorrow they will work. = Morgen werden sie arbeiten. | He slept in the city. = Er hat in der Stadt geschlafen.
    What did Peter turn on? = Was hat Peter eingeschaltet? | Which dog did we find? = Welchen Hund haben wir gefunden?
    I gave you a bag. = Ich habe dir eine Tasche gegeben. | Which picture did he lose? = Welches Bild hat er verloren?
    Is he drinking good water? = Trinkt er gutes Wasser? | I know that he is getting up. = Ich weiß, dass er aufsteht.
    Which boy is he helping? = Welchem Jungen hilft er? | The castles are very small. = Die Schlösser sind sehr klein.
    She never gets up late. = Sie steht nie spät auf. | The picture is behind the bed. = Das Bild ist hinter dem Bett.
    Who has to invite him? = Wer muss ihn einladen? | Who got up at six o'clock? = Wer ist um sechs Uhr aufgestanden?
    We do not have a lamp. = Wir haben keine Lampe. | The letter is under the chair. = Der Brief ist unter dem Stuhl.
    What is she trying on? = Was probiert sie an? | On Mondays Paul goes to the park. = Montags geht Paul in den Park.
    Anna did not go to the city. = Anna ist nicht in die Stadt gegangen.
    You do not have a car. = Du hast kein Auto. | The woman whom I know is young. = Die Frau, die ich kenne, ist jung.
    Whom are you inviting? = Wen lädst du ein? | Nobody knows whether we know you. = Niemand weiß, ob wir dich kennen.
    Yesterday Anna went to the park. = Gestern ist Anna in den Park gegangen.
    The woman who worked is sad. = Die Frau, die gearbeitet hat, ist traurig.
    Is he eating soup? = Isst er Suppe? | She is asking whether I called him. = Sie fragt, ob ich ihn angerufen habe.
    He helps them. = Er hilft ihnen. | The letter that we are reading is sad. = Der Brief, den wir lesen, ist traurig.
    You help him. = Du hilfst ihm. | I know that he is turning on a lamp. = Ich weiß, dass er eine Lampe einschaltet.
    The teacher whom we helped is good. = Der Lehrer, dem wir geholfen haben, ist gut.
    The boy who went home is tired. = Der Junge, der nach Hause gegangen ist, ist müde.
    Nobody knows whether Maria can call her. = Niemand weiß, ob Maria sie anrufen kann.
    Peter is sad because he wants to get up. = Peter ist traurig, weil er aufstehen will.
    The child whom they talked to is sad. = Das Kind, mit dem sie gesprochen haben, ist traurig.
    If the weather is good, she has to invite him. = Wenn das Wetter gut ist, muss sie ihn einladen.
    Although Maria is tired, she went to the city. = Obwohl Maria müde ist, ist sie in die Stadt gegangen.
"""
# Masculine; feminine; neuter; plural. Each: nominative, accusative, dative, with adjective endings; "K" is the stem.
PHRASES = {
    "the": "der e, den en, dem en; die e, die e, der en; das e, das e, dem en; die en, die en, den en",
    "this": "Ker e, Ken en, Kem en; Ke e, Ke e, Ker en; Kes e, Kes e, Kem en; Ke en, Ke en, Ken en",
    "a": "K er, Ken en, Kem en; Ke e, Ke e, Ker en; K es, K es, Kem en; Ke en, Ke en, Ken en",
    "": " er, en, em; e, e, er; es, es, em; e, e, en",
}
STEMS = "this dies, these dies, a ein, my mein, your dein, his sein, her ihr, our unser, their ihr"
ADJECTIVES = """old alt, young jung, new neu, big groß, small klein, red rot, good gut, hot heiß, expensive teur,
    friendly freundlich, tired müd, sad traurig, blue blau, cold kalt"""
# After a slash: singular accusative and dative, or plural dative.
NOUNS = """man Mann, boy Junge/Jungen, doctor Arzt, student Student/Studenten, dog Hund, key Schlüssel, coat Mantel,
    teacher Lehrer, friend Freund, letter Brief, table Tisch, chair Stuhl, apple Apfel, cake Kuchen, coffee Kaffee;
    woman Frau, sister Schwester, cat Katze, newspaper Zeitung, jacket Jacke, bag Tasche, lamp Lampe, milk Milch;
    girl Mädchen, child Kind, horse Pferd, book Buch, dress Kleid, car Auto, picture Bild, bed Bett, water Wasser;
    men Männer/Männern, boys Jungen, girls Mädchen, children Kinder/Kindern, doctors Ärzte/Ärzten, cars Autos,
    women Frauen, friends Freunde/Freunden, dogs Hunde/Hunden, books Bücher/Büchern, keys Schlüssel"""
ROLES = (  # what precedes a subject, an accusative, a dative
    "(?i)^",
    "(?:wait.* for|look.* for|knows?|needs?|find|found|lost|call(?:s|ed|ing)?|reading|buying|drink|drank) ",
    "(?:help(?:s|ed|ing)?|listen.* to|talk.* to|behind|under|next to) ",
)
FINITE = """bin bist ist habe hast hat werde wirst wird kann kannst muss musst will willst lese liest kaufe kaufst kauft
    esse isst trinke trinkst trinkt suche suchst sucht schalte schaltest schaltet probiere probierst probiert
    rufe rufst ruft lade lädst lädt helfe hilfst hilft höre hörst hört warte wartest wartet spreche sprichst
    spricht gebe gibst gibt brauche brauchst braucht sehe siehst sieht mag magst kenne kennst kennt schlafe
    schläfst schläft arbeite arbeitest arbeitet stehe stehst steht komme kommst kommt gehe gehst geht weiß"""
LAST = FINITE + "".join(f" {prefix}{finite}" for prefix in ("ein", "an", "auf", "zu") for finite in FINITE.split())
WHO = "(?:ich|du|er|Anna|Maria|Peter|Paul)"
VERB_POSITIONS = (  # where the verb of a singular subject must stand, and the forms it can take there
    (rf"(?i:{WHO}) (\w+)", FINITE),
    (rf"(?:Heute|Morgen|Gestern|Montags|Freitags|Am \w+|Nächste Woche|Vor zwei Tagen|Warum|Was) (\w+) {WHO}\b", FINITE),
    (rf"(?:Wenn|Obwohl) [^,]*, (\w+) {WHO}\b", FINITE),
    (rf".*, (?:dass|ob|weil) {WHO}\b.* (\w+)\.", LAST),
    (r"[^,]*, (?:auf |mit )?(?:die|das|den|dem|der|denen) (?:ich|du|er)\b[^,]* (\w+), (?:ist|sind) \w+\.", LAST),
)


@pytest.fixture(scope="module")
def pairs():
    return list(islice(sentences(0), 120_000))


def test_sentences_match_translations_by_hand(pairs):
    german = dict(pairs)
    for english, expected in (pair.split(" = ") for line in BY_HAND.strip().splitlines() for pair in line.split(" | ")):
        assert german.get(english.strip()) == expected, english


def test_articles_and_endings_are_correct(pairs):
    stems, adjectives = (dict(row.split() for row in table.split(",")) for table in (STEMS, ADJECTIVES))
    nouns = {row.split()[0]: (i, row.split()[1]) for i, some in enumerate(NOUNS.split(";")) for row in some.split(",")}
    phrase = rf"(?:(the|an|{'|'.join(stems)}) )?(?:({'|'.join(adjectives)}) )?({'|'.join(nouns)})\b"
    found = set()
    for english, german in pairs:
        for case, role in enumerate(ROLES):
            for match in re.finditer(role + phrase, english):
                word, adjective, noun = (part.lower() if part else "" for part in match.groups())
                word, (gender, forms) = "a" if word == "an" else word, nouns[noun]
                negated = word in ("", "a") and re.search(" not |cannot", english[: match.start()])
                stem = "kein" if negated else stems.get(word, "")
                kind = "this" if stem == "dies" else "a" if stem else word
                article, ending = PHRASES[kind].split(";")[gender].split(",")[case].rsplit(" ", 1)
                article = article.strip().replace("K", stem)
                inflected = [adjectives[adjective] + ending] if adjective else []
                german_noun = forms.split("/")[-1 if case == 2 or (case == 1 and gender < 3) else 0]
                expected = " ".join([article, *inflected, german_noun]).strip()
                assert re.search(rf"\b{expected}\b", german, re.IGNORECASE), (english, german, expected)
                found.add((kind, gender, case, bool(adjective)))
    without_article = 2 * 3 + 2 * 3  # plurals in all cases; coffee, milk and water in the accusative
    assert len(found) == 3 * 4 * 3 * 2 + without_article


def test_verb_positions_and_forms_are_correct(pairs):
    for pattern, forms in VERB_POSITIONS:
        found = [(match[1], german) for _, german in pairs if (match := re.match(pattern, german))]
        assert len(found) > 500, pattern
        assert [each for each in found if each[0] not in forms.split()] == []


def test_every_sentence_is_well_formed_and_has_one_translation(pairs):
    assert len(dict(pairs)) == len(set(pairs)) > 0.8 * len(pairs)
    assert all(re.fullmatch(r"[A-ZÄÖÜ][\w']*(,? [\w']+)*[.?]", text) for pair in pairs for text in pair)


def test_splits_are_disjoint_and_the_same_in_every_process():
    splits = ("train", "validation", "test")
    code = (
        "from itertools import islice; from vanilla_transformer.data.phrasebook import phrasebook;"
        f"print(ascii([list(islice(phrasebook(split, seed=3), 2000)) for split in {splits}]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    here, others = ([list(islice(phrasebook(split, seed=seed), 2000)) for split in splits] for seed in (3, 4))
    assert done.stdout == ascii(here) + "\n"
    assert here != others
    train, validation, test = ({pair["en"] for pair in [*here[i], *others[i]]} for i in range(3))
    assert not train & validation | train & test | validation & test
    with pytest.raises(ValueError, match='"train", "validation" or "test", got \'dev\''):
        phrasebook("dev")
