"""A model card made of nothing but the records that a run left in its folder."""

import json
import random
from pathlib import Path

from ..run_folder import RunFolder
from ..training.recipe import Recipe, load_recipe


def model_card(run: str | Path, *, title: str, command: str, examples: int = 10) -> str:
    """Writes down what a run did and how well: recipe, data, hardware, time, scores with signatures, translations.

    Args:
        run: The run folder.
        title: The card's heading.
        command: The command line that made the run.
        examples: How many translations of the first test set to show: the best, the worst and the others at random.

    Returns:
        Markdown. The learning curve is expected beside the card as `learning_curve.png`.

    Raises:
        FileNotFoundError: The run is not finished.
        ValueError: The recipe names no test set.
    """
    folder = RunFolder(run)
    recipe = load_recipe(folder.recipe)
    if not recipe.data.test:
        raise ValueError(f"{folder.recipe} has nothing under data.test: a card shows translations of a test set.")
    if not folder.finished.exists() or not folder.scores.exists():
        raise FileNotFoundError(f"The run in {folder.path} is not finished: go on with --resume.")
    scores = _read(folder.scores)
    sections = [
        f"# {title}",
        recipe.description,
        f"Made by\n\n```\n{command}\n```",
        _training_section(folder),
        _data_section(folder, recipe),
        _scores_section(scores),
        f"![Loss, and BLEU on the validation set against updates and minutes](learning_curve.png)\n\n{_curve(folder)}",
        _examples_section(folder, recipe, examples),
        f"## Recipe\n\n```yaml\n{recipe.to_yaml()}```",
    ]
    return "\n\n".join(sections) + "\n"


def _read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def _training_section(folder: RunFolder) -> str:
    log, environment = folder.log_records(), _read(folder.environment)
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    hardware = environment["accelerator"] or f"{environment['cpu_cores']} cores of {environment['processor']}"
    minutes = max(record["elapsed_seconds"] for record in log) / 60
    return (
        f"## Training\n\n{log[-1]['step']:,} updates, {log[-1]['epoch']:.1f} epochs, in {minutes:.1f} minutes of "
        f"training (validation not counted) on {hardware}, {environment['threads']} threads. Versions: Python "
        f"{environment['python']}, {packages}."
    )


def _data_section(folder: RunFolder, recipe: Recipe) -> str:
    lines = []
    for name, report in _read(folder.data).items():
        where, counts = _where(report.get("corpus", {})), ["as a stream", "", "", "", ""]
        if "pairs" in report:
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items()) or "none"
            tokens = f"{report['source_tokens']:,}", f"{report['target_tokens']:,}"
            counts = [f"{report['pairs']:,}", f"{report['kept']:,}", dropped, *tokens]
        lines.append(f"| {name}{where} | {' | '.join(counts)} | `{report['fingerprint'][:16]}` |")
    head = "| set | pairs | kept | dropped | source tokens | target tokens | fingerprint |\n| --- "
    head += "| ---: | ---: | --- | ---: | ---: | --- |\n"
    languages = f"{recipe.data.source_language} to {recipe.data.target_language}"
    return f"## Data ({languages})\n\n{head}" + "\n".join(lines)


def _where(corpus: dict) -> str:
    """The place on the Hub that a corpus was read from."""
    if "hub" not in corpus:
        return ""
    place = " ".join(filter(None, (corpus["hub"], corpus["config"], corpus["split"])))
    return f" ({place} at {corpus['revision'][:12]})"


def _scores_section(scores: list[dict]) -> str:
    lines = [
        f"| {s['model']} | {s['test_set']} | {s['metric']} | {s['value']:.2f} | {s['detail']} | `{s['signature']}` |"
        for s in scores
    ]
    head = "| model | set | metric | score | detail | signature |\n| --- | --- | --- | ---: | --- | --- |\n"
    return (
        "## Scores\n\n`averaged`: the mean of the last checkpoints' weights, which is the model to use; `best`: the "
        "checkpoint that was best on the validation set; `last`: the last checkpoint.\n\n"
        + head
        + "\n".join(lines)
        + "".join(f"\n\n{sentence}" for sentence in _gains(scores))
    )


def _gains(scores: list[dict]) -> list[str]:
    """What averaging adds to single checkpoints, by the first metric of each set."""
    values = {(s["test_set"], s["metric"], s["model"]): s["value"] for s in scores}
    sentences = []
    for test_set in dict.fromkeys(s["test_set"] for s in scores):
        metric = next(s["metric"] for s in scores if s["test_set"] == test_set)
        averaged, last = (values.get((test_set, metric, model)) for model in ("averaged", "last"))
        if averaged is not None and last is not None:
            sentences.append(
                f"On {test_set} averaging changes {metric} from the last checkpoint's {last:.2f} to {averaged:.2f} "
                f"({averaged - last:+.2f})."
            )
    return sentences


def _curve(folder: RunFolder) -> str:
    rows = [
        f"| {record['step']:,} | {record['elapsed_seconds'] / 60:.1f} | {_number(record['eval_loss'], 3)} | "
        f"{_number(record['eval_perplexity'], 2)} | {_number(record.get('eval_bleu'), 2)} |"
        for record in folder.log_records()
        if "eval_loss" in record
    ]
    head = "| update | minutes | validation loss (nats per token) | perplexity | BLEU |\n| ---: | ---: | ---: | ---: "
    return f"{head}| ---: |\n" + "\n".join(rows)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _examples_section(folder: RunFolder, recipe: Recipe, examples: int) -> str:
    test_set = next(iter(recipe.data.test))
    lines = (folder.translations / f"{test_set}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=_sentence_score, reverse=True)
    middle = random.Random(0).sample(rows[1:-1], max(0, min(examples, len(rows)) - 2))
    shown = [("best", rows[0]), *(("random", row) for row in middle), ("worst", rows[-1])]
    blocks = [
        f"- {label} (chrF {_sentence_score(row):.1f})\n  - source: {row['source']}\n  - reference: {row['reference']}\n"
        f"  - model: {row['hypothesis']}"
        for label, row in shown
    ]
    return (
        f"## Translations of {test_set}\n\nThe best and the worst by sentence-level chrF, and {len(middle)} drawn at "
        "random.\n\n" + "\n".join(blocks)
    )


def _sentence_score(row: dict) -> float:
    from sacrebleu import sentence_chrf

    return sentence_chrf(row["hypothesis"], [row["reference"]]).score
