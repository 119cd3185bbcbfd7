"""Test sets from the Hub."""

import json

import pytest

from ..system.conftest import written
from ..warm_python import CLI
from .conftest import ended


READ = """
import json
from vanilla_transformer.data.corpora import load_corpus
rows = load_corpus({"hub": "wmt/wmt14", "config": "de-en", "split": "test"}, "en", "de")["translation"]
print(json.dumps([row["de"] for row in rows]))
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("wmt/wmt14", marks=pytest.mark.slow),
        pytest.param("wmt/wmt14:de-en", marks=pytest.mark.slow),
        "wmt/wmt14:de-en:test",
    ],
)
def test_references_score_perfectly_on_wmt14_test_split(wmt14, hub_python, tmp_path, name):
    path = written(tmp_path / "system.de", json.loads(ended(hub_python(READ))[0]))
    languages = ("--source-language", "en", "--target-language", "de")
    out, _ = ended(hub_python(CLI, "evaluate", "--hypotheses", path, "--test-set", name, *languages, "--json"))
    scores = {each["metric"]: each["value"] for each in json.loads(out)["scores"]}
    assert scores["sacrebleu"] == pytest.approx(100)
    assert scores["ter"] == 0


def test_missing_configuration_lists_the_choices(wmt14, hub_python, tmp_path):
    words = ("--hypotheses", __file__, "--test-set", "wmt/wmt14", "--source-language", "en", "--target-language", "cs")
    _, errors = ended(hub_python(CLI, "evaluate", *words), 1)
    assert "has the configurations de-en, fr-en: name one" in errors
