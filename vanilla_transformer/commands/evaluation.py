"""How good translations are."""

import json as json_format
from dataclasses import asdict
from pathlib import Path

from .process import UsageError
from .translation import search_options, translations_of


def evaluate(
    *,
    reference: Path,
    model: list[Path] | None = None,
    source: Path | None = None,
    hypotheses: Path | None = None,
    target_language: str = "de",
    metrics: list[str] | None = None,
    num_beams: int | None = None,
    json: bool = False,
) -> None:
    """Scores a model's translations of a test set, or a file of translations.

    Args:
        reference: Text file of reference translations, a line per sentence.
        model: A run folder or a model's folder; with --source. Several translate together, as an ensemble.
        source: Text file of the sentences to translate.
        hypotheses: Text file of translations to score, instead of --model and --source.
        target_language: Language code of the translations, for the Moses tokeniser.
        metrics: Which scores: sacrebleu, sacrebleu_lowercase, bleu_lowercase_tokenized, chrf, exact_match.
        num_beams: Hypotheses kept in beam search; the model's own setting if it is not given.
        json: Print JSON instead of a table.
    """
    from ..evaluation.scores import score_translations
    from ..files import text_lines

    if (hypotheses is None) == (model is None or source is None) or (hypotheses and (model or source)):
        raise UsageError("Give --hypotheses FILE, or --model and --source.")
    references = list(text_lines(reference))
    if hypotheses is not None:
        translations = list(text_lines(hypotheses))
    else:
        sources = list(text_lines(source))
        if len(sources) != len(references):
            raise ValueError(f"{source} has {len(sources)} lines and {reference} {len(references)}: they must agree.")
        found = translations_of(model, [sources], **search_options(num_beams))
        translations = [hypotheses[0].text for _, hypotheses in found]
    scores = score_translations(
        translations,
        references,
        metrics or ["sacrebleu", "chrf"],
        target_language=target_language,
        test_set=reference.name,
    )
    records = [asdict(score) for score in scores]
    print(json_format.dumps(records, indent=2, ensure_ascii=False) if json else scores_table(records))


def scores_table(records: list[dict]) -> str:
    """Scores as `score_translations` has them, as dictionaries, in lines for people."""
    rows = [(r.get("model", ""), r["test_set"], r["metric"], f"{r['value']:.2f}", r["signature"]) for r in records]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).strip()
        for row in rows
    )
