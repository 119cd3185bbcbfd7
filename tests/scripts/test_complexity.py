"""Tables 1 and 2: the operations counted, and the conclusions drawn from measurements."""

import json
import math

import complexity
import pytest
import torch

from vanilla_transformer import VanillaTransformerConfig


def test_counted_operations_grow_as_table_1_says():
    """Constants included: four projections and two products; four gates of two matrices; a width of 3."""
    n, d = 40, 128
    assert complexity.counted("self-attention", n, d) == 8 * n * d * d + 4 * n * n * d
    assert complexity.counted("recurrence", n, d) == 16 * n * d * d
    assert complexity.counted("convolution", n, d) == 2 * 3 * n * d * d
    assert complexity.counted("separable convolution", n, d) == 2 * 3 * n * d + 2 * n * d * d


@pytest.mark.parametrize("d", [64, 128])
def test_attention_is_cheaper_than_recurrence_for_short_sequences(d):
    """By the paper's leading terms up to n = d, with the constants of a layer and an LSTM up to n = 2d."""
    rows = complexity.measure([4, 8], [d], vectors=8, rounds=1)
    [found] = [found for found in complexity.crossings(rows) if found["other"] == "recurrence"]
    assert found["paper"] == pytest.approx(d)
    assert found["counted"] == pytest.approx(2 * d)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_layers_keep_the_shape_of_their_input(implementation):
    for name in complexity.TABLE_1:
        assert complexity.build(name, 128, implementation)(torch.randn(2, 5, 128)).shape == (2, 5, 128)


def test_crossing_finds_the_last_intersection():
    lengths = [1, 2, 4, 8]
    assert complexity.crossing(lengths, [1, 2, 4, 8], [2, 2, 2, 2]) == pytest.approx(2)
    assert complexity.crossing(lengths, [1, 2, 4, 8], [2**1.5] * 4) == pytest.approx(2**1.5)
    assert complexity.crossing(lengths, [3, 1, 4, 8], [2, 2, 2, 2]) == pytest.approx(2**1.5)  # the last one counts
    assert complexity.crossing(lengths, [3, 3, 3, 3], [2, 2, 2, 2]) == 0
    assert complexity.crossing(lengths, [1, 1, 1, 1], [2, 2, 2, 2]) == math.inf


def test_training_operations_match_hand_count():
    """Two per matrix parameter and token, plus the products of attention, and twice that again for the gradients."""
    config = VanillaTransformerConfig(attn_implementation="eager")
    tokens, length, d = 25_000, 25, 512
    attention, feed_forward = 4 * d * d, 2 * d * 2048
    matrices = 6 * (3 * attention + 2 * feed_forward) + d * config.vocab_size
    products = 6 * 3 * 2 * length * d
    assert complexity.training_operations(config, tokens, length) == 3 * 2 * tokens * (matrices + products)


def test_papers_estimate_equals_hours_times_gpus():
    for row in complexity.training_rows(lengths=(25,)):
        assert row["hours x 8 x 9.5e12"] == pytest.approx(row["paper"], rel=0.01)
        assert 0.2 < row["operations"] / row["paper"] < 0.5


def test_script_prints_table_and_writes_picture_and_json(tmp_path, printed_by):
    options = f"--lengths 4,8 --widths 64 --vectors 8 --rounds 1 --picture {tmp_path}/p.png --json {tmp_path}/j.json"
    assert "| 64 | recurrence | n < 64 | n < 128 |" in printed_by(complexity, *options.split())
    record = json.loads((tmp_path / "j.json").read_text())
    assert len(record["table_1"]) == 8
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
