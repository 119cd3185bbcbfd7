"""Soft terms: annotations checked by hand, the words of the lexicon, the random draws, and resumed streams."""

import itertools
from collections import Counter
from random import Random

import numpy as np
import pytest

from vanilla_transformer import Glossary
from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.corpora import PairStream, TextCorpus
from vanilla_transformer.data.languages import tag_ids
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.terms import (
    TERM_LEXICON,
    TERM_MARKERS,
    TermAnnotation,
    TermLexicon,
    annotated_ids,
    learn_lexicon,
    marker_ids,
)
from vanilla_transformer.data.tokenizer import APOSTROPHE_LETTER, TokenizerSettings, as_read_by, learn_tokenizer


TEXTS = ["The hot dog's owner, Anna.", "Der Hund sieht Anna im Park.", "new York (dogs) 2 \t x"]
LEXICON = TermLexicon({("dog", "Hund"): 9, ("dog", "Tier"): 2, ("park", "Park"): 900, ("red", "rote"): 30})


@pytest.fixture(scope="module", params=["bpe", "wordpiece", "pretokenized"])
def tokenizer(request):
    settings = {"bpe": ("bpe", 300), "wordpiece": ("wordpiece", 560), "pretokenized": ("bpe", 300, False, True)}
    return learn_tokenizer(TEXTS * 2, TokenizerSettings(*settings[request.param]), tags=["<bt>", *TERM_MARKERS])


@pytest.fixture(scope="module")
def bpe():
    return learn_tokenizer(TEXTS * 2, TokenizerSettings(vocab_size=300), tags=["<bt>", *TERM_MARKERS])


def read(tokenizer, ids) -> tuple[str, list[tuple[str, str]]]:
    """The ids of a source without its annotations, and the annotated terms."""
    src, trg, done = marker_ids(tokenizer)
    plain, terms, part = [], [], None
    for number in ids:
        if number in (src, trg, done):
            part = {src: [], trg: [], done: None}[number]
            if part is not None:
                terms.append(part)
        else:
            plain += [number] if part is None or number == tokenizer.eos_token_id else []
            plain += [number] if part is not None and len(terms) % 2 else []
            if part is not None:
                part.append(number)
    texts = [tokenizer.decode(each) for each in terms]
    return plain, list(zip(texts[::2], texts[1::2], strict=True))


def pairs_of(tokenizer, texts, tag=()):
    return [
        {"input_ids": np.array([*tag, *tokenizer(source).input_ids]), "labels": tokenizer(target).input_ids}
        for source, target in texts
    ]


def test_annotations_match_ids_by_hand(tokenizer):
    def ids(text):
        return tokenizer(text, add_special_tokens=False).input_ids

    src, trg, done = marker_ids(tokenizer)
    glossary = Glossary([("dog", "Hund|Tier"), ("new york", None)])
    for line, expected in (
        ("The dog runs", [*ids("The"), src, *ids("dog"), trg, *ids("Hund"), done, *ids("runs")]),
        ("dog", [src, *ids("dog"), trg, *ids("Hund"), done]),
        ("in New York", [*ids("in"), src, *ids("New York"), trg, *ids("New York"), done]),  # as written in the text
        ("<src> <done>", ids("<src> <done>")),  # text is never a marker
    ):
        assert glossary.annotated(line, tokenizer) == [*expected, tokenizer.eos_token_id]
    assert not set(glossary.annotated("<src> <done>", tokenizer)) & {src, trg, done}


def test_text_around_an_annotation_is_unchanged(tokenizer):
    glossary = Glossary([("dog", "Hund"), ("Anna", None), ("x", "日本"), ("2", "zwei"), ("owner", "O'Hara")])
    for line in [*TEXTS, ' A "dog"  and\tdog, dogs-dog. ', "(Anna's) 2x x2 x", "dog's Ünïcödé owner; x\u0301 x!?"]:
        found, terms = read(tokenizer, glossary.annotated(line, tokenizer))
        assert terms == [(each.text, each.targets[0]) for each in glossary.find(line)]
        assert tokenizer.decode(found) == tokenizer.decode(tokenizer(line).input_ids)
        if tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(" dog.")[0][0] == "Ġdog":  # "dog." is not a word
            assert found == tokenizer(line).input_ids, line


