"""How to translate, resolved once for every engine; and an engine's input and output."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from transformers import GenerationConfig

from ..attention.weights import WordAlignment
from ..data.context import Context
from ..model.confidence_vanilla_transformer import Calibration
from ..model.generation_vanilla_transformer import MAX_LENGTH_OFFSET, wanted_max_length
from .glossary import UsedTerm
from .likelihood import Likelihood


if TYPE_CHECKING:
    from .reading import ReadLine


_NEW_TOKENS = 20  # transformers' limit if none is set
# After Chinese, Japanese and full-width signs the next sentence follows without a blank.
_NO_BLANK = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef][”’]*$")
_NOT_OF_GENERATE = {"positions", "prefix", "align", "constrained", "scores", "given", "calibration"}


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    `score` is its log-probability divided by the length penalty, the higher the better; None where the search has none
    (greedy search, samples). `alignment` says which words it was made from, if that was asked for. `cut` says whether
    the length limit ended it, or a part of it. `terms` are the glossary's terms in the sentence.

    `confidence` is the probability that it is good, by the model's calibration, and `likelihood` is what it was
    computed from. Both are there only if they were asked for, and not for a blank line.

    `broken_markup` says why a line's markup was translated as text, if markup was asked for and is broken.

    `read` is the line as the model read it, and `written` is what the model wrote. `text` is `written` with everything
    put back that the model did not see: markup, capitals, or the lack of a full stop. Only hypotheses of lines
    (`translate_lines`) have `read` and `written`.
    """

    text: str
    score: float | None = None
    alignment: WordAlignment | None = None
    cut: bool = False
    terms: tuple[UsedTerm, ...] | None = None
    likelihood: Likelihood | None = None
    confidence: float | None = None
    broken_markup: str | None = None
    read: "ReadLine | None" = None
    written: str | None = None

    def __add__(self, other: "Hypothesis") -> "Hypothesis":
        """The translation of two sentences one after the other; its score is the sum of theirs."""
        score = None if self.score is None or other.score is None else self.score + other.score
        alignment = None if self.alignment is None or other.alignment is None else self.alignment + other.alignment
        terms = None if self.terms is None or other.terms is None else self.terms + other.terms
        likelihood = None if None in (self.likelihood, other.likelihood) else self.likelihood + other.likelihood
        blank = "" if _NO_BLANK.search(self.text) else " "
        return Hypothesis(f"{self.text}{blank}{other.text}", score, alignment, self.cut or other.cut, terms, likelihood)

    def judged_by(self, calibration: Calibration) -> "Hypothesis":
        """This hypothesis, with its `confidence`."""
        if self.likelihood is None:
            return self
        return replace(self, confidence=calibration.confidence(self.likelihood.tokens, self.likelihood.samples))


