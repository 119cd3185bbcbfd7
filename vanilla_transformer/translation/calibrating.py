"""Calibrates a model's confidence on sentences whose references are known, and measures it on others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .. import __version__
from ..data.context import Context
from ..evaluation.confidence import (
    bins_by_chance,
    calibration_error,
    fit_logistic,
    pearson,
    reliability,
    risk_coverage,
    spearman,
)
from ..evaluation.scores import score_segments, score_translations
from ..model.confidence_vanilla_transformer import PLAIN_SIGNALS, SIGNALS, Calibration, log_signal
from .likelihood import Likelihood
from .sentences import translate_lines


GOOD = 50.0  # chrF from which a translation counts as good
FEWEST = 10  # sentences


@dataclass(frozen=True)
class Judged:
    """A translation by the model, its likelihood, and its sentence chrF against the references."""

    text: str
    likelihood: Likelihood
    chrf: float


def judged_translations(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    contexts: Sequence[Context] | None = None,
    to: str | None = None,
    dropout_samples: int = 0,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> list[Judged]:
    """Translates sentences whose references are known. Those with a blank source are left out.

    Args:
        model, tokenizer, contexts, to, on_progress, generate_options: As for [`translate`].
        sources: Sentences.
        references: One list of references or several, each with one for every sentence.
        dropout_samples, seed: As for [`Calibration`].

    Raises:
        ValueError: Passes with dropout say nothing: there is only one, or the model was trained without dropout.
    """
    if dropout_samples < 0 or dropout_samples == 1:
        raise ValueError(f"Passes with dropout must be 0, or 2 at least, not {dropout_samples}.")
    if dropout_samples and not getattr(model.config, "dropout", 0):
        raise ValueError("The model was trained without dropout, so passes with dropout say nothing: ask for 0.")
    # Whatever its weights, a calibration asks for the likelihoods that `translate --confidence` will judge by.
    weights = dict.fromkeys(SIGNALS if dropout_samples else PLAIN_SIGNALS, 0.0)
    passes = Calibration(GOOD, 0.0, weights, dropout_samples, seed)
    options = {"contexts": contexts, "to": to, "on_progress": on_progress, **generate_options}
    found = [best for best, *_ in translate_lines(model, tokenizer, [sources], calibration=passes, **options)]
    chrf = score_segments([each.text for each in found], references, ["chrf"], target_language="und")
    return [
        Judged(each.text, each.likelihood, scores["chrf"])
        for each, scores in zip(found, chrf, strict=True)
        if each.likelihood is not None
    ]


@dataclass(frozen=True)
class Measured:
    """How well a calibration does on translations that it has not seen."""

    confidences: list[float]
    good: list[bool]
    chrf: list[float]

    @classmethod
    def of(cls, calibration: Calibration, judged: Sequence[Judged]) -> "Measured":
        """Applies a calibration to translations."""
        confidences = [calibration.confidence(each.likelihood.tokens, each.likelihood.samples) for each in judged]
        chrf = [each.chrf for each in judged]
        return cls(confidences, [each >= calibration.threshold for each in chrf], chrf)

    def summary(self) -> dict:
        """The results to report, all measured on these translations."""
        bins = reliability(self.confidences, self.good)
        _, risks = risk_coverage(self.confidences, self.good)
        return {
            "sentences": len(self.good),
            "good": float(np.mean(self.good)),
            "bins": len(bins),
            "expected_calibration_error": calibration_error(bins),
            "expected_calibration_error_by_chance": bins_by_chance(self.confidences)[0],
            "pearson": pearson(self.confidences, self.chrf),
            "spearman": spearman(self.confidences, self.chrf),
            "area_under_risk_coverage": float(risks.mean()),
        }


def fitted(
    judged: Sequence[Judged], *, threshold: float | None = GOOD, dropout_samples: int = 0, seed: int = 0
) -> Calibration:
    """Fits a calibration to translations.

    Args:
        judged: Those of [`judged_translations`].
        threshold: The sentence chrF from which a translation is good; None: their median.
        dropout_samples, seed: Those that they were judged with.

    Raises:
        ValueError: All of them are good, or none is.
    """
    names = [*SIGNALS] if dropout_samples else [*PLAIN_SIGNALS]
    chrf = np.array([each.chrf for each in judged])
    threshold = float(np.median(chrf)) if threshold is None else threshold
    signals = [[log_signal(name, each.likelihood.tokens, each.likelihood.samples) for name in names] for each in judged]
    try:
        intercept, weights = fit_logistic(np.array(signals), chrf >= threshold)
    except ValueError as error:
        raise ValueError(
            f"With a chrF of {threshold:g} as the threshold, {error}, so there is nothing to learn. Choose another "
            f"--threshold: their median is {np.median(chrf):.1f}."
        ) from error
    return Calibration(threshold, intercept, dict(zip(names, weights.tolist(), strict=True)), dropout_samples, seed)


def calibrate(
    judged: Sequence[Judged],
    *,
    threshold: float | None = GOOD,
    held_out: float = 0.5,
    dropout_samples: int = 0,
    seed: int = 0,
    weights_sha256: str = "",
    **record,
) -> tuple[Calibration, Measured]:
    """Fits a calibration to a part of the translations, drawn at random, and measures it on the rest.

    Args:
        judged, threshold, dropout_samples, seed: As for [`fitted`].
        held_out: The share that it is measured on, above 0 and below 1.
        weights_sha256: Digest of the weights of the model that made them.
        **record: More entries for the calibration's `record`.

    Raises:
        ValueError: There are too few translations, or as for [`fitted`].
    """
    if len(judged) < FEWEST:
        raise ValueError(f"{len(judged)} sentences are too few to calibrate on: give {FEWEST}, or better a thousand.")
    if not 0 < held_out < 1:
        raise ValueError(f"The share that is held out must be above 0 and below 1, not {held_out:g}.")
    order = np.random.default_rng(0).permutation(len(judged))
    count = min(max(1, round(held_out * len(judged))), len(judged) - 2)
    rest, chosen = ([judged[i] for i in part] for part in (order[:count], order[count:]))
    found = fitted(chosen, threshold=threshold, dropout_samples=dropout_samples, seed=seed)
    measured = Measured.of(found, rest)
    [score] = score_translations(["a"], ["a"], ["chrf"], target_language="und")
    record |= {
        "chrf_signature": score.signature.removeprefix("nrefs:1|"),
        "fitted_on": {"sentences": len(chosen), "good": float(np.mean([e.chrf >= found.threshold for e in chosen]))},
        "held_out": measured.summary(),
        "date": date.today().isoformat(),
        "version": __version__,
    }
    return replace(found, weights_sha256=weights_sha256, record=record), measured