def test_missing_markers_raise_and_name_the_remedy():
    plain = learn_tokenizer(TEXTS * 2, TokenizerSettings(vocab_size=300))
    for use in (
        lambda: annotated_ids(plain, [("a dog", [(2, 5, "Hund")])]),
        lambda: TermAnnotation(plain, LEXICON, 0.1),
    ):
        with pytest.raises(ValueError, match=r"no <src>, <trg>, <done>, .* train one.* \{terms: 0\.1\}"):
            use()


def test_lexicon_learns_aligned_words_and_round_trips(tmp_path):
    people = [("Anna", "Anna"), ("she", "sie"), ("he", "er"), ("Paul", "Paul")]
    things = [("dog", "Hund"), ("house", "Haus"), ("cat", "Katze"), ("ball", "Ball"), ("tree", "Baum")]
    pairs = [
        (f"{who[0].upper()}{who[1:]} sees a {what} .", f"{wer[0].upper()}{wer[1:]} sieht {was} .")
        for (who, wer), (what, was) in itertools.product(people, things)
    ]
    lexicon = learn_lexicon([*pairs, *pairs, ("once only", "nur einmal"), ("a " * 300, "b"), ("", "leer")])
    wanted = {(source.lower(), target) for source, target in things}
    assert wanted <= lexicon.links.keys()
    # A word that begins every sentence is mostly capitalised.
    assert {(source.lower(), target.capitalize()) for source, target in people} <= lexicon.links.keys()
    assert not any("." in pair or "nur" in pair for pair in lexicon.links)
    assert lexicon.links["dog", "Hund"] == 8
    lexicon.save(tmp_path)
    content = (tmp_path / TERM_LEXICON).read_bytes()
    again = TermLexicon.load(tmp_path)
    assert (again, again.fingerprint) == (lexicon, lexicon.fingerprint)
    again.save(tmp_path)
    assert (tmp_path / TERM_LEXICON).read_bytes() == content
    (tmp_path / TERM_LEXICON).write_bytes(content[:-9])
    with pytest.raises(ValueError, match="restore it"):
        TermLexicon.load(tmp_path)
    with pytest.raises(ValueError, match=r"leave augmentation\.terms out"):
        learn_lexicon([("a", "b")])


def test_terms_have_the_apostrophes_that_the_vocabulary_takes_for_letters():
    # "mba'e" and "mbae" are two words of Guarani; cut at the apostrophe, "mba" and "e" would be words of both texts.
    nouns = {"cosa": "mba'e", "pez": "pira", "casa": "óga", "cuerda": "sã"}
    pairs = [(f"una {noun}", f"peteĩ {thing}") for noun, thing in nouns.items()] * 3
    settings = {"vocab_size": 290, "apostrophe_as_letter": True}
    texts = [text for pair in pairs for text in pair]
    letters = learn_tokenizer(texts, TokenizerSettings(**settings), tags=TERM_MARKERS)
    lexicon = learn_lexicon(pairs, as_read_by(letters))
    assert [target for source, target in lexicon.links if source == "cosa"] == [f"mba{APOSTROPHE_LETTER}e"]
    annotation = TermAnnotation(letters, lexicon, 1.0)
    found = annotation(pairs_of(letters, [("una cosa", "peteĩ mba’e")]) * 300, (1,))
    said = Counter(term for each in found for term in read(letters, each["input_ids"])[1])
    assert said["cosa", "mba'e"] > 50
    assert not any(target in ("mba", "e") for _, target in said)
    plain = learn_tokenizer(texts, TokenizerSettings(vocab_size=290))
    assert as_read_by(plain) is str


def test_stream_and_memory_give_the_same_lexicon():
    pairs = [(row["en"], row["de"]) for row in itertools.islice(phrasebook("train"), 300)]
    stream = PairStream("three units", 3, lambda unit: iter(pairs[unit * 100 : unit * 100 + 100]))
    found = [learn_lexicon(corpus.texts()) for corpus in (TextCorpus("text", pairs, {}), stream)]
    assert found[0] == found[1]


