"""From sentences to translations: what the translation pipeline that transformers 5 dropped used to do."""

from collections.abc import Callable, Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from .generation_vanilla_transformer import EXTRA_LENGTH, SourceLengthLimit


@torch.no_grad()
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
            `generation_config` does), an output is at most 50 tokens longer than its source (section 6.1).

    Returns:
        One translation per sentence.
    """
    translations = [""] * len(sentences)
    sources = tokenizer(list(sentences)).input_ids if sentences else []
    todo = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    was_training = model.training
    model.eval()
    try:
        for batch in _batches(todo, [len(source) for source in sources], batch_tokens):
            ids = _generate(model, tokenizer, [sources[i] for i in batch], generate_options)
            for i, text in zip(batch, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
                translations[i] = text
            if on_progress is not None:
                on_progress(len(batch))
    finally:
        model.train(was_training)
    return translations


def _batches(todo: list[int], lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(todo, key=lengths.__getitem__, reverse=True):  # longest first: memory runs out early or never
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _generate(model, tokenizer, sources: list[list[int]], options: dict) -> torch.Tensor:
    batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt").to(model.device)
    if not {"max_length", "max_new_tokens", "stopping_criteria", "generation_config"} & options.keys():
        lengths = batch["attention_mask"].sum(dim=1)
        options = {
            **options,
            "max_length": 1 + int(lengths.max()) + EXTRA_LENGTH,  # with the start token
            "stopping_criteria": StoppingCriteriaList([SourceLengthLimit(lengths)]),
        }
    return model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **options)
