"""The ladder of Multi30k recipes trains missing runs, compares rungs and translates the test set once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from vanilla_transformer.run.recipe import load_recipe

from .conftest import load_script, write_files_like_multi30ks


ladder = load_script("experiments/ladder")
rungs_of_scripts = load_script("experiments/rungs")
read_rungs = rungs_of_scripts.read_rungs

SMALL = {
    "tokenizer.vocab_size": 500,
    "model.d_model": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "training.max_steps": 4,
    "training.eval_steps": 2,
    "training.save_steps": 2,
    "training.bf16": False,
    "decoding.num_beams": 1,
    "decoding.max_length_offset": 5,
}
RUNGS = {
    "today": {"adds": "nothing", "overrides": SMALL},
    "wider": {"below": "today", "adds": "width", "overrides": {"model.d_model": 64}},
}


def recipe_of(rung):
    overrides = {name: json.dumps(value) for name, value in rung.overrides.items()}
    return load_recipe(rungs_of_scripts.RECIPE, overrides)


def test_ladder_rungs_load_as_recipes():
    for rung in read_rungs(ladder.LADDER).values():
        recipe = recipe_of(rung)
        of_training = {name: value for name, value in rung.overrides.items() if name.startswith("training.")}
        assert {name: recipe.training[name.removeprefix("training.")] for name in of_training} == of_training


def test_rung_inherits_overrides_and_texts_from_the_rung_below(tmp_path):
    path = tmp_path / "ladder.yaml"
    text_of = {name: {"of": name, "by": ["today"]} for name in ("train.en", "train.de", "captions.en")}
    taught = {"below": "wider", "adds": "texts", "texts": {"f": text_of["train.en"], "b": text_of["train.de"]}}
    again = {"below": "taught", "adds": "another text", "texts": {"f": text_of["captions.en"]}}
    less = {"below": "again", "adds": "one text less", "texts": {"b": None}}
    path.write_text(
        yaml.safe_dump(RUNGS | {"taught": taught, "again": again, "less": less}, sort_keys=False), encoding="utf-8"
    )
    rungs = read_rungs(path)
    assert rungs["wider"].overrides == SMALL | {"model.d_model": 64}
    assert [(text.name, text.text) for text in rungs["again"].texts] == [("f", "captions.en"), ("b", "train.de")]
    assert [text.name for text in rungs["less"].texts] == ["f"]
    bad = {
        "wider stands on today": {"wider": RUNGS["wider"]},
        "less does without b, which": RUNGS | {"less": less | {"below": "wider"}},
        "number, as in today/2, not today/x": RUNGS
        | {"taught": taught | {"texts": {"f": {"of": "f", "by": ["today/x"]}}}},
        "taught learns from taught": RUNGS | {"taught": taught | {"texts": {"f": {"of": "f", "by": ["taught/1"]}}}},
        "taught learns from yesterday": RUNGS
        | {"taught": taught | {"texts": {"f": {"of": "f", "by": ["yesterday/2"]}}}},
    }
    for message, rungs in bad.items():
        path.write_text(yaml.safe_dump(rungs, sort_keys=False), encoding="utf-8")
        with pytest.raises(SystemExit, match=message):
            read_rungs(path)


def test_quiet_minutes_exclude_pauses(tmp_path):
    folder = ladder.RunFolder(tmp_path)
    folder.recipe.write_text(load_recipe("phrasebook").to_yaml(), encoding="utf-8")
    times = [number + (600 if number > 7 else 0) for number in range(1, 21)]  # a pause of ten minutes
    records = [
        {"step": 50 * number, "loss": 1.0, "elapsed_seconds": time} for number, time in enumerate(times, start=1)
    ]
    folder.log.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    assert ladder.training_minutes(folder) == pytest.approx(620 / 60)
    assert ladder.quiet_minutes(folder) == pytest.approx(20 / 60)
    # R-Drop from the 501st update on: ten records of one second, and ten of three.
    late = load_recipe("phrasebook", {"training.r_drop_alpha": "2.0", "training.r_drop_start": "500"})
    folder.recipe.write_text(late.to_yaml(), encoding="utf-8")
    for number, record in enumerate(records, start=1):
        record["elapsed_seconds"] = number + 2 * max(0, number - 10)
    folder.log.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    assert ladder.quiet_minutes(folder) == pytest.approx(40 / 60)


@pytest.mark.slow
def test_rung_trains_on_its_teachers_translations(tmp_path, monkeypatch, capsys):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 300, "val": 40})
    # Untrained models end few translations by themselves; some samples do end.
    options = ["--sample", "--max-tokens", 250, "--max-length-ratio", 100]
    pair = {"data.source_language": "de", "data.target_language": "en"}
    files = {f"data.{name}": [f"{file}.de", f"{file}.en"] for name, file in (("train", "train"), ("validation", "val"))}
    forward = {"of": "val.en", "by": ["today/2", "today/1"], "options": ["--forward", *options]}
    backward = {"of": "val.de", "by": ["other"], "options": options}
    corpora = [{"corpus": ["train.en", "train.de"]}]
    corpora += [{"corpus": [f"{{texts}}/{name}/val.{side}.gz" for side in ("en", "de")]} for name in ("f", "b")]
    corpora += [{"corpus": [f"{{ladder}}/taught/1.texts/f/val.{side}.gz" for side in ("en", "de")]}]
    rungs = {
        "today": {"adds": "nothing", "overrides": SMALL},
        "other": {"adds": "the other direction", "overrides": SMALL | pair | files},
        "taught": {
            "below": "today",
            "adds": "teachers",
            "texts": {"f": forward, "b": backward},
            "overrides": {"data.train": corpora, "initial_model": "{below}"},
        },
    }
    (tmp_path / "ladder.yaml").write_text(yaml.safe_dump(rungs, sort_keys=False), encoding="utf-8")
    words = ["ladder.py", "--data", data, "--output", tmp_path / "runs", "--ladder", tmp_path / "ladder.yaml"]
    words += ["--workers", "2", "--rungs"]
    for names, code in (
        (["taught"], 2),
        (["taught", "today", "other"], 2),
        (["today", "--seeds", "2"], 0),
        (["taught", "today", "other"], 0),
    ):
        monkeypatch.setattr(sys, "argv", [*map(str, words), *names])
        with pytest.raises(SystemExit) as ended:
            ladder.main()
        assert ended.value.code == code
    printed = capsys.readouterr()
    for seed in (1, 2):
        assert f"taught learns from today, which is not trained with seed {seed}" in printed.err
    rows = [line.split(" | ")[0] for line in printed.out.splitlines() if line.startswith("| ")]
    assert rows[-4:] == ["| rung", "| ---", "| today", "| taught"]  # scores of another direction do not belong here
    learned = yaml.safe_load((tmp_path / "runs/taught/1/recipe.yaml").read_text(encoding="utf-8"))
    corpora = [Path(each["corpus"][0]) for each in learned["data"]["train"]]
    assert [corpus.name for corpus in corpora] == ["train.en", "val.en.gz", "val.en.gz", "val.en.gz"]
    assert corpora[1] == corpora[3]
    report = json.loads((corpora[1].parent / "val.report.json").read_text(encoding="utf-8"))
    assert [Path(model["path"]).parts[-2:] for model in report["begun_with"]["models"]] == [
        ("today", "2"),
        ("today", "1"),
    ]
    runs, read = tmp_path / "runs", read_rungs(tmp_path / "ladder.yaml")
    needed = (("taught", 1), ("today", 2), ("today", 1), ("other", 1))
    spent = sum(ladder.training_minutes(ladder.folder_of(runs, *each)) for each in needed)
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in runs.glob("taught/1.texts/*/*.report.json")]
    spent += sum(report["seconds"] for report in reports) / 60
    assert len(reports) == 2
    assert ladder.minutes(read, read["taught"], 1, runs, ladder.training_minutes) == pytest.approx(spent)


@pytest.mark.slow
def test_terminated_ladder_stops_its_trainings_and_resumes(tmp_path):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 300, "val": 10})
    endless = {"adds": "nothing", "overrides": {**SMALL, "training.max_steps": 2000}}
    rungs = {"today": endless, "other": endless, "tomorrow": endless}
    (tmp_path / "ladder.yaml").write_text(yaml.safe_dump(rungs), encoding="utf-8")
    words = [sys.executable, ladder.__file__, "--data", data, "--output", tmp_path / "runs"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    words += ["--ladder", tmp_path / "ladder.yaml", "--workers", min(2, cores)]
    checkpoints = tmp_path / "runs/today/1/checkpoints"
    for _ in range(2):
        known = set(checkpoints.glob("checkpoint-*"))
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while not set(checkpoints.glob("checkpoint-*/digests.json")) - {path / "digests.json" for path in known}:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.terminate()
        assert process.communicate(timeout=60)[0] == ""  # neither is called done or failed
        assert process.returncode == 128 + signal.SIGTERM
        assert not (tmp_path / "runs/tomorrow").exists()
        log = (tmp_path / "runs/today/1.log").read_text(encoding="utf-8")
        assert "Interrupted: Stopped after update" in log.splitlines()[-1]
    assert "Going on from" in log


@pytest.mark.slow
def test_runs_are_trained_compared_and_tested_once(tmp_path, monkeypatch, capsys):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 300, "val": 10, "test_2016_flickr": 10})
    (tmp_path / "ladder.yaml").write_text(yaml.safe_dump(RUNGS, sort_keys=False), encoding="utf-8")

    def climb(*words) -> list[str]:
        common = ["--data", data, "--output", tmp_path / "runs", "--ladder", tmp_path / "ladder.yaml", *words]
        monkeypatch.setattr(sys, "argv", ["ladder.py", *map(str, common)])
        with pytest.raises(SystemExit) as ended:
            ladder.main()
        assert ended.value.code == 0
        return capsys.readouterr().out.splitlines()

    printed = climb("--workers", "2", "--picture", tmp_path / "ladder.png")
    assert [line for line in printed if "done" in line] == ["today seed 1: done", "wider seed 1: done"]
    assert (tmp_path / "ladder.png").stat().st_size > 5000
    [today, wider] = [line.split(" | ") for line in printed[-2:]]
    assert "test_2016_flickr" not in printed[-4]  # not looked at yet
    assert 0 <= float(wider[9].strip(" |")) <= 1
    assert float(wider[8]) == pytest.approx(float(wider[6]) - float(today[6]), abs=0.011)

    printed = climb("--rungs", "--test")
    read = [line for line in printed if "has translated test_2016_flickr" in line]
    assert len(read) == 2
    assert not any("done" in line for line in printed)
    assert 0 <= float(printed[-1].split(" | ")[13].strip(" |")) <= 1
    assert climb("--rungs", "--test") == printed[-4:]
    printed = climb("--test")
    assert not any("done" in line or "has translated" in line for line in printed)
    assert len((tmp_path / "runs/tests.jsonl").read_text(encoding="utf-8").splitlines()) == 2
