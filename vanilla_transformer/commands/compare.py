"""Where systems differ."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..evaluation.metrics import METRICS
from .evaluate import Findings, aligned_columns
from .process import UsageError
from .translate import search_options


if TYPE_CHECKING:
    from ..evaluation.comparison import Group
    from .test_sets import ScoredSet


logger = logging.getLogger(__name__)


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
    domain: bool = False,
    num_beams: int | None = None,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Compares systems with the first of them: scores, significance, where they differ, by length and rarest word.

    Differences of scores are tested by approximate randomisation (p two-sided, the one to report) and by paired
    bootstrap (p one-sided, about half as large).

    Args:
        systems: Two or more systems, before the options: models (folders, runs, or USER/NAME on the Hub), or files of
            translations (text, .jsonl, .sgm).
        references: Files of reference translations, each with one for every segment: text, .jsonl or .sgm.
        sources: File of the source sentences: text, .jsonl or .sgm.
        test_set: Sources and references together: a .jsonl, .tsv or .parquet file, phrasebook:SPLIT:PAIRS, or
            NAME[:CONFIG[:SPLIT]] on the Hub, say wmt/wmt14:de-en; the split is test if it is not given.
        source_language: Language code of the sources.
        target_language: Language code of the translations; not needed where `evaluate` does not need it.
        training_text: Text files of the source side of the training corpus: sentences are grouped by how often their
            rarest word occurs there.
        metrics: Scores, as for `evaluate`; by default sacrebleu, chrf and ter. Sentences and groups are scored by the
            first.
        examples: Show this many sentences that a system translates better than the first one, and this many worse.
        domain: For every model, say how far the test set lies outside what it has seen, as `evaluate --domain` does.
        num_beams: Hypotheses kept in beam search; by default each model's own setting.
        plot: File, .png or .svg, for a picture of the scores by length and rarest word.
        json: Print JSON instead of tables.
    """
    from ..evaluation.comparison import largest_differences, scores_by_group
    from ..evaluation.scores import compare_systems, score_translations
    from ..evaluation.significance import seed
    from ..files import text_lines
    from ..hub import is_of_the_hub
    from ..plots import plot_score_groups
    from ..plots.figures import check_picture
    from .test_sets import Languages, domains_of, model_languages, read_set

    if len(systems) < 2:
        raise UsageError("Give two systems or more to compare.")
    if examples < 0:
        raise UsageError(f"--examples must be at least 0, not {examples}.")
    seed()  # a bad SACREBLEU_SEED shows before models translate for long
    training_lines = text_lines(*training_text) if training_text else None  # a missing file shows at once
    models = [system for system in systems if Path(system).is_dir() or is_of_the_hub(system)]
    languages = Languages(source_language, target_language)
    asked_for = {}  # which language to ask each model for, if it has several
    for model in models:
        languages = model_languages(model, replace(languages, to=None))
        asked_for[model] = languages.to
    scored_set = read_set(test_set, references, sources, languages)
    chosen = scored_set.metrics(metrics or ["sacrebleu", "chrf", "ter"])
    if METRICS[chosen[0]].needs_sources:
        raise UsageError(f"Sentences and groups are not scored by {chosen[0]}: name another score first.")
    if (domain or num_beams is not None) and not models:
        option = "--domain" if domain else "--num-beams"
        raise UsageError(f"{option} is about models: give one, not only files of translations.")
    if training_text and scored_set.sources is None:
        raise UsageError("--training-text groups sentences by the words of their sources: give --sources FILE.")
    if plot is not None and scored_set.sources is None:
        raise UsageError("--plot draws scores by the length of the source: give --sources FILE.")
    if plot is not None:
        check_picture(plot)
    sets = {
        model: replace(scored_set, languages=replace(scored_set.languages, to=to)) for model, to in asked_for.items()
    }
    groupings = _groupings(scored_set, training_lines)  # before models translate for long: a file may be damaged
    translations = _translations(systems, sets, scored_set, search_options(num_beams))
    lists, language = scored_set.reference_lists, scored_set.language_argument
    scoring = language | scored_set.sources_argument
    scores = {
        name: score_translations(texts, lists, chosen, test_set=scored_set.name, resamples=1000, **scoring)
        for name, texts in translations.items()
    }
    groups = {
        heading: scores_by_group(translations, lists, chosen[0], *grouping, **language)
        for heading, grouping in groupings.items()
    }
    differences = {
        name: [_with_texts(asdict(each), translations, scored_set) for each in found]
        for name, found in largest_differences(translations, lists, chosen[0], count=examples, **language).items()
    }
    found = _Differences(
        scores=scores,
        comparisons=compare_systems(translations, lists, chosen, **scoring),
        domains={model: rows for model, own in sets.items() if domain and (rows := domains_of(model, own))},
        groups=groups,
        examples=differences if examples else {},
        metric=chosen[0],
    )
    if plot is not None:
        plot_score_groups(groups, plot, metric=chosen[0], title=f"Translations of {scored_set.name}")
        logger.info("Drew %s.", plot)
    print(found.as_json() if json else found.as_text())


