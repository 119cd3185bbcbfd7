"""Muon is compared with torch's own, which computes in bfloat16, and with a singular value decomposition in float64."""

import copy

import pytest
import torch
from torch import nn

from tests.model.conftest import build_config
from tests.training.test_devices import Looks
from vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.training.muon import Muon, muon_groups, orthogonalized


ADAM = {"lr": 0.02, "betas": (0.9, 0.98), "eps": 1e-9}


@pytest.mark.parametrize("shape", [(3, 24, 24), (2, 40, 16), (2, 16, 40), (1, 1, 8)])
def test_orthogonalized_matrices_keep_their_singular_vectors(shape):
    matrices = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left, singular, right = torch.linalg.svd(matrices, full_matrices=False)
    found = orthogonalized(matrices)
    assert (found.dtype, found.shape) == (torch.float32, matrices.shape)
    inside = left.mT @ found.double() @ right.mT
    values = inside.diagonal(dim1=-2, dim2=-1)
    assert (inside - torch.diag_embed(values)).abs().max() < 1e-5
    large = singular > 0.01 * singular.norm(dim=-1, keepdim=True)
    assert values[large].min() > 0.65
    assert values.max() < 1.25
    # Singular values s of matrices with norm 1 become the polynomial a s + b s^3 + c s^5, five times.
    expected = singular / singular.norm(dim=-1, keepdim=True)
    for _ in range(5):
        expected = 3.4445 * expected - 4.7750 * expected**3 + 2.0315 * expected**5
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)


