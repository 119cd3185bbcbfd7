"""The browser page tokenizes, decodes and translates text exactly as Python does."""

import copy
import json
import random
import re
import shutil
import stat
import subprocess
import tarfile
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from threading import Thread

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from transformers import BertTokenizerFast

from vanilla_transformer import OnnxTranslator, TokenizerSettings, learn_tokenizer, phrasebook
from vanilla_transformer.attention.pieces import piece_labels
from vanilla_transformer.attention.weights import attentions
from vanilla_transformer.commands.models import _introduction
from vanilla_transformer.export import web
from vanilla_transformer.export.web import folder as writing
from vanilla_transformer.export.web import to_web
from vanilla_transformer.export.web.runtime import RUNTIME_FILES, runtime_files

from .test_onnx import small_model


PAGE = Path(web.__file__).with_name("page")
NODE = shutil.which("node")
# Letters, marks, digits, signs, blanks and emoji from many scripts, and the joiner of pretokenized text.
ALPHABET = [chr(c) for first, last in (
    (0x20, 0x7F), (0xA0, 0x17F), (0x300, 0x345), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x621, 0x64A),
    (0x905, 0x939), (0x93E, 0x94D), (0x2000, 0x2029), (0x3041, 0x3093), (0x4E00, 0x4E40), (0xAC00, 0xAC40),
    (0x1F600, 0x1F640), (0xFF01, 0xFF5E),
) for c in range(first, last)] + list("\t\n\r\x0b\x85\ufeff\u3000￭Σς<>  ''")  # fmt: skip
KINDS = (
    {"kind": "bpe"},
    {"kind": "wordpiece", "vocab_size": 700},
    {"kind": "bpe", "lowercase": True},
    {"kind": "wordpiece", "vocab_size": 700, "pretokenized": True},
)


