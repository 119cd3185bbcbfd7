"""The card says what the run's records say."""

import json
import shutil

import pytest

from vanilla_transformer.sharing.model_card import VARIANTS, model_card


def test_a_card_from_a_runs_records(run):
    card = model_card(run, title="A small model", command="vanilla-transformer train recipe.yaml", examples=4)
    scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    assert all(f"| {s['metric']} | {s['value']:.2f} |" in card for s in scores)
    assert "\n```\nvanilla-transformer train recipe.yaml\n```\n" in card
    tables = [line for line in card.splitlines() if line.startswith("| ") and "bs:1000" in line]
    assert len(tables) == len({*VARIANTS, "exact_match"})
    assert all(line.count("|") - line.count("\\|") == 7 for line in tables)  # a bar would end a cell
    assert "24 updates" in card
    assert json.loads((run / "data.json").read_text(encoding="utf-8"))["train"]["fingerprint"][:16] in card
    assert [line.split()[1] for line in card.splitlines() if " (chrF " in line] == ["best", "random", "random", "worst"]
    values = {s["model"]: s["value"] for s in scores if (s["test_set"], s["metric"]) == ("small", "sacrebleu")}
    assert f"from the last checkpoint's {values['last']:.2f} to {values['averaged']:.2f} (" in card
    assert (run / "recipe.yaml").read_text(encoding="utf-8") in card


def test_a_run_without_a_test_set_has_no_card(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    recipe = (copy / "recipe.yaml").read_text(encoding="utf-8")
    without = recipe.replace("test:\n    small:\n    - test.en\n    - test.de\n", "test: {}\n")
    assert without != recipe
    (copy / "recipe.yaml").write_text(without, encoding="utf-8")
    with pytest.raises(ValueError, match=r"nothing under data\.test"):
        model_card(copy, title="")


@pytest.mark.parametrize("missing", ["finished.json", "scores.json"])
def test_an_unfinished_run_has_no_card(missing, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / missing).unlink()
    with pytest.raises(FileNotFoundError, match="is not finished: go on with --resume"):
        model_card(copy, title="")
