"""What noise costs a model, and how much cleaning wins back: one training each on original, spoiled and cleaned text.

    python scripts/experiments/won_back.py ../shared/data/tatoeba_en_de/tatoeba.en-de.tsv.gz --output runs/won_back \\
        --foreign ../shared/data/newstest/newstest2013.fr --seeds 1 2

Tatoeba is split by English sentence as in adapt.py, and its training part is spoiled as in dirty.py: a fifth of the
pairs, by ten kinds of noise. `clean` goes over the spoiled text twice, the second time with the scores of two small
models trained on what the first has kept. Then the recipe multi30k_en_de is trained on each text for the same number of
updates. Validation and test sets are never spoiled; each model translates the test set once, and nothing is chosen by
it. Scores are sacreBLEU. "Won back" is the share of what noise cost on average over the seeds; p is from approximate
randomisation over the translations of all seeds, against the model of the spoiled text.

Finished work is not repeated, and interrupted or killed work is resumed.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from adapt import HELD_OUT, split
from dirty import foreign_lines, spoiled
from rungs import bleu, paired_p, spread, translations

from vanilla_transformer.command_processes import run_command
from vanilla_transformer.files import text_lines, write_text
from vanilla_transformer.run.folder import RunFolder


TEST = "tatoeba_test"
KEEP_BEST = 0.97  # of the pairs that the rules keep: they leave about 2 % of wrong pairs, and a few others
ROWS = {"original": "the text as it was", "spoiled": "a fifth of it spoiled", "cleaned": "spoiled, then cleaned"}


def train_words(corpus: list[str], held_out: Path, output: Path, seed: int, steps: int, to: str = "de") -> list[str]:
    """The command that trains the recipe for `steps` updates of 2,048 tokens; `corpus` is English, then German."""
    pairs = {
        "train": corpus,
        "validation": [str(held_out / f"validation.{language}.gz") for language in ("en", "de")],
        f"test.{TEST}": [str(held_out / f"test.{language}.gz") for language in ("en", "de")],
    }
    words = ["train", "multi30k_en_de", "--output", str(output), "--resume", "--data.test", "{}"]
    if to == "en":
        words += ["--data.source_language", "de", "--data.target_language", "en"]
        pairs = {name: files[::-1] for name, files in pairs.items() if name in ("train", "validation")}
    for name, files in pairs.items():
        words += [f"--data.{name}", json.dumps([str(Path(file).resolve()) for file in files])]
    options = {
        "model.dropout": 0.1,
        "training.max_tokens": 2048,
        "training.max_steps": steps,
        "training.warmup_steps": min(1000, steps // 4),
        "training.cooldown_steps": steps // 4,
        "training.eval_steps": 500,
        "training.save_steps": 500,
        "training.average_last": 4,
        "training.seed": seed,
    }
    return words + [word for name, value in options.items() for word in (f"--{name}", str(value))]


def trained(words: list[str]) -> RunFolder:
    run = RunFolder(Path(words[words.index("--output") + 1]))
    if not run.scores.exists():  # written last
        run_command(words)
    return run


def spoil(held_out: Path, foreign: Path, output: Path, seed: int) -> None:
    """Writes the spoiled training text as two files of lines, and the kind of noise of each pair."""
    pairs = list(zip(*(text_lines(held_out / f"train.{side}.gz") for side in ("en", "de")), strict=True))
    dirty, kinds = spoiled(pairs, foreign_lines(foreign), seed)
    for name, lines in {"en": [pair[0] for pair in dirty], "de": [pair[1] for pair in dirty], "kinds": kinds}.items():
        write_text(output / f"spoiled.{name}", "".join(f"{line}\n" for line in lines))


def cleaned(corpus: list[str], held_out: Path, output: Path, steps: int) -> list[str]:
    """The two files that `clean` leaves of a corpus, by its rules and then by scores."""
    words = ["clean", *corpus, "--source-language", "en", "--target-language", "de", "--output"]
    files = {}
    for name in ("rules", "scored"):
        folder = output / name
        files[name] = [str(folder / f"clean.{language}.gz") for language in ("en", "de")]
        options = []
        if name == "scored":
            models = [
                trained(train_words(files["rules"], held_out, output / f"scorer.{to}", 1, steps, to)).path
                for to in ("de", "en")
            ]
            options = ["--score-models", *map(str, models), "--keep-best", str(KEEP_BEST)]
        if not (folder / "report.json").exists():
            run_command([*words, str(folder), *options])
    return files["scored"]


def rows_of(runs: dict[str, list[RunFolder]], pairs: dict[str, int]) -> Iterator[str]:
    """The table, and how much was won back."""
    yield "| trained on | pairs | seeds | BLEU | against spoiled | p |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    found = {name: [translations(run, TEST) for run in each] for name, each in runs.items()}
    scores = {name: [bleu(*each, metric="sacrebleu") for each in sets] for name, sets in found.items()}
    means = {name: statistics.mean(each) for name, each in scores.items()}
    references = [references for _, references in found["spoiled"]]
    for name, each in scores.items():
        cells = [ROWS[name], f"{pairs[name]:,}", str(len(each)), spread(each)]
        if name == "spoiled":
            cells += ["", ""]
        else:
            hypotheses = ([hypotheses for hypotheses, _ in found[of]] for of in ("spoiled", name))
            p = paired_p(*hypotheses, references, metric="sacrebleu")
            cells += [f"{means[name] - means['spoiled']:+.2f}", f"{p:.4f}"]
        yield f"| {' | '.join(cells)} |"
    cost, won = means["original"] - means["spoiled"], means["cleaned"] - means["spoiled"]
    yield f"\nNoise cost {cost:.2f} BLEU, and cleaning won back {won:.2f}" + (
        f": {won / cost:.0%}." if cost > 0 else "."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="English TAB German on each line")
    parser.add_argument("--foreign", type=Path, required=True, help="text in a third language")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=4_000, help="updates of each model; of the scoring ones a third")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="sentences for validation, and for testing")
    arguments = parser.parse_args()
    output, steps = arguments.output, arguments.steps
    held_out = output / "tatoeba"
    if not (held_out / "train.de.gz").exists():  # written last
        split(arguments.corpus, held_out, arguments.held_out)
    if not (output / "spoiled.kinds").exists():  # also written last
        spoil(held_out, arguments.foreign, output, seed=1)
    texts = {
        "original": [str(held_out / f"train.{side}.gz") for side in ("en", "de")],
        "spoiled": [str(output / f"spoiled.{side}") for side in ("en", "de")],
    }
    texts["cleaned"] = cleaned(texts["spoiled"], held_out, output, steps // 3)
    runs: dict[str, list[RunFolder]] = {name: [] for name in texts}
    for seed in arguments.seeds:
        for name, files in texts.items():
            runs[name].append(trained(train_words(files, held_out, output / f"{name}.{seed}", seed, steps)))
    pairs = {name: sum(1 for _ in text_lines(Path(files[0]))) for name, files in texts.items()}
    print("\n".join(rows_of(runs, pairs)))


if __name__ == "__main__":
    main()
