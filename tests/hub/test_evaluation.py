"""Test sets from the Hub."""

import json

import pytest


EVALUATE = "import sys; from vanilla_transformer.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("wmt/wmt14", marks=pytest.mark.slow),
        pytest.param("wmt/wmt14:de-en", marks=pytest.mark.slow),
        "wmt/wmt14:de-en:test",
    ],
)
def test_the_test_split_of_wmt14(wmt14, hub_python, tmp_path, name):
    pairs = json.loads(run(hub_python(READ)))
    path = tmp_path / "system.de"
    path.write_text("".join(f"{german}\n" for _, german in pairs), encoding="utf-8")
    languages = ("--source-language", "en", "--target-language", "de")
    out = run(hub_python(EVALUATE, "evaluate", "--hypotheses", path, "--test-set", name, *languages, "--json"))
    scores = {each["metric"]: each["value"] for each in json.loads(out)["scores"]}
    assert scores["sacrebleu"] == pytest.approx(100)
    assert scores["ter"] == 0


def test_a_configuration_that_nobody_named(wmt14, hub_python, tmp_path):
    process = hub_python(
        EVALUATE, "evaluate", "--hypotheses", __file__, "--test-set", "wmt/wmt14", "--source-language", "en",
        "--target-language", "cs",
    )  # fmt: skip
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "has the configurations de-en, fr-en: name one" in errors


READ = """
import json
from vanilla_transformer.data.corpora import load_corpus
rows = load_corpus({"hub": "wmt/wmt14", "config": "de-en", "split": "test"}, "en", "de")["translation"]
print(json.dumps([(row["en"], row["de"]) for row in rows]))
"""


def run(process) -> str:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out
