"""What the README tells people to type and to run works as it stands there."""

import re
import shlex
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from vanilla_transformer.command_line import COMMANDS
from vanilla_transformer.data.known_words import UnknownWords, WordList, load_known_words
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.parsing.trees import read_tree
from vanilla_transformer.sharing.model_card import bare_card, model_card
from vanilla_transformer.sharing.publishing import publish

from ..scripts.conftest import load_script, write_files_like_multi30ks
from ..warm_python import PACKAGE
from .conftest import finished, write_marian


ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Runs of seconds instead of minutes; what is typed stays what the README says.
SHORTER = {
    "training.max_steps": "4",
    "training.eval_steps": "2",
    "training.save_steps": "2",
    "decoding.max_length_offset": "5",  # who has learned nothing translates to the end of it
}
SHORTER_STILL = {
    "phrasebook": {
        "data.validation": "phrasebook:validation:10",
        "data.test.phrasebook": "phrasebook:test:10",
        "decoding.num_beams": "1",
        "model.encoder_layers": "1",
    },
    "multi30k_en_de": {"tokenizer.vocab_size": "500", "model.d_model": "64"},
    "parsing_sample": {"tokenizer.vocab_size": "275", "model.d_model": "32", "decoding.num_beams": "2"},
}
# What a command of the README is told besides.
MORE = {
    "prepare": ["--tokenizer.vocab_size", "500"],
    "tokenizer": ["--vocab-size", "500"],
    "finetune": ["--max_steps", "2", "--use_cpu"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def typed_commands() -> list[list[str]]:
    """The words of each command that the README has typed."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("vanilla-transformer ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the README's commands have been typed one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    write_files_like_multi30ks(folder / "multi30k", {"train": 500, "val": 10, "test_2016_flickr": 10})
    write_marian(folder / "Helsinki-NLP" / "opus-mt-en-de")
    trees = [read_tree("((S (NP-SBJ (PRP I)) (VP (VBP am) (NP-PRD (DT a) (NN dog))) (. .)))")] * 20
    sets = {"train": trees, "validation": trees[:2], "test": trees[:2]}
    load_script("examples/prepare_treebank").write_treebank(sets, folder / "treebank", with_words=True)
    for arguments in typed_commands():
        if arguments[0] == "train":
            shorter = SHORTER | SHORTER_STILL[arguments[1]]
            arguments += [word for name, value in shorter.items() for word in (f"--{name}", value)]
        arguments += MORE.get(arguments[0], [])
        arguments = [word.replace("runs/phrasebook", "runs/short") for word in arguments]
        finished(*arguments, cwd=folder)
    return folder


OTHERS = ("multi30k", " parse ", "parsing_", "opus-mt", "echo ")  # lines on models that have read other text


def sentences_in(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not any(name in line for name in OTHERS))
    return [sentence for line in lines for sentence in re.findall(r'"([A-Z][^"]*[.?!])"', line)]


def test_examples_have_words_that_the_phrasebook_has(tmp_path):
    """A model that has not read a word translates it into nonsense, on the first day that somebody tries us."""
    rows = list(islice(phrasebook("train"), 5000))  # what the shortest run in the README reads
    tokenizer, words = learn_tokenizer(["a"], TokenizerSettings(vocab_size=260)), WordList()
    for row in rows:
        words.read(row["en"])
        words.read(row["de"])  # translations are given too
    words.save(tmp_path, tokenizer)
    unknown = UnknownWords(tokenizer, load_known_words(tmp_path))
    found = {"README.md": sentences_in("\n".join(blocks("(?:bash|sh|python)")))}
    found["quickstart.sh"] = sentences_in((ROOT / "scripts" / "quickstart.sh").read_text(encoding="utf-8"))
    for path in sorted((ROOT / "vanilla_transformer").rglob("*.py")):
        examples = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip().startswith(">>>")]
        found[path.name] = sentences_in("\n".join(examples))
    assert len(found["README.md"]) > 12
    assert len(found["quickstart.sh"]) == 5
    assert [(name, each, unknown(each)) for name, several in found.items() for each in several if unknown(each)] == []


def test_the_commands_work(folder):
    # Those that go on until they are stopped: test_demo.py, test_serving.py.
    names = {function.__name__ for function in COMMANDS} - {"demo", "serve"}
    assert {arguments[0] for arguments in typed_commands()} == names
    for made in ("dog.png", "tuned/model.safetensors", "tuned_by_adapter/model.safetensors"):
        assert (folder / made).is_file()
    assert "eval_sacrebleu_signature" in (folder / "tuned" / "eval_results.json").read_text(encoding="utf-8")


def test_the_table_names_every_command():
    [table] = re.findall(r"^\| command \|.*\n((?:\|.*\n)+)", README, flags=re.MULTILINE)
    named = re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE)
    assert named == [function.__name__ for function in COMMANDS]


def test_the_tree_of_a_run_is_as_drawn(folder):
    run = folder / "runs" / "short"
    drawn = set(re.findall(r"^[├└]── ([\w.]+)", README, flags=re.MULTILINE))
    [of_the_model] = re.findall(r"^├── ([^…\n]+), …    the model of the run$", README, flags=re.MULTILINE)
    drawn |= set(of_the_model.split(", ")) | {path.name for path in (run / "averaged").iterdir()}
    assert drawn == {path.name for path in run.iterdir()}


def test_the_python_code_works(folder):
    code = "\n".join(blocks("python")).replace("runs/phrasebook", "runs/short")
    done = PACKAGE.run(code, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "torch.Size([1, 2, 37000])"


def test_files_named_in_it_exist():
    named = re.findall(r"\]\(((?!http)[^)]+)\)", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_cards_of_the_parser_are_ones_of_a_parser(folder):
    run = folder / "runs" / "parsing_sample"
    card = model_card(run, title="A parser", repository="user/parser")
    before, _, _ = card.partition("## Recipe")
    assert 'vanilla-transformer parse --model user/parser "' in before
    assert "| last_20_files | evalb |" in before
    assert "well-formed=" in before
    assert not re.search(r"[Tt]ranslat(es|or)|[|`] ?sacrebleu|I am a dog", before)
    assert ModelCard(card, ignore_metadata_errors=False).data.language == "en"

    card = bare_card(run / "best", title="A parser", repository="user/parser")
    assert 'vanilla-transformer parse --model user/parser "' in card
    assert ModelCard(card, ignore_metadata_errors=False).data.pipeline_tag is None
    assert not re.search("[Tt]ranslat", card.partition("## Recipe")[0])


def test_no_treebank_is_published(folder):
    files = publish(folder / "runs" / "parsing_sample", "user/parser", dry_run=True).files
    assert "scores.json" in files
    assert not any(name.startswith("translations") for name in files)


@pytest.mark.slow
def test_quickstart_in_a_fresh_clone(tmp_path):
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    words = ["scripts/quickstart.sh", "My sister is looking for her red book."]
    options = {"cwd": tmp_path / "clone", "capture_output": True, "text": True, "timeout": 1800}
    done = subprocess.run(words, check=False, **options)
    assert done.returncode == 0, done.stderr
    [exact] = re.findall(r"averaged +phrasebook +exact_match +([\d.]+)", done.stdout)
    assert float(exact) >= 95
    assert len(re.findall(r"^    \w.*\.$", done.stdout, flags=re.MULTILINE)) >= 4
