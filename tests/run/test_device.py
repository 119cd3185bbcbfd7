"""One function decides where models run, and every command that runs a model has the option."""

import inspect
import timeit

import pytest
import torch

from vanilla_transformer.command_line import COMMANDS
from vanilla_transformer.environment import has_bfloat16
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import chosen_device
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.run import usable_arguments


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_best_available_device_is_chosen(cuda, mps, best, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert chosen_device() == chosen_device("auto") == torch.device(best)
    assert chosen_device("cpu") == torch.device("cpu")
    for name, there in (("cuda", cuda), ("mps", mps)):
        if there:
            assert chosen_device(name) == torch.device(name)
        else:
            with pytest.raises(ValueError, match=f"torch finds no device {name} on this machine: choose auto"):
                chosen_device(name)
    with pytest.raises(ValueError, match="There is no device 'tpu': choose auto, cpu, cuda or mps"):
        chosen_device("tpu")


def test_every_process_needs_a_gpu_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    recipe = load_recipe("multi30k_en_de")
    assert usable_arguments(RunFolder(tmp_path), recipe, "cpu").use_cpu
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ValueError, match=r"2 processes .* only 1 GPU: .*--nproc_per_node 1.* or train on the CPU"):
        usable_arguments(RunFolder(tmp_path), recipe)


def test_commands_that_run_a_model_accept_device():
    having = {each.__name__ for each in COMMANDS if "device" in inspect.signature(each).parameters}
    assert having == {
        *(
            "clean",
            "train",
            "adapt",
            "improve",
            "translate",
            "backtranslate",
            "score",
            "evaluate",
            "calibrate",
            "parse",
        ),
        "serve",
    }


def test_bfloat16_detection_agrees_with_a_timing():
    seconds = []
    for dtype in (torch.bfloat16, torch.float32):
        matrix = torch.ones(256, 256, dtype=dtype)
        seconds.append(min(timeit.repeat(lambda matrix=matrix: matrix @ matrix, number=1, repeat=8)))
    slowdown = seconds[0] / seconds[1]
    assert slowdown < 8 if has_bfloat16(use_cpu=True) else slowdown > 2  # natively below 1, otherwise about 50
