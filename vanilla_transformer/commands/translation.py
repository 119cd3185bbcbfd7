"""Translations, and how likely they are."""

import collections
import contextlib
import json as json_format
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .process import UsageError, use_memory_well


if TYPE_CHECKING:
    from ..translation import Hypothesis


logger = logging.getLogger(__name__)


def translate(
    sentences: list[str] | None = None,
    *,
    model: list[Path],
    input: Path | None = None,
    output: Path | None = None,
    num_beams: int | None = None,
    n_best: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int | None = None,
    prefix: str = "",
    sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    split: str | None = None,
    longest: int = 512,
    attention: bool = False,
    workers: int = 1,
    batch_tokens: int = 4096,
    backend: str = "torch",
    quantize: str | None = None,
    json: bool = False,
) -> None:
    """Translates the sentences given, a file, or standard input: one line in, one line out, as the lines come.

    Args:
        sentences: Sentences to translate; without them, lines are read.
        model: A run folder or a model's folder; given several times, all of them together, as an ensemble.
        input: Text file to read; standard input if it is not given.
        output: Text file to write; standard output if it is not given.
        num_beams: Hypotheses kept in beam search; 1 is greedy. The model's own setting if it is not given.
        n_best: Write so many translations of each line, each as LINE NUMBER, tab, score, tab, translation.
        length_penalty: The exponent alpha of the length penalty; the model's own if it is not given.
        max_tokens: Tokens that a translation may have; the model's own limit, 50 more than its source, if not given.
        prefix: What every translation begins with.
        sample: Draw translations at random instead of searching for the best.
        temperature: With --sample: divides the scores of tokens, so that below 1 likely ones become likelier.
        top_k: With --sample: draw from so many of the likeliest tokens; 0 is all.
        top_p: With --sample: draw from the likeliest tokens that together have this probability.
        seed: With --sample: makes the draws repeatable.
        split: Language of the lines, say en: split them into sentences, and translate one at a time.
        longest: Tokens that a line, or a sentence with --split, may have. A longer one is translated in pieces, cut at
            ends of sentences or at spaces, and reported with its line's number.
        attention: Add a tab and, for each word of the translation, the word of the line that the model looked at most.
        workers: Processes (of ctranslate2: threads) that translate side by side on a CPU, with one thread each.
        batch_tokens: Source tokens translated at a time.
        backend: torch, or ctranslate2. The latter takes a folder that `export` has written, which may be quantised, and
            of another model makes one in float32, in a temporary folder. It has no --attention and no ensembles. In
            float32 greedy translations are the same. Its beam search knows the length penalty |Y|^alpha alone and ends
            with a number of finished translations: it has to find twice as many as there are hypotheses, the best of
            them by the model's own penalty are written, and one in a thousand may differ from that of torch.
        quantize: int8: by torch on a CPU, faster and in less memory, with weights rounded to 8 bits.
        json: Write a JSON object per line: source, and translations with their scores.
    """
    from ..files import replaced_file
    from ..translation import as_they_come, in_blocks

    if sentences and input:
        raise UsageError("Give sentences or --input, not both.")
    options = search_options(num_beams, n_best, length_penalty, max_tokens)
    options |= _sampling_options(sample, temperature, top_k, top_p, seed, num_beams)
    if n_best or json:
        options |= {"return_dict_in_generate": not sample}
    _check_backend(backend, model, attention, workers, seed, quantize)
    if longest < 1:
        raise UsageError(f"--longest must be at least 1, not {longest}.")
    options |= {"split": split, "longest": longest, "align": attention, "workers": workers, "prefix": prefix}
    lines = sentences or input_lines(input)
    blocks = in_blocks(lines) if sentences or input else as_they_come(lines)
    with replaced_file(output) if output else contextlib.nullcontext(sys.stdout) as file:
        found = translations_of(model, blocks, backend, int8=quantize is not None, batch_tokens=batch_tokens, **options)
        for number, (source, hypotheses) in enumerate(found, start=1):
            file.writelines(_lines_of(number, source, hypotheses, bool(n_best), json))


