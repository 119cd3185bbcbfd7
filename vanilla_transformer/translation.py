"""From sentences to translations: batches by length, order restored, any number of lines in constant memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from queue import Empty, Queue
from threading import Thread

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from .model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, SourceLengthLimit


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
    best = _best_of_block(model, tokenizer, list(sentences), "", batch_tokens, on_progress, generate_options)
    return [hypotheses[0].text for hypotheses in best]


def translate_lines(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    blocks: Iterable[Sequence[str]],
    *,
    prefix: str = "",
    batch_tokens: int = 4096,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> Iterator[list[Hypothesis]]:
    """Translates blocks of lines as they come; only one block is in memory.

    Args:
        model: As for [`translate`], as are `tokenizer`, `batch_tokens` and `on_progress`.
        blocks: Lists of lines, say those of [`in_blocks`]. A block's lines are sorted by length into batches.
        prefix: What every translation begins with.
        **generate_options: Anything that `generate()` takes; `num_return_sequences` for more than the best.

    Yields:
        For each line, in order, its translations, best first. Of a blank line the only one is blank.
    """
    for block in blocks:
        yield from _best_of_block(model, tokenizer, block, prefix, batch_tokens, on_progress, generate_options)


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


@torch.no_grad()
def _best_of_block(
    model, tokenizer, sentences: Sequence[str], prefix: str, batch_tokens: int, on_progress, options: dict
) -> list[list[Hypothesis]]:
    found = [[Hypothesis("", 0.0)] for _ in sentences]
    sources = tokenizer(list(sentences)).input_ids if sentences else []
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    was_training = model.training
    model.eval()
    try:
        for batch in _batches(todo, [len(source) for source in sources], batch_tokens):
            hypotheses = _generate(model, tokenizer, [sources[i] for i in batch], prefix, options)
            each = len(hypotheses) // len(batch)
            for n, i in enumerate(batch):
                found[i] = hypotheses[n * each : (n + 1) * each]
            if on_progress is not None:
                on_progress(len(batch))
    finally:
        model.train(was_training)
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


def _generate(model, tokenizer, sources: list[list[int]], prefix: str, options: dict) -> list[Hypothesis]:
    batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt").to(model.device)
    bounds = {"max_length", "max_new_tokens", "stopping_criteria", "generation_config"}
    if not hasattr(model.generation_config, "max_length_offset") and not bounds & options.keys():
        lengths = batch["attention_mask"].sum(dim=1)
        options = {
            **options,
            "max_length": 1 + int(lengths.max()) + MAX_LENGTH_OFFSET,  # with the start token
            "stopping_criteria": StoppingCriteriaList([SourceLengthLimit(lengths)]),
        }
    if prefix:
        start = model.generation_config.decoder_start_token_id
        ids = [start, *tokenizer(text_target=prefix, add_special_tokens=False).input_ids]
        options = {**options, "decoder_input_ids": torch.tensor([ids] * len(sources), device=model.device)}
    output = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **options)
    scores = [None] * len(sources)
    if not isinstance(output, torch.Tensor):
        scores = [None] * len(output.sequences)
        if output.get("sequences_scores") is not None:
            scores = output.sequences_scores.tolist()
        output = output.sequences
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    scores += [None] * (len(texts) - len(scores))
    # Where a beam search found fewer translations than were asked for, the others have no probability.
    return [Hypothesis(text, score) for text, score in zip(texts, scores, strict=True)]
