"""How fast models translate a text, side by side: a teacher, an ensemble, a student, an exported student.

    OMP_NUM_THREADS=1 python scripts/benchmarks/models.py teacher-1+teacher-2 teacher-1 student export --input val.en

Models that translate together are joined by `+`; a folder with `model.bin` is CTranslate2's. Each uses the search
settings saved with it. In each round every contestant translates the text once; ratios compare medians with the first
contestant's. `--profile 8` also says in which of torch's operators the first contestant spends its time.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from vanilla_transformer import translate_lines
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.loading import load_engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders, joined by + if they translate together")
    parser.add_argument("--input", type=Path, required=True, help="text file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", type=int, default=0, metavar="OPERATORS", help="how many to list")
    arguments = parser.parse_args()
    lines = list(text_lines(arguments.input))
    engines = {}
    for name in arguments.models:
        folders = [Path(folder) for folder in name.split("+")]
        backend = "ctranslate2" if (folders[0] / "model.bin").exists() else "torch"
        engines[name] = load_engine(folders, backend, "cpu")
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(arguments.rounds + 1):
        for name, (model, tokenizer) in engines.items():
            begun = time.perf_counter()
            list(translate_lines(model, tokenizer, [lines]))
            if number:  # the first round only warms up
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    base = medians[arguments.models[0]]
    print(f"{len(lines):,} sentences; threads: {torch.get_num_threads()}; median of {arguments.rounds} rounds.")
    print("| model | sentences a second | from | to | times the first |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, median in medians.items():
        speeds = [len(lines) / each for each in (median, max(seconds[name]), min(seconds[name]))]
        print(f"| {name} | {' | '.join(f'{speed:,.0f}' for speed in speeds)} | {base / median:.2f} |")
    if arguments.profile:
        show_operators(*engines[arguments.models[0]], lines, arguments.profile)


def show_operators(model, tokenizer, lines: list[str], most: int) -> None:
    """Prints the operators that take most time, each without those that it calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        list(translate_lines(model, tokenizer, [lines]))
    found = sorted(profile.key_averages(), key=lambda each: -each.self_cpu_time_total)
    whole = sum(each.self_cpu_time_total for each in found)
    print("\n| operator | share of the operators' time | calls |\n| --- | ---: | ---: |")
    for each in found[:most]:
        print(f"| {each.key} | {each.self_cpu_time_total / whole:.1%} | {each.count:,} |")


if __name__ == "__main__":
    main()
