"""Batches side by side in processes that share the weights."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context

import torch


@contextmanager
def map_with_workers(function: Callable, workers: int, device: torch.device) -> Iterator[Callable]:
    """Gives a `map` that calls `function` here, or in processes that share their memory with this one.

    Args:
        function: What alone the `map` will be given; it holds the model.
        workers: Number of processes; 1 is this one.
        device: Where the model is.

    Raises:
        ValueError: Workers are asked for where there can be none.
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
    context = get_context("fork")
    all_there = context.Barrier(workers)
    with ProcessPoolExecutor(workers, context, initializer=_become_worker, initargs=(function, all_there)) as executor:
        list(executor.map(_work, [None] * workers))
        yield lambda _, batches: executor.map(_work, batches)


_of_this_worker: list[Callable] = []


def _become_worker(function: Callable, all_there) -> None:
    torch.set_num_threads(1)  # more would compete with the other workers, and a fork has none of its parent's threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":  # whatever ends the parent ends its workers
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    _of_this_worker.append(function)
    all_there.wait(timeout=60)


def _work(item):
    return None if item is None else _of_this_worker[0](item)