def score(*, model: list[Path], sources: Path, targets: Path, rank: bool = False, json: bool = False) -> None:
    """Scores given translations: how likely the model finds each.

    Writes a line per pair: score (as beam search ranks), log-probability, log-probability per token, translation.

    Args:
        model: A run folder or a model's folder; several score together, as an ensemble.
        sources: Text file of sources.
        targets: Text file of their translations, line by line.
        rank: Put the translations of a source that stands in several lines one after the other, best first.
        json: Write a JSON object per line instead.
    """
    from tqdm import tqdm

    from ..files import text_lines
    from ..run_folder import load_ensemble
    from ..translation import score_pairs

    texts, translations = list(text_lines(sources)), list(text_lines(targets))
    if len(texts) != len(translations):
        raise ValueError(f"{sources} has {len(texts)} lines and {targets} {len(translations)}: they must agree.")
    use_memory_well()
    loaded, tokenizer = load_ensemble(model)
    pairs = list(zip(texts, translations, strict=True))
    with tqdm(total=len(pairs), unit="pair", disable=not sys.stderr.isatty()) as bar:
        scores = score_pairs(loaded, tokenizer, pairs, on_progress=bar.update)
    scored = list(zip(pairs, scores, strict=True))
    if rank:
        first = {text: number for number, text in reversed(list(enumerate(texts)))}
        scored.sort(key=lambda each: (first[each[0][0]], -each[1].score))
    for (source_text, target_text), each in scored:
        values = {"score": each.score, "log_probability": each.log_probability, "per_token": each.per_token}
        if json:
            print(_json_line({"source": source_text, "target": target_text, **values, "tokens": each.tokens}))
        else:
            print(*(f"{value:.4f}" for value in values.values()), _one_line(target_text), sep="\t")


def translations_of(
    models: list[Path], blocks: Iterable[list[str]], backend: str = "torch", *, int8: bool = False, **options
) -> Iterator[tuple[str, list["Hypothesis"]]]:
    """Every line of the blocks with its translations; progress on standard error if it is a terminal."""
    from tqdm import tqdm

    from ..translation import translate_lines

    use_memory_well()
    sources: collections.deque[str] = collections.deque()  # of the block that is being translated

    def remembered() -> Iterator[list[str]]:
        for block in blocks:
            sources.extend(block)
            yield block
            sys.stdout.flush()  # by then all of the block's translations are written

    with (
        _loaded(models, backend, int8) as (loaded, tokenizer, positions),
        tqdm(unit="sentence", disable=not sys.stderr.isatty()) as bar,
    ):
        if "longest" in options and positions is not None:
            options["longest"] = min(options["longest"], positions)
        wanted = options.get("num_return_sequences", 1)
        if not options.get("do_sample") and wanted > options.get("num_beams", loaded.generation_config.num_beams or 1):
            options["num_beams"] = wanted
        for hypotheses in translate_lines(loaded, tokenizer, remembered(), on_progress=bar.update, **options):
            yield sources.popleft(), hypotheses


@contextlib.contextmanager
def _loaded(models: list[Path], backend: str, int8: bool) -> Iterator[tuple]:
    """What is to translate, its tokenizer, and how many tokens a source may have (None: any number)."""
    from ..run_folder import find_model, load_ensemble, load_its_tokenizer, load_model

    if backend == "torch":
        loaded, tokenizer = load_ensemble(models)
        if int8:
            from ..translation.int8 import quantize_int8

            quantize_int8(loaded)
        learned = loaded.config.position_embedding_type == "learned"
        yield loaded, tokenizer, loaded.config.max_position_embeddings if learned else None
        return
    from ..export.ctranslate2 import to_ctranslate2
    from ..translation import ExportedModel

    folder = find_model(models[0])
    with tempfile.TemporaryDirectory() as temporary:
        if not ExportedModel.is_in(folder):
            folder = Path(temporary) / "exported"
            to_ctranslate2(*load_model(models[0]), folder)
        exported = ExportedModel(folder)
        yield exported, load_its_tokenizer(folder), exported.positions


