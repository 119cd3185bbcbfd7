"""PEFT's adapters on our model can be trained, merged, saved and loaded, and they translate.

Our own searches call the model at every step, and thus anything that replaces a `Linear`: an adapter or a quantised
matrix. They must find the same as transformers' searches.
"""

import copy

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.training.finetuning import FinetuningArguments, with_adapters

from .conftest import sharpened, transformers_own


SEARCHES = {"greedy": {"num_beams": 1}, "beam": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"}}
TASK = "SEQ_2_SEQ_LM"


def lora(**choices) -> LoraConfig:
    return LoraConfig(**{"task_type": TASK, "r": 4, "target_modules": ["q_proj", "v_proj"], **choices})


ADAPTERS = {
    "projections": lora(),
    "weight-decomposed": lora(use_dora=True),
    "feed-forward": lora(target_modules=["fc1", "fc2"]),
    "output": lora(target_modules=["lm_head"]),
    "all linear": lora(target_modules="all-linear"),
    "output as a whole": lora(modules_to_save=["lm_head"]),
    "norms as a whole": lora(modules_to_save=["final_layer_norm"]),
    "embeddings": lora(target_modules=["embed_tokens"]),
    "some tokens": lora(trainable_token_indices={"shared": [5, 6, 7]}),
    "some tokens, untied": lora(trainable_token_indices={"embed_tokens": [5, 6, 7], "lm_head": [5, 6, 7]}),
    "multiplied": peft.IA3Config(task_type=TASK, target_modules=["k_proj", "fc2"], feedforward_modules=["fc2"]),
    "a prefix of the source": peft.PromptTuningConfig(task_type=TASK, num_virtual_tokens=3),
    "a prefix of the cache": peft.PrefixTuningConfig(task_type=TASK, num_virtual_tokens=3),
}
UNTIED = {"output", "output as a whole", "embeddings", "some tokens, untied"}  # they change one of the tied matrices
MERGEABLE = [name for name in ADAPTERS if not name.startswith("a prefix")]


def model_for(name: str, tiny_model, **choices):
    """Both sides have the same numbers of layers and heads: PEFT knows only one number."""
    return tiny_model(tie_word_embeddings=name not in UNTIED, decoder_layers=2, decoder_attention_heads=2, **choices)


def adapted(model, config: peft.PeftConfig, seed: int = 1) -> PeftModel:
    """Adds an adapter with random weights, since a new one changes nothing."""
    model = get_peft_model(model, copy.deepcopy(config)).eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


@pytest.mark.parametrize("search", SEARCHES)
def test_each_sentence_may_have_its_own_adapter(tiny_model, unlabelled, search):
    model = get_peft_model(sharpened(model_for("projections", tiny_model)), lora(), "a").eval()
    model.add_adapter("b", lora())
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    options = {**SEARCHES[search], "max_new_tokens": 12}
    together = model.generate(**unlabelled, **options, adapter_names=["a", "b"])
    for row, name in enumerate(("a", "b")):
        model.set_adapter(name)
        alone = model.generate(**{key: value[row : row + 1] for key, value in unlabelled.items()}, **options)
        kept = together[row][together[row] != 1]
        assert kept.tolist() == alone[0][alone[0] != 1].tolist()


def test_new_tokens_learn_in_every_matrix_that_is_not_tied(tiny_model):
    choices = {"train_file": ["a.tsv"], "source_language": "en", "target_language": "de", "lora_rank": 2}
    matrices = {"encoder.embed_tokens", "decoder.embed_tokens", "lm_head"}
    for tied, expected in ((False, matrices), (True, {"shared"})):
        model = model_for("output" if not tied else "some tokens", tiny_model)
        adapted = with_adapters(model, FinetuningArguments("model", **choices), [5, 6])
        learned = [name for name, each in adapted.named_parameters() if each.requires_grad and "lora_" not in name]
        assert {place for place in matrices | {"shared"} if any(f".{place}." in name for name in learned)} == expected


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MERGEABLE)
def test_translations_equal_those_of_the_merged_model(name, search, tiny_model, sources, ours_used):
    options = {**sources, **SEARCHES[search], "max_new_tokens": 8}
    base = sharpened(model_for(name, tiny_model, attention_bias=True, output_bias=True))
    before = base.generate(**options)
    model = adapted(base, ADAPTERS[name])
    ours_used.clear()
    found = model.generate(**options)
    assert ours_used
    assert not torch.equal(found, before)
    assert torch.equal(found, transformers_own(base, **options))
    merged = model.merge_and_unload()
    assert torch.equal(found, transformers_own(merged, **options))
    assert torch.equal(merged.generate(**options), found)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name not in MERGEABLE])
