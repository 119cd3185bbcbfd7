"""Likelihoods of translations, samples with dropout, calibrated confidences, and fitting a calibration."""

import json
import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.model.confidence_vanilla_transformer import (
    CONFIDENCE,
    Calibration,
    dropout_log_probabilities,
    load_calibration,
    sha256_of_weights,
)
from vanilla_transformer.translation import translate_lines
from vanilla_transformer.translation.calibrating import Judged, calibrate, judged_translations
from vanilla_transformer.translation.likelihood import Likelihood, likelihoods
from vanilla_transformer.translation.lines import in_pieces

from ..export.conftest import ending_model
from ..model.conftest import build_model
from ..reference_transformer import NumpyTransformer
from .conftest import SENTENCES


PAIRS = [
    ("A man sees the dog.", "Ein Mann sieht den Hund."),
    ("No.", ""),
    ("Two men play football in the park.", "Straße 日本, ja"),
]
CALIBRATION = Calibration(50.0, 0.3, {"mean_surprisal": -1.5, "largest_surprisal": 0.4})


@pytest.fixture
def model():
    return build_model(vocab_size=280, dropout=0.2)


def test_token_and_word_likelihoods_match_float64_reference(model, tokenizer):
    """A word gets the geometric mean over its pieces, which are joined again."""
    reference = NumpyTransformer(model)
    found = likelihoods(model, tokenizer, PAIRS)
    for (source, target), each in zip(PAIRS, found, strict=True):
        ids = tokenizer(text_target=target).input_ids
        read = np.array([model.config.decoder_start_token_id, *ids[:-1]])
        logits = np.asarray(reference.logits(np.array(tokenizer(source).input_ids), read), np.float64)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected = [float(row[i]) for row, i in zip(log_p, ids, strict=True)]
        assert each.tokens == pytest.approx(expected, abs=1e-4)
        assert "".join(word.word for word in each.words) == "".join(target.split())
        pieces = _pieces(tokenizer, target)
        of_words = sum(math.log(word.probability) * n for word, n in zip(each.words, pieces, strict=True))
        assert of_words == pytest.approx(sum(expected[:-1]), abs=1e-3)  # all but </s> is in a word
        assert each.samples == []
    assert likelihoods(model, tokenizer, []) == []


def _pieces(tokenizer, text: str) -> list[int]:
    """How many pieces each word has. 日本 counts as two: 本 is three bytes."""
    words = [word for word in tokenizer(text_target=text).word_ids() if word is not None]
    counts = [words.count(word) for word in dict.fromkeys(words)]
    return [counts[0], counts[1] - 3, 3, *counts[2:]] if "日本" in text else counts


@pytest.mark.parametrize("training", [True, False])
def test_dropout_samples_depend_only_on_seed_and_pair(model, tokenizer, training):
    model.train(training)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    options = {"dropout_samples": 6, "seed": 3}
    together = likelihoods(model, tokenizer, PAIRS, **options)
    assert [likelihoods(model, tokenizer, [pair], **options)[0].samples for pair in PAIRS] == [
        each.samples for each in together
    ]
    assert [each.samples for each in likelihoods(model, tokenizer, PAIRS[::-1], **options)[::-1]] == [
        each.samples for each in together
    ]
    for each in together:
        assert len(set(each.samples)) == 6
    others = likelihoods(model, tokenizer, PAIRS, dropout_samples=6, seed=4)
    assert not {*others[0].samples} & {*together[0].samples}
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training == training


def test_dropout_samples_match_the_model_in_training(tokenizer):
    """Without dropout every sample equals the plain pass; with it, mean and spread match independent draws."""
    model = build_model(vocab_size=280, dropout=0.0)
    source, target = tokenizer(PAIRS[0][0]).input_ids, tokenizer(text_target=PAIRS[0][1]).input_ids
    [plain] = likelihoods(model, tokenizer, PAIRS[:1])
    assert dropout_log_probabilities(model, source, target, 3, 0) == pytest.approx([math.fsum(plain.tokens)] * 3)
    model = build_model(vocab_size=280, dropout=0.3)
    found = np.array(dropout_log_probabilities(model, source, target, 400, 0))
    model.train()
    torch.manual_seed(11)  # other random numbers, and the loss of training, row by row
    batch = {"input_ids": torch.tensor([source] * 400), "labels": torch.tensor([target] * 400)}
    with torch.no_grad():
        logits = model(**batch).logits.double().log_softmax(-1)
    expected = logits.gather(2, batch["labels"][..., None]).sum(dim=(1, 2)).numpy()
    error = math.sqrt((found.var() + expected.var()) / 400)
    assert abs(found.mean() - expected.mean()) < 4 * error
    assert found.std() == pytest.approx(expected.std(), rel=0.25)


