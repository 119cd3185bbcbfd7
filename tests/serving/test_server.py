"""The server gives every client its own translations, refuses excessive requests and shuts down cleanly."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event

import httpx
import pytest
import torch
import uvicorn
from fastapi import HTTPException

from vanilla_transformer import (
    Glossary,
    Punctuation,
    TokenizerSettings,
    learn_tokenizer,
    phrasebook,
    quantize_int8,
    translate,
)
from vanilla_transformer.data.known_words import WordList
from vanilla_transformer.data.terms import TERM_MARKERS
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration, sha256_of_weights
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.serving.backend import Backend, Batcher, Wish, load_backend
from vanilla_transformer.serving.connections import BoundedConnection, Bounds
from vanilla_transformer.serving.server import Limits, TranslationRequest, _wish_of, make_server

from ..model.conftest import build_model, sharpened
from ..scripts.conftest import figures_of
from ..system.conftest import output_of
from .conftest import connected, load, refusals, serving


LIMITS = Limits(characters=3000, texts=16, body=40_000, seconds=2, waiting=8)
OPTIONS = [word for name, value in vars(LIMITS).items() for word in (f"--max-{name}", str(value))]
SEARCH_LIMITS = ["--max-tokens", "30"]  # the model never ends a translation by itself


# ------------------------------------------------------------------------------------------------------ the batcher


class Translator:
    """Reverses texts. It records its batches and their wishes, and holds the first until `may_go_on` is set."""

    def __init__(self):
        self.batches, self.wishes, self.begun, self.may_go_on = [], [], Event(), Event()

    def __call__(self, texts, wish, contexts):
        self.batches.append(list(texts))
        self.wishes.append(wish)
        self.begun.set()
        assert self.may_go_on.wait(timeout=20)
        if "bad" in texts:
            raise ValueError("a bad text")
        return [text[::-1] for text in texts]


@pytest.fixture
def translator():
    return Translator()


@pytest.fixture
def batcher(translator):
    """A batcher whose thread is busy with a first batch until `translator.may_go_on` is set."""
    batcher = Batcher(Backend(translator, len), texts=3, tokens=10, seconds=0.05)
    batcher.submit("first")
    assert translator.begun.wait(timeout=20)
    yield batcher
    translator.may_go_on.set()
    batcher.close()


def answers(futures: list[Future]) -> list[str]:
    return [future.result(timeout=20) for future in futures]


def test_batch_is_limited_by_texts_and_tokens(batcher, translator):
    futures = [batcher.submit(text) for text in ("ab", "cd", "ef", "gh", "a long text", "ij", "kl")]
    translator.may_go_on.set()
    assert answers(futures) == ["ba", "dc", "fe", "hg", "txet gnol a", "ji", "lk"]
    assert translator.batches == [["first"], ["ab", "cd", "ef"], ["gh", "a long text"], ["ij", "kl"]]


def test_batch_waits_briefly_for_more_texts(translator):
    translator.may_go_on.set()
    batcher = Batcher(Backend(translator, len), texts=2, tokens=10, seconds=1.0)
    assert answers([batcher.submit("ab"), batcher.submit("cd")]) == ["ba", "dc"]
    assert answers([batcher.submit("ef")]) == ["fe"]
    batcher.close()
    assert translator.batches == [["ab", "cd"], ["ef"]]


def test_cancelled_texts_are_not_translated(batcher, translator):
    futures = [batcher.submit(text) for text in ("ab", "cd")]
    assert futures[0].cancel()
    translator.may_go_on.set()
    assert answers(futures[1:]) == ["dc"]
    assert translator.batches == [["first"], ["cd"]]


def test_different_wishes_are_batched_separately(translator):
    translator.may_go_on.set()
    batcher = Batcher(Backend(translator, len), texts=6, tokens=99, seconds=1)
    none, sure, first, second = (
        Wish(),
        Wish(confidence=True),
        Wish(Glossary([("a", "b")])),
        Wish(Glossary([("a", "b")])),
    )
    asked = (("ab", none), ("cd", first), ("ef", second), ("gh", first), ("ij", none), ("kl", sure))
    assert answers([batcher.submit(*each) for each in asked]) == ["ba", "dc", "fe", "hg", "ji", "lk"]
    batcher.close()
    assert translator.batches == [["ab", "ij"], ["cd", "gh"], ["ef"], ["kl"]]
    assert translator.wishes == [none, first, second, sure]


def test_failure_is_reported_and_survived(batcher, translator):
    failing = [batcher.submit("bad"), batcher.submit("ab"), batcher.submit("cd")]
    following = batcher.submit("ef")
    translator.may_go_on.set()
    assert [str(future.exception(timeout=20)) for future in failing] == ["a bad text"] * 3
    assert answers([following]) == ["fe"]


def test_closing_waits_for_the_answers(batcher, translator):
    futures = [batcher.submit(str(number)) for number in range(20)]
    translator.may_go_on.set()
    batcher.close()
    assert all(future.done() for future in futures)


# ------------------------------------------------------------------------------------------------------- the server


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [row["en"] for row in islice(phrasebook("test"), 24)]


def by_command_line(folder: Path, texts: list[str]) -> list[str]:
    output = output_of("translate", "--model", folder, *SEARCH_LIMITS, "--json", *texts)
    return [json.loads(line)["translations"][0]["text"] for line in output.rstrip("\n").split("\n")]


@pytest.fixture(scope="module")
def expected(random_translator, sources) -> dict[str, str]:
    """The command line's translation of each source."""
    found = by_command_line(random_translator, sources)
    assert len(set(found)) > len(sources) - 3  # so that a swapped answer shows
    return dict(zip(sources, found, strict=True))


