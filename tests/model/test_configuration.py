"""The configuration: the paper's defaults, lossless round trips, and errors that name the field."""

import copy
import json

import pytest

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig


UNUSUAL = {
    "vocab_size": 99,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 5,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "head_dim": 5,
    "value_head_dim": 7,
    "encoder_ffn_dim": 11,
    "decoder_ffn_dim": 13,
    "activation_function": "gelu",
    "dropout": 0.25,
    "attention_dropout": 0.05,
    "activation_dropout": 0.15,
    "source_word_dropout": 0.45,
    "target_word_dropout": 0.55,
    "encoder_layerdrop": 0.65,
    "decoder_layerdrop": 0.75,
    "attention_bias": True,
    "norm_first": True,
    "layer_norm_eps": 1e-6,
    "position_embedding_type": "learned",
    "sinusoid_layout": "halves",
    "max_position_embeddings": 77,
    "scale_embedding": False,
    "tie_word_embeddings": False,
    "output_bias": True,
    "classifier_pooling": "last",
    "classifier_dropout": 0.35,
    "label_smoothing": 0.2,
    "r_drop_alpha": 5.0,
    "use_cache": False,
    "bos_token_id": 5,
    "pad_token_id": 6,
    "eos_token_id": 7,
    "decoder_start_token_id": 8,
}

# Invalid arguments, and a pattern that the message must match.
MISTAKES = (
    ({"encoder_attention_heads": 0}, "encoder_attention_heads must be a whole number"),
    ({"decoder_attention_heads": -2}, "decoder_attention_heads must be a whole number"),
    ({"encoder_attention_heads": 7}, r"d_model \(512\).*encoder_attention_heads \(7\).*head_dim"),
    ({"decoder_attention_heads": 3}, r"d_model \(512\).*decoder_attention_heads \(3\).*head_dim"),
    ({"d_model": 15, "head_dim": 4}, "even d_model, not 15"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
    ({"dropout": -0.1}, "^dropout must be .* not -0.1"),
    ({"attention_dropout": 2}, "attention_dropout must be .* not 2"),
    ({"activation_dropout": 1}, "activation_dropout must be .* not 1"),
    ({"classifier_dropout": 1}, "classifier_dropout must be .* not 1"),
    ({"label_smoothing": 1.0}, "label_smoothing must be .* not 1.0"),
    ({"source_word_dropout": 1.0}, "source_word_dropout must be at least 0 and below 1, not 1.0"),
    ({"target_word_dropout": -0.1}, "target_word_dropout must be at least 0 and below 1, not -0.1"),
    ({"encoder_layerdrop": 1}, "encoder_layerdrop must be at least 0 and below 1, not 1"),
    ({"decoder_layerdrop": 1.5}, "decoder_layerdrop must be at least 0 and below 1, not 1.5"),
    ({"r_drop_alpha": -1.0}, "r_drop_alpha must be at least 0 and finite, not -1.0"),
    ({"r_drop_alpha": float("nan")}, "r_drop_alpha must be at least 0 and finite, not nan"),
    ({"position_embedding_type": "rotary"}, "position_embedding_type.*learned.*'rotary'"),
    ({"sinusoid_layout": "mixed"}, "sinusoid_layout.*interleaved, halves.*'mixed'"),
    ({"classifier_pooling": "sum"}, "classifier_pooling must be one of mean, max, first, last, not 'sum'"),
    ({"encoder_layers": -1}, "encoder_layers"),
    ({"decoder_layers": -1}, "decoder_layers"),
    ({"vocab_size": 0}, "vocab_size"),
    ({"d_model": 0}, "d_model"),
    ({"head_dim": 0}, "head_dim"),
    ({"value_head_dim": -1}, "value_head_dim"),
    ({"encoder_ffn_dim": 0}, "encoder_ffn_dim"),
    ({"decoder_ffn_dim": -4}, "decoder_ffn_dim"),
    ({"activation_function": "nope"}, "activation_function"),
    ({"layer_norm_eps": -1.0}, "layer_norm_eps"),
)


def test_the_defaults_are_the_papers_base_model():
    config = VanillaTransformerConfig()
    assert (config.encoder_layers, config.decoder_layers, config.d_model) == (6, 6, 512)
    assert (config.encoder_ffn_dim, config.decoder_ffn_dim) == (2048, 2048)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (8, 8)
    assert (config.vocab_size, config.dropout, config.activation_function) == (37_000, 0.1, "relu")
    assert (config.attention_dropout, config.activation_dropout, config.attention_bias) == (0, 0, False)
    assert (config.position_embedding_type, config.sinusoid_layout) == ("sinusoidal", "interleaved")
    assert not config.norm_first
    assert (config.tie_word_embeddings, config.scale_embedding, config.is_encoder_decoder) == (True, True, True)


def test_library_names_are_aliases_of_ours():
    config = VanillaTransformerConfig(**UNUSUAL)
    assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers) == (24, 3, 1)


