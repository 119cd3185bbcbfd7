"""multi-bleu.perl on text that is tokenised already, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class BleuPretokenized(evaluate_metrics.TranslationMetric):
    metric = "bleu_pretokenized"
