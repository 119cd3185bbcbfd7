"""The names of the scores of translations, and what must be known to compute them."""

import difflib
import re


METRICS = {
    "sacrebleu": "BLEU on detokenised text with case, split as mteval-v13a does: sacreBLEU's default, to report first",
    "sacrebleu_lowercase": "BLEU on detokenised, lower-cased text (case-insensitive sacreBLEU)",
    "sacrebleu_intl": "BLEU with mteval-v14's international tokenisation, which splits at all Unicode punctuation",
    "bleu_paper": "the paper's BLEU: Moses-tokenised, case kept, German compounds split at hyphens, not smoothed",
    "bleu_tokenized": "the same without the splitting of compounds",
    "bleu_lowercase_tokenized": "BLEU on lower-cased, Moses-tokenised text, the Multi30k literature's number",
    "bleu_pretokenized": "multi-bleu.perl: BLEU on text whose words are separated by spaces already",
    "chrf": "chrF2: F-score of character n-grams, kinder than BLEU to rich morphology",
    "chrf++": "chrF2 with single words and pairs of words among the n-grams",
    "ter": "translation edit rate: edits and moves of phrases per 100 words of the reference; lower is better",
    "nist": "NIST of mteval-v13a: matching n-grams weighed by how rare they are in the references; no percentage",
    "exact_match": "percentage of hypotheses identical to a reference",
}
"""The name of each metric that `score_translations` knows, with one line that explains it."""

TREE_METRICS = {
    "evalb": "EVALB's labelled bracketing F1 of linearised trees, mended where they are malformed",
}
"""The same for what is no text: trees as sequences of symbols."""

LOWER_IS_BETTER = frozenset({"ter"})
"""Names of the metrics whose smallest value is the best."""


def check_metric(name: str) -> None:
    """Raises ValueError, with the nearest name there is, if neither `METRICS` nor `TREE_METRICS` has such a metric."""
    known = [*METRICS, *TREE_METRICS]
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown metric {name!r}; did you mean {nearest!r}? Known are: {', '.join(known)}")


def needs_language(name: str) -> bool:
    """Whether a metric cuts text into words by the rules of a language."""
    return name in ("bleu_paper", "bleu_tokenized", "bleu_lowercase_tokenized")


def lacks_spaces(language: str) -> bool:
    """Whether a language puts no spaces between words: its BLEU is counted on characters, or on a segmenter's words."""
    return language_code(language) in ("bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh")


def language_code(language: str) -> str:
    """Returns the bare language code; Moses would take `"de_DE"` or `"German"` for an unknown language in silence.

    Raises:
        ValueError: It is no language code.
    """
    code = re.split("[-_]", language)[0].lower()
    if not re.fullmatch("[a-z]{2,3}", code):
        raise ValueError(f"target_language must be a language code such as 'de' or 'de_DE', got {language!r}")
    return code
