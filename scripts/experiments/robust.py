"""Plain and robust Multi30k models on text in other forms: how much BLEU each keeps, and whether that is chance.

    python scripts/experiments/robust.py --data multi30k --output runs/robust --seeds 1 2 3 --workers 2
    python scripts/experiments/robust.py --data multi30k --output runs/robust --seeds 1 2 3 --rungs \\
        --recase --respell --repunctuate

The models are the rungs of robust.yaml, the first one the baseline, trained as ladder.py trains. Finished work is not
repeated: training resumes, and translations of each run in each form are kept in it, in OUTPUT/RUNG/SEED/forms/SET, and
those with options in a folder named after them, such as recase_respell.
Scores are sacreBLEU with case, means and standard deviations over the seeds. "Kept" is the share of the same model's
clean BLEU. p is from approximate randomisation over the translations of all seeds, against the baseline in the same
form. Tokens are those of sources and references in that form, in the model's own vocabulary. With --recase, --respell
and --repunctuate, every model translates once as it is and once as `translate` does with these options.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rungs import bleu, folder_of, paired_p, parse_rungs, read_set, spread, train_rungs, training_minutes

from vanilla_transformer.data.forms import FORMS, texts_in_form
from vanilla_transformer.data.known_words import load_word_counts
from vanilla_transformer.data.tokenizer import load_tokenizer
from vanilla_transformer.evaluation.robustness import CLEAN
from vanilla_transformer.files import write_text
from vanilla_transformer.plots import plot_forms
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import Casing, Punctuation, Spelling, translate


RUNGS = Path(__file__).with_suffix(".yaml")
METRIC = "sacrebleu"


def test_sets_by_form(data: Path, name: str, forms: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Sources and references, as they are and in each form."""
    sources, references = read_set(data, name)
    sets = {CLEAN: (sources, references)}
    for form in forms:
        changed = texts_in_form(form, references) if FORMS[form].both_sides else references
        sets[form] = (texts_in_form(form, sources), changed)
    return sets


def translations(folder: RunFolder, sets: dict, place: Path, aids: Sequence[str] = ()) -> dict[str, list[str]]:
    """For each form, a finished run's translations of the sources: from the files in `place`, or made now."""
    found, model, counts = {}, None, load_word_counts(folder.tokenizer)
    for form, (sources, _) in sets.items():
        path = place / f"{form}.jsonl"
        if not path.exists():
            model = model or load_model(folder.path, "cpu")
            path.parent.mkdir(parents=True, exist_ok=True)
            options = {"casing": Casing(counts)} if "recase" in aids else {}
            options |= {"spelling": Spelling(model[1], counts)} if "respell" in aids and counts else {}
            options |= {"punctuation": Punctuation(counts)} if "repunctuate" in aids else {}
            write_text(path, "".join(f"{json.dumps(text)}\n" for text in translate(*model, sources, **options)))
            print(f"{path}: translated", flush=True)
        found[form] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found


def table(texts: dict[str, dict[int, dict]], sets: dict, runs: dict[str, list[RunFolder]]) -> Iterator[str]:
    """The table of texts by rung, seed and form: one row per form and rung."""
    baseline, *_ = texts
    for name, folders in runs.items():
        took = statistics.mean(map(training_minutes, folders))
        yield f"{name}: {took:.0f} minutes of training on one core, seeds {', '.join(map(str, texts[name]))}"
    yield "| form | model | tokens | BLEU | kept | against the first | p |\n| --- | --- |" + " ---: |" * 5
    tokenizers = {name: load_tokenizer(folder.tokenizer) for name, (folder, *_) in runs.items()}
    for form, (sources, references) in sets.items():
        for name, by_seed in texts.items():
            scores = {seed: bleu(found[form], references, METRIC) for seed, found in by_seed.items()}
            clean = [bleu(found[CLEAN], sets[CLEAN][1], METRIC) for found in by_seed.values()]
            kept = [100 * score / whole for score, whole in zip(scores.values(), clean, strict=True) if whole]
            tokens = sum(map(len, tokenizers[name]([*sources, *references]).input_ids))
            cells = [form, name, f"{tokens:,}", spread(scores.values())]
            cells += [f"{statistics.mean(kept):.1f} %" if kept else "", "", ""]
            if name != baseline and (seeds := [seed for seed in by_seed if seed in texts[baseline]]):
                pair = [[texts[rung][seed][form] for seed in seeds] for rung in (baseline, name)]
                below = [bleu(each, references, METRIC) for each in pair[0]]
                difference = statistics.mean(scores[seed] for seed in seeds) - statistics.mean(below)
                cells[5:] = [f"{difference:+.2f}", f"{paired_p(*pair, [references] * len(seeds), METRIC):.4f}"]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test-set", default="val", help="its name in --data")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM")
    parser.add_argument("--recase", action="store_true", help="translate capitals in sentence case")
    parser.add_argument("--respell", action="store_true", help="correct mistyped words first")
    parser.add_argument("--repunctuate", action="store_true", help="translate with the full stop that a line lacks")
    parser.add_argument("--picture", type=Path, help="where to draw the means")
    arguments, rungs = parse_rungs(parser, RUNGS, "--models")
    succeeded, output = train_rungs(arguments, rungs), arguments.output
    sets = test_sets_by_form(arguments.data, arguments.test_set, arguments.forms)
    chosen = [aid for aid in ("recase", "respell", "repunctuate") if getattr(arguments, aid)]
    texts: dict[str, dict[int, dict]] = {}
    runs: dict[str, list[RunFolder]] = {}
    for name, rung in rungs.items():
        for aids in ([], chosen) if chosen else ([],):
            label = " --".join([name, *aids])
            for seed in arguments.seeds:
                folder = folder_of(output, rung.name, seed)
                if folder.scores.exists():
                    place = folder.path / "_".join(aids or ["forms"]) / arguments.test_set  # it goes with the model
                    texts.setdefault(label, {})[seed] = translations(folder, sets, place, aids)
                    runs.setdefault(label, []).append(folder)
    if texts:
        print("\n".join(table(texts, sets, runs)))
    if arguments.picture and texts:
        means = {
            name: {
                form: statistics.mean(bleu(found[form], references, METRIC) for found in by_seed.values())
                for form, (_, references) in sets.items()
            }
            for name, by_seed in texts.items()
        }
        plot_forms(means, arguments.picture, metric=METRIC, title=f"Multi30k {arguments.test_set} in other forms")
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