@dataclass(frozen=True)
class _Differences(Findings):
    """Findings about systems, and where they differ.

    Attributes:
        groups: Scores of groups of sentences, by the heading of the groups.
        examples: For each system but the first, the sentences where it differs most from that one.
        metric: The metric by which groups and sentences are scored.
    """

    groups: dict[str, list["Group"]]
    examples: dict[str, list[dict]]
    metric: str

    def content(self) -> dict:
        groups = {heading: [asdict(each) for each in found] for heading, found in self.groups.items()}
        return {**super().content(), "groups": groups, "differences": self.examples}

    def as_text(self, verbose: bool = False) -> str:
        return "\n".join([super().as_text(verbose), *self._lines()])

    def _lines(self) -> Iterator[str]:
        for heading, found in self.groups.items():
            rows = [["", "segments", *found[0].values]]
            rows += [
                [each.label, f"{each.segments}", *(f"{value:.2f}" for value in each.values.values())] for each in found
            ]
            yield f"\n{self.metric} by {heading}:"
            yield from aligned_columns(rows)
        first = next(iter(self.scores))
        for name, found in self.examples.items():
            differ = f"Where {name} differs most from {first}:"
            yield f"\n{differ if found else f'No sentence of {name} scores otherwise than that of {first}.'}"
            for each in found:
                yield f"segment {each['segment']}"
                yield from _difference_lines(each)


def _translations(
    systems: list[str], sets: dict[str, "ScoredSet"], scored_set: "ScoredSet", options: dict
) -> dict[str, list[str]]:
    """Translations by system: those of a model, which has a set of its own, or those that a file holds."""
    from .test_sets import add_system, read_systems, translate_set

    translations: dict[str, list[str]] = {}
    files = [system for system in systems if system not in sets]
    read = {system: read_systems([Path(system)], scored_set) for system in files}  # before models translate for long
    for system in systems:
        if system in sets:
            add_system(translations, system, translate_set([system], sets[system], **options))
            continue
        for name, segments in read[system].items():
            add_system(translations, name, segments)
    return translations


def _difference_lines(difference: dict) -> list[str]:
    rows = [["  source", "", difference["source"]]] if "source" in difference else []
    rows += [["  reference", "", reference] for reference in difference["references"]]
    texts = difference["hypotheses"]
    rows += [[f"  {system}", f"{value:.1f}", texts[system]] for system, value in difference["values"].items()]
    return aligned_columns(rows)


def _groupings(scored_set: "ScoredSet", training_lines: Iterable[str] | None) -> dict[str, tuple[list[str], list[str]]]:
    """The label of each sentence, and all labels in order, by the heading; empty if there is nothing to group by."""
    from ..evaluation.comparison import frequency_groups, length_groups

    if scored_set.sources is None:
        return {}
    sources = scored_set.sources.segments
    groupings = {"words (or characters) in the source": length_groups(sources)}
    if training_lines is not None:
        groupings["times its rarest word was trained on"] = frequency_groups(sources, training_lines)
    return groupings


def _with_texts(difference: dict, translations: dict[str, list[str]], scored_set: "ScoredSet") -> dict:
    i = difference["segment"] - 1
    source = {} if scored_set.sources is None else {"source": scored_set.sources.segments[i]}
    texts = {system: translations[system][i] for system in difference["values"]}
    references = [reference[i] for reference in scored_set.reference_lists]
    return {**difference, **source, "references": references, "hypotheses": texts}
