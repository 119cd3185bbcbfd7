"""The first SIGINT or SIGTERM is handled, a second one ends the process at once, and clean-up runs once."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from vanilla_transformer import signals


# Waits for signals and prints each action. `busy` makes one long call in which the interpreter gets no turn.
WAIT = """
import sys, time
from vanilla_transformer.signals import first_signal
with first_signal(lambda number, frame: print("first", number, flush=True)):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
        if "busy" in sys.argv:
            sum(range(10**11))
"""
FORK = """
import os, signal, sys, time
from vanilla_transformer.signals import cleared_up, clear_up_now, first_signal
with cleared_up(lambda: print("cleared up", os.getpid(), flush=True)), first_signal(lambda *_: sys.exit("handled")):
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        clear_up_now()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def started(code: str, *arguments) -> subprocess.Popen:
    # Shells start background jobs with SIGINT ignored, and children inherit that.
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heed)


@pytest.mark.parametrize("number", signals.ENDING)
def test_signal_burst_counts_once_and_later_signal_kills(number):
    with started(WAIT) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(3):  # as `timeout` and torchrun send it
            process.send_signal(number)
        assert process.stdout.readline() == f"first {number}\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == -signal.SIGTERM
        assert process.stdout.read() == ""


def test_second_signal_ends_a_busy_process():
    code = WAIT.replace("time.sleep(0.01)", "time.sleep(1)")
    with started(code, "busy") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == f"first {signal.SIGINT}\n"
        time.sleep(1.2)  # by now it is in the call
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == -signal.SIGINT


def test_ignored_signals_stay_ignored_and_handlers_are_restored():
    before = [signal.getsignal(each) for each in signals.ENDING]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals.first_signal(lambda *_: None):
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not before[0]
        assert signal.getsignal(signal.SIGINT) is before[0]
    finally:
        signal.signal(signal.SIGTERM, before[1])


def test_forked_child_ignores_signals_and_parents_clean_up():
    with started(FORK) as process:
        output = process.stdout.read()
    assert output == f"7\ncleared up {process.pid}\n"


def test_clean_up_runs_once_in_reverse_order(tmp_path):
    order = []
    with signals.cleared_up(lambda: order.append("outer")), signals.cleared_up(lambda: order.append("inner")):
        assert order == []
    assert order == ["inner", "outer"]
    signals.clear_up_now()
    assert order == ["inner", "outer"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_signals_are_blocked_while_a_process_starts():
    with signals.held_back():
        status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    [blocked] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk")]
    assert all(blocked >> (each - 1) & 1 for each in signals.ENDING)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {*signals.ENDING}
