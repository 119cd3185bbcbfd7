"""The table of metrics: the name of each, what it means, and how it is made.

Help texts, recipes and commands read the table, so it needs nothing but the standard library: sacreBLEU is imported
where a metric is made.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ..data.languages import base_of


if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


_EXTRAS = {"ja": "ja", "ko": "ko"}  # languages whose words sacreBLEU finds with a package of its extra


def _bleu(language: str, for_sentences: bool, **options) -> "Metric":
    """BLEU on words as sacreBLEU splits them: by its rules for the language, unless options say how."""
    from sacrebleu.metrics import BLEU

    if "tokenize" not in options:
        options["trg_lang"] = "zh" if language in ("wuu", "yue") else language
    try:
        return BLEU(effective_order=for_sentences, **options)
    except RuntimeError as error:
        if language not in _EXTRAS:
            raise
        raise ImportError(
            f"BLEU into {language!r} needs a program that finds words: pip install "
            f'"sacrebleu[{_EXTRAS[language]}]"; or ask for sacrebleu_char and chrf, which need none.'
        ) from error


def _multi_bleu(tokenizer: str, language: str, for_sentences: bool, lowercase: bool = False, **options) -> "Metric":
    """BLEU on words of one of our tokenizers. multi-bleu.perl, which papers' figures come from, does not smooth."""
    from . import tokenizers

    words = getattr(tokenizers, tokenizer)(language, **options)
    smoothing = "exp" if for_sentences else "none"
    metric = _bleu("", for_sentences, tokenize="none", force=True, smooth_method=smoothing, lowercase=lowercase)
    metric.tokenizer, metric.tokenizer_signature = words, words.signature()
    return metric


def _other(home: str, name: str, language: str, for_sentences: bool, **options) -> "Metric":
    """A metric that is the same for all languages, and for single sentences."""
    return getattr(import_module(home, __package__), name)(**options)


@dataclass(frozen=True)
class MetricRow:
    """A metric.

    `build` makes it. It takes the target language's code ("" where none is needed) and whether single sentences are
    scored: BLEU is then smoothed, and uses no longer n-grams than the sentence has.
    """

    name: str  # as in commands and recipes
    description: str
    build: Callable[[str, bool], "Metric"]
    needs_language: bool = False  # to split text into words by a language's rules
    lower_is_better: bool = False
    of_trees: bool = False  # linearised ones, instead of text
    needs_sources: bool = False  # and its own program, which is looked for when the metric is made
    one_reference: bool = False  # it cannot compare with several


