"""CTranslate2 as an engine: the same lines in, the same translations out as by torch."""

import itertools
import json
import re
import shutil

import pytest
import torch

from vanilla_transformer import ExportedModel, to_ctranslate2, translate, translate_lines
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.translation import in_blocks
from vanilla_transformer.translation.synthetic import synthesize

from ..export.conftest import ending_model
from ..model.conftest import build_model
from .conftest import SENTENCES


BEAM = {"num_beams": 3, "num_return_sequences": 3, "return_dict_in_generate": True}
SAME_SEARCH = {**BEAM, "length_penalty_type": "length", "early_stopping": True}


@pytest.fixture(scope="module")
def model():
    """Some of its translations end by themselves, and some reach the length limit."""
    model = ending_model(ends=2, seed=1, vocab_size=280)
    model.generation_config = paper_generation_config(model.config, max_length_offset=6)
    return model


@pytest.fixture(scope="module")
def exported(model, tokenizer, tmp_path_factory) -> ExportedModel:
    folder = tmp_path_factory.mktemp("exported") / "model"
    to_ctranslate2(model, tokenizer, folder)
    return ExportedModel(folder)


def by_both(model, exported, tokenizer, **options) -> list[list]:
    return [list(translate_lines(each, tokenizer, in_blocks(SENTENCES, 4), **options)) for each in (model, exported)]


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 1, "return_dict_in_generate": False, "max_new_tokens": 4},
        {"num_beams": 1, "max_length": 4},
        {"num_beams": 1, "prefix": "A dog"},
        {"num_beams": 1, "prefix": "A dog", "max_new_tokens": 3},
        {"num_beams": 1, "batch_tokens": 1},
        {"num_beams": 1, "longest": 9},
        {"num_beams": 1, "split": "en", "prefix": "A dog"},
        SAME_SEARCH,
        {**SAME_SEARCH, "length_penalty": 1.3, "max_new_tokens": 5},
        {**SAME_SEARCH, "length_penalty": 0.0, "batch_tokens": 60},
        {**SAME_SEARCH, "split": "en", "longest": 20},
        {**SAME_SEARCH, "minimum_bayes_risk": True},
        {**SAME_SEARCH, "minimum_bayes_risk": True, "num_return_sequences": 1, "prefix": "A dog"},
    ],
)
def test_translations_and_scores_match_torch(model, exported, tokenizer, options):
    ours, theirs = by_both(model, exported, tokenizer, **options)
    assert [[each.text for each in line] for line in theirs] == [[each.text for each in line] for line in ours]
    assert [[each.cut for each in line] for line in theirs] == [[each.cut for each in line] for line in ours]
    for here, there in zip(ours, theirs, strict=True):
        assert [each.score for each in there] == pytest.approx([each.score for each in here], abs=1e-4)
    assert len({line[0].text for line in theirs}) > 2  # sources matter, so a mixed-up order would show


@pytest.mark.parametrize("prefix", ["", "A dog"])
def test_papers_beam_search_mostly_matches_torch(model, exported, tokenizer, prefix):
    ours, theirs = by_both(model, exported, tokenizer, **{**BEAM, "num_beams": 5}, prefix=prefix)
    found = [
        any(each.text == other.text and each.score == pytest.approx(other.score, abs=1e-4) for other in here)
        for here, there in zip(ours, theirs, strict=True)
        for each in there
    ]
    assert sum(found) > 0.8 * len(found)
    for line in theirs:
        ranked = [each.score for each in line]
        assert ranked == sorted(ranked, reverse=True)


def test_the_models_own_settings_are_the_default(model, exported, tokenizer):
    assert translate(exported, tokenizer, SENTENCES) == translate(model, tokenizer, SENTENCES)
    assert translate(exported, tokenizer, SENTENCES, num_beams=1) != translate(exported, tokenizer, SENTENCES)
    assert translate(exported, tokenizer, []) == []


@pytest.mark.parametrize("options", [{"max_length": 7}, {"max_new_tokens": 5}, {"max_length_offset": None}])
def test_forced_end_matches_torch(model, exported, tokenizer, monkeypatch, options):
    unforced = translate(exported, tokenizer, SENTENCES, num_beams=1, **options)
    for each in (model, exported):
        monkeypatch.setattr(each.generation_config, "forced_eos_token_id", 2)
    ours, theirs = (translate(each, tokenizer, SENTENCES, num_beams=1, **options) for each in (model, exported))
    assert theirs == ours != unforced
    by_torch, by_ctranslate2 = by_both(model, exported, tokenizer, num_beams=1, **options)
    cut = [line[0].cut for line in by_torch]
    assert [line[0].cut for line in by_ctranslate2] == cut
    assert True in cut


