"""From parallel text to a small fast model: commands of ours, each with a folder of its own.

    pairs      the training and validation text as files
    clean      the training text, cleaned
    first      a model trained on it: the baseline
    reverse    a model for the other direction
    diverse    the training text's own sources and targets, translated by these two (Nguyen et al. 2020)
    back       text in the target language, translated by `reverse` (Sennrich et al. 2016)
    teacher-N  models trained on all these pairs, each with its own seed; without any translations the first is `first`
    distilled  the sources, translated by the teachers as an ensemble (Kim and Rush 2016)
    student    a model trained on these translations, in the shape that the recipe names
    export     the student for CTranslate2, in 8 bits

Each command runs in its own process, so its memory is free afterwards. Finished stages are skipped, interrupted ones
resume. At the end the models translate the validation set, and an account says what each of them gained.
"""

import dataclasses
import gzip
import json
import logging
import shutil
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from multiprocessing import get_all_start_methods
from pathlib import Path

import torch

from .cleaning.cleaning import check_libraries
from .cleaning.report import CleaningReport
from .cleaning.rules import CleaningSettings
from .cleaning.scoring import Scoring
from .command_processes import Command, run_commands
from .data.corpora import load_corpus, naming_in_errors, open_stream
from .data.mixture import MOST_COPIES, copies_of
from .data.readers import files_of, plain_or_packed
from .evaluation.scores import compare_systems, score_translations
from .files import (
    alone_in,
    read_json,
    relative_to,
    remove_leftovers,
    replaced_path,
    sha256_of,
    text_lines,
    write_json,
    write_text,
)
from .model.configuration_vanilla_transformer import VanillaTransformerConfig
from .model.generation_vanilla_transformer import paper_generation_config
from .plots.bars import plot_account
from .run.folder import MODEL_FILES, RunFolder
from .run.loading import chosen_device, find_model, load_engine
from .run.recipe import (
    Recipe,
    as_typed,
    check_known,
    differing_fields,
    dotted,
    load_recipe_with,
    naming_the_field,
    of_type,
    recipe_with,
)
from .training.run import usable_arguments
from .training.run_data import check_batches
from .translation import translate_lines
from .translation.lines import one_line
from .translation.synthetic import name_of


logger = logging.getLogger(__name__)
BACK_TRANSLATED = "<bt>"
_SETS = ("train", "validation")
# Options of the command `clean` that belong to no rule.
_MORE_OF_CLEAN = {"score_models": list[str], "keep_best": float, "min_score": float, "workers": int, "shard_pairs": int}


@dataclass(frozen=True)
class ImproveSettings:
    """The section `improve` of a recipe, which other commands skip.

    Attributes:
        clean: Options of the command `clean` by their names, say `{skip: [numbers_differ]}`, or `{}`; null for no
            cleaning.
        target_text: File of text in the target language, to be translated back; null for none.
        source_text: File of text in the source language, which the teachers translate for the student; null for none.
        pairs_weight: How often each genuine pair occurs, relative to each back-translated one.
        diversify: Whether the training text's own sources and targets are translated, too, so that the teachers read
            every pair in three versions (data diversification, arXiv:1911.01986).
        teachers: Models in the ensemble. Their seeds are the recipe's and those after it.
        teacher: Sections of the recipe with the fields in which the teachers differ: `{training: {max_steps: 25000}}`.
        student: Sections of the recipe with the fields in which the student differs: `{model: {decoder_layers: 2}}`.
        quantization: How the student's weights are exported, as for the command `export`; null for no export.
    """

    clean: dict | None = None
    target_text: str | None = None
    source_text: str | None = None
    pairs_weight: float = 1.0
    diversify: bool = False
    teachers: int = 2
    teacher: dict = field(default_factory=dict)
    student: dict = field(default_factory=dict)
    quantization: str | None = "int8"

    def __post_init__(self):
        if not self.pairs_weight > 0:
            raise ValueError(f"improve.pairs_weight must be above 0, not {self.pairs_weight}")
        if self.pairs_weight != 1 and self.target_text is None:
            raise ValueError("improve.pairs_weight is for back-translated text: give improve.target_text")
        if self.teachers < 1:
            raise ValueError(f"improve.teachers must be at least 1, not {self.teachers}")
        for name in ("teacher", "student"):
            for section, fields in getattr(self, name).items():
                if not isinstance(fields, dict) or section not in ("model", "training", "tokenizer", "decoding"):
                    raise ValueError(
                        f"improve.{name}.{section}: give the {name}'s fields by section, which is model, training, "
                        "tokenizer or decoding, as in {model: {decoder_layers: 2}}"
                    )

    @property
    def first_teaches(self) -> bool:
        """Whether the first teacher would be the same as the model `first`."""
        return self.target_text is None and not self.diversify and not self.teacher


