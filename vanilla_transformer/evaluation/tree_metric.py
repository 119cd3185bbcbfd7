"""EVALB's F1 as a metric of sacreBLEU, of linearised trees: with the bootstrap and the paired tests of the others."""

from collections.abc import Sequence

from sacrebleu.metrics.base import Metric, Score

from .bracketing import score_trees
from .evalb_parameters import COLLINS
from .linearised_trees import UNKNOWN_TAG, has_words, linearise, read_linearised, retagged, words_of
from .signatures import OwnSignature
from .trees import Tree


class BracketingF1(Metric):
    """Labelled bracketing F1 of linearised trees by EVALB's rules, percentages from sums over all sentences.

    A bracket is its label and the places that it spans: where the words are not in the sequences, they are not needed.
    What a hypothesis lacks or has too much is mended as a parser does it (`read_linearised`), and how many needed no
    mending stands in the details. Which places are punctuation, and left out, the reference says: in the Penn Treebank
    the word decides that.
    """

    _SIGNATURE_TYPE = OwnSignature

    def __init__(self):
        super().__init__()
        self.settings = {"rules": "collins", "malformed": "mended"}

    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict:
        if len(refs) != 1:
            raise ValueError(f"evalb compares a tree with one reference, not with {len(refs)}.")
        words, with_words = words_of(refs[0]), has_words(refs[0])
        if not words or "" in words:
            raise ValueError(f"a reference is no linearised tree (no words, or a tag without one): {refs[0]}")
        gold = read_linearised(refs[0], words, with_words)
        if gold.repairs or linearise(gold.tree, with_words) != refs[0]:
            raise ValueError(f"a reference is no linearised tree ({'; '.join(gold.repairs)}): {refs[0]}")
        return {"gold": gold.tree, "words": words, "with_words": with_words}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        gold, words = ref_kwargs["gold"], ref_kwargs["words"]
        read = read_linearised(hypothesis, words, ref_kwargs["with_words"])
        parsed = _punctuated_like(read.tree, gold)
        [score] = score_trees([str(gold)], [str(parsed)], COLLINS).sentences
        return [score.matched, score.gold, score.parsed, not read.repairs, 1]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        matched, gold, parsed, well_formed, segments = (float(each) for each in stats)
        score = Score("EVALB F1", 200 * matched / (gold + parsed) if gold + parsed else 0.0)
        recall, precision = (100 * matched / total if total else 0.0 for total in (gold, parsed))
        score._verbose = (
            f"recall={recall:.2f} precision={precision:.2f} well-formed={well_formed:.0f} of {segments:.0f} "
            f"({100 * well_formed / segments:.1f} %)"
        )
        return score


def _punctuated_like(tree: Tree, gold: Tree) -> Tree:
    """The tree with the tags of the gold tree where that has punctuation, and no punctuation elsewhere."""
    tags = []
    for leaf, right in zip(tree.leaves(), gold.leaves(), strict=True):
        if right.label in COLLINS.delete_labels:
            tags.append(right.label)
        else:
            tags.append(UNKNOWN_TAG if leaf.label in COLLINS.delete_labels else leaf.label)
    return retagged(tree, tags)
