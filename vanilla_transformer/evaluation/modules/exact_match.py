"""The share of translations that are a reference, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class ExactMatch(evaluate_metrics.TranslationMetric):
    metric = "exact_match"
