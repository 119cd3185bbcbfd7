"""How far a model's confidence can be trusted: the reliability diagram and the risk-coverage curve."""

import os
from collections.abc import Sequence

import numpy as np

from ..evaluation.confidence import bins_by_chance, calibration_error, reliability, risk_coverage
from .figures import COLORS, add_legend, finish_axes, new_figure, save


def plot_confidence(
    confidences: Sequence[float],
    good: Sequence[bool],
    path: str | os.PathLike,
    *,
    good_means: str = "good",
    title: str = "Confidence",
) -> None:
    """Draws how often translations are good, by how sure the model was, and how many bad ones remain among the surest.

    Left, the reliability diagram: bins of equal mass, with the range that 95 % of perfect calibrations show on so few
    sentences. Right, the risk-coverage curve, between those of a perfect order and of no order.

    Args:
        confidences: From 0 to 1, one for each translation.
        good: Whether each is good.
        good_means: What good means, for the labels.
    """
    if not len(confidences):
        raise ValueError("nothing to draw: there are no translations")
    figure = new_figure(width=11, height=5, title=title)
    left, right = figure.subplots(1, 2)
    _draw_reliability(left, confidences, good, good_means)
    _draw_risk(right, confidences, good, good_means)
    save(figure, path)


def _draw_reliability(axes, confidences: Sequence[float], good: Sequence[bool], good_means: str) -> None:
    bins = reliability(confidences, good)
    centres, shares = [each.confidence for each in bins], [each.good for each in bins]
    by_chance, (low, high) = bins_by_chance(confidences)
    axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1, label="perfect")
    label = "95 % of perfect calibrations"
    axes.vlines(centres, low, high, color="0.75", linewidth=5, label=label)
    label = f"this one: error {calibration_error(bins):.3f}, by chance {by_chance:.3f}"
    axes.plot(centres, shares, "o-", color=COLORS[0], markersize=5, label=label)
    where = axes.get_xaxis_transform()
    axes.plot(confidences, [0.01] * len(confidences), "|", color="black", alpha=0.25, transform=where)
    axes.set(xlabel="confidence", ylabel=f"share of translations with {good_means}", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Reliability: {len(bins)} bins of about {bins[0].sentences} sentences", fontsize=11)
    finish_axes(axes, whole_numbers=False)
    add_legend(axes, "upper left")


def _draw_risk(axes, confidences: Sequence[float], good: Sequence[bool], good_means: str) -> None:
    coverage, risks = risk_coverage(confidences, good)
    _, best = risk_coverage(np.asarray(good, dtype=float), good)
    axes.plot(100 * coverage, 100 * risks, color=COLORS[0], linewidth=1.8, label="most confident first")
    axes.plot(100 * coverage, 100 * best, color=COLORS[2], linestyle="-.", label="if it knew")
    axes.axhline(100 * risks[-1], color="0.5", linestyle="--", linewidth=1, label="in no order")
    axes.set(xlabel="coverage: share of translations that are kept (%)", xlim=(0, 100), ylim=(0, None))
    axes.set_ylabel(f"risk: share of these without {good_means} (%)")
    axes.set_title("Risk and coverage", fontsize=11)
    finish_axes(axes, whole_numbers=True)
    add_legend(axes, "best")
