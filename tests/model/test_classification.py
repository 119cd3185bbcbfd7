"""The classifier: pooling, losses, and everything that transformers expects of a classifier."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, pipeline

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification

from .conftest import build_config, randomize_vectors


POOLINGS = {
    "mean": lambda states: states.mean(dim=0),
    "max": lambda states: states.max(dim=0).values,
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
}


@pytest.fixture
def classifier():
    def build(seed=0, **choices):
        torch.manual_seed(seed)
        model = VanillaTransformerForSequenceClassification(build_config(num_labels=3, **choices)).eval()
        randomize_vectors(model)
        return model

    return build


# --------------------------------------------------------------------------------------------------------- pooling


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_uses_only_real_tokens(classifier, unlabelled, pooling):
    model = classifier(classifier_pooling=pooling)
    real = model.model(**unlabelled).last_hidden_state[1, :4]
    expected = model.classifier(POOLINGS[pooling](real))
    torch.testing.assert_close(model(**unlabelled).logits[1], expected)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_neighbours_and_padding_have_no_influence(classifier, unlabelled, pooling, implementation):
    model = classifier(classifier_pooling=pooling, attn_implementation=implementation)
    alone = model(input_ids=unlabelled["input_ids"][1:, :4]).logits[0]
    torch.testing.assert_close(model(**unlabelled).logits[1], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pooling", "place"), [("first", 2), ("last", 4)])
def test_first_and_last_pooling_handle_left_padding(classifier, pooling, place):
    model = classifier(classifier_pooling=pooling)
    ids, mask = torch.tensor([[1, 1, 5, 6, 2]]), torch.tensor([[0, 0, 1, 1, 1]])
    states = model.model(ids, mask).last_hidden_state
    torch.testing.assert_close(model.pool(states, mask), states[:, place])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_all_padding_source_gives_finite_logits(classifier, pooling):
    model = classifier(classifier_pooling=pooling)
    logits = model(torch.tensor([[5, 2], [1, 1]]), torch.tensor([[1, 1], [0, 0]])).logits
    assert logits.isfinite().all()


# ---------------------------------------------------------------------------------------------------------- losses


def test_single_label_loss_is_cross_entropy(classifier, unlabelled):
    model = classifier()
    labels = torch.tensor([2, 0])
    outputs = model(**unlabelled, labels=labels)
    torch.testing.assert_close(outputs.loss, F.cross_entropy(outputs.logits, labels))
    assert model.config.problem_type == "single_label_classification"
    for one, other in zip(model(**unlabelled, labels=labels, return_dict=False), outputs.to_tuple(), strict=True):
        assert torch.equal(one, other)


def test_multi_label_loss_is_binary_cross_entropy(classifier, unlabelled):
    model = classifier(problem_type="multi_label_classification")
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    outputs = model(**unlabelled, labels=labels)
    torch.testing.assert_close(outputs.loss, F.binary_cross_entropy_with_logits(outputs.logits, labels))


def test_regression_loss_is_mean_squared_error(unlabelled):
    model = VanillaTransformerForSequenceClassification(build_config(num_labels=1, problem_type="regression"))
    labels = torch.tensor([0.5, -1.0])
    outputs = model(**unlabelled, labels=labels)
    torch.testing.assert_close(outputs.loss, F.mse_loss(outputs.logits[:, 0], labels))


def test_classifier_dropout_acts_in_training_only(classifier, unlabelled):
    model = classifier(classifier_dropout=0.5)
    assert torch.equal(model(**unlabelled).logits, model(**unlabelled).logits)
    model.train()
    assert not torch.equal(model(**unlabelled).logits, model(**unlabelled).logits)


def test_accumulated_batches_equal_one_big_batch(classifier, tmp_path):
    rows = [{"input_ids": [5 + i, 6, 2], "attention_mask": [1, 1, 1], "labels": i % 3} for i in range(4)]
    weights = []
    for size, accumulated in ((4, 1), (2, 2)):
        arguments = TrainingArguments(
            str(tmp_path), per_device_train_batch_size=size, gradient_accumulation_steps=accumulated, max_steps=1,
            optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0, use_cpu=True,
            report_to="none", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        model = classifier()
        Trainer(model, arguments, train_dataset=rows).train()
        weights.append(model.state_dict())
    before = classifier().state_dict()
    assert any(not torch.equal(weights[0][name], before[name]) for name in before)
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, msg=name)


# ------------------------------------------------------------------------------------------- transformers' conventions


@pytest.mark.parametrize("tied", [True, False])
def test_auto_class_restores_a_saved_classifier(classifier, unlabelled, tmp_path, tied):
    model = classifier(tie_word_embeddings=tied, classifier_pooling="last")
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is VanillaTransformerForSequenceClassification
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert torch.equal(loaded(**unlabelled).logits, model(**unlabelled).logits)


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_translator_checkpoint_loads_into_a_classifier(tiny_model, unlabelled, tmp_path, base, tied):
    translator = tiny_model(tie_word_embeddings=tied)
    (translator.model if base else translator).save_pretrained(tmp_path)
    model, report = VanillaTransformerForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    assert not report["unexpected_keys"]
    expected = translator.model.encoder(**unlabelled).last_hidden_state
    assert torch.equal(model.model(**unlabelled).last_hidden_state, expected)


def test_changed_label_count_requires_ignore_mismatched_sizes(classifier, tmp_path):
    classifier().save_pretrained(tmp_path)
    with pytest.raises(RuntimeError):
        VanillaTransformerForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    options = {"num_labels": 5, "ignore_mismatched_sizes": True}
    model = VanillaTransformerForSequenceClassification.from_pretrained(tmp_path, **options)
    assert model.classifier.out_features == 5


def test_hidden_states_and_attentions_have_expected_shapes(classifier, unlabelled):
    outputs = classifier(attn_implementation="eager")(**unlabelled, output_hidden_states=True, output_attentions=True)
    assert [tuple(h.shape) for h in outputs.hidden_states] == [(2, 6, 16)] * 3
    assert [tuple(a.shape) for a in outputs.attentions] == [(2, 2, 6, 6)] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_classifier_works_in_transformers_pipelines(classifier, dtype):
    texts = ["a good book", "a bad film that nobody likes"]
    tokenizer = learn_tokenizer(texts * 3, TokenizerSettings(vocab_size=270))
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    model = classifier(vocab_size=270, id2label=labels, label2id={name: i for i, name in labels.items()})
    model = model.to(dtype)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    alone = [classify(text, top_k=None) for text in texts]
    together = classify((text for text in texts), top_k=None, batch_size=2)
    for one, other in zip(alone, together, strict=True):
        assert [row["label"] for row in one] == [row["label"] for row in other]
        assert [row["score"] for row in one] == pytest.approx(
            [row["score"] for row in other], abs=5e-3 if dtype == torch.float16 else 1e-5
        )
    assert classify({"text": texts[0], "text_pair": texts[1]})["label"] in labels.values()
    zero_shot = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    assert sum(zero_shot(texts[0], candidate_labels=["praise", "blame"])["scores"]) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    "mask", [None, torch.ones(1, 600), torch.ones(1, 600).bfloat16()], ids=["none", "float", "half"]
)
def test_last_pooling_works_in_half_precision(classifier, mask):
    """bfloat16 cannot tell positions beyond 256 apart."""
    model = classifier(classifier_pooling="last").to(torch.bfloat16 if mask is None else torch.float32)
    states = torch.arange(600.0, dtype=model.dtype)[None, :, None].repeat(1, 1, 16)
    if mask is not None:
        mask[:, 531:] = 0
    assert torch.equal(model.pool(states, mask), states[:, 599 if mask is None else 530])


def test_four_dimensional_mask_raises(classifier):
    with pytest.raises(ValueError, match=r"attention_mask is \(batch, length\)"):
        classifier()(torch.tensor([[5, 6, 2]]), attention_mask=torch.ones(1, 1, 3, 3))