def test_confidence_follows_the_calibration_formula():
    tokens, samples = [-0.5, -2.0, -0.1], [-2.0, -4.0]
    weights = {"mean_surprisal": 0.7, "largest_surprisal": -0.2, "dropout_surprisal": 0.1, "dropout_deviation": -1.1}
    z = 0.25 + 0.7 * math.log(2.6 / 3) - 0.2 * math.log(2.0) + 0.1 * math.log(1.0) - 1.1 * math.log(1 / 3)
    found = Calibration(50, 0.25, weights, dropout_samples=2).confidence(tokens, samples)
    assert found == pytest.approx(1 / (1 + math.exp(-z)))
    for intercept, limit in ((-5000.0, 0.0), (5000.0, 1.0)):  # no overflow
        assert Calibration(50, intercept, {"mean_surprisal": 1.0}).confidence([-1.0]) == limit
    assert 0 < Calibration(50, 0.0, {"mean_surprisal": -1.0}).confidence([0.0]) <= 1  # for a certain token


def test_calibration_adds_confidences_and_changes_nothing_else(tokenizer):
    model = ending_model(vocab_size=280)
    options = {"num_beams": 3, "num_return_sequences": 2, "return_dict_in_generate": True, "max_length_offset": 5}
    plain = list(translate_lines(model, tokenizer, [SENTENCES], **options))
    found = list(translate_lines(model, tokenizer, [SENTENCES], calibration=CALIBRATION, batch_tokens=60, **options))
    for sentence, before, after in zip(SENTENCES, plain, found, strict=True):
        assert [(each.text, each.cut) for each in after] == [(each.text, each.cut) for each in before]
        assert [each.confidence for each in before] == [each.likelihood for each in before] == [None] * len(before)
        if not sentence.strip():
            assert after[0].confidence is None
            continue
        alone = likelihoods(model, tokenizer, [(sentence, each.text) for each in after])
        expected = [CALIBRATION.confidence(each.tokens) for each in alone]
        assert [each.confidence for each in after] == pytest.approx(expected, abs=1e-5)
    workers = translate_lines(model, tokenizer, [SENTENCES], calibration=CALIBRATION, workers=2, **options)
    confidences = [each.confidence for line in workers for each in line]
    assert confidences == pytest.approx([each.confidence for line in found for each in line], abs=1e-5)


def test_split_line_is_judged_by_all_its_tokens(tokenizer):
    model, line = ending_model(vocab_size=280, dropout=0.1), "A dog runs. A man sees the dog. No."
    weights = {"mean_surprisal": -1.5, "dropout_surprisal": 0.5}
    calibration = Calibration(50.0, 0.3, weights, dropout_samples=3, seed=5)
    options = {"num_beams": 1, "max_length_offset": 5, "calibration": calibration}
    [[whole]] = translate_lines(model, tokenizer, [[line]], longest=14, **options)
    pieces = in_pieces(line, lambda text: len(tokenizer(text).input_ids), 14)
    assert len(pieces) == 3
    parts = [each for [each] in translate_lines(model, tokenizer, [pieces], **options)]
    expected = [each.likelihood for each in parts]
    assert whole.text == " ".join(each.text for each in parts)
    assert whole.likelihood.tokens == pytest.approx([token for each in expected for token in each.tokens], abs=1e-5)
    assert [word.word for word in whole.likelihood.words] == [word.word for each in expected for word in each.words]
    assert whole.likelihood.samples == pytest.approx([sum(each.samples[i] for each in expected) for i in range(3)])
    assert whole.confidence == calibration.confidence(whole.likelihood.tokens, whole.likelihood.samples)


def invented(count: int, dropout_samples: int = 0) -> list[Judged]:
    """Translations with a known link from surprisal s to chrF: good with probability sigmoid(-1 - 2 log s)."""
    random = np.random.default_rng(4)
    found = []
    for surprisal in np.exp(random.normal(-0.5, 0.8, count)):
        good = random.random() < 1 / (1 + math.exp(1 + 2 * math.log(surprisal)))
        spread = random.dirichlet([1.0] * 5) * 5 * surprisal
        samples = [-5 * surprisal * factor for factor in random.uniform(0.9, 1.3, dropout_samples)]
        found.append(Judged("", Likelihood([-each for each in spread], [], samples), 70.0 if good else 30.0))
    return found


