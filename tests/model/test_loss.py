"""The chunked loss: its value and gradients match torch's cross-entropy in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.profiler import profile

from vanilla_transformer.model import loss_vanilla_transformer
from vanilla_transformer.model.loss_vanilla_transformer import cross_entropy, linear_cross_entropy


def problem(rows, vocabulary=11, d_model=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(rows, d_model, generator=generator)
    weight = torch.randn(vocabulary, d_model, generator=generator) + 0.5  # off centre: mean(z) then matters
    return states, weight, torch.randint(vocabulary, (rows,), generator=generator)


def with_gradients(function, states, weight, scale=1.0):
    states, weight = states.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = function(states, weight)
    (loss * scale).backward()
    return loss.detach(), states.grad, weight.grad


def ours(states, weight, labels, smoothing, scale=1.0):
    return with_gradients(lambda s, w: linear_cross_entropy(s, w, labels, smoothing), states, weight, scale)


def torchs(states, weight, labels, smoothing, scale=1.0):
    def loss(s, w):
        return F.cross_entropy(s @ w.T, labels, label_smoothing=smoothing, reduction="sum")

    return with_gradients(loss, states.double(), weight.double(), scale)


def assert_equal(got, expected, **tolerance):
    for ours_, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours_.double(), theirs, **tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("logits_at_a_time", [5, 11, 33, 77, 1100])  # less than a row, 1, 3, 7, and 100 rows
def test_loss_matches_torch_for_any_chunk_size(monkeypatch, smoothing, logits_at_a_time):
    states, weight, labels = problem(rows=7)
    monkeypatch.setitem(loss_vanilla_transformer.LOGITS_AT_A_TIME, "cpu", logits_at_a_time)
    got = ours(states, weight, labels, smoothing)
    assert_equal(got, torchs(states, weight, labels, smoothing), rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(2, 30), st.floats(0, 0.99), st.sampled_from([1.0, -0.25]), st.integers(0, 1000))
def test_loss_matches_torch_for_random_problems(rows, vocabulary, smoothing, scale, seed):
    """The incoming gradient varies, too."""
    states, weight, labels = problem(rows, vocabulary, seed=seed)
    got = ours(states, weight, labels, smoothing, scale)
    assert_equal(got, torchs(states, weight, labels, smoothing, scale), rtol=1e-4, atol=1e-4)


def test_one_row_matches_hand_calculation():
    # Logits 0 and ln 3 are probabilities 1/4 and 3/4; 0.2 of smoothing gives the label 0.9 and the other 0.1.
    states, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(3)]])
    got = linear_cross_entropy(states, weight, torch.tensor([0]), 0.2)
    assert got.item() == pytest.approx(-0.9 * math.log(1 / 4) - 0.1 * math.log(3 / 4), abs=1e-6)


@pytest.mark.parametrize(("smoothing", "alpha"), [(0.0, 0.0), (0.1, 0.0), (0.1, 5.0)])
@pytest.mark.parametrize("logits_at_a_time", [22, 1100])
def test_ignored_rows_change_nothing(monkeypatch, smoothing, alpha, logits_at_a_time):
    """However large the ignored rows are, the loss is that of the other rows."""
    monkeypatch.setitem(loss_vanilla_transformer.LOGITS_AT_A_TIME, "cpu", logits_at_a_time)
    states, weight, labels = problem(rows=14)
    labels = labels[:7].repeat(2) if alpha else labels  # the same for both passes
    counts = torch.tensor([True, False, True, True, False, False, True]).repeat(2)
    padded = labels.masked_fill(~counts, -100)
    states[~counts] *= 1e4
    without = states[counts], weight, labels[counts]
    expected = with_gradients(lambda s, w: linear_cross_entropy(s, w, without[2], smoothing, alpha), *without[:2])
    loss, of_states, of_weight = with_gradients(
        lambda s, w: linear_cross_entropy(s, w, padded, smoothing, alpha, padded=True), states, weight
    )
    assert of_states[~counts].eq(0).all()
    assert_equal((loss, of_states[counts], of_weight), [each.double() for each in expected], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_of_ten_thousand_do_not_overflow(smoothing):
    states = torch.tensor([[100.0], [-100.0], [100.0]])
    weight = torch.tensor([[100.0], [-100.0], [99.0], [0.0]])
    labels = torch.tensor([0, 0, 1])  # certainly right, certainly wrong, certainly wrong
    got = ours(states, weight, labels, smoothing)
    assert all(tensor.isfinite().all() for tensor in got)
    assert_equal(got, torchs(states, weight, labels, smoothing), rtol=1e-5, atol=1e-3)


def test_second_backward_gives_the_same_gradient():
    states, weight, labels = problem(rows=5)
    states.requires_grad_()
    loss = linear_cross_entropy(states, weight, labels, 0.1)
    (first,) = torch.autograd.grad(loss, states, retain_graph=True)
    (second,) = torch.autograd.grad(loss, states)
    assert torch.equal(first, second)


@pytest.mark.parametrize("rows", [64, 512, 513, 1100])  # one chunk, then equal chunks, the last one padded
def test_bfloat16_autocast_stays_near_float64(rows):
    states, weight, labels = problem(rows, vocabulary=500, d_model=16)
    with torch.autocast("cpu", torch.bfloat16):
        got = ours(states, weight, labels, 0.1)
    expected = torchs(states, weight, labels, 0.1)
    assert [tensor.dtype for tensor in got] == [torch.float32] * 3
    torch.testing.assert_close(got[0].double(), expected[0], rtol=2e-3, atol=0)
    for ours_, theirs in zip(got[1:], expected[1:], strict=True):
        assert (ours_ - theirs).norm() < 0.02 * theirs.norm()  # bfloat16 has 8 bits


def test_autocast_sums_the_smoothing_term_in_float32():
    # With equal logits only the mean is left: sums rounded to bfloat16 would show in the loss.
    states, weight, labels = torch.full((999, 1), 1.0), torch.full((7, 1), 3.0), torch.zeros(999, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear_cross_entropy(states, weight, labels, 0.9)
    assert got.item() == pytest.approx(999 * math.log(7), rel=1e-5)


def test_ignored_rows_change_nothing_in_bfloat16():
    states, weight, labels = problem(rows=900, vocabulary=500, d_model=16)
    counts = torch.arange(900) % 3 > 0
    with torch.autocast("cpu", torch.bfloat16):
        loss, of_states, of_weight = ours(states[counts], weight, labels[counts], 0.1)
        hidden = labels.masked_fill(~counts, -100)
        got = with_gradients(lambda s, w: linear_cross_entropy(s, w, hidden, 0.1, padded=True), states, weight)
    torch.testing.assert_close(got[0], loss)
    torch.testing.assert_close(got[1][counts], of_states)
    assert not got[1][~counts].any()
    assert (got[2] - of_weight).norm() < 0.005 * of_weight.norm()  # other chunks, and products rounded to 8 bits


def test_bfloat16_weights_get_bfloat16_gradients():
    states, weight, labels = problem(rows=16)
    loss, *gradients = ours(states.bfloat16(), weight.bfloat16(), labels, 0.1)
    assert loss.dtype == torch.float32
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16] * 2
    expected, *_ = torchs(states.bfloat16(), weight.bfloat16(), labels, 0.1)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-2, atol=0)


def test_second_derivative_raises():
    states, weight, labels = problem(rows=3)
    states.requires_grad_()
    (gradient,) = torch.autograd.grad(linear_cross_entropy(states, weight, labels), states, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        gradient.sum().backward()


@pytest.mark.parametrize(("states_too", "weight_too"), [(False, False), (True, False), (False, True)])
def test_only_requested_gradients_are_computed(states_too, weight_too):
    states, weight, labels = problem(rows=7)
    expected = ours(states, weight, labels, 0.1)
    states, weight = states.requires_grad_(states_too), weight.requires_grad_(weight_too)
    loss = linear_cross_entropy(states, weight, labels, 0.1)
    torch.testing.assert_close(loss.detach(), expected[0])
    if states_too or weight_too:
        loss.backward()
    for tensor, wanted, gradient in ((states, states_too, expected[1]), (weight, weight_too, expected[2])):
        if wanted:
            torch.testing.assert_close(tensor.grad, gradient)
        else:
            assert tensor.grad is None


def test_no_grad_computes_only_one_product():
    states, weight, labels = problem(rows=7)
    expected, *_ = ours(states, weight, labels, 0.1)
    states, weight = states.requires_grad_(), weight.requires_grad_()
    for how in (torch.no_grad, torch.inference_mode):
        with how(), profile() as seen:
            loss = linear_cross_entropy(states, weight, labels, 0.1)
        torch.testing.assert_close(loss, expected)
        assert sum(event.count for event in seen.key_averages() if event.key in ("aten::mm", "aten::addmm_")) == 1


@pytest.mark.parametrize("confidence", [60, 75, 95, 120, 3000])
def test_vanishing_label_probabilities_match_torch(confidence):
    """In float32, exp(-75) is normal, exp(-95) is denormal, and exp(-120) is zero."""
    states, weight = torch.tensor([[float(confidence)], [1.0]]), torch.tensor([[0.0], [1.0], [0.5]])
    labels = torch.tensor([0, 1])
    got = ours(states, weight, labels, 0.1)
    assert_equal(got, torchs(states, weight, labels, 0.1), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------- R-Drop


def r_drop_by_torch(states, weight, labels, smoothing, alpha):
    """The paper's loss, halved, in float64: torch's own cross-entropies and divergences."""

    def loss(s, w):
        first, second = (s @ w.T).chunk(2)
        p, q = first.log_softmax(1), second.log_softmax(1)
        divergences = [F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((q, p), (p, q))]
        entropies = [
            F.cross_entropy(z, labels.chunk(2)[0], label_smoothing=smoothing, reduction="sum") for z in (first, second)
        ]
        return sum(entropies) / 2 + alpha / 2 * sum(divergences) / 2

    return with_gradients(loss, states.double(), weight.double())


def two_passes(tokens, **sizes):
    states, weight, labels = problem(rows=2 * tokens, **sizes)
    return states, weight, labels[:tokens].repeat(2)


@pytest.mark.parametrize(("smoothing", "alpha"), [(0.0, 5.0), (0.1, 5.0), (0.3, 0.01)])
@pytest.mark.parametrize("logits_at_a_time", [5, 22, 66, 1100])  # less than a token twice, 1, 3, and 50 tokens
def test_r_drop_matches_torch_for_any_chunk_size(monkeypatch, smoothing, alpha, logits_at_a_time):
    states, weight, labels = two_passes(7)
    monkeypatch.setitem(loss_vanilla_transformer.LOGITS_AT_A_TIME, "cpu", logits_at_a_time)
    monkeypatch.setattr(loss_vanilla_transformer, "_LOGITS_OF_DIVERGENCE", 22)  # 2 tokens
    expected = r_drop_by_torch(states, weight, labels, smoothing, alpha)
    got = with_gradients(lambda s, w: linear_cross_entropy(s, w, labels, smoothing, alpha), states, weight)
    assert_equal(got, expected, rtol=1e-5, atol=2e-5)
    monkeypatch.setattr(loss_vanilla_transformer, "_LOGITS_OF_DIVERGENCE", 5)  # less than one
    again = with_gradients(lambda s, w: linear_cross_entropy(s, w, labels, smoothing, alpha), states, weight)
    assert all(map(torch.equal, again, got))
    whole = with_gradients(lambda s, w: cross_entropy(s @ w.T, labels, smoothing, alpha), states, weight)
    assert_equal(whole, expected, rtol=1e-5, atol=2e-5)


def test_r_drop_of_one_token_matches_hand_calculation():
    # p = (1/4, 3/4) and q = (3/4, 1/4): both divergences are (3/4 - 1/4) ln 3.
    states, weight, labels = torch.tensor([[1.0], [-1.0]]), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([0, 0])
    expected = (math.log(4) + math.log(4 / 3)) / 2 + 5 / 2 * math.log(3) / 2
    assert linear_cross_entropy(states, weight, labels, 0.0, 5.0).item() == pytest.approx(expected, abs=1e-6)


def test_r_drop_of_equal_passes_equals_a_single_loss():
    states, weight, labels = problem(rows=6)
    loss, of_states, of_weight = ours(states, weight, labels, 0.1)
    both = with_gradients(
        lambda s, w: linear_cross_entropy(s, w, labels.repeat(2), 0.1, 5.0), states.repeat(2, 1), weight
    )
    assert_equal(both, (loss.double(), of_states.repeat(2, 1).double() / 2, of_weight.double()), rtol=1e-5, atol=1e-5)


def test_r_drop_of_confidently_different_passes_matches_torch():
    states = torch.tensor([[100.0], [50.0], [-100.0], [50.0]])
    weight = torch.tensor([[100.0], [-100.0], [99.0], [0.0]])
    labels = torch.tensor([0, 0, 0, 0])
    got = with_gradients(lambda s, w: linear_cross_entropy(s, w, labels, 0.1, 5.0), states, weight)
    assert all(tensor.isfinite().all() for tensor in got)
    assert_equal(got, r_drop_by_torch(states, weight, labels, 0.1, 5.0), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("tokens", [64, 257, 600])
def test_r_drop_in_bfloat16_stays_near_float64(tokens):
    states, weight, labels = two_passes(tokens, vocabulary=500, d_model=16)
    with torch.autocast("cpu", torch.bfloat16):
        got = with_gradients(lambda s, w: linear_cross_entropy(s, w, labels, 0.1, 5.0), states, weight)
    for found, expected in zip(got, r_drop_by_torch(states, weight, labels, 0.1, 5.0), strict=True):
        assert (found - expected).norm() < 0.02 * expected.norm()
