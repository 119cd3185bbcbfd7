"""From a recipe to a run folder: vocabulary, training, averaging, scores, translations, pictures."""

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from ..data.known_words import KNOWN_WORDS
from ..data.terms import TermLexicon
from ..environment import has_bfloat16
from ..evaluation.metrics import build_metric
from ..files import alone_in, write_json
from ..hub import StreamLostError
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..plots import plot_learning_curve
from ..run.folder import RunFolder
from ..run.loading import chosen_device
from ..run.recipe import Recipe
from .arguments import VanillaTransformerTrainingArguments
from .checkpoints import check_state, trainer_state
from .description import describe_choice, describe_needs, describe_updates
from .initial_model import GROWN_FROM, take_weights
from .low_rank import add_adapters
from .opening import make_vocabulary, open_folder
from .processes import first_alone, others_named_in_errors
from .progress import LearningCurve, LogFile, ProgressBar, StopOnRequest, is_over, write_log
from .run_data import RunData
from .run_results import draw_attention, keep_models, remove_translations, score
from .trainer import VanillaTransformerTrainer
from .trial import tried_arguments, try_decoding, with_usable_precision


logger = logging.getLogger(__name__)


class Interrupted(Exception):  # noqa: N818  (not an error: the user asked for it)
    """Training was stopped on request; the message says where to resume."""

    def __init__(self, message: str, number: int | None = None):
        super().__init__(message)
        self.exit_status = 128 + (number or signal.SIGINT)  # as shells report the signal that asked


def train(
    recipe: Recipe,
    output: str | Path,
    *,
    resume: bool = False,
    show_progress: bool = False,
    command: str | None = None,
    command_to_resume: str | None = None,
    device: str = "auto",
    publish: Callable[..., object] | None = None,
    finish: bool = True,
) -> RunFolder:
    """Trains, averages, scores and translates as the recipe says, all into the run folder `output`, which it returns.

    Args:
        recipe: What to do.
        output: The run folder.
        resume: Resume from the last complete checkpoint of `output`; start anew if none was ever saved.
        show_progress: Whether to draw progress bars on the terminal.
        command: The command line that began the run, for its card.
        command_to_resume: The command line that resumes it, for messages.
        device: Where to train, as for `chosen_device`.
        publish: Called at the end of a run with `training.push_to_hub`: `sharing.publishing.publish`, or something
            called in the same way.
        finish: Whether to average, score, translate and draw as well when training has ended.

    Raises:
        FileExistsError: `output` holds a run and `resume` is false, it is not a run folder, or another process trains
            in it.
        ValueError: The recipe or the data are not those that `output` was begun with, the data are bad, or the state
            to resume from is damaged.
        ImportError: A package that the recipe needs is missing, such as PEFT for `training.lora_rank`.
        FloatingPointError: Too many updates in a row were not finite, and a checkpoint was saved; or the final
            weights or the last validation loss are not.
        Interrupted: SIGINT or SIGTERM came; a checkpoint was saved.
        OSError: A checkpoint could not be saved, or the stream or another process is lost; the checkpoints before it
            are whole. Or a file of the run cannot be read; nothing was changed.
    """
    folder = RunFolder(output)
    how_to_go_on = f"Go on with: {command_to_resume}" if command_to_resume else "Go on with resume=True."
    arguments = usable_arguments(folder, recipe, device)
    if arguments.push_to_hub and publish is None:
        raise ValueError("training.push_to_hub needs something that publishes: give train(..., publish=...).")
    with others_named_in_errors(arguments), contextlib.ExitStack() as stack:
        data = RunData.open(recipe, folder, arguments)

        def begin() -> None:
            stack.enter_context(alone_in(folder.path))
            open_folder(folder, recipe, data, resume, arguments, command)
            make_vocabulary(folder, data, show_progress)

        first_alone(arguments, begin)
        set_seed(arguments.seed)
        trainer = _make_trainer(folder, data, arguments, show_progress)
        _fit(trainer, folder, how_to_go_on)
        if arguments.process_index == 0:
            _check_last_loss(folder)
        if arguments.process_index == 0 and finish:
            keep_models(arguments, folder, recipe)
            score(folder, recipe, data.measured, show_progress, arguments.device)
            records = folder.log_records()
            if any(each.get(name) is not None for each in records for name in ("loss", "eval_loss", "eval_bleu")):
                plot_learning_curve(records, folder.learning_curve)
            draw_attention(folder, recipe, arguments.device)
            if arguments.push_to_hub:
                private, branch = bool(arguments.hub_private_repo), arguments.hub_revision
                publish(folder.path, trainer.hub_model_id, private=private, revision=branch)
                write_json(folder.published, {"repository": trainer.hub_model_id})
    return folder


# ---------------------------------------------------------------------------------------------------------- training


