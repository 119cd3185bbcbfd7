"""From a recipe to a run folder."""

import functools
import json
import logging
import os
import shlex
import sys
from pathlib import Path

from .evaluate import scores_table
from .process import UsageError, is_first_process, prepare_for_training


logger = logging.getLogger(__name__)


def train(
    recipe: str,
    *,
    output: Path | None = None,
    resume: bool = False,
    minutes: float | None = None,
    search: float | None = None,
    no_phrases: bool = False,
    only_choose: bool = False,
    device: str = "auto",
    plain_process: bool = False,
    overrides: dict | None = None,
) -> None:
    """Trains a translator as a recipe says: vocabulary, training, averaging, scores, pictures.

    Any field of the recipe can be set on the command line: --training.max_steps 2000 --data.folder corpora

    On several devices: torchrun --nproc_per_node 8 -m vanilla_transformer train RECIPE

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file; with --resume also a run folder,
            whose own recipe is used. `auto` chooses one to suit the text: give --data.train, --data.source_language and
            --data.target_language.
        output: The run folder; runs/RECIPE if it is not given.
        resume: Continue the run in that folder from its last complete checkpoint.
        minutes: With `auto`: how long training may take; 15 if it is not given.
        search: With `auto`: minutes for trying other choices first, on validation pairs; by default none are tried.
        no_phrases: With `auto`: train on the pairs alone, without the phrase pairs that are found in them.
        only_choose: With `auto`: write the recipe, OUTPUT/chosen.yaml, and do not train.
        device: Where to train: cpu, cuda, mps, or auto, the best there is.
        plain_process: Leave memory allocation and matrix products as Python and torch have them by default.
    """
    from ..choosing import AUTO, choose_decoding, chosen_recipe
    from ..data.known_words import count_words, load_known_words
    from ..run.folder import RunFolder, list_recipes
    from ..run.recipe import load_recipe
    from ..sharing.publishing import publish
    from ..training.run import train as train_recipe

    if not plain_process and (done := prepare_for_training(device)):
        logger.info("%s", done)
    if (run := Path(recipe)).is_dir() and recipe not in (AUTO, *list_recipes()):
        if not resume:
            raise UsageError(f"{run} is a folder: name a recipe, or add --resume to go on with the run in it.")
        if output is not None and output.resolve() != run.resolve():
            raise UsageError(f"--resume {run} goes on in that folder: leave --output out.")
        recipe, output = run / "recipe.yaml", run
        if not recipe.is_file():
            searching = "type the command that began its search again" if RunFolder(run).search.is_dir() else ""
            raise FileNotFoundError(f"{run} is not a run folder to go on with: {searching or 'it has no recipe.yaml'}.")
    output = output or Path("runs") / Path(recipe).stem
    if recipe != AUTO and (only_choose or no_phrases or minutes is not None or search is not None):
        raise UsageError(
            "--minutes, --search, --no-phrases and --only-choose are for `train auto`; other recipes take "
            "--training.max_minutes."
        )
    commands = {"command": shlex.join(["vanilla-transformer", *sys.argv[1:]])}
    commands["command_to_resume"] = _command_to_resume(output, plain_process, device)
    if recipe == AUTO:
        again = {**commands, "command_to_resume": commands["command"], "show_progress": True, "device": device}
        trial = functools.partial(train_recipe, **again)
        minutes = 15.0 if minutes is None else minutes
        options = {"search": search, "phrases": not no_phrases, "train": trial}
        settings = chosen_recipe(output, overrides or {}, minutes, device, **options)
    else:
        settings = load_recipe(recipe, overrides)
    if only_choose:
        print(RunFolder(output).chosen.read_text(encoding="utf-8"), end="")
        return
    options = {"show_progress": True, "device": device, "publish": publish, **commands}
    folder = train_recipe(settings, output, resume=resume, **options)
    if RunFolder(output).chosen.is_file() and os.environ.get("WORLD_SIZE", "1") == "1":  # also when it is resumed
        settings, before = choose_decoding(output, settings, device), settings
        if settings.decoding != before.decoding:  # nothing is trained any more: it translates and scores
            train_recipe(settings, output, resume=True, **options)
    if not is_first_process():
        return
    print(scores_table(json.loads(folder.scores.read_text(encoding="utf-8"))))
    if (known := load_known_words(folder.tokenizer)) is not None:
        language = settings.data.source_language
        print(f"\nIts training text has {count_words(known):,} words of {language!r}; translate warns about others.")
    use = "parse" if settings.is_parser else "translate"
    to = " --to LANGUAGE" if len(settings.data.target_languages) > 1 else ""
    print(f"\nEverything is in {folder.path}. {use.capitalize()} with it:")
    print(f'  vanilla-transformer {use} --model {shlex.quote(str(folder.path))}{to} "..."')


def _command_to_resume(output: Path, plain_process: bool, device: str) -> str:
    """The command that continues the run, whatever its first command was."""
    from ..run.folder import typed_to_resume

    processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
    program = ["vanilla-transformer"]
    if processes != "1":
        program = ["torchrun", "--nproc_per_node", processes, "-m", "vanilla_transformer"]
    options = [*["--plain-process"] * plain_process, *(["--device", device] if device != "auto" else [])]
    return shlex.join([*program, "train", "--resume", typed_to_resume(output), *options])


def recipes(name: str | None = None) -> None:
    """Lists the recipes that come with the package, or prints one.

    Args:
        name: Name of the recipe to print, as YAML: a starting point for your own.
    """
    from ..run.folder import find_recipe, list_recipes

    if name is not None:
        print(find_recipe(name).read_text(encoding="utf-8"), end="")
        return
    for each, description in list_recipes().items():
        print(f"{each:<20} {description}")
    print(f"{'auto':<20} Chosen by the size of your text and the time there is: see `train --help`.")