@pytest.fixture(scope="module")
def server(random_translator):
    with serving(str(random_translator), *OPTIONS, *SEARCH_LIMITS) as (url, _):
        yield url


def post(url: str, texts: list[str], **options) -> httpx.Response:
    return httpx.post(f"{url}/translate", json={"texts": texts}, timeout=60, trust_env=False, **options)


def wait_for_queue_size(url: str, count: int) -> None:
    deadline = time.monotonic() + 20
    while (health := httpx.get(f"{url}/health", timeout=60, trust_env=False).json())["waiting"] != count:
        assert health["status"] == "ok"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_several_texts_match_the_command_line(server, expected, sources):
    answer = post(server, ["", *sources[:8], " "])
    assert answer.status_code == 200
    assert answer.json() == {"translations": ["", *(expected[source] for source in sources[:8]), ""]}


def test_confidences_match_the_command_line(server, random_translator, expected, sources, tmp_path):
    asked = {"texts": ["", *sources[:3], "日本"], "confidence": True}
    refused = httpx.post(f"{server}/translate", json=asked, timeout=60, trust_env=False)
    assert (refused.status_code, "not calibrated" in refused.json()["error"]) == (422, True)
    model = shutil.copytree(random_translator, tmp_path / "model")
    calibration = Calibration(50.0, 0.5, {"mean_surprisal": -0.5}, weights_sha256=sha256_of_weights(model))
    (model / "confidence.json").write_text(json.dumps(calibration.to_json()), encoding="utf-8")
    by_command = output_of("translate", "--model", model, *SEARCH_LIMITS, "--json", "--confidence", *asked["texts"])
    best = [json.loads(line)["translations"][0] for line in by_command.splitlines()]
    with serving(str(model), *OPTIONS, *SEARCH_LIMITS) as (url, _):
        found = httpx.post(f"{url}/translate", json=asked, timeout=60, trust_env=False).json()
        assert post(url, sources[:1]).json() == {"translations": [expected[sources[0]]]}
    assert found["translations"] == [each["text"] for each in best]
    assert found["confidences"] == [None, *(pytest.approx(each["confidence"], abs=1e-5) for each in best[1:])]
    words = [[[word["word"], pytest.approx(word["probability"], rel=1e-3)] for word in each["words"]] for each in best]
    assert found["words"] == words
    assert found["unknown_words"] == [[], [], [], [], ["日本"]]


