"""What refilling a batch with new sentences as others end ("continuous batching") could save.

    OMP_NUM_THREADS=1 python scripts/benchmarks/refilling.py RUN --input val.en --batch-tokens 4096 1024

A batch shrinks as its sentences end, and a step with few sentences takes more time for each of them: besides a cost
per sentence, and one that grows with the sentence's length so far, each step has a fixed cost. The three are fitted to
all steps by least squares. If free places were always refilled, there would be as few steps as possible. "Saved" is
the share of the time that this would save. It is an upper bound, because refilling has costs, too. Figures are medians
of --rounds, which take turns.
"""

import argparse
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from vanilla_transformer import translate_lines
from vanilla_transformer.files import text_lines
from vanilla_transformer.model import steps_vanilla_transformer
from vanilla_transformer.run.loading import load_engine


def steps_of(model, tokenizer, lines: list[str], batch_tokens: int) -> tuple[float, list[list]]:
    """Seconds of a translation, and for each of its batches when each step began and with how many sentences."""
    steps: list[list[tuple[float, int]]] = []
    states = steps_vanilla_transformer.StepwiseDecoder.states

    def recorded(decoder, tokens):
        if not decoder.length:
            steps.append([])
        steps[-1].append((time.perf_counter(), len(tokens)))
        return states(decoder, tokens)

    steps_vanilla_transformer.StepwiseDecoder.states = recorded
    try:
        begun = time.perf_counter()
        list(translate_lines(model, tokenizer, [lines], batch_tokens=batch_tokens))
        return time.perf_counter() - begun, steps
    finally:
        steps_vanilla_transformer.StepwiseDecoder.states = states


def saved(seconds: float, steps: list[list]) -> tuple[int, float, float]:
    """The number of steps, the fixed cost of one in milliseconds, and the share of the time that could be saved."""
    costs = []  # 1, sentences, sentences times tokens so far; and seconds
    for batch in steps:  # the end of the last step, a small one, is not recorded
        for length, ((begun, count), (end, _)) in enumerate(pairwise(batch), start=1):
            costs.append((1.0, count, count * length, end - begun))
    costs = np.array(costs)
    fixed = np.linalg.lstsq(costs[:, :3], costs[:, 3], rcond=None)[0][0]
    needed = sum(sum(count for _, count in batch) / batch[0][1] for batch in steps)
    made = sum(map(len, steps))
    return made, 1000 * fixed, fixed * (made - needed) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a run folder or a model's")
    parser.add_argument("--input", type=Path, required=True, help="text file")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[4096, 1024], help="padded tokens of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    lines = list(text_lines(arguments.input))
    model, tokenizer = load_engine([arguments.model], "torch", "cpu")
    list(translate_lines(model, tokenizer, [lines[:64]]))  # the first batches of a process are slow
    found: dict[int, list[tuple[float, ...]]] = {size: [] for size in arguments.batch_tokens}
    for _ in range(arguments.rounds):
        for size, rows in found.items():
            seconds, steps = steps_of(model, tokenizer, lines, size)
            first = statistics.mean(batch[0][1] for batch in steps)
            rows.append((first, len(lines) / seconds, *saved(seconds, steps)))
    print(f"{len(lines):,} sentences, medians of {arguments.rounds} rounds")
    print("| batch tokens | sentences in a batch | sentences a second | steps | cost of a step, ms | saved |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for size, rows in found.items():
        first, speed, made, fixed, gain = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {size:,} | {first:.0f} | {speed:.0f} | {made:.0f} | {fixed:.2f} | {gain:.1%} |")


if __name__ == "__main__":
    main()
