"""Worker processes do what they are given, and neither hang nor stay when something is killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from vanilla_transformer.worker_processes import worker_processes


# Workers evaluate Python expressions here: a function that every start method can hand on.
STAY = """
import sys
from vanilla_transformer.worker_processes import worker_processes
with worker_processes(eval, 2, start_method=sys.argv[1]) as submit:
    first, second = (submit("__import__('os').getpid()") for _ in range(2))
    print(first.result(), second.result(), flush=True)
    for busy in [submit("__import__('time').sleep(1000)") for _ in range(2)]:
        busy.result()
"""


def wait_until_gone(pids) -> None:
    for _ in range(300):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.05)
    pytest.fail(f"of the processes {pids} some are still there")


@pytest.mark.parametrize("start_method", multiprocessing.get_all_start_methods())
def test_results_come_from_other_processes(start_method):
    with worker_processes(eval, 3, start_method=start_method) as submit:
        powers = [submit(f"2**{n}") for n in range(50)]
        assert [power.result() for power in powers] == [2**n for n in range(50)]
        assert submit("__import__('os').getpid()").result() != os.getpid()


def test_an_error_is_the_callers_and_says_where_it_was():
    with worker_processes(eval, 1) as submit:
        with pytest.raises(ZeroDivisionError) as caught:
            submit("1 / 0").result()
        assert "In a worker process" in str(caught.value.__cause__)
        assert "line 1" in str(caught.value.__cause__)
        assert submit("1 + 1").result() == 2


def half_a_result(size):
    """Ends this process when it has sent half of its result."""

    def send_half(self, data):
        os.write(self.fileno(), data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = send_half
    return bytes(size)


@pytest.mark.parametrize("size", [10, 10**5, 10**7])
@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_is_killed_while_it_writes_keeps_nobody_waiting(size, workers):
    with worker_processes(half_a_result, workers, start_method="fork") as submit:
        futures = [submit(size) for _ in range(3)]
        with pytest.raises(ChildProcessError, match="has died, perhaps for lack of memory"):
            futures[0].result(timeout=60)
    assert not multiprocessing.active_children()


def test_leaving_ends_what_is_being_done():
    started = time.monotonic()
    with worker_processes(time.sleep, 2) as submit:
        futures = [submit(1000) for _ in range(5)]
    assert all(future.cancelled() or future.exception() for future in futures)
    assert time.monotonic() - started < 60
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("start_method", multiprocessing.get_all_start_methods())
def test_none_outlives_its_parent(start_method):
    parent = subprocess.Popen([sys.executable, "-c", STAY, start_method], stdout=subprocess.PIPE, text=True)
    pids = parent.stdout.readline().split()
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pids)