def usable_arguments(folder: RunFolder, recipe: Recipe, device: str = "auto") -> VanillaTransformerTrainingArguments:
    """The arguments for training. Unusable ones raise ValueError or ImportError now, not after training."""
    # Processes wait for one that waits for its stream; after half an hour more it counts as lost.
    timeout = 1800 + (2 * int(recipe.data.patience) if recipe.data.stream else 0)
    on_cpu = {"use_cpu": chosen_device(device).type == "cpu"}
    training = {"disable_tqdm": True, "ddp_timeout": timeout, **on_cpu, **recipe.training}
    training |= on_cpu if device != "auto" else {}  # `device` overrides the recipe's `use_cpu`
    if not training["use_cpu"] and training.get("ddp_backend") in (None, "nccl"):
        _check_gpus()
    begun_in = folder.began().get("precision") if folder.good_checkpoints() else None
    training = with_usable_precision(training, has_bfloat16=has_bfloat16(training["use_cpu"]), begun_in=begun_in)
    arguments = tried_arguments(str(folder.checkpoints), recipe.model, training)
    if arguments.save_strategy != "steps" or arguments.save_steps < 1 or arguments.save_steps % 1:
        raise ValueError("A run saves checkpoints every training.save_steps updates, a whole number of at least 1.")
    if arguments.save_only_model:
        raise ValueError("training.save_only_model: no run could be resumed from such checkpoints: leave it out.")
    if arguments.push_to_hub and not arguments.hub_model_id:
        raise ValueError("training.push_to_hub needs training.hub_model_id.")
    config = VanillaTransformerConfig(**recipe.model)
    for name in ("max_source_length", "max_target_length") if config.position_embedding_type == "learned" else ():
        longest, places = getattr(recipe.data, name), config.max_position_embeddings
        if longest > places:
            raise ValueError(
                f"data.{name} lets {longest} tokens through, and the model has {places} learned positions: raise "
                "model.max_position_embeddings, or lower it."
            )
    try_decoding(recipe)
    for metric in recipe.evaluation.metrics:
        for language in dict.fromkeys(target for _, _, target in recipe.data.measured.values()):
            build_metric(metric, language)
    return arguments


def _check_gpus() -> None:
    """Raises ValueError if this process has no GPU of its own: NCCL's error is long and late."""
    gpus = torch.cuda.device_count()
    if 0 < gpus <= int(os.environ.get("LOCAL_RANK", "0")):
        raise ValueError(
            f"{os.environ.get('LOCAL_WORLD_SIZE', 'Several')} processes were started on this machine, but torch sees "
            f"only {gpus} GPU{'s' * (gpus > 1)}: start one process for each (--nproc_per_node {gpus}), or train on the "
            "CPU (--device cpu)."
        )


def _make_trainer(
    folder: RunFolder, data: RunData, arguments: VanillaTransformerTrainingArguments, show_progress: bool
) -> VanillaTransformerTrainer:
    recipe = data.recipe
    tokenizer, train_pairs, measured = data.encode(folder, arguments)
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **recipe.model)
    if config.position_embedding_type == "learned":
        _check_positions(config.max_position_embeddings, recipe, measured, tokenizer)
    model = VanillaTransformerForConditionalGeneration(config)
    if recipe.initial_model is not None and not folder.good_checkpoints():
        take_weights(model, recipe.initial_model, tokenizer)
    if arguments.lora_rank:
        add_adapters(model, arguments.lora_rank, tokenizer.init_kwargs.get(GROWN_FROM, len(tokenizer)))
    model.generation_config = paper_generation_config(config, **recipe.decoding)
    trainer = VanillaTransformerTrainer(
        model,
        arguments,
        train_dataset=train_pairs,
        eval_dataset=measured["validation"],
        floor_datasets={name: measured[name] for name in arguments.floors},
        processing_class=tokenizer,
        callbacks=[LogFile(folder.log), *([ProgressBar()] if show_progress and arguments.process_index == 0 else [])],
        files_to_save=(folder.recipe, *([words] if (words := folder.tokenizer / KNOWN_WORDS).is_file() else [])),
        run_id=folder.began().get("run"),
        limits=recipe.data.limits,
        term_lexicon=TermLexicon.load(folder.tokenizer) if recipe.term_markers else None,
        target_language=recipe.data.target_language,
    )
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    if arguments.lora_rank:
        learning = sum(each.numel() for each in model.parameters() if each.requires_grad)
        logger.info("%s parameters learn: adapters, and the rows of new pieces.", f"{learning:,}")
    logger.info("Model: %s parameters. %s", f"{model.num_parameters():,}", describe_updates(trainer))
    logger.info("%s", describe_needs(trainer))
    logger.info("%s", describe_choice(arguments, recipe.data.target_language))
    return trainer