_ROWS = (
    MetricRow(
        "sacrebleu",
        "BLEU on detokenised text with case, split as sacreBLEU does for the target language: as mteval-v13a, but for "
        "Chinese, Japanese and Korean; to report first",
        _bleu,
    ),
    MetricRow(
        "sacrebleu_lowercase",
        "BLEU on detokenised, lower-cased text (case-insensitive sacreBLEU)",
        partial(_bleu, lowercase=True),
    ),
    MetricRow(
        "sacrebleu_intl",
        "BLEU with mteval-v14's international tokenisation, which splits at all Unicode punctuation",
        partial(_bleu, tokenize="intl"),
    ),
    MetricRow(
        "sacrebleu_char",
        "BLEU on the characters of detokenised text with case: for Thai and other scripts without spaces",
        partial(_bleu, tokenize="char"),
    ),
    MetricRow(
        "bleu_paper",
        "the paper's BLEU: Moses-tokenised, case kept, German compounds split at hyphens, not smoothed",
        partial(_multi_bleu, "PaperTokenizer"),
        needs_language=True,
    ),
    MetricRow(
        "bleu_tokenized",
        "the same without splitting compounds",
        partial(_multi_bleu, "PaperTokenizer", split_compounds=False),
        needs_language=True,
    ),
    MetricRow(
        "bleu_lowercase_tokenized",
        "BLEU on lower-cased, Moses-tokenised text, the Multi30k literature's number",
        partial(_multi_bleu, "Multi30kTokenizer", lowercase=True),
        needs_language=True,
    ),
    MetricRow(
        "bleu_pretokenized",
        "multi-bleu.perl: BLEU on text whose words are separated by spaces already",
        partial(_multi_bleu, "TokenizedText"),
    ),
    MetricRow(
        "chrf",
        "chrF2: F-score of character n-grams, kinder than BLEU to rich morphology",
        partial(_other, "sacrebleu.metrics", "CHRF"),
    ),
    MetricRow(
        "chrf++",
        "chrF2 with single words and pairs of words among the n-grams",
        partial(_other, "sacrebleu.metrics", "CHRF", word_order=2),
    ),
    MetricRow(
        "ter",
        "translation edit rate: edits and moves of phrases per 100 words of the reference; lower is better",
        partial(_other, "sacrebleu.metrics", "TER"),
        lower_is_better=True,
    ),
    MetricRow(
        "nist",
        "NIST of mteval-v13a: matching n-grams weighted by how rare they are in the references; no percentage",
        partial(_other, ".own_metrics", "NIST"),
    ),
    MetricRow(
        "exact_match",
        "percentage of hypotheses identical to a reference",
        partial(_other, ".own_metrics", "ExactMatch"),
    ),
    MetricRow(
        "comet",
        "COMET, computed by a trained model: 100 times the mean; needs the program comet-score, installed separately",
        partial(_other, ".comet", "Comet"),
        needs_sources=True,
        one_reference=True,
    ),
    MetricRow(
        "evalb",
        "labelled bracketing F1 of linearised trees by EVALB's rules, except that every sentence counts: malformed "
        "trees are repaired, and punctuation is where the reference has it",
        partial(_other, "..parsing.tree_metric", "BracketingF1"),
        of_trees=True,
        one_reference=True,
    ),
)

METRICS = {row.name: row for row in _ROWS}
"""Every metric by its name. To add one, add its row."""


def metric_named(name: str) -> MetricRow:
    """The row of a metric; its ValueError lists all names."""
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, n=1)
        hint = f"did you mean {near[0]!r}? Choose" if near else "choose"
        raise ValueError(f"unknown metric {name!r}; {hint} from: {', '.join(METRICS)}")
    return METRICS[name]


def build_metric(name: str, language: str = "", *, for_sentences: bool = False) -> "Metric":
    """Makes a metric of sacreBLEU, with its `corpus_score`, `sentence_score` and `get_signature`.

    Args:
        name: One of `METRICS`.
        language: Code of the target language, such as `"de"` or `"de_DE"`; metrics that do not need it may do without.
        for_sentences: See `MetricRow`.

    Raises:
        ValueError: There is no such metric, or it needs a language and this is not a language code.
        ImportError: The metric needs a package for this language that is not installed.
    """
    row = metric_named(name)
    return row.build(language_code(language) if language or row.needs_language else "", for_sentences)


def without_words(names: Iterable[str], language: str) -> list[str]:
    """Which of these metrics find no words in this language, because it has no spaces between words."""
    if language_code(language) not in ("bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"):
        return []
    fine = {"sacrebleu_char", "chrf", "exact_match", "comet", "evalb", "bleu_pretokenized"}
    fine |= {"sacrebleu", "sacrebleu_lowercase"} if language_code(language) in ("ja", "wuu", "yue", "zh") else set()
    return [name for name in names if name not in fine]


def bleu_for(language: str) -> str:
    """The BLEU by which to judge translations into a language during training.

    It counts characters where words cannot be found: the language has no spaces between them, or the package that
    would find them is missing.
    """
    if without_words(["sacrebleu"], language):
        return "sacrebleu_char"
    try:
        build_metric("sacrebleu", language)
    except ImportError:
        return "sacrebleu_char"
    return "sacrebleu"


def language_code(language: str) -> str:
    """The bare language code, or ValueError: Moses would silently take `"de_DE"` or `"German"` for another language."""
    code = base_of(language)
    if not re.fullmatch("[a-z]{2,3}", code):
        raise ValueError(f"target_language must be a language code such as 'de' or 'de_DE', got {language!r}")
    return code