def _check_backend(
    backend: str, models: list[Path], attention: bool, workers: int, seed: int | None, quantize: str | None
) -> None:
    if quantize not in (None, "int8"):
        raise UsageError(f"There is no quantization {quantize!r} to translate with: choose int8.")
    if backend not in ("torch", "ctranslate2"):
        raise UsageError(f"There is no backend {backend!r}: choose torch or ctranslate2.")
    if backend == "torch":
        return
    if len(models) > 1:
        raise UsageError("CTranslate2 has no ensembles: give --backend ctranslate2 one --model.")
    if quantize is not None:
        raise UsageError("--quantize is for --backend torch: for the other, `export --quantization int8`.")
    if attention:
        raise UsageError("CTranslate2 does not say which words were looked at: --attention is for --backend torch.")
    if seed is not None and workers > 1:
        raise UsageError("With --backend ctranslate2 what is drawn depends on the worker: give --seed or --workers.")


def search_options(
    num_beams: int | None,
    n_best: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int | None = None,
) -> dict:
    """What of these was given, as options of `generate()`."""
    for name, value in (("--num-beams", num_beams), ("--n-best", n_best), ("--max-tokens", max_tokens)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}.")
    if num_beams is not None and n_best is not None and n_best > num_beams:
        raise UsageError(f"--n-best {n_best} needs --num-beams of at least {n_best}, not {num_beams}.")
    options = {
        "num_beams": num_beams,
        "num_return_sequences": n_best,
        "length_penalty": length_penalty,
        "max_new_tokens": max_tokens,
    }
    return {name: value for name, value in options.items() if value is not None}


def _sampling_options(sample: bool, temperature: float, top_k: int, top_p: float, seed: int | None, num_beams) -> dict:
    if not sample:
        if (temperature, top_k, top_p, seed) != (1.0, 0, 1.0, None):
            raise UsageError("--temperature, --top-k, --top-p and --seed are for --sample.")
        return {}
    if num_beams not in (None, 1):
        raise UsageError("Give --sample or --num-beams, not both.")
    if temperature <= 0 or top_k < 0 or not 0 < top_p <= 1:
        raise UsageError("--temperature must be above 0, --top-k at least 0, and --top-p above 0 and at most 1.")
    if seed is not None:
        from transformers import set_seed

        set_seed(seed)
    return {"do_sample": True, "num_beams": 1, "temperature": temperature, "top_k": top_k, "top_p": top_p}


def input_lines(path: Path | None) -> Iterable[str]:
    from ..files import decoded_lines, text_lines

    if path is not None:
        return text_lines(path)
    if sys.stdin.isatty():
        logger.info("Reading sentences from the terminal; end with Ctrl-D.")
    # A file of its own: the interpreter closes sys.stdin when it ends, and cannot while a thread waits for a line.
    return decoded_lines(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), "standard input")


def _lines_of(number: int, source: str, hypotheses: list["Hypothesis"], n_best: bool, as_json: bool) -> Iterator[str]:
    """What is written for a line."""
    if as_json:
        yield _json_line({"source": source, "translations": [_record(each) for each in hypotheses]}) + "\n"
        return
    for each in hypotheses if n_best else hypotheses[:1]:
        score = "" if each.score is None else f"{each.score:.4f}"
        fields = [str(number), score] if n_best else []
        alignment = [] if each.alignment is None else [str(each.alignment)]
        yield "\t".join([*fields, _one_line(each.text), *alignment]) + "\n"


def _record(hypothesis: "Hypothesis") -> dict:
    record = {"text": hypothesis.text, "score": hypothesis.score}
    return record if hypothesis.alignment is None else {**record, "alignment": asdict(hypothesis.alignment)}


def _one_line(text: str) -> str:
    return " ".join(re.split(r"[\r\n]+", text))


def _json_line(record: dict) -> str:
    return json_format.dumps(record, ensure_ascii=False)
