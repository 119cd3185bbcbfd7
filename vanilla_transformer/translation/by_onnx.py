"""The engine that runs, in onnxruntime, the graphs that [`to_onnx`] has written."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from ..data.languages import towards
from .decoding import Batch, Decoding, Hypothesis


class OnnxTranslator:
    """Greedy search, which finds the tokens that the model's `generate(num_beams=1)` finds.

    Of the generation config it supports the special tokens, the length limits, bad words of one token, and
    `no_repeat_ngram_size`.

    Args:
        folder: Written by [`to_onnx`].
        threads: Threads for one product; None: as many as there are cores.
        providers: onnxruntime's execution providers, by their names.

    Raises:
        ImportError: onnxruntime is not installed.
        ValueError: The generation config has other options that would change the translations.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ):
        from ..export.saved_decoding import check_supported, end_and_bad_tokens  # only now: torch needs no export

        try:
            from onnxruntime import InferenceSession, SessionOptions
        except ImportError as error:
            message = 'Translating by ONNX needs its packages: pip install "vanilla-transformer[onnx]"'
            raise ImportError(message) from error
        folder, options = Path(folder), SessionOptions()
        options.intra_op_num_threads = threads or 0
        self.encoder, self.decoder = (
            InferenceSession(folder / name, options, list(providers)) for name in ("encoder.onnx", "decoder.onnx")
        )
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        saved = self.generation_config = GenerationConfig.from_pretrained(folder)
        check_supported(saved, "ONNX", folder / "generation_config.json")
        learned = config["position_embedding_type"] == "learned"
        self.positions = config["max_position_embeddings"] if learned else None
        for name in ("decoder_start_token_id", "eos_token_id", "bad_words_ids"):  # the generation config comes first
            if getattr(saved, name) is None:
                setattr(saved, name, config.get(name))
        self.ends, self.bad = end_and_bad_tokens(saved)
        self.decoding = Decoding.resolve({}, saved, positions=self.positions, offset=None)

    def translate(self, sentences: Sequence[str], *, to: str | None = None, batch_size: int = 32) -> list[str]:
        """Translations in the order of the sentences, which are sorted by length into batches of `batch_size`.

        `to` is the target language if the model has several; ValueError if it is missing.
        """
        tokenizer = towards(self.tokenizer, to)
        found = [""] * len(sentences)
        sources = tokenizer([each.strip() for each in sentences]).input_ids if sentences else []
        todo = sorted((i for i, each in enumerate(sentences) if each.strip()), key=lambda i: len(sources[i]))
        for begin in range(0, len(todo), batch_size):
            batch = todo[begin : begin + batch_size]
            rows = self.translate_ids([sources[i] for i in batch])
            for i, text in zip(batch, self.tokenizer.batch_decode(rows, skip_special_tokens=True), strict=True):
                found[i] = text
        return found

    def translate_ids(
        self, sources: Sequence[Sequence[int]], decoding: Decoding | None = None, prefix: Sequence[int] = ()
    ) -> list[list[int]]:
        """Translates the tokens of each source, in one batch, to those of its translation, its end token included.

        Args:
            sources: Token ids.
            decoding: Gives the length limits and `no_repeat_ngram_size`; None: the model's own decoding.
            prefix: Token ids that every translation begins with.

        Raises:
            ValueError: A source has more tokens than the model has learned positions for.
        """
        decoding, longest = decoding or self.decoding, max(map(len, sources))
        if self.positions is not None and longest > self.positions:
            raise ValueError(
                f"A source has {longest:,} tokens, but max_position_embeddings is {self.positions:,}: learned "
                "positions end there. Shorten the source."
            )
        start = self.generation_config.decoder_start_token_id
        mask = np.array([[1] * len(each) + [0] * (longest - len(each)) for each in sources], np.int64)
        ids = np.array([[*each, *[start] * (longest - len(each))] for each in sources], np.int64)
        names, presents = self._names(self.encoder, "encoder."), self._names(self.decoder, "present.")
        step = dict(zip(names, self.encoder.run(names, {"input_ids": ids, "attention_mask": mask}), strict=True))
        step |= {name.replace("encoder", "past"): values[:, :, :0] for name, values in step.items()}
        step |= {"input_ids": np.array([[start, *prefix]] * len(sources)), "attention_mask": mask}
        past = [name.replace("present", "past") for name in presents]
        found, limits = [[*prefix] for _ in sources], [decoding.longest(len(each), len(prefix)) for each in sources]
        open_rows = np.arange(len(sources))
        while len(open_rows):
            logits, *present = self.decoder.run(["logits", *presents], step)
            logits[:, :, self.bad] = -np.inf
            for place, row in enumerate(open_rows if decoding.no_repeat_ngram_size else ()):
                logits[place, :, _repeating([start, *found[row]], decoding.no_repeat_ngram_size)] = -np.inf
            tokens = logits[:, -1].argmax(axis=1)
            for row, token in zip(open_rows, tokens.tolist(), strict=True):
                found[row].append(token)
            step |= {"input_ids": tokens[:, None], **dict(zip(past, present, strict=True))}
            stay = np.array([found[i][-1] not in self.ends and len(found[i]) < limits[i] for i in open_rows])
            if not stay.all():  # those that have ended leave the batch
                step, open_rows = {name: values[stay] for name, values in step.items()}, open_rows[stay]
        return found

    @staticmethod
    def _names(graph, kind: str) -> list[str]:
        """Names of a graph's outputs of a kind; it may also return attention weights, which are not needed here."""
        return [each.name for each in graph.get_outputs() if each.name.startswith(kind)]


def _repeating(tokens: Sequence[int], size: int) -> list[int]:
    """The tokens that may not come next, because the last `size` would then have come before, in the same order."""
    last = [*tokens[len(tokens) - size + 1 :]]
    begins = range(len(tokens) - size + 1)
    return [tokens[begin + size - 1] for begin in begins if [*tokens[begin : begin + size - 1]] == last]


class OnnxEngine:
    """Translates batches by greedy search with onnxruntime.

    Raises:
        ValueError: Something other than greedy search is asked for.
    """

    def __init__(self, model: OnnxTranslator, tokenizer: PreTrainedTokenizerFast, decoding: Decoding):
        if decoding.constrained:
            raise ValueError(
                "ONNX has no beam search, so no hard terms: translate with the model of torch, or ask for soft ones."
            )
        if decoding.others or decoding.align:
            raise ValueError(
                f"ONNX does not support {', '.join(decoding.others) or 'alignments of words'}: translate with torch."
            )
        if decoding.calibration is not None:
            raise ValueError("ONNX gives no confidence: translate with torch.")
        if decoding.do_sample or decoding.num_beams > 1 or decoding.num_return_sequences > 1:
            raise ValueError("ONNX has greedy search alone: ask for num_beams=1 and one translation.")
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding

    @contextmanager
    def at_work(self, workers: int) -> Iterator[None]:
        """There is one worker, whose threads are those of the model."""
        if workers != 1:
            raise ValueError(f"ONNX has 1 worker, not {workers}: give the model more threads.")
        yield

    def translate(self, batches: Sequence[Batch]) -> Iterator[list[Hypothesis]]:
        for batch in batches:
            rows = self.model.translate_ids(batch.sources, self.decoding, batch.prefix)
            texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
            cut = [row[-1] not in self.model.ends for row in rows]
            yield [Hypothesis(text, cut=each) for text, each in zip(texts, cut, strict=True)]
