"""bfloat16 is trained in only where it is fast."""

import platform

import pytest
import torch

from vanilla_transformer.training.precision import bfloat16_slowdown, with_usable_precision


CAPABILITIES = torch.cpu.get_capabilities()
HAS_BFLOAT16 = CAPABILITIES.get("avx512_bf16") or CAPABILITIES.get("amx_bf16")
LACKS_BFLOAT16 = platform.machine() == "x86_64" and not CAPABILITIES.get("avx512_f")


def test_a_trial_tells_processors_with_bfloat16_from_those_without():
    slowdown = bfloat16_slowdown()
    assert 0.05 < slowdown < 1000
    if HAS_BFLOAT16:
        assert slowdown < 1
    if LACKS_BFLOAT16:
        assert slowdown > 2


def test_training_leaves_bfloat16_out_where_it_is_slow_and_says_so(caplog):
    asked = {"bf16": True, "use_cpu": True, "max_steps": 3}
    got = with_usable_precision(asked)
    if got["bf16"]:
        assert not LACKS_BFLOAT16
        assert got == asked
        assert not caplog.messages
    else:
        assert not HAS_BFLOAT16
        assert got == {**asked, "bf16": False}
        assert asked["bf16"], "the recipe stays as it was written"
        [message] = caplog.messages
        assert "training.bf16 is left out" in message
        assert "float32" in message


@pytest.mark.parametrize("training", [{}, {"bf16": False}, {"fp16": True}])
def test_other_precisions_are_left_alone(training, caplog):
    assert with_usable_precision(training) == training
    assert not caplog.messages
