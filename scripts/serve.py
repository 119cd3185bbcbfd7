"""Translates over HTTP, texts of several requests together in one batch.

    python scripts/serve.py runs/phrasebook --port 8000
    curl http://127.0.0.1:8000/translate --json '{"texts": ["The dog is old."]}'
    {"translations":["Der Hund ist alt."]}

POST /translate takes {"texts": [...]} and answers {"translations": [...]}, each as `vanilla-transformer translate`
makes it. GET /health answers once the model is loaded. What is refused is answered with {"error": "why"}: 400 no JSON,
422 JSON of another form, 413 too much of something, 408 a body that does not arrive, 503 (with Retry-After) as many
requests waiting as there may be. SIGTERM or Ctrl-C ends the server behind the requests that it has taken on.

One model, and one thread that runs it: for more, start several behind a load balancer. There is no TLS and nobody is
asked who they are: that is for what stands before it.
"""

import argparse
import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from pathlib import Path

from vanilla_transformer.commands.process import configure_logging, use_memory_well


try:
    import uvicorn
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel, ConfigDict, ValidationError
    from starlette.exceptions import HTTPException as AnyHTTPException
    from starlette.requests import ClientDisconnect
except ImportError as error:
    raise SystemExit('The server needs fastapi and uvicorn: pip install "vanilla-transformer[serve]"') from error


LONGEST = 512  # tokens that are translated at a stretch, as in `vanilla-transformer translate`


# ----------------------------------------------------------------------------------------------------------- backends


@dataclass(frozen=True)
class Backend:
    """What translates: texts to translations, one each, and a text to its number of tokens. Neither is re-entrant."""

    translate: Callable[[Sequence[str]], list[str]]
    tokens_of: Callable[[str], int]


def load_backend(kind: str, model: str, num_beams: int | None = None, max_tokens: int | None = None) -> Backend:
    """Loads a model.

    Args:
        kind: torch or ctranslate2.
        model: For torch a run folder, a model's folder or USER/NAME of the Hub; for ctranslate2 a folder written by
            `vanilla-transformer export`.
        num_beams: Hypotheses of the beam search; the model's own setting if None.
        max_tokens: Tokens that a translation may have; None: the model's own limit.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: It is not one.
        ImportError: CTranslate2 is missing.
    """
    from vanilla_transformer.run_folder import load_its_tokenizer, load_model
    from vanilla_transformer.translation import ExportedModel, translate_lines

    if kind == "ctranslate2":
        loaded, tokenizer = ExportedModel(model), load_its_tokenizer(Path(model))
        longest = min(LONGEST, loaded.positions)
    else:
        loaded, tokenizer = load_model(model)
        learned = loaded.config.position_embedding_type == "learned"
        longest = min(LONGEST, loaded.config.max_position_embeddings) if learned else LONGEST
    options = {"num_beams": num_beams, "max_new_tokens": max_tokens}
    options = {name: value for name, value in options.items() if value is not None}

    def translate(texts: Sequence[str]) -> list[str]:
        found = translate_lines(loaded, tokenizer, [texts], longest=longest, **options)
        return [best.text for best, *_ in found]

    return Backend(translate, lambda text: len(tokenizer(text).input_ids))


