"""Model cards: of a run, made only from the records in its folder; and of a model that came without any."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from ..data.languages import target_languages
from ..data.tokenizer import knows_capitals
from ..evaluation.metrics import build_metric, without_words
from ..evaluation.scores import Score, score_translations
from ..files import read_json, text_lines
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run.folder import RunFolder, typed_to_resume
from ..run.loading import find_model, load_its_tokenizer
from ..run.recipe import Recipe, load_recipe
from .card_sections import (
    CITATION,
    architecture,
    as_text,
    fenced,
    how_to_classify,
    how_to_use,
    in_table,
    is_classifier,
    languages,
    line,
    markdown_table,
    recipe_section,
)


VARIANTS = ("sacrebleu", "sacrebleu_lowercase", "bleu_paper", "bleu_tokenized", "chrf", "chrf++", "ter")
"""The scores of a card: those that the recipe's metrics lack are computed from the translations that the run kept."""


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
        repository: Where the model will be, for the lines that load it.
        license: Name of the model's licence, as the Hub knows it, say "apache-2.0".
        datasets: Names of the Hub's datasets that it was trained on, besides those that the recipe names.
        picture: Where the learning curve is, relative to the card.
        command: The command line that makes the run; by default the one that was typed.
        examples: How many translations of the first test set to show: the best, the worst and others at random. A
            parser's trees are never shown.

    Returns:
        Markdown that begins with the metadata that the Hub reads.

    Raises:
        FileNotFoundError: The run is not finished.
    """
    folder, title = RunFolder(run), line(title)
    recipe = load_recipe(folder.recipe)
    if not folder.finished.exists() or not folder.scores.exists():
        raise FileNotFoundError(
            f"The run in {folder.path} is not finished. Go on: vanilla-transformer train --resume "
            f"{typed_to_resume(folder.path)}"
        )
    reports, records = read_json(folder.data), json.loads(folder.scores.read_text(encoding="utf-8"))
    scores = scores_of_tests(folder, recipe)
    corpora = {name: report.get("corpus", {}) for name, report in reports.items()}
    metadata = _metadata(recipe, corpora, scores, title, license, datasets)
    model = find_model(folder.path)
    config, has_capitals = VanillaTransformerConfig.from_pretrained(model), knows_capitals(load_its_tokenizer(model))
    begun_with = "random weights" if recipe.initial_model is None else f"the weights of {as_text(recipe.initial_model)}"
    return _joined(
        f"---\n{metadata.to_yaml()}\n---",
        f"# {as_text(title)}",
        f"{_task(recipe)} {as_text(recipe.description)}\n\n{architecture(config)} Trained from {begun_with}.",
        how_to_use(repository, recipe),
        _scores_section(scores, recipe, has_capitals),
        f"## Intended use and limits\n\n{_limits(recipe)}",
        _data_section(reports, recipe),
        _training_section(folder, recipe, command),
        f"![Learning curve against updates]({picture})\n\n{_curve(folder)}",
        _averaging_section(records),
        "" if recipe.is_parser else _examples_section(folder, recipe, examples),
        recipe_section(recipe),
        f"## Citation\n\n{CITATION}",
    )


def bare_card(
    model: str | Path, *, title: str, repository: str, license: str | None = None, datasets: Sequence[str] = ()
) -> str:
    """The card of a model that came without a run's records. The card says so. A recipe may lie beside the model.

    `model` is its folder; the rest is as for `model_card`, with the datasets of the Hub that it was trained on.
    """
    config = VanillaTransformerConfig.from_pretrained(model)
    file = Path(model) / "recipe.yaml"
    recipe = load_recipe(file) if file.is_file() and not is_classifier(config) else None
    has_tokenizer = (Path(model) / "tokenizer.json").is_file()
    into = list(target_languages(load_its_tokenizer(Path(model)))) if has_tokenizer else []
    task = "text-classification" if is_classifier(config) else "translation"
    metadata = ModelCardData(
        **(languages(recipe) if recipe else {}),
        license=license,
        library_name="transformers",
        pipeline_tag=None if recipe and recipe.is_parser else task,
        tags=["vanilla_transformer"],
        datasets=list(datasets) or None,
    )
    known = "neither data nor scores are known here" + (", beyond what the recipe says." if recipe else ".")
    return _joined(
        f"---\n{metadata.to_yaml()}\n---",
        f"# {as_text(title)}",
        f"{architecture(config)} This folder has no records of its training: {known}",
        how_to_classify(repository) if is_classifier(config) else how_to_use(repository, recipe, into),
        recipe_section(recipe) if recipe else "",
        f"## Citation\n\n{CITATION}",
    )


def _joined(*sections: str) -> str:
    return "\n\n".join(filter(None, sections)) + "\n"


def scores_of_tests(folder: RunFolder, recipe: Recipe) -> list[Score]:
    """Those `VARIANTS` that suit the language, and the recipe's other metrics, of a run's translated test sets.

    A recipe without test sets has its validation sets scored. Trees are scored only by the recipe's metrics.
    """
    found = []
    for test_set in recipe.data.test or recipe.data.measured:
        rows = _translations(folder, test_set)
        hypotheses, references = ([row[name] for row in rows] for name in ("hypothesis", "reference"))
        language = recipe.data.measured[test_set][2]
        variants = () if recipe.is_parser else [name for name in VARIANTS if _suits(name, language)]
        metrics = list(dict.fromkeys([*variants, *recipe.evaluation.metrics]))
        found += score_translations(
            hypotheses, references, metrics, target_language=language, test_set=test_set, resamples=1000
        )
    return found


def _suits(metric: str, language: str) -> bool:
    """Whether a metric finds words in a language, with the packages that are installed."""
    try:
        build_metric(metric, language)
    except ImportError:
        return False
    return not without_words([metric], language)


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
    def kind_of(metric: str) -> str:
        """The Hub's name for a metric and its variants: "bleu" for "bleu_paper", "chrf" for "chrf++"."""
        return metric if metric == "exact_match" else metric.partition("_")[0].rstrip("+")

    parts = [part["corpus"] for corpus in corpora.values() for part in corpus.get("mixture", [])]
    named = [corpus["hub"] for corpus in (*corpora.values(), *parts) if "hub" in corpus]
    own = (None, recipe.data.source_language, recipe.data.target_language)
    results = []
    for score in scores:
        if recipe.is_parser:
            task = {"task_type": "other", "task_name": "Constituency parsing"}
        else:
            pair = "-".join(recipe.data.measured.get(score.test_set, own)[1:])
            task = {"task_type": "translation", "task_name": f"Translation {pair}"}
        where = corpora.get(score.test_set, {})
        interval = {} if score.confidence is None else {"confidence": round(score.confidence, 2)}
        results.append(
            EvalResult(
                **task,
                dataset_type=where.get("hub", score.test_set),
                dataset_name=score.test_set,
                dataset_config=where.get("config"),
                dataset_split=where.get("split"),
                dataset_revision=where.get("revision"),
                metric_type=kind_of(score.metric),
                metric_name=score.metric,
                metric_value=round(score.value, 2),
                metric_args={"signature": score.signature, **interval},
            )
        )
    kind = "constituency-parsing" if recipe.is_parser else "translation"
    return ModelCardData(
        **languages(recipe),
        license=license,
        library_name="transformers",
        pipeline_tag=None if recipe.is_parser else "translation",
        tags=["vanilla_transformer", kind, "attention-is-all-you-need"],
        datasets=list(dict.fromkeys([*named, *datasets])) or None,
        metrics=sorted({kind_of(score.metric) for score in scores}),
        model_name=title,
        eval_results=results,
    )


