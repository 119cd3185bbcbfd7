"""The card of a model that came without the records of a run."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCardData

from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..training.recipe import load_recipe
from .card_sections import (
    CITATION,
    architecture,
    as_text,
    how_to_classify,
    how_to_use,
    is_classifier,
    languages,
    line,
    recipe_section,
)
from .parser_sections import how_to_parse


def bare_card(
    model: str | Path, *, title: str, repository: str, license: str | None = None, datasets: Sequence[str] = ()
) -> str:
    """The card of a model that came without the records of a run: it says so. A recipe may lie beside it.

    Args:
        model: The model's folder.
        title: As for `model_card`.
        repository: As for `model_card`.
        license: As for `model_card`.
        datasets: As for `model_card`.
    """
    config, title = VanillaTransformerConfig.from_pretrained(model), line(title)
    file = Path(model) / "recipe.yaml"
    recipe = load_recipe(file) if file.is_file() and not is_classifier(config) else None
    spoken = languages(recipe) if recipe else {}
    if is_classifier(config):
        task, use = "text-classification", how_to_classify(repository)
    elif recipe and recipe.is_parser:
        task, use, spoken = None, how_to_parse(repository), {"language": [recipe.data.source_language]}
    else:
        task, use = "translation", how_to_use(repository, recipe)
    metadata = ModelCardData(
        **spoken,
        license=license,
        library_name="transformers",
        pipeline_tag=task,
        tags=["vanilla_transformer"],
        datasets=list(datasets) or None,
    )
    known = "neither data nor scores are known here"
    sections = [
        f"---\n{metadata.to_yaml()}\n---",
        f"# {as_text(title)}",
        f"{architecture(config)} This folder has no records of its training: {known}"
        + (", beyond what the recipe says." if recipe else "."),
        use,
        *([recipe_section(recipe)] if recipe else []),
        f"## Citation\n\n{CITATION}",
    ]
    return "\n\n".join(sections) + "\n"
