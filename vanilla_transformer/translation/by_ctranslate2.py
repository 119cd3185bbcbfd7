"""The engine that runs exported models in CTranslate2 (see `export/ctranslate2.py`)."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from ..model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, length_penalty, wanted_max_length
from .hypotheses import Batch, Hypothesis


if TYPE_CHECKING:
    from ctranslate2 import AsyncTranslationResult, Translator

# What is asked in a call, or saved with a model, and what it is if it is neither.
_DEFAULTS = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "length_penalty": 1.0,
    "length_penalty_type": "length",
    "early_stopping": False,
    "max_length": None,
    "max_new_tokens": None,
    "max_length_offset": None,
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}
_NEW_TOKENS = 20  # transformers' limit, if nobody gives one
# What a saved generation config can have and would not be heeded.
_UNHEEDED = (
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "forced_bos_token_id",
    "min_length", "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_beam_groups", "repetition_penalty",
    "sequence_bias", "suppress_tokens", "begin_suppress_tokens", "typical_p",
)  # fmt: skip
_NEUTRAL = (None, 0, 1, [], {})


class ExportedModel:
    """A model that CTranslate2 runs.

    Args:
        folder: What `to_ctranslate2` wrote; or `ct2-transformers-converter`, told to copy `generation_config.json`.

    Attributes:
        generation_config: How it translates.
        positions: How many tokens a source or a translation may have.

    Raises:
        FileNotFoundError: It is not there, or lacks a file.
        ValueError: CTranslate2 cannot translate as its generation config says.
        ImportError: CTranslate2 is not installed.

    Example:
        >>> translate(ExportedModel("for_ctranslate2"), load_tokenizer("for_ctranslate2"), ["The dog is old."])
        ['Der Hund ist alt.']
    """

    def __init__(self, folder: str | PathLike[str]):
        self.folder = Path(folder)
        if not self.is_in(self.folder):
            raise FileNotFoundError(f"There is no model for CTranslate2 in {folder}: write one with `export`.")
        if not (self.folder / "generation_config.json").is_file():
            raise FileNotFoundError(
                f"{folder} has no generation_config.json: export again, or copy that of the model that it was made of."
            )
        from ..export.ctranslate2 import POSITIONS

        self.generation_config = GenerationConfig.from_pretrained(self.folder)
        for name in _UNHEEDED:
            if (value := getattr(self.generation_config, name, None)) not in _NEUTRAL:
                raise ValueError(f"The model in {folder} is to be run with {name} = {value}: not so in CTranslate2.")
        settings = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self.positions = settings.get("positions", POSITIONS)
        words = (self.folder / "shared_vocabulary.json").read_text(encoding="utf-8")
        self.tokens: list[str] = json.loads(words)

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder holds a model for CTranslate2."""
        return (folder / "model.bin").is_file() and (folder / "shared_vocabulary.json").is_file()

    def translator(self, workers: int) -> "Translator":
        """Loads it onto the GPU if CTranslate2 finds one, else for so many workers on the CPU.

        Raises:
            ValueError: Workers are asked for where there can be none.
        """
        import ctranslate2

        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        if workers < 1:
            raise ValueError(f"There must be at least 1 worker, not {workers}.")
        if workers > 1 and device != "cpu":
            raise ValueError("Several workers are for a CPU.")
        threads = torch.get_num_threads() if workers == 1 else 1
        return ctranslate2.Translator(str(self.folder), device, inter_threads=workers, intra_threads=threads)


