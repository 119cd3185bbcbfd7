"""The sizes and choices that make one Transformer of "Attention Is All You Need" (Vaswani et al. 2017)."""

import difflib
import math
import os
from pathlib import Path

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig

from .checks_vanilla_transformer import check_token
from .code_vanilla_transformer import save_code, without_code
from .weights_vanilla_transformer import check_configuration


_SIZES = (
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "head_dim",
    "value_head_dim",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "max_position_embeddings",
)


# The rows of Table 3, the big model, and the small one of Wu et al. (2021): differences from the base model. Rows
# D3 and D4 change label smoothing, which belongs to training: their models are the base model.
_VARIANTS = {
    "base": {},
    "big": {"d_model": 1024, "ffn_dim": 4096, "attention_heads": 16, "dropout": 0.3},
    "tiny": {"d_model": 128, "ffn_dim": 256, "attention_heads": 4, "layers": 4, "dropout": 0.3},
    "table3-a1": {"attention_heads": 1},  # d_k = d_v = 512
    "table3-a2": {"attention_heads": 4},  # 128
    "table3-a3": {"attention_heads": 16},  # 32
    "table3-a4": {"attention_heads": 32},  # 16
    "table3-b1": {"head_dim": 16, "value_head_dim": 64},
    "table3-b2": {"head_dim": 32, "value_head_dim": 64},
    "table3-c1": {"layers": 2},
    "table3-c2": {"layers": 4},
    "table3-c3": {"layers": 8},
    "table3-c4": {"d_model": 256},  # d_k = d_v = 32
    "table3-c5": {"d_model": 1024},  # 128
    "table3-c6": {"ffn_dim": 1024},
    "table3-c7": {"ffn_dim": 4096},
    "table3-d1": {"dropout": 0.0},
    "table3-d2": {"dropout": 0.2},
    "table3-d3": {},
    "table3-d4": {},
    "table3-e": {"position_embedding_type": "learned"},
}
_BOTH_SIDES = ("layers", "attention_heads", "ffn_dim")

# Probabilities, and the share that label smoothing spreads: from 0 to below 1.
_SHARES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "source_word_dropout",
    "target_word_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "classifier_dropout",
    "label_smoothing",
)


