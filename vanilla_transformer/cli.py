"""`vanilla-transformer COMMAND`."""

import inspect
import sys

from .commands.bracketing import evalb
from .commands.comparison import compare
from .commands.demo import demo
from .commands.evaluation import evaluate
from .commands.models import average, convert, export, tokenizer
from .commands.parser import command_parser, overrides_from
from .commands.parsing import parse
from .commands.pictures import plot
from .commands.preparation import prepare
from .commands.process import UsageError, configure_logging, discard_output, output_is_closed
from .commands.sharing import publish
from .commands.training import recipes, train
from .commands.translation import score, translate


COMMANDS = (
    recipes,
    prepare,
    train,
    translate,
    score,
    evaluate,
    compare,
    parse,
    evalb,
    tokenizer,
    average,
    convert,
    export,
    publish,
    plot,
    demo,
)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0 if it succeeded, 1 if it failed, 141 if nobody reads its output to the end (`| head`), as of a process that
        SIGPIPE ends. (A command line that makes no sense ends the process with 2.)
    """
    parser = command_parser(COMMANDS)
    options, rest = parser.parse_known_args(arguments)
    values = vars(options)
    command, debug = values.pop("command"), values.pop("debug")
    if "overrides" in inspect.signature(command).parameters:
        values["overrides"] = overrides_from(parser, rest)
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        configure_logging()
        command(**values)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 1
    except UsageError as error:
        parser.error(str(error))
    except Exception as error:
        if isinstance(error, BrokenPipeError) and output_is_closed():
            discard_output()
            return 141
        if debug:
            raise
        # What users can mend has a message of its own; of anything else its kind is the best hint.
        kind = (
            ""
            if isinstance(error, (ValueError, OSError, ImportError, FloatingPointError))
            else f"{type(error).__name__}: "
        )
        print(f"vanilla-transformer: {kind}{' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
