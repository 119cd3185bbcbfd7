"""How good translations are."""

import json as json_format
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.forms import FORMS
from ..evaluation.metrics import METRICS
from .process import UsageError
from .translate import reading_options, search_options


if TYPE_CHECKING:
    from ..evaluation.domain import Domain
    from ..evaluation.robustness import FormScore
    from ..evaluation.scores import Comparison, Score

logger = logging.getLogger(__name__)

DEFAULT_METRICS = ["sacrebleu", "sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter"]
P_VALUES = ["p (randomisation)", "one-sided p (bootstrap)"]


def evaluate(
    *,
    hypotheses: list[Path] | None = None,
    model: list[str] | None = None,
    references: list[Path] | None = None,
    sources: Path | None = None,
    test_set: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    metrics: list[str] | None = None,
    resamples: int = 1000,
    segments: bool = False,
    forms: tuple[str, ...] | None = None,
    picture: Path | None = None,
    domain: bool = False,
    num_beams: int | None = None,
    recase: bool = False,
    respell: bool = False,
    repunctuate: bool = False,
    device: str = "auto",
    verbose: bool = False,
    json: bool = False,
) -> None:
    """Scores translations: files of them, or a model's translations of a test set; several files are compared.

    Every score comes with its signature and the 95 % interval of a bootstrap. With several files of hypotheses, each is
    tested against the first: by approximate randomisation (p two-sided, the one to report) and by paired bootstrap (p
    one-sided, about half as large).

    Args:
        hypotheses: Files of translations, one per system: text, .jsonl, or WMT's .sgm.
        model: A run folder, a model's folder or USER/NAME on the Hub, to translate the sources. Several translate
            together, as an ensemble.
        references: Files of reference translations, each with one for every segment: text, .jsonl or .sgm.
        sources: File of the sentences to translate: text, .jsonl or .sgm.
        test_set: Sources and references together: a .jsonl, .tsv or .parquet file, phrasebook:SPLIT:PAIRS, or
            NAME[:CONFIG[:SPLIT]] on the Hub, say wmt/wmt14:de-en; the split is test if it is not given.
        source_language: Language code of the sources.
        target_language: Language code of the translations. Not needed if a file's ending (newstest2014.de) or the
            model's recipe gives it; a model of several target languages needs it.
        metrics: Which scores: METRICS. If they are not given: DEFAULTS.
        resamples: Bootstrap samples for intervals and tests; 0 for neither.
        segments: Print the scores of each segment instead, one per line.
        forms: Also translate the test set in each of these forms, and show what share of its score the model keeps; in
            all of them if none is named: FORMS.
        picture: With --forms: .png or .svg file for the scores as bars, by the first metric.
        domain: Say how far the test set lies outside what the model has seen: unknown and rare words, and perplexity,
            beside those of its run's validation set. This takes as long as reading both sets once.
        num_beams: Hypotheses kept in beam search; the model's own setting if it is not given.
        recase: Translate as `translate --recase` does.
        respell: Translate as `translate --respell` does.
        repunctuate: Translate as `translate --repunctuate` does.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        verbose: Print the components of the scores, and the signatures of the tests, below the table.
        json: Print JSON instead of a table.
    """
    from ..evaluation.scores import compare_systems, score_segments, score_translations
    from ..evaluation.significance import seed
    from .test_sets import (
        Languages,
        domains_of,
        model_languages,
        perplexity_of,
        read_set,
        read_systems,
        scores_in_forms,
        translate_set,
    )

    if (hypotheses is None) == (model is None):
        raise UsageError("Give --hypotheses FILE or --model MODEL.")
    if resamples < 0 or resamples == 1:
        raise UsageError(f"--resamples must be 0 or at least 2, not {resamples}.")
    if resamples and not segments:
        seed()  # a bad SACREBLEU_SEED shows before a model translates for long
    if domain and (model is None or len(model) > 1 or segments or forms is not None):
        raise UsageError("--domain is about one model: give --model MODEL, and leave --segments and --forms out.")
    for_models = {"--recase": recase, "--respell": respell, "--repunctuate": repunctuate}
    for_models |= {"--num-beams": num_beams is not None, "--device": device != "auto"}
    if model is None and any(for_models.values()):
        given = " and ".join(name for name, is_given in for_models.items() if is_given)
        raise UsageError(f"{given}: only a model translates; give --model MODEL.")
    if verbose and (segments or json or forms is not None):
        raise UsageError("--verbose adds to the table of scores: leave --segments, --forms and --json out.")
    forms = _checked_forms(forms, picture, model is not None and not segments)
    languages = Languages(source_language, target_language)
    scored_set = read_set(test_set, references, sources, model_languages(model[0], languages) if model else languages)
    chosen = scored_set.metrics(metrics or (DEFAULT_METRICS if forms is None else ["sacrebleu", "chrf"]))
    options = {"device": device, **search_options(num_beams)}
    if model:
        options |= reading_options(model, recase, respell, repunctuate)
    if picture is not None and METRICS[chosen[0]].lower_is_better:
        raise UsageError(f"--picture shows shares of the clean score, and in {chosen[0]} less is better: name another.")
    if forms is not None:
        _report_forms(scores_in_forms(model, scored_set, forms, chosen, resamples, **options), picture, json)
        return
    if hypotheses is not None:
        systems = read_systems(hypotheses, scored_set)
    else:
        translations = translate_set(model, scored_set, **options)
        systems = {" + ".join(str(Path(each)) for each in model): translations}
    lists = scored_set.reference_lists
    language_and_sources = scored_set.language_argument | scored_set.sources_argument
    if segments:
        rows = {name: score_segments(texts, lists, chosen, **language_and_sources) for name, texts in systems.items()}
        print(_segments_report(rows, systems, json))
        return
    scoring = {"test_set": scored_set.name, "resamples": resamples, **language_and_sources}
    scores = {name: score_translations(texts, lists, chosen, **scoring) for name, texts in systems.items()}
    if model is not None:
        for found in scores.values():
            try:
                found += perplexity_of(model, scored_set, device)
            except ValueError as error:  # a text is longer than the model's positions; translation has cut it
                logger.warning("There is no perplexity: %s", error)
    comparisons = []
    if len(systems) > 1 and resamples:
        comparisons = compare_systems(systems, lists, chosen, resamples=resamples, **language_and_sources)
    domains = {str(Path(model[0])): rows} if domain and (rows := domains_of(model[0], scored_set, device)) else {}
    found = Findings(scores, comparisons, domains)
    print(found.as_json() if json else found.as_text(verbose))