class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a [`VanillaTransformerModel`]; the defaults are the paper's base model (Table 3, first row).

    Every default is the paper's, but for `label_smoothing`, which belongs to training. Every departure from the paper
    is an option that is off.

    Args:
        vocab_size: Number of pieces in the vocabulary that source and target share (section 5.1: 37,000 for en-de).
        d_model: Width of every embedding and hidden state (section 3.1).
        encoder_layers: The paper's N, on the encoder's side (section 3.1).
        decoder_layers: The paper's N, on the decoder's side.
        encoder_attention_heads: The paper's h, in the encoder (section 3.2.2).
        decoder_attention_heads: The paper's h, in the decoder.
        head_dim: The paper's d_k, the width of one head's queries and keys. None means d_model / heads, and is saved
            as None. The attribute then reads as the encoder's width, and follows d_model and heads when they change.
        value_head_dim: The paper's d_v, the width of one head's values. None means, and reads as, `head_dim`.
        encoder_ffn_dim: The paper's d_ff, in the encoder (section 3.3).
        decoder_ffn_dim: The paper's d_ff, in the decoder.
        activation_function: Between the two layers of the feed-forward network (equation 2: ReLU).
        dropout: P_drop, on every sub-layer's output and on the sums of embeddings and positions (section 5.4).
        attention_dropout: Dropout on attention probabilities; the paper has it only in its parser (section 6.3).
        activation_dropout: Dropout after the feed-forward network's activation; none in the paper.
        source_word_dropout: Probability that training drops a whole token of the source: its embedding becomes zero,
            its position stays (Gal & Ghahramani 2016); see `word_dropout`. None in the paper.
        target_word_dropout: The same for the decoder's inputs; the start token is never dropped.
        encoder_layerdrop: Probability that training skips a layer of the encoder, drawn anew for each layer and batch
            (LayerDrop, Fan et al. 2020); none in the paper. Evaluation uses every layer, and nothing is rescaled.
        decoder_layerdrop: The same for the decoder.
        attention_bias: Whether the projections of attention have a bias; none in the paper (section 3.2.2).
        norm_first: Normalise each sub-layer's input instead of its residual sum, with one more normalisation at the
            end of either stack ("pre-norm"); the paper normalises the sum (section 3.1).
        layer_norm_eps: Added to the variance in layer normalisation; the paper gives no value.
        position_embedding_type: "sinusoidal" (section 3.5) or "learned" (Table 3, row E).
        sinusoid_layout: "interleaved" sines and cosines as in section 3.5, or "halves": all sines, then all cosines.
        max_position_embeddings: How many positions a learned table has. Sinusoids have no limit: for them it only tells
            tools the usual length.
        scale_embedding: Multiply embeddings by sqrt(d_model) (section 3.4).
        tie_word_embeddings: One matrix for source, target and output (section 3.4).
        output_bias: Whether the scores of the vocabulary have a bias; none in the paper, Marian's models have one.
        classifier_pooling: How a classifier makes one vector of the encoder's states: the "mean" or elementwise "max"
            of the real tokens, the "first" token, or the "last" real one. Only for
            [`VanillaTransformerForSequenceClassification`].
        classifier_dropout: Dropout on that vector; None means `dropout`.
        label_smoothing: The paper's epsilon_ls (section 5.4: 0.1), used by the loss in training mode alone. It is 0
            here because it belongs to training: `VanillaTransformerTrainer` sets it from its arguments.
        r_drop_alpha: Weight of R-Drop (Liang et al. 2021) in the loss, in training mode alone; none in the paper, 0 is
            off. See `linear_cross_entropy`; like `label_smoothing` it is set from the arguments.
        use_cache: Whether the decoder returns its keys and values for the next step.
        bos_token_id: Id of `<s>`.
        pad_token_id: Id of `<pad>`.
        eos_token_id: Id of `</s>`.
        decoder_start_token_id: The decoder's first input, in training and in translation.

    Raises:
        ValueError: For sizes that do not fit together or a choice that does not exist; the message names the field.

    Example:
        >>> VanillaTransformerConfig(d_model=128, encoder_attention_heads=4, decoder_attention_heads=4).hidden_size
        128
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 37_000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    head_dim: int | None = None
    value_head_dim: int | None = None
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    source_word_dropout: float | int = 0.0
    target_word_dropout: float | int = 0.0
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    attention_bias: bool = False
    norm_first: bool = False
    layer_norm_eps: float = 1e-5
    position_embedding_type: str = "sinusoidal"
    sinusoid_layout: str = "interleaved"
    max_position_embeddings: int = 1024
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    output_bias: bool = False
    classifier_pooling: str = "mean"
    classifier_dropout: float | int | None = None
    label_smoothing: float | int = 0.0
    r_drop_alpha: float | int = 0.0
    use_cache: bool = True
    is_encoder_decoder: bool = True
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs):
        super().__post_init__(**without_code(kwargs))
        self._check_sizes()
        for name in ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id"):
            check_token(name, getattr(self, name))
        self._check_shares()
        self._check_choice("position_embedding_type", ("sinusoidal", "learned"))
        self._check_choice("sinusoid_layout", ("interleaved", "halves"))
        self._check_choice("activation_function", tuple(ACT2FN))
        self._check_choice("classifier_pooling", ("mean", "max", "first", "last"))

    def head_dims(self, heads: int) -> tuple[int, int]:
        """d_k and d_v of attention with this many heads (section 3.2.2)."""
        given = vars(self)
        head_dim = given["head_dim"] or self.d_model // heads
        return head_dim, given["value_head_dim"] or head_dim

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs):
        """As in transformers, with our code beside `config.json`: see `code_vanilla_transformer`.

        Args:
            save_directory: Folder to save in; made if it is not there.
            push_to_hub: Whether to upload configuration and code too, by [`~PreTrainedConfig.push_to_hub`].
            **kwargs: Passed on to it; `repo_id` is by default the folder's name.
        """
        super().save_pretrained(save_directory)
        save_code(save_directory)
        if push_to_hub:
            self.push_to_hub(**{"repo_id": Path(save_directory).name, **kwargs})

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs) -> "VanillaTransformerConfig":
        """As in transformers: makes a configuration from the fields of `config.json`.

        Raises:
            ValueError: The file asks for attention from the Hub and the caller does not, or for weights that are not in
                a file of tensors beside it.
        """
        check_configuration(config_dict, kwargs)
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike) -> "VanillaTransformerConfig":
        """As in transformers.

        Raises:
            ValueError: As for `from_dict`.
        """
        return cls.from_dict(cls._dict_from_json_file(json_file))

    @classmethod
    def from_name(cls, name: str, **overrides) -> "VanillaTransformerConfig":
        """The configuration of a model that the paper names.

        Args:
            name: "base", "big", a row of Table 3 from "table3-a1" to "table3-e" (rows are counted from the top of
                their block: "table3-c4" is d_model = 256), or "tiny", the 4-layer model of Wu et al. (2021).
            **overrides: Fields to change, say `vocab_size`.

        Raises:
            ValueError: There is no model of that name; the message lists all names. Or an override names a field that
                is really two, one on each side.

        Example:
            >>> VanillaTransformerConfig.from_name("big").d_model
            1024
        """
        if name not in _VARIANTS:
            near = difflib.get_close_matches(str(name).lower(), list(_VARIANTS), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"There is no model {name!r}; {hint}All: {', '.join(_VARIANTS)}.")
        for field in overrides.keys() & set(_BOTH_SIDES):
            raise ValueError(f"{field} is two fields: set encoder_{field} and decoder_{field}.")
        fields = {}
        for field, value in _VARIANTS[name].items():
            names = (f"encoder_{field}", f"decoder_{field}") if field in _BOTH_SIDES else (field,)
            fields |= dict.fromkeys(names, value)
        return cls(**{**fields, **overrides})

    def _check_sizes(self):
        for name in _SIZES:
            value = vars(self)[name]  # as it was given
            if value is None and name in ("head_dim", "value_head_dim"):
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if vars(self)["head_dim"] is None and self.d_model % heads:
                raise ValueError(
                    f"d_model ({self.d_model}) is not a multiple of {side}_attention_heads ({heads}): "
                    "choose another number of heads or set head_dim."
                )
        if self.position_embedding_type == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"Sinusoidal positions need an even d_model, not {self.d_model}.")

    def _check_shares(self):
        if not self.layer_norm_eps > 0:
            raise ValueError(f"layer_norm_eps must be above 0, not {self.layer_norm_eps}.")
        if not 0 <= self.r_drop_alpha < math.inf:
            raise ValueError(f"r_drop_alpha must be at least 0 and finite, not {self.r_drop_alpha}.")
        for name in _SHARES:
            if name == "classifier_dropout" and self.classifier_dropout is None:
                continue
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}.")

    def _check_choice(self, name: str, choices: tuple[str, ...]):
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}.")


def _worked_out(name: str, place: int) -> property:
    """A field that keeps and saves the value it was given, but always reads as a number."""

    def read(config: VanillaTransformerConfig) -> int:
        return config.head_dims(config.encoder_attention_heads)[place]

    def write(config: VanillaTransformerConfig, value: int | None):
        vars(config)[name] = value

    return property(read, write)


# Not in the class's body, where a dataclass would take the property for the field's default.
VanillaTransformerConfig.head_dim = _worked_out("head_dim", 0)
VanillaTransformerConfig.value_head_dim = _worked_out("value_head_dim", 1)


__all__ = ["VanillaTransformerConfig"]
