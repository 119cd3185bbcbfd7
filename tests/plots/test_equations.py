"""Schedules and positions."""

import math

import numpy as np
import pytest

from vanilla_transformer.plots import plot_positional_encoding, plot_schedule

from .conftest import assert_is_a_picture


class TestSchedule:
    def test_draws_each_schedule_from_update_1(self, path, panels):
        noam = [512**-0.5 * min(step**-0.5, step * 40**-1.5) for step in range(1, 201)]
        plot_schedule({"warmup=40, $d_{model}": noam, "constant": [1e-3]}, path)
        assert_is_a_picture(path)
        [axes] = panels
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["warmup=40, $d_{model}", "constant"]
        assert axes.lines[0].get_xdata()[np.argmax(axes.lines[0].get_ydata())] == 40

    @pytest.mark.parametrize("schedules", [{}, {"empty": []}, {"full": [0.1], "empty": []}])
    def test_refuses_nothing(self, path, schedules):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot_schedule(schedules, path)
        assert not path.exists()


class TestPositionalEncoding:
    def test_draws_the_table_with_zero_in_the_middle_of_the_scale(self, path, panels):
        table = np.array([[math.sin(position / 100**dimension) for dimension in range(8)] for position in range(50)])
        plot_positional_encoding(2 * table, path)
        assert_is_a_picture(path)
        lowest, highest = panels[0].images[0].get_clim()
        assert -lowest == highest == np.abs(2 * table).max()

    def test_draws_a_table_of_zeros(self, path):
        plot_positional_encoding(np.zeros((2, 4)), path)
        assert_is_a_picture(path)

    @pytest.mark.parametrize("shape", [(8,), (1, 5, 8), (0, 8)])
    def test_refuses_other_shapes(self, path, shape):
        with pytest.raises(ValueError, match=r"\(positions, d_model\)"):
            plot_positional_encoding(np.zeros(shape), path)
