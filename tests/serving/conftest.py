"""The models that are served, those of the commands' tests; a server, and a connection to it."""

import socket
import sys
from pathlib import Path

from ..system.conftest import corpus, random_translator, run  # noqa: F401  (fixtures)


ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "benchmarks"))

from server_load import load, refusals, serving  # noqa: E402, F401


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)
