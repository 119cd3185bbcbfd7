"""The experiment on little text: nested cuts, no test sources in training, and a whole run that can be repeated."""

import json
import subprocess
import sys
from argparse import ArgumentTypeError
from itertools import islice

import pytest
import yaml

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.run.recipe import load_recipe

from .conftest import load_script


little_text = load_script("experiments/little_text")


def phrases(count: int) -> list[tuple[str, str]]:
    return [(pair["en"], pair["de"]) for pair in islice(phrasebook("train"), count)]


def write_text_of_phrases(folder, train=400, test=20, **fields):
    """A file with one text, `phrases`: some of its sources repeat, and some are in the test set too."""
    pairs = phrases(train)
    repeated = [(source, "Noch einmal.") for source, _ in pairs[:50]]
    for name, rows in {"train": [*pairs, *repeated], "test": pairs[:test]}.items():
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    text = {"languages": ["en", "de"], "train": "train.tsv", "test": "test.tsv", **fields}
    path = folder / "texts.yaml"
    path.write_text(yaml.safe_dump({"phrases": text}))
    return path, text


def test_cuts_are_nested_without_evaluation_sources(tmp_path):
    _, text = write_text_of_phrases(tmp_path, pairs=[50, 200])
    small, large = little_text.cuts_of("phrases", text, tmp_path, tmp_path / "out")
    sources = {name: large.lines(name, 0) for name in ("train", "validation", "test")}
    assert [len(small.lines("train", 0)), len(sources["train"])] == [50, 200]
    assert small.lines("train", 1) == large.lines("train", 1)[:50]
    assert not set(sources["train"]) & {*sources["validation"], *sources["test"]}
    assert not set(sources["validation"]) & set(sources["test"])
    assert len(set(sources["validation"])) == (len({source for source, _ in phrases(400)}) - 20) // 20
    held_out = {**text, "pairs": [100]}
    del held_out["test"]  # then it is taken from the training text as well
    [cut] = little_text.cuts_of("phrases", held_out, tmp_path, tmp_path / "other")
    assert 0 < len(set(cut.lines("test", 0))) <= 20
    assert not set(cut.lines("train", 0)) & {*cut.lines("validation", 0), *cut.lines("test", 0)}
    with pytest.raises(SystemExit, match=r"pairs is 9,000, but only \d+ are left"):
        list(little_text.cuts_of("phrases", {**text, "pairs": [9000]}, tmp_path, tmp_path / "out"))
    (tmp_path / "out" / "phrases" / "50" / "test.de").write_text("Etwas anderes.\n")
    with pytest.raises(SystemExit, match=r"test\.de is of another text"):
        list(little_text.cuts_of("phrases", text, tmp_path, tmp_path / "out"))


def test_a_system_may_have_settings_of_its_own():
    parse = little_text.System.parse
    assert parse("auto") == ("auto", ["auto", "--minutes", "{minutes}"])
    assert parse("auto:model.dropout=0.3,data.test={}").words[3:] == ["--model.dropout", "0.3", "--data.test", "{}"]
    for wrong in ("other", "auto:", "auto:dropout", "auto:=0.3", "auto:a=1,", "auto:data.folder=../x"):
        with pytest.raises(ArgumentTypeError, match="is not NAME or NAME:FIELD=VALUE"):
            parse(wrong)


@pytest.mark.slow
def test_second_run_reuses_the_first_runs_results(tmp_path):
    published = {"sacrebleu": 1.5, "chrf": 12.25}
    path, _ = write_text_of_phrases(tmp_path, pairs=[100, 200], published=published)
    words = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--file", str(path), "--minutes", "0.2"]
    words += ["--pairs", "300", "--systems", "auto", "multi30k_en_de:model.dropout=0.2,tokenizer.vocab_size=500"]
    words += ["--picture", str(tmp_path / "little.png")]
    command = [sys.executable, little_text.__file__, *words]
    first, again = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stdout + first.stderr
    rows = [line for line in first.stdout.splitlines() if line.startswith("| phrases")]
    assert [row.split(" | ")[2] for row in rows] == ["auto", words[words.index("auto") + 1], "published"]
    assert rows[-1] == "| phrases | 300 | published |  | 1.50 |  | 12.25 |  |  |"
    assert [line for line in again.stdout.splitlines() if line.startswith("| phrases")] == rows  # nothing is redone
    folders = [tmp_path / "out/phrases/300" / row.split(" | ")[2] for row in rows[:2]]
    recipe = load_recipe(folders[1] / "recipe.yaml")
    assert (recipe.model["dropout"], recipe.tokenizer.vocab_size) == (0.2, 500)
    for folder in folders:
        log = (folder / "log.jsonl").read_text().splitlines()
        assert max(json.loads(line).get("elapsed_seconds", 0) for line in log) < 20  # 12, and the update begun
    assert (tmp_path / "little.png").stat().st_size > 10_000
    chosen = subprocess.run([*command, "--part", "validation"], capture_output=True, text=True, check=False)
    table = [line for line in chosen.stdout.splitlines() if line.startswith("| phrases")]
    assert len(table) == 2, chosen.stdout + chosen.stderr  # nothing is published for it
    assert all(mine.split(" | ")[3] == row.split(" | ")[3] for mine, row in zip(table, rows, strict=False))  # same runs
    assert table != rows[:2]
    other = subprocess.run([*command, "--minutes", "1"], capture_output=True, text=True, check=False)
    assert "have 0.2: give that, or another --output" in other.stderr
