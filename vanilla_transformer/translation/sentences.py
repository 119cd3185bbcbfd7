"""From sentences to translations, in batches by length and in order again; and how likely given translations are."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..data.context import Before, Context, context_settings, ids_in_context, sources_in_context
from ..data.languages import towards
from ..data.terms import annotated_ids, marker_ids
from ..model.confidence_vanilla_transformer import Calibration
from ..model.generation_vanilla_transformer import length_penalty
from .by_ctranslate2 import Ctranslate2Engine, ExportedModel
from .by_onnx import OnnxEngine, OnnxTranslator
from .by_torch import TorchEngine
from .casing import Casing
from .decoding import Batch, Decoding, Hypothesis
from .glossary import FoundTerm, Glossary, annotations_of, constraints_of, used_terms
from .likelihood import target_log_probabilities
from .lines import Pieces, batches_by_length
from .punctuation import Punctuation
from .reading import Reading
from .spelling import Spelling


logger = logging.getLogger(__name__)

# Engines for models that are not torch's.
_ENGINES = {ExportedModel: Ctranslate2Engine, OnnxTranslator: OnnxEngine}

Model = PreTrainedModel | ExportedModel | OnnxTranslator
Engine = TorchEngine | Ctranslate2Engine | OnnxEngine


def translate(
    model: Model,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    *,
    contexts: Iterable[Context] | None = None,
    glossary: Glossary | None = None,
    terms: str = "hard",
    markup: str | None = None,
    keep_numbers: bool = False,
    casing: Casing | None = None,
    spelling: Spelling | None = None,
    punctuation: Punctuation | None = None,
    to: str | None = None,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> list[str]:
    """Translates sentences, as the model's generation config says or as overridden.

    They are sorted by length into batches and come back in the order given. A blank sentence has a blank translation.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode. Or one that
            CTranslate2 or onnxruntime runs.
        tokenizer: The model's tokenizer.
        sentences: Source texts. If the model reads preceding sentences, they are in document order, and a blank one
            ends a document.
        contexts: The sentences before each one, if they are not in that order; empty ones for none. Other models read
            none.
        glossary: Terms, and how to translate them. Where a translation lacks one, a warning says so.
        terms: How to follow the glossary. `"hard"`: the beam search of one of our models looks only for translations
            that have the terms. `"soft"`: the model reads the targets beside the terms, and mostly follows them, with
            any search and engine. It must have been trained with `augmentation: {terms: ...}`.
        markup: `"xml"`, `"html"` or `"placeholders"`: such markup is taken out of a sentence, and put back into its
            translation by word alignment, which only models run by torch have. See `translation.markup`. Broken markup
            is translated as text, with a warning.
        keep_numbers: With markup: whether numbers are placeholders too.
        casing: Translates sentences in capitals, and headlines, in sentence case, and gives them their capitals back;
            not together with markup or alignments.
        spelling: Corrects mistyped words first; not together with markup. Words of the glossary stay as they are.
        punctuation: Translates sentences that end without punctuation with a full stop, and takes it away again; not
            together with markup or alignments.
        to: With a model of several target languages: the one to translate into, say "fr".
        batch_tokens: Padded source tokens of a batch, at most; a longer sentence is a batch of its own.
        on_progress: Called after every batch with the number of sentences that it finished.
        **generate_options: Anything that `generate()` takes, say `num_beams=1`. Unless they bound the length (a
            `generation_config` with a limit does), an output is at most 50 tokens longer than its source (section 6.1),
            or as many as the model's own `max_length_offset` says. CTranslate2 takes those that [`Decoding`] has fields
            for, and ONNX only searches greedily.

    Returns:
        One translation per sentence.

    Raises:
        ValueError: The engine or the model cannot do what is asked of it.
    """
    options = {"contexts": contexts, "glossary": glossary, "terms": terms}
    options |= {"markup": markup, "keep_numbers": keep_numbers, "to": to}
    options |= {"casing": casing, "spelling": spelling, "punctuation": punctuation}
    options |= {"batch_tokens": batch_tokens, "on_progress": on_progress, **generate_options}
    return [best.text for best, *_ in translate_lines(model, tokenizer, [sentences], **options)]


def translate_lines(
    model: Model,
    tokenizer: PreTrainedTokenizerFast,
    blocks: Iterable[Sequence[str]],
    *,
    contexts: Iterable[Context] | None = None,
    prefix: str = "",
    split: str | None = None,
    longest: int | None = None,
    align: bool = False,
    glossary: Glossary | None = None,
    terms: str = "hard",
    calibration: Calibration | None = None,
    markup: str | None = None,
    keep_numbers: bool = False,
    casing: Casing | None = None,
    spelling: Spelling | None = None,
    punctuation: Punctuation | None = None,
    to: str | None = None,
    workers: int = 1,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> Iterator[list[Hypothesis]]:
    """Translates blocks of lines as they come; only one block is in memory.

    Args:
        model, tokenizer: As for [`translate`], like all arguments not named here. With a glossary, hypotheses have
            `terms`; their `alignment` and `likelihood` are of the text without markup, and with corrected spelling.
        blocks: Lists of lines, say those of [`in_blocks`]. A block's lines are sorted by length into batches.
            Documents may continue from one block to the next.
        prefix: Text that every translation begins with.
        split: Language of the lines, say "en", if they are to be split into sentences, which are translated one by one
            and put together again.
        longest: Tokens that a sentence may have, `</s>` included, or as many as the model has positions for. A longer
            one is translated in pieces, as `in_pieces` cuts it, and its line's number is logged as a warning. None: any
            number that the model has positions for.
        align: Whether hypotheses are to have an `alignment`.
        calibration: The model's own, which gives hypotheses a `confidence`; see `load_calibration`.
        workers: Processes (threads of CTranslate2) that translate batches side by side on a CPU, each on one core;
            they share the weights.
        **generate_options: As for [`translate`]; `num_return_sequences` for more than the best.

    Yields:
        For each line, in order, its translations, best first, with what the model read and wrote (`read`, `written`).
        A blank line has a single blank one. For a line in several pieces, the best translation joins the best of each
        piece, and so on.

    Raises:
        ValueError: The engine or the model cannot do what is asked of it, or not with this number of workers.
        ImportError: Lines are to be split, and `sentencex` is not installed.
    """
    if terms not in ("hard", "soft"):
        raise ValueError(f"terms must be hard or soft, not {terms!r:.100}.")
    if soft := glossary is not None and terms == "soft":
        marker_ids(tokenizer)  # raises if it has none
    tokenizer = towards(tokenizer, to)
    if glossary is not None:
        glossary = glossary.reading(tokenizer)
        if spelling is not None:
            spelling = spelling.keeping(glossary.sources())
        if casing is not None:
            casing = casing.keeping(word for term in glossary.terms if term.is_exact for word in term.source.split())
    if markup is not None and isinstance(model, tuple(_ENGINES)):
        raise ValueError("Markup is put back by the alignment of words, which only torch has: translate with torch.")
    reading = Reading.of(markup, keep_numbers, casing, spelling, punctuation, align)
    positions = getattr(model, "positions", None)
    prefix_ids = tokenizer(text_target=prefix, add_special_tokens=False).input_ids if prefix else ()
    decoding = Decoding.resolve(
        generate_options,
        model.generation_config,
        positions=positions,
        prefix=prefix_ids,
        align=align or markup is not None,
        constrained=glossary is not None and not soft,
        calibration=calibration,
    )
    engine_class = next((each for runs, each in _ENGINES.items() if isinstance(model, runs)), TorchEngine)
    engine = engine_class(model, tokenizer, decoding)
    pieces_of = Pieces(tokenizer, split, min((each for each in (longest, positions) if each is not None), default=None))
    if workers < 1:
        raise ValueError(f"There must be at least 1 worker, not {workers}.")
    done, before = 0, Before(context_settings(tokenizer).sentences)
    given_contexts = None if contexts is None else (reading.context(each) for each in contexts)
    with engine.at_work(workers):
        for block in blocks:
            read = [reading.line(line) for line in block]
            lines = [pieces_of(each.text) for each in read]
            pieces = [piece for line in lines for piece in line]
            contexts_of_pieces = [each for line in lines for each in _contexts(line, before, given_contexts)]
            begins_line = [position == 0 for line in lines for position in range(len(line))]
            terms_of_pieces = None if glossary is None else [glossary.find(piece) for piece in pieces]
            translations = _translations(
                engine, pieces, contexts_of_pieces, begins_line, terms_of_pieces, batch_tokens, on_progress
            )
            found = iter(translations)
            for line, as_read in zip(lines, read, strict=True):
                of_pieces = [next(found) for _ in line]
                hypotheses = [reduce(add, each) for each in zip(*of_pieces, strict=False)]  # the search may find fewer
                done += 1
                if lacking := [each.source for each in hypotheses[0].terms or () if each.used is None]:
                    logger.warning(f"Line {done:,}: the translation lacks the glossary's term for {lacking}.")
                hypotheses = reading.undone(hypotheses, as_read)
                yield hypotheses if calibration is None else [each.judged_by(calibration) for each in hypotheses]


def _contexts(pieces: Sequence[str], before: Before, given: Iterator[Context] | None) -> list[Context]:
    """The sentences before each piece of the next line, which may be given for its first one."""
    if given is not None:
        if (context := next(given, None)) is None:
            raise ValueError("There are fewer contexts than lines: give one for each line.")
        before.begin(context)
    elif not any(map(str.strip, pieces)):
        before.begin()
    return [before.of(piece) for piece in pieces]


def _translations(
    engine: Engine,
    sentences: Sequence[str],
    contexts: Sequence[Context],
    begins_line: Sequence[bool],
    terms: Sequence[Sequence[FoundTerm]] | None,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None,
) -> list[list[Hypothesis]]:
    """Translations of each sentence by an engine that is at work.

    `contexts` are the sentences before each, `begins_line` says which of them begin with the prefix, and `terms` are
    the glossary's terms in each.
    """
    decoding = engine.decoding
    found = [[decoding.blank] for _ in sentences]
    sources = engine.tokenizer(sentences).input_ids if sentences else []
    if terms is not None and not decoding.constrained:
        sources = _with_soft_terms(engine, sentences, sources, terms)
    sources = sources_in_context(engine.tokenizer, sources, contexts, decoding.positions)
    lengths = [len(source) for source in sources]
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    batches = []
    for prefix in dict.fromkeys((decoding.prefix, ())):
        chosen = [i for i in todo if (decoding.prefix if begins_line[i] else ()) == prefix]
        for numbers in batches_by_length(chosen, lengths, batch_tokens):
            batch = Batch(numbers, [sentences[i] for i in numbers], [sources[i] for i in numbers], prefix)
            if any(contexts[i] for i in numbers):
                batch = replace(batch, contexts=[contexts[i] for i in numbers])
            if decoding.constrained:
                constraints = [constraints_of(terms[i], sentences[i], engine.tokenizer) for i in numbers]
                batch = replace(batch, constraints=constraints)
            batches.append(batch)
    for batch, hypotheses in zip(batches, engine.translate(batches), strict=True):
        per_sentence = len(hypotheses) // len(batch.numbers)
        for n, i in enumerate(batch.numbers):
            found[i] = _really_found(hypotheses[n * per_sentence : (n + 1) * per_sentence], decoding.scores)
        if on_progress is not None:
            on_progress(len(batch.numbers))
    if terms is not None:
        found = [
            [replace(each, terms=used_terms(own, each.text, engine.tokenizer)) for each in hypotheses]
            for own, hypotheses in zip(terms, found, strict=True)
        ]
    return found


def _really_found(hypotheses: Sequence[Hypothesis], scores: bool) -> list[Hypothesis]:
    """The hypotheses without those that `generate()` makes up, with the score -inf, if its search has found fewer.

    They keep their scores if these were asked for.
    """
    found = [each for each in hypotheses if each.score != -math.inf] or [replace(hypotheses[0], score=None)]
    return found if scores else [each if each.score is None else replace(each, score=None) for each in found]


def _with_soft_terms(
    engine: Engine, sentences: Sequence[str], sources: list[list[int]], terms: Sequence[Sequence[FoundTerm]]
) -> list[list[int]]:
    """The sources with their terms annotated. One that would be longer than the model has positions stays as it is."""
    positions, having = engine.decoding.positions, [i for i, found in enumerate(terms) if found]
    texts = [(sentences[i], annotations_of(terms[i])) for i in having]
    for i, ids in zip(having, annotated_ids(engine.tokenizer, texts), strict=True):
        if positions is None or len(ids) <= positions:
            sources[i] = ids
    return sources


@dataclass(frozen=True)
class PairScore:
    """How likely a model finds a translation.

    `log_probability` is of the whole translation, `</s>` included, in nats; `tokens` is how many tokens that is;
    `score` is the log-probability divided by the model's length penalty, as beam search ranks translations.
    """

    log_probability: float
    tokens: int
    score: float

    @property
    def per_token(self) -> float:
        """Mean log-probability of a token."""
        return self.log_probability / self.tokens


def score_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Sequence[tuple[str, str]],
    *,
    to: str | None = None,
    contexts: Sequence[Context] | None = None,
    batch_tokens: int = 2048,
    on_progress: Callable[[int], None] | None = None,
) -> list[PairScore]:
    """Scores given translations: one score per pair of source and translation, in the order given.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode.
        tokenizer, to, batch_tokens, on_progress: As for [`translate`].
        pairs: Source and translation of each.
        contexts: As for [`translate`].

    Raises:
        ValueError: A text has more tokens than the model has learned positions for.
    """
    if not pairs:
        return []
    tokenizer = towards(tokenizer, to)
    sources = ids_in_context(tokenizer, [source for source, _ in pairs], contexts)
    targets = tokenizer(text_target=[target.strip() for _, target in pairs]).input_ids
    if (positions := getattr(model, "positions", None)) is not None:
        for number, lengths in enumerate(zip(map(len, sources), map(len, targets), strict=True), start=1):
            if (longest := max(lengths)) > positions:
                raise ValueError(
                    f"A side of pair {number:,} has {longest:,} tokens, but max_position_embeddings is {positions:,}: "
                    "learned positions end there. Shorten it."
                )
    decoding = Decoding.resolve({}, model.generation_config)
    found: dict[int, PairScore] = {}
    for batch, chosen in target_log_probabilities(model, tokenizer, sources, targets, batch_tokens):
        for i, total in zip(batch, chosen.sum(dim=1).tolist(), strict=True):
            penalty = length_penalty(len(targets[i]), decoding.length_penalty, decoding.length_penalty_type)
            found[i] = PairScore(total, len(targets[i]), total / penalty)
        if on_progress is not None:
            on_progress(len(batch))
    return [found[i] for i in range(len(pairs))]