def test_long_text_matches_the_command_line(random_translator, tmp_path):
    text = " ".join(row["en"] for row in islice(phrasebook("test"), 45))
    [found] = by_command_line(random_translator, [text])
    assert len(found) > 2 * 30  # translated in several pieces
    with serving(str(random_translator), *OPTIONS, *SEARCH_LIMITS, log=tmp_path / "log") as (url, _):
        assert post(url, [text]).json() == {"translations": [found]}
    assert "at a stretch" not in (tmp_path / "log").read_text()


def test_concurrent_clients_get_their_own_translations(server, expected, sources):
    row = asyncio.run(load(server, 8, sources * 2, [expected[source] for source in sources * 2]))
    assert (row.right, row.wrong, row.losses) == (48, 0, [])
    assert 0 < row.p50 <= row.p95 <= row.p99


def test_invalid_and_oversized_requests_are_refused(server, expected, sources):
    for sent, (status, found, said) in refusals(server, LIMITS).items():
        assert found == status, sent
        assert said, sent
    for method, path, status in (("GET", "translate", 405), ("GET", "nothing", 404)):
        answer = httpx.request(method, f"{server}/{path}", trust_env=False)
        assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
    for largest in (["a" * LIMITS.characters], ["a"] * LIMITS.texts):
        assert post(server, largest).status_code == 200
    assert post(server, sources[:1]).json()["translations"] == [expected[sources[0]]]


def test_server_describes_itself(server, sources):
    with httpx.Client(base_url=server, trust_env=False) as client:
        assert "Translation" in client.get("/").json()["service"]
        page = client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "POST /translate" in page.text
        assert f"{LIMITS.characters:,}" in page.text
        assert not re.search("<script|src=|https?://(?!HOST:PORT)", page.text)  # the page loads nothing else
        described = client.get("/openapi.json").json()
        assert {"/", "/health", "/translate"} == set(described["paths"])
        body = described["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["required"] == ["texts"]
        for place in re.findall(r'"\$ref": ?"#/(.*?)"', json.dumps(described)):
            found = described
            for name in place.split("/"):
                found = found[name.replace("~1", "/").replace("~0", "~")]
            assert found["properties"], place


def test_excess_requests_are_told_to_retry_later(server, expected, sources):
    with ThreadPoolExecutor(24) as clients:
        found = list(clients.map(lambda _: post(server, sources[:16]), range(24)))
    refused = [answer for answer in found if answer.status_code == 503]
    assert refused
    assert all(answer.headers["retry-after"] == "1" and "waiting" in answer.json()["error"] for answer in refused)
    right = {"translations": [expected[source] for source in sources[:16]]}
    served = [answer for answer in found if answer.status_code == 200]
    assert len(served) == 24 - len(refused) >= LIMITS.waiting
    assert all(answer.json() == right for answer in served)


@contextlib.contextmanager
def listening(batcher, translator, **options):
    """A server in a thread: gives its address, and the pool of threads. At the end the translator may go on."""
    options = {"port": 0, "log_level": "error", **options}
    server = uvicorn.Server(uvicorn.Config(make_server(batcher, LIMITS), **options))
    with ThreadPoolExecutor() as threads:
        done = threads.submit(server.run)
        while not server.started:
            time.sleep(0.005)
        try:
            yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname()), threads
        finally:
            translator.may_go_on.set()
            server.should_exit = True
            done.result(timeout=20)


