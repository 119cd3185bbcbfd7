"""The output of an earlier version still works: a stopped run, an exported folder, a published repository.

made_before.tar.xz was written on an Intel Xeon by commit fccf22d, when searches still had their own decoder. It holds a
run of `train` killed after 300 of 500 updates and, from the same run trained to its end, the output of `export` and
`publish`, its scores, its losses, and the translations of the 60 training sentences by each of the two models.
"""

import json
import math
import shutil
import tarfile
from pathlib import Path

import pytest

from .conftest import command, output_of


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with tarfile.open(Path(__file__).with_name("made_before.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder / "before"


@pytest.fixture(scope="module")
def expected(before) -> dict:
    return json.loads((before / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("folder", "options", "name"),
    [("repository", [], "translations"), ("exported", ["--backend", "ctranslate2"], "by_ctranslate2")],
)
def test_old_models_translate_the_same(before, expected, folder, options, name):
    source = (before / "corpus" / "train.en").read_text(encoding="utf-8")
    found = output_of("translate", "--model", before / folder, *options, input=source).splitlines()
    assert found == expected[name]


def test_old_model_gets_the_same_scores(before, expected):
    files = [before / "corpus" / f"test.{language}" for language in ("en", "de")]
    printed = output_of(
        "evaluate", "--model", before / "repository", "--sources", files[0], "--references", files[1],
        "--metrics", "sacrebleu", "exact_match", "--json",
    )  # fmt: skip
    found = {each["metric"]: each["value"] for each in json.loads(printed)["scores"]}
    averaged = [each for each in expected["scores"] if (each["model"], each["test_set"]) == ("averaged", "small")]
    for each in averaged:
        assert found[each["metric"]] == pytest.approx(each["value"], rel=1e-9)  # log() depends on the system


def test_old_stopped_run_resumes(before, expected, tmp_path):
    run = shutil.copytree(before / "stopped", tmp_path / "run")
    done = command(
        "train", before / "corpus" / "recipe.yaml", "--data.folder", before / "corpus", "--output", run, "--resume",
        "--device", "cpu",  # where it began: a GPU draws other random numbers
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {str(record["step"]): record["loss"] for record in records if "loss" in record}
    assert losses.keys() == expected["losses"].keys()
    # Equal bit for bit on one processor; others round differently, and the differences grow with every update.
    assert losses["320"] == pytest.approx(expected["losses"]["320"], rel=1e-3)
    assert losses["500"] == pytest.approx(expected["losses"]["500"], rel=0.05)
    assert math.isfinite(json.loads((run / "scores.json").read_text(encoding="utf-8"))[0]["value"])
