"""Runs commands of this package side by side, each in a process of its own, so that its memory is freed at the end."""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from pathlib import Path

import torch

from .signals import first_signal
from .worker_processes import end_with_parent


logger = logging.getLogger(__name__)


@dataclass
class Command:
    """A command of ours, for a process of its own.

    Attributes:
        name: What it is called in messages.
        words: The command line.
        threads: How many threads torch has in its process; None: torch's default.
        log: File to which its messages are added; None: the terminal.
        seconds: How long it took.
    """

    name: str
    words: Sequence[str]
    threads: int | None = None
    log: Path | None = None
    seconds: float = 0.0


def run_command(words: Sequence[str]) -> None:
    """Runs one command as `run_commands` does."""
    run_commands([Command(words[0], words)])


def run_commands(commands: Sequence[Command]) -> None:
    """Runs commands side by side, in processes which end with this one and get the signals that this one gets.

    If one fails, the others are asked to end, and raise no error of their own. (On Windows they are killed.)

    Raises:
        ValueError: One has failed. It has said why, unless it was killed.
    """
    processes = {get_context("spawn").Process(target=_command, args=(each,)): each for each in commands}
    running, signalled = [], set()
    received: list[int] = []  # signals that this process was sent
    failed: Command | None = None

    def send(number: int) -> None:
        for process in running:
            if process not in signalled:
                signalled.add(process)
                with suppress(ProcessLookupError, PermissionError):  # it has just ended
                    os.kill(process.pid, number)

    def pass_on(number: int, frame) -> None:
        received.append(number)
        send(number)

    with first_signal(pass_on):
        begun = time.monotonic()
        try:
            for process in processes:
                if not received:
                    process.start()
                    running.append(process)
            if received:  # while one was being started
                send(received[0])
            while running:
                # With a timeout, because forks of a killed process keep the sentinel open.
                connection.wait([process.sentinel for process in running], timeout=1)
                for process in [each for each in running if each.exitcode is not None]:
                    running.remove(process)
                    command = processes[process]
                    command.seconds = time.monotonic() - begun
                    if process.exitcode and not received and failed is None:
                        failed = command
                        if running:
                            logger.error("%s has failed: the others are asked to end.", command.name)
                        send(signal.SIGTERM)
        finally:
            for process in running:  # the next one could not be started
                process.terminate()
                process.join()
    if received:
        signal.raise_signal(received[0])
    if failed is not None:
        where = f"see {failed.log}" if failed.log else "see above"
        raise ValueError(
            f"{failed.name}: `{' '.join(failed.words[:2])}` has failed, {where}. Fix the cause, then give the same "
            "command again: it continues from there."
        )


def _command(command: Command) -> None:
    """Runs in the process of a command."""
    if hasattr(os, "setpgrp"):  # a terminal's Ctrl-C goes to the parent alone, which passes it on, once
        os.setpgrp()
    end_with_parent()
    if command.log is not None:
        with command.log.open("ab") as file:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(file.fileno(), stream.fileno())
    if command.threads is not None:
        torch.set_num_threads(command.threads)
    from .cli import main  # which imports this module

    sys.argv[1:] = command.words  # runs keep the command that made them
    sys.exit(main(list(command.words)))
