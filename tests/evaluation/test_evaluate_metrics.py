"""Our scores as metrics of the `evaluate` library, loaded from files without the Hub."""

import pytest

from vanilla_transformer.evaluation.metrics import METRICS
from vanilla_transformer.evaluation.scores import score_translations


evaluate = pytest.importorskip("evaluate")

from vanilla_transformer.evaluation.evaluate_metrics import module_path  # noqa: E402


HYPOTHESES = ["Ein Boston Terrier läuft über grünes Gras.", "Fünf Leute stehen im Schnee."]
REFERENCES = ["Ein Boston-Terrier läuft über saftig-grünes Gras.", "Fünf Leute stehen im Schnee."]


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)


@pytest.mark.parametrize("metric", [name for name, row in METRICS.items() if not (row.of_trees or row.needs_sources)])
def test_each_metric_equals_score_translations(metric):
    module = evaluate.load(module_path(metric), "de")
    found = module.compute(predictions=HYPOTHESES, references=REFERENCES)
    [expected] = score_translations(HYPOTHESES, REFERENCES, [metric], target_language="de")
    assert (found[metric], found["signature"]) == (expected.value, expected.signature)
    for prediction, *references in zip(HYPOTHESES, REFERENCES, HYPOTHESES, strict=True):
        module.add(prediction=prediction, references=references)
    [expected] = score_translations(HYPOTHESES, [REFERENCES, HYPOTHESES], [metric], target_language="de")
    assert module.compute()[metric] == expected.value
    without_language = evaluate.load(module_path(metric))
    if METRICS[metric].needs_language:
        with pytest.raises(ValueError, match="depends on the language"):
            without_language.compute(predictions=HYPOTHESES, references=REFERENCES)
    else:
        assert without_language.compute(predictions=HYPOTHESES, references=REFERENCES)[metric] >= 0


def test_combined_metrics_equal_score_translations():
    names = ("sacrebleu", "bleu_paper", "chrf++")
    combined = evaluate.combine([evaluate.load(module_path(name), "de") for name in names])
    found = combined.compute(predictions=HYPOTHESES, references=REFERENCES)
    scores = score_translations(HYPOTHESES, REFERENCES, names, target_language="de")
    assert [found[name] for name in names] == [score.value for score in scores]


def test_bootstrap_gives_confidence_and_bad_input_raises():
    module = evaluate.load(module_path("chrf"), "de")
    found = module.compute(predictions=HYPOTHESES * 5, references=REFERENCES * 5, resamples=100)
    assert found["confidence"] > 0
    assert "bs:100" in found["signature"]
    with pytest.raises(ValueError, match="the same number of references"):
        module.compute(predictions=HYPOTHESES, references=[["a"], ["b", "c"]])
    with pytest.raises(ValueError, match="did you mean 'bleu_paper'"):
        module_path("bleu_papr")


def test_tree_metrics_by_hand():
    gold = ["(S (NP PRP )NP (VP VBP )VP )S"]
    assert evaluate.load(module_path("evalb")).compute(predictions=gold, references=gold)["evalb"] == 100
    found = evaluate.load(module_path("bracketing")).compute(
        predictions=["(S (NP (PRP I)) (NP (VBP am)))"], references=["(S (NP (PRP I)) (VP (VBP am)))"]
    )
    assert found["f1"] == pytest.approx(200 / 3)
    assert found["valid"] == 1
