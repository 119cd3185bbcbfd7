"""The WMT14 recipes from beginning to end, small: from the Hub, killed, resumed, through outages, on two processes."""

import json
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vanilla_transformer.sharing.model_card import model_card

from .conftest import parquet_file


COMMAND = """
import sys
from vanilla_transformer.cli import main
sys.exit(main(sys.argv[1:]))
"""

SMALL = {
    "data.buffer_pairs": 300,
    "tokenizer.vocab_size": 600,
    "model.d_model": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.encoder_attention_heads": 2,
    "model.decoder_attention_heads": 2,
    "model.encoder_ffn_dim": 64,
    "model.decoder_ffn_dim": 64,
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


def options(**more) -> list:
    """The recipe's fields that are to differ; `__` stands for the dot."""
    values = SMALL | {name.replace("__", "."): value for name, value in more.items()}
    return [word for name, value in values.items() for word in (f"--{name}", value)]


def train(hub_python, recipe: str, output: Path, *more, **different):
    return hub_python(COMMAND, "train", recipe, "--output", output, *more, *options(**different))


def finished(process) -> str:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return errors


def weights(output: Path) -> dict:
    return load_file(output / "averaged" / "model.safetensors")


def losses(output: Path) -> list:
    records = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [(record["step"], record["loss"]) for record in records if "loss" in record]


@pytest.mark.slow
def test_a_recipe_from_the_hub_killed_and_resumed(wmt14, hub, hub_python, tmp_path):
    recipe = "wmt14_en_de_base"
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    errors = finished(train(hub_python, recipe, whole))
    assert "An update has up to 1,000 source and target tokens (1 processes x 2 batches of 500)" in errors
    assert (whole / "scores.json").exists()
    assert [step for step, _ in losses(whole)] == list(range(1, 31))
    for at in (6, 24):  # twice
        process = train(hub_python, recipe, broken, "--resume")
        while not (broken / "checkpoints" / f"checkpoint-{at}" / "digests.json").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.kill()
        process.communicate()
        if at == 6:  # from now on another corpus has the name of this one
            begun = hub.repos["dataset", "wmt/wmt14"].commit("main")
            others = [path for path in begun["files"] if path.endswith(".parquet")]
            hub.seed("dataset", "wmt/wmt14", dict.fromkeys(others, parquet_file([("new", "neu")] * 99, ("en", "de"))))
    served = len(hub.log)
    finished(train(hub_python, recipe, broken, "--resume"))
    read_again = {event["path"] for event in hub.log[served:] if event["path"].startswith("/lfs/")}
    assert read_again  # the stream was read from the Hub in this session too
    assert losses(broken) == losses(whole)
    expected = weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights(broken).items())
    assert (broken / "data.json").read_bytes() == (whole / "data.json").read_bytes()
    assert f"(wmt/wmt14 de-en train at {begun['oid'][:12]}) | as a stream |" in model_card(broken, title="", command="")

    del hub.repos["dataset", "wmt/wmt14"].commits[begun["oid"]]
    process = train(hub_python, recipe, broken, "--resume", training__max_steps=36)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"It was begun with its commit {begun['oid']}, without which it cannot go on as it was" in errors


@pytest.mark.slow
def test_prepare_goes_on_with_the_commit_it_was_begun_with(wmt14, hub, hub_python, tmp_path):
    def prepare(output):
        more = ("--output", output, "--workers", 1, "--tokenizer.vocab_size", 600)
        return hub_python(COMMAND, "prepare", "wmt14_en_de_base", *more)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished(prepare(whole))
    process = prepare(broken)
    while not (broken / "tokenizer").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    process.communicate()
    others = [path for path in hub.repos["dataset", "wmt/wmt14"].commit("main")["files"] if "train" in path]
    hub.seed("dataset", "wmt/wmt14", dict.fromkeys(others, parquet_file([("new", "neu")] * 99, ("en", "de"))))
    finished(prepare(broken))
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(files) == 6
    assert [(broken / file).read_bytes() for file in files] == [(whole / file).read_bytes() for file in files]
    assert "is complete already" in finished(prepare(broken))


@pytest.mark.slow
def test_who_interrupts_a_run_that_waits_for_the_hub_does_not_wait_with_it(wmt14, hub, hub_python, tmp_path):
    process = train(hub_python, "wmt14_en_de_base", tmp_path / "run", training__max_steps=10_000)
    while not (tmp_path / "run" / "checkpoints" / "checkpoint-6" / "digests.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    hub.fault("status", r"^/lfs/", times=10**9)
    told = ""
    while "trying again" not in told:
        told = process.stderr.readline()
        assert told
    trained = None
    while trained != (trained := (tmp_path / "run" / "log.jsonl").stat().st_size):  # until the last batch is used up
        time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be read any more" in errors.splitlines()[-1]
    assert errors.endswith("with --resume.\n")


@pytest.mark.slow
def test_a_stream_that_is_lost_leaves_a_checkpoint_to_go_on_from(wmt14, hub, hub_python, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished(train(hub_python, "wmt14_en_de_base", whole))
    process = train(hub_python, "wmt14_en_de_base", broken, data__patience=3)
    while not (broken / "checkpoints" / "checkpoint-6" / "digests.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    lost = hub.fault("status", r"^/lfs/", times=10_000)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1
    [told] = [line for line in errors.splitlines() if "cannot be read any more" in line]
    assert "Go on from" in told
    assert told.endswith("with --resume.")
    lost["times"] = 0
    finished(train(hub_python, "wmt14_en_de_base", broken, "--resume", data__patience=3))
    assert losses(broken) == losses(whole)
    expected = weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights(broken).items())
