"""NIST of mteval-v13a, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class Nist(evaluate_metrics.TranslationMetric):
    metric = "nist"
