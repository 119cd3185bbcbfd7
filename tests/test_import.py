"""`import vanilla_transformer` is nearly free, and no command loads what it does not use."""

import subprocess
import sys

import pytest

import vanilla_transformer
from vanilla_transformer import TokenizerSettings, learn_tokenizer

from .model.conftest import build_model
from .warm_python import LIBRARIES


# What the package can use, and transformers' own model classes do not.
HEAVY = {
    "ctranslate2", "datasets", "evaluate", "fsspec", "matplotlib", "multiprocess", "numexpr", "onnx", "onnxruntime",
    "pandas", "peft", "pyarrow", "sacrebleu", "sacremoses", "sentencex", "sklearn", "tensorboard", "torchvision",
}  # fmt: skip

LOADED = """
import sys, torch, transformers
before = set(sys.modules)
import vanilla_transformer
print(" ".join(sorted(name for name in set(sys.modules) - before)))
"""

TRANSLATING = """
import sys
from vanilla_transformer.cli import main
status = main(sys.argv[1:])
print(" ".join(sys.modules))
sys.exit(status)
"""


def test_import_loads_no_other_package():
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    strangers = [name for name in loaded if not name.startswith(("vanilla_transformer", "importlib"))]
    assert strangers == []


@pytest.mark.parametrize("name", vanilla_transformer._HOME_OF)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(vanilla_transformer, name).__doc__


def test_everything_is_imported_where_no_extra_is_installed():
    extras = (
        "ctranslate2",
        "onnx",
        "onnxruntime",
        "gradio",
        "peft",
        "sentencex",
        "sentencepiece",
        "evaluate",
        "fastapi",
    )
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({extras}))\nfrom vanilla_transformer import *\nassert translate"
    )
    LIBRARIES.run(code).check_returncode()


def test_dir_lists_every_public_name():
    assert {*vanilla_transformer.__all__, "OnnxTranslator", "to_ctranslate2"} <= set(dir(vanilla_transformer))


def test_translating_loads_only_what_translates(tmp_path):
    """transformers itself imports accelerate, scipy and others for its model classes."""
    texts = ["A man sees the dog."]
    for part in (build_model(vocab_size=280), learn_tokenizer(texts, TokenizerSettings(vocab_size=265))):
        part.save_pretrained(tmp_path)
    command = [sys.executable, "-c", TRANSLATING, "translate", *texts, "--model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *translation, loaded = done.stdout.splitlines()
    assert translation
    loaded = loaded.split()
    assert "transformers.modeling_utils" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    own = [name.removeprefix("vanilla_transformer.") for name in loaded if name.startswith("vanilla_transformer.")]
    unused = ("training", "tasks", "sharing", "export", "plots", "evaluation.scores", "data.phrasebook", "data.streams")
    assert [name for name in own if name.startswith(unused)] == []
