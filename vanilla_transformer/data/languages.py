"""Several target languages in one model: a tag in front of each source says which one to translate into.

    <2de> x_1 ... x_n </s>   ->   y_1 ... y_m </s>

(Johnson et al. 2017, https://aclanthology.org/Q17-1024/.) The tag is a token of its own, which no text can spell. It
stands in the source, as in OPUS-MT, and not at the start of the target, where mBART and NLLB force it. So the encoder
knows the target language, the search needs no forced token, and every engine can run the model.
"""

import copy
import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CODE = r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9_]{1,40})?"
_TAG = re.compile(f"<2({_CODE})>")


def is_language_code(text: str) -> bool:
    """Whether a text has the form of a language's code: `de`, `pt_BR`. (It may become part of a file's name.)"""
    return re.fullmatch(_CODE, text) is not None


def base_of(code: str) -> str:
    """The language of a code without its country or script: "pt" of "pt_BR"."""
    return re.split("[-_]", code)[0].lower()


def is_language_tag(token: str) -> bool:
    """Whether a token asks for a target language: `<2de>`."""
    return _TAG.fullmatch(token) is not None


def language_tag(language: str) -> str:
    """The tag of a target language: `<2pt_BR>` for "pt_BR"."""
    return f"<2{language}>"


def tag_ids(tokenizer: "PreTrainedTokenizerFast", tags: Iterable[str]) -> dict[str, int]:
    """The id of each tag, of languages or others. Raises ValueError if the vocabulary lacks one."""
    added = tokenizer.get_added_vocab()
    for tag in tags:
        if tag not in added:
            raise ValueError(f"the vocabulary has no tag {tag}: learn it with tags=[{tag!r}], or as the recipe says")
    return {tag: added[tag] for tag in tags}


def tags_in_front(ids: Iterable[int], tags: Collection[int]) -> list[int]:
    """The tags that a source's ids begin with."""
    return list(map(int, takewhile(tags.__contains__, ids)))


def target_languages(tokenizer: "PreTrainedTokenizerFast") -> dict[str, int]:
    """The languages that a model's tokenizer has tags for, with the tags' ids; empty for a model of one language."""
    found = {_TAG.fullmatch(token): number for token, number in tokenizer.get_added_vocab().items()}
    return {tag[1]: number for tag, number in sorted(found.items(), key=lambda each: each[1]) if tag}


def towards(tokenizer: "PreTrainedTokenizerFast", language: str | None) -> "PreTrainedTokenizerFast":
    """A tokenizer whose sources ask for a language; for a model of one language, the same tokenizer.

    Example:
        >>> inputs = towards(tokenizer, "fr")("A man sleeps.", return_tensors="pt")
        >>> tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
        ['Un homme dort.']

    Args:
        tokenizer: A model's tokenizer; it is left as it is.
        language: The target language; None if the model has only one.

    Returns:
        A tokenizer whose `tokenizer(text)` begins with the tag. `tokenizer(text_target=text)` does not.

    Raises:
        ValueError: The model does not translate into this language; or it translates into several, and none is given.
    """
    languages = target_languages(tokenizer)
    if not languages:
        if language is None:
            return tokenizer
        raise ValueError(
            f"The model translates into one language, and cannot be asked for {language!r:.60}: leave `to` (--to) out."
        )
    if language not in languages:
        names = ", ".join(languages)
        asked = "Say into which" if language is None else f"The model does not translate into {language!r:.60}; choose"
        raise ValueError(f"{asked}: {names} (`to`, or --to).")
    from tokenizers import processors  # only now: --help needs language codes

    found = copy.deepcopy(tokenizer)
    backend, tag, end = found.backend_tokenizer, language_tag(language), tokenizer.eos_token
    if hasattr(found, "_switch_to_target_mode"):  # it may ask for another language already
        found._switch_to_target_mode()
    as_target = backend.post_processor
    as_source = processors.TemplateProcessing(
        single=f"{tag} $A {end}",
        special_tokens=[(tag, languages[language]), (end, tokenizer.eos_token_id)],
    )
    # The hooks by which transformers' tokenizers of several languages tell `text` from `text_target`. Those of a copy
    # change the copy's own backend.
    found._switch_to_input_mode = partial(setattr, backend, "post_processor", as_source)
    found._switch_to_target_mode = partial(setattr, backend, "post_processor", as_target)
    found._switch_to_input_mode()
    return found


def tempered(weights: Sequence[float], pairs: Sequence[int], temperature: float, most: int) -> list[int]:
    """Copies of each corpus in a pass, so that it occurs with probability p_i ~ weight_i pairs_i^(1/T).

    (Arivazhagan et al. 2019, https://arxiv.org/abs/1907.05019, section 4.2.) They are whole numbers, the nearest to
    multiples of the rarest corpus's copy, and at most `most`.
    """
    wanted = [weight * count ** (1 / temperature - 1) for weight, count in zip(weights, pairs, strict=True)]
    return [min(most, round(each / min(wanted))) for each in wanted]
