"""Adapts a model to a domain, given pairs of that domain, and reports what it has gained and forgotten.

The training is an ordinary run that starts from the model: `OUTPUT` is its folder, and its recipe says everything. It
differs in three ways: the vocabulary grows by pieces of the new text; old text is mixed in, if given; and the chosen
checkpoint translates the new validation text best among those that have not lost more than `floor` BLEU on the old one
(Luong and Manning 2015 for continued training, Chu et al. 2017 for mixing).
"""

import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .data.context import context_settings
from .data.corpora import TextCorpus, naming_in_errors, read_corpus
from .data.growing import AUTO, check_can_grow
from .data.languages import target_languages
from .data.readers import files_of
from .evaluation.metrics import bleu_for
from .evaluation.scores import compare_systems, score_translations
from .files import json_rows, read_json, text_lines, write_json, write_text
from .model.configuration_vanilla_transformer import VanillaTransformerConfig
from .model.generation_vanilla_transformer import paper_generation_config
from .run.digests import sha256_of_model
from .run.folder import RunFolder
from .run.loading import find_model, load_its_tokenizer, load_model
from .run.recipe import DataSettings, Recipe, load_recipe, recipe_with
from .training.initial_model import GROWN_FROM, shape_of
from .training.opening import check_start
from .training.processes import others_named_in_errors
from .training.run import train, usable_arguments
from .training.run_data import RunData
from .translation import translate


logger = logging.getLogger(__name__)
OLD = "old"  # the test set that shows what the model could do before
_UPDATES = 20_000  # the constant rate is what the paper's schedule (equation 3) reaches after this many updates
_FOR_ADAPTERS = 3  # adapters get this many times that rate, because they start from zero
_LIMITS = ("max_source_length", "max_target_length", "max_length_ratio")
_KEPT = ("source_language", "target_language", "context_sentences", *_LIMITS)  # what the model can read


@dataclass(frozen=True)
class AdaptSettings:
    """Settings of `adapt` besides the fields of the recipe.

    Attributes:
        replay: Pairs to mix in, like those that the model has learned from, in any form that `load_corpus` reads; None
            for none.
        replay_weight: How often each replayed pair occurs, relative to each new pair.
        old: Validation text that shows what the model could do before. None: that of the recipe beside the model, if
            its files are here.
        floor: How much BLEU the model may lose on that; None for any.
        grow_vocabulary: Maximum number of pieces to add to the vocabulary; or `auto`.
        lora_rank: Rank of LoRA adapters; then only they and the rows of new pieces are trained. 0 for the whole model.
    """

    replay: Any = None
    replay_weight: float = 1.0
    old: Any = None
    floor: float | None = 1.0
    grow_vocabulary: int | str = AUTO
    lora_rank: int = 0

    def __post_init__(self):
        if self.floor is not None and not 0 <= self.floor <= 100:
            raise ValueError(f"floor must be from 0 to 100 BLEU, not {self.floor}")


