"""`train auto`: the facts it finds in a text, the recipe it chooses, and the pairs it holds out."""

import json
import logging
import math
import re
import shutil
from dataclasses import replace
from itertools import islice, pairwise, product
from pathlib import Path
from unicodedata import normalize

import pytest
import yaml

from vanilla_transformer.choosing import (
    Choice,
    TextFacts,
    choose,
    choose_decoding,
    chosen_recipe,
    facts_of,
    measure_speeds,
    recipes,
    rule,
)
from vanilla_transformer.choosing.rule import PHRASES
from vanilla_transformer.choosing.search import AS_CHOSEN, Search, candidates_for, shares, with_changes
from vanilla_transformer.data.corpora import read_corpus
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.phrases import phrase_pairs
from vanilla_transformer.data.tokenizer import KINDS, TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments


# Typical of one or two threads of an ordinary processor.
SPEEDS = {128: 6000.0, 256: 2500.0, 512: 500.0}


def facts(pairs: int, words: int = 20) -> TextFacts:
    types, scripts = (3 * pairs, 3 * pairs), ("LATIN", "LATIN")
    return TextFacts(pairs, pairs, (pairs * words, pairs * words), types, 6 * pairs, scripts, 0.0)


def chosen(*arguments, **options) -> dict:
    return {choice.field: choice.value for choice in choose(*arguments, **{"bf16": True, **options})}


