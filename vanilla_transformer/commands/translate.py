"""Translations, and how likely they are."""

import collections
import contextlib
import json as json_format
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .process import UsageError, use_memory_well


if TYPE_CHECKING:
    from ..translation import Hypothesis
    from ..translation.lines import UnknownWordsWarnings


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
    device: str = "auto",
    quantize: str | None = None,
    json: bool = False,
) -> None:
    """Translates the sentences given, a file, or standard input: one line in, one line out, as the lines come.

    Words that were not in the training text are named on standard error with their line's number. This goes for the
    first 20 such lines; at the end their total is given.

    Args:
        sentences: Sentences to translate; without them, lines are read.
        model: A run folder or a model's folder; given several times, all of them together, as an ensemble.
        input: Text file to read; standard input if it is not given.
        output: Text file to write; standard output if it is not given.
        num_beams: Hypotheses kept in beam search; 1 is greedy. By default the model's own setting.
        n_best: Write this many translations of each line, each as LINE NUMBER, tab, score, tab, translation.
        length_penalty: The exponent alpha of the length penalty; by default the model's own.
        max_tokens: Tokens that a translation may have; by default the model's own limit, 50 more than its source.
        prefix: What every translation begins with.
        sample: Draw translations at random instead of searching for the best.
        temperature: With --sample: divides the scores of tokens, so that below 1 likely ones become likelier.
        top_k: With --sample: draw from this many of the likeliest tokens; 0 is all.
        top_p: With --sample: draw from the likeliest tokens that together have this probability.
        seed: With --sample: makes the draws repeatable.
        split: Language of the lines, say en: split them into sentences, and translate one at a time.
        longest: Tokens that a line, or a sentence with --split, may have. A longer one is translated in pieces, cut at
            ends of sentences or at spaces, and reported with its line's number.
        attention: Add a tab and, for each word of the translation, the word of the line that the model looked at most.
        workers: Processes (threads of ctranslate2) that translate side by side on a CPU, with one thread each.
        batch_tokens: Source tokens translated at a time.
        backend: torch or ctranslate2. The latter takes a folder that `export` has written, which may be quantised; any
            other model it first exports in float32 to a temporary folder. It has no --attention and no ensembles. In
            float32 greedy translations are the same. Its beam search only knows the length penalty |Y|^alpha and stops
            at a number of finished translations. So it finds twice as many as there are hypotheses, of which the best
            by the model's own penalty are written; one in a thousand may differ from torch's.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        quantize: int8: by torch on a CPU, faster and in less memory, with weights rounded to 8 bits.
        json: Write a JSON object per line: source, and translations with their scores.
    """
    from ..files import replaced_file
    from ..translation import as_they_come, in_blocks

    if sentences and input:
        raise UsageError("Give sentences or --input, not both.")
    search = search_options(num_beams, n_best, length_penalty, max_tokens)
    search |= _sampling_options(sample, temperature, top_k, top_p, seed, num_beams)
    if n_best or json:
        search["return_dict_in_generate"] = not sample
    _check_backend(backend, model, attention, workers, seed, quantize)
    if quantize is not None and device not in ("auto", "cpu"):
        raise UsageError("--quantize is for a CPU: leave out --device.")
    if longest < 1:
        raise UsageError(f"--longest must be at least 1, not {longest}.")
    lines = sentences or input_lines(input)
    blocks = in_blocks(lines) if sentences or input else as_they_come(lines)
    with replaced_file(output) if output else contextlib.nullcontext(sys.stdout) as file:
        found = translations_of(
            model, blocks, backend, int8=quantize is not None, warn=True, device=device, longest=longest, split=split,
            prefix=prefix, align=attention, workers=workers, batch_tokens=batch_tokens, **search,
        )  # fmt: skip
        for number, (source, hypotheses) in enumerate(found, start=1):
            file.writelines(_lines_of(number, source, hypotheses, bool(n_best), json))


def score(
    *, model: list[Path], sources: Path, targets: Path, rank: bool = False, device: str = "auto", json: bool = False
) -> None:
    """Scores given translations: how likely the model finds each.

    Writes a line per pair: score (as beam search ranks), log-probability, log-probability per token, translation.

    Args:
        model: A run folder or a model's folder; several score together, as an ensemble.
        sources: Text file of sources.
        targets: Text file of their translations, line by line.
        rank: Put the translations of a source that is in several lines one after the other, best first.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        json: Write a JSON object per line instead.
    """
    from tqdm import tqdm

    from ..files import text_lines
    from ..run.loading import load_ensemble
    from ..translation import score_pairs

    texts, translations = list(text_lines(sources)), list(text_lines(targets))
    if len(texts) != len(translations):
        raise ValueError(f"{sources} has {len(texts)} lines and {targets} {len(translations)}: they must agree.")
    use_memory_well()
    loaded, tokenizer = load_ensemble(model, device)
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
    models: list[Path],
    blocks: Iterable[list[str]],
    backend: str = "torch",
    *,
    int8: bool = False,
    warn: bool = False,
    device: str = "auto",
    **options,
) -> Iterator[tuple[str, list["Hypothesis"]]]:
    """Every line of the blocks with its translations; progress on standard error if it is a terminal.

    With `warn` it warns of words that the models cannot know. The options are those of `translate_lines`.
    """
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
        _loaded(models, backend, int8, device) as (loaded, tokenizer),
        tqdm(unit="sentence", disable=not sys.stderr.isatty()) as bar,
    ):
        wanted = options.get("num_return_sequences", 1)
        if not options.get("do_sample") and wanted > options.get("num_beams", loaded.generation_config.num_beams or 1):
            options["num_beams"] = wanted
        warnings = _warnings_of(models, tokenizer) if warn else None
        for hypotheses in translate_lines(loaded, tokenizer, remembered(), on_progress=bar.update, **options):
            source = sources.popleft()
            if warnings is not None:
                warnings.look_at(source)
            yield source, hypotheses
        if warnings is not None:
            warnings.sum_up()


def _warnings_of(models: list[Path], tokenizer) -> "UnknownWordsWarnings":
    """What warns of words that the models cannot know. A damaged list of words does not stop the translation."""
    from ..data.known_words import UnknownWords
    from ..run.loading import known_words_of
    from ..translation.lines import UnknownWordsWarnings

    try:
        known = known_words_of(models)
    except ValueError as error:
        logger.warning("%s Words that the model has not learned are not looked for.", error)
        known = None
    return UnknownWordsWarnings(UnknownWords(tokenizer, known))


@contextlib.contextmanager
def _loaded(models: list[Path], backend: str, int8: bool, device: str) -> Iterator[tuple]:
    """The model that translates, and its tokenizer."""
    from ..run.loading import find_model, load_ensemble, load_its_tokenizer, load_model

    if backend == "torch":
        loaded, tokenizer = load_ensemble(models, "cpu" if int8 and device == "auto" else device)
        if int8:
            from ..translation.int8 import quantize_int8

            quantize_int8(loaded)
        else:
            from ..translation.packed import pack_linear

            pack_linear(loaded)
        yield loaded, tokenizer
        return
    from ..export.ctranslate2 import to_ctranslate2
    from ..files import temporary_folder
    from ..translation import ExportedModel

    folder = find_model(models[0])
    with temporary_folder() as temporary:
        if not ExportedModel.is_in(folder):
            folder = temporary / "exported"
            to_ctranslate2(*load_model(models[0], "cpu"), folder)
        yield ExportedModel(folder, device), load_its_tokenizer(folder)


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
    """Those of these that were given, as options of `generate()`."""
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
