"""One place decides where models run, and every command that runs one asks it."""

import inspect

import pytest
import torch

from vanilla_transformer.command_line import COMMANDS
from vanilla_transformer.run.loading import chosen_device


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device_there_is(cuda, mps, best, monkeypatch):
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


def test_a_device_that_does_not_exist():
    with pytest.raises(ValueError, match="There is no device 'tpu': choose auto, cpu, cuda or mps"):
        chosen_device("tpu")


def test_the_commands_that_run_a_model_have_the_option():
    having = {each.__name__ for each in COMMANDS if "device" in inspect.signature(each).parameters}
    assert having == {"train", "translate", "score", "evaluate", "parse", "serve"}
