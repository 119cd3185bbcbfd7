"""What people would rather look at than read."""

import logging
import math
from pathlib import Path

from .process import UsageError
from .translate import unknown_words


logger = logging.getLogger(__name__)

_DRAWN_UPDATES, _MOST_UPDATES = 4000, 10**12
_ATTENTIONS = {
    "encoder": ("Encoder self-attention", ("source: looks", "source: is looked at")),
    "decoder": ("Decoder self-attention", ("target so far: looks", "target so far: is looked at")),
    "cross": ("Attention on the source", ("target: is written", "source: is looked at")),
}


def plot(
    what: str,
    subject: list[str] | None = None,
    *,
    output: Path,
    attention: str | None = None,
    layer: int | None = None,
    head: list[int] | None = None,
    query: list[str] | None = None,
    lines: bool = False,
    words: bool = False,
    to: str | None = None,
):
    """Draws a picture: attention MODEL SOURCE [TARGET], curves RUN ..., schedule [D_MODEL:WARMUP ...], or positions.

    Attention shows all heads, small, or with --layer a layer's heads with the words beside them. Words of the sentence
    that were not in the training text are named on standard error.

    Args:
        what: attention (of a model on a sentence), curves (of run folders), schedule (equation 3) or positions (3.5).
        subject: A model, a sentence and, unless the model is to translate it, its translation; run folders; or pairs of
            d_model and warm-up updates, 512:4000.
        output: File to write, .png or .svg.
        attention: Only this one: encoder, decoder (on itself) or cross (of the decoder on the source). With --layer by
            default cross.
        layer: Only this layer, counted from 1.
        head: Only this head of the layer, counted from 1; may be given several times.
        query: A query word, or its number counted from 1: in heat maps its row is framed, and only its lines are
            drawn. May be given several times.
        lines: Draw lines between two columns of words, as in the paper's figures 3 to 5, instead of heat maps.
        words: Put the pieces of a word together.
        to: Language to translate into, of a model of several.
    """
    from ..plots.figures import check_picture

    check_picture(output)
    subject = subject or []
    drawings = {"curves": _plot_curves, "schedule": _plot_schedule, "positions": _plot_positions}
    of_attention = {"attention": attention, "layer": layer, "head": head, "query": query}
    of_attention |= {"lines": lines, "words": words, "to": to}
    given = [name for name, value in of_attention.items() if value is not None and value is not False]
    if what == "attention":
        _plot_attention(subject, output, **of_attention)
    elif what not in drawings:
        raise UsageError(f"Nothing to draw is called {what!r}: choose attention, curves, schedule or positions.")
    elif given:
        raise UsageError(f"--{given[0]} is for attention, not for {what}.")
    else:
        drawings[what](subject, output)
    logger.info("Drew %s.", output)


