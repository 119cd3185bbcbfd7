"""Translation edit rate, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class Ter(evaluate_metrics.TranslationMetric):
    metric = "ter"
