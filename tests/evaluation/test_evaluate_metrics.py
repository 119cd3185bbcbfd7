"""Our scores as metrics of the library `evaluate`: loaded from files, without the Hub."""

import pytest

from vanilla_transformer.evaluation.metric_names import METRICS, needs_language
from vanilla_transformer.evaluation.scores import score_translations


evaluate = pytest.importorskip("evaluate")

from vanilla_transformer.evaluation.evaluate_metrics import module_path  # noqa: E402


HYPOTHESES = ["Ein Boston Terrier läuft über grünes Gras.", "Fünf Leute stehen im Schnee."]
REFERENCES = ["Ein Boston-Terrier läuft über saftig-grünes Gras.", "Fünf Leute stehen im Schnee."]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)


@pytest.mark.parametrize("metric", METRICS)
class TestEach:
    def test_is_our_score(self, metric):
        found = evaluate.load(module_path(metric), "de").compute(predictions=HYPOTHESES, references=REFERENCES)
        [expected] = score_translations(HYPOTHESES, REFERENCES, [metric], target_language="de")
        assert found[metric] == expected.value
        assert found["signature"] == expected.signature

    def test_takes_several_references(self, metric):
        several = [[reference, hypothesis] for reference, hypothesis in zip(REFERENCES, HYPOTHESES, strict=True)]
        module = evaluate.load(module_path(metric), "de")
        for prediction, references in zip(HYPOTHESES, several, strict=True):
            module.add(prediction=prediction, references=references)
        [expected] = score_translations(HYPOTHESES, [REFERENCES, HYPOTHESES], [metric], target_language="de")
        assert module.compute()[metric] == expected.value

    def test_without_a_language(self, metric):
        module = evaluate.load(module_path(metric))
        if needs_language(metric):
            with pytest.raises(ValueError, match="depends on the language"):
                module.compute(predictions=HYPOTHESES, references=REFERENCES)
        else:
            assert module.compute(predictions=HYPOTHESES, references=REFERENCES)[metric] >= 0


def test_combined():
    names = ("sacrebleu", "bleu_paper", "chrf++")
    combined = evaluate.combine([evaluate.load(module_path(name), "de") for name in names])
    found = combined.compute(predictions=HYPOTHESES, references=REFERENCES)
    scores = score_translations(HYPOTHESES, REFERENCES, names, target_language="de")
    assert [found[name] for name in names] == [score.value for score in scores]


def test_bootstrap():
    module = evaluate.load(module_path("chrf"), "de")
    found = module.compute(predictions=HYPOTHESES * 5, references=REFERENCES * 5, resamples=100)
    assert found["confidence"] > 0
    assert "bs:100" in found["signature"]


def test_different_numbers_of_references():
    module = evaluate.load(module_path("chrf"), "de")
    with pytest.raises(ValueError, match="the same number of references"):
        module.compute(predictions=HYPOTHESES, references=[["a"], ["b", "c"]])


def test_unknown():
    with pytest.raises(ValueError, match="did you mean 'bleu_paper'"):
        module_path("bleu_papr")


def test_bracketing():
    found = evaluate.load(module_path("bracketing")).compute(
        predictions=["(S (NP (PRP I)) (NP (VBP am)))"], references=["(S (NP (PRP I)) (VP (VBP am)))"]
    )
    assert found["f1"] == pytest.approx(200 / 3)
    assert found["valid"] == 1
