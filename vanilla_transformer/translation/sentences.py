"""From sentences to translations: batches by length, order restored, any number of lines in constant memory."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from .by_ctranslate2 import Ctranslate2Engine, ExportedModel
from .by_torch import TorchEngine
from .hypotheses import Batch, Hypothesis
from .lines import batches_by_length, in_pieces, sentence_splitter


logger = logging.getLogger(__name__)


def translate(
    model: PreTrainedModel | ExportedModel,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    *,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> list[str]:
    """Translates sentences, as the model's generation config says or as overridden.

    They are sorted by length into batches and come back in the order given. A blank sentence has a blank translation.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode. Or one that
            CTranslate2 is to run.
        tokenizer: The model's tokenizer.
        sentences: Source texts.
        batch_tokens: Padded source tokens of a batch, at most; a longer sentence is a batch of its own.
        on_progress: Called after every batch with the number of sentences that it finished.
        **generate_options: Anything that `generate()` takes, say `num_beams=1`. Unless they bound the length (a
            `generation_config` does), an output is at most 50 tokens longer than its source (section 6.1), or as many
            as the model's own `max_length_offset` says. CTranslate2 takes those of [`Ctranslate2Engine`].

    Returns:
        One translation per sentence.

    Raises:
        ValueError: CTranslate2 cannot do what is asked of it.
    """
    engine = _engine(model, tokenizer, generate_options)
    with engine.at_work(workers=1) as translated:
        found = _translations(engine, translated, list(sentences), batch_tokens, on_progress)
    return [best.text for best, *_ in found]


def translate_lines(
    model: PreTrainedModel | ExportedModel,
    tokenizer: PreTrainedTokenizerFast,
    blocks: Iterable[Sequence[str]],
    *,
    prefix: str = "",
    split: str | None = None,
    longest: int | None = None,
    align: bool = False,
    workers: int = 1,
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> Iterator[list[Hypothesis]]:
    """Translates blocks of lines as they come; only one block is in memory.

    Args:
        model: As for [`translate`], as are `tokenizer`, `batch_tokens` and `on_progress`.
        blocks: Lists of lines, say those of [`in_blocks`]. A block's lines are sorted by length into batches.
        prefix: What every translation begins with.
        split: Language of the lines, say "en", if they are to be split into sentences, which are translated one by one
            and put together again.
        longest: Tokens that a sentence may have, `</s>` included; a longer one is translated in pieces, as
            [`in_pieces`] cuts it, and its line's number is logged as a warning. None: any number.
        align: Whether hypotheses are to have an `alignment`.
        workers: Processes (threads of CTranslate2) that translate batches side by side on a CPU, each on one core;
            they share the weights.
        **generate_options: As for [`translate`]; `num_return_sequences` for more than the best.

    Yields:
        For each line, in order, its translations, best first. Of a blank line the only one is blank. Of a line in
        several pieces the best consists of the best of each, and so on.

    Raises:
        ValueError: Workers are asked for where there can be none, or of CTranslate2 what it cannot do.
        ImportError: Lines are to be split, and `sentencex` is not installed.
    """
    engine = _engine(model, tokenizer, generate_options, prefix, align)
    pieces_of = _Pieces(tokenizer, sentence_splitter(split) if split else None, longest)
    with engine.at_work(workers) as translated:
        for block in blocks:
            lines = [pieces_of(line) for line in block]
            pieces = [piece for line in lines for piece in line]
            begins = [position == 0 for line in lines for position in range(len(line))]
            found = iter(_translations(engine, translated, pieces, batch_tokens, on_progress, begins))
            for line in lines:
                of_pieces = [next(found) for _ in line]
                yield [reduce(add, each) for each in zip(*of_pieces, strict=True)]


@dataclass
class _Pieces:
    """Cuts lines into what is translated at a time, and counts them."""

    tokenizer: PreTrainedTokenizerFast
    split: Callable[[str], list[str]] | None
    longest: int | None
    lines: int = 0

    def __call__(self, line: str) -> list[str]:
        self.lines += 1
        if not line.strip():
            return [line]
        sentences = self.split(line) if self.split else [line]
        return sentences if self.longest is None else [piece for each in sentences for piece in self._short(each)]

    def _short(self, sentence: str) -> list[str]:
        if len(sentence.encode()) + 2 <= self.longest:  # a token is a byte or more
            return [sentence]
        pieces = in_pieces(sentence, self._tokens_of, self.longest)
        if len(pieces) > 1:
            tokens = self._tokens_of(sentence)
            logger.warning(
                f"Line {self.lines:,} has {tokens:,} tokens at a stretch, more than {self.longest:,}: "
                f"translated in {len(pieces)} pieces."
            )
        return pieces

    def _tokens_of(self, text: str) -> int:
        return len(self.tokenizer(text).input_ids)


def _engine(
    model: PreTrainedModel | ExportedModel,
    tokenizer: PreTrainedTokenizerFast,
    options: dict,
    prefix: str = "",
    align: bool = False,
) -> TorchEngine | Ctranslate2Engine:
    kind = Ctranslate2Engine if isinstance(model, ExportedModel) else TorchEngine
    return kind(model, tokenizer, options, prefix, align)


def _translations(
    engine: TorchEngine | Ctranslate2Engine,
    translated: Callable[[Sequence[Batch]], Iterable[list[Hypothesis]]],
    sentences: Sequence[str],
    batch_tokens: int,
    on_progress: Callable[[int], None] | None,
    begins: Sequence[bool] | None = None,
) -> list[list[Hypothesis]]:
    """Translations of each sentence by an engine, which is at work; `begins` says which begin with the prefix (all)."""
    found = [[engine.blank] for _ in sentences]
    sources = engine.tokenizer(list(sentences)).input_ids if sentences else []
    lengths = [len(source) for source in sources]
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    batches = []
    for beginning in (True, False):
        chosen = [i for i in todo if (begins is None or begins[i] or not engine.prefix) == beginning]
        for numbers in batches_by_length(chosen, lengths, batch_tokens):
            batches.append(Batch(numbers, [sentences[i] for i in numbers], [sources[i] for i in numbers], beginning))
    for batch, hypotheses in zip(batches, translated(batches), strict=True):
        each = len(hypotheses) // len(batch.numbers)
        for n, i in enumerate(batch.numbers):
            found[i] = hypotheses[n * each : (n + 1) * each]
        if on_progress is not None:
            on_progress(len(batch.numbers))
    return found
