"""Training on two real processes (gloo): the result equals that of one, resumes are exact, and nothing hangs."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.run.folder import WEIGHTS

from ..warm_python import CLI, PACKAGE, all_completed, free_port
from .conftest import assert_same_run, command, finished, lines_of, written


# An epoch has 61 batches: one process has one more than the other, and both are in epoch 2 after 32 updates.
SHORT = ("--training.update_tokens", "600", "--training.max_tokens", "300", "--training.max_steps", "40",
         "--training.save_total_limit", "5", "--training.predict_with_generate", "false", "--data.test", "{}",
         "--evaluation.metrics", "[exact_match]", "--evaluation.examples", "[]")  # fmt: skip
# Dropout draws other random numbers on two processes. In translation each takes as many steps as its sentences need.
COMPARED = ("--model.dropout", "0", "--training.predict_with_generate", "true")
STREAM = ("--data.stream", "true", "--data.buffer_pairs", "100")
MIXTURE = ("--data.train", "[{corpus: [train.en, train.de]}, {corpus: [train.en, train.de], weight: 0.5, tag: <bt>}]",
           "--data.buffer_pairs", "100")  # fmt: skip
PREPARED = ("--data.train", "{prepared: prepared}")
WITH_TERMS = ("--data.train", "{prepared: with_terms}")
SHARDED = ("--training.fsdp", "true")
DROPPED = ("--training.bpe_dropout", "0.1")
REGULARISED = ("--training.r_drop_alpha=5", "--training.r_drop_start=5", "--training.guided_alignment=0.1",
               "--training.aligned_embeddings=0.8",
               "--model.source_word_dropout=0.1", "--model.target_word_dropout=0.1")  # fmt: skip
NOT_ALIGNED = ("--training.aligned_embeddings=0",)  # which does not work with sharding
MUON = ("--training.optim", "muon")
# Each process skips its own layers, which does not work where layers are sharded.
SKIPPING = ("--model.encoder_layers=3", "--model.encoder_layerdrop=0.4", "--model.decoder_layerdrop=0.4")
EMA = ("--training.ema_decay", "0.9", "--training.cooldown_steps", "20")  # runs are stopped during the cooldown
AUGMENTED = ("--training.augmentation", "{upper: 0.1, typos: 0.2, noise: 0.1, terms: 0.4}")
DROPOUT = ("--model.attention_dropout=0.1", "--model.activation_dropout=0.1")
EVERYTHING = DROPOUT + AUGMENTED + DROPPED + REGULARISED + SKIPPING + EMA + MUON


@pytest.fixture(scope="module")
def corpus(corpus, tmp_path_factory) -> Path:
    """The corpus, as text and prepared."""
    folder = shutil.copytree(corpus, tmp_path_factory.mktemp("corpora") / "corpus")
    for name, more in (("prepared", ()), ("with_terms", AUGMENTED)):
        finished("prepare", folder / "recipe.yaml", "--data.folder", folder, "--output", folder / name, *more)
    return folder


def arguments(corpus: Path, run: Path, *more) -> list[str]:
    """On the CPU, as two processes would need two GPUs."""
    places = ["--data.folder", str(corpus), "--output", str(run), "--device", "cpu"]
    return ["train", str(corpus / "recipe.yaml"), *places, *SHORT, *more]


def ended(status: int, processes: int, words: list[str]) -> list[subprocess.CompletedProcess]:
    """Runs the command to its end."""
    if processes == 1:
        done = [command(*words)]
    else:
        with PACKAGE.together(processes, CLI, *words) as running:
            done = all_completed(running, timeout=200)
    assert [each.returncode for each in done] == [status] * processes, [each.stderr for each in done]
    return done


trained, refused = partial(ended, 0), partial(ended, 1)


def by_torchrun(words: list[str]) -> list[str]:
    """The command with which torchrun starts two processes; it forwards signals to them."""
    launcher = ["--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "vanilla_transformer.cli", *words]


def torchrun(processes: int, words: list[str]) -> list[subprocess.CompletedProcess]:
    done = subprocess.run(by_torchrun(words), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return [done]


def records(run: Path, name: str) -> list[float]:
    return [record[name] for record in map(json.loads, lines_of(run / "log.jsonl")) if name in record]


def cut_back(run: Path, step: int) -> None:
    """Makes a finished run look as if it was killed before it saved any checkpoint later than `step`."""
    for name in ("finished.json", "scores.json"):
        (run / name).unlink()
    for name in ("averaged", "best", "ema", "translations"):
        shutil.rmtree(run / name, ignore_errors=name == "ema")
    for checkpoint in (run / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("checkpoint-")) > step:
            shutil.rmtree(checkpoint)
    assert (run / "checkpoints" / f"checkpoint-{step}").exists()


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    """Makes runs that were never stopped, each only once."""
    runs = {}

    def unbroken(processes: int, data: tuple[str, ...]) -> Path:
        if (processes, data) not in runs:
            runs[processes, data] = tmp_path_factory.mktemp("unbroken") / "run"
            trained(processes, arguments(corpus, runs[processes, data], *data))
        return runs[processes, data]

    return unbroken


@pytest.mark.parametrize(
    ("start", "how", "optimizer"),
    [(torchrun, (), ()), (trained, SHARDED, MUON), pytest.param(trained, SHARDED, (), marks=pytest.mark.slow)],
    ids=["replicated", "sharded-muon", "sharded"],
)
def test_two_processes_train_like_one(corpus, unbroken, tmp_path, start, how, optimizer):
    one, two = unbroken(1, COMPARED + optimizer), tmp_path / "run"
    done = start(2, arguments(corpus, two, *COMPARED, *optimizer, *how))
    assert "(2 processes x 1 batches of 300)" in done[0].stderr
    assert "".join(each.stdout for each in done).count("Everything is in") == 1
    # The epoch ends with the 51st batch: one process takes it alone, and two take it with one of the next epoch.
    assert records(two, "loss")[:25] == pytest.approx(records(one, "loss")[:25], rel=1e-4)
    assert records(two, "grad_norm")[:25] == pytest.approx(records(one, "grad_norm")[:25], rel=1e-4)
    assert records(two, "eval_loss")[:3] == pytest.approx(records(one, "eval_loss")[:3], rel=1e-4)
    assert len(records(two, "eval_bleu")) == 5
    assert records(two, "step") == records(one, "step")
    at_24 = two / "checkpoints" / "checkpoint-24"
    assert (at_24 / "pytorch_model_fsdp.bin").exists() == bool(how)
    expected, found = (load_file(run / "checkpoints" / "checkpoint-24" / WEIGHTS) for run in (one, two))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    model = AutoModelForSeq2SeqLM.from_pretrained(at_24)
    assert type(model).__name__ == "VanillaTransformerForConditionalGeneration"
    assert json.loads((two / "environment.json").read_text())["processes"] == 2


# test_resume.py covers one process on files.
@pytest.mark.parametrize(
    ("processes", "data"),
    [
        pytest.param(1, PREPARED, marks=pytest.mark.slow),
        pytest.param(1, STREAM, marks=pytest.mark.slow),
        pytest.param(2, (), marks=pytest.mark.slow),
        pytest.param(2, PREPARED, marks=pytest.mark.slow),
        (2, STREAM),
        pytest.param(2, SHARDED, marks=pytest.mark.slow),
        pytest.param(1, EVERYTHING, marks=pytest.mark.slow),
        pytest.param(2, EVERYTHING, marks=pytest.mark.slow),
        pytest.param(2, EVERYTHING + WITH_TERMS, marks=pytest.mark.slow),
        pytest.param(2, REGULARISED + MUON + SHARDED + NOT_ALIGNED, marks=pytest.mark.slow),
    ],
    ids=[
        "1-prepared",
        "1-stream",
        "2-files",
        "2-prepared",
        "2-stream",
        "2-sharded",
        "1-everything",
        "2-everything",
        "2-everything-prepared",
        "2-regularised-sharded",
    ],
)
def test_resume_is_exact(corpus, unbroken, tmp_path, processes, data):
    whole = unbroken(processes, data)
    run = shutil.copytree(whole, tmp_path / "run")
    cut_back(run, 32)  # into the second epoch of text
    done = trained(processes, arguments(corpus, run, *data, "--resume"))
    assert f"Going on from {run}/checkpoints/checkpoint-32" in done[0].stderr
    assert_same_run(run, whole)


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_run_with_every_option_resumes_exactly(corpus, unbroken, tmp_path, processes):
    run, data = tmp_path / "run", EVERYTHING + MIXTURE
    words = arguments(corpus, run, *data)
    with ExitStack() as stack:
        if processes == 1:
            running = [stack.enter_context(PACKAGE.start(CLI, *words))]
        else:
            running = stack.enter_context(PACKAGE.together(processes, CLI, *words))
        running[0].until(lambda: (run / "log.jsonl").exists() and len(lines_of(run / "log.jsonl")) > 26)
        for each in running:
            each.kill()
        all_completed(running)
    assert not (run / "finished.json").exists()
    done = trained(processes, [*words, "--resume"])
    assert "Going on from" in done[0].stderr
    whole = unbroken(processes, data)
    assert_same_run(run, whole)
    last = Path("checkpoints", "checkpoint-40", "optimizer.pt")
    found, expected = (torch.load(each / last, weights_only=True)["state"] for each in (run, whole))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_prepared_folder_trains_like_the_text(unbroken, processes):
    assert_same_run(unbroken(processes, PREPARED), unbroken(processes, ()))
    assert_same_run(unbroken(processes, EVERYTHING + WITH_TERMS), unbroken(processes, EVERYTHING))


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_process_ends_the_other(corpus, tmp_path, killed):
    run, other = tmp_path / "run", 1 - killed
    with PACKAGE.together(2, CLI, *arguments(corpus, run)) as running:
        running[0].until((run / "checkpoints" / "checkpoint-8" / "trainer_state.json").exists)
        running[killed].kill()
        done = running[other].completed(timeout=60)
    assert done.returncode == 1
    assert "Another of the 2 processes of this run has ended" in done.stderr
    assert "Go on with `train --resume`" in done.stderr
    if killed == 0:
        return
    [told] = refused(1, arguments(corpus, run, "--resume"))
    assert "was begun with 2 processes, not 1" in told.stderr
    trained(2, arguments(corpus, run, "--resume"))
    assert records(run, "step")[-1] == 40


def stopped_at(errors: str) -> str:
    [found] = re.findall(r"Stopped after update (\d+)", errors)
    return found


@pytest.mark.parametrize("asked", [(0, 1), pytest.param((1,), marks=pytest.mark.slow)], ids=["both", "the second"])
def test_processes_stop_after_same_update_and_resume(corpus, unbroken, tmp_path, asked):
    """Whether SIGTERM goes to every process, as torchrun sends it, or to only one."""
    run = tmp_path / "run"
    with PACKAGE.together(2, CLI, *arguments(corpus, run)) as running:
        running[0].until((run / "checkpoints" / "checkpoint-8" / "trainer_state.json").exists)
        for number in asked:
            running[number].send_signal(signal.SIGTERM)
        done = all_completed(running, timeout=60)
    assert [each.returncode for each in done] == [143 if number in asked else 130 for number in range(2)]
    [step] = {stopped_at(each.stderr) for each in done}
    assert (run / "checkpoints" / f"checkpoint-{step}").is_dir()
    assert not any("Traceback" in each.stderr for each in done)
    if asked == (0, 1):  # resuming is the same, and takes a while
        return
    trained(2, arguments(corpus, run, "--resume"))
    assert_same_run(run, unbroken(2, ()))


@pytest.mark.slow
def test_terminated_torchrun_leaves_checkpoint_and_no_processes(corpus, tmp_path):
    run = tmp_path / "run"
    long = [f"--training.{name}=4000" for name in ("max_steps", "save_steps", "eval_steps")]
    with subprocess.Popen(by_torchrun(arguments(corpus, run, *long)), stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 200
        while not ((run / "log.jsonl").exists() and (run / "log.jsonl").read_bytes()) and time.monotonic() < until:
            time.sleep(0.1)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=100)
    assert errors.count("Stopping after this update") == 2
    assert {stopped_at(line) for line in errors.splitlines() if "Stopped after" in line} == {
        path.name.removeprefix("checkpoint-") for path in (run / "checkpoints").iterdir()
    }
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=10)[1]


def test_error_in_first_process_ends_the_second(corpus, tmp_path):
    (tmp_path / "of value").touch()
    first, second = (each.stderr for each in refused(2, arguments(corpus, tmp_path)))
    assert "is not a run folder, it holds of value" in first
    assert "The first process of this run could not begin it; its message says why." in second
    assert "Traceback" not in first + second


def test_process_with_another_text_than_the_first_ends_both(corpus, tmp_path):
    other = shutil.copytree(corpus, tmp_path / "other")
    lines = lines_of(other / "train.de")
    written(other / "train.de", [*lines[1:], lines[0]])
    of_another_machine = f"""
