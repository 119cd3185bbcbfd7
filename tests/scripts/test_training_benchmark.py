"""The training benchmark: contestants start level on the same batches, and one that dies is named."""

import math
import os
import signal

import pytest
import torch

from .conftest import figures_of, load_script


training_benchmark = load_script("benchmarks/training")
ROWS = [{"input_ids": [5 + n, 9, 7, 2], "labels": [8, 6 + n, 2]} for n in range(20)]


@pytest.mark.parametrize("name", ["ours", "MarianMTModel eager", "MarianMTModel sdpa", "torch.nn.Transformer"])
def test_untrained_contestants_start_at_uniform_loss(name):
    """An untrained model finds all V pieces about equally likely; the variance of its random scores adds a little."""
    task = training_benchmark.Task("tiny", False, ROWS, 4_096, "cpu")
    torch.manual_seed(0)
    _, step = training_benchmark.MODELS[name](task)
    [batch] = task.batches(0)
    assert step(batch).item() == pytest.approx(math.log(10_000), abs=1)


def dies(connection):
    connection.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def test_dead_contestant_is_named_in_the_error():
    with (
        pytest.raises(SystemExit, match=r"ours ended with status -9\. .* --fresh, or fewer --max-tokens"),
        training_benchmark.started("ours", dies) as turn,
    ):
        turn()


def test_sample_mixes_short_and_long_batches():
    rows = [{"input_ids": [2] * length, "labels": [2] * length} for length in range(1, 101)]
    lengths = [len(row["labels"]) for row in training_benchmark.sample_of(rows, 200, 3)]
    assert min(lengths) < 40
    assert max(lengths) > 80
    assert sum(lengths) <= 3 * 200


def test_rows_default_to_the_phrasebook():
    rows = training_benchmark.real_rows(None, None, 10_000)
    assert len(rows) == 30_000
    assert max(max(row["labels"]) for row in rows) > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_script_reports_every_contestant(fresh, tmp_path):
    options = ["--shapes", "tiny", "--dtypes", "float32", "--models", "ours", "torch.nn.Transformer", "--rounds", "1"]
    options += ["--max-tokens", "256", "--batches", "1", *["--fresh"] * fresh]
    rows = figures_of("benchmarks/training", tmp_path, *options)[0]["rows"]
    assert [row["contestant"] for row in rows] == [
        "ours, through Trainer, tuned", "ours, tuned", "torch.nn.Transformer, stock", "torch.nn.Transformer, tuned"
    ]  # fmt: skip
    for row in rows:
        assert row["target_tokens_per_second"] > 0
        assert 0 < row["share_of_ceiling"] < 1.5
        assert row["peak_megabytes"] > 200
    assert rows[2]["beside_fastest_stock_peer"] == 1
    assert rows[3]["beside_fastest_tuned_peer"] == 1
