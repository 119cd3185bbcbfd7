"""Scores of translations, each with a signature that says exactly what was computed.

Two numbers called "BLEU" are comparable only if they were computed alike: with or without case, on which tokens, with
which smoothing. Post (2018), "A Call for Clarity in Reporting BLEU Scores", asks for a signature beside every score;
here no score exists without one.
"""

import difflib
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


METRICS = {
    "sacrebleu": "BLEU on detokenised text with case: sacreBLEU's default, the number to report first",
    "sacrebleu_lowercase": "BLEU on detokenised, lower-cased text (case-insensitive sacreBLEU)",
    "bleu_lowercase_tokenized": "BLEU on lower-cased, Moses-tokenised text, the Multi30k literature's number",
    "chrf": "chrF2: F-score of character n-grams, kinder than BLEU to rich morphology",
    "exact_match": "percentage of hypotheses identical to their reference",
}
"""The name of each metric that `score_translations` knows, with one line that explains it."""


@dataclass(frozen=True)
class Score:
    """One score of one set of hypotheses.

    Attributes:
        metric: One of `METRICS`.
        value: The score, from 0 to 100.
        signature: What exactly was computed, in sacreBLEU's notation. Compare scores only where signatures agree.
        test_set: The name of the test set, if the caller gave one.
        detail: What the value is made of, such as BLEU's n-gram precisions, brevity penalty and lengths in tokens.
    """

    metric: str
    value: float
    signature: str
    test_set: str = ""
    detail: str = ""


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str],
    *,
    target_language: str,
    test_set: str = "",
) -> list[Score]:
    """Scores translations against one reference each.

    Args:
        hypotheses: The system's detokenised translations, one string per segment.
        references: The untouched references, in the same order.
        metrics: Names from `METRICS`; the scores come back in this order.
        target_language: Code of the language translated into, such as `"de"` or `"de_DE"`: Moses' rules depend on it.
        test_set: Name of the test set, copied into each score.

    Returns:
        One `Score` for each name in `metrics`.

    Raises:
        ValueError: If there is nothing to score, the numbers of hypotheses and references differ, a metric is unknown
            or the target language is no language code.
        TypeError: If hypotheses or references are anything but sequences of strings. A single string is refused too:
            it would be scored character by character.
    """
    _check_metrics(metrics)
    _check_segments(hypotheses, references)
    language = _language_code(target_language)
    return [_score(metric, hypotheses, references, language, test_set) for metric in metrics]


def tokenize_for_multi30k(sentences: Sequence[str], language: str) -> list[str]:
    """Lower-cases, normalises the punctuation of, and Moses-tokenises sentences as Multi30k's own script does.

    The script is `scripts/task1-tokenize.sh` of the repository multi30k/dataset: `lowercase.perl |
    normalize-punctuation.perl -l LANGUAGE | tokenizer.perl -l LANGUAGE`. Lower-casing comes first, which matters: Moses
    would take the beard of "rasiert seinen Bart." for the abbreviation "Bart." and keep the full stop on it. The order,
    the escaping (`"` becomes `&quot;`) and sacremoses' `perl_parity` are right because with them the texts have the
    length of the files published there as `data/task1/tok`, to the character, and test_2016_flickr.de has the 12,103
    words that Wu et al. (2021) print.

    Args:
        sentences: Detokenised sentences.
        language: Code of their language, such as `"de"`.

    Returns:
        One string per sentence, its tokens separated by single spaces.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer = MosesPunctNormalizer(lang=language, perl_parity=True)
    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in sentences]


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


def _check_metrics(metrics: Sequence[str]) -> None:
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a list of names, got the string {metrics!r}; write [{metrics!r}]")
    for metric in metrics:
        if metric not in METRICS:
            nearest = difflib.get_close_matches(metric, METRICS, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown metric {metric!r}; did you mean {nearest!r}? Known are: {', '.join(METRICS)}")


def _check_segments(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    for name, segments in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(segments, str):
            raise TypeError(f"{name} must be a sequence of strings, one per segment; got one string")
        for index, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise TypeError(f"{name}[{index}] must be a string, got {type(segment).__name__}")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"every hypothesis needs its reference: got {len(hypotheses)} hypotheses and {len(references)} references"
        )
    if not hypotheses:
        raise ValueError("nothing to score: hypotheses and references are empty")


def _language_code(target_language: str) -> str:
    """Returns the bare language code; Moses would take `"de_DE"` or `"German"` for an unknown language in silence."""
    code = re.split("[-_]", target_language)[0].lower()
    if not re.fullmatch("[a-z]{2,3}", code):
        raise ValueError(f"target_language must be a language code such as 'de' or 'de_DE', got {target_language!r}")
    return code


def _score(metric: str, hypotheses: Sequence[str], references: Sequence[str], language: str, test_set: str) -> Score:
    if metric == "sacrebleu":
        value, signature, detail = _bleu(hypotheses, references)
    elif metric == "sacrebleu_lowercase":
        value, signature, detail = _bleu(hypotheses, references, lowercase=True)
    elif metric == "bleu_lowercase_tokenized":
        value, signature, detail = _bleu_lowercase_tokenized(hypotheses, references, language)
    elif metric == "chrf":
        value, signature, detail = _chrf(hypotheses, references)
    else:
        value, signature, detail = _exact_match(hypotheses, references)
    return Score(metric, value, signature, test_set, detail)


def _bleu(hypotheses: Sequence[str], references: Sequence[str], **settings) -> tuple[float, str, str]:
    """Returns value, signature and detail of sacreBLEU's corpus BLEU; `settings` are those of its `BLEU` class."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(**settings)
    bleu = metric.corpus_score(hypotheses, [references])
    precisions = "/".join(f"{precision:.1f}" for precision in bleu.precisions)
    # In the words of Moses' multi-bleu.perl, so that lines from papers can be compared by eye.
    lengths = f"ratio={bleu.ratio:.3f} hyp_len={bleu.sys_len} ref_len={bleu.ref_len}"
    return bleu.score, str(metric.get_signature()), f"{precisions} (BP={bleu.bp:.3f} {lengths})"


def _bleu_lowercase_tokenized(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> tuple[float, str, str]:
    tokenized_hypotheses = tokenize_for_multi30k(hypotheses, language)
    tokenized_references = tokenize_for_multi30k(references, language)
    # `force` tells sacreBLEU that scoring tokenised text is intended; multi-bleu.perl does not smooth.
    value, signature, detail = _bleu(
        tokenized_hypotheses, tokenized_references, tokenize="none", force=True, smooth_method="none"
    )
    tokenizer = f"norm:moses-perlparity|tok:moses-sacremoses-{version('sacremoses')}-{language}-escaped"
    signature = signature.replace("case:mixed", "case:lc").replace("tok:none", tokenizer)
    return value, signature, detail


def _chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str, str]:
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    value = metric.corpus_score(hypotheses, [references]).score
    return value, str(metric.get_signature()), ""


def _exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str, str]:
    identical = sum(
        unicodedata.normalize("NFC", hypothesis) == unicodedata.normalize("NFC", reference)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    signature = f"nrefs:1|case:mixed|norm:nfc|version:{_own_version()}"
    return 100 * identical / len(references), signature, f"{identical} of {len(references)} identical"


def _own_version() -> str:
    try:
        return version("vanilla-transformer")
    except PackageNotFoundError:  # imported from a checkout that was never installed
        return "checkout"
