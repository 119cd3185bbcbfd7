"""A small WMT14 recipe from beginning to end: read from the Hub, killed, resumed, and cut off from the Hub."""

import signal
import time
from pathlib import Path

import pytest
import yaml

from vanilla_transformer.sharing.model_card import model_card

from ..system.conftest import RECIPE, assert_same_run, losses
from ..warm_python import CLI, WarmProcess
from .conftest import ended, parquet_file


SMALL = {
    **{f"model.{name}": size for name, size in yaml.safe_load(RECIPE)["model"].items()},
    "data.buffer_pairs": 300,
    "tokenizer.vocab_size": 600,
    "training.update_tokens": 1000,
    "training.max_tokens": 500,
    "training.max_steps": 30,
    "training.warmup_steps": 10,
    "training.save_steps": 6,
    "training.eval_steps": 6,
    "training.logging_steps": 1,
    "training.average_last": 2,
    "evaluation.metrics": "[sacrebleu]",
}


def train(hub_python, output: Path, *more) -> WarmProcess:
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    return hub_python(CLI, "train", "wmt14_en_de_base", "--output", output, *options, *more)


def finished(process: WarmProcess) -> str:
    return ended(process)[1]


def checkpoint(output: Path, update: int) -> Path:
    """The file that exists once the checkpoint is complete."""
    return output / "checkpoints" / f"checkpoint-{update}" / "digests.json"


def replace_the_text(hub) -> dict:
    """Replaces the corpus by another of the same name; returns the last commit of the old one."""
    begun = hub.repos["dataset", "wmt/wmt14"].commit("main")
    files = [path for path in begun["files"] if path.endswith(".parquet")]
    hub.seed("dataset", "wmt/wmt14", dict.fromkeys(files, parquet_file([("new", "neu")] * 99)))
    return begun


@pytest.mark.slow
def test_killed_run_from_the_hub_resumes_exactly(wmt14, hub, hub_python, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    errors = finished(train(hub_python, whole))
    assert "An update has up to 1,000 source and target tokens (1 processes x 2 batches of 500)" in errors
    assert (whole / "scores.json").exists()
    assert [*losses(whole)] == list(range(1, 31))
    for at in (6, 24):  # twice
        process = train(hub_python, broken, "--resume")
        process.until(checkpoint(broken, at).exists)
        process.kill()
        process.communicate()
        if at == 6:
            begun = replace_the_text(hub)
    served = len(hub.log)
    finished(train(hub_python, broken, "--resume"))
    read_again = {event["path"] for event in hub.log[served:] if event["path"].startswith("/lfs/")}
    assert read_again  # the stream was read from the Hub in this session too
    assert_same_run(broken, whole)
    assert (broken / "data.json").read_bytes() == (whole / "data.json").read_bytes()
    assert f"(wmt/wmt14 de-en train at {begun['oid'][:12]}) | as a stream |" in model_card(broken, title="", command="")

    del hub.repos["dataset", "wmt/wmt14"].commits[begun["oid"]]
    _, errors = ended(train(hub_python, broken, "--resume", "--training.max_steps", 36), 1)
    assert f"The work was begun with commit {begun['oid']} and cannot continue without it" in errors


@pytest.mark.slow
def test_resumed_prepare_keeps_its_commit(wmt14, hub, hub_python, tmp_path):
    def prepare(output):
        more = ("--output", output, "--workers", 1, "--tokenizer.vocab_size", 600)
        return hub_python(CLI, "prepare", "wmt14_en_de_base", *more)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished(prepare(whole))
    process = prepare(broken)
    process.until((broken / "tokenizer").exists)
    process.kill()
    process.communicate()
    replace_the_text(hub)
    finished(prepare(broken))
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(files) == 7
    assert [(broken / file).read_bytes() for file in files] == [(whole / file).read_bytes() for file in files]
    assert "is complete already" in finished(prepare(broken))


@pytest.mark.slow
def test_run_waiting_for_the_hub_can_be_interrupted(wmt14, hub, hub_python, tmp_path):
    process = train(hub_python, tmp_path / "run", "--training.max_steps", 10_000)
    process.until(checkpoint(tmp_path / "run", 6).exists)
    hub.fault("status", r"^/lfs/", times=10**9)
    told = ""
    while "trying again" not in told:
        told = process.stderr.readline()
        assert told
    trained = None
    while trained != (trained := (tmp_path / "run" / "log.jsonl").stat().st_size):  # until the last batch is used up
        time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = ended(process, 1)
    assert "cannot be read any more" in errors.splitlines()[-1]
    assert errors.endswith(f"Go on with: vanilla-transformer train --resume {tmp_path / 'run'}\n")


@pytest.mark.slow
def test_lost_stream_leaves_a_resumable_checkpoint(wmt14, hub, hub_python, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished(train(hub_python, whole))
    process = train(hub_python, broken, "--data.patience", 3)
    process.until(checkpoint(broken, 6).exists)
    lost = hub.fault("status", r"^/lfs/", times=10_000)
    _, errors = ended(process, 1)
    [told] = [line for line in errors.splitlines() if "cannot be read any more" in line]
    assert told.endswith(f"Go on with: vanilla-transformer train --resume {broken}")
    lost["times"] = 0
    finished(train(hub_python, broken, "--resume", "--data.patience", 3))
    assert_same_run(broken, whole)
