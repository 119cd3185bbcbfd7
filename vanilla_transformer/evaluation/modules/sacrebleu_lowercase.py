"""Case-insensitive sacreBLEU, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class SacrebleuLowercase(evaluate_metrics.TranslationMetric):
    metric = "sacrebleu_lowercase"