def _check_positions(
    places: int, recipe: Recipe, measured: Mapping[str, Dataset], tokenizer: PreTrainedTokenizerFast
) -> None:
    """Raises ValueError if a text would have more tokens than there are learned positions: it may come only late."""
    remedy = "raise model.max_position_embeddings, or"
    # Test sets are only translated, and cut for that.
    for name in ("validation", *(recipe.training.get("floors") or ())):
        for number, sides in enumerate(zip(measured[name]["input_ids"], measured[name]["labels"], strict=True), 1):
            if (longest := max(map(len, sides))) > places:
                raise ValueError(
                    f"{name}: pair {number} has {longest} tokens, and the model has {places} learned positions: "
                    f"{remedy} leave the pair out."
                )
    for example in recipe.evaluation.examples[:1]:  # whose attention is drawn
        if (longest := len(tokenizer(example).input_ids)) > places:
            raise ValueError(
                f"evaluation.examples: the first has {longest} tokens, and the model has {places} learned positions: "
                f"{remedy} give a shorter one."
            )


def _fit(trainer: VanillaTransformerTrainer, folder: RunFolder, how_to_go_on: str) -> None:
    """Trains from the last good checkpoint, or from the beginning, unless a session before this one has finished."""
    checkpoints, max_steps, is_main = folder.good_checkpoints(), trainer.args.max_steps, trainer.is_world_process_zero()
    done = 0  # updates before this session
    if checkpoints and _ended(state := trainer_state(checkpoints[-1]), trainer.args):
        if is_main:
            write_json(folder.finished, {"max_steps": max_steps, "step": state["global_step"]})
            if not folder.log.exists():  # what follows reads it
                write_log(folder.log, state["log_history"])
        return
    if checkpoints:
        check_state(checkpoints[-1], trainer)
        done = state["global_step"]
        logger.info("Going on from %s.", checkpoints[-1])
    if is_main:
        remove_translations(folder)
        for stale in (folder.finished, folder.scores, folder.published):  # they are of an earlier model
            stale.unlink(missing_ok=True)
    stop = StopOnRequest()
    if trainer.stream is not None and trainer.args.world_size == 1:  # a single process can save without another update
        stop.on_request = trainer.stream.pairs.stop.set  # stopping does not wait for a broken stream to come back
    for callback in (stop, LearningCurve(folder.learning_curve)):
        trainer.add_callback(callback)
    trainer.guard.path, trainer.guard.on_stop = folder.not_finite, stop.request
    try:
        with stop.on_signal():
            trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    except UnpicklingError as error:
        raise ValueError(
            f"{checkpoints[-1]} was not saved by a run: its state holds Python objects, so it was not loaded."
        ) from error
    except StreamLostError as error:
        # Between two updates a single process can save, unless that has just been done.
        step, saved = trainer.state.global_step, folder.good_checkpoints()
        if trainer.args.world_size == 1 and step > done and f"checkpoint-{step}" not in {each.name for each in saved}:
            trainer.save_checkpoint()
            saved = folder.good_checkpoints()
        told = f"The last checkpoint is {saved[-1]}." if saved else "Nothing has been trained yet."
        raise StreamLostError(f"{error} {told} {how_to_go_on}") from error
    finally:
        for bar in trainer.callback_handler.callbacks:
            if isinstance(bar, ProgressBar):
                bar.close()
    if stop.requested and trainer.state.global_step < max_steps:
        last = folder.good_checkpoints()[-1]
        said = f"Stopped after update {trainer.state.global_step}, saved as {last}. {how_to_go_on}"
        raise Interrupted(said, stop.signal)
    if is_main:
        write_json(folder.finished, {"max_steps": max_steps, "step": trainer.state.global_step})
    if stop.signal is not None:
        raise Interrupted(f"Trained to the end, but averaged and scored nothing yet. {how_to_go_on}", stop.signal)


def _ended(state: dict, args: VanillaTransformerTrainingArguments) -> bool:
    """Whether there is nothing left to train: all updates are done, or time or patience is used up."""
    callbacks = state["stateful_callbacks"]
    budget, stopping = callbacks.get("TimeBudget"), callbacks.get("EarlyStoppingCallback")
    time_is_up = args.max_minutes is not None and budget is not None and is_over(budget, args.max_minutes)
    patience_is_up = (
        args.early_stopping_patience is not None
        and stopping is not None
        and stopping["attributes"]["early_stopping_patience_counter"] >= args.early_stopping_patience
    )
    return time_is_up or patience_is_up or state["global_step"] >= args.max_steps


def _check_last_loss(folder: RunFolder) -> None:
    """Raises FloatingPointError if the last validation loss is not finite. (Finite weights can be too large.)"""
    validations = [record for record in folder.log_records() if "eval_loss" in record]
    if validations and validations[-1]["eval_loss"] is None:
        raise FloatingPointError(
            f"The validation loss after update {validations[-1].get('step')} is not finite: the model is of no "
            "use. Train with a lower rate (training.noam_factor, or learning_rate without it)."
        )
