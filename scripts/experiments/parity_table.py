"""Prints how close the model is to independent implementations with the same weights.

    python scripts/experiments/parity_table.py

Every row is a model with random weights at the paper's or a smaller size; the number is the largest difference of any
logit (torch.nn: of any hidden state, it has no output layer) over a batch of two pairs of different lengths. The
sentences are short, but sdpa is used wherever it is named: otherwise the script fails.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import torch


sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.model.conftest import randomize_vectors
from tests.model.test_independent_implementations import torch_decoder, torch_encoder
from tests.reference_transformer import NumpyTransformer
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration, to_marian
from vanilla_transformer.model import masks_vanilla_transformer as masks
from vanilla_transformer.model import modeling_vanilla_transformer as modeling


SHAPES = ("tiny", "base", "table3-a4", "table3-c4")
SOURCES, TARGETS = (23, 11), (19, 7)


def build(name: str, **choices) -> VanillaTransformerForConditionalGeneration:
    torch.manual_seed(0)
    config = VanillaTransformerConfig.from_name(name, vocab_size=1000, dropout=0.0, **choices)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    randomize_vectors(model)
    return model


def sentences() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for source, target in zip(SOURCES, TARGETS, strict=True):
        yield tuple(torch.randint(4, 1000, (1, length), generator=generator) for length in (source, target))


def padded() -> dict[str, torch.Tensor]:
    sources, targets = zip(*sentences(), strict=True)
    batch = {"input_ids": torch.full((2, max(SOURCES)), 1), "decoder_input_ids": torch.full((2, max(TARGETS)), 1)}
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        batch["input_ids"][row, : source.shape[1]] = source
        batch["decoder_input_ids"][row, : target.shape[1]] = target
    return batch | {"attention_mask": (batch["input_ids"] != 1).long()}


def real(states: torch.Tensor) -> torch.Tensor:
    """The states of the targets' real tokens, one row each."""
    return torch.cat([states[row, :length] for row, length in enumerate(TARGETS)])


@torch.no_grad()
def from_numpy(name: str, **choices) -> float:
    model = build(name, **choices)
    reference = NumpyTransformer(model)
    expected = [torch.from_numpy(reference.logits(s[0].numpy(), t[0].numpy())) for s, t in sentences()]
    return (real(model(**padded()).logits) - torch.cat(expected)).abs().max().item()


@torch.no_grad()
def from_marian(name: str, **choices) -> float:
    model = build(name, sinusoid_layout="halves", attention_bias=True, output_bias=True, **choices)
    batch = padded()
    return real(model(**batch).logits - to_marian(model)(**batch).logits).abs().max().item()


@torch.no_grad()
def from_torch_nn(name: str, **choices) -> float:
    model, batch = build(name, attention_bias=True, **choices).model, padded()
    hidden = batch["attention_mask"] == 0
    memory = torch_encoder(model.encoder, model.config)(
        model.encoder.embed(model.shared(batch["input_ids"])), src_key_padding_mask=hidden
    )
    future = torch.ones(max(TARGETS), max(TARGETS), dtype=torch.bool).triu(1)
    states = torch_decoder(model.decoder, model.config)(
        model.decoder.embed(model.shared(batch["decoder_input_ids"])),
        memory,
        tgt_mask=future,
        memory_key_padding_mask=hidden,
    )
    return real(model(**batch).last_hidden_state - states).abs().max().item()


def through(kernel: str, difference: Callable[..., float], name: str, choices: dict) -> float:
    """The difference, with our attention computed by this kernel and no other."""
    plain = modeling.eager_attention_forward
    with (
        patch.object(masks, "_PLAIN_PAIRS", 0),
        patch.object(modeling, "eager_attention_forward", wraps=plain) as eager,
    ):
        found = difference(name, attn_implementation=kernel, **choices)
    if eager.called != (kernel == "eager"):
        raise RuntimeError(f"{kernel} was asked for, and the plain formula called {eager.call_count} times.")
    return found


ROWS = {
    "our float64 numpy, from the paper's equations": (from_numpy, {}),
    "our float64 numpy, pre-norm": (from_numpy, {"norm_first": True}),
    "transformers' MarianMTModel": (from_marian, {}),
    "torch.nn's encoder and decoder": (from_torch_nn, {}),
    "torch.nn's encoder and decoder, pre-norm": (from_torch_nn, {"norm_first": True}),
}


def main() -> None:
    print("| against | " + " | ".join(f"{name}, {a}" for name in SHAPES for a in ("eager", "sdpa")) + " |")
    print("| --- |" + " ---: |" * 2 * len(SHAPES))
    for title, (difference, choices) in ROWS.items():
        cells = [through(kernel, difference, name, choices) for name in SHAPES for kernel in ("eager", "sdpa")]
        print(f"| {title} | " + " | ".join(f"{cell:.1e}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
