"""The paper's BLEU, German compounds split, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class BleuPaper(evaluate_metrics.TranslationMetric):
    metric = "bleu_paper"
