"""A plain model and one with soft terms are trained, and translate with glossaries made from the references."""

import json
import sys

import pytest
import yaml

from vanilla_transformer import Glossary, TokenizerSettings, learn_tokenizer

from ..model.conftest import TEXTS, build_model, sharpened
from .conftest import load_script, write_files_like_multi30ks
from .test_ladder import SMALL, read_rungs, recipe_of


terms = load_script("experiments/terms")


def test_rungs_differ_only_in_augmentation():
    plain, *soft = read_rungs(terms.RUNGS).values()
    for rung in (plain, *soft):
        recipe_of(rung)
    assert soft
    for rung in soft:
        assert rung.overrides.keys() - plain.overrides.keys() == {"training.augmentation"}


def test_linked_words_occur_in_their_sentences(tmp_path):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 400, "val": 10})
    pairs = terms.words_of_pairs(data, "val")
    for (source, target, *_), links in zip(pairs, terms.linked_words(data, pairs), strict=True):
        assert links
        assert all(english in source and german in target for english, german in links)


def test_every_line_is_measured_with_its_own_glossary():
    lines = TEXTS * 2
    tokenizer = learn_tokenizer(lines, TokenizerSettings(vocab_size=280))
    glossaries = {line: Glossary([(line.split()[0].lower().strip("."), "Hund")]) for line in TEXTS}
    search = (terms.GlossaryOfEachLine(glossaries), 2, 1)
    row = terms.measured(sharpened(build_model(vocab_size=len(tokenizer))), tokenizer, lines, lines, *search)
    assert (row.terms, row.used_without, row.used) == (8, 0.0, 1.0)  # "the" comes twice in a line
    assert min(row.sentences_per_second_without, row.sentences_per_second) > 0


@pytest.mark.slow
def test_models_are_trained_and_measured_in_each_mode(tmp_path, monkeypatch, capsys):
    data = write_files_like_multi30ks(tmp_path / "multi30k", {"train": 300, "val": 6})
    soft = {"below": "plain", "adds": "terms", "overrides": {"training.augmentation": {"terms": 0.5}}}
    rungs = {"plain": {"adds": "nothing", "overrides": SMALL}, "soft": soft}
    (tmp_path / "terms.yaml").write_text(yaml.safe_dump(rungs, sort_keys=False), encoding="utf-8")
    words = ["--data", data, "--output", tmp_path / "runs", "--models", tmp_path / "terms.yaml", "--num-beams", 2]
    monkeypatch.setattr(sys, "argv", ["terms.py", *map(str, [*words, "--json", tmp_path / "terms.json"])])
    with pytest.raises(SystemExit) as ended:
        terms.main()
    assert ended.value.code == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[-3:]]
    assert [(row[0], row[2]) for row in rows] == [("| plain", "hard"), ("| soft", "hard"), ("| soft", "soft")]
    found = json.loads((tmp_path / "terms.json").read_text())
    assert [row["mode"] for row in found] == ["hard", "hard", "soft"]
    assert len({row["terms"] for row in found}) == 1
    assert all(row["used"] > 0.9 for row in found[:2])
