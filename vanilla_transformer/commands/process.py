"""What the command line does to its process, which a library may not."""

import ctypes
import logging
import os
import select
import sys


class UsageError(ValueError):
    """Arguments that make no sense together: the process ends with status 2, as for an unknown one."""


def use_memory_well() -> bool:
    """Lets glibc keep freed memory: by default large tensors go back to the system and are faulted in at every step.

    Returns:
        Whether it does: elsewhere than on Linux it is not asked.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(trim_threshold, 2**30) and mallopt(mmap_threshold, 2**30))


def prepare_for_training() -> str:
    """Makes the settings that training is faster with, which a user would have to know.

    Returns:
        What was done, in a sentence.
    """
    done = ["freed memory is kept"] * use_memory_well()
    done += ["float32 matrix products are oneDNN's, which a trial found to be exact to float32"] * use_fast_products()
    return f"This process: {'; '.join(done)}. --plain-process leaves that out." if done else ""


def use_fast_products() -> bool:
    """Sends float32 matrix products to oneDNN, where there is no GPU and it is as exact as what torch takes by itself.

    torch takes MKL, which is slow on processors that are not Intel's. The only switch allows products to be computed in
    bfloat16, which processors with AMX then do; others round nothing. So one is tried.

    Returns:
        Whether they go to oneDNN now.
    """
    import torch

    if torch.cuda.is_available() or not torch.backends.mkldnn.is_available():
        return False
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    error = ((left @ right).double() - exact).norm() / exact.norm()
    if error > 2e-6:  # in float32 it is 4e-7, in bfloat16 3e-3
        torch.set_float32_matmul_precision(before)
        return False
    return True


def configure_logging() -> None:
    """Our messages on standard error; of transformers' only errors, and none of its bars for every file it touches."""
    from transformers.utils import logging as transformers_logging

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("vanilla_transformer").setLevel(logging.INFO if is_first_process() else logging.WARNING)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def output_is_closed() -> bool:
    """Whether nobody reads standard output any more. Not every broken pipe is that: connections are pipes too."""
    if not hasattr(select, "poll"):  # on Windows
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def discard_output() -> None:
    """Lets what is still to be written to standard output go nowhere, at the interpreter's end too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_first_process() -> bool:
    """Whether this is the process that speaks, of those that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"
