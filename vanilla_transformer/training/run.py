"""From a recipe to a run folder: vocabulary, training, averaging, scores, translations, pictures."""

import contextlib
import dataclasses
import json
import logging
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from ..data.corpora import corpus_fingerprint, load_corpus
from ..data.encoding import encode_corpus
from ..data.tokenizer import learn_tokenizer, load_tokenizer
from ..evaluation.attention import cross_attention
from ..evaluation.scores import score_translations
from ..files import remove_leftovers, replaced_folder, write_json, write_text, written_beside
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..plots import plot_attention, plot_learning_curve
from ..run_folder import RunFolder, find_model, load_model
from ..translation import translate
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints
from .checkpoints import finish_what_was_cut_short, is_regular, trainer_state
from .progress import LearningCurve, LogFile, ProgressBar, StopOnRequest
from .recipe import Recipe, load_recipe
from .trainer import VanillaTransformerTrainer


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

logger = logging.getLogger(__name__)

# What may change between the sessions of one run without making it another run, beside decoding and evaluation. (Where
# the text lies may change because its fingerprint may not.)
_MAY_CHANGE = {
    *(f"training.{name}" for name in ("max_steps", "average_last", "save_total_limit", "max_skipped_updates")),
    *(f"data.{name}" for name in ("folder", "train", "validation", "test")),
}


class Interrupted(Exception):  # noqa: N818  (no error: somebody asked for it)
    """Training was stopped on request; the message says where it goes on from."""


def train(recipe: Recipe, output: str | Path, *, resume: bool = False, show_progress: bool = False) -> RunFolder:
    """Trains, averages, scores and translates as the recipe says.

    Args:
        recipe: What to do.
        output: The run folder.
        resume: Go on from the last complete checkpoint of `output`; begin anew if there is none.
        show_progress: Whether to draw progress bars on the terminal.

    Returns:
        The folder, with everything in it.

    Raises:
        FileExistsError: `output` holds a run and `resume` is false, is no run folder, or another process trains in it.
        ValueError: The recipe or the data are not those that `output` was begun with, or the data are bad.
        FloatingPointError: Too many updates in a row were not finite; a checkpoint was saved.
        Interrupted: SIGINT came; a checkpoint was saved.
        OSError: A checkpoint could not be saved; those before it are whole.
    """
    folder = RunFolder(output)
    corpora = _corpora(recipe)
    with _alone_in(folder.path):
        return _train(folder, recipe, corpora, resume, show_progress)


def _train(
    folder: RunFolder, recipe: Recipe, corpora: dict[str, Dataset], resume: bool, show_progress: bool
) -> RunFolder:
    _open_folder(folder, recipe, corpora, resume)
    set_seed(recipe.training.get("seed", 42))
    tokenizer, train_pairs, validation = _prepare_data(folder, recipe, corpora, show_progress)
    trainer = _make_trainer(folder, recipe, tokenizer, train_pairs, validation, show_progress)
    _fit(trainer, folder)
    _keep_models(trainer.args, folder, recipe)
    _score(folder, recipe, corpora, show_progress)
    plot_learning_curve(folder.log_records(), folder.learning_curve)
    _draw_attention(folder, recipe)
    return folder


# ------------------------------------------------------------------------------------------------------------- begin


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second process from training in the same folder at the same time (where the system has such locks)."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(f"Another process is training in {folder}: wait, or choose another one.") from error
        yield
    finally:
        os.close(descriptor)


def _open_folder(folder: RunFolder, recipe: Recipe, corpora: dict[str, Dataset], resume: bool) -> None:
    if folder.environment.exists():
        remove_leftovers(folder.path)
    if any(folder.checkpoints.glob("checkpoint-*")) and not resume:
        raise FileExistsError(f"{folder.path} holds a run already: add --resume to go on, or choose another folder.")
    if folder.good_checkpoints():
        _check_same_recipe(load_recipe(folder.recipe), recipe, folder.path)
        _check_same_data(folder, corpora)
    else:
        _clear_failed_start(folder)
        write_json(folder.environment, _environment())
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


def _environment() -> dict:
    packages = ("vanilla-transformer", "torch", "transformers", "tokenizers", "datasets", "accelerate", "sacrebleu")
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


# -------------------------------------------------------------------------------------------------------------- data


def _corpora(recipe: Recipe) -> dict[str, Dataset]:
    """All text of a run by name, test sets too: what is wrong with them shows before training, not after it."""
    data = recipe.data
    places = {"train": data.train, "validation": data.validation, **data.test}
    languages = data.source_language, data.target_language
    return {name: load_corpus(where, *languages, folder=data.folder) for name, where in places.items()}


