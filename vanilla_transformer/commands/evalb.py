"""How good parses are."""

import json as json_format
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ..parsing.bracketing import BracketingScores, BracketingSummary


logger = logging.getLogger(__name__)

_PERCENTAGES = {
    "recall": "Bracketing Recall",
    "precision": "Bracketing Precision",
    "f1": "Bracketing FMeasure",
    "complete_match": "Complete match",
    "average_crossing": "Average crossing",
    "no_crossing": "No crossing",
    "two_or_less_crossing": "2 or less crossing",
    "tag_accuracy": "Tagging accuracy",
}
_COUNTS = {
    "sentences": "Number of sentence",
    "errors": "Number of Error sentence",
    "skipped": "Number of Skip  sentence",
    "valid": "Number of Valid sentence",
}


def evalb(*, gold: Path, parsed: Path, parameters: Path | None = None, json: bool = False) -> None:
    """Scores constituency parses as EVALB does: labelled bracketing recall, precision and F1, in EVALB's table.

    The table is that of the EVALB of 2006, which prints F-measure. A parse whose words or tags of punctuation differ
    from the gold tree's is an error and left out of the scores; one without words is skipped.

    Args:
        gold: Text file of the gold trees in brackets, one line per sentence.
        parsed: Text file of the parser's trees; an empty line is a sentence that it could not parse.
        parameters: EVALB's parameter file; by default the rules of COLLINS.prm.
        json: Print JSON instead of a table.
    """
    from ..files import text_lines
    from ..parsing.bracketing import score_trees
    from ..parsing.evalb_parameters import COLLINS, EvalbParameters

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
    if not json:
        print(evalb_table(scores))
        return

    def with_percentages(score, *names: str) -> dict:
        return asdict(score) | {name: getattr(score, name) for name in names}

    record = {
        "cutoff_length": scores.cutoff_length,
        "overall": with_percentages(scores.overall, *_PERCENTAGES, "valid"),
        "short": with_percentages(scores.short, *_PERCENTAGES, "valid"),
        "sentences": [with_percentages(each, "recall", "precision", "tag_accuracy") for each in scores.sentences],
    }
    print(json_format.dumps(record, indent=2))


def evalb_table(scores: "BracketingScores") -> str:
    """The scores exactly as EVALB prints them: the EVALB of 2006, with F-measure, which parsers ship.

    The F-measure of nothing is 0.00, where EVALB divides by zero and prints `nan`.
    """
    rule = "=" * 76
    lines = [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        rule,
    ]
    for score in scores.sentences:
        words = 0 if score.status else score.words  # EVALB counts none in a sentence that it does not score
        lines.append(
            f"{score.number:4d}  {score.length:3d}    {score.status:d}  {score.recall:6.2f} {score.precision:6.2f}"
            f"   {score.matched:3d}    {score.gold:3d}  {score.parsed:3d}    {score.crossing:3d}"
            f"   {words:4d}  {score.correct_tags:4d}   {score.tag_accuracy:6.2f}"
        )
    all_ = scores.overall
    sums = f"  {all_.words:5d} {all_.correct_tags:5d}   {all_.tag_accuracy:6.2f}"
    if all_.gold and all_.parsed:
        sums = (
            f"                {all_.recall:6.2f} {all_.precision:6.2f} {all_.matched:6d} {all_.gold:5d}"
            f" {all_.parsed:5d}  {all_.crossing:5d}{sums}"
        )
    lines += [rule, sums, "=== Summary ===", "", "-- All --", *_summary_lines(scores.overall)]
    lines += ["", f"-- len<={scores.cutoff_length} --", *_summary_lines(scores.short)]
    return "\n".join(lines)


def _summary_lines(summary: "BracketingSummary") -> list[str]:
    return [
        *(f"{title:<25} = {getattr(summary, name):6d}" for name, title in _COUNTS.items()),
        *(f"{title:<25} = {getattr(summary, name):6.2f}" for name, title in _PERCENTAGES.items()),
    ]
