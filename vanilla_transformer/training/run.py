"""From a recipe to a run folder: vocabulary, training, averaging, scores, translations, pictures."""

import contextlib
import dataclasses
import json
import logging
import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from ..data.batch_stream import TokenBatchStream
from ..data.streams import StreamLostError
from ..files import alone_in, remove_leftovers, write_json, write_text
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..plots import plot_learning_curve
from ..run_folder import RunFolder
from ..sharing.publishing import publish
from .arguments import VanillaTransformerTrainingArguments
from .checkpoints import finish_what_was_cut_short, trainer_state
from .precision import has_bfloat16, with_usable_precision
from .processes import first_alone, others_named_in_errors
from .progress import LearningCurve, LogFile, ProgressBar, StopOnRequest
from .recipe import Recipe, load_recipe
from .run_data import RunData
from .run_results import draw_attention, keep_models, score
from .trainer import VanillaTransformerTrainer


logger = logging.getLogger(__name__)

# What may change between the sessions of one run without making it another run, beside decoding and evaluation. (Where
# the text lies may change because its fingerprint may not.)
_MAY_CHANGE = {
    *(f"training.{name}" for name in ("max_steps", "average_last", "save_total_limit", "max_skipped_updates")),
    *(f"data.{name}" for name in ("folder", "train", "validation", "test", "patience")),
}


class Interrupted(Exception):  # noqa: N818  (no error: somebody asked for it)
    """Training was stopped on request; the message says where it goes on from."""


def train(
    recipe: Recipe,
    output: str | Path,
    *,
    resume: bool = False,
    show_progress: bool = False,
    command: str | None = None,
) -> RunFolder:
    """Trains, averages, scores and translates as the recipe says; with `training.push_to_hub` publishes the run too.

    Args:
        recipe: What to do.
        output: The run folder.
        resume: Go on from the last complete checkpoint of `output`; begin anew if there is none.
        show_progress: Whether to draw progress bars on the terminal.
        command: What was typed to begin the run: its card says so.

    Returns:
        The folder, with everything in it.

    Raises:
        FileExistsError: `output` holds a run and `resume` is false, is no run folder, or another process trains in it.
        ValueError: The recipe or the data are not those that `output` was begun with, or the data are bad.
        FloatingPointError: Too many updates in a row were not finite; a checkpoint was saved.
        Interrupted: SIGINT came; a checkpoint was saved.
        OSError: A checkpoint could not be saved, or the stream or another process is lost; the checkpoints before it
            are whole.
    """
    folder = RunFolder(output)
    arguments = _arguments(folder, recipe)
    data = RunData.open(recipe, folder, arguments)
    with others_named_in_errors(arguments), contextlib.ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(alone_in(folder.path))
            _open_folder(folder, recipe, data, resume, _environment(arguments, command))
            data.make_tokenizer(folder, show_progress)
            finish_what_was_cut_short(folder, arguments.save_steps, arguments.save_total_limit)

        first_alone(arguments, begin)
        set_seed(arguments.seed)
        tokenizer, pairs, validation = data.encode(folder, arguments)
        trainer = _make_trainer(folder, recipe, arguments, tokenizer, pairs, validation, show_progress)
        _fit(trainer, folder)
        if arguments.process_index == 0:
            keep_models(arguments, folder, recipe)
            score(folder, recipe, data.measured, show_progress)
            plot_learning_curve(folder.log_records(), folder.learning_curve)
            draw_attention(folder, recipe)
            if arguments.push_to_hub:
                publish(
                    folder.path,
                    trainer.hub_model_id,
                    private=bool(arguments.hub_private_repo),
                    revision=arguments.hub_revision,
                )
    return folder


# ------------------------------------------------------------------------------------------------------------- begin