def test_workers_and_threads_change_no_translation(exported, tokenizer):
    alone, steps = list(translate_lines(exported, tokenizer, [SENTENCES], batch_tokens=30)), []
    options = {"workers": 2, "batch_tokens": 30, "on_progress": steps.append}
    assert list(translate_lines(exported, tokenizer, [SENTENCES], **options)) == alone
    assert sum(steps) == 5
    before = torch.get_num_threads()
    assert exported.translator(2)[0] is exported.translator(2)[0]  # loaded once
    assert exported.translator(2)[0] is not exported.translator(2, anew=True)[0]
    try:
        for threads in (1, 3):  # one batch is shared among them
            torch.set_num_threads(threads)
            assert list(translate_lines(exported, tokenizer, [SENTENCES])) == alone
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    blocks = ([str(number), "A dog."] for number in itertools.count())
    found = translate_lines(exported, tokenizer, blocks, num_beams=1)
    for _ in range(4):
        next(found)
    assert next(blocks)[0] == "2"  # a block is translated before the next is asked for


def test_samples_depend_on_seed_and_sampling_options(exported, tokenizer):
    def drawn(seed, **options):
        torch.manual_seed(seed)
        options = {"do_sample": True, "num_beams": 1, "num_return_sequences": 3, "max_new_tokens": 8, **options}
        return [[each.text for each in line] for line in translate_lines(exported, tokenizer, [SENTENCES], **options)]

    assert drawn(1, top_k=0) == drawn(1, top_k=0) != drawn(2, top_k=0)
    assert len(set(drawn(1, top_k=0)[0])) == 3
    greedy = translate(exported, tokenizer, SENTENCES, num_beams=1, max_new_tokens=8)
    for sharp in ({"top_k": 1}, {"top_k": 0, "top_p": 1e-6}, {"top_k": 0, "temperature": 1e-4}):
        assert [set(line) for line in drawn(1, **sharp)] == [{text} for text in greedy]


def test_unsupported_options_are_rejected(exported, tokenizer):
    for options, message in (
        ({"repetition_penalty": 2.0}, "CTranslate2 does not support repetition_penalty"),
        ({"no_repeat_ngram_size": 2}, "CTranslate2 does not support no_repeat_ngram_size"),
        ({"align": True}, "no alignments"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences is 3, more than num_beams, which is 2"),
        ({"num_beams": 2, "do_sample": True}, "num_beams must be 1"),
        ({"max_new_tokens": 2000}, "max_new_tokens is 2,000, with the prefix more than the 1,024 positions"),
        ({"workers": 0}, "at least 1 worker, not 0"),
    ):
        with pytest.raises(ValueError, match=message):
            list(translate_lines(exported, tokenizer, [SENTENCES], **options))


def test_samples_for_training_need_torch(exported, tokenizer, tmp_path):
    """CTranslate2's random numbers cannot be set for each chunk, so resumed work would draw others."""
    text = tmp_path / "text.de"
    text.write_text("Der Hund ist alt.\n", encoding="utf-8")
    options = {"languages": ("de", "en"), "do_sample": True, "num_beams": 1}
    with pytest.raises(ValueError, match="CTranslate2 cannot draw the same samples again"):
        synthesize(exported, tokenizer, text, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_unusable_folder_is_rejected(exported, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no model for CTranslate2 in"):
        ExportedModel(tmp_path)
    folder = shutil.copytree(exported.folder, tmp_path / "model")
    for saved, shown in (
        ({"no_repeat_ngram_size": 1}, "no_repeat_ngram_size = 1"),
        ({"min_new_tokens": 1}, "min_new_tokens = 1"),
        ({"forced_bos_token_id": 0}, "forced_bos_token_id = 0"),
        ({"exponential_decay_length_penalty": [1, 5.0]}, "exponential_decay_length_penalty = "),
        ({"bad_words_ids": [[7], [5, 6]]}, "bad_words_ids = words of several tokens"),
    ):
        (folder / "generation_config.json").write_text(json.dumps({"num_beams": 4, **saved}), encoding="utf-8")
        with pytest.raises(ValueError, match=f"sets {re.escape(shown)}.*, which CTranslate2 does not support"):
            ExportedModel(folder)
    (folder / "generation_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no generation_config.json: export again"):
        ExportedModel(folder)


def test_damaged_files_are_named(exported, tokenizer, tmp_path):
    for name in ("shared_vocabulary.json", "config.json", "model.bin"):
        folder = shutil.copytree(exported.folder, tmp_path / name)
        (folder / name).write_bytes((folder / name).read_bytes()[:40])
        with pytest.raises(ValueError, match=rf"{re.escape(str(folder))}.*Export it again\."):
            translate(ExportedModel(folder), tokenizer, SENTENCES[:1])


def test_learned_positions_limit_length_as_in_torch(tokenizer, tmp_path):
    model = build_model(seed=5, vocab_size=280, position_embedding_type="learned", max_position_embeddings=30)
    model.generation_config = paper_generation_config(model.config, num_beams=1)
    to_ctranslate2(model, tokenizer, tmp_path / "out")
    exported = ExportedModel(tmp_path / "out")
    assert exported.positions == 30
    short = [sentence for sentence in SENTENCES if len(tokenizer(sentence).input_ids) <= 30]
    found = translate(exported, tokenizer, short)
    assert found == translate(model, tokenizer, short)
    assert max(len(tokenizer(text).input_ids) for text in found) > 20  # some reach the limit
    ours, theirs = by_both(model, exported, tokenizer, longest=512)  # longer sentences are cut to fit
    assert theirs == ours
