"""How long a command takes to answer: its help, and the first translation of a process.

    python scripts/benchmarks/start.py MODEL

Each turn starts a new process for each of these, one after another: `import torch, transformers`, the yardstick; the
same with `transformers.PreTrainedModel`, which is needed to load any model; the help; and `translate` with one line on
standard input, until its translation is there and until the process has ended. The table has seconds, and medians as
multiples of the yardstick's. Files come from the page cache.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from vanilla_transformer.environment import machine


SENTENCE = "A man sees the dog.\n"
COMMAND = (sys.executable, "-m", "vanilla_transformer")


def contestants(model: Path) -> dict[str, tuple[str, ...]]:
    translating = (*COMMAND, "translate", "--model", str(model))
    return {
        "`import torch, transformers`": (sys.executable, "-c", "import torch, transformers"),
        "with `transformers.PreTrainedModel`": (
            sys.executable, "-c", "import torch, transformers; transformers.PreTrainedModel",
        ),
        "`--help`": (*COMMAND, "--help"),
        "`translate --help`": (*COMMAND, "translate", "--help"),
        "`translate`, the model's own beam": translating,
        "`translate --num-beams 1`": (*translating, "--num-beams", "1"),
    }  # fmt: skip


def seconds(command: tuple[str, ...], threads: int) -> tuple[float, float]:
    """The time until the first line of a new process (or its end, if it writes none), and until its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment, text=True, encoding="utf-8", **pipes) as process:
        if "translate" in command and "--help" not in command:
            process.stdin.write(SENTENCE)
        process.stdin.close()
        process.stdout.readline()
        first = time.perf_counter() - started
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}.")
    return first, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a trained model or a run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    commands = contestants(arguments.model)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command, arguments.threads)  # compiles modules not compiled yet, and fills the page cache
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            times[name].append(seconds(command, arguments.threads))
    here = machine()
    print(f"{here['processor']}, {arguments.threads} thread(s), median of {arguments.rounds} (fastest)")
    print("| new process | first line, s | end, s | first line, of the yardstick |\n| --- | ---: | ---: | ---: |")
    yardstick = None
    for name, taken in times.items():
        first, end = zip(*taken, strict=True)
        middle = statistics.median(first)
        yardstick = yardstick or middle
        cells = [f"{statistics.median(each):.2f} ({min(each):.2f})" for each in (first, end)]
        print(f"| {name} | {' | '.join(cells)} | {middle / yardstick:.2f} |")


if __name__ == "__main__":
    main()