def test_calibrate_recovers_known_weights_and_measures_held_out():
    found, measured = calibrate(invented(20_000), held_out=0.25, weights_sha256="x", set="invented")
    assert found.weights["mean_surprisal"] == pytest.approx(-2, abs=0.15)
    assert found.weights["largest_surprisal"] == pytest.approx(0, abs=0.15)
    assert found.intercept == pytest.approx(-1, abs=0.15)
    held_out = found.record["held_out"]
    assert held_out["sentences"] == len(measured.good) == 5000
    assert held_out["expected_calibration_error"] < 2 * held_out["expected_calibration_error_by_chance"] < 0.05
    assert (found.record["set"], found.weights_sha256) == ("invented", "x")
    half, _ = calibrate(invented(400), threshold=None)
    assert half.threshold in (30.0, 50.0, 70.0)
    with_dropout, _ = calibrate(invented(2000, 4), dropout_samples=4, seed=9)
    assert (len(with_dropout.weights), with_dropout.dropout_samples, with_dropout.seed) == (4, 4, 9)


def test_invalid_calibration_input_is_rejected(model, tokenizer):
    few = invented(200)
    for options, said in (
        ({"threshold": 80.0}, "none of the 100 translations is good.*their median is"),
        ({"threshold": 20.0}, "all of the 100 translations are good"),
        ({"held_out": 1.0}, "above 0 and below 1, not 1"),
    ):
        with pytest.raises(ValueError, match=said):
            calibrate(few, **options)
    with pytest.raises(ValueError, match="9 sentences are too few"):
        calibrate(few[:9])
    for samples, dropout, said in ((1, 0.1, "0, or 2 at least, not 1"), (5, 0.0, "trained without dropout")):
        with pytest.raises(ValueError, match=said):
            judged_translations(
                build_model(vocab_size=280, dropout=dropout), tokenizer, ["a"], [["b"]], dropout_samples=samples
            )


def test_judged_translations_are_the_models_own(tokenizer):
    model, rows = ending_model(vocab_size=280), list(islice(phrasebook("test"), 6))
    sources = [*(row["en"] for row in rows), " "]
    judged = judged_translations(
        model, tokenizer, sources, [[*(row["de"] for row in rows), ""]], num_beams=2, max_length_offset=5
    )
    found = translate_lines(model, tokenizer, [sources], num_beams=2, max_length_offset=5)
    assert [each.text for each in judged] == [best.text for best, *_ in found][:-1]  # the blank one is left out
    assert all(0 <= each.chrf <= 100 and each.likelihood.tokens for each in judged)


def test_sources_are_judged_as_the_model_reads_them(tokenizer, caplog):
    positions = {"position_embedding_type": "learned", "max_position_embeddings": 20}
    model = build_model(seed=5, vocab_size=280, dropout=0.1, **positions)
    sources = ["The old teacher reads. " * 9, "A book."]
    options = {"num_beams": 2, "max_new_tokens": 3}
    judged = judged_translations(model, tokenizer, sources, [["", ""]], dropout_samples=2, **options)
    assert "more than 20: translated in" in caplog.text
    calibration = replace(CALIBRATION, dropout_samples=2)
    [[split], [whole]] = translate_lines(model, tokenizer, [sources], calibration=calibration, **options)
    assert [each.likelihood for each in judged] == [split.likelihood, whole.likelihood]


def test_calibration_round_trips_only_beside_its_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not calibrated.*vanilla-transformer calibrate .* --sources"):
        load_calibration(tmp_path)
    weights = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(3)}, weights)
    found, _ = calibrate(invented(100), weights_sha256=sha256_of_weights(tmp_path), set="invented")
    path = tmp_path / CONFIDENCE
    good = found.to_json()
    path.write_text(json.dumps(good), encoding="utf-8")
    assert load_calibration(tmp_path) == found
    for damage in (
        "{",
        "[]",
        json.dumps({**good, "weights": {"length": 1.0}}),
        json.dumps({**good, "weights": {}}),
        json.dumps({**good, "intercept": float("nan")}),
        json.dumps({**good, "dropout_samples": -1}),
        json.dumps({**good, "dropout_samples": 10**9}),
        json.dumps({**good, "seed": "x"}),
        json.dumps({**good, "seed": 2**70}),
        json.dumps({**good, "weights": {"dropout_deviation": 1.0}}),
        json.dumps({**good, "more": 1}),
        json.dumps({**good, "threshold": 10**400}),
        "[" * 100_000,
    ):
        path.write_text(damage, encoding="utf-8")
        with pytest.raises(ValueError, match=r"is not a calibration .*Calibrate again: vanilla-transformer calibrate"):
            load_calibration(tmp_path)
    path.write_text(json.dumps(good), encoding="utf-8")
    save_file({"a": torch.zeros(3)}, weights)
    with pytest.raises(ValueError, match="made for other weights"):
        load_calibration(tmp_path)
