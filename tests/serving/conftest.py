"""The models that are served, those of the commands' tests; a server, and a connection to it."""

import socket

from ..scripts.conftest import load_script
from ..system.conftest import corpus, random_translator, run  # noqa: F401  (fixtures)


server_load = load_script("benchmarks/server_load")
load, refusals, serving = server_load.load, server_load.refusals, server_load.serving


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)
