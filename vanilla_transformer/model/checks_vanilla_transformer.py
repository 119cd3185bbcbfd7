"""What cannot be meant is refused with one clear error, where looking at the values costs nothing.

On a GPU a look at values waits for it, and a compiled or exported graph cannot branch on them: there the checks of
values are left out, and an id outside the vocabulary is torch's own error. Shapes are checked everywhere.
"""

import torch


def check_ids(ids: torch.Tensor, vocab_size: int) -> None:
    """Refuses ids of any shape that the embedding matrix has no row for.

    Raises:
        ValueError: An id is negative, or `vocab_size` or more.
    """
    if not _may_look_at(ids):
        return
    lowest, highest = map(int, ids.aminmax())
    if lowest < 0 or highest >= vocab_size:
        odd = lowest if lowest < 0 else highest
        raise ValueError(f"Token id {odd} is not in the vocabulary, whose ids are 0 to {vocab_size - 1}.")


def check_source_mask(mask: torch.Tensor | None, embeddings: torch.Tensor) -> None:
    """A mask of one number per token must fit the embeddings (batch, source, d_model), and hide not all of them.

    Raises:
        ValueError: The mask has another shape, or hides every token of every source.
    """
    if mask is None or mask.dim() != 2:
        return
    if mask.shape != embeddings.shape[:2]:
        shape, expected = tuple(mask.shape), tuple(embeddings.shape[:2])
        raise ValueError(f"The attention_mask has shape {shape}, not the source's (batch, length), {expected}.")
    if _may_look_at(mask) and not mask.any():
        raise ValueError("The attention_mask hides every token of every source: there is nothing to attend to.")


def check_labels(labels: torch.Tensor, pad: int | None, eos: int | list[int] | None) -> None:
    """Padding would be learned: a target (batch, target) that ends in `</s> <pad>` or `<pad> <pad>` is a mistake.

    Raises:
        ValueError: The labels of a sentence end so.
    """
    if not _may_look_at(labels) or not isinstance(eos, int) or labels.shape[1] < 2 or pad == eos:
        return
    padded = (labels[:, -1] == pad) & ((labels[:, -2] == pad) | (labels[:, -2] == eos))  # (batch,)
    if (padded & (labels != pad).any(dim=1)).any():
        raise ValueError(f"The labels end in padding (id {pad}): put -100 in its place.")


def _may_look_at(tensor: torch.Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and type(tensor) is torch.Tensor  # neither traced nor distributed
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
    )
