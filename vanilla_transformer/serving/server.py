"""Translates over HTTP, texts of several requests together in one batch.

Each translation is the one that `vanilla-transformer translate` makes. GET /docs says how to use the service, and what
is refused with which status. How it deals with clients that hold connections is in `connections.py`.

One model, and one thread that runs it: for more, start several behind a load balancer. There is no TLS and no
authentication: put a proxy in front of it for these.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from html import escape

from .. import __version__
from ..data.known_words import UnknownWords
from ..run.loading import calibration_of, known_words_of, load_engine
from ..translation import translate_lines


try:
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import HTMLResponse, JSONResponse
    from pydantic import BaseModel, ConfigDict, ValidationError
    from starlette.exceptions import HTTPException as AnyHTTPException
    from starlette.requests import ClientDisconnect

    from .connections import bounds_here, listen
except ImportError as error:
    raise ImportError('The server needs fastapi and uvicorn: pip install "vanilla-transformer[serve]"') from error


logger = logging.getLogger(__name__)

LONGEST = 512  # tokens that are translated at a stretch, as in `vanilla-transformer translate`


# ----------------------------------------------------------------------------------------------------------- backends


@dataclass(frozen=True)
class Backend:
    """Texts to translations, one each, and a text to its number of tokens. None is re-entrant.

    `judge` gives a text's part of [`Translations`] with their confidence; None where the model is not calibrated.
    """

    translate: Callable[[Sequence[str]], list[str]]
    tokens_of: Callable[[str], int]
    judge: Callable[[Sequence[str]], list[dict]] | None = None


def load_backend(
    kind: str, model: str, num_beams: int | None = None, max_tokens: int | None = None, device: str = "auto"
) -> Backend:
    """Loads a model, as `load_engine` does.

    Args:
        kind: torch or ctranslate2.
        model: For torch a run folder, a model's folder or USER/NAME of the Hub; for ctranslate2 a folder written by
            `vanilla-transformer export`.
        num_beams: Hypotheses of the beam search; the model's own setting if None.
        max_tokens: Tokens that a translation may have; None: the model's own limit.
        device: Where the model runs, as for `chosen_device`.
    """
    loaded, tokenizer = load_engine([model], kind, device)
    given = {"num_beams": num_beams, "max_new_tokens": max_tokens}
    options = {name: value for name, value in given.items() if value is not None}

    def translate(texts: Sequence[str]) -> list[str]:
        found = translate_lines(loaded, tokenizer, [texts], longest=LONGEST, **options)
        return [best.text for best, *_ in found]

    judge = _judge_of(loaded, tokenizer, model, options) if kind == "torch" else None
    return Backend(translate, lambda text: len(tokenizer(text).input_ids), judge)


def _judge_of(loaded, tokenizer, model: str, options: dict) -> Callable[[Sequence[str]], list[dict]] | None:
    """The `judge` of a backend; None if the model has no calibration that fits it."""
    try:
        calibration, unknown = calibration_of([model]), UnknownWords(tokenizer, known_words_of([model]))
    except (FileNotFoundError, ValueError) as error:
        logger.log(logging.DEBUG if isinstance(error, FileNotFoundError) else logging.WARNING, "%s", error)
        return None

    def judge(texts: Sequence[str]) -> list[dict]:
        found = translate_lines(loaded, tokenizer, [texts], longest=LONGEST, calibration=calibration, **options)
        judged = []
        for text, (best, *_) in zip(texts, found, strict=True):
            words = [] if best.likelihood is None else [(each.word, each.probability) for each in best.likelihood.words]
            of_text = {"confidences": best.confidence, "words": words, "unknown_words": unknown(text)}
            judged.append({"translations": best.text, **of_text})
        return judged

    return judge


class Batcher:
    """Puts texts that wait at the same time into one batch, and translates in a thread of its own.

    A batch is closed as soon as it has `texts` texts or `tokens` tokens, or `seconds` after its first text. While one
    is being translated the next texts gather, so under load nobody waits for the clock.
    """

    def __init__(self, backend: Backend, texts: int, tokens: int, seconds: float):
        self.backend, self.texts, self.tokens, self.seconds = backend, texts, tokens, seconds
        # Texts, whether their confidence is asked for, and their answers; None: no more will come.
        self._waiting: queue.Queue[tuple[str, bool, Future] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="translation", daemon=True)
        self._thread.start()

    def submit(self, text: str, confidence: bool = False) -> Future:
        """The future translation of a text. If it is cancelled in time, the text is not translated.

        With `confidence` it is what the backend's `judge` says of it, which must not be None.
        """
        answer: Future = Future()
        self._waiting.put((text, confidence, answer))
        return answer

    def close(self) -> None:
        """Returns when all that was submitted is answered."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            for confidence in (False, True):
                self._answer([each for each in batch if each[1] == confidence], confidence)

    def _answer(self, batch: list[tuple[str, bool, Future]], confidence: bool) -> None:
        if not batch:
            return
        try:
            work = self.backend.judge if confidence else self.backend.translate
            translations = work([text for text, *_ in batch])
            answered = list(zip(batch, translations, strict=True))
        except Exception as error:  # the server lives on, and tells those who asked
            for *_, answer in batch:
                answer.set_exception(error)
        else:
            for (*_, answer), translation in answered:
                answer.set_result(translation)

    def _next_batch(self) -> tuple[list[tuple[str, bool, Future]], bool]:
        """A batch, and whether it is the last."""
        batch, tokens, until = [], 0, None
        while len(batch) < self.texts and tokens < self.tokens:
            try:
                following = self._waiting.get(timeout=None if until is None else max(0, until - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                return batch, True
            text, _, answer = following
            until = until or time.monotonic() + self.seconds
            if answer.set_running_or_notify_cancel():
                batch.append(following)
                tokens += self.backend.tokens_of(text)
        return batch, False


# ------------------------------------------------------------------------------------------------------------- server


@dataclass(frozen=True)
class Limits:
    """The most that the server accepts."""

    characters: int  # of a text
    texts: int  # of a request
    body: int  # bytes of a request
    seconds: float  # until a request has arrived
    waiting: int  # requests at a time


class TranslationRequest(BaseModel):
    """The body of POST /translate."""

    model_config = ConfigDict(strict=True, extra="forbid")
    texts: list[str]
    confidence: bool = False


class Translations(BaseModel):
    """Its answer: the translations of the texts, in their order.

    With `confidence` in the request there is for each text also the probability that its translation is good (null for
    a blank one), the words of its translation with their probabilities, and the words of the text that the model has
    not learned.
    """

    translations: list[str]
    confidences: list[float | None] | None = None
    words: list[list[tuple[str, float]]] | None = None
    unknown_words: list[list[str]] | None = None


class Refusal(BaseModel):
    """The answer to a request that is refused."""

    error: str


def make_server(batcher: Batcher, limits: Limits) -> FastAPI:
    """The service as an ASGI application; at its end it closes the batcher."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI):
        yield
        await asyncio.to_thread(batcher.close)

    # FastAPI's own page at /docs fetches its program from another machine.
    app = FastAPI(title="Translation", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    failure = {"error": "The translation failed; the server's log says why."}
    for kind, answer in (
        (AnyHTTPException, lambda _, error: JSONResponse({"error": error.detail}, error.status_code, error.headers)),
        (ClientDisconnect, lambda _, error: Response(status_code=400)),  # which nobody reads
        (Exception, lambda _, error: JSONResponse(failure, 500)),
    ):
        app.add_exception_handler(kind, answer)
    taken_on = 0  # only the event loop's thread changes it

    @app.get("/")
    async def service() -> dict:
        return {
            "service": f"Translation of texts, by vanilla_transformer {__version__}",
            "POST /translate": 'takes {"texts": ["...", ...]}, answers {"translations": ["...", ...]}; '
            'with "confidence": true also how sure the model is, if it is calibrated',
            "GET /health": "says whether the service is there, and how many requests are waiting",
            "GET /docs": "says how to use it, and its limits",
            "GET /openapi.json": "says so to programs",
        }

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        # The page has no script and fetches nothing.
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(_documentation(limits), headers=headers)

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok", "waiting": taken_on}

    body = {"required": True, "content": {"application/json": {"schema": TranslationRequest.model_json_schema()}}}
    refusals = {status: {"model": Refusal} for status in _REFUSALS}

    @app.post("/translate", response_model=Translations, responses=refusals, openapi_extra={"requestBody": body})
    async def translate(request: Request) -> Response:
        nonlocal taken_on
        asked = _asked_in(await _body_of(request, limits), limits)
        if asked.confidence and batcher.backend.judge is None:
            raise HTTPException(422, "The model is not calibrated, so it has no confidence: leave confidence out.")
        if taken_on >= limits.waiting:
            message = f"{limits.waiting:,} requests are waiting, no more can: try again later."
            raise HTTPException(503, message, headers={"Retry-After": "1"})
        taken_on += 1
        try:
            return await _translated(request, batcher, asked)
        finally:
            taken_on -= 1

    return app


async def _translated(request: Request, batcher: Batcher, asked: TranslationRequest) -> Response:
    """The answer to a request, unless its client goes away first."""
    futures = [batcher.submit(text, asked.confidence) for text in asked.texts]
    answers = asyncio.gather(*map(asyncio.wrap_future, futures))
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        found = answers.result()
        if not asked.confidence:
            return JSONResponse({"translations": found})
        return JSONResponse({name: [each[name] for each in found] for name in found[0]})
    finally:
        gone.cancel()
        answers.cancel()  # texts whose turn has not come need not be translated


async def _gone(request: Request) -> None:
    """Returns when the client has left. (Before that there may come an empty rest of the body.)"""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body_of(request: Request, limits: Limits) -> bytes:
    """The body of a request. Reading stops where it is too large."""
    message = f"The request has more than {limits.body:,} bytes: send fewer or shorter texts at a time."
    too_large = HTTPException(413, message)
    if int(request.headers.get("content-length", 0)) > limits.body:
        raise too_large

    async def read() -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limits.body:
                raise too_large
        return bytes(body)

    try:
        return await asyncio.wait_for(read(), limits.seconds)
    except asyncio.TimeoutError as error:
        raise HTTPException(408, f"The request did not arrive within {limits.seconds:g} seconds.") from error


def _asked_in(body: bytes, limits: Limits) -> TranslationRequest:
    """What a request asks for. HTTPException says with a status which rule it breaks."""
    try:
        asked = TranslationRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        status = 400 if first["type"] == "json_invalid" else 422
        message = f'{where + ": " if where else ""}{first["msg"]}. Send {{"texts": ["...", ...]}}.'
        raise HTTPException(status, message) from error
    texts = asked.texts
    if not texts:
        raise HTTPException(422, "texts is empty: send one text at least.")
    if len(texts) > limits.texts:
        raise HTTPException(413, f"texts has {len(texts):,} texts: send {limits.texts:,} at a time at most.")
    for number, text in enumerate(texts):
        if len(text) > limits.characters:
            message = f"texts.{number} has {len(text):,} characters: a text may have {limits.characters:,} at most."
            raise HTTPException(413, message)
    return asked


def serve(batcher: Batcher, limits: Limits, host: str, port: int) -> None:
    """Listens, or raises OSError; after SIGTERM or Ctrl-C answers what it has taken on, and closes the batcher."""
    bounds = bounds_here(limits.seconds)
    waiting = min(limits.waiting, max(1, 3 * bounds.connections // 4))  # which leaves connections for other requests
    listen(make_server(batcher, replace(limits, waiting=waiting)), host, port, bounds)


# ------------------------------------------------------------------------------------------------------ its own page

# It is plain: FastAPI's page fetches its program from another machine.
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Translation: how to use it</title>
<style>
body {{ font-family: system-ui, sans-serif; line-height: 1.5; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #f2f2f2; padding: .7rem; overflow-x: auto }}
td, th {{ text-align: left; vertical-align: top; padding: .1rem 1.5rem .1rem 0 }}
</style>
<h1>Translation</h1>
<h2>POST /translate</h2>
<p>Send texts as JSON, get their translations in the same order.</p>
<pre>curl http://HOST:PORT/translate --json '{{"texts": ["The dog is old."]}}'
{{"translations":["Der Hund ist alt."]}}</pre>
<p>With <code>"confidence": true</code> beside the texts the answer also has <code>confidences</code>, the probability
that each translation is good; <code>words</code>, those of each translation with their probabilities; and
<code>unknown_words</code>, those of each text that the model has not learned. The model must be calibrated.</p>
<table>
<tr><th>At most</th><th></th></tr>
{limits}
</table>
<h2>Refusals</h2>
<p>What is refused is answered with <code>{{"error": "why"}}</code>.</p>
<table>
<tr><th>Status</th><th>Why</th></tr>
{refusals}
</table>
<h2>GET /health</h2>
<p>Answers <code>{{"status": "ok", "waiting": 0}}</code>: how many requests wait for their translations.</p>
<h2>GET /openapi.json</h2>
<p><a href="openapi.json">Describes the service to programs.</a></p>
</html>
"""
_REFUSALS = {
    400: "The body is not JSON, or the request is not HTTP.",
    408: "The request did not arrive in time.",
    413: "A text, their number or the whole request is too large.",
    422: "The JSON has another form.",
    431: "The headers are too many or too large.",
    500: "The translation failed.",
    503: "Too many requests are waiting: try again after the seconds that Retry-After says.",
}


def _documentation(limits: Limits) -> str:
    """The page at /docs, as HTML."""

    def rows(cells) -> str:
        return "\n".join(f"<tr><td>{escape(str(name))}</td><td>{escape(text)}</td></tr>" for name, text in cells)

    bounds = [
        (f"{limits.characters:,}", "characters of a text"),
        (f"{limits.texts:,}", "texts of a request"),
        (f"{limits.body:,}", "bytes of a request"),
        (f"{limits.seconds:g}", "seconds until a request has arrived"),
        (f"{limits.waiting:,}", "requests that wait at a time"),
    ]
    return _PAGE.format(limits=rows(bounds), refusals=rows(_REFUSALS.items()))