def test_a_matrix_of_zeros_stays_one_and_others_do_not_depend_on_it():
    matrices = torch.randn(2, 8, 8)
    found = orthogonalized(torch.cat([matrices, torch.zeros(1, 8, 8)]))
    torch.testing.assert_close(found[:2], orthogonalized(matrices))
    assert found[2].abs().max() == 0


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_updates_are_those_of_torchs_muon_and_of_adamw(decay):
    shapes = ((24, 24), (40, 16), (24, 24), (30, 8), (5,))

    def parameters():
        generator = torch.Generator().manual_seed(1)
        return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]

    ours, expected = parameters(), parameters()
    begun = [each.detach().clone() for each in ours]
    parts = {True: ours[:3], False: ours[3:]}
    groups = [{"params": part, "muon": muon, "weight_decay": decay} for muon, part in parts.items()]
    optimizer = Muon(groups, weight_decay=0.7, **ADAM)  # that of groups without their own, and here are none
    others = [
        torch.optim.Muon(expected[:3], lr=ADAM["lr"], weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(expected[3:], weight_decay=decay, fused=True, **ADAM),
    ]
    generator = torch.Generator().manual_seed(2)
    for update in range(5):
        for mine, theirs in zip(ours, expected, strict=True):
            mine.grad = theirs.grad = torch.randn(mine.shape, generator=generator)
        if update == 2:  # a parameter that was not used, say of a skipped layer
            ours[1].grad = expected[1].grad = ours[4].grad = expected[4].grad = None
        for each in (optimizer, *others):
            for group in each.param_groups:  # as a schedule does
                group["lr"] = ADAM["lr"] / (1 + update)
            each.step()
    for mine, theirs, first in zip(ours, expected, begun, strict=True):
        moved = (theirs - first).norm()
        assert moved > 0.05
        # Matrices differ by torch's rounding to bfloat16, the others not at all.
        assert (mine - theirs).norm() <= (0.02 * moved if mine.shape in shapes[:2] else 0), mine.shape


def test_state_is_that_of_one_optimizer(make_model):
    def trained(updates, state=None, model=None):
        model = model or make_model()
        optimizer = Muon(muon_groups(model, [], 0.0), **ADAM)
        if state:
            optimizer.load_state_dict(state)
        generator = torch.Generator().manual_seed(3)
        for update in range(6):
            grads = [torch.randn(each.shape, generator=generator) for each in model.parameters()]
            if update in updates:
                for parameter, grad in zip(model.parameters(), grads, strict=True):
                    parameter.grad = grad
                for group in optimizer.param_groups:  # as a schedule does
                    group["lr"] = ADAM["lr"] / (1 + update)
                assert optimizer.step(lambda: 7.0) == 7.0
        return model, optimizer.state_dict()

    unbroken, state = trained(range(6))
    assert len(state["state"]) == len(list(unbroken.parameters()))
    for forgotten in ([], ["decoupled_weight_decay", "fused"]):  # options that AdamW may have got since
        half, saved = trained(range(3))
        for group in saved["param_groups"]:
            for name in forgotten:
                group.pop(name, None)
        resumed, _ = trained(range(3, 6), saved, half)
        assert all(map(torch.equal, resumed.parameters(), unbroken.parameters()))
    with pytest.raises(ValueError, match="trained with another optimizer than Muon: set `optim` as it was"):
        trained(range(1), torch.optim.SGD(make_model().parameters()).state_dict())


def test_a_copy_takes_the_same_steps(make_model):
    model = make_model()
    optimizer = Muon(muon_groups(model, [], 0.0), **ADAM)
    copied = copy.deepcopy(optimizer)
    for each in (optimizer, copied):
        for group in each.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        each.step()
    mine, theirs = ([p for group in each.param_groups for p in group["params"]] for each in (optimizer, copied))
    assert all(map(torch.equal, mine, theirs))
    assert mine[0] is not theirs[0]


def test_muon_gets_the_matrices_of_the_layers_and_adam_the_rest(make_model):
    classifier = VanillaTransformerForSequenceClassification(build_config())
    for model in (make_model(), make_model(tie_word_embeddings=False), classifier):
        model.model.encoder.layers[0].fc1.weight.requires_grad_(False)
        names = {parameter: name for name, parameter in model.named_parameters()}
        decayed = [name for name in names.values() if name.endswith("fc2.weight")]
        groups = muon_groups(model, decayed, 0.3)
        found = {(group["muon"], group["weight_decay"]): {names[each] for each in group["params"]} for group in groups}
        kinds = ("proj.weight", "fc1.weight")
        layers = {name for name in names.values() if ".layers." in name and name.endswith(kinds)}
        frozen = {"model.encoder.layers.0.fc1.weight"}
        assert found[True, 0.3] == set(decayed)
        assert found[True, 0.0] == layers - frozen
        assert found[False, 0.0] == set(names.values()) - layers - set(decayed)
        assert any("embed" in name or "shared" in name for name in found[False, 0.0])


def test_wrong_groups_are_refused():
    vector = nn.Parameter(torch.ones(3))
    for groups, message in (
        ([{"params": [vector], "muon": True}], r"for matrices, not for a parameter of shape \(3,\)"),
        ([{"params": [vector], "muon": 1}], "needs `muon`: True for matrices, False for others"),
        ([vector], "needs `muon`"),
    ):
        with pytest.raises(ValueError, match=message):
            Muon(groups, **ADAM)


def test_on_a_device_muon_reads_no_values_and_uses_bfloat16(make_model):
    matrices = torch.ones(3, 8, 4, device="meta")
    with Looks() as looks:
        found = orthogonalized(matrices)
    assert (found.dtype, found.shape, looks.found) == (torch.bfloat16, matrices.shape, {})


def test_a_trainer_takes_muon(make_trainer, make_model):
    options = {"adam_beta1": 0.8, "adam_beta2": 0.97, "adam_epsilon": 1e-7, "weight_decay": 0.1}
    trainer = make_trainer(optim="muon", max_steps=3, **options)
    assert trainer.args.to_dict()["optim"] == "muon"
    before = {name: each.detach().clone() for name, each in trainer.model.named_parameters()}
    trainer.train()
    groups = trainer.optimizer.optimizer.param_groups
    found = {(each["muon"], each["weight_decay"], each["betas"], each["eps"]) for each in groups}
    assert found == {(muon, decay, (0.8, 0.97), 1e-7) for muon, decay in ((True, 0.1), (False, 0.1), (False, 0.0))}
    assert not any(torch.equal(each, before[name]) for name, each in trainer.model.named_parameters())
