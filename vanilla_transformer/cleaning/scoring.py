"""How well the sides of a pair belong together, by two models: dual conditional cross-entropy.

Junczys-Dowmunt (2018, arXiv:1809.00197), with H(y | x) = -1/|y| sum_i log p(y_i | y_<i, x) in nats by a model from
source to target, and H(x | y) by one of the other direction:

    A(x, y) = |H(y | x) - H(x | y)| + (H(y | x) + H(x | y)) / 2        score = exp(-A), from 0 to 1, the best
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..data.languages import target_languages
from ..files import replaced_path
from .shards import ShardFiles


@dataclass(frozen=True)
class Scoring:
    """The models that score the pairs, and the limit by which pairs are kept.

    Attributes:
        forward, backward: Run folders or models' folders: from source to target, and the other way.
        keep_best: Share of the scored pairs to keep; None: `min_score` decides.
        min_score: The lowest score to keep; None: `keep_best` decides.
        device: Where the models run, as for `load_model`.
        batch_tokens: Padded target tokens scored at a time.
    """

    forward: str | Path
    backward: str | Path
    keep_best: float | None = None
    min_score: float | None = None
    device: str = "cpu"
    batch_tokens: int = 2048

    def __post_init__(self) -> None:
        if (self.keep_best is None) == (self.min_score is None):
            raise ValueError("Scores need one limit: give either keep_best, a share, or min_score, a score.")
        for name in ("keep_best", "min_score"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, not {value:g}.")

    @classmethod
    def by(
        cls,
        score_models: Sequence[str | Path] | None,
        keep_best: float | None,
        min_score: float | None,
        device: str = "cpu",
    ) -> "Scoring | None":
        """The scoring by two models; None without models, which then have no limit either."""
        if score_models is None:
            if (keep_best, min_score) != (None, None):
                raise ValueError("keep_best and min_score are for score_models.")
            return None
        if len(score_models) != 2:
            raise ValueError("score_models must be two: one from source to target, then one from target to source.")
        return cls(*score_models, keep_best, min_score, device)

    def facts(self) -> dict:
        """Everything that determines the scores and which pairs are kept."""
        from ..run.digests import sha256_of_model
        from ..run.loading import find_model

        models = {
            name: {"path": str(Path(path)), "sha256": sha256_of_model(find_model(path))}
            for name, path in (("forward", self.forward), ("backward", self.backward))
        }
        # Records have called this "least" from the beginning.
        limits = {"keep_best": self.keep_best, "least": self.min_score, "batch_tokens": self.batch_tokens}
        return {**models, **limits, "device": self.device}


def dual_cross_entropy_scores(
    forward,
    backward,
    pairs: Sequence[tuple[str, str]],
    *,
    languages: tuple[str, str] | None = None,
    batch_tokens: int = 2048,
) -> np.ndarray:
    """The score of each pair, float32 (pairs,), 0 to 1; 0 if a model has too few learned positions for it.

    Args:
        forward, backward: Each a model and its tokenizer, as `load_model` returns them.
        pairs: Sources and targets.
        languages: Codes of source and target; models of several target languages need them.
        batch_tokens: As for [`score_pairs`].
    """
    from ..translation import score_pairs

    fits = _fits(*forward, pairs) & _fits(*backward, pairs)
    found, pairs = np.zeros(len(pairs), np.float32), [pairs[i] for i in np.flatnonzero(fits)]
    options = {"batch_tokens": batch_tokens, "contexts": [()] * len(pairs)}  # others may stand between the pairs
    turned = [(target, source) for source, target in pairs]
    source, target = languages or (None, None)
    entropies = []
    for model, some, language in ((forward, pairs, target), (backward, turned, source)):
        to = language if target_languages(model[1]) else None
        entropies.append(-np.array([each.per_token for each in score_pairs(*model, some, to=to, **options)]))
    unlikeness = np.abs(entropies[0] - entropies[1]) + (entropies[0] + entropies[1]) / 2
    found[fits] = np.exp(-unlikeness)
    return found


def _fits(model, tokenizer, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Whether the model has positions for both sides of each pair, bool (pairs,)."""
    if (positions := getattr(model, "positions", None)) is None:
        return np.ones(len(pairs), bool)
    room = positions - bool(target_languages(tokenizer))  # for the tag
    sides = (tokenizer([pair[side].strip() for pair in pairs]).input_ids for side in (0, 1))
    return np.array([max(map(len, ids)) <= room for ids in zip(*sides, strict=True)])


def score_shard(scoring: Scoring, folder: Path, languages: tuple[str, str], shard: tuple[int, np.ndarray]) -> None:
    """Scores the pairs of a shard that are not dropped, bool (pairs,), and saves the scores."""
    number, left = shard
    files = ShardFiles.of(folder, number)
    scores = np.full(len(left), np.nan, np.float32)
    # As they will be written: with "?" for bytes that are no text, where the rule that drops them is skipped.
    pairs = [
        tuple(text.encode(errors="replace").decode() for text in row[2:4])
        for row, wanted in zip(files.read_pairs(), left, strict=True)
        if wanted
    ]
    if pairs:
        options = {"languages": languages, "batch_tokens": scoring.batch_tokens}
        scores[left] = dual_cross_entropy_scores(*_models(scoring), pairs, **options)
    with replaced_path(files.scores) as path, path.open("wb") as file:
        np.save(file, scores)


@lru_cache(maxsize=1)
def _models(scoring: Scoring):
    from ..run.loading import load_model

    return [load_model(path, scoring.device) for path in (scoring.forward, scoring.backward)]


def begin_scoring() -> None:
    """For a worker process: one thread, so that the number of workers does not show in the scores."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    torch.set_num_threads(1)


def least_of_best(files: Sequence[Path], share: float) -> float:
    """The least score among the best `share` of all pairs, in memory that does not grow.

    The bits of a positive float32, read as a whole number, are in the order of the numbers. So the first 16 are
    counted, then the others of those with the right first 16.
    """
    high, low = np.zeros(1 << 16, np.int64), np.zeros(1 << 16, np.int64)
    for path in files:
        high += np.bincount(_bits(path) >> 16, minlength=1 << 16)
    rank = int(np.ceil(share * high.sum()))  # of the least score to keep, counted from the best
    if not rank:
        return 0.0
    first = _place_of_rank(high, rank)
    for path in files:
        bits = _bits(path)
        low += np.bincount(bits[bits >> 16 == first] & 0xFFFF, minlength=1 << 16)
    second = _place_of_rank(low, rank - int(high[first + 1 :].sum()))
    return float(np.uint32(first << 16 | second).view(np.float32))


def _place_of_rank(counts: np.ndarray, rank: int) -> int:
    """The number with this rank, the largest being 1, of numbers of which `counts` says how often each comes."""
    at_least = counts[::-1].cumsum()[::-1]  # for each number, how many are as large or larger
    return int(np.flatnonzero(at_least >= rank)[-1])


def _bits(path: Path) -> np.ndarray:
    scores = np.load(path)
    return scores[~np.isnan(scores)].view(np.uint32).astype(np.int64)
