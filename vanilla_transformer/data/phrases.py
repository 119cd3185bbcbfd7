"""Phrase pairs of parallel text: short pieces of its pairs that translate each other, as more text to train on.

    the old man sleeps | der alte Mann schläft    ->    the old man | der alte Mann,    sleeps | schläft

A model of little text learns whole sentences by heart. With pieces of the sentences beside them it learns what each
word means, apart from the sentences that it comes from, and so it translates other kinds of text better, too. (Sen et
al. 2021, "Neural machine translation of low-resource languages using SMT phrase pair injection".)

    text -> word alignment -> phrase pairs consistent with it (Koehn, Och and Marcu 2003) -> the reliable ones
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .scripts import LETTERS, WORD
from .word_aligner import Links, align_corpus, parts_to_align


LONGEST = 5  # words of a phrase, as in most phrase tables
_LEAST_SHARE = 0.2  # of the occurrences of either phrase that have the other one for a translation


def phrase_pairs(pairs: Iterable[tuple[str, ...]]) -> list[tuple[str, str]]:
    """The phrase pairs of a parallel text, in the order in which they first occur.

    A phrase pair is up to five words in a row on each side. The first and last words are linked, and no word is linked
    to a word outside (Koehn, Och and Marcu 2003, https://aclanthology.org/N03-1017, section 3). Kept are pairs with a
    letter on both sides in which either side has the other for a translation in at least a fifth of its occurrences;
    a single source word must occur with its translation twice. Whole pairs of the text are left out.

    Args:
        pairs: Source and target of each; what follows them is ignored. Pairs of more than 100 words on a side are not
            aligned.

    Returns:
        Phrase pairs, each once. The text is in NFC.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for part in parts_to_align(pairs, lambda text: list(WORD.finditer(text))):
        words = [[[word.group().lower() for word in text] for text in side] for side in zip(*part, strict=True)]
        for (source, target), links in zip(part, align_corpus(*words), strict=True):
            for begin, end, first, last in _consistent(len(source), len(target), links):
                if (end - begin, last - first) == (len(source), len(target)):
                    continue  # the whole pair
                phrase = _text(source[begin:end]), _text(target[first:last])
                if all(map(LETTERS.search, phrase)):
                    counts[phrase] += 1
    totals: list[Counter[str]] = [Counter(), Counter()]
    for phrase, count in counts.items():
        for total, side in zip(totals, phrase, strict=True):
            total[side] += count
    return [
        phrase
        for phrase, count in counts.items()
        if all(count >= _LEAST_SHARE * total[side] for total, side in zip(totals, phrase, strict=True))
        and (count > 1 or len(WORD.findall(phrase[0])) > 1)
    ]


def _text(words: Sequence) -> str:
    """The text from the first of these words to the last."""
    return words[0].string[words[0].start() : words[-1].end()]


def _consistent(m: int, n: int, links: Links) -> Iterator[tuple[int, int, int, int]]:
    """Phrase pairs of m and n words: begin and end (behind the last word) of either side."""
    of_source, of_target = defaultdict(list), defaultdict(list)
    for i, j in sorted(links):
        of_source[i].append(j)
        of_target[j].append(i)
    for begin in sorted(of_source):
        linked: list[int] = []
        for end in range(begin + 1, min(m, begin + LONGEST) + 1):
            linked += of_source.get(end - 1, ())
            first, last = min(linked), max(linked) + 1
            if end - 1 not in of_source or last - first > LONGEST:
                continue
            if all(begin <= i < end for j in range(first, last) for i in of_target.get(j, ())):
                yield begin, end, first, last
