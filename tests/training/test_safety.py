"""Updates that are not finite change nothing, are counted, and stop a run if too many come in a row.

Two processes skip the same updates, even if only one of them saw a bad value, and one of them reports.
"""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState

from tests.warm_python import PACKAGE, all_completed
from vanilla_transformer.data.batching import TranslationCollator
from vanilla_transformer.training.arguments import noam
from vanilla_transformer.training.safety import UpdateGuard


SAVED = {"save_strategy": "steps", "save_steps": 100, "save_total_limit": 9}


class Poison(TrainerCallback):
    """Knows which update is being computed."""

    update = 0

    def on_step_begin(self, args, state, control, **kwargs):
        self.update = state.global_step + 1


class PoisonedGradient(Poison):
    """Makes one number of one gradient NaN or infinite at some updates."""

    def __init__(self, model, updates, value=math.nan):
        def hook(gradient):
            if self.update in updates:
                gradient = gradient.clone()
                gradient[3, 5] = value
            return gradient

        model.get_parameter("model.encoder.layers.0.fc1.weight").register_hook(hook)


class PoisonedLoss(Poison):
    """Changes the loss at some updates."""

    def __init__(self, model, updates, change):
        def hook(module, arguments, output):
            if self.update in updates:
                output.loss = change(output.loss)

        model.register_forward_hook(hook)


class Snapshots(TrainerCallback):
    """Copies the parameters and the optimizer's state after each update (0: at the beginning)."""

    def __init__(self):
        self.after = {}

    def on_step_end(self, args, state, control, *, model, optimizer, **kwargs):
        self.after[state.global_step] = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))

    on_train_begin = on_step_end


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def logged(trainer, name):
    return [record[name] for record in trainer.state.log_history if name in record]


POISONS = {
    "gradient nan": PoisonedGradient,
    "gradient inf": lambda model, updates: PoisonedGradient(model, updates, -math.inf),
    "loss nan": lambda model, updates: PoisonedLoss(model, updates, lambda loss: loss * math.nan),
    "loss inf, gradients finite": lambda model, updates: PoisonedLoss(model, updates, lambda loss: loss + math.inf),
    "loss finite, gradients not": lambda model, updates: PoisonedLoss(model, updates, lambda loss: loss * 3e37),
}


@pytest.mark.parametrize("optim", ["adamw_torch_fused", "adamw_torch", "sgd", "muon"])
@pytest.mark.parametrize("poison", POISONS)
def test_a_skipped_update_changes_nothing_but_the_count(poison, optim, make_trainer, make_model):
    model, seen = make_model(), Snapshots()
    trainer = make_trainer(model, max_steps=5, optim=optim, weight_decay=0.1, callbacks=[seen])
    trainer.add_callback(POISONS[poison](model, {1, 3}))
    trainer.train()
    assert trainer.state.global_step == 5
    unchanged = [update for update in range(1, 6) if same(seen.after[update], seen.after[update - 1])]
    assert unchanged == [1, 3]
    assert logged(trainer, "skipped_updates") == [1, 0, 1, 0, 0]
    rates = [noam(step, model.config.d_model, trainer.args.warmup_steps) for step in range(1, 6)]
    assert logged(trainer, "learning_rate") == pytest.approx(rates)
    assert all(torch.isfinite(weight).all() for weight in model.parameters())


def test_skipping_works_with_clipping_bfloat16_and_no_norm(make_trainer, make_model, monkeypatch):
    for options, poison in (
        ({"max_grad_norm": 0.5}, PoisonedGradient),
        ({"bf16": True}, lambda model, updates: PoisonedLoss(model, updates, lambda loss: loss * 3e37)),
        ({"seed": 1}, PoisonedGradient),  # a later transformers may stop calling the method that gives us the norm
    ):
        model, seen = make_model(), Snapshots()
        trainer = make_trainer(model, callbacks=[seen, poison(model, {2})], **options)
        if "seed" in options:
            monkeypatch.setattr(trainer, "_get_grad_norm", lambda model, grad_norm=None: grad_norm)
        trainer.train()
        assert logged(trainer, "skipped_updates") == [0, 1, 0], options
        assert same(seen.after[2], seen.after[1])
        assert not same(seen.after[3], seen.after[2])


