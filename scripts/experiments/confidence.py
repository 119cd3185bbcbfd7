"""What a model's confidence is worth: its calibration error, its correlation with chrF, and BLEU of the surest 80 %.

    python scripts/experiments/confidence.py runs/multi30k_en_de multi30k --json figures.json --picture confidence.png

A random half of the validation set is for calibration, and the other half for measurement; the numbers are means over
--splits such draws. `--dropout-samples 20` adds the signals that need passes with dropout. `--test` instead calibrates
on the whole validation set and measures once, on the test set.

Each row is a choice of signals. "by chance" is the calibration error that perfect calibration shows on so few
sentences. BLEU of the most confident 80 % stands beside that of all and of a random 80 %; risk is the share of bad
translations.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vanilla_transformer.data.readers import plain_or_packed
from vanilla_transformer.evaluation.confidence import fit_logistic, most_confident
from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.files import text_lines
from vanilla_transformer.model.confidence_vanilla_transformer import PLAIN_SIGNALS, SIGNALS, Calibration, log_signal
from vanilla_transformer.plots import plot_confidence
from vanilla_transformer.run.loading import load_engine
from vanilla_transformer.translation.calibrating import Judged, Measured, judged_translations


COVERAGE = 0.8
COLUMNS = {
    "calibration error": "expected_calibration_error",
    "by chance": "expected_calibration_error_by_chance",
    "Pearson": "pearson",
    "Spearman": "spearman",
    "risk, all": "risk",
    "risk, 80 %": "risk_of_surest",
    "BLEU, all": "bleu",
    "BLEU, any 80 %": "bleu_of_random",
    "BLEU, surest 80 %": "bleu_of_surest",
}


def judged_set(loaded, folder: Path, split: str, options: argparse.Namespace) -> list[tuple[Judged, str]]:
    """Translations of a set, each with its reference."""
    files = [plain_or_packed(folder / f"{split}.{language}") for language in (options.source, options.target)]
    texts = [list(text_lines(file)) for file in files]
    pairs = [pair for pair in zip(*texts, strict=True) if pair[0].strip()][: options.sentences]
    sources, references = map(list, zip(*pairs, strict=True))
    passes = {"dropout_samples": options.dropout_samples, "seed": 0}
    return list(zip(judged_translations(*loaded, sources, [references], **passes), references, strict=True))


def calibrated(judged: Sequence[Judged], names: Sequence[str], options: argparse.Namespace) -> Calibration:
    rows = [[log_signal(name, each.likelihood.tokens, each.likelihood.samples) for name in names] for each in judged]
    intercept, weights = fit_logistic(np.array(rows), [each.chrf >= options.threshold for each in judged])
    weights = dict(zip(names, weights.tolist(), strict=True))
    return Calibration(options.threshold, intercept, weights, options.dropout_samples)


def bleu(pairs: Sequence[tuple[Judged, str]], chosen: Sequence[int]) -> float:
    texts, references = [pairs[i][0].text for i in chosen], [pairs[i][1] for i in chosen]
    return score_translations(texts, references, ["sacrebleu"], target_language="und")[0].value


def measured(calibration: Calibration, pairs: Sequence[tuple[Judged, str]]) -> tuple[dict, Measured]:
    """The numbers of a row, on translations that the calibration has not seen."""
    found = Measured.of(calibration, [judged for judged, _ in pairs])
    surest = most_confident(found.confidences, COVERAGE)
    anyhow = np.random.default_rng(0).permutation(len(pairs))[: len(surest)].tolist()
    bad = 1 - np.array(found.good, dtype=float)
    row = found.summary() | {"risk": bad.mean(), "risk_of_surest": bad[surest].mean()}
    row |= {"bleu": bleu(pairs, range(len(pairs))), "bleu_of_surest": bleu(pairs, surest)}
    return row | {"bleu_of_random": bleu(pairs, anyhow)}, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run folder, or a model's folder")
    parser.add_argument("data", type=Path, help="folder of val.en, val.de and the test set, packed or not")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--threshold", type=float, default=50.0, help="chrF from which a translation is good")
    parser.add_argument("--dropout-samples", type=int, default=0)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--sentences", type=int, help="only so many of each set")
    parser.add_argument("--test", metavar="NAME", help="measure on this set, say test_2016_flickr")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="of the default signals, on the first split")
    options = parser.parse_args()
    loaded = load_engine([options.model])
    validation = judged_set(loaded, options.data, "val", options)
    splits = [(validation, judged_set(loaded, options.data, options.test, options))] if options.test else []
    for seed in range(0 if options.test else options.splits):
        order = np.random.default_rng(seed).permutation(len(validation))
        parts = np.array_split(order, 2)
        splits.append(tuple([validation[i] for i in part] for part in parts))
    choices = [PLAIN_SIGNALS, PLAIN_SIGNALS[:1], PLAIN_SIGNALS[1:]]
    if options.dropout_samples:
        choices += [("dropout_surprisal",), tuple(SIGNALS)]
    figures = {}
    for names in choices:
        rows = []
        for fitted_on, rest in splits:
            row, found = measured(calibrated([judged for judged, _ in fitted_on], names, options), rest)
            rows.append(row)
            if options.picture and names == PLAIN_SIGNALS and len(rows) == 1:
                good = f"chrF of {options.threshold:g} or more"
                plot_confidence(found.confidences, found.good, options.picture, good_means=good)
        values = {key: [row[key] for row in rows] for key in COLUMNS.values()}
        figures[", ".join(names)] = {
            key: {"mean": float(np.mean(each)), "deviation": float(np.std(each))} for key, each in values.items()
        }
    print("| signals | " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " ---: |" * len(COLUMNS))
    for name, row in figures.items():
        print(f"| {name} | " + " | ".join(_shown(key, row[key]["mean"]) for key in COLUMNS.values()) + " |")
    if options.json:
        record = {"sentences": len(validation), "splits": len(splits), "set": options.test or "half of val"}
        options.json.write_text(json.dumps({**record, "rows": figures}, indent=2) + "\n", encoding="utf-8")


def _shown(key: str, value: float) -> str:
    if key.startswith("risk"):
        return f"{100 * value:.1f} %"
    return f"{value:.1f}" if key.startswith("bleu") else f"{value:.3f}"


if __name__ == "__main__":
    main()