evaluate.__doc__ = (
    evaluate.__doc__.replace("METRICS", ", ".join(name for name, row in METRICS.items() if not row.of_trees))
    .replace(
        "DEFAULTS", f"{', '.join(DEFAULT_METRICS[:-1])} and {DEFAULT_METRICS[-1]}; with --forms sacrebleu and chrf"
    )
    .replace("FORMS", "; ".join(f"{form.name} ({form.description})" for form in FORMS.values()))
)


def _checked_forms(forms: Sequence[str] | None, picture: Path | None, translates: bool) -> list[str] | None:
    """The forms to score, each once; None where none are asked for."""
    if forms is None:
        if picture is not None:
            raise UsageError("--picture draws the scores of --forms: give both.")
        return None
    if not translates:
        raise UsageError("--forms changes what a model is to translate: give --model MODEL, and leave --segments out.")
    if unknown := [form for form in forms if form not in FORMS]:
        raise UsageError(f"There is no form {unknown[0]!r}: choose from {', '.join(FORMS)}.")
    if picture is not None:
        from ..plots.figures import check_picture

        check_picture(picture)
    return list(dict.fromkeys(forms or FORMS))


def _report_forms(found: Sequence["FormScore"], picture: Path | None, json: bool) -> None:
    """Prints the scores of all forms, and draws them if asked to."""
    if picture is not None:
        from ..plots import plot_forms

        metric, name = found[0].score.metric, found[0].score.test_set
        values = {each.form: each.score.value for each in found if each.score.metric == metric}
        plot_forms({metric: values}, picture, metric=metric, title=f"{name} in other forms")
    if json:
        records = [{"form": each.form, "kept": each.kept, **asdict(each.score)} for each in found]
        print(json_format.dumps({"scores": records, "comparisons": []}, indent=2, ensure_ascii=False))
        return
    rows = [["form", "metric", "score", "of clean", "95 % interval", "signature"]]
    for each in found:
        score, kept = each.score, "" if each.kept is None else f"{each.kept:.1f} %"
        interval = "" if score.mean is None else f"{score.mean:.2f} ± {score.confidence:.2f}"
        rows.append([each.form, score.metric, f"{score.value:.2f}", kept, interval, score.signature])
    print(f"Scores on {found[0].score.test_set}, as it is and in other forms:", *aligned_columns(rows), sep="\n")