def test_one_bad_accumulated_batch_skips_the_update(make_trainer, make_model):
    class SecondOfUpdate2(PoisonedGradient):
        def on_step_begin(self, args, state, control, **kwargs):
            self.update = 0

        def on_substep_end(self, args, state, control, **kwargs):
            self.update = state.global_step + 1

    model, seen = make_model(), Snapshots()
    callbacks = [seen, SecondOfUpdate2(model, {2})]
    trainer = make_trainer(model, gradient_accumulation_steps=2, callbacks=callbacks)
    trainer.train()
    assert logged(trainer, "skipped_updates") == [0, 1, 0]
    assert same(seen.after[2], seen.after[1])


def test_guard_does_not_change_a_finite_run(make_trainer, make_model):
    guarded = make_trainer(make_model(dropout=0.3), max_steps=6)
    guarded.train()
    plain = make_trainer(make_model(dropout=0.3), max_steps=6)
    plain.remove_callback(UpdateGuard)
    plain.train()
    assert same(guarded.model.state_dict(), plain.model.state_dict())
    assert same(guarded.optimizer.state_dict(), plain.optimizer.state_dict())
    assert logged(guarded, "loss") == logged(plain, "loss")


def test_logged_loss_averages_only_applied_updates(make_trainer, make_model):
    def trained(**options):
        model = make_model(dropout=0.0)
        poison = PoisonedLoss(model, {2, 5, 6}, lambda loss: loss * math.nan)
        trainer = make_trainer(model, max_steps=8, callbacks=[poison], **options)
        trainer.train()
        return trainer

    single, windows = trained(logging_nan_inf_filter=True), trained(logging_steps=2)  # the filter hides nothing
    losses = logged(single, "loss")
    assert [math.isnan(loss) for loss in losses] == [False, True, False, False, True, True, False, False]
    assert logged(windows, "skipped_updates") == [1, 0, 2, 0]
    expected = [losses[0], (losses[2] + losses[3]) / 2, math.nan, (losses[6] + losses[7]) / 2]
    assert logged(windows, "loss") == pytest.approx(expected, rel=1e-6, nan_ok=True)
    mean = sum(loss for loss in losses if loss == loss) / 5
    assert logged(windows, "train_loss") == pytest.approx([mean], rel=1e-6)


def texts_of_update(trainer, tokenizer, update, accumulation=1):
    """The pairs of an update of the first epoch."""
    batches = list(trainer.train_batches)[(update - 1) * accumulation : update * accumulation]
    rows = [trainer.train_dataset[i] for batch in batches for i in batch]
    columns = {"source": "input_ids", "target": "labels"}
    return [
        {"update": update}
        | {side: tokenizer.decode(row[name], skip_special_tokens=True) for side, name in columns.items()}
        for row in rows
    ]


def test_run_stops_after_skipped_updates_and_resumes_exactly(make_trainer, make_model, tokenizer, tmp_path):
    options = {"max_steps": 8, "max_skipped_updates": 2, "max_tokens": 30, **SAVED}
    model, seen = make_model(dropout=0.3), Snapshots()
    # Update 1 alone is not two in a row.
    trainer = make_trainer(model, callbacks=[seen, PoisonedGradient(model, {1, 3, 4})], **options)
    checkpoint = tmp_path / "checkpoints" / "checkpoint-4"
    with pytest.raises(FloatingPointError) as stopped:
        trainer.train()
    file = tmp_path / "checkpoints" / "not_finite.jsonl"
    assert str(file) in str(stopped.value)
    assert str(checkpoint) in str(stopped.value)
    assert "Stopped after update 4: 2 updates in a row were skipped" in str(stopped.value)
    assert "\n" not in str(stopped.value)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert rows == texts_of_update(trainer, tokenizer, 4)
    assert len(rows) > 1
    assert logged(trainer, "skipped_updates") == [1, 0, 1, 1]

    # The resumed run equals a run that skipped these updates and never stopped.
    resumed = make_trainer(make_model(seed=5, dropout=0.3), **options)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    model = make_model(dropout=0.3)
    patient = make_trainer(
        model, callbacks=[PoisonedGradient(model, {1, 3, 4})], **options | {"max_skipped_updates": 9}
    )
    patient.train()
    assert resumed.state.global_step == 8
    assert same(resumed.model.state_dict(), patient.model.state_dict())
    assert logged(resumed, "loss")[4:] == logged(patient, "loss")[4:]


