"""What people would rather look at than read."""

from pathlib import Path

from .process import UsageError


def plot(what: str, subject: list[str] | None = None, *, output: Path, model: Path | None = None, layer: int = -1):
    """Draws a picture: curve RUN, attention SENTENCE, schedule [WARMUP ...], or positions.

    Args:
        what: curve (of a run folder), attention (of a model on a sentence), schedule (equation 3) or positions (3.5).
        subject: The run folder, the sentence, or numbers of warm-up updates.
        output: PNG file to write.
        model: For attention: a run folder or a model's folder.
        layer: For attention: the decoder layer, counted from 0; the last if it is not given.
    """
    drawings = {"curve": _plot_curve, "attention": _plot_attention, "schedule": _plot_schedule}
    if what == "positions":
        _plot_positions(output)
    elif what in drawings:
        drawings[what](subject or [], output, model, layer)
    else:
        raise UsageError(f"Nothing to draw is called {what!r}: choose curve, attention, schedule or positions.")


def _plot_curve(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from ..plots import plot_learning_curve
    from ..run_folder import RunFolder

    if len(subject) != 1:
        raise UsageError("Give one run folder: plot curve RUN --output FILE.png")
    plot_learning_curve(RunFolder(subject[0]).log_records(), output)


def _plot_attention(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from ..evaluation.attention import cross_attention
    from ..plots import plot_attention
    from ..run_folder import load_model

    if len(subject) != 1 or model is None:
        raise UsageError('Give a model and one sentence: plot attention "SENTENCE" --model MODEL --output FILE.png')
    loaded, tokenizer = load_model(model)
    layers = loaded.config.decoder_layers
    if not -layers <= layer < layers:
        raise UsageError(f"{model} has {layers} decoder layers: choose --layer from 0 to {layers - 1}.")
    weights, source_tokens, target_tokens = cross_attention(loaded, tokenizer, subject[0], layer=layer)
    title = f"Decoder layer {layer % layers}: attention on the source"
    plot_attention(weights, source_tokens, target_tokens, output, title=title)


def _plot_schedule(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from ..plots import plot_schedule
    from ..training.schedule import noam

    if not all(text.isdecimal() and int(text) > 0 for text in subject):
        raise UsageError(f"Warm-ups are numbers of updates, at least 1, not {' '.join(subject)}.")
    warmups = [int(text) for text in subject] or [4000, 8000]
    steps = range(1, 5 * max(warmups))
    plot_schedule({f"d_model 512, warm-up {w:,}": [noam(s, 512, w) for s in steps] for w in warmups}, output)


def _plot_positions(output: Path) -> None:
    import torch

    from ..model.modeling_vanilla_transformer import sinusoids
    from ..plots import plot_positional_encoding

    plot_positional_encoding(sinusoids(torch.arange(100), 128), output)