class Batcher:
    """Puts texts that wait at the same time into one batch, and translates in a thread of its own.

    A batch is closed as soon as it has `texts` texts or `tokens` tokens, or `seconds` after its first text. While one
    is translated the next ones wait, so under load nobody waits for the clock.
    """

    def __init__(self, backend: Backend, texts: int, tokens: int, seconds: float):
        self.backend, self.texts, self.tokens, self.seconds = backend, texts, tokens, seconds
        self._waiting: queue.Queue[tuple[str, Future] | None] = queue.Queue()  # None: no more will come
        self._thread = threading.Thread(target=self._run, name="translation", daemon=True)
        self._thread.start()

    def submit(self, text: str) -> Future:
        """The future translation of a text; one that is cancelled in time is not made."""
        answer: Future = Future()
        self._waiting.put((text, answer))
        return answer

    def close(self) -> None:
        """Returns when all that was submitted is answered."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            if not batch:
                continue
            try:
                translations = self.backend.translate([text for text, _ in batch])
                answered = list(zip(batch, translations, strict=True))
            except Exception as error:  # the server outlives it: whoever asked is told
                for _, answer in batch:
                    answer.set_exception(error)
            else:
                for (_, answer), translation in answered:
                    answer.set_result(translation)

    def _next_batch(self) -> tuple[list[tuple[str, Future]], bool]:
        """A batch, and whether it is the last."""
        batch, tokens, until = [], 0, None
        while len(batch) < self.texts and tokens < self.tokens:
            try:
                following = self._waiting.get(timeout=None if until is None else max(0, until - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                return batch, True
            text, answer = following
            until = until or time.monotonic() + self.seconds
            if answer.set_running_or_notify_cancel():
                batch.append((text, answer))
                tokens += self.backend.tokens_of(text)
        return batch, False


# ------------------------------------------------------------------------------------------------------------- server


@dataclass(frozen=True)
class Limits:
    """The most that is taken on."""

    characters: int  # of a text
    texts: int  # of a request
    body: int  # bytes of a request
    seconds: float  # until a request has arrived
    waiting: int  # requests at a time


class TranslationRequest(BaseModel):
    """The body of POST /translate."""

    model_config = ConfigDict(strict=True, extra="forbid")
    texts: list[str]


def make_server(batcher: Batcher, limits: Limits) -> FastAPI:
    """The service as an ASGI application; at its end it closes the batcher."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI):
        yield
        await asyncio.to_thread(batcher.close)

    app = FastAPI(title="Translation", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(AnyHTTPException, _refused)
    app.add_exception_handler(ClientDisconnect, lambda request, error: Response(status_code=400))  # nobody reads it
    app.add_exception_handler(Exception, _failed)
    taken_on = 0  # only the event loop's thread changes it

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok", "waiting": taken_on}

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        nonlocal taken_on
        texts = _texts_of(await _body_of(request, limits), limits)
        if taken_on >= limits.waiting:
            message = f"{limits.waiting:,} requests are waiting, no more can: try again later."
            raise HTTPException(503, message, headers={"Retry-After": "1"})
        taken_on += 1
        try:
            return await _translated(request, batcher, texts)
        finally:
            taken_on -= 1

    return app


async def _translated(request: Request, batcher: Batcher, texts: list[str]) -> Response:
    """The answer to a request, which is given up if the client goes away."""
    answers = asyncio.gather(*(asyncio.wrap_future(batcher.submit(text)) for text in texts))
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        return JSONResponse({"translations": answers.result()})
    finally:
        gone.cancel()
        answers.cancel()  # what is not yet being translated need not be


async def _gone(request: Request) -> None:
    """Returns when the client has left. (What may come before that is an empty rest of the body.)"""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body_of(request: Request, limits: Limits) -> bytes:
    """The body of a request; no more of it is kept than there may be."""
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


def _texts_of(body: bytes, limits: Limits) -> list[str]:
    """The texts of a request.

    Raises:
        HTTPException: It is not as it must be.
    """
    try:
        texts = TranslationRequest.model_validate_json(body).texts
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        status = 400 if first["type"] == "json_invalid" else 422
        message = f'{where + ": " if where else ""}{first["msg"]}. Send {{"texts": ["...", ...]}}.'
        raise HTTPException(status, message) from error
    if not texts:
        raise HTTPException(422, "texts is empty: send one text at least.")
    if len(texts) > limits.texts:
        raise HTTPException(413, f"texts has {len(texts):,} texts: send {limits.texts:,} at a time at most.")
    for number, text in enumerate(texts):
        if len(text) > limits.characters:
            message = f"texts.{number} has {len(text):,} characters: a text may have {limits.characters:,} at most."
            raise HTTPException(413, message)
    return texts


def _refused(request: Request, error: AnyHTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The translation failed; the server's log says why."}, 500)


def command_line() -> argparse.ArgumentParser:
    """The options of the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="run folder, model's folder or USER/NAME; with ctranslate2 an exported folder")
    parser.add_argument("--backend", choices=["torch", "ctranslate2"], default="torch")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0 is all of this machine's")
    parser.add_argument("--port", type=int, default=8000, help="0 is a free one")
    parser.add_argument("--num-beams", type=_positive, help="hypotheses of the beam search; the model's own setting")
    parser.add_argument("--max-tokens", type=_positive, help="tokens of a translation; the model's own limit")
    parser.add_argument("--batch-texts", type=_positive, default=64, help="texts translated together")
    parser.add_argument("--batch-tokens", type=_positive, default=4096, help="tokens after which a batch is full")
    parser.add_argument("--batch-milliseconds", type=float, default=5, help="how long a batch waits for more texts")
    parser.add_argument("--max-characters", type=_positive, default=2000, help="characters of a text, at most")
    parser.add_argument("--max-texts", type=_positive, default=64, help="texts of a request, at most")
    parser.add_argument("--max-body", type=_positive, default=2**20, help="bytes of a request, at most")
    parser.add_argument("--max-seconds", type=float, default=10, help="until a request has arrived, at most")
    parser.add_argument("--max-waiting", type=_positive, default=256, help="requests taken on at a time, at most")
    return parser


def limits_of(arguments: argparse.Namespace) -> Limits:
    """What the options say of limits."""
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: getattr(arguments, f"max_{name}") for name in names})


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of at least 1")
    return int(text)


def main() -> None:
    arguments = command_line().parse_args()
    configure_logging()
    use_memory_well()
    try:
        backend = load_backend(arguments.backend, arguments.model, arguments.num_beams, arguments.max_tokens)
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"serve.py: {' '.join(str(error).split())}") from error
    seconds = arguments.batch_milliseconds / 1000
    batcher = Batcher(backend, arguments.batch_texts, arguments.batch_tokens, seconds)
    # At the end, a client that does not read its answer is waited for no longer than 30 seconds.
    uvicorn.run(
        make_server(batcher, limits_of(arguments)), host=arguments.host, port=arguments.port, access_log=False,
        timeout_graceful_shutdown=30,
    )  # fmt: skip


if __name__ == "__main__":
    main()
