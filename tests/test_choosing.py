"""What `train auto` sees in a text, what it chooses, and what it holds out."""

import logging

import pytest
import yaml

from vanilla_transformer.choosing import TextFacts, choose, chosen_recipe, facts_of, measure_speeds
from vanilla_transformer.run.recipe import load_recipe


# As one thread and two of an ordinary processor have them.
SPEEDS = {128: 6000.0, 256: 2500.0, 512: 500.0}


def facts(pairs: int, words: int = 20) -> TextFacts:
    return TextFacts(pairs, pairs, (pairs * words, pairs * words), (pairs, pairs), ("LATIN", "LATIN"), 0.0)


def chosen(*arguments, **options) -> dict:
    return {choice.field: choice.value for choice in choose(*arguments, **{"bf16": True, **options})}


@pytest.fixture
def corpus(tmp_path):
    """600 different pairs of which every third stands there twice, and every source has two targets."""
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
    assert found == TextFacts(3, 2, (5, 3), (5, 3), ("LATIN", "CYRILLIC"), 1 / 3)
    assert facts_of([("x", "кот спит")]).scripts == ("LATIN", "CYRILLIC")
    assert facts_of([("x", "日" * 30)]).words == (1, 10)  # no blanks: a word is three characters
    assert facts_of([("it is", "ñe'ẽ mba’e ha")]).apostrophes == (0, 2 / 3)
    assert facts_of([("1", "2")]).scripts == ("no letters", "no letters")


def test_more_text_never_gets_a_smaller_vocabulary_nor_more_time_a_smaller_model():
    sizes = [chosen(facts(pairs), 15, SPEEDS)["tokenizer.vocab_size"] for pairs in (300, 3_000, 30_000, 300_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 500
    assert sizes[-1] == 32_000
    widths = [chosen(facts(30_000), minutes, SPEEDS)["model.d_model"] for minutes in (1, 15, 480, 10**5)]
    assert widths == sorted(widths)
    assert widths[0] == 128
    assert widths[-1] == 512
    dropouts = [chosen(facts(pairs), 15, {128: 6000.0})["model.dropout"] for pairs in (3_000, 30_000, 3_000_000)]
    assert dropouts == sorted(dropouts, reverse=True)
    assert dropouts[0] > dropouts[-1]


def test_every_choice_is_a_recipe(tmp_path):
    for minutes in (0.1, 15, 600):
        for pairs in (200, 40_000, 5_000_000):
            content = {
                "data": {"source_language": "en", "target_language": "de", "train": "a.tsv", "validation": "b.tsv"}
            }
            for name, value in chosen(facts(pairs), minutes, SPEEDS).items():
                section, _, field = name.partition(".")
                content.setdefault(section, {})[field] = value
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
            assert load_recipe(tmp_path / "recipe.yaml").training["max_minutes"] == minutes


def test_no_source_is_held_out_and_trained_on(data, tmp_path):
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


def test_what_is_typed_is_not_chosen_and_reasons_stand_in_the_file(data, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    own = {"model.dropout": "0.05", "data.validation": "[train.en, train.es]", "training.seed": "3"}
    recipe = chosen_recipe(tmp_path / "run", {**data, **own}, minutes=2, speeds=SPEEDS)
    assert recipe.model["dropout"] == 0.05
    assert recipe.training["seed"] == 3
    assert recipe.data.validation == ["train.en", "train.es"]
    assert not (tmp_path / "run" / "text").exists()
    text = (tmp_path / "run" / "chosen.yaml").read_text(encoding="utf-8")
    assert "800 pairs, 600 of them different" in text
    assert "running words: at least" in text
    assert "model.dropout" not in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data.train": None}, "data.train is missing"),
        ({"data.source_language": "english language"}, "no language code"),
        ({"data.train": "[train.en, gone.es]"}, "gone.es"),
        ({"data.train": "{prepared: x}"}, "prepared corpus"),
        ({"data.stream": "true"}, "data.validation is missing"),
        ({"data.train": "phrasebook:train:100", "data.target_language": "de"}, "200 are the fewest"),
    ],
)
def test_one_clear_error(change, said, data, tmp_path):
    asked = {name: value for name, value in {**data, **change}.items() if value is not None}
    with pytest.raises((ValueError, OSError), match=said):
        chosen_recipe(tmp_path / "run", asked, minutes=1, speeds=SPEEDS)
    assert not (tmp_path / "run").exists()


def test_the_speed_of_this_machine_is_measured_no_further_than_needed():
    [(width, speed)] = measure_speeds("cpu", least=10.0**9, seconds=0.1).items()
    assert width == 128
    assert 10 < speed < 10**6


def test_several_processes_are_told_to_let_one_choose(data, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--only-choose"):
        chosen_recipe(tmp_path / "run", data)
