"""`pipeline("translation")` has the inputs and outputs of transformers 4, for any translation model."""

import json
import re

import pytest
from transformers import pipeline
from transformers.generation.streamers import BaseStreamer

from vanilla_transformer import Glossary, TokenizerSettings, learn_tokenizer, translate
from vanilla_transformer.data.terms import TERM_MARKERS
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration, sha256_of_weights
from vanilla_transformer.model.pipeline_vanilla_transformer import TranslationPipeline
from vanilla_transformer.run.recipe import DataSettings, Recipe

from ..warm_python import LIBRARIES
from .conftest import TEXTS, build_model, sharpened, tiny_marian


@pytest.fixture(scope="module")
def model():
    return sharpened(build_model(seed=1, vocab_size=280))  # confident enough for sources to matter


@pytest.fixture(scope="module")
def translator(model, tokenizer):
    return pipeline("translation", model=model, tokenizer=tokenizer, max_length_offset=3)


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de", "translation_xx_to_yy"])
def test_transformers_4_tasks_are_supported(model, tokenizer, task):
    translator = pipeline(task, model=model, tokenizer=tokenizer)
    assert type(translator) is TranslationPipeline
    [record] = translator(TEXTS[0], max_new_tokens=5)
    assert list(record) == ["translation_text"]


def test_pipeline_loads_from_a_folder(model, tokenizer, translator, tmp_path):
    """It needs no `trust_remote_code`."""
    model.save_pretrained(tmp_path / "parts")
    tokenizer.save_pretrained(tmp_path / "parts")
    translator.save_pretrained(tmp_path / "whole")
    for name in ("parts", "whole"):
        again = pipeline("translation_en_to_de", model=str(tmp_path / name), max_length_offset=3)
        assert again(TEXTS) == translator(TEXTS)


def test_task_asks_for_a_language_with_a_region(model, tmp_path):
    tokenizer = learn_tokenizer(TEXTS * 2, TokenizerSettings(vocab_size=270), tags=("<2pt-BR>", "<2es>"))
    model = build_model(vocab_size=len(tokenizer))
    translator = pipeline("translation_en_to_pt_BR", model=model, tokenizer=tokenizer)
    assert translator(TEXTS) == pipeline("translation", model=model, tokenizer=tokenizer)(TEXTS, tgt_lang="pt-BR")
    with pytest.raises(ValueError, match="translates into pt-BR, es: give tgt_lang, say 'pt-BR'"):
        translator(TEXTS, tgt_lang="pt")


