"""The engine that runs exported models in CTranslate2 (see `export/ctranslate2.py`)."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from ..files import read_json
from ..model.checks_vanilla_transformer import check_saved_decoding
from ..model.generation_vanilla_transformer import length_penalty
from ..model.search_vanilla_transformer import least_risk_first
from .decoding import Batch, Decoding, Hypothesis


if TYPE_CHECKING:
    from ctranslate2 import AsyncTranslationResult, Translator


_REMEDY = "Export it again."


class ExportedModel:
    """A model that CTranslate2 runs.

    Args:
        folder: Written by `to_ctranslate2`, or by `ct2-transformers-converter` told to copy `generation_config.json`.
        device: auto, cpu or cuda.

    Raises:
        FileNotFoundError: The folder or a file in it is missing.
        ValueError: A file is damaged, or CTranslate2 cannot translate as the generation config says.
        ImportError: CTranslate2 is not installed.

    Example:
        >>> translate(ExportedModel("for_ctranslate2"), load_tokenizer("for_ctranslate2"), ["The dog is old."])
        ['Der Hund ist alt.']
    """

    def __init__(self, folder: str | PathLike[str], device: str = "auto"):
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"CTranslate2 cannot run on {device!r}: choose auto, cpu or cuda.")
        self.folder, self.device = Path(folder), device
        if not self.is_in(self.folder):
            raise FileNotFoundError(f"There is no model for CTranslate2 in {folder}: write one with `export`.")
        if not (self.folder / "generation_config.json").is_file():
            raise FileNotFoundError(
                f"{folder} has no generation_config.json: export again, or copy that of the model that it was made of."
            )
        from ..export.ctranslate2 import POSITIONS
        from ..export.saved_decoding import check_supported

        self.tokens: list[str] = read_json(self.folder / "shared_vocabulary.json", _REMEDY, list)
        check_saved_decoding(self.folder, len(self.tokens))
        self.generation_config = GenerationConfig.from_pretrained(self.folder)
        check_supported(self.generation_config, "CTranslate2", self.folder / "generation_config.json")
        settings = read_json(self.folder / "config.json", _REMEDY)
        self.positions = settings.get("positions", POSITIONS)  # tokens that a source or a translation may have
        self._loaded: tuple[Translator, int] | None = None

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder holds a model for CTranslate2."""
        return (folder / "model.bin").is_file() and (folder / "shared_vocabulary.json").is_file()

    def translator(self, threads: int | None, anew: bool = False) -> tuple["Translator", int]:
        """Loads the model onto its device (for "auto" a GPU if CTranslate2 finds one), unless it is there already.

        Args:
            threads: How many translate side by side; None: as many as torch has on a CPU, one on a GPU.
            anew: Whether to load it in any case.

        Returns:
            The translator, and its number of threads.

        Raises:
            ValueError: There is no such device, several threads are asked for on a GPU, or the model is damaged.
        """
        import ctranslate2

        there_is_one = ctranslate2.get_cuda_device_count() > 0
        if self.device == "cuda" and not there_is_one:
            raise ValueError("CTranslate2 finds no device cuda on this machine: choose auto or cpu.")
        device = "cuda" if there_is_one and self.device != "cpu" else "cpu"
        torch_threads = torch.get_num_threads()
        if threads is None:
            threads = torch_threads if device == "cpu" else 1
        if threads > 1 and device != "cpu":
            raise ValueError("Several workers are for a CPU: choose the device cpu, or one worker.")
        if self._loaded is not None and self._loaded[1] == threads and not anew:
            return self._loaded
        # Each thread has sentences of its own. Threads that share products, as by CTranslate2's default, wait for each
        # other so often that two of them can be slower than one.
        try:
            translator = ctranslate2.Translator(str(self.folder), device, inter_threads=threads, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"CTranslate2 cannot load {self.folder} ({error}). {_REMEDY}") from error
        torch.set_num_threads(torch_threads)  # both have one OpenMP, in which CTranslate2 has just set the number
        self._loaded = translator, threads
        return self._loaded


