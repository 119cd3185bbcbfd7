"""Scores of translations, each with a signature that says exactly what was computed.

Two numbers called "BLEU" can be compared only if they were computed alike: in case, tokens and smoothing. Post (2018),
"A Call for Clarity in Reporting BLEU Scores", asks for a signature beside every score; here no score exists without
one.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from . import significance
from .metrics import build_metric, language_code, metric_named


if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


@dataclass(frozen=True)
class Score:
    """One score of one set of hypotheses, or of a model.

    Attributes:
        metric: One of `METRICS`, or a name that `perplexity_scores` gives.
        value: From 0 to 100, except for "ter" (may be more), "nist" (unbounded) and perplexities (from 1).
        signature: The exact computation, in sacreBLEU's notation. Compare scores only if their signatures agree.
        test_set: The name of the test set, if the caller gave one.
        detail: The components of the value, such as BLEU's n-gram precisions, brevity penalty and lengths in tokens.
        statistics: The numbers of `detail`, by name. Lengths are in tokens; `length_ratio` is hypotheses to references;
            precisions are percentages.
        mean: Mean of the score over the bootstrap's samples; None without a bootstrap, and for a single segment.
        confidence: Half the width of the interval around `mean` that holds 95 % of the samples; None where `mean` is
            None.
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
        baseline: The name of the system it is compared with.
        metric: One of `METRICS`.
        difference: Score of the system minus that of the baseline.
        randomization_p: Two-sided p-value by approximate randomisation, the one to report.
        bootstrap_p: One-sided p-value by paired bootstrap resampling: about half of `randomization_p` (see
            `significance.bootstrap_p`). 1 for a single segment, whose samples are all alike.
        signatures: Those of both tests in this order, with their numbers of samples and their seed.
        interval: The bounds of the middle 95 % of the differences on the paired bootstrap's samples.
    """

    system: str
    baseline: str
    metric: str
    difference: float
    randomization_p: float
    bootstrap_p: float
    signatures: tuple[str, str]
    interval: tuple[float, float]


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
    sources: Sequence[str] | None = None,
    test_set: str = "",
    resamples: int = 0,
) -> list[Score]:
    """Scores translations against one or more references each.

    Texts that are not in NFC are scored in NFC, as our models write: a letter with its accent is the same text whether
    it is one character or two. `form:nfc` in the signature says so.

    Args:
        hypotheses: The system's detokenised translations, one string per segment.
        references: The untouched references in the same order; or several such lists, each with one reference for every
            segment.
        metrics: Names from `METRICS`; the scores come back in this order.
        target_language: Code of the target language, such as `"de"` or `"de_DE"`: Moses' rules depend on it.
            "sacrebleu" splits Chinese, Japanese and Korean as sacreBLEU does for these.
        sources: The source sentences, for metrics that also read them ("comet").
        test_set: Name of the test set, copied into each score.
        resamples: Bootstrap samples for confidence intervals; sacreBLEU's usual number is 1,000. They are the same
            each time; the seed is the environment variable SACREBLEU_SEED, by default 12345.

    Returns:
        One `Score` for each name in `metrics`.

    Raises:
        ValueError: There is nothing to score, the numbers of hypotheses and references differ, a metric is unknown or
            the target language is not a language code.
        ImportError: sacreBLEU needs a package to split text of the target language.
        TypeError: Hypotheses or references are not sequences of strings. A single string is refused too: it would be
            scored character by character.
    """
    reference_lists = _checked({"hypotheses": hypotheses}, references, metrics, target_language)
    [hypotheses, *reference_lists], composed = _composed([hypotheses, *reference_lists])
    scores = []
    for name in metrics:
        metric = _built(name, target_language, sources)
        statistics = significance.segment_statistics(metric, hypotheses, reference_lists)
        found = metric._aggregate_and_compute(statistics)
        mean = confidence = None
        if resamples > 1 and len(statistics) > 1:  # all samples of a single segment are alike
            from sacrebleu.significance import estimate_ci

            mean, confidence = map(float, estimate_ci(significance.bootstrap_scores(metric, statistics, resamples)))
        detail, parts = _details(found)
        signature = _signature(metric, {} if mean is None else {"bs": resamples}, composed)
        scores.append(Score(name, float(found.score), signature, test_set, detail, parts, mean, confidence))
    return scores


def score_segments(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
    sources: Sequence[str] | None = None,
) -> list[dict[str, float]]:
    """Scores each translation alone: returns, for each segment, the value of each metric by name.

    BLEU of a single sentence, in all its variants, is smoothed ("exp") and uses no longer n-grams than the sentence
    has. NIST keeps the n-gram weights that come from all references together. Arguments and errors are those of
    `score_translations`.
    """
    reference_lists = _checked({"hypotheses": hypotheses}, references, metrics, target_language)
    [hypotheses, *reference_lists], _ = _composed([hypotheses, *reference_lists])
    segments: list[dict[str, float]] = [{} for _ in hypotheses]
    for name in metrics:
        metric = _built(name, target_language, sources, for_sentences=True)
        rows = significance.segment_statistics(metric, hypotheses, reference_lists)
        for segment, row in zip(segments, rows, strict=True):
            segment[name] = float(metric._aggregate_and_compute([row]).score)
    return segments


def compare_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    target_language: str,
    sources: Sequence[str] | None = None,
    resamples: int = 1000,
    trials: int = 10_000,
) -> list[Comparison]:
    """Tests whether systems differ from the first of them by more than chance, with both of sacreBLEU's paired tests.

    `significance` says which test to report, and where they differ from sacreBLEU's.

    Args:
        systems: Translations of the same segments by the name of the system, the baseline first.
        references, metrics, target_language, sources: As for `score_translations`.
        resamples: Samples of the paired bootstrap.
        trials: Shuffles of the approximate randomisation.

    Returns:
        A comparison for each metric and each system but the first.

    Raises:
        ValueError, TypeError: As `score_translations`; or there are fewer than two systems, or no samples.
    """
    reference_lists = _checked(systems, references, metrics, target_language)
    if len(systems) < 2:
        raise ValueError(f"a comparison needs two systems or more, got {len(systems)}")
    if min(resamples, trials) < 1:
        raise ValueError(f"tests need a sample or more, got resamples={resamples} and trials={trials}")
    baseline, *others = systems
    texts, composed = _composed([*systems.values(), *reference_lists])
    systems, reference_lists = dict(zip(systems, texts[: len(systems)], strict=True)), texts[len(systems) :]
    comparisons = []
    for name in metrics:
        metric = _built(name, target_language, sources)
        rows = {
            system: significance.segment_statistics(metric, hypotheses, reference_lists)
            for system, hypotheses in systems.items()
        }
        values = {system: metric._aggregate_and_compute(rows[system]).score for system in systems}
        # Without a set seed, one is drawn here, so that the systems share their samples all the same.
        start = np.random.SeedSequence(significance.seed()).entropy
        drawn = {system: significance.bootstrap_scores(metric, rows[system], resamples, start) for system in systems}
        signatures = tuple(_signature(metric, samples, composed) for samples in ({"ar": trials}, {"bs": resamples}))
        for system in others:
            difference = float(values[system] - values[baseline])
            by_randomization = significance.randomization_p(metric, rows[baseline], rows[system], difference, trials)
            by_bootstrap = 1.0  # all samples of a single segment are alike
            if len(rows[system]) > 1:
                by_bootstrap = significance.bootstrap_p(drawn[baseline], drawn[system], difference)
            low, high = np.percentile(drawn[system] - drawn[baseline], [2.5, 97.5])
            interval = (float(low), float(high))
            comparisons.append(
                Comparison(system, baseline, name, difference, by_randomization, by_bootstrap, signatures, interval)
            )
    return comparisons


def perplexity(negative_log_likelihood_per_token: float) -> float:
    """The perplexity: e to the power of the mean negative log-likelihood per token.

    The fewer and longer the pieces, the higher the perplexity of the same model. So two perplexities can be compared
    only within one vocabulary (the paper says so under its Table 3), and only without label smoothing, whose loss is
    not a likelihood.

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
    """Perplexity of a model on references, per token of its vocabulary and per word, without label smoothing.

    The end of a sentence counts as a token and as a word: it is predicted too. Words are separated by spaces.

    Args:
        log_probabilities: That of each reference given its source, in nats.
        tokens: How many tokens the references have.
        references: The references as text, to count their words.
        vocabulary_size: Tokens of the vocabulary, for the signature. Perplexities per word can be compared across
            vocabularies, on the same text.
        test_set: Name of the test set, copied into each score.

    Returns:
        The scores "perplexity_per_token" and "perplexity_per_word".
    """
    nats = -math.fsum(log_probabilities)
    words = sum(len(reference.split()) + 1 for reference in references)
    return [
        Score(
            f"perplexity_per_{unit}",
            perplexity(nats / count),
            f"per:{unit}|smoothing:no|vocabulary:{vocabulary_size}",
            test_set,
            f"{nats:.1f} nats, {count} {unit}s with the ends of {len(references)} sentences",
        )
        for unit, count in (("token", sum(tokens)), ("word", words))
    ]


