"""The experiments of docs/explanation/questions.md: their assumptions hold, and each runs to its end."""

import math
import re
from pathlib import Path

import paper_questions
import pytest


DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation"


@pytest.fixture(autouse=True)
def a_tenth_of_the_text(monkeypatch):
    monkeypatch.setattr(paper_questions, "SENTENCES", 640)


def test_only_batch_normalisation_leaks_neighbours_and_future():
    assert paper_questions.leaks(paper_questions.small()) == (0, 0)
    assert min(paper_questions.leaks(paper_questions.with_batch_norm(paper_questions.small()))) > 0.01


def test_training_lowers_the_validation_loss():
    curve = paper_questions.learn(paper_questions.small(), 20, 2e-3, every=10)
    assert [update for update, _ in curve] == [0, 10, 20]
    assert curve[-1][1] < curve[0][1] - 1


def test_diverging_training_yields_only_finite_losses():
    curve = paper_questions.learn(paper_questions.small(), 20, 1e30, every=10)
    assert len(curve) < 3  # update 20 is missing: training has diverged before
    assert all(math.isfinite(loss) for _, loss in curve)


def test_every_question_has_an_answer_with_a_picture():
    text = (DOCS / "questions.md").read_text(encoding="utf-8")
    assert re.findall(r"^    python scripts/experiments/paper_questions.py (\w+)$", text, flags=re.MULTILINE) == list(
        paper_questions.QUESTIONS
    )
    for name, function in paper_questions.QUESTIONS.items():
        question = function.__doc__.splitlines()[0].split("?")[0]
        assert f"\n## {question}?\n" in text
        assert f"(question_{name}.png)" in text
        assert (DOCS / f"question_{name}.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaling", "embeddings", "warmup", "heads", "normalisation", "parallel", "masks"])
def test_question_prints_a_table_and_draws_its_picture(name, tmp_path, printed_by):
    assert "\n| --- |" in printed_by(paper_questions, name, "--pictures", tmp_path)
    assert (tmp_path / f"question_{name}.png").is_file()
