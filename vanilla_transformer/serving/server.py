"""Translates over HTTP, texts of several requests together in one batch.

Each translation is the one that `vanilla-transformer translate` makes. GET /docs says how to use the service, and
which status a refused request gets. `connections.py` deals with clients that hold connections.

One model, and one thread that runs it: for more, start several behind a load balancer. There is no TLS and no
authentication: put a proxy in front of it for these.
"""

import asyncio
import contextlib
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Literal

from .. import __version__
from ..data.context import Context, contexts_of
from ..translation import Glossary
from .backend import Backend, Batcher, Wish


try:
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import HTMLResponse, JSONResponse
    from pydantic import BaseModel, ConfigDict, ValidationError
    from starlette.exceptions import HTTPException as AnyHTTPException
    from starlette.requests import ClientDisconnect

    from .connections import bounds_here, listen
except ImportError as error:
    raise ImportError('The server needs fastapi and uvicorn: pip install "vanilla-transformer[serve]"') from error


TERM_CHARACTERS = 100  # of a term of a glossary, or its translation


@dataclass(frozen=True)
class Limits:
    """The most that the server accepts."""

    characters: int  # of a text
    texts: int  # of a request
    body: int  # bytes of a request
    seconds: float  # until a request has arrived
    waiting: int  # requests at a time
    terms: int = 100  # targets of a request's glossary, alternatives included


class GlossaryEntry(BaseModel):
    """A term, and what it is to be translated as: alternatives are separated by `|`; none: it stays as it is."""

    model_config = ConfigDict(strict=True, extra="forbid")
    source: str
    target: str | None = None


class TranslationRequest(BaseModel):
    """The body of POST /translate.

    A model that reads preceding sentences takes consecutive texts as a document; a blank one ends a document. `context`
    are the sentences before the first text, which are not translated.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    texts: list[str]
    context: list[str] | None = None
    glossary: list[GlossaryEntry] | None = None
    terms: Literal["hard", "soft"] = "hard"
    confidence: bool = False
    markup: Literal["xml", "html", "placeholders"] | None = None
    keep_numbers: bool = False
    recase: bool = False
    respell: bool = False
    repunctuate: bool = False
    to: str | None = None


class TermUse(BaseModel):
    """A term of a text, what it may be in the translation, and which of these it is; None if it is missing."""

    source: str
    targets: list[str]
    used: str | None


class Translations(BaseModel):
    """Its answer: the translations of the texts, in their order.

    With a glossary it has the terms of each text; with `confidence` the probability that its translation is good (null
    for a blank one), the words of its translation with their probabilities, and the words of the text that the model
    has not learned. With `markup` it says why a text's markup was translated as text, null where it was not. With
    `respell` it has the words of each text that were read as others.
    """

    translations: list[str]
    terms: list[list[TermUse]] | None = None
    confidences: list[float | None] | None = None
    words: list[list[tuple[str, float]]] | None = None
    unknown_words: list[list[str]] | None = None
    broken_markup: list[str | None] | None = None
    respelled: list[dict[str, str]] | None = None


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

    # FastAPI does not move the definitions to the document's root, where pydantic's references point by default.
    place = "#/paths/~1translate/post/requestBody/content/application~1json/schema/$defs/{model}"
    schema = TranslationRequest.model_json_schema(ref_template=place)
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    refusals = {status: {"model": Refusal} for status in _REFUSALS}

    @app.post("/translate", response_model=Translations, responses=refusals, openapi_extra={"requestBody": body})
    async def translate(request: Request) -> Response:
        nonlocal taken_on
        asked = _request_of(await _body_of(request, limits), limits)
        wish = _wish_of(asked, batcher.backend, limits)
        if taken_on >= limits.waiting:
            message = f"{limits.waiting:,} requests are waiting, no more can: try again later."
            raise HTTPException(503, message, headers={"Retry-After": "1"})
        taken_on += 1
        try:
            before = _contexts(asked, batcher.backend.context_sentences)
            return await _translated(request, batcher, list(zip(asked.texts, before, strict=True)), wish)
        finally:
            taken_on -= 1

    return app


def _contexts(asked: TranslationRequest, sentences: int) -> list[Context]:
    """The sentences before each text, at most so many, without their markup."""
    texts, before = asked.texts, asked.context or ()
    if sentences and asked.markup:
        from ..translation.markup import text_of  # only now: few need it

        kind = asked.markup, asked.keep_numbers
        texts, before = ([text_of(each, *kind) for each in group] for group in (texts, before))
    return contexts_of(texts, sentences, before)


async def _translated(request: Request, batcher: Batcher, texts: list[tuple[str, Context]], wish: Wish) -> Response:
    """The answer to a request, unless its client goes away first."""
    waiting = [asyncio.wrap_future(batcher.submit(text, wish, before)) for text, before in texts]
    answers = asyncio.gather(*waiting)
    # If the client is gone, nobody asks for the exception, which asyncio would log.
    answers.add_done_callback(lambda done: done.cancelled() or done.exception())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        found = answers.result()
        return JSONResponse({name: [each[name] for each in found] for name in found[0]})
    finally:
        gone.cancel()
        for each in waiting:  # texts whose turn has not come need not be translated
            each.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has left. (An empty rest of the body may come before that.)"""
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