def _check_same_data(folder: RunFolder, corpora: dict[str, Dataset]) -> None:
    if not folder.data.exists():
        return
    before = json.loads(folder.data.read_text(encoding="utf-8"))
    for name, corpus in corpora.items():
        old, new = before.get(name, {}).get("fingerprint", ""), corpus_fingerprint(corpus)
        if old and old != new:
            raise ValueError(
                f"The {name} text is not the one that {folder.path} was begun with (fingerprint {new[:12]}…, not "
                f"{old[:12]}…): restore it, or choose another output folder."
            )


def _prepare_data(
    folder: RunFolder, recipe: Recipe, corpora: dict[str, Dataset], show_progress: bool
) -> tuple[PreTrainedTokenizerFast, Dataset, Dataset]:
    tokenizer = _tokenizer(folder, recipe, corpora["train"], show_progress)
    encoded, records = {}, {}
    for name, corpus in corpora.items():
        limits = recipe.data.limits if name == "train" else None  # nothing is left out of what is measured
        languages = recipe.data.source_language, recipe.data.target_language
        encoded[name], report = encode_corpus(corpus, tokenizer, *languages, limits)
        records[name] = {"fingerprint": corpus_fingerprint(corpus), **dataclasses.asdict(report)}
        logger.info("%s: %s", name, report)
    write_json(folder.data, records)
    return tokenizer, encoded["train"], encoded["validation"]


def _tokenizer(folder: RunFolder, recipe: Recipe, corpus: Dataset, show_progress: bool) -> PreTrainedTokenizerFast:
    if not folder.tokenizer.exists():
        texts = (text for pair in corpus["translation"] for text in pair.values())
        tokenizer = learn_tokenizer(texts, recipe.tokenizer, show_progress=show_progress)
        with written_beside(folder.tokenizer) as beside:
            tokenizer.save_pretrained(beside)
        logger.info("Learned a %s vocabulary of %s pieces.", recipe.tokenizer.kind, f"{len(tokenizer):,}")
    return load_tokenizer(folder.tokenizer)


# ---------------------------------------------------------------------------------------------------------- training


def _make_trainer(
    folder: RunFolder,
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    train_pairs: Dataset,
    validation: Dataset,
    show_progress: bool,
) -> VanillaTransformerTrainer:
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **recipe.model)
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(config, **recipe.decoding)
    defaults = {"disable_tqdm": True, "use_cpu": not torch.cuda.is_available()}
    arguments = VanillaTransformerTrainingArguments(str(folder.checkpoints), **{**defaults, **recipe.training})
    if arguments.save_strategy != "steps" or arguments.save_steps < 1 or arguments.save_steps % 1:
        raise ValueError("A run saves checkpoints every training.save_steps updates, a whole number of at least 1.")
    trainer = VanillaTransformerTrainer(
        model,
        arguments,
        train_dataset=train_pairs,
        eval_dataset=validation,
        processing_class=tokenizer,
        callbacks=[LogFile(folder.log), *([ProgressBar()] if show_progress else [])],
        files_to_save=(folder.recipe,),
    )
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    logger.info(
        "Model: %s parameters. An epoch has %s batches of %s target tokens on average, %.1f %% of their cells filled.",
        f"{model.num_parameters():,}",
        f"{len(trainer.train_batches):,}",
        f"{sum(map(len, train_pairs['labels'])) // len(trainer.train_batches):,}",
        100 * trainer.train_batches.real_share(),
    )
    return trainer


def _fit(trainer: VanillaTransformerTrainer, folder: RunFolder) -> None:
    """Trains from the last good checkpoint, or from the beginning, unless a session before this one has finished."""
    max_steps = trainer.args.max_steps
    if folder.finished.exists() and json.loads(folder.finished.read_text(encoding="utf-8"))["max_steps"] == max_steps:
        return
    folder.finished.unlink(missing_ok=True)
    finish_what_was_cut_short(folder, trainer.args.save_steps, trainer.args.save_total_limit)
    checkpoints = folder.good_checkpoints()
    if checkpoints and _ended(state := trainer_state(checkpoints[-1]), trainer.args):
        write_json(folder.finished, {"max_steps": max_steps, "step": state["global_step"]})
        return
    folder.scores.unlink(missing_ok=True)  # they are an earlier model's
    if checkpoints:
        for name in ("optimizer.pt", "scheduler.pt"):
            if not (checkpoints[-1] / name).exists():
                raise ValueError(f"{checkpoints[-1]} has no {name}: training cannot go on from it as it was.")
        logger.info("Going on from %s.", checkpoints[-1])
    stop = StopOnRequest()
    for callback in (stop, LearningCurve(folder.learning_curve)):
        trainer.add_callback(callback)
    trainer.guard.path, trainer.guard.on_stop = folder.not_finite, stop.request
    try:
        with stop.on_interrupt():
            trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    finally:
        for bar in trainer.callback_handler.callbacks:
            if isinstance(bar, ProgressBar):
                bar.close()
    if stop.requested and trainer.state.global_step < max_steps:
        last = folder.good_checkpoints()[-1]
        raise Interrupted(f"Stopped after update {trainer.state.global_step}, saved as {last}. Go on with --resume.")
    write_json(folder.finished, {"max_steps": max_steps, "step": trainer.state.global_step})


