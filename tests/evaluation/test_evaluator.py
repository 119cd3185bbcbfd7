"""The evaluators of Hugging Face `evaluate` score our models, or folders with them, on transformers 5."""

import copy

import numpy as np
import pytest
import sacrebleu
from datasets import Dataset, Features, Value
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, pipeline

import vanilla_transformer  # noqa: F401  (importing it makes evaluators work)
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation.scores import score_translations

from ..model.conftest import build_model, sharpened


pytest.importorskip("scipy", reason="the extra `evaluate` is not installed")
evaluate = pytest.importorskip("evaluate", reason="the extra `evaluate` is not installed")

from vanilla_transformer.evaluation.evaluate_metrics import module_path  # noqa: E402


SOURCES = ["A man sees the dog.", "No.", "The girl runs across the street, and a dog runs after her."]


class Bleu(evaluate.Metric):
    """What `evaluate.load("sacrebleu")` would fetch from the Hub."""

    def _info(self):
        features = Features({"predictions": Value("string"), "references": Value("string")})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"score": sacrebleu.corpus_bleu(predictions, [references]).score, "predictions": predictions}


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(SOURCES * 3, TokenizerSettings(vocab_size=280))


@pytest.fixture(scope="module")
def model():
    model = sharpened(build_model(1, vocab_size=280))  # confident enough for the sources to matter
    model.generation_config.max_length_offset = 3
    return model


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)


@pytest.fixture(scope="module")
def translations(model, tokenizer):
    return [record["translation_text"] for record in pipeline("translation", model=model, tokenizer=tokenizer)(SOURCES)]


@pytest.fixture(scope="module")
def pairs(translations):
    """References that share most of their words with the model's translations."""
    references = [translations[0], translations[1] + " x", translations[2][: len(translations[2]) // 2] + " y"]
    return Dataset.from_dict({"en": SOURCES, "de": references})


@pytest.fixture
def compute(pairs, tmp_path):
    def compute(model_or_pipeline, **options):
        return evaluate.evaluator("translation").compute(
            model_or_pipeline=model_or_pipeline, data=pairs, input_column="en", label_column="de",
            metric=Bleu(cache_dir=str(tmp_path / "metrics")), device=-1, **options,
        )  # fmt: skip

    return compute


def test_evaluator_computes_our_metric(model, tokenizer, translations, pairs):
    found = evaluate.evaluator("translation").compute(
        model_or_pipeline=model, tokenizer=tokenizer, data=pairs, input_column="en", label_column="de", device=-1,
        metric=evaluate.load(module_path("bleu_paper"), "de"),
    )  # fmt: skip
    [expected] = score_translations(translations, pairs["de"], ["bleu_paper"], target_language="de")
    assert found["bleu_paper"] == expected.value > 0
    assert found["signature"] == expected.signature


def test_seq2seq_trainer_computes_our_metric(model, tokenizer, pairs, tmp_path):
    metric = evaluate.load(module_path("chrf"))

    def compute_metrics(prediction):
        ids = [np.where(each < 0, tokenizer.pad_token_id, each) for each in prediction]
        texts, references = (tokenizer.batch_decode(each, skip_special_tokens=True) for each in ids)
        found = metric.compute(predictions=texts, references=references)
        [expected] = score_translations(texts, references, ["chrf"], target_language="de")
        assert references == list(pairs["de"])
        assert found["chrf"] == expected.value > 0
        return found

    rows = tokenizer(list(pairs["en"]), text_target=list(pairs["de"]))
    arguments = Seq2SeqTrainingArguments(
        tmp_path, predict_with_generate=True, generation_max_length=60, report_to=[], use_cpu=True, disable_tqdm=True,
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="chrf",
        num_train_epochs=1,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        copy.deepcopy(model), arguments, train_dataset=Dataset.from_dict(rows), eval_dataset=Dataset.from_dict(rows),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model), compute_metrics=compute_metrics,
    )  # fmt: skip
    trainer.train()
    [evaluated] = [record for record in trainer.state.log_history if "eval_chrf" in record]
    assert trainer.state.best_metric == evaluated["eval_chrf"]
    assert evaluated["eval_signature"].startswith("nrefs:1|case:mixed")


def test_evaluator_scores_models_and_folders(compute, model, tokenizer, translations, pairs, tmp_path):
    [bleu] = score_translations(translations, pairs["de"], ["sacrebleu"], target_language="de")
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    for found in (compute(model, tokenizer=tokenizer), compute(str(tmp_path / "model"))):
        assert found["predictions"] == translations
        assert found["score"] == pytest.approx(bleu.value)
        assert found["samples_per_second"] > 0


def test_generation_options_reach_the_model(compute, model, tokenizer, monkeypatch):
    # `evaluate` stores them on the class.
    monkeypatch.setattr(evaluate.TranslationEvaluator, "PIPELINE_KWARGS", {"truncation": True})
    short = compute(model, tokenizer=tokenizer, generation_kwargs={"max_new_tokens": 1, "num_beams": 2})
    assert short["predictions"] == [
        record["translation_text"]
        for record in pipeline("translation", model=model, tokenizer=tokenizer, max_new_tokens=1, num_beams=2)(SOURCES)
    ]
