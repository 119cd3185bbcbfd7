"""The exported page in a browser: its translations beside Python's, its size, its time to start and per sentence.

    python scripts/benchmarks/web_page.py runs/multi30k_en_de test_2016_flickr.en test_2016_flickr.de

The page is exported in float32 and in int8, served from this machine, and opened in a headless Chromium, which
translates the sentences one by one on one thread. Greedy search is compared with `generate(num_beams=1)` of the same
weights: in int8 those are the rounded ones, which Python runs from the page's own files with `OnnxTranslator`. Beam
search, by the model's generation config, is compared with `generate()`, also in int8. The time to start is that from
opening the page until it can translate.

It needs a Chromium, and npm or `--runtime` for onnxruntime-web. A request to any other machine is an error.
"""

import argparse
import shutil
import tempfile
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import sacrebleu
from playwright.sync_api import Browser, sync_playwright

from vanilla_transformer import OnnxTranslator, translate
from vanilla_transformer.export.web import to_web
from vanilla_transformer.files import text_lines, write_json
from vanilla_transformer.run.loading import load_model


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SEARCHES = {"greedy": 1, "beam": None}
MANY = 50  # sentences per call, so that the browser has minutes of work at most
# The translations of sentences, and how many milliseconds they took.
IN_PAGE = """async ([texts, beams]) => {
  const [{ Translator }, { runtime }] = await Promise.all([import("./translator.js"), import("./runtime.js")])
  const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer())
  window.measured ??= await Translator.load(await runtime(read), read)
  await window.measured.translate("A dog.", { beams })
  const found = [], before = performance.now()
  for (const text of texts) found.push((await window.measured.translate(text, { beams: beams ?? undefined })).text)
  return [found, performance.now() - before]
}"""


def opened(browser: Browser, folder: Path, texts: list[str]) -> tuple[dict, float]:
    """For each search, its translations and milliseconds per sentence; and the seconds until the page was ready."""
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    url, found, requested = f"http://127.0.0.1:{server.server_port}/", {}, set()
    page = browser.new_page()
    page.on("request", lambda request: requested.add(request.url))
    before = time.perf_counter()
    page.goto(url)
    page.locator("#button:enabled").wait_for()
    seconds = time.perf_counter() - before
    for search, beams in SEARCHES.items():
        translations, milliseconds = [], 0.0
        for start in range(0, len(texts), MANY):
            some, took = page.evaluate(IN_PAGE, [texts[start : start + MANY], beams])
            translations += some
            milliseconds += took
        found[search] = (translations, milliseconds / len(texts))
    page.close()
    server.shutdown()
    if foreign := {each for each in requested if not each.startswith((url, "data:"))}:
        raise SystemExit(f"The page asked other machines: {sorted(foreign)}")
    return found, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="a run folder or a model's folder")
    parser.add_argument("source", type=Path, help="sentences, plain or .gz")
    parser.add_argument("target", type=Path, help="their translations, for BLEU")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--runtime", type=Path, help="the npm package of onnxruntime-web; by default npm fetches it")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        raise SystemExit(f"There is no browser: install one of {', '.join(BROWSERS)}.")
    texts, references = ([*text_lines(path)][: options.sentences] for path in (options.source, options.target))
    model, tokenizer = load_model(options.model)
    python = {"greedy": translate(model, tokenizer, texts, num_beams=1), "beam": translate(model, tokenizer, texts)}
    bleu = {search: sacrebleu.corpus_bleu(found, [references]).score for search, found in python.items()}
    rows = []
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, one thread; {len(texts)} sentences, one by one")
        print("BLEU of generate():", ", ".join(f"{search} {score:.1f}" for search, score in bleu.items()), "\n")
        print("| weights | MB | ready after, s | search | equal to Python | ms a sentence | BLEU |")
        print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
        for weights in ("float32", "int8"):
            folder = Path(work, weights)
            to_web(model, tokenizer, folder, quantization=weights, runtime=options.runtime)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
            found, seconds = opened(browser, folder, texts)
            expected = dict(python)
            if weights == "int8":
                expected["greedy"] = OnnxTranslator(folder / "model").translate(texts)
            for search, (translations, milliseconds) in found.items():
                equal = sum(one == other for one, other in zip(translations, expected[search], strict=True))
                score = sacrebleu.corpus_bleu(translations, [references]).score
                rows.append({"weights": weights, "search": search, "megabytes": size, "seconds": seconds} | {
                    "equal": equal, "milliseconds": milliseconds, "bleu": score})  # fmt: skip
                cells = (weights, f"{size:.1f}", f"{seconds:.1f}", search, equal, f"{milliseconds:.0f}", f"{score:.1f}")
                print("|", " | ".join(map(str, cells)), "|", flush=True)
        browser.close()
    if options.json:
        write_json(options.json, {"sentences": len(texts), "python_bleu": bleu, "rows": rows})


if __name__ == "__main__":
    main()
