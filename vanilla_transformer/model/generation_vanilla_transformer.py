"""How the paper turns a trained model into translations (section 6.1), inside transformers' `generate()`.

Three fields of the generation config are ours: `OUR_GENERATION_FIELDS`. Private hooks of
transformers' `GenerationMixin` are used in [`PaperGeneration`] alone, checked on 5.17 and 5.23.
"""

import copy
import math

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.generation.logits_process import (
    ForcedEOSTokenLogitsProcessor,
    LogitNormalization,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput
from transformers.utils import logging

from .checks_vanilla_transformer import OUR_GENERATION_FIELDS, check_length_penalty, check_our_fields
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .constraints_vanilla_transformer import ConstrainedOutput, LexicalConstraints
from .search_vanilla_transformer import (
    Restrictions,
    Translation,
    beam_search,
    drawn,
    exact_top_k,
    least_risk_first,
    sample,
    sums_dtype,
)
from .steps_vanilla_transformer import StepwiseDecoder


logger = logging.get_logger(__name__)

# "We set the maximum output length during inference to input length + 50" (section 6.1).
MAX_LENGTH_OFFSET = 50

_WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)
# Places of the logits processors that our searches know, in transformers' order.
_PLACES = {NoRepeatNGramLogitsProcessor: 0, NoBadWordsLogitsProcessor: 1, ForcedEOSTokenLogitsProcessor: 2}
_PLACES |= dict.fromkeys(_WARPERS, 3) | {LogitNormalization: 4}


def default_generation_config(config: VanillaTransformerConfig) -> GenerationConfig:
    """How a new model generates: by greedy search, with the paper's length limit.

    A beam search that is asked for has the paper's form of length penalty, with transformers' exponent of 1.
    """
    generation_config = GenerationConfig.from_model_config(config)
    generation_config.length_penalty_type = "gnmt"
    generation_config.max_length_offset = MAX_LENGTH_OFFSET
    generation_config._from_model_config = False  # else transformers drops our fields when it loads them
    return generation_config


def paper_generation_config(config: VanillaTransformerConfig, **overrides) -> GenerationConfig:
    """The paper's decoding (section 6.1), to be saved with a trained model.

    Beam search with 4 hypotheses; log-probabilities divided by ((5 + |Y|) / 6)^0.6, the length penalty of GNMT (Wu et
    al. 2016); at most 50 tokens more than the source has; the search of a sentence ends when no open hypothesis can
    still win.

    Args:
        config: Gives the ids of the special tokens.
        **overrides: Fields of `GenerationConfig` to change (those about beams are ignored with one beam), or
            `length_penalty_type` ("gnmt", or "length" for transformers' own |Y|^alpha), `max_length_offset` (None:
            no limit that depends on the source) and `minimum_bayes_risk` (see `generate`).

    Raises:
        ValueError: If one of our fields has an invalid value.
    """
    settings = {
        "num_beams": 4,
        "bos_token_id": config.bos_token_id,
        "pad_token_id": config.pad_token_id,
        "eos_token_id": config.eos_token_id,
        "decoder_start_token_id": config.decoder_start_token_id,
        "length_penalty_type": "gnmt",
        "max_length_offset": MAX_LENGTH_OFFSET,
        **overrides,
    }
    of_beams = {"length_penalty": 0.6, "early_stopping": "never"}
    if settings["num_beams"] > 1:
        settings = of_beams | settings
    else:  # transformers refuses to save fields that greedy search does not use, say a recipe's length penalty
        settings = {name: value for name, value in settings.items() if name not in of_beams}
    check_our_fields(**{name: settings[name] for name in OUR_GENERATION_FIELDS if name in settings})
    return GenerationConfig(**settings)


def length_penalty(length, alpha: float, kind: str):
    """The divisor of a log-probability: ((5 + |Y|) / 6)^alpha ("gnmt", section 6.1) or |Y|^alpha ("length")."""
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


class GnmtExponent(float):
    """An alpha for which `length**alpha` of a whole number is ((5 + length) / 6)^alpha.

    It gives transformers' own beam search the length penalty of section 6.1 without a change to its code.
    """

    def __rpow__(self, length: int) -> float:
        return length_penalty(length, float(self), "gnmt")


