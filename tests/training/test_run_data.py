"""A run's data: the stored words of the training text, changed corpora at a resume, and errors that name the field."""

import dataclasses
import re
from itertools import islice

import pytest

from vanilla_transformer.data.corpora import open_stream
from vanilla_transformer.data.known_words import KNOWN_WORDS, load_known_words
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.preparing import prepare
from vanilla_transformer.data.tokenizer import TokenizerSettings, load_tokenizer
from vanilla_transformer.files import write_json
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.recipe import DataSettings, Recipe
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.training.run_data import RunData


@pytest.fixture
def recipe(tmp_path):
    rows = list(islice(phrasebook("train"), 300))
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("".join(f"{row[language]}\n" for row in rows), encoding="utf-8")
    data = DataSettings("de", "en", ["train.de", "train.en"], "phrasebook:validation:5", folder=str(tmp_path))
    return Recipe(data, TokenizerSettings(vocab_size=300))


def vocabulary_of(recipe, path):
    folder = RunFolder(path)
    arguments = VanillaTransformerTrainingArguments(output_dir=str(path), use_cpu=True)
    RunData.open(recipe, folder, arguments).make_tokenizer(folder, show_progress=False)
    return folder.tokenizer


def with_data(recipe, **fields):
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, **fields))


def test_plain_streamed_and_prepared_text_store_same_words(recipe, tmp_path):
    stream = open_stream(recipe.data.train, "de", "en", folder=tmp_path)
    prepare(stream, recipe.tokenizer, tmp_path / "prepared", limits=recipe.data.limits, workers=1)
    ways = {"text": {}, "stream": {"stream": True}, "prepared": {"train": {"prepared": "prepared"}}}
    folders = [vocabulary_of(with_data(recipe, **fields), tmp_path / name) for name, fields in ways.items()]
    lists = [(folder / KNOWN_WORDS).read_bytes() for folder in folders]
    assert lists[0] == lists[1] == lists[2]
    known = load_known_words(folders[0])
    assert {"Der", "die", "ist", "."} < known  # words of the source, not of the target
    assert not {"The", "the", "is"} & known


def test_given_vocabulary_has_no_known_words(recipe, tmp_path):
    stream = open_stream(recipe.data.train, "de", "en", folder=tmp_path)
    prepare(stream, recipe.tokenizer, tmp_path / "one", limits=recipe.data.limits, workers=1)
    run = vocabulary_of(with_data(recipe, train={"prepared": "one"}), tmp_path / "run")
    prepare(stream, load_tokenizer(run), tmp_path / "two", limits=recipe.data.limits, workers=1)
    again = vocabulary_of(with_data(recipe, train={"prepared": "two"}), tmp_path / "again")
    assert (again / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    assert not (again / KNOWN_WORDS).exists()


def test_model_of_several_target_languages_needs_two_of_them(recipe, make_model, tmp_path):
    """Its sources need tags, which those of one target language have not."""
    several = [{"corpus": recipe.data.train, "target_language": each} for each in ("en", "de")]
    several[1] |= {"corpus": recipe.data.train[::-1], "source_language": "en"}
    first = vocabulary_of(with_data(recipe, train=several), tmp_path / "first")
    make_model().save_pretrained(first)
    onward = dataclasses.replace(recipe, initial_model=str(first))
    with pytest.raises(ValueError, match=r"translates into en, de, and data\.train has only en"):
        vocabulary_of(onward, tmp_path / "one")
    assert load_tokenizer(vocabulary_of(with_data(onward, train=several), tmp_path / "two")).vocab_size


def test_resume_with_changed_corpora_reports_the_change(recipe, tmp_path):
    first, second = {"corpus": ["train.de", "train.en"]}, {"corpus": "phrasebook:train:9", "weight": 0.5, "tag": "<bt>"}

    def data_of(train, **fields):
        arguments = VanillaTransformerTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
        return RunData.open(with_data(recipe, train=train, **fields), RunFolder(tmp_path), arguments)

    begun = data_of([first, second]).train
    write_json(tmp_path / "data.json", {"train": {"fingerprint": begun.fingerprint, "corpus": begun.identity}})
    data_of([first, second]).check_same(RunFolder(tmp_path))
    for train, message in (
        ([first, {**second, "weight": 1}], "was begun with weights of 2 to 1 in data.train, not 1 to 1: go on with"),
        ([first, {**second, "tag": None}], "was begun with data.train[1].tag = '<bt>', not None: go on with"),
        ([{**first, "vocabulary": False}, second], "was begun with data.train[0].vocabulary = True, not False: go on"),
        ([first, second, second], "was begun with 2 corpora in data.train, not 3: go on with"),
        (first["corpus"], "was begun with 2 corpora in data.train, not 1: go on with"),
        ([first, {**second, "corpus": "phrasebook:train:8"}], "The train text is not the one that"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            data_of(train).check_same(RunFolder(tmp_path))
    begun = data_of([first, second])
    records = {name: {"fingerprint": each.fingerprint, "corpus": each.identity} for name, each in begun.corpora.items()}
    write_json(tmp_path / "data.json", records)
    data_of([first, second], test={"more": "phrasebook:test:3"}).check_same(RunFolder(tmp_path))
    other = [{"corpus": "phrasebook:validation:4"}]
    with pytest.raises(ValueError, match=r"begun with other validation sets \(validation, not validation_de-en\)"):
        data_of([first, second], validation=other).check_same(RunFolder(tmp_path))


def test_corpus_error_names_its_field(recipe, tmp_path):
    (tmp_path / "empty.tsv").write_text("")
    good, missing, empty = ["train.de", "train.en"], "nowhere.tsv", "empty.tsv"
    for fields, message in (
        ({"train": missing}, "data.train: There is no corpus "),
        ({"train": empty, "stream": True, "validation": missing}, "data.validation: There is no corpus "),
        ({"train": []}, "data.train: [] is not a corpus: give "),
        ({"train": {"prepared": 5}}, "data.train: 5 is not the folder of a prepared corpus."),
        ({"train": {"hub": 5}}, "data.train: {'hub': 5} is not a corpus: give "),
        ({"train": {"hub": "a/b", "config": ["x"]}}, "data.train: {'hub': 'a/b', 'config': ['x']} is not a corpus: "),
        ({"train": {"hub": None}}, "data.train: {'hub': None} is not a corpus: give "),
        ({"train": [{"corpus": good}, {"corpus": missing}]}, "data.train[1].corpus: There is no corpus "),
        ({"train": [{"corpus": good}, {"corpus": empty}]}, "data.train[1].corpus: The corpus empty.tsv is empty."),
        ({"train": [{"corpus": ""}, {"corpus": good}]}, "data.train[0].corpus: "),
        (
            {"train": [{"corpus": good}, {"corpus": []}], "stream": True},
            "data.train[1].corpus: [] is not a corpus: give ",
        ),
        ({"train": good, "test": {"other": empty}}, "data.test.other: The corpus empty.tsv is empty."),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match="^" + re.escape(message)):
            vocabulary_of(with_data(recipe, **fields), tmp_path / "run")