class Ctranslate2Engine:
    """Translates batches with CTranslate2, as `generate()` would.

    Greedy search is the same. CTranslate2's beam search ranks unfinished hypotheses by log-probability, finished ones
    by log-probability / |Y|^alpha, and stops at a number of finished ones. It is told to find twice as many as the beam
    is wide (as many with `early_stopping=True`), and these are ranked here with the penalty asked for. Hypotheses that
    ours would find beyond them are missed. Prefixes count towards |Y| there, but not here.

    Raises:
        ValueError: CTranslate2 does not support an option, say because [`Decoding`] has no field for it.
    """

    def __init__(self, model: ExportedModel, tokenizer: PreTrainedTokenizerFast, decoding: Decoding):
        if others := [*decoding.others, *["no_repeat_ngram_size"] * (decoding.no_repeat_ngram_size > 0)]:
            raise ValueError(f"CTranslate2 does not support {', '.join(others)}: translate with torch.")
        if decoding.constrained:
            raise ValueError(
                "CTranslate2 has no hard terms: translate by torch, with the model itself, or ask for soft terms."
            )
        if decoding.align:
            raise ValueError("CTranslate2 gives no alignments of words.")
        if decoding.calibration is not None:
            raise ValueError("CTranslate2 gives no confidence: translate with torch.")
        each, beams = decoding.num_return_sequences, decoding.num_beams
        if not decoding.do_sample and each > beams:
            raise ValueError(f"num_return_sequences is {each}, more than num_beams, which is {beams}.")
        if decoding.do_sample and beams > 1:
            raise ValueError("CTranslate2 draws samples only without a beam: num_beams must be 1.")
        new = decoding.given.get("max_new_tokens")
        if new is not None and len(decoding.prefix) + new > model.positions:
            raise ValueError(
                f"max_new_tokens is {new:,}, with the prefix more than the {model.positions:,} positions that the "
                "exported model has."
            )
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self.ids = {token: number for number, token in enumerate(model.tokens)}
        ends = model.generation_config.eos_token_id
        self.ends = {*ends} if isinstance(ends, list) else {ends}
        self.drawing = decoding.do_sample and decoding.top_k != 1  # with one token there is nothing to draw

    @contextmanager
    def at_work(self, workers: int) -> Iterator[None]:
        """Loads the model for a number of threads; a single worker gets as many as torch has.

        If it draws samples, a single worker gets only one thread, so that they depend on torch's seed alone.
        """
        import ctranslate2

        draws = self.decoding.do_sample
        if draws:  # a worker's generator is seeded when it first draws: each time there must be new workers
            ctranslate2.set_random_seed(int(torch.randint(2**31, ())))
        asked = None if workers == 1 and not draws else workers
        self._translator, self._threads = self.model.translator(asked, anew=draws)
        yield

    def translate(self, batches: Sequence[Batch]) -> Iterator[list[Hypothesis]]:
        begun: deque[tuple[Batch, list[AsyncTranslationResult]]] = deque()
        for batch in batches:
            begun.append((batch, self._begin(batch)))
            if len(begun) > self._threads:  # one waits for a thread; after an interrupt only these are finished
                yield self._hypotheses(*begun.popleft())
        yield from (self._hypotheses(*each) for each in begun)

    def _begin(self, batch: Batch) -> list["AsyncTranslationResult"]:
        """Asks for the translations of a batch, in parts for all threads.

        A call has one limit, so sources of each length get their own.
        """
        asked = self.decoding
        search = {}
        if self.drawing:
            search = {
                "num_hypotheses": asked.num_return_sequences,
                "sampling_topk": min(asked.top_k, len(self.model.tokens)),  # 0 is all, as here
                "sampling_topp": asked.top_p,
                "sampling_temperature": asked.temperature,
            }
        elif asked.num_beams > 1:
            patience = 1 if asked.early_stopping is True else 2
            search = {"num_hypotheses": patience * asked.num_beams, "patience": patience}
            search["length_penalty"] = asked.length_penalty
        prefix = [self.model.tokens[number] for number in batch.prefix]
        limits = [asked.longest(len(source), len(prefix)) for source in batch.sources]
        most = -(-len(batch.sources) // self._threads)
        found = []
        for (limit, _), places in groupby(range(len(limits)), key=lambda place: (limits[place], place // most)):
            tokens = [[self.model.tokens[number] for number in batch.sources[place]] for place in places]
            found += self._translator.translate_batch(
                tokens,
                [prefix] * len(tokens) if prefix else None,
                asynchronous=True,
                beam_size=asked.num_beams,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=0,
                return_end_token=True,
                return_scores=True,
                **search,
            )
        return found

    def _hypotheses(self, batch: Batch, found: list["AsyncTranslationResult"]) -> list[Hypothesis]:
        return [hypothesis for each in found for hypothesis in self._best(each.result(), len(batch.prefix))]

    def _best(self, found, prefix: int) -> list[Hypothesis]:
        """The translations of a sentence, ranked with the penalty asked for."""
        asked = self.decoding
        rows = [[self.ids[token] for token in tokens] for tokens in found.hypotheses]
        if asked.do_sample or asked.num_beams == 1:
            rows = rows if self.drawing else rows * asked.num_return_sequences
            scores = [None] * len(rows)
        else:
            alpha, kind = asked.length_penalty, asked.length_penalty_type
            ours = [
                score * len(row) ** alpha / length_penalty(len(row) - prefix, alpha, kind)
                for score, row in zip(found.scores, rows, strict=True)
            ]
            best = sorted(range(len(rows)), key=ours.__getitem__, reverse=True)
            if asked.minimum_bayes_risk:
                best = best[: asked.num_beams]
                candidates = [[token for token in rows[i][prefix:] if token not in self.ends] for i in best]
                best = [best[place] for place in least_risk_first(candidates)]
            best = best[: asked.num_return_sequences]
            rows, scores = [rows[i] for i in best], [ours[i] if asked.scores else None for i in best]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        cut = [not row or row[-1] not in self.ends for row in rows]
        return [Hypothesis(text, score, cut=each) for text, score, each in zip(texts, scores, cut, strict=True)]
