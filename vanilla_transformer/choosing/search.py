"""`train auto --search`: changes to the choices, tried on validation pairs by successive halving.

    choices -> a run for each change -> the better half trains for as long again -> ... -> choices, with one change

The first round takes about half of the time, and the others a quarter each (Jamieson and Talwalkar 2016). The original
choices always stay in: a change has to beat them after the same time. Libraries that halve (Optuna, Ray Tune) start
runs and stop them. Here the remaining runs resume from their checkpoints, and so does the whole search after an
interruption.
"""

import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import read_json, write_json
from ..plots import plot_runs
from ..run.folder import RunFolder
from ..run.recipe import Recipe
from ..training.arguments import chosen_by
from .rule import VOCABULARIES, Choice


logger = logging.getLogger(__name__)

AS_CHOSEN = "as chosen"
_ROUNDS = 3
_DROPOUT = 0.1  # more or less
_NOT_SCORED = "not scored in time"
_RATE = 0.6  # of the one that was chosen


@dataclass
class Candidate:
    """A candidate of a search.

    Attributes:
        changes: The fields that differ from what was chosen.
        scores: The best validation score so far after each round that it took part in, a loss as a negative number;
            None where it failed.
        failure: Why it failed, if it did.
    """

    changes: dict[str, Any]
    scores: list[float | None] = field(default_factory=list)
    failure: str = ""

    def score_after(self, rounds: int) -> float:
        score = self.scores[rounds - 1]
        return -math.inf if score is None else score


