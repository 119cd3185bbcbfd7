"""How much of a score is left when people write as they do: in capitals, with typos, without a full stop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..data.forms import FORM_SEED
from .metrics import METRICS
from .scores import Score, score_translations


CLEAN = "clean"
"""The name for the test set as it is, beside those in a form."""


@dataclass(frozen=True)
class FormScore:
    """A score of a test set in one form.

    Attributes:
        form: One of `FORMS`, or `CLEAN`.
        score: The score; its signature ends with the form and the seed of its random numbers.
        kept: Percentage of the clean score; None for metrics where lower is better, and where the clean score is 0.
    """

    form: str
    score: Score
    kept: float | None


def scores_by_form(
    translations: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[Sequence[str]]],
    metrics: Sequence[str],
    *,
    target_language: str,
    test_sets: Mapping[str, str],
    sources: Mapping[str, Sequence[str]],
    resamples: int = 0,
) -> list[FormScore]:
    """Scores the translations of a test set in several forms: by metric, then by form.

    Args:
        translations: For each form, including `CLEAN`, the translations of the sources in that form.
        references: For each form, lists of references in it (`FORMS` says which forms change them).
        metrics, target_language, resamples: As for `score_translations`.
        test_sets: The name of the test set in each form.
        sources: The sources in each form, which some metrics read.
    """
    found = {}
    for form, hypotheses in translations.items():
        options = {"target_language": target_language, "test_set": test_sets[form], "resamples": resamples}
        options["sources"] = sources[form]
        ending = "" if form == CLEAN else f"|form:{form}|form_seed:{FORM_SEED}"
        for score in score_translations(hypotheses, references[form], metrics, **options):
            found[score.metric, form] = replace(score, signature=score.signature + ending)
    return [
        FormScore(form, found[name, form], _kept(found[name, form], found[name, CLEAN]))
        for name in dict.fromkeys(metrics)
        for form in translations
    ]


def _kept(score: Score, clean: Score) -> float | None:
    return None if METRICS[score.metric].lower_is_better or not clean.value else 100 * score.value / clean.value
