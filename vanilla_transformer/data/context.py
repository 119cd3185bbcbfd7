"""Sentences before: a source is read behind the N sentences that precede it in its document.

    x_(i-N) <sep> ... <sep> x_(i-1) <sep> x_i </s>    ->    y_i </s>

This is the "2+1" of Tiedemann and Scherrer (2017, "Neural Machine Translation with Extended Context",
https://aclanthology.org/W17-4811) for any N: the source is extended, the target stays one sentence. Their "2+2" has the
model write the sentences before again, too. With one sentence each line still has exactly one translation, so nothing
has to be cut out of it, a wrong translation does not spoil the next, and lines can be searched for, scored and
translated side by side. The price is that a model does not see how it put things before.

The separator is a token of its own, which no text makes, however it is spelt. The first sentences of a document have
fewer before them, or none. A document ends at a pair that is blank on both sides, where a column `document` has another
value, and where a unit of a stream does. Where there is no room for all of it, the farthest context is left out first.

A tokenizer says how many sentences its model reads, so that whatever has the tokenizer can translate as it was trained.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .tokenizer import tag_ids


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = "<sep>"
"""The token behind each sentence of context."""
_SETTING = "context"  # in `tokenizer_config.json`

Context = tuple[str, ...]
"""Sentences before another one, the farthest first."""


@dataclass(frozen=True)
class ContextSettings:
    """What a model reads before a sentence: so many sentences at most, and so many tokens with the sentence's own."""

    sentences: int = 0
    max_source_length: int | None = None


def context_settings(tokenizer: "PreTrainedTokenizerBase") -> ContextSettings:
    """What the tokenizer of a model says of its context; one that says nothing is of a model without.

    Raises:
        ValueError: What it says makes no sense, or it has no separator.
    """
    found: Any = tokenizer.init_kwargs.get(_SETTING)
    if found is None:
        return ContextSettings()
    try:
        settings = ContextSettings(**found)
    except TypeError:
        settings = ContextSettings(-1)
    numbers = settings.sentences, 1 if settings.max_source_length is None else settings.max_source_length
    if not all(type(number) is int for number in numbers) or not 0 <= numbers[0] <= 1000 or numbers[1] < 1:
        raise ValueError(
            f"tokenizer_config.json has {_SETTING} = {found!r:.100}, and not how many `sentences` and tokens "
            "(`max_source_length`) a model reads: restore it."
        )
    if settings.sentences:
        tag_ids(tokenizer, [SEPARATOR])  # that it has one
    return settings


def set_context(tokenizer: "PreTrainedTokenizerBase", settings: ContextSettings) -> None:
    """Makes the tokenizer say what a model reads; it is saved with it. Raises ValueError if it has no separator."""
    if settings.sentences:
        if SEPARATOR not in tokenizer.get_added_vocab():
            raise ValueError(
                f"data.context_sentences = {settings.sentences} needs the token {SEPARATOR}, which this vocabulary "
                "lacks: learn one with it, without initial_model or a given tokenizer, or set it to 0."
            )
        tokenizer.init_kwargs[_SETTING] = asdict(settings)
    else:
        tokenizer.init_kwargs.pop(_SETTING, None)


# --------------------------------------------------------------------------------------------------- what is before


class Before:
    """The last sentences of a document that is read in order.

    Args:
        sentences: How many at most.
    """

    def __init__(self, sentences: int):
        self._last: deque[str] = deque(maxlen=sentences)

    def begin(self, context: Sequence[str] = ()) -> None:
        """A document begins; these sentences stand before its first one."""
        self._last.clear()
        self._last.extend(context)

    def of(self, text: str) -> Context:
        """The sentences before this one, which is the next. A blank one has none, and is never context."""
        text = text.strip()
        if not text:
            return ()
        found = tuple(self._last)
        self._last.append(text)
        return found


def contexts_of(texts: Iterable[str], sentences: int) -> list[Context]:
    """The sentences before each of some texts in order, of which a blank one ends a document."""
    before, found = Before(sentences), []
    for text in texts:
        if not text.strip():
            before.begin()
        found.append(before.of(text))
    return found


def pairs_in_context(rows: Iterable[tuple], sentences: int) -> Iterator[tuple[str, str, Context]]:
    """Pairs of a corpus in order, each with the sources before its own.

    Args:
        rows: (source, target), or with what tells its document from the next one's as a third.
        sentences: How many at most.
    """
    before, last = Before(sentences), None
    for source, target, *document in rows:
        if document != last or not (source.strip() or target.strip()):
            before.begin()
        last = document
        yield source, target, before.of(source)


# ------------------------------------------------------------------------------------------------------- token ids


def joined(context: Sequence[Sequence[int]], source: Sequence[int], separator: int, longest: int | None) -> list[int]:
    """A source behind its context, with a separator behind each sentence of that.

    Args:
        context: Ids of the sentences before, without `</s>`, the farthest first.
        source: Ids of the sentence.
        separator: Its id.
        longest: Tokens that it may have in all: of more the farthest context is left out. The sentence itself stays.
    """
    found = list(source)
    for sentence in reversed(context):
        if longest is not None and len(sentence) + 1 + len(found) > longest:
            break
        found = [*sentence, separator, *found]
    return found


def parted(ids: Sequence[int], separator: int | None) -> tuple[list[list[int]], list[int]]:
    """What [`joined`] made one: the ids of each sentence before, without the separator, and those of the source.

    Tags that stand in front of all are of the first.
    """
    parts: list[list[int]] = [[]]
    for number in map(int, ids):
        if number == separator:
            parts.append([])
        else:
            parts[-1].append(number)
    return parts[:-1], parts[-1]


def separator_of(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The id of the separator; None if the tokenizer has none."""
    return tokenizer.get_added_vocab().get(SEPARATOR)


def sources_in_context(
    tokenizer: "PreTrainedTokenizerBase",
    sources: Sequence[Sequence[int]],
    contexts: Sequence[Context],
    positions: int | None = None,
) -> list[list[int]]:
    """Sources behind their contexts, as the model of the tokenizer was trained.

    Args:
        tokenizer: The model's tokenizer.
        sources: Ids of the sentences, as the tokenizer gives them.
        contexts: The sentences before each.
        positions: Tokens that the model has positions for; None: any number.
    """
    [separator] = tag_ids(tokenizer, [SEPARATOR]).values()
    texts = list({text: None for context in contexts for text in context})
    ids = dict(zip(texts, tokenizer(texts, add_special_tokens=False).input_ids if texts else (), strict=True))
    limits = [each for each in (context_settings(tokenizer).max_source_length, positions) if each is not None]
    longest = min(limits, default=None)
    return [
        joined([ids[text] for text in context], source, separator, longest)
        for context, source in zip(contexts, sources, strict=True)
    ]


def front_of(ids: Sequence[int], tags: set[int], separator: int | None) -> list[int]:
    """The ids in front of a source's own text: its context with the last separator behind it, or else its tags."""
    ids = list(map(int, ids))
    if separator in ids:
        return ids[: len(ids) - ids[::-1].index(separator)]
    front = []
    for number in ids:
        if number not in tags:
            break
        front.append(number)
    return front