import os, sys
if os.environ["RANK"] == "1":
    sys.argv[sys.argv.index("--data.folder") + 1] = {str(other)!r}
"""
    with PACKAGE.together(2, of_another_machine + CLI, *arguments(corpus, tmp_path / "run")) as running:
        done = all_completed(running, timeout=200)
    assert [each.returncode for each in done] == [1, 1], [each.stderr for each in done]
    assert "Another of the 2 processes of this run has ended" in done[0].stderr
    assert "The train text of process 1 is not that of the first process" in done[1].stderr


def test_two_processes_validate_on_one_pair(corpus, tmp_path):
    for language in ("en", "de"):
        written(corpus / f"single.{language}", lines_of(corpus / f"validation.{language}")[:1])
    single = ("--data.validation", "[single.en, single.de]", "--training.predict_with_generate", "true")
    trained(2, arguments(corpus, tmp_path / "run", *single, "--training.max_steps", "8"))
    assert len(records(tmp_path / "run", "eval_bleu")) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--training.max_tokens", "20"), "more than max_tokens = 20 allows for a whole batch"),
        (("--training.max_tokens", "20", *STREAM), "and a batch has training.max_tokens = 20"),
        (("--data.train", "[validation.en, validation.de]", "--training.update_tokens", "2000",
          "--training.max_tokens", "1000", "--tokenizer.vocab_size", "300"), "too few for 2 processes"),
        ((*SHARDED, *SKIPPING), "set encoder_layerdrop and decoder_layerdrop to 0, or leave fsdp out"),
    ],
)  # fmt: skip
def test_invalid_settings_are_rejected_on_two_processes(corpus, tmp_path, options, message):
    told = refused(2, arguments(corpus, tmp_path / "run", *options))
    assert any(message in each.stderr for each in told)  # each process reads its own part of a stream
