"""EVALB's bracketing scores, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class Bracketing(evaluate_metrics.BracketingMetric):
    pass
