"""Where models run: the one place that decides it."""

import torch


DEVICES = ("auto", "cpu", "cuda", "mps")


def chosen_device(name: str | torch.device = "auto") -> torch.device:
    """The device with this name; for "auto" the best there is: a GPU of NVIDIA or AMD, one of Apple, the processor.

    Args:
        name: "auto", "cpu", "cuda" or "mps"; a device is returned as it is.

    Raises:
        ValueError: There is no such device, or not on this machine.
    """
    if isinstance(name, torch.device):
        return name
    if name not in DEVICES:
        raise ValueError(f"There is no device {name!r}: choose {', '.join(DEVICES[:-1])} or {DEVICES[-1]}.")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(each for each, is_there in there.items() if is_there))
    if not there[name]:
        found = " or ".join(["auto", *(each for each, is_there in there.items() if is_there)])
        raise ValueError(f"torch finds no device {name} on this machine: choose {found}.")
    return torch.device(name)
