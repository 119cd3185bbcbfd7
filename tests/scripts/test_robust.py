"""Plain and robust models are trained, translate each form once, and are compared."""

import sys

import pytest
import yaml

from vanilla_transformer.evaluation.robustness import CLEAN

from .conftest import load_script, write_files_like_multi30ks
from .test_ladder import SMALL, read_rungs, recipe_of


robust = load_script("experiments/robust")


def test_every_rung_but_plain_uses_augmentation():
    rungs = read_rungs(robust.RUNGS)
    for rung in rungs.values():
        recipe_of(rung)
    augmented = [name for name, rung in rungs.items() if "training.augmentation" in rung.overrides]
    assert list(rungs) == ["plain", *augmented]


@pytest.mark.slow
def test_second_run_retrains_and_retranslates_nothing(tmp_path, monkeypatch, capsys):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 300, "val": 10})
    augmented = {"below": "plain", "adds": "forms", "overrides": {"training.augmentation": {"upper": 0.5}}}
    rungs = {"plain": {"adds": "nothing", "overrides": SMALL}, "robust": augmented}
    (tmp_path / "robust.yaml").write_text(yaml.safe_dump(rungs, sort_keys=False), encoding="utf-8")
    words = ["--data", data, "--output", tmp_path / "runs", "--models", tmp_path / "robust.yaml", "--seeds", "1"]
    words += ["--forms", "upper", "typos", "--picture", tmp_path / "forms.png"]
    printed = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["robust.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            robust.main()
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out.splitlines())
    first, again = printed
    assert sum("translated" in line for line in first) == 6
    assert first[-10:] == again
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in again[-6:]]
    assert [row[:2] for row in rows] == [[form, name] for form in (CLEAN, "upper", "typos") for name in rungs]
    assert all(0 <= float(row[5]) <= 1 for row in rows[1::2])
    assert (tmp_path / "forms.png").stat().st_size > 5000
    monkeypatch.setattr(sys, "argv", ["robust.py", *map(str, words), "--recase"])
    with pytest.raises(SystemExit):
        robust.main()
    *_, below, recased = capsys.readouterr().out.splitlines()
    assert (below.split(" | ")[1], recased.split(" | ")[1]) == ("robust", "robust --recase")
