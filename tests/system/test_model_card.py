"""The model card matches the run's records."""

import json
import re
import shutil
import sys
from dataclasses import replace

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from vanilla_transformer.data.languages import towards
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.code_vanilla_transformer import LANGUAGES_TASK
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.recipe import load_recipe, recipe_of
from vanilla_transformer.sharing.card_sections import architecture, how_to_use
from vanilla_transformer.sharing.model_card import VARIANTS, model_card, scores_of_tests

from .conftest import json_of


def test_card_shows_the_runs_records(run):
    card = model_card(run, title="A small model", command="vanilla-transformer train recipe.yaml", examples=4)
    scores = json_of(run / "scores.json")
    assert all(f"| {s['metric']} | {s['value']:.2f} |" in card for s in scores)
    assert "\n```\nvanilla-transformer train recipe.yaml\n```\n" in card
    tables = [line for line in card.splitlines() if line.startswith("| ") and "bs:1000" in line]
    assert len(tables) == len({*VARIANTS, "exact_match"})
    assert all(line.count("|") - line.count("\\|") == 7 for line in tables)  # an unescaped bar would end a cell
    assert "24 updates" in card
    assert json_of(run / "data.json")["train"]["fingerprint"][:16] in card
    assert [line.split()[1] for line in card.splitlines() if " (chrF " in line] == ["best", "random", "random", "worst"]
    values = {s["model"]: s["value"] for s in scores if (s["test_set"], s["metric"]) == ("small", "chrf")}
    assert len(set(values.values())) > 1
    assert f"from the last checkpoint's {values['last']:.2f} to {values['averaged']:.2f} (" in card
    assert (run / "recipe.yaml").read_text(encoding="utf-8") in card


def test_architecture_names_both_sides_where_they_differ():
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2}
    uneven = VanillaTransformerConfig(**sizes, decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=32)
    assert "1 + 2 layers, d_model 16, 2 + 4 heads, d_ff 16 + 32, a vocabulary" in architecture(uneven)
    assert "8 heads, d_k 16, d_v 64, d_ff 2048, a" in architecture(VanillaTransformerConfig.from_name("table3-b1"))


def test_card_says_that_a_model_writes_no_capitals(run, tmp_path):
    assert "Report `sacrebleu` first" in model_card(run, title="")
    copy = shutil.copytree(run, tmp_path / "run")
    tokenizer = json_of(copy / "averaged" / "tokenizer.json")
    tokenizer["normalizer"]["normalizers"].insert(0, {"type": "Lowercase"})
    for path in (copy / "tokenizer.json", copy / "averaged" / "tokenizer.json"):
        path.write_text(json.dumps(tokenizer), encoding="utf-8")
    card = model_card(copy, title="")
    assert "The model writes no capitals, which scores with `case:mixed` count as mistakes." in card
    assert "Report `sacrebleu_lowercase` first" in card


def test_card_scores_suit_the_language(run, monkeypatch):
    """BLEU cannot split Japanese into words without MeCab, and cannot split Thai at all."""
    monkeypatch.setitem(sys.modules, "MeCab", None)
    folder, recipe = RunFolder(run), load_recipe(run / "recipe.yaml")
    for language, expected in (("ja", {"chrf"}), ("th", {"chrf"}), ("de", set(VARIANTS))):
        data = replace(recipe.data, target_language=language)
        chosen = replace(recipe, data=data, evaluation=replace(recipe.evaluation, metrics=["sacrebleu_char"]))
        assert {score.metric for score in scores_of_tests(folder, chosen)} == expected | {"sacrebleu_char"}


def test_card_code_sets_the_target_language(tmp_path):
    several = {"data.train": "[{corpus: a.tsv}, {corpus: b.tsv, target_language: fr}]", "data.source_language": "en"}
    recipe = recipe_of({**several, "data.target_language": "de", "data.validation": "c.tsv"})
    tokenizer = learn_tokenizer(["The dog is old."] * 3, TokenizerSettings(vocab_size=270), tags=["<2de>", "<2fr>"])
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), decoder_attention_heads=2, **sizes)
    VanillaTransformerForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, with_package, without = how_to_use(str(tmp_path), recipe).split("```python\n")
    assert 'tgt_lang="de"' in with_package
    names = {}
    exec(without.partition("```")[0], names)
    assert names["ids"].tolist() == [towards(tokenizer, "de")("The dog is old.").input_ids]


