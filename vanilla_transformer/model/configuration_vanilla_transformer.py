"""The sizes and choices that make one Transformer of "Attention Is All You Need" (Vaswani et al. 2017)."""

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig


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


class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a [`VanillaTransformerModel`]; the defaults are the paper's base model (Table 3, first row).

    Every default is the paper's. What departs from the paper is an option that is off.

    Args:
        vocab_size: Number of pieces in the vocabulary that source and target share (section 5.1: 37,000 for en-de).
        d_model: Width of every embedding and hidden state (section 3.1).
        encoder_layers: The paper's N, on the encoder's side (section 3.1).
        decoder_layers: The paper's N, on the decoder's side.
        encoder_attention_heads: The paper's h, in the encoder (section 3.2.2).
        decoder_attention_heads: The paper's h, in the decoder.
        head_dim: The paper's d_k, the width of one head's queries and keys; None means d_model / heads.
        value_head_dim: The paper's d_v, the width of one head's values; None means the same as `head_dim`.
        encoder_ffn_dim: The paper's d_ff, in the encoder (section 3.3).
        decoder_ffn_dim: The paper's d_ff, in the decoder.
        activation_function: Between the two layers of the feed-forward network (equation 2: ReLU).
        dropout: P_drop, on every sub-layer's output and on the sums of embeddings and positions (section 5.4).
        attention_dropout: Dropout on attention probabilities; none in the paper.
        activation_dropout: Dropout after the feed-forward network's activation; none in the paper.
        attention_bias: Whether the projections of attention have a bias; none in the paper (section 3.2.2).
        norm_first: Normalise each sub-layer's input instead of its residual sum, with one more normalisation at the
            end of either stack ("pre-norm"); the paper normalises the sum (section 3.1).
        layer_norm_eps: Added to the variance in layer normalisation; the paper does not say.
        position_embedding_type: "sinusoidal" (section 3.5) or "learned" (Table 3, row E).
        sinusoid_layout: "interleaved" sines and cosines as in section 3.5, or "halves": all sines, then all cosines.
        max_position_embeddings: How many positions a learned table has. Sinusoids have no limit: for them it is only
            what tools read as the usual length.
        scale_embedding: Multiply embeddings by sqrt(d_model) (section 3.4).
        tie_word_embeddings: One matrix for source, target and output (section 3.4).
        label_smoothing: The paper's epsilon_ls (section 5.4: 0.1), used by the loss in training mode alone. It is 0
            here because it belongs to training: `VanillaTransformerTrainer` sets it from its arguments.
        use_cache: Whether the decoder hands back its keys and values for the next step.
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
    attention_bias: bool = False
    norm_first: bool = False
    layer_norm_eps: float = 1e-5
    position_embedding_type: str = "sinusoidal"
    sinusoid_layout: str = "interleaved"
    max_position_embeddings: int = 1024
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    label_smoothing: float | int = 0.0
    use_cache: bool = True
    is_encoder_decoder: bool = True
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self._check_sizes()
        self._check_shares()
        self._check_choice("position_embedding_type", ("sinusoidal", "learned"))
        self._check_choice("sinusoid_layout", ("interleaved", "halves"))
        self._check_choice("activation_function", tuple(ACT2FN))

    def _check_sizes(self):
        for name in _SIZES:
            value = getattr(self, name)
            may_be_none = name in ("head_dim", "value_head_dim")
            if value is None and may_be_none:
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if self.head_dim is None and self.d_model % heads:
                raise ValueError(
                    f"d_model ({self.d_model}) is not a multiple of {side}_attention_heads ({heads}): "
                    "choose another number of heads or set head_dim."
                )
        if self.position_embedding_type == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"Sinusoidal positions need an even d_model, not {self.d_model}.")

    def _check_shares(self):
        if self.layer_norm_eps <= 0:
            raise ValueError(f"layer_norm_eps must be above 0, not {self.layer_norm_eps}.")
        for name in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}.")

    def _check_choice(self, name: str, choices: tuple[str, ...]):
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}.")


__all__ = ["VanillaTransformerConfig"]