@dataclass(frozen=True)
class Batch:
    """Sentences that are translated together."""

    numbers: list[int]  # where they stand among all sentences
    texts: list[str]
    sources: list[list[int]]  # token ids, after their contexts
    prefix: tuple[int, ...] = ()  # token ids that their translations begin with
    seed: int | None = None  # of the samples drawn for them
    constraints: list[list[list[list[int]]]] | None = None  # of each, as `generate` takes them
    contexts: list[Context] | None = None  # sentences before each, if the model reads any


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to translate: by the options of the call, else those saved with the model, else transformers' defaults.

    Most fields are named as in `generate()`. A translation keeps to all the limits that are set.
    """

    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    length_penalty_type: str = "length"
    minimum_bayes_risk: bool = False  # of a beam search's hypotheses, the one most like the others is the best
    early_stopping: bool | str = False
    do_sample: bool = False
    no_repeat_ngram_size: int = 0  # so many tokens in a row stand in a translation only once; 0: any number of times
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int | None = None  # after the prefix
    max_length: int | None = None  # with the start token and the prefix
    max_length_offset: int | None = None  # more than the source has (section 6.1)
    forced_eos_token_id: int | None = None  # the last token of a translation that reaches its limit
    positions: int | None = None  # tokens that the model has positions for; None: any number
    prefix: tuple[int, ...] = ()  # token ids that every translation begins with
    align: bool = False  # translations are to be aligned with their sources
    constrained: bool = False  # batches may have constraints
    scores: bool = False
    calibration: Calibration | None = None  # translations are to have a `confidence` by it
    given: Mapping  # the call's own options, for `generate()`

    @classmethod
    def resolve(
        cls,
        options: Mapping,
        saved: GenerationConfig,
        *,
        positions: int | None = None,
        prefix: Sequence[int] = (),
        align: bool = False,
        constrained: bool = False,
        calibration: Calibration | None = None,
        offset: int | None = MAX_LENGTH_OFFSET,
    ) -> "Decoding":
        """Settles how a model translates.

        Args:
            options: The options of the call, as for `generate()`; a `generation_config` comes after the others.
            saved: The model's generation config.
            positions, prefix, align, constrained, calibration: See the fields.
            offset: The `max_length_offset` if neither the call nor the model sets one.

        Raises:
            ValueError: Translations may have constraints, and the search cannot meet them.
        """
        call = dict(options)
        if (config := options.get("generation_config")) is not None:
            of_config = vars(config) | {"max_length": wanted_max_length(config)}
            call = {name: value for name, value in of_config.items() if value is not None} | call
        asked = {name: call.get(name, getattr(saved, name, None)) for name in cls._asked()}
        found = {name: value for name, value in asked.items() if value is not None}
        if "max_new_tokens" in found:
            limits = {"max_length": None, "max_length_offset": None}
        elif call.get("max_length") is not None:
            limits = {"max_length_offset": None}
        elif offset is not None and "max_length_offset" not in call and not hasattr(saved, "max_length_offset"):
            limits = {"max_length": None, "max_length_offset": offset}
        else:
            limits = {"max_length": wanted_max_length(saved)}
            if limits["max_length"] is None and "max_length_offset" not in found:
                limits["max_new_tokens"] = _NEW_TOKENS
        decoding = cls(
            **found | limits | {"positions": positions, "prefix": tuple(prefix), "align": align},
            constrained=constrained,
            scores=bool(call.get("return_dict_in_generate", getattr(saved, "return_dict_in_generate", False))),
            calibration=calibration,
            given=MappingProxyType(dict(options)),
        )
        if constrained and (decoding.num_beams == 1 or decoding.do_sample):
            raise ValueError(
                "A glossary needs a beam search: ask for num_beams of 2 or more, and no samples; or for soft terms."
            )
        return decoding

    @classmethod
    def _asked(cls) -> set[str]:
        return {field.name for field in fields(cls)} - _NOT_OF_GENERATE

    @property
    def others(self) -> list[str]:
        """The call's options of `generate()` that are not fields here: other kinds of engine do not support them."""
        return sorted(self.given.keys() - self._asked() - {"return_dict_in_generate"})

    def longest(self, source: int, prefix: int = 0) -> int:
        """Tokens that the translation of this many source tokens may have, with its prefix and without the start token.

        This is the one place that decides it, and engines ask here. `generate()` of our own models repeats the rule,
        because they travel to the Hub without this file.
        """
        # A translation of the greatest length has a forced end as its last token.
        forced = 0 if self.forced_eos_token_id is None else 1
        limits = []
        if self.max_new_tokens is not None:
            limits.append(prefix + self.max_new_tokens - forced)
        if self.max_length is not None:
            limits.append(self.max_length - 1 - forced)
        if self.max_length_offset is not None:
            limits.append(source + self.max_length_offset)
        if self.positions is not None:
            limits.append(self.positions - (self.max_new_tokens is None) - forced)
        return max(min(limits), prefix + 1)

    @property
    def blank(self) -> Hypothesis:
        """The translation of a blank sentence."""
        alignment = WordAlignment([], [], [], []) if self.align else None
        return Hypothesis("", 0.0 if self.scores else None, alignment)