def test_each_corpus_of_a_mixture_has_a_row(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    hub = {"hub": "somebody/pairs", "config": None, "split": "train", "revision": "0123456789abcdef"}
    local = {"pairs": 2900, "copies": 2, "tag": None, "fingerprint": "f" * 64, "corpus": {}}
    parts = [
        {"name": "…", "files": ["/home/me/a|b.en", "/home/me/c.de"], **local},
        {"name": "pairs", "pairs": None, "copies": 1, "tag": "<bt>", "fingerprint": "e" * 64, "corpus": hub},
    ]
    records = json_of(copy / "data.json")
    records["train"] = {"fingerprint": "d" * 64, "corpus": {"mixture": parts}}
    (copy / "data.json").write_text(json.dumps(records), encoding="utf-8")
    card = ModelCard(model_card(copy, title=""))
    assert card.data.datasets == ["somebody/pairs"]
    assert f"| train: a\\|b.en and c.de, each pair 2 times a pass | 2,900 |  |  |  |  | `{'f' * 16}` |" in card.text
    second = "pairs (somebody/pairs train at 0123456789ab), each pair once a pass with `<bt>` in front | as a stream |"
    assert f"| train: {second}" in card.text


BLOCKS = ("heading_open", "fence", "table_open", "hr")
HOSTILE = "a | b\n---\nlicense: mit\n```\n# c <!-- <b> `d` *e* _f_ [g](h) &amp; \u2028\n````\n" + "x" * 5000


def test_hostile_recipe_and_corpus_text_is_escaped(run, tmp_path):
    """Rendered as CommonMark with tables, the card has its usual sections and shows the text literally."""
    copy = shutil.copytree(run, tmp_path / "run")
    recipe = yaml.safe_load((copy / "recipe.yaml").read_text(encoding="utf-8"))
    recipe["description"], recipe["data"]["target_language"] = HOSTILE, "pt-BR"
    (copy / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    row = dict.fromkeys(("source", "reference", "hypothesis"), HOSTILE)
    (copy / "translations" / "small.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    card = ModelCard(model_card(copy, title=HOSTILE, command=f"train {HOSTILE}"))
    one_line = " ".join(HOSTILE.split())
    assert card.data.model_name == one_line
    assert card.data.license is None
    assert (card.data.language, card.data.language_bcp47) == (["en", "pt"], ["pt-BR"])
    tokens = MarkdownIt().enable("table").parse(card.text)
    usual = MarkdownIt().enable("table").parse(ModelCard(model_card(run, title="")).text)
    kinds = [[t.type for t in each if t.type in BLOCKS] for each in (tokens, usual)]
    assert kinds[0] == kinds[1]
    assert "html_block" not in {t.type for t in tokens}
    assert "## Citation" in card.text
    shown = [t for t in tokens if t.type == "inline" and "source: " in t.content]
    assert ["".join(child.content for child in t.children) for t in shown] == [f"source: {one_line}"]
    recipes = [t.content for t in tokens if t.type == "fence" and t.info == "yaml"]
    assert yaml.safe_load(recipes[0])["description"] == HOSTILE
    [task] = re.findall(r'pipeline\("(\w+)", model', card.text)
    assert LANGUAGES_TASK.fullmatch(task).groups() == ("en", "pt_BR")


def test_card_of_an_unfinished_run_raises(run, tmp_path):
    for missing in ("finished.json", "scores.json"):
        copy = shutil.copytree(run, tmp_path / missing)
        (copy / missing).unlink()
        with pytest.raises(FileNotFoundError, match=r"is not finished\. Go on: vanilla-transformer train --resume"):
            model_card(copy, title="")
