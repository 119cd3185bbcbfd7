"""The Multi30k literature's BLEU, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class BleuLowercaseTokenized(evaluate_metrics.TranslationMetric):
    metric = "bleu_lowercase_tokenized"
