"""From sentences to translations: batches by length, order restored, any number of lines in constant memory."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from ..evaluation.attention import WordAlignment, align_words
from ..model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, SourceLengthLimit
from .lines import batches_by_length, in_pieces, sentence_splitter
from .workers import map_with_workers


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    `score` is its log-probability divided by the length penalty, the higher the better; None where the search has none
    (greedy search, samples). `alignment` says which words it was made from, if that was asked for.
    """

    text: str
    score: float | None = None
    alignment: WordAlignment | None = None

    def __add__(self, other: "Hypothesis") -> "Hypothesis":
        """The translation of two sentences one behind the other; its score is the sum of theirs."""
        score = None if self.score is None or other.score is None else self.score + other.score
        alignment = None if self.alignment is None or other.alignment is None else self.alignment + other.alignment
        return Hypothesis(f"{self.text} {other.text}", score, alignment)


def translate(
    model: PreTrainedModel,
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
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode.
        tokenizer: The model's tokenizer.
        sentences: Source texts.
        batch_tokens: Padded source tokens of a batch, at most; a longer sentence is a batch of its own.
        on_progress: Called after every batch with the number of sentences that it finished.
        **generate_options: Anything that `generate()` takes, say `num_beams=1`. Unless they bound the length (a
            `generation_config` does), an output is at most 50 tokens longer than its source (section 6.1), or as many
            as the model's own `max_length_offset` says.

    Returns:
        One translation per sentence.
    """
    generate = _Generate(model, tokenizer, generate_options)
    found = _translations(generate, list(sentences), batch_tokens, on_progress)
    return [best.text for best, *_ in found]


def translate_lines(
    model: PreTrainedModel,
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
        workers: Processes that translate batches side by side on a CPU, one thread each; they share the weights.
        **generate_options: Anything that `generate()` takes; `num_return_sequences` for more than the best.

    Yields:
        For each line, in order, its translations, best first. Of a blank line the only one is blank. Of a line in
        several pieces the best consists of the best of each, and so on.

    Raises:
        ValueError: Workers are asked for where there can be none.
        ImportError: Lines are to be split, and `sentencex` is not installed.
    """
    generate = _Generate(model, tokenizer, generate_options, prefix, align)
    pieces_of = _Pieces(tokenizer, sentence_splitter(split) if split else None, longest)
    with map_with_workers(generate, workers, model.device) as in_order:
        for block in blocks:
            lines = [pieces_of(line) for line in block]
            pieces = [piece for line in lines for piece in line]
            begins = [position == 0 for line in lines for position in range(len(line))]
            found = iter(_translations(generate, pieces, batch_tokens, on_progress, begins, in_order))
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


def _translations(
    generate: "_Generate",
    sentences: Sequence[str],
    batch_tokens: int,
    on_progress: Callable[[int], None] | None,
    begins: Sequence[bool] | None = None,
    in_order: Callable = map,
) -> list[list[Hypothesis]]:
    """Translations of each sentence.

    `begins` says which begin with the prefix (all); `in_order(generate, batches)` is `map`, or does the same in other
    processes.
    """
    found = [[generate.blank] for _ in sentences]
    sources = generate.tokenizer(list(sentences)).input_ids if sentences else []
    lengths = [len(source) for source in sources]
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    batches = []
    for beginning in (True, False):
        chosen = [i for i in todo if (begins is None or begins[i] or not generate.prefix) == beginning]
        for numbers in batches_by_length(chosen, lengths, batch_tokens):
            batches.append(_Batch(numbers, [sentences[i] for i in numbers], [sources[i] for i in numbers], beginning))
    if generate.options.get("do_sample"):
        # Samples are drawn from a seed of their own for each batch, whoever translates it.
        for batch, seed in zip(batches, torch.randint(2**62, (len(batches),)).tolist(), strict=True):
            batch.seed = seed
    for batch, hypotheses in zip(batches, in_order(generate, batches), strict=True):
        each = len(hypotheses) // len(batch.numbers)
        for n, i in enumerate(batch.numbers):
            found[i] = hypotheses[n * each : (n + 1) * each]
        if on_progress is not None:
            on_progress(len(batch.numbers))
    return found


@dataclass
class _Batch:
    """Sentences that are translated together: their numbers, texts and token ids."""

    numbers: list[int]
    texts: list[str]
    sources: list[list[int]]
    begins: bool  # with the prefix
    seed: int | None = None


@dataclass
class _Generate:
    """From a batch to hypotheses, the first sentence's first."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    options: dict
    prefix: str = ""
    align: bool = False

    @property
    def blank(self) -> Hypothesis:
        """The translation of a blank sentence."""
        score = 0.0 if self.options.get("return_dict_in_generate") else None
        return Hypothesis("", score, WordAlignment([], [], [], []) if self.align else None)

    @torch.no_grad()
    def __call__(self, batch: _Batch) -> list[Hypothesis]:
        if batch.seed is None:
            return self._hypotheses(batch)
        devices = [] if self.model.device.type == "cpu" else [self.model.device]
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(batch.seed)
            return self._hypotheses(batch)

    def _hypotheses(self, batch: _Batch) -> list[Hypothesis]:
        model, tokenizer = self.model, self.tokenizer
        inputs = tokenizer.pad({"input_ids": batch.sources}, return_tensors="pt").to(model.device)
        was_training = model.training
        model.eval()
        try:
            output = model.generate(**inputs, **self._limits(inputs), **self._beginning(batch), **self.options)
        finally:
            model.train(was_training)
        scores = None
        if not isinstance(output, torch.Tensor):
            output, scores = output.sequences, output.get("sequences_scores")
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        scores = [None] * len(texts) if scores is None else scores.tolist()
        alignments = [None] * len(texts)
        if self.align:
            each = len(texts) // len(batch.texts)
            sources = [text for text in batch.texts for _ in range(each)]
            alignments = align_words(model, tokenizer, list(zip(sources, texts, strict=True)))
        return [Hypothesis(*each) for each in zip(texts, scores, alignments, strict=True)]

    def _limits(self, inputs) -> dict:
        """Section 6.1's limit, for a model that has none of its own."""
        bounds = {"max_length", "max_new_tokens", "stopping_criteria", "generation_config"}
        if hasattr(self.model.generation_config, "max_length_offset") or bounds & self.options.keys():
            return {}
        lengths = inputs["attention_mask"].sum(dim=1)
        return {
            "max_length": 1 + int(lengths.max()) + MAX_LENGTH_OFFSET,  # with the start token
            "stopping_criteria": StoppingCriteriaList([SourceLengthLimit(lengths)]),
        }

    def _beginning(self, batch: _Batch) -> dict:
        if not self.prefix or not batch.begins:
            return {}
        start = self.model.generation_config.decoder_start_token_id
        ids = [start, *self.tokenizer(text_target=self.prefix, add_special_tokens=False).input_ids]
        return {"decoder_input_ids": torch.tensor([ids] * len(batch.texts), device=self.model.device)}
