"""Curves of one run and of several."""

import math

import pytest

from vanilla_transformer.plots import plot_learning_curve, plot_runs

from .conftest import LOG, assert_is_a_picture


class TestLearningCurve:
    def test_draws_losses_bleu_and_minutes(self, path, panels):
        plot_learning_curve(LOG, path)
        assert_is_a_picture(path)
        losses, bleu, minutes = panels
        curves = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
        best = curves.pop("best validation loss: 3.900")
        assert [y for _, y in best] == [3.9, 3.9]
        assert curves == {"training loss": [[100, 6.1], [200, 4.2]], "validation loss": [[100, 5.5], [200, 3.9]]}
        assert bleu.lines[0].get_xydata().tolist() == [[100, 1.3], [200, 17.0]]
        assert minutes.lines[0].get_xydata().tolist() == [[33 / 60, 1.3], [66 / 60, 17.0]]

    def test_marks_where_updates_were_skipped(self, path, panels):
        counts = enumerate([0, 1250, 0, 4])
        log = [{"step": n, "loss": math.nan if count else 2.0, "skipped_updates": count} for n, count in counts]
        plot_learning_curve(log, path)
        curves = {line.get_label(): line.get_xdata() for line in panels[0].lines}
        assert {label: list(updates) for label, updates in curves.items()} == {
            "training loss": [0, 2],
            "skipped updates: 1,254": [1, 3],
        }
        assert [text.get_text() for text in panels[0].get_legend().get_texts()] == list(curves)

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["loss"], ["loss per target token (nats)"]),
            (["eval_loss", "elapsed_seconds"], ["loss per target token (nats)"]),
            (["eval_bleu"], ["validation BLEU"]),
            (["loss", "eval_bleu"], ["loss per target token (nats)", "validation BLEU"]),
            (["eval_bleu", "elapsed_seconds"], ["validation BLEU", "validation BLEU"]),
        ],
    )
    def test_leaves_out_what_is_missing(self, path, panels, names, expected):
        log = [{name: record[name] for name in ["step", *names] if name in record} for record in LOG]
        plot_learning_curve(log, path)
        assert_is_a_picture(path)
        assert [axes.get_ylabel() for axes in panels] == expected
        assert all(axes.get_xlabel() and axes.get_legend() for axes in panels)

    def test_one_point_and_a_bleu_of_zero(self, path):
        plot_learning_curve([{"step": 1, "eval_loss": 9.0, "eval_bleu": 0.0, "elapsed_seconds": 0.0}], path)
        assert_is_a_picture(path)

    @pytest.mark.parametrize("log", [[], [{"step": 1, "learning_rate": 0.1}], [{"loss": 3.0}]])
    def test_refuses_a_log_with_nothing_to_draw(self, path, log):
        with pytest.raises(ValueError, match=f"none of the {len(log)} log records"):
            plot_learning_curve(log, path)
        assert not path.exists()


def test_values_that_were_not_finite_leave_a_gap(tmp_path):
    log = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 2, "eval_loss": None, "eval_bleu": 1.0}]
    plot_learning_curve(log, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


class TestSeveralRuns:
    SLOWER = [
        {"step": 100, "eval_loss": 4.5, "eval_perplexity": 90.0, "elapsed_seconds": 120.0},
        {"step": 200, "eval_loss": 3.5, "eval_perplexity": 33.1, "elapsed_seconds": 240.0},
    ]

    def test_loss_perplexity_and_bleu_against_updates_and_minutes(self, path, panels):
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
        assert [text.get_text() for text in legend.get_texts()] == ["fast", "$slow", "thin: training loss"]
        labels = [axes.get_ylabel() for axes in panels[::2]]
        assert labels == ["loss per target token (nats)", "validation perplexity per token", "validation BLEU"]
        assert [axes.get_xlabel() for axes in panels[4:]] == ["updates", "training time (minutes)"]

    def test_every_run_has_its_look_in_the_legend(self, path, panels):
        """Also where long names differ at their beginning alone."""
        plot_runs({f"runs/{number}{'/long' * 20}": LOG for number in range(20)}, path)
        [legend] = panels[0].figure.legends
        drawn = list(panels[2].lines)
        handles = legend.get_lines()[: len(drawn)]
        looks = [[(line.get_color(), line.get_linestyle()) for line in lines] for lines in (drawn, handles)]
        assert looks[0] == looks[1]
        assert len(set(looks[0])) == 20

    def test_of_long_names_the_end_is_shown(self, path, panels):
        plot_runs({f"{'folder/' * 20}{name}": LOG for name in ("one", "two")}, path)
        names = [text.get_text() for text in panels[0].figure.legends[0].get_texts()]
        assert [(name[0], name[-4:], len(name)) for name in names[:2]] == [("…", "/one", 50), ("…", "/two", 50)]

    def test_a_long_legend_takes_no_room_from_the_curves(self, path, panels):
        plot_runs({str(number): LOG for number in range(40)}, path)
        assert panels[0].get_position().height * panels[0].figure.get_figheight() > 1.5

    def test_what_no_log_has_is_left_out(self, path, panels):
        plot_runs({"one": [{"step": 1, "loss": 3.0}]}, path)
        assert_is_a_picture(path)
        assert panels[0].lines[1].get_marker() == "."  # one point is no line
        assert [axes.get_ylabel() for axes in panels] == ["loss per target token (nats)"]
        assert [text.get_text() for text in panels[0].figure.legends[0].get_texts()] == ["one", "thin: training loss"]

    @pytest.mark.parametrize("runs", [{}, {"empty": []}, {"full": LOG, "empty": [{"step": 1}]}])
    def test_refuses_runs_with_nothing_to_draw(self, path, runs):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot_runs(runs, path)
        assert not path.exists()
