"""The same weights in torch.nn's and in Marian's Transformer give the same numbers."""

import pytest
import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel


def copy_attention(ours, theirs):
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs.in_proj_weight.data = torch.cat([projection.weight for projection in projections])
    theirs.in_proj_bias.data = torch.cat([projection.bias for projection in projections])
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def copy_rest(ours, theirs, norms):
    theirs.linear1.load_state_dict(ours.fc1.state_dict())
    theirs.linear2.load_state_dict(ours.fc2.state_dict())
    for number, norm in enumerate(norms, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())


def torch_encoder(ours, config):
    layer = nn.TransformerEncoderLayer(
        config.d_model, config.encoder_attention_heads, config.encoder_ffn_dim,
        dropout=0.0, batch_first=True, norm_first=config.norm_first,
    )  # fmt: skip
    final_norm = nn.LayerNorm(config.d_model) if config.norm_first else None
    theirs = nn.TransformerEncoder(layer, len(ours.layers), norm=final_norm, enable_nested_tensor=False)
    if config.norm_first:
        final_norm.load_state_dict(ours.layer_norm.state_dict())
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        copy_attention(mine.self_attn, other.self_attn)
        copy_rest(mine, other, [mine.self_attn_layer_norm, mine.final_layer_norm])
    return theirs.eval()


def torch_decoder(ours, config):
    layer = nn.TransformerDecoderLayer(
        config.d_model, config.decoder_attention_heads, config.decoder_ffn_dim,
        dropout=0.0, batch_first=True, norm_first=config.norm_first,
    )  # fmt: skip
    final_norm = nn.LayerNorm(config.d_model) if config.norm_first else None
    theirs = nn.TransformerDecoder(layer, len(ours.layers), norm=final_norm)
    if config.norm_first:
        final_norm.load_state_dict(ours.layer_norm.state_dict())
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        copy_attention(mine.self_attn, other.self_attn)
        copy_attention(mine.encoder_attn, other.multihead_attn)
        copy_rest(mine, other, [mine.self_attn_layer_norm, mine.encoder_attn_layer_norm, mine.final_layer_norm])
    return theirs.eval()


@pytest.mark.parametrize("norm_first", [False, True])
@torch.no_grad()
def test_encoder_and_decoder_equal_torch_nn(tiny_model, batch, decoder_input_ids, norm_first):
    model = tiny_model(attention_bias=True, norm_first=norm_first).model
    source_mask = batch["attention_mask"]
    memory = model.encoder(input_ids=batch["input_ids"], attention_mask=source_mask).last_hidden_state
    states = model.decoder(
        input_ids=decoder_input_ids, encoder_hidden_states=memory, encoder_attention_mask=source_mask
    ).last_hidden_state

    x = model.encoder.embed(model.shared(batch["input_ids"]))
    theirs = torch_encoder(model.encoder, model.config)(x, src_key_padding_mask=source_mask == 0)
    torch.testing.assert_close(memory[source_mask == 1], theirs[source_mask == 1], atol=1e-5, rtol=0)

    y = model.decoder.embed(model.shared(decoder_input_ids))
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    theirs = torch_decoder(model.decoder, model.config)(
        y, memory, tgt_mask=future, memory_key_padding_mask=source_mask == 0
    )
    torch.testing.assert_close(states, theirs, atol=1e-5, rtol=0)


def marian_of(model):
    config = model.config
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.encoder_attention_heads,
            decoder_attention_heads=config.decoder_attention_heads,
            encoder_ffn_dim=config.encoder_ffn_dim,
            decoder_ffn_dim=config.decoder_ffn_dim,
            activation_function="relu",
            dropout=0.0,
            scale_embedding=True,
            max_position_embeddings=64,
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            bos_token_id=config.bos_token_id,
            forced_eos_token_id=None,
        )
    ).eval()
    missing, unexpected = marian.load_state_dict(model.state_dict(), strict=False)
    assert unexpected == []
    assert all("embed_positions" in name or name == "final_logits_bias" for name in missing)
    return marian


@pytest.fixture
def twins(tiny_model):
    """One model and the same weights in Marian, whose sinusoids come in halves and whose attention has biases."""
    model = tiny_model(sinusoid_layout="halves", attention_bias=True)
    return model, marian_of(model)


@torch.no_grad()
def test_logits_equal_marians(twins, batch):
    ours, theirs = (model(**batch).logits for model in twins)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 4, "length_penalty": 0.6}])
def test_translations_equal_marians(twins, batch, options):
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    ours, theirs = (model.generate(**inputs, max_new_tokens=12, **options) for model in twins)
    assert torch.equal(ours, theirs)
