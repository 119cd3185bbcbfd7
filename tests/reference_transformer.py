"""The paper's Transformer again, in float64 numpy with loops over heads: the reference for the model."""

import math

import numpy as np


# Equation 2 has ReLU; the others are options.
ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def sinusoid(position: int, d_model: int, layout: str) -> np.ndarray:
    """Section 3.5, one number at a time."""
    sines = [np.sin(position / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)]
    cosines = [np.cos(position / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)]
    if layout == "halves":
        return np.array(sines + cosines)
    return np.array([number for pair in zip(sines, cosines, strict=True) for number in pair])


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(query, key, value, allowed) -> np.ndarray:
    """Equation 1 for one head; `allowed` (target, source) says which positions may be attended to."""
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(np.where(allowed, scores, -np.inf)) @ value


class NumpyTransformer:
    """One sentence pair at a time, without batches, padding or cache."""

    def __init__(self, model):
        self.config = model.config
        self.weights = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(x.var(axis=-1, keepdims=True) + self.config.layer_norm_eps)
        return centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def multi_head(self, x, memory, allowed, name, heads):
        named = ((x, "q"), (memory, "k"), (memory, "v"))
        projected = [self.linear(states, f"{name}.{projection}_proj") for states, projection in named]
        split = [np.split(states, heads, axis=-1) for states in projected]
        outputs = [attention(q, k, v, allowed) for q, k, v in zip(*split, strict=True)]
        return self.linear(np.concatenate(outputs, axis=-1), f"{name}.out_proj")

    def feed_forward(self, x, name):
        activation = ACTIVATIONS[self.config.activation_function]
        return self.join(
            x, lambda y: self.linear(activation(self.linear(y, f"{name}.fc1")), f"{name}.fc2"), f"{name}.final"
        )

    def join(self, x, sub_layer, name):
        if self.config.norm_first:
            return x + sub_layer(self.norm(x, f"{name}_layer_norm"))
        return self.norm(x + sub_layer(x), f"{name}_layer_norm")

    def attend_itself(self, x, allowed, name, heads):
        return self.join(x, lambda y: self.multi_head(y, y, allowed, name, heads), name)

    def encoder_layer(self, x, name):
        everything = np.ones((len(x), len(x)), dtype=bool)
        x = self.attend_itself(x, everything, f"{name}.self_attn", self.config.encoder_attention_heads)
        return self.feed_forward(x, name)

    def decoder_layer(self, x, memory, name):
        past = np.tril(np.ones((len(x), len(x)), dtype=bool))
        everything = np.ones((len(x), len(memory)), dtype=bool)
        heads, cross = self.config.decoder_attention_heads, f"{name}.encoder_attn"
        x = self.attend_itself(x, past, f"{name}.self_attn", heads)
        x = self.join(x, lambda y: self.multi_head(y, memory, everything, cross, heads), cross)
        return self.feed_forward(x, name)

    def embed(self, ids, stack):
        x = self.weights[f"{stack}.embed_tokens.weight"][ids]
        if self.config.scale_embedding:
            x = x * np.sqrt(self.config.d_model)
        if self.config.position_embedding_type == "learned":
            return x + self.weights[f"{stack}.embed_positions.weight"][: len(ids)]
        d_model, layout = self.config.d_model, self.config.sinusoid_layout
        return x + np.stack([sinusoid(position, d_model, layout) for position in range(len(ids))])

    def finish(self, x, stack):
        return self.norm(x, f"{stack}.layer_norm") if self.config.norm_first else x

    def logits(self, source, target):
        memory = self.embed(source, "model.encoder")
        for i in range(self.config.encoder_layers):
            memory = self.encoder_layer(memory, f"model.encoder.layers.{i}")
        memory = self.finish(memory, "model.encoder")
        x = self.embed(target, "model.decoder")
        for i in range(self.config.decoder_layers):
            x = self.decoder_layer(x, memory, f"model.decoder.layers.{i}")
        return self.linear(self.finish(x, "model.decoder"), "lm_head")
