"""COMET through its program. A small script with the interface of comet-score 2.2.7 stands in for it."""

import sys

import numpy as np
import pytest

from vanilla_transformer.evaluation.scores import compare_systems, score_segments, score_translations


# Scores a sentence by the share of its words that the reference has, minus 0.1 if source and translation are equal.
PROGRAM = """#!{python}
import argparse, json, sys
parser = argparse.ArgumentParser()
for name in ("-s", "-t", "-r", "--model", "--gpus", "--to_json"):
    parser.add_argument(name)
for name in ("--quiet", "--only_system"):
    parser.add_argument(name, action="store_true")
asked = parser.parse_args()
if asked.model == "none/such":
    sys.exit("no such model")
lines = [[line.strip() for line in open(path, encoding="utf-8")] for path in (asked.s, asked.t, asked.r)]
rows = [{{"src": s, "mt": t, "ref": r}} for s, t, r in zip(*lines, strict=True)]
for row in rows:
    words, known = row["mt"].split(), set(row["ref"].split())
    row["COMET"] = sum(word in known for word in words) / len(words) - 0.1 * (row["src"] == row["mt"])
json.dump({{asked.t: rows}}, open(asked.to_json, "w", encoding="utf-8"), ensure_ascii=False)
"""
SOURCES, REFERENCES = ["a dog", "the house\u2028is old", "no"], ["ein Hund", "das Haus ist alt", "nein nein"]
TRANSLATIONS = ["ein Hund", "das Haus\nist neu", "no"]
SCORED = {"target_language": "de", "sources": SOURCES}


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "comet-score"
    path.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("COMET_SCORE", str(path))


def test_scores_come_from_the_program(program):
    [score] = score_translations(TRANSLATIONS, REFERENCES, ["comet"], resamples=20, **SCORED)
    assert score.value == pytest.approx(100 * (1 + 0.75 - 0.1) / 3)
    assert score.signature.startswith("nrefs:1|bs:20|seed:12345|model:Unbabel/wmt22-comet-da|scale:100|")
    drawn = np.random.default_rng(12345).choice(3, size=(20, 3))
    samples = np.array([100, 75, -10])[drawn].mean(axis=1)
    assert score.mean == pytest.approx(samples.mean())
    assert score.confidence == pytest.approx(np.ptp(samples) / 2)  # of 20 samples the interval leaves none out
    segments = score_segments(TRANSLATIONS, REFERENCES, ["comet"], **SCORED)
    assert [each["comet"] for each in segments] == pytest.approx([100, 75, -10])
    systems = {"first": TRANSLATIONS, "second": REFERENCES}
    [compared] = compare_systems(systems, REFERENCES, ["comet"], resamples=20, trials=20, **SCORED)
    assert compared.difference == pytest.approx(100 - score.value)


def test_bad_input_and_program_failures_raise(program, monkeypatch):
    with pytest.raises(ValueError, match="comet reads the sources too"):
        score_translations(TRANSLATIONS, REFERENCES, ["comet"], target_language="de")
    with pytest.raises(ValueError, match="one reference, not 2"):
        score_translations(TRANSLATIONS, [REFERENCES] * 2, ["comet"], **SCORED)
    monkeypatch.setenv("COMET_MODEL", "none/such")
    with pytest.raises(ValueError, match=r"failed with status 1 \(no such model\)"):
        score_translations(TRANSLATIONS, REFERENCES, ["comet"], **SCORED)
    monkeypatch.setenv("COMET_SCORE", "/nowhere/comet-score")
    with pytest.raises(ImportError, match="install it apart"):
        score_translations(TRANSLATIONS, REFERENCES, ["comet"], **SCORED)
