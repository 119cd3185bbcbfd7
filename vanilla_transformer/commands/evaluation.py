"""How good translations are."""

import json as json_format
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .process import UsageError
from .translation import search_options


if TYPE_CHECKING:
    from ..evaluation.scores import Comparison, Score

DEFAULT_METRICS = ["sacrebleu", "sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter"]


def evaluate(
    *,
    hypotheses: list[Path] | None = None,
    model: list[Path] | None = None,
    references: list[Path] | None = None,
    sources: Path | None = None,
    test_set: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    metrics: list[str] | None = None,
    resamples: int = 1000,
    segments: bool = False,
    num_beams: int | None = None,
    json: bool = False,
) -> None:
    """Scores translations: files of them, or what a model makes of a test set; several files are compared.

    Every score comes with its signature and the 95 % interval of a bootstrap. With several files of hypotheses each is
    tested against the first: the p-values are those of paired bootstrap and approximate randomisation.

    Args:
        hypotheses: Files of translations, each of another system: text, .jsonl, or WMT's .sgm.
        model: A run folder or a model's folder, to translate the sources. Several translate together, as an ensemble.
        references: Files of reference translations, each with another one of every segment: text, .jsonl or .sgm.
        sources: File of the sentences to translate: text, .jsonl or .sgm.
        test_set: Sources and references together: a .jsonl, .tsv or .parquet file, or NAME[:CONFIG[:SPLIT]] of the
            Hub, say wmt/wmt14:de-en; the split is test if it is not given.
        source_language: Language code of the sources.
        target_language: Language code of the translations. Not needed where a file's ending (newstest2014.de) or the
            model's recipe has it.
        metrics: Which scores: sacrebleu, sacrebleu_lowercase, sacrebleu_intl, bleu_paper, bleu_tokenized,
            bleu_lowercase_tokenized, bleu_pretokenized, chrf, chrf++, ter, nist, exact_match. If they are not given:
            sacrebleu, sacrebleu_lowercase, bleu_paper, chrf, chrf++ and ter.
        resamples: Bootstrap samples for intervals and tests; 0 for none of both.
        segments: Print the scores of each segment instead, in a line each.
        num_beams: Hypotheses kept in beam search; the model's own setting if it is not given.
        json: Print JSON instead of a table.
    """
    from ..evaluation.scores import compare_systems, score_segments, score_translations
    from .test_sets import Languages, model_languages, perplexity_of, read_set, read_systems, translate_set

    if (hypotheses is None) == (model is None):
        raise UsageError("Give --hypotheses FILE or --model MODEL.")
    if resamples < 0 or resamples == 1:
        raise UsageError(f"--resamples must be 0 or at least 2, not {resamples}.")
    languages = Languages(source_language, target_language)
    languages = model_languages(model[0], languages) if model else languages
    scored_set = read_set(test_set, references, sources, languages)
    chosen = scored_set.metrics(metrics or DEFAULT_METRICS)
    if hypotheses is not None:
        systems = read_systems(hypotheses, scored_set)
    else:
        systems = {" + ".join(map(str, model)): translate_set(model, scored_set, **search_options(num_beams))}
    lists, language = scored_set.reference_lists, {"target_language": scored_set.languages.target or "und"}
    if segments:
        rows = {name: score_segments(texts, lists, chosen, **language) for name, texts in systems.items()}
        print(_segments_report(rows, systems, json))
        return
    scores = {
        name: score_translations(texts, lists, chosen, test_set=scored_set.name, resamples=resamples, **language)
        for name, texts in systems.items()
    }
    if model is not None:
        for found in scores.values():
            found += perplexity_of(model, scored_set)
    comparisons = []
    if len(systems) > 1 and resamples:
        comparisons = compare_systems(systems, lists, chosen, resamples=resamples, **language)
    records = [{"system": name, **asdict(score)} for name, found in scores.items() for score in found]
    if json:
        content = {"scores": records, "comparisons": [asdict(each) for each in comparisons]}
        print(json_format.dumps(content, indent=2, ensure_ascii=False))
    else:
        print(systems_table(scores, comparisons))


def systems_table(scores: Mapping[str, Sequence["Score"]], comparisons: Sequence["Comparison"] = ()) -> str:
    """Scores of systems on one test set in lines for people: a table, what BLEU is made of, and all signatures."""
    tests = {(each.system, each.metric): each for each in comparisons}
    first = next(iter(scores.values()))
    rows = [["system", "metric", "score", "95 % interval", *(["p (bootstrap)", "p (randomised)"] if tests else [])]]
    for system, found in scores.items():
        for score in found:
            interval = "" if score.mean is None else f"{score.mean:.2f} ± {score.confidence:.2f}"
            test = tests.get((system, score.metric))
            p_values = [] if test is None else [f"{test.bootstrap_p:.4f}", f"{test.randomization_p:.4f}"]
            rows.append([system, score.metric, f"{score.value:.2f}", interval, *p_values])
    blocks = [[f"{first[0].test_set}:"], aligned_columns(rows)]
    if details := [
        [system, score.metric, score.detail] for system in scores for score in scores[system] if score.detail
    ]:
        blocks.append(["", *aligned_columns(details)])
    signatures = [[score.metric, score.signature] for score in first]
    randomized = {each.metric: each.signatures[1] for each in comparisons}  # the bootstrap's is that of the score
    signatures += [[f"{metric}, p (randomised)", signature] for metric, signature in randomized.items()]
    return "\n".join(line for block in [*blocks, ["", *aligned_columns(signatures)]] for line in block)


def aligned_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with cells under each other: numbers end, words begin at the same place."""
    columns = max(map(len, rows))
    filled = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max(len(row[i]) for row in filled) for i in range(columns)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in filled]


def _segments_report(rows: Mapping[str, list[dict[str, float]]], systems: Mapping[str, list[str]], json: bool) -> str:
    """A line per system and segment: its number, scores, translation. Only JSON keeps tabs and line ends in them."""
    lines = []
    for system, segments in rows.items():
        for number, (scores, text) in enumerate(zip(segments, systems[system], strict=True), start=1):
            if json:
                record = {"system": system, "segment": number, **scores, "hypothesis": text}
                lines.append(json_format.dumps(record, ensure_ascii=False))
            else:
                fields = [system, str(number), *(f"{value:.2f}" for value in scores.values()), text]
                lines.append("\t".join(re.sub(r"[\t\r\n]+", " ", field) for field in fields))
    heading = [] if json else ["\t".join(["system", "segment", *next(iter(rows.values()))[0], "hypothesis"])]
    return "\n".join([*heading, *lines])


def scores_table(records: list[dict]) -> str:
    """Scores as a run folder keeps them in lines for people."""
    rows = [[r.get("model", ""), r["test_set"], r["metric"], f"{r['value']:.2f}", r["signature"]] for r in records]
    return "\n".join(aligned_columns(rows))
