"""Compiled, traced and transformed models compute the same as the model itself."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from .conftest import TRANSLATOR, build


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "source_word_dropout", "target_word_dropout")


# ----------------------------------------------------------------------------------------------------- compilation


SLOW_BACKENDS = [pytest.param(name, marks=pytest.mark.slow) for name in ("aot_eager", "inductor")]


@pytest.mark.parametrize("backend", ["eager", *SLOW_BACKENDS])
@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_training_compiles_to_one_graph(batch, backend, dropped):
    torch.compiler.reset()
    every = dict.fromkeys((*DROPOUTS, "r_drop_alpha"), dropped)
    model = build(TRANSLATOR, label_smoothing=0.1, encoder_layers=1, decoder_layers=1, **every).train()
    compiled = torch.compile(copy.deepcopy(model), backend=backend, fullgraph=True)
    alignment = 0.1 * (batch["labels"] != -100)[:, :, None] * batch["attention_mask"][:, None]
    without_logits = {"num_items_in_batch": torch.tensor(8), "return_logits": False}
    for options in ({}, without_logits, {**without_logits, "alignment": alignment}):
        found = []
        for each in (compiled, model):
            each.zero_grad()
            output = each(**batch, **options)
            output.loss.backward()
            found.append([output.loss.detach(), *(parameter.grad for parameter in each.parameters())])
            assert (output.logits is None) == bool(options)
        assert all(tensor.isfinite().all() for tensor in found[0])
        if not dropped:
            torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


# --------------------------------------------------------------------------------------------------------- tracing


class Scores(nn.Module):
    """Returns the logits alone, as traces can return only tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return self.model(input_ids, attention_mask, decoder_input_ids, use_cache=False).logits


TRACES = {
    "jit": lambda module, inputs: torch.jit.trace(module, inputs, check_trace=False),
    "fx": lambda module, inputs: make_fx(module)(*inputs),
    "fx before dispatch": lambda module, inputs: make_fx(module, pre_dispatch=True)(*inputs),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("trace", TRACES)
@torch.no_grad()
def test_model_traced_without_padding_still_handles_padding(inputs, trace, implementation):
    module = Scores(build(TRANSLATOR, attn_implementation=implementation))
    padded = tuple(inputs(TRANSLATOR).values())
    unpadded = (padded[0], torch.ones_like(padded[1]), padded[2])
    traced = TRACES[trace](module, unpadded)
    for each in (padded, unpadded):
        torch.testing.assert_close(traced(*each), module(*each), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(module(*padded), module(*unpadded), atol=1e-3)  # otherwise this shows nothing


# -------------------------------------------------------------------------------------------------- transformation


def tangents(parameters):
    torch.manual_seed(1)
    return {name: torch.randn_like(parameter) for name, parameter in parameters.items()}


def with_func(loss, parameters):
    return torch.func.jvp(loss, (parameters,), (tangents(parameters),))[1]


def with_dual_numbers(loss, parameters):
    given = tangents(parameters)
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(value, given[name]) for name, value in parameters.items()}
        return forward_ad.unpack_dual(loss(dual)).tangent


@pytest.mark.parametrize("forward", [with_func, with_dual_numbers])
def test_forward_and_backward_derivatives_agree(batch, forward):
    """In training, with every dropout. (torch's sdpa has no forward derivatives on a CPU.)"""
    for dropped, choice in ((0.0, {}), (0.2, {}), (0.2, {"return_logits": False})):
        every = dict.fromkeys((*DROPOUTS, "r_drop_alpha"), dropped)
        model = build(TRANSLATOR, attn_implementation="eager", label_smoothing=0.1, **every).train()
        parameters = dict(model.named_parameters())

        def loss(values, model=model, choice=choice):
            torch.manual_seed(2)
            options = {**batch, "num_items_in_batch": 8, **choice}
            return torch.func.functional_call(model, values, (), options).loss

        got = forward(loss, parameters)
        gradients = torch.func.grad(loss)(parameters)
        given = tangents(parameters)
        expected = sum((gradients[name] * given[name]).sum() for name in parameters)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_per_example_gradients_sum_to_batch_gradients(batch):
    model = build(TRANSLATOR, label_smoothing=0.1).train()
    parameters = dict(model.named_parameters())

    def loss(values, ids, mask, labels):
        options = {"labels": labels[None], "num_items_in_batch": 1}
        return torch.func.functional_call(model, values, (ids[None], mask[None]), options).loss

    pairs = batch["input_ids"], batch["attention_mask"], batch["labels"]
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(parameters, *pairs)
    together = torch.autograd.grad(model(**batch, num_items_in_batch=1).loss, list(parameters.values()))
    for got, expected in zip(each.values(), together, strict=True):
        torch.testing.assert_close(got.sum(0), expected, atol=1e-4, rtol=1e-4)
