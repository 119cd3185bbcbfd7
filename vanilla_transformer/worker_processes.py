"""Work for other processes. None of them outlives this one, and none dies unnoticed."""

import atexit
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TypeVar

from .signals import cleared_up, held_back, leave_signals_to_parent


Item = TypeVar("Item")


@contextmanager
def worker_processes(
    work: Callable, workers: int, *, begin: Callable[[], None] | None = None, start_method: str | None = None
) -> Iterator[Callable[..., Future]]:
    """Gives a function from an item to the future of `work(item)`, computed by one of the worker processes.

    All processes start at once, so that any forks happen before this process has threads that hold locks. Leaving the
    context ends them, whatever they are doing.

    Unlike those of `ProcessPoolExecutor`, they share no pipe. In one, a process killed while it writes would leave half
    a result, and everybody would wait for the other half for ever.

    Args:
        work: The work. Forked processes have it as it is, others a pickled copy.
        workers: Number of processes.
        begin: Called once in each of them, before any work.
        start_method: As in `multiprocessing`; None: the system's default.

    Raises:
        ChildProcessError: Raised by a future whose process has died.
    """
    context, idle = get_context(start_method), SimpleQueue()
    processes, connections = [], []

    def kill() -> None:
        for process in processes:
            if process.pid is not None:  # it has started
                process.kill()
                process.join()

    # At the interpreter's end `multiprocessing` sends SIGTERM to remaining workers, and waits; these ignore it once.
    atexit.register(kill)
    try:
        with cleared_up(kill):
            if context.get_start_method() != "fork" and os.name == "posix":
                resource_tracker.ensure_running()  # its start would release the signals held back
            with held_back():
                for _ in range(workers):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_serve, args=(work, begin, theirs), daemon=True)
                    processes.append(process)
                    connections.append(ours)
                    process.start()
                    theirs.close()  # now only the process has it open, and the connection ends with it
                    idle.put(ours)
            with ThreadPoolExecutor(workers) as threads:
                try:
                    yield lambda item: threads.submit(_ask, idle, item)
                finally:
                    for process in processes:
                        process.kill()
                    threads.shutdown(wait=True, cancel_futures=True)
    finally:
        atexit.unregister(kill)
        for connection in connections:
            connection.close()


def end_with_parent() -> None:
    """Ends this process when its parent ends, for whatever reason, and whatever this one is doing."""

    def wait() -> None:
        parent_process().join()  # the system's signal for this would not do: with a fork server it has another parent
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def in_order(items: Iterable[Item], submit: Callable[[Item], Future], most: int) -> Iterator[tuple[Item, object]]:
    """Every item with its result, in order; at most `most` are under way at a time.

    Raises:
        ChildProcessError: A worker has died. The message says that the command can be resumed.
    """
    waiting: deque[tuple[Item, Future]] = deque()
    try:
        for item in items:
            waiting.append((item, submit(item)))
            if len(waiting) == most:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()
    except ChildProcessError as error:
        raise ChildProcessError(f"{error} Run the same command again: it continues from what is finished.") from error


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ask(idle: "SimpleQueue[Connection]", item):
    connection = idle.get()
    try:
        connection.send(item)
        result, error, place = connection.recv()
    except (EOFError, OSError) as lost:
        raise ChildProcessError("A worker process has died, perhaps for lack of memory: use fewer workers.") from lost
    finally:
        idle.put(connection)
    if error is not None:
        raise error from RuntimeError(f"In a worker process:\n{place}")
    return result


def _serve(work: Callable, begin: Callable[[], None] | None, connection: Connection) -> None:
    leave_signals_to_parent()
    end_with_parent()
    if begin is not None:
        begin()
    while True:
        try:
            item = connection.recv()
        except (EOFError, OSError):  # the parent has ended
            return
        try:
            answer = work(item), None, None
        except Exception as error:
            answer = None, error, traceback.format_exc()
        connection.send(answer)
