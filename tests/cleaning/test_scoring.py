"""Dual conditional cross-entropy, checked against the formula without `generate`; the threshold for the best pairs."""

import math
import random

import numpy as np
import pytest
import torch

from vanilla_transformer.cleaning import Scoring, dual_cross_entropy_scores
from vanilla_transformer.cleaning.scoring import least_of_best
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.translation import score_pairs

from ..model.conftest import build_model


PAIRS = [("A man sees the dog.", "Ein Mann sieht den Hund."), ("No.", "Nein, nein."), ("Two men.", "x")]


@torch.no_grad()
def entropy(model, tokenizer, source: str, target: str) -> float:
    """-1/|y| sum_i log p(y_i | y_<i, x), in float64."""
    ids = tokenizer([source], return_tensors="pt").input_ids
    labels = tokenizer(text_target=[target], return_tensors="pt").input_ids
    logits = model.double()(input_ids=ids, labels=labels).logits[0]
    return -logits.log_softmax(-1)[range(labels.shape[1]), labels[0]].mean().item()


def test_score_matches_the_formula_of_the_paper():
    tokenizer = learn_tokenizer([text for pair in PAIRS for text in pair], TokenizerSettings(vocab_size=280))
    torch.manual_seed(0)
    forward, backward = (build_model(vocab_size=len(tokenizer)).eval() for _ in range(2))
    found = dual_cross_entropy_scores((forward, tokenizer), (backward, tokenizer), PAIRS)
    assert found.dtype == np.float32
    for (source, target), score in zip(PAIRS, found, strict=True):
        there, back = entropy(forward, tokenizer, source, target), entropy(backward, tokenizer, target, source)
        assert score == pytest.approx(math.exp(-abs(there - back) - (there + back) / 2), rel=1e-4)


def test_pair_without_positions_scores_0():
    tokenizer = learn_tokenizer([text for pair in PAIRS for text in pair], TokenizerSettings(vocab_size=280))
    torch.manual_seed(0)
    learned = {"position_embedding_type": "learned", "max_position_embeddings": 60}
    models = [(build_model(vocab_size=len(tokenizer), **learned).eval(), tokenizer) for _ in range(2)]
    fitting, long = PAIRS[:2], (PAIRS[0][0] * 20, PAIRS[0][1])
    found = dual_cross_entropy_scores(*models, [fitting[0], long, long[::-1], fitting[1]])
    assert found[[0, 3]] == pytest.approx(dual_cross_entropy_scores(*models, fitting), rel=1e-5)
    assert (found == 0).tolist() == [False, True, True, False]
    assert (dual_cross_entropy_scores(*models, [long]) == 0).all()
    with pytest.raises(ValueError, match=r"A side of pair 2 has .* tokens, but max_position_embeddings is 60"):
        score_pairs(*models[0], [fitting[0], long])


def test_threshold_keeps_the_requested_share(tmp_path):
    draw = random.Random(0)
    scores = np.array([math.exp(-draw.expovariate(0.2)) for _ in range(1000)] + [0.0, 1.0, 1.0], np.float32)
    paths = []
    for number, part in enumerate(np.split(scores, [100, 100, 700])):
        paths.append(tmp_path / f"{number}.npy")
        np.save(paths[-1], np.append(part, np.float32("nan")))
    for share in (1e-9, 0.001, 0.5, 0.9, 1.0):
        count = math.ceil(share * len(scores))
        assert least_of_best(paths, share) == np.sort(scores)[-count]


def test_invalid_limits_are_rejected():
    for values, message in (
        ({}, "one limit"),
        ({"keep_best": 0.5, "min_score": 0.5}, "one limit"),
        ({"keep_best": 1.5}, "keep_best must be"),
        ({"min_score": float("nan")}, "min_score must be above 0 and at most 1, not nan"),
    ):
        with pytest.raises(ValueError, match=message):
            Scoring("a", "b", **values)
