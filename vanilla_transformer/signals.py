"""SIGINT, which Ctrl-C sends, and SIGTERM, which schedulers and containers send: both ask a process to end."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


ENDING = (signal.SIGINT, signal.SIGTERM)
# `timeout`, torchrun and others send the same signal to a process and to its group, one right after the other.
_STILL_THE_FIRST = 0.2  # seconds

_to_clear_up: dict[object, Callable[[], None]] = {}
if hasattr(os, "register_at_fork"):  # a child must not clear up what its parent has begun
    os.register_at_fork(after_in_child=_to_clear_up.clear)


@contextmanager
def first_signal(action: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Calls `action` at the first SIGINT or SIGTERM. A second one ends the process at once, whatever it is doing.

    A signal that the process was started to ignore, as by nohup, stays ignored. Processes that this one forks ignore
    both. In threads other than the main one, which alone can handle signals, this does nothing.

    Args:
        action: Gets the signal's number and the frame that it interrupted; an exception of `action` is raised in that
            frame.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, came = os.getpid(), False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came or os.getpid() != owner:
            return
        came = True
        time.sleep(_STILL_THE_FIRST)
        for each in before:
            signal.signal(each, signal.SIG_DFL)  # this works even while the interpreter is busy in a call
        action(number, frame)

    before = {each: handler for each in ENDING if (handler := signal.getsignal(each)) not in (signal.SIG_IGN, None)}
    try:
        for each in before:
            signal.signal(each, handle)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def cleared_up(action: Callable[[], None]) -> Iterator[None]:
    """Calls `action` at the end, or when a signal ends the process without reaching a `finally`."""
    key = object()
    _to_clear_up[key] = action
    try:
        yield
    finally:
        action()
        _to_clear_up.pop(key, None)  # a signal just before this line calls it twice, which is harmless


def clear_up_now() -> None:
    """Calls what `cleared_up` has yet to call, the latest first."""
    for key, action in reversed(list(_to_clear_up.items())):
        with suppress(OSError):
            action()
        _to_clear_up.pop(key, None)


@contextmanager
def held_back() -> Iterator[None]:
    """Holds both signals back while processes start that have no handlers of their own yet; they inherit this."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent(worker: int | None = None) -> None:
    """For a worker process (torch passes its number): the parent, which gets the same signal, decides what happens.

    A second SIGTERM does end a worker: `multiprocessing` needs that.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
