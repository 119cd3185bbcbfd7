"""bfloat16 is trained in only where torch has a fast way to it, and a run stays in what it was begun in."""

import time

import pytest
import torch

from vanilla_transformer.training.precision import has_bfloat16, with_usable_precision


ASKED = {"bf16": True, "max_steps": 3}
WITHOUT = {"bf16": False, "max_steps": 3}


def seconds_of_a_product(dtype):
    matrix, taken = torch.ones(256, 256, dtype=dtype), []
    for _ in range(8):
        start = time.perf_counter()
        matrix @ matrix
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_processors_are_told_apart_as_a_trial_tells_them():
    slowdown = seconds_of_a_product(torch.bfloat16) / seconds_of_a_product(torch.float32)
    assert slowdown < 8 if has_bfloat16(use_cpu=True) else slowdown > 2  # natively below 1, otherwise about 50


@pytest.mark.parametrize(
    ("has", "begun_in", "expected", "said"),
    [
        (True, None, ASKED, ""),
        (False, None, WITHOUT, "training.bf16 is left out: torch has no fast way to it on this device."),
        (True, "bf16", ASKED, ""),
        (True, "float32", WITHOUT, "training.bf16 is left out: the run was begun in float32."),
        (False, "float32", WITHOUT, "training.bf16 is left out: the run was begun in float32."),
        (
            False,
            "bf16",
            WITHOUT,
            "left out, although the run was begun in it: torch has no fast way to it on this device.",
        ),
    ],
)
def test_what_is_left_out(has, begun_in, expected, said, caplog):
    caplog.set_level("INFO")
    assert with_usable_precision(ASKED, has_bfloat16=has, begun_in=begun_in) == expected
    assert ASKED["bf16"], "the recipe stays as it was written"
    assert len(caplog.messages) == bool(said)
    assert not said or caplog.messages[0].endswith(said)


@pytest.mark.parametrize("training", [{}, {"bf16": False}, {"fp16": True}, {"fp16": True, "bf16": True}])
@pytest.mark.parametrize("has", [True, False])
def test_other_precisions_are_left_alone(training, has, caplog):
    assert with_usable_precision(training, has_bfloat16=has) == training
    assert not caplog.messages
