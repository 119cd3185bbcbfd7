"""The page translates, shows attention and reports errors, both to programs and in a browser."""

import base64
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import unescape
from itertools import combinations
from pathlib import Path

import httpx
import pytest

from vanilla_transformer.attention.weights import attentions
from vanilla_transformer.data.known_words import WordList
from vanilla_transformer.data.terms import TERM_MARKERS
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration, sha256_of_weights
from vanilla_transformer.plots import plot_attention_maps
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import Glossary, translate_lines
from vanilla_transformer.translation.likelihood import likelihoods

from ..model.conftest import build_model, sharpened
from ..system.conftest import RECIPE, command
from ..warm_python import CLI, PACKAGE


TEXT = "The old dog is looking for his red ball."
BEAM, SAMPLING = "beam search", "sampling"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def demo():
    """Imported only here: importing gradio takes seconds, which every test process would spend."""
    from vanilla_transformer import demo

    return demo


@contextmanager
def page_of(process):
    """The URL at which a process serves the page; it must print nothing else."""
    try:
        for line in process.stdout:
            if found := re.search(r"local URL: +(http://\S+)", line):
                yield found[1]
                process.kill()
                assert process.stdout.read() == ""
                return
        raise RuntimeError("the page was not shown")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """Where the process of the page would put its temporary files."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def url(random_translator, temporary, tmp_path_factory):
    model = shutil.copytree(random_translator, tmp_path_factory.mktemp("with_recipe") / "model")
    text = RECIPE.replace("examples: []", "examples: [The dog is old.]")
    (model / "recipe.yaml").write_text(text, encoding="utf-8")
    words = WordList()
    words.read(" ".join([TEXT] * 3))
    words.save(model, load_model(model)[1])
    environment = {**UNBUFFERED, "TMPDIR": str(temporary)}
    with page_of(PACKAGE.start(CLI, "demo", model, environment=environment, stderr=None)) as url:
        yield url
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


@pytest.fixture(scope="module")
def client(url, tmp_path_factory):
    from gradio_client import Client

    return Client(url, verbose=False, analytics_enabled=False, download_files=tmp_path_factory.mktemp("downloads"))


def asked(client, text=TEXT, search=BEAM, beams=3, alpha=0.6, temperature=1, top_k=0, top_p=1, seed=0, tokens=8, n=2,
          terms="", **more):  # fmt: skip
    """The best translation and the rows of the table; if the text may be changed, also the text that was read."""
    options = (search, beams, alpha, temperature, top_k, top_p, seed, tokens, n, terms)
    best, table, read = client.predict(text, *options, **more, api_name="/translate")
    assert read["visible"] == (read["value"] != text)
    is_read = more.keys() & {"recase", "respell", "repunctuate"}
    return (best, table["data"], read["value"]) if is_read else (best, table["data"])


def test_page_translates_like_the_library(client, random_translator):
    options = {"num_beams": 3, "length_penalty": 0.2, "num_return_sequences": 2, "max_new_tokens": 8}
    model, tokenizer = load_model(random_translator)
    [expected] = translate_lines(model, tokenizer, [[TEXT]], return_dict_in_generate=True, **options)
    best, rows = asked(client, alpha=0.2)
    assert best == expected[0].text
    assert [row[2] for row in rows] == [each.text for each in expected]
    assert [float(row[1]) for row in rows] == pytest.approx([each.score for each in expected], abs=1e-3)


def test_glossary_terms_appear_in_every_translation(client):
    best, rows = asked(client, terms="dog = Hund|Tier\n\nball =", beams=6, tokens=20)
    for text in (best, *(row[2] for row in rows)):
        assert re.search("Hund|Tier", text)
        assert "ball" in text


def test_markup_is_restored_and_shown_as_text(client, demo, random_translator):
    script = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    best, rows = asked(client, text=f"<b>{TEXT}</b> {script} {{name}}", markup="html")
    for text in (best, *(row[2] for row in rows)):
        assert [text.count(each) for each in ("<b>", "</b>", script, "{name}")] == [1, 1, 1, 1]
    assert not re.search("<script|<img", client.predict(True, api_name="/confidence"))
    config = {each["props"].get("label"): each for each in client.config["components"]}
    assert (config["Translations"]["props"]["datatype"], config["Translations"]["type"]) == ("str", "dataframe")
    assert (config["Translation into German"]["type"], config["Markup"]["props"]["value"]) == ("textbox", "none")
    broken, _ = asked(client, text=f"<b>{TEXT} {script}", markup="html")
    assert "<" not in broken
    page = demo.Demo(random_translator)
    with pytest.warns(UserWarning, match="translated as text, not as html") as shown:
        *_, pair = page.translate(f"<b>{TEXT} {script}", BEAM, 2, 1, 1, 0, 1, 0, 8, 1, markup="html")
    assert not any("<" in str(each.message) for each in shown)
    assert pair[0] == f"<b>{TEXT} {script}"


def test_capitals_typos_and_punctuation_are_repaired(client):
    best, rows = asked(client)
    typed = TEXT.replace("old dog", "odl dgo")
    assert asked(client, text=typed, respell=True) == (best, rows, TEXT)
    found, capitals, read = asked(client, text=typed.upper(), recase=True, respell=True)
    assert (found, read) == (best.upper(), TEXT)
    assert [row[2] for row in capitals] == [row[2].upper() for row in rows]
    assert asked(client, text=TEXT, recase=True, respell=True) == (best, rows, TEXT)
    bare = [asked(client, text=each, repunctuate=True) for each in (TEXT.removesuffix("."), TEXT)]
    assert bare[0] == (best.removesuffix("."), [[*row[:2], row[2].removesuffix(".")] for row in rows], TEXT)
    assert bare[1] == (best, rows, TEXT)
    kept = asked(client, text=typed, respell=True, terms="odl = old", tokens=20, beams=6)
    assert kept[2] == TEXT.replace("old", "odl")


def test_seed_makes_sampling_reproducible(client):
    seeded = [asked(client, search=SAMPLING, seed=seed, n=3) for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]
    assert [row[:2] for row in seeded[0][1]] == [[1, ""], [2, ""], [3, ""]]
    assert asked(client, search=SAMPLING) != asked(client, search=SAMPLING)
    unseeded = []
    for _ in range(2):
        asked(client, search=SAMPLING, seed=5)
        unseeded.append(asked(client, search=SAMPLING))
    assert unseeded[0] != unseeded[1]  # nobody's seed is another's
    assert asked(client, search=SAMPLING, top_k=1, n=1)[0] == asked(client, beams=1, n=1)[0]


def test_invalid_input_is_reported(client):
    from gradio_client.exceptions import AppError

    for options, message in (
        ({"text": " \n"}, "no text"),
        ({"text": "a " * 600}, "1,200 characters: 1,000 at most"),
        ({"beams": 2, "n": 3}, "3 translations need as many hypotheses"),
        ({"terms": "dog Hund"}, "a source term, = and its target term"),
        ({"terms": "dog = Hund\ndog ="}, "entry 2: 'dog' is in entry 1 already"),
        ({"terms": "dog = Hund", "search": SAMPLING}, "A glossary needs a beam search"),
        ({"terms": "a" * 1001}, "1,001 characters: 1,000 at most"),
        ({"markup": "html", "respell": True}, "A text with markup is read as it is"),
    ):
        with pytest.raises(AppError, match=message):
            asked(client, **options)
        assert asked(client)[0]


def png(html):
    """The picture embedded in a piece of HTML."""
    return base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', html)[1])


def test_picture_shows_the_chosen_layer_and_head(client, demo, random_translator, tmp_path):
    shown = demo.Demo(random_translator)
    pair = (TEXT, asked(client)[0])
    weights, queries, keys = attentions(shown.model, shown.tokenizer, *pair).of("cross")
    title = "Attention of the decoder on the source, layer 2"
    for head, heads in (("3", [2]), ("all", None)):
        path = tmp_path / "expected.png"
        plot_attention_maps(weights[1].numpy(), queries, keys, path, heads=heads, title=title)
        chosen = ("decoder on the source", 2, head)
        for found in (shown.picture(demo.Pair(*pair), *chosen), client.predict(*chosen, api_name="/attention")):
            assert png(found) == path.read_bytes()
    assert shown.picture(None, "encoder", 1, "all") == ""
    for attention, expected in (("encoder", (2, 2)), ("decoder on itself", (3, 4)), ("decoder on the source", (3, 4))):
        layer, head = shown.layers_and_heads(attention)
        assert (len(layer.choices), len(head.choices) - 1) == expected
        assert (layer.value, head.value) == (expected[0], "all")  # one chosen before may not be there


def test_text_beyond_the_models_positions_is_explained(demo, tmp_path):
    model = build_model(vocab_size=280, position_embedding_type="learned", max_position_embeddings=20)
    model.save_pretrained(tmp_path)
    learn_tokenizer([TEXT] * 9, TokenizerSettings(vocab_size=280)).save_pretrained(tmp_path)
    shown, pair = demo.Demo(tmp_path), demo.Pair("a b c d " * 20, "x")
    for found in (shown.picture(pair, "encoder", 1, "all"), shown.confidence(pair, True)):
        assert found.startswith("<p>")
        assert "max_position_embeddings is 20" in found


def test_confidence_is_shown_by_more_than_colour(client, demo, random_translator, tmp_path):
    shown = demo.Demo(random_translator)
    pair = (TEXT, "<b>Der Hund</b> & das Ding.")
    assert (shown.confidence(demo.Pair(*pair), False), shown.confidence(None, True)) == ("", "")
    html = shown.confidence(demo.Pair(*pair), True)
    assert html.startswith('<p class="words" dir="auto">')
    assert "not calibrated" in html
    sentence = html[: html.index("</p>")]
    marked = re.findall(r'<span class="([\w-]+)" title="(\d+)%">([^<]+)</span>', sentence)
    [found] = likelihoods(shown.model, shown.tokenizer, [pair])
    assert [unescape(word) for *_, word in marked] == [each.word for each in found.words]
    assert unescape(re.sub("<[^>]+>", "", sentence)) == pair[1]  # no part of it becomes a tag
    for (kind, share, _), each in zip(marked, found.words, strict=True):
        assert share == f"{100 * each.probability:.0f}"
        assert kind == ("sure" if each.probability >= 0.9 else "fairly-sure" if each.probability >= 0.5 else "guessed")
    for name in ("fairly-sure", "guessed"):  # a different underline for each, and a legend
        assert re.search(
            rf"\.{name} {{[^}}]*border-bottom: 2px dotted|\.{name} {{[^}}]*border-bottom: 3px double", demo.STYLE
        )
        assert f'<span class="{name}">' in html[html.index("</p>") :]
    model = shutil.copytree(random_translator, tmp_path / "model")
    calibration = Calibration(50.0, 0.5, {"mean_surprisal": -0.5}, weights_sha256=sha256_of_weights(model))
    (model / "confidence.json").write_text(json.dumps(calibration.to_json()), encoding="utf-8")
    assert f"<b>{calibration.confidence(found.tokens):.0%}</b>" in demo.Demo(model).confidence(demo.Pair(*pair), True)
    assert "The model has not learned: <b>日本</b>" in shown.confidence(demo.Pair("日本", "a"), True)
    asked(client)
    assert "not calibrated" in client.predict(True, api_name="/confidence")


def test_confidence_and_picture_include_soft_terms(demo, tmp_path):
    tokenizer = learn_tokenizer([TEXT, "Der alte Hund"] * 2, TokenizerSettings(vocab_size=280), tags=TERM_MARKERS)
    model = sharpened(build_model(seed=1, vocab_size=len(tokenizer)))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    shown = demo.Demo(tmp_path)
    settings = (BEAM, 2, 1, 1, 0, 1, 0, 20, 1)
    *_, pair = shown.translate(TEXT, *settings, glossary="dog = Hund", terms="soft")
    with_terms = Glossary([("dog", "Hund")]).annotated(TEXT, tokenizer)
    shares = []
    for ids in (with_terms, tokenizer(TEXT).input_ids):
        [found] = likelihoods(model, tokenizer, [(TEXT, pair.translation)], sources=[ids])
        shares.append([f"{100 * each.probability:.0f}" for each in found.words])
    assert re.findall(r'title="(\d+)%"', shown.confidence(pair, True)) == shares[0] != shares[1]
    seen = attentions(model, tokenizer, TEXT, pair.translation, source_ids=with_terms)
    assert len(seen.source) == len(with_terms)
    path, title = tmp_path / "expected.png", "Attention of the decoder on the source, layer 1"
    plot_attention_maps(seen.cross[0].numpy(), seen.written, seen.source, path, heads=[0], title=title)
    assert png(shown.picture(pair, "decoder on the source", 1, "1")) == path.read_bytes()


def test_analytics_uploads_and_large_requests_are_disabled(demo, url, temporary):
    assert demo.gradio.analytics.analytics_enabled() is False
    assert url.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for path in ("/gradio_api/upload", "/gradio_api/upload/", "/upload", "/gradio_api//upload"):
            answer = client.post(path, files={"files": b"x" * 1000})
            assert answer.status_code == 404, path
            assert str(temporary) not in answer.text
        large = {"data": ["x" * 200_000], "fn_index": 0, "session_hash": "a"}
        assert client.post("/gradio_api/queue/join", json=large).status_code == 413
        assert client.post("/gradio_api/queue/join", content=iter([b"{}"])).status_code == 413
        config = client.get("/config")
        assert config.json()["analytics_enabled"] is False
        assert str(temporary) not in config.text


def test_concurrent_requests_get_their_own_translations(client):
    texts = ["A dog.", "The old cat sleeps.", "We read.", "She is here."]
    alone = [asked(client, text=text) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: asked(client, text=text), texts * 4)) == alone * 4
    assert len({best for best, _ in alone}) > 1


def test_unusable_address_is_reported(demo, url, random_translator):
    port = url.rpartition(":")[2]
    done = command("demo", random_translator, "--port", port)
    place = f"127.0.0.1, port {port} (Address already in use)"
    said = f"vanilla-transformer: Cannot listen at {place}: choose another --port or --host.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    nobodys = "192.0.2.1"
    with pytest.raises(OSError, match=rf"Cannot listen at {nobodys} \(Cannot assign requested address\): choose"):
        demo.show(random_translator, nobodys)


def test_missing_gradio_error_names_the_extra(demo, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ImportError, match=r"vanilla-transformer\[demo\]"):
        importlib.reload(demo)


def test_page_works_in_a_browser(url, new_page):
    page = new_page()
    requested, problems = set(), []
    page.on("request", lambda request: requested.add(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(url)
    page.get_by_role("heading", name="English to German").wait_for()
    text, button = page.get_by_label("Text in English", exact=True), page.get_by_role("button", name="Translate")
    text.fill(TEXT)
    button.click()
    picture = page.locator("#attention img")
    picture.wait_for()
    assert page.locator("#translation textarea").input_value()
    page.locator("td, [role=gridcell]").nth(3 * 4 - 1).wait_for()
    first = picture.get_attribute("src")
    assert page.locator("#confidence .words").count() == 0
    page.get_by_label("Confidence of each word").check()
    page.locator("#confidence .words").wait_for()
    text_shown = page.locator("#confidence .words").inner_text()
    best = page.locator("#translation textarea").input_value().replace("\0", "")  # which HTML cannot contain
    assert text_shown.split() == best.split()
    cells = "#translations :is(td, [role=gridcell])"
    for place in ("#text textarea", "#translation textarea", "#confidence .words", cells):
        assert page.locator(place).last.evaluate("each => getComputedStyle(each).unicodeBidi") == "plaintext", place

    page.get_by_label("encoder", exact=True).check()
    changed = "before => ![before, undefined].includes(document.querySelector('#attention img')?.getAttribute('src'))"
    page.wait_for_function(changed, arg=first)
    page.get_by_label("Layer").click()
    assert page.get_by_role("option").count() == 2
    second = picture.get_attribute("src")
    page.get_by_role("option", name="1").click()
    page.wait_for_function(changed, arg=second)

    for wrong, message in ((" ", "There is no text"), ("word " * 300, "1,500 characters: 1,000 at most")):
        text.fill(wrong)
        button.click()
        page.get_by_text(message).wait_for()
        picture.wait_for(state="detached")
        assert page.locator("#translation textarea").input_value() == ""
        assert page.get_by_test_id("toast-body").count() == 1
        assert page.locator("span.error:visible:not([data-testid=toast-body] *)").count() == 0  # on fields
        page.locator("#translate:not(.busy)").wait_for()
        page.get_by_role("button", name="Close").first.click()
        text.fill(TEXT)
        button.click()
        picture.wait_for()
    assert problems == []
    assert {address for address in requested if not address.startswith((url, "data:", "blob:"))} == set()
    page.close()


def test_examples_and_keyboard_shortcuts_work(url, new_page):
    page = new_page()
    page.goto(url)
    text, best = page.get_by_label("Text in English"), page.locator("#translation textarea")
    page.get_by_text("Translation into German").wait_for()
    assert "Enter translates" in text.get_attribute("placeholder")
    page.get_by_text("The dog is old.", exact=True).click()
    page.wait_for_function("document.querySelector('#text textarea').value === 'The dog is old.'")
    text.press("Shift+Enter")
    text.press_sequentially("A cat.")
    assert text.input_value() == "The dog is old.\nA cat."
    assert best.input_value() == ""
    text.press("Enter")
    page.wait_for_function("document.querySelector('#translation textarea').value !== ''")
    assert text.input_value() == "The dog is old.\nA cat."
    page.locator("#attention img").wait_for()  # so that the process is not killed while it draws
    page.close()


def test_layout_fits_a_phone_screen(url, new_page):
    """Nothing is wider than the screen, every label fits on one line, and none overlap."""
    page = new_page(viewport={"width": 375, "height": 700})
    page.goto(url)
    page.get_by_text("Options").click()
    page.get_by_text("Length penalty").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    labels = [each for each in page.locator("[data-testid=block-info], label > span").all() if each.is_visible()]
    boxes = {label.inner_text(): label.bounding_box() for label in labels}
    assert {"Hypotheses", "Top k", "decoder on the source", "Head"} <= set(boxes)
    for name, box in boxes.items():
        assert box["height"] < 30, name
        assert box["x"] + box["width"] <= 375, name
    for first, second in combinations(boxes.values(), 2):
        apart = [
            abs(first[x] - second[x]) >= min(first[w], second[w]) / 2 for x, w in (("x", "width"), ("y", "height"))
        ]
        assert any(apart), (first, second)
    page.close()


@pytest.mark.slow
def test_demo_file_alone_runs_as_a_space(demo, random_translator, tmp_path):
    app = shutil.copy(demo.__file__, tmp_path / "app.py")
    environment = {"MODEL": str(random_translator), "PYTHONPATH": str(Path(demo.__file__).parents[1]), **UNBUFFERED}
    words, environment = [sys.executable, app], {**os.environ, **environment}
    with page_of(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)) as url:
        assert httpx.get(url, trust_env=False).status_code == 200
    done = subprocess.run([sys.executable, app], capture_output=True, text=True, timeout=100, check=False)
    assert "MODEL must say which model" in done.stderr