def test_annotations_follow_the_requested_share_and_weights(bpe):
    [bt] = tag_ids(bpe, ["<bt>"]).values()
    texts = [("The red dog in the park.", "Der rote Hund im Park."), ("A dog, a dog.", "Ein Hund.")]  # a word twice
    pairs = pairs_of(bpe, texts * 4_000, (bt,))
    found = TermAnnotation(bpe, LEXICON, 0.2)(pairs, (3, 1))
    numbers, replaced = Counter(), Counter()
    for old, new in zip(pairs, found, strict=True):
        tag, *source = new["input_ids"]
        plain, terms = read(bpe, source)
        assert [tag, *plain] == old["input_ids"].tolist()
        if "A dog" in bpe.decode(plain):
            assert not terms
            continue
        target = bpe.decode(new["labels"])
        assert all(said in target for _, said in terms)
        if not terms:
            assert new["labels"] == old["labels"]
            continue
        by_text = dict(terms)
        numbers[len(terms)] += 1
        for word, right in (("dog", "Hund"), ("red", "rote"), ("park", "Park"), ("red dog", "rote Hund")):
            if word in by_text:
                replaced[by_text[word] != right] += 1
    annotated = numbers.total()
    assert annotated / 4_000 == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / 4_000) ** 0.5)
    # About one replacement in nine gives the right word by chance, as two joined halves may: the rest are wrong.
    assert replaced[True] / replaced.total() == pytest.approx(0.3 * 0.88, abs=0.04)
    assert numbers[1] / annotated == pytest.approx(1 / 3, abs=4 * (2 / 9 / annotated) ** 0.5)


def test_rare_words_become_terms_more_often(bpe):
    annotation, firsts, generator = TermAnnotation(bpe, LEXICON, 1.0), Counter(), Random(1)
    for _ in range(6_000):
        terms = annotation.terms_of("A dog sees a park", "Hund sieht Park", generator)
        if len(terms) == 1:
            firsts[terms[0].start] += 1
    dog, park = firsts[2], firsts[13]
    share = 11**-0.5 / (11**-0.5 + 900**-0.5)
    assert dog / (dog + park) == pytest.approx(share, abs=3.5 * (share * (1 - share) / (dog + park)) ** 0.5)


def test_neighbouring_words_can_become_one_term(bpe):
    [pair] = pairs_of(bpe, [("The red dog", "Der rote Hund")])
    annotation = TermAnnotation(bpe, LEXICON, 1.0)
    found = Counter(tuple(read(bpe, each["input_ids"])[1]) for each in annotation([pair] * 1500, (1,)))
    assert {(("red dog", "rote Hund"),), (("red", "rote"),), (("red", "rote"), ("dog", "Hund"))} <= found.keys()
    both = sum(n for terms, n in found.items() if terms[0][0] == "red dog")
    # "red" (weight 30^-0.5) must be drawn before "dog" (11^-0.5): only "red" is followed by another word.
    red = 30**-0.5 / (30**-0.5 + 11**-0.5)
    assert both / 1500 == pytest.approx(0.3 * red, abs=4 * (0.3 * red / 1500) ** 0.5)


def test_result_depends_on_the_key_and_keeps_limits(bpe):
    pairs = pairs_of(bpe, [("The red dog in the park.", "Der rote Hund im Park.")] * 60)
    new = [TermAnnotation(bpe, LEXICON, 0.7)(pairs, key) for key in ((0, 5), (0, 5), (1, 5))]
    assert str(new[0]) == str(new[1]) != str(new[2])
    longest = sorted(len(each["input_ids"]) for each in new[0])[40]
    limited = TermAnnotation(bpe, LEXICON, 0.7, max_source_length=longest)(pairs, (0, 5))
    for old, free, found in zip(pairs, new[0], limited, strict=True):
        expected = free if len(free["input_ids"]) <= longest else old
        assert list(found["input_ids"]) == list(expected["input_ids"])
    assert TermAnnotation(bpe, LEXICON, 1.0)([], (1,)) == []


def test_resumed_stream_gives_the_same_annotations(bpe):
    texts = [("The red dog in the park.", "Der rote Hund im Park."), ("A dog.", "Ein Tier.")] * 150
    unit = len(texts) // 4
    pairs = PairStream("four units", 4, lambda number: iter(texts[number * unit : (number + 1) * unit]))

    def stream(state=None):
        made = TokenBatchStream(pairs, bpe, 300, buffer_pairs=100, seed=3, passes=2)
        made.rewriters = [TermAnnotation(bpe, LEXICON, 0.5)]
        if state is not None:
            made.load_state_dict(state)
        return made

    whole = list(map(str, stream()))
    stopped = stream()
    batches = iter(stopped)
    found = [str(batch) for batch in itertools.islice(batches, len(whole) // 3)]
    state = stopped.state_dict()
    batches.close()
    assert [*found, *map(str, stream(state))] == whole
    assert len(whole) > 20
    other = stream()
    other.rewriters = [TermAnnotation(bpe, TermLexicon({("a", "b"): 2}), 0.5)]
    with pytest.raises(ValueError, match="terms was"):
        other.load_state_dict(state)
