"""`vanilla-transformer COMMAND`: the process, which a signal may end at any moment, even during imports."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from .signals import clear_up_now, first_signal


_SAID = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated."}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    At the first SIGINT or SIGTERM `train` saves a checkpoint after the current update, and every other command ends
    and leaves nothing unfinished behind. A second signal ends the process at once.

    Args:
        arguments: The command's words. None: those of the command line. The process then belongs to the command, and no
            signal ends in a traceback, even before or after the command's own work.

    Returns:
        0 if it succeeded, 1 if it failed. As in a shell, 130 if SIGINT ended it, 143 if SIGTERM did, and 141 (SIGPIPE)
        if nobody reads its output to the end (`| head`). Servers have no other end than a signal: they succeed. (An
        invalid command line ends the process with 2.)
    """
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
            frame = frame.f_back
        if frame is not None:  # exceptions raised during an import are often swallowed, or printed and lost
            _end_here(number)
        raise KeyboardInterrupt

    def lost(unraisable) -> None:
        if came and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _end_here(came[0])
        hook(unraisable)

    hook, sys.unraisablehook = sys.unraisablehook, lost
    try:
        with first_signal(end):
            try:
                from .command_line import run_command  # a signal may come during this import

                status = run_command(arguments)
            except KeyboardInterrupt:
                came[:] = came or [signal.SIGINT]
                status = 1
            if not status or not came:  # a failure after a signal counts as the signal's
                return status
            _tidy_up(came[0])
            return 128 + came[0]
    finally:
        sys.unraisablehook = hook


def _end_here(number: int) -> None:
    """Ends the process from within a signal's handler or a destructor, where nothing can be raised."""
    _tidy_up(number)
    os._exit(128 + number)


def _tidy_up(number: int) -> None:
    clear_up_now()
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun starts, only the first speaks
        end_of_bar = "\n" if os.isatty(2) else ""
        with suppress(OSError):
            os.write(2, f"{end_of_bar}{_SAID[number]}\n".encode())  # sys.stderr may be in the middle of a line here


if __name__ == "__main__":
    sys.exit(main())
