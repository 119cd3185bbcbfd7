"""From a recipe to a run folder: vocabulary, training, averaging, scores, translations, pictures."""

import contextlib
import dataclasses
import json
import logging
import os
import platform
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from ..data.corpora import corpus_fingerprint, load_corpus
from ..data.encoding import encode_corpus
from ..data.tokenizer import learn_tokenizer, load_tokenizer
from ..evaluation.attention import cross_attention
from ..evaluation.scores import score_translations
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..model.pipeline_vanilla_transformer import translate
from ..plots import plot_attention, plot_learning_curve
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints
from .folders import RunFolder, find_model, write_json, write_text, written_beside
from .progress import LogFile, ProgressBar, StopOnRequest
from .recipe import Recipe, load_recipe
from .trainer import VanillaTransformerTrainer


logger = logging.getLogger(__name__)

# What may change between the sessions of one run without making it another run.
_MAY_CHANGE = {"max_steps", "early_stopping_patience", "average_last", "save_total_limit"}


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
        FileExistsError: `output` holds something and `resume` is false.
        ValueError: The recipe or the data are not those that `output` was begun with, or the data are bad.
        Interrupted: SIGINT came; a checkpoint was saved.
    """
    folder = RunFolder(output)
    _open_folder(folder, recipe, resume)
    set_seed(recipe.training.get("seed", 42))
    tokenizer, train_pairs, validation = _prepare_data(folder, recipe, show_progress)
    trainer = _make_trainer(folder, recipe, tokenizer, train_pairs, validation, show_progress)
    _fit(trainer, folder, resume)
    _keep_models(trainer, folder)
    _score(folder, recipe)
    plot_learning_curve(_log_records(folder), folder.learning_curve)
    _draw_attention(folder, recipe)
    return folder


# ------------------------------------------------------------------------------------------------------------- begin


def _open_folder(folder: RunFolder, recipe: Recipe, resume: bool) -> None:
    if folder.path.exists() and any(folder.path.iterdir()):
        if not resume:
            raise FileExistsError(f"{folder.path} holds something already: add --resume to go on, or choose another.")
        if folder.recipe.exists():
            _check_same_recipe(load_recipe(folder.recipe), recipe, folder.path)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_text(folder.recipe, recipe.to_yaml())
    write_json(folder.environment, _environment())


def _check_same_recipe(before: Recipe, now: Recipe, path: Path) -> None:
    old, new = dataclasses.asdict(before), dataclasses.asdict(now)
    for section in ("data", "tokenizer", "model", "training"):
        for name in old[section].keys() | new[section].keys():
            values = old[section].get(name), new[section].get(name)
            if values[0] != values[1] and not (section == "training" and name in _MAY_CHANGE):
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


def _prepare_data(
    folder: RunFolder, recipe: Recipe, show_progress: bool
) -> tuple[PreTrainedTokenizerFast, Dataset, Dataset]:
    train_corpus, validation_corpus = _corpus(recipe, recipe.data.train), _corpus(recipe, recipe.data.validation)
    fingerprint = corpus_fingerprint(train_corpus)
    _check_same_data(folder, fingerprint)
    tokenizer = _tokenizer(folder, recipe, train_corpus, show_progress)
    train_pairs, report = _encode(recipe, tokenizer, train_corpus, recipe.data.limits)
    logger.info("Training pairs: %s", report)
    validation, validation_report = _encode(recipe, tokenizer, validation_corpus, None)
    write_json(
        folder.data,
        {
            "train": {"fingerprint": fingerprint, **dataclasses.asdict(report)},
            "validation": {
                "fingerprint": corpus_fingerprint(validation_corpus),
                **dataclasses.asdict(validation_report),
            },
        },
    )
    return tokenizer, train_pairs, validation


def _corpus(recipe: Recipe, where) -> Dataset:
    data = recipe.data
    return load_corpus(where, data.source_language, data.target_language, folder=data.folder)


def _encode(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, corpus: Dataset, limits):
    return encode_corpus(corpus, tokenizer, recipe.data.source_language, recipe.data.target_language, limits)


def _check_same_data(folder: RunFolder, fingerprint: str) -> None:
    if folder.data.exists():
        before = json.loads(folder.data.read_text(encoding="utf-8"))["train"]["fingerprint"]
        if before != fingerprint:
            raise ValueError(
                f"The training text is not the one that {folder.path} was begun with (fingerprint {fingerprint[:12]}…, "
                f"not {before[:12]}…): restore it, or choose another output folder."
            )


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


def _fit(trainer: VanillaTransformerTrainer, folder: RunFolder, resume: bool) -> None:
    checkpoints = folder.good_checkpoints() if resume else []
    if checkpoints:
        logger.info("Going on from %s.", checkpoints[-1])
    stop = StopOnRequest()
    trainer.add_callback(stop)
    with _on_interrupt(stop):
        trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    if stop.requested:
        last = folder.good_checkpoints()[-1]
        raise Interrupted(f"Stopped after update {trainer.state.global_step}, saved as {last}. Go on with --resume.")


@contextlib.contextmanager
def _on_interrupt(stop: StopOnRequest) -> Iterator[None]:
    """The first SIGINT asks training to stop after its update; a second one ends the process as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def request(number, frame):
        stop.requested = True
        signal.signal(signal.SIGINT, before)
        logger.warning("Stopping after this update; a checkpoint is saved. Interrupt again to stop at once.")

    signal.signal(signal.SIGINT, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _keep_models(trainer: VanillaTransformerTrainer, folder: RunFolder) -> None:
    """Saves the best checkpoint's model and the average of the last ones, both ready to use."""
    if not folder.best.exists():
        with written_beside(folder.best) as beside:
            trainer.save_model(str(beside))
            (beside / "training_args.bin").unlink(missing_ok=True)
    last = folder.good_checkpoints()[-trainer.args.average_last :] if trainer.args.average_last else []
    if last and not folder.averaged.exists():
        average_checkpoints(last, folder.averaged)
        logger.info("Averaged the last %d checkpoints.", len(last))


# ------------------------------------------------------------------------------------------------------- measurement


def _models(folder: RunFolder) -> dict[str, Path]:
    models = {"averaged": folder.averaged, "best": folder.best, "last": folder.good_checkpoints()[-1]}
    return {name: path for name, path in models.items() if path.exists()}


def _score(folder: RunFolder, recipe: Recipe) -> None:
    """Scores every model on every set; keeps the translations of the one that `find_model` finds."""
    sets = {"validation": recipe.data.validation, **recipe.data.test}
    corpora = {name: _corpus(recipe, where)["translation"] for name, where in sets.items()}
    records = []
    folder.translations.mkdir(exist_ok=True)
    for model_name, path in _models(folder).items():
        model, tokenizer = load_model(path)
        for set_name, pairs in corpora.items():
            sources = [pair[recipe.data.source_language] for pair in pairs]
            references = [pair[recipe.data.target_language] for pair in pairs]
            hypotheses = translate(model, tokenizer, sources)
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


def load_model(path: str | Path) -> tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerFast]:
    """Loads the model of a run folder or of a model's folder, on the GPU if there is one, and its tokenizer."""
    found = find_model(path)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(found)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), load_tokenizer(found)


def _write_translations(path: Path, sources: list[str], references: list[str], hypotheses: list[str]) -> None:
    rows = zip(sources, references, hypotheses, strict=True)
    names = ("source", "reference", "hypothesis")
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows]
    write_text(path, "".join(lines))


def _log_records(folder: RunFolder) -> list[dict]:
    return [json.loads(line) for line in folder.log.read_text(encoding="utf-8").splitlines()]


def _draw_attention(folder: RunFolder, recipe: Recipe) -> None:
    examples = recipe.evaluation.examples
    if examples:
        model, tokenizer = load_model(folder.path)
        weights, source_tokens, target_tokens = cross_attention(model, tokenizer, examples[0])
        plot_attention(weights, source_tokens, target_tokens, folder.attention, title="Attention on the source")
