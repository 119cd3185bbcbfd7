"""Recipes: those that come with the package load, and every slip in one is named with its place."""

import dataclasses

import pytest
import yaml

from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.training.recipe import list_recipes, load_recipe


MINIMAL = {
    "description": "Größe zählt.",
    "data": {"source_language": "en", "target_language": "de", "train": ["a.en", "a.de"], "validation": "b.tsv"},
}


@pytest.fixture
def write(tmp_path):
    """Writes a recipe: the minimal one with other sections, or just a text."""

    def write(content=None, **sections):
        path = tmp_path / "mine.yaml"
        text = content if isinstance(content, str) else yaml.safe_dump({**MINIMAL, **sections}, allow_unicode=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --------------------------------------------------------------------------------------------------------- shipped


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipe_makes_a_model_arguments_and_decoding(name, tmp_path):
    recipe = load_recipe(name)
    config = VanillaTransformerConfig(vocab_size=recipe.tokenizer.vocab_size, **recipe.model)
    paper_generation_config(config, **recipe.decoding).validate(strict=True)
    # Whether this machine can do bf16 is not the recipe's business.
    training = {**recipe.training, "use_cpu": True, "bf16": False}
    assert VanillaTransformerTrainingArguments(str(tmp_path), **training).max_steps > 0


def test_shipped_recipes_have_a_line_each():
    recipes = list_recipes()
    assert {"multi30k_en_de", "phrasebook"} <= recipes.keys()
    assert all(line and "\n" not in line for line in recipes.values())


def test_name_comes_before_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phrasebook").write_text(yaml.safe_dump(MINIMAL))
    assert load_recipe("phrasebook").description != MINIMAL["description"]
    assert load_recipe("./phrasebook").description == MINIMAL["description"]


def test_unknown_recipe_names_the_known_ones():
    with pytest.raises(FileNotFoundError, match=r"no recipe 'phrasebok': give a YAML file or one of .*phrasebook"):
        load_recipe("phrasebok")


# ----------------------------------------------------------------------------------------------------------- files


def test_minimal_recipe_has_the_defaults(write):
    recipe = load_recipe(write())
    assert recipe.description == "Größe zählt."
    assert recipe.data.limits == PairLimits(256, 256, None)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("bpe", 37_000)
    assert recipe.model == recipe.training == recipe.decoding == recipe.data.test == {}


@pytest.mark.parametrize("name", [*list_recipes(), "mine"])
def test_yaml_comes_back_as_the_same_recipe(name, write, tmp_path):
    mine = write(training={"adam_epsilon": 1e-9, "noam_factor": None}, decoding={"num_beams": 2})
    recipe = load_recipe(mine if name == "mine" else name)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    assert load_recipe(tmp_path / "again.yaml") == recipe


def test_yaml_keeps_the_order_and_the_letters(write):
    text = load_recipe(write()).to_yaml()
    assert text.startswith("description: Größe zählt.\ndata:\n  source_language: en\n")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "", "3"])
def test_file_that_is_no_mapping_is_refused(text, write):
    with pytest.raises(ValueError, match=r"Recipe mine.yaml: a recipe is a mapping with the sections data"):
        load_recipe(write(text))


def test_broken_yaml_is_named_with_its_line(write):
    with pytest.raises(ValueError, match=r"(?s)Recipe mine.yaml: .*line 3"):
        load_recipe(write("description: x\ndata: [\n"))


def test_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "l.yaml").write_bytes(b"description: gr\xf6\xdfer\n")
    with pytest.raises(ValueError, match=r"Recipe l.yaml: "):
        load_recipe(tmp_path / "l.yaml")


# ---------------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("trainig.max_steps", "training"),
        ("data.sorce_language", "data.source_language"),
        ("tokenizer.vocabsize", "tokenizer.vocab_size"),
        ("model.d_modell", "model.d_model"),
        ("training.max_step", "training.max_steps"),
        ("training.max_token", "training.max_tokens"),
        ("decoding.num_beam", "decoding.num_beams"),
        ("evaluation.metric", "evaluation.metrics"),
    ],
)
def test_unknown_field_names_the_nearest(field, nearest, write):
    section, name = field.split(".")
    content = {**MINIMAL.get(section, {}), name: 1}
    unknown = section if section == "trainig" else field
    with pytest.raises(ValueError, match=rf"Recipe mine.yaml: {unknown} is unknown; did you mean {nearest}\?"):
        load_recipe(write(**{section: content}))


