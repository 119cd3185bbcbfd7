"""Scores by form (upper case, typos, ...): computed on that form, named in the signature, next to the clean score."""

import pytest
import sacrebleu

from vanilla_transformer.evaluation.robustness import CLEAN, scores_by_form


def test_forms_use_own_references_and_report_kept_share():
    references = {CLEAN: [["Ein Hund läuft im Park.", "Zwei Katzen sind dort."]]}
    references |= {"upper": [[text.upper() for text in references[CLEAN][0]]], "typos": references[CLEAN]}
    translations = {form: texts[0] for form, texts in references.items()}
    translations["typos"] = ["Ein Hund läuft dem Park.", "Zwei Katzen."]
    names, sources = {form: f"set ({form})" for form in references}, {form: ["a", "b"] for form in references}
    metrics, options = ["sacrebleu", "ter"], {"target_language": "de", "test_sets": names, "sources": sources}
    found = scores_by_form(translations, references, metrics, **options)
    assert [(each.form, each.score.metric) for each in found] == [(f, m) for m in metrics for f in references]
    bleu = sacrebleu.corpus_bleu(translations["typos"], references["typos"]).score
    assert [each.kept for each in found] == pytest.approx([100, 100, bleu, None, None, None])
    assert found[2].score.value == pytest.approx(bleu)
    assert [each.score.test_set for each in found[:3]] == [*names.values()]
    clean, upper, typos = (each.score.signature for each in found[:3])
    assert upper == f"{clean}|form:upper|form_seed:12345"
    assert typos == f"{clean}|form:typos|form_seed:12345"
    nothing = scores_by_form(
        {CLEAN: ["x", "y"]}, references, ["sacrebleu"], target_language="de", test_sets=names, sources=sources
    )
    assert [(each.score.value, each.kept) for each in nothing] == [(0, None)]
