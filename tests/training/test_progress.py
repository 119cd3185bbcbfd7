"""A run's log, progress bar, learning curve, reports, stop signals and time budget."""

import json
import math
import signal
from types import SimpleNamespace

import pytest
from transformers import TrainerCallback, TrainerState
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from tests.warm_python import PACKAGE, all_completed
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.arguments import noam
from vanilla_transformer.training.progress import LearningCurve, LogFile, ProgressBar, StopOnRequest
from vanilla_transformer.training.run import train

from .conftest import Work


def test_a_diverged_loss_is_null_in_the_log(tmp_path):
    log = LogFile(tmp_path / "log.jsonl")
    state = SimpleNamespace(is_world_process_zero=True, log_history=[{"loss": math.inf, "step": 1}])
    log.on_train_begin(None, state, None)
    state.log_history.append({"loss": math.nan, "eval_bleu": 1.5, "step": 2})
    log.on_log(None, state, None)
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert "NaN" not in "".join(lines)
    assert "Infinity" not in "".join(lines)
    assert list(map(json.loads, lines)) == [{"loss": None, "step": 1}, {"loss": None, "eval_bleu": 1.5, "step": 2}]


def test_speed_and_padding_cover_batches_since_last_record(make_trainer, clock):
    options = {"max_steps": 4, "logging_steps": 2, "gradient_accumulation_steps": 2}
    trainer = make_trainer(max_tokens=24, callbacks=[Work(clock, 4)], **options)
    batches = list(trainer.train_batches)[:8]
    assert len(batches) == 8
    trainer.train()
    pairs = trainer.train_dataset
    records = [record for record in trainer.state.log_history if "loss" in record]
    for record, seen in zip(records, (batches[:4], batches[4:]), strict=True):
        sides = [[[len(pairs[i][name]) for i in batch] for batch in seen] for name in ("input_ids", "labels")]
        real = [sum(map(sum, lengths)) for lengths in sides]
        cells = sum(len(batch) * max(batch) for lengths in sides for batch in lengths)
        assert record["target_tokens_per_second"] == pytest.approx(real[1] / 8, abs=0.05)
        assert record["real_share"] == pytest.approx(sum(real) / cells, abs=5e-5)
        assert record["real_share"] < 1
    assert len(records) == 2


