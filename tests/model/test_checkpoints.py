"""Saving and loading keeps the model, tied or untied, with or without a head, in safetensors, without copies."""

import pytest
import torch
from safetensors import safe_open

from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerDecoder,
    VanillaTransformerEncoder,
    VanillaTransformerModel,
)

from .conftest import TRANSLATOR


TYINGS = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def loaded(model_class, folder, **options):
    """Loads a model after checking that the file holds exactly its weights."""
    model, report = model_class.from_pretrained(folder, output_loading_info=True, **options)
    assert {name: problems for name, problems in report.items() if problems} == {}
    return model


def tables_in(folder):
    """Names of the (vocabulary, d_model) matrices in the file."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return [name for name in file.keys() if file.get_slice(name).get_shape() == [40, 16]]  # noqa: SIM118


@TYINGS
def test_loaded_model_equals_the_saved_one(tiny_model, batch, tmp_path, tied):
    model = tiny_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "one")
    again = loaded(TRANSLATOR, tmp_path / "one")
    again.save_pretrained(tmp_path / "two")
    twice = loaded(TRANSLATOR, tmp_path / "two")
    assert not again.training
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    assert torch.equal(twice(**batch).logits, model(**batch).logits)


def test_tied_matrix_is_stored_once_and_tied_again(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    assert tables_in(tmp_path) == ["model.shared.weight"]
    model = TRANSLATOR.from_pretrained(tmp_path)
    stacks = model.model.encoder, model.model.decoder
    assert {model.lm_head.weight, *(stack.embed_tokens.weight for stack in stacks)} == {model.model.shared.weight}


def test_untied_matrices_stay_apart(tiny_model, tmp_path):
    tiny_model(tie_word_embeddings=False).save_pretrained(tmp_path)
    model = TRANSLATOR.from_pretrained(tmp_path)
    source, target = model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight
    assert not torch.equal(source, target)
    assert not torch.equal(target, model.lm_head.weight)


def test_an_untied_file_holds_three_matrices(tiny_model, tmp_path):
    tiny_model(tie_word_embeddings=False).save_pretrained(tmp_path)
    assert len(tables_in(tmp_path)) == 3  # source, target, output


@TYINGS
def test_a_base_checkpoint_loads_into_the_head_model(tiny_model, batch, tmp_path, tied):
    model = tiny_model(tie_word_embeddings=tied)
    model.model.save_pretrained(tmp_path)
    again, report = TRANSLATOR.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == (set() if tied else {"lm_head.weight"})
    assert not report["unexpected_keys"]
    if not tied:
        again.lm_head.load_state_dict(model.lm_head.state_dict())
    assert torch.equal(again(**batch).logits, model(**batch).logits)


@TYINGS
def test_a_head_checkpoint_loads_into_the_base_model(tiny_model, inputs, tmp_path, tied):
    model = tiny_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    base, report = VanillaTransformerModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert torch.equal(base(**inputs(TRANSLATOR))[0], model.model(**inputs(TRANSLATOR))[0])


def test_encoder_and_decoder_round_trip_separately(tiny_model, batch, decoder_input_ids, tmp_path):
    model = tiny_model().model
    model.encoder.save_pretrained(tmp_path / "encoder")
    model.decoder.save_pretrained(tmp_path / "decoder")
    encoder = loaded(VanillaTransformerEncoder, tmp_path / "encoder")
    decoder = loaded(VanillaTransformerDecoder, tmp_path / "decoder")
    memory = encoder(batch["input_ids"]).last_hidden_state
    states = decoder(decoder_input_ids, encoder_hidden_states=memory).last_hidden_state
    whole = model(batch["input_ids"], decoder_input_ids=decoder_input_ids)
    assert torch.equal(memory, whole.encoder_last_hidden_state)
    assert torch.equal(states, whole.last_hidden_state)


@TYINGS
@pytest.mark.parametrize("position_embedding_type", ["sinusoidal", "learned"])
def test_model_built_on_meta_device_can_be_filled(tiny_model, batch, tied, position_embedding_type):
    model = tiny_model(tie_word_embeddings=tied, position_embedding_type=position_embedding_type)
    with torch.device("meta"):
        empty = TRANSLATOR(model.config)
    filled = empty.to_empty(device="cpu").eval()
    filled.load_state_dict(model.state_dict())
    filled.tie_weights()
    assert torch.equal(filled(**batch).logits, model(**batch).logits)


def test_model_built_on_meta_device_can_be_initialised(tiny_config, batch):
    with torch.device("meta"):
        model = TRANSLATOR(tiny_config())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))  # so that a forgotten one shows
    model.init_weights()
    model.tie_weights()
    assert model.eval()(**batch).logits.isfinite().all()


def test_a_missing_weight_is_reported(tiny_model, tmp_path):
    model = tiny_model()
    weights = {name: tensor for name, tensor in model.state_dict().items() if "layers.1.fc1" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    _, report = TRANSLATOR.from_pretrained(tmp_path, output_loading_info=True)
    stacks = ("model.encoder", "model.decoder")
    assert report["missing_keys"] == {f"{stack}.layers.1.fc1.{part}" for stack in stacks for part in ("weight", "bias")}