def adapt(
    model: str | Path,
    output: str | Path,
    settings: AdaptSettings,
    overrides: Mapping[str, str],
    *,
    device: str = "auto",
    **training: Any,
) -> Path:
    """Trains the model further, in the run folder `output`, and writes `adaptation.json` and `adaptation.md` there.

    Called again with the same arguments, it continues interrupted work.

    Args:
        model: A run folder, a model's folder, or USER/NAME of the Hub.
        output: The run folder.
        settings: What to do.
        overrides: Fields of the recipe by dotted name, as they are typed: `data.train` and `data.validation` at least.
        device: As for `train`.
        **training: More arguments of `train`.

    Returns:
        The account, as Markdown.

    Raises:
        ValueError: As `train`; or the folder was begun with other settings, or no checkpoint is above the floor.
    """
    find_model(model)  # raises if there is none: `./USER/NAME` can only be a folder
    folder, model = RunFolder(output), Path(model).as_posix()  # `run/` and `./run` are `run`
    recipe = adaptation_recipe(model, settings, overrides)
    before: dict[str, list[str] | None] = {}  # the model's translations of each set, where known
    if folder.good_checkpoints() and folder.recipe.is_file():
        begun = load_recipe(folder.recipe)
        recipe = _as_begun(recipe, begun, overrides)
        if begun.description != recipe.description:
            raise ValueError(
                f"{folder.path} was begun as {begun.description!r}, not {recipe.description!r}: give the same again, "
                "or choose another output folder."
            )
        floors = dict(recipe.training.get("floors") or {})
        if OLD in (measured := begun.training.get("floors") or {}):
            floors = {OLD: measured[OLD], **floors}
    else:
        floors = dict(recipe.training.get("floors") or {})
        if OLD in recipe.data.test and OLD not in floors and settings.floor is not None:
            trial = dataclasses.replace(recipe, training={**recipe.training, "floors": {**floors, OLD: 0.0}})
            _check_start(trial, folder, device)  # before it translates, perhaps for long
            floors[OLD], before[OLD] = _floor_of(model, recipe, settings.floor, device)
    recipe = dataclasses.replace(recipe, training={**recipe.training, **({"floors": floors} if floors else {})})
    account = folder.path / "adaptation.json"
    finished = account.exists() and folder.finished.exists() and load_recipe(folder.recipe) == recipe
    # A killed process may have trained the model further without another account.
    if finished and read_json(account).get("model_sha256") == sha256_of_model(folder.path):
        return account.with_suffix(".md")
    train(recipe, folder.path, resume=True, device=device, **training)
    if os.environ.get("RANK", "0") != "0":
        return account.with_suffix(".md")  # the first of several processes writes it
    rows = list(_account(model, folder, recipe, before, device))
    tokenizer = load_its_tokenizer(folder.path)
    added = len(tokenizer) - tokenizer.init_kwargs.get(GROWN_FROM, len(tokenizer))
    write_text(account.with_suffix(".md"), "\n".join(_report(rows, model, floors, added)) + "\n")
    content = {"model": model, "settings": asdict(settings), "floors": floors, "pieces": added, "sets": rows}
    write_json(account, content | {"model_sha256": sha256_of_model(folder.path)})
    return account.with_suffix(".md")


def _check_start(recipe: Recipe, folder: RunFolder, device: str) -> None:
    """Raises the errors of training that show before it begins."""
    arguments = usable_arguments(folder, recipe, device)
    with others_named_in_errors(arguments):
        RunData.open(recipe, folder, arguments)
    if folder.path.exists():
        check_start(folder)


def adaptation_recipe(model: str, settings: AdaptSettings, overrides: Mapping[str, str]) -> Recipe:
    """The recipe of an adaptation, still without the floors: the model has to translate to find them."""
    found = find_model(model)
    _check_adaptable(model, found, settings)
    config = VanillaTransformerConfig.from_pretrained(found)
    its_recipe = load_recipe(found / "recipe.yaml") if (found / "recipe.yaml").is_file() else None
    shape, training = shape_of(config), _training(config, settings)
    content = {"model": shape, "training": training, "decoding": _decoding(found), "initial_model": model}
    content["grow_vocabulary"] = settings.grow_vocabulary
    lost = "any BLEU" if settings.floor is None else f"{float(settings.floor)} BLEU"
    content["description"] = f"{model} adapted, which may lose {lost}"  # a folder is resumed only if this matches
    if its_recipe is not None:
        content["data"] = {name: getattr(its_recipe.data, name) for name in _KEPT}
        content["evaluation"] = asdict(its_recipe.evaluation)
        known = its_recipe.training
        training |= {name: known[name] for name in ("max_tokens", "bf16") if name in known}
        if attention := its_recipe.model.get("attn_implementation"):
            shape["attn_implementation"] = attention
    else:
        content["data"] = {}
        if config.position_embedding_type == "learned":
            longest = min(DataSettings.max_source_length, config.max_position_embeddings)
            content["data"] |= {"max_source_length": longest, "max_target_length": longest}
        if (read := context_settings(load_its_tokenizer(found))).sentences:
            content["data"] |= {"context_sentences": read.sentences, "max_source_length": read.max_source_length}
    try:
        [recipe] = recipe_with(content, overrides)
    except ValueError as error:
        if not str(error).endswith("is missing"):
            raise
        raise ValueError(
            f"{error}: give the new text by --data.train and --data.validation, and for a model without a recipe its "
            "languages by --data.source_language and --data.target_language."
        ) from error
    return dataclasses.replace(recipe, data=_with_old_text(recipe.data, settings, its_recipe, found))


