"""The encoder as a text classifier: a whole sentence in, one of several classes (or a number) out.

The paper does not classify; the head is the one that text-classification systems put on an encoder: the states of the
source are pooled into one vector, dropped out and projected.
"""

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .modeling_vanilla_transformer import VanillaTransformerEncoder, VanillaTransformerPreTrainedModel


class VanillaTransformerEncoderModel(VanillaTransformerPreTrainedModel):
    """The encoder of a [`VanillaTransformerModel`] without the decoder, under the same parameter names."""

    _tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        if config.tie_word_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = VanillaTransformerEncoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.shared if self.config.tie_word_embeddings else self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding):
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.shared = value

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """As [`VanillaTransformerEncoder`]."""
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)


class VanillaTransformerForSequenceClassification(VanillaTransformerPreTrainedModel):
    """Encoder, pooling and a linear layer.

    `config.classifier_pooling` says how the source's states become one vector: the "mean" or elementwise "max" of the
    real tokens, the "first" of them, or the "last", which is `</s>`.
    """

    accepts_loss_kwargs = False  # the loss is a mean: Trainer has to divide by the number of accumulated batches
    _tied_weights_keys = {"model.encoder.embed_tokens.weight": "model.shared.weight"}
    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = VanillaTransformerEncoderModel(config)
        share = config.dropout if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(share)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Scores the classes of each source.

        Args:
            input_ids: (batch, source) token ids.
            attention_mask: (batch, source), 1 for tokens and 0 for padding; None if nothing is padded.
            inputs_embeds: (batch, source, d_model) instead of `input_ids`.
            labels: (batch,) class ids; (batch, num_labels) zeros and ones for `problem_type`
                "multi_label_classification"; (batch,) or (batch, num_labels) numbers for "regression".

        Returns:
            `logits` (batch, num_labels) and with `labels` the `loss`, a mean over the batch: cross-entropy, binary
            cross-entropy or squared error as `config.problem_type` says. If that is None, it is set from the labels.

        Raises:
            ValueError: As for the encoder and `pool`.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, **kwargs, return_dict=True)
        pooled = self.pool(outputs.last_hidden_state, attention_mask)  # (batch, d_model)
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, logits=logits, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def pool(self, states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Pools the states (batch, source, d_model) of the real tokens into one vector (batch, d_model).

        Raises:
            ValueError: `attention_mask` does not have two dimensions.
        """
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        if attention_mask.dim() != 2:
            raise ValueError(f"A classifier's attention_mask is (batch, length), not {tuple(attention_mask.shape)}.")
        if self.config.classifier_pooling == "mean":
            real = attention_mask.to(states.dtype)  # (batch, source)
            return (states * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)
        if self.config.classifier_pooling == "max":
            padding = (attention_mask == 0)[..., None]  # (batch, source, 1)
            largest = states.masked_fill(padding, -torch.inf).amax(dim=1)
            return largest.masked_fill(padding.all(dim=1), 0.0)
        real = (attention_mask != 0).long()  # half precision could not tell positions apart
        rank = torch.arange(states.shape[1], device=states.device)
        if self.config.classifier_pooling == "first":
            rank = rank.flip(0)
        position = ((rank + 1) * real).argmax(dim=1)  # (batch,)
        return states[torch.arange(states.shape[0], device=states.device), position]


__all__ = ["VanillaTransformerEncoderModel", "VanillaTransformerForSequenceClassification"]
