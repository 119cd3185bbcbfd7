"""Curves of one run and of several, schedules and positions."""

import math

import numpy as np
import pytest

from vanilla_transformer.plots import plot_learning_curve, plot_positional_encoding, plot_runs, plot_schedule

from .conftest import LOG, assert_is_a_picture


TRAINING = "training loss (under any dropout and label smoothing)"


class TestLearningCurve:
    def test_draws_losses_bleu_and_minutes(self, path, panels):
        plot_learning_curve(LOG, path)
        assert_is_a_picture(path)
        losses, bleu, minutes = panels
        curves = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
        best = curves.pop("best validation loss: 3.900")
        assert [y for _, y in best] == [3.9, 3.9]
        assert curves == {TRAINING: [[100, 6.1], [200, 4.2]], "validation loss": [[100, 5.5], [200, 3.9]]}
        assert bleu.lines[0].get_xydata().tolist() == [[100, 1.3], [200, 17.0]]
        assert minutes.lines[0].get_xydata().tolist() == [[33 / 60, 1.3], [66 / 60, 17.0]]

    def test_marks_skipped_updates(self, path, panels):
        counts = enumerate([0, 1250, 0, 4])
        log = [{"step": n, "loss": math.nan if count else 2.0, "skipped_updates": count} for n, count in counts]
        plot_learning_curve(log, path)
        curves = {line.get_label(): line.get_xdata() for line in panels[0].lines}
        assert {label: list(updates) for label, updates in curves.items()} == {
            TRAINING: [0, 2],
            "skipped updates: 1,254": [1, 3],
        }
        assert [text.get_text() for text in panels[0].get_legend().get_texts()] == list(curves)

    def test_leaves_out_missing_curves(self, path, panels):
        loss, bleu = "loss per target token (nats)", "validation BLEU"
        for names, expected in (
            (["loss"], [loss]),
            (["eval_loss", "elapsed_seconds"], [loss]),
            (["eval_bleu"], [bleu]),
            (["loss", "eval_bleu"], [loss, bleu]),
            (["eval_bleu", "elapsed_seconds"], [bleu, bleu]),
        ):
            panels.clear()
            log = [{name: record[name] for name in ["step", *names] if name in record} for record in LOG]
            plot_learning_curve(log, path)
            assert_is_a_picture(path)
            assert [axes.get_ylabel() for axes in panels] == expected
            assert all(axes.get_xlabel() and axes.get_legend() for axes in panels)

    def test_draws_single_points_zero_bleu_and_missing_values(self, path):
        plot_learning_curve([{"step": 1, "eval_loss": 9.0, "eval_bleu": 0.0, "elapsed_seconds": 0.0}], path)
        assert_is_a_picture(path)
        log = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 2, "eval_loss": None, "eval_bleu": 1.0}]
        plot_learning_curve(log, path)
        assert_is_a_picture(path)


def test_empty_or_misshapen_input_raises(path):
    for log in ([], [{"step": 1, "learning_rate": 0.1}], [{"loss": 3.0}]):
        with pytest.raises(ValueError, match=f"none of the {len(log)} log records"):
            plot_learning_curve(log, path)
    for runs in ({}, {"empty": []}, {"full": LOG, "empty": [{"step": 1}]}):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot_runs(runs, path)
    for schedules in ({}, {"empty": []}, {"full": [0.1], "empty": []}):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot_schedule(schedules, path)
    for shape in ((8,), (1, 5, 8), (0, 8)):
        with pytest.raises(ValueError, match=r"\(positions, d_model\)"):
            plot_positional_encoding(np.zeros(shape), path)
    assert not path.exists()


class TestSeveralRuns:
    THIN = "thin: training loss\n(under any dropout and label smoothing)"
    SLOWER = [
        {"step": 100, "eval_loss": 4.5, "eval_perplexity": 90.0, "elapsed_seconds": 120.0},
        {"step": 200, "eval_loss": 3.5, "eval_perplexity": 33.1, "elapsed_seconds": 240.0},
    ]

    def test_draws_metrics_against_updates_and_minutes(self, path, panels):
        plot_runs({"fast": LOG, "$slow": self.SLOWER}, path)
        assert_is_a_picture(path)
        drawn = [[line.get_xydata().tolist() for line in axes.lines] for axes in panels]
        fast, thin, slow, _ = drawn[0]
        assert fast == [[100, 5.5], [200, 3.9]]
        assert [100, 6.1] in thin  # training
        assert slow == [[100, 4.5], [200, 3.5]]
        assert drawn[1][2] == [[2, 4.5], [4, 3.5]]
        assert drawn[3][0] == [[33 / 60, 244.7], [66 / 60, 49.4]]
        assert drawn[4] == [[[100, 1.3], [200, 17.0]], []]
        [legend] = panels[0].figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["fast", "$slow", self.THIN]
        labels = [axes.get_ylabel() for axes in panels[::2]]
        assert labels == ["loss per target token (nats)", "validation perplexity per token", "validation BLEU"]
        assert [axes.get_xlabel() for axes in panels[4:]] == ["updates", "training time (minutes)"]

    def test_legend_shows_a_distinct_style_per_run(self, path, panels):
        """Even if long names differ only at the beginning."""
        plot_runs({f"runs/{number}{'/long' * 20}": LOG for number in range(20)}, path)
        [legend] = panels[0].figure.legends
        drawn = list(panels[2].lines)
        handles = legend.get_lines()[: len(drawn)]
        looks = [[(line.get_color(), line.get_linestyle()) for line in lines] for lines in (drawn, handles)]
        assert looks[0] == looks[1]
        assert len(set(looks[0])) == 20
        shown = legend.get_texts()[7].get_text()  # the end of a long name
        assert (shown[0], shown[-5:], len(shown)) == ("…", "/long", 50)

    def test_long_legend_leaves_room_for_the_curves(self, path, panels):
        plot_runs({str(number): LOG for number in range(40)}, path)
        assert panels[0].get_position().height * panels[0].figure.get_figheight() > 1.5

    def test_leaves_out_metrics_that_no_log_has(self, path, panels):
        plot_runs({"one": [{"step": 1, "loss": 3.0}]}, path)
        assert_is_a_picture(path)
        assert panels[0].lines[1].get_marker() == "."  # a single point is drawn as a dot
        assert [axes.get_ylabel() for axes in panels] == ["loss per target token (nats)"]
        assert [text.get_text() for text in panels[0].figure.legends[0].get_texts()] == ["one", self.THIN]


def test_each_schedule_is_drawn_from_update_1(path, panels):
    noam = [512**-0.5 * min(step**-0.5, step * 40**-1.5) for step in range(1, 201)]
    plot_schedule({"warmup=40, $d_{model}": noam, "constant": [1e-3]}, path)
    assert_is_a_picture(path)
    [axes] = panels
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["warmup=40, $d_{model}", "constant"]
    assert axes.lines[0].get_xdata()[np.argmax(axes.lines[0].get_ydata())] == 40


def test_colour_scale_of_positions_is_centred_on_zero(path, panels):
    table = np.array([[math.sin(position / 100**dimension) for dimension in range(8)] for position in range(50)])
    plot_positional_encoding(2 * table, path)
    assert_is_a_picture(path)
    lowest, highest = panels[0].images[0].get_clim()
    assert -lowest == highest == np.abs(2 * table).max()
    plot_positional_encoding(np.zeros((2, 4)), path)
    assert_is_a_picture(path)
