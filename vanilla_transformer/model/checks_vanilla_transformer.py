"""What cannot be meant is refused with one clear error, where looking at the values costs nothing.

On a GPU a look at values waits for it, and neither a compiled or exported graph nor torch.func can branch on them:
there the checks of values are left out, and an id outside the vocabulary is torch's own error. Shapes are checked
everywhere but, for the target's, in such graphs, whose lengths they would fix.
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


def check_source_mask(mask: torch.Tensor | None, states: torch.Tensor) -> None:
    """A mask of one number per token must fit the source's states (batch, source, d_model), and hide not all of them.

    Raises:
        ValueError: The mask has another shape, or hides every token of every source.
    """
    if mask is None or mask.dim() == 4:  # one made ready for attention
        return
    if mask.shape != states.shape[:2]:
        shape, expected = tuple(mask.shape), tuple(states.shape[:2])
        raise ValueError(f"The attention_mask has shape {shape}, not the source's (batch, length), {expected}.")
    if _may_look_at(mask) and not mask.any():
        raise ValueError("The attention_mask hides every token of every source: there is nothing to attend to.")


def check_target(mask: torch.Tensor | None, embeddings: torch.Tensor, encoder_states, has_cache: bool) -> None:
    """A target (batch, target, d_model) must have a source of its own, and a mask that fits it and what is cached.

    Raises:
        ValueError: There are more or fewer targets than sources, or the mask has another shape.
    """
    if torch.compiler.is_compiling():
        return
    batch, length = embeddings.shape[:2]
    if encoder_states is not None and encoder_states.shape[0] != batch:
        raise ValueError(f"There are {batch} targets for {encoder_states.shape[0]} sources: give one for each.")
    if mask is None or mask.dim() == 4:
        return
    fits = mask.dim() == 2 and mask.shape[0] == batch
    if not fits or (mask.shape[1] < length if has_cache else mask.shape[1] != length):
        expected = f"({batch}, {'cached + ' if has_cache else ''}{length})"
        raise ValueError(f"The decoder_attention_mask has shape {tuple(mask.shape)}, not (batch, length), {expected}.")


def check_positions(length: int, past_length: int | torch.Tensor, limit: int) -> None:
    """A learned table has no rows for positions from `limit` on.

    Raises:
        ValueError: There are more tokens, with those before them, than the table has rows.
    """
    if isinstance(past_length, torch.Tensor):
        if not _may_look_at(past_length):
            return
        past_length = int(past_length)
    if past_length + length > limit:
        raise ValueError(
            f"{past_length + length} tokens, but max_position_embeddings is {limit}: learned positions end there. "
            "Shorten the input or train with more."
        )


def check_labels(labels: torch.Tensor, pad: int | None, eos: int | list[int] | None) -> None:
    """Padding would be learned: a target (batch, target) that ends in `</s> <pad>` or `<pad> <pad>` is a mistake.

    Raises:
        ValueError: The labels of a sentence end so.
    """
    if not _may_look_at(labels) or not isinstance(eos, int) or pad is None or labels.shape[1] < 2 or pad == eos:
        return
    padded = (labels[:, -1] == pad) & ((labels[:, -2] == pad) | (labels[:, -2] == eos))  # (batch,)
    if (padded & (labels != pad).any(dim=1)).any():
        raise ValueError(f"The labels end in padding (id {pad}): put -100 in its place.")


def hides_something(mask: torch.Tensor) -> bool:
    """Whether a mask (batch, source) has a 0; True where one may not look."""
    return not (_may_look_at(mask) and bool(mask.all()))


def needs_plain_operations() -> bool:
    """Whether torch.func transforms this call or torch.export records it: neither takes autograd functions of ours."""
    is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # since torch 2.7
    return is_exporting() or torch._C._are_functorch_transforms_active()


def _may_look_at(tensor: torch.Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and type(tensor) is torch.Tensor  # neither traced nor distributed
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
    )