def _open_folder(folder: RunFolder, recipe: Recipe, data: RunData, resume: bool, environment: dict) -> None:
    if folder.environment.exists():
        remove_leftovers(folder.path)
    if any(folder.checkpoints.glob("checkpoint-*")) and not resume:
        raise FileExistsError(f"{folder.path} holds a run already: add --resume to go on, or choose another folder.")
    if folder.good_checkpoints():
        _check_same_recipe(load_recipe(folder.recipe), recipe, folder.path)
        _check_same_processes(folder, environment["processes"])
        data.check_same(folder)
    else:
        _clear_failed_start(folder)
        write_json(folder.environment, environment)
    write_text(folder.recipe, recipe.to_yaml())


def _clear_failed_start(folder: RunFolder) -> None:
    """A run that ended before its first checkpoint begins anew; a folder that is no run is left alone."""
    ours = {folder.recipe, folder.environment, folder.data, folder.tokenizer, folder.checkpoints, folder.log}
    ours |= {folder.learning_curve, folder.not_finite}  # there may be an evaluation before the first checkpoint
    found = sorted(folder.path.iterdir())
    strangers = [path.name for path in found if path not in ours]
    if strangers or (found and not folder.environment.exists()):
        odd = (strangers or [path.name for path in found])[0]
        raise FileExistsError(f"{folder.path} is no run folder, it holds {odd}: choose another one.")
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _check_same_recipe(before: Recipe, now: Recipe, path: Path) -> None:
    old, new = dataclasses.asdict(before), dataclasses.asdict(now)
    for section in ("data", "tokenizer", "model", "training"):
        for name in old[section].keys() | new[section].keys():
            values = old[section].get(name), new[section].get(name)
            if values[0] != values[1] and f"{section}.{name}" not in _MAY_CHANGE:
                raise ValueError(
                    f"{path} was begun with {section}.{name} = {values[0]!r}, not {values[1]!r}: resume with the same "
                    "recipe, or choose another output folder."
                )


def _check_same_processes(folder: RunFolder, processes: int) -> None:
    before = json.loads(folder.environment.read_text(encoding="utf-8")).get("processes", 1)
    if before != processes:
        raise ValueError(
            f"{folder.path} was begun with {before} processes, not {processes}: which pairs come next depends on their "
            "number. Resume with the same, or choose another output folder."
        )


def _environment(arguments: VanillaTransformerTrainingArguments, command: str | None) -> dict:
    packages = ("vanilla-transformer", "torch", "transformers", "tokenizers", "datasets", "accelerate", "sacrebleu")
    return {
        "command": command,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "precision": "float32" if arguments.mixed_precision == "no" else arguments.mixed_precision,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


# ---------------------------------------------------------------------------------------------------------- training


def _arguments(folder: RunFolder, recipe: Recipe) -> VanillaTransformerTrainingArguments:
    # Processes wait for one that waits for its stream; after half an hour more it is gone.
    timeout = 1800 + (2 * int(recipe.data.patience) if recipe.data.stream else 0)
    defaults = {"disable_tqdm": True, "use_cpu": not torch.cuda.is_available(), "ddp_timeout": timeout}
    training = {**defaults, **recipe.training}
    begun_in = None
    if folder.good_checkpoints():
        begun_in = json.loads(folder.environment.read_text(encoding="utf-8")).get("precision")
    training = with_usable_precision(training, has_bfloat16=has_bfloat16(training["use_cpu"]), begun_in=begun_in)
    arguments = VanillaTransformerTrainingArguments(str(folder.checkpoints), **training)
    if arguments.save_strategy != "steps" or arguments.save_steps < 1 or arguments.save_steps % 1:
        raise ValueError("A run saves checkpoints every training.save_steps updates, a whole number of at least 1.")
    if arguments.push_to_hub and not arguments.hub_model_id:
        raise ValueError("training.push_to_hub needs training.hub_model_id.")
    return arguments


def _make_trainer(
    folder: RunFolder,
    recipe: Recipe,
    arguments: VanillaTransformerTrainingArguments,
    tokenizer: PreTrainedTokenizerFast,
    train_pairs: Dataset | TokenBatchStream,
    validation: Dataset,
    show_progress: bool,
) -> VanillaTransformerTrainer:
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **recipe.model)
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(config, **recipe.decoding)
    trainer = VanillaTransformerTrainer(
        model,
        arguments,
        train_dataset=train_pairs,
        eval_dataset=validation,
        processing_class=tokenizer,
        callbacks=[LogFile(folder.log), *([ProgressBar()] if show_progress and arguments.process_index == 0 else [])],
        files_to_save=(folder.recipe,),
    )
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    logger.info("Model: %s parameters. %s", f"{model.num_parameters():,}", trainer.describe_updates())
    logger.info("%s", trainer.describe_choice())
    return trainer