@pytest.fixture
def corpus(tmp_path):
    """600 different pairs, every third of them twice, with two targets for every source."""
    pairs = [(f"the number {n // 2} is here", f"aquí está {n}") for n in range(600)]
    pairs += pairs[::3]
    for side, name in enumerate(("train.en", "train.es")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return tmp_path


@pytest.fixture
def data(corpus):
    return {
        "data.train": "[train.en, train.es]",
        "data.folder": str(corpus),
        "data.source_language": "en",
        "data.target_language": "es",
    }


def test_facts_are_counted(caplog):
    found = facts_of([("a b c", "a x"), ("a b c", "a x"), ("die Katze", "кот")])
    assert found == TextFacts(3, 2, (5, 3), (5, 3), 6, ("LATIN", "CYRILLIC"), 1 / 3)
    assert facts_of([("x", "кот спит")]).scripts == ("LATIN", "CYRILLIC")
    assert facts_of([("x", "日" * 30)]).words == (1, 10)  # no blanks: a word is three characters
    assert facts_of([("it is", "ñe'ẽ mba’e ha")]).apostrophes == (0, 2 / 3)
    assert facts_of([("1", "2")]).scripts == ("no letters", "no letters")


def test_vocabulary_grows_with_text_and_model_with_time():
    sizes = [chosen(facts(pairs), 15, SPEEDS)["tokenizer.vocab_size"] for pairs in (300, 3_000, 30_000, 300_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 500
    assert sizes[2] == 8_000
    assert sizes[-1] == 32_000
    widths = [chosen(facts(30_000), minutes, SPEEDS)["model.d_model"] for minutes in (1, 15, 480, 10**5)]
    assert widths == sorted(widths)
    assert widths[0] == 128
    assert widths[-1] == 512
    dropouts = [chosen(facts(pairs), 15, {128: 6000.0})["model.dropout"] for pairs in (3_000, 30_000, 3_000_000)]
    assert dropouts == [0.2, 0.1, 0.1]
    # Of a text of which only a part was looked at, nobody knows the passes; it is large in any case.
    for whole, expected in ((True, 0.2), (False, 0.1)):
        assert chosen(replace(facts(3_000), is_whole=whole), 15, SPEEDS)["model.dropout"] == expected


def test_batches_are_smaller_where_updates_would_be_few():
    expected = ((1, 1024, 316), (4, 1024, 1266), (10, 2048, 1582), (15, 4096, 1187), (60, 4096, 4746))
    for minutes, batch, updates in expected:
        [choice] = [each for each in choose(facts(30_000), minutes, {128: 6000.0}, bf16=True) if "tokens" in each.field]
        assert choice.value == batch
        assert choice.reason.startswith(f"about {updates:,} updates: ")


def test_rate_and_warmup_fit_what_is_typed(data, tmp_path):
    def rates(**typed):
        typed = {f"training.{name}": value for name, value in typed.items()}
        found = chosen(facts(30_000), 4, {128: 6000.0}, typed=typed)
        return found["training.warmup_steps"], found["training.noam_factor"]

    assert rates() == (253, 1.0)
    assert rates(optim="muon") == rates()
    assert rates(optim="adamw_torch_fused") == (253, 0.503)  # the square root of 253 / 1,000
    # Muon does not work with adapters.
    assert rates(lora_rank=8) == rates(optim="adamw_torch_fused")
    assert "training.optim" not in chosen(facts(30_000), 4, SPEEDS, typed={"training.lora_rank": 8})
    assert rates(warmup_steps=1000, optim="adamw_torch_fused") == (1000, 1.0)
    assert rates(warmup_steps=10) == (10, 0.2)  # the square root of 10 / 250
    assert rates(max_tokens=4096) == (63, 0.502)
    for wrong in (0, -5, 1.5, "many", None):
        assert rates(max_tokens=wrong, warmup_steps=wrong) == rates()

    one, other = (
        chosen_recipe(tmp_path / name, data | typed, minutes=1, speeds=SPEEDS).training
        for name, typed in (("one", {}), ("other", {"training": "{optim: adamw_torch_fused}"}))
    )
    assert other["warmup_steps"] == one["warmup_steps"]
    assert other["noam_factor"] == pytest.approx(one["noam_factor"] / 2, abs=0.001)


def test_layers_fit_a_typed_width(data, tmp_path):
    small, large = chosen(facts(30_000), 4, SPEEDS), chosen(facts(30_000), 480, SPEEDS)
    assert (small["model.d_model"], large["model.d_model"]) == (128, 256)
    typed = chosen(facts(30_000), 4, SPEEDS, typed={"model.d_model": 256})
    of_size = [name for name in small if name.endswith(("layers", "heads", "ffn_dim"))]
    assert {name: typed[name] for name in of_size} == {name: large[name] for name in of_size}
    assert len(of_size) == 6
    assert typed["training.warmup_steps"] < small["training.warmup_steps"]  # fewer updates in the same time
    for width in (192, "wide", None, [256]):
        assert chosen(facts(30_000), 4, SPEEDS, typed={"model.d_model": width}) == small
    recipe = chosen_recipe(tmp_path / "run", data | {"model.d_model": "256"}, minutes=1, speeds=SPEEDS)
    assert recipe.model["encoder_layers"] == large["model.encoder_layers"]


def test_chosen_vocabulary_size_can_be_learned():
    numbers = [str(number) for number in range(20)]
    texts = (
        [(row["en"], row["de"]) for row in islice(phrasebook("train"), 10_000)],  # many sentences of few words
        [(f"{hour:02}:{minute:02} am", f"{hour:02}:{minute:02}") for hour in range(24) for minute in range(60)],
        [(f"{one} {other}", f"{other}!") for one in numbers for other in numbers],
    )
    for pairs, kind in product(texts, KINDS):
        size = chosen(facts_of(pairs), 15, SPEEDS, typed={"tokenizer.kind": kind})["tokenizer.vocab_size"]
        sides = [text for pair in pairs for text in pair]
        assert len(learn_tokenizer(sides, TokenizerSettings(kind=kind, vocab_size=size))) == size
    assert size == KINDS["wordpiece"]
    [why] = [each.reason for each in choose(facts_of(pairs), 15, SPEEDS, bf16=True) if "vocab_size" in each.field]
    assert why == "only 30 different words: too few for more pieces"
    [why] = [each.reason for each in choose(facts(30_000), 15, SPEEDS, bf16=True) if "vocab_size" in each.field]
    assert re.fullmatch(r"[\d,]+ running words: at least 30 for each piece, so that rare pieces are learned too", why)


def test_every_choice_loads_as_a_recipe(tmp_path):
    for minutes in (0.1, 15, 600):
        for pairs in (200, 40_000, 5_000_000):
            content = {
                "data": {"source_language": "en", "target_language": "de", "train": "a.tsv", "validation": "b.tsv"}
            }
            for name, value in chosen(facts(pairs), minutes, SPEEDS).items():
                section, _, field = name.partition(".")
                if name != PHRASES:
                    content.setdefault(section, {})[field] = value
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
            assert load_recipe(tmp_path / "recipe.yaml").training["max_minutes"] == minutes


def test_held_out_sources_are_not_trained_on(data, tmp_path):
    recipe = chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)
    text = {name: (tmp_path / "run" / "text" / name).read_text().splitlines() for name in
            ("train.en", "train.es", "validation.en", "validation.es")}  # fmt: skip
    assert not set(text["train.en"]) & set(text["validation.en"])
    assert len(set(text["validation.en"])) == 300 // 20
    both = [
        *zip(text["train.en"], text["train.es"], strict=True),
        *zip(text["validation.en"], text["validation.es"], strict=True),
    ]
    assert sorted(both) == sorted((f"the number {n // 2} is here", f"aquí está {n}") for n in range(600))
    again = chosen_recipe(tmp_path / "again", data, minutes=1, speeds=SPEEDS)
    assert (tmp_path / "again" / "text" / "validation.en").read_text().splitlines() == text["validation.en"]
    assert load_recipe(tmp_path / "run" / "chosen.yaml") == recipe
    assert again.tokenizer == recipe.tokenizer


def test_other_normal_form_of_a_held_out_source_is_not_trained_on(data, tmp_path):
    for name, letter in (("train.en", "é"), ("train.es", "á")):
        lines = [f"{letter}{number}\n" for number in range(300)]
        text = "".join(lines) + normalize("NFD", "".join(lines))
        Path(data["data.folder"], name).write_text(text, encoding="utf-8")
    chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)
    lines = [(tmp_path / "run" / "text" / name).read_text().splitlines() for name in ("train.en", "validation.en")]
    assert sorted(map(len, lines)) == [15, 285]
    assert not set(lines[0]) & set(lines[1])


def test_phrase_pairs_of_the_trained_pairs_are_trained_on(data, tmp_path):
    recipe = chosen_recipe(tmp_path / "run", data, minutes=2, speeds=SPEEDS)
    whole, phrases = recipe.data.mixture
    assert (whole.weight, phrases.weight, phrases.vocabulary) == (2, 1, False)
    texts = [read_corpus(each.corpus, "en", "es", folder=recipe.data.folder).pairs for each in (whole, phrases)]
    assert texts[1] == phrase_pairs(texts[0])
    assert f"# {len(texts[1]):,} phrase pairs" in (tmp_path / "run" / "chosen.yaml").read_text()
    both = {**data, "data.validation": "[train.en, train.es]"}
    own = chosen_recipe(tmp_path / "own", both, minutes=2, speeds=SPEEDS)
    assert own.data.mixture[0].corpus == ["train.en", "train.es"]
    lines = [json.dumps({"en": f"the {n}\nhouse is old", "es": f"la {n} casa es vieja"}) + "\n" for n in range(300)]
    (tmp_path / "lines.jsonl").write_text("".join(lines))  # some texts of JSON are several lines
    from_json = chosen_recipe(tmp_path / "json", {**both, "data.train": "lines.jsonl"}, minutes=9, speeds=SPEEDS)
    assert read_corpus(from_json.data.mixture[1].corpus, "en", "es", folder=from_json.data.folder).pairs
    for name, options in (("without", {"phrases": False}), ("hurried", {"minutes": 1})):
        plain = chosen_recipe(tmp_path / name, both, **{"minutes": 2, "speeds": SPEEDS, **options})
        assert plain.data.train == ["train.en", "train.es"]
        assert not (tmp_path / name / "text").exists()


def test_phrases_do_not_cut_words_at_apostrophes(corpus, data, tmp_path):
    """If the vocabulary takes an apostrophe for a letter, as it does for this text."""
    for side, name in enumerate(("train.en", "train.es")):
        pairs = [(f"the thing {n % 7} is here number {n}", f"mba'e {n % 7} oĩ ko’ápe papaha {n}") for n in range(600)]
        (corpus / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    chosen_recipe(tmp_path / "run", data, minutes=30, speeds=SPEEDS)
    found = (tmp_path / "run" / "text" / "phrases.es").read_text(encoding="utf-8").split()
    assert "mba\u02bce" in found
    assert not {"mba", "ko", "e", "ápe"} & set(found)
    assert not any(word[0] in "'’\u02bc" or word[-1] in "'’\u02bc" for word in found)


def test_phrase_pairs_are_chosen_for_little_text_and_much_time():
    for pairs, minutes, expected in ((3_000, 5, True), (30_000, 5, False), (30_000, 120, True), (60_000, 600, False)):
        assert chosen(facts(pairs), minutes, SPEEDS)[PHRASES] == expected


def test_typed_values_are_kept_and_reasons_recorded(data, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    own = {"model.dropout": "0.05", "data.validation": "[train.en, train.es]", "training.weight_decay": "1e-5"}
    initial = str(tmp_path / "größer: 2")
    VanillaTransformerConfig(d_model=128).save_pretrained(initial)
    own |= {"tokenizer.forms.upper": "0.1", "evaluation.metrics": "[chrf]", "initial_model": repr(initial)}
    own |= {"description": "Mine"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **own}, minutes=2, speeds=SPEEDS)
    assert recipe == load_recipe(tmp_path / "run" / "chosen.yaml")
    assert (recipe.initial_model, recipe.description) == (initial, "Mine")
    assert recipe.tokenizer.forms == {"upper": 0.1}
    assert recipe.evaluation.metrics == ["chrf"]
    assert recipe.model["dropout"] == 0.05
    assert recipe.training["weight_decay"] == 1e-5
    assert recipe.data.validation == ["train.en", "train.es"]
    assert {path.name for path in (tmp_path / "run" / "text").iterdir()} == {"phrases.en", "phrases.es"}
    text = (tmp_path / "run" / "chosen.yaml").read_text(encoding="utf-8")
    assert "# The text: 800 pairs, 600 of them different" in text
    assert re.search(r"# only [\d,]+ running words\n", text)
    assert "  # as typed\n  dropout: 0.05\n" in text
    assert "model.dropout" not in caplog.text


def test_only_the_beginning_of_a_large_text_is_looked_at(data, tmp_path, monkeypatch):
    given = {**data, "data.validation": "[train.en, train.es]"}
    monkeypatch.setattr(recipes, "_MOST_LOOKED_AT", 800)  # exactly as many as there are
    chosen_recipe(tmp_path / "whole", given, minutes=2, speeds=SPEEDS)
    assert "# The text: 800 pairs" in (tmp_path / "whole" / "chosen.yaml").read_text(encoding="utf-8")
    monkeypatch.setattr(recipes, "_MOST_LOOKED_AT", 500)
    chosen_recipe(tmp_path / "run", given, minutes=2, speeds=SPEEDS)
    text = (tmp_path / "run" / "chosen.yaml").read_text(encoding="utf-8")
    assert "# The text: the first 500 pairs, 500 of them different" in text
    assert "  # more than 500 pairs\n  dropout: 0.1\n" in text
    with pytest.raises(ValueError, match="held out only from up to 500"):
        chosen_recipe(tmp_path / "other", data, minutes=2, speeds=SPEEDS)


def test_typed_section_sets_only_its_own_fields(data, tmp_path):
    whole = {"training": "{max_tokens: 512, weight_decay: 1.0e-5}", "decoding": "{num_beams: 1}"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **whole}, minutes=2, speeds=SPEEDS)
    assert recipe == load_recipe(tmp_path / "run" / "chosen.yaml")
    fields = {"training.max_tokens": "512", "training.weight_decay": "1.0e-5", "decoding.num_beams": "1"}
    other = chosen_recipe(tmp_path / "other", {**data, **fields}, minutes=2, speeds=SPEEDS)
    assert (recipe.training, recipe.decoding) == (other.training, other.decoding)
    assert recipe.training["max_minutes"] == 2
    text = (tmp_path / "run" / "chosen.yaml").read_text(encoding="utf-8")
    assert "  # as typed\n  num_beams: 1\n" in text


def test_cooldown_is_chosen_only_for_noam_schedule(data, tmp_path):
    for number, (typed, expected) in enumerate((
        ({}, 0.25),
        ({"training.max_minutes": "1"}, 0.25),
        ({"training.max_minutes": "null", "training.max_steps": "90"}, 0.25),
        ({"training.max_minutes": "null", "training.cooldown_steps": "30"}, 30),
        ({"training.noam_factor": "0.5"}, 0.25),
        ({"training": "{noam_factor: null, learning_rate: 0.001, warmup_steps: 100}"}, None),
    )):  # fmt: skip
        recipe = chosen_recipe(tmp_path / str(number), {**data, **typed}, minutes=8, speeds=SPEEDS)
        assert recipe.training.get("cooldown_steps") == expected
        options = {name: value for name, value in recipe.training.items() if name != "bf16"}
        VanillaTransformerTrainingArguments(output_dir=str(tmp_path), **options)


def test_choices_fit_what_is_typed(data, tmp_path):
    VanillaTransformerConfig(d_model=64, encoder_layers=1, dropout=0.3).save_pretrained(tmp_path / "small")
    news = {"data.test.news-1": "[train.en, train.es]", "training.floors.news-1": "20"}
    for number, (typed, expected) in enumerate((
        (news, {"average_last": 0, "metric_for_best_model": None, "floors": {"news-1": 20}}),
        ({"training.fp16": "true"}, {"fp16": True, "bf16": None}),
        ({"initial_model": str(tmp_path / "small"), "training.lora_rank": "8"}, {"optim": None, "lora_rank": 8}),
    )):  # fmt: skip
        recipe = chosen_recipe(tmp_path / str(number), {**data, **typed}, minutes=8, speeds=SPEEDS)
        assert {name: recipe.training.get(name) for name in expected} == expected
        options = {name: value for name, value in recipe.training.items() if name not in ("bf16", "fp16")}
        VanillaTransformerTrainingArguments(output_dir=str(tmp_path), **options)
    shape = {"d_model": 64, "encoder_layers": 1}
    assert recipe.model == {**shape, "dropout": recipe.model["dropout"], "attn_implementation": "eager"}


def test_embeddings_are_aligned_only_where_they_can_be(data, tmp_path):
    VanillaTransformerConfig().save_pretrained(tmp_path / "other")
    for number, (typed, expected) in enumerate((
        ({}, 0.8),
        ({"training.guided_alignment": "0.3"}, 0.8),
        ({"training.aligned_embeddings": "0.5"}, 0.5),
        ({"training.guided_alignment": "0"}, None),
        ({"training.fsdp": "true"}, None),
        ({"initial_model": str(tmp_path / "other")}, None),
    )):  # fmt: skip
        recipe = chosen_recipe(tmp_path / str(number), {**data, **typed}, minutes=8, speeds=SPEEDS)
        assert recipe.training.get("aligned_embeddings") == expected
        options = {name: value for name, value in recipe.training.items() if name not in ("bf16", "fsdp")}
        VanillaTransformerTrainingArguments(output_dir=str(tmp_path), **options)


def test_too_few_sources_to_hold_out_raises(data, corpus, tmp_path):
    (corpus / "train.en").write_text("".join(f"the number{' ' * (1 + n % 2)}{n % 19} is here\n" for n in range(800)))
    with pytest.raises(ValueError, match=r"data\.validation is missing: .* has only 19 different ones"):
        chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data.train": None}, "data.train is missing"),
        ({"data.source_language": "english language"}, "is not a language code"),
        ({"data.train": "[train.en, gone.es]"}, "gone.es"),
        ({"data.train": "{prepared: x}"}, "prepared corpus"),
        ({"data.stream": "true"}, "data.validation is missing"),
        ({"data.train": "phrasebook:train:100", "data.target_language": "de"}, "at least 200 are needed"),
        ({"tokenizer.vocab_sizes": "4000"}, "did you mean tokenizer.vocab_size"),
        ({"training.max_steps": "many"}, "training.max_steps must be int"),
    ],
)
def test_invalid_settings_raise_without_making_a_folder(change, said, data, tmp_path):
    asked = {name: value for name, value in {**data, **change}.items() if value is not None}
    with pytest.raises((ValueError, OSError), match=said):
        chosen_recipe(tmp_path / "run", asked, minutes=1, speeds=SPEEDS)
    assert not (tmp_path / "run").exists()


