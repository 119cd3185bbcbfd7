"""What a run ends with: models to use, scores, translations, pictures."""

import dataclasses
import filecmp
import json
import logging
import shutil
from pathlib import Path

from datasets import Dataset
from tqdm import tqdm

from ..evaluation.attention import attentions
from ..evaluation.scores import score_translations
from ..files import replaced_folder, write_json, write_text
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..plots import plot_attention_maps
from ..run_folder import WEIGHTS, RunFolder, find_model, load_model
from ..translation import translate
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints
from .checkpoints import is_regular, trainer_state
from .recipe import Recipe


logger = logging.getLogger(__name__)


def keep_models(args: VanillaTransformerTrainingArguments, folder: RunFolder, recipe: Recipe) -> None:
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


def _models(folder: RunFolder) -> dict[str, Path]:
    models = {"averaged": folder.averaged, "best": folder.best, "last": folder.good_checkpoints()[-1]}
    return {name: path for name, path in models.items() if path.exists()}


def score(folder: RunFolder, recipe: Recipe, corpora: dict[str, Dataset], show_progress: bool) -> None:
    """Scores every model on every set; keeps the translations of the one that `find_model` finds."""
    scored: dict[Path, list[dict]] = {}
    folder.translations.mkdir(exist_ok=True)
    for model_name, path in _models(folder).items():
        twins = (other for other in scored if filecmp.cmp(other / WEIGHTS, path / WEIGHTS, shallow=False))
        if twin := next(twins, None):  # the best is the last, or an average of one
            scored[path] = [{**record, "model": model_name} for record in scored[twin]]
            continue
        scored[path] = []
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
            scored[path] += [{"model": model_name, **dataclasses.asdict(score)} for score in scores]
            if path == find_model(folder.path):
                _write_translations(folder.translations / f"{set_name}.jsonl", sources, references, hypotheses)
    write_json(folder.scores, [record for records in scored.values() for record in records])


def _write_translations(path: Path, sources: list[str], references: list[str], hypotheses: list[str]) -> None:
    rows = zip(sources, references, hypotheses, strict=True)
    names = ("source", "reference", "hypothesis")
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows]
    write_text(path, "".join(lines))


def draw_attention(folder: RunFolder, recipe: Recipe) -> None:
    """Draws what the model looks at while it translates the recipe's first example."""
    examples = recipe.evaluation.examples
    if examples:
        model, tokenizer = load_model(folder.path)
        found = attentions(model, tokenizer, examples[0])
        weights, target, source = found.of("cross")
        title = f"Attention on the source, layer {len(weights)} of {len(weights)}"
        plot_attention_maps(weights[-1], target, source, folder.attention, title=title)