class SourceLengthLimit(StoppingCriteria):
    """Ends each output at its own source's length + `extra_length` tokens, whatever else is in the batch (section 6.1).

    Args:
        source_lengths: (batch,) tokens of each source.
        extra_length: How many more the output may have.
    """

    def __init__(self, source_lengths: torch.Tensor, extra_length: int = MAX_LENGTH_OFFSET):
        self.limits = source_lengths + extra_length  # (batch,)

    def __call__(self, input_ids: torch.LongTensor, scores, **kwargs) -> torch.BoolTensor:
        hypotheses = input_ids.shape[0] // self.limits.shape[0]  # rows per sentence: beam search has several
        limits = self.limits.to(input_ids.device).repeat_interleave(hypotheses)
        return input_ids.shape[1] - 1 >= limits  # the start token does not count


class PaperGeneration:
    """Puts the paper's length limit, its length penalty and our searches into `GenerationMixin`, the next base class.

    Greedy search, beam search and sampling that ask for nothing special run on [`StepwiseDecoder`]. They know
    `no_repeat_ngram_size`, and `bad_words_ids` of single tokens, `forced_eos_token_id` and `renormalize_logits`, which
    OPUS-MT's models have.
    Everything else (other logits processors, other stopping criteria, streamers, a cache of the caller's, scores or
    attentions of every step, prompts of PEFT) runs in transformers, with the same length limit and length penalty. With
    `return_dict_in_generate` a beam search always has `sequences_scores`; beam indices and the cache come with the
    scores of every step.
    """

    takes_constraints = True
    scores_without_steps = True  # TranslationPipeline gets the results' scores without those of every step

    @torch.no_grad()
    def generate(
        self, inputs=None, generation_config=None, logits_processor=None, stopping_criteria=None, *args, **kwargs
    ):
        """As `GenerationMixin.generate`, with lexical constraints, and three more fields of the generation config.

        Unless the call bounds the length (`max_length`, `max_new_tokens`), each output has at most `max_length_offset`
        tokens more than its source, at most the `max_length` saved with the model, if there is one, and no more than
        the model has learned positions for.

        Args:
            inputs: (batch, source) token ids, as `input_ids`.
            generation_config: Instead of the model's.
            logits_processor: As in transformers, like `stopping_criteria`.
            *args: The further arguments of transformers.
            **kwargs: Fields of the generation config to change, and inputs of the model. Our fields are
                `length_penalty_type` ("gnmt" or "length"), `max_length_offset` (a number of tokens, or None) and
                `minimum_bayes_risk`: whether a beam search returns, of its `num_beams` hypotheses, those first that are
                most like the others ([`least_risk_first`]), and not those with the best scores.
                `force_words_ids`, as in transformers 4: phrases that every translation of a beam search must contain,
                each a list of token ids, or a list of such lists, one of which is enough. `constraints`: a list of the
                same form for each sentence of the batch. A phrase that is given twice must be there twice, whatever
                `no_repeat_ngram_size` says. If no translation within the limit has them all, the sentence is
                translated without them and a warning is logged; with `return_dict_in_generate`, `constraints_met` says
                so instead.

        Raises:
            ValueError: If one of our fields has an invalid value, the length penalty of a beam search is beyond
                50, or constraints are malformed, do not match this batch, or are given to a search that is not a plain
                beam search.
        """
        ours = {name: self._our_field(name, kwargs, generation_config) for name in OUR_GENERATION_FIELDS}
        check_our_fields(**ours)
        constraints = self._constraints(kwargs)
        if constraints:
            stopping_criteria = StoppingCriteriaList([*(stopping_criteria or []), constraints])
        if (mask := self._mask_of_padding(inputs, generation_config, kwargs)) is not None:
            kwargs["attention_mask"] = mask
        if (most := self._saved_maximum(generation_config, kwargs)) is not None:
            kwargs["max_new_tokens"] = most
        limits = self._source_lengths_and_maximum(inputs, generation_config, ours["max_length_offset"], kwargs)
        if limits is not None:
            lengths, longest = limits
            if generation_config is None:
                kwargs["max_length"] = longest
            else:  # transformers warns of a config beside other settings
                generation_config = copy.deepcopy(generation_config)
                generation_config.max_length = longest
            stopping_criteria = StoppingCriteriaList(stopping_criteria or [])
            stopping_criteria.append(SourceLengthLimit(lengths, ours["max_length_offset"]))
        unknown = {
            name for name in OUR_GENERATION_FIELDS if name in kwargs and not hasattr(self.generation_config, name)
        }
        if unknown:  # transformers overrides the fields that a config has
            generation_config = copy.deepcopy(generation_config or self.generation_config)
            for name in unknown:
                setattr(generation_config, name, kwargs.pop(name))
            # transformers warns of a config beside other settings. Those that are None count only beside it.
            given = {name: value for name, value in kwargs.items() if value is not None}
            kwargs = dict.fromkeys(kwargs.keys() - given.keys()) | generation_config.update(**given)
        return super().generate(inputs, generation_config, logits_processor, stopping_criteria, *args, **kwargs)

    def _constraints(self, kwargs: dict) -> LexicalConstraints | None:
        """Takes the constraints out of a call's arguments, unless the caller brings its own search."""
        if kwargs.get("custom_generate") is not None:
            return None
        given = [kwargs.pop(name, None) for name in ("force_words_ids", "constraints")]
        return LexicalConstraints(*given, self.config.vocab_size)

    def _our_field(self, name: str, kwargs: dict, generation_config: GenerationConfig | None):
        """The value of a field of ours: the call's, else its config's, else the model's, else the default."""
        for given in (kwargs, vars(generation_config) if generation_config else {}, vars(self.generation_config)):
            if name in given:
                return given[name]
        return OUR_GENERATION_FIELDS[name]

    def _source_lengths_and_maximum(
        self, inputs, generation_config: GenerationConfig | None, offset: int | None, kwargs: dict
    ) -> tuple[torch.LongTensor, int] | None:
        """If sources limit outputs: the sources' lengths (batch,), and the length that no output may exceed."""
        saved = self.generation_config
        bounds = [kwargs.get("max_length"), kwargs.get("max_new_tokens"), saved.max_new_tokens]
        if generation_config is not None and generation_config is not saved:
            bounds += [wanted_max_length(generation_config), generation_config.max_new_tokens]
        if offset is None or any(bound is not None for bound in bounds):
            return None
        lengths = self._source_lengths(inputs, generation_config or saved, kwargs)
        longest = 1 + int(lengths.max()) + offset  # with the start token
        if self._setting("forced_eos_token_id", generation_config or saved, kwargs) is not None:
            longest += 1  # no translation gets there: an end would be forced on the longest of this batch alone
        if (wanted := wanted_max_length(saved)) is not None:
            longest = min(longest, wanted)
        longest = min(longest, self.positions or longest)
        if kwargs.get("decoder_input_ids") is not None:  # a translation has at least one token more than it began with
            longest = max(longest, 1 + self._begun(generation_config or saved, kwargs))
        return lengths, longest

    def _begun(self, config: GenerationConfig, kwargs: dict) -> int:
        """How many tokens a translation begins with."""
        begun, start = kwargs.get("decoder_input_ids"), self._setting("decoder_start_token_id", config, kwargs)
        if begun is None:
            return 1
        prepended = start is not None and bool(
            (begun[:, 0] != torch.as_tensor(start, device=begun.device).flatten()).all()
        )
        return begun.shape[1] + prepended  # by transformers

    @property
    def positions(self) -> int | None:
        """How many tokens a source or a translation may have, if positions are learned; None: any number."""
        return self.config.max_position_embeddings if self.config.position_embedding_type == "learned" else None

    def _setting(self, name: str, config: GenerationConfig, kwargs: dict):
        """A field of the generation config as transformers finds it: the call's, its config's, or the model's."""
        given = (kwargs.get(name), getattr(config, name, None), getattr(self.generation_config, name, None))
        return next((each for each in given if each is not None), None)

    def _source_lengths(self, inputs, config: GenerationConfig, kwargs: dict) -> torch.LongTensor:
        """(batch,) tokens of each source."""
        if (mask := kwargs.get("attention_mask")) is not None:
            return mask.sum(dim=1).long()
        sources = inputs
        for name in ("input_ids", "inputs_embeds", "encoder_outputs"):
            sources = kwargs.get(name) if sources is None else sources
        if sources is None:  # generate() then starts from one start token
            return torch.ones(1, dtype=torch.long, device=self.device)
        if not isinstance(sources, torch.Tensor):
            sources = sources[0]
        return torch.full((sources.shape[0],), sources.shape[1], device=sources.device)

    def _mask_of_padding(self, inputs, generation_config: GenerationConfig | None, kwargs: dict) -> torch.Tensor | None:
        """(batch, source) mask for token ids with padding that come without one; None where there is none to make.

        transformers infers it for decoders alone (5.23). Without it sources would attend to padding.
        """
        ids = kwargs.get("input_ids") if inputs is None else inputs
        if ids is None or any(kwargs.get(name) is not None for name in ("attention_mask", "encoder_outputs")):
            return None
        config = generation_config or self.generation_config
        pad, ends = (self._setting(name, config, kwargs) for name in ("pad_token_id", "eos_token_id"))
        if pad is None or pad in (ends if isinstance(ends, (list, tuple)) else [ends]) or ids.is_floating_point():
            return None
        mask = ids != pad
        return None if ids.dim() != 2 or bool(mask.all()) or not bool(mask.any(dim=1).all()) else mask.long()

    def _saved_maximum(self, generation_config: GenerationConfig | None, kwargs: dict) -> int | None:
        """The model's own `max_new_tokens`, or as many as there are learned positions; None if the call has a limit."""
        most = self.generation_config.max_new_tokens
        own = generation_config is not None or any(kwargs.get(name) for name in ("max_length", "max_new_tokens"))
        if self.positions is None or most is None or own:
            return None
        return min(most, max(1, self.positions + 1 - self._begun(self.generation_config, kwargs)))

    # ------------------------------------------------------------ transformers' private hooks, 5.17 to 5.23

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        """Makes the cache that transformers would make, unless the call or its config asks for a special one.

        All our layers have the same kind of cache. transformers reads the configuration to find other kinds, which
        takes longer than a step of a small model.
        """
        special = generation_config.cache_implementation is not None or generation_config.is_assistant
        if generation_config.use_cache and not special and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
        else:
            super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)

    def _beam_search(
        self, input_ids, logits_processor, stopping_criteria, generation_config, synced_gpus=False, **model_kwargs
    ):
        settings = generation_config
        check_length_penalty(settings.length_penalty)
        restrictions, unsupported = _restrictions(logits_processor, input_ids.shape[1], self.config.vocab_size)
        special = settings.do_sample or settings.output_scores or settings.output_logits or unsupported
        special = special or synced_gpus or settings.low_memory  # transformers refuses low_memory
        constraints = next((each for each in stopping_criteria if isinstance(each, LexicalConstraints)), None)
        others = [each for each in stopping_criteria if each is not constraints]
        if special or not self._is_plain(input_ids, others, settings, model_kwargs):
            return self._transformers_beam_search(
                input_ids, logits_processor, stopping_criteria, settings, synced_gpus=synced_gpus, **model_kwargs
            )
        decoder, prefix, limits, eos_ids = self._stepwise(input_ids, stopping_criteria, settings, model_kwargs)
        kind, alpha = getattr(settings, "length_penalty_type", "length"), settings.length_penalty
        rules = {
            "eos_ids": eos_ids,
            "penalty": lambda length: length_penalty(length, alpha, kind),
            "early_stopping": settings.early_stopping,
            "restrictions": restrictions,
        }
        by_sentence = beam_search(decoder, prefix, limits, **rules, constraints=constraints)
        unmet = [i for i, best in enumerate(by_sentence) if not best] if constraints is not None else []
        if unmet:
            decoder, *_ = self._stepwise(input_ids, others, settings, model_kwargs)
            decoder.keep(torch.tensor(unmet, device=prefix.device))
            again = beam_search(decoder, prefix[unmet], [limits[i] for i in unmet], **rules)
            by_sentence = [best or again.pop(0) for best in by_sentence]
        if getattr(settings, "minimum_bayes_risk", False):
            by_sentence = [
                [best[i] for i in least_risk_first([_without_end(each.tokens, eos_ids) for each in best])]
                for best in by_sentence
            ]
        count, none = settings.num_return_sequences, Translation([], -math.inf)
        returned = [translation for best in by_sentence for translation in (best + [none] * count)[:count]]
        sequences = _padded(prefix, [translation.tokens for translation in returned], settings)
        if not settings.return_dict_in_generate:
            if unmet:
                logger.warning(
                    f"Within the limit there is no translation with all phrases of the sentences {unmet} (from 0): "
                    "they are translated without constraints."
                )
            return sequences
        scores = [translation.score for translation in returned]
        scores = torch.tensor(scores, dtype=sums_dtype(), device=sequences.device)
        if constraints is not None:
            met = [n // count not in unmet and each.score != -math.inf for n, each in enumerate(returned)]
            met = torch.tensor(met, device=sequences.device)
            return ConstrainedOutput(sequences=sequences, sequences_scores=scores, constraints_met=met)
        return GenerateBeamEncoderDecoderOutput(sequences=sequences, sequences_scores=scores)

    def _transformers_beam_search(self, input_ids, logits_processor, stopping_criteria, generation_config, **options):
        """The mixin's own search, with our length penalty; its results have scores even if its steps have none."""
        settings = generation_config
        wants_scores = settings.output_scores
        if getattr(settings, "length_penalty_type", "length") == "gnmt":
            settings.length_penalty = GnmtExponent(settings.length_penalty)
        # transformers returns the scores of results only with those of every step.
        settings.output_scores = settings.return_dict_in_generate
        count, by_risk = settings.num_return_sequences, getattr(settings, "minimum_bayes_risk", False)
        if by_risk:
            settings.num_return_sequences = settings.num_beams
        output = super()._beam_search(input_ids, logits_processor, stopping_criteria, settings, **options)
        if by_risk:
            output = _first_by_risk(output, input_ids.shape[1], count, settings)
        if settings.return_dict_in_generate and not wants_scores:
            output = type(output)(**{name: value for name, value in output.items() if name != "scores"})
        return output

    def _sample(
        self,
        input_ids,
        logits_processor,
        stopping_criteria,
        generation_config,
        synced_gpus=False,
        streamer=None,
        **model_kwargs,
    ):
        settings = generation_config
        restrictions, unsupported = _restrictions(logits_processor, input_ids.shape[1], self.config.vocab_size)
        special = streamer is not None or settings.return_dict_in_generate or synced_gpus
        special = special or not _only_warps(unsupported)
        if special or not self._is_plain(input_ids, stopping_criteria, settings, model_kwargs):
            return super()._sample(
                input_ids,
                logits_processor,
                stopping_criteria,
                settings,
                synced_gpus=synced_gpus,
                streamer=streamer,
                **model_kwargs,
            )
        decoder, prefix, limits, eos_ids = self._stepwise(input_ids, stopping_criteria, settings, model_kwargs)

        top_k = _first_top_k(unsupported)

        def draw(scores: torch.Tensor) -> torch.LongTensor:
            # Of equal scores at the edge, which 16 bits often have, transformers keeps all.
            in_16_bits = self.dtype != torch.float32 or torch.is_autocast_enabled(scores.device.type)
            if top_k is None or in_16_bits:
                return drawn(unsupported(None, scores))
            values, places = exact_top_k(scores, min(top_k, scores.shape[1]))
            return places.gather(1, drawn(unsupported(None, values))[:, None])[:, 0]

        def best(scores: torch.Tensor) -> torch.LongTensor:
            return exact_top_k(scores, 1)[1][:, 0]

        choose = draw if settings.do_sample else best
        found = sample(decoder, prefix, limits, eos_ids=eos_ids, choose=choose, restrictions=restrictions)
        return _padded(prefix, [translation for each in found for translation in each], settings)

    def _is_plain(self, input_ids, stopping_criteria, settings: GenerationConfig, model_kwargs: dict) -> bool:
        """Whether our own search may stand in for transformers'."""
        cache, mask = model_kwargs.get("past_key_values"), model_kwargs.get("attention_mask")
        return (
            not self.training
            and self._takes_plain_steps()
            and (mask is None or bool(mask.any(dim=1).all()))  # sdpa treats a fully hidden source differently
            and settings.use_cache
            and not settings.output_attentions
            and not settings.output_hidden_states
            and type(cache) is EncoderDecoderCache
            and type(cache.self_attention_cache) is type(cache.cross_attention_cache) is DynamicCache
            and cache.get_seq_length() == 0
            and not getattr(cache, "_is_user_defined", False)  # `generate` marks a cache that the caller passed in
            and all(self._is_known(each, settings) for each in stopping_criteria)
            and all(
                value is None or value is False or name in ("attention_mask", "encoder_outputs", "past_key_values")
                for name, value in model_kwargs.items()
                if name not in ("use_cache", "return_dict", "cache_position", "labels")  # no model ever sees these
            )
        )

    @staticmethod
    def _is_known(criterion: StoppingCriteria, settings: GenerationConfig) -> bool:
        """Whether our searches know a criterion. The caller's own length or end takes the place of the config's."""
        if type(criterion) is MaxLengthCriteria:
            return criterion.max_length == settings.max_length
        if type(criterion) is EosTokenCriteria:
            return criterion.eos_token_id is settings._eos_token_tensor  # comparing values would wait for a GPU
        return type(criterion) is SourceLengthLimit

    def _takes_plain_steps(self) -> bool:
        """Whether a step of the model needs no more than tokens, masks and a cache.

        PEFT, if it adds a prompt in front, replaces the object's method during generation. If sentences have adapters
        of their own, it hooks them to rows of the batch, of which our searches have others. Masks of ancestors need
        attention functions that take any mask.
        """
        prepares = getattr(self.prepare_inputs_for_generation, "__func__", None)
        plain = prepares is GenerationMixin.prepare_inputs_for_generation
        plain = plain and not any(module._forward_pre_hooks_with_kwargs for module in self.modules())
        return plain and self.config._attn_implementation in ("eager", "sdpa")

    def _stepwise_decoder(self, states: torch.Tensor, source_mask: torch.Tensor | None, beams: int) -> StepwiseDecoder:
        return StepwiseDecoder(self, states, source_mask, beams)

    def _stepwise(self, input_ids, stopping_criteria, settings: GenerationConfig, model_kwargs: dict):
        """Decoder, prefix (batch, length), a limit for each sentence and the end tokens, for a search of ours.

        `input_ids` and the encoder's output come repeated for every hypothesis.
        """
        beams = max(settings.num_beams, settings.num_return_sequences)
        states = model_kwargs["encoder_outputs"][0][::beams]
        mask = model_kwargs.get("attention_mask")
        prefix = input_ids[::beams]
        limits = prefix.new_full((len(prefix),), settings.max_length)
        for criterion in stopping_criteria:
            if isinstance(criterion, SourceLengthLimit):
                limits = limits.minimum(criterion.limits.to(limits.device) + 1)  # with the start token
        limits = (limits - prefix.shape[1]).clamp(min=1).tolist()
        decoder = self._stepwise_decoder(states, None if mask is None else mask[::beams], beams)
        eos = settings._eos_token_tensor
        return decoder, prefix, limits, set() if eos is None else set(eos.tolist())


def wanted_max_length(config: GenerationConfig) -> int | None:
    """A config's `max_length`, unless it is only a default that transformers has written.

    After its first batch of translations, transformers' Seq2SeqTrainer writes all of transformers' defaults into the
    model's config for good (5.23), among them a limit of 20 tokens. This limit does not count if the other defaults
    are there too.
    """
    all_written = all(getattr(config, name, None) is not None for name in ("typical_p", "epsilon_cutoff", "eta_cutoff"))
    return None if all_written and config.max_length == 20 else config.max_length


def _unpadded(tokens: list[int], ends: set[int], pad: int | None) -> list[int]:
    length = next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
    while length == len(tokens) and tokens and tokens[-1] == pad:  # the limit has cut it
        tokens, length = tokens[:-1], length - 1
    return tokens[:length]


def _without_end(tokens: list[int], ends: set[int]) -> list[int]:
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens


def _first_by_risk(output, prefix: int, count: int, settings: GenerationConfig):
    """Of transformers' results, `num_beams` for each sentence, those `count` of the lowest Bayes risk."""
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    ends = set() if settings._eos_token_tensor is None else {*settings._eos_token_tensor.tolist()}
    pad = None if settings._pad_token_tensor is None else int(settings._pad_token_tensor)
    rows, chosen, beams = [_unpadded(row, ends, pad) for row in sequences[:, prefix:].tolist()], [], settings.num_beams
    for first in range(0, len(rows), beams):
        candidates = [_without_end(row, ends) for row in rows[first : first + beams]]
        chosen += [first + place for place in least_risk_first(candidates)[:count]]
    width = prefix + max(len(rows[i]) for i in chosen)  # others may be longer
    chosen = torch.tensor(chosen, device=sequences.device)
    if isinstance(output, torch.Tensor):
        return output[chosen, :width]
    found = {name: output[name][chosen] for name in ("sequences_scores", "beam_indices") if name in output}
    return type(output)(**{**output, **found, "sequences": sequences[chosen, :width]})


def _padded(prefix: torch.LongTensor, translations: list[list[int]], settings: GenerationConfig) -> torch.LongTensor:
    """(batch * translations of a sentence, length): the sentence's prefix, its translation, padding."""
    pad = 0 if settings._pad_token_tensor is None else int(settings._pad_token_tensor)
    longest = max(map(len, translations))
    rows = [translation + [pad] * (longest - len(translation)) for translation in translations]
    found = torch.tensor(rows, dtype=torch.long, device=prefix.device).view(len(rows), longest)
    return torch.cat((prefix.repeat_interleave(len(rows) // len(prefix), dim=0), found), dim=1)


def _restrictions(
    processors: LogitsProcessorList, before: int, vocabulary: int
) -> tuple[Restrictions, LogitsProcessorList]:
    """What our searches do themselves of a list of processors, and the others. Outputs begin with `before` tokens.

    Ours are that of `no_repeat_ngram_size`, and those of OPUS-MT's models, which never choose padding, are made to end
    at the greatest length, and normalise scores again. In another order than transformers' own they can mean something
    else: then all are left to transformers.
    """
    places, known = [_PLACES.get(type(each), math.inf) for each in processors], sorted({*_PLACES.values()})
    of_place = [[each for each, place in zip(processors, places, strict=True) if place == here] for here in known]
    no_repeats, bad_words, forced_ends, warpers, normalizations = of_place
    forbidden = [words for each in bad_words for words in each.sequence_bias]
    are_ours = (
        places == sorted(places)
        and math.inf not in places
        and len(no_repeats) <= 1
        and len(forced_ends) <= 1
        and all(each.eos_token_id.numel() == 1 for each in forced_ends)
        and all(len(words) == 1 and 0 <= words[0] < vocabulary for words in forbidden)
    )
    if not are_ours:
        return Restrictions(), processors
    last = next(((each.max_length - before, int(each.eos_token_id)) for each in forced_ends), None)
    unrepeated = next((each.ngram_size for each in no_repeats), 0)
    restrictions = Restrictions(tuple(word for [word] in forbidden), unrepeated, last, bool(normalizations))
    return restrictions, LogitsProcessorList(warpers)


def _first_top_k(warpers: LogitsProcessorList) -> int | None:
    """How many tokens `top_k` leaves, if what comes before it does not depend on the others: they can go at once."""
    first = next((each for each in warpers if type(each) is not TemperatureLogitsWarper), None)
    removes = type(first) is TopKLogitsWarper and first.filter_value == -math.inf
    return first.top_k if removes else None


def _only_warps(logits_processor: LogitsProcessorList) -> bool:
    """Whether each row's new scores depend on its old scores alone."""
    return all(type(each) in _WARPERS for each in logits_processor)
