"""Functions as commands: their list, a parser made from their signatures, and how their errors are reported."""

import argparse
import difflib
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import __version__
from .commands.adapt import adapt
from .commands.backtranslate import backtranslate
from .commands.calibrate import calibrate
from .commands.clean import clean
from .commands.compare import compare
from .commands.env import env
from .commands.evalb import evalb
from .commands.evaluate import evaluate
from .commands.finetune import finetune
from .commands.improve import improve
from .commands.models import average, convert, export, tokenizer
from .commands.parse import parse
from .commands.plot import plot
from .commands.prepare import prepare
from .commands.process import UsageError, configure_logging, discards_closed_output
from .commands.publish import publish
from .commands.serve import demo, serve
from .commands.train import recipes, train
from .commands.translate import score, translate


COMMANDS = (
    recipes, clean, prepare, train, finetune, adapt, improve, translate, backtranslate, score, evaluate, compare,
    calibrate, parse, evalb, tokenizer, average, convert, export, publish, plot, demo, serve, env,
)  # fmt: skip
# Parameters that take the words that are not options of the command itself.
_THE_REST = ("overrides", "more_options")


def run_command(arguments: list[str] | None = None) -> int:
    """Runs one command: see `cli.main`."""
    if sys.stdout is None:  # closed by whoever started this, who does not want to see anything
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    parser = command_parser(COMMANDS)
    options, rest = parser.parse_known_args(arguments)
    values = vars(options)
    command, parser, debug = (values.pop(name) for name in ("command", "parser", "debug"))
    parameters = inspect.signature(command).parameters
    if "overrides" in parameters:
        values["overrides"] = overrides_from(parser, rest)
    elif "more_options" in parameters:
        values["more_options"] = rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}{near_option(parser, rest[0])}")
    try:
        configure_logging()
        command(**values)
        sys.stdout.flush()
    except UsageError as error:
        parser.error(str(error))
    except Exception as error:
        if isinstance(error, BrokenPipeError) and discards_closed_output():
            return 141
        if debug:
            raise
        # These say what the user can do; for any other error its type is the best hint.
        speaks = isinstance(error, (ValueError, OSError, ImportError, FloatingPointError))
        kind = "" if speaks else f"{type(error).__name__}: "
        print(f"vanilla-transformer: {kind}{' '.join(str(error).split())}", file=sys.stderr)
        return getattr(error, "exit_status", 1)
    return 0


class _Parser(argparse.ArgumentParser):
    """Takes `--num_beams` for `--num-beams`: both spellings are common; help shows the second.

    Attributes:
        takes_overrides: Whether unknown options are fields of a recipe, each with a value.
        words: Those that are being parsed.
    """

    takes_overrides = False
    words: Sequence[str] = ()

    def parse_known_args(self, args=None, namespace=None):
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        own, overrides = [*map(self._as_shown, words[:end])], []
        if self.takes_overrides:
            own, overrides = self._apart(own)
        self.words = own
        found, rest = super().parse_known_args([*own, *words[end:]], namespace)
        return found, [*rest, *overrides]

    def error(self, message: str):
        if message.startswith("the following arguments are required"):  # one may be there, but mistyped
            unknown = (word for word in self.words if word.startswith("--"))
            unknown = (word for word in unknown if word.partition("=")[0] not in self._option_string_actions)
            message += next((near for word in unknown if (near := near_option(self, word))), "")
        super().error(message)

    def _apart(self, words: list[str]) -> tuple[list[str], list[str]]:
        """The words for argparse, and the overrides, whose values it would take for positional arguments."""
        own, overrides, waiting = [], [], list(words)
        while waiting:
            name, equals, _ = (word := waiting.pop(0)).partition("=")
            # `overrides_from` has the better message. A section, `--model {...}`, is not a mistyped option.
            mistyped = "." not in name and near_option(self, name, cutoff=0.8)
            if not name.startswith("--") or name in self._option_string_actions or mistyped:
                own.append(word)
                continue
            overrides.append(word)
            if not equals and waiting and not waiting[0].startswith("--"):
                overrides.append(waiting.pop(0))
        return own, overrides

    def _as_shown(self, word: str) -> str:
        """The word, or the option that it means. (argparse has no public list of a parser's options.)"""
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        return dashed + equals + value if name.startswith("--") and dashed in self._option_string_actions else word


