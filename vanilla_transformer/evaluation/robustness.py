"""What is left of a score when people write as they do: in capitals, with typos, without a full stop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..data.forms import FORM_SEED
from .metrics import METRICS
from .scores import Score, score_translations


CLEAN = "clean"
"""What a test set without any form is called beside those with one."""


@dataclass(frozen=True)
class FormScore:
    """A score of a test set in one form.

    Attributes:
        form: One of `FORMS`, or `CLEAN`.
        score: The score; its signature ends with the form and the seed of its random numbers.
        kept: Percentage of the clean score; None for metrics of which lower is better, and where that score is 0.
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
    resamples: int = 0,
) -> list[FormScore]:
    """Scores the translations of a test set in several forms, by metric and within it by form.

    Args:
        translations: By form, `CLEAN` among them, the translations of the sources in that form.
        references: By form, lists of references in it (see `FORMS` for which forms change them).
        metrics, target_language, resamples: As for `score_translations`.
        test_sets: The name of the test set in each form.
    """
    found = {}
    for form, hypotheses in translations.items():
        options = {"target_language": target_language, "test_set": test_sets[form], "resamples": resamples}
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