@dataclass(frozen=True)
class Stage:
    """One command.

    Attributes:
        name: Name of its folder.
        words: The command line.
        product: A file that exists when the command is done; in JSON with a field `complete`, that must be true.
    """

    name: str
    words: Sequence[str]
    product: Path

    @property
    def done(self) -> bool:
        if not self.product.exists():
            return False
        return not self.product.name.endswith(".report.json") or read_json(self.product)["complete"]

    @property
    def log(self) -> Path:
        """Where its messages go when it runs beside another."""
        return self.product.parent.with_suffix(".log")


@dataclass(frozen=True)
class System:
    """A system to measure: the models that translate together, by one of two engines."""

    name: str
    models: Sequence[Path]
    backend: str = "torch"

    @property
    def megabytes(self) -> float:
        """Size of the files that translation reads."""
        files = [path for model in self.models for path in model.iterdir() if path.is_file()]
        if self.backend == "torch":
            files = [path for path in files if path.name in MODEL_FILES]
        return sum(path.stat().st_size for path in files) / 1e6


def improve(
    recipe: str | Path,
    output: str | Path,
    overrides: Mapping[str, str] | None = None,
    *,
    device: str = "auto",
    workers: int = 1,
) -> Path:
    """Goes through all stages and writes the account: `account.md`, `account.json` and `account.png`.

    Args:
        recipe: Name of a recipe, or a YAML file, with an `improve` section or without.
        output: Folder for all stages; a folder that was begun with the same recipe is resumed.
        overrides: As for `load_recipe`; also of the section `improve`.
        device: As for `train` and `translate`.
        workers: Models to train at the same time where none learns from another, each with its share of the threads;
            on a CPU also the processes that translate, where processes fork. With the same number, and only then, an
            interrupted chain ends with the same bits.

    Returns:
        The account, as Markdown.

    Raises:
        ValueError: The recipe is wrong, or not the one that the folder was begun with; or a stage has failed.
        FileExistsError: Another process is at work in the folder.
        ImportError: The export needs CTranslate2, which is not installed.
    """
    output = Path(output)
    plan, settings = load_recipe_with(recipe, overrides, improve=ImproveSettings)
    _check(plan, settings)
    source, target = plan.data.source_language, plan.data.target_language
    more_text = settings.diversify or settings.target_text is not None
    # Fail now if they are wrong. The student, and teachers with more text, learn from a list of corpora.
    for fields, from_list in (({}, False), (settings.teacher, more_text), (settings.student, True)):
        tried, _ = load_recipe_with(recipe, {**(overrides or {}), **as_typed(dotted(fields))}, improve=ImproveSettings)
        arguments = usable_arguments(RunFolder(output / "first"), tried, device)
        if from_list:
            check_batches(tried.data, arguments.max_tokens)
    if (last := _seed_of_teacher(plan, settings, settings.teachers - 1)) >= 2**32:
        raise ValueError(
            f"training.seed: the last of {settings.teachers} teachers would have {last}, and seeds are below 2^32: "
            "choose a lower one."
        )
    if settings.quantization is not None:  # `tried` is the student's
        from .export.ctranslate2 import check_exportable

        config = VanillaTransformerConfig(**tried.model)
        check_exportable(config, paper_generation_config(config, **tried.decoding), "The student's decoding")
    with alone_in(output):
        is_new = not (output / "plan.json").exists()
        _begin(output, plan, settings)
        try:
            _write_pairs(output / "pairs", plan, _SETS if settings.clean is None else _SETS[1:])
            if is_new and settings.clean is not None:  # `clean` reads it, and would fail too late
                with naming_in_errors("data.train"):
                    open_stream(plan.data.train, source, target, folder=plan.data.folder)
        except Exception:
            if is_new:  # a mistyped path must not bind the folder to it
                shutil.rmtree(output / "pairs", ignore_errors=True)
                for name in ("recipe.yaml", "plan.json"):  # if killed in between, `_begin` writes the first again
                    (output / name).unlink()
            raise
        stages = list(stages_of(output, plan, settings))
        seconds = _go_through(stages, output / "seconds.json", device, workers)
        return _account(output, plan, settings, seconds, device)


def _check(plan: Recipe, settings: ImproveSettings) -> None:
    """Raises ValueError or ImportError for what a later stage would reject."""
    if plan.data.mixture:
        raise ValueError("data.train: improve makes the mixture of corpora itself: give it one corpus.")
    own = plan.data.source_language, plan.data.target_language
    if "validation" not in plan.data.measured or plan.data.measured["validation"][1:] != own:
        raise ValueError("data.validation: improve measures on one set in the recipe's languages: give it one corpus.")
    if plan.data.context_sentences:
        raise ValueError(
            "data.context_sentences: improve translates sentences out of order, so without context: set 0."
        )
    if plan.initial_model is not None:  # the student has another shape, and the teachers more tokens
        raise ValueError("initial_model: improve trains all models from random weights: leave it out.")
    if settings.target_text is not None:  # fail now if the teachers' mixture would be rejected
        try:
            copies_of([settings.pairs_weight, 1.0])
        except ValueError as error:
            raise ValueError(
                f"improve.pairs_weight: {settings.pairs_weight} and 1 are not a ratio of whole numbers up to "
                f"{MOST_COPIES}: choose a rounder number, nearer to 1."
            ) from error
    if settings.quantization is not None:
        from .export.ctranslate2 import QUANTIZATIONS  # an extra: better to fail now than at the end

        if settings.quantization not in QUANTIZATIONS:
            raise ValueError(
                f"improve.quantization: choose from {', '.join(QUANTIZATIONS)}, not {settings.quantization}"
            )
    if settings.clean is not None:
        check_libraries()
        _check_cleaning(settings.clean, plan)
    source, target = plan.data.source_language, plan.data.target_language
    for name, languages in (("source_text", (source, target)), ("target_text", (target, source))):
        if (path := getattr(settings, name)) is not None:  # fail now if a stage would reject it
            with naming_in_errors(f"improve.{name}"):
                if not any(line.strip() for line in text_lines(path)):
                    raise ValueError(f"{path} has no text: every line is blank")
                name_of(Path(path), languages)


def _check_cleaning(options: dict, plan: Recipe) -> None:
    """Raises ValueError for options that the first stage would reject."""
    hints = typing.get_type_hints(CleaningSettings) | _MORE_OF_CLEAN | {"skip": list[str]}
    for name in ("source_language", "target_language"):
        del hints[name]  # the recipe's are used
    for name, value in options.items():
        check_known(name, hints, "improve.clean.")
        of_type(f"improve.clean.{name}", value, hints[name])
        if name in ("workers", "shard_pairs") and value < 1:
            raise ValueError(f"improve.clean.{name} must be at least 1, not {value}")
    try:
        Scoring.by(*(options.get(name) for name in ("score_models", "keep_best", "min_score")))
    except ValueError as error:
        raise ValueError(f"improve.clean: {error}") from error
    for model in options.get("score_models") or ():
        with naming_in_errors("improve.clean.score_models"):
            find_model(model)
    languages = {"source_language": plan.data.source_language, "target_language": plan.data.target_language}
    rules = {name: value for name, value in options.items() if name not in _MORE_OF_CLEAN}
    naming_the_field("improve.clean", languages | rules, lambda fields: CleaningSettings(**languages | fields))


def _go_through(stages: Sequence[Stage], record: Path, device: str, workers: int) -> dict[str, float]:
    """Runs the remaining stages; returns the seconds of each stage, without those of killed processes.

    The times of stages that run side by side overlap.
    """
    seconds = read_json(record, "Remove it: it only says how long each stage took.") if record.exists() else {}
    shares = workers > 1 and chosen_device(device).type == "cpu" and "fork" in get_all_start_methods()
    # Consecutive trainings do not depend on each other.
    for training, row in groupby(stages, lambda stage: stage.words[0] == "train"):
        row = list(row)
        at_once = min(workers, len(row)) if training else 1
        # A stage has the same number of threads whatever is done already, so rounding is the same after a kill.
        threads = max(1, torch.get_num_threads() // at_once)
        left = [stage for stage in row if not stage.done]
        for first in range(0, len(left), at_once):
            commands = []
            for stage in left[first : first + at_once]:
                words = list(stage.words)
                if words[0] != "export":
                    words += ["--device", device]
                if words[0] == "backtranslate" and shares:
                    words += ["--workers", str(workers)]
                log = stage.log if commands else None  # only one at a time has the terminal
                commands.append(Command(stage.name, words, threads, log))
                beside = f" (its messages go to {log})" if log else ""
                logger.info("Stage %d of %d: %s%s", stages.index(stage) + 1, len(stages), stage.name, beside)
            try:
                run_commands(commands)
            finally:
                for command in commands:
                    seconds[command.name] = seconds.get(command.name, 0.0) + command.seconds
                write_json(record, seconds)
    return seconds


def _begin(output: Path, plan: Recipe, settings: ImproveSettings) -> None:
    """Records what the folder is begun with, or checks against an earlier record."""
    path = output / "plan.json"
    # The same folder may be typed differently.
    plan = dataclasses.replace(plan, data=dataclasses.replace(plan.data, folder=str(Path(plan.data.folder).resolve())))
    now = json.loads(json.dumps({**asdict(plan), "improve": asdict(settings)}))
    remove_leftovers(output, path.name, "recipe.yaml")
    if not path.exists():
        if any(output.iterdir()):
            raise FileExistsError(f"{output} has other files: choose another folder.")
        write_json(path, now)
    try:  # an earlier version may have had fewer fields
        content = read_json(path, "Restore it, or choose another folder.")
        began, its_settings = recipe_with(content, improve=ImproveSettings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    before = json.loads(json.dumps({**asdict(began), "improve": asdict(its_settings)}))
    for name, old, new in differing_fields(before, now, before.keys() & now.keys()):
        raise ValueError(
            f"{output} was begun with {name} = {old!r}, not {new!r}: give the same again, or choose another folder."
        )
    if not (output / "recipe.yaml").is_file():  # the first call may have been killed before it was written
        write_text(output / "recipe.yaml", plan.to_yaml())


def _write_pairs(folder: Path, plan: Recipe, sets: Sequence[str]) -> None:
    """Writes both sides of the recipe's texts to files of lines.

    Raises ValueError if they are there already, and the recipe's text has changed since.
    """
    folder.mkdir(exist_ok=True)
    languages = plan.data.source_language, plan.data.target_language
    record = folder / "text.json"
    for name in sets:
        sides = [folder / f"{name}.{language}.gz" for language in languages]
        where = plan.data.measured[name][0] if name in plan.data.measured else getattr(plan.data, name)
        local = not isinstance(where, Mapping)
        digests = {str(file): sha256_of(file) for file in files_of(where, Path(plan.data.folder))} if local else {}
        known = read_json(record, f"Remove {folder}: it is written again.") if record.exists() else {}
        if all(side.exists() for side in sides):
            before = list(known.get(name, {}).values())
            if digests and before and list(digests.values()) != before:  # else the text is no longer there
                raise ValueError(
                    f"data.{name}: {', '.join(digests)} has changed since {folder.parent} was begun: restore it, or "
                    "choose another folder."
                )
            continue
        with naming_in_errors(f"data.{name}"):
            corpus = load_corpus(where, *languages, folder=plan.data.folder)
        write_json(record, {**known, name: digests})
        for side, language in zip(sides, languages, strict=True):
            with replaced_path(side) as path, gzip.GzipFile(path, "wb", mtime=0) as file:
                for pair in corpus["translation"]:
                    file.write(f"{one_line(pair[language])}\n".encode())


class _StageMaker:
    """Makes the commands of the stages of a plan.

    Attributes:
        languages: Source and target.
        texts, validation: Files of the pairs to train on and to validate on, source and target.
    """

    def __init__(self, output: Path, plan: Recipe):
        self.output, self.plan = output, plan
        self.languages = plan.data.source_language, plan.data.target_language
        self.texts, self.validation = (
            [output / "pairs" / f"{name}.{each}.gz" for each in self.languages] for name in _SETS
        )

    def in_recipe(self, path: Path) -> str:
        return relative_to(self.plan.data.folder, path)

    def cleaning(self, options: Mapping) -> Stage:
        """The stage that cleans; from now on, `texts` are the clean ones."""
        source, target = self.languages
        words = ["clean", *_corpus_words(self.plan), "--output", str(self.output / "clean")]
        for name, value in {"source_language": source, "target_language": target, **options}.items():
            if value != []:
                words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
        self.texts = [self.output / "clean" / f"clean.{each}.gz" for each in self.languages]
        return Stage("clean", words, self.output / "clean" / "report.json")

    def training(self, name: str, overrides: Mapping) -> Stage:
        publishes = bool(self.plan.training.get("push_to_hub"))
        if publishes and name != "student":  # all have the recipe's hub_model_id
            overrides = {**overrides, "training.push_to_hub": False}
            publishes = False
        overrides = {"data.folder": self.plan.data.folder, **overrides}
        words = [word for key, value in as_typed(overrides).items() for word in (f"--{key}", value)]
        run = RunFolder(self.output / name)
        words = ["train", str(self.output / "recipe.yaml"), "--output", str(run.path), "--resume", *words]
        return Stage(name, words, run.published if publishes else run.scores)

    def reverse(self) -> Stage:
        """The training of a model of the other direction."""
        source, target = self.languages
        overrides = {"data.source_language": target, "data.target_language": source, "data.test": {}}
        longest = {"source": self.plan.data.max_target_length, "target": self.plan.data.max_source_length}
        overrides |= {f"data.max_{side}_length": tokens for side, tokens in longest.items()}
        if self.plan.training.get("floors"):  # for test sets, which this model lacks
            overrides["training.floors"] = {}
        for name, files in (("train", self.texts), ("validation", self.validation)):
            overrides[f"data.{name}"] = [self.in_recipe(each) for each in files[::-1]]
        return self.training("reverse", overrides)

    def translating(
        self, name: str, models: Sequence[str], text: str, language: str, *options: str, folder: str | None = None
    ) -> tuple[Stage, list[str]]:
        """The stage, and the files that it makes in the folder of its name, or in `folder`."""
        folder = self.output / (folder or name)
        bare = name_of(Path(text), (language, *(each for each in self.languages if each != language)))
        words = ["backtranslate", "--model", *(str(self.output / model) for model in models), "--input", text]
        words += ["--output", str(folder), *options]
        files = [self.in_recipe(folder / f"{bare}.{each}.gz") for each in self.languages]
        return Stage(name, words, folder / f"{bare}.report.json"), files


def stages_of(output: Path, plan: Recipe, settings: ImproveSettings) -> Iterator[Stage]:
    """All commands in their order."""
    make = _StageMaker(output, plan)
    source, target = make.languages
    if settings.clean is not None:
        yield make.cleaning(settings.clean)
    pairs = [make.in_recipe(each) for each in make.texts]
    yield make.training("first", {"data.train": pairs})
    diverse, back = [], []
    if settings.target_text is not None or settings.diversify:
        yield make.reverse()
    if settings.diversify:
        sides = ("first", str(make.texts[0]), source, "--forward"), ("reverse", str(make.texts[1]), target)
        for model, *options in sides:
            stage, files = make.translating("diverse", [model], *options, folder=f"diverse/{model}")
            yield stage
            diverse.append({"corpus": files})
    if settings.target_text is not None:
        stage, files = make.translating("back", ["reverse"], settings.target_text, target)
        yield stage
        back.append({"corpus": files, "tag": BACK_TRANSLATED})
    learned: list = pairs
    if diverse or back:
        genuine = [{"corpus": pairs}, *diverse]
        learned = [*({**each, "weight": settings.pairs_weight} for each in genuine), *back]
    for number, name in enumerate(teachers := teachers_of(settings)):
        if name != "first":
            own = {**dotted(settings.teacher), "training.seed": _seed_of_teacher(plan, settings, number)}
            yield make.training(name, {"data.train": learned, **own})
    distilled = []
    # Folders of their own: both texts may have the same name.
    for text, folder in ((str(make.texts[0]), "distilled"), (settings.source_text, "distilled/source_text")):
        if text is None:
            continue
        stage, files = make.translating("distilled", teachers, text, source, "--forward", folder=folder)
        yield stage
        distilled.append({"corpus": files})
    yield make.training("student", {"data.train": distilled, **dotted(settings.student)})
    if settings.quantization is not None:
        words = ["export", str(output / "student"), "--output", str(output / "export")]
        yield Stage("export", [*words, "--quantization", settings.quantization], output / "export" / "model.bin")


def _seed_of_teacher(plan: Recipe, settings: ImproveSettings, number: int) -> int:
    """The random seed of a teacher, by which the teachers differ."""
    return {"training.seed": plan.training.get("seed", 42), **dotted(settings.teacher)}["training.seed"] + number


def teachers_of(settings: ImproveSettings) -> list[str]:
    """The names of the teachers' stages."""
    names = [f"teacher-{number}" for number in range(1, settings.teachers + 1)]
    return ["first", *names[1:]] if settings.first_teaches else names


def _corpus_words(plan: Recipe) -> list[str]:
    """The training text in words for `clean`, which mends text that other commands cannot read."""
    corpus = plan.data.train
    if isinstance(corpus, Mapping):
        return [json.dumps(corpus)]
    words = [corpus] if isinstance(corpus, str) else list(map(str, corpus))
    files = [plain_or_packed(Path(plan.data.folder) / word) for word in words]
    return [str(file) if file.exists() else word for file, word in zip(files, words, strict=True)]


# ------------------------------------------------------------------------------------------------------------ account


def _account(output: Path, plan: Recipe, settings: ImproveSettings, seconds: Mapping[str, float], device: str) -> Path:
    """Lets each model translate the validation set once, and writes down what each stage has gained."""
    source, target = plan.data.source_language, plan.data.target_language
    sentences, references = (list(text_lines(output / "pairs" / f"validation.{each}.gz")) for each in (source, target))
    metric, translations, rows = plan.evaluation.metrics[0], {}, []
    teachers = [output / name for name in teachers_of(settings)]
    systems = [System(name, [output / name]) for name in dict.fromkeys(("first", teachers[0].name))]
    if len(teachers) > 1:
        systems.append(System("ensemble", teachers))
    systems.append(System("student", [output / "student"]))
    if settings.quantization is not None:
        systems.append(System("export", [output / "export"], "ctranslate2"))
    for system in systems:
        measured = output / f"{system.name}.translations.json"
        if not measured.exists():
            logger.info("%s translates the validation set.", system.name)
            write_json(measured, _translate(system, sentences, device))
        found = read_json(measured, "Remove it: it is made again.")
        texts = translations[system.name] = found["translations"]
        [score] = score_translations(texts, references, [metric], target_language=target, resamples=1000)
        row = {"system": system.name, "score": score.value, "signature": score.signature}
        row["interval"] = score.confidence or 0.0  # a single pair has none
        row |= {"megabytes": system.megabytes, "sentences_per_second": len(sentences) / found["seconds"]}
        if rows:
            before = rows[-1]["system"]
            pair = {name: translations[name] for name in (before, system.name)}
            [test] = compare_systems(pair, references, [metric], target_language=target, resamples=2)
            row |= {"against": before, "difference": test.difference, "p": test.randomization_p}
        rows.append(row)
    write_json(output / "account.json", {"metric": metric, "systems": rows, "seconds": dict(seconds)})
    plot_account({row["system"]: row for row in rows}, output / "account.png", metric=metric)
    lines = list(_report(rows, metric, seconds))
    if settings.clean is not None:
        lines += ["", f"clean: {CleaningReport.load(output / 'clean' / 'report.json')}"]
    write_text(output / "account.md", "\n".join(lines) + "\n")
    return output / "account.md"


def _translate(system: System, lines: Sequence[str], device: str) -> dict:
    """The translations, and the seconds that they took."""
    if system.backend == "ctranslate2" and device == "mps":
        device = "auto"  # CTranslate2 has no such device
    model, tokenizer = load_engine(system.models, system.backend, device)
    list(translate_lines(model, tokenizer, [lines[:16]]))  # the first batches of a process are slow
    begun = time.monotonic()
    texts = [best.text for best, *_ in translate_lines(model, tokenizer, [lines])]
    return {"seconds": time.monotonic() - begun, "translations": texts}


def _report(rows: Sequence[Mapping], metric: str, seconds: Mapping[str, float]) -> Iterator[str]:
    yield f"| model | {metric}, validation | against the one above | p | sentences a second | MB |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        score = f"{row['score']:.2f} ± {row['interval']:.2f}"
        against = [f"{row['difference']:+.2f}", f"{row['p']:.4f}"] if "against" in row else ["", ""]
        numbers = [f"{row['sentences_per_second']:,.0f}", f"{row['megabytes']:.1f}"]
        yield f"| {' | '.join([row['system'], score, *against, *numbers])} |"
    yield "\n± is half of the 95 % interval by bootstrap, p that of approximate randomisation."
    yield f"The score's signature: {rows[0]['signature']}\n"
    yield "Minutes of stages side by side (--workers) overlap.\n"
    yield "| stage | minutes |"
    yield "| --- | ---: |"
    for stage, spent in seconds.items():
        yield f"| {stage} | {spent / 60:.1f} |"
