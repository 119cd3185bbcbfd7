"""A tokenizer, a model and pairs small enough to train in no time."""

import random
from types import SimpleNamespace

import pytest
from datasets import Dataset
from transformers import TrainerCallback, set_seed

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training import progress, trainer
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.training.trainer import VanillaTransformerTrainer


SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}

QUIET = {
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_steps": 1,
    "warmup_steps": 4,
    "max_tokens": 40,
    "max_steps": 3,
    "predict_with_generate": False,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
}


@pytest.fixture(scope="session")
def tokenizer():
    return learn_tokenizer(["a tiny vocabulary of tiny words"] * 3, TokenizerSettings(vocab_size=264))


@pytest.fixture(scope="session")
def make_model(tokenizer):
    """Makes a model from a seed; options are fields of its configuration."""

    def make(seed=0, **options):
        set_seed(seed)
        config = VanillaTransformerConfig(vocab_size=len(tokenizer), **{**SIZES, **options})
        model = VanillaTransformerForConditionalGeneration(config)
        model.generation_config = paper_generation_config(config, num_beams=1)
        return model

    return make


@pytest.fixture(scope="session")
def pairs():
    """20 pairs of 2 to 9 random letters each, whose ids decode to text; many lengths differ."""
    rng = random.Random(7)

    def ids():
        return [*rng.choices(range(70, 90), k=rng.randint(2, 9)), 2]

    return Dataset.from_dict({"input_ids": [ids() for _ in range(20)], "labels": [ids() for _ in range(20)]})


@pytest.fixture(scope="session")
def pairs_of_words(tokenizer):
    """20 pairs of 1 to 3 words that the tokenizer has merges for, encoded by it."""
    rng = random.Random(7)

    def ids():
        return tokenizer(" ".join(rng.choices(["tiny", "vocabulary", "of", "words"], k=rng.randint(1, 3)))).input_ids

    return Dataset.from_dict({"input_ids": [ids() for _ in range(20)], "labels": [ids() for _ in range(20)]})


@pytest.fixture
def make_trainer(tmp_path, make_model, tokenizer, pairs):
    """Makes a trainer that only trains, for three updates; options are training arguments."""

    def make(model=None, train_dataset=pairs, eval_dataset=pairs, callbacks=None, files_to_save=(), **options):
        return VanillaTransformerTrainer(
            make_model() if model is None else model,
            VanillaTransformerTrainingArguments(str(tmp_path / "checkpoints"), **{**QUIET, **options}),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            callbacks=callbacks,
            files_to_save=files_to_save,
        )

    return make


class Work(TrainerCallback):
    """Makes every update take so many seconds of the clock."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.seconds += self.seconds


@pytest.fixture
def clock(monkeypatch):
    """A clock that only a test moves on."""
    now = SimpleNamespace(seconds=1000.0)
    for module in (progress, trainer):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now