def in_node(**request):
    done = subprocess.run(
        [NODE, Path(__file__).with_name("in_node.mjs")],
        input=json.dumps({"page": str(PAGE), **request}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_javascript_tokenizer_equals_python():
    draw = random.Random(1)
    words = ["don't", "we'll", "dog's", "'sun", "DON'T", "</s>", "<s>", "<bt>", "a" * 70, "ﬁ", "Å", "ÅΣ", "日本語"]
    texts = [row[side] for row in islice(phrasebook("train"), 500) for side in ("en", "de")]
    texts += ["", " ", "  two  blanks ", " ".join(words)]
    texts += ["".join(draw.choices(ALPHABET, k=draw.randrange(1, 40))) for _ in range(800)]
    texts += [" ".join(draw.choices([*words, *ALPHABET], k=8)) for _ in range(300)]
    ours = [learn_tokenizer(texts[:400], TokenizerSettings(**{"vocab_size": 500, **kind})) for kind in KINDS]
    found = in_node(tokenizers=[each.backend_tokenizer.to_str() for each in ours], texts=texts)
    for tokenizer, rows in zip(ours, found, strict=True):
        ids = tokenizer(texts).input_ids
        assert [row[0] for row in rows] == ids
        assert [row[1] for row in rows] == tokenizer.batch_decode(ids, skip_special_tokens=True)
        assert [row[2] for row in rows[-100:]] == [piece_labels(tokenizer, each) for each in ids[-100:]]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package with the layout of onnxruntime-web, but without code that runs."""
    path = tmp_path_factory.mktemp("package") / "package" / "dist"
    path.mkdir(parents=True)
    for name in RUNTIME_FILES:
        (path / name).write_text(name)
    return path.parent


@pytest.fixture(scope="module")
def exported(tokenizer, package, tmp_path_factory):
    """A model, and its page with int8 matrices."""
    model, folder = small_model(), tmp_path_factory.mktemp("web") / "page"
    choices = {"languages": ("en", "de"), "examples": ["The dog is old."]}
    to_web(model, tokenizer, folder, quantization="int8", runtime=package, **choices)
    return model, folder


def rounded(model):
    """The model with its matrices rounded to int8."""
    state = {name: values for name, values in model.state_dict().items() if values.dim() == 2}
    for values in state.values():
        choices = []
        for axis in (0, 1):
            scales = values.abs().amax(dim=axis, keepdim=True) / 127
            choices.append((values / scales).round() * scales)
        values.copy_(min(choices, key=lambda each: (each - values).square().sum()))
    return model


def test_graphs_output_attention_of_the_int8_model(exported, tokenizer, texts):
    model = rounded(small_model())
    sessions = [onnxruntime.InferenceSession(exported[1] / f"model/{name}.onnx") for name in ("encoder", "decoder")]
    for text in texts[:3]:
        expected = attentions(model, tokenizer, text, texts[4])
        source, target = (np.array(tokenizer([each]).input_ids) for each in (text, texts[4]))
        inputs = {"attention_mask": np.ones_like(source)}
        names = [each.name for each in sessions[0].get_outputs()]
        encoded = dict(zip(names, sessions[0].run(None, {"input_ids": source, **inputs}), strict=True))
        keys_and_values = {name: value for name, value in encoded.items() if name.startswith("encoder.")}
        inputs |= keys_and_values
        inputs |= {name.replace("encoder", "past"): value[:, :, :0] for name, value in keys_and_values.items()}
        inputs["input_ids"] = np.concatenate([[[0]], target[:, :-1]], axis=1)
        names = [each.name for each in sessions[1].get_outputs()]
        found = encoded | dict(zip(names, sessions[1].run(None, inputs), strict=True))
        for kind, layers in (("encoder", 1), ("decoder", 2), ("cross", 2)):
            weights = [found[f"{kind}_attentions.{layer}"][0] for layer in range(layers)]
            assert f"{kind}_attentions.{layers}" not in found
            assert np.abs(np.stack(weights) - getattr(expected, kind).numpy()).max() < 1e-5, kind


def test_folder_is_complete_and_offline_and_translates(exported, texts, tokenizer):
    folder = exported[1]
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    model_files = ("config.json", "decoder.onnx", "encoder.onnx", "generation_config.json", "tokenizer.json",
                   "tokenizer_config.json")  # fmt: skip
    runtime = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm.gz")
    page = {path.name for path in PAGE.iterdir()} | {"page.json", "README.md"}
    assert names == {f"model/{name}" for name in model_files} | {f"onnxruntime/{name}" for name in runtime} | page
    html = (folder / "index.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html
    for path in PAGE.iterdir():
        without_comments = re.sub(r"(?<!:)//\s.*$", "", path.read_text(), flags=re.M)
        assert not re.search(r"https?:|[\"'`(]//", without_comments), path
    for name in ("encoder", "decoder"):
        matrices = [each for each in onnx.load(folder / f"model/{name}.onnx").graph.initializer if len(each.dims) == 2]
        assert {each.data_type for each in matrices if 1 not in each.dims} == {onnx.TensorProto.INT8}
    expected = rounded(small_model()).generate(**tokenizer(texts, return_tensors="pt", padding=True), num_beams=1)
    expected = tokenizer.batch_decode(expected, skip_special_tokens=True)
    assert OnnxTranslator(folder / "model", threads=1).translate(texts) == expected


def test_read_only_package_leaves_a_folder_that_can_be_changed(tokenizer, package, tmp_path, monkeypatch):
    installed = tmp_path / "package"
    shutil.copytree(PAGE, installed / "page")
    (installed / "page").chmod(0o555)
    monkeypatch.setattr(writing, "files", lambda package: installed)
    to_web(small_model(), tokenizer, tmp_path / "page", runtime=package)
    assert (tmp_path / "page").stat().st_mode & stat.S_IWUSR


def test_languages_are_named_if_there_is_one_of_each(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    several = "[{corpus: [a.en, a.de]}, {corpus: [b.fr, b.de], source_language: fr}]"
    for train, expected in (("[a.en, a.de]", ("en", "de")), (several, None)):
        data = f"source_language: en, target_language: de, validation: [c.en, c.de], train: {train}"
        recipe.write_text(f"data: {{{data}}}")
        assert _introduction(recipe)["languages"] == expected


def test_invalid_arguments_or_missing_npm_raise(tokenizer, package, tmp_path, monkeypatch):
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(package, "package")
    assert runtime_files(archive) == runtime_files(package) == {name: name.encode() for name in RUNTIME_FILES}
    with tarfile.open(archive, "w:gz") as file:
        file.add(package, "other")
    (tmp_path / "text").write_text("no archive")
    (tmp_path / "cut.tgz").write_bytes(archive.read_bytes()[:-20])
    model = small_model()
    bert, grown = BertTokenizerFast(vocab={"[UNK]": 0, "a": 1}), copy.deepcopy(tokenizer)
    grown.add_tokens(["Größe"])
    for change, error, message in (
        ({"runtime": archive}, FileNotFoundError, "not the package of onnxruntime-web"),
        ({"runtime": tmp_path / "text"}, ValueError, "is not an npm package"),
        ({"runtime": tmp_path / "cut.tgz"}, ValueError, "is not an npm package"),
        ({"runtime": tmp_path}, FileNotFoundError, "ort.wasm"),
        ({"tokenizer": bert}, ValueError, "no tokenizer of this kind"),
        ({"tokenizer": grown}, ValueError, r"cannot read words that were added to the vocabulary \(Größe\)"),
        ({"runtime": package, "quantization": "int4"}, ValueError, "one of float32, int8, not 'int4'"),
    ):
        with pytest.raises(error, match=message):
            to_web(**{"model": model, "tokenizer": tokenizer, "output": tmp_path / "out", **change})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no npm to fetch it: give --runtime what `npm pack onnxruntime-web@"):
        to_web(model, tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------- with the real onnxruntime-web


@pytest.fixture(scope="module")
def runnable(exported, tmp_path_factory):
    """The real onnxruntime-web, fetched by npm; tests are skipped if that fails."""
    try:
        found = runtime_files()
    except OSError as error:
        pytest.skip(str(error))
    package = tmp_path_factory.mktemp("onnxruntime-web")
    (package / "dist").mkdir()
    for name, content in found.items():
        (package / "dist" / name).write_bytes(content)
    return package


@pytest.fixture(scope="module", params=["float32", "int8"])
def page_folder(request, runnable, tokenizer, tmp_path_factory):
    model, folder = small_model(), tmp_path_factory.mktemp("web") / "page"
    choices = {"languages": ("en", "de"), "examples": ["The dog is old."]}
    to_web(model, tokenizer, folder, quantization=request.param, runtime=runnable, **choices)
    return (rounded(model) if request.param == "int8" else model), folder


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no node")
@pytest.mark.parametrize("settings", [
    {}, {"early_stopping": True}, {"early_stopping": "never"}, {"length_penalty_type": "gnmt", "max_length": 12},
    {"bad_words_ids": [[119]], "max_new_tokens": 9}, {"eos_token_id": [2, 7]}, {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2, "bad_words_ids": [[119]]}, {"minimum_bayes_risk": True, "num_return_sequences": 1},
    {"no_repeat_ngram_size": 1, "renormalize_logits": True},
])  # fmt: skip
def test_page_translations_and_attention_equal_python(page_folder, tokenizer, texts, tmp_path, settings):
    model, folder = page_folder[0], tmp_path / "copy"
    shutil.copytree(page_folder[1], folder)
    config = folder / "model/generation_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    inputs = tokenizer(texts[:12], return_tensors="pt", padding=True)
    for beams, options in ((1, {}), (4, {"length_penalty": 0.6})):
        options = {**settings, "num_beams": beams, **options}
        if beams == 1:
            options.pop("early_stopping", None)  # greedy search does not use it, and would warn
        expected = model.generate(**inputs, **options, return_dict_in_generate=True)
        if beams > 1 and "minimum_bayes_risk" in settings:  # it makes a difference
            assert not torch.equal(
                expected.sequences, model.generate(**inputs, **options | {"minimum_bayes_risk": False})
            )
        found = in_node(page=str(folder), folder=str(folder), texts=texts[:12], beams=beams)
        rows = [each["target"] for each in found]
        assert [row[: len(ids)] for row, ids in zip(expected.sequences[:, 1:].tolist(), rows, strict=True)] == rows
        if beams == 1 and not settings:
            with pytest.raises(AssertionError, match=r"A line has [0-9]+ tokens, and may have 512: shorten it"):
                in_node(page=str(folder), folder=str(folder), texts=["dog " * 999], beams=beams)
        if beams > 1:
            scores = torch.tensor([each["score"] for each in found])
            assert torch.allclose(scores, expected.sequences_scores, atol=1e-5)
        compared = 0
        for each, text in zip(found, texts, strict=False):
            if each["target"] != tokenizer(each["text"]).input_ids:
                continue  # cut off, or in other pieces than the tokenizer's
            looked_at = attentions(model, tokenizer, text, each["text"])
            for kind in ("encoder", "decoder", "cross"):
                layers = [
                    np.array(layer["data"], np.float32).reshape(layer["dims"])[0] for layer in each["attentions"][kind]
                ]
                assert np.allclose(np.stack(layers), getattr(looked_at, kind).numpy(), atol=1e-5)
            compared += 1
        assert compared or settings


@contextmanager
def served(folder):
    """Gives the address of a folder's page."""
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def url(page_folder):
    with served(page_folder[1]) as address:
        yield address


@pytest.mark.slow
def test_page_takes_any_decoding_of_the_model(page_folder, tokenizer, new_page, tmp_path):
    model, folder = page_folder[0], shutil.copytree(page_folder[1], tmp_path / "copy")
    path, options = folder / "model/generation_config.json", {"num_beams": 20, "length_penalty": 0.65}
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))
    with served(folder) as address:
        page = new_page()
        page.goto(address)
        page.locator("#button:enabled").wait_for()
        text = "The old dog is looking for his red ball."
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        page.locator("#map tbody tr").first.wait_for()
        inputs = tokenizer([text], return_tensors="pt")
        expected = tokenizer.decode(model.generate(**inputs, **options)[0], skip_special_tokens=True)
        assert page.locator("#translation").inner_text() == expected
        assert not page.locator("#beams").is_visible()
        page.evaluate("document.querySelector('#beams').value = 0")
        page.keyboard.press("Enter")
        assert page.locator("#beams").is_visible()  # with the browser's message
        page.close()