def test_error_names_the_side_without_words(corpus, data, tmp_path):
    (corpus / "train.es").write_text("\n" * 800)
    with pytest.raises(ValueError, match="no words in the target"):
        chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)


def test_foreign_folder_is_rejected_and_kept(data, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match=r"is not a run folder, it holds thesis\.txt"):
        chosen_recipe(tmp_path / "mine", data, minutes=1, speeds=SPEEDS)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    (tmp_path / "run" / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="a run that was not chosen by"):
        chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoints"]


def test_linked_data_folder_finds_held_out_pairs(corpus, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep" / "real").mkdir(parents=True)
    for name in ("train.en", "train.es"):
        (corpus / name).rename(tmp_path / "deep" / "real" / name)
    Path("linked").symlink_to(Path("deep", "real"))
    recipe = chosen_recipe(Path("run"), {**data, "data.folder": "linked"}, minutes=1, speeds=SPEEDS)
    for where in (*(each.corpus for each in recipe.data.mixture), recipe.data.validation):
        assert read_corpus(where, "en", "es", folder=recipe.data.folder).pairs


def test_typed_decoding_is_kept(data, tmp_path):
    """Even where it equals the value that would be chosen."""
    recipe = chosen_recipe(tmp_path / "run", {**data, "decoding.num_beams": "5"}, minutes=1, speeds=SPEEDS)
    assert recipe.decoding["num_beams"] == 5
    assert choose_decoding(tmp_path / "run", recipe) is recipe
    with pytest.raises(FileNotFoundError, match="There is no model in"):  # it would try decodings, which needs a model
        choose_decoding(tmp_path / "other", chosen_recipe(tmp_path / "other", data, minutes=1, speeds=SPEEDS))


def test_earlier_choice_is_used_again_for_the_same_text(data, tmp_path, corpus):
    run, path = tmp_path / "run", tmp_path / "run" / "chosen.yaml"
    first = chosen_recipe(run, data, minutes=1, speeds=SPEEDS)
    path.write_text(path.read_text(encoding="utf-8").replace("dropout: ", "dropout: 0.123 #"), encoding="utf-8")
    turned = dict(reversed(data.items()))
    assert chosen_recipe(run, turned, minutes=1, speeds=SPEEDS).model["dropout"] == 0.123
    (run / "text" / "train.en").unlink()
    assert chosen_recipe(run, data, minutes=1, speeds=SPEEDS).model["dropout"] == 0.123
    assert (run / "text" / "train.en").is_file()
    typed = {**data, "tokenizer.vocab_size": "400"}  # another command, and another again without the option
    for asked, size in ((typed, 400), (data, first.tokenizer.vocab_size)):
        found = chosen_recipe(run, asked, minutes=1, speeds=SPEEDS)
        assert (found.model["dropout"], found.tokenizer.vocab_size) == (first.model["dropout"], size)
    with (corpus / "train.en").open("a") as english, (corpus / "train.es").open("a") as spanish:
        english.write("another line\n")
        spanish.write("otra línea\n")
    kept = path.read_bytes()
    Search(RunFolder(run), "something else").begin(choose(facts(800), 1, SPEEDS, bf16=False), {})
    with pytest.raises(ValueError, match="was begun for something else"):
        chosen_recipe(run, data, minutes=1, speeds=SPEEDS, search=1, train=print)
    assert path.read_bytes() == kept
    shutil.rmtree(run / "search")
    assert chosen_recipe(run, data, minutes=1, speeds=SPEEDS) == first
    (run / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    assert chosen_recipe(run, turned, minutes=1, speeds=SPEEDS) == first
    with pytest.raises(ValueError, match="chosen for something else"):
        chosen_recipe(run, data, minutes=2, speeds=SPEEDS)


def test_edited_decoding_is_kept(data, tmp_path):
    chosen_recipe(tmp_path / "run", data, minutes=1, speeds=SPEEDS)
    path = tmp_path / "run" / "chosen.yaml"
    text = path.read_text(encoding="utf-8")
    for old, new in (("num_beams: 5", "num_beams: 8"), ("\ndecoding:", "\ndecoding:  # mine")):
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        recipe = load_recipe(path)
        assert choose_decoding(tmp_path / "run", recipe) is recipe
    path.write_text(text[: text.index("\nevaluation:")], encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="There is no model in"):  # it would try decodings
        choose_decoding(tmp_path / "run", load_recipe(path))


def test_speed_is_measured_no_further_than_needed(monkeypatch):
    monkeypatch.setattr(rule, "_BATCH", 512)  # which takes less time
    [(width, speed)] = measure_speeds("cpu", least=10.0**9, seconds=0.1).items()
    assert width == 128
    assert 10 < speed < 10**6
    assert [*measure_speeds("cpu", least=10.0**9, up_to=256, seconds=0.1)] == [128, 256]  # because it is typed


def test_several_processes_are_told_to_choose_first(data, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--only-choose"):
        chosen_recipe(tmp_path / "run", data)


# ------------------------------------------------------------------------------------------------------------ a search


def test_search_rounds_use_all_the_time():
    assert shares(8) == [(8, 1 / 16), (4, 1 / 8), (2, 1 / 4)]
    for candidates in range(2, 12):
        rounds = [(0, 0.0), *shares(candidates)]
        spent = sum(number * (until - before) for (_, before), (number, until) in pairwise(rounds))
        assert spent == pytest.approx(1)
        assert rounds[1][0] == candidates
        assert rounds[-1][0] >= 2


def test_candidates_differ_from_choices_and_keep_typed_values():
    for pairs, minutes in ((300, 1), (30_000, 15), (10**7, 1000)):
        choices = choose(facts(pairs), minutes, SPEEDS, bf16=True)
        values = {choice.field: choice.value for choice in choices}
        found = candidates_for(choices, {})
        assert next(iter(found)) == AS_CHOSEN
        assert all(values.get(name) != value for each in found.values() for name, value in each.changes.items())
        for name in {name for each in found.values() for name in each.changes}:
            typed = candidates_for(choices, {name: "1"})
            assert AS_CHOSEN in typed
            assert not any(name in each.changes for each in typed.values())
    assert "BPE-dropout" not in candidates_for(choices, {"tokenizer.kind": "wordpiece"})
    choices, of_vocabulary = choose(facts(30_000), 15, SPEEDS, bf16=True), {"smaller vocabulary", "larger vocabulary"}
    assert candidates_for(choices, {}).keys() - candidates_for(choices, {"initial_model": "a"}).keys() == of_vocabulary


def test_changes_are_placed_in_their_sections():
    choices = [Choice("model.a", 1, "one"), Choice("training.b", 2, "two"), Choice("decoding.c", 3, "three")]
    assert with_changes(choices, {"training.d": 4, "model.a": 5}, "better") == [
        Choice("model.a", 5, "better"),
        Choice("training.b", 2, "two"),
        Choice("training.d", 4, "better"),
        Choice("decoding.c", 3, "three"),
    ]


def test_search_halves_candidates_and_resumes(tmp_path):
    """Scores come from a table, which shows what runs in which round. (Real runs: tests/system.)"""
    scores = {
        "as chosen": [5, 6, 20], "more dropout": [9, 30, 31], "less dropout": [1], "smaller vocabulary": [8, 8],
        "larger vocabulary": [7, 32, 19], "smaller batches": [6.5], "lower rate": [None], "BPE-dropout": [4],
    }  # fmt: skip
    choices = choose(facts(30_000), 15, SPEEDS, bf16=True)
    done, interrupted_after = [], [3, 9, 13]
    typed = {"training.warmup_steps": "3000", "training.noam_factor": "2.0"}

    def recipe_of(changes, path):
        path.write_text(json.dumps(changes))
        return load_recipe("phrasebook", {"training.metric_for_best_model": "chrf", **typed})

    def train(recipe, output, *, resume, finish):
        if interrupted_after and len(done) == interrupted_after[0]:
            raise InterruptedError(interrupted_after.pop(0))
        assert (resume, finish) == (True, False)
        name = output.name.replace("_", " ")
        score = scores[name][sum(each == name for each, _ in done)]
        changes = json.loads(output.with_suffix(".yaml").read_text())
        assert changes["training.cooldown_steps"] == 0  # a candidate that continues must not have cooled down
        warmup, factor = (recipe.training[each] for each in ("warmup_steps", "noam_factor"))
        assert warmup == round(3000 * 4 / 15)  # the last round's share of the time
        assert factor / math.sqrt(warmup) == pytest.approx(2 / math.sqrt(3000))  # the highest rate, as in the training
        done.append((name, changes["training.max_minutes"]))
        (output / "checkpoints").mkdir(parents=True, exist_ok=True)
        if score is None:
            raise FloatingPointError("the loss is not finite")
        records = [{"step": 1, "elapsed_seconds": 1, "eval_loss": 3.0, "eval_chrf": value} for value in (0.5, score)]
        (output / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def searched() -> Search:
        search = Search(RunFolder(tmp_path), "so")
        if not search.choices:
            search.begin(choices, {})
        return search

    while interrupted_after:
        with pytest.raises(InterruptedError):
            searched().run(16, recipe_of, train)
    search = searched()
    found = {choice.field: choice for choice in search.run(16, recipe_of, train)}
    rounds = [{name for name, minutes in done if minutes == until} for until in (1, 2, 4)]
    assert rounds[0] == scores.keys()
    assert rounds[1] == {"as chosen", "more dropout", "smaller vocabulary", "larger vocabulary"}
    assert rounds[2] == {"as chosen", "larger vocabulary"}
    assert len(done) == 14
    # In the end the best candidate is worse than the original choice.
    assert found == {choice.field: choice for choice in choices}
    assert not list(tmp_path.glob("search/*/checkpoints"))
    assert (tmp_path / "search" / "search.png").is_file()
    assert "less dropout (model.dropout 0.0): 1.00" in search.report()
    assert any(line.endswith(": not finite") for line in search.report())
    with pytest.raises(ValueError, match="begun for something else"):
        Search(RunFolder(tmp_path), "other")

    scores["larger vocabulary"][2] = 33
    record = json.loads(search.file.read_text())
    record["candidates"]["larger vocabulary"]["scores"][2] = 33
    search.file.write_text(json.dumps(record))
    found = {choice.field: choice for choice in searched().run(16, recipe_of, train)}
    pieces = found["tokenizer.vocab_size"]
    assert (pieces.value, pieces.reason) == (16000, "tried: 33.00 on validation, and 20.00 as chosen at first")
    search.file.write_text("{}")
    with pytest.raises(ValueError, match="begun for something else"):
        searched()


def test_typed_minutes_and_cooldown_apply_after_search(data, tmp_path):
    """Until then each round has its own time limit, and a candidate may continue in the next round."""
    tried = []

    def train(recipe, output, *, resume, finish):
        tried.append(recipe.training)
        output.mkdir(parents=True, exist_ok=True)
        (output / "log.jsonl").write_text('{"step": 1, "elapsed_seconds": 1, "eval_loss": 3.0, "eval_chrf": 9.0}\n')

    typed = {"training.max_minutes": "null", "training.max_steps": "90", "training.cooldown_steps": "30"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **typed}, minutes=1, speeds=SPEEDS, search=1, train=train)
    assert {each["cooldown_steps"] for each in tried} == {0}
    assert {each["max_steps"] for each in tried} == {90}
    assert all(each["max_minutes"] < 1 for each in tried)
    ends = [recipe.training[name] for name in ("max_minutes", "max_steps", "cooldown_steps")]
    assert ends == [None, 90, 30]
    before, typed = len(tried), {**typed, "training.cooldown_steps": "20", "description": "Mine"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **typed}, minutes=1, speeds=SPEEDS, search=1, train=train)
    assert (len(tried), recipe.training["cooldown_steps"], recipe.description) == (before, 20, "Mine")


def test_search_works_with_floors(data, tmp_path):
    def train(recipe, output, *, resume, finish):
        options = {name: value for name, value in recipe.training.items() if name != "bf16"}
        VanillaTransformerTrainingArguments(output_dir=str(tmp_path), **options)
        output.mkdir(parents=True, exist_ok=True)
        (output / "log.jsonl").write_text('{"step": 1, "elapsed_seconds": 1, "eval_loss": 3.0, "eval_bleu": 9.0}\n')

    typed = {"data.test.old": "[train.en, train.es]", "training.floors.old": "20"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **typed}, minutes=1, speeds=SPEEDS, search=1, train=train)
    assert (recipe.training["average_last"], recipe.training["floors"]) == (0, {"old": 20})
    assert "#   as chosen: 9.00, 9.00, 9.00\n" in (tmp_path / "run" / "chosen.yaml").read_text(encoding="utf-8")


def test_impossible_candidates_are_skipped(tmp_path):
    choices = choose(facts(30_000), 15, SPEEDS, bf16=True)

    def recipe_of(changes, path):
        path.write_text(json.dumps(changes))
        if changes.get("tokenizer.vocab_size") == 16000:
            raise ValueError("asked for too many pieces")
        return load_recipe("phrasebook", by_loss)

    def train(recipe, output, *, resume, finish):
        if output.name == impossible:
            raise ValueError("max_tokens allows no such pair")
        output.mkdir(parents=True, exist_ok=True)
        (output / "log.jsonl").write_text('{"step": 1, "elapsed_seconds": 1, "eval_loss": 3.0}\n')

    no_metric = {"training.metric_for_best_model": "null"}
    no_texts = {"training.metric_for_best_model": "chrf", "training.predict_with_generate": "false"}
    for impossible, by_loss in (
        ("smaller_batches", no_metric),
        ("smaller_batches", no_texts),
        ("as_chosen", no_metric),
    ):
        search = Search(RunFolder(tmp_path / impossible / f"{len(by_loss)}"), "so")
        search.begin(choices, {})
        if impossible == "as_chosen":
            with pytest.raises(ValueError, match="no such pair"):
                search.run(16, recipe_of, train)
            continue
        assert search.run(16, recipe_of, train) == choices
        report = "\n".join(search.report())
        assert "impossible (asked for too many pieces)" in report
        assert "impossible (max_tokens allows no such pair)" in report
        assert "as chosen: 3.00, 3.00, 3.00" in report
