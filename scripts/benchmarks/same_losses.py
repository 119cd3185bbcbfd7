"""Whether two checkouts of this project train alike: the same losses and the same weights, bit for bit.

    git worktree add ../before COMMIT
    python scripts/benchmarks/same_losses.py ../before . --multi30k multi30k

It is for changes that must not affect training, such as an option that is off. Both checkouts run the first updates of
the first one's recipes, each process on one thread: `phrasebook` with 3,000 pairs, which makes two passes, and
`multi30k_en_de` if its text is given. Text is read into memory and as a stream, by one process and by two that
torchrun starts. The script compares all models and checkpoints of a run, its vocabulary, and everything that its log
says about an update except times and the epoch, which a stream may count differently. Give one checkout twice to see
whether its own training is repeatable.
The exit status is 0 if everything was equal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from checkouts import environment_of


SETTINGS = {
    "data.validation": "phrasebook:validation:20",
    "data.test": "{}",
    "training.logging_steps": 1,
    "training.average_last": 2,
    "training.predict_with_generate": "false",
    "decoding.num_beams": 1,
    "decoding.max_new_tokens": 12,
    "evaluation.metrics": "[exact_match]",
    "evaluation.examples": "[]",
}
TEXTS = {"memory": {}, "stream": {"data.stream": "true", "data.buffer_pairs": 1000}}
# Everything else in a record is a number that training has computed.
NOT_COMPARED = ("elapsed_seconds", "eval_runtime", "target_tokens_per_second", "train_runtime", "epoch")


def trained(checkout: Path, folder: Path, recipe: Path, processes: int, settings: dict) -> dict:
    """Trains in a new folder; returns everything that must be the same."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    words = [sys.executable, "-m", *(launcher if processes > 1 else []), "vanilla_transformer", "train", str(recipe)]
    words += [f"--{name}={value}" for name, value in settings.items()]
    folder.mkdir(parents=True)  # not a checkout: Python looks for modules there first
    environment = environment_of(checkout)
    done = subprocess.run(
        [*words, "--output", "run"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{checkout} could not train:\n{done.stderr}")
    run = folder / "run"
    records = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    vocabulary = (run / "tokenizer" / "tokenizer.json").read_bytes()
    return {
        "vocabulary": json.loads(vocabulary)["model"],
        **{
            f"{kind} of update {record['step']}": {k: v for k, v in record.items() if k not in NOT_COMPARED}
            for record in records
            for kind in ("loss", "eval_loss")
            if kind in record
        },
        **{str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("model.safetensors"))},
        "tokenizer.json": vocabulary,  # last: a difference may only concern text that does not occur here
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, help="the one whose recipes are trained, then the other")
    parser.add_argument("--multi30k", type=Path, metavar="FOLDER", help="with train.en and train.de, plain or .gz")
    parser.add_argument("--updates", type=int, default=60, metavar="N")
    args = parser.parse_args()
    recipes = {"phrasebook": {"data.train": "phrasebook:train:3000"}}
    if args.multi30k:
        recipes["multi30k_en_de"] = {"data.folder": args.multi30k.resolve()}
    ends = {"training.max_steps": args.updates, "training.save_steps": args.updates // 2}
    ends["training.eval_steps"] = ends["training.save_steps"]
    differs = False
    print("| recipe | text | processes | compared | differs first in |\n| --- | --- | --- | --- | --- |", flush=True)
    for name, text, processes in product(recipes, TEXTS, (1, 2)):
        recipe = args.checkouts[0].resolve() / "vanilla_transformer" / "recipes" / f"{name}.yaml"
        settings = SETTINGS | ends | recipes[name] | TEXTS[text]
        with tempfile.TemporaryDirectory() as place:
            before, after = (
                trained(checkout, Path(place, str(number)), recipe, processes, settings)
                for number, checkout in enumerate(args.checkouts)
            )
        first = next((what for what in before | after if before.get(what) != after.get(what)), None)
        differs |= first is not None
        print(f"| {name} | {text} | {processes} | {len(before)} | {first or '–'} |", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
