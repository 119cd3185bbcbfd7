"""From sentences to translations: batches by length, order restored, any number of lines in constant memory."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_all_start_methods, get_context
from queue import Empty, Queue
from threading import Thread

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from .model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, SourceLengthLimit, length_penalty


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    `score` is its log-probability divided by the length penalty, the higher the better; None where the search has none
    (greedy search, samples).
    """

    text: str
    score: float | None = None


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
    generate = _Generate(model, tokenizer, "", generate_options)
    return [best.text for best, *_ in _best_of_block(generate, list(sentences), batch_tokens, on_progress)]


def translate_lines(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    blocks: Iterable[Sequence[str]],
    *,
    prefix: str = "",
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
        workers: Processes that translate batches side by side on a CPU, one thread each; they share the weights.
        **generate_options: Anything that `generate()` takes; `num_return_sequences` for more than the best.

    Yields:
        For each line, in order, its translations, best first. Of a blank line the only one is blank.

    Raises:
        ValueError: Workers are asked for where there can be none.
    """
    generate = _Generate(model, tokenizer, prefix, generate_options)
    with _in_order(generate, workers) as in_order:
        for block in blocks:
            yield from _best_of_block(generate, block, batch_tokens, on_progress, in_order)


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
        """Log-probability of a token, on average."""
        return self.log_probability / self.tokens


@torch.no_grad()
def score_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Sequence[tuple[str, str]],
    *,
    batch_tokens: int = 2048,
    on_progress: Callable[[int], None] | None = None,
) -> list[PairScore]:
    """Scores given translations.

    Args:
        model: Any sequence-to-sequence model of transformers, in whatever mode; it is left in that mode.
        tokenizer: The model's tokenizer.
        pairs: Source and translation of each.
        batch_tokens: Padded tokens of a batch, at most; a longer pair is a batch of its own.
        on_progress: Called after every batch with the number of pairs that it finished.

    Returns:
        One score per pair, in the order given.
    """
    if not pairs:
        return []
    sources = tokenizer([source for source, _ in pairs]).input_ids
    targets = tokenizer(text_target=[target for _, target in pairs]).input_ids
    alpha = model.generation_config.length_penalty
    kind = getattr(model.generation_config, "length_penalty_type", "length")
    found: dict[int, PairScore] = {}
    was_training = model.training
    model.eval()
    try:
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for batch in _batches(list(range(len(pairs))), lengths, batch_tokens):
            inputs = tokenizer.pad({"input_ids": [sources[i] for i in batch]}, return_tensors="pt").to(model.device)
            labels = pad_sequence([torch.tensor(targets[i]) for i in batch], batch_first=True, padding_value=-100)
            labels = labels.to(model.device)
            scores = model(**inputs, labels=labels).logits.float().log_softmax(dim=-1)  # (batch, target, vocabulary)
            chosen = scores.gather(2, labels.clamp(min=0)[..., None])[..., 0].masked_fill(labels == -100, 0)
            for i, total in zip(batch, chosen.sum(dim=1).tolist(), strict=True):
                tokens = len(targets[i])
                penalty = length_penalty(tokens, 1.0 if alpha is None else alpha, kind)
                found[i] = PairScore(total, tokens, total / penalty)
            if on_progress is not None:
                on_progress(len(batch))
    finally:
        model.train(was_training)
    return [found[i] for i in range(len(pairs))]


def in_blocks(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of `size` lines; the last may be shorter."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def as_they_come(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of the lines that have arrived, up to `size`: a line is never held back for the next one.

    Raises:
        Exception: What reading `lines` raised, after the lines before it.
    """
    arrived: Queue = Queue(maxsize=2 * size)
    over = object()

    def read():
        try:
            for line in lines:
                arrived.put(line)
        except Exception as error:
            arrived.put(error)
        arrived.put(over)

    Thread(target=read, daemon=True).start()
    last = None
    while last is None:
        block, waiting = [], arrived.get()
        while isinstance(waiting, str):
            block.append(waiting)
            try:
                waiting = arrived.get_nowait() if len(block) < size else None
            except Empty:
                waiting = None
        last = waiting
        if block:
            yield block
    if last is not over:
        raise last


def _best_of_block(
    generate: "_Generate", sentences: Sequence[str], batch_tokens: int, on_progress, in_order: Callable = map
) -> list[list[Hypothesis]]:
    """Translations of each sentence; `in_order(generate, batches)` is `map`, or does the same in other processes."""
    blank = Hypothesis("", 0.0 if generate.options.get("return_dict_in_generate") else None)
    found = [[blank] for _ in sentences]
    sources = generate.tokenizer(list(sentences)).input_ids if sentences else []
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    batches = list(_batches(todo, [len(source) for source in sources], batch_tokens))
    # Samples are drawn from a seed of their own for each batch, whoever translates it.
    seeds = (
        torch.randint(2**62, (len(batches),)).tolist() if generate.options.get("do_sample") else [None] * len(batches)
    )
    results = in_order(generate, [([sources[i] for i in batch], s) for batch, s in zip(batches, seeds, strict=True)])
    for batch, hypotheses in zip(batches, results, strict=True):
        each = len(hypotheses) // len(batch)
        for n, i in enumerate(batch):
            found[i] = hypotheses[n * each : (n + 1) * each]
        if on_progress is not None:
            on_progress(len(batch))
    return found


def _batches(todo: list[int], lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(todo, key=lengths.__getitem__, reverse=True):  # longest first: memory runs out early or never
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@dataclass
class _Generate:
    """From the token ids of a batch of sources, and a seed for samples, to hypotheses, the first source's first."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    prefix: str
    options: dict

    @torch.no_grad()
    def __call__(self, batch_and_seed: tuple[list[list[int]], int | None]) -> list[Hypothesis]:
        sources, seed = batch_and_seed
        if seed is None:
            return self._hypotheses(sources)
        devices = [] if self.model.device.type == "cpu" else [self.model.device]
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            return self._hypotheses(sources)

    def _hypotheses(self, sources: list[list[int]]) -> list[Hypothesis]:
        model, tokenizer = self.model, self.tokenizer
        batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt").to(model.device)
        was_training = model.training
        model.eval()
        try:
            output = model.generate(**batch, **self._limits(batch), **self._beginning(len(sources)), **self.options)
        finally:
            model.train(was_training)
        scores = None
        if not isinstance(output, torch.Tensor):
            output, scores = output.sequences, output.get("sequences_scores")
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        return [
            Hypothesis(text, score)
            for text, score in zip(texts, [None] * len(texts) if scores is None else scores.tolist(), strict=True)
        ]

    def _limits(self, batch) -> dict:
        """Section 6.1's limit, for a model that has none of its own."""
        bounds = {"max_length", "max_new_tokens", "stopping_criteria", "generation_config"}
        if hasattr(self.model.generation_config, "max_length_offset") or bounds & self.options.keys():
            return {}
        lengths = batch["attention_mask"].sum(dim=1)
        return {
            "max_length": 1 + int(lengths.max()) + MAX_LENGTH_OFFSET,  # with the start token
            "stopping_criteria": StoppingCriteriaList([SourceLengthLimit(lengths)]),
        }

    def _beginning(self, sentences: int) -> dict:
        if not self.prefix:
            return {}
        start = self.model.generation_config.decoder_start_token_id
        ids = [start, *self.tokenizer(text_target=self.prefix, add_special_tokens=False).input_ids]
        return {"decoder_input_ids": torch.tensor([ids] * sentences, device=self.model.device)}


# ------------------------------------------------------------------------------------------------------------ workers


@contextmanager
def _in_order(generate: _Generate, workers: int) -> Iterator[Callable]:
    """`map` that calls `generate` here, or in processes that share the model's memory with this one."""
    if workers == 1:
        yield map
        return
    if workers < 1:
        raise ValueError(f"There must be at least 1 worker, not {workers}.")
    if generate.model.device.type != "cpu" or "fork" not in get_all_start_methods():
        raise ValueError("Several workers are for a CPU, on a system where processes fork (Linux, macOS).")
    # A forked process has the weights without copying them: nobody writes to their pages. All of them fork now, before
    # a thread reads standard input, whose lock they would inherit.
    context = get_context("fork")
    all_there = context.Barrier(workers)
    with ProcessPoolExecutor(workers, context, initializer=_become_worker, initargs=(generate, all_there)) as executor:
        list(executor.map(_work, [None] * workers))
        yield lambda _, batches: executor.map(_work, batches)


_of_this_worker: list[_Generate] = []


def _become_worker(generate: _Generate, all_there) -> None:
    torch.set_num_threads(1)  # more would compete with the other workers, and a fork has none of its parent's threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":  # whatever ends the parent ends its workers
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    _of_this_worker.append(generate)
    all_there.wait(timeout=60)


def _work(batch_and_seed: tuple[list[list[int]], int | None] | None) -> list[Hypothesis]:
    return [] if batch_and_seed is None else _of_this_worker[0](batch_and_seed)
