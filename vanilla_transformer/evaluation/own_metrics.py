"""Metrics that sacreBLEU lacks, written like its own, so that they share its bootstrap and its paired tests."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.metrics.helpers import extract_all_word_ngrams
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from .. import __version__


class OwnSignature(Signature):
    """The `settings` of a metric, and this package's version."""

    def __init__(self, args: dict):
        super().__init__(args)
        self.info.update(args["settings"])
        self.info["version"] = f"vanilla-transformer-{__version__}"


class OwnMetric(Metric):
    """A metric whose score is a function of numbers summed over segments."""

    _SIGNATURE_TYPE = OwnSignature

    def __init__(self, settings: dict):
        super().__init__()
        self.settings = settings

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


class ExactMatch(OwnMetric):
    """Percentage of hypotheses that are identical to a reference, after Unicode normalisation (NFC)."""

    def __init__(self):
        super().__init__({"case": "mixed", "norm": "nfc"})

    def _preprocess_segment(self, sent: str) -> str:
        return unicodedata.normalize("NFC", sent)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict:
        return {"texts": set(refs)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        return [int(hypothesis in ref_kwargs["texts"]), 1]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        identical, segments = stats
        score = Score("exact match", 100 * float(identical) / float(segments))
        score._verbose = f"{int(identical)} of {int(segments)} identical"
        return score


class NIST(OwnMetric):
    """NIST as mteval-v13a.pl computes it (Doddington, 2002): a sum of information, not a percentage.

    A matching n-gram counts by its information in bits: log2 of how often its first n - 1 words occur in the references
    divided by how often all n do. These sums are divided by the number of n-grams in the hypotheses, added up for
    n = 1 ... 5, and lowered where the hypotheses are shorter than the references (half at two thirds).

    A pair that begins with the word "0" is weighted like a single word, since Perl takes "0" for false: published
    scores were made that way.

    Args:
        max_ngram_order: The longest n-grams.
        lowercase: Whether to fold the case of ASCII letters, as mteval-v13a.pl does by default; it folds no others.
    """

    def __init__(self, max_ngram_order: int = 5, lowercase: bool = True):
        super().__init__({"case": "lc-ascii" if lowercase else "mixed", "tok": "13a", "order": max_ngram_order})
        self.max_ngram_order = max_ngram_order
        self.lowercase = lowercase
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
        begins = {(): counts[()], ("0",): counts[()]}  # as `$mgram ?` decides in mteval-v13a.pl
        self._information = {
            ngram: math.log2(begins.get(ngram[:-1], counts[ngram[:-1]]) / count)
            for ngram, count in counts.items()
            if ngram != ()
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