def command_parser(commands: Iterable[Callable]) -> argparse.ArgumentParser:
    """A parser whose sub-commands call functions: positional arguments are words, keyword-only ones are options."""
    parser = _Parser(
        prog="vanilla-transformer",
        description='The Transformer of "Attention Is All You Need": train it, translate with it, measure it.',
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for function in commands:
        _add_command(subparsers, function)
    return parser


def _add_command(commands, function: Callable) -> None:
    # The text before `Args:`, and the texts of the arguments there.
    summary, _, arguments = inspect.getdoc(function).partition("\nArgs:\n")
    summary = summary.strip()
    details = dict(re.findall(r"^ {4}(\w+): (.+(?:\n {6,}.+)*)", arguments, flags=re.MULTILINE))
    command = commands.add_parser(
        function.__name__,
        help=summary.splitlines()[0],
        description=summary,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=function, parser=command)
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parameters = inspect.signature(function).parameters
    command.takes_overrides = "overrides" in parameters
    parameters = [each for each in parameters.values() if each.name not in _THE_REST]
    words = [each for each in parameters if each.kind is not each.KEYWORD_ONLY and _kind(each.annotation)[1]]
    takes_words = any(each.default is not each.empty for each in words)  # required ones come before the options
    for parameter in parameters:
        _add_parameter(command, parameter, " ".join(details[parameter.name].split()), takes_words)


def _add_parameter(command: argparse.ArgumentParser, parameter: inspect.Parameter, help: str, takes_words: bool):
    help = help.replace("%", "%%")  # argparse gives % a meaning of its own
    kind, many = _kind(parameter.annotation)
    required = parameter.default is inspect.Parameter.empty
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        many_of = many if required else ("*" if many else "?")
        command.add_argument(parameter.name, type=kind, nargs=many_of, help=help)
        return
    flag = f"--{parameter.name.replace('_', '-')}"
    if kind is bool:
        command.add_argument(flag, action="store_true", help=help)
        return
    if parameter.default not in (None, "", inspect.Parameter.empty):
        help += f" Default: {parameter.default}."
    default = None if required else parameter.default
    several = {}
    if many:  # `--option A --option B`, and `--option A B` where the words after it can only be the option's
        several = {"action": "append"} if takes_words else {"action": "extend", "nargs": many}
    command.add_argument(flag, type=kind, required=required, default=default, help=help, **several)


def _kind(annotation: Any) -> tuple[type, str | None]:
    """The type of a parameter's values and argparse's sign for how many: (Path, "+") for `list[Path] | None`.

    An option that also makes sense without a value is annotated as a tuple: (str, "*") for `tuple[str, ...] | None`.
    """
    if isinstance(annotation, types.UnionType):
        [annotation] = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    if typing.get_origin(annotation) is list:
        return typing.get_args(annotation)[0], "+"
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], "*"
    return annotation, None


def overrides_from(parser: argparse.ArgumentParser, rest: list[str]) -> dict[str, str]:
    """`--training.max_steps 2000` or `--training.max_steps=2000`, as `{"training.max_steps": "2000"}`."""
    found, waiting = {}, list(rest)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if not re.fullmatch(r"--\w[\w-]*(\.[\w-]+)*", name) or (not equals and not waiting):
            parser.error(f"expected --section.field VALUE, not {name!r}{near_option(parser, name)}")
        if "." not in name and (near := near_option(parser, name, cutoff=0.8)):
            parser.error(f"unrecognized arguments: {name}{near}")
        name = name.removeprefix("--")
        if not name.startswith(("data.test.", "training.floors.")):  # users name test sets as they like
            name = name.replace("-", "_")
        found[name] = value if equals else waiting.pop(0)
    return found


def near_option(parser: argparse.ArgumentParser, name: str, cutoff: float = 0.6) -> str:
    """`; did you mean --model?` if an option is spelled almost like that."""
    dashed = name.partition("=")[0].replace("_", "-")
    near = difflib.get_close_matches(dashed, parser._option_string_actions, n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""
