"""`import vanilla_transformer` is nearly free: what is heavy is loaded when it is used."""

import subprocess
import sys

import pytest

import vanilla_transformer


LOADED = """
import sys, torch, transformers
before = set(sys.modules)
import vanilla_transformer
print(" ".join(sorted(name for name in set(sys.modules) - before)))
"""


def test_import_loads_no_other_package():
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    strangers = [name for name in loaded if not name.startswith(("vanilla_transformer", "importlib"))]
    assert strangers == []


@pytest.mark.parametrize("name", [name for name in vanilla_transformer.__all__ if name != "__version__"])
def test_every_public_name_is_there_and_documented(name):
    assert getattr(vanilla_transformer, name).__doc__


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vanilla_transformer.nonsense  # noqa: B018  (looking it up is the point)


def test_dir_lists_public_names():
    assert set(vanilla_transformer.__all__) <= set(dir(vanilla_transformer))
