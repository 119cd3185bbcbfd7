"""Clients that hold connections, send garbage or do not read cannot block other clients or flood the log."""

import json
import logging
import os
import re
import signal
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from threading import Event

import httpx
import pytest

from vanilla_transformer.serving.connections import Bounds, SparingFilter, check_address, listen

from ..warm_python import PACKAGE
from .conftest import connected, serving


FILES = 400  # the server may open this many; half are for connections
SECONDS = 1  # a request may take this long to arrive
BOUNDS = Bounds(seconds=9, connections=9, backlog=9)
PATIENCE = 30  # seconds to wait before giving up, enough for a slow machine
ONE_SECOND_KEEP_ALIVE = """
import uvicorn
from functools import partial
from vanilla_transformer.serving.connections import BoundedConnection, Bounds

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})

uvicorn.run(app, http=partial(BoundedConnection, Bounds(9, 9, 9)), port=0, timeout_keep_alive=1, lifespan="off")
"""
NO_KEEP_ALIVE = httpx.Limits(max_keepalive_connections=0)  # a new connection for each request
GET = b"GET /health HTTP/1.1\r\nHost: here\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture(scope="module")
def server(random_translator, tmp_path_factory):
    """URL and process of a server. Whatever clients did to it, it must have logged little and end when told to."""
    log = tmp_path_factory.mktemp("server") / "log"
    options = [str(random_translator), "--max-tokens", "5", "--max-seconds", str(SECONDS), "--max-waiting", "8"]
    with ExitStack() as stack:
        url, process = stack.enter_context(serving(*options, log=log, files=FILES))
        yield url, process
        for number, connection in enumerate(stack.enter_context(connections(url, 100))):
            connection.sendall((b"", GET, GET + b"\r\n")[number % 3])
        process.terminate()
        process.wait(timeout=2 * PATIENCE)  # it waits 30 seconds itself for clients that do not read
    assert log.stat().st_size < 20_000
    assert "Traceback" not in log.read_text(encoding="utf-8")


def rest_of(connection: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def send_on(connection: socket.socket, sent: bytes, pause: float = 0) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        connection.sendall(sent)
        time.sleep(pause)


@contextmanager
def connections(url: str, count: int):
    with ExitStack() as stack:
        yield [stack.enter_context(connected(url)) for _ in range(count)]


@contextmanager
def others_are_served(url: str):
    """Meanwhile one client asks for health checks and another for translations; all are answered promptly."""
    over, seconds = Event(), {"health": [], "translate": []}
    # A server's first translation takes seconds on a busy machine, and holds Python's lock against the health checks.
    httpx.post(f"{url}/translate", json={"texts": ["A dog."]}, timeout=60, trust_env=False).raise_for_status()

    def ask(method: str, path: str, **content) -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False, limits=NO_KEEP_ALIVE) as client:
            while not over.is_set() or len(seconds[path]) < 9:  # a busy machine may make a few wait for seconds
                begun = time.monotonic()
                answer = client.request(method, path, **content)
                seconds[path].append(time.monotonic() - begun)
                assert answer.status_code == 200, answer.text
                time.sleep(0.05)

    with ThreadPoolExecutor(2) as threads:
        asking = [
            threads.submit(ask, "GET", "health"),
            threads.submit(ask, "POST", "translate", json={"texts": ["A dog."]}),
        ]
        try:
            yield
        finally:
            over.set()
        for each in asking:
            each.result()
    assert max(map(max, seconds.values())) < PATIENCE / 2
    assert statistics.median(seconds["health"]) < 0.5  # no translation is waited for


def test_idle_connections_are_closed(server):
    url, process = server
    with others_are_served(url), connections(url, 420) as idle:
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < FILES
        for connection in idle:
            assert rest_of(connection) == b""  # closed by the server


def test_slow_requests_time_out(server):
    url, _ = server
    with others_are_served(url), connections(url, 60) as slow:
        begun, open_still = time.monotonic(), set(slow)
        head = iter(GET * 1000)
        while open_still and time.monotonic() - begun < PATIENCE:
            byte = bytes([next(head)])
            for connection in list(open_still):
                try:
                    connection.sendall(byte)
                except ConnectionError:
                    open_still.remove(connection)
            time.sleep(0.1)
        assert not open_still
    with connected(url) as slow:
        slow.sendall(GET)
        assert rest_of(slow).startswith(b"HTTP/1.1 408 ")
    with connected(url) as connection:  # sending on after an answer
        connection.sendall(GET + b"Content-Length: 1000\r\n\r\n")
        with pytest.raises(ConnectionError):
            send_on(connection, b"x", pause=0.1)


