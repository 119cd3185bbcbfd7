"""Several models with one vocabulary that translate together."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from .generation_vanilla_transformer import PaperGeneration
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerPreTrainedModel
from .steps_vanilla_transformer import EnsembleDecoder, StepwiseDecoder, mean_log_probabilities


class EnsembleForConditionalGeneration(VanillaTransformerPreTrainedModel, PaperGeneration, GenerationMixin):
    """Averages the log-probabilities of its members at every token, and translates with the same search as one of them.

    Normalised again, this is the geometric mean of the members' distributions.

    Its generation config starts as the first member's. Where transformers' own search is needed, it runs without a
    cache. An ensemble is saved by saving its members.

    Args:
        models: Members, in evaluation mode or not, of any sizes; they are not copied.

    Raises:
        ValueError: There are no models, or their vocabularies or special tokens differ.

    Example:
        >>> ensemble = EnsembleForConditionalGeneration([model, another])
        >>> ensemble.generate(**tokenizer(["A man sees the dog."], return_tensors="pt"))
    """

    def __init__(self, models: list[VanillaTransformerForConditionalGeneration]):
        _check_alike(models)
        super().__init__(models[0].config)
        self.models = nn.ModuleList(models)
        self.generation_config = models[0].generation_config
        self.train(models[0].training)

    @property
    def positions(self) -> int | None:
        """How many tokens all members can take; None: any number."""
        return min((each.positions for each in self.models if each.positions is not None), default=None)

    def generate(self, *args, **kwargs):
        """As a member does. Raises ValueError for an assistant model."""
        if kwargs.get("assistant_model") is not None:
            raise ValueError(
                "An ensemble has no cache, as a search with an assistant needs: leave assistant_model out."
            )
        return super().generate(*args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        labels: torch.LongTensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool | None = False,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """Scores every next token of the target.

        Args:
            input_ids: (batch, source), or `encoder_outputs` from `get_encoder()`.
            attention_mask: (batch, source), 1 for tokens and 0 for padding.
            decoder_input_ids: (batch, target); not needed with `labels`.
            decoder_attention_mask: (batch, target).
            encoder_outputs: The members' states side by side, (batch, source, sum of d_model).
            labels: (batch, target) the target with its `</s>`, -100 where nothing is to be predicted.
            output_attentions: Whether to return `cross_attentions`.
            output_hidden_states: There are none.
            **kwargs: Whatever else `generate` passes; not used.

        Returns:
            `logits` (batch, target, vocab_size), the averaged log-probabilities; with `labels` the `loss`, their
            negative log-likelihood in nats per token; `cross_attentions` of the last layers that all members have, each
            (batch, heads of all members, target, source).

        Raises:
            ValueError: Hidden states are asked for.
        """
        if output_hidden_states:
            raise ValueError("An ensemble has no hidden states of its own: ask its members for theirs.")
        if labels is not None and decoder_input_ids is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        outputs = [
            model(
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                output_attentions=output_attentions,
                use_cache=False,
                return_dict=True,
            )
            for model, states in zip(self.models, self._of_each(encoder_outputs[0]), strict=True)
        ]
        logits = mean_log_probabilities([each.logits for each in outputs])
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        attentions = None
        if output_attentions:
            layers = zip(*(each.cross_attentions[::-1] for each in outputs), strict=False)
            attentions = tuple(torch.cat(layer, dim=1) for layer in layers)[::-1]
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, cross_attentions=attentions, encoder_last_hidden_state=encoder_outputs[0]
        )

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """All encoders as one, which returns their states side by side: (batch, source, sum of d_model)."""
        return _Encoders(self.models)

    def get_input_embeddings(self) -> nn.Module:
        """The input embeddings of the first member."""
        return self.models[0].get_input_embeddings()

    def prepare_inputs_for_generation(self, input_ids: torch.LongTensor, **kwargs) -> dict:
        """All tokens so far, as there is no cache."""
        names = ("attention_mask", "encoder_outputs", "output_attentions", "output_hidden_states")
        return {"decoder_input_ids": input_ids, **{name: kwargs.get(name) for name in names}}

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The decoder's inputs (batch, target): the start token and the labels but the last."""
        return self.models[0].prepare_decoder_input_ids_from_labels(labels)

    def set_attn_implementation(self, *args, **kwargs):
        """As for any model of transformers, for all members."""
        for model in self.models:
            model.set_attn_implementation(*args, **kwargs)

    def save_pretrained(self, *args, **kwargs):
        """An ensemble has no folder of its own.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("An ensemble is saved by saving its members, each in a folder of its own.")

    def _of_each(self, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """States of the members' encoders, from those of `get_encoder()`, which have the widest of their types."""
        parts = states.split([model.config.d_model for model in self.models], dim=-1)
        return tuple(part.to(model.dtype) for model, part in zip(self.models, parts, strict=True))

    def _takes_plain_steps(self) -> bool:
        return all(model._takes_plain_steps() for model in self.models)

    def _stepwise_decoder(self, states: torch.Tensor, source_mask: torch.Tensor | None, beams: int) -> EnsembleDecoder:
        members = zip(self.models, self._of_each(states), strict=True)
        return EnsembleDecoder([StepwiseDecoder(model, own, source_mask, beams) for model, own in members])


class _Encoders(nn.Module):
    """The encoders of several models."""

    def __init__(self, models: nn.ModuleList):
        super().__init__()
        self.encoders = nn.ModuleList([model.get_encoder() for model in models])

    def forward(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> BaseModelOutput:
        states = [encoder(input_ids=input_ids, attention_mask=attention_mask)[0] for encoder in self.encoders]
        return BaseModelOutput(last_hidden_state=torch.cat(states, dim=-1))


def _check_alike(models: list[VanillaTransformerForConditionalGeneration]):
    if not models:
        raise ValueError("An ensemble needs at least one model.")
    for name in ("vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id"):
        values = [getattr(model.config, name) for model in models]
        if any(value != values[0] for value in values):
            raise ValueError(f"The members of an ensemble share one vocabulary; {name} is {values} in these.")


__all__ = ["EnsembleForConditionalGeneration"]
