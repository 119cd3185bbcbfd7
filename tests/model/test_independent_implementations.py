"""torch.nn's and Marian's Transformers give the same numbers for the same weights."""

import pytest
import torch
from torch import nn

from vanilla_transformer.model.conversion_vanilla_transformer import to_marian


def copy_attention(ours, theirs):
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs.in_proj_weight.data = torch.cat([projection.weight for projection in projections])
    theirs.in_proj_bias.data = torch.cat([projection.bias for projection in projections])
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def torch_stack(ours, config, of_layer, of_stack, heads, width, attentions, **options):
    """One of torch's stacks with the weights of ours; `attentions` are pairs of names, ours and theirs."""
    layer = of_layer(config.d_model, heads, width, dropout=0.0, batch_first=True, norm_first=config.norm_first)
    final_norm = nn.LayerNorm(config.d_model) if config.norm_first else None
    theirs = of_stack(layer, len(ours.layers), norm=final_norm, **options)
    if config.norm_first:
        final_norm.load_state_dict(ours.layer_norm.state_dict())
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        norms = [f"{name}_layer_norm" for name in attentions] + ["final_layer_norm"]
        parts = {"fc1": "linear1", "fc2": "linear2"} | {name: f"norm{i}" for i, name in enumerate(norms, start=1)}
        for our_name, their_name in parts.items():
            getattr(other, their_name).load_state_dict(getattr(mine, our_name).state_dict())
        for our_name, their_name in attentions.items():
            copy_attention(getattr(mine, our_name), getattr(other, their_name))
    return theirs.eval()


def torch_encoder(ours, config):
    heads, width, attentions = config.encoder_attention_heads, config.encoder_ffn_dim, {"self_attn": "self_attn"}
    classes = nn.TransformerEncoderLayer, nn.TransformerEncoder
    return torch_stack(ours, config, *classes, heads, width, attentions, enable_nested_tensor=False)


def torch_decoder(ours, config):
    heads, width = config.decoder_attention_heads, config.decoder_ffn_dim
    attentions = {"self_attn": "self_attn", "encoder_attn": "multihead_attn"}
    return torch_stack(ours, config, nn.TransformerDecoderLayer, nn.TransformerDecoder, heads, width, attentions)


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


@torch.no_grad()
def test_logits_equal_marians(tiny_model, batch):
    """Marian's sinusoids come in halves, and its attention has biases."""
    model = tiny_model(sinusoid_layout="halves", attention_bias=True)
    theirs = to_marian(model)
    own = {"final_logits_bias", "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    assert theirs.state_dict().keys() - model.state_dict().keys() <= own  # every other weight has the same name
    torch.testing.assert_close(model(**batch).logits, theirs(**batch).logits, atol=1e-5, rtol=0)
