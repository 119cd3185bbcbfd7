"""The arguments: the docstring's table tells the truth about every default, and nothing impossible is accepted."""

import dataclasses
import pickle
import re

import pytest
from transformers import Seq2SeqTrainingArguments

from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments as Arguments
from vanilla_transformer.training.sharding import check_sharding


NEW = {"max_tokens", "update_tokens", "noam_factor", "average_last", "early_stopping_patience", "max_skipped_updates"}
# What follows from other arguments is no default of its own.
DERIVED = {"greater_is_better", "do_eval"}


@pytest.fixture
def make(tmp_path):
    def make(**options):
        return Arguments(str(tmp_path), **{"use_cpu": True, **options})

    return make


def table():
    """The rows of the docstring's table: {argument: (value here, value in transformers)}."""
    rows = {}
    for line in Arguments.__doc__.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.strip().startswith("| `"):
            names = re.findall(r"`(\w+)`", cells[0])
            rows.update(dict.fromkeys(names, tuple(cells[1:3])))
    return rows


def written(text):
    """The value that a cell of the table stands for."""
    text = text.replace("`average_last` + 1", "6").replace(",", "")
    if text in ("None", "none", "no"):
        return None if text != "no" else "no"
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


def real(arguments, name):
    value = getattr(arguments, name)
    value = getattr(value, "value", value)  # enums
    if name == "accelerator_config":
        return f"even_batches {'on' if value.even_batches else 'off'}"
    return None if value == [] else value


def default(cls, name):
    field = next(f for f in dataclasses.fields(cls) if f.name == name)
    return field.default_factory() if field.default is dataclasses.MISSING else field.default


def test_every_changed_default_is_in_the_table(make, tmp_path):
    ours, stock = make(), Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True)
    names = [field.name for field in dataclasses.fields(stock)]
    changed = {name for name in names if real(ours, name) != real(stock, name)}
    assert changed - DERIVED - table().keys() == set()


@pytest.mark.parametrize("name", table())
def test_table_says_the_value_here(name, make):
    assert real(make(), name) == written(table()[name][0])


@pytest.mark.parametrize("name", table())
def test_table_says_the_value_of_transformers(name, tmp_path):
    # With evaluation on, because eval_steps means nothing without it.
    stock = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps")
    value = default(Seq2SeqTrainingArguments, name) if name == "eval_strategy" else real(stock, name)
    if name == "ddp_find_unused_parameters":
        assert value is None  # which the Trainer takes for True, unless it checkpoints activations
        value = True
    cell = table()[name][1]
    assert value == written(f"even_batches {cell}" if name == "accelerator_config" else cell)


def test_table_is_one_table():
    # A blank line would end it, and the rows after it would show as text.
    rows = [number for number, line in enumerate(Arguments.__doc__.splitlines()) if line.strip().startswith("|")]
    assert rows == list(range(rows[0], rows[0] + len(rows)))


def test_new_arguments_are_all_described():
    own = {f.name for f in dataclasses.fields(Arguments)} - {
        f.name for f in dataclasses.fields(Seq2SeqTrainingArguments)
    }
    assert own == NEW
    assert all(f"    {name}:" in Arguments.__doc__ for name in NEW)


def test_save_total_limit_follows_average_last(make):
    assert make(average_last=20).save_total_limit == 21
    assert make(average_last=20, save_total_limit=30).save_total_limit == 30


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"average_last": -1}, "average_last must be 0 or more, not -1"),
        ({"warmup_steps": 0}, "Noam schedule needs warmup_steps of at least 1"),
        ({"warmup_steps": 0.1}, "Noam schedule needs warmup_steps of at least 1"),
        ({"noam_factor": 0.0}, "a factor above 0"),
        ({"noam_factor": float("nan")}, "a factor above 0"),
        ({"learning_rate": 1e-3}, "learning_rate 0.001 has no effect under the Noam schedule: set noam_factor"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message, make):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_noam_schedule_multiplies_a_rate_of_1(make):
    assert make().learning_rate == 1.0


def test_without_noam_the_learning_rate_is_used(make):
    arguments = make(noam_factor=None, learning_rate=1e-3, warmup_steps=0)
    assert (arguments.learning_rate, arguments.warmup_steps) == (1e-3, 0)


def test_no_token_is_written_beside_a_checkpoint(make):
    arguments = make(hub_token="hf_secret")
    assert b"hf_secret" not in pickle.dumps(arguments)
    assert arguments.hub_token == "hf_secret"
    assert pickle.loads(pickle.dumps(arguments)) == make()


def test_arguments_can_be_made_again_from_themselves(make):
    # What __post_init__ sets must be accepted by it.
    arguments = make()
    again = dataclasses.replace(arguments)
    assert again.to_dict() == arguments.to_dict()


# -------------------------------------------------------------------------------------------------- what is "best"


@pytest.mark.parametrize(
    ("options", "metric", "greater"),
    [
        ({}, "bleu", True),
        ({"predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "loss"}, "loss", False),
        ({"metric_for_best_model": "eval_perplexity"}, "eval_perplexity", False),
        ({"metric_for_best_model": "eval_bleu"}, "eval_bleu", True),
        ({"metric_for_best_model": "eval_bleu", "predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "bleu", "greater_is_better": False}, "bleu", False),
    ],
)
def test_what_best_means(options, metric, greater, make):
    arguments = make(**options)
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == (metric, greater)


def test_fewer_checkpoints_kept_than_averaged_are_refused(make):
    with pytest.raises(ValueError, match=r"save_total_limit 3 keeps fewer checkpoints than the 5 of average_last"):
        make(average_last=5, save_total_limit=3)
    assert make(average_last=5, save_total_limit=5).save_total_limit == 5


def test_an_accelerator_setting_leaves_the_others_ours(make):
    config = make(accelerator_config={"use_seedable_sampler": False}).accelerator_config
    assert (config.even_batches, config.use_seedable_sampler) == (False, False)
    assert make(accelerator_config={"even_batches": True}).accelerator_config.even_batches


# -------------------------------------------------------------------------------------------------------- sharding


def test_one_process_has_nothing_to_shard(make):
    with pytest.raises(ValueError, match="this is one: start it with torchrun"):
        make(fsdp=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("version", 1), ("state_dict_type", "SHARDED_STATE_DICT"), ("cpu_offload", True), ("xla", True)],
)
def test_sharding_that_cannot_be_had_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"fsdp_config.{name} cannot be {value!r}, only"):
        check_sharding({name: value}, processes=2)


def test_what_transformers_makes_of_the_sharding_is_accepted(make):
    config = {"reshard_after_forward": False}
    with pytest.raises(ValueError, match="this is one"):  # which is checked first; all else was filled in
        make(fsdp="full_shard auto_wrap", fsdp_config=config)
    assert config == {"reshard_after_forward": False}
    check_sharding({"min_num_params": 0, "xla": False, "xla_fsdp_v2": False, **config}, processes=2)
