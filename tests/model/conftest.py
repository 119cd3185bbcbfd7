"""Tiny random Transformers, and one small batch, for every test of the model."""

import pytest
import torch
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model import generation_vanilla_transformer as generation
from vanilla_transformer.model import masks_vanilla_transformer as masks
from vanilla_transformer.model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)


TRANSLATOR = VanillaTransformerForConditionalGeneration
CLASSES = (VanillaTransformerModel, TRANSLATOR, VanillaTransformerForSequenceClassification)

TINY = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,  # unlike the encoder's, so that a mix-up shows
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 24,
    "dropout": 0.0,
}


def build_config(**choices) -> VanillaTransformerConfig:
    return VanillaTransformerConfig(**{**TINY, **choices})


def build(kind: type, **choices):
    """A model of any of `CLASSES`, in evaluation mode."""
    torch.manual_seed(3)
    return kind(build_config(**choices)).eval()


def randomize_vectors(model: torch.nn.Module):
    """Biases start at 0 and norms at 1, so leaving them out would go unnoticed."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))


def build_model(seed: int = 0, **choices) -> VanillaTransformerForConditionalGeneration:
    torch.manual_seed(seed)
    model = VanillaTransformerForConditionalGeneration(build_config(**choices)).eval()
    randomize_vectors(model)
    return model


@pytest.fixture(autouse=True)
def sdpa_means_sdpa(request, monkeypatch):
    """A test with sdpa in its name or parameters is about torch's kernel, so it must call the kernel.

    Otherwise short sentences on a CPU would get the plain formula, and tests that compare the two would prove nothing.
    """
    if "sdpa" not in request.node.name:
        yield
        return
    calls, kernel = [], F.scaled_dot_product_attention
    monkeypatch.setattr(masks, "_PLAIN_PAIRS", 0)
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or kernel(*a, **k))
    yield
    assert calls, "This test names sdpa and never called it."


@pytest.fixture
def tiny_config():
    """Builds a tiny configuration; takes any of its fields."""
    return build_config


@pytest.fixture
def tiny_model():
    """Builds a tiny model in evaluation mode; takes any field of the configuration."""
    return build_model


@pytest.fixture
def batch():
    """Two pairs, the second with a shorter source and a shorter target than the first."""
    return {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 12, 2, 1, 1]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
        "labels": torch.tensor([[13, 14, 15, 16, 2], [17, 18, 2, -100, -100]]),
    }


@pytest.fixture
def unlabelled(batch):
    """The batch without its labels."""
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


@pytest.fixture
def decoder_input_ids():
    """The start token and all labels of the batch but the last."""
    return torch.tensor([[0, 13, 14, 15, 16], [0, 17, 18, 2, 1]])


@pytest.fixture
def inputs(unlabelled, decoder_input_ids):
    """A function from a class to the inputs of its forward pass."""

    def inputs(kind):
        has_decoder = kind is not VanillaTransformerForSequenceClassification
        return unlabelled | ({"decoder_input_ids": decoder_input_ids} if has_decoder else {})

    return inputs


@pytest.fixture
def sources():
    """Five sources of different lengths, padded."""
    torch.manual_seed(5)
    ids = torch.randint(3, 40, (5, 7))
    mask = torch.ones_like(ids)
    for row in range(5):
        mask[row, 7 - row :] = 0
        ids[row, 7 - row :] = 1
    return {"input_ids": ids, "attention_mask": mask}


def sharpened(model):
    """Random models are unsure; larger weights make their translations differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model


TEXTS = ["A man sees the dog.", "No.", "The little girl runs across the street and a dog runs after her."]


@pytest.fixture(scope="session")
def tokenizer():
    return learn_tokenizer(TEXTS * 3, TokenizerSettings(vocab_size=280))


@pytest.fixture
def ours_used(monkeypatch):
    """A list that grows with every use of our own searches."""
    used = []
    for name in ("beam_search", "sample"):
        search = getattr(generation, name)
        monkeypatch.setattr(generation, name, lambda *a, search=search, **k: used.append(1) or search(*a, **k))
    return used


def transformers_own(model, **options):
    """Generates with transformers' own search, also if PEFT has wrapped the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation.PaperGeneration, "_is_plain", lambda *_: False)
        return model.generate(**options)


@torch.no_grad()
def sums_of_one_pass(model, sources, sequences):
    """Each translation's summed log-probability and number of tokens, from one forward pass."""
    labels = sequences[:, 1:].masked_fill(sequences[:, 1:] == 1, -100)
    per_source = len(sequences) // len(sources["input_ids"])
    repeated = {name: value.repeat_interleave(per_source, dim=0) for name, value in sources.items()}
    scores = model(**repeated, decoder_input_ids=sequences[:, :-1]).logits.log_softmax(-1)
    chosen = scores.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return chosen.masked_fill(labels == -100, 0).sum(1), (labels != -100).sum(1)


def tiny_marian(**choices) -> MarianMTModel:
    torch.manual_seed(1)
    sizes = {
        "vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "scale_embedding": True,
        "max_position_embeddings": 64, "eos_token_id": 0, "pad_token_id": 39, "decoder_start_token_id": 39,
        "bos_token_id": 0, "forced_eos_token_id": 0, "init_std": 0.3, "dropout": 0.1,
    }  # fmt: skip
    return MarianMTModel(MarianConfig(**{**sizes, **choices})).eval()
