"""The results of a run: models to use, scores, translations, pictures."""

import contextlib
import dataclasses
import filecmp
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from tqdm import tqdm
from transformers.utils import CONFIG_NAME

from ..attention.weights import attentions
from ..data.corpora import TextCorpus
from ..data.languages import towards
from ..evaluation.metrics import METRICS
from ..evaluation.scores import score_translations
from ..files import place_beside, read_json, replaced_folder, write_json, write_text
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..plots import plot_attention_maps
from ..run.digests import DIGESTS, DamagedError, read_digests, write_digests
from ..run.folder import WEIGHTS, RunFolder
from ..run.loading import load_model
from ..run.recipe import Recipe, is_validation
from ..translation import translate
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints, copy_model, is_of_a_model
from .checkpoints import best_of, is_regular, set_aside, step_of, trainer_state
from .ema import EMA_WEIGHTS


logger = logging.getLogger(__name__)
MADE_MODEL = "model"  # the run's model is made in a folder beside this name


def keep_models(args: VanillaTransformerTrainingArguments, folder: RunFolder, recipe: Recipe) -> None:
    """Saves the run's models, ready to use with the recipe's decoding: `best`, `averaged`, and `ema` if it has one."""
    checkpoints = folder.good_checkpoints()
    final = checkpoints[-1]
    best = next((path for path in checkpoints if path.name == best_of(final)), final)
    state = trainer_state(final)
    metric, chosen_at = state["best_metric"], state.get("best_global_step")
    if args.floors and (metric is None or metric < 0):
        floors = ", ".join(f"{lowest:.2f} BLEU on {name}" for name, lowest in args.floors.items())
        raise ValueError(
            f"No checkpoint of {folder.path} is above its floors ({floors}), so there is no model: mix in more of the "
            "old text, train with a lower rate, or set lower floors, in another output folder."
        )
    if args.floors and chosen_at is not None and step_of(best) != chosen_at:  # training may have gone on without it
        raise ValueError(
            f"The checkpoint of update {chosen_at} of {folder.path}, the best above its floors, is gone or damaged: "
            "restore it, or train again in another output folder."
        )
    regular = [c for c in checkpoints if c == final or is_regular(c, args)]
    last = regular[-args.average_last :] if args.average_last else []
    ema = [final] if args.ema_decay else []
    models = (([best], folder.best, WEIGHTS), (last, folder.averaged, WEIGHTS), (ema, folder.ema, EMA_WEIGHTS))
    for sources, output, weights in models:
        others = _others_in(output)
        if not sources:  # the run no longer has such a model
            for path in output.iterdir() if output.is_dir() else ():
                if path not in others:
                    path.unlink()
            if output.is_dir() and not others:
                output.rmdir()
            continue
        with replaced_folder(output) as beside:
            average_checkpoints(sources, beside, weights=weights)
            _set_decoding(beside, recipe)
            shutil.copy(folder.recipe, beside)
            write_digests(beside)
            for path in others:
                if not (beside / path.name).exists():
                    copy = partial(shutil.copytree, symlinks=True) if path.is_dir() else shutil.copy2
                    copy(path, beside / path.name)
    logger.info("Averaged %s.", ", ".join(path.name for path in last) or "nothing")


def _set_decoding(model: Path, recipe: Recipe) -> None:
    config = VanillaTransformerConfig.from_pretrained(model)
    paper_generation_config(config, **recipe.decoding).save_pretrained(model)


def _others_in(folder: Path) -> list[Path]:
    """Files that the user has put beside a model; models of version 0.1.0 have no list of their own."""
    ours = {DIGESTS, *_listed(folder)}
    return [
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() or (path.name not in ours and (len(ours) > 1 or not is_of_a_model(path)))
    ]


def _listed(folder: Path) -> set[str]:
    """The files on a model's list; empty if it cannot be read."""
    try:
        return set((read_digests(folder) or {"files": ()})["files"])
    except DamagedError:
        return set()


