"""The ladder from Multi30k's plain recipe to the best one: each rung adds something to the rung below it.

    python scripts/experiments/ladder.py --data multi30k --output runs/ladder --seeds 1 2 3 --workers 2
    python scripts/experiments/ladder.py --data multi30k --output runs/ladder --rungs --test --picture ladder.png

The rungs are in ladder.yaml. Every run is `vanilla-transformer train multi30k_en_de` with the overrides of its rung and
of all rungs below, in OUTPUT/RUNG/SEED, on one core of its own. Finished work is not repeated, and interrupted or
killed work is resumed. All rungs get their first seed before any gets its second,
except for teachers with seeds of their own.

A rung may learn from translations: `texts` names files of --data, the rungs whose models of the same seed translate
them (its teachers), and options of `vanilla-transformer backtranslate`. The translations are in
OUTPUT/RUNG/SEED.texts, "{texts}" in the rung's overrides. Its minutes include its teachers' and the translation's. A
teacher can have a seed of its own, as in `wide/2`; several teachers translate as an ensemble. "{ladder}" is OUTPUT, for
texts of other runs. Texts of the rung below are this one's, too, but for those that are null here. A rung that starts
from the weights of the one below it has `initial_model: "{below}"`, and its minutes include that one's. Minutes are
those of one core, as they were and as they would have been with nothing else on the machine ("quiet").

Rungs are chosen on the validation set. Test sets are read only with --test: then every finished run that has not been
tested yet translates them once, and OUTPUT/tests.jsonl says when. Scores are lower-cased tokenised BLEU, the score of
the published results, with half of the 95 % interval by bootstrap. "Against the rung below" is the difference of the
means of the seeds that both have, with the p-value of approximate randomisation over all translations of those seeds.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise, product
from pathlib import Path

from rungs import (
    METRIC,
    Rung,
    bleu,
    folder_of,
    of_seed,
    paired_p,
    parse_rungs,
    read_set,
    spread,
    texts_of,
    train_rungs,
    training_minutes,
    translations,
)

from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.files import write_text
from vanilla_transformer.plots.figures import COLORS, finish_axes, new_figure, save
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.translation import translate


LADDER = Path(__file__).with_suffix(".yaml")


def quiet_minutes(folder: RunFolder) -> float:
    """Minutes of training if nothing else runs: all updates at the pace of the fastest tenth of the records.

    Updates with R-Drop take at least twice as long. If it starts late, updates before and after have separate paces.
    """
    records = [record for record in folder.log_records() if "loss" in record]
    if not records:
        return training_minutes(folder)
    start, end = load_recipe(folder.recipe).training.get("r_drop_start", 0), records[-1]["step"]
    seconds = 0.0
    for first, last in ((0, min(start, end)), (min(start, end), end)):
        paces = [
            (after["elapsed_seconds"] - before["elapsed_seconds"]) / (after["step"] - before["step"])
            for before, after in pairwise(records)
            if first <= before["step"] < after["step"] <= last  # a killed run may repeat updates
        ]
        if last > first and not paces:
            return training_minutes(folder)
        seconds += (last - first) * sorted(paces)[len(paces) // 10] if paces else 0
    return seconds / 60


def minutes(rungs: dict[str, Rung], rung: Rung, seed: int, output: Path, of_training: Callable) -> float:
    """Minutes of training and translating on one core, for a rung and its teachers, each once; without validation."""
    needed, spent = [(rung.name, seed)], 0.0
    for name, its_seed in needed:  # the list grows
        teachers = {of_seed(teacher, its_seed): None for teacher in rungs[name].teachers}
        needed += [teacher for teacher in teachers if teacher not in needed]
        reports = texts_of(output, name, its_seed).glob("*/*.report.json")
        spent += sum(json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in reports) / 60
        spent += of_training(folder_of(output, name, its_seed))
    return spent


def parameters(folder: RunFolder) -> int:
    return load_model(folder.path, "cpu")[0].num_parameters()


Texts = dict[int, tuple[list[str], list[str]]]  # by seed: hypotheses and references


@dataclass
class Result:
    """The results of a rung: the folder of each seed, and by test set the texts of each seed."""

    rung: Rung
    runs: dict[int, RunFolder]
    texts: dict[str, Texts]

    def scores(self, test_set: str = "validation") -> dict[int, float]:
        return {seed: bleu(*texts) for seed, texts in self.texts.get(test_set, {}).items()}

    def cells(self, test_set: str, below: "Result | None") -> list[str]:
        """Mean and standard deviation over the seeds, half of a 95 % interval, the difference from `below`, its p."""
        if not (scores := self.scores(test_set)):
            return [""] * 4
        intervals = [
            score_translations(*texts, [METRIC], target_language="de", resamples=1000)[0].confidence
            for texts in self.texts[test_set].values()
        ]
        cells = [spread(scores.values()), f"{statistics.mean(intervals):.2f}", "", ""]
        others = below.scores(test_set) if below else {}
        if seeds := [seed for seed in scores if seed in others]:
            these, references = zip(*(self.texts[test_set][seed] for seed in seeds), strict=True)
            texts_below = [below.texts[test_set][seed][0] for seed in seeds]
            difference = statistics.mean(scores[seed] - others[seed] for seed in seeds)
            cells[2:] = [f"{difference:+.2f}", f"{paired_p(texts_below, these, references):.4f}"]
        return cells


def results(rungs: dict[str, Rung], output: Path) -> dict[str, Result]:
    found = {}
    for name, rung in rungs.items():
        if "data.source_language" in rung.overrides:  # a teacher in the other direction
            continue
        folders = [RunFolder(path) for path in sorted((output / name).glob("*/")) if path.name.isdigit()]
        runs = {int(folder.path.name): folder for folder in folders if folder.scores.exists()}
        if runs:
            found[name] = Result(rung, runs, {"validation": {seed: translations(run) for seed, run in runs.items()}})
    return found


def table(rungs: dict[str, Rung], found: dict[str, Result], output: Path) -> Iterator[str]:
    """A row for each rung."""
    sets = list(dict.fromkeys(test_set for result in found.values() for test_set in result.texts))
    heads = ["rung", "adds", "parameters", "minutes", "quiet", "seeds"]
    for test_set in sets:
        heads += [test_set, "± 95 %", "against the rung below", "p"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- | --- |" + " ---: |" * (len(heads) - 2)
    for name, result in found.items():
        cells = [name, result.rung.adds, f"{parameters(next(iter(result.runs.values()))):,}"]
        for way in (training_minutes, quiet_minutes):
            spent = [minutes(rungs, result.rung, seed, output, way) for seed in result.runs]
            cells.append(f"{statistics.mean(spent):.0f}")
        cells.append(str(len(result.runs)))
        for test_set in sets:
            cells += result.cells(test_set, found.get(result.rung.below))
        yield f"| {' | '.join(cells)} |"


def draw(found: dict[str, Result], path: Path) -> None:
    """Draws a dot for each seed and a line at each mean, from the first rung at the bottom to the last at the top."""
    figure = new_figure(9, 1.5 + 0.4 * len(found), "Multi30k English-German, validation")
    axes = figure.subplots()
    for place, result in enumerate(found.values()):
        scores = list(result.scores().values())
        axes.plot(scores, [place] * len(scores), "o", color=COLORS[0], alpha=0.5, markeredgewidth=0)
        axes.plot([statistics.mean(scores)], [place], "|", color=COLORS[1], markersize=18, markeredgewidth=2)
    finish_axes(axes, whole_numbers=False)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlabel("lower-cased tokenised BLEU; a dot is a seed, a bar their mean")
    save(figure, path)


def test_once(found: dict[str, Result], data: Path, output: Path, names: Sequence[str]) -> None:
    """Lets every run that is not tested yet translate the test sets, and adds the texts to the results.

    OUTPUT/tests/RUNG/SEED.TEST_SET.jsonl keeps the texts, and OUTPUT/tests.jsonl says when each set was read.
    """
    for name, result in found.items():
        for (seed, folder), test_set in product(result.runs.items(), names):
            sources, references = read_set(data, test_set)
            path = output / "tests" / name / f"{seed}.{test_set}.jsonl"
            if not path.exists():
                model, tokenizer = load_model(folder.path, "cpu")
                hypotheses = translate(model, tokenizer, sources)
                now, score = datetime.now().astimezone().isoformat(timespec="seconds"), bleu(hypotheses, references)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, "".join(f"{json.dumps(text)}\n" for text in hypotheses))
                with (output / "tests.jsonl").open("a", encoding="utf-8") as file:
                    read = {"rung": name, "seed": seed, "test_set": test_set, "bleu": score, "read": now}
                    file.write(json.dumps(read) + "\n")
                print(f"{now}: {name} seed {seed} has translated {test_set}: {score:.2f}", flush=True)
            hypotheses = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            result.texts.setdefault(test_set, {})[seed] = hypotheses, references


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="let what is trained translate the test sets, once")
    parser.add_argument("--test-sets", nargs="+", default=["test_2016_flickr"], help="their names in --data")
    parser.add_argument("--picture", type=Path, help="where to draw the ladder")
    arguments, rungs = parse_rungs(parser, LADDER, "--ladder")
    succeeded, output = train_rungs(arguments, rungs), arguments.output
    found = results(rungs, output)
    if arguments.test:
        test_once(found, arguments.data, output, arguments.test_sets)
    print("\n".join(table(rungs, found, output)))
    if arguments.picture and found:
        draw(found, arguments.picture)
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