def test_speed_after_resume_counts_only_this_session(make_trainer, clock, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    straight = make_trainer(callbacks=[Work(clock, 4)], **options)
    straight.train()
    resumed = make_trainer(callbacks=[Work(clock, 4)], **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-2"))
    speeds = [
        [record["target_tokens_per_second"] for record in trainer.state.log_history if "loss" in record]
        for trainer in (straight, resumed)
    ]
    assert speeds[0] == speeds[1]


def test_time_left_stays_right_after_a_validation(capsys, monkeypatch):
    """It uses all elapsed time, including validations; the last update alone would give ten times as much."""
    now = 0.0
    monkeypatch.setattr("tqdm.std.time", lambda: now)
    bar, state = ProgressBar(), TrainerState(max_steps=1000)
    bar.on_train_begin(SimpleNamespace(max_minutes=None), state, None)
    for state.global_step in range(1, 101):
        now += 0.5 if state.global_step == 100 else 0.002
        bar.on_step_end(None, state, None)
    shown = bar.bar.format_dict
    rate = shown["rate"] or (shown["n"] - shown["initial"]) / shown["elapsed"]  # as tqdm writes it
    bar.close()
    assert (shown["total"] - shown["n"]) / rate == pytest.approx(9 * now)
    capsys.readouterr()


def test_bar_shows_the_logged_values(capsys):
    bar, state = ProgressBar(), TrainerState(max_steps=10, global_step=3)
    bar.on_train_begin(SimpleNamespace(max_minutes=None), state, None)
    record = {"loss": 2.5, "learning_rate": 0.00125, "target_tokens_per_second": 12345.6, "real_share": 0.93}
    bar.on_log(None, state, None, logs={**record, "skipped_updates": 0})
    bar.on_log(None, state, None, logs={"eval_loss": 1.75, "eval_bleu": 31.25})
    assert bar.shown == {
        "loss": "2.5",
        "rate": "1.25e-03",
        "target tokens/s": "12,346",
        "padding": "7.0%",
        "validation loss": "1.75",
        "BLEU": "31.2",
    }
    bar.on_log(None, state, None, logs={"loss": math.nan, "skipped_updates": 2})
    assert (bar.shown["loss"], bar.shown["skipped"]) == ("nan", "2")
    bar.on_train_end(None, state, None)
    shown = capsys.readouterr().err
    assert "padding=7.0%" in shown
    assert "3/10 [" in shown  # updates, then elapsed and remaining time


def test_curve_is_drawn_every_minute_and_at_stop(make_trainer, clock, tmp_path):
    picture, seen = tmp_path / "curve.png", []

    class Look(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            seen.append(picture.read_bytes() if picture.exists() else b"")
            control.should_training_stop = state.global_step == 5

    callbacks = [Work(clock, 25), LearningCurve(picture), Look()]
    make_trainer(max_steps=7, callbacks=callbacks, eval_strategy="steps", eval_steps=1).train()
    seen.append(picture.read_bytes())
    assert [seen.index(each) for each in seen] == [0, 0, 2, 2, 2, 5]  # at 75 s, and at the end
    assert all(png.startswith(b"\x89PNG") and png.rstrip().endswith(b"IEND\xaeB`\x82") for png in seen[2:])
    assert [path.name for path in tmp_path.iterdir() if path.name != "checkpoints"] == ["curve.png"]


def test_only_main_process_draws_and_failure_warns_once(tmp_path, caplog):
    curve = LearningCurve(tmp_path / "no such folder" / "curve.png", every=0)
    for main, told in ((False, []), (True, [f"The learning curve {curve.path} could not be drawn"])):
        for step in (1, 2):
            state = TrainerState(is_world_process_zero=main, log_history=[{"step": step, "loss": 2.0}])
            curve.on_evaluate(None, state, None)
        assert [message.partition(": ")[0] for message in caplog.messages] == told


def test_recipe_can_report_to_transformers_integrations(corpus_recipe, tmp_path, monkeypatch):
    reported = []

    class Reporter(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            reported.append(dict(logs))

    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "tensorboard", Reporter)
    train(load_recipe(corpus_recipe, {"training.report_to": "tensorboard"}), tmp_path / "run")
    losses = [logs for logs in reported if "loss" in logs]
    assert len(losses) == 2
    assert all(logs["target_tokens_per_second"] > 0 and 0 < logs["real_share"] <= 1 for logs in losses)
    assert sum("eval_bleu" in logs for logs in reported) == 1


@pytest.fixture
def corpus_recipe(tmp_path):
    recipe = """
description: Two updates.
data: {source_language: en, target_language: de, train: "phrasebook:train:60", validation: "phrasebook:validation:4"}
tokenizer: {vocab_size: 300}
model: {d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
        encoder_ffn_dim: 16, decoder_ffn_dim: 16}
training: {max_tokens: 256, max_steps: 2, warmup_steps: 2, eval_steps: 2, save_steps: 2, logging_steps: 1,
           average_last: 1, generation_num_beams: 1, generation_max_length: 5}
decoding: {num_beams: 1, max_new_tokens: 5}
"""
    (tmp_path / "recipe.yaml").write_text(recipe, encoding="utf-8")
    return tmp_path / "recipe.yaml"


STOPPING = """
import logging, time
from vanilla_transformer.training.progress import StopOnRequest
logging.basicConfig(format="%(message)s")
stop = StopOnRequest()
stop.on_request = lambda: print("asked", flush=True)
with stop.on_signal():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""


def test_a_second_signal_ends_training_at_once():
    for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)):
        with PACKAGE.start(STOPPING) as process:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(first)
            assert process.stdout.readline() == "asked\n"
            assert process.stderr.readline().startswith("Stopping after this update; a checkpoint is saved.")
            process.send_signal(second)
            assert process.wait(10) == -second


def test_training_stops_at_max_minutes_also_when_resumed(make_trainer, clock, tmp_path):
    """An update takes four seconds: 30 updates fill two minutes, which are 20 parts of six seconds each."""
    options = {"max_minutes": 2, "max_steps": 1000, "eval_strategy": "steps", "save_strategy": "steps"}
    trainer = make_trainer(callbacks=[Work(clock, 4)], save_total_limit=100, **options)
    trainer.train()
    assert trainer.state.global_step == 30
    saved = sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "checkpoints").iterdir())
    assert saved == [math.ceil(6 * part / 4) for part in range(1, 21)]
    trainer.evaluate(metric_key_prefix="test")
    trainer.train()
    assert trainer.state.global_step == 30  # another training has its own two minutes

    resumed = make_trainer(callbacks=[Work(clock, 8)], save_total_limit=100, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-20"))
    assert resumed.state.global_step == 25  # 80 seconds are spent; five updates of eight seconds complete two minutes

    longer = make_trainer(callbacks=[Work(clock, 4)], save_total_limit=100, **options | {"max_minutes": 3})
    longer.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-30"))
    assert longer.state.global_step == 45


def test_time_of_evaluations_is_spent_also_when_resumed(make_trainer, clock, tmp_path):
    class Slow(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            clock.seconds += 20  # before the budget's callback reads the clock
            metrics["eval_runtime"] = 1.0

    options = {"max_minutes": 2, "max_steps": 1000, "eval_strategy": "steps", "save_strategy": "steps"}
    trainer = make_trainer(callbacks=[Slow(), Work(clock, 6)], save_total_limit=100, **options)
    trainer.train()
    [first, *_] = [record["step"] for record in trainer.state.log_history if "eval_loss" in record]
    checkpoint = tmp_path / "checkpoints" / f"checkpoint-{first}"
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["TimeBudget"]["attributes"]["seconds"] == 6 * first + 20


def test_stop_of_a_resumed_run_waits_for_no_evaluation(make_trainer, clock, tmp_path):
    class Asking(StopOnRequest):
        def on_step_end(self, args, state, control, **kwargs):
            self.requested = state.global_step == 22  # a part of the time ends after 21 updates, and after 23
            super().on_step_end(args, state, control, **kwargs)

    options = {"max_minutes": 2, "max_steps": 1000, "eval_strategy": "steps", "save_strategy": "steps"}
    make_trainer(callbacks=[Work(clock, 4)], save_total_limit=100, **options).train()
    resumed = make_trainer(callbacks=[Work(clock, 4), Asking()], save_total_limit=100, **options)
    assert "eval_loss" in resumed.evaluate()  # before any training
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-20"))
    assert (tmp_path / "checkpoints" / "checkpoint-22").is_dir()
    assert resumed.state.global_step == 22
    assert [record["step"] for record in resumed.state.log_history if "eval_loss" in record][-1] == 21


def test_budget_may_come_and_go_between_sessions(make_trainer, clock, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}

    def saved_after(updates: int) -> list[int]:
        saved = sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "checkpoints").iterdir())
        return [number for number in saved if number > updates]

    make_trainer(callbacks=[Work(clock, 4)], max_steps=4, **options).train()
    timed = make_trainer(callbacks=[Work(clock, 4)], max_steps=1000, max_minutes=1, **options)
    timed.train(True)
    assert timed.state.global_step == 15  # 16 of the 60 seconds were spent before
    assert 15 in saved_after(4)
    make_trainer(callbacks=[Work(clock, 4)], max_steps=20, **options).train(True)
    assert saved_after(15) == [16, 18, 20]
    again = make_trainer(callbacks=[Work(clock, 4)], max_steps=1000, max_minutes=2, **options)
    again.train(True)
    assert again.state.global_step == 30


BUDGET = """
import sys
from types import SimpleNamespace
import torch
from vanilla_transformer.training import progress

torch.distributed.init_process_group("gloo")
rank, now = torch.distributed.get_rank(), SimpleNamespace(seconds=0.0)
progress.time = SimpleNamespace(perf_counter=lambda: now.seconds)
args = SimpleNamespace(max_minutes=2, world_size=2, device="cpu", eval_strategy="steps")
budget = progress.TimeBudget()
state = SimpleNamespace(stateful_callbacks={}, log_history=[], global_step=1, max_steps=1000)
budget.on_train_begin(args, state, None)
while not budget.seconds >= 120:
    now.seconds += 4 + 0.1 * rank
    control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
    budget.on_step_end(args, state, control)
    print(control.should_save, control.should_evaluate, control.should_training_stop)
    if control.should_evaluate:
        now.seconds += 0.5 + 2 * rank  # a tenth of the time for one process, and less for the other
        budget.on_evaluate(args, None, None, {"eval_runtime": 0.5 + 2 * rank})
"""


def test_processes_with_unequal_clocks_decide_the_same():
    """A process that evaluated while the other saved would wait forever."""
    with PACKAGE.together(2, BUDGET) as running:
        done = all_completed(running)
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    decided = [each.stdout.splitlines() for each in done]
    assert decided[0] == decided[1]
    assert {line.split()[1] for line in decided[0] if line.startswith("True")} == {"True", "False"}


def test_rate_cools_down_by_clock_also_when_resumed(make_trainer, clock, tmp_path):
    """An update takes four seconds: 30 updates fill two minutes, and the rate falls in the last 40 seconds."""

    class Rates(TrainerCallback):
        def __init__(self):
            self.found = []

        def on_pre_optimizer_step(self, args, state, control, optimizer, **kwargs):
            self.found.append(optimizer.param_groups[0]["lr"])

    options = {"max_minutes": 2, "cooldown_steps": 1 / 3, "warmup_steps": 5, "max_steps": 1000}
    options |= {"eval_strategy": "steps", "save_strategy": "steps", "save_total_limit": 100}
    rates, resumed_rates = Rates(), Rates()
    trainer = make_trainer(callbacks=[Work(clock, 4), rates], **options)
    trainer.train()
    width = trainer.model.config.d_model
    # Update t gets its factor when update t - 1 begins, after t - 2 updates of four seconds.
    by_hand = [noam(update, width, 5) * min(1.0, (120 - 4 * max(0, update - 2)) / 40) for update in range(1, 31)]
    assert rates.found == pytest.approx(by_hand, rel=1e-9)

    resumed = make_trainer(callbacks=[Work(clock, 4), resumed_rates], **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-24"))
    assert resumed_rates.found == rates.found[24:]


def test_evaluation_time_is_limited_but_end_is_evaluated(make_trainer, clock):
    class Slow(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            clock.seconds += 10  # before the budget's callback reads the clock
            metrics["eval_runtime"] = 10.0

    options = {"max_minutes": 5, "max_steps": 1000, "eval_strategy": "steps", "save_strategy": "steps"}
    trainer = make_trainer(callbacks=[Slow(), Work(clock, 5)], **options)
    trainer.train()
    evaluated = [record["step"] for record in trainer.state.log_history if "eval_loss" in record]
    assert 3 <= len(evaluated) <= 4
    assert evaluated[-1] == trainer.state.global_step


def test_chrf_as_best_metric_is_evaluated_and_maximized(make_trainer):
    trainer = make_trainer(predict_with_generate=True, metric_for_best_model="chrf")
    assert trainer.evaluate().keys() >= {"eval_bleu", "eval_chrf", "eval_loss"}
    assert trainer.args.greater_is_better
    assert "eval_chrf" not in make_trainer(predict_with_generate=True).evaluate()
