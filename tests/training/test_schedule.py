"""The learning rate: equation 3 by hand, and by the optimizer that is stepped."""

import math

import pytest
import torch

from vanilla_transformer.training.schedule import create_noam_scheduler, noam


def optimizer_of(learning_rate=1.0):
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=learning_rate)


def rates(optimizer, scheduler, updates):
    """The learning rate of each update, as the optimizer used it."""
    used = []
    for _ in range(updates):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return used


# d_model = 64 and warmup = 4: 64^-0.5 = 1/8 and 4^-1.5 = 1/8.
@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1 / 64), (2, 2 / 64), (3, 3 / 64), (4, 1 / 16), (16, 1 / 32), (64, 1 / 64), (100, 1 / 80)]
)
def test_equation_3_by_hand(step, rate):
    assert noam(step, d_model=64, warmup_steps=4) == pytest.approx(rate, rel=1e-12)


def test_paper_base_model_peaks_at_7e_4():
    assert noam(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)


@pytest.mark.parametrize("warmup", [1, 7, 4000])
def test_peak_is_at_the_end_of_the_warmup(warmup):
    around = range(max(1, warmup - 3), warmup + 4)
    assert max(around, key=lambda step: noam(step, 512, warmup)) == warmup


def test_factor_multiplies():
    assert noam(9, 128, 30, 2.5) == pytest.approx(2.5 * noam(9, 128, 30), rel=1e-12)


@pytest.mark.parametrize(("step", "warmup"), [(0, 4000), (-1, 4000), (1, 0)])
def test_counting_from_0_is_refused(step, warmup):
    with pytest.raises(ValueError, match=f"step is {step}, warmup_steps is {warmup}"):
        noam(step, 512, warmup)


def test_updates_have_exactly_their_rates():
    optimizer = optimizer_of()
    used = rates(optimizer, create_noam_scheduler(optimizer, 16, 5, factor=0.3), 12)
    assert used == [noam(step, 16, 5, 0.3) for step in range(1, 13)]


def test_warmup_of_the_paper_is_the_default():
    optimizer = optimizer_of()
    create_noam_scheduler(optimizer, 512)
    assert optimizer.param_groups[0]["lr"] == noam(1, 512, 4000)


def test_optimizer_rate_multiplies():
    optimizer = optimizer_of(2.0)
    assert rates(optimizer, create_noam_scheduler(optimizer, 16, 5), 3)[2] == 2 * noam(3, 16, 5)


def test_resumed_schedule_goes_on():
    optimizer = optimizer_of()
    scheduler = create_noam_scheduler(optimizer, 16, 5)
    rates(optimizer, scheduler, 7)
    again = optimizer_of()
    resumed = create_noam_scheduler(again, 16, 5)
    resumed.load_state_dict(scheduler.state_dict())
    again.load_state_dict(optimizer.state_dict())
    assert rates(again, resumed, 3) == [noam(step, 16, 5) for step in (8, 9, 10)]


def test_bad_warmup_is_refused_when_the_schedule_is_made():
    with pytest.raises(ValueError, match="warmup_steps is 0"):
        create_noam_scheduler(optimizer_of(), 16, 0)


def test_rate_falls_with_the_inverse_square_root():
    assert noam(400, 16, 5) / noam(100, 16, 5) == pytest.approx(1 / math.sqrt(4), rel=1e-12)