def _request_of(body: bytes, limits: Limits) -> TranslationRequest:
    """The request in a body. Raises HTTPException with a status, and the rule that its texts break."""
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
    if len(asked.context or ()) > limits.texts:
        raise HTTPException(413, f"context has {len(asked.context):,} texts: send {limits.texts:,} at most.")
    for name, given in (("texts", texts), ("context", asked.context or ())):
        for number, text in enumerate(given):
            if len(text) > limits.characters:
                message = (
                    f"{name}.{number} has {len(text):,} characters: a text may have {limits.characters:,} at most."
                )
                raise HTTPException(413, message)
    return asked


def _wish_of(asked: TranslationRequest, backend: Backend, limits: Limits) -> Wish:
    """The options of a request. Raises HTTPException with a status, and the rule that they break."""
    if asked.confidence and not backend.is_calibrated:
        raise HTTPException(422, "The model is not calibrated, so it has no confidence: leave confidence out.")
    if asked.markup and not backend.has_alignments:
        raise HTTPException(422, "This server cannot align words, as markup needs it: leave markup out.")
    if asked.context and not backend.context_sentences:
        raise HTTPException(422, "The model reads no sentences before a text: leave context out.")
    if asked.keep_numbers and not asked.markup:
        raise HTTPException(422, "keep_numbers is for texts with markup: say which.")
    if asked.recase and asked.markup:
        raise HTTPException(422, "recase changes the words that markup aligns: leave one of them out.")
    if asked.repunctuate and asked.markup:
        raise HTTPException(422, "repunctuate adds a sign that markup would align: leave one of them out.")
    if asked.respell and asked.markup:
        raise HTTPException(422, "respell would change markup, too: leave one of them out.")
    if asked.respell and not backend.has_words:
        raise HTTPException(422, "This server has no words to correct spelling by, or no rapidfuzz: leave respell out.")
    if asked.to not in (backend.languages or (None,)):
        choice = f"say one of {', '.join(backend.languages)}" if backend.languages else "leave it out"
        wrong = "is missing" if asked.to is None else f"the model does not translate into {asked.to!r:.60}"
        raise HTTPException(422, f"to: {wrong}: {choice}.")
    names = {each.name for each in fields(Wish)} - {"glossary", "terms"}
    wish = Wish(**{name: getattr(asked, name) for name in names})
    if asked.terms == "soft" and asked.glossary is None:
        raise HTTPException(422, "terms says how to follow a glossary: send one, or leave terms out.")
    if not asked.glossary:
        return wish
    if asked.terms == "soft" and not backend.knows_terms:
        raise HTTPException(422, "The model was not trained with terms, so it has no soft ones: leave terms out.")
    if asked.terms == "hard" and not backend.has_beams:
        raise HTTPException(422, "This server has no beam search of torch, and so no glossary: leave it out.")
    pairs = [(entry.source, entry.target) for entry in asked.glossary]
    if sum(1 + (target or "").count("|") for _, target in pairs) > limits.terms:
        raise HTTPException(413, f"glossary has too many terms: send {limits.terms:,} at most, alternatives included.")
    if max(len(term or "") for pair in pairs for term in pair) > TERM_CHARACTERS:
        raise HTTPException(413, f"glossary has a term of more than {TERM_CHARACTERS} characters: make it shorter.")
    try:
        return replace(wish, glossary=Glossary(pairs), terms=asked.terms)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error


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
<pre>curl http://HOST:PORT/translate -d '{{"texts": ["The dog is old."]}}'
{{"translations":["Der Hund ist alt."]}}</pre>
<p>With a glossary the answer says which of its terms each translation has.</p>
<pre>{{"texts": ["The dog is old."], "glossary": [{{"source": "dog", "target": "Hund|Köter"}}]}}
{{"translations":["Der Hund ist alt."],"terms":[[{{"source":"dog","targets":["Hund","Köter"],"used":"Hund"}}]]}}</pre>
<p>With <code>"terms": "soft"</code> beside the glossary the model reads the terms in the text, and mostly follows
them; it must have been trained for this. Without it, the search finds only translations that have the terms.</p>
<p>With <code>"confidence": true</code> beside the texts the answer also has <code>confidences</code>, the probability
that each translation is good; <code>words</code>, those of each translation with their probabilities; and
<code>unknown_words</code>, those of each text that the model has not learned. The model must be calibrated.</p>
<p>With <code>"markup": "html"</code> (or <code>"xml"</code>, <code>"placeholders"</code>) the tags and placeholders of
the texts are in their translations; with <code>"keep_numbers": true</code> so are their numbers. Where the markup of a
text is broken, <code>broken_markup</code> says why, and all of it was translated as text.</p>
<p>With <code>"recase": true</code> texts in capitals, and headlines, are translated in sentence case, and the
translations have their capitals.</p>
<p>With <code>"respell": true</code> words that the model has not learned are read as the closest ones that it has;
<code>respelled</code> says which.</p>
<p>With <code>"repunctuate": true</code> texts that end without punctuation are translated with a full stop, which their
translations lose again.</p>
<p>With a model of several target languages <code>"to": "fr"</code> says which.</p>
<p>A model that was trained with context treats the texts of a request as consecutive sentences of a document; a blank
text ends a document. <code>"context": ["...", ...]</code> gives the sentences before the first text. They are not
translated.</p>
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
    422: "The JSON has another form, or asks for something that this server or its model cannot do.",
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
        (f"{limits.terms:,}", "translations of terms in the glossary of a request"),
    ]
    return _PAGE.format(limits=rows(bounds), refusals=rows(_REFUSALS.items()))
