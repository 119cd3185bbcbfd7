"""What a run will need, said before it begins: memory, and room on the disk for its checkpoints."""

import logging
import os
from pathlib import Path

from transformers import PreTrainedModel

from ..model.loss_vanilla_transformer import _LOGITS_AT_A_TIME
from .arguments import VanillaTransformerTrainingArguments


logger = logging.getLogger(__name__)

_FLOAT = 4  # bytes
_BYTES_OF_A_LOGIT = 8  # with its gradient
# More than what is kept for the backward pass: results on their way, gradients, room that is free but not given back.
_OVERHEAD = 1.3
_PRODUCTS = 150_000_000  # bytes: what oneDNN keeps for the shapes of the last products
LONG_PAIR = 64  # tokens of a side, for a text whose lengths are not known before


def activation_bytes(config, source: tuple[int, int], target: tuple[int, int]) -> int:
    """About how many bytes a forward pass keeps for the backward pass, in float32, without its logits.

    Of a token the encoder keeps some ten numbers of d_model a layer (queries, keys and values; the attended values; in
    and out of both residuals and norms), the hidden ones of the feed-forward network, and its attention to every token
    with each head; the decoder, which attends twice, some eighteen.

    Args:
        config: The model's.
        source: (pairs, tokens) of a batch's sources.
        target: (pairs, tokens) of its targets.
    """
    d, numbers = config.d_model, 0
    (pairs, length), (_, other) = source, target
    of_layer = 10 * d + config.encoder_ffn_dim + config.encoder_attention_heads * length
    numbers += pairs * length * config.encoder_layers * of_layer
    of_layer = 18 * d + config.decoder_ffn_dim + config.decoder_attention_heads * (other + length)
    numbers += pairs * other * config.decoder_layers * of_layer
    return _FLOAT * numbers * (2 if config.r_drop_alpha else 1)


def training_bytes(
    model: PreTrainedModel, arguments: VanillaTransformerTrainingArguments, source_length: int, target_length: int
) -> int:
    """About how many bytes more than the weights a training takes at its peak, on a CPU.

    Args:
        model: To be trained.
        arguments: With `max_tokens` of a batch.
        source_length: Tokens of a long source; batches of long pairs take most.
        target_length: Tokens of a long target.
    """
    learning = sum(each.numel() for each in model.parameters() if each.requires_grad)
    pairs = max(1, arguments.max_tokens // max(source_length, target_length))
    kept = activation_bytes(model.config, (pairs, source_length), (pairs, target_length))
    if arguments.gradient_checkpointing:  # of every layer its input, and one layer as a whole
        layers = model.config.encoder_layers + model.config.decoder_layers
        kept = kept // layers + _FLOAT * pairs * (source_length + target_length) * layers * model.config.d_model
    logits = min(_LOGITS_AT_A_TIME["cpu"], pairs * target_length * model.config.vocab_size)
    averages = 3 + bool(arguments.ema_decay)  # of each parameter the gradient, Adam's two, and perhaps a moving one
    return int(_FLOAT * averages * learning + _OVERHEAD * kept + _BYTES_OF_A_LOGIT * logits + _PRODUCTS)


def describe_needs(
    model: PreTrainedModel, arguments: VanillaTransformerTrainingArguments, source_length: int, target_length: int
) -> str:
    """What a training needs, in a sentence or two. See `training_bytes`."""
    parameters = list(model.parameters())
    learning = sum(each.numel() for each in parameters if each.requires_grad)
    of_checkpoint = _FLOAT * (sum(each.numel() for each in parameters) + 2 * learning)
    kept = arguments.save_total_limit
    disk = f"Checkpoints take {_told(of_checkpoint)} each on the disk, and {kept} are kept at most."
    taken = resident_bytes()
    if arguments.device.type != "cpu" or taken is None:
        return disk
    more = training_bytes(model, arguments, source_length, target_length)
    memory = f"Training takes about {_told(taken + more)} of memory, {_told(taken)} of which are taken now."
    if (free := free_bytes()) is not None and more > free:
        logger.warning(
            "There may be too little memory: training takes about %s more, and %s are free. Lower training.max_tokens.",
            _told(more),
            _told(free),
        )
    return f"{memory} {disk}"


def resident_bytes() -> int | None:
    """What this process has of the machine's memory; None where the system does not say it as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_bytes() -> int | None:
    """What Linux could give to processes now; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _told(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
