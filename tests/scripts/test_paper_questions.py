"""The experiments of docs/explanation/questions.md: what they rest on, and that each runs to its end."""

import math
import re
from pathlib import Path

import pytest


DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation"


def test_only_batch_normalisation_lets_neighbours_and_the_future_in(paper_questions):
    assert paper_questions.leaks(paper_questions.small()) == (0, 0)
    assert min(paper_questions.leaks(paper_questions.with_batch_norm(paper_questions.small()))) > 0.01


def test_training_lowers_the_validation_loss(paper_questions):
    curve = paper_questions.learn(paper_questions.small(), 20, 2e-3, every=10)
    assert [update for update, _ in curve] == [0, 10, 20]
    assert curve[-1][1] < curve[0][1] - 1


def test_a_curve_ends_where_training_diverges(paper_questions):
    curve = paper_questions.learn(paper_questions.small(), 20, 1e30, every=10)
    assert all(math.isfinite(loss) for _, loss in curve)


def test_every_question_has_an_answer_with_a_picture(paper_questions):
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
def test_it_runs(paper_questions, name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["paper_questions.py", name, "--pictures", str(tmp_path)])
    paper_questions.main()
    assert "\n| --- |" in capsys.readouterr().out
    assert (tmp_path / f"question_{name}.png").is_file()
