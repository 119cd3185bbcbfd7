"""Processes that need not import torch and transformers: forks of one that has done so."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from threading import Thread
from typing import TextIO


CLI = "import sys; from vanilla_transformer.cli import main; sys.exit(main())"

# The program that is forked. A second process waits for each fork and reports its status. The code runs at the top
# level, where nothing catches its exceptions: they end the fork as they end `python -c`.
_PROGRAM = """
import gc, importlib, json, os, resource, signal, socket, struct, sys, tempfile

def forked(connection):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, *_ = socket.recv_fds(connection, 1, 5)
        if not message:
            sys.exit()
        if not os.fork():
            break
        for file in files:
            os.close(file)
    connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, request, status = files
    if pid := os.fork():
        for file in (0, 1, 2, *streams):
            os.close(file)
        os.write(status, struct.pack("i", pid))
        os.write(status, struct.pack("i", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        os._exit(0)
    os.close(status)
    with open(request, encoding="utf-8") as file:
        request = json.load(file)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # TMPDIR may be another
    os.chdir(request["cwd"])
    if request["new_session"]:
        os.setsid()
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", 1 if os.environ.get("PYTHONUNBUFFERED") else -1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    for name, most in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (most, most))
    sys.argv = ["-c", *request["arguments"]]
    return request["code"]

for name in sys.argv[3:]:
    importlib.import_module(name)
exec(sys.argv[2])
gc.freeze()  # or every fork would look through all that at its end, which takes a second
exec(compile(forked(socket.socket(fileno=int(sys.argv[1]))), "<string>", "exec"), {"__name__": "__main__"})
"""


class WarmProcess:
    """Like `subprocess.Popen`, with text in UTF-8 and line ends left as they are.

    Attributes:
        stdin, stdout, stderr: This side of each stream that is a pipe, None for the others.
    """

    def __init__(self, arguments: list[str], status: socket.socket, streams: tuple[TextIO | None, ...]):
        self.args, self.returncode, self._status = arguments, None, status
        self.stdin, self.stdout, self.stderr = streams
        self.pid = self._number()

    def __enter__(self) -> "WarmProcess":
        return self

    def __exit__(self, kind, *error) -> None:
        if kind is not None:  # its result no longer matters
            self.kill()
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            stream.close()
        self.wait()
        self._status.close()

    def _number(self) -> int:
        return struct.unpack("i", self._status.recv(4, socket.MSG_WAITALL))[0]

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def until(self, condition: Callable[[], object], timeout: float = 200) -> None:
        """Waits for a condition while the process runs."""
        end = time.monotonic() + timeout
        while not condition():
            assert self.poll() is None, self.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it may have ended, with its status still on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str = "", timeout: float = 300) -> tuple[str | None, str | None]:
        """Waits for the process to end; returns its output and errors.

        Raises:
            subprocess.TimeoutExpired: It is still running.
        """
        found = {}

        def write() -> None:
            with suppress(BrokenPipeError), self.stdin:  # a process may leave its input unread
                self.stdin.write(input)

        def read(name: str) -> None:
            with getattr(self, name) as stream:
                found[name] = stream.read()

        threads = [
            Thread(target=read, args=[name], daemon=True) for name in ("stdout", "stderr") if getattr(self, name)
        ]
        if self.stdin is not None:
            threads.append(Thread(target=write, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        return found.get("stdout"), found.get("stderr")

    def completed(self, input: str = "", timeout: float = 300) -> CompletedProcess:
        """Returns what `subprocess.run` would; the process has ended then, whatever happens."""
        try:
            out, errors = self.communicate(input, timeout)
        finally:
            self.kill()
        return CompletedProcess(self.args, self.returncode, out, errors)


class WarmPython:
    """A Python that has imported modules, and starts processes that have them too.

    Args:
        modules: Their names.
        code: What it runs once they are imported.
        environment: Variables that it has besides this process's own, when it imports them too.
    """

    def __init__(self, *modules: str, code: str = "", environment: dict[str, str] | None = None):
        self._modules, self._code, self._connection = modules, code, None
        self._environment = environment or {}

    def _launch(self) -> None:
        self._connection, theirs = socket.socketpair()  # it exits when this end is closed
        with theirs:
            words = [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), self._code, *self._modules]
            environment = {**os.environ, **self._environment}
            subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)

    def start(
        self,
        code: str,
        *arguments,
        stdin: int | None = None,
        stdout: int | None = PIPE,
        stderr: int | TextIO | None = PIPE,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        largest_file: int | None = None,
        open_files: int | None = None,
        new_session: bool = False,
    ) -> WarmProcess:
        """Starts `python -c CODE ARGUMENT...`.

        Args:
            stdin, stdout, stderr: `PIPE`, a file, or None for this process's own.
            environment: Variables that are added to this process's own, or replace them.
            largest_file: The most bytes it may write to one file.
            open_files: The most files it may have open.
        """
        if self._connection is None:
            self._launch()
        words = [*map(str, arguments)]
        limits = {"RLIMIT_FSIZE": largest_file, "RLIMIT_NOFILE": open_files}
        request = {
            "code": code, "arguments": words, "environment": {**os.environ, **self._environment, **(environment or {})},
            "cwd": str(cwd or Path.cwd()), "new_session": new_session,
            "limits": {name: most for name, most in limits.items() if most is not None},
        }  # fmt: skip
        ours, theirs = zip(*map(_stream, (stdin, stdout, stderr), range(3)), strict=True)
        status, its_status = socket.socketpair()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file, its_status:
            json.dump(request, file)
            file.seek(0)
            socket.send_fds(self._connection, [b" "], [*theirs, file.fileno(), its_status.fileno()])
        for number in theirs:
            os.close(number)
        return WarmProcess(["python", "-c", code, *words], status, ours)

    def run(self, code: str, *arguments, input: str = "", timeout: float = 300, **options) -> CompletedProcess:
        """Returns what `subprocess.run` would for `python -c CODE ARGUMENT...`."""
        with self.start(code, *arguments, stdin=PIPE, **options) as process:
            return process.completed(input, timeout)

    @contextmanager
    def together(self, count: int, code: str, *arguments, **options) -> Iterator[list[WarmProcess]]:
        """Starts processes that form one distributed group, as torchrun would; all are killed at the end."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        meeting |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
        with ExitStack() as stack:
            running = []
            for rank in range(count):
                environment = meeting | dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
                process = self.start(code, *arguments, environment=environment, **options)
                running.append(stack.enter_context(process))
                stack.callback(process.kill)
            yield running


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def all_completed(running: list[WarmProcess], timeout: float = 300) -> list[CompletedProcess]:
    """Waits for all of them at once: one with unread output would block, and the others would wait for it."""
    with ThreadPoolExecutor(len(running)) as threads:
        return list(threads.map(lambda each: each.completed(timeout=timeout), running))


def _stream(kind: int | TextIO | None, number: int) -> tuple[TextIO | None, int]:
    """This side of a standard stream, if it is a pipe, and the process's side."""
    if kind != PIPE:
        return None, os.dup(number if kind is None else kind.fileno())
    read, write = os.pipe()
    ours, theirs, mode = (write, read, "w") if number == 0 else (read, write, "r")
    return open(ours, mode, encoding="utf-8", newline="\n"), theirs


PACKAGE = WarmPython(
    "vanilla_transformer.command_line",
    "vanilla_transformer.cleaning.cleaning",
    "vanilla_transformer.sharing.publishing",
    "vanilla_transformer.training.run",
    "vanilla_transformer.evaluation.own_metrics",
    "vanilla_transformer.evaluation.tokenizers",
    "vanilla_transformer.parsing.tree_metric",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "PIL.PngImagePlugin",
    "fastapi.middleware",
    "ftfy",
    "py3langid.langid",
    "rensa",
    "uvicorn.server",
    "transformers.models.marian.modeling_marian",
    "transformers.models.marian.tokenization_marian",
    "transformers.utils.logging",
    # Also what takes a new process longest: the table of all architectures, which every loaded model is looked up in,
    # with its hundreds of patterns (0.2 seconds), and the model that identifies languages (0.4 seconds).
    code="""
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from vanilla_transformer.cleaning.languages import is_identified
get_checkpoint_conversion_mapping("")
is_identified("en")
""",
)
# Without libraries that read the Hub's address at import.
LIBRARIES = WarmPython(
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.export",
    "pandas",
    "pyarrow.parquet",
    "scipy.optimize",
)
