"""Worker processes do their work, and neither hang nor stay behind when something is killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import psutil
import pytest

from vanilla_transformer.worker_processes import worker_processes


# Workers run `eval` here, a function that every start method can hand on.
STAY = """
import sys
from vanilla_transformer.worker_processes import worker_processes
with worker_processes(eval, 2, start_method=sys.argv[1]) as submit:
    first, second = (submit("__import__('os').getpid()") for _ in range(2))
    print(first.result(), second.result(), flush=True)
    for busy in [submit("__import__('time').sleep(1000)") for _ in range(2)]:
        busy.result()
"""


START_METHODS = pytest.mark.parametrize("start_method", multiprocessing.get_all_start_methods())


@START_METHODS
def test_results_come_from_other_processes(start_method):
    with worker_processes(eval, 3, start_method=start_method) as submit:
        powers = [submit(f"2**{n}") for n in range(50)]
        assert [power.result() for power in powers] == [2**n for n in range(50)]
        assert submit("__import__('os').getpid()").result() != os.getpid()


def test_worker_error_is_raised_with_its_traceback():
    with worker_processes(eval, 1) as submit:
        with pytest.raises(ZeroDivisionError) as caught:
            submit("1 / 0").result()
        assert "In a worker process" in str(caught.value.__cause__)
        assert "line 1" in str(caught.value.__cause__)
        assert submit("1 + 1").result() == 2


def half_a_result(size):
    """Kills this process once it has sent half of its result."""

    def send_half(self, data):
        os.write(self.fileno(), data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = send_half
    return bytes(size)


@pytest.mark.parametrize("size", [10, 10**5, 10**7])
def test_worker_killed_while_writing_raises(size):
    for workers in (1, 2):
        with worker_processes(half_a_result, workers, start_method="fork") as submit:
            futures = [submit(size) for _ in range(3)]
            with pytest.raises(ChildProcessError, match="has died, perhaps for lack of memory"):
                futures[0].result(timeout=60)
        assert not multiprocessing.active_children()


def test_leaving_the_context_ends_running_work():
    started = time.monotonic()
    with worker_processes(time.sleep, 2) as submit:
        futures = [submit(1000) for _ in range(5)]
    assert all(future.cancelled() or future.exception() for future in futures)
    assert time.monotonic() - started < 60
    assert not multiprocessing.active_children()


@START_METHODS
def test_workers_do_not_outlive_their_parent(start_method):
    with subprocess.Popen([sys.executable, "-c", STAY, start_method], stdout=subprocess.PIPE, text=True) as parent:
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    assert psutil.wait_procs(workers, timeout=15)[1] == []


@START_METHODS
def test_workers_leave_signals_to_the_parent(start_method):
    """From the start: they keep waiting for work and doing it although all processes are told to end."""
    code = """
import os, signal, sys
from vanilla_transformer.signals import ENDING, first_signal
from vanilla_transformer.worker_processes import worker_processes
with worker_processes(eval, 2, start_method=sys.argv[1]) as submit:
    for number in ENDING:
        with first_signal(lambda *_: None):
            os.killpg(0, number)
    print(submit("6 * 7").result(timeout=60), flush=True)
    submit("__import__('time').sleep(0.5)").result()
    print(submit("6 * 7").result(timeout=60), flush=True)
"""
    words = [sys.executable, "-c", code, start_method]
    done = subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True, timeout=100)
    assert (done.stdout, done.stderr, done.returncode) == ("42\n42\n", "", 0)


def test_process_with_open_workers_exits_cleanly():
    code = """
import os, signal
from vanilla_transformer.worker_processes import worker_processes
workers = worker_processes(eval, 2)
submit = workers.__enter__()
submit("1 + 1").result()
del submit
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stderr, done.returncode) == ("", 0)
