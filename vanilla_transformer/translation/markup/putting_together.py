"""From a translation, and the tree of its line's markup, to the translation with markup."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain, zip_longest

from ...attention.weights import WordAlignment
from .taking_apart import CLOSING, PLACEHOLDER, MarkedLine, Node
from .writing import written


def put_together(marked: MarkedLine, text: str, alignment: WordAlignment) -> str:
    """The translation of a line's text with the line's markup.

    Args:
        marked: The line in its parts.
        text: The translation of its text.
        alignment: Which words of the translation were made from which words of the text. Whatever it says, every tag
            and placeholder of the line is in the result once, and elements are nested as they were.
    """
    if not marked.text.strip():
        return marked.line
    layout = Layout(marked.text, text, alignment)
    layout.lay(marked.root, 0, len(layout.words))
    found = written(layout.parts, marked.kind)
    if Counter(PLACEHOLDER.findall(found)) != Counter(PLACEHOLDER.findall(marked.line)):
        # Text of the translation looks like a placeholder, by itself or beside one.
        found = written(layout.parts, marked.kind, apart=True)
    return found


class Layout:
    """Lays the nodes of a line around the words of its translation.

    `parts` is the result: pairs of a name (word, blank, open, close or point) and a text, or the node of a point.
    """

    def __init__(self, source_text: str, text: str, alignment: WordAlignment):
        self.source_text, self.text = source_text, text
        source = _marks_apart(_word_spans(alignment.source, source_text), source_text)
        words = _marks_apart(_word_spans(alignment.target, text), text)
        self.source, self.words = (list(chain.from_iterable(each)) for each in (source, words))
        self.links: list[int | None] = []
        places = list(accumulate(map(len, source), initial=0))
        for parts, link in zip_longest(words, alignment.links[: len(words)], fillvalue=-1):
            known = 0 <= link < len(source)  # mark k of several was made from mark k, or from the last one
            self.links += [places[link] + min(k, len(source[link]) - 1) if known else None for k in range(len(parts))]
        self.starts = [start for start, _ in self.source]
        self.parts: list[tuple[str, str | Node]] = []
        self.blanks = 0  # words whose blank has been written

    def lay(self, node: Node, low: int, high: int) -> None:
        """Writes the words of a node, low to high, with its children among them."""
        at = low
        for begin, end, child in self._places(node, low, high):
            self._write(at, begin)
            at = end
            if child.is_point:
                self.parts.append(("point", child))
                continue
            if begin < end:
                self._write_blank(begin)
            self.parts.append(("open", child.before))
            self.lay(child, begin, end)
            self.parts.append(("close", child.after))
        self._write(at, high)

    def _write(self, begin: int, end: int) -> None:
        for word in range(begin, end):
            self._write_blank(word)
            start, stop = self.words[word]
            self.parts.append(("word", self.text[start:stop]))

    def _write_blank(self, word: int) -> None:
        if word == self.blanks and word and self.words[word - 1][1] < self.words[word][0]:
            self.parts.append(("blank", self.text[self.words[word - 1][1] : self.words[word][0]]))
        self.blanks = max(self.blanks, word + 1)

    def _places(self, node: Node, low: int, high: int) -> list[tuple[int, int, Node]]:
        """The words of each child, from begin to end, in order; for points and empty elements these are equal."""
        children = [child for child in node.children if child.start < child.end]
        starts = [child.start for child in children]
        owned: list[list[int]] = [[] for _ in children]
        reached: dict[int, list[int]] = {}  # the first and last word made from each word of the source
        for word in range(low, high):
            link = self.links[word]
            if link is None:
                continue
            reached.setdefault(link, [word, word])[1] = word
            start, end = self.source[link]
            owner = bisect_right(starts, max(start, end - 1)) - 1
            if owner >= 0 and children[owner].end > start:
                owned[owner].append(word)
        wide = _disjoint([(*_interval(words), number, words) for number, words in enumerate(owned) if words])
        places = {id(children[number]): (begin, end) for begin, end, number in wide}
        found, order = [], {id(child): number for number, child in enumerate(node.children)}
        for number, child in enumerate(node.children):
            if id(child) not in places:
                gap = self._gap(node, child, reached, low, high)
                for begin, end, other in wide:
                    if begin < gap < end:  # not into an element that it was not in
                        gap = begin if number < order[id(children[other])] else end
                found.append((gap, gap, number, child))
            else:
                found.append((*places[id(child)], number, child))
        return [(begin, end, child) for begin, end, _, child in sorted(found, key=lambda each: each[:3])]

    def _gap(self, parent: Node, child: Node, reached: dict[int, list[int]], low: int, high: int) -> int:
        """The word before which a point, or an element without words in the translation, comes."""
        first, after = (bisect_right(self.starts, place - 1) for place in (parent.start, parent.end))
        right = bisect_right(self.starts, child.start - 1)
        left, beyond = right - 1, bisect_right(self.starts, child.end - 1)
        if left < first:
            return low
        if beyond >= after:
            return high
        lefts = (reached[word][1] + 1 for word in range(left, first - 1, -1) if word in reached)
        rights = (reached[word][0] for word in range(beyond, after) if word in reached)
        to_the_right = child.is_point and (not child.left or child.left.isspace()) and not child.right.isspace()
        near = rights if to_the_right and right in reached else lefts
        rest = self.source_text[child.end : parent.end]
        if _is_closing(rest):  # then as many marks of the translation come after it too
            last = high - len("".join(rest.split()))
            while high > max(low, last) and _is_closing(self.text[slice(*self.words[high - 1])]):
                high -= 1
        found = next(near, None)
        return min(high, next(rights, low) if found is None else found)


def _is_closing(text: str) -> bool:
    return bool(text.strip()) and not text.strip(CLOSING + " ")


def _word_spans(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where each word is in a text. Words that a tokenizer has changed get a share of it."""
    places = [place for place, character in enumerate(text) if not character.isspace()]
    total = sum(map(len, words))
    if not places or not total:
        return [(places[0], places[-1] + 1)] if places else []
    found, length, begin = [], 0, 0
    for word in words:
        length += len(word)
        end = length * len(places) // total
        start = places[begin] if begin < len(places) else places[-1] + 1
        found.append((start, places[end - 1] + 1 if end > begin else start))
        begin = end
    return found