def test_unknown_metric_names_the_nearest(write):
    with pytest.raises(ValueError, match=r"evaluation.metrics: sacrebleo is unknown; did you mean .*sacrebleu\?"):
        load_recipe(write(evaluation={"metrics": ["sacrebleo"]}))


def test_vocabulary_size_of_the_model_is_the_tokenizers(write):
    with pytest.raises(ValueError, match=r"model.vocab_size is unknown"):
        load_recipe(write(model={"vocab_size": 100}))


def test_output_folder_is_not_the_recipes(write):
    # The run's folder decides where checkpoints lie; given twice it would end the run when training begins.
    with pytest.raises(ValueError, match=r"training.output_dir is unknown"):
        load_recipe(write(training={"output_dir": "elsewhere"}))


@pytest.mark.parametrize("name", ["source_language", "target_language", "train", "validation"])
def test_missing_field_is_named(name, write):
    data = {key: value for key, value in MINIMAL["data"].items() if key != name}
    with pytest.raises(ValueError, match=rf"Recipe mine.yaml: data.{name} is missing"):
        load_recipe(write(data=data))


@pytest.mark.parametrize("name", ["train", "validation"])
def test_corpus_that_is_null_is_missing(name, write):
    with pytest.raises(ValueError, match=rf"data.{name}"):
        load_recipe(write(data={**MINIMAL["data"], name: None}))


def test_missing_section_is_named(write):
    with pytest.raises(ValueError, match=r"Recipe mine.yaml: data is missing"):
        load_recipe(write("description: x\n"))


@pytest.mark.parametrize(
    ("section", "name", "value", "wanted"),
    [
        ("data", "folder", 3, "str"),
        ("data", "max_source_length", "many", "int"),
        ("data", "max_source_length", True, "int"),
        ("data", "source_language", False, "str"),  # what YAML makes of Norwegian's `no`
        ("data", "test", ["a"], "dict"),
        ("tokenizer", "lowercase", "yes", "bool"),
        ("tokenizer", "vocab_size", 1.5, "int"),
        ("model", "d_model", "wide", "int"),
        ("model", "dropout", "much", "float or int"),
        ("training", "max_steps", 1.5, "int"),
        ("training", "adam_epsilon", "small", "float"),
        ("training", "noam_factor", "off", "float or null"),
        ("evaluation", "metrics", "sacrebleu", "list"),
    ],
)
def test_wrong_kind_of_value_is_named(section, name, value, wanted, write):
    content = {**MINIMAL.get(section, {}), name: value}
    with pytest.raises(ValueError, match=rf"{section}.{name} must be {wanted}, not {value!r}".replace("[", r"\[")):
        load_recipe(write(**{section: content}))


@pytest.mark.parametrize("section", ["data", "tokenizer", "model", "training", "decoding", "evaluation"])
def test_section_that_is_no_mapping_is_named(section, write):
    with pytest.raises(ValueError, match=rf"{section} must be a mapping, not \[1\]"):
        load_recipe(write(**{section: [1]}))


def test_value_out_of_range_is_named(write):
    with pytest.raises(ValueError, match=r"Recipe mine.yaml: tokenizer.vocab_size is 100"):
        load_recipe(write(tokenizer={"vocab_size": 100}))


@pytest.mark.parametrize("name", [2016, "train", "validation", "a/b", "..", ".hidden", "", "test set"])
def test_name_of_a_test_set_that_could_name_no_file_is_refused(name, write):
    with pytest.raises(ValueError, match=rf"data\.test: {name!r} is no name for a test set"):
        load_recipe(write(data={**MINIMAL["data"], "test": {name: "a.tsv"}}))


@pytest.mark.parametrize("name", ["2016", "test_2016_flickr", "newstest2014", "wmt.14", "a-b"])
def test_usual_names_of_test_sets_are_taken(name, write):
    assert load_recipe(write(data={**MINIMAL["data"], "test": {name: "a.tsv"}})).data.test == {name: "a.tsv"}


@pytest.mark.parametrize("language", ["", "d", "German", "de/at", "../de", "de "])
def test_what_is_no_language_code_is_refused(language, write):
    with pytest.raises(ValueError, match=rf"data: '{language}' is no language code"):
        load_recipe(write(data={**MINIMAL["data"], "target_language": language}))


