"""The engine that calls `generate()` of a model of torch, in this process or in several that share its weights."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from multiprocessing import get_all_start_methods

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, StoppingCriteriaList

from ..attention.weights import align_words
from ..model.confidence_vanilla_transformer import forked_generators
from ..model.generation_vanilla_transformer import SourceLengthLimit
from ..worker_processes import worker_processes
from .decoding import Batch, Decoding, Hypothesis
from .likelihood import likelihoods


class TorchEngine:
    """Translates batches with `generate()` of any sequence-to-sequence model of transformers."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, decoding: Decoding):
        if decoding.constrained and not getattr(model, "takes_constraints", False):
            raise ValueError(
                f"The search of {type(model).__name__} cannot keep to a glossary: convert the model to one of this "
                "package."
            )
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self._submit: Callable | None = None

    @contextmanager
    def at_work(self, workers: int) -> Iterator[None]:
        """Keeps worker processes ready to translate; 1 is this process."""
        if workers == 1:
            yield
            return
        if self.model.device.type != "cpu":
            raise ValueError(
                f"Several workers are for a CPU, and this model is on {self.model.device.type}: choose the device cpu, "
                "or one worker."
            )
        if "fork" not in get_all_start_methods():
            raise ValueError("Several workers are for systems where processes fork (Linux, macOS): choose one worker.")
        # Forked processes share the weights, which are never written. They all fork now: later a thread reads standard
        # input, and they would inherit its lock.
        with worker_processes(self._translate, workers, begin=_one_thread, start_method="fork") as self._submit:
            yield

    def translate(self, batches: Sequence[Batch]) -> Iterable[list[Hypothesis]]:
        if self.decoding.do_sample:
            # Each batch has a seed of its own, so that the draws do not depend on the worker.
            seeds = torch.randint(2**62, (len(batches),)).tolist()
            batches = [replace(batch, seed=seed) for batch, seed in zip(batches, seeds, strict=True)]
        if self._submit is None:
            return map(self._translate, batches)
        return (done.result() for done in [self._submit(batch) for batch in batches])

    @torch.no_grad()
    def _translate(self, batch: Batch) -> list[Hypothesis]:
        if batch.seed is None:
            return self._hypotheses(batch)
        with forked_generators(self.model.device):
            torch.manual_seed(batch.seed)
            return self._hypotheses(batch)

    def _hypotheses(self, batch: Batch) -> list[Hypothesis]:
        model, tokenizer, given = self.model, self.tokenizer, self.decoding.given
        if self.decoding.positions is not None and self.decoding.max_new_tokens is not None:
            room = max(1, self.decoding.positions - len(batch.prefix))
            given = {**given, "max_new_tokens": min(self.decoding.max_new_tokens, room)}
        inputs = tokenizer.pad({"input_ids": batch.sources}, return_tensors="pt").to(model.device)
        beginning = {}
        if batch.prefix:
            saved = model.generation_config
            start = saved.bos_token_id if saved.decoder_start_token_id is None else saved.decoder_start_token_id
            ids = [start, *batch.prefix]
            beginning["decoder_input_ids"] = torch.tensor([ids] * len(batch.texts), device=model.device)
        constrained = batch.constraints is not None and any(batch.constraints)
        if constrained:
            # A dictionary avoids a warning about sentences whose constraints cannot be met: their `terms` say so.
            given = {**given, "constraints": batch.constraints, "return_dict_in_generate": True}
        elif self.decoding.num_return_sequences > 1 and self.decoding.num_beams > 1 and not self.decoding.do_sample:
            # Scores say which translations were really found.
            if "generation_config" in given:
                given = {**given, "generation_config": copy(given["generation_config"])}
                given["generation_config"].return_dict_in_generate = True
            else:
                given = {**given, "return_dict_in_generate": True}
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            # Otherwise transformers imports all of FSDP to see whether it is in use.
            given = {"synced_gpus": False, **given}
        was_training = model.training
        if was_training:  # going through all modules takes as long as half a step
            model.eval()
        try:
            output = model.generate(**inputs, **self._limits(batch, inputs["attention_mask"]), **beginning, **given)
        finally:
            if was_training:
                model.train()
        scores = None
        if not isinstance(output, torch.Tensor):
            output, scores = output.sequences, output.get("sequences_scores")
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        scores = [None] * len(texts) if scores is None else scores.tolist()
        alignments, likely = [self.decoding.blank.alignment] * len(texts), [None] * len(texts)
        calibration, per_sentence = self.decoding.calibration, len(texts) // len(batch.texts)
        sources = [text for text in batch.texts for _ in range(per_sentence)]
        pairs = list(zip(sources, texts, strict=True))
        contexts = [context for context in batch.contexts or [()] * len(batch.texts) for _ in range(per_sentence)]
        looked_at = self._readable(texts) if self.decoding.align or calibration is not None else []
        chosen = [pairs[i] for i in looked_at]
        if self.decoding.align and chosen:
            found = align_words(model, tokenizer, chosen, contexts=[contexts[i] for i in looked_at])
            for i, alignment in zip(looked_at, found, strict=True):
                alignments[i] = alignment
        if calibration is not None:
            passes = {"dropout_samples": calibration.dropout_samples, "seed": calibration.seed}
            read = [batch.sources[i // per_sentence] for i in looked_at]
            for i, each in zip(looked_at, likelihoods(model, tokenizer, chosen, sources=read, **passes), strict=True):
                likely[i] = each
        columns = (texts, scores, alignments, self._cut(output, batch), likely)
        return [
            Hypothesis(text, score, alignment, cut, likelihood=likelihood)
            for text, score, alignment, cut, likelihood in zip(*columns, strict=True)
        ]

    def _readable(self, texts: Sequence[str]) -> list[int]:
        """The places of the translations that the model has positions to read: half characters become more tokens."""
        if self.decoding.positions is None:
            return [*range(len(texts))]
        ids = self.tokenizer(text_target=list(texts)).input_ids
        return [i for i, tokens in enumerate(ids) if len(tokens) <= self.decoding.positions]

    def _cut(self, output: torch.Tensor, batch: Batch) -> list[bool]:
        """Whether the limit ended each translation, of (translations, 1 + tokens) with the start token."""
        given, ends = self.decoding.given, getattr(self.decoding.given.get("generation_config"), "eos_token_id", None)
        ends = self.model.generation_config.eos_token_id if ends is None else ends
        ends = given.get("eos_token_id", ends)  # None is no end
        ends = torch.tensor([] if ends is None else ends, device=output.device).view(-1)
        is_end = torch.isin(output[:, 1 + len(batch.prefix) :], ends)
        cut = [not has_end for has_end in is_end.any(dim=1).tolist()]
        if self.decoding.forced_eos_token_id is not None:  # cut translations have an end too
            per_sentence, prefix = len(cut) // len(batch.texts), len(batch.prefix)
            sources = [source for source in batch.sources for _ in range(per_sentence)]
            limits = [self.decoding.longest(len(source), prefix) for source in sources]
            lengths = (prefix + is_end.int().argmax(dim=1)).tolist()  # without the end
            cut = [not_ended or length >= limit for not_ended, length, limit in zip(cut, lengths, limits, strict=True)]
        return cut

    def _limits(self, batch: Batch, mask: torch.Tensor) -> dict:
        """The options that limit each output by its source, unless `generate()` does that itself or the call did."""
        ours, offset = hasattr(self.model.generation_config, "max_length_offset"), self.decoding.max_length_offset
        if ours or offset is None or {"stopping_criteria", "generation_config"} & self.decoding.given.keys():
            return {}
        longest = max(self.decoding.longest(len(source), len(batch.prefix)) for source in batch.sources)
        return {
            "max_length": 1 + longest,  # with the start
            "stopping_criteria": StoppingCriteriaList([SourceLengthLimit(mask.sum(dim=1), offset)]),
        }


def _one_thread() -> None:
    torch.set_num_threads(1)  # more would compete with the other workers, and a fork has none of its parent's threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