def candidates_for(choices: Sequence[Choice], typed: Mapping[str, str]) -> dict[str, Candidate]:
    """The candidates of a search, by name. Fields that the user has typed do not change."""
    chosen = {choice.field: choice.value for choice in choices}
    dropout, pieces = chosen["model.dropout"], chosen["tokenizer.vocab_size"]
    smaller = [size for size in VOCABULARIES[1:] if size < pieces]  # the first is bytes alone
    larger = [size for size in VOCABULARIES if size > pieces]
    if "initial_model" in typed:  # it has its own vocabulary
        smaller, larger = [], []
    changes = {
        AS_CHOSEN: {},
        "more dropout": {"model.dropout": round(dropout + _DROPOUT, 2)},
        "less dropout": {"model.dropout": round(dropout - _DROPOUT, 2)} if dropout >= _DROPOUT else None,
        "smaller vocabulary": {"tokenizer.vocab_size": smaller[-1]} if smaller else None,
        "larger vocabulary": {"tokenizer.vocab_size": larger[0]} if larger else None,
        "smaller batches": {"training.max_tokens": chosen["training.max_tokens"] // 2},
        "lower rate": {"training.noam_factor": round(_RATE * chosen["training.noam_factor"], 3)},
        "BPE-dropout": {"training.bpe_dropout": 0.1} if "tokenizer.kind" not in typed else None,
    }
    return {
        name: Candidate(each) for name, each in changes.items() if each is not None and not each.keys() & typed.keys()
    }


def shares(candidates: int) -> list[tuple[int, float]]:
    """For each round: how many candidates take part, and the share of the whole time that each has had by its end.

    >>> shares(8)
    [(8, 0.0625), (4, 0.125), (2, 0.25)]
    """
    rounds = [(max(2, math.ceil(candidates / 2**number)), 2**number) for number in range(_ROUNDS)]
    whole = sum(number * (until - until // 2) for number, until in rounds)
    return [(number, until / whole) for number, until in rounds]


def with_changes(choices: Sequence[Choice], changes: Mapping[str, Any], reason: str = "") -> list[Choice]:
    """The choices with changes made, and with new fields in their sections."""
    found = [Choice(each.field, changes[each.field], reason) if each.field in changes else each for each in choices]
    for name in changes.keys() - {each.field for each in choices}:
        section = name.partition(".")[0]
        last = max(place for place, each in enumerate(found) if each.field.partition(".")[0] == section)
        found.insert(last + 1, Choice(name, changes[name], reason))
    return found


class Search:
    """A search in a run folder. After every run its state is in `search/search.json` there.

    Args:
        folder: The run folder.
        asked: The identity of the search; one begun for something else is not resumed.

    Raises:
        ValueError: The folder holds a search that was begun for something else, or its file is damaged.
    """

    def __init__(self, folder: RunFolder, asked: str):
        self.folder, self.asked, self.file = folder, asked, folder.search / "search.json"
        self.choices: list[Choice] = []
        self.candidates: dict[str, Candidate] = {}
        if not self.file.is_file():
            return
        remedy = f"Remove {folder.search}: the search begins anew."
        record = read_json(self.file, remedy)
        if sorted(str(record.get("asked")).split()) != sorted(asked.split()):  # options in whatever order
            raise ValueError(f"{folder.search} was begun for something else: remove it, or choose another folder.")
        try:
            self.choices = [Choice(**each) for each in record["choices"]]
            self.candidates = {name: Candidate(**each) for name, each in record["candidates"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.file} is damaged ({error!r}). {remedy}") from error

    def begin(self, choices: Sequence[Choice], typed: Mapping[str, str]) -> None:
        """Settles the candidates. Raises ValueError if nothing is left to try."""
        self.choices, self.candidates = list(choices), candidates_for(choices, typed)
        if len(self.candidates) == 1:
            raise ValueError("search: every field that it would change is set already: leave the search out.")
        self.folder.search.mkdir(parents=True, exist_ok=True)
        self._save()

    def run(
        self, minutes: float, recipe_of: Callable[[Mapping[str, Any], Path], Recipe], train: Callable
    ) -> list[Choice]:
        """Tries the remaining candidates; returns the choices, with the changes of the best candidate.

        Args:
            minutes: The time for training all candidates together.
            recipe_of: Makes a recipe from changes to the choices, and writes it to a file.
            train: `training.run.train`, or a function that calls it.
        """
        rounds = shares(len(self.candidates))
        longest = rounds[-1][1] * minutes
        left = list(self.candidates)
        for number, (entering, share) in enumerate(rounds):
            if number:  # in the first round all of them take part
                others = sorted(left[1:], key=lambda name: -self.candidates[name].score_after(number))
                for name in others[entering - 1 :]:
                    self._remove_checkpoints(name)
                left = [AS_CHOSEN, *others[: entering - 1]]
            for name in left:
                if len(self.candidates[name].scores) == number:
                    logger.info("Search, round %d of %d: %s.", number + 1, len(rounds), name)
                    self._try(name, share * minutes, longest, recipe_of, train)
        for name in left:
            self._remove_checkpoints(name)
        last = {name: self.candidates[name].score_after(len(rounds)) for name in left}
        best = max(last, key=last.get)  # the original choices win ties
        scored = [name for name, each in self.candidates.items() if each.scores[0] is not None]
        if scored:
            logs = {name: RunFolder(self._place(name)).log_records() for name in scored}
            plot_runs(logs, self.folder.search / "search.png")
        before = self.candidates[AS_CHOSEN].failure or f"{abs(last[AS_CHOSEN]):.2f}"
        told = f"tried: {abs(last[best]):.2f} on validation, and {before} as chosen at first"
        return with_changes(self.choices, self.candidates[best].changes, told)

    def report(self) -> list[str]:
        """A line for each candidate: its changes, and its score after each of its rounds."""
        lines = []
        for name, each in self.candidates.items():
            changes = ", ".join(f"{field} {json.dumps(value)}" for field, value in each.changes.items())
            failure = each.failure or _NOT_SCORED  # in a round before the last one
            scores = ", ".join(failure if score is None else f"{abs(score):.2f}" for score in each.scores)
            lines.append(f"{name}{f' ({changes})' if changes else ''}: {scores}")
        return lines

    def _place(self, name: str) -> Path:
        return self.folder.search / name.replace(" ", "_")

    def _try(self, name: str, minutes: float, longest: float, recipe_of: Callable, train: Callable) -> None:
        """Trains a candidate until it has had this many minutes; in the last round it will have had `longest`."""
        candidate = self.candidates[name]
        whole = next(each.value for each in self.choices if each.field == "training.max_minutes")
        is_averaged = not any(each.field == "training.average_last" and each.value == 0 for each in self.choices)
        changes = candidate.changes | {
            "training.max_minutes": minutes,
            "training.cooldown_steps": 0,  # the next round resumes here
            "training.average_last": int(is_averaged),
            "training.early_stopping_patience": None,
        }
        place = self._place(name)
        try:
            recipe = _hurried(recipe_of(changes, place.with_suffix(".yaml")), longest / whole)
            asked = recipe.training.get("metric_for_best_model", "bleu") or "loss"
            metric, higher_is_better = chosen_by(asked, recipe.training.get("predict_with_generate", True))
            sign = 1 if higher_is_better else -1
            train(recipe, place, resume=True, finish=False)
            found = [record.get(f"eval_{metric}") for record in RunFolder(place).log_records()]
            score = max((sign * value for value in found if value is not None), default=None)
            candidate.failure = _NOT_SCORED if score is None else ""
        except (FloatingPointError, ValueError) as error:
            # A text may be too small for a vocabulary, or its pairs too long for a batch. The original ones must work.
            if name == AS_CHOSEN and isinstance(error, ValueError):
                raise
            logger.warning("%s: %s", name, error)
            score = None
            candidate.failure = "not finite" if isinstance(error, FloatingPointError) else f"impossible ({error})"
        candidate.scores.append(score)
        self._save()
        logger.info("%s: %s after %.3g minutes.", name, candidate.failure or f"{metric} {abs(score):.2f}", minutes)

    def _remove_checkpoints(self, name: str) -> None:
        shutil.rmtree(RunFolder(self._place(name)).checkpoints, ignore_errors=True)

    def _save(self) -> None:
        record = {"asked": self.asked, "choices": list(map(asdict, self.choices))}
        write_json(self.file, record | {"candidates": {name: asdict(each) for name, each in self.candidates.items()}})


def _hurried(recipe: Recipe, share: float) -> Recipe:
    """The recipe for this share of the time: a shorter warm-up, and a rate that rises as high as in the whole time."""
    training = dict(recipe.training)
    warmup, factor = training["warmup_steps"], training.get("noam_factor")
    training["warmup_steps"] = min(warmup, max(50, round(warmup * share)))
    if warmup and factor is not None:
        training["noam_factor"] = factor * math.sqrt(training["warmup_steps"] / warmup)
    return replace(recipe, training=training)
