"""Bracketing F1 of linearised trees by EVALB's rules, as a metric of sacreBLEU, with its bootstrap and tests."""

from collections.abc import Sequence

from sacrebleu.metrics.base import Score

from ..evaluation.own_metrics import OwnMetric
from .bracketing import score_trees
from .evalb_parameters import COLLINS
from .linearised_trees import UNKNOWN_TAG, has_words, linearise, read_linearised, retagged, words_of


class BracketingF1(OwnMetric):
    """Labelled bracketing F1 of linearised trees by EVALB's rules: percentages from sums over all sentences.

    A bracket is its label and the places that it spans, so the words need not be in the sequences. A malformed
    hypothesis is repaired as in parsing (`read_linearised`); the details say how many needed no repair. The reference
    says which places are punctuation and so left out: in the Penn Treebank the word decides that.

    So every sentence counts, and the number is not always EVALB's (`score_trees`). If a word is tagged as punctuation
    by mistake, or punctuation as a word, the sentence has too many or too few words for EVALB. EVALB leaves such
    sentences out, and stops at a dozen of them. Without such mistakes, the two numbers are equal.
    """

    def __init__(self):
        super().__init__({"rules": "collins", "malformed": "mended", "punctuation": "reference"})

    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict:
        if len(refs) != 1:
            raise ValueError(f"evalb compares a tree with one reference, not with {len(refs)}.")
        words, with_words = words_of(refs[0]), has_words(refs[0])
        if not words or "" in words:
            raise ValueError(f"a reference is not a linearised tree (no words, or a tag without one): {refs[0]}")
        gold = read_linearised(refs[0], words, with_words)
        if gold.repairs or linearise(gold.tree, with_words).split() != refs[0].split():
            raise ValueError(f"a reference is not a linearised tree ({'; '.join(gold.repairs)}): {refs[0]}")
        return {"gold": gold.tree, "words": words, "with_words": with_words}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        gold, words = ref_kwargs["gold"], ref_kwargs["words"]
        read = read_linearised(hypothesis, words, ref_kwargs["with_words"])
        tags = []
        for leaf, right in zip(read.tree.leaves(), gold.leaves(), strict=True):
            if right.label in COLLINS.delete_labels:
                tags.append(right.label)
            else:
                tags.append(UNKNOWN_TAG if leaf.label in COLLINS.delete_labels else leaf.label)
        parsed = retagged(read.tree, tags)
        [score] = score_trees([str(gold)], [str(parsed)], COLLINS).sentences
        return [score.matched, score.gold, score.parsed, not read.repairs, 1]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        matched, gold, parsed, well_formed, segments = (float(each) for each in stats)
        score = Score("bracketing F1", 200 * matched / (gold + parsed) if gold + parsed else 0.0)
        recall, precision = (100 * matched / total if total else 0.0 for total in (gold, parsed))
        score._verbose = (
            f"recall={recall:.2f} precision={precision:.2f} well-formed={well_formed:.0f} of {segments:.0f} "
            f"({100 * well_formed / segments:.1f} %)"
        )
        return score
