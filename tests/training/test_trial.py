"""If this machine cannot run a recipe, an error names section and field before any text is read."""

from dataclasses import replace

import pytest
import torch

from vanilla_transformer.run.folder import list_recipes
from vanilla_transformer.run.recipe import DataSettings, EvaluationSettings, Recipe, load_recipe
from vanilla_transformer.training.run import train
from vanilla_transformer.training.trial import tried_arguments, try_decoding, with_usable_precision


REST = {"max_steps": 10, "eval_steps": 5, "save_steps": 5, "use_cpu": True}


@pytest.mark.parametrize(
    ("model", "training", "message"),
    [
        ({"attn_implementation": "telepathy"}, {}, "model.attn_implementation: .*telepathy"),
        ({}, {"report_to": "wandb"}, "training.report_to.*wandb"),
        ({}, {"report_to": ["abc"]}, "training.report_to: .*abc"),
        ({}, {"fp16": True}, "training.fp16 has no effect on the device cpu: leave it out"),
        ({}, {"bf16": True, "fp16": True}, "training.fp16: At most one of fp16 and bf16"),
        ({}, {"optim": "adam_of_mine"}, "training.optim must be one of muon, adamw_torch, .*, not 'adam_of_mine'"),
        ({}, {"max_tokens": 0, "optim": "adam_of_mine"}, r"training.max_tokens must be at least 1, not 0\."),
        ({}, {"adam_beta1": 1.5}, "training.adam_beta1: .*1.5"),
        ({}, {"seed": -1}, "training.seed must be from 0"),
        ({}, {"accelerator_config": "abc"}, "training.accelerator_config cannot be .abc. .*No such file"),
        ({}, {"accelerator_config": {"abc": 1}}, "training.accelerator_config cannot be {'abc': 1} .*abc"),
        ({}, {"dataloader_num_workers": -1}, "training.dataloader_num_workers: .*non-negative"),
        ({}, {"gradient_accumulation_steps": 0}, "training.gradient_accumulation_steps must be at least 1, not 0"),
        ({}, {"ddp_timeout": 0}, "training.ddp_timeout must be at least 1 second, not 0"),
        ({}, {"max_grad_norm": -1.0}, "training.max_grad_norm must be finite, 0 for no clipping, not -1"),
        ({}, {"noam_factor": None, "learning_rate": 1e-3, "warmup_steps": 0, "lr_scheduler_type": "polynomial",
              "lr_scheduler_kwargs": {"power_of": 3}}, "training.lr_scheduler_kwargs.*power_of"),
    ],
)  # fmt: skip
def test_unusable_setting_is_named_in_the_error(model, training, message, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.integrations.integration_utils.is_wandb_available", lambda: False)
    with pytest.raises(ValueError, match=f"^{message}"):
        tried_arguments(str(tmp_path / "run"), model, {**REST, **training})
    assert not (tmp_path / "run").exists()


def test_a_trial_leaves_nothing_behind(tmp_path):
    arguments = tried_arguments(str(tmp_path / "run"), {"d_model": 32, "encoder_layers": 100}, REST)
    assert (arguments.output_dir, arguments.max_steps) == (str(tmp_path / "run"), 10)
    assert list(tmp_path.iterdir()) == []
    assert arguments.device == torch.device("cpu")


ASKED = {"bf16": True, "max_steps": 3}
WITHOUT = {"bf16": False, "max_steps": 3}


def test_unusable_bf16_is_left_out_and_logged(caplog):
    caplog.set_level("INFO")
    no_way = "torch has no fast way to it on this device."
    for has, begun_in, expected, said in (
        (True, None, ASKED, None),
        (False, None, WITHOUT, f"training.bf16 is left out: {no_way}"),
        (True, "bf16", ASKED, None),
        (True, "float32", WITHOUT, "training.bf16 is left out: the run was begun in float32."),
        (False, "float32", WITHOUT, "training.bf16 is left out: the run was begun in float32."),
        (False, "bf16", WITHOUT, f"training.bf16 is left out, although the run was begun in it: {no_way}"),
    ):
        assert with_usable_precision(ASKED, has_bfloat16=has, begun_in=begun_in) == expected
        assert ASKED["bf16"], "the recipe stays as it was written"
        assert caplog.messages == ([] if said is None else [said])
        caplog.clear()
    for training in ({}, {"bf16": False}, {"fp16": True}, {"fp16": True, "bf16": True}):
        for has in (True, False):
            assert with_usable_precision(training, has_bfloat16=has) == training
    assert not caplog.messages


DATA = DataSettings("en", "de", ["missing.en", "missing.de"], "missing.tsv")


def recipe(**decoding) -> Recipe:
    return Recipe(DATA, decoding=decoding)


def test_missing_metric_dependency_raises_before_reading_data(tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    data = DataSettings("en", "ja", ["missing.en", "missing.ja"], "missing.tsv")
    with pytest.raises(ImportError, match=r"sacrebleu\[ja\]"):
        train(Recipe(data), tmp_path / "run")
    metrics = EvaluationSettings(metrics=["sacrebleu_char", "chrf"])
    with pytest.raises(FileNotFoundError, match="missing"):
        train(Recipe(data, evaluation=metrics), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_valid_decoding_passes_and_keeps_random_state():
    for name in list_recipes():
        try_decoding(load_recipe(name))
    for decoding in (
        {"max_new_tokens": 10**9},
        {"num_beams": 1, "max_length": 10**6, "repetition_penalty": 1.2},
        {"num_beams": 8, "length_penalty": 0, "early_stopping": True, "no_repeat_ngram_size": 3},
        {"num_beams": 1, "do_sample": True, "top_k": 5, "temperature": 0.7},
        {"length_penalty_type": "length", "max_length_offset": None, "min_new_tokens": 10**6},
        {"forced_bos_token_id": 36_000, "bad_words_ids": [[36_999]]},
        {"num_return_sequences": 2, "output_scores": True, "return_dict_in_generate": True},
    ):
        before = torch.random.get_rng_state()
        try_decoding(recipe(**decoding))
        assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bad_words_ids", [[99_999]]),
        ("bad_words_ids", "der"),
        ("suppress_tokens", ["a"]),
        ("sequence_bias", [[[5], "much"]]),
        ("exponential_decay_length_penalty", 3),
        ("max_time", "soon"),
    ],
)
def test_invalid_decoding_field_is_named_before_reading_data(field, value, tmp_path):
    wanted = recipe(num_beams=3, **{field: value})  # num_beams is fine, so it must not be blamed
    with pytest.raises(ValueError, match=rf"^decoding\.{field}: a trial on a tiny model failed \("):
        train(wanted, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_invalid_decoding_of_validation_is_named_before_reading_data(tmp_path):
    for training, decoding, name in (
        ({"generation_max_length": 1}, {}, "generation_max_length"),
        ({"generation_max_length": 0, "generation_num_beams": 2}, {}, "generation_max_length"),
        ({"generation_num_beams": 0}, {}, "generation_num_beams"),
        ({"generation_num_beams": 1}, {"num_beams": 4, "num_return_sequences": 3}, "generation_num_beams"),
    ):
        wanted = recipe(**decoding)
        with pytest.raises(ValueError, match=rf"^training\.{name}: "):
            train(replace(wanted, training={**wanted.training, **training}), tmp_path / "run")
        assert list(tmp_path.iterdir()) == []