@dataclass(frozen=True)
class Findings:
    """Findings about systems on one test set.

    Attributes:
        scores: Of each system.
        comparisons: Of each system with the first.
        domains: How far the test set lies outside what each model has seen; empty if not asked for.
    """

    scores: Mapping[str, Sequence["Score"]]
    comparisons: Sequence["Comparison"]
    domains: Mapping[str, Sequence["Domain"]]

    def as_json(self) -> str:
        return json_format.dumps(self.content(), indent=2, ensure_ascii=False)

    def content(self) -> dict:
        """As JSON has it."""
        scores = [{"system": name, **asdict(score)} for name, found in self.scores.items() for score in found]
        domain = [{"system": name, **asdict(each)} for name, found in self.domains.items() for each in found]
        comparisons = [asdict(each) for each in self.comparisons]
        return {"scores": scores, "comparisons": comparisons, **({"domain": domain} if domain else {})}

    def as_text(self, verbose: bool = False) -> str:
        """The same for people. `verbose` is that of `systems_table`."""
        return "\n".join([systems_table(self.scores, self.comparisons, verbose=verbose), *domain_lines(self.domains)])


def systems_table(
    scores: Mapping[str, Sequence["Score"]], comparisons: Sequence["Comparison"] = (), *, verbose: bool = False
) -> str:
    """Scores by system on one test set, and their comparisons with the first one, in a table for people.

    With `verbose` there is a table of BLEU's components, and one of the signatures of the tests.
    """
    tests = {(each.system, each.metric): each for each in comparisons}
    rows = [["system", "metric", "score", "95 % interval", *(P_VALUES if tests else []), "signature"]]
    details = [["system", "metric", "made of"]]
    for system, found in scores.items():
        for score in found:
            interval = "" if score.mean is None else f"{score.mean:.2f} ± {score.confidence:.2f}"
            test = tests.get((system, score.metric))
            p_values = [f"{test.randomization_p:.4f}", f"{test.bootstrap_p:.4f}"] if test else [""] * 2 * bool(tests)
            rows.append([system, score.metric, f"{score.value:.2f}", interval, *p_values, score.signature])
            details += [[system, score.metric, score.detail]] if score.detail else []
    lines = [f"Scores on {next(iter(scores.values()))[0].test_set}:", *aligned_columns(rows)]
    if verbose:
        lines += ["", *aligned_columns(details)]
    if verbose and comparisons:  # the bootstrap's signature is that of the score
        randomized = {each.metric: each.signatures[0] for each in comparisons}
        lines += ["", *aligned_columns([[f"{P_VALUES[0]} of", "signature"], *map(list, randomized.items())])]
    return "\n".join(lines)


def domain_lines(domains: Mapping[str, Sequence["Domain"]]) -> list[str]:
    """How far a test set lies outside what each model has seen, for people."""
    lines = []
    for name, found in domains.items():
        rows = [["text", "words", "unknown", "rare", "perplexity per token"]]
        for each in found:
            shares = ["" if share is None else f"{100 * share:.1f} %" for share in (each.unknown, each.rare)]
            rows.append([each.text, f"{each.words:,}", *shares, f"{each.perplexity:.2f}"])
        lines += ["", f"How far that lies outside what {name} has seen:", *aligned_columns(rows)]
        if most := found[0].most_unknown:
            lines.append(f"Most frequent of the unknown words: {', '.join(most)}")
        if found[0].unknown is None:
            lines.append("The model came without a list of the words of its training text.")
    return lines


def aligned_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose cells begin at the same places."""
    columns = max(map(len, rows))
    filled = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max(len(row[i]) for row in filled) for i in range(columns)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in filled]


def _segments_report(rows: Mapping[str, list[dict[str, float]]], systems: Mapping[str, list[str]], json: bool) -> str:
    """A line per system and segment: its number, scores, translation. Only JSON keeps tabs and line ends in them."""
    lines = [] if json else ["\t".join(["system", "segment", *next(iter(rows.values()))[0], "hypothesis"])]
    for system, segments in rows.items():
        for number, (scores, text) in enumerate(zip(segments, systems[system], strict=True), start=1):
            if json:
                record = {"system": system, "segment": number, **scores, "hypothesis": text}
                lines.append(json_format.dumps(record, ensure_ascii=False))
            else:
                fields = [system, str(number), *(f"{value:.2f}" for value in scores.values()), text]
                lines.append("\t".join(re.sub(r"[\t\r\n]+", " ", field) for field in fields))
    return "\n".join(lines)


def scores_table(records: list[dict]) -> str:
    """Scores as a run folder keeps them, in lines for people."""
    rows = [
        [f"{r['model']}{' *' * r['chosen']}", r["test_set"], r["metric"], f"{r['value']:.2f}", r["signature"]]
        for r in records
    ]
    table = aligned_columns([["model", "text", "metric", "score", "signature"], *rows])
    return "\n".join([*table, "* the model of the run: it scores best on the validation set"])
