"""Scores of translations, each with a signature that says exactly what was computed.

Two numbers called "BLEU" are comparable only if they were computed alike: with or without case, on which tokens, with
which smoothing. Post (2018), "A Call for Clarity in Reporting BLEU Scores", asks for a signature beside every score;
here no score exists without one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .metric_names import METRICS, check_metric, language_code


if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

__all__ = [
    "METRICS",
    "Comparison",
    "Score",
    "compare_systems",
    "perplexity",
    "perplexity_scores",
    "score_segments",
    "score_translations",
]


@dataclass(frozen=True)
class Score:
    """One score of one set of hypotheses, or of a model.

    Attributes:
        metric: One of `METRICS`, or what `perplexity_scores` names.
        value: The score: from 0 to 100, but for "ter" (which may be more), "nist" (which has no bound) and perplexities
            (from 1).
        signature: What exactly was computed, in sacreBLEU's notation. Compare scores only where signatures agree.
        test_set: The name of the test set, if the caller gave one.
        detail: What the value is made of, such as BLEU's n-gram precisions, brevity penalty and lengths in tokens.
        statistics: The numbers of `detail`, by name. Lengths are in tokens, `length_ratio` is that of the hypotheses to
            the references; precisions are percentages.
        mean: Mean of the score over the bootstrap's samples; None without a bootstrap, and of a single segment.
        confidence: Half the width of the interval around `mean` that has 95 % of the samples; None where `mean` is.
    """

    metric: str
    value: float
    signature: str
    test_set: str = ""
    detail: str = ""
    statistics: dict[str, float | list[float]] = field(default_factory=dict)
    mean: float | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Comparison:
    """How one system differs from the baseline in one metric.

    Attributes:
        system: The system's name.
        baseline: The name of the system that it is compared with.
        metric: One of `METRICS`.
        difference: Score of the system minus that of the baseline.
        bootstrap_p: p-value by paired bootstrap resampling (Koehn, 2004): how often a difference as large would come up
            if the systems were equally good. 1 where there is a single segment, of which all samples are alike.
        randomization_p: The same by approximate randomisation (Riezler and Maxwell, 2005).
        signatures: Of both tests, with their numbers of samples and their seed.
    """

    system: str
    baseline: str
    metric: str
    difference: float
    bootstrap_p: float
    randomization_p: float
    signatures: tuple[str, str]


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
    test_set: str = "",
    resamples: int = 0,
) -> list[Score]:
    """Scores translations against one reference each, or several.

    Args:
        hypotheses: The system's detokenised translations, one string per segment.
        references: The untouched references, in the same order; or a list of such lists, each of which has another
            reference for every segment.
        metrics: Names from `METRICS`; the scores come back in this order.
        target_language: Code of the language translated into, such as `"de"` or `"de_DE"`: Moses' rules depend on it.
            "sacrebleu" and its like split words alike whatever the language; they find none in Chinese or Japanese.
        test_set: Name of the test set, copied into each score.
        resamples: Bootstrap samples that confidence intervals are taken from; sacreBLEU's usual number is 1,000. They
            are the same ones each time, drawn with the seed of the environment's SACREBLEU_SEED, else 12345.

    Returns:
        One `Score` for each name in `metrics`.

    Raises:
        ValueError: If there is nothing to score, the numbers of hypotheses and references differ, a metric is unknown
            or the target language is no language code.
        TypeError: If hypotheses or references are anything but sequences of strings. A single string is refused too:
            it would be scored character by character.
    """
    from .metrics import build_metric
    from .significance import segment_statistics

    _check_metrics(metrics)
    reference_lists = _reference_lists(references)
    _check_segments({"hypotheses": hypotheses}, reference_lists)
    language_code(target_language)
    scores = []
    for name in metrics:
        metric = build_metric(name, target_language)
        statistics = segment_statistics(metric, hypotheses, reference_lists)
        found = metric._aggregate_and_compute(statistics)
        mean, confidence = _interval(metric, statistics, resamples) if resamples > 1 else (None, None)
        detail, parts = _details(found)
        scores.append(
            Score(
                metric=name,
                value=float(found.score),
                signature=_signature(metric, {"bs": resamples} if resamples > 1 else {}),
                test_set=test_set,
                detail=detail,
                statistics=parts,
                mean=mean,
                confidence=confidence,
            )
        )
    return scores


def _interval(
    metric: "Metric", statistics: Sequence[Sequence[float]], samples: int
) -> tuple[float | None, float | None]:
    """Mean and half the width of the interval; None twice of a single segment, all samples of which are alike."""
    from sacrebleu.significance import estimate_ci

    from .significance import bootstrap_scores

    if len(statistics) == 1:
        return None, None
    mean, confidence = estimate_ci(bootstrap_scores(metric, statistics, samples))
    return float(mean), float(confidence)


def score_segments(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
) -> list[dict[str, float]]:
    """Scores each translation alone.

    BLEU of a single sentence is smoothed ("exp") and taken over no longer n-grams than the sentence has, in all its
    variants. NIST keeps the weights of n-grams that all references together give.

    Args:
        hypotheses: As for `score_translations`.
        references: As for `score_translations`.
        metrics: As for `score_translations`.
        target_language: As for `score_translations`.

    Returns:
        For each segment the value of each metric, by name.

    Raises:
        ValueError, TypeError: As `score_translations`.
    """
    from .metrics import build_metric
    from .significance import segment_statistics

    _check_metrics(metrics)
    reference_lists = _reference_lists(references)
    _check_segments({"hypotheses": hypotheses}, reference_lists)
    language_code(target_language)
    segments: list[dict[str, float]] = [{} for _ in hypotheses]
    for name in metrics:
        metric = build_metric(name, target_language, for_sentences=True)
        rows = segment_statistics(metric, hypotheses, reference_lists)
        for segment, row in zip(segments, rows, strict=True):
            segment[name] = float(metric._aggregate_and_compute([row]).score)
    return segments


def compare_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
    resamples: int = 1000,
    trials: int = 10_000,
) -> list[Comparison]:
    """Tests whether systems differ from the first of them by more than chance, with both of sacreBLEU's paired tests.

    The p-values are sacreBLEU's, except where differences that arise by chance equal the one observed: here they count
    as such (see `significance`), so that a system does not differ from itself.

    Args:
        systems: Translations of the same segments by the name of the system, the baseline first.
        references: As for `score_translations`.
        metrics: Names from `METRICS`.
        target_language: As for `score_translations`.
        resamples: Samples of the paired bootstrap.
        trials: Shufflings of the approximate randomisation.

    Returns:
        A comparison for each system but the first, and each metric.

    Raises:
        ValueError, TypeError: As `score_translations`; and if there are fewer than two systems.
    """
    from .metrics import build_metric
    from .significance import bootstrap_p, bootstrap_scores, randomization_p, segment_statistics

    _check_metrics(metrics)
    reference_lists = _reference_lists(references)
    _check_segments(systems, reference_lists)
    language_code(target_language)
    if len(systems) < 2:
        raise ValueError(f"a comparison needs two systems or more, got {len(systems)}")
    if min(resamples, trials) < 1:
        raise ValueError(f"tests need a sample or more, got resamples={resamples} and trials={trials}")
    baseline, *others = systems
    comparisons = []
    for name in metrics:
        metric = build_metric(name, target_language)
        rows = {system: segment_statistics(metric, texts, reference_lists) for system, texts in systems.items()}
        values = {system: metric._aggregate_and_compute(rows[system]).score for system in systems}
        samples = {system: bootstrap_scores(metric, rows[system], resamples) for system in systems}
        signatures = (_signature(metric, {"bs": resamples}), _signature(metric, {"ar": trials}))
        for system in others:
            difference = float(values[system] - values[baseline])
            by_bootstrap = bootstrap_p(samples[baseline], samples[system], difference)
            comparisons.append(
                Comparison(
                    system=system,
                    baseline=baseline,
                    metric=name,
                    difference=difference,
                    bootstrap_p=by_bootstrap if len(rows[system]) > 1 else 1.0,
                    randomization_p=randomization_p(metric, rows[baseline], rows[system], difference, trials),
                    signatures=signatures,
                )
            )
    return comparisons


def perplexity(negative_log_likelihood_per_token: float) -> float:
    """Returns the perplexity, e to the power of the mean negative log-likelihood per token.

    The paper's caption of Table 3 says: "Listed perplexities are per-wordpiece, according to our byte-pair encoding,
    and should not be compared to per-word perplexities." The fewer and longer the pieces, the higher the perplexity of
    the same model, so two perplexities are comparable only within one vocabulary. They are also comparable only without
    label smoothing, whose loss is no likelihood.

    Args:
        negative_log_likelihood_per_token: In nats, averaged over real target tokens (no padding).

    Returns:
        A value from 1 upwards; `inf` where it exceeds the range of floating-point numbers.
    """
    try:
        return math.exp(negative_log_likelihood_per_token)
    except OverflowError:
        return math.inf


def perplexity_scores(
    log_probabilities: Sequence[float],
    tokens: Sequence[int],
    references: Sequence[str],
    *,
    vocabulary_size: int,
    test_set: str = "",
) -> list[Score]:
    """Perplexity of a model on references, per token of its vocabulary and per word; label smoothing is no part of it.

    The end of a sentence counts as a token and as a word: it is predicted too. Words are what stands between spaces.

    Args:
        log_probabilities: Of each reference given its source, its end included, in nats.
        tokens: How many tokens that is, the end included.
        references: The references as text, to count their words.
        vocabulary_size: Tokens of the vocabulary, for the signature: only within one are perplexities per token
            comparable, as the paper says under its Table 3. Those per word are comparable on the same text.
        test_set: Name of the test set, copied into each score.

    Returns:
        The scores "perplexity_per_token" and "perplexity_per_word".
    """
    nats = -math.fsum(log_probabilities)
    words = sum(len(reference.split()) + 1 for reference in references)
    common = f"smoothing:no|vocabulary:{vocabulary_size}"
    return [
        Score(
            f"perplexity_per_{unit}",
            perplexity(nats / count),
            f"per:{unit}|{common}",
            test_set,
            f"{nats:.1f} nats, {count} {unit}s with the ends of {len(references)} sentences",
        )
        for unit, count in (("token", sum(tokens)), ("word", words))
    ]


def _check_metrics(metrics: Sequence[str]) -> None:
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a list of names, got the string {metrics!r}; write [{metrics!r}]")
    for metric in metrics:
        check_metric(metric)


def _reference_lists(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """The lists of references, whether one list of texts was given or several."""
    if isinstance(references, str):
        raise TypeError("references must be a sequence of strings, one per segment; got one string")
    if not references or any(isinstance(each, str) or not isinstance(each, Sequence) for each in references):
        return [list(references)]
    return [list(each) for each in references]


def _check_segments(systems: Mapping[str, Sequence[str]], reference_lists: list[list[str]]) -> None:
    names = ["references"] if len(reference_lists) == 1 else [f"references[{i}]" for i in range(len(reference_lists))]
    for name, segments in [*systems.items(), *zip(names, reference_lists, strict=True)]:
        if isinstance(segments, str):
            raise TypeError(f"{name} must be a sequence of strings, one per segment; got one string")
        for index, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise TypeError(f"{name}[{index}] must be a string, got {type(segment).__name__}")
    for system, hypotheses in systems.items():
        for name, segments in zip(names, reference_lists, strict=True):
            if len(hypotheses) != len(segments):
                raise ValueError(
                    f"every hypothesis needs its reference: got {len(hypotheses)} {system} and {len(segments)} {name}"
                )
        if not hypotheses:
            raise ValueError(f"nothing to score: {system} and references are empty")


def _signature(metric: "Metric", samples: Mapping[str, int]) -> str:
    """sacreBLEU's signature, with how many samples were drawn, and what our tokenizers do before they tokenise."""
    from .significance import seed

    signature = metric.get_signature()
    for kind, number in samples.items():
        signature.update(kind, number)
        signature.update("seed", str(seed()).lower())
    normalization = getattr(getattr(metric, "tokenizer", None), "normalization", None)
    text = str(signature)
    return text if normalization is None else text.replace("|tok:", f"|norm:{normalization}|tok:")


def _details(found) -> tuple[str, dict[str, float | list[float]]]:
    """What a score of sacreBLEU is made of: for people, in the words of Moses' multi-bleu.perl, and for programs."""
    if not hasattr(found, "precisions"):
        return getattr(found, "_verbose", "") or "", {}
    statistics = {
        "precisions": [float(precision) for precision in found.precisions],
        "brevity_penalty": float(found.bp),
        "length_ratio": float(found.ratio),
        "hypothesis_length": int(found.sys_len),
        "reference_length": int(found.ref_len),
    }
    precisions = "/".join(f"{precision:.1f}" for precision in found.precisions)
    lengths = f"ratio={found.ratio:.3f} hyp_len={found.sys_len} ref_len={found.ref_len}"
    return f"{precisions} (BP={found.bp:.3f} {lengths})", statistics
