"""Every score of translations as a metric of sacreBLEU: so all have its bootstrap and its paired tests."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.metrics.helpers import extract_all_word_ngrams
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from .metric_names import check_metric, language_code, needs_language
from .signatures import OwnSignature
from .tokenizers import Multi30kTokenizer, PaperTokenizer, TokenizedText
from .tree_metric import BracketingF1


def build_metric(name: str, language: str = "", *, for_sentences: bool = False) -> Metric:
    """Makes a metric of sacreBLEU, with its `corpus_score`, `sentence_score` and `get_signature`.

    Args:
        name: One of `METRICS` or `TREE_METRICS`.
        language: Code of the language translated into, such as `"de"` or `"de_DE"`: Moses' rules depend on it. The
            metrics of `needs_language` are the ones that ask for it.
        for_sentences: BLEU as it makes sense for a single sentence: smoothed, and of no longer n-grams than there are.

    Raises:
        ValueError: There is no metric of this name, or the language is no language code.
    """
    check_metric(name)
    code = language_code(language) if needs_language(name) else ""
    bleu = {"effective_order": for_sentences}
    # multi-bleu.perl, which the figures of papers come from, does not smooth.
    unsmoothed = {**bleu, "tokenize": "none", "force": True, "smooth_method": "exp" if for_sentences else "none"}
    if name == "sacrebleu":
        return BLEU(**bleu)
    if name == "sacrebleu_lowercase":
        return BLEU(**bleu, lowercase=True)
    if name == "sacrebleu_intl":
        return BLEU(**bleu, tokenize="intl")
    if name == "bleu_paper":
        return _with_tokenizer(BLEU(**unsmoothed), PaperTokenizer(code))
    if name == "bleu_tokenized":
        return _with_tokenizer(BLEU(**unsmoothed), PaperTokenizer(code, split_compounds=False))
    if name == "bleu_lowercase_tokenized":
        return _with_tokenizer(BLEU(**unsmoothed, lowercase=True), Multi30kTokenizer(code))
    if name == "bleu_pretokenized":
        return _with_tokenizer(BLEU(**unsmoothed), TokenizedText())
    if name == "chrf":
        return CHRF()
    if name == "chrf++":
        return CHRF(word_order=2)
    if name == "ter":
        return TER()
    if name == "evalb":
        return BracketingF1()
    return NIST() if name == "nist" else ExactMatch()


def _with_tokenizer(metric: BLEU, tokenizer) -> BLEU:
    metric.tokenizer, metric.tokenizer_signature = tokenizer, tokenizer.signature()
    return metric


class ExactMatch(Metric):
    """Percentage of hypotheses that are identical to a reference, after Unicode's normalisation NFC."""

    _SIGNATURE_TYPE = OwnSignature

    def __init__(self):
        super().__init__()
        self.settings = {"case": "mixed", "norm": "nfc"}

    def _preprocess_segment(self, sent: str) -> str:
        return unicodedata.normalize("NFC", sent)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict:
        return {"texts": set(refs)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        return [int(hypothesis in ref_kwargs["texts"]), 1]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        identical, segments = stats
        score = Score("exact match", 100 * float(identical) / float(segments))
        score._verbose = f"{int(identical)} of {int(segments)} identical"
        return score


class NIST(Metric):
    """NIST as mteval-v13a.pl computes it (Doddington, 2002): a sum of information, not a percentage.

    An n-gram that matches counts as much as it tells, in bits: log2 of how often its first n - 1 words stand in the
    references divided by how often all n do. These sums are divided by the number of n-grams in the hypotheses, added
    up for n = 1 ... 5, and lowered where the hypotheses are shorter than the references (half at two thirds).

    Args:
        max_ngram_order: The longest n-grams.
        lowercase: Fold the case of the letters of ASCII, the only ones that mteval-v13a.pl folds; it does by default.
    """

    _SIGNATURE_TYPE = OwnSignature

    def __init__(self, max_ngram_order: int = 5, lowercase: bool = True):
        super().__init__()
        self.max_ngram_order = max_ngram_order
        self.lowercase = lowercase
        self.settings = {"case": "lc-ascii" if lowercase else "mixed", "tok": "13a", "order": max_ngram_order}
        self._tokenizer = Tokenizer13a()
        self._information: dict[tuple[str, ...], float] = {}

    def _preprocess_segment(self, sent: str) -> str:
        tokens = self._tokenizer(sent.rstrip())
        return re.sub("[A-Z]", lambda letter: letter[0].lower(), tokens) if self.lowercase else tokens

    def _cache_references(self, references: Sequence[Sequence[str]]) -> list:
        counts: Counter = Counter()
        for text in (text for texts in references for text in texts if text is not None):
            ngrams, length = extract_all_word_ngrams(self._preprocess_segment(text), 1, self.max_ngram_order)
            counts.update(ngrams)
            counts[()] += length
        self._information = {
            ngram: math.log2(counts[ngram[:-1]] / count) for ngram, count in counts.items() if ngram != ()
        }
        return super()._cache_references(references)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict:
        most: Counter = Counter()
        lengths = []
        for text in refs:
            ngrams, length = extract_all_word_ngrams(text, 1, self.max_ngram_order)
            most |= ngrams
            lengths.append(length)
        return {"most": most, "length": sum(lengths) / len(lengths)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        ngrams, length = extract_all_word_ngrams(hypothesis, 1, self.max_ngram_order)
        information, totals = [0.0] * self.max_ngram_order, [0] * self.max_ngram_order
        for ngram, count in ngrams.items():
            totals[len(ngram) - 1] += count
            matching = min(count, ref_kwargs["most"][ngram])
            if matching:
                information[len(ngram) - 1] += matching * self._information[ngram]
        return [length, ref_kwargs["length"], *information, *totals]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        length, reference_length = float(stats[0]), float(stats[1])
        information = stats[2 : 2 + self.max_ngram_order]
        totals = stats[2 + self.max_ngram_order :]
        sums = [float(bits) / max(float(total), 1) for bits, total in zip(information, totals, strict=True)]
        ratio = length / reference_length if reference_length else 1.0
        beta = -math.log(2) / math.log(1.5) ** 2
        penalty = (math.exp(beta * math.log(ratio) ** 2) if ratio < 1 else 1.0) if length else 0.0
        score = Score("NIST", penalty * sum(sums))
        score._verbose = "/".join(f"{each:.4f}" for each in sums) + f" (penalty={penalty:.3f} ratio={ratio:.3f})"
        return score
