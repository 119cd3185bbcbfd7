"""COMET (Rei et al. 2020, 2022) as one of our metrics, by its own program `comet-score`.

The package unbabel-comet (2.2.7) asks for transformers below 5 and numpy below 2, so it cannot stand beside this one:
it belongs in its own environment, whose `comet-score` is found on PATH or named by COMET_SCORE.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache

from sacrebleu.metrics.base import Score

from ..files import temporary_folder
from .own_metrics import OwnSignature


MODEL = "Unbabel/wmt22-comet-da"
_REMEDY = (
    "COMET needs the program comet-score. Its package cannot stand beside transformers 5: install it apart "
    "(python -m venv comet; comet/bin/pip install unbabel-comet) and set COMET_SCORE=comet/bin/comet-score."
)


class Comet:
    """The mean of COMET's score of each sentence, times 100.

    It has the methods that our scores need of a sacreBLEU metric, whose base class would score sentences one by one.
    `sources` must be set before use. COMET_MODEL names a model other than the default, by its name on the Hub or its
    .ckpt file.

    Raises:
        ImportError: There is no `comet-score`.
    """

    def __init__(self):
        program = shutil.which(os.environ.get("COMET_SCORE", "comet-score"))
        if program is None:
            raise ImportError(_REMEDY)
        model = os.environ.get("COMET_MODEL", MODEL)
        self.program, self.model = program, model
        self.settings, self.num_refs = {"model": model, "scale": "100"}, 1
        self.sources: Sequence[str] = ()

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list:
        """(sentences, 2): the score, and 1.

        Raises:
            ValueError: There is more than one reference, or the program failed.
        """
        if len(references) != 1:
            raise ValueError(
                f"COMET compares with one reference, not {len(references)}: leave comet out, or the others."
            )
        texts = ("s", tuple(self.sources)), ("t", tuple(hypotheses)), ("r", tuple(references[0]))
        scores = _scores_of(texts, (self.program, "--model", self.model))
        if len(scores) != len(hypotheses):
            raise ValueError(f"comet-score gave {len(scores):,} scores for {len(hypotheses):,} translations.")
        return [[score, 1] for score in scores]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        total, sentences = stats
        return Score("COMET", 100 * float(total) / float(sentences))

    def get_signature(self) -> OwnSignature:
        """Says exactly what is computed."""
        return OwnSignature(vars(self))


@lru_cache(maxsize=16)  # scores and comparisons ask for the same ones, and the program loads a large model
def _scores_of(texts: tuple[tuple[str, tuple[str, ...]], ...], program: tuple[str, ...]) -> tuple[float, ...]:
    """The score of each sentence; `texts` are sources, translations and references by the program's options."""
    import torch

    with temporary_folder() as folder:
        words = [*program, "--gpus", str(int(torch.cuda.is_available())), "--quiet", "--only_system"]
        for option, lines in texts:
            # The program reads lines: line breaks within a text become blanks.
            content = "".join(f"{' '.join(line.splitlines())}\n" for line in lines)
            (folder / option).write_text(content, encoding="utf-8")
            words += [f"-{option}", str(folder / option)]
        answer = folder / "scores.json"
        done = subprocess.run([*words, "--to_json", str(answer)], capture_output=True, text=True, check=False)
        if done.returncode or not answer.is_file():
            said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise ValueError(
                f"{program[0]} failed with status {done.returncode} ({said[0]}): run it on its own to see why."
            )
        [found] = json.loads(answer.read_text(encoding="utf-8")).values()
    return tuple(float(each["COMET"]) for each in found)
