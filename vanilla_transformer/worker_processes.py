"""Work for other processes, none of which outlives this one, and none of which dies unnoticed."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from queue import SimpleQueue


@contextmanager
def worker_processes(
    work: Callable, workers: int, *, begin: Callable[[], None] | None = None, start_method: str | None = None
) -> Iterator[Callable[..., Future]]:
    """Gives a function from an item to the future of `work(item)`, which one of so many processes computes.

    All processes start at once, so that those that fork do it before anybody here has threads and locks of his own.
    Leaving the context ends them, whatever they are doing.

    Unlike those of `ProcessPoolExecutor` they share no pipe: there a process that is killed while it writes a result
    leaves half of it, and everybody waits for the other half for ever.

    Args:
        work: What is to be done. Forked processes have it as it is, others a pickled copy.
        workers: Number of processes.
        begin: Called once in each of them, before any work.
        start_method: As in `multiprocessing`; None: as is usual on the system.

    Raises:
        ChildProcessError: Raised by a future: its process has died.
    """
    context, idle = get_context(start_method), SimpleQueue()
    processes, connections = [], []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, begin, theirs), daemon=True)
            process.start()
            theirs.close()  # nobody else has it open: the connection ends with the process
            processes.append(process)
            connections.append(ours)
            idle.put(ours)
        with ThreadPoolExecutor(workers) as threads:
            try:
                yield lambda item: threads.submit(_ask, idle, item)
            finally:
                for process in processes:
                    process.kill()
                threads.shutdown(wait=True, cancel_futures=True)
    finally:
        for process in processes:
            process.kill()
            process.join()
        for connection in connections:
            connection.close()


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _end_with_parent()
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


def _end_with_parent() -> None:
    """Has this process end as soon as its parent has, whatever ended it and whatever is being done here."""

    def watch():
        parent_process().join()  # no signal of the system's would do: of a fork server this process is not the child
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
