"""The docstring's table gives the right defaults, invalid arguments are rejected, and rates follow equation 3."""

import dataclasses
import math
import pickle
import re

import pytest
import torch
from transformers import Seq2SeqTrainingArguments, get_wsd_schedule

from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments as Arguments
from vanilla_transformer.training.arguments import check_sharding, cooldown, create_noam_scheduler, noam, rate_factors


NEW = {
    "max_minutes",
    "max_tokens", "update_tokens", "noam_factor", "cooldown_steps", "average_last", "ema_decay",
    "early_stopping_patience", "max_skipped_updates", "augmentation", "bpe_dropout", "r_drop_alpha",
    "r_drop_start", "guided_alignment", "aligned_embeddings", "floors", "lora_rank",
}  # fmt: skip
_COOLDOWN = "cooldown_steps must be a share of the run from 0 to below 1, or a whole number of updates up to the "
# Derived from other arguments, so they have no default of their own.
DERIVED = {"greater_is_better", "do_eval"}


def test_processes_cannot_act_at_the_end_of_an_epoch(make, monkeypatch):
    monkeypatch.setattr(Arguments, "world_size", 2)
    for name in ("eval_strategy", "logging_strategy"):
        with pytest.raises(ValueError, match="cannot be epoch with several processes"):
            make(**{name: "epoch"}, load_best_model_at_end=False)


def test_a_process_has_one_gpu_at_most(make):
    arguments = make()
    assert arguments.n_gpu == 0
    arguments._n_gpu = 4  # as transformers counts those of the machine
    assert arguments.n_gpu == 1


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


def test_docstring_table_matches_our_defaults(make, tmp_path):
    ours, stock = make(), Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True)
    for name, (here, _) in table().items():
        assert real(ours, name) == written(here), name
    changed = {field.name for field in dataclasses.fields(stock) if real(ours, field.name) != real(stock, field.name)}
    assert changed <= DERIVED | table().keys()


def test_docstring_table_matches_transformers_defaults(tmp_path):
    # With evaluation on, because eval_steps means nothing without it.
    stock = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps")
    for name, (_, cell) in table().items():
        value = default(Seq2SeqTrainingArguments, name) if name == "eval_strategy" else real(stock, name)
        if name == "ddp_find_unused_parameters":
            assert value is None  # which the Trainer takes for True, unless it checkpoints activations
            value = True
        assert value == written(f"even_batches {cell}" if name == "accelerator_config" else cell), name


def test_docstring_has_one_table_and_describes_new_arguments():
    # A blank line would end the table, and the rows after it would be shown as text.
    rows = [number for number, line in enumerate(Arguments.__doc__.splitlines()) if line.strip().startswith("|")]
    assert rows == list(range(rows[0], rows[0] + len(rows)))
    ours, stock = ({f.name for f in dataclasses.fields(kind)} for kind in (Arguments, Seq2SeqTrainingArguments))
    assert ours - stock == NEW
    assert all(f"    {name}:" in Arguments.__doc__ for name in NEW)