def test_unusual_values_differ_from_the_defaults():
    default = VanillaTransformerConfig()
    assert all(getattr(default, name) != value for name, value in UNUSUAL.items())


def test_every_field_round_trips_through_a_folder(tmp_path):
    VanillaTransformerConfig(**UNUSUAL).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "vanilla_transformer"
    loaded = VanillaTransformerConfig.from_pretrained(tmp_path)
    assert {name: getattr(loaded, name) for name in UNUSUAL} == UNUSUAL


def test_diff_dict_rebuilds_the_same_configuration():
    config = VanillaTransformerConfig(**UNUSUAL)
    again = VanillaTransformerConfig(**config.to_diff_dict())
    assert again.to_dict() == config.to_dict()


@pytest.mark.parametrize(("fields", "message"), MISTAKES)
def test_invalid_value_raises_and_names_the_field(fields, message):
    with pytest.raises(ValueError, match=message):
        VanillaTransformerConfig(**fields)


def test_wrong_type_raises_and_names_the_field():
    with pytest.raises((TypeError, ValueError), match="d_model"):
        VanillaTransformerConfig(d_model="512")


class TestHeadWidths:
    """Reading head_dim always gives a number; the stored and saved value is the one given."""

    def test_missing_widths_are_computed(self):
        base = VanillaTransformerConfig()
        assert (base.head_dim, base.value_head_dim) == (64, 64)
        assert getattr(base, "head_dim", "the default") == 64
        narrow = VanillaTransformerConfig(head_dim=16)
        assert (narrow.head_dim, narrow.value_head_dim) == (16, 16)
        row_b = VanillaTransformerConfig.from_name("table3-b1")
        assert (row_b.head_dim, row_b.value_head_dim) == (16, 64)

    def test_encoder_and_decoder_have_separate_widths(self):
        config = VanillaTransformerConfig(d_model=16, encoder_attention_heads=2, decoder_attention_heads=4)
        assert (config.head_dim, config.head_dims(2), config.head_dims(4)) == (8, (8, 8), (4, 4))
        assert config.get_text_config(encoder=True).head_dim == 8
        assert config.get_text_config(decoder=True).head_dim == 4

    def test_widths_follow_d_model_and_heads_unless_given(self, tmp_path):
        VanillaTransformerConfig().save_pretrained(tmp_path)
        wide = VanillaTransformerConfig.from_pretrained(tmp_path, d_model=1024)
        wide.encoder_attention_heads = 16
        assert wide.head_dims(8) == (128, 128)
        assert wide.head_dim == 64
        wide.d_model, wide.head_dim = 256, 24
        assert (wide.head_dim, wide.value_head_dim) == (24, 24)
        wide.head_dim = None
        assert wide.head_dim == 16

    @pytest.mark.parametrize(
        "given", [{}, {"head_dim": 5}, {"value_head_dim": 7}, {"head_dim": 5, "value_head_dim": 7}]
    )
    def test_file_keeps_the_given_widths_and_round_trips(self, given, tmp_path):
        config = VanillaTransformerConfig(d_model=24, encoder_attention_heads=3, decoder_attention_heads=4, **given)
        config.save_pretrained(tmp_path)
        fields = json.loads((tmp_path / "config.json").read_text())
        widths = {name: fields.pop(name) for name in ("head_dim", "value_head_dim")}
        assert widths == {"head_dim": None, "value_head_dim": None} | given
        loaded = VanillaTransformerConfig.from_pretrained(tmp_path)
        for again in (loaded, copy.deepcopy(config), VanillaTransformerConfig(**config.to_diff_dict())):
            assert again.to_dict() == {**config.to_dict(), "architectures": again.architectures}
            assert [again.head_dims(heads) for heads in (3, 4)] == [config.head_dims(heads) for heads in (3, 4)]
        assert VanillaTransformerConfig(**{**fields, **given}).head_dims(4) == config.head_dims(4)


def test_unusual_but_valid_values_are_accepted():
    assert VanillaTransformerConfig(encoder_attention_heads=7, head_dim=64).head_dim == 64
    assert VanillaTransformerConfig(d_model=15, head_dim=4, position_embedding_type="learned").d_model == 15


def test_invalid_value_in_a_file_raises(tmp_path):
    VanillaTransformerConfig().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "dropout": 3}))
    with pytest.raises(ValueError, match="dropout must be"):
        VanillaTransformerConfig.from_pretrained(tmp_path)
