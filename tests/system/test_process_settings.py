"""What the command line does to its process makes nothing less exact, and can be left out."""

import subprocess
import sys

import pytest
import torch

from .conftest import command


CODE = """
import torch
from vanilla_transformer.commands.process import prepare_for_training

torch.manual_seed(0)
left, right = torch.randn(300, 700), torch.randn(700, 500)
exact = left.double() @ right.double()
print(repr(prepare_for_training()))
print(float(((left @ right) - exact).norm() / exact.norm()))
print(torch.get_float32_matmul_precision())
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the settings are for processors")
def test_products_stay_exact():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True)
    message, error, precision = done.stdout.splitlines()
    assert float(error) < 2e-6
    assert ("oneDNN" in message) == (precision == "medium")
    if sys.platform == "linux":
        assert "freed memory is kept" in message
        assert "--plain-process" in message


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there may be nothing to set")
def test_training_says_what_it_sets_unless_it_is_told_not_to(tmp_path):
    said = command("train", tmp_path / "no.yaml").stderr
    assert said.startswith("This process: freed memory is kept")
    assert "no.yaml" in said
    assert "This process" not in command("train", tmp_path / "no.yaml", "--plain-process").stderr
