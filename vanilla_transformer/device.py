"""Where models run, the one place that decides it, and what can be done there."""

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


def has_bfloat16(use_cpu: bool) -> bool:
    """Whether torch has a fast way to products in bfloat16, on x86 by AVX-512. Unknown devices are believed."""
    if use_cpu:
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)