def _as_begun(recipe: Recipe, begun: Recipe, overrides: Mapping[str, str]) -> Recipe:
    """The recipe in the form of one that an earlier version began, where both mean the same.

    That wrote out the width of heads, kept a slash after the model's folder, and had limits of its own.
    """
    plain = {
        name: value for name, value in begun.model.items() if name in recipe.model or not name.endswith("head_dim")
    }
    of_data = {name: getattr(begun.data, name) for name in _LIMITS if f"data.{name}" not in overrides}
    if OLD in begun.data.test and OLD not in recipe.data.test:  # found in another folder: its paths are absolute
        of_data["test"] = {OLD: begun.data.test[OLD], **recipe.data.test}
    changes = {"data": dataclasses.replace(recipe.data, **of_data)}
    if plain == recipe.model:
        changes["model"] = begun.model
    if begun.initial_model is not None and Path(begun.initial_model).as_posix() == recipe.initial_model:
        changes["initial_model"] = begun.initial_model
        changes["description"] = recipe.description.replace(recipe.initial_model, begun.initial_model, 1)
    return dataclasses.replace(recipe, **changes)


def _check_adaptable(model: str, found: Path, settings: AdaptSettings) -> None:
    """Raises ValueError for a model in the folder `found` that cannot be adapted."""
    if (found / "source.spm").is_file():
        raise ValueError(
            f"{model} has a SentencePiece vocabulary, and a run needs one of ours: train it further with "
            f"`vanilla-transformer finetune --model_name_or_path {model}`, which can take adapters too (--lora_rank)."
        )
    tokenizer = load_its_tokenizer(found)
    if settings.grow_vocabulary != 0:
        check_can_grow(tokenizer.backend_tokenizer)
    if several := target_languages(tokenizer):
        raise ValueError(
            f"{model} translates into {', '.join(several)}, and adapt is for models of one target language: use "
            "`vanilla-transformer finetune`, or `train` with a recipe that has it as initial_model and corpora of at "
            "least two of these languages."
        )


def _training(config: VanillaTransformerConfig, settings: AdaptSettings) -> dict[str, Any]:
    """The section `training`."""
    rate = (config.d_model * _UPDATES) ** -0.5
    training = {
        "max_tokens": 4096, "max_steps": 10_000, "warmup_steps": 100, "eval_steps": 250, "save_steps": 250,
        "average_last": 0, "early_stopping_patience": 5, "noam_factor": None,
        "learning_rate": float(f"{rate * (_FOR_ADAPTERS if settings.lora_rank else 1):.1e}"),
        "lr_scheduler_type": "constant_with_warmup", "label_smoothing_factor": config.label_smoothing,
    }  # fmt: skip
    return training | ({"lora_rank": settings.lora_rank} if settings.lora_rank else {})


def _with_old_text(data: DataSettings, settings: AdaptSettings, its_recipe: Recipe | None, found: Path) -> DataSettings:
    """The data with the text to replay and with a test set of what the model could do before."""
    if OLD in data.test and settings.old is not None:
        raise ValueError(f"data.test.{OLD} and --old are the same set: leave one of them out.")
    if settings.replay is not None:
        new = data.train if data.mixture else [{"corpus": data.train}]
        replayed = {"corpus": settings.replay, "weight": settings.replay_weight, "vocabulary": False}
        data = dataclasses.replace(data, train=[*new, replayed])
    if (old := settings.old or _old_validation(its_recipe, found)) is not None:
        data = dataclasses.replace(data, test={OLD: old, **data.test})
    elif settings.floor is not None:
        logger.warning("Nothing says what the model forgets: give --old with validation text of what it has learned.")
    return data


def _decoding(model: Path) -> dict:
    """The decoding of a model as a recipe has it."""
    path = model / "generation_config.json"
    fields = {"num_beams": 1, **read_json(path, "Save the model again.")} if path.is_file() else {}
    return {name: value for name, value in fields.items() if not name.endswith(("_token_id", "_version"))}


def _old_validation(recipe: Recipe | None, found: Path) -> Any:
    """The validation text of a recipe, with absolute paths; None if it is missing, not one text, or another by now.

    The paths of a recipe may be relative: from the present folder they may lead to files of the same names.
    """
    if recipe is None or "validation" not in recipe.data.measured:
        return None
    (where, *languages), folder = recipe.data.measured["validation"], Path(recipe.data.folder).resolve()
    if isinstance(where, Mapping) or str(where).startswith("phrasebook:"):
        return where
    if not files_of(where, folder):
        return None
    text = str(folder / where) if isinstance(where, str) else [str(folder / part) for part in where]
    began, now = RunFolder(found).data_record().get("validation", {}).get("fingerprint"), None
    try:
        now = read_corpus(text, *languages, folder=folder, context_sentences=recipe.data.context_sentences).fingerprint
    except FileNotFoundError:  # one of two files is here
        return None
    except ValueError:  # it may be anything
        pass
    if began not in (None, now):
        logger.warning("%s is not the text that the model was validated on: it is not taken for old text.", text)
        return None
    return text