def test_invalid_arguments_are_rejected(make):
    for options, message in (
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"data_seed": -1}, "data_seed must be from 0 to 4294967295, not -1"),
        ({"seed": 2**32}, "seed must be from 0 to 4294967295, not 4294967296"),
        ({"average_last": -1}, "average_last must be 0 or more, not -1"),
        ({"warmup_steps": 0}, "Noam schedule needs warmup_steps of at least 1"),
        ({"warmup_steps": 0.1}, "Noam schedule needs warmup_steps of at least 1"),
        ({"noam_factor": 0.0}, "a factor above 0"),
        ({"noam_factor": float("nan")}, "a factor above 0"),
        ({"learning_rate": 1e-3}, "learning_rate 0.001 has no effect under the Noam schedule: set noam_factor"),
        ({"average_last": 5, "save_total_limit": 3}, "save_total_limit 3 keeps fewer checkpoints than the 5 of aver"),
        ({"early_stopping_patience": 0}, "early_stopping_patience must be at least 1, or null for never, not 0"),
        ({"early_stopping_patience": 1, "eval_strategy": "no"}, "early_stopping_patience needs validation"),
        ({"metric_for_best_model": "sacrebleu"}, "'sacrebleu' is not measured .*: choose from bleu, chrf, loss, perp"),
        ({"floors": {"old": 101}}, "floors must be BLEU from 0 to 100, by name of the test set; old has 101"),
        ({"floors": {"old": 1}, "eval_strategy": "no"}, "floors need validation"),
        ({"floors": {"old": 1}}, "set average_last to 0"),
        ({"floors": {"old": 1}, "metric_for_best_model": "loss"}, "leave metric_for_best_model"),
        ({"lora_rank": -1}, "lora_rank must be at least 0, and 0 with fsdp, not -1"),
        ({"deepspeed": "ds.json"}, "deepspeed is not supported, its runs could not be resumed: set fsdp"),
        ({"max_minutes": 5, "eval_delay": 100}, "eval_delay has no effect with max_minutes"),
        ({"lora_rank": 2, "weight_decay": 0.1}, "weight_decay would change rows"),
        ({"augmentation": {"uper": 0.1}}, "augmentation: there is no form 'uper': choose from upper, title, lower"),
        ({"augmentation": {"upper": 1.1}}, "augmentation: the share of upper must be a number from 0 to 1, not 1.1"),
        ({"augmentation": {"upper": "much"}}, "augmentation: the share of upper must be .* not 'much'"),
        ({"augmentation": {"noise": float("nan")}}, "augmentation: the share of noise must be .* not nan"),
        ({"augmentation": {"upper": 0.7, "title": 0.4}}, "augmentation: the shares sum to 1.1, .* lower them to 1"),
        ({"augmentation": {"terms": 2}}, "augmentation: the share of terms must be a number from 0 to 1, not 2"),
        ({"augmentation": ["upper"]}, "augmentation must be a mapping of forms to their shares, not"),
        ({"bpe_dropout": 1.0}, "bpe_dropout must be at least 0 and below 1, not 1.0"),
        ({"bpe_dropout": -0.1}, "bpe_dropout must be at least 0 and below 1, not -0.1"),
        ({"bpe_dropout": float("nan")}, "bpe_dropout must be at least 0 and below 1, not nan"),
        ({"r_drop_alpha": -1.0}, "r_drop_alpha must be at least 0 and finite, 0 for no R-Drop, not -1.0"),
        ({"r_drop_alpha": float("inf")}, "r_drop_alpha must be .* not inf"),
        ({"r_drop_alpha": 1, "r_drop_start": -1}, "r_drop_start must be .* not -1"),
        ({"r_drop_alpha": 1, "r_drop_start": 9, "max_steps": 8}, "r_drop_start must be .* not 9"),
        ({"guided_alignment": -0.1}, "guided_alignment must be at least 0 and finite, 0 for none, not -0.1"),
        ({"guided_alignment": float("inf")}, "guided_alignment must be .* not inf"),
        ({"guided_alignment": 1, "aligned_embeddings": 1.1}, "aligned_embeddings must be from 0, for none, to 1, not"),
        ({"aligned_embeddings": 0.8}, "aligned_embeddings needs a word aligner: set guided_alignment, say to 0.1"),
        ({"guided_alignment": 1, "aligned_embeddings": 1, "fsdp": True}, "fsdp does not work with aligned_embeddings"),
        ({"guided_alignment": 1, "aligned_embeddings": 1, "lora_rank": 2}, "lora_rank does not work with aligned_em"),
        ({"r_drop_start": 2}, "r_drop_start must be .* 0 without r_drop_alpha, not 2"),
        ({"optim": "muon", "lora_rank": 2}, "lora_rank does not work with optim muon: the products of its adapters"),
        ({"optim": "muon", "optim_args": "momentum=0.9"}, "optim_args does not work with optim muon"),
        ({"fsdp": True}, "there is only one: start it with torchrun"),
        ({"ema_decay": 1.0}, r"ema_decay must be at least 0 \(for none\) and below 1, not 1.0"),
        ({"ema_decay": -0.1}, "ema_decay must be .* not -0.1"),
        ({"ema_decay": float("nan")}, "ema_decay must be .* not nan"),
        ({"ema_decay": 0.9, "fsdp": True}, "ema_decay needs all weights .* leave it out, and average checkpoints"),
        ({"cooldown_steps": -1}, _COOLDOWN + "100000 of max_steps, not -1"),
        ({"cooldown_steps": 51, "max_steps": 50}, _COOLDOWN + "50 of max_steps, not 51"),
        (
            {"cooldown_steps": 20, "noam_factor": None},
            "cooldown_steps 20 has no effect without .* warmup_stable_decay "
            r"with lr_scheduler_kwargs: {num_decay_steps: 20, decay_type: linear}",
        ),
        ({"cooldown_steps": 2.5}, _COOLDOWN + "100000 of max_steps, not 2.5"),
        ({"cooldown_steps": float("nan")}, _COOLDOWN + "100000 of max_steps, not nan"),
        (
            {"cooldown_steps": 1, "max_minutes": 2},
            "cooldown_steps 1 needs a known last update, and max_minutes has none: give the share of the time in which "
            "the rate is to fall, say 0.2",
        ),
        (
            {"cooldown_steps": 0.2, "max_steps": 50, "noam_factor": None},
            r"cooldown_steps 0.2 has no effect .* {num_decay_steps: 10, decay_type: linear}",
        ),
        (
            {"noam_factor": None, "max_steps": 50},
            "linear would not fall to its end in 50 updates .* warmup_steps are 4000",
        ),
        (
            {"noam_factor": None, "lr_scheduler_type": "warmup_stable_decay"},
            "needs lr_scheduler_kwargs: {num_decay_steps",
        ),
        (
            {
                "noam_factor": None,
                "max_steps": 50,
                "warmup_steps": 20,
                "lr_scheduler_type": "warmup_stable_decay",
                "lr_scheduler_kwargs": {"num_decay_steps": 31},
            },
            "warmup_steps are 20, num_decay_steps 31. Set fewer",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)
    for name in ("constant", "inverse_sqrt"):
        make(noam_factor=None, max_steps=50, lr_scheduler_type=name)


