"""What the paper has as formulas: the learning rate (equation 3) and the positions (section 3.5)."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from .figures import add_legend, finish_axes, look_of, new_figure, save


def plot_schedule(
    learning_rates: Mapping[str, Sequence[float]], path: str | os.PathLike, *, updates: Sequence[int] | None = None
) -> None:
    """Draws learning rates against updates, such as section 5.3's schedule for several warm-ups.

    Args:
        learning_rates: For each label of the legend, the learning rates of updates 1, 2, 3, …
        path: The file to write, .png or .svg.
        updates: The numbers of the updates that the rates are of, where not of each.

    Raises:
        ValueError: If there is no learning rate to draw.
    """
    if not learning_rates or not all(len(rates) for rates in learning_rates.values()):
        raise ValueError("nothing to draw: every schedule needs a learning rate at least")
    figure = new_figure(width=8, height=4.5, title="Learning rate schedule (equation 3)")
    axes = figure.subplots()
    for place, (label, rates) in enumerate(learning_rates.items()):
        axes.plot(updates or range(1, len(rates) + 1), rates, label=label, linewidth=1.8, **look_of(place))
    axes.set(xlabel="updates", ylabel="learning rate", ylim=(0, None))
    axes.ticklabel_format(axis="y", style="scientific", scilimits=(0, 0))
    finish_axes(axes, whole_numbers=True)
    add_legend(axes, "upper right")
    save(figure, path)


def plot_positional_encoding(table: np.ndarray, path: str | os.PathLike, *, title: str = "Positional encoding") -> None:
    """Draws a table of positional encodings (section 3.5) as a heat map, and some of its columns as waves below.

    Args:
        table: The encodings, sinusoidal or learned, of shape (positions, d_model).
        path: The file to write, .png or .svg.
        title: A line above the picture.

    Raises:
        ValueError: If the table is not two-dimensional or is empty.
    """
    table = np.asarray(table, dtype=float)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"the table must have the shape (positions, d_model), none of them 0; got {table.shape}")
    limit = np.abs(table).max() or 1.0  # the same on both sides, so that white is zero
    figure = new_figure(width=8, height=8, title=title)
    heat_map, waves = figure.subplots(2, height_ratios=[2, 1], sharex=True)
    settings = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r", "interpolation": "nearest", "aspect": "auto"}
    image = heat_map.imshow(table.T, origin="lower", **settings)
    heat_map.set(ylabel="dimension (0 to d_model - 1)")
    figure.colorbar(image, ax=heat_map, label="value added to the embedding (no unit)")
    for place, dimension in enumerate(sorted({0, table.shape[1] // 8, table.shape[1] // 4, table.shape[1] // 2})):
        waves.plot(table[:, dimension], label=f"dimension {dimension}", **look_of(place))
    waves.set(xlabel="position in the sentence (tokens, from 0)", ylabel="value (no unit)")
    finish_axes(waves, whole_numbers=True)
    add_legend(figure, "outside lower center", ncols=4)
    save(figure, path)
