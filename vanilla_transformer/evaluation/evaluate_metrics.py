"""Our scores as metrics of the library `evaluate`, one file each in `modules/`, that load without the Hub."""

from pathlib import Path

import datasets
import evaluate

from .metric_names import METRICS, check_metric, language_code, needs_language
from .scores import score_translations


def module_path(metric: str) -> str:
    """Where `evaluate.load` finds a metric: `evaluate.load(module_path("bleu_paper"), "de")`.

    Args:
        metric: One of `METRICS`, or "bracketing".

    Raises:
        ValueError: There is no such metric.
    """
    if metric != "bracketing":
        check_metric(metric)
    return str(Path(__file__).with_name("modules") / f"{metric.replace('+', '_plus')}.py")


class TranslationMetric(evaluate.Metric):
    """One of our scores. The configuration is the language translated into: `evaluate.load(path, "de")`.

    Only the scores of Moses-tokenised text need it.

    `compute(predictions=..., references=...)` takes a reference per prediction, or a list of them (of the same length
    for all). It returns the value by the metric's name, the signature, and where there are any the numbers that the
    value is made of; `resamples=1000` adds the bootstrap's mean and 95 % interval.
    """

    metric: str

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=METRICS[self.metric],
            citation="",
            inputs_description="predictions: detokenised translations; references: one each, or a list for each",
            features=[
                datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
                datasets.Features({"predictions": text, "references": text}),
            ],
        )

    def _compute(self, predictions, references, resamples: int = 0) -> dict:
        if self.config_name == "default" and needs_language(self.metric):
            raise ValueError(f'{self.metric} depends on the language: evaluate.load(path, "de")')
        language = "und" if self.config_name == "default" else language_code(self.config_name)
        if references and not isinstance(references[0], str):
            if len({len(each) for each in references}) > 1:
                raise ValueError("every prediction must have the same number of references")
            references = [list(each) for each in zip(*references, strict=True)]
        [score] = score_translations(
            predictions, references, [self.metric], target_language=language, resamples=resamples
        )
        found = {self.metric: score.value, "signature": score.signature, **score.statistics}
        return found if score.mean is None else {**found, "mean": score.mean, "confidence": score.confidence}


class BracketingMetric(evaluate.Metric):
    """EVALB's labelled bracketing recall, precision and F1 of trees in brackets, by the rules of COLLINS.prm."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="predictions: the parser's trees; references: the right ones",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions, references) -> dict:
        from .bracketing import score_trees

        found = score_trees(references, predictions).overall
        return {name: getattr(found, name) for name in ("recall", "precision", "f1", "complete_match", "valid")}