def _built(name: str, language: str, sources: Sequence[str] | None, *, for_sentences: bool = False) -> "Metric":
    """A metric that has the sources if it reads them."""
    metric = build_metric(name, language, for_sentences=for_sentences)
    if metric_named(name).needs_sources:
        if sources is None:
            raise ValueError(f"{name} reads the sources too, which are not given: score by `evaluate --sources FILE`.")
        metric.sources = sources
    return metric


def _checked(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    target_language: str,
) -> list[list[str]]:
    """The lists of references, one or more, after a check of all arguments of `score_translations`."""
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a list of names, got the string {metrics!r}; write [{metrics!r}]")
    for metric in metrics:
        metric_named(metric)
    several = references and all(isinstance(each, Sequence) and not isinstance(each, str) for each in references)
    lists = references if several else [references]
    named_lists = {"references" if len(lists) == 1 else f"references[{i}]": each for i, each in enumerate(lists)}
    for name, segments in [*systems.items(), *named_lists.items()]:
        if isinstance(segments, str):
            raise TypeError(f"{name} must be a sequence of strings, one per segment; got one string")
        for index, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise TypeError(f"{name}[{index}] must be a string, got {type(segment).__name__}")
    for system, hypotheses in systems.items():
        for name, segments in named_lists.items():
            if len(hypotheses) != len(segments):
                raise ValueError(
                    f"every hypothesis needs its reference: got {len(hypotheses)} {system} and {len(segments)} {name}"
                )
        if not hypotheses:
            raise ValueError(f"nothing to score: {system} and references are empty")
    language_code(target_language)
    return [list(each) for each in lists]


def _composed(lists: Sequence[Sequence[str]]) -> tuple[list[list[str]], bool]:
    """The texts in NFC, and whether that changed any of them."""
    found = [[unicodedata.normalize("NFC", text) for text in texts] for texts in lists]
    return found, found != [list(texts) for texts in lists]


def _signature(metric: "Metric", samples: Mapping[str, int], composed: bool) -> str:
    """sacreBLEU's signature, with the number of samples, and the changes made to texts before they were split."""
    signature = metric.get_signature()
    for kind, number in samples.items():
        signature.update(kind, number)
        signature.update("seed", str(significance.seed()).lower())
    normalization = getattr(getattr(metric, "tokenizer", None), "normalization", None)
    text = str(signature)
    if composed:
        text = text.replace("|version:", "|form:nfc|version:")
    return text if normalization is None else text.replace("|tok:", f"|norm:{normalization}|tok:")


def _details(found) -> tuple[str, dict[str, float | list[float]]]:
    """The components of a sacreBLEU score: for people, in the words of Moses' multi-bleu.perl, and for programs."""
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