def test_disconnecting_clients_leave_the_queue(batcher, translator):
    """Those whose texts wait behind a long batch, too: nobody reads the answers, so they are not translated."""
    body = json.dumps({"texts": ["ab", "cd"]}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with listening(batcher, translator) as (url, _):
        with contextlib.ExitStack() as stack:
            for sent in (head, head + body[:9], head + body, head + body):
                stack.enter_context(connected(url)).sendall(sent)
            wait_for_queue_size(url, 2)
        wait_for_queue_size(url, 0)
        last = batcher.submit("ef")
        assert len(translator.batches) == 1
    assert answers([last]) == ["fe"]
    assert translator.batches == [["first"], ["ef"]]


def test_connection_too_many_is_told_to_come_later(batcher, translator):
    http = partial(BoundedConnection, Bounds(seconds=5, connections=1, backlog=8))
    with listening(batcher, translator, http=http) as (url, threads):
        answered = threads.submit(post, url, ["ab"])
        while not batcher._waiting.qsize():
            time.sleep(0.005)
        for _ in range(3):  # a refused one makes no room for the next
            refused = post(url, ["cd"])
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        translator.may_go_on.set()
        answered.result(timeout=20)


def test_texts_of_a_failed_request_leave_the_queue(batcher, translator, monkeypatch):
    fail = type(translator).__call__

    def waiting_after_failure(self, *arguments):
        try:
            return fail(self, *arguments)
        except ValueError:
            self.may_go_on.clear()
            raise

    monkeypatch.setattr(type(translator), "__call__", waiting_after_failure)
    with listening(batcher, translator, log_level="critical") as (url, threads):
        asked = threads.submit(post, url, ["bad", "ab", "cd", *["ef"] * 12])
        wait_for_queue_size(url, 1)
        translator.may_go_on.set()
        assert asked.result(timeout=20).status_code == 500
        last = batcher.submit("gh")
    assert answers([last]) == ["hg"]
    assert translator.batches in (
        [["first"], ["bad", "ab", "cd"], ["ef"] * 3, ["gh"]],  # three were under way
        [["first"], ["bad", "ab", "cd"], ["gh"]],
    )


def test_pending_requests_are_answered_before_shutdown(random_translator, expected, sources):
    # It takes longer than a client may take to send or to read.
    waiting_for_more = [*SEARCH_LIMITS, "--batch-milliseconds", "3000", "--max-seconds", "1"]
    with serving(str(random_translator), *waiting_for_more) as (url, process), ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(post, url, sources[:2]) for _ in range(8)]
        wait_for_queue_size(url, 8)
        process.send_signal(signal.SIGTERM)
        right = {"translations": [expected[source] for source in sources[:2]]}
        assert [answer.result().json() for answer in answers] == [right] * 8
        process.wait(timeout=20)
        with pytest.raises(httpx.ConnectError):
            post(url, sources[:1])


def test_one_translation_is_searched_for_whatever_the_model_says(random_translator, tmp_path):
    model = shutil.copytree(random_translator, tmp_path / "model")
    saved = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**saved, "num_beams": 4, "num_return_sequences": 4}))
    [answer] = load_backend("torch", str(model), num_beams=2, max_tokens=3).translate(["No."], Wish(), None)
    assert answer["translations"]


