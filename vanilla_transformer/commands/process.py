"""What the command line does to its process, which a library may not."""

import ctypes
import logging
import os
import select
import sys


class UsageError(ValueError):
    """Arguments that make no sense together: the process ends with status 2, as for an unknown one."""


def use_memory_well() -> None:
    """Lets glibc keep freed memory: by default large tensors go back to the system and are faulted in at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)


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
