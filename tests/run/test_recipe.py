"""Recipes: those that come with the package load, and the error for every mistake names its place."""

import dataclasses
import re
import time
from itertools import product
from pathlib import Path

import pytest
import yaml
from transformers import HfArgumentParser, Seq2SeqTrainingArguments

from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.mixture import CorpusSettings
from vanilla_transformer.data.terms import TERM_MARKERS
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.run.folder import list_recipes
from vanilla_transformer.run.recipe import DataSettings, Recipe, load_recipe
from vanilla_transformer.training.arguments import (
    UNDER_NOAM,
    WITHOUT_EFFECT,
    VanillaTransformerTrainingArguments,
)


MINIMAL = {
    "description": "Größe zählt.",
    "data": {"source_language": "en", "target_language": "de", "train": ["a.en", "a.de"], "validation": "b.tsv"},
}


@pytest.fixture
def write(tmp_path):
    """Writes a recipe: the minimal one with other sections, or the given text."""

    def write(content=None, **sections):
        path = tmp_path / "mine.yaml"
        text = content if isinstance(content, str) else yaml.safe_dump({**MINIMAL, **sections}, allow_unicode=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipe_gives_valid_settings(name, tmp_path):
    recipe = load_recipe(name)
    config = VanillaTransformerConfig(vocab_size=recipe.tokenizer.vocab_size, **recipe.model)
    paper_generation_config(config, **recipe.decoding).validate(strict=True)
    # Whether this machine can do bf16 is not the recipe's business.
    training = {**recipe.training, "use_cpu": True, "bf16": False}
    assert VanillaTransformerTrainingArguments(str(tmp_path), **training).max_steps > 0


def test_recipes_are_found_by_name_or_path(tmp_path, monkeypatch):
    recipes = list_recipes()
    assert {"multi30k_en_de", "phrasebook"} <= recipes.keys()
    assert all(line and "\n" not in line for line in recipes.values())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phrasebook").write_text(yaml.safe_dump(MINIMAL))
    assert load_recipe("phrasebook").description != MINIMAL["description"]  # a name comes before a file of that name
    assert load_recipe("./phrasebook").description == MINIMAL["description"]
    with pytest.raises(FileNotFoundError, match=r"no recipe 'phrasebok': give a YAML file or one of .*phrasebook"):
        load_recipe("phrasebok")


def test_minimal_recipe_has_defaults_and_readable_yaml(write):
    recipe = load_recipe(write())
    assert recipe.description == "Größe zählt."
    assert recipe.data.limits == PairLimits(256, 256, None)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("bpe", 37_000)
    assert recipe.model == recipe.training == recipe.decoding == recipe.data.test == {}
    assert recipe.to_yaml().startswith("description: Größe zählt.\ndata:\n  source_language: en\n")
    without = load_recipe(write(yaml.safe_dump({"data": MINIMAL["data"]})))
    assert without == dataclasses.replace(recipe, description="")
    assert without.to_yaml().startswith("description: ''\ndata:\n")


@pytest.mark.parametrize("name", [*list_recipes(), "mine"])
def test_recipe_round_trips_through_yaml(name, write, tmp_path):
    mine = write(training={"adam_epsilon": 1e-9, "noam_factor": None}, decoding={"num_beams": 2})
    typed = {"initial_model": '"1e-4"'}  # a folder of that name
    recipe = load_recipe(mine, typed) if name == "mine" else load_recipe(name)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    assert load_recipe(tmp_path / "again.yaml") == recipe


def test_invalid_recipe_file_is_named(write, tmp_path):
    no_mapping = r"Recipe mine.yaml: a recipe is a mapping with the sections data"
    for text, message in (
        *((text, no_mapping) for text in ("- a\n- b\n", "just text", "", "3")),
        ("description: x\ndata: [\n", r"(?s)Recipe mine.yaml: .*line 3"),
        ("description: x\n", r"Recipe mine.yaml: data is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            load_recipe(write(text))
    (tmp_path / "l.yaml").write_bytes(b"description: gr\xf6\xdfer\n")
    with pytest.raises(ValueError, match=r"Recipe l.yaml: "):
        load_recipe(tmp_path / "l.yaml")


def test_unknown_names_suggest_the_nearest(write):
    for field, nearest in (
        ("trainig.max_steps", "training"),
        ("data.sorce_language", "data.source_language"),
        ("tokenizer.vocabsize", "tokenizer.vocab_size"),
        ("model.d_modell", "model.d_model"),
        ("training.max_step", "training.max_steps"),
        ("training.max_token", "training.max_tokens"),
        ("decoding.num_beam", "decoding.num_beams"),
        ("evaluation.metric", "evaluation.metrics"),
    ):
        section, name = field.split(".")
        unknown = section if section == "trainig" else field
        with pytest.raises(ValueError, match=rf"Recipe mine.yaml: {unknown} is unknown; did you mean {nearest}\?"):
            load_recipe(write(**{section: {**MINIMAL.get(section, {}), name: 1}}))
    # The tokenizer sets the vocabulary's size, and the run's folder sets where checkpoints are.
    for section, name in (("model", "vocab_size"), ("training", "output_dir")):
        with pytest.raises(ValueError, match=rf"{section}.{name} is unknown"):
            load_recipe(write(**{section: {name: 100}}))
    with pytest.raises(ValueError, match=r"evaluation.metrics: sacrebleo is unknown; did you mean .*sacrebleu\?"):
        load_recipe(write(evaluation={"metrics": ["sacrebleo"]}))


def test_missing_field_is_named(write):
    for name in ("source_language", "target_language", "train", "validation"):
        data = {key: value for key, value in MINIMAL["data"].items() if key != name}
        with pytest.raises(ValueError, match=rf"Recipe mine.yaml: data.{name} is missing"):
            load_recipe(write(data=data))
        with pytest.raises(ValueError, match=rf"data.{name}"):
            load_recipe(write(data={**data, name: None}))


def test_wrong_kind_of_value_is_named(write):
    for section, name, value, wanted in (
        ("data", "folder", 3, "str"),
        ("data", "max_source_length", "many", "int"),
        ("data", "max_source_length", True, "int"),
        ("data", "source_language", False, "str"),  # YAML reads `no`, the code of Norwegian, as False
        ("data", "test", ["a"], "dict"),
        ("tokenizer", "lowercase", "yes", "bool"),
        ("tokenizer", "vocab_size", 1.5, "int"),
        ("model", "d_model", "wide", "int"),
        ("model", "dropout", "much", "float or int"),
        ("training", "max_steps", 1.5, "int"),
        ("training", "adam_epsilon", "small", "float"),
        ("training", "noam_factor", "off", "float or null"),
        ("evaluation", "metrics", "sacrebleu", "list"),
    ):
        content = {**MINIMAL.get(section, {}), name: value}
        with pytest.raises(ValueError, match=re.escape(f"{section}.{name} must be {wanted}, not {value!r}")):
            load_recipe(write(**{section: content}))
    with pytest.raises(ValueError, match="YAML reads no, yes, on and off so"):
        load_recipe(write(data={**MINIMAL["data"], "target_language": False}))
    for section in ("data", "tokenizer", "model", "training", "decoding", "evaluation"):
        with pytest.raises(ValueError, match=rf"{section} must be a mapping, not \[1\]"):
            load_recipe(write(**{section: [1]}))


def test_invalid_test_set_and_language_names_are_rejected(write):
    def with_data(**fields):
        return load_recipe(write(data={**MINIMAL["data"], **fields})).data

    for name in (2016, "train", "validation", "a/b", "..", ".hidden", "", "test set"):  # not usable as file names
        with pytest.raises(ValueError, match=rf"data\.test: {name!r} is not a name for a test set"):
            with_data(test={name: "a.tsv"})
    with pytest.raises(ValueError, match=r"'validation_2016' is a name for a validation set"):  # it would choose models
        with_data(test={"validation_2016": "a.tsv"})
    for name in ("2016", "test_2016_flickr", "newstest2014", "wmt.14", "a-b"):
        assert with_data(test={name: "a.tsv"}).test == {name: "a.tsv"}
    for language in ("", "d", "German", "de/at", "../de", "de "):
        with pytest.raises(ValueError, match=rf"data.target_language: '{language}' is not a language code"):
            with_data(target_language=language)
    for language in ("de", "deu", "pt_BR", "zh-Hant"):
        assert with_data(target_language=language).target_language == language


def test_language_that_yaml_takes_for_false_is_rejected(write):
    for field, value in (
        ("data.test", "{norwegian: {corpus: [a.en, a.no], target_language: no}}"),
        ("data.validation", "[{corpus: [a.en, a.no], target_language: no}]"),
    ):
        with pytest.raises(ValueError, match="False is not a language code, say 'de' or 'pt_BR': put it in quotes"):
            load_recipe(write(), {field: value})


def test_paths_become_text(tmp_path):
    train, validation = [Path("a.en"), Path("a.de")], Path("dev.tsv")
    data = DataSettings("en", "de", train=train, validation=validation, test={"t": Path("t")})
    (tmp_path / "recipe.yaml").write_text(Recipe(data=data).to_yaml(), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml").data == data
    assert (data.train, data.validation, data.test) == (["a.en", "a.de"], "dev.tsv", {"t": "t"})


def test_several_corpora_are_read_and_checked(write):
    def with_train(train):
        return load_recipe(write(data={**MINIMAL["data"], "train": train})).data

    two = {"corpus": ["a.en", "a.de"]}, {"corpus": {"hub": "x/y"}, "weight": 0.5, "tag": "<bt>", "vocabulary": False}
    assert with_train(list(two)).mixture == [CorpusSettings(**each) for each in two]
    for one in (["a.en", "a.de"], "a.tsv", {"hub": "x/y"}, {"prepared": "folder"}):
        assert with_train(one).mixture == []
    for train, message in (
        ({"corpus": "a.tsv"}, r"data\.train: \{corpus: \.\.\.\} is one of a list"),
        ([{"corpus": "a.tsv"}, "b.tsv"], r"data\.train\[1\] must be a mapping, not 'b\.tsv'"),
        (
            [["a.en", "a.de"], ["b.en", "b.de"]],
            r"data\.train\[0\] must be a mapping, not \['a\.en', 'a\.de'\]: write \{corpus: \['a\.en', 'a\.de'\]\}",
        ),
        ([{"corpus": "a.tsv"}, {"weight": 2}], r"data\.train\[1\]\.corpus is missing"),
        ([{"corpus": "a.tsv", "wieght": 2}], r"data\.train\[0\]\.wieght is unknown; did you mean .*\.weight\?"),
        ([{"corpus": "a.tsv", "weight": 0}], r"data\.train\[0\]: weight is 0; choose a number above 0"),
        ([{"corpus": "b.tsv"}, {"corpus": "a.tsv", "weight": -1.5}], r"data\.train\[1\]: weight is -1\.5"),
        ([{"corpus": "a.tsv", "weight": "much"}], r"data\.train\[0\]\.weight must be float, not 'much'"),
        ([{"corpus": "a.tsv", "weight": float("inf")}], r"data\.train\[0\]\.weight must be finite"),
        ([{"corpus": "a.tsv"}, {"corpus": "b.tsv", "weight": 0.001}], r"data\.train: the weights 1\.0, 0\.001 are no"),
        ([{"corpus": "a.tsv", "tag": "<b t>"}], r"data\.train\[0\]: the tag '<b t>' cannot be a token"),
        ([{"corpus": "a.tsv", "tag": "</s>"}], r"data\.train\[0\]: the tag '</s>' cannot be a token"),
        ([{"corpus": "a.tsv", "tag": "<2nd>"}], r"data\.train\[0\]: the tag '<2nd>' stands for a target language"),
        ([{"corpus": "a.tsv", "tag": 2}], r"data\.train\[0\]\.tag must be null or str, not 2"),
        ([{"corpus": {"prepared": "folder"}}], r"data\.train\[0\]: corpus = \{'prepared': 'folder'\} holds token ids"),
        ([{"corpus": "a.tsv", "vocabulary": False}], r"data\.train: vocabulary is false for every corpus"),
    ):
        with pytest.raises(ValueError, match=rf"Recipe mine\.yaml: {message}"):
            with_train(train)


@pytest.mark.parametrize(
    ("section", "content", "message"),
    [
        ("training", {"hub_token": "hf_x"}, "training.hub_token would be stored with the run: log in with"),
        ("decoding", {"num_beams": 2.5}, "decoding.num_beams must be a whole number"),
        ("decoding", {"num_beams": 0}, "decoding.num_beams must be a whole number"),
        ("decoding", {"length_penalty": "much"}, "decoding.length_penalty must be a number"),
        ("model", {"attn_implementation": "somebody/kernel"}, "model.attn_implementation = 'somebody/kernel' would be"),
        ("decoding", {"num_beam_groups": 2}, "decoding.num_beam_groups = 2 asks for a beam search in groups"),
        ("decoding", {"stop_strings": ["."]}, "decoding.stop_strings = .* asks for an end at given strings"),
        ("decoding", {"eos_token_id": 40_000}, "decoding.eos_token_id must be a token's id, from 0 to 36999"),
        ("tokenizer", {"vocab_size": 10**9}, "tokenizer.vocab_size is 1,000,000,000; choose at most 1,000,000"),
        ("decoding", {"num_return_sequences": 9}, "decoding.num_return_sequences: "),
        ("model", {"d_model": 100, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
         r"model\.d_model \(100\) is not a multiple of encoder_attention_heads \(3\): choose another number of heads"),
        ("model", {"decoder_attention_heads": 3, "encoder_attention_heads": 3, "d_model": 100},
         r"model\.d_model \(100\) is not a multiple of encoder_attention_heads"),
        ("model", {"activation_function": "rulu"}, "model.activation_function must be one of .*relu"),
        ("model", {"layer_norm_eps": float("inf")}, "model.layer_norm_eps must be finite, not inf"),
        ("decoding", {"num_beams": 4, "watermarking_config": 3}, "decoding.watermarking_config"),
        ("decoding", {"length_penalty": float("nan")}, "decoding.length_penalty must be finite, not nan"),
        ("data", {"buffer_pairs": 0}, "data.buffer_pairs must be at least 1, not 0"),
        ("training", {"r_drop_alpha": 10**320}, "training.r_drop_alpha is a number of 321 digits"),
        ("data", {"patience": float("inf")}, "data.patience must be finite, not inf"),
        ("training", {"max_grad_norm": float("inf")}, "training.max_grad_norm must be finite, not inf"),
        ("training", {"weight_decay": float("nan")}, "training.weight_decay must be finite, not nan"),
        ("training", {"fsdp_config": 3}, "training.fsdp_config must be dict or null or str, not 3"),
        ("training", {"save_strategy": 3}, "training.save_strategy must be str, not 3"),
        ("training", {"lora_rank": 8}, "training.lora_rank needs initial_model"),
    ],
)  # fmt: skip
def test_invalid_value_is_named_with_section_and_field(section, content, message, write):
    with pytest.raises(ValueError, match=rf"Recipe mine\.yaml: {message}"):
        load_recipe(write(**{section: {**MINIMAL.get(section, {}), **content}}))


def test_trained_embeddings_are_not_aligned_anew(write):
    aligned = {"guided_alignment": 0.1, "aligned_embeddings": 0.8}
    assert load_recipe(write(training=aligned)).training == aligned
    with pytest.raises(ValueError, match=r"training\.aligned_embeddings is for random weights: leave it or initial_mo"):
        load_recipe(write(training=aligned, initial_model="other"))


def test_bpe_dropout_needs_bpe(write):
    dropout = {"bpe_dropout": 0.1}
    assert load_recipe(write(training=dropout)).training == dropout
    with pytest.raises(ValueError, match=r"training\.bpe_dropout needs tokenizer\.kind = bpe, not wordpiece"):
        load_recipe(write(training=dropout, tokenizer={"kind": "wordpiece"}))


def test_augmentation_is_rejected_for_parsers(write):
    augmentation = {"augmentation": {"upper": 0.1}}
    assert load_recipe(write(training=augmentation)).training == augmentation
    with pytest.raises(ValueError, match=r"training\.augmentation would .* leave it out of a parser's recipe"):
        load_recipe(write(training=augmentation, evaluation={"metrics": ["evalb"]}))
    forms = {"forms": {"upper": 0.1}}
    assert load_recipe(write(tokenizer=forms)).tokenizer.forms == forms["forms"]
    with pytest.raises(ValueError, match=r"tokenizer\.forms would .* leave it out of a parser's recipe"):
        load_recipe(write(tokenizer=forms, evaluation={"metrics": ["evalb"]}))


def test_soft_term_markers_may_not_be_corpus_tags(write):
    for augmentation, markers in (({}, ()), ({"upper": 0.1, "terms": 0}, ()), ({"terms": 0.1}, TERM_MARKERS)):
        assert load_recipe(write(training={"augmentation": augmentation})).term_markers == markers
    train = [{"corpus": "a.tsv", "tag": "<src>"}, {"corpus": "b.tsv"}]
    data = {**MINIMAL["data"], "train": train}
    assert load_recipe(write(data=data)).term_markers == ()
    with pytest.raises(ValueError, match=r"the tag <src> marks terms \(training\.augmentation\): choose another"):
        load_recipe(write(data=data, training={"augmentation": {"terms": 0.1}}))


def test_field_types_survive_hf_argument_parser(write):
    HfArgumentParser(Seq2SeqTrainingArguments)  # it drops "or None" and "or str" from the fields' own types
    with pytest.raises(ValueError, match=r"training\.fsdp_config must be dict or null or str, not 3"):
        load_recipe(write(training={"fsdp_config": 3}))


def test_hf_argument_parser_reads_our_arguments(tmp_path):
    words = ["--output_dir", str(tmp_path), "--max_tokens", "1000", "--noam_factor", "0.5", "--report_to", "none"]
    [arguments] = HfArgumentParser(VanillaTransformerTrainingArguments).parse_args_into_dataclasses(words)
    assert (arguments.max_tokens, arguments.noam_factor, arguments.warmup_steps) == (1000, 0.5, 4000)
    assert arguments.report_to == []


def test_fields_without_effect_are_rejected(write):
    known = {field.name for field in dataclasses.fields(VanillaTransformerTrainingArguments)}
    assert {"num_train_epochs", "per_device_train_batch_size"} <= WITHOUT_EFFECT.keys() & known
    for name in (WITHOUT_EFFECT.keys() | UNDER_NOAM.keys()) & known:
        default = getattr(VanillaTransformerTrainingArguments("unused", use_cpu=True), name)
        value = {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {}}.get(name, default)
        with pytest.raises(ValueError, match=rf"Recipe mine.yaml: training.{name} has no effect, .*(set|leave|use)"):
            load_recipe(write(training={name: value}))
    for name, value in product(("label_smoothing", "r_drop_alpha"), (0.2, 0)):
        with pytest.raises(ValueError, match=rf"model.{name} has no effect: set training.{name}"):
            load_recipe(write(model={name: value}))
    settings = {"noam_factor": None, "lr_scheduler_type": "cosine", "learning_rate": 1e-3}
    assert load_recipe(write(training=settings)).training == settings


def test_override_replaces_one_value(write):
    for name, text, value in (
        ("training.max_steps", "2000", 2000),
        ("training.adam_epsilon", "1e-9", 1e-9),  # a string to YAML, which wants 1.0e-9
        ("training.noam_factor", "null", None),
        ("training.augmentation", "{upper: 0.07}", {"upper": 0.07}),
        ("training.augmentation.typos", "0.05", 0.05),
        ("tokenizer.forms.upper", "0.05", 0.05),
        ("training.noam_factor", "2", 2),  # a whole number stands for a float
        ("training.bf16", "true", True),
        ("data.train", "[x.en, x.de]", ["x.en", "x.de"]),
        ("data.folder", "/data", "/data"),
        ("data.test.newstest", "[n.en, n.de]", ["n.en", "n.de"]),
        ("model.dropout", "0.3", 0.3),
        ("decoding.num_beams", "8", 8),
        ("description", "other words", "other words"),
    ):
        content = dataclasses.asdict(load_recipe(write(), {name: text}))
        for part in name.split("."):
            content = content[part]
        assert content == value
        assert type(content) is type(value)


def test_number_with_an_exponent_is_a_number_in_a_mapping(write):
    path = write(training={"noam_factor": None, "lr_scheduler_type": "cosine_with_min_lr", "learning_rate": 1e-3})
    recipe = load_recipe(path, {"training.lr_scheduler_kwargs": "{min_lr: 1e-05}"})
    assert recipe.training["lr_scheduler_kwargs"] == {"min_lr": 1e-5}
    assert load_recipe(path, {"description": "12e4567"}).description == "12e4567"  # as a commit may be called


def test_override_keeps_the_other_fields(write):
    path = write(training={"max_steps": 5}, data={**MINIMAL["data"], "test": {"a": "a.tsv"}})
    recipe = load_recipe(path, {"training.warmup_steps": "7", "data.test.b": "b.tsv"})
    assert recipe.training == {"max_steps": 5, "warmup_steps": 7}
    assert recipe.data.test == {"a": "a.tsv", "b": "b.tsv"}
    empty_section = write(yaml.safe_dump(MINIMAL) + "training:\n")
    assert load_recipe(empty_section, {"training.max_steps": "7"}).training == {"max_steps": 7}


def test_override_is_checked_like_the_file(write):
    for name, text, message in (
        ("training.max_step", "3", r"training.max_step is unknown; did you mean training.max_steps\?"),
        ("training.augmentation", "upper", r"training.augmentation must be dict, not 'upper'"),
        ("training.max_steps", "many", r"training.max_steps must be int, not 'many'"),
        ("description.length", "3", r"description.length is unknown: description has no fields"),
        ("data.train", "[a", r"data.train: '\[a' is not a YAML value"),
    ):
        with pytest.raises(ValueError, match=message):
            load_recipe(write(), {name: text})


def test_duplicate_keys_are_rejected_unless_merged(write):
    text = yaml.safe_dump(MINIMAL) + "training:\n  max_steps: 10\n  max_steps: 20\n"
    with pytest.raises(ValueError, match=r"Recipe mine.yaml: max_steps stands twice in one section \(near line \d+\)"):
        load_recipe(write(text))
    with pytest.raises(ValueError, match="model stands twice"):
        load_recipe(write(yaml.safe_dump(MINIMAL) + "model: {}\nmodel: {}\n"))
    merged = "training: &t\n  max_steps: 10\ndecoding:\n  <<: {num_beams: 3}\n  num_beams: 2\n"
    assert load_recipe(write(yaml.safe_dump(MINIMAL) + merged)).decoding == {"num_beams": 2}


def aliased(levels: int) -> str:
    """Ten to the power of `levels` values, in a hundred bytes for each level."""
    lists = [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else 'x'] * 10)}]" for n in range(levels)]
    return "\n".join(["data:", *lists, ""])


def test_aliases_are_rejected_and_not_written(write):
    merged = "training: &t {max_steps: 10}\ndecoding:\n  <<: *t\n"
    for text, line in ((aliased(9), 3), ("data: &d [*d]\n", 1), (merged, 3), ("data: &a {x: 1}\n*a : 1\n", 2)):
        with pytest.raises(ValueError, match=rf"Recipe mine\.yaml: the alias \*\w+ \(line {line}\) is not read: write"):
            load_recipe(write(text))
    for name in ("data.test", "training.max_steps", "decoding.num_beams"):
        with pytest.raises(ValueError, match=rf"{name}: the alias \*b \(line 1\) is not read"):
            load_recipe(write(), {name: "[&b [1], *b, *b]"})
    twice = ["a.en", "a.de"]
    recipe = dataclasses.replace(load_recipe(write()), training={"optim_args": twice, "debug": twice})
    assert "*" not in recipe.to_yaml()


def test_many_fields_are_read_in_no_time(write):
    text = yaml.safe_dump(MINIMAL) + "training:\n" + "".join(f"  field{n}: 1\n" for n in range(60_000))
    begun = time.process_time()
    with pytest.raises(ValueError, match=r"training\.field0 is unknown"):
        load_recipe(write(text))
    assert time.process_time() - begun < 20  # comparing every field with every other takes minutes


def test_huge_values_are_rejected_with_short_errors(write):
    long = "[" + "1, " * 2_000 + "]"
    for text, message in (
        (f"training: {long}\n", "training must be a mapping, not"),
        (f"training: {{max_steps: {long}}}\n", "training.max_steps must be int, not"),
        (f"decoding: {{num_beams: {long}}}\n", "decoding.num_beams must be a whole number"),
        (f"evaluation: {{examples: {long}}}\n", "evaluation.examples must be sentences"),
        (f"evaluation: {{metrics: [{long}]}}\n", "evaluation.metrics: .* is unknown"),
        (f"? {'x' * 100_000}\n: 1\n", "x+ is unknown"),
        (f"training: {{max_steps: 0x{'f' * 100_000}}}\n", "line 1: a number of 100,002 digits"),
        (f"training: {{max_steps: 1{':1' * 100_000}}}\n", "line 1: a number of 200,001 digits"),
        (f"training: {{max_steps: 0x{'f' * 4_000}}}\n", "line 1: a number of 4,002 digits"),
        (f"training: {'[' * 10_000}\n", "sections are nested too deeply"),
        (f"# {'x' * 1_000_000}\n", "a recipe has at most 1,000,000 bytes, and this file 1,000,"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            load_recipe(write(f"{text}{yaml.safe_dump(MINIMAL, allow_unicode=True)}"))
        assert len(str(caught.value)) < 1000
    with pytest.raises(ValueError, match="training must be a mapping") as caught:
        load_recipe(write(), {"training": long})
    assert len(str(caught.value)) < 1000
