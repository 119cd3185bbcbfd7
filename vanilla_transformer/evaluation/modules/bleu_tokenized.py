"""BLEU on Moses-tokenised text, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class BleuTokenized(evaluate_metrics.TranslationMetric):
    metric = "bleu_tokenized"
