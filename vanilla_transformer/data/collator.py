"""From a list of encoded pairs to the padded tensors that the model takes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .tokenizer import BOS_ID, PAD_ID


class TranslationCollator:
    """Pads a batch of pairs to its longest source and its longest target; other columns are left out.

    Calling it takes a list of pairs with `input_ids` and `labels`, both ending in `</s>`, and returns int64 tensors:

        input_ids (batch, source)          padded with <pad>
        attention_mask (batch, source)     1 for tokens, 0 for padding
        labels (batch, target)             padded with -100, which no loss counts
        decoder_input_ids (batch, target)  <s> and the labels but the last (Figure 1: "outputs, shifted right")
    """

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        input_ids = _padded([pair["input_ids"] for pair in pairs], PAD_ID)
        labels = _padded([pair["labels"] for pair in pairs], -100)
        start = np.full((len(pairs), 1), BOS_ID)
        shifted = np.concatenate([start, np.where(labels == -100, PAD_ID, labels)[:, :-1]], axis=1)
        lengths = np.array([len(pair["input_ids"]) for pair in pairs])
        batch = {
            "input_ids": input_ids,
            "attention_mask": (np.arange(input_ids.shape[1]) < lengths[:, None]).astype(np.int64),
            "labels": labels,
            "decoder_input_ids": shifted,
        }
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def _padded(rows: Sequence[Sequence[int]], padding: int) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded
