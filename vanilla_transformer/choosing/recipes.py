"""From text to a recipe, with a reason beside each choice."""

import hashlib
import json
import logging
import math
import os
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

import yaml

from ..data.corpora import naming_in_errors, open_stream, read_corpus
from ..data.mixture import open_mixture
from ..data.phrases import phrase_pairs
from ..data.tokenizer import with_apostrophe_letters
from ..environment import has_bfloat16
from ..files import alone_in, relative_to, replaced_folder, write_text
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run.folder import RunFolder, typed_to_resume
from ..run.loading import chosen_device, find_model
from ..run.recipe import DataSettings, Recipe, by_field, load_recipe, override, recipe_of, recipe_with
from ..training.initial_model import shape_of
from ..training.opening import check_start
from .decoding import AS_TYPED, MOST_TRIED_ON
from .rule import OF_SIZE, PHRASES, SIZES, Choice, TextFacts, choose, facts_of, measure_speeds
from .search import Search, with_changes


logger = logging.getLogger(__name__)

FEWEST_PAIRS = 200
_MOST_LOOKED_AT = 1_000_000  # pairs: of larger texts the rule need not know more
_HELD_OUT = "held out"
_ONE_IN = 20  # sources are held out, with all of their pairs
_COPIES_BESIDE_PHRASES = 2  # of each pair, for one of each phrase pair: about half of the tokens are phrases then


def chosen_recipe(
    output: Path,
    overrides: Mapping[str, str],
    minutes: float = 15.0,
    device: str = "auto",
    speeds: Mapping[int, float] | None = None,
    search: float | None = None,
    phrases: bool = True,
    train: Callable[..., object] | None = None,
) -> Recipe:
    """Chooses a recipe for the text that the overrides name, and writes it to `chosen.yaml` in the run folder `output`.

    Without `data.validation` some pairs are held out for it: one in twenty sources, 1,000 at most, with all of their
    pairs, by a hash of the source. They are written to `text/`, and so are the other pairs, which are trained on. Each
    pair is written once: repeats are mostly an accident of how text was gathered.

    If the rule says so, the phrase pairs of one corpus, read as a whole and without context, are written to `text/` as
    well, and trained on beside it.

    Earlier choices are used again once there is a checkpoint; before that, if exactly the same was asked for the same
    text. So `chosen.yaml` may be edited in between.

    Args:
        output: The run folder.
        overrides: Fields of the recipe as they are typed; at least `data.train` and both languages. Fields that they
            set are not chosen.
        minutes: The time for training.
        device: Where to train.
        speeds: As `measure_speeds` returns them; None measures.
        search: Minutes for trying changes to the choices, on 300 validation pairs at most; None for no search. Its
            files are in `search/` of the run folder, and an interrupted search resumes from there.
        phrases: Whether phrase pairs may be chosen.
        train: `training.run.train`, or a function that calls it; a search needs it.

    Raises:
        ValueError: A field is missing or invalid, there is too little text, or the folder holds a run that was chosen
            for something else.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, not {minutes}")
    if search is not None and not 0 < search < math.inf:
        raise ValueError(f"search must be above 0 minutes, not {search}")
    folder, overrides = RunFolder(output), by_field(overrides)
    of_data = {name: text for name, text in overrides.items() if name.startswith("data.")}
    rest = {name: text for name, text in overrides.items() if name not in of_data}
    options = [f"--minutes {minutes:g}", *([f"--search {search:g}"] if search else [])]
    options += [*([] if phrases else ["--no-phrases"]), *(f"--{name} {text}" for name, text in sorted(of_data.items()))]
    asked = " ".join(" ".join(["# train auto", *options]).split())
    if _was_chosen(folder, asked):
        return load_recipe(folder.chosen, rest)
    # With all overrides, so that a mistyped field shows before speeds are measured.
    typed = recipe_of({"data.validation": _HELD_OUT, **overrides})
    data = typed.data
    pairs, facts = _text_of(data)
    with alone_in(folder.path):  # so the text and the choices of a run under way stay as they are
        check_start(folder)
        logger.info("The text: %s.", facts)
        comments = [asked, f"# The text: {facts}.", f"# Digest of text and options: {_digest_of(asked, rest, pairs)}."]
        if (recipe := _chosen_before(folder, comments, pairs, data)) is not None:
            return recipe
        searching = Search(folder, _asked_of_a_search(asked, rest, pairs)) if search else None
        if searching and searching.choices:
            choices = searching.choices
        else:
            sections = {"model": typed.model, "training": typed.training, "tokenizer": vars(typed.tokenizer)}
            fields_typed = {f"{each}.{name}": value for each in sections for name, value in sections[each].items()}
            unfit, instead = _unfit(typed, rest, phrases)
            width = {each.field: each.value for each in instead if each.field == OF_SIZE[0]}
            found = _choices(facts, minutes, device, speeds, width | fields_typed)
            choices = [each for each in found if each.field not in unfit] + instead
        why = next((each.reason for each in choices if each.field == PHRASES and each.value), None)
        chosen = {each.field: json.dumps(each.value) for each in choices} | rest
        letters = yaml.safe_load(chosen["tokenizer.apostrophe_as_letter"])
        folder.chosen.unlink(missing_ok=True)  # for anything else: its texts are replaced
        texts, notes = _write_texts(pairs, data, folder, why, letters)
        defaults = {each.name: each.default for each in fields(DataSettings)} | {"test": {}}
        section = {name: value for name, value in vars(data).items() if value != defaults[name]} | texts
        if searching:
            if not searching.choices:
                searching.begin(choices, rest)
            few = section | _few_to_validate(section, data, folder)
            choices = searching.run(search, _recipes_to_try(few, choices, rest, notes), train)
            comments += ["# Tried, and the best score on validation after each round:"]
            comments += [f"#   {line}" for line in searching.report()]
        comments = "\n".join(comments)
        written = _as_yaml(section, choices, notes, rest)
        [recipe] = recipe_with(yaml.safe_load(written), {})  # raises before anything is written
        write_text(folder.chosen, f"{comments}\n{written}")
        for choice in choices:
            if choice.reason and choice.field not in rest:
                logger.info("%s: %s (%s)", choice.field, choice.value, choice.reason)
        return recipe


def _unfit(typed: Recipe, rest: Mapping[str, str], phrases: bool) -> tuple[set[str], list[Choice]]:
    """The fields that cannot be chosen beside those that are typed, and choices that take their places."""
    training, data, unfit, instead = typed.training, typed.data, set(), []
    if yaml.safe_load(rest.get("training.noam_factor", "1")) is None:  # another schedule ends in its own way
        unfit.add("training.cooldown_steps")
    if typed.initial_model is not None or training.get("fsdp") or not training.get("guided_alignment", True):
        unfit.add("training.aligned_embeddings")
    if training.get("fp16"):
        unfit.add("training.bf16")
    if training.get("floors"):
        unfit |= {"training.metric_for_best_model", "training.average_last"}
        instead.append(Choice("training.average_last", 0, "floors choose a checkpoint"))
    if not phrases or data.mixture or data.stream or data.context_sentences:
        unfit.add(PHRASES)
    if typed.initial_model is not None:
        config = VanillaTransformerConfig.from_pretrained(find_model(typed.initial_model))
        shape = {"d_model": config.d_model, **shape_of(config)}
        unfit |= {*OF_SIZE}
        instead += [
            Choice(f"model.{name}", value, "that of initial_model")
            for name, value in shape.items()
            if "drop" not in name
        ]
        unfit |= {each.field for each in instead}
    return unfit, instead


def _was_chosen(folder: RunFolder, asked: str) -> bool:
    """Whether the folder holds a run that was chosen by this command.

    Raises:
        ValueError: It was chosen for something else, or this is one of several processes and there is no run yet.
        FileExistsError: The run was not chosen.
    """
    has_run = bool(folder.checkpoint_folders())
    if has_run and folder.chosen.is_file():
        before = folder.chosen.read_text(encoding="utf-8").partition("\n")[0]
        if sorted(before.split()) == sorted(asked.split()):  # in whatever order they were typed
            return True
        command = shlex.join(["vanilla-transformer", "train", "--resume", typed_to_resume(folder.path)])
        raise ValueError(
            f"{folder.path} holds a run that was chosen for something else ({folder.chosen}): go on with it by "
            f"`{command}`, or choose another output folder."
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            "One process chooses: run `vanilla-transformer train auto ... --only-choose` first, and start the others "
            f"with {folder.chosen} for a recipe."
        )
    if has_run:
        raise FileExistsError(f"{folder.path} holds a run that was not chosen by `train auto`: choose another folder.")
    return False


def _choices(
    facts: TextFacts, minutes: float, device: str, speeds: Mapping[int, float] | None, typed: Mapping[str, Any]
) -> list[Choice]:
    bf16 = has_bfloat16(chosen_device(device).type == "cpu")
    if speeds is None:
        logger.info("Measuring the speed of this machine ...")
        seconds = min(3.0, minutes)  # for each size, at most a sixtieth of the training
        options = {"least": SIZES[256].worthwhile_from / (60 * minutes), "up_to": typed.get("model.d_model")}
        speeds = measure_speeds(device, seconds=seconds, bf16=bf16, **options)
    return choose(facts, minutes, speeds, bf16=bf16, typed=typed)


def _recipes_to_try(
    section: Mapping[str, Any], choices: Sequence[Choice], rest: Mapping[str, str], notes: Sequence[str]
) -> Callable[[Mapping[str, Any], Path], Recipe]:
    """A function that makes a recipe from changes to the choices, for a search."""
    typed = _of_candidates(rest)

    def recipe_with(changes: Mapping[str, Any], path: Path) -> Recipe:
        write_text(path, _as_yaml(section, with_changes(choices, changes), notes))
        return load_recipe(path, typed)

    return recipe_with


def _of_candidates(typed: Mapping[str, str]) -> dict[str, str]:
    """The typed fields that candidates have: a round has its own time and no end, and publishes nothing."""
    own = ("max_minutes", "cooldown_steps", "early_stopping_patience", "push_to_hub", "hub_")
    without = ("description", *(f"training.{name}" for name in own))
    return {name: text for name, text in typed.items() if not name.startswith(without)}


def _chosen_before(
    folder: RunFolder, comments: Sequence[str], pairs: Sequence[tuple[str, str]], data: DataSettings
) -> Recipe | None:
    """The recipe that the same command chose for the same text, perhaps edited since, with its texts written again.

    One for anything else is replaced in the end.
    """
    if not folder.chosen.is_file():
        return None
    if folder.chosen.read_text(encoding="utf-8").splitlines()[: len(comments)] != [*comments]:
        return None
    logger.info("The recipe in %s is used again; remove it to have another chosen.", folder.chosen)
    recipe = load_recipe(folder.chosen)
    why = "as chosen" if recipe.data.mixture and not data.mixture else None
    _write_texts(pairs, data, folder, why, recipe.tokenizer.apostrophe_as_letter)
    return recipe


def _digest_of(asked: str, rest: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> str:
    """The identity of a choice: the command with all options, in whatever order, and the text."""
    content = [sorted(asked.split()), sorted(rest.items()), [*pairs]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _asked_of_a_search(asked: str, rest: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> str:
    """The identity of a search: the command with all options typed that matter to it, and a digest of the text."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(pair).encode())
    return f"{asked} {json.dumps(_of_candidates(rest), sort_keys=True)} {digest.hexdigest()}"


def _text_of(data: DataSettings) -> tuple[list[tuple[str, str]], TextFacts]:
    """The pairs to train on, and facts about them. Raises ValueError if no recipe can be chosen for them."""
    if data.validation == _HELD_OUT and (data.mixture or data.stream):
        raise ValueError("data.validation is missing: pairs are held out only from one corpus, read as a whole.")
    if data.validation == _HELD_OUT and data.context_sentences:
        raise ValueError("data.validation is missing: holding pairs out would cut documents (data.context_sentences).")
    pairs, is_whole = _pairs_of(data)
    facts = replace(facts_of(pairs), is_whole=is_whole)
    for side, words in zip(("source", "target"), facts.words, strict=True):
        if not words:
            raise ValueError(f"data.train has no words in the {side}: every line is blank.")
    sources = len({" ".join(source.split()) for source, _ in pairs}) if data.validation == _HELD_OUT else _ONE_IN
    if sources < _ONE_IN:
        raise ValueError(
            f"data.validation is missing: one in {_ONE_IN} sources is held out, and data.train has only {sources} "
            "different ones."
        )
    if facts.distinct < FEWEST_PAIRS:
        raise ValueError(f"data.train has {facts.distinct} different pairs; at least {FEWEST_PAIRS} are needed.")
    return pairs, facts


def _pairs_of(data: DataSettings) -> tuple[list[tuple[str, str]], bool]:
    """The first pairs of `data.train`, and whether they are all."""
    where = {"folder": data.folder, "patience": data.patience}
    languages = data.source_language, data.target_language
    if isinstance(data.train, Mapping) and "prepared" in data.train:
        raise ValueError("data.train: a prepared corpus has its vocabulary already, so there is none to choose.")
    with naming_in_errors("data.train"):
        if data.mixture:
            corpus = open_mixture(data.mixture, *languages, **where)
        else:
            corpus = (open_stream if data.stream else read_corpus)(data.train, *languages, **where)
    texts = iter(corpus.texts())
    found = list(islice(texts, _MOST_LOOKED_AT))
    is_whole = next(texts, None) is None
    if data.validation == _HELD_OUT and not is_whole:
        raise ValueError(f"data.validation is missing: pairs are held out only from up to {len(found):,}.")
    return found, is_whole


