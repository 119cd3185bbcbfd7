"""Lazy imports happen on first use, and then behave like ordinary ones."""

import importlib
import sys
import typing

import pytest

from vanilla_transformer.commands.lazy_imports import lazy_imports


HEAVY = """
class Kind:
    def __init__(self, value=0):
        self.value = value

class Other:
    pass

def nothing():
    return []

def marked(function):
    function.mark = True
    return function
"""
USER = """
from typing import Optional

import heavy_package
from heavy_package import inner
from heavy_package.inner import Kind, Other, marked, nothing

NOTHING = nothing()
STORED = {"kind": Kind, "made": Kind(3)}

def is_one(thing, expected: Other | None = None, several: list[Other] = ()) -> Optional[Kind]:
    return isinstance(thing, Kind)

class User:
    @marked
    def seven(self):
        return 7
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "heavy_package").mkdir()
    (tmp_path / "heavy_package" / "__init__.py").write_text("")
    (tmp_path / "heavy_package" / "inner.py").write_text(HEAVY)
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "heir.py").write_text("from heavy_package.inner import Kind\n\nclass Heir(Kind):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with lazy_imports("heavy_package", calls_wait=True):
        yield importlib.import_module("user")
    for name in ("user", "heir", "heavy_package", "heavy_package.inner"):
        sys.modules.pop(name, None)


def is_loaded() -> bool:
    return hasattr(sys.modules.get("heavy_package.inner"), "__file__")


def test_storing_and_isinstance_do_not_import(user):
    assert user.is_one(3) is False
    assert user.STORED["kind"] != 3
    assert not is_loaded()


def test_first_use_imports_the_module(user):
    made = user.STORED["made"]
    assert not is_loaded()
    assert made.value == 3
    assert is_loaded()
    assert user.is_one(sys.modules["heavy_package.inner"].Kind())
    assert not user.is_one(7)
    assert user.STORED["kind"] == sys.modules["heavy_package.inner"].Kind
    assert user.User().seven() == 7
    assert user.User.seven.mark
    assert list(user.NOTHING) == []
    assert not user.NOTHING
    assert typing.get_type_hints(user.is_one)["expected"] == sys.modules["heavy_package.inner"].Other | None


def test_class_can_inherit_from_a_lazy_class(user):
    heir = importlib.import_module("heir").Heir(4)
    assert is_loaded()
    assert heir.value == 4
    assert user.is_one(heir)


def test_lazy_submodule_of_eager_package_is_found(tmp_path, monkeypatch):
    (tmp_path / "half_heavy").mkdir()
    (tmp_path / "half_heavy" / "__init__.py").write_text("")
    (tmp_path / "half_heavy" / "inner.py").write_text("here = 1")
    (tmp_path / "using.py").write_text("import half_heavy.inner\n\ndef get():\n    return half_heavy.inner.here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with lazy_imports("half_heavy.inner"):
        get = importlib.import_module("using").get
    assert "half_heavy.inner" not in sys.modules
    assert get() is sys.modules["half_heavy.inner"].here
    assert not hasattr(sys.modules["half_heavy"].inner, "there")
    for name in ("using", "half_heavy", "half_heavy.inner"):
        del sys.modules[name]


def test_imports_are_ordinary_afterwards(tmp_path, monkeypatch):
    (tmp_path / "heavy_module.py").write_text("here = 1")
    monkeypatch.syspath_prepend(tmp_path)
    with lazy_imports("heavy_module"):
        from heavy_module import here
    assert "heavy_module" not in sys.modules
    import heavy_module

    assert heavy_module.here == 1
    assert here.real == 1
    del sys.modules["heavy_module"]
    assert not any(type(module).__module__ == lazy_imports.__module__ for module in sys.modules.values())
