"""How well and how fast the phrasebook is learned, seed by seed.

    python scripts/benchmarks/phrasebook_seeds.py runs/seeds

trains `phrasebook` once per seed, one after another on all cores, and prints the share of unseen sentences that come
out exactly right. A finished seed is not trained again; an interrupted one is resumed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from vanilla_transformer.run.folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for the runs")
    parser.add_argument("--seeds", nargs="+", default=["42", "1", "2", "3", "4"])
    arguments = parser.parse_args()
    print("| seed | validation, % | test, % | seconds of training |\n| ---: | ---: | ---: | ---: |", flush=True)
    for seed in arguments.seeds:
        folder = RunFolder(arguments.output / seed)
        if not folder.scores.exists():
            command = [sys.executable, "-m", "vanilla_transformer", "train", "phrasebook", "--training.seed", seed]
            subprocess.run([*command, "--output", str(folder.path), "--resume"], check=True, stdout=subprocess.DEVNULL)
        scores = json.loads(folder.scores.read_text(encoding="utf-8"))
        exact = {
            score["test_set"]: score["value"]
            for score in scores
            if score["chosen"] and score["metric"] == "exact_match"
        }
        seconds = max(record.get("elapsed_seconds", 0) for record in folder.log_records())  # also after a resume
        print(f"| {seed} | {exact['validation']:.1f} | {exact['phrasebook']:.1f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
