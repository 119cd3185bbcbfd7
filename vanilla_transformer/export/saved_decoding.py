"""Which options of a saved generation config the engines of exported models support."""

from pathlib import Path

from transformers import GenerationConfig


# Options that torch alone heeds, and the values with which each changes nothing.
_TORCH_ALONE: dict[str, tuple] = {
    "begin_suppress_tokens": ([],),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "forced_bos_token_id": (),
    "min_length": (0, 1),  # which counts the start token
    "min_new_tokens": (0,),
    "min_p": (0,),
    "num_beam_groups": (1,),
    "repetition_penalty": (1,),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "typical_p": (1,),
}
# CTranslate2 normalises scores again after it has taken tokens out, and so would rank hypotheses differently.
_UNSUPPORTED = {
    "ONNX": _TORCH_ALONE | {"do_sample": (False,)},
    "CTranslate2": _TORCH_ALONE | {"no_repeat_ngram_size": (0,)},
}


def end_and_bad_tokens(saved: GenerationConfig) -> tuple[set[int], list[int]]:
    """The tokens that end a translation, and those that it must not have: as in transformers, never an end."""
    ends = saved.eos_token_id
    ends = {*ends} if isinstance(ends, list) else {ends}
    return ends, [ids[0] for ids in saved.bad_words_ids or [] if len(ids) == 1 and ids[0] not in ends]


def check_supported(saved: GenerationConfig, engine: str, place: str | Path) -> None:
    """Raises ValueError if a saved generation config has an option that the engine would ignore.

    Args:
        saved: The generation config.
        engine: ONNX, for the page as well, or CTranslate2.
        place: The file that has the config, or what else to call it.
    """
    unsupported = _UNSUPPORTED[engine]
    found = {name: getattr(saved, name, None) for name in unsupported}
    if any(len(ids) > 1 for ids in saved.bad_words_ids or ()):
        found["bad_words_ids"] = "words of several tokens"
    elif saved.bad_words_ids and engine == "CTranslate2" and not saved.renormalize_logits:
        raise ValueError(
            f"{place} forbids tokens (bad_words_ids), and CTranslate2 shares out their probabilities among the others: "
            "set renormalize_logits to true, or translate with torch."
        )
    for name, value in found.items():
        if value is not None and value not in unsupported.get(name, ()):
            raise ValueError(
                f"{place} sets {name} = {value}, which {engine} does not support: remove it, or translate with torch."
            )
