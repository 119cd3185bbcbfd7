"""Starts `vanilla-transformer serve`, asks it for translations from many clients at once, and checks every answer.

    python scripts/benchmarks/server_load.py runs/phrasebook --json load_test.json
    python scripts/benchmarks/server_load.py for_ctranslate2 --backend ctranslate2 --sources newstest2014.en

Each client sends one sentence, waits for its translation and sends the next. An answer is right if it equals the same
model's translation of that sentence alone, in this process. Then come requests that must be refused, because they are
too large or malformed. The exit status is 0 if no answer was lost or wrong and no such request was accepted. Clients
and server share the machine. (CTranslate2 rounds batches and single sentences differently: in hundreds of tokens of an
untrained model a tie may break the other way.)

With `--memory 5000` it sends 5,000 more requests, from the largest number of clients, and prints the resident
memory of the server after every tenth of them.
"""

import argparse
import asyncio
import contextlib
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TextIO

import httpx

from vanilla_transformer.command_line import command_parser
from vanilla_transformer.commands.process import configure_logging
from vanilla_transformer.commands.serve import serve
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.environment import machine, resident_bytes
from vanilla_transformer.files import text_lines
from vanilla_transformer.serving.backend import Wish, load_backend
from vanilla_transformer.serving.server import Limits


STARTING_SECONDS = 120


@dataclass
class Row:
    """Results for a number of clients; latencies are in milliseconds."""

    clients: int
    requests: int
    right: int
    wrong: int
    lost: int  # any other answer, or none
    sentences_per_second: float
    p50: float
    p95: float
    p99: float
    losses: list[str]  # what went wrong, each kind once


def started(words: list[str], messages: TextIO, files: int | None) -> subprocess.Popen:
    """Starts a command that writes its messages to a file and may open at most `files` files."""

    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    command = [sys.executable, "-m", "vanilla_transformer", *words]
    return subprocess.Popen(command, stderr=messages, preexec_fn=None if files is None else allow)


@contextlib.contextmanager
def serving(
    *options: str, log: Path | None = None, files: int | None = None, port: str = "0", start: Callable = started
) -> Iterator[tuple[str, subprocess.Popen]]:
    """The URL of a server and its process, which is stopped at the end; it listens on a free port of this machine.

    Args:
        options: Options of `vanilla-transformer serve`, the model first.
        log: Where to write the server's messages.
        files: How many files the server may open.
        port: 0 for a free one.
        start: A replacement for `started`.

    Raises:
        RuntimeError: It did not start.
        subprocess.TimeoutExpired: It does not end.
    """

    with tempfile.TemporaryDirectory() as folder:
        log = log or Path(folder, "log")
        with log.open("w") as file:
            process = start(["serve", *options, "--port", port], file, files)
        try:
            yield _url(process, log), process
            process.terminate()
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen, log: Path) -> str:
    """The URL that the server prints when it is ready."""
    for _ in range(10 * STARTING_SECONDS):
        said = log.read_text(encoding="utf-8")
        if found := re.search(r"running on (http://\S+)", said):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"The server did not start: {said.strip()}")


async def load(url: str, clients: int, sources: Sequence[str], expected: Sequence[str]) -> Row:
    """Sends every source once, from this many clients.

    Args:
        url: URL of the server.
        clients: How many requests are under way at a time.
        sources: One for each request.
        expected: Their translations.
    """
    numbers = iter(range(len(sources)))
    right, wrong, losses, milliseconds = 0, 0, [], []

    async def client(connection: httpx.AsyncClient) -> None:
        nonlocal right, wrong
        for number in numbers:  # shared by all clients
            started = time.perf_counter()
            try:
                answer = await connection.post("/translate", json={"texts": [sources[number]]})
            except httpx.HTTPError as error:
                losses.append(repr(error))
                continue
            if answer.status_code != 200:
                losses.append(f"{answer.status_code}: {answer.text}")
                continue
            found = answer.json()["translations"]
            milliseconds.append(1000 * (time.perf_counter() - started))
            right += found == [expected[number]]
            wrong += found != [expected[number]]

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits, trust_env=False) as connection:
        await connection.get("/health")
        started = time.perf_counter()
        await asyncio.gather(*(client(connection) for _ in range(clients)))
        seconds = time.perf_counter() - started
    percentiles = [percentile(milliseconds, share) for share in (50, 95, 99)]
    speed = (right + wrong) / seconds
    return Row(clients, len(sources), right, wrong, len(losses), speed, *percentiles, sorted(set(losses)))