def _fit(trainer: VanillaTransformerTrainer, folder: RunFolder) -> None:
    """Trains from the last good checkpoint, or from the beginning, unless a session before this one has finished."""
    checkpoints, max_steps, is_main = folder.good_checkpoints(), trainer.args.max_steps, trainer.is_world_process_zero()
    if folder.finished.exists() and json.loads(folder.finished.read_text(encoding="utf-8"))["max_steps"] == max_steps:
        return
    if checkpoints and _ended(state := trainer_state(checkpoints[-1]), trainer.args):
        if is_main:
            write_json(folder.finished, {"max_steps": max_steps, "step": state["global_step"]})
        return
    if checkpoints:
        for name in ("optimizer.bin" if trainer.is_fsdp_enabled else "optimizer.pt", "scheduler.pt"):
            if not (checkpoints[-1] / name).exists():
                raise ValueError(f"{checkpoints[-1]} has no {name}: training cannot go on from it as it was.")
        logger.info("Going on from %s.", checkpoints[-1])
    if is_main:
        for stale in (folder.finished, folder.scores):  # they are of an earlier model
            stale.unlink(missing_ok=True)
    stop = StopOnRequest()
    if trainer.stream is not None and trainer.args.world_size == 1:  # alone it can save without another update
        stop.on_request = trainer.stream.pairs.stop.set  # whoever stops does not wait until a broken stream is back
    for callback in (stop, LearningCurve(folder.learning_curve)):
        trainer.add_callback(callback)
    trainer.guard.path, trainer.guard.on_stop = folder.not_finite, stop.request
    try:
        with stop.on_interrupt():
            trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    except StreamLostError as error:
        raise StreamLostError(f"{error} {_saved_as_it_is(trainer, stop, folder)}") from error
    finally:
        for bar in trainer.callback_handler.callbacks:
            if isinstance(bar, ProgressBar):
                bar.close()
    if stop.requested and trainer.state.global_step < max_steps:
        last = folder.good_checkpoints()[-1]
        raise Interrupted(f"Stopped after update {trainer.state.global_step}, saved as {last}. Go on with --resume.")
    if is_main:
        write_json(folder.finished, {"max_steps": max_steps, "step": trainer.state.global_step})


def _saved_as_it_is(trainer: VanillaTransformerTrainer, stop: StopOnRequest, folder: RunFolder) -> str:
    """Saves a checkpoint between two updates, where one process can; says where to go on from."""
    if trainer.args.world_size == 1 and trainer.state.global_step:
        stop.make_room_for_one(trainer.args)
        trainer.save_checkpoint()
    saved = folder.good_checkpoints()
    return f"Go on from {saved[-1]} with --resume." if saved else "Nothing has been trained yet."


def _ended(state: dict, args: VanillaTransformerTrainingArguments) -> bool:
    """Whether there is nothing left to train: all updates are done, or early stopping has lost its patience."""
    if args.early_stopping_patience is None or "EarlyStoppingCallback" not in state["stateful_callbacks"]:
        return state["global_step"] >= args.max_steps
    waited = state["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"]
    return state["global_step"] >= args.max_steps or waited >= args.early_stopping_patience
