"""English into German and French on Multi30k: one model for both beside one for each; and French to German, untrained.

    python scripts/experiments/languages.py --data multi30k --output runs/languages --minutes 10

Every direction gets the same training time: a model of n directions trains n times as long as a model of one. `pivot`
learns English-German and English-French both ways, and French-German is zero-shot; `all` learns that, too. Finished
models are not trained again, and interrupted work is resumed. Scores are on the validation set, which all languages
share.
"""

import argparse
import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path

from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.files import read_json, text_lines, write_json
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import translate


MODELS = {
    "en-de": [("en", "de")],
    "en-fr": [("en", "fr")],
    "fr-de": [("fr", "de")],
    "one-to-two": [("en", "de"), ("en", "fr")],
    "pivot": [("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en")],
    "all": list(permutations(("en", "de", "fr"), 2)),
}
SCORED = [("en", "de"), ("en", "fr"), ("fr", "de")]


def train(name: str, data: Path, output: Path, minutes: float) -> None:
    """Trains a model, or resumes its training; raises CalledProcessError if that fails."""
    corpora, validation = [], []
    for source, target in MODELS[name]:
        languages = {"source_language": source, "target_language": target}
        corpora.append({"corpus": [f"train.{source}", f"train.{target}"], **languages})
        validation.append({"corpus": [f"val.{source}", f"val.{target}"], **languages})
    own = {"data.source_language": MODELS[name][0][0], "data.target_language": MODELS[name][0][1]}
    overrides = {
        "data.folder": str(data.resolve()),
        "data.train": json.dumps(corpora),
        "data.validation": json.dumps(validation),
        "data.test": "{}",
        **own,
        "training.max_tokens": 2048,
        "training.max_minutes": minutes * len(MODELS[name]),
        # With 1,000 updates of warm-up and a dropout of 0.3, `pivot` did not learn to read its source in 16 minutes.
        "training.warmup_steps": 2000,
        "model.dropout": 0.1,
        "training.average_last": 6,
        "evaluation.examples": "[]",
    }
    words = [word for field, value in overrides.items() for word in (f"--{field}", str(value))]
    command = [sys.executable, "-m", "vanilla_transformer", "train", "multi30k_en_de"]
    subprocess.run([*command, *words, "--output", str(output / name), "--resume"], check=True)


def score(name: str, data: Path, output: Path, source: str, target: str) -> float:
    """BLEU (sacreBLEU) of one direction on the validation set."""
    model, tokenizer = load_model(output / name, "cpu")
    sources, references = (list(text_lines(data / f"val.{side}")) for side in (source, target))
    several = len({into for _, into in MODELS[name]}) > 1
    found = translate(model, tokenizer, sources, to=target if several else None)
    return score_translations(found, [references], ["sacrebleu"], target_language=target)[0].value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of Multi30k's files, with French")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="training time of each direction")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    args = parser.parse_args()
    plan = args.output / "minutes.json"
    began = read_json(plan)["minutes"] if plan.exists() else args.minutes
    if began != args.minutes:
        parser.error(f"--minutes: the runs in {args.output} have {began:g}: give that, or another --output.")
    args.output.mkdir(parents=True, exist_ok=True)
    write_json(plan, {"minutes": began})
    print(f"| model | minutes | {' | '.join(f'{source} to {target}' for source, target in SCORED)} |")
    print(f"| --- |{' ---: |' * (1 + len(SCORED))}")
    for name in args.models:
        if not RunFolder(args.output / name).scores.exists():
            train(name, args.data, args.output, args.minutes)
        place = args.output / f"{name}.bleu.json"
        if not place.exists():
            sources, targets = ({pair[side] for pair in MODELS[name]} for side in (0, 1))
            able = [pair for pair in SCORED if pair[0] in sources and pair[1] in targets]
            write_json(place, {"-".join(pair): score(name, args.data, args.output, *pair) for pair in able})
        values = json.loads(place.read_text())
        cells = []
        for pair in SCORED:
            value = values.get("-".join(pair))
            unseen = "" if pair in MODELS[name] else " (zero-shot)"
            cells.append("" if value is None else f"{value:.2f}{unseen}")
        print(f"| {name} | {args.minutes * len(MODELS[name]):g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