def _task(recipe: Recipe) -> str:
    if recipe.is_parser:
        return (
            "Makes constituency trees of tokenised sentences, by writing them as sequences as if it translated "
            "(section 6.3 of the paper)."
        )
    return f"Translates from {recipe.data.from_to}."


def _scores_section(scores: Sequence[Score], recipe: Recipe, has_capitals: bool) -> str:
    if recipe.is_parser:
        meaning = (
            "`evalb` is labelled bracketing F1 by the rules of EVALB's COLLINS.prm, over all sentences: a malformed "
            "output is mended before it is scored, and the detail says how many needed none; punctuation is where the "
            "reference has it. The program EVALB, and the command `evalb`, leave out sentences in which a parser tags "
            "punctuation wrongly, so their F1 may differ."
        )
    else:
        names = {score.metric for score in scores}
        firsts = ("sacrebleu" if has_capitals else "sacrebleu_lowercase", "sacrebleu_char")
        first = next((name for name in firsts if name in names), None)
        meaning = (
            "These scores compare the translations in `translations/` with the untouched references. "
            + (f"Report `{first}` first; two numbers" if first else "Two numbers")
            + " are comparable only if their signatures agree (`ter`: lower is better)."
        )
        if not has_capitals:
            meaning += " The model writes no capitals, which scores with `case:mixed` count as mistakes."
    if not recipe.data.test:
        meaning += (
            "\n\nThe recipe names no test set. These are of the validation set, which the run itself has looked at: of "
            "other text the scores are lower."
        )
    rows = []
    for score in scores:
        spread = "–" if score.confidence is None else f"{score.mean:.2f} ± {score.confidence:.2f}"
        value = f"{score.value:.2f}"
        rows.append([score.test_set, score.metric, value, spread, score.detail, in_table(score.signature)])
    head = ["test set", "metric", "score", "95 % of 1,000 bootstrap samples", "detail", "signature"]
    return f"## How good it is\n\n{meaning}\n\n{markdown_table(head, rows, (2, 3))}"


