"""The models to serve (from the tests of the commands), a server, and a connection to it."""

import socket
from functools import partial

from ..scripts.conftest import load_script
from ..system.conftest import corpus, random_translator, run  # noqa: F401  (fixtures)
from ..warm_python import CLI, PACKAGE, WarmProcess


server_load = load_script("benchmarks/server_load")
load, refusals = server_load.load, server_load.refusals


def started(words, messages, files) -> WarmProcess:
    return PACKAGE.start(CLI, *words, stdout=None, stderr=messages, open_files=files)


serving = partial(server_load.serving, start=started)


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)
