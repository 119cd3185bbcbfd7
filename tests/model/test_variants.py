"""Named models have the sizes that the paper gives, row by row of Table 3."""

import pytest
import torch

from vanilla_transformer.model.configuration_vanilla_transformer import _VARIANTS, VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration


# Millions of parameters, from the last column of Table 3; rows that leave it empty have the base model's.
PAPER = {
    "base": 65, "big": 213,
    "table3-a1": 65, "table3-a2": 65, "table3-a3": 65, "table3-a4": 65,
    "table3-b1": 58, "table3-b2": 60,
    "table3-c1": 36, "table3-c2": 50, "table3-c3": 80, "table3-c4": 28, "table3-c5": 168, "table3-c6": 53,
    "table3-c7": 90,
    "table3-d1": 65, "table3-d2": 65, "table3-d3": 65, "table3-d4": 65,
    "table3-e": 65,
}  # fmt: skip
# The paper says "about 37,000" pieces. Of all multiples of 100, this number gives the smallest error in the worst row,
# so the column was most likely counted with this vocabulary.
BEST_VOCABULARY = 40_200


def parameters(name: str, vocab_size: int) -> int:
    """Counts them without allocating the weights."""
    config = VanillaTransformerConfig.from_name(name, vocab_size=vocab_size)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    model.tie_weights()  # the meta device builds every matrix anew
    return sum(parameter.numel() for parameter in model.parameters())


def by_hand(layers=6, d_model=512, ffn=2048, heads=8, d_k=64, d_v=64, positions=0, vocabulary=0) -> int:
    """Counts by the paper's description: no bias in attention, two in the feed-forward network, none at the end."""
    attention = heads * d_model * (2 * d_k + 2 * d_v)
    feed_forward = d_model * ffn + ffn + ffn * d_model + d_model
    norm = 2 * d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder) + (vocabulary + 2 * positions) * d_model


BY_HAND = {
    "base": {},
    "big": {"d_model": 1024, "ffn": 4096, "heads": 16},
    "tiny": {"layers": 4, "d_model": 128, "ffn": 256, "heads": 4, "d_k": 32, "d_v": 32},
    "table3-a1": {"heads": 1, "d_k": 512, "d_v": 512},
    "table3-a2": {"heads": 4, "d_k": 128, "d_v": 128},
    "table3-a3": {"heads": 16, "d_k": 32, "d_v": 32},
    "table3-a4": {"heads": 32, "d_k": 16, "d_v": 16},
    "table3-b1": {"d_k": 16},
    "table3-b2": {"d_k": 32},
    "table3-c1": {"layers": 2},
    "table3-c2": {"layers": 4},
    "table3-c3": {"layers": 8},
    "table3-c4": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3-c5": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3-c6": {"ffn": 1024},
    "table3-c7": {"ffn": 4096},
    "table3-d1": {},
    "table3-d2": {},
    "table3-d3": {},
    "table3-d4": {},
    "table3-e": {"positions": 1024},
}


@pytest.mark.parametrize("name", _VARIANTS)
def test_parameter_counts_match_hand_calculation(name):
    assert parameters(name, 1000) == by_hand(**BY_HAND[name], vocabulary=1000)


def test_parameters_beside_the_papers_column(capsys):
    counts = {name: parameters(name, BEST_VOCABULARY) / 1e6 for name in PAPER}
    with capsys.disabled():
        print(f"\nmillions of parameters with {BEST_VOCABULARY:,} pieces: ours, the paper's")
        for name, count in counts.items():
            print(f"  {name:<10} {count:6.1f} {PAPER[name]:4d}  {100 * (count / PAPER[name] - 1):+.1f} %")
    assert all(abs(count / PAPER[name] - 1) <= 0.03 for name, count in counts.items())


def test_best_vocabulary_has_the_smallest_error():
    per_piece = {name: parameters(name, 1001) - parameters(name, 1000) for name in PAPER}
    rest = {name: parameters(name, 1000) - 1000 * per_piece[name] for name in PAPER}

    def worst(vocabulary):
        return max(abs((rest[name] + vocabulary * per_piece[name]) / (1e6 * PAPER[name]) - 1) for name in PAPER)

    assert min(range(30_000, 50_000, 100), key=worst) == BEST_VOCABULARY


def test_from_name_sets_the_fields_of_its_row():
    from_name = VanillaTransformerConfig.from_name
    assert from_name("base").to_dict() == VanillaTransformerConfig().to_dict()
    assert from_name("big").dropout == 0.3
    assert [from_name(f"table3-d{row}").dropout for row in (1, 2, 3, 4)] == [0, 0.2, 0.1, 0.1]
    assert from_name("table3-e").position_embedding_type == "learned"
    assert from_name("tiny", vocab_size=99, dropout=0.0).vocab_size == 99


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("table3-a5", {}, r"no model 'table3-a5'; did you mean 'table3-\w\d'\? All: base, big, tiny"),
        ("BIG", {}, "did you mean 'big'"),
        ("base", {"layers": 2}, "set encoder_layers and decoder_layers"),
    ],
)
def test_unknown_names_and_fields_are_rejected(name, fields, message):
    with pytest.raises(ValueError, match=message):
        VanillaTransformerConfig.from_name(name, **fields)
