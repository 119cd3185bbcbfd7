"""Batches side by side in processes that share the weights."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_all_start_methods

import torch

from ..worker_processes import worker_processes


@contextmanager
def map_with_workers(function: Callable, workers: int, device: torch.device) -> Iterator[Callable]:
    """Gives a `map` that calls `function` here, or in processes that share their memory with this one.

    Args:
        function: What alone the `map` will be given; it holds the model.
        workers: Number of processes; 1 is this one.
        device: Where the model is.

    Raises:
        ValueError: Workers are asked for where there can be none.
        ChildProcessError: A worker died, while the batches are iterated over.
    """
    if workers == 1:
        yield map
        return
    if workers < 1:
        raise ValueError(f"There must be at least 1 worker, not {workers}.")
    if device.type != "cpu" or "fork" not in get_all_start_methods():
        raise ValueError("Several workers are for a CPU, on a system where processes fork (Linux, macOS).")
    # A forked process has the weights without copying them: nobody writes to their pages. All of them fork now, before
    # a thread reads standard input, whose lock they would inherit.
    with worker_processes(function, workers, begin=_one_thread, start_method="fork") as submit:
        yield lambda _, batches: (done.result() for done in [submit(batch) for batch in batches])


def _one_thread() -> None:
    torch.set_num_threads(1)  # more would compete with the other workers, and a fork has none of its parent's threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
