"""The memory and disk space that a run says it needs; activations are compared with what autograd keeps."""

import re

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from vanilla_transformer.training import description
from vanilla_transformer.training.description import activation_bytes, describe_needs, training_bytes


def kept_for_backward(model, source, target) -> int:
    """Bytes of all tensors that autograd keeps, each counted once, without the parameters."""
    kept = {each.untyped_storage().data_ptr(): (each, 0) for each in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), (tensor, storage.nbytes()))  # held, so that its memory is not reused
        return tensor

    batch = {"input_ids": torch.ones(source, dtype=torch.long), "attention_mask": torch.ones(source, dtype=torch.long)}
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        model(**batch, labels=torch.ones(target, dtype=torch.long), return_logits=False)
    return sum(count for _, count in kept.values())


@pytest.mark.parametrize("shapes", [((16, 12), (16, 10)), ((8, 32), (8, 24)), ((2, 128), (2, 128))])
@pytest.mark.parametrize(
    ("encoder", "decoder", "width", "alpha"), [(2, 2, 128, 0.0), (4, 1, 256, 0.0), (1, 3, 128, 5.0)]
)
def test_activation_bytes_match_what_autograd_keeps(make_model, shapes, encoder, decoder, width, alpha):
    sizes = {"d_model": 64, "encoder_ffn_dim": width, "decoder_ffn_dim": width, "encoder_attention_heads": 4}
    sizes |= {"decoder_attention_heads": 4, "encoder_layers": encoder, "decoder_layers": decoder}
    options = {"dropout": 0.1, "r_drop_alpha": alpha, "attn_implementation": "eager"}
    model = make_model(**sizes, **options).train()
    assert activation_bytes(model.config, *shapes) == pytest.approx(kept_for_backward(model, *shapes), rel=0.2)


def test_memory_estimate_follows_the_settings(make_trainer, make_model):
    def total(model=None, length=9, **options):
        return training_bytes(model or make_model(), make_trainer(**options).args, length, length)

    plain = total(max_tokens=1000)
    assert total(max_tokens=2000) > plain
    assert total(max_tokens=1000, length=100) > plain
    assert total(max_tokens=1000, ema_decay=0.9) == plain + 4 * make_model().num_parameters()
    matrices = [each for name, each in make_model().named_parameters() if each.ndim == 2 and ".layers." in name]
    assert total(max_tokens=1000, optim="muon") == plain - 4 * sum(each.numel() for each in matrices)
    deep = make_model(encoder_layers=9)
    assert total(deep, max_tokens=9000) > total(deep, max_tokens=9000, gradient_checkpointing=True)


def test_needs_are_described_and_short_memory_warns(make_trainer, monkeypatch, caplog):
    trainer = make_trainer(average_last=3)
    memory = r"Training takes about [\d.]+ [MG]B of memory, [\d.]+ [MG]B of which are taken now\."
    disk = r"Checkpoints take \d+ MB each on the disk, and 4 are kept at most\."
    assert re.fullmatch(f"{memory} {disk}", describe_needs(trainer))
    assert not caplog.records
    monkeypatch.setattr(description, "free_bytes", lambda: 10**6)
    describe_needs(trainer)
    assert "There may be too little memory" in caplog.text
    assert "Lower training.max_tokens." in caplog.text
    monkeypatch.setattr(description, "resident_bytes", lambda: None)  # as on systems without /proc
    assert describe_needs(trainer).startswith("Checkpoints take ")
