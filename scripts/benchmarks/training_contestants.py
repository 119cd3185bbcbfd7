"""The contestants of `training.py`: models of the same shape, each a function from a batch to its loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

from vanilla_transformer import (
    TokenBatchSampler,
    TranslationCollator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.modeling_vanilla_transformer import sinusoids


PAD, SMOOTHING, DROPOUT = 1, 0.1, 0.1
SHAPES = {
    "tiny": {"d_model": 128, "layers": 4, "heads": 4, "ffn_dim": 256, "vocab_size": 10_000},
    "base": {"d_model": 512, "layers": 6, "heads": 8, "ffn_dim": 2048, "vocab_size": 37_000},
}


@dataclass(frozen=True)
class Task:
    """The shape of model that all contestants train, and their data."""

    shape: str
    bf16: bool
    rows: list[dict[str, list[int]]]  # "input_ids" and "labels", each ending in </s>
    max_tokens: int
    device: str

    @property
    def sizes(self) -> dict[str, int]:
        return SHAPES[self.shape]

    def configuration(self) -> dict:
        """The fields that our configuration and Marian's share."""
        sizes = self.sizes
        sides = {"layers": sizes["layers"], "attention_heads": sizes["heads"], "ffn_dim": sizes["ffn_dim"]}
        of_both = {f"{side}_{name}": size for name, size in sides.items() for side in ("encoder", "decoder")}
        return {"vocab_size": sizes["vocab_size"], "d_model": sizes["d_model"], "dropout": DROPOUT, **of_both}

    def sampler(self) -> TokenBatchSampler:
        return TokenBatchSampler(
            *([len(row[side]) for row in self.rows] for side in ("input_ids", "labels")), self.max_tokens
        )

    def batches(self, epoch: int) -> list[dict[str, torch.Tensor]]:
        sampler, collate = self.sampler(), TranslationCollator()
        sampler.set_epoch(epoch)
        return [collate([self.rows[number] for number in batch]) for batch in sampler]

    def autocast(self):
        return torch.autocast(self.device, torch.bfloat16, enabled=self.bf16)


Step = Callable[[dict[str, torch.Tensor]], torch.Tensor]  # from a batch to its loss


def smoothed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, label_smoothing=SMOOTHING)


def our_model(task: Task) -> VanillaTransformerForConditionalGeneration:
    config = VanillaTransformerConfig(**task.configuration(), label_smoothing=SMOOTHING)
    return VanillaTransformerForConditionalGeneration(config).to(task.device)


def ours(task: Task) -> tuple[nn.Module, Step]:
    model = our_model(task).train()

    def step(batch):
        tokens = (batch["labels"] != -100).sum()
        return model(**batch, num_items_in_batch=tokens, return_logits=False).loss

    return model, step


def marian(task: Task, attention: str) -> tuple[nn.Module, Step]:
    config = MarianConfig(
        **task.configuration(),
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=5_000,
        pad_token_id=PAD,
        eos_token_id=2,
        decoder_start_token_id=0,
        attn_implementation=attention,
    )
    model = MarianMTModel(config).to(task.device).train()

    def step(batch):
        inputs = {**batch, "labels": None, "decoder_input_ids": shifted(batch["labels"]), "use_cache": False}
        return smoothed_loss(model(**inputs).logits, batch["labels"])

    return model, step


class TutorialTransformer(nn.Module):
    """torch.nn.Transformer as PyTorch's translation tutorial wires it, with one matrix for all embeddings.

    Dropout is where the paper has it.
    """

    def __init__(self, d_model: int, layers: int, heads: int, ffn_dim: int, vocab_size: int):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(torch.arange(5_000), d_model))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(d_model, heads, layers, layers, ffn_dim, DROPOUT, batch_first=True)
        # It would also drop attention weights and activations, which the paper and the other contestants do not.
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                module.dropout.p = 0.0
        self.generator = nn.Linear(d_model, vocab_size, bias=False)
        self.generator.weight = self.embedding.weight

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source, source_mask, target, target_padding):
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        padding = source_mask == 0
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=False,
        )
        return self.generator(states)


def tutorial(task: Task) -> tuple[nn.Module, Step]:
    model = TutorialTransformer(**task.sizes).to(task.device).train()

    def step(batch):
        target = shifted(batch["labels"])
        logits = model(batch["input_ids"], batch["attention_mask"], target, batch["labels"] == -100)
        return smoothed_loss(logits, batch["labels"])

    return model, step


def shifted(labels: torch.Tensor) -> torch.Tensor:
    """The decoder's inputs: the start token and all labels but the last."""
    target = labels.roll(1, dims=1)
    target[:, 0] = 0
    return target.masked_fill(target == -100, PAD)


MODELS: dict[str, Callable[[Task], tuple[nn.Module, Step]]] = {
    "ours": ours,
    "MarianMTModel eager": lambda task: marian(task, "eager"),
    "MarianMTModel sdpa": lambda task: marian(task, "sdpa"),
    "torch.nn.Transformer": tutorial,
}
