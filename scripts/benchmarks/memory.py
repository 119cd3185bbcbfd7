"""Resident memory of `vanilla-transformer train` update by update, as the operating system counts it.

    python scripts/benchmarks/memory.py multi30k_en_de --data.folder multi30k --training.max_steps 5000 \\
        --capacities 1024 64 --picture memory.png

The words after the recipe are for `train`. There is one run for each of --capacities, one after another: the number of
products of different shapes that oneDNN and torch keep (1,024 by default; `train` sets 64). The table has, at some
updates, the peak memory so far, and the estimate that `train` printed before it began. It needs Linux.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vanilla_transformer.environment import resident_bytes
from vanilla_transformer.plots.figures import COLORS, add_legend, finish_axes, new_figure, save


CAPACITIES = "LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
SHOWN = (50, 100, 500, 1_000, 2_000, 5_000, 10_000, 25_000)


def measured(words: list[str], capacity: int, seconds: float = 0.2) -> tuple[str, list[tuple[int, float]]]:
    """The memory that a run says it will take, and (update, megabytes): the peak up to each logged update."""
    with tempfile.TemporaryDirectory() as folder:
        run, errors = Path(folder) / "run", Path(folder) / "errors"
        command = [sys.executable, "-m", "vanilla_transformer", "train", *words, "--output", str(run)]
        environment = os.environ | dict.fromkeys(CAPACITIES, str(capacity))
        with errors.open("wb") as file:
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        found = {}
        try:
            while process.poll() is None:
                peak, update = resident_bytes("VmHWM", process.pid), last_update(run / "log.jsonl")
                if peak is not None and update and update not in found:
                    found[update] = peak / 2**20
                    print(f"\r{capacity}: update {update:,}, {peak / 2**20:,.0f} MB", end="", file=sys.stderr)
                time.sleep(seconds)
        finally:
            process.kill()
        if process.wait():
            sys.exit(f"`{' '.join(command)}` has failed:\n{errors.read_text()[-2000:]}")
        said = re.search(r"Training takes about ([\d.,]+ [MG]B)", errors.read_text())
        return said[1] if said else "", list(found.items())


def last_update(log: Path) -> int:
    """The last update that has a line in the log; 0 if there is none."""
    if not log.exists():
        return 0
    steps = [json.loads(line).get("step", 0) for line in log.read_text().splitlines() if line.endswith("}")]
    return max(steps, default=0)


def draw(found: dict[int, list[tuple[int, float]]], path: Path) -> None:
    figure = new_figure(8, 4, "Resident memory in training")
    axes = figure.subplots()
    for color, (capacity, points) in zip(COLORS, found.items(), strict=False):
        axes.plot(*zip(*points, strict=True), color=color, label=f"{capacity:,} products kept")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("update")
    axes.set_ylabel("MB, the most so far")
    add_legend(axes, "lower right")
    finish_axes(axes, whole_numbers=True)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", type=int, nargs="+", default=[1024, 64])
    parser.add_argument("--picture", type=Path)
    arguments, words = parser.parse_known_args()
    runs = {capacity: measured(words, capacity) for capacity in arguments.capacities}
    found = {capacity: points for capacity, (_, points) in runs.items()}
    shown = [each for each in SHOWN if all(points[-1][0] >= each for points in found.values())]
    print(f"| products kept | said before | {' | '.join(f'{each:,} updates' for each in shown)} |")
    print(f"| ---: | ---: |{' ---: |' * len(shown)}")
    for capacity, points in found.items():
        most = [max(peak for update, peak in points if update <= each) for each in shown]
        print(f"| {capacity:,} | {runs[capacity][0]} | {' | '.join(f'{each:,.0f} MB' for each in most)} |")
    if arguments.picture:
        draw(found, arguments.picture)


if __name__ == "__main__":
    main()
