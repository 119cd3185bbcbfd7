"""Dropout: the right share is dropped, the mean is kept, forward and backward agree, the seed decides."""

import math

import pytest
import torch

from vanilla_transformer.model.dropout_vanilla_transformer import add_dropout, dropout


NUMBERS = 200_000


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_share_dropped_is_p(p):
    """And what is kept is divided by 1 - p, so that the mean stays."""
    torch.manual_seed(0)
    got = dropout(torch.ones(NUMBERS), p, training=True)
    dropped = (got == 0).sum().item()
    # Five standard deviations of a binomial: one seed in two million falls outside.
    assert abs(dropped - NUMBERS * p) < 5 * math.sqrt(NUMBERS * p * (1 - p))
    # p has 16 bits
    torch.testing.assert_close(got[got > 0], torch.full((NUMBERS - dropped,), 1 / (1 - p)), atol=0, rtol=1e-4)


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True), (0, True)])
def test_without_training_or_without_p_nothing_changes(p, training):
    states = torch.randn(10, 10)
    assert torch.equal(dropout(states, p, training), states)


@pytest.mark.parametrize("shape", [(1,), (3,), (5,), (2, 3, 7), (4, 4), (0,), (2, 0)])
def test_any_number_of_elements_of_any_type(shape):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        states = torch.full(shape, 3.0, dtype=dtype)
        got = dropout(states, 0.5, training=True)
        assert (got.shape, got.dtype) == (shape, dtype)
        assert ((got == 0) | (got == 6)).all()
        assert (states == 3).all()  # the input is left alone


def test_forward_and_backward_drop_the_same():
    states = torch.ones(999, requires_grad=True)
    got = dropout(states, 0.4, training=True)
    got.backward(torch.ones(999))
    assert torch.equal(states.grad, got.detach())
    assert 0 < (got == 0).sum() < 999


def test_the_seed_decides():
    def draw():
        return dropout(torch.ones(500), 0.5, training=True)

    torch.manual_seed(3)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(draw(), first)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(2)
    dropped = dropout(torch.ones(NUMBERS), 0.5, training=True) == 0
    for distance in (1, 2, 3, 4):  # four elements share one number of the generator
        both = (dropped[distance:] & dropped[:-distance]).float().mean().item()
        assert abs(both - 0.25) < 0.01


def test_strided_states_are_dropped_alike():
    states = torch.arange(1.0, 13.0).view(3, 4).T
    got = dropout(states, 0.5, training=True)
    assert ((got == 0) | (got == 2 * states)).all()


def test_a_p_just_below_one_drops_everything_or_nearly():
    assert (dropout(torch.ones(100), 0.999999, training=True) == 0).float().mean() > 0.9


class TestAddDropout:
    @pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float32, torch.bfloat16)])
    def test_it_is_the_sum_of_the_residual_and_what_is_kept(self, dtypes):
        residual, states = (torch.randn(50, 40).to(dtype).requires_grad_() for dtype in dtypes)
        torch.manual_seed(2)
        got = add_dropout(residual, states, 0.3, training=True)
        torch.manual_seed(2)
        kept = dropout(torch.ones(50, 40), 0.3, training=True)  # 0 or 1 / 0.7
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, residual + states.float() * kept)
        gradient = torch.randn(50, 40)
        got.backward(gradient)
        torch.testing.assert_close(residual.grad, gradient)
        torch.testing.assert_close(states.grad, (gradient * kept).to(states.dtype))

    def test_gradients_are_those_of_finite_differences(self):
        residual, states = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def same_mask(*args):
            torch.manual_seed(3)
            return add_dropout(*args, 0.5, training=True)

        assert torch.autograd.gradcheck(same_mask, (residual, states))

    @pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
    def test_without_training_or_without_p_it_is_the_sum(self, p, training):
        residual, states = torch.randn(2, 5, 6)
        assert torch.equal(add_dropout(residual, states, p, training), residual + states)
