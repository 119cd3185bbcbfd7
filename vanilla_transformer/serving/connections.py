"""Listens for HTTP as uvicorn does, with bounds on everything that a client can do before its request has arrived.

A connection is closed if a request takes too long to arrive, if an answer is not read, and after 75 idle seconds. There
are at most 1,024 connections (or half as many as the process may open files): a new one takes the place of the one that
has waited longest without a request. So nobody keeps others out by doing nothing.

The options of uvicorn and h11 are not enough. `limit_concurrency` answers 503 to requests, even the health check, and
ignores connections that send nothing. `timeout_keep_alive` ends with the first byte. `h11_max_incomplete_event_size`
only counts what is left of an incomplete head: one that arrives at once may have 256 KiB. With a large `backlog`
asyncio accepts, and logs, that often within one turn of its loop.
"""

import errno
import json
import logging
import math
import re
import socket
import time
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import h11
import uvicorn
from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.h11_impl import H11Protocol


MOST_HEAD = 16 * 1024  # bytes of a request's first line and headers
MOST_HEADERS = 100
# Longer than clients keep an idle connection (httpx 5 seconds, proxies mostly 60). Otherwise the server may close one
# while the next request is on its way, and that request is lost.
IDLE_SECONDS = 75
_BLANK_LINE = re.compile(rb"\n\r?\n")  # as h11 has it
_MOST_CONNECTIONS = 1024
_BACKLOG = 128


@dataclass(frozen=True)
class Bounds:
    """The limits of connections."""

    seconds: float  # until a request's head has arrived, and until a client reads on
    connections: int
    backlog: int  # connections taken in at a time


