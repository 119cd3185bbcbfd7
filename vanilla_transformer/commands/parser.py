"""From functions to a command line."""

import argparse
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any


def command_parser(commands: Iterable[Callable]) -> argparse.ArgumentParser:
    """A parser whose sub-commands call functions: positional arguments are words, keyword-only ones are options.

    A function's docstring says what it does and, under `Args:`, what each argument means.
    """
    parser = argparse.ArgumentParser(
        prog="vanilla-transformer",
        description='The Transformer of "Attention Is All You Need": train it, translate with it, measure it.',
        allow_abbrev=False,
    )
    from .. import __version__

    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for function in commands:
        _add_command(subparsers, function)
    return parser


def _add_command(commands, function: Callable) -> None:
    summary, details = _split_docstring(function)
    command = commands.add_parser(
        function.__name__,
        help=summary.splitlines()[0],
        description=summary,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=function)
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "overrides"]
    takes_words = any(_kind(each.annotation)[1] for each in parameters if each.kind is not each.KEYWORD_ONLY)
    for parameter in parameters:
        _add_parameter(command, parameter, details[parameter.name], takes_words)


def _add_parameter(command: argparse.ArgumentParser, parameter: inspect.Parameter, help: str, takes_words: bool):
    kind, many = _kind(parameter.annotation)
    required = parameter.default is inspect.Parameter.empty
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        many_of = ("+" if required else "*") if many else None
        command.add_argument(parameter.name, type=kind, nargs=many_of, help=help)
        return
    flag = f"--{parameter.name.replace('_', '-')}"
    if kind is bool:
        command.add_argument(flag, action="store_true", help=help)
        return
    if parameter.default not in (None, inspect.Parameter.empty):
        help += f" Default: {parameter.default}."
    default = None if required else parameter.default
    several = {}
    if many:  # `--option A --option B`, and `--option A B` where words that follow can only be the option's
        several = {"action": "append"} if takes_words else {"action": "extend", "nargs": "+"}
    command.add_argument(flag, type=kind, required=required, default=default, help=help, **several)


def _kind(annotation: Any) -> tuple[type, bool]:
    """The type of a parameter's values and whether it takes several: `list[Path] | None` is (Path, True)."""
    if isinstance(annotation, types.UnionType):
        [annotation] = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    if typing.get_origin(annotation) is list:
        return typing.get_args(annotation)[0], True
    return annotation, False


def _split_docstring(function: Callable) -> tuple[str, dict[str, str]]:
    """What stands before `Args:` and, by name, what stands there of each argument."""
    summary, _, arguments = inspect.getdoc(function).partition("\nArgs:\n")
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {6,}.+)*)", arguments, flags=re.MULTILINE)
    return summary.strip(), {name: " ".join(text.split()) for name, text in found}


def overrides_from(parser: argparse.ArgumentParser, rest: list[str]) -> dict[str, str]:
    """`--training.max_steps 2000` or `--training.max_steps=2000`, as `{"training.max_steps": "2000"}`."""
    found, waiting = {}, list(rest)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if not re.fullmatch(r"--\w+(\.\w+)*", name) or (not equals and not waiting):
            parser.error(f"expected --section.field VALUE, not {name!r}")
        found[name[2:]] = value if equals else waiting.pop(0)
    return found