def _marks_apart(spans: Sequence[tuple[int, int]], text: str) -> list[list[tuple[int, int]]]:
    """Each word as a list of itself, and a word of marks alone, such as `").`, as its marks: a point may be inside."""
    found = []
    for start, end in spans:
        marks = [(place, place + 1) for place in range(start, end) if not text[place].isspace()]
        found.append([(start, end)] if any(map(str.isalnum, text[start:end])) or not marks else marks)
    return found


def _interval(words: Sequence[int]) -> tuple[int, int]:
    """The stretch with most of the given words and fewest others, so that one wrong link does not widen it."""
    best, start, value = (0, 0, 0), words[0], 0
    for previous, word in zip([words[0], *words], words, strict=False):
        value -= max(0, word - previous - 1)
        if value < 0:
            start, value = word, 0
        value += 1
        best = max(best, (value, word + 1 - start, start))
    return best[2], best[2] + best[1]


def _disjoint(wide: list[tuple[int, int, int, list[int]]]) -> list[tuple[int, int, int]]:
    """Elements (begin, end, number, words) in the order of their words, each cut where the next one begins."""
    wide = sorted(wide, key=lambda each: (each[0] + each[1], each[2]))
    found: list[tuple[int, int, int]] = []
    for begin, end, number, words in wide:
        if found and begin < found[-1][1]:
            start, stop, other = found[-1]
            others = next(each[3] for each in wide if each[2] == other)
            lost = {
                cut: sum(cut <= word < stop for word in others) + sum(begin <= word < cut for word in words)
                for cut in range(start, stop + 1)
            }
            cut = min(lost, key=lost.__getitem__)
            found[-1] = (start, cut, other)
            begin, end = max(begin, cut), max(end, cut)
        found.append((begin, max(begin, end), number))
    return found
