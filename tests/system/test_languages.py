"""A model for both directions: trained, scored, and asked for each language in every way."""

import json
import shutil

import pytest
import yaml
from transformers import pipeline

import vanilla_transformer  # noqa: F401  (registers the pipeline)
from vanilla_transformer.sharing.model_card import bare_card

from .conftest import finished, refused


def test_one_model_handles_both_directions(corpus, tmp_path):
    recipe = yaml.safe_load((corpus / "recipe.yaml").read_text())
    there, back = {"corpus": ["train.en", "train.de"]}, {"corpus": ["train.de", "train.en"]}
    languages = {"source_language": "de", "target_language": "en"}
    recipe["data"] |= {
        "folder": str(corpus),
        "train": [there, {**back, **languages}],
        "validation": [{"corpus": ["validation.en", "validation.de"]},
                       {"corpus": ["validation.de", "validation.en"], **languages}],
        "test": {"into_german": ["test.en", "test.de"],
                 "into_english": {"corpus": ["test.de", "test.en"], **languages}},
    }  # fmt: skip
    recipe["decoding"]["min_new_tokens"] = 4  # the model has learned nothing, and would say nothing
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(recipe))
    run = tmp_path / "run"
    finished("train", tmp_path / "both.yaml", "--output", run)
    scores = json.loads((run / "scores.json").read_text())
    assert {each["test_set"] for each in scores} == {
        "validation_en-de", "validation_de-en", "into_german", "into_english",
    }  # fmt: skip

    text = "The dog is old."
    found = {}
    for to in ("de", "en"):
        line = finished("translate", "--model", run, "--to", to, "--json", text).stdout
        [found[to]] = json.loads(line)["translations"]
    assert found["de"]["score"] != found["en"]["score"]  # the model read different tags
    translator = pipeline("translation", model=str(run))
    for to, translation in found.items():
        [asked] = translator(text, tgt_lang=to, return_scores=True)
        assert asked["score"] == pytest.approx(translation["score"], rel=1e-4)
    with pytest.raises(ValueError, match="translates into de, en: give tgt_lang, say 'de'"):
        translator(text)
    back = pipeline("translation_de_to_en", model=str(run))  # the direction of the second corpus
    assert back("Der Hund ist alt.", tgt_lang="en")
    with pytest.raises(ValueError, match="translates en to de, not en to fr"):
        pipeline("translation_en_to_fr", model=str(run))
    assert "Say into which: de, en" in refused("translate", "--model", run, text)
    pictures = [tmp_path / f"{to}.png" for to in ("de", "en")]
    assert "Say into which: de, en" in refused("plot", "attention", run, text, "--output", pictures[0])
    for picture in pictures:
        finished("plot", "attention", run, text, text, "--to", picture.stem, "--output", picture)
    assert pictures[0].read_bytes() != pictures[1].read_bytes()  # the tags in front differ
    new = ["--data.train", "[train.en, train.de]", "--data.validation", "[test.en, test.de]"]
    assert "translates into de, en, and adapt is for" in refused("adapt", run, "--output", tmp_path / "a", *new)
    english = ["--source-language", "de", "--target-language", "en"]
    finished("backtranslate", "--model", run, "--input", corpus / "test.de", *english, "--output", tmp_path / "back")
    made = json.loads((tmp_path / "back" / "test.report.json").read_text())
    assert made["begun_with"]["translated"] == {"from": "de", "to": "en"}

    files = ["--sources", corpus / "test.de", "--references", corpus / "test.en", "--metrics", "chrf"]
    told = finished("evaluate", "--model", run, *files, "--source-language", "de", "--target-language", "en", "--json")
    [score] = [each for each in json.loads(told.stdout)["scores"] if each["metric"] == "chrf"]
    [own] = [
        each for each in scores if each["chosen"] and each["test_set"] == "into_english" and each["metric"] == "chrf"
    ]
    assert score["value"] == pytest.approx(own["value"], abs=1e-6) != 0

    bare = shutil.copytree(run / "averaged", tmp_path / "bare")  # as `finetune` leaves it
    (bare / "recipe.yaml").unlink()
    again = finished(
        "evaluate", "--model", bare, *files, "--source-language", "de", "--target-language", "en", "--json"
    )
    assert score["value"] in [each["value"] for each in json.loads(again.stdout)["scores"]]
    assert "translates into de, en: say which" in refused("evaluate", "--model", bare, *files, status=2)
    assert 'tgt_lang="de"' in bare_card(bare, title="Bare", repository="me/bare")