def _plot_attention(subject: list[str], output: Path, attention, layer, head, query, lines, words, to) -> None:
    if len(subject) not in (2, 3):
        raise UsageError('Give a model and a sentence: plot attention MODEL "SOURCE" ["TARGET"] --output FILE.png')
    if attention not in (None, *_ATTENTIONS):
        raise UsageError(f"There is no attention {attention!r}: choose {', '.join(_ATTENTIONS)}.")
    if not subject[1].strip():
        raise UsageError("The sentence is blank: there is nothing to look at.")
    if layer is None and (head or query):
        raise UsageError(f"--{'head' if head else 'query'} is for the heads of one layer: add --layer.")
    from ..attention.weights import attentions
    from ..data.languages import towards
    from ..plots import plot_attention_lines, plot_attention_maps, plot_attention_overview
    from ..run.loading import load_model
    from ..translation.lines import UnknownWordsWarnings

    model, tokenizer = load_model(subject[0])
    UnknownWordsWarnings(unknown_words(subject[:1], tokenizer)).look_at(subject[1])
    found = attentions(model, towards(tokenizer, to), *subject[1:], by_words=words)
    if layer is None:
        blocks = {_ATTENTIONS[name][0]: found.of(name)[0] for name in ([attention] if attention else _ATTENTIONS)}
        caption = f"Source: {' '.join(found.source)}\nTarget: {' '.join(found.written)}"
        plot_attention_overview(blocks, output, lines=lines, title="Attention of all heads", caption=caption)
        return
    title, sides = _ATTENTIONS[attention or "cross"]
    weights, queries, keys = found.of(attention or "cross")
    layers, heads = weights.shape[:2]
    if not 1 <= layer <= layers:
        raise UsageError(f"{subject[0]} has {layers} such layers: choose --layer from 1 to {layers}.")
    if not all(1 <= number <= heads for number in head or []):
        raise UsageError(f"{subject[0]} has {heads} heads in a layer: choose --head from 1 to {heads}.")
    draw, title = plot_attention_lines if lines else plot_attention_maps, f"{title}, layer {layer} of {layers}"
    heads = [number - 1 for number in dict.fromkeys(head)] if head else None
    highlight = [place for word in query or [] for place in _places(word, queries)]
    draw(weights[layer - 1], queries, keys, output, heads=heads, sides=sides, highlight=highlight, title=title)


def _places(query: str, queries: list[str]) -> list[int]:
    """The places of a word among the queries. A number that is none of the words is a place, counted from 1."""
    places = [place for place, name in enumerate(queries) if name == query]
    if not places and query.isdecimal() and 1 <= int(query) <= len(queries):
        places = [int(query) - 1]
    if not places:
        raise UsageError(f"--query {query!r} is none of the words that look: {' '.join(queries)}")
    return places


def _plot_curves(subject: list[str], output: Path) -> None:
    from ..plots import plot_runs
    from ..run.folder import RunFolder

    if not subject:
        raise UsageError("Give one run folder or several: plot curves RUN ... --output FILE.png")
    names = [Path(run).resolve().name for run in subject]
    names = subject if len(set(names)) < len(names) else names
    plot_runs({name: RunFolder(run).log_records() for name, run in zip(names, subject, strict=True)}, output)


def _plot_schedule(subject: list[str], output: Path) -> None:
    from ..plots import plot_schedule
    from ..training.arguments import noam

    pairs = [text.split(":") for text in subject or ["512:4000", "512:8000", "256:4000", "1024:4000"]]
    if not all(len(pair) == 2 and all(text.isdecimal() and int(text) > 0 for text in pair) for pair in pairs):
        raise UsageError(f"Schedules are D_MODEL:WARMUP, such as 512:4000 of the base model, not {' '.join(subject)}.")
    schedules = [(int(d_model), int(warmup)) for d_model, warmup in pairs]
    last = 5 * max(warmup for _, warmup in schedules)
    if last > _MOST_UPDATES:
        raise UsageError(f"A warm-up of {last // 5:,} updates is not a schedule: {_MOST_UPDATES // 5:,} at most.")
    peaks = {warmup for _, warmup in schedules}
    updates = sorted({*range(1, last, math.ceil(last / _DRAWN_UPDATES)), *peaks})
    rates = {
        f"d_model {d_model}, warm-up {warmup:,}: at most {noam(warmup, d_model, warmup):.1e}": [
            noam(update, d_model, warmup) for update in updates
        ]
        for d_model, warmup in schedules
    }
    plot_schedule(rates, output, updates=updates)


def _plot_positions(subject: list[str], output: Path) -> None:
    import torch

    from ..model.modeling_vanilla_transformer import sinusoids
    from ..plots import plot_positional_encoding

    if subject:
        raise UsageError("positions draws section 3.5 and takes no model and no run: plot positions --output FILE.png")
    title = "Positions as sinusoids (section 3.5), d_model 128"
    plot_positional_encoding(sinusoids(torch.arange(100), 128), output, title=title)
