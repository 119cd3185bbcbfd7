"""Answers the server's texts: a model, and a thread that gives it the texts of several requests in one batch."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from ..data.context import Context, context_settings
from ..data.known_words import UnknownWords
from ..data.languages import target_languages
from ..data.terms import knows_soft_terms
from ..run.loading import calibration_of, load_engine, word_counts_of
from ..translation import Casing, Glossary, Punctuation, Spelling, translate_lines


logger = logging.getLogger(__name__)

LONGEST = 512  # tokens that are translated in one piece, as in `vanilla-transformer translate`


@dataclass(frozen=True)
class Wish:
    """The options of a request: following a glossary, with hard or soft terms; confidence; keeping the markup or the
    capitals of the texts; correcting mistyped words; adding missing full stops; and one of several target languages.
    """

    glossary: Glossary | None = None
    confidence: bool = False
    terms: str = "hard"
    markup: str | None = None
    keep_numbers: bool = False
    recase: bool = False
    respell: bool = False
    repunctuate: bool = False
    to: str | None = None


@dataclass(frozen=True)
class Backend:
    """Turns texts and the sentences before each into answers, and a text into its number of tokens. Neither is
    re-entrant.

    The answer to a text is its part of [`Translations`]. Flags say what it supports: `has_beams` means hard terms,
    `knows_terms` soft ones, `is_calibrated` confidence, `has_alignments` markup, and `has_words` corrections.
    `languages` are those to choose from; a model of one target language has none. It reads at most `context_sentences`
    sentences before a text.
    """

    translate: Callable[[Sequence[str], Wish, Sequence[Context]], list[dict]]
    tokens_of: Callable[[str], int]
    has_beams: bool = False
    knows_terms: bool = False
    is_calibrated: bool = False
    has_alignments: bool = False
    has_words: bool = False
    languages: tuple[str, ...] = ()
    context_sentences: int = 0


def load_backend(
    kind: str,
    model: str,
    num_beams: int | None = None,
    max_tokens: int | None = None,
    device: str = "auto",
    *,
    int8: bool = False,
    precision: str = "float32",
    batch_tokens: int = 4096,
) -> Backend:
    """Loads a model, as `load_engine` does, and translates a word, so that what cannot work is known at once.

    Args:
        kind: torch or ctranslate2.
        model: For torch a run folder, a model's folder or USER/NAME of the Hub; for ctranslate2 a folder written by
            `vanilla-transformer export`.
        num_beams: Hypotheses of the beam search; the model's own setting if None.
        max_tokens: Tokens that a translation may have; None: the model's own limit.
        device: Where the model runs, as for `chosen_device`.
        int8, precision: As for `load_engine`.
        batch_tokens: Padded source tokens that are translated together, at most.
    """
    loaded, tokenizer = load_engine([model], kind, device, int8=int8, precision=precision)
    given = {"num_beams": num_beams, "max_new_tokens": max_tokens, "num_return_sequences": 1}
    options = {name: value for name, value in given.items() if value is not None}
    calibration = unknown = None
    counts = word_counts_of([model])
    casing, spelling = cache(lambda: Casing(counts)), cache(lambda: Spelling(tokenizer, counts or {}))
    punctuation = Punctuation(counts)
    if kind == "torch":
        try:
            calibration, unknown = calibration_of([model]), UnknownWords(tokenizer, counts)
        except FileNotFoundError as error:
            logger.debug("%s", error)
        except ValueError as error:
            logger.warning("%s", error)

    def translate(texts: Sequence[str], wish: Wish, contexts: Sequence[Context] | None = None) -> list[dict]:
        asked = {"contexts": contexts, "glossary": wish.glossary, "terms": wish.terms}
        asked |= {"calibration": calibration if wish.confidence else None}
        asked |= {"markup": wish.markup, "keep_numbers": wish.keep_numbers, "to": wish.to}
        asked |= {"casing": casing() if wish.recase else None, "spelling": spelling() if wish.respell else None}
        asked |= {"punctuation": punctuation if wish.repunctuate else None}
        asked |= {"longest": LONGEST, "batch_tokens": batch_tokens}
        found = translate_lines(loaded, tokenizer, [texts], **asked, **options)
        answers = []
        for best, *_ in found:
            answer: dict = {"translations": best.text}
            if wish.glossary is not None:
                answer["terms"] = [asdict(term) for term in best.terms or ()]
            if wish.confidence:
                words = best.likelihood.words if best.likelihood else ()
                answer["confidences"], answer["unknown_words"] = best.confidence, unknown(best.read.words)
                answer["words"] = [(each.word, each.probability) for each in words]
            if wish.markup is not None:
                answer["broken_markup"] = best.broken_markup
            if wish.respell:
                answer["respelled"] = best.read.respelled
            answers.append(answer)
        return answers

    languages = tuple(target_languages(tokenizer))
    translate(["a"], Wish(to=languages[0] if languages else None))
    return Backend(
        translate,
        lambda text: len(tokenizer(text).input_ids),
        has_beams=kind == "torch" and (num_beams or loaded.generation_config.num_beams or 1) > 1,
        knows_terms=knows_soft_terms(tokenizer),
        is_calibrated=calibration is not None,
        has_alignments=kind == "torch",
        has_words=find_spec("rapidfuzz") is not None and counts is not None,
        languages=languages,
        context_sentences=context_settings(tokenizer).sentences,
    )


class _Text(NamedTuple):
    """A text that waits for its translation."""

    text: str
    wish: Wish
    context: Context
    answer: Future


class Batcher:
    """Puts texts that wait at the same time into one batch, and translates in a thread of its own.

    A batch is closed as soon as it has `texts` texts or `tokens` tokens, or `seconds` after its first text. While one
    is being translated the next texts gather, so under load nobody waits for the clock. Texts of a batch with the same
    wish are translated together.
    """

    def __init__(self, backend: Backend, texts: int, tokens: int, seconds: float):
        self.backend, self.texts, self.tokens, self.seconds = backend, texts, tokens, seconds
        # None: no more texts will come.
        self._waiting: queue.Queue[_Text | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="translation", daemon=True)
        self._thread.start()

    def submit(self, text: str, wish: Wish = Wish(), context: Context = ()) -> Future:
        """The future answer to a text after its context. If it is cancelled in time, the text is not translated."""
        waiting = _Text(text, wish, context, Future())
        self._waiting.put(waiting)
        return waiting.answer

    def close(self) -> None:
        """Returns when every submitted text is answered."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            for wish in dict.fromkeys(each.wish for each in batch):
                self._answer([each for each in batch if each.wish == wish], wish)

    def _answer(self, batch: "list[_Text]", wish: Wish) -> None:
        try:
            found = self.backend.translate([each.text for each in batch], wish, [each.context for each in batch])
            answered = list(zip(batch, found, strict=True))
        except Exception as error:  # the server keeps running, and the requests get the error
            for each in batch:
                each.answer.set_exception(error)
        else:
            for each, translation in answered:
                each.answer.set_result(translation)

    def _next_batch(self) -> "tuple[list[_Text], bool]":
        """A batch, and whether it is the last."""
        batch, tokens, until = [], 0, None
        while len(batch) < self.texts and tokens < self.tokens:
            try:
                following = self._waiting.get(timeout=None if until is None else max(0, until - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                return batch, True
            until = until or time.monotonic() + self.seconds
            if following.answer.set_running_or_notify_cancel():
                batch.append(following)
                tokens += self.backend.tokens_of(following.text)
        return batch, False