def test_prefix_adapters_affect_only_the_wrapped_model(name, search, tiny_model, sources, ours_used):
    """PEFT prepares each step's inputs with a method that it puts into the model itself."""
    options = {**sources, **SEARCHES[search], "max_new_tokens": 8}
    base = sharpened(model_for(name, tiny_model))
    before = base.generate(**options)
    model = adapted(base, ADAPTERS[name])
    found = model.generate(**options)
    assert not torch.equal(found, before)
    assert torch.equal(transformers_own(model, **options), found)
    ours_used.clear()
    assert torch.equal(base.generate(**options), before)
    assert ours_used or name == "a prefix of the source"  # PEFT 0.21 leaves the method of this one behind


@pytest.mark.parametrize("search", SEARCHES)
def test_disabled_adapter_changes_nothing(search, tiny_model, sources):
    options = {**sources, **SEARCHES[search], "max_new_tokens": 8}
    base = sharpened(tiny_model())
    before, logits = base.generate(**options), base(**sources, decoder_input_ids=sources["input_ids"]).logits
    model = adapted(base, lora())
    with model.disable_adapter():
        assert torch.equal(model.generate(**options), before)
        torch.testing.assert_close(model(**sources, decoder_input_ids=sources["input_ids"]).logits, logits)


@pytest.mark.parametrize("search", SEARCHES)
def test_adapter_added_by_transformers_round_trips(search, tiny_model, sources, tmp_path):
    options = {**sources, **SEARCHES[search], "max_new_tokens": 8}
    model = sharpened(tiny_model())
    model.save_pretrained(tmp_path / "base")
    before = model.generate(**options)
    model.add_adapter(lora(init_lora_weights=False))
    found = model.eval().generate(**options)
    assert torch.equal(found, transformers_own(model, **options))
    assert not torch.equal(found, before)
    model.save_pretrained(tmp_path / "adapter")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
    again.load_adapter(tmp_path / "adapter")
    assert torch.equal(again.eval().generate(**options), found)


@pytest.mark.parametrize("name", MERGEABLE)
@torch.no_grad()
def test_merged_model_scores_like_the_adapted_one(name, tiny_model, batch):
    model = adapted(model_for(name, tiny_model), ADAPTERS[name])
    logits = model(**batch).logits
    assert not torch.allclose(logits, model_for(name, tiny_model)(**batch).logits, atol=1e-2)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(**batch).logits, logits, atol=1e-4, rtol=1e-4)
    if name not in UNTIED:
        assert merged.lm_head.weight is merged.model.shared.weight is merged.model.decoder.embed_tokens.weight


@pytest.mark.parametrize("name", ADAPTERS)
def test_only_the_adapter_learns(name, tiny_model, batch):
    base = model_for(name, tiny_model)
    model = get_peft_model(base, copy.deepcopy(ADAPTERS[name])).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    everything = model.named_parameters(remove_duplicate=False)  # tied parameters have several names
    learning = {key: value for key, value in everything if value.requires_grad}
    assert 0 < sum(value.numel() for value in set(learning.values())) < sum(p.numel() for p in base.parameters()) / 2
    optimizer = torch.optim.Adam(set(learning.values()), lr=0.02)
    losses = []
    for _ in range(30):
        loss = model(**batch, num_items_in_batch=torch.tensor(8), return_logits=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert changed <= learning.keys()


def test_saved_adapter_round_trips(tiny_model, sources, tmp_path):
    sharpened(tiny_model()).save_pretrained(tmp_path / "base")
    model = adapted(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base"), lora())
    model.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    again = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    options = {**sources, "num_beams": 3, "max_new_tokens": 8}
    assert torch.equal(again.generate(**options), model.generate(**options))
