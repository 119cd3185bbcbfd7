"""Translates with onnxruntime from a folder that [`to_onnx`] has written.

It stands alone, so that it can be taken elsewhere: of transformers it has no more than the tokenizer.
"""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer


try:
    from onnxruntime import InferenceSession, SessionOptions
except ImportError as error:
    raise ImportError('Translating by ONNX needs its packages: pip install "vanilla-transformer[onnx]"') from error


class OnnxTranslator:
    """Greedy search, which finds the tokens that the model's `generate(num_beams=1)` finds.

    Of the generation config it knows the special tokens, the limits of the length, and bad words of one token.

    Args:
        folder: What [`to_onnx`] has written.
        threads: For one product; None: as many as there are cores.
        providers: What onnxruntime is to compute on, in its terms.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ):
        folder, options = Path(folder), SessionOptions()
        options.intra_op_num_threads = threads or 0
        self.encoder, self.decoder = (
            InferenceSession(folder / name, options, list(providers)) for name in ("encoder.onnx", "decoder.onnx")
        )
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        settings = {}
        for name in ("config.json", "generation_config.json"):  # the second has the last word
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            settings |= {field: value for field, value in found.items() if value is not None}
        self.start, self.settings = settings["decoder_start_token_id"], settings
        ends = settings.get("eos_token_id", [])
        self.ends = set(ends if isinstance(ends, list) else [ends])
        bad = [ids[0] for ids in settings.get("bad_words_ids", []) if len(ids) == 1]
        self.bad = [token for token in bad if token not in self.ends]  # transformers forbids no end

    def translate(self, sentences: Sequence[str], *, batch_size: int = 32) -> list[str]:
        """Translations in the order of the sentences, which are sorted by length into batches of `batch_size`."""
        found = [""] * len(sentences)
        sources = self.tokenizer(list(sentences)).input_ids if sentences else []
        todo = sorted((i for i, each in enumerate(sentences) if each.strip()), key=lambda i: len(sources[i]))
        for begin in range(0, len(todo), batch_size):
            batch = todo[begin : begin + batch_size]
            rows = self.translate_ids([sources[i] for i in batch])
            for i, text in zip(batch, self.tokenizer.batch_decode(rows, skip_special_tokens=True), strict=True):
                found[i] = text
        return found

    def translate_ids(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The tokens of each translation, its end token included, of the tokens of each source, all in one batch."""
        longest = max(map(len, sources))
        mask = np.array([[1] * len(each) + [0] * (longest - len(each)) for each in sources], np.int64)
        ids = np.array([[*each, *[self.start] * (longest - len(each))] for each in sources], np.int64)
        names = [each.name for each in self.encoder.get_outputs()]
        step = dict(zip(names, self.encoder.run(None, {"input_ids": ids, "attention_mask": mask}), strict=True))
        step |= {name.replace("encoder", "past"): values[:, :, :0] for name, values in step.items()}
        step |= {"input_ids": np.full((len(sources), 1), self.start), "attention_mask": mask}
        past = [each.name.replace("present", "past") for each in self.decoder.get_outputs()[1:]]
        found, limits = [[] for _ in sources], [self._limit(len(each)) for each in sources]
        open_rows = np.arange(len(sources))
        while len(open_rows):
            logits, *present = self.decoder.run(None, step)
            logits[:, :, self.bad] = -np.inf
            tokens = logits[:, -1].argmax(axis=1)
            for row, token in zip(open_rows, tokens.tolist(), strict=True):
                found[row].append(token)
            step |= {"input_ids": tokens[:, None], **dict(zip(past, present, strict=True))}
            stay = np.array([found[i][-1] not in self.ends and len(found[i]) < limits[i] for i in open_rows])
            if not stay.all():  # those that have ended leave the batch
                step, open_rows = {name: values[stay] for name, values in step.items()}, open_rows[stay]
        return found

    def _limit(self, source_length: int) -> int:
        """How many tokens a translation may have, as in `generate()`; of `max_length` the start token is one."""
        settings = self.settings
        if "max_new_tokens" in settings:
            return settings["max_new_tokens"]
        if "max_length_offset" not in settings:
            return settings.get("max_length", 21) - 1
        limits = [source_length + settings["max_length_offset"], settings.get("max_length", float("inf")) - 1]
        if settings["position_embedding_type"] == "learned":
            limits.append(settings["max_position_embeddings"] - 1)
        return min(limits)


__all__ = ["OnnxTranslator"]