def memory(
    url: str, process: int, clients: int, sources: Sequence[str], expected: Sequence[str], requests: int
) -> dict:
    """Resident MiB of the server by number of requests sent, after each tenth; and the number not answered right."""
    found, not_right = {0: resident_bytes("VmRSS", process) >> 20}, 0
    for tenth in range(1, 11):
        numbers = [number % len(sources) for number in range(requests // 10)]
        row = asyncio.run(load(url, clients, [sources[n] for n in numbers], [expected[n] for n in numbers]))
        found[tenth * len(numbers)] = resident_bytes("VmRSS", process) >> 20
        not_right += row.requests - row.right
    return {"resident_mib": found, "not_right": not_right}


def percentile(values: Sequence[float], share: int) -> float:
    """The value that `share` percent of them do not exceed; NaN if there are none."""
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def refusals(url: str, limits: Limits) -> dict[str, tuple[int, int, str]]:
    """For each bad request, the status that it must get, the status that it got and the error message."""

    def texts(*texts: str) -> dict:
        return {"json": {"texts": texts}}

    cases = {
        "a text too long": (413, texts("a" * (limits.characters + 1))),
        "too many texts": (413, texts(*["a"] * (limits.texts + 1))),
        "too many bytes": (413, {"content": b" " * (limits.body + 1)}),
        "too many bytes, in chunks": (413, {"content": iter([b" " * limits.body, b" "])}),
        "no texts": (422, texts()),
        "no body": (400, {"content": b""}),
        "half a JSON object": (400, {"content": b'{"texts": ["a"'}),
        "bytes that are not UTF-8": (400, {"content": b'{"texts": ["\xff"]}'}),
        "half a character": (400, {"content": b'{"texts": ["\\ud800"]}'}),
        "brackets without end": (400, {"content": b"[" * 10_000}),
        "a list": (422, {"json": ["a"]}),
        "a number as text": (422, {"json": {"texts": [1]}}),
        "an unknown field": (422, {"json": {"texts": ["a"], "beams": 4}}),
    }
    found = {}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as connection:
        for name, (status, request) in cases.items():
            answer = connection.post("/translate", **request)
            found[name] = (status, answer.status_code, answer.json().get("error", ""))
    return found


def print_tables(rows: Sequence[Row], refused: dict[str, tuple[int, int, str]]) -> None:
    print("| clients | requests | right | wrong | lost | sentences/s | p50, ms | p95, ms | p99, ms |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row.clients} | {row.requests} | {row.right} | {row.wrong} | {row.lost} | "
            f"{row.sentences_per_second:.1f} | {row.p50:.0f} | {row.p95:.0f} | {row.p99:.0f} |"
        )
    for loss in sorted({loss for row in rows for loss in row.losses}):
        print(f"\nlost: {loss}")
    print("\n| sent | status | expected | said |\n| --- | ---: | ---: | --- |")
    for name, (expected, status, said) in refused.items():
        print(f"| {name} | {status} | {expected} | {said} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="as for `serve`, which is started with it")
    parser.add_argument("--backend", choices=["torch", "ctranslate2"], default="torch")
    parser.add_argument("--num-beams", type=int, help="as for `serve`")
    parser.add_argument("--max-tokens", type=int, help="as for `serve`")
    parser.add_argument("--sources", type=Path, help="text file of sentences to send; the phrasebook's test sentences")
    parser.add_argument("--requests", type=int, default=256, help="of each number of clients")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--memory", type=int, default=0, help="requests to watch the server's memory over (Linux)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    configure_logging()
    lines = text_lines(arguments.sources) if arguments.sources else (row["en"] for row in phrasebook("test"))
    sources = list(islice((line for line in lines if line.strip()), arguments.requests))
    backend = load_backend(arguments.backend, arguments.model, arguments.num_beams, arguments.max_tokens)
    expected = [backend.translate([source], Wish())[0]["translations"] for source in sources]
    options = [arguments.model, "--backend", arguments.backend]
    options += ["--num-beams", str(arguments.num_beams)] if arguments.num_beams else []
    options += ["--max-tokens", str(arguments.max_tokens)] if arguments.max_tokens else []
    taken = vars(command_parser([serve]).parse_args(["serve", *options]))
    limits = Limits(**{field.name: taken[f"max_{field.name}"] for field in fields(Limits)})
    watched = {"resident_mib": {}, "not_right": 0}
    with serving(*options) as (url, process):
        rows = [asyncio.run(load(url, clients, sources, expected)) for clients in arguments.clients]
        refused = refusals(url, limits)
        if arguments.memory:
            watched = memory(url, process.pid, max(arguments.clients), sources, expected, arguments.memory)
        rows_after = asyncio.run(load(url, 1, sources[:1], expected[:1]))
    print_tables(rows, refused)
    for requests, mib in watched["resident_mib"].items():
        print(f"resident after {requests:,} requests: {mib} MiB")
    if arguments.json:
        names = ("expected", "status", "said")
        record = {
            "machine": machine()["processor"],
            "backend": arguments.backend,
            "distinct_translations": len(set(expected)),
            "memory": watched,
            "load": [asdict(row) for row in rows],
            "refusals": {name: dict(zip(names, each, strict=True)) for name, each in refused.items()},
        }
        arguments.json.write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")
    all_right = all(row.right == row.requests for row in [*rows, rows_after])
    all_refused = all(status == expected and said for expected, status, said in refused.values())
    sys.exit(0 if all_right and all_refused and not watched["not_right"] else 1)


if __name__ == "__main__":
    main()
