"""Fully sharded training (FSDP): every process keeps its part of each matrix, its gradient and what Adam keeps of it.

accelerate would do it when training begins: each layer by itself, and input and output embedding. Here encoder, decoder
and output share one matrix, which torch lets only one group of modules have; so the model is sharded before.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel


# What fields of `fsdp_config` must be if they are given, and why.
_ONLY = {
    "version": (2, "the first one is on its way out of torch"),
    "state_dict_type": ("FULL_STATE_DICT", "one process can load every checkpoint"),
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "each layer is gathered when it is its turn"),
    "transformer_layer_cls_to_wrap": (None, "each layer is gathered when it is its turn"),
    "cpu_offload": (False, "everything stays on its device"),
    "activation_checkpointing": (False, "training.gradient_checkpointing does it"),
    "xla": (False, "there is no sharding for XLA devices"),
}


def check_sharding(config: dict, processes: int) -> None:
    """Refuses what would not be done as it is asked for.

    Args:
        config: `fsdp_config` of the training arguments.
        processes: How many there are.

    Raises:
        ValueError: There is one process, or a field has a value that cannot be had here.
    """
    if processes == 1:
        raise ValueError(
            "fsdp shares a model out to several processes, and this is one: start it with torchrun --nproc_per_node, "
            "or leave fsdp out."
        )
    for name, (only, why) in _ONLY.items():
        if config.get(name, only) != only:
            raise ValueError(f"fsdp_config.{name} cannot be {config[name]!r}, only {only!r}: {why}. Leave it out.")


def turn_on_without_gpus(accelerator: Accelerator, plugin_arguments: dict) -> None:
    """accelerate 1.15 shards between GPUs only; processes without any would train unsharded, and not say so."""
    state = accelerator.state
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**plugin_arguments)
        # Every new view of the one state begins with what PartialState says.
        state.distributed_type = PartialState().distributed_type = DistributedType.FSDP


def shard(model: PreTrainedModel, plugin: FullyShardedDataParallelPlugin) -> None:
    """Leaves this process its part of every parameter; what belongs to a layer is gathered when it is its turn.

    Parameters are gathered and gradients summed in the type in which they are kept, so that the same comes out as
    without sharding; how products are computed is autocast's.
    """
    if isinstance(model, FSDPModule):
        return
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    for layer in layers:
        fully_shard(layer, reshard_after_forward=plugin.reshard_after_forward)
    fully_shard(model)  # the rest, most of it the shared matrix, is needed first and last
    plugin.auto_wrap_policy = None  # accelerate has nothing left to do, and would look for layers by their old names


@contextmanager
def whole(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Gives all processes, which must all call it, a model that each can use by itself.

    That is the model as it is, or of a sharded one a copy with all weights on this device: processes that translate
    take different numbers of steps, and would wait for each other's parts for ever.
    """
    if not isinstance(model, FSDPModule):
        yield model
        return
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    with torch.device("meta"):
        copy = type(model)(model.config)  # this calls the class that it had before it was sharded
    copy.load_state_dict(weights, assign=True)
    copy.tie_weights()
    copy.generation_config = model.generation_config
    yield copy