def test_file_has_all_batches_and_trainer_is_reusable(make_trainer, make_model, tokenizer, tmp_path):
    model = make_model()
    poison = PoisonedGradient(model, {1, 2})
    options = {"max_skipped_updates": 2, "gradient_accumulation_steps": 2, "max_tokens": 30, **SAVED}
    trainer = make_trainer(model, callbacks=[poison], **options)
    with pytest.raises(FloatingPointError):
        trainer.train()
    lines = (tmp_path / "checkpoints" / "not_finite.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == texts_of_update(trainer, tokenizer, 2, accumulation=2)
    trainer.remove_callback(poison)
    poison.update = 0
    trainer.train()
    assert trainer.state.global_step == 3


def test_overflow_is_left_to_the_gradient_scaler(make_trainer, tokenizer, pairs, tmp_path):
    # Driven by hand: accelerate has no scaler for the CPU.
    trainer = make_trainer()
    model, trainer_args = trainer.model, trainer.args
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    guard = UpdateGuard(1, tmp_path / "not_finite.jsonl")
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = AcceleratedOptimizer(inner, device_placement=False, scaler=scaler)
    batch = next(iter(DataLoader(pairs, batch_size=4, collate_fn=TranslationCollator())))
    state, control = TrainerState(is_world_process_zero=True), TrainerControl()
    before = copy.deepcopy(model.state_dict())
    for factor in (1.0, math.inf):
        hook = model.get_parameter("model.encoder.layers.0.fc1.weight").register_hook(
            lambda gradient, factor=factor: gradient * factor
        )
        guard.on_step_begin(trainer_args, state, control)
        loss = model(**batch).loss
        scaler.scale(loss).backward()
        guard.saw(batch, loss.detach())
        guard.on_pre_optimizer_step(trainer_args, state, control, model=model, optimizer=optimizer)
        optimizer.step()
        guard.on_step_end(trainer_args, state, control, processing_class=tokenizer)
        hook.remove()
        optimizer.zero_grad()
        if factor == 1.0:
            done = copy.deepcopy(model.state_dict())
    assert not same(before, done)
    assert optimizer.step_was_skipped
    assert not guard.finite
    assert scaler.get_scale() == 2.0
    assert same(model.state_dict(), done)
    assert guard.error is None
    assert guard.record({"loss": 1.0})["skipped_updates"] == 0


SCRIPT = """
import json, math, sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import set_seed

from tests.training.conftest import QUIET, SIZES
from tests.training.test_safety import PoisonedLoss
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.training.trainer import VanillaTransformerTrainer

folder = Path(sys.argv[1])
set_seed(0)
tokenizer = learn_tokenizer(["a tiny vocabulary of tiny words"] * 3, TokenizerSettings(vocab_size=264))
texts = [{"source": f"a tiny w{i}", "target": f"tiny words {i}"} for i in range(12)]
rows = [{"input_ids": tokenizer(t["source"]).input_ids, "labels": tokenizer(t["target"]).input_ids} for t in texts]
model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(vocab_size=len(tokenizer), **SIZES))
options = {**QUIET, "max_steps": 9, "max_tokens": 30, "max_skipped_updates": 2}
arguments = VanillaTransformerTrainingArguments(str(folder / "checkpoints"), **options)
updates = {1, 3, 4} if arguments.process_index == 1 else set()
trainer = VanillaTransformerTrainer(
    model, arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
    callbacks=[PoisonedLoss(model, updates, lambda loss: loss + math.inf)],
)
try:
    trainer.train()
    error = None
except FloatingPointError as stopped:
    error = str(stopped)
torch.save(model.state_dict(), folder / f"{arguments.process_index}.pt")
told = {"error": error, "update": trainer.state.global_step, "log": trainer.state.log_history}
(folder / f"{arguments.process_index}.json").write_text(json.dumps(told))
"""


def test_two_processes_skip_together_and_write_both_batches(tmp_path):
    with PACKAGE.together(2, SCRIPT, tmp_path, cwd=Path(__file__).parents[2]) as running:
        for done in all_completed(running):
            assert done.returncode == 0, done.stderr
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert one["update"] == other["update"] == 4
    assert one["error"] == other["error"]
    assert "Stopped after update 4: 2 updates in a row" in one["error"]
    assert [record["skipped_updates"] for record in one["log"] if "loss" in record] == [1, 0, 1, 1]
    weights = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert same(*weights)
    assert all(torch.isfinite(weight).all() for weight in weights[0].values())
    lines = (tmp_path / "checkpoints" / "not_finite.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert f"The {len(rows)} pairs of update 4" in one["error"]
    assert len({row["source"] for row in rows}) == len(rows) >= 4  # two batches without a pair in common
    assert all(row["update"] == 4 and row["target"] == f"tiny words {row['source'][8:]}" for row in rows)