def _limits(recipe: Recipe) -> str:
    if recipe.is_parser:
        return (
            "Research and teaching: it shows what the paper's model learns of syntax from the data below, and from "
            "nothing else. It expects sentences that are tokenised and written like those of that data. Its tree is a "
            "guess even where it looks right, and the model does not say how sure it is. No sentences or trees of the "
            "treebank are shown here: most treebanks may not be passed on."
        )
    context = recipe.data.context_sentences
    taken = f"with up to {context} before it" if context else "at a time"
    return (
        "Research and teaching: it shows what the paper's model learns from the data below. It knows the words and the "
        f"style of that data alone, from {recipe.data.from_to}, a sentence {taken}; it turns other text into fluent "
        "nonsense, and nothing warns you when it leaves something out or reverses its meaning. Nobody should rely on "
        "it unchecked: not in medicine, law or any emergency, and not to decide about people. It repeats the "
        "prejudices of its data, for instance about who is a man and who a woman."
    )


def _data_section(reports: Mapping[str, Mapping], recipe: Recipe) -> str:
    rows = []
    for name, report in reports.items():
        counts = ["as a stream", "", "", "", ""]
        if "pairs" in report:
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items()) or "none"
            tokens = f"{report['source_tokens']:,}", f"{report['target_tokens']:,}"
            counts = [f"{report['pairs']:,}", f"{report['kept']:,}", dropped, *tokens]
        corpus = report.get("corpus", {})
        rows.append([name + _place(corpus), *counts, f"`{report['fingerprint'][:16]}`"])
        for part in corpus.get("mixture", []):  # a corpus of several
            tag = f" with {in_table(part['tag'])} in front" if part["tag"] else ""
            often = f"each pair {part['copies']} times a pass" if part["copies"] > 1 else "each pair once a pass"
            # The folders of files are their owner's business.
            files = part.get("files") or [part["name"]]
            called = part["name"] if "hub" in part["corpus"] else " and ".join(Path(file).name for file in files)
            which = f"{name}: {as_text(called)}{_place(part['corpus'])}, {often}{tag}"
            pairs = "as a stream" if part["pairs"] is None else f"{part['pairs']:,}"
            rows.append([which, pairs, "", "", "", "", f"`{part['fingerprint'][:16]}`"])
    head = ["set", "pairs", "kept", "dropped", "source tokens", "target tokens", "fingerprint"]
    pair = recipe.data.from_to.replace(" into ", " to ")
    return f"## Training data ({pair})\n\n{markdown_table(head, rows, (1, 2, 4, 5))}"


def _place(corpus: Mapping) -> str:
    """Which data set of the Hub a corpus is, if any."""
    if "hub" not in corpus:
        return ""
    place = " ".join(filter(None, (corpus["hub"], corpus["config"], corpus["split"])))
    return f" ({place} at {corpus['revision'][:12]})"


