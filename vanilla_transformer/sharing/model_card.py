"""A model card made of nothing but the records that a run left in its folder."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from ..evaluation.scores import Score, score_translations
from ..files import text_lines
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run_folder import RunFolder, find_model
from ..training.recipe import Recipe, load_recipe
from .card_sections import (
    CITATION,
    architecture,
    as_text,
    fenced,
    how_to_use,
    in_table,
    languages,
    line,
    recipe_section,
)
from .parser_sections import LIMITS, SCORES, how_to_parse, what_a_parser_is


VARIANTS = ("sacrebleu", "sacrebleu_lowercase", "bleu_paper", "bleu_tokenized", "chrf", "chrf++", "ter")
"""The scores of a card: what the metrics of the recipe lack is computed from the translations that the run kept."""


def model_card(
    run: str | Path,
    *,
    title: str,
    repository: str = "user/name",
    license: str | None = None,
    datasets: Sequence[str] = (),
    picture: str = "learning_curve.png",
    command: str | None = None,
    examples: int = 10,
) -> str:
    """Writes down what a run did and how well: use, scores with signatures, data, recipe, hardware, translations.

    Args:
        run: The run folder.
        title: The card's heading, in one line.
        repository: Where the model is to be found, for the lines that load it.
        license: Name of the licence of the model, as the Hub knows it, say "apache-2.0".
        datasets: Names of the Hub's datasets that it was trained on, beside those that the recipe names.
        picture: Where the learning curve is expected, seen from the card.
        command: The command line that makes the run; the one that was typed if it is not given.
        examples: How many translations of the first test set to show: the best, the worst and the others at random.
            None of a parser's trees.

    Returns:
        Markdown with the metadata that the Hub reads at its head.

    Raises:
        FileNotFoundError: The run is not finished.
    """
    folder, title = RunFolder(run), line(title)
    recipe = load_recipe(folder.recipe)
    if not folder.finished.exists() or not folder.scores.exists():
        raise FileNotFoundError(f"The run in {folder.path} is not finished: go on with --resume.")
    scores = scores_of_tests(folder, recipe)
    corpora = {name: report.get("corpus", {}) for name, report in _read(folder.data).items()}
    metadata = _metadata(recipe, corpora, scores, title, license, datasets)
    sections = [
        f"---\n{metadata.to_yaml()}\n---",
        f"# {as_text(title)}",
        _what_it_is(folder, recipe),
        how_to_parse(repository) if recipe.is_parser else how_to_use(repository, recipe),
        _scores_section(scores, recipe),
        _limits_section(recipe),
        _data_section(folder, recipe),
        _training_section(folder, recipe, command),
        f"![Learning curve against updates]({picture})\n\n{_curve(folder)}",
        _all_scores(_read(folder.scores)),
        *([] if recipe.is_parser else [_examples_section(folder, recipe, examples)]),
        recipe_section(recipe),
        f"## Citation\n\n{CITATION}",
    ]
    return "\n\n".join(sections) + "\n"


def scores_of_tests(folder: RunFolder, recipe: Recipe) -> list[Score]:
    """All `VARIANTS`, and the recipe's other metrics, of the translations that a run kept of its test sets.

    Of trees the recipe's metrics alone. Of the validation set, if the recipe names no test set.
    """
    language = recipe.data.target_language
    variants = () if recipe.is_parser else VARIANTS
    metrics = list(dict.fromkeys([*variants, *recipe.evaluation.metrics]))
    found = []
    for test_set in _measured(recipe):
        rows = _translations(folder, test_set)
        hypotheses, references = ([row[name] for row in rows] for name in ("hypothesis", "reference"))
        found += score_translations(
            hypotheses, references, metrics, target_language=language, test_set=test_set, resamples=1000
        )
    return found


def _measured(recipe: Recipe) -> list[str]:
    return list(recipe.data.test) or ["validation"]


def _read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def _translations(folder: RunFolder, test_set: str) -> list[dict]:
    return [json.loads(line) for line in text_lines(folder.translations / f"{test_set}.jsonl")]


def _metadata(
    recipe: Recipe,
    corpora: Mapping[str, Mapping],
    scores: Sequence[Score],
    title: str,
    license: str | None,
    datasets: Sequence[str],
) -> ModelCardData:
    named = [corpus["hub"] for corpus in corpora.values() if "hub" in corpus]
    task = {
        "task_type": "translation",
        "task_name": f"Translation {recipe.data.source_language}-{recipe.data.target_language}",
    }
    if recipe.is_parser:
        task = {"task_type": "other", "task_name": "Constituency parsing"}
    results = []
    for score in scores:
        where = corpora.get(score.test_set, {})
        results.append(
            EvalResult(
                **task,
                dataset_type=where.get("hub", score.test_set),
                dataset_name=score.test_set,
                dataset_config=where.get("config"),
                dataset_split=where.get("split"),
                dataset_revision=where.get("revision"),
                metric_type=_kind_of(score.metric),
                metric_name=score.metric,
                metric_value=round(score.value, 2),
                metric_args={"signature": score.signature, **_interval(score)},
            )
        )
    kind, spoken = "translation", languages(recipe)
    if recipe.is_parser:
        kind, spoken = "constituency-parsing", {"language": spoken["language"][0]}
    return ModelCardData(
        **spoken,
        license=license,
        library_name="transformers",
        pipeline_tag=None if recipe.is_parser else "translation",
        tags=["vanilla_transformer", kind, "attention-is-all-you-need"],
        datasets=list(dict.fromkeys([*named, *datasets])) or None,
        metrics=sorted({_kind_of(score.metric) for score in scores}),
        model_name=title,
        eval_results=results,
    )


def _kind_of(metric: str) -> str:
    """The Hub's name for a metric and its variants: "bleu" of "bleu_paper", "chrf" of "chrf++"."""
    return metric.partition("_")[0].rstrip("+")