def test_malformed_requests_are_rejected_with_a_reason(server):
    """Each gets a reason, and its connection is closed at once although the client would keep it open."""
    end, url = b"\r\n\r\n", server[0]
    cases = {
        "10,000 headers": (431, GET + b"".join(b"x%d: y\r\n" % number for number in range(10_000)) + b"\r\n"),
        "101 headers": (431, GET + b"x: y\r\n" * 100 + b"\r\n"),
        "a header of 100 kB": (431, GET + b"x: " + b"y" * 100_000 + end),
        "a header of 100 kB without end": (431, GET + b"x: " + b"y" * 100_000),
        "a line of 100 kB": (431, b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: here" + end),
        "the beginning of TLS": (400, bytes.fromhex("160301020001000001fc0303") + bytes(500)),
        "binary garbage": (400, bytes(range(256)) * 8 + end),
        "much garbage": (431, bytes(range(33, 256)) * 400),
        "another protocol": (400, b"SSH-2.0-OpenSSH_9.6" + end),
        "a length that is not a number": (400, GET + b"Content-Length: -1" + end),
        "a length of 5,000 digits": (400, GET + b"Content-Length: " + b"9" * 5000 + end),
        "two lengths": (400, GET + b"Content-Length: 1\r\nContent-Length: 2" + end),
        "a chunk without length": (400, POST + b"Transfer-Encoding: chunked" + end + b"z" + end),
        "such a chunk for an answer that needs no body": (400, GET + b"Transfer-Encoding: chunked" + end + b"z" + end),
    }  # fmt: skip
    with others_are_served(url):
        for name, (status, sent) in cases.items():
            with connected(url) as connection:
                connection.sendall(sent)
                answer = rest_of(connection)
            assert answer.startswith(b"HTTP/1.1 %d " % status), name
            assert json.loads(answer.partition(end)[2])["error"], name
        with connected(url) as connection:
            connection.sendall(b"HEAD" + GET[3:] + b"Transfer-Encoding: chunked" + end + b"z" + end)
            head, _, body = rest_of(connection).partition(end)
        assert (head[:13], body) == (b"HTTP/1.1 400 ", b"")
        for _ in range(300):  # the log mentions only five
            with connected(url) as connection:
                connection.sendall(b"\0garbage" + end)
        with connected(url) as connection:
            connection.sendall((GET + b"Connection: Upgrade\r\nUpgrade: websocket" + end) * 50)
    with connected(url) as connection:  # the most headers allowed
        connection.sendall(GET + b"x: y\r\n" * 98 + b"Connection: close\r\n\r\n")
        assert rest_of(connection).startswith(b"HTTP/1.1 200 ")


def test_unfinished_bodies_time_out(server):
    head = POST + b"Content-Length: 20\r\n\r\n{"
    with others_are_served(server[0]), connections(server[0], 250) as slow:
        for connection in slow:
            with suppress(ConnectionError):  # another connection took its place
                connection.sendall(head)
        answers = [rest_of(connection) for connection in slow]
    assert answers.count(b"") >= 250 - FILES // 2
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers if answer)
    assert any(answers)


def test_client_that_does_not_read_is_disconnected(server):
    url = server[0]
    with others_are_served(url), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        host, port = url.removeprefix("http://").split(":")
        connection.connect((host, int(port)))
        with pytest.raises(ConnectionError):  # the server disconnects; else this would be a TimeoutError
            send_on(connection, b"GET /docs HTTP/1.1\r\nHost: here\r\n\r\n" * 100)


@contextmanager
def paused(process, seconds: float):
    """Pauses the process; when it continues, its timers have expired and its input is still unread."""
    time.sleep(0.2)  # let it wait for input
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    try:
        yield
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


def test_paused_server_reads_input_before_timing_out(server):
    url, process = server
    with connected(url) as connection:
        connection.sendall(GET[:9])
        with paused(process, SECONDS + 0.5):
            connection.sendall(GET[9:] + b"Connection: close\r\n\r\n")
        assert rest_of(connection).startswith(b"HTTP/1.1 200 ")


def test_request_on_expired_keep_alive_is_answered():
    """Plain uvicorn would close the connection without an answer."""
    with PACKAGE.start(ONE_SECOND_KEEP_ALIVE) as process:
        url = next(found[1] for line in process.stderr if (found := re.search(r"running on (http://\S+)", line)))
        with connected(url) as connection:
            connection.sendall(GET + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 204 ")
            with paused(process, 1.5):
                connection.sendall(GET + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 204 ")
            assert rest_of(connection) == b""  # closed in the end
        process.kill()


def test_taken_port_is_reported(server):
    port = int(server[0].rpartition(":")[2])
    said = f"Cannot listen at 127.0.0.1, port {port} (Address already in use): choose another --port or --host."
    with pytest.raises(OSError, match=re.escape(said)):
        listen(None, "127.0.0.1", port, BOUNDS)


def test_addresses_of_missing_kinds_are_left_out(monkeypatch):
    """As asyncio does: localhost may have an address of IPv6 where there is no IPv6."""
    kind, missing = socket.SOCK_STREAM, (socket.AF_X25, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0))
    there = (socket.AF_INET, kind, 0, "", ("127.0.0.1", 0))
    found = [missing, there, missing]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words, **more: found)
    check_address("localhost", 0)
    found = [missing]
    with pytest.raises(OSError, match=r"Cannot listen at localhost \(Address family not supported"):
        check_address("localhost", 0)


def test_repeated_log_messages_are_counted():
    logger, said = logging.Logger("test"), []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    handler.addFilter(SparingFilter(messages=2, seconds=0.2))
    logger.addHandler(handler)
    for pause in (0, 0.3):
        time.sleep(pause)
        for number in range(5):
            logger.warning("no %s", number)
        logger.warning("another")
    assert said == ["no 0", "no 1", "another", "no 0 (and 3 times more)", "no 1", "another"]
