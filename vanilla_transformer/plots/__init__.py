"""Pictures as PNG or SVG files: learning curves, attention, schedules, positions, scores by group, confidence.

Every figure is its own `matplotlib.figure.Figure`, never pyplot's: drawing needs no display, chooses no backend and
leaves a notebook's figures and settings alone.

Every function writes the file `path`, .png or .svg, whole or not at all, with `title` as a line above the picture. It
raises ValueError if there is nothing to draw.
"""

from .attention import plot_attention_lines, plot_attention_maps, plot_attention_overview
from .bars import plot_counts, plot_forms
from .confidence import plot_confidence
from .curves import plot_learning_curve, plot_positional_encoding, plot_runs, plot_schedule, plot_score_groups


__all__ = [
    "plot_attention_lines",
    "plot_attention_maps",
    "plot_attention_overview",
    "plot_confidence",
    "plot_counts",
    "plot_forms",
    "plot_learning_curve",
    "plot_positional_encoding",
    "plot_runs",
    "plot_schedule",
    "plot_score_groups",
]
