"""Describes a run before it begins: its updates, how it chooses a checkpoint, the memory and disk it takes."""

import logging
from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from ..environment import free_bytes, resident_bytes
from ..evaluation.metrics import bleu_for
from ..model.loss_vanilla_transformer import LOGITS_AT_A_TIME
from .arguments import VanillaTransformerTrainingArguments
from .muon import MUON, muon_groups


if TYPE_CHECKING:
    from .trainer import VanillaTransformerTrainer


logger = logging.getLogger(__name__)

_FLOAT = 4  # bytes
_BYTES_OF_A_LOGIT = 8  # with its gradient
# Factor on the tensors kept for the backward pass: temporary results, gradients, memory freed but not given back.
_OVERHEAD = 1.3
_PRODUCTS = 150_000_000  # bytes: oneDNN's cache for the shapes of the last products
LONG_PAIR = 64  # tokens of a side, for a text whose lengths are not known in advance


def activation_bytes(config, source: tuple[int, int], target: tuple[int, int]) -> int:
    """About how many bytes a forward pass keeps for the backward pass, in float32, without its logits.

    For each token and layer the encoder keeps some ten vectors of d_model (queries, keys and values; the attended
    values; in and out of both residuals and norms), the hidden states of the feed-forward network, and each head's
    attention to every token. The decoder, which attends twice, keeps some eighteen.

    Args:
        config: The model's.
        source: (pairs, tokens) of a batch's sources.
        target: (pairs, tokens) of its targets.
    """
    d_model, (pairs, source_length), (_, target_length) = config.d_model, source, target
    # Numbers that one layer keeps for one token.
    of_encoder = 10 * d_model + config.encoder_ffn_dim + config.encoder_attention_heads * source_length
    attended = target_length + source_length
    of_decoder = 18 * d_model + config.decoder_ffn_dim + config.decoder_attention_heads * attended
    numbers = pairs * source_length * config.encoder_layers * of_encoder
    numbers += pairs * target_length * config.decoder_layers * of_decoder
    return _FLOAT * numbers * (2 if config.r_drop_alpha else 1)


def training_bytes(
    model: PreTrainedModel, arguments: VanillaTransformerTrainingArguments, source_length: int, target_length: int
) -> int:
    """About how many bytes training takes at its peak beyond the weights, on a CPU.

    Args:
        model: The one to be trained.
        arguments: With `max_tokens` of a batch.
        source_length: Tokens of a long source; batches of long pairs take most.
        target_length: Tokens of a long target.
    """
    learning = sum(each.numel() for each in model.parameters() if each.requires_grad)
    pairs = max(1, arguments.max_tokens // max(source_length, target_length))
    kept = activation_bytes(model.config, (pairs, source_length), (pairs, target_length))
    if arguments.gradient_checkpointing:  # every layer's input, and all of one layer
        layers = model.config.encoder_layers + model.config.decoder_layers
        kept = kept // layers + _FLOAT * pairs * (source_length + target_length) * layers * model.config.d_model
    logits = min(LOGITS_AT_A_TIME["cpu"], pairs * target_length * model.config.vocab_size)
    numbers = (1 + bool(arguments.ema_decay)) * learning + _kept_by_optimizer(model, arguments)  # 1: the gradient
    return int(_FLOAT * numbers + _OVERHEAD * kept + _BYTES_OF_A_LOGIT * logits + _PRODUCTS)


def _kept_by_optimizer(model: PreTrainedModel, arguments: VanillaTransformerTrainingArguments) -> int:
    """How many numbers: Adam keeps two for each parameter that learns, and Muon one for an entry of its matrices."""
    learning = sum(each.numel() for each in model.parameters() if each.requires_grad)
    groups = muon_groups(model, (), 0.0) if arguments.optim == MUON else []
    return 2 * learning - sum(each.numel() for group in groups if group["muon"] for each in group["params"])


def describe_needs(trainer: "VanillaTransformerTrainer") -> str:
    """About how much memory and disk a run takes, in a sentence or two. Warns if that is more than is free."""
    model, arguments, batches = trainer.model, trainer.args, trainer.train_batches
    lengths = LONG_PAIR, LONG_PAIR
    if batches is not None:
        lengths = int(batches.source_lengths.max()), int(batches.target_lengths.max())
    weights = sum(each.numel() for each in model.parameters()) * (2 if arguments.ema_decay else 1)
    of_checkpoint = _FLOAT * (weights + _kept_by_optimizer(model, arguments))
    kept = arguments.save_total_limit
    disk = f"Checkpoints take {_readable_bytes(of_checkpoint)} each on the disk, and {kept} are kept at most."
    taken = resident_bytes()
    if arguments.device.type != "cpu" or taken is None:
        return disk
    more = training_bytes(model, arguments, *lengths)
    total, now = _readable_bytes(taken + more), _readable_bytes(taken)
    memory = f"Training takes about {total} of memory, {now} of which are taken now."
    if (free := free_bytes()) is not None and more > free:
        logger.warning(
            "There may be too little memory: training takes about %s more, and %s are free. Lower training.max_tokens.",
            _readable_bytes(more),
            _readable_bytes(free),
        )
    return f"{memory} {disk}"


def describe_updates(trainer: "VanillaTransformerTrainer") -> str:
    """Describes an update and an epoch, in a sentence or two."""
    args, batches = trainer.args, trainer.train_batches
    tokens = args.max_tokens * args.world_size * args.gradient_accumulation_steps
    update = f"An update has up to {tokens:,} source and target tokens"
    if tokens > args.max_tokens:
        update += f" ({args.world_size} processes x {args.gradient_accumulation_steps} batches of {args.max_tokens:,})"
    if batches is None:
        return f"{update}."
    return (
        f"{update}. An epoch has {len(batches):,} batches of {int(batches.target_lengths.sum()) // len(batches):,} "
        f"target tokens on average, {100 * batches.real_share():.1f} % of their cells filled."
    )


def describe_choice(arguments: VanillaTransformerTrainingArguments, target_language: str) -> str:
    """Describes how the best checkpoint is chosen, in a sentence or two."""
    name = (arguments.metric_for_best_model or "loss").removeprefix("eval_")
    patience = arguments.early_stopping_patience
    stopping = (
        f", and early stopping after {patience} evaluations without a better one," if patience is not None else ""
    )
    text = (
        f"The best checkpoint{stopping} goes by validation {name}: the "
        f"{'higher' if arguments.greater_is_better else 'lower'} the better."
    )
    if arguments.predict_with_generate:
        text += f" Validation BLEU is {bleu_for(target_language)}"
        beams = arguments.generation_num_beams
        text += f", of {'greedy search' if beams == 1 else f'beam search with {beams}'}." if beams else "."
    return text


def _readable_bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