def test_glossaries_and_markup_are_applied_and_checked(random_translator, sources, tmp_path):
    text, entries = sources[0], [{"source": sources[0].split()[0], "target": "Hund|Katze"}, {"source": "zebra"}]
    lines = tmp_path / "glossary.tsv"
    lines.write_text(f"{sources[0].split()[0]}\tHund|Katze\nzebra\t\n", encoding="utf-8")
    words = ("--num-beams", "3", *SEARCH_LIMITS)
    found = output_of("translate", "--model", random_translator, *words, "--glossary", lines, "--json", text, "x")
    expected = [json.loads(line)["translations"][0] for line in found.splitlines()]
    assert expected[0]["terms"] == [
        {"source": text.split()[0], "targets": ["Hund", "Katze"], "used": expected[0]["terms"][0]["used"]}
    ]
    assert expected[0]["terms"][0]["used"] in ("Hund", "Katze")
    with serving(str(random_translator), *words, "--max-terms", "3") as (url, _):

        def ask(glossary):
            body = {"texts": [text, "x"], "glossary": glossary}
            return httpx.post(f"{url}/translate", json=body, timeout=60, trust_env=False)

        assert ask(entries).json() == {
            "translations": [each["text"] for each in expected],
            "terms": [each["terms"] for each in expected],
        }
        assert set(ask([]).json()) == set(ask(None).json()) == {"translations"}
        for wrong, status, said in (
            ([{"source": "a", "target": "b|c|d|e"}], 413, "3 at most"),
            ([{"source": "a"}] * 4, 413, "3 at most"),
            ([{"source": "a" * 101}], 413, "100 characters"),
            ([{"source": "a"}, {"source": "A"}], 422, "entry 2: 'A' is in entry 1 already"),
            ([{"source": " "}], 422, "empty source term"),
            ([{"target": "a"}], 422, "glossary.0.source"),
            ("dog", 422, "glossary"),
        ):
            answer = ask(wrong)
            assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
        for mode, said in (("soft", "not trained with terms"), ("some", "terms")):
            body = {"texts": [text], "glossary": entries, "terms": mode}
            answer = httpx.post(f"{url}/translate", json=body, timeout=60, trust_env=False)
            assert (answer.status_code, said in answer.json()["error"]) == (422, True), answer.text
        body = {"texts": [f"<b>{text}</b> {{x}} <i></i>", "<b>x", "1"], "markup": "html", "keep_numbers": True}
        answer = httpx.post(f"{url}/translate", json={**body, "glossary": entries}, timeout=60, trust_env=False).json()
        assert answer["broken_markup"] == [None, "<b> is not closed in this line", None]
        first, second, third = answer["translations"]
        assert re.fullmatch(r"<b>[^<>]*</b>[^<>]*\{x\}[^<>]*<i></i>[^<>]*", first)
        assert answer["terms"][0][0]["used"] in first
        assert "<" not in second
        assert third == "1"
        for wrong, said in (
            ({"markup": "sgml"}, "markup"),
            ({"markup": None}, "keep_numbers is for texts with markup"),
            ({"terms": "soft"}, "terms says how to follow a glossary"),
            ({"recase": True}, "recase changes the words that markup aligns"),
            ({"repunctuate": True}, "repunctuate adds a sign that markup would align"),
            ({"respell": True}, "respell would change markup"),
            ({"respell": True, "markup": None, "keep_numbers": False}, "no words to correct spelling by"),
        ):
            answer = httpx.post(f"{url}/translate", json={**body, **wrong}, timeout=60, trust_env=False)
            assert (answer.status_code, said in answer.json()["error"]) == (422, True), answer.text
    with serving(str(random_translator), "--num-beams", "1", *SEARCH_LIMITS) as (url, _):
        answer = httpx.post(
            f"{url}/translate", json={"texts": [text], "glossary": entries}, timeout=60, trust_env=False
        )
        assert (answer.status_code, "no glossary" in answer.json()["error"]) == (422, True)


def test_soft_terms_match_the_library(sources, tmp_path):
    tokenizer = learn_tokenizer(sources * 2, TokenizerSettings(vocab_size=300), tags=TERM_MARKERS)
    model = sharpened(build_model(seed=1, vocab_size=len(tokenizer)))
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path)
    soft = {"glossary": Glossary([(sources[0].split()[0], "Hund")]), "terms": "soft"}
    backend = load_backend("torch", str(tmp_path), num_beams=1, max_tokens=20)
    assert (backend.has_beams, backend.knows_terms) == (False, True)
    expected = translate(model, tokenizer, sources, num_beams=1, max_new_tokens=20, **soft)
    answers = backend.translate(sources, Wish(**soft))
    assert [each["translations"] for each in answers] == expected
    assert [len(each["terms"]) for each in answers] == [len(soft["glossary"].find(text)) for text in sources]