@pytest.mark.parametrize("language", ["de", "deu", "pt_BR", "zh-Hant"])
def test_language_codes_are_taken(language, write):
    assert load_recipe(write(data={**MINIMAL["data"], "target_language": language})).data.target_language == language


@pytest.mark.parametrize(
    ("section", "content", "message"),
    [
        ("training", {"num_train_epochs": 3}, "training.num_train_epochs has no effect"),
        ("training", {"hub_token": "hf_x"}, "training.hub_token would be stored with the run: log in with"),
        ("decoding", {"num_beams": 2.5}, "decoding.num_beams must be a whole number"),
        ("decoding", {"num_beams": 0}, "decoding.num_beams must be a whole number"),
        ("decoding", {"length_penalty": "much"}, "decoding.length_penalty must be a number"),
        ("decoding", {"num_return_sequences": 9}, "decoding: .*num_return_sequences"),
    ],
)
def test_setting_that_would_fail_only_after_training_is_refused(section, content, message, write):
    with pytest.raises(ValueError, match=rf"Recipe mine\.yaml: {message}"):
        load_recipe(write(**{section: content}))


def test_whole_number_stands_for_a_float(write):
    assert load_recipe(write(training={"noam_factor": 2})).training == {"noam_factor": 2}


# ------------------------------------------------------------------------------------------------------- overrides


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("training.max_steps", "2000", 2000),
        ("training.adam_epsilon", "1e-9", 1e-9),  # a text to YAML, which wants 1.0e-9
        ("training.noam_factor", "null", None),
        ("training.bf16", "true", True),
        ("data.train", "[x.en, x.de]", ["x.en", "x.de"]),
        ("data.folder", "/data", "/data"),
        ("data.test.newstest", "[n.en, n.de]", ["n.en", "n.de"]),
        ("model.dropout", "0.3", 0.3),
        ("decoding.num_beams", "8", 8),
        ("description", "other words", "other words"),
    ],
)
def test_override_replaces_one_value(name, text, value, write):
    content = dataclasses.asdict(load_recipe(write(), {name: text}))
    for part in name.split("."):
        content = content[part]
    assert content == value
    assert type(content) is type(value)


def test_override_keeps_what_is_beside_it(write):
    path = write(training={"max_steps": 5}, data={**MINIMAL["data"], "test": {"a": "a.tsv"}})
    recipe = load_recipe(path, {"training.warmup_steps": "7", "data.test.b": "b.tsv"})
    assert recipe.training == {"max_steps": 5, "warmup_steps": 7}
    assert recipe.data.test == {"a": "a.tsv", "b": "b.tsv"}


def test_override_is_checked_like_the_file(write):
    with pytest.raises(ValueError, match=r"training.max_step is unknown; did you mean training.max_steps\?"):
        load_recipe(write(), {"training.max_step": "3"})
    with pytest.raises(ValueError, match=r"training.max_steps must be int, not 'many'"):
        load_recipe(write(), {"training.max_steps": "many"})


def test_override_below_a_plain_value_is_refused(write):
    with pytest.raises(ValueError, match=r"description.length is unknown: description has no fields"):
        load_recipe(write(), {"description.length": "3"})


def test_override_that_is_no_yaml_is_named(write):
    with pytest.raises(ValueError, match=r"data.train: '\[a' is not a YAML value"):
        load_recipe(write(), {"data.train": "[a"})


# ------------------------------------------------------------------------------------------------- plain YAML's traps


def test_field_that_stands_twice_is_refused(write):
    text = yaml.safe_dump(MINIMAL) + "training:\n  max_steps: 10\n  max_steps: 20\n"
    with pytest.raises(ValueError, match=r"Recipe mine.yaml: max_steps stands twice in one section \(near line \d+\)"):
        load_recipe(write(text))


def test_section_that_stands_twice_is_refused(write):
    text = yaml.safe_dump(MINIMAL) + "model: {}\nmodel: {}\n"
    with pytest.raises(ValueError, match="model stands twice"):
        load_recipe(write(text))


def test_merged_mappings_are_still_yaml(write):
    text = yaml.safe_dump(MINIMAL) + "training: &t\n  max_steps: 10\ndecoding:\n  <<: {num_beams: 3}\n  num_beams: 2\n"
    assert load_recipe(write(text)).decoding == {"num_beams": 2}


def test_section_without_a_field_can_be_given_one(write):
    path = write(yaml.safe_dump(MINIMAL) + "training:\n")
    assert load_recipe(path, {"training.max_steps": "7"}).training == {"max_steps": 7}
