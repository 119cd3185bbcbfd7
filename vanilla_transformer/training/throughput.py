"""How fast tokens pass and how many cells of the batches are padding."""

from collections.abc import Mapping

import torch
from accelerate.utils import reduce


class TokenCounter:
    """Counts the cells of the batches that a trainer sees, and those of them that are real tokens.

    What is real is summed up on the device and read only when it is logged: nobody waits for it in between.
    """

    def __init__(self):
        self.cells = 0
        self.real: torch.Tensor | None = None  # (2,) source and target tokens

    def saw(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Counts one batch.

        Args:
            batch: `attention_mask` (batch, source) and `labels` (batch, target), -100 where padded.
        """
        self.cells += batch["attention_mask"].numel() + batch["labels"].numel()
        real = torch.stack((batch["attention_mask"].sum(), (batch["labels"] != -100).sum()))
        self.real = real if self.real is None else self.real + real

    def record(self, seconds: float) -> dict[str, float]:
        """What belongs into a log record, over all processes, since the last one; counting begins anew.

        Args:
            seconds: The time that it took.

        Returns:
            `target_tokens_per_second`, and `real_share`: tokens per cell of sources and targets, from 0 to 1. Nothing
            if nothing was counted.
        """
        cells, real = self.cells, self.real
        self.__init__()
        if real is None or seconds <= 0:
            return {}
        counts = reduce(torch.cat((real, real.new_tensor([cells]))), "sum")
        source, target, cells = counts.tolist()
        return {
            "target_tokens_per_second": round(target / seconds, 1),
            "real_share": round((source + target) / cells, 4),
        }