def bounds_here(seconds: float) -> Bounds:
    """Bounds that fit the number of files that this process may open: half of them for connections.

    Three eighths are for connections that come and go, the rest for everything else.
    """
    try:
        import resource

        (files, hard), wanted = resource.getrlimit(resource.RLIMIT_NOFILE), 4 * _MOST_CONNECTIONS
        if files == resource.RLIM_INFINITY:
            files = wanted
        elif files < wanted:
            files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except ImportError:  # on Windows, whose event loop has another limit
        files = 512
    return Bounds(seconds, connections=min(_MOST_CONNECTIONS, files // 2), backlog=max(1, min(_BACKLOG, files // 8)))


def check_address(host: str, port: int) -> None:
    """Raises OSError, which says why, if no server can listen there; port 0 is any."""
    try:
        addresses, missing = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), 0
        for family, _, _, _, address in addresses:
            try:
                socket.create_server(address[:2], family=family).close()
            except OSError as error:
                missing += error.errno == errno.EAFNOSUPPORT  # asyncio leaves these out, say ::1 where IPv6 is off
                if error.errno != errno.EAFNOSUPPORT or missing == len(addresses):
                    raise
    except (OSError, OverflowError) as error:
        why = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        place = f"{host}, port {port}" if port else host
        raise OSError(f"Cannot listen at {place} ({why}): choose another --port or --host.") from error


def listen(app, host: str, port: int, bounds: Bounds) -> None:
    """Answers requests until SIGTERM or Ctrl-C, then finishes those taken on. OSError says why it cannot listen."""
    check_address(host, port)  # uvicorn itself would end the process with three lines, and `[Errno 98]` in them
    # uvicorn's log, which no client can fill. asyncio's errors with connections go there too.
    log = deepcopy(LOGGING_CONFIG)
    log["filters"] = {"sparing": {"()": SparingFilter}}
    log["handlers"]["default"]["filters"] = ["sparing"]
    log["loggers"]["asyncio"] = {"filters": ["sparing"]}
    uvicorn.run(
        app, host=host, port=port, http=partial(BoundedConnection, bounds), ws="none", loop="asyncio",
        backlog=bounds.backlog, timeout_keep_alive=IDLE_SECONDS, access_log=False, log_config=log,
    )  # fmt: skip


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client takes too long, sends too much or does not read.

    From its beginning, or from its last answer, it counts as waiting until a whole request has arrived. One connection
    too many takes the place of the one that has been waiting longest.
    """

    def __init__(self, bounds: Bounds, *arguments, **options):
        super().__init__(*arguments, **options)
        self.conn = _BoundedHead(h11.SERVER, MOST_HEAD)
        self._bounds, self._waiting_since = bounds, math.inf
        self._until_request = self._until_read = None  # timers
        self._is_refused = False

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._expect_request()
        if len(self.connections) > self._bounds.connections:
            self._make_room()

    def connection_lost(self, error) -> None:
        self._until_request, self._until_read = _cancelled(self._until_request), _cancelled(self._until_read)
        self._unset_keepalive_if_required()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_refused:
            return
        if self.transport.is_closing() or self._is_answering():
            self._until_request = _cancelled(self._until_request)
        else:  # part of a head, or the rest of the body of an answered request
            self._expect_request()

    def on_response_complete(self) -> None:
        self._waiting_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_reading()
        elif self.conn.their_state is h11.SEND_BODY:  # answered before its whole body was there
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._until_read = _cancelled(self._until_read)

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()
            if not self._is_answering():
                self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        # If the whole process stood still, requests may have arrived and be unread. The event loop reads them before
        # this second timer, which they cancel.
        self.timeout_keep_alive_task = self.loop.call_later(0.01, self._idle_for_too_long)

    def send_400_response(self, message: str) -> None:
        if self.conn.refusal:
            self._refuse(*self.conn.refusal)
        else:
            self._refuse(400, "This is not HTTP.")

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        open_ones = [each for each in self.connections if not (each.transport.is_closing() or each._is_refused)]
        waiting = [each for each in open_ones if not each._is_answering() or each.cycle.more_body]
        longest = min(waiting, key=lambda each: each._waiting_since)
        if longest is self:
            self._refuse(503, f"{self._bounds.connections:,} connections are busy, there can be no more: try later.")
        else:
            longest.transport.abort()

    def _expect_request(self) -> None:
        if self._until_request is None:
            self._until_request = self.loop.call_later(self._bounds.seconds, self._took_too_long)

    def _took_too_long(self) -> None:
        # As with the keep-alive timer, what has arrived unread counts.
        self._until_request = self.loop.call_later(0.01, self._no_request)

    def _no_request(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(408, f"The request did not arrive within {self._bounds.seconds:g} seconds.")
        else:
            self._close()

    def _idle_for_too_long(self) -> None:
        super().timeout_keep_alive_handler()
        self._expect_reading()

    def _expect_reading(self) -> None:
        if self._until_read is None:
            self._until_read = self.loop.call_later(self._bounds.seconds, self.transport.abort)

    def _refuse(self, status: int, message: str) -> None:
        """Answers, and closes the connection a second later: data that still arrives would reset it."""
        self._is_refused = True
        self._answer(status, message)
        if self._is_answering():  # the application's own answer would be a second one
            self.cycle.disconnected, self.cycle.waiting_for_100_continue = True, False
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._until_request = _cancelled(self._until_request)
        self._until_request = self.loop.call_later(1, self._close)

    def _answer(self, status: int, message: str) -> None:
        """Sends an answer of our own, unless one has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": message}).encode()
            sizes = [("content-length", str(len(body))), ("connection", "close")]
            headers = [("content-type", "application/json"), *sizes]
            headers += [("retry-after", "1")] if status == 503 else []
            is_to_head = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"
            data = [] if is_to_head else [h11.Data(data=body)]
            for event in (h11.Response(status_code=status, headers=headers), *data, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))

    def _close(self) -> None:
        self.transport.close()
        self._expect_reading()


class _BoundedHead(h11.Connection):
    """An h11 connection that checks the size of a request's head before parsing it."""

    refusal: tuple[int, str] | None = None

    def next_event(self):
        if self.their_state is h11.IDLE:
            received = self.trailing_data[0]
            end = _BLANK_LINE.search(received)
            head = received[: end.end()] if end else received
            if len(head) > MOST_HEAD:
                self.refusal = (431, f"The request's head is too large: {MOST_HEAD:,} bytes at most.")
            elif head.count(b"\n") > MOST_HEADERS + 2:
                self.refusal = (431, f"The request has too many headers: {MOST_HEADERS} at most.")
            if self.refusal:
                raise h11.RemoteProtocolError(self.refusal[1], error_status_hint=431)
        return super().next_event()


def _cancelled(timer) -> None:
    if timer is not None:
        timer.cancel()


class SparingFilter(logging.Filter):
    """Lets each line of code log a few messages every few seconds, and says how many were left out."""

    def __init__(self, messages: int = 5, seconds: float = 10):
        super().__init__()
        self.messages, self.seconds = messages, seconds
        self._begun, self._said = defaultdict(lambda: -math.inf), defaultdict(int)

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._begun[place] >= self.seconds:
            left_out = self._said[place] - self.messages
            self._begun[place], self._said[place] = now, 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} (and {left_out:,} times more)"
                record.args = ()
        self._said[place] += 1
        return self._said[place] <= self.messages
