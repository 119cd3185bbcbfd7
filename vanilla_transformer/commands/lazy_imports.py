"""Puts off the imports of packages until they are first used: modules import many that a process never uses.

For its model classes transformers imports code that compiles, distributes and quantises models and detects objects in
images: as much again as translating needs. Python 3.15 has lazy imports of its own (PEP 810).
"""

import gc
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType


# What translating does not use. Checked on torch 2.13 and transformers 5.23; with other versions more may be imported.
_OF_NO_USE = (
    "scipy",
    "torch._dynamo",
    "torch.distributed._composable",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "transformers.models",
)

# What annotations like list[...] of a class ask it for.
_ASKED_BY_TYPING = (
    "__parameters__",
    "__typing_subst__",
    "__typing_is_unpacked_typevartuple__",
    "__typing_unpacked_tuple_args__",
)


def import_models() -> None:
    """Imports what loading models and translating need, in half the time."""
    if f"{__package__.partition('.')[0]}.run.loading" in sys.modules:
        return  # other objects may become garbage one day, and must not be frozen
    collects = gc.isenabled()
    gc.disable()  # nothing of a module can be freed, and looking for it takes a third of the time
    try:
        with lazy_imports(*_OF_NO_USE, calls_wait=True):
            import_module("..translation", __package__)
            import_module("..run.loading", __package__)
        gc.freeze()
    finally:
        if collects:
            gc.enable()


def while_loading() -> AbstractContextManager:
    """A context to load models in: then, too, transformers asks for packages that are not used."""
    return lazy_imports(*_OF_NO_USE)


@contextmanager
def lazy_imports(*packages: str, calls_wait: bool = False) -> Iterator[None]:
    """A context in which these packages, unless they are loaded already, are only imported when they are used.

    Importing something, storing it, annotating with it and asking for its instances are not uses. After the block the
    packages are imported as usual.

    Args:
        packages: Names of modules. They stand for all modules below them too.
        calls_wait: Within the block calls are not uses either: they are made when their results are used. Modules call
            decorators, and constructors of what they store, while they are imported.
    """
    finder = _Finder({name for name in packages if name not in sys.modules}, calls_wait)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.calls_wait = False
        sys.meta_path.remove(finder)
        for package in list(finder.packages):
            finder.give_up(package)


class _Finder:
    """Finds an empty module for each of some packages."""

    def __init__(self, packages: set[str], calls_wait: bool):
        self.packages, self.calls_wait = packages, calls_wait

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if self.package_of(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""

    def imported(self, name: str) -> ModuleType:
        """The module itself."""
        if package := self.package_of(name):
            self.give_up(package)
        return import_module(name)

    def give_up(self, package: str) -> None:
        """From now on its modules are real. An empty one that something still holds looks names up in the real one."""
        self.packages.discard(package)
        for name in [name for name, module in sys.modules.items() if type(module) is _LazyModule]:
            if f"{name}.".startswith(f"{package}."):
                del sys.modules[name]

    def package_of(self, name: str) -> str | None:
        """The package that a module belongs to, if it is still lazy."""
        return next((package for package in self.packages if f"{name}.".startswith(f"{package}.")), None)


class _LazyModule(ModuleType):
    """A module that has any name that it is asked for, until its package is given up."""

    def __init__(self, name: str, finder: _Finder):
        super().__init__(name)
        self.__path__, self._finder = [], finder

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module, finder = self.__name__, self._finder
        if finder.package_of(module) is None:
            return getattr(import_module(module), name)
        return _Lazy(finder, lambda: getattr(finder.imported(module), name), module)


class _Lazy:
    """Stands for what `make` returns; `make` is called when that is needed.

    Args:
        finder: What may end the laziness.
        make: Called once.
        module: The module that it is in, if any.
    """

    _finder: _Finder
    _make: Callable[[], typing.Any]
    _module: str | None
    _made: typing.Any  # once it is needed

    def __init__(self, finder: _Finder, make: Callable[[], typing.Any], module: str | None = None):
        vars(self).update(_finder=finder, _make=make, _module=module)

    def _it(self) -> typing.Any:
        if "_made" not in vars(self):
            vars(self)["_made"] = self._make()
        return self._made

    def __getattr__(self, name: str) -> typing.Any:
        if name in _ASKED_BY_TYPING:
            raise AttributeError(name)
        return getattr(self._it(), name)

    def __setattr__(self, name: str, value: typing.Any) -> None:
        setattr(self._it(), name, value)

    def __call__(self, *args, **kwargs) -> typing.Any:
        if self._finder.calls_wait:
            return _Lazy(self._finder, lambda: self._it()(*args, **kwargs))
        return self._it()(*args, **kwargs)

    def __get__(self, instance, owner=None) -> typing.Any:
        """Binds as a function does: this may stand for one, decorated by something lazy."""
        if instance is None:
            return self
        bind = getattr(type(self._it()), "__get__", None)
        return self._it() if bind is None else bind(self._it(), instance, owner)

    def __instancecheck__(self, instance) -> bool:
        """A class has no instances until its module is imported."""
        return self._is_imported() and isinstance(instance, self._it())

    def __subclasscheck__(self, kind) -> bool:
        return self._is_imported() and issubclass(kind, self._it())

    def _is_imported(self) -> bool:
        return self._module is None or type(sys.modules.get(self._module, self)) not in (_LazyModule, _Lazy)

    def __mro_entries__(self, bases: tuple) -> tuple:
        return (self._it(),)

    def __bool__(self) -> bool:
        """While calls wait, their results count as true, as most objects do."""
        return (self._finder.calls_wait and "_made" not in vars(self)) or bool(self._it())

    def __eq__(self, other) -> bool:
        """No other object is equal to this one until its module is imported."""
        return self is other or (self._is_imported() and bool(self._it() == other))

    __hash__ = object.__hash__  # `typing` asks for it while modules are imported

    def __iter__(self) -> Iterator:
        return iter(self._it())

    def __len__(self) -> int:
        return len(self._it())

    def __contains__(self, item) -> bool:
        return item in self._it()

    def __getitem__(self, key) -> typing.Any:
        return self._it()[key]

    def __or__(self, other) -> "_Lazy":
        return _Lazy(self._finder, lambda: self._it() | other)

    def __ror__(self, other) -> "_Lazy":
        return _Lazy(self._finder, lambda: other | self._it())
