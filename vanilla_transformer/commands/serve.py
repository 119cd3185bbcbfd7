"""A model behind HTTP: as a service for programs, as a page for people."""

import logging
import math

from .process import UsageError, check_engine, check_positive, use_memory_well


def serve(
    model: str,
    *,
    backend: str = "torch",
    device: str = "auto",
    precision: str = "float32",
    quantize: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    num_beams: int | None = None,
    max_tokens: int | None = None,
    batch_texts: int = 64,
    batch_tokens: int = 4096,
    batch_milliseconds: float = 5,
    max_characters: int = 2000,
    max_texts: int = 64,
    max_body: int = 2**20,
    max_seconds: float = 10,
    max_waiting: int = 256,
    max_terms: int = 100,
) -> None:
    """Translates over HTTP, texts of several requests together in one batch, until SIGTERM or Ctrl-C.

    POST /translate takes {"texts": [...]} and answers {"translations": [...]}, each as `translate` makes it. With
    {"texts": [...], "glossary": [{"source": "...", "target": "..."}, ...]} it keeps to the glossary; with
    "confidence": true in the request it also says how sure a calibrated model is. There is no TLS and no
    authentication: put a proxy in front of it for these.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub; with ctranslate2 a folder that `export` has
            written.
        backend: torch or ctranslate2.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        precision: With torch: float32; bfloat16, faster on processors made for it, but rounded differently; or auto,
            the one that a short trial finds faster. Standard error says which.
        quantize: int8: with torch on a CPU, with matrices rounded to 8 bits: faster for large models, slower for small
            ones.
        host: The address to listen on; 0.0.0.0 means all of this machine's.
        port: The port to listen on; 0 means a free one.
        num_beams: Hypotheses kept in beam search; by default the model's own setting.
        max_tokens: Maximum tokens in a translation; by default the model's own limit.
        batch_texts: Texts translated together.
        batch_tokens: Tokens after which a batch is full.
        batch_milliseconds: How long a batch waits for more texts.
        max_characters: Maximum characters in a text.
        max_texts: Maximum texts in a request.
        max_body: Maximum bytes in a request.
        max_seconds: Maximum seconds for a request to arrive.
        max_waiting: Maximum requests accepted at a time.
        max_terms: Maximum translations of terms in a request's glossary.
    """
    check_engine(backend, quantize, precision, device)
    check_positive(num_beams=num_beams, max_tokens=max_tokens, batch_texts=batch_texts, batch_tokens=batch_tokens)
    check_positive(max_characters=max_characters, max_texts=max_texts, max_body=max_body)
    check_positive(max_waiting=max_waiting, max_terms=max_terms)
    if not 0 < max_seconds < math.inf or not 0 <= batch_milliseconds <= 60_000:
        raise UsageError("--max-seconds must be above 0 and finite, --batch-milliseconds from 0 to 60,000.")
    _check_port(port)
    from ..serving import server
    from ..serving.backend import Batcher, load_backend

    use_memory_well()
    limits = server.Limits(max_characters, max_texts, max_body, max_seconds, max_waiting, max_terms)
    options = {"int8": quantize is not None, "precision": precision, "batch_tokens": batch_tokens}
    loaded = load_backend(backend, model, num_beams, max_tokens, device, **options)
    # From now on. They name lines of a file, which a request has not, and may quote its text; clients could fill the
    # log with them.
    logging.getLogger("vanilla_transformer.translation").setLevel(logging.ERROR)
    server.serve(Batcher(loaded, batch_texts, batch_tokens, batch_milliseconds / 1000), limits, host, port)


def demo(model: str, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Shows a page on which the model translates, with its scores, options and attention, until Ctrl-C.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub.
        host: The address to listen on; 0.0.0.0 means all of this machine's.
        port: The port to listen on; by default the first free one from 7860.
    """
    _check_port(port, 1)
    from ..demo import show

    use_memory_well()
    show(model, host, port)


def _check_port(port: int | None, least: int = 0) -> None:
    if port is not None and not least <= port <= 65535:  # uvicorn would end with a traceback
        raise UsageError(f"--port must be from {least} to 65535, not {port}.")
