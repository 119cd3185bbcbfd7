"""The reliability diagram and the risk-coverage curve."""

import numpy as np
import pytest

from vanilla_transformer.plots import plot_confidence

from .conftest import assert_is_a_picture


def test_panels_show_reliability_and_risk(path, panels):
    confidences = np.linspace(0.05, 0.95, 40)
    good = np.arange(40) % 3 > 0
    plot_confidence(confidences, good, path, good_means="chrF of 50 or more")
    assert_is_a_picture(path)
    reliability, risk = panels
    [points] = [line for line in reliability.lines if line.get_label().startswith("this one")]
    assert points.get_ydata() == pytest.approx([good[i : i + 4].mean() for i in range(0, 40, 4)])
    assert points.get_xdata() == pytest.approx([confidences[i : i + 4].mean() for i in range(0, 40, 4)])
    curve, best, level = risk.lines
    assert curve.get_ydata()[0] == pytest.approx(100 * (not good[-1]))
    assert (
        curve.get_ydata()[-1] == best.get_ydata()[-1] == level.get_ydata()[0] == pytest.approx(100 * (1 - good.mean()))
    )
    assert (best.get_ydata() <= curve.get_ydata() + 1e-9).all()


def test_empty_input_raises(path):
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_confidence([], [], path)
