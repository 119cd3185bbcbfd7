"""Pictures as PNG or SVG files: learning curves, attention, what heads do, schedules and positional encodings.

Every figure is a `matplotlib.figure.Figure` of its own, never pyplot's: drawing needs no display, chooses no backend
and leaves a notebook's own figures and settings alone.
"""

from .attention import plot_attention_lines, plot_attention_maps, plot_attention_overview
from .curves import plot_learning_curve, plot_runs
from .equations import plot_positional_encoding, plot_schedule
from .scores import plot_heads, plot_score_groups


__all__ = [
    "plot_attention_lines",
    "plot_attention_maps",
    "plot_attention_overview",
    "plot_heads",
    "plot_learning_curve",
    "plot_positional_encoding",
    "plot_runs",
    "plot_schedule",
    "plot_score_groups",
]
