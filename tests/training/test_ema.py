"""The moving average of the weights equals the sum in its definition, even if updates are skipped."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, TrainerCallback

from vanilla_transformer.training.averaging import average_checkpoints
from vanilla_transformer.training.ema import warmed_up_decay

from .test_safety import PoisonedGradient


SAVED = {"save_strategy": "steps", "save_steps": 10, "save_total_limit": 9, "max_steps": 20}


class Weights(TrainerCallback):
    """Records the weights before the first update and after each one, in float64."""

    def __init__(self):
        self.after = []

    def on_step_end(self, args, state, control, *, model, **kwargs):
        self.after.append({name: weight.double().numpy() for name, weight in model.state_dict().items()})

    on_train_begin = on_step_end


def written_out(weights, decay):
    """sum over t of (1 - d_t) d_t+1 ... d_T theta_t, with theta_0 for 1 - d_0 = 1, in float64."""
    decays = [0.0, *(min(decay, (1 + t) / (10 + t)) for t in range(1, len(weights)))]
    shares = [(1 - d) * math.prod(decays[t + 1 :]) for t, d in enumerate(decays)]
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    return {name: sum(s * each[name] for s, each in zip(shares, weights, strict=True)) for name in weights[0]}


@pytest.mark.parametrize(
    ("decay", "skipped", "options"),
    [
        (0.999, (), {}),
        (0.5, (), {}),
        (0.5, (1, 7, 8), {}),
        (0.9, (3,), {"gradient_accumulation_steps": 2}),
        (0.6, (), {"bf16": True}),
        pytest.param(0.6, (), {"torch_compile": True, "torch_compile_backend": "aot_eager"}, marks=pytest.mark.slow),
    ],
)
def test_average_equals_the_explicit_sum(decay, skipped, options, make_trainer, make_model, tmp_path):
    model, seen = make_model(dropout=0.1), Weights()
    callbacks = [seen, PoisonedGradient(model, set(skipped))]
    trainer = make_trainer(model, ema_decay=decay, callbacks=callbacks, **SAVED, **options)
    trainer.train()
    for step in (10, 20):
        made = [weights for update, weights in enumerate(seen.after[: step + 1]) if update not in skipped]
        expected = written_out(made, decay)
        average = load_file(tmp_path / "checkpoints" / f"checkpoint-{step}" / "ema.safetensors")
        assert average.keys() == load_file(tmp_path / "checkpoints" / f"checkpoint-{step}" / "model.safetensors").keys()
        for name, weight in average.items():
            np.testing.assert_allclose(weight.double().numpy(), expected[name], rtol=1e-5, atol=1e-7)
    assert trainer.ema.updates == 20 - len(skipped)
    assert any(not np.allclose(weight, seen.after[-1][name], atol=1e-4) for name, weight in expected.items())


def test_decay_warms_up_to_the_requested_value():
    assert [warmed_up_decay(t, 0.5) for t in (1, 2, 7, 8, 9, 1000)] == [2 / 11, 3 / 12, 8 / 17, 0.5, 0.5, 0.5]
    for decay, reached in ((0.99, 890), (0.999, 8990)):
        assert warmed_up_decay(reached - 1, decay) < decay == pytest.approx(warmed_up_decay(reached, decay), rel=1e-12)


def test_averaging_does_not_change_the_trained_weights(make_trainer, make_model):
    trained = []
    for options in ({}, {"ema_decay": 0}, {"ema_decay": 0.9}):
        trainer = make_trainer(make_model(dropout=0.3), max_steps=6, **options)
        trainer.train()
        trained.append(trainer)
    assert [trainer.ema is None for trainer in trained] == [True, True, False]
    for other in trained[1:]:
        for name, weight in other.model.state_dict().items():
            assert torch.equal(weight, trained[0].model.state_dict()[name])


def test_average_restarts_loads_and_saves_reproducibly(make_trainer, make_model, tmp_path):
    trainer = make_trainer(make_model(), ema_decay=0.9, **SAVED)
    trainer.train()
    trainer.train()
    assert trainer.ema.updates == 20
    average_checkpoints([tmp_path / "checkpoints" / "checkpoint-20"], tmp_path / "ema", weights="ema.safetensors")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ema")
    for name, weight in trainer.ema.weights.items():
        assert torch.equal(model.state_dict()[name], weight)
    files = set()  # equal averages are equal bytes, so a resumed run can be compared with an unbroken one
    for _ in range(20):
        trainer.ema.save(tmp_path)
        files.add((tmp_path / "ema.safetensors").read_bytes())
    assert len(files) == 1


def test_missing_or_foreign_average_names_the_file(make_trainer, make_model, tmp_path):
    make_trainer(**SAVED).train()
    checkpoint, other = (tmp_path / "checkpoints" / f"checkpoint-{step}" for step in (10, 20))
    with pytest.raises(ValueError, match=r"checkpoint-10/ema\.safetensors is missing: .* Restore it, or remove this"):
        make_trainer(ema_decay=0.9, **SAVED).train(resume_from_checkpoint=str(checkpoint))
    (other / "model.safetensors").rename(checkpoint / "ema.safetensors")
    with pytest.raises(ValueError, match=r"checkpoint-10/ema\.safetensors is not an average of this model's weights"):
        make_trainer(make_model(), ema_decay=0.9, **SAVED).train(resume_from_checkpoint=str(checkpoint))
