"""BLEU with mteval-v14's international tokenisation, for `evaluate.load`."""

from vanilla_transformer.evaluation import evaluate_metrics


class SacrebleuIntl(evaluate_metrics.TranslationMetric):
    metric = "sacrebleu_intl"
