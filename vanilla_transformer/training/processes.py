"""Several processes of one run: the first prepares it, none waits for a lost one, and they may shard the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel

from .arguments import VanillaTransformerTrainingArguments


T = TypeVar("T")

# Messages of a backend when the other end of a connection is gone; it raises only RuntimeError.
_GONE = ("connection reset", "connection closed", "connection refused", "broken pipe", "timed out", "remote error")


class ProcessLostError(OSError):
    """Another process of the run ended, or could not be reached in time."""


def patient_broadcast(arguments: VanillaTransformerTrainingArguments) -> Callable[[T], T]:
    """Returns a function that gives every process the first one's value, for which the others wait up to a day.

    All processes must make it, and call it as often. The run's own timeout is for processes that all do the same.
    """
    if arguments.world_size == 1:
        return lambda value: value
    group = _patient_group(torch.distributed.group.WORLD)

    def tell(value: T) -> T:
        values = [value]
        torch.distributed.broadcast_object_list(values, 0, group=group)
        return values[0]

    return tell


@cache  # made once, at the start: making it waits for all processes, even for one that has since been lost
def _patient_group(of: torch.distributed.ProcessGroup) -> torch.distributed.ProcessGroup:
    return torch.distributed.new_group(backend="gloo", timeout=timedelta(days=1))


def first_alone(arguments: VanillaTransformerTrainingArguments, action: Callable[[], None]) -> None:
    """The first process runs an action, maybe for hours; the others wait, and raise ProcessLostError if it failed."""
    tell = patient_broadcast(arguments)
    if arguments.process_index == 0:
        try:
            action()
        except BaseException:
            with suppress(RuntimeError):  # if the others have gone too, this process's own error is the one to tell
                tell(False)
            raise
    if not tell(True):
        raise ProcessLostError("The first process of this run could not begin it; its message says why.")


@contextmanager
def others_named_in_errors(arguments: VanillaTransformerTrainingArguments) -> Iterator[None]:
    """Raises ProcessLostError if the backend says that a connection is gone: another process has ended."""
    try:
        yield
    except RuntimeError as error:
        told = " ".join(str(error).split())
        if arguments.world_size == 1 or not any(sign in told.lower() for sign in _GONE):
            raise
        raise ProcessLostError(
            f"Another of the {arguments.world_size} processes of this run has ended or cannot be reached. Its message, "
            f"or its launcher's, says why. Go on with `train --resume` as before. ({told[:200]})"
        ) from error


# ------------------------------------------------------------------------------------------------------------- sharding
#
# Fully sharded training (FSDP): every process keeps its part of each matrix, its gradient and its Adam state.
# accelerate would shard when training begins: each layer by itself, and input and output embedding. Here encoder,
# decoder and output share one matrix, which torch allows in only one group of modules, so `shard` does it earlier.


def turn_on_without_gpus(accelerator: Accelerator, plugin_arguments: dict) -> None:
    """accelerate 1.15 shards between GPUs only; processes without any would silently train unsharded."""
    state = accelerator.state
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**plugin_arguments)
        # Every new view of the shared state starts from PartialState.
        state.distributed_type = PartialState().distributed_type = DistributedType.FSDP


def shard(model: PreTrainedModel, plugin: FullyShardedDataParallelPlugin) -> None:
    """Leaves this process its part of every parameter; a layer's parameters are gathered when it is its turn.

    Parameters are gathered and gradients summed in their own type, so that the results are as without sharding.
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

    That is the model as it is, or for a sharded one a copy with all weights on this device: processes that translate
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
