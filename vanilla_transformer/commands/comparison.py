"""Where systems differ."""

import json as json_format
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .evaluation import aligned_columns, systems_table
from .process import UsageError
from .translation import search_options


if TYPE_CHECKING:
    from ..evaluation.comparison import Difference, Group
    from .test_sets import ScoredSet


def compare(
    systems: list[str],
    *,
    references: list[Path] | None = None,
    sources: Path | None = None,
    test_set: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    training_text: list[Path] | None = None,
    metrics: list[str] | None = None,
    examples: int = 5,
    num_beams: int | None = None,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Compares systems with the first of them: scores, significance, where they differ, by length and rarest word.

    Args:
        systems: Two systems or more: models (folders, runs, or USER/NAME of the Hub), or files of translations (text,
            .jsonl, .sgm).
        references: Files of reference translations, each with another one of every segment: text, .jsonl or .sgm.
        sources: File of the source sentences: text, .jsonl or .sgm.
        test_set: Sources and references together: a .jsonl, .tsv or .parquet file, or NAME[:CONFIG[:SPLIT]] of the
            Hub, say wmt/wmt14:de-en; the split is test if it is not given.
        source_language: Language code of the sources.
        target_language: Language code of the translations; not needed where `evaluate` does not need it.
        training_text: Text files of the source side of the training corpus: sentences are grouped by how often their
            rarest word stands there.
        metrics: Which scores, as for `evaluate`; sentences and groups are scored by the first. If they are not given:
            sacrebleu, chrf and ter.
        examples: Show so many sentences that a system translates better than the first one, and so many worse.
        num_beams: Hypotheses kept in beam search; each model's own setting if it is not given.
        plot: PNG file for a picture of the scores by length and rarest word.
        json: Print JSON instead of tables.
    """
    from ..evaluation.scores import compare_systems, score_translations
    from ..files import text_lines
    from ..plots import plot_score_groups
    from .test_sets import Languages, read_set

    if len(systems) < 2:
        raise UsageError("Give two systems or more to compare.")
    if examples < 0:
        raise UsageError(f"--examples must be at least 0, not {examples}.")
    training_lines = text_lines(*training_text) if training_text else None  # a missing file shows at once
    languages = _languages(systems, Languages(source_language, target_language))
    scored_set = read_set(test_set, references, sources, languages)
    chosen = scored_set.metrics(metrics or ["sacrebleu", "chrf", "ter"])
    if plot is not None and scored_set.sources is None:
        raise UsageError("--plot draws scores by the length of the source: give --sources FILE.")
    translations = _translations(systems, scored_set, search_options(num_beams))
    lists, language = scored_set.reference_lists, {"target_language": scored_set.languages.target or "und"}
    scores = {
        name: score_translations(texts, lists, chosen, test_set=scored_set.name, resamples=1000, **language)
        for name, texts in translations.items()
    }
    comparisons = compare_systems(translations, lists, chosen, **language)
    groups = _groups(translations, scored_set, chosen[0], training_lines)
    differences = _differences(translations, scored_set, chosen[0], examples)
    if plot is not None:
        plot_score_groups(groups, plot, metric=chosen[0], title=f"Translations of {scored_set.name}")
    if json:
        print(_as_json(scores, comparisons, groups, differences, translations, scored_set))
        return
    print(systems_table(scores, comparisons))
    for heading, found in groups.items():
        print(f"\n{chosen[0]} by {heading}:", *_group_lines(found), sep="\n")
    for name, found in differences.items():
        for line in _difference_lines(name, found, translations, scored_set):
            print(line)


def _languages(systems: Sequence[str], given):
    from .test_sets import model_languages

    for system in systems:
        if _is_model(system):
            given = model_languages(Path(system), given)
    return given


def _is_model(system: str) -> bool:
    from ..run_folder import is_of_the_hub

    return Path(system).is_dir() or is_of_the_hub(system)


def _translations(systems: Sequence[str], scored_set: "ScoredSet", options: dict) -> dict[str, list[str]]:
    from .test_sets import read_systems, translate_set

    found: dict[str, list[str]] = {}
    for system in systems:
        if _is_model(system):
            texts = {system: translate_set([Path(system)], scored_set, **options)}
        else:
            texts = read_systems([Path(system)], scored_set)
        for name, segments in texts.items():
            while name in found:  # two files may have one name, in two folders
                name += "'"
            found[name] = segments
    return found


def _groups(translations: dict[str, list[str]], scored_set: "ScoredSet", metric: str, training_lines) -> dict:
    """Groups by their heading; none where there is nothing to group by."""
    from ..evaluation.comparison import frequency_groups, length_groups, scores_by_group

    if scored_set.sources is None:
        return {}
    sources = scored_set.sources.segments
    groupings = {"words in the source": length_groups(sources)}
    if training_lines is not None:
        groupings["times its rarest word was trained on"] = frequency_groups(sources, training_lines)
    language = {"target_language": scored_set.languages.target or "und"}
    return {
        heading: scores_by_group(translations, scored_set.reference_lists, metric, labels, order, **language)
        for heading, (labels, order) in groupings.items()
    }


def _differences(translations: dict[str, list[str]], scored_set: "ScoredSet", metric: str, examples: int) -> dict:
    from ..evaluation.comparison import largest_differences

    language = {"target_language": scored_set.languages.target or "und"}
    return largest_differences(translations, scored_set.reference_lists, metric, count=examples, **language)


def _group_lines(groups: Sequence["Group"]) -> list[str]:
    rows = [["", "segments", *groups[0].values]]
    rows += [[each.label, f"{each.segments}", *(f"{value:.2f}" for value in each.values.values())] for each in groups]
    return aligned_columns(rows)


def _difference_lines(
    name: str, differences: Sequence["Difference"], translations: Mapping[str, list[str]], scored_set: "ScoredSet"
) -> list[str]:
    first = next(iter(translations))
    lines = ["", f"Where {name} differs most from {first}:" if differences else f"{name} differs nowhere from {first}."]
    for each in differences:
        rows = [] if scored_set.sources is None else [["  source", "", scored_set.sources.segments[each.segment - 1]]]
        rows += [["  reference", "", reference[each.segment - 1]] for reference in scored_set.reference_lists]
        rows += [
            [f"  {system}", f"{value:.1f}", translations[system][each.segment - 1]]
            for system, value in each.values.items()
        ]
        lines += [f"segment {each.segment}", *aligned_columns(rows)]
    return lines


def _as_json(scores, comparisons, groups, differences, translations, scored_set: "ScoredSet") -> str:
    def with_texts(difference: "Difference") -> dict:
        i = difference.segment - 1
        source = {} if scored_set.sources is None else {"source": scored_set.sources.segments[i]}
        texts = {system: translations[system][i] for system in difference.values}
        references = [reference[i] for reference in scored_set.reference_lists]
        return {**asdict(difference), **source, "references": references, "hypotheses": texts}

    content = {
        "scores": [{"system": name, **asdict(score)} for name, found in scores.items() for score in found],
        "comparisons": [asdict(each) for each in comparisons],
        "groups": {heading: [asdict(each) for each in found] for heading, found in groups.items()},
        "differences": {name: [with_texts(each) for each in found] for name, found in differences.items()},
    }
    return json_format.dumps(content, indent=2, ensure_ascii=False)
