"""The confidence experiment, on invented translations that are good with known probability."""

import json
import math

import numpy as np
import pytest

from vanilla_transformer.translation.calibrating import Judged
from vanilla_transformer.translation.likelihood import Likelihood

from .conftest import load_script, write_files_like_multi30ks


def invented(model, tokenizer, sources, references, dropout_samples, seed):
    """Good with probability sigmoid(-1 - 2 log surprisal): the reference if good, else another text."""
    random, found = np.random.default_rng(len(sources)), []
    for reference in references[0]:
        surprisal = math.exp(random.normal(-0.5, 1.0))
        good = random.random() < 1 / (1 + math.exp(1 + 2 * math.log(surprisal)))
        likelihood = Likelihood([-surprisal] * 4, [], [-4 * surprisal * each for each in (0.9, 1.2)[:dropout_samples]])
        found.append(Judged(reference if good else "falsch.", likelihood, 100.0 if good else 5.0))
    return found


def test_known_confidence_is_calibrated_and_ranks_translations(printed_by, monkeypatch, tmp_path):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"val": 600, "test": 30})
    script, figures = load_script("experiments/confidence"), tmp_path / "figures.json"
    monkeypatch.setattr(script, "load_engine", lambda models: (None, None))
    monkeypatch.setattr(script, "judged_translations", invented)
    words = ("model", data, "--splits", "3", "--json", figures)
    out = printed_by(script, *words, "--dropout-samples", "2", "--picture", tmp_path / "confidence.png")
    assert len(out.splitlines()) == 7
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert (found["sentences"], found["splits"], found["set"]) == (600, 3, "half of val")
    for name, row in found["rows"].items():
        mean = {key: row[key]["mean"] for key in script.COLUMNS.values()}
        assert mean["expected_calibration_error"] < 2 * mean["expected_calibration_error_by_chance"], name
        assert mean["risk_of_surest"] < mean["risk"] - 0.05
        assert mean["bleu_of_surest"] > mean["bleu"] + 5
        assert mean["bleu_of_random"] == pytest.approx(mean["bleu"], abs=5)
    assert (tmp_path / "confidence.png").is_file()
    printed_by(script, *words, "--test", "test")
    assert json.loads(figures.read_text(encoding="utf-8"))["set"] == "test"
