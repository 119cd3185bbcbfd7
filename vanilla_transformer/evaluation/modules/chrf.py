"""chrF2, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class Chrf(evaluate_metrics.TranslationMetric):
    metric = "chrf"