def _what_it_is(folder: RunFolder, recipe: Recipe) -> str:
    config = VanillaTransformerConfig.from_pretrained(find_model(folder.path))
    if recipe.is_parser:
        return what_a_parser_is(config, recipe)
    return (
        f"Translates from {recipe.data.source_language} into {recipe.data.target_language}. "
        f"{as_text(recipe.description)}\n\n"
        f"{architecture(config)} Trained from random weights."
    )


def _interval(score: Score) -> dict[str, float]:
    """Half the width of the 95 % interval; a single sentence has none."""
    return {} if score.confidence is None else {"confidence": round(score.confidence, 2)}


def _spread(score: Score) -> str:
    return "–" if score.confidence is None else f"{score.mean:.2f} ± {score.confidence:.2f}"


def _scores_section(scores: Sequence[Score], recipe: Recipe) -> str:
    rows = [
        f"| {score.test_set} | {score.metric} | {score.value:.2f} | {_spread(score)} | "
        f"{score.detail} | {in_table(score.signature)} |"
        for score in scores
    ]
    caution = (
        ""
        if recipe.data.test
        else (
            "\n\nThe recipe names no test set. These are of the validation set, which the run itself has looked at: of "
            "other text the scores are lower."
        )
    )
    head = "| test set | metric | score | 95 % of 1,000 bootstrap samples | detail | signature |\n"
    meaning = (
        "Of the translations in `translations/`, against the untouched references. Report `sacrebleu` first; two "
        "numbers are comparable only if their signatures agree (`ter`: lower is better)."
    )
    return (
        f"## How good it is\n\n{SCORES if recipe.is_parser else meaning}{caution}\n\n"
        f"{head}| --- | --- | ---: | ---: | --- | --- |\n" + "\n".join(rows)
    )


