"""Augmentation: some training pairs come in another form in every pass, so that a model learns to read all forms.

Each pair gets at most one form, form f with probability shares[f], and none with 1 - sum(shares):

    ids -> text -> form -> ids

OpusTrainer modifies text like this (Bogoychev et al. 2023, https://arxiv.org/abs/2311.14838), but draws each form on
its own, so that a pair may get several.

Augmentation works on ids, so that it can also be used on corpora without text. All random numbers come from a key that
says where the pairs stand, so there is no state to save.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from .context import texts_in_context
from .encoding import encode_pairs, is_within
from .forms import FORMS, check_shares
from .languages import tags_in_front
from .terms import TERMS
from .tokenizer import ids_of_tags


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PURPOSE = 2311_14838  # first number of every key, so that nothing else draws from the same key


class Augmentation:
    """Writes some pairs of ids, with their context, in another form; a tag in front of a source stays.

    Args:
        tokenizer: The tokenizer that made the ids.
        shares: Share of the pairs that get each form, by its name; forms that are not named get none. (`terms` are for
            `TermAnnotation`.)
        max_source_length, max_target_length: A pair stays as it is if a side would have more tokens than this; None: no
            limit.

    Raises:
        ValueError: A form is unknown, or the shares are out of range.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        shares: Mapping[str, float],
        *,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
    ):
        check_shares(shares, others=(TERMS,))
        self.tokenizer = tokenizer
        self.shares = {name: share for name, share in shares.items() if share and name != TERMS}
        self.limits = (max_source_length, max_target_length)
        self._tags = ids_of_tags(tokenizer)
        # In the order of the table, not of the shares.
        self._forms = [form for name, form in FORMS.items() if name in self.shares]
        self._ends = np.cumsum([self.shares[form.name] for form in self._forms])

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that determine the resulting ids, by the name of the training argument."""
        return {"augmentation": self.shares}

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]], key: tuple[int, ...]) -> list[dict]:
        """The pairs, some of them in another form; the same for the same pairs and key.

        Args:
            pairs: Each has `input_ids` and `labels`, ids as the tokenizer gives them.
            key: Whole numbers, 0 or more, that no other pairs have.
        """
        generator = np.random.default_rng((_PURPOSE, *key))
        drawn = np.searchsorted(self._ends, generator.random(len(pairs)), side="right")
        seeds = generator.integers(2**63, size=len(pairs)).tolist()
        found = [{"input_ids": pair["input_ids"], "labels": pair["labels"]} for pair in pairs]
        [chosen] = np.nonzero(drawn < len(self._forms))
        tags = [tags_in_front(pairs[place]["input_ids"], self._tags) for place in chosen]
        sources, contexts = texts_in_context(self.tokenizer, [pairs[i]["input_ids"] for i in chosen])
        targets, _ = texts_in_context(self.tokenizer, [pairs[i]["labels"] for i in chosen])
        changed = []
        for i, source, target, context in zip(chosen, sources, targets, contexts, strict=True):
            form = self._forms[drawn[i]]
            of_both = form(target, Random(seeds[i])) if form.both_sides else target
            before = tuple(form(text, Random(seeds[i])) for text in context)
            changed.append((form(source, Random(seeds[i])), of_both, before))
        sources, targets, _ = encode_pairs(self.tokenizer, changed)
        for i, tag, source, target in zip(chosen, tags, sources, targets, strict=True):
            pair = {"input_ids": [*tag, *source.tolist()], "labels": target.tolist()}
            if is_within(pair, *self.limits):
                found[i] = pair
        return found