def _write_texts(
    pairs: Sequence[tuple[str, str]], data: DataSettings, folder: RunFolder, why: str | None, letters: bool
) -> tuple[dict, list[str]]:
    """Writes the pairs held out and the others, if no validation set is given, and the phrase pairs to train on.

    `why` is the reason for phrase pairs, None for none; `letters` says whether apostrophes are letters of words.
    Returns the fields of `data` that say where they are, and notes on them for the recipe.
    """
    kept, held_out = _apart(pairs) if data.validation == _HELD_OUT else (pairs, [])
    whole_words = [tuple(map(with_apostrophe_letters, pair)) for pair in kept] if letters else kept
    found = phrase_pairs(whole_words) if why else []
    section: dict[str, Any] = {}
    notes: list[str] = []
    if not held_out and not found:
        return section, notes

    def written(name: str, chosen: Iterable[tuple[str, str]]) -> list[str]:
        names = [f"{name}.{language}" for language in (data.source_language, data.target_language)]
        for each, side in zip(names, zip(*chosen, strict=True), strict=True):
            write_text(beside / each, "".join(f"{' '.join(text.split())}\n" for text in side))
        return [relative_to(data.folder, folder.text / each) for each in names]

    with replaced_folder(folder.text) as beside:
        beside.mkdir(parents=True)
        if held_out:
            section = {"train": written("train", kept), "validation": written("validation", held_out)}
            notes += ["Validation pairs: one in twenty sources, by a hash; the others are trained on, each pair once."]
        if found:
            whole = {"corpus": section.get("train", data.train), "weight": _COPIES_BESIDE_PHRASES}
            section["train"] = [whole, {"corpus": written("phrases", found), "vocabulary": False}]
            notes += [f"{len(found):,} phrase pairs, short pieces of the pairs ({why})."]
    return section, notes


def _apart(pairs: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The pairs to train on, each once, and those held out. Texts are in NFC, as the tokenizer reads them."""
    pairs = list(dict.fromkeys(tuple(normalize("NFC", " ".join(text.split())) for text in pair) for pair in pairs))
    digests = [hashlib.sha256(source.encode()).digest() for source, _ in pairs]
    different = sorted(set(digests))
    bar = different[min(1000, len(different) // _ONE_IN)]
    found: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for pair, digest in zip(pairs, digests, strict=True):
        found[digest < bar].append(pair)
    return found


def _few_to_validate(section: Mapping[str, Any], data: DataSettings, folder: RunFolder) -> dict:
    """Writes some of the validation pairs, if one corpus of more is given; returns the field of `data` for them."""
    where, languages = section["validation"], (data.source_language, data.target_language)
    if "validation" not in data.measured or isinstance(where, Mapping) or data.context_sentences:
        return {}
    pairs = list(read_corpus(where, *languages, folder=data.folder).texts())
    if len(pairs) <= MOST_TRIED_ON:
        return {}
    places = [number * len(pairs) // MOST_TRIED_ON for number in range(MOST_TRIED_ON)]
    names = []
    for side, language in enumerate(languages):
        path = folder.search / f"validation.{language}"
        write_text(path, "".join(f"{' '.join(pairs[place][side].split())}\n" for place in places))
        names.append(relative_to(data.folder, path))
    return {"validation": names}


def _as_yaml(
    data: Mapping[str, Any], choices: Sequence[Choice], notes: Sequence[str], typed: Mapping[str, str] | None = None
) -> str:
    """A recipe with notes above its data, and a comment above each choice. `typed` fields take the place of choices."""
    content, reasons = {}, {}
    for choice in choices:
        if choice.field == PHRASES:
            continue
        section, _, name = choice.field.partition(".")
        content.setdefault(section, {})[name] = choice.value
        reasons[section, name] = choice.reason
    for field, text in (typed or {}).items():
        override(content, field, text)
        reasons[tuple(field.split(".")[:2])] = AS_TYPED
    description = content.pop("description", "Chosen by the size of its text.")
    lines = [yaml.safe_dump({"description": description}).strip()]
    lines += [f"# {note}" for note in notes]
    lines += [yaml.safe_dump({"data": dict(data)}, sort_keys=False, allow_unicode=True, width=120).rstrip()]
    for section, fields_of_it in content.items():
        if not isinstance(fields_of_it, dict):  # `initial_model`, say, is in no section
            lines += [f"# {AS_TYPED}", _field_as_yaml(section, fields_of_it)]
            continue
        lines += [f"{section}:"]
        for name, value in fields_of_it.items():
            reason = textwrap.wrap(reasons.get((section, name), ""), 110, initial_indent="# ", subsequent_indent="# ")
            lines += [textwrap.indent("\n".join([*reason, _field_as_yaml(name, value)]), "  ")]
    return "\n".join(lines) + "\n"


def _field_as_yaml(name: str, value: Any) -> str:
    return f"{name}: {json.dumps(value, ensure_ascii=False)}"