def test_requests_say_which_language_they_want(sources, tmp_path):
    tokenizer = learn_tokenizer(sources * 2, TokenizerSettings(vocab_size=300), tags=["<2de>", "<2fr>"])
    model = sharpened(build_model(seed=1, vocab_size=len(tokenizer)))
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path)
    expected = {to: translate(model, tokenizer, sources, num_beams=1, max_new_tokens=20, to=to) for to in ("de", "fr")}
    assert expected["de"] != expected["fr"]
    with serving(str(tmp_path), "--num-beams", "1", "--max-tokens", "20") as (url, _):
        for to, translations in expected.items():
            answer = httpx.post(f"{url}/translate", json={"texts": sources, "to": to}, timeout=60, trust_env=False)
            assert answer.json()["translations"] == translations
        for to, said in (({}, "is missing"), ({"to": "es"}, "the model does not translate into 'es'")):
            answer = httpx.post(f"{url}/translate", json={"texts": sources, **to}, timeout=60, trust_env=False)
            assert (answer.status_code, said in answer.json()["error"]) == (422, True)


def test_typos_capitals_and_punctuation_are_repaired(random_translator, sources, tmp_path):
    model = shutil.copytree(random_translator, tmp_path / "model")
    words = WordList()
    words.read(" ".join(["The dog sees the house."] * 3))
    words.save(model, load_model(model)[1])
    with serving(str(model), *SEARCH_LIMITS) as (url, _):

        def ask(*texts, **asked):
            body = {"texts": texts, **asked}
            return httpx.post(f"{url}/translate", json=body, timeout=60, trust_env=False).json()

        expected = ask("The dog sees the house.", "")["translations"]
        typed = "The dgo sees teh house."
        assert ask(typed, "", respell=True) == {
            "translations": expected,
            "respelled": [{"dgo": "dog", "teh": "the"}, {}],
        }
        assert ask(typed.upper(), respell=True, recase=True) == {
            "translations": [expected[0].upper()],
            "respelled": [{"dgo": "dog", "teh": "the"}],
        }
        bare = ask("The dog sees the house", "A?", repunctuate=True)["translations"]
        assert bare == [Punctuation().take_off(expected[0]), *ask("A?")["translations"]]
        glossary = [{"source": "dgo", "target": "Dgo"}]
        assert ask(typed, respell=True, glossary=glossary)["respelled"] == [{"teh": "the"}]


def test_ctranslate2_backend_matches_the_library(random_translator, sources, tmp_path):
    output_of("export", random_translator, "--output", tmp_path / "exported")
    expected = translate(*load_model(random_translator), sources, num_beams=1, max_new_tokens=30)
    backend = load_backend("ctranslate2", str(tmp_path / "exported"), num_beams=1, max_tokens=30)
    for texts, translations in ((["", *sources, " "], ["", *expected, ""]), ([""], [""])):
        assert backend.translate(texts, Wish()) == [{"translations": text} for text in translations]
    assert backend.has_alignments is False
    with pytest.raises(ValueError, match="max_new_tokens is 5,000, "):  # before any request
        load_backend("ctranslate2", str(tmp_path / "exported"), num_beams=1, max_tokens=5000)
    with pytest.raises(HTTPException, match="cannot align words, as markup needs it: leave markup out"):
        _wish_of(TranslationRequest(texts=["x"], markup="xml"), backend, LIMITS)