def test_languages_not_in_the_recipe_are_rejected(model, tokenizer, tmp_path):
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path)
    for source, target in (("en", "de"), ("no", "pt_BR")):  # a bare no is not a string in YAML
        recipe = Recipe(DataSettings(source, target, "a.tsv", "b.tsv"))
        (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
        for task in ("translation", f"translation_{source}_to_{target}", f"translation_{source}_to_{target[:2]}"):
            pipeline(task, model=str(tmp_path))
        for task in (f"translation_{target}_to_{source}", f"translation_{source}_to_fr"):
            with pytest.raises(ValueError, match=f"translates {source} to {target}, not .*_{source}_to_{target}"):
                pipeline(task, model=str(tmp_path))
        translator = pipeline("translation", model=str(tmp_path))
        assert translator(TEXTS[0], tgt_lang=target) == translator(TEXTS[0])
        with pytest.raises(ValueError, match=f"The model translates into {target}, not into fr: leave tgt_lang out"):
            translator(TEXTS[0], tgt_lang="fr")


def test_other_removed_tasks_stay_removed(model):
    with pytest.raises(KeyError, match="summarization"):
        pipeline("summarization", model=model)


def test_batch_size_changes_nothing(translator):
    one_by_one = [translator(text)[0] for text in TEXTS]
    assert len({record["translation_text"] for record in one_by_one}) == 3
    for options in ({}, {"batch_size": 2}, {"batch_size": 3}):
        assert translator(TEXTS, **options) == one_by_one


def test_generators_and_empty_lists_are_accepted(translator):
    found = translator(f" {text}\n" for text in TEXTS)  # white space around a text is not read
    assert list(found) == [translator(text) for text in TEXTS]
    assert translator([]) == []


def test_constraints_and_glossaries_are_followed(translator, model, tokenizer):
    glossary = Glossary([("dog", "Hund|Tier"), ("girl", None)])
    options = {"num_beams": 4, "max_new_tokens": 40}
    expected = [translator(text, **options, glossary=glossary)[0] for text in TEXTS]
    texts = [record["translation_text"] for record in expected]
    assert re.search("Hund|Tier", texts[0])
    assert re.search("Hund|Tier", texts[2])
    assert "girl" in texts[2]
    assert texts[1] == translator(TEXTS[1], **options)[0]["translation_text"]
    for size in (2, 3):
        assert translator(TEXTS, **options, glossary=glossary, batch_size=size) == expected
    ids = tokenizer("Hund", add_special_tokens=False).input_ids
    forced = translator(TEXTS, **options, force_words_ids=[ids], batch_size=3)
    assert all(" Hund" in f" {record['translation_text']}" for record in forced)
    with pytest.raises(ValueError, match="MarianMTModel cannot keep to a glossary"):
        pipeline("translation", model=tiny_marian(), tokenizer=tokenizer)(TEXTS, glossary=glossary)
    with pytest.raises(ValueError, match="knows no soft terms"):
        translator(TEXTS, **options, glossary=glossary, terms="soft")
    with pytest.raises(ValueError, match="terms must be hard or soft"):
        translator(TEXTS, **options, glossary=glossary, terms="some")


def test_soft_terms_match_translate(model):
    tokenizer = learn_tokenizer(TEXTS * 2, TokenizerSettings(vocab_size=270), tags=TERM_MARKERS)
    model = sharpened(build_model(vocab_size=len(tokenizer)))
    translator = pipeline("translation", model=model, tokenizer=tokenizer)
    soft = {"glossary": Glossary([("dog", "Hund|Tier"), ("girl", None)]), "terms": "soft"}
    options = {"num_beams": 2, "max_new_tokens": 20}
    expected = translate(model, tokenizer, TEXTS, **soft, **options)
    for size in (1, 3):
        found = translator(TEXTS, **soft, **options, batch_size=size)
        assert [record["translation_text"] for record in found] == expected
    assert expected != translate(model, tokenizer, TEXTS, **options)


def test_n_best_translations_and_scores_match_generate(translator, model, tokenizer):
    options = {"num_beams": 3, "num_return_sequences": 3}
    found = translator(TEXTS, **options, return_scores=True)
    assert [len(records) for records in found] == [3, 3, 3]
    assert translator(TEXTS, **options, batch_size=3, return_scores=True)[1][0]["score"] == pytest.approx(
        found[1][0]["score"], abs=1e-4
    )
    for text, records in zip(TEXTS, found, strict=True):
        scores = [record["score"] for record in records]
        assert scores == sorted(scores, reverse=True)
        output = model.generate(
            **tokenizer(text, return_tensors="pt").to(model.device),
            **options,
            max_length_offset=3,
            return_dict_in_generate=True,
        )
        assert scores == pytest.approx(output.sequences_scores.tolist())
        assert [record["translation_text"] for record in records] == tokenizer.batch_decode(
            output.sequences, skip_special_tokens=True
        )


def test_scores_require_beam_search(translator):
    """transformers' own beam search, used with a logits processor, gives scores too; greedy search raises."""
    assert translator(TEXTS[0], num_beams=2, no_repeat_ngram_size=4, return_scores=True)[0]["score"] < 0
    with pytest.raises(ValueError, match="num_beams of at least 2"):
        translator(TEXTS[0], num_beams=1, return_scores=True)


def test_return_tensors_gives_token_ids(translator, tokenizer):
    [record] = translator(TEXTS[0], return_tensors=True)
    assert list(record) == ["translation_token_ids"]
    text = tokenizer.decode(record["translation_token_ids"], skip_special_tokens=True)
    assert [{"translation_text": text}] == translator(TEXTS[0]) == translator(TEXTS[0], return_text=True)


def test_call_options_override_pipeline_options(model, tokenizer):
    short = pipeline("translation", model=model, tokenizer=tokenizer, max_length=3, return_tensors=True)
    assert len(short(TEXTS[2])[0]["translation_token_ids"]) <= 3
    assert len(short(TEXTS[2], max_length=6, eos_token_id=None)[0]["translation_token_ids"]) == 6


def test_call_options_take_pipeline_options_back(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    calibration = Calibration(50.0, 0.5, {"mean_surprisal": -0.5}, weights_sha256=sha256_of_weights(tmp_path))
    (tmp_path / "confidence.json").write_text(json.dumps(calibration.to_json()))
    translator = pipeline("translation", model=str(tmp_path), return_confidence=True, max_new_tokens=3)
    assert set(translator(TEXTS[0])[0]) == {"translation_text", "confidence"}
    assert set(translator(TEXTS[0], return_confidence=False)[0]) == {"translation_text"}
    soft = pipeline("translation", model=model, tokenizer=tokenizer, terms="soft")
    glossary = Glossary([("dog", "Hund")])
    with pytest.raises(ValueError, match="knows no soft terms"):
        soft(TEXTS[0], glossary=glossary)
    assert soft(TEXTS[0], glossary=glossary, terms="hard", num_beams=2, max_new_tokens=9)


def test_a_revision_has_its_own_languages_and_calibration(model, tokenizer, tmp_path):
    """In another process, whose cache is made here as `huggingface_hub` makes it."""
    repository = tmp_path / "models--user--name"
    for name, commit, source, threshold in (("main", "a" * 40, "fr", 50.0), ("v1", "b" * 40, "en", 77.0)):
        folder = repository / "snapshots" / commit
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / name).write_text(commit)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        calibration = Calibration(threshold, 0.5, {"mean_surprisal": -0.5}, weights_sha256=sha256_of_weights(folder))
        (folder / "confidence.json").write_text(json.dumps(calibration.to_json()))
        (folder / "recipe.yaml").write_text(Recipe(DataSettings(source, "de", "a.tsv", "b.tsv")).to_yaml())
    program = """
import vanilla_transformer
from transformers import pipeline

found = [
    pipeline(f"translation_{source}_to_de", model="user/name", **options)._calibration.threshold
    for source, options in (("fr", {}), ("en", {"revision": "v1"}))
]
try:
    pipeline("translation_fr_to_de", model="user/name", revision="v1")
except ValueError as error:
    print(found, error)
"""
    offline = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = LIBRARIES.run(program, environment=offline)
    assert done.stdout.startswith("[50.0, 77.0] user/name translates en to de, not fr to de"), done.stderr


def test_a_streamer_sees_every_token(translator, tokenizer):
    class Streamer(BaseStreamer):
        def put(self, value):
            seen.extend(value.flatten().tolist())

        def end(self):
            seen.append("end")

    seen = []
    [found] = translator(TEXTS[0], streamer=Streamer(), num_beams=1)
    assert seen[-1] == "end"
    assert tokenizer.decode(seen[:-1], skip_special_tokens=True) == found["translation_text"]


def test_unknown_options_and_non_texts_are_rejected(translator):
    with pytest.raises(ValueError, match="takes no nonsense"):
        translator(TEXTS[0], nonsense=1)
    with pytest.raises(ValueError, match="translates texts, not int: 5"):
        translator([5])


def test_marian_model_works_in_the_pipeline(tokenizer):
    special = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": 2}
    model = tiny_marian(vocab_size=280, **special)
    translator = pipeline("translation", model=model, tokenizer=tokenizer)
    found = translator(TEXTS, max_length=9, num_beams=2, return_scores=True)
    for text, record in zip(TEXTS, found, strict=True):
        output = model.generate(**tokenizer(text, return_tensors="pt").to(model.device), max_length=9, num_beams=2)
        assert record["translation_text"] == tokenizer.decode(output[0], skip_special_tokens=True)
        assert record["score"] < 0
