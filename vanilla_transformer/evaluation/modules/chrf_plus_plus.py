"""chrF++, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class ChrfPlusPlus(evaluate_metrics.TranslationMetric):
    metric = "chrf++"
