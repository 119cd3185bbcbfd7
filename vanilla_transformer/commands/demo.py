"""A page to try a model on."""

from pathlib import Path

from .process import use_memory_well


def demo(model: Path, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Shows a page on which the model translates, with its scores, options and attention, until Ctrl-C.

    Args:
        model: A run folder or a model's folder.
        host: The address to listen at; 0.0.0.0 is all of this machine's.
        port: The port to listen at; if it is not given the first free one from 7860.
    """
    from ..demo import show

    use_memory_well()
    show(model, host, port)