@pytest.mark.slow
def test_page_works_by_keyboard_on_a_phone(page_folder, url, tokenizer, new_page):
    page = new_page(viewport={"width": 360, "height": 700}, color_scheme="dark")
    requested, problems = set(), []
    page.on("request", lambda request: requested.add(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(url)
    page.get_by_role("heading", name="English to German").wait_for()
    page.locator("#button:enabled").wait_for()
    text = "The old dog is looking for his red ball."
    page.keyboard.type(f"{text} ")  # the field has the focus, and a pause starts the translation
    page.locator("#map tbody tr").first.wait_for()
    inputs = tokenizer([text], return_tensors="pt")
    expected = tokenizer.decode(page_folder[0].generate(**inputs)[0], skip_special_tokens=True)
    assert page.locator("#translation").inner_text() == expected
    assert page.locator("#heads canvas").count() == 2 * 4  # layers and heads
    assert page.locator("#map thead th").count() == len(inputs.input_ids[0])
    page.locator("#heads input:checked").focus()
    before = page.locator("#caption").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#caption").inner_text() != before
    page.get_by_label("encoder", exact=True).check()
    assert page.locator("#heads canvas").count() == 1 * 2
    assert page.locator("#map tbody tr").count() == len(inputs.input_ids[0])
    page.locator("#examples button").click()
    page.wait_for_function("before => document.querySelector('#translation').textContent !== before", arg=expected)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    # Requests to other machines are blocked.
    blocked = page.evaluate("fetch('http://localhost:9/').then(() => 'asked', () => 'blocked')")
    assert blocked == "blocked"
    assert [each for each in problems if "Content Security Policy" not in each] == []
    assert {address for address in requested if not address.startswith((url, "data:"))} <= {"http://localhost:9/"}
    page.close()
