"""How good parses are."""

import json as json_format
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ..evaluation.bracketing import BracketingScores, BracketingSummary, SentenceScore


logger = logging.getLogger(__name__)


def evalb(*, gold: Path, parsed: Path, parameters: Path | None = None, json: bool = False) -> None:
    """Scores constituency parses as EVALB does: labelled bracketing recall, precision and F1, in EVALB's table.

    Args:
        gold: Text file of the right trees in brackets, a line per sentence.
        parsed: Text file of the parser's trees; an empty line is a sentence that it could not parse.
        parameters: EVALB's parameter file; the rules of COLLINS.prm if it is not given.
        json: Print JSON instead of a table.
    """
    from ..evaluation.bracketing import score_trees
    from ..evaluation.evalb_parameters import COLLINS, EvalbParameters
    from ..files import text_lines

    chosen = COLLINS if parameters is None else EvalbParameters.from_file(parameters)
    trees, parses = list(text_lines(gold)), list(text_lines(parsed))
    for path, lines in ((gold, trees), (parsed, parses)):
        if not lines:
            raise ValueError(f"{path} is empty: it must have a tree a line.")
    if len(trees) != len(parses):
        raise ValueError(f"{gold} has {len(trees)} lines and {parsed} {len(parses)}: they must agree.")
    try:
        scores = score_trees(trees, parses, chosen)
    except ValueError as error:
        raise ValueError(f"{gold} and {parsed}: {error}") from error
    for score in scores.sentences:
        if score.problem:
            logger.warning("line %d is an error: %s", score.number, score.problem)
    print(json_format.dumps(scores_record(scores), indent=2) if json else evalb_table(scores))


def scores_record(scores: "BracketingScores") -> dict:
    """The scores as JSON has them: what was counted and, beside it, the percentages."""
    return {
        "cutoff_length": scores.cutoff_length,
        "overall": _with(scores.overall, *(name for name, _ in _PERCENTAGES), "valid"),
        "short": _with(scores.short, *(name for name, _ in _PERCENTAGES), "valid"),
        "sentences": [_with(each, "recall", "precision", "tag_accuracy") for each in scores.sentences],
    }


def evalb_table(scores: "BracketingScores") -> str:
    """The scores as EVALB prints them, to the space."""
    rule = "=" * 76
    return "\n".join(
        [
            "  Sent.                        Matched  Bracket   Cross        Correct Tag",
            " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
            rule,
            *(_sentence_line(score) for score in scores.sentences),
            rule,
            _total_line(scores.overall),
            "=== Summary ===",
            "",
            "-- All --",
            *_summary_lines(scores.overall),
            "",
            f"-- len<={scores.cutoff_length} --",
            *_summary_lines(scores.short),
        ]
    )


_PERCENTAGES = (
    ("recall", "Bracketing Recall"),
    ("precision", "Bracketing Precision"),
    ("f1", "Bracketing FMeasure"),
    ("complete_match", "Complete match"),
    ("average_crossing", "Average crossing"),
    ("no_crossing", "No crossing"),
    ("two_or_less_crossing", "2 or less crossing"),
    ("tag_accuracy", "Tagging accuracy"),
)


def _with(score: "SentenceScore | BracketingSummary", *properties: str) -> dict:
    return asdict(score) | {name: getattr(score, name) for name in properties}


def _sentence_line(score: "SentenceScore") -> str:
    return (
        f"{score.number:4d}  {score.length:3d}    {score.status:d}  {score.recall:6.2f} {score.precision:6.2f}"
        f"   {score.matched:3d}    {score.gold:3d}  {score.parsed:3d}    {score.crossing:3d}"
        f"   {score.words:4d}  {score.correct_tags:4d}   {score.tag_accuracy:6.2f}"
    )


def _total_line(summary: "BracketingSummary") -> str:
    # Below crossing brackets stand sentences without any, as in the results that EVALB comes with.
    return (
        f"                {summary.recall:6.2f} {summary.precision:6.2f} {summary.matched:6d}  {summary.gold:5d}"
        f"{summary.parsed:5d}  {summary.without_crossing:5d}"
        f"  {summary.words:5d} {summary.correct_tags:5d}   {summary.tag_accuracy:6.2f}"
    )


def _summary_lines(summary: "BracketingSummary") -> list[str]:
    counts = (
        ("Number of sentence", summary.sentences),
        ("Number of Error sentence", summary.errors),
        ("Number of Skip  sentence", summary.skipped),
        ("Number of Valid sentence", summary.valid),
    )
    return [
        *(f"{name:<25} = {count:6d}" for name, count in counts),
        *(f"{name:<25} = {getattr(summary, attribute):6.2f}" for attribute, name in _PERCENTAGES),
    ]
