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


def run_command(
    arguments: list[str], *, input: str = "", cwd: Path | None = None, timeout: float = 300
) -> subprocess.CompletedProcess:
    """What `subprocess.run` returns for the command, with its output as text."""
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        files[0].write_text(input, encoding="utf-8")
        place = str(cwd or Path.cwd())
        process = _FORKS.Process(target=_become_command, args=(arguments, place, dict(os.environ), files))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout)
        # As they are: no line end is turned into another.
        out, errors = (file.read_bytes().decode() if file.exists() else "" for file in files[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, out, errors)


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
