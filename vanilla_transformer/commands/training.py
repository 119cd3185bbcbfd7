"""From a recipe to a run folder."""

import json
import logging
import shlex
import sys
from pathlib import Path

from .evaluation import scores_table
from .process import is_first_process, prepare_for_training


logger = logging.getLogger(__name__)


def train(
    recipe: str,
    *,
    output: Path | None = None,
    resume: bool = False,
    plain_process: bool = False,
    overrides: dict | None = None,
) -> None:
    """Trains a translator as a recipe says: vocabulary, training, averaging, scores, pictures.

    Any field of the recipe can be set on the command line: --training.max_steps 2000 --data.folder corpora

    On several devices: torchrun --nproc_per_node 8 -m vanilla_transformer.cli train RECIPE

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file.
        output: The run folder; runs/RECIPE if it is not given.
        resume: Go on with the run in that folder from its last complete checkpoint.
        plain_process: Leave memory allocation and matrix products as Python and torch have them by default.
    """
    from ..training.recipe import load_recipe
    from ..training.run import train as train_recipe

    if not plain_process and (done := prepare_for_training()):
        logger.info("%s", done)
    output = output or Path("runs") / Path(recipe).stem
    typed = shlex.join(["vanilla-transformer", *sys.argv[1:]])
    loaded = load_recipe(recipe, overrides)
    folder = train_recipe(loaded, output, resume=resume, show_progress=True, command=typed)
    if not is_first_process():
        return
    print(scores_table(json.loads(folder.scores.read_text(encoding="utf-8"))))
    use = "parse" if loaded.is_parser else "translate"
    print(f"\nEverything is in {folder.path}. {use.capitalize()} with it:")
    print(f'  vanilla-transformer {use} --model {folder.path} "..."')


def recipes() -> None:
    """Lists the recipes that come with the package."""
    from ..training.recipe import list_recipes

    for name, description in list_recipes().items():
        print(f"{name:<20} {description}")