def score(
    folder: RunFolder, recipe: Recipe, corpora: dict[str, TextCorpus], show_progress: bool, device="auto"
) -> None:
    """Scores every model on every set, and makes the one that is best on the validation set the model of the run.

    The recipe's first metric says which is best. The run folder becomes that model's folder and keeps its translations.
    """
    scored: dict[Path, list[dict]] = {}
    translations: dict[Path, dict[str, list[str]]] = {}
    last = folder.good_checkpoints()[-1]
    models = {"averaged": folder.averaged, "ema": folder.ema, "best": folder.best, "last": last}
    if recipe.training.get("floors") or recipe.training.get("lora_rank"):
        del models["last"]  # it may be below a floor; or it is not a model by itself
    for model_name, path in models.items():
        if not (path / WEIGHTS).exists():
            continue
        twins = (other for other in scored if filecmp.cmp(other / WEIGHTS, path / WEIGHTS, shallow=False))
        if twin := next(twins, None):  # the best is the last, or an average of one
            scored[path] = [{**record, "model": model_name} for record in scored[twin]]
            continue
        scored[path], translations[path] = [], {}
        model, tokenizer = load_model(path, device)
        model.generation_config = paper_generation_config(model.config, **recipe.decoding)
        for set_name, corpus in corpora.items():
            sources, references = map(list, zip(*corpus.pairs, strict=True))
            language = corpus.identity["languages"][1]
            to = language if corpus.tag else None
            bar = tqdm(total=len(sources), unit="sentence", desc=f"{model_name}, {set_name}", disable=not show_progress)
            with bar:
                options = {"contexts": corpus.contexts, "to": to, "on_progress": bar.update}
                hypotheses = translate(model, tokenizer, sources, **options)
            translations[path][set_name] = hypotheses
            metrics = recipe.evaluation.metrics
            scores = score_translations(hypotheses, references, metrics, target_language=language, test_set=set_name)
            scored[path] += [{"model": model_name, **dataclasses.asdict(score)} for score in scores]
    chosen = best_by_validation(scored, recipe.evaluation.metrics[0])
    remove_translations(folder)  # a set may have left the recipe
    folder.translations.mkdir(exist_ok=True)
    for set_name, hypotheses in translations[chosen].items():
        pairs, contexts = corpora[set_name].pairs, corpora[set_name].contexts
        rows = [
            {"source": source, "reference": reference, "hypothesis": hypothesis}
            for (source, reference), hypothesis in zip(pairs, hypotheses, strict=True)
        ]
        for row, context in zip(rows, contexts or (), strict=contexts is not None):
            row["context"] = context
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(folder.translations / f"{set_name}.jsonl", lines)
    _make_model_of_the_run(folder, chosen, recipe)
    records = [{**record, "chosen": path == chosen} for path, records in scored.items() for record in records]
    write_json(folder.scores, records)


def remove_translations(folder: RunFolder) -> None:
    """Removes the translations of the sets that the run's scores name; other files beside them are the user's."""
    with contextlib.suppress(ValueError, KeyError, TypeError, FileNotFoundError):  # no scores, or damaged ones
        names = {f"{record['test_set']}.jsonl" for record in read_json(folder.scores, kind=list)}
        for path in folder.translations.iterdir():  # so that no name can lead elsewhere
            if path.name in names:
                path.unlink()


def best_by_validation(scored: Mapping[Path, Sequence[Mapping]], metric: str) -> Path:
    """The model whose translations of the validation set, or sets on average, score best; the first of equals."""
    values = {
        path: fmean(r["value"] for r in records if r["metric"] == metric and is_validation(r["test_set"]))
        for path, records in scored.items()
    }
    chosen = (min if METRICS[metric].lower_is_better else max)(values, key=values.get)
    name = scored[chosen][0]["model"]
    told = ", ".join(f"{records[0]['model']} {values[path]:.2f}" for path, records in scored.items())
    logger.info("Validation %s: %s. The model of the run is `%s`.", metric, told, name)
    return chosen


def _make_model_of_the_run(folder: RunFolder, model: Path, recipe: Recipe) -> None:
    """Gives the run folder the files of one of its models, so that the run loads like any model.

    A model is known by its `config.json`: this is removed first and written last, so a kill leaves no mixture. The
    list of files is written first. A file with one of these names that was not on the list before is the user's, and
    is renamed.
    """
    config = folder.path / CONFIG_NAME
    made = place_beside(folder.path / MADE_MODEL)
    try:
        copy_model(model, made)
        _set_decoding(made, recipe)
        write_text(made / folder.recipe.name, recipe.to_yaml())  # a checkpoint's may have an earlier decoding
        write_digests(made)
        ours = _listed(folder.path)
        ours |= {DIGESTS, folder.recipe.name} if ours else {folder.recipe.name}
        for path in (folder.path / each.name for each in made.iterdir()):
            if path.exists() and path.name not in ours:
                logger.warning("%s is not the run's: it is %s now.", path, set_aside(path, f"{path.name}.kept").name)
        config.unlink(missing_ok=True)
        for path in sorted(made.iterdir(), key=lambda path: (path.name == CONFIG_NAME, path.name != DIGESTS)):
            path.replace(folder.path / path.name)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def draw_attention(folder: RunFolder, recipe: Recipe, device="auto") -> None:
    """Draws the model's attention while it translates the recipe's first example."""
    examples = recipe.evaluation.examples
    if examples:
        model, tokenizer = load_model(folder.path, device)
        several = recipe.data.target_languages if len(recipe.data.target_languages) > 1 else [None]
        found = attentions(model, towards(tokenizer, several[0]), examples[0])
        weights, target, source = found.of("cross")
        title = f"Attention on the source, layer {len(weights)} of {len(weights)}"
        plot_attention_maps(weights[-1], target, source, folder.attention, title=title)