def test_derived_defaults_follow_other_arguments(make):
    assert make().learning_rate == 1.0  # which the Noam schedule multiplies
    without = make(noam_factor=None, learning_rate=1e-3, warmup_steps=0)
    assert (without.learning_rate, without.warmup_steps) == (1e-3, 0)
    for options, limit in (({"average_last": 20}, 21), ({"average_last": 20, "save_total_limit": 30}, 30)):
        assert make(**options).save_total_limit == limit
    assert make(average_last=5, save_total_limit=5).save_total_limit == 5
    plateau = {"noam_factor": None, "lr_scheduler_type": "reduce_lr_on_plateau"}
    for options, mode in (({}, "max"), ({"metric_for_best_model": "loss"}, "min")):
        assert make(**plateau, **options).lr_scheduler_kwargs == {"mode": mode}
    config = make(accelerator_config={"use_seedable_sampler": False}).accelerator_config
    assert (config.even_batches, config.use_seedable_sampler) == (False, False)
    assert make(accelerator_config={"even_batches": True}).accelerator_config.even_batches


def test_best_metric_and_direction_follow_the_arguments(make):
    for options, metric, greater in (
        ({}, "bleu", True),
        ({"predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "loss"}, "loss", False),
        ({"metric_for_best_model": "eval_perplexity"}, "perplexity", False),
        ({"metric_for_best_model": "eval_bleu"}, "bleu", True),
        ({"metric_for_best_model": "eval_bleu", "predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "bleu", "greater_is_better": False}, "bleu", False),
    ):
        arguments = make(**options)
        assert (arguments.metric_for_best_model, arguments.greater_is_better) == (metric, greater)


def test_arguments_round_trip_without_the_hub_token(make):
    arguments = make(hub_token="hf_secret")
    assert b"hf_secret" not in pickle.dumps(arguments)
    assert arguments.hub_token == "hf_secret"
    assert pickle.loads(pickle.dumps(arguments)) == make()
    # __post_init__ must accept the values that it sets.
    assert dataclasses.replace(arguments).to_dict() == arguments.to_dict()


def test_unsupported_sharding_is_rejected(make):
    refused = {"version": 1, "state_dict_type": "SHARDED_STATE_DICT", "cpu_offload": True, "xla": True}
    for name, value in refused.items():
        with pytest.raises(ValueError, match=rf"fsdp_config.{name} cannot be {value!r}, only"):
            check_sharding({name: value}, processes=2)
    config = {"reshard_after_forward": False}
    with pytest.raises(ValueError, match="there is only one"):  # this is checked first; the rest was filled in
        make(fsdp="full_shard auto_wrap", fsdp_config=config)
    assert config == {"reshard_after_forward": False}
    check_sharding({"min_num_params": 0, "xla": False, "xla_fsdp_v2": False, **config}, processes=2)


def test_noam_matches_equation_3_by_hand():
    # d_model = 64 and warmup = 4: 64^-0.5 = 1/8 and 4^-1.5 = 1/8.
    by_hand = {1: 1 / 64, 2: 2 / 64, 3: 3 / 64, 4: 1 / 16, 16: 1 / 32, 64: 1 / 64, 100: 1 / 80}
    for step, rate in by_hand.items():
        assert noam(step, d_model=64, warmup_steps=4) == pytest.approx(rate, rel=1e-12)
    assert noam(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)  # where the paper's base model peaks
    assert noam(400, 16, 5) / noam(100, 16, 5) == pytest.approx(1 / math.sqrt(4), rel=1e-12)
    assert noam(9, 128, 30, 2.5) == pytest.approx(2.5 * noam(9, 128, 30), rel=1e-12)
    for warmup in (1, 7, 4000):
        around = range(max(1, warmup - 3), warmup + 4)
        assert max(around, key=lambda step: noam(step, 512, warmup)) == warmup


def test_cooldown_accepts_updates_or_share_of_run(make):
    for given, updates, expected in ((0, 90, 0), (30, 90, 30), (0.25, 90, 23), (0.25, 8, 2), (1, 90, 1)):
        assert make(cooldown_steps=given).get_cooldown_steps(updates) == expected
    # These factors are compared when a run is resumed with another max_steps.
    assert rate_factors(make(cooldown_steps=0.25), 16, 16) == [1] * 13 + [3 / 4, 2 / 4, 1 / 4]
    assert rate_factors(make(cooldown_steps=0.25), 32, 16) == [1] * 16


def sgd(rate=1.0):
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=rate)


def test_cooldown_matches_hand_values_and_transformers():
    by_hand = {1: 1, 6: 1, 7: 1, 8: 3 / 4, 9: 2 / 4, 10: 1 / 4}
    assert {step: cooldown(step, max_steps=10, cooldown_steps=4) for step in by_hand} == by_hand
    assert [cooldown(step, 3, 3) for step in (1, 2, 3)] == [1, 2 / 3, 1 / 3]
    assert [cooldown(step, 3, 0) for step in (1, 2, 3)] == [1, 1, 1]
    theirs = get_wsd_schedule(sgd(), 0, num_decay_steps=60, num_training_steps=200, decay_type="linear")
    for step in range(1, 201):
        assert cooldown(step, 200, 60) == pytest.approx(theirs.lr_lambdas[0](step - 1), rel=1e-12)


def test_noam_rejects_step_or_warmup_below_1():
    for step, warmup in ((0, 4000), (-1, 4000), (1, 0)):
        with pytest.raises(ValueError, match=f"step is {step}, warmup_steps is {warmup}"):
            noam(step, 512, warmup)


def test_scheduler_sets_exact_rate_of_each_update():
    for rate, factor in ((1.0, 0.3), (2.0, 1.0)):
        optimizer = sgd(rate)
        scheduler = create_noam_scheduler(optimizer, 16, 5, factor=factor)
        for step in range(1, 13):
            assert optimizer.param_groups[0]["lr"] == rate * noam(step, 16, 5, factor)
            optimizer.step()
            scheduler.step()
    optimizer = sgd()
    scheduler = create_noam_scheduler(optimizer, 64, 4, cooldown_steps=2, max_steps=5)
    for rate in (1 / 64, 2 / 64, 3 / 64, 1 / 16, 5**-0.5 / 8 / 2):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-12)
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0
    optimizer = sgd()
    create_noam_scheduler(optimizer, 512)
    assert optimizer.param_groups[0]["lr"] == noam(1, 512, 4000)  # the paper's warm-up is the default
    with pytest.raises(ValueError, match="warmup_steps is 0"):
        create_noam_scheduler(optimizer, 16, 0)
