"""`calibrate`: all output formats give the same confidence, and the calibration is published with the model."""

import json
import shutil

import pytest

from ..warm_python import PACKAGE
from .conftest import json_of, lines_of, output_of, refused, written


@pytest.fixture(scope="module")
def model(random_translator, tmp_path_factory):
    return shutil.copytree(random_translator, tmp_path_factory.mktemp("calibrated") / "model")


@pytest.fixture(scope="module")
def text(corpus):
    return ("--sources", corpus / "validation.en", "--references", corpus / "validation.de")


@pytest.fixture(scope="module")
def printed(model, text):
    """What `calibrate` prints; its picture lies next to the model."""
    picture = model.parent / "reliability.png"
    words = ("--threshold", "median", "--num-beams", "1", "--picture", picture)
    return output_of("calibrate", model, *text, *words)


SENTENCES = ["The dog is old.", "Anna is sleeping.", "The 日本 astronaut.", ""]


def test_calibration_is_printed_and_saved(model, text, printed):
    assert "expected calibration error 0." in printed
    assert "most confident" in printed
    assert (model.parent / "reliability.png").is_file()
    content = json_of(model / "confidence.json")
    assert content["definition"].startswith("probability that the sentence chrF of a translation is at least ")
    assert content["record"]["set"] == "validation.de"
    assert content["record"]["num_beams"] == 1
    assert content["record"]["fitted_on"]["sentences"] + content["record"]["held_out"]["sentences"] == 12
    again = output_of("calibrate", model, *text, "--threshold", "median", "--num-beams", "1", "--json")
    assert json.loads(again) == content == json_of(model / "confidence.json")


def test_confidence_agrees_across_text_json_and_pipeline(model, printed, tmp_path):
    words = ("translate", "--model", model, "--num-beams", "1", "--max-tokens", "12")
    plain = output_of(*words, *SENTENCES).split("\n")
    columns = [line.split("\t") for line in output_of(*words, "--confidence", *SENTENCES).split("\n")]
    assert [line[0] for line in columns] == plain
    assert [len(line) for line in columns[:4]] == [2, 2, 2, 2]
    assert columns[3] == ["", ""]  # a blank line has no confidence
    out = output_of(*words, "--confidence", "--json", *SENTENCES)
    records = [json.loads(line) for line in out.splitlines()]
    best = [record["translations"][0] for record in records]
    assert [f"{each['confidence']:.2f}" for each in best[:3]] == [line[1] for line in columns[:3]]
    assert best[3] == {"text": "", "score": 0.0, "confidence": None, "words": []}
    assert "日本" in records[2]["unknown_words"]
    assert records[0]["unknown_words"] == []
    for each in best[:3]:
        assert "".join(word["word"] for word in each["words"]) == "".join(each["text"].split())
        assert all(0 < word["probability"] <= 1 for word in each["words"])
    without = json.loads(output_of(*words, "--json", SENTENCES[0]))
    assert {*without} == {"source", "translations"}
    assert {*without["translations"][0]} == {"text", "score"}
    code = f"""
import vanilla_transformer
from transformers import pipeline
translator = pipeline("translation_en_to_de", model={str(model)!r})
for each in translator({SENTENCES[:3]!r}, batch_size=2, num_beams=1, max_new_tokens=12, return_confidence=True):
    print(each["confidence"])
"""
    done = PACKAGE.run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split()]
    assert found == pytest.approx([each["confidence"] for each in best[:3]], abs=1e-5)


def test_calibration_is_published_and_stale_one_rejected(model, printed, tmp_path):
    assert " confidence.json" in output_of("publish", model, "user/name", "--dry-run")
    copied = shutil.copytree(model, tmp_path / "copied")
    (copied / "digests.json").unlink(missing_ok=True)
    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copied / "model.safetensors").write_bytes(weights)
    for words in (("publish", copied, "user/name", "--dry-run"), ("translate", "--model", copied, "--confidence", "A")):
        assert "was made for other weights than those beside it. Calibrate again" in refused(*words)


def test_invalid_arguments_are_rejected(random_translator, text, tmp_path):
    translate = ("translate", "--model", random_translator, "--confidence", "A dog.")
    assert "is not calibrated, so it has no confidence: vanilla-transformer calibrate" in refused(*translate)
    assert "an ensemble has no confidence" in refused(*translate, "--model", random_translator)
    assert "--confidence is for --backend torch" in refused(*translate, "--backend", "ctranslate2", status=2)
    for words, said, status in (
        (("--threshold", "good"), "--threshold must be above 0 and at most 100, or median, not 'good'", 2),
        (("--dropout-samples", "1"), "must be 0, or 2 at least, not 1", 1),
        (("--held-out", "1"), "must be above 0 and below 1, not 1", 2),
        (("--seed", str(2**64)), "--seed must be from 0 to 4294967295", 2),
        (("--seed", "1"), "--seed is for --dropout-samples", 2),
        (("--threshold", "100"), "none of the 6 translations is good", 1),
        (("--picture", tmp_path / "a.pdf"), "names end in .png or .svg", 1),
    ):
        assert said in refused("calibrate", random_translator, *text, *words, "--num-beams", "1", status=status)
    assert "Give --sources FILE" in refused("calibrate", random_translator, *text[2:], status=2)
    few = [written(tmp_path / name, lines_of(path)[:5]) for name, path in (("a.en", text[1]), ("a.de", text[3]))]
    said = refused("calibrate", random_translator, "--sources", few[0], "--references", few[1], "--num-beams", "1")
    assert "5 sentences are too few to calibrate on" in said
    assert not (random_translator / "confidence.json").exists()
