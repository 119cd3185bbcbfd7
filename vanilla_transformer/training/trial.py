"""Tries a recipe's settings on this machine, with a tiny model and before any text is read.

transformers, torch and accelerate check models, optimizers, schedules, callbacks, precisions and decodings when they
are made. A run makes them once its text is read and its vocabulary learned, which may take hours.
"""

import copy
import logging
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from transformers import StoppingCriteria

from ..model.checks_vanilla_transformer import check_decoding
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..run.recipe import Recipe, naming_the_field
from .arguments import VanillaTransformerTrainingArguments
from .trainer import VanillaTransformerTrainer


logger = logging.getLogger(__name__)

_TINY = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1,
    "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
}  # fmt: skip
# transformers' search reserves room for as many tokens as these say.
_LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
_LONG_ENOUGH = 8


# ------------------------------------------------------------------------------------------------------------ precision


def with_usable_precision(training: Mapping, *, has_bfloat16: bool, begun_in: str | None = None) -> dict:
    """A recipe's training section without `bf16` where the device is slow at it: there float32 is far faster.

    A resumed run keeps its precision. `bf16` beside `fp16` stays, for transformers to refuse.
    """
    if not training.get("bf16") or training.get("fp16"):
        return dict(training)
    if begun_in == "float32":
        logger.info("training.bf16 is left out: the run was begun in float32.")
    elif not has_bfloat16:
        begun = ", although the run was begun in it" if begun_in == "bf16" else ""
        logger.warning("training.bf16 is left out%s: torch has no fast way to it on this device.", begun)
    else:
        return dict(training)
    return {**training, "bf16": False}


# --------------------------------------------------------------------------------------------------- model and trainer


def tried_arguments(output: str, model: Mapping[str, Any], training: Mapping[str, Any]):
    """The training arguments of a recipe's sections, once a model and a trainer could be made with them.

    ValueError names the section and field that cannot work here, and the remedy if there is one.
    """

    def small_model(fields: Mapping[str, Any]) -> VanillaTransformerForConditionalGeneration:
        fields = {**fields, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 8}
        return VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))

    def tried(fields: Mapping[str, Any]) -> VanillaTransformerTrainingArguments:
        arguments = VanillaTransformerTrainingArguments(output, **fields)
        if arguments.fsdp:  # accelerate sets it up once for a process
            return arguments
        rows = Dataset.from_dict({"input_ids": [[4, 2]], "labels": [[5, 2]]})
        with tempfile.TemporaryDirectory() as folder:
            elsewhere = copy.copy(arguments)
            elsewhere.output_dir, elsewhere.push_to_hub = folder, False
            trainer = VanillaTransformerTrainer(small_model(model), elsewhere, eval_dataset=rows)
            precision = arguments.mixed_precision
            if precision != "no" and not trainer.accelerator.native_amp:  # accelerate would continue in float32
                raise ValueError(
                    f"{precision} has no effect on the device {arguments.device.type}: leave it out, or take bf16."
                )
            trainer.create_optimizer_and_scheduler(arguments.max_steps)
            trainer.get_eval_dataloader()
        return arguments

    naming_the_field("model", model, small_model)
    return naming_the_field("training", training, tried)


# ------------------------------------------------------------------------------------------------------------- decoding


class _SoonEnough(StoppingCriteria):
    """Ends a translation after two tokens."""

    def __call__(self, input_ids: torch.LongTensor, scores, **kwargs) -> torch.BoolTensor:
        return torch.full((len(input_ids),), input_ids.shape[1] > 2, device=input_ids.device)


def try_decoding(recipe: Recipe) -> None:
    """Translates with the recipe's decoding; ValueError names the field that `generate()` refuses, if it is just one.

    The paper's own decoding needs no trial.
    """
    config = VanillaTransformerConfig(vocab_size=recipe.tokenizer.vocab_size, **_TINY)

    @torch.no_grad()
    def translate(decoding: Mapping[str, Any]) -> None:
        short = {name: min(decoding[name], _LONG_ENOUGH) for name in _LENGTHS if decoding.get(name) is not None}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = VanillaTransformerForConditionalGeneration(config).eval()
            try:
                model.generation_config = paper_generation_config(config, **{**decoding, **short})
                sources = torch.tensor([[4, 5, config.eos_token_id]])
                model.generate(sources, attention_mask=torch.ones_like(sources), stopping_criteria=[_SoonEnough()])
            except Exception as error:
                raise ValueError(f"a trial on a tiny model failed ({type(error).__name__}: {error})") from error

    if recipe.decoding:
        naming_the_field("decoding", recipe.decoding, translate)
    # Validation translates with these instead, before anything is saved.
    names = {"generation_num_beams": "num_beams", "generation_max_length": "max_length"}
    in_validation = {name: recipe.training[name] for name in names if recipe.training.get(name) is not None}

    def translate_in_validation(given: Mapping[str, Any]) -> None:
        decoding = {**recipe.decoding, **{names[name]: value for name, value in given.items()}}
        check_decoding(decoding)
        translate(decoding)

    if in_validation:
        naming_the_field("training", in_validation, translate_in_validation)