def _training_section(folder: RunFolder, recipe: Recipe, command: str | None) -> str:
    log, environment = folder.log_records(), read_json(folder.environment)
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    threads = f"{environment['threads']} thread{'s' * (environment['threads'] > 1)}"
    precision = f"in {environment['precision']}, " if "precision" in environment else ""
    cores = "1 core" if environment["cpu_cores"] == 1 else f"{environment['cpu_cores']} cores"
    hardware = environment["accelerator"] or f"{cores} of {environment['processor']}"
    minutes = max(record["elapsed_seconds"] for record in log) / 60
    command = command or environment.get("command") or "vanilla-transformer train recipe.yaml"
    return (
        f"## Training\n\n{fenced(command)}\n\n{log[-1]['step']:,} updates, {log[-1]['epoch']:.1f} epochs, in "
        f"{minutes:.1f} minutes of training (validation not counted) on {hardware}, {threads}, "
        f"{precision}seed {recipe.training.get('seed', 42)}. Versions: Python {environment['python']}, {packages}. The "
        "recipe as it was resolved is below, and in `recipe.yaml`."
    )


def _averaging_section(scores: Sequence[Mapping]) -> str:
    """All scores of the run, and what averaging adds to a single checkpoint, by the first metric of each set."""
    values = {(s["test_set"], s["metric"], s["model"]): s["value"] for s in scores}
    gains = []
    for test_set in dict.fromkeys(s["test_set"] for s in scores):
        metric = next(s["metric"] for s in scores if s["test_set"] == test_set)
        averaged, last = (values.get((test_set, metric, model)) for model in ("averaged", "last"))
        if averaged is not None and last is not None:
            gains.append(
                f"\n\nOn {test_set} averaging changes {metric} from the last checkpoint's {last:.2f} to {averaged:.2f} "
                f"({averaged - last:+.2f})."
            )
    chosen = next((f" This model is `{s['model']}`, which validates best." for s in scores if s.get("chosen")), "")
    rows = [[s["model"], s["test_set"], s["metric"], f"{s['value']:.2f}"] for s in scores]
    table = markdown_table(["model", "set", "metric", "score"], rows, (3,))
    ema = "`ema`: the exponential moving average of the weights; " * any(s["model"] == "ema" for s in scores)
    return (
        f"## What averaging brought\n\n`averaged`: the mean of the last checkpoints' weights; {ema}`best`: the "
        "checkpoint that was best on the validation set while training; `last`: the last checkpoint."
        f"{chosen}\n\n{table}{''.join(gains)}"
    )


def _curve(folder: RunFolder) -> str:
    records = [record for record in folder.log_records() if "eval_loss" in record]
    columns = {"validation loss (nats per token)": ("eval_loss", 3), "perplexity": ("eval_perplexity", 2)}
    if any("eval_bleu" in record for record in records):
        columns["BLEU"] = ("eval_bleu", 2)
    rows = []
    for record in records:
        values = [(record.get(name), digits) for name, digits in columns.values()]
        numbers = ["–" if value is None else f"{value:.{digits}f}" for value, digits in values]
        rows.append([f"{record['step']:,}", f"{record['elapsed_seconds'] / 60:.1f}", *numbers])
    head = ["update", "minutes", *columns]
    return markdown_table(head, rows, range(len(head)))


def _examples_section(folder: RunFolder, recipe: Recipe, examples: int) -> str:
    from sacrebleu import sentence_chrf

    def score(row: dict) -> float:
        return sentence_chrf(row["hypothesis"], [row["reference"]]).score

    test_set = next(iter(recipe.data.test or recipe.data.measured))
    rows = sorted(_translations(folder, test_set), key=score, reverse=True)
    middle = random.Random(0).sample(rows[1:-1], max(0, min(examples, len(rows)) - 2))
    shown = [("best", rows[0]), *(("random", row) for row in middle), ("worst", rows[-1])][: len(rows)]
    blocks = [
        f"- {label} (chrF {score(row):.1f})\n  - source: {as_text(row['source'])}\n"
        f"  - reference: {as_text(row['reference'])}\n  - model: {as_text(row['hypothesis'])}"
        for label, row in shown
    ]
    return (
        f"## Translations of {test_set}\n\nThe best and the worst by sentence-level chrF, and {len(middle)} drawn at "
        "random.\n\n" + "\n".join(blocks)
    )