class Ctranslate2Engine:
    """Translates batches with CTranslate2, as `generate()` would.

    Greedy search is the same. CTranslate2's beam search ranks what it has not finished by log-probability, what it has
    by log-probability / |Y|^alpha, and ends with so many finished hypotheses. It is told to find twice as many as the
    beam is wide (as many with `early_stopping=True`), and what it found is ranked here with the penalty asked for. What
    ours would have found beyond that is missed; prefixes count for |Y| there and not here.

    Args:
        model: What is to translate.
        tokenizer: The model's tokenizer.
        options: Of the options of `generate()`: `num_beams`, `num_return_sequences`, `length_penalty`,
            `length_penalty_type`, `early_stopping`, `max_length`, `max_new_tokens`, `max_length_offset`, `do_sample`,
            `temperature`, `top_k`, `top_p`, `return_dict_in_generate`.
        prefix: What every translation begins with.
        align: There are no alignments.

    Raises:
        ValueError: CTranslate2 cannot do what is asked.
    """

    def __init__(
        self,
        model: ExportedModel,
        tokenizer: PreTrainedTokenizerFast,
        options: dict,
        prefix: str = "",
        align: bool = False,
    ):
        if unknown := sorted(set(options) - {*_DEFAULTS, "return_dict_in_generate"}):
            raise ValueError(f"CTranslate2 has no {', '.join(unknown)} here.")
        if align:
            raise ValueError("CTranslate2 gives no alignments of words.")
        self.model, self.tokenizer, self.options, self.prefix = model, tokenizer, options, prefix
        ids = tokenizer(text_target=prefix, add_special_tokens=False).input_ids if prefix else []
        self.prefix_tokens = [model.tokens[number] for number in ids]
        self.ids = {token: number for number, token in enumerate(model.tokens)}
        self.sampling, self.beams = self._asked("do_sample"), self._asked("num_beams")
        self.each, new = self._asked("num_return_sequences"), options.get("max_new_tokens")
        self.drawing = self.sampling and self._asked("top_k") != 1  # or there is nothing to choose
        if not self.sampling and self.each > self.beams:
            raise ValueError(f"num_return_sequences is {self.each}, more than num_beams, which is {self.beams}.")
        if self.sampling and self.beams > 1:
            raise ValueError("CTranslate2 draws samples only without a beam: num_beams must be 1.")
        if new is not None and len(ids) + new > model.positions:
            raise ValueError(
                f"max_new_tokens is {new:,}, with the prefix more than the {model.positions:,} positions that the "
                "exported model has."
            )

    def _asked(self, name: str):
        """A setting: the call's, else the model's."""
        if name in self.options:
            return self.options[name]
        saved = getattr(self.model.generation_config, name, None)
        return _DEFAULTS[name] if saved is None else saved

    @property
    def blank(self) -> Hypothesis:
        """The translation of a blank sentence."""
        return Hypothesis("", 0.0 if self.options.get("return_dict_in_generate") else None)

    @contextmanager
    def at_work(self, workers: int) -> Iterator[Callable[[Sequence[Batch]], Iterable[list[Hypothesis]]]]:
        """Gives a function from batches to the hypotheses of each, the first sentence's first.

        Samples depend on torch's seed, and with one worker on nothing else.

        Raises:
            ValueError: Workers are asked for where there can be none.
        """
        import ctranslate2

        if self.sampling:  # a worker's generator is seeded when it first draws
            ctranslate2.set_random_seed(int(torch.randint(2**31, ())))
        translator = self.model.translator(workers)

        def translated(batches: Sequence[Batch]) -> Iterator[list[Hypothesis]]:
            begun: deque[tuple[Batch, list[AsyncTranslationResult]]] = deque()
            for batch in batches:
                begun.append((batch, self._begin(translator, batch)))
                if len(begun) > workers:  # one more is waiting for a worker, and after an interrupt no more than that
                    yield self._hypotheses(*begun.popleft())
            while begun:
                yield self._hypotheses(*begun.popleft())

        yield translated

    def _begin(self, translator: "Translator", batch: Batch) -> list["AsyncTranslationResult"]:
        """Asks for the translations of a batch. Sources of another length are a call of their own: its limit is one."""
        prefix = self.prefix_tokens if batch.begins else []
        if self.drawing:
            search = {
                "num_hypotheses": self.each,
                "sampling_topk": min(self._asked("top_k"), len(self.model.tokens)),  # 0 is all, as here
                "sampling_topp": self._asked("top_p"),
                "sampling_temperature": self._asked("temperature"),
            }
        elif self.beams == 1:
            search = {}
        else:
            patience = 1 if self._asked("early_stopping") is True else 2
            search = {
                "num_hypotheses": patience * self.beams,
                "patience": patience,
                "length_penalty": self._asked("length_penalty"),
            }
        limits = [self._limit(len(source), len(prefix)) for source in batch.sources]
        found = []
        for limit, sources in groupby(zip(limits, batch.sources, strict=True), key=lambda each: each[0]):
            tokens = [[self.model.tokens[number] for number in source] for _, source in sources]
            found += translator.translate_batch(
                tokens,
                [prefix] * len(tokens) if prefix else None,
                asynchronous=True,
                beam_size=self.beams,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=0,
                return_end_token=True,
                return_scores=True,
                **search,
            )
        return found

    def _limit(self, source: int, prefix: int) -> int:
        """Tokens that a translation may have, with its prefix; a `max_length` counts the start token too."""
        saved = self.model.generation_config
        offset = self._asked("max_length_offset")
        # Marian's: what is as long as it may be has the end for its last token.
        forced = 0 if saved.forced_eos_token_id is None else 1
        longest = self.model.positions - 1
        if (new := self._asked("max_new_tokens")) is not None:
            limit, longest = prefix + new - forced, self.model.positions
        elif self.options.get("max_length") is not None:
            limit = self.options["max_length"] - 1 - forced
        elif not hasattr(saved, "max_length_offset") and "max_length_offset" not in self.options:
            limit = source + MAX_LENGTH_OFFSET
        else:
            bounds = [] if (wanted := wanted_max_length(saved)) is None else [wanted - 1 - forced]
            bounds += [] if offset is None else [source + offset]
            limit = min(bounds, default=prefix + _NEW_TOKENS - forced)
        return max(min(limit, longest), prefix + 1)

    def _hypotheses(self, batch: Batch, found: list["AsyncTranslationResult"]) -> list[Hypothesis]:
        return [hypothesis for each in found for hypothesis in self._best(each.result(), batch.begins)]

    def _best(self, found, begins: bool) -> list[Hypothesis]:
        """The translations of a sentence, ranked with the penalty asked for."""
        rows = [[self.ids[token] for token in tokens] for tokens in found.hypotheses]
        if self.sampling or self.beams == 1:
            ranked = rows if self.drawing else rows * self.each
            scores = [None] * len(ranked)
        else:
            alpha, kind = self._asked("length_penalty"), self._asked("length_penalty_type")
            given = len(self.prefix_tokens) if begins else 0
            ours = [
                score * len(row) ** alpha / length_penalty(len(row) - given, alpha, kind)
                for score, row in zip(found.scores, rows, strict=True)
            ]
            best = sorted(range(len(rows)), key=ours.__getitem__, reverse=True)[: self.each]
            ranked, scores = [rows[i] for i in best], [ours[i] for i in best]
        texts = self.tokenizer.batch_decode(ranked, skip_special_tokens=True)
        if not self.options.get("return_dict_in_generate"):
            scores = [None] * len(texts)
        return [Hypothesis(text, score) for text, score in zip(texts, scores, strict=True)]