# ------------------------------------------------------------------------------------------------------------ account


def _floor_of(model: str, recipe: Recipe, floor: float, device: str) -> tuple[float, list[str] | None]:
    """The lowest BLEU allowed on the old text, and its translations (None if validation has its own beam size)."""
    corpus = _measured_corpus(recipe, OLD)
    beams = recipe.training.get("generation_num_beams")
    found = _translations(model, recipe, corpus, device, **({"num_beams": beams} if beams else {}))
    # As training compares them: a vocabulary without capitals, say, has none in its references either.
    tokenizer, language = load_its_tokenizer(find_model(model)), recipe.data.target_language
    read = tokenizer(text_target=[reference.strip() for _, reference in corpus.pairs]).input_ids
    references = tokenizer.batch_decode(read, skip_special_tokens=True)
    [score] = score_translations(found, references, [bleu_for(language)], target_language=language)
    lowest = max(0.0, score.value - floor)
    logger.info("On the old text the model has %.2f BLEU, and must keep at least %.2f.", score.value, lowest)
    return lowest, None if beams else found


def _measured_corpus(recipe: Recipe, name: str) -> TextCorpus:
    """A test or validation set, by its name in `recipe.data.measured`."""
    data = recipe.data
    with naming_in_errors(f"data.test.{name}"):
        return read_corpus(*data.measured[name], folder=data.folder, context_sentences=data.context_sentences)


def _translations(model: str, recipe: Recipe, corpus: TextCorpus, device: str, **decoding: int) -> list[str]:
    """Translates by the recipe's decoding, as the run's own models do at the end; `decoding` overrides its fields."""
    logger.info("%s translates %s lines.", model, f"{len(corpus.pairs):,}")
    loaded, tokenizer = load_model(model, device)
    loaded.generation_config = paper_generation_config(loaded.config, **{**recipe.decoding, **decoding})
    return translate(loaded, tokenizer, [source for source, _ in corpus.pairs], contexts=corpus.contexts)


def _account(
    model: str, folder: RunFolder, recipe: Recipe, before: Mapping[str, list[str] | None], device: str
) -> Iterator[dict]:
    """The gain or loss on each set, by the recipe's first metric."""
    metric = recipe.evaluation.metrics[0]
    for name, (_, _, target) in recipe.data.measured.items():
        language = {"target_language": target}
        path = folder.translations / f"{name}.jsonl"
        rows = [row for _, row in json_rows(path, text_lines(path))]
        references, after = ([row[key] for row in rows] for key in ("reference", "hypothesis"))
        earlier = before.get(name) or _translations(model, recipe, _measured_corpus(recipe, name), device)
        systems = {"before": earlier, "after": after}
        scores = {
            system: score_translations(texts, references, [metric], resamples=1000, **language)[0]
            for system, texts in systems.items()
        }
        [test] = compare_systems(systems, references, [metric], **language)
        yield {
            "set": name,
            "segments": len(rows),
            "metric": metric,
            **{system: {"score": each.value, "interval": each.confidence} for system, each in scores.items()},
            "difference": test.difference,
            "difference_interval": test.interval,
            "p": test.randomization_p,
            "signature": scores["after"].signature,
        }


def _report(rows: Sequence[Mapping], model: str, floors: Mapping[str, float], added: int) -> Iterator[str]:
    grown = f", whose vocabulary has grown by {added:,} pieces" if added else ""
    yield f"{model}{grown}, trained on.\n"
    yield f"| text | {rows[0]['metric']} before | after | difference | p |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in rows:
        name = re.sub("^validation", "new (validation)", row["set"])
        scores = [f"{row[each]['score']:.2f} ± {row[each]['interval'] or 0:.2f}" for each in ("before", "after")]
        low, high = row["difference_interval"]
        yield f"| {name} | {' | '.join(scores)} | {row['difference']:+.2f} [{low:+.2f}, {high:+.2f}] | {row['p']:.4f} |"
    yield "\n± is half of the 95 % interval by bootstrap; that of the difference is by paired bootstrap, and"
    yield f"p by approximate randomisation. The score's signature: {rows[0]['signature']}"
    for name, floor in floors.items():
        yield f"\nNo checkpoint was chosen that scored less than {floor:.2f} BLEU on `{name}`."
    if not floors:
        yield "\nNo floor was set for the old text."
