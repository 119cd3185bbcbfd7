"""`vanilla-transformer` in processes of their own that need not import torch and transformers each: they are forked.

The process that they are forked from has imported everything and done nothing else.
"""

import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory


_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "vanilla_transformer.cli",
        "vanilla_transformer.training.run",
        "vanilla_transformer.commands.translation",
        "transformers.models.marian.modeling_marian",
        "transformers.models.marian.tokenization_marian",
        "transformers.utils.logging",
    ]
)


class Command:
    """A command that runs; used in a `with`, after which it does not.

    Attributes:
        process: The process it is.
    """

    def __init__(self, arguments: list[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None):
        self.arguments, self.place, self.environment = arguments, str(cwd or Path.cwd()), environment or {}

    def __enter__(self) -> "Command":
        self._folder = TemporaryDirectory()
        self.files = [Path(self._folder.name, name) for name in ("stdin", "stdout", "stderr")]
        return self

    def __exit__(self, *error) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._folder.cleanup()

    def start(self, input: str = "") -> "Command":
        self.files[0].write_text(input, encoding="utf-8")
        environment = {**os.environ, **self.environment}
        arguments = (self.arguments, self.place, environment, self.files)
        self.process = _FORKS.Process(target=_become_command, args=arguments)
        self.process.start()
        return self

    def done(self, timeout: float = 300) -> subprocess.CompletedProcess:
        """Waits for its end: what `subprocess.run` returns, with its output as text.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """
        self.process.join(timeout)
        if self.process.is_alive():
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        # As they are: no line end is turned into another.
        out, errors = (file.read_bytes().decode() if file.exists() else "" for file in self.files[1:])
        return subprocess.CompletedProcess(self.arguments, self.process.exitcode, out, errors)


def run_command(
    arguments: list[str], *, input: str = "", cwd: Path | None = None, timeout: float = 300
) -> subprocess.CompletedProcess:
    """What `subprocess.run` returns for the command, with its output as text."""
    with Command(arguments, cwd=cwd) as running:
        return running.start(input).done(timeout)


def _become_command(arguments: list[str], cwd: str, environment: dict[str, str], files: list[Path]) -> None:
    os.chdir(cwd)
    os.environ.update(environment)
    for number, file in enumerate(files):
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8")  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )
    from vanilla_transformer.cli import main

    try:
        status = main(arguments)
    except SystemExit as error:
        status = error.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))