def _ended(state: dict, args: VanillaTransformerTrainingArguments) -> bool:
    """Whether there is nothing left to train: all updates are done, or early stopping has lost its patience."""
    if args.early_stopping_patience is None or "EarlyStoppingCallback" not in state["stateful_callbacks"]:
        return state["global_step"] >= args.max_steps
    waited = state["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"]
    return state["global_step"] >= args.max_steps or waited >= args.early_stopping_patience


def _keep_models(args: VanillaTransformerTrainingArguments, folder: RunFolder, recipe: Recipe) -> None:
    """Saves the best checkpoint's model and the average of the last ones, ready to use with the recipe's decoding."""
    checkpoints = folder.good_checkpoints()
    final = checkpoints[-1]
    best = folder.checkpoints / Path(trainer_state(final)["best_model_checkpoint"] or final).name
    best = best if best in checkpoints else final
    regular = [c for c in checkpoints if c == final or is_regular(trainer_state(c)["global_step"], args.save_steps)]
    last = regular[-args.average_last :] if args.average_last else []
    for sources, output in (([best], folder.best), (last, folder.averaged)):
        if not sources:
            shutil.rmtree(output, ignore_errors=True)
            continue
        with replaced_folder(output) as beside:
            average_checkpoints(sources, beside)
            config = VanillaTransformerConfig.from_pretrained(beside)
            paper_generation_config(config, **recipe.decoding).save_pretrained(beside)
            shutil.copy(folder.recipe, beside)
    logger.info("Averaged %s.", ", ".join(path.name for path in last) or "nothing")


# ------------------------------------------------------------------------------------------------------- measurement


def _models(folder: RunFolder) -> dict[str, Path]:
    models = {"averaged": folder.averaged, "best": folder.best, "last": folder.good_checkpoints()[-1]}
    return {name: path for name, path in models.items() if path.exists()}


def _score(folder: RunFolder, recipe: Recipe, corpora: dict[str, Dataset], show_progress: bool) -> None:
    """Scores every model on every set; keeps the translations of the one that `find_model` finds."""
    records = []
    folder.translations.mkdir(exist_ok=True)
    for model_name, path in _models(folder).items():
        model, tokenizer = load_model(path)
        model.generation_config = paper_generation_config(model.config, **recipe.decoding)
        for set_name in ("validation", *recipe.data.test):
            pairs = corpora[set_name]["translation"]
            sources = [pair[recipe.data.source_language] for pair in pairs]
            references = [pair[recipe.data.target_language] for pair in pairs]
            bar = tqdm(total=len(sources), unit="sentence", desc=f"{model_name}, {set_name}", disable=not show_progress)
            with bar:
                hypotheses = translate(model, tokenizer, sources, on_progress=bar.update)
            scores = score_translations(
                hypotheses,
                references,
                recipe.evaluation.metrics,
                target_language=recipe.data.target_language,
                test_set=set_name,
            )
            records += [{"model": model_name, **dataclasses.asdict(score)} for score in scores]
            if path == find_model(folder.path):
                _write_translations(folder.translations / f"{set_name}.jsonl", sources, references, hypotheses)
    write_json(folder.scores, records)


def _write_translations(path: Path, sources: list[str], references: list[str], hypotheses: list[str]) -> None:
    rows = zip(sources, references, hypotheses, strict=True)
    names = ("source", "reference", "hypothesis")
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows]
    write_text(path, "".join(lines))


def _draw_attention(folder: RunFolder, recipe: Recipe) -> None:
    examples = recipe.evaluation.examples
    if examples:
        model, tokenizer = load_model(folder.path)
        weights, source_tokens, target_tokens = cross_attention(model, tokenizer, examples[0])
        plot_attention(weights, source_tokens, target_tokens, folder.attention, title="Attention on the source")
