"""What the command line does to its process and a library must not do."""

import ctypes
import logging
import os
import select
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class UsageError(ValueError):
    """Invalid arguments: the process ends with status 2, as for an unknown one."""


def check_positive(**options: int | None) -> None:
    """Raises UsageError if one of the options was given and is below 1."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {value}.")


def check_seed(seed: int | None) -> None:
    """Raises UsageError for a seed that numpy's generator, which takes the fewest, does not take."""
    if seed is not None and not 0 <= seed < 2**32:
        raise UsageError(f"--seed must be from 0 to {2**32 - 1}, not {seed}.")


def refuse(*cases: tuple[Any, str]) -> None:
    """Raises UsageError with the message of the first case that holds."""
    for holds, message in cases:
        if holds:
            raise UsageError(message)


def check_engine(
    backend: str, quantize: str | None, precision: str, device: str, precisions=("auto", "float32", "bfloat16")
) -> None:
    """Raises UsageError if these options of `load_engine` do not exist or do not go together."""
    choices = f"{', '.join(precisions[:-1])} or {precisions[-1]}"
    rounds, by_torch = precision != "float32", backend == "torch"
    refuse(
        (quantize not in (None, "int8"), f"There is no quantization {quantize!r} to translate with: choose int8."),
        (precision not in precisions, f"There is no precision {precision!r} to translate in: choose {choices}."),
        (rounds and quantize, "--quantize int8 has a precision of its own: leave out --precision."),
        (backend not in ("torch", "ctranslate2"), f"There is no backend {backend!r}: choose torch or ctranslate2."),
        (by_torch and quantize and device not in ("auto", "cpu"), "--quantize is for a CPU: leave out --device."),
        (quantize and not by_torch, "--quantize is for --backend torch: for the other, `export --quantization int8`."),
        (
            rounds and not by_torch,
            "--precision is for --backend torch: for the other, `export --quantization bfloat16`.",
        ),
    )


def use_memory_well() -> bool:
    """Lets glibc keep freed memory, and says whether it does (outside Linux it is not asked).

    By default large tensors go back to the system and are paged in at every step.

    oneDNN and torch's layer around it each keep their last 1,024 products in bfloat16, with code and memory of their
    own. Nearly every batch has new shapes: with Multi30k's they take more than a gigabyte. 64 are enough for one batch,
    in which shapes recur.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):  # read at the first product
        os.environ.setdefault(name, "64")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(trim_threshold, 2**30) and mallopt(mmap_threshold, 2**30))


def prepare_for_training(device: str = "auto") -> str:
    """Changes settings of this process to make training faster; says in a sentence what it did."""
    done = ["keeps the memory that it frees"] * use_memory_well()
    done += ["multiplies matrices by oneDNN"] * use_fast_products(device)
    return f"For speed this process {' and '.join(done)}. --plain-process turns that off." if done else ""


def use_fast_products(device: str = "auto") -> bool:
    """Sends float32 matrix products on a CPU to oneDNN, if that is as exact as torch's choice; says whether it does.

    torch takes MKL, which is slow on processors that are not Intel's. The only switch also allows bfloat16, which
    processors with AMX then use; others round nothing. So this tries one product.
    """
    import torch

    from ..run.loading import chosen_device

    if chosen_device(device).type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    error = ((left @ right).double() - exact).norm() / exact.norm()
    if error > 2e-6:  # more than float32 rounds, and far less than bfloat16 does
        torch.set_float32_matmul_precision(before)
        return False
    return True


def configure_logging() -> None:
    """Sends our messages to standard error; of transformers' only errors, and no progress bars for files."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    # The user of a command cannot change the code that these are about.
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", "Setting `save_embedding_layers`", module="peft")  # which is what is wanted
    logging.getLogger("vanilla_transformer").setLevel(logging.INFO if is_first_process() else logging.WARNING)
    # transformers reads these when it is imported. That costs seconds, and not every command needs it.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "transformers" in sys.modules:
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()


@contextmanager
def bars_of_steps(total: int | None = None) -> Iterator[Callable[..., None]]:
    """Gives a function `show(step, done, total)`, which draws a bar of pairs for each step in turn, on a terminal."""
    from tqdm import tqdm  # only now: not every command needs it

    with ExitStack() as stack:
        bars: dict[str, tqdm] = {}
        options = {"unit": " pairs", "unit_scale": True, "disable": not sys.stderr.isatty()}

        def show(step: str, done: int, total: int | None = total) -> None:
            if step not in bars:
                stack.close()
                bars[step] = stack.enter_context(tqdm(desc=step, initial=done, total=total, **options))
            bars[step].update(done - bars[step].n)

        yield show


def discards_closed_output() -> bool:
    """Discards the rest of standard output if its reader has gone; says whether it did.

    (A broken pipe can also be a lost connection.)
    """
    if hasattr(select, "poll"):  # not on Windows
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not poll.poll(0):
            return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def is_first_process() -> bool:
    """Whether this is the process that writes messages: the first of those that torchrun starts."""
    return os.environ.get("RANK", "0") == "0"
