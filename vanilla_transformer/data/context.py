"""Context: a source is read after the N sentences that precede it in its document.

    x_(i-N) <sep> ... <sep> x_(i-1) <sep> x_i </s>    ->    y_i </s>

This is the "2+1" of Tiedemann and Scherrer (2017, "Neural Machine Translation with Extended Context",
https://aclanthology.org/W17-4811) for any N: the source is extended, the target stays one sentence. In their "2+2" the
model also writes the preceding sentences again. With a target of one sentence, each line still has exactly one
translation: nothing has to be cut out of it, a wrong translation does not spoil the next, and lines are searched and
scored side by side. The price is that a model does not see its own earlier translations.

The separator is a token of its own, which no text can spell. The first sentences of a document have less context, or
none. Where there is no room for all of it, the farthest sentences are left out.

A tokenizer says how many sentences its model reads, so that everything that loads it translates as in training.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .languages import tag_ids, target_languages


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = "<sep>"
"""The token after each sentence of context."""
MOST_SENTENCES = 100
_SETTING = "context"  # in `tokenizer_config.json`

Context = tuple[str, ...]
"""Sentences before another one, the farthest first."""


@dataclass(frozen=True)
class ContextSettings:
    """Limits on a model's context: sentences before a source, and tokens, the source's own included."""

    sentences: int = 0
    max_source_length: int | None = None


def context_settings(tokenizer: "PreTrainedTokenizerBase") -> ContextSettings:
    """The context settings in a model's tokenizer; a tokenizer that has none belongs to a model without context.

    Raises:
        ValueError: The settings are invalid, or the tokenizer has no separator.
    """
    found: Any = tokenizer.init_kwargs.get(_SETTING)
    if found is None:
        return ContextSettings()
    try:
        settings = ContextSettings(**found)
        numbers = settings.sentences, settings.max_source_length
        if not all(type(number) is int and number > 0 for number in numbers):
            raise TypeError
    except TypeError:
        raise ValueError(
            f"tokenizer_config.json has {_SETTING} = {found!r:.100}, and not how many `sentences` and tokens "
            "(`max_source_length`) the model reads: restore it."
        ) from None
    tag_ids(tokenizer, [SEPARATOR])  # checks that it has one
    return settings


def set_context(tokenizer: "PreTrainedTokenizerBase", settings: ContextSettings) -> None:
    """Stores in the tokenizer, and so in its saved files, what a model reads. ValueError if it has no separator."""
    tokenizer.init_kwargs.pop(_SETTING, None)
    if settings.sentences:
        if SEPARATOR not in tokenizer.get_added_vocab():
            raise ValueError(
                f"data.context_sentences = {settings.sentences} needs the token {SEPARATOR}, which this vocabulary "
                "lacks: learn a vocabulary with it, so without initial_model and a given tokenizer, or set it to 0."
            )
        tokenizer.init_kwargs[_SETTING] = asdict(settings)


# --------------------------------------------------------------------------------------------------- what is before


class Before:
    """The last sentences of a document that is read in order.

    Args:
        sentences: At most this many.
    """

    def __init__(self, sentences: int):
        self._last: deque[str] = deque(maxlen=sentences)

    def begin(self, context: Iterable[str] = ()) -> None:
        """Begins a document, or continues one after this context."""
        self._last.clear()
        self._last.extend(text.strip() for text in context if text.strip())

    def of(self, text: str) -> Context:
        """The sentences before this one, the next of the document. A blank one has none, and is never context."""
        text = text.strip()
        if not text:
            return ()
        found = tuple(self._last)
        self._last.append(text)
        return found


def contexts_of(texts: Iterable[str], sentences: int, before: Iterable[str] = ()) -> list[Context]:
    """The sentences before each text, for texts in document order. A blank text ends a document.

    Args:
        texts: Sentences.
        sentences: Maximum number of sentences before a text.
        before: The sentences before the first text.
    """
    last, found = Before(sentences), []
    last.begin(before)
    for text in texts:
        if not text.strip():
            last.begin()
        found.append(last.of(text))
    return found


def pairs_in_context(rows: Iterable[tuple], sentences: int) -> Iterator[tuple[str, str, Context]]:
    """Pairs of a corpus in order, each with the sources before its own. A pair blank on both sides ends a document.

    Args:
        rows: (source, target), maybe with a third item that differs between documents.
        sentences: At most this many.
    """
    before, last = Before(sentences), None
    for source, target, *document in rows:
        is_end = not (source.strip() or target.strip())
        if is_end or document != last:
            before.begin()
        last = document
        if not is_end:
            yield source, target, before.of(source)


# ------------------------------------------------------------------------------------------------------- token ids


def joined(context: Sequence[Sequence[int]], source: Sequence[int], separator: int, longest: int | None) -> list[int]:
    """A source after its context, with a separator after each sentence of context.

    Args:
        context: Ids of the sentences before, without `</s>`, the farthest first.
        source: Ids of the sentence.
        separator: Its id.
        longest: Tokens that it may have in all; if there are more, the farthest context is left out. The sentence
            itself stays.
    """
    found = list(source)
    for sentence in reversed(context):
        if longest is not None and len(sentence) + 1 + len(found) > longest:
            break
        found = [*sentence, separator, *found]
    return found


def sources_in_context(
    tokenizer: "PreTrainedTokenizerBase",
    sources: Sequence[Sequence[int]],
    contexts: Sequence[Context] | None,
    positions: int | None = None,
) -> Sequence[Sequence[int]]:
    """Sources after their contexts, as the tokenizer's model was trained; unchanged if it reads no context.

    Args:
        tokenizer: The model's tokenizer.
        sources: Ids of the sentences, as the tokenizer gives them.
        contexts: The sentences before each; None: no context. If the model reads fewer, it gets the nearest.
        positions: How many positions the model has; None: any number.
    """
    settings = context_settings(tokenizer)
    if not settings.sentences or contexts is None:
        return sources
    [separator] = tag_ids(tokenizer, [SEPARATOR]).values()
    texts = list({text: None for context in contexts for text in context})
    stripped = [text.strip() for text in texts]
    ids = dict(zip(texts, tokenizer(stripped, add_special_tokens=False).input_ids if texts else (), strict=True))
    longest = min(each for each in (settings.max_source_length, positions) if each is not None)
    tags, found = {*target_languages(tokenizer).values()}, []
    for context, source in zip(contexts, sources, strict=True):
        front = list(source[: int(source[0] in tags)])  # as in training, a tag stands before the context too
        before = [ids[text] for text in context[-settings.sentences :]]
        found.append(front + joined(before, source[len(front) :], separator, longest - len(front)))
    return found


def ids_in_context(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], contexts: Sequence[Context] | None
) -> Sequence[Sequence[int]]:
    """The ids of some texts after their contexts, without white space around either, as in training.

    Without `contexts` the texts are in the order of their documents.
    """
    if contexts is None:
        contexts = contexts_of(texts, context_settings(tokenizer).sentences)
    return sources_in_context(tokenizer, tokenizer([text.strip() for text in texts]).input_ids, contexts)


def texts_in_context(
    tokenizer: "PreTrainedTokenizerBase", rows: Sequence[Sequence[int]]
) -> tuple[list[str], list[Context]]:
    """Decodes the ids of sources: the text of each, and the sentences before it, without tags."""
    separator, parts, counts = tokenizer.get_added_vocab().get(SEPARATOR, -1), [], []  # -1 is not an id
    for ids in map(np.asarray, rows):
        of_row = [part.tolist() for part in np.split(ids, np.flatnonzero(ids == separator) + 1)]
        parts += of_row
        counts.append(len(of_row))
    decode = tokenizer.backend_tokenizer.decode_batch if tokenizer.is_fast else tokenizer.batch_decode
    texts = iter(decode(parts, skip_special_tokens=True))
    found = [[next(texts) for _ in range(count)] for count in counts]
    return [each[-1] for each in found], [tuple(each[:-1]) for each in found]