def _limits_section(recipe: Recipe) -> str:
    if recipe.is_parser:
        return LIMITS
    return (
        "## What it is for, and what not\n\nResearch and teaching: it shows what the paper's model learns from the "
        f"data below. It knows the words and the style of that data alone, from {recipe.data.source_language} into "
        f"{recipe.data.target_language}, a sentence at a time; of other text it makes fluent nonsense, and where it "
        "leaves something out or turns it round nothing says so. Nobody should rely on it unchecked: not in medicine, "
        "law or any emergency, and not to decide about people. It repeats the prejudices of its data, for instance "
        "about who is a man and who a woman."
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
    return f"## Training data ({languages})\n\n{head}" + "\n".join(lines)


def _where(corpus: dict) -> str:
    """The place on the Hub that a corpus was read from."""
    if "hub" not in corpus:
        return ""
    place = " ".join(filter(None, (corpus["hub"], corpus["config"], corpus["split"])))
    return f" ({place} at {corpus['revision'][:12]})"


def _training_section(folder: RunFolder, recipe: Recipe, command: str | None) -> str:
    log, environment = folder.log_records(), _read(folder.environment)
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    threads = f"{environment['threads']} thread{'s' * (environment['threads'] > 1)}"
    precision = f"in {environment['precision']}, " if "precision" in environment else ""
    hardware = environment["accelerator"] or f"{environment['cpu_cores']} cores of {environment['processor']}"
    minutes = max(record["elapsed_seconds"] for record in log) / 60
    command = command or environment.get("command") or "vanilla-transformer train recipe.yaml"
    return (
        f"## Training\n\n{fenced(command)}\n\n{log[-1]['step']:,} updates, {log[-1]['epoch']:.1f} epochs, in "
        f"{minutes:.1f} minutes of training (validation not counted) on {hardware}, {threads}, "
        f"{precision}seed {recipe.training.get('seed', 42)}. Versions: Python {environment['python']}, {packages}. The "
        "recipe as it was resolved is below, and in `recipe.yaml`."
    )


def _all_scores(scores: Sequence[Mapping]) -> str:
    lines = [f"| {s['model']} | {s['test_set']} | {s['metric']} | {s['value']:.2f} |" for s in scores]
    head = "| model | set | metric | score |\n| --- | --- | --- | ---: |\n"
    return (
        "## What averaging brought\n\n`averaged`: the mean of the last checkpoints' weights; `best`: the checkpoint "
        "that was best on the validation set; `last`: the last checkpoint.\n\n"
        + head
        + "\n".join(lines)
        + "".join(f"\n\n{sentence}" for sentence in _gains(scores))
    )


def _gains(scores: Sequence[Mapping]) -> list[str]:
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
    records = [record for record in folder.log_records() if "eval_loss" in record]
    columns = {"validation loss (nats per token)": ("eval_loss", 3), "perplexity": ("eval_perplexity", 2)}
    if any("eval_bleu" in record for record in records):
        columns["BLEU"] = ("eval_bleu", 2)
    lines = [["update", "minutes", *columns], ["---:"] * (2 + len(columns))]
    for record in records:
        numbers = [_number(record.get(name), digits) for name, digits in columns.values()]
        lines.append([f"{record['step']:,}", f"{record['elapsed_seconds'] / 60:.1f}", *numbers])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _examples_section(folder: RunFolder, recipe: Recipe, examples: int) -> str:
    test_set = _measured(recipe)[0]
    rows = sorted(_translations(folder, test_set), key=_sentence_score, reverse=True)
    middle = random.Random(0).sample(rows[1:-1], max(0, min(examples, len(rows)) - 2))
    shown = [("best", rows[0]), *(("random", row) for row in middle), ("worst", rows[-1])][: len(rows)]
    blocks = [
        f"- {label} (chrF {_sentence_score(row):.1f})\n  - source: {as_text(row['source'])}\n"
        f"  - reference: {as_text(row['reference'])}\n  - model: {as_text(row['hypothesis'])}"
        for label, row in shown
    ]
    return (
        f"## Translations of {test_set}\n\nThe best and the worst by sentence-level chrF, and {len(middle)} drawn at "
        "random.\n\n" + "\n".join(blocks)
    )


def _sentence_score(row: dict) -> float:
    from sacrebleu import sentence_chrf

    return sentence_chrf(row["hypothesis"], [row["reference"]]).score
