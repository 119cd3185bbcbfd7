"""A model folder may lead only to safetensors files in it and to torch's attention; all else is rejected."""

import json
import shutil

import peft
import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, MarianMTModel

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.conversion_vanilla_transformer import SafeMarianModel
from vanilla_transformer.run.loading import load_weights

from .conftest import CLASSES, TRANSLATOR, build, tiny_marian


MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"


def folders(tmp_path):
    """Saves a model of each class, and yields the class and the folder."""
    for kind in CLASSES:
        build(kind).save_pretrained(tmp_path / kind.__name__)
        yield kind, tmp_path / kind.__name__
    tiny_marian().save_pretrained(tmp_path / "marian")
    yield SafeMarianModel, tmp_path / "marian"


def state_of(folder):
    config = AutoConfig.from_pretrained(folder)
    return (MarianMTModel if config.model_type == "marian" else TRANSLATOR)(config).state_dict()


def pickled(folder, name):
    """Puts a pickle that torch could read in the place of a folder's weights."""
    (folder / name).parent.mkdir(exist_ok=True)
    torch.save(state_of(folder), folder / name)


def leading_to(folder, name):
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(state_of(folder), name)}))


@pytest.mark.parametrize("name", ["w.json", "pytorch_model.bin", "sub/model.safetensors", "../model.safetensors", 7])
def test_index_to_pickles_or_other_folders_is_rejected(tmp_path, name):
    for kind, folder in folders(tmp_path / "models"):
        if str(name).endswith(".safetensors"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / MODEL).rename(folder / name)
        else:
            (folder / MODEL).unlink()
            pickled(folder, str(name))
        leading_to(folder, name)
        for path in (folder, str(folder)):
            with pytest.raises(ValueError, match=r"index\.json leads to the weights .* only a file NAME\.safetensors"):
                load_weights(kind, path)


def test_index_with_an_absolute_path_is_rejected(tmp_path):
    for kind, folder in folders(tmp_path):
        (folder / MODEL).rename(tmp_path / MODEL)
        leading_to(folder, str(tmp_path / MODEL))
        with pytest.raises(ValueError, match=r"only a file NAME\.safetensors beside it"):
            kind.from_pretrained(folder)


def test_subfolders_and_variants_are_checked_too(tmp_path):
    for kind, folder in folders(tmp_path):
        (folder / MODEL).unlink()
        pickled(folder, "w.json")
        leading_to(folder, "w.json")
        (folder / INDEX).rename(folder / "model.safetensors.index.half.json")
        shutil.copytree(folder, folder / "sub")
        for options in ({"variant": "half"}, {"variant": "half", "subfolder": "sub"}):
            with pytest.raises(ValueError, match=r"leads to the weights 'w\.json'"):
                kind.from_pretrained(folder, **options)


def test_malformed_index_raises(tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    (tmp_path / MODEL).unlink()
    for text in ("", "[]", "{}", '{"weight_map": {"a": ["b"]}, "metadata": {}}', '{"weight_map": {}}', "[" * 100_000):
        (tmp_path / INDEX).write_text(text)
        with pytest.raises(ValueError, match=r"index\.json is not an index of weights"):
            TRANSLATOR.from_pretrained(tmp_path)


def test_ordinary_shards_are_loaded(tmp_path, batch):
    model = build(TRANSLATOR)
    model.save_pretrained(tmp_path, max_shard_size=2000)
    assert (tmp_path / INDEX).exists()
    for kind in (TRANSLATOR, AutoModelForSeq2SeqLM):
        assert torch.equal(load_weights(kind, tmp_path)(**batch).logits, model(**batch).logits)


def test_pickled_weights_are_rejected(tmp_path):
    for kind, folder in folders(tmp_path):
        (folder / MODEL).unlink()
        pickled(folder, "pytorch_model.bin")
        with pytest.raises(OSError, match="has no weights in safetensors"):
            kind.from_pretrained(folder)
        with pytest.raises(ValueError, match=r"leads to the weights 'pytorch_model\.bin'"):
            kind.from_pretrained(folder / "pytorch_model.bin", config=AutoConfig.from_pretrained(folder))


def test_configuration_cannot_name_other_weights(tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    pickled(tmp_path, "adapter_model.bin")  # the one pickle that transformers lets a configuration name
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"transformers_weights": "adapter_model.bin"}))
    with pytest.raises(ValueError, match=r"config\.json leads to the weights 'adapter_model\.bin'"):
        TRANSLATOR.from_pretrained(tmp_path)
    config = VanillaTransformerConfig(**fields, transformers_weights="adapter_model.bin")
    with pytest.raises(ValueError, match=r"leads to the weights 'adapter_model\.bin'"):
        TRANSLATOR.from_pretrained(tmp_path, config=config)


def test_pickled_adapter_beside_a_model_is_rejected(tmp_path):
    model = build(TRANSLATOR)
    model.save_pretrained(tmp_path)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    adapted.save_pretrained(tmp_path)
    TRANSLATOR.from_pretrained(tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    torch.save(peft.get_peft_model_state_dict(adapted), tmp_path / "adapter_model.bin")
    with pytest.raises(OSError, match="has no weights in safetensors"):
        TRANSLATOR.from_pretrained(tmp_path)


# ----------------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["somebody/kernel", "somebody/kernel@v1:attend", "flash_attention_2", {"": "a/b"}])
def test_configuration_cannot_fetch_attention_code(tmp_path, name, value):
    for kind in CLASSES:
        build(kind).save_pretrained(tmp_path)
        fields = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(fields | {name: value}))
        for load in (kind, AutoConfig, VanillaTransformerConfig):
            with pytest.raises(ValueError, match=rf"config\.json asks for {name} = .*may be fetched code: remove it"):
                load.from_pretrained(tmp_path)
        with pytest.raises(ValueError, match="may be fetched code"):
            VanillaTransformerConfig.from_json_file(tmp_path / "config.json")
        hidden = fields | {"attribute_map": {"harmless": name}, "harmless": value}
        (tmp_path / "config.json").write_text(json.dumps(hidden))
        with pytest.raises(ValueError, match=r"config\.json has an attribute_map, which could hide other fields"):
            kind.from_pretrained(tmp_path)


def test_callers_attention_overrides_the_files(tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    for value in ("eager", "sdpa"):
        (tmp_path / "config.json").write_text(json.dumps(fields | {"attn_implementation": value}))
        assert TRANSLATOR.from_pretrained(tmp_path).config._attn_implementation == value
    (tmp_path / "config.json").write_text(json.dumps(fields | {"attn_implementation": "somebody/kernel"}))
    for kind in (TRANSLATOR, AutoModelForSeq2SeqLM):
        assert kind.from_pretrained(tmp_path, attn_implementation="eager").config._attn_implementation == "eager"
