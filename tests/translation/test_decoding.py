"""Length limit and other settings: the call's override the model's, which override transformers'."""

import pytest
from transformers import GenerationConfig

from vanilla_transformer.translation import Decoding
from vanilla_transformer.translation.decoding import Hypothesis


SOURCE, PREFIX = 20, 3


@pytest.mark.parametrize(
    ("saved", "options", "longest"),
    [
        ({}, {}, SOURCE + 50),  # section 6.1
        ({"max_length": 9}, {}, SOURCE + 50),  # a plain transformers config, without an offset
        ({"max_length_offset": 7}, {}, SOURCE + 7),
        ({"max_length_offset": 7, "max_length": 12}, {}, 12 - 1),  # without the start token
        ({"max_length_offset": 7, "max_length": 99}, {}, SOURCE + 7),
        ({"max_length_offset": None}, {}, PREFIX + 20),  # transformers' limit
        ({"max_length_offset": 7}, {"max_length_offset": None}, PREFIX + 20),
        ({"max_length_offset": 7, "max_length": 12}, {"max_length_offset": None}, 12 - 1),
        ({"max_length_offset": 7}, {"max_length_offset": 9}, SOURCE + 9),
        ({"max_length_offset": 7}, {"max_length": 12}, 12 - 1),
        ({"max_length_offset": 7}, {"max_new_tokens": 4}, PREFIX + 4),
        ({"max_length_offset": 7, "max_new_tokens": 4}, {"max_length": 12}, PREFIX + 4),
        ({"max_length_offset": 7, "max_new_tokens": 4}, {"max_new_tokens": None}, SOURCE + 7),
        ({"max_length_offset": 7}, {"max_length": 2}, PREFIX + 1),  # at least one token
        ({"max_length_offset": 7, "forced_eos_token_id": 2}, {}, SOURCE + 7),
        ({"max_length_offset": 7, "forced_eos_token_id": 2}, {"max_length": 12}, 12 - 1 - 1),
        ({"max_length_offset": 7, "forced_eos_token_id": 2}, {"max_new_tokens": 4}, PREFIX + 4 - 1),
        ({"max_length_offset": 70}, {}, 40 - 1),  # the last position's token is the last
        ({"max_length_offset": 7}, {"max_new_tokens": 70}, 40),
        ({"max_length_offset": 70, "forced_eos_token_id": 2}, {}, 40 - 1 - 1),
        ({"max_length_offset": 7, "forced_eos_token_id": 2}, {"max_new_tokens": 70}, 40 - 1),
        ({"max_length_offset": 7}, {"generation_config": GenerationConfig(num_beams=2)}, SOURCE + 7),
        ({"max_length_offset": 7}, {"generation_config": GenerationConfig(max_length=12)}, 12 - 1),
        ({"max_length_offset": 7}, {"generation_config": GenerationConfig(max_new_tokens=4)}, PREFIX + 4),
    ],
)
def test_length_limit_follows_call_and_model_settings(saved, options, longest):
    config = GenerationConfig()
    for name, value in saved.items():
        setattr(config, name, value)
    positions = 40 if 70 in (*saved.values(), *options.values()) else None
    decoding = Decoding.resolve(options, config, positions=positions)
    assert decoding.longest(SOURCE, PREFIX) == longest


def test_call_options_override_saved_settings():
    saved = GenerationConfig(num_beams=4, length_penalty=0.6, top_k=None)
    saved.length_penalty_type = "gnmt"
    decoding = Decoding.resolve({"length_penalty": 1.0, "return_dict_in_generate": True, "min_p": 0.1}, saved)
    found = (decoding.num_beams, decoding.length_penalty, decoding.length_penalty_type, decoding.top_k)
    assert found == (4, 1.0, "gnmt", 50)
    assert decoding.scores
    assert decoding.others == ["min_p"]
    with pytest.raises(TypeError):
        decoding.given["min_p"] = 0.2
    config = GenerationConfig(num_beams=3, length_penalty=2.0, do_sample=True)
    decoding = Decoding.resolve({"generation_config": config, "num_beams": 2}, saved)
    found = (decoding.num_beams, decoding.length_penalty, decoding.do_sample, decoding.length_penalty_type)
    assert found == (2, 2.0, True, "gnmt")


def test_sentences_are_joined_as_their_script_requires():
    for parts, expected in (
        (("Ein Satz.", "Noch einer."), "Ein Satz. Noch einer."),
        (("猫が寝る。", "犬が走る。"), "猫が寝る。犬が走る。"),
        (("他说：“好。”", "他走了。"), "他说：“好。”他走了。"),
        (("สวัสดีครับ", "วันนี้อากาศดี"), "สวัสดีครับ วันนี้อากาศดี"),
        (("बच्चा सो गया।", "वह घर गया।"), "बच्चा सो गया। वह घर गया।"),
    ):
        assert (Hypothesis(parts[0]) + Hypothesis(parts[1])).text == expected
