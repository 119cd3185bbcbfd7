"""The engine that calls `generate()` of a model of torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from ..evaluation.attention import WordAlignment, align_words
from ..model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, SourceLengthLimit
from .hypotheses import Batch, Hypothesis
from .workers import map_with_workers


@dataclass
class TorchEngine:
    """Translates batches with `generate()`."""

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

    @contextmanager
    def at_work(self, workers: int) -> Iterator[Callable[[Sequence[Batch]], Iterable[list[Hypothesis]]]]:
        """Gives a function from batches to the hypotheses of each, the first sentence's first.

        Raises:
            ValueError: Workers are asked for where there can be none.
        """
        with map_with_workers(self, workers, self.model.device) as in_order:

            def translated(batches: Sequence[Batch]) -> Iterable[list[Hypothesis]]:
                if self.options.get("do_sample"):
                    # Samples are drawn from a seed of their own for each batch, whoever translates it.
                    for batch, seed in zip(batches, torch.randint(2**62, (len(batches),)).tolist(), strict=True):
                        batch.seed = seed
                return in_order(self, batches)

            yield translated

    @torch.no_grad()
    def __call__(self, batch: Batch) -> list[Hypothesis]:
        if batch.seed is None:
            return self._hypotheses(batch)
        devices = [] if self.model.device.type == "cpu" else [self.model.device]
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(batch.seed)
            return self._hypotheses(batch)

    def _hypotheses(self, batch: Batch) -> list[Hypothesis]:
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

    def _beginning(self, batch: Batch) -> dict:
        if not self.prefix or not batch.begins:
            return {}
        start = self.model.generation_config.decoder_start_token_id
        ids = [start, *self.tokenizer(text_target=self.prefix, add_special_tokens=False).input_ids]
        return {"decoder_input_ids": torch.tensor([ids] * len(batch.texts), device=self.model.device)}
