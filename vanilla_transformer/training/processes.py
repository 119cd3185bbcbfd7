"""What several processes of one run owe each other: one begins, and none waits for one that has gone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch

from .arguments import VanillaTransformerTrainingArguments


# What a backend says when the other end of a connection is no more; all it raises is RuntimeError.
_GONE = ("connection reset", "connection closed", "connection refused", "broken pipe", "timed out", "remote error")


class ProcessLostError(OSError):
    """Another process of the run ended, or could not be reached for as long as one waits."""


def first_alone(arguments: VanillaTransformerTrainingArguments, action: Callable[[], None]) -> None:
    """The first process does something, which may take hours, while the others wait for it.

    Raises:
        ProcessLostError: In the others: it failed. In the first its own error is raised.
    """
    if arguments.world_size == 1:
        action()
        return
    # Its own group, with its own patience: that of the run is for processes that all do the same.
    group = torch.distributed.new_group(backend="gloo", timeout=timedelta(days=1))
    failed = torch.zeros(())
    if arguments.process_index == 0:
        try:
            action()
        except BaseException:
            with suppress(RuntimeError):  # if the others have gone too, this process's own error is the one to tell
                torch.distributed.broadcast(failed.fill_(1), 0, group=group)
            raise
    torch.distributed.broadcast(failed, 0, group=group)
    if failed:
        raise ProcessLostError("The first process of this run could not begin it; its message says why.")


@contextmanager
def others_named_in_errors(arguments: VanillaTransformerTrainingArguments) -> Iterator[None]:
    """Says so when it was another process that ended, and not this one that failed.

    Raises:
        ProcessLostError: In place of what the backend said.
    """
    try:
        yield
    except RuntimeError as error:
        told = " ".join(str(error).split())
        if arguments.world_size == 1 or not any(sign in told.lower() for sign in _GONE):
            raise
        raise ProcessLostError(
            f"Another of the {arguments.world_size} processes of this run has ended or cannot be reached; its message, "
            f"or that of what started it, says why. Go on with --resume. ({told[:200]})"
        ) from error
