"""sacreBLEU's default BLEU, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class Sacrebleu(evaluate_metrics.TranslationMetric):
    metric = "sacrebleu"
