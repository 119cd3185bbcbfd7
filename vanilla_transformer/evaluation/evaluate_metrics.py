"""Our scores as metrics of the library `evaluate`, loaded without the Hub."""

from pathlib import Path

import datasets
import evaluate

from ..files import write_text
from .metrics import METRICS, language_code, metric_named
from .scores import score_translations


_TEXT = datasets.Value("string")
# `evaluate.load` takes the path of a file and makes the first metric class in it. So each name gets a file, and the
# class is reached through its module, so that its base is not taken for the metric.
_MODULE = """\
from vanilla_transformer.evaluation import evaluate_metrics


class {class_name}(evaluate_metrics.{base}):
    metric = "{metric}"
"""


def module_path(metric: str) -> str:
    """The path at which `evaluate.load` finds one of `METRICS`, or "bracketing".

    For example, `evaluate.load(module_path("bleu_paper"), "de")`. The file is written to the folder where `evaluate`
    keeps the code of metrics.

    Raises:
        ValueError: There is no such metric.
    """
    if metric != "bracketing":
        metric_named(metric)
    name = metric.replace("+", "_plus")
    base = "BracketingMetric" if metric == "bracketing" else "TranslationMetric"
    path = Path(evaluate.config.HF_MODULES_CACHE) / "vanilla_transformer_metrics" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _MODULE.format(class_name=name.title().replace("_", ""), base=base, metric=metric))
    return str(path)


class TranslationMetric(evaluate.Metric):
    """One of our scores. Where the target language matters, it is the configuration: `evaluate.load(path, "de")`.

    `compute(predictions=..., references=...)` takes one reference per prediction, or a list of them (the same number
    for all). It returns the value by the metric's name, the signature, and the numbers that the value is made of, if
    any; `resamples=1000` adds the bootstrap's mean and 95 % interval.
    """

    metric: str

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=METRICS[self.metric].description,
            citation="",
            inputs_description="predictions: detokenised translations; references: one each, or a list for each",
            features=[
                datasets.Features({"predictions": _TEXT, "references": datasets.Sequence(_TEXT)}),
                datasets.Features({"predictions": _TEXT, "references": _TEXT}),
            ],
        )

    def _compute(self, predictions, references, resamples: int = 0) -> dict:
        if self.config_name == "default" and METRICS[self.metric].needs_language:
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
        return evaluate.MetricInfo(
            description=BracketingMetric.__doc__,
            citation="",
            inputs_description="predictions: the parser's trees; references: the right ones",
            features=datasets.Features({"predictions": _TEXT, "references": _TEXT}),
        )

    def _compute(self, predictions, references) -> dict:
        from ..parsing.bracketing import score_trees

        found = score_trees(references, predictions).overall
        return {name: getattr(found, name) for name in ("recall", "precision", "f1", "complete_match", "valid")}