def test_rounded_models_match_the_library(random_translator, sources, tmp_path):
    for options, rounded in (
        ({"precision": "bfloat16"}, lambda model: model.to(torch.bfloat16)),
        ({"int8": True}, quantize_int8),
    ):
        model, tokenizer = load_model(random_translator)
        exact = translate(model, tokenizer, sources, num_beams=1, max_new_tokens=30)
        rounded(model)
        expected = translate(model, tokenizer, sources, num_beams=1, max_new_tokens=30)
        backend = load_backend("torch", str(random_translator), num_beams=1, max_tokens=30, **options)
        assert [each["translations"] for each in backend.translate(sources, Wish())] == expected != exact
    log = tmp_path / "log"
    with serving(str(random_translator), "--precision", "auto", *SEARCH_LIMITS, log=log):
        assert "Translates in " in log.read_text(encoding="utf-8")


def test_failed_start_is_explained(tmp_path):
    for kind, said in (("torch", "no model in"), ("ctranslate2", "write one with `export`")):
        with pytest.raises(FileNotFoundError, match=said):
            load_backend(kind, str(tmp_path))
    for options, said in (
        ("--max-texts 0", "--max-texts must be at least 1"),
        ("--max-seconds 0", "must be above 0"),
        ("--batch-milliseconds 1e13", "must be above 0 and finite, --batch-milliseconds from 0 to 60,000"),
        ("--precision auto --quantize int8", "has a precision of its own"),
        ("--precision bfloat16 --backend ctranslate2", "--precision is for --backend torch"),
    ):
        with pytest.raises(RuntimeError, match=said), serving("model", *options.split()):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_load_test_script_reports_correct_answers(backend, random_translator, tmp_path):
    folder = random_translator
    if backend == "ctranslate2":
        folder = tmp_path / "exported"
        output_of("export", random_translator, "--output", folder)
    options = [folder, "--backend", backend, *SEARCH_LIMITS, "--requests", "70"]
    found, printed = figures_of("benchmarks/server_load", tmp_path, *options)
    assert found["distinct_translations"] > 35
    assert [(row["clients"], row["right"]) for row in found["load"]] == [(1, 70), (8, 70), (64, 70)]
    assert "| 64 | 70 | 70 | 0 | 0 |" in printed


def test_context_comes_only_from_the_same_request(translator):
    """Earlier texts of the request are context; texts of another request are not, even in the same batch."""
    read, translate = [], translator.__call__

    def noting(texts, wish, contexts):
        read.extend(zip(texts, contexts, strict=True))
        return [{"translations": text} for text in translate(texts, wish, contexts)]

    translator.may_go_on.set()

    async def ask(client, **body):
        return await client.post("/translate", json=body)

    async def ask_all(backend):
        batcher = Batcher(backend, texts=20, tokens=999, seconds=0.3)
        transport = httpx.ASGITransport(app=make_server(batcher, LIMITS))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers = await asyncio.gather(
                ask(client, texts=["a", "b", " ", "c"], context=["x", "y"]),
                ask(client, texts=["d", "e"]),
                ask(client, texts=["f"], context=["x" * (LIMITS.characters + 1)]),
                ask(client, texts=["f"], context=["x"] * (LIMITS.texts + 1)),
                ask(client, texts=["<b>g</b>", "h", "<br/>", "i"], context=["<i>z</i>"], markup="html"),
            )
        batcher.close()
        return answers

    found = asyncio.run(ask_all(Backend(noting, len, context_sentences=1, has_alignments=True)))
    assert [answer.status_code for answer in found] == [200, 200, 413, 413, 200]
    assert found[0].json() == {"translations": ["a", "b", " ", "c"]}
    expected = [("a", ("y",)), ("b", ("a",)), (" ", ()), ("c", ()), ("d", ()), ("e", ("d",))]
    expected += [("<b>g</b>", ("z",)), ("h", ("g",)), ("<br/>", ()), ("i", ())]
    assert sorted(read) == sorted(expected)
    read.clear()
    found = asyncio.run(ask_all(Backend(noting, len)))
    assert [answer.status_code for answer in found] == [422, 200, 413, 413, 422]
    assert found[0].json() == {"error": "The model reads no sentences before a text: leave context out."}
    assert {context for _, context in read} == {()}
