"""Phrase pairs: exactly those that the definition allows, and only reliable ones."""

import unicodedata
from itertools import islice
from random import Random

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.phrases import LONGEST, _consistent, phrase_pairs
from vanilla_transformer.data.scripts import WORD


def by_definition(m, n, links):
    """Koehn, Och and Marcu 2003: no link leaves the phrase pair; and the words at its ends are linked."""
    for begin in range(m):
        for end in range(begin + 1, min(m, begin + LONGEST) + 1):
            for first in range(n):
                for last in range(first + 1, min(n, first + LONGEST) + 1):
                    inside = [(begin <= i < end, first <= j < last) for i, j in links]
                    sources, targets = (
                        {link[side] for link, within in zip(links, inside, strict=True) if all(within)}
                        for side in (0, 1)
                    )
                    ends = {begin, end - 1} <= sources and {first, last - 1} <= targets
                    if ends and all(source == target for source, target in inside):
                        yield begin, end, first, last


def test_phrase_pairs_are_those_of_the_definition():
    rng, found = Random(5), 0
    for _ in range(1000):
        m, n = rng.randint(1, 8), rng.randint(1, 8)
        links = {(rng.randrange(m), rng.randrange(n)) for _ in range(rng.randint(0, 10))}
        expected = sorted(by_definition(m, n, links))
        assert sorted(_consistent(m, n, links)) == expected
        found += len(expected)
    assert found > 1000  # or nothing was compared


def test_phrases_of_the_phrasebook_translate_each_other():
    pairs = [(row["en"], row["de"]) for row in islice(phrasebook("train"), 3000)]
    found = phrase_pairs(pairs)
    assert len(set(found)) == len(found) > 3000
    assert not set(found) & set(pairs)
    texts = [" | ".join(side) for side in zip(*pairs, strict=True)]
    for phrase in found:
        for text, side in zip(texts, phrase, strict=True):
            assert side in text
            assert 1 <= len(WORD.findall(side)) <= LONGEST
            assert any(map(str.isalpha, side))
    assert {("church", "Kirche"), ("red apple", "roten Apfel"), ("on Monday", "am Montag")} <= set(found)
    assert phrase_pairs(pairs) == found


def test_phrases_of_scripts_without_spaces_and_of_combining_marks():
    pairs = [
        ("猫が水を飲む。", "mbarakaja hoy’u y."),
        ("猫が寝る。", "mbarakaja oke."),
        ("犬が水を飲む。", "jagua hoy’u y."),
    ] * 4
    found = phrase_pairs((unicodedata.normalize("NFD", source), target) for source, target in pairs)
    assert ("猫", "mbarakaja") in found
    assert all(unicodedata.is_normalized("NFC", text) for phrase in found for text in phrase)


def test_text_without_phrases():
    assert phrase_pairs([]) == []
    assert phrase_pairs([("", "x"), ("a", "")]) == []
    assert phrase_pairs([("yes", "ja")] * 3) == []  # a whole pair
