"""Translations, and how likely they are."""

import collections
import contextlib
import itertools
import json as json_format
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .lazy_imports import import_models, while_loading
from .process import UsageError, check_engine, check_positive, check_seed, refuse, use_memory_well


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..data.known_words import UnknownWords
    from ..model.confidence_vanilla_transformer import Calibration
    from ..translation import Hypothesis, PairScore


logger = logging.getLogger(__name__)

# Of two hypotheses, the longer one is always more like the other.
_PENALTY_NEEDS_BEAMS = "--length-penalty is for a beam search: leave it out, or give --num-beams of 2 or more."
_RISK_NEEDS_BEAMS = "--minimum-bayes-risk is for a beam search: no --sample, and --num-beams of 3 or more."


def translate(
    sentences: list[str] | None = None,
    *,
    model: list[str],
    input: Path | None = None,
    output: Path | None = None,
    num_beams: int | None = None,
    n_best: int | None = None,
    length_penalty: float | None = None,
    minimum_bayes_risk: bool = False,
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
    glossary: Path | None = None,
    terms: str = "hard",
    confidence: bool = False,
    markup: str | None = None,
    keep_numbers: bool = False,
    recase: bool = False,
    respell: bool = False,
    repunctuate: bool = False,
    to: str | None = None,
    workers: int = 1,
    batch_tokens: int = 4096,
    backend: str = "torch",
    device: str = "auto",
    precision: str = "float32",
    quantize: str | None = None,
    json: bool = False,
) -> None:
    """Translates the sentences given, a file, or standard input: one line in, one line out, as the lines come.

    Words that were not in the training text are named on standard error with their line's number, for the first 20 such
    lines. The last message gives their total.

    A model that reads preceding sentences (`data.context_sentences`) takes consecutive lines as a document. A blank
    line ends a document.

    Args:
        sentences: Sentences to translate; without them, lines are read.
        model: A run folder, a model's folder or USER/NAME on the Hub; several, as in --model A --model B, translate
            together, as an ensemble.
        input: Text file to read; standard input if it is not given.
        output: Text file to write; standard output if it is not given.
        num_beams: Hypotheses kept in beam search; 1 is greedy. By default the model's own setting.
        n_best: Write this many translations of each line, each as LINE NUMBER, tab, score, tab, translation.
        length_penalty: The exponent alpha of the length penalty; by default the model's own.
        minimum_bayes_risk: Of the hypotheses of a beam search, write the one most like the others, not the likeliest.
            By default the model's own setting.
        max_tokens: Most tokens in a translation; by default the model's limit (in the paper 50 more than its source).
        prefix: Text that every translation begins with.
        sample: Draw translations at random instead of searching for the best.
        temperature: With --sample: divides the scores of tokens, so that below 1 likely ones become likelier.
        top_k: With --sample: draw from this many of the likeliest tokens; 0 is all.
        top_p: With --sample: draw from the likeliest tokens that together have this probability.
        seed: With --sample: makes the draws repeatable. Lines of standard input then wait for a whole block.
        split: Language of the lines, say en: split them into sentences, and translate one at a time.
        longest: Maximum tokens in a line, or in a sentence with --split. A longer one is translated in pieces, cut at
            ends of sentences or at spaces, and reported with its line's number.
        attention: Add a tab and, for each word of the translation, the word of the line that the model looked at most.
        glossary: Text file of terms and their translations: lines of source term, tab, target term. Several targets
            are separated by `|`; an empty target, or a third column with the word keep, leaves the term as it is.
        terms: How to follow the glossary. hard: every translation of a line with a term has its target; this takes a
            beam search by torch. soft: the model reads the target beside the term, and mostly follows it, with any
            search and backend. It must have been trained for this (`training.augmentation`, terms), and reads only the
            first target.
        confidence: Add a tab and the probability that the translation is good, by the model's calibration, which
            `calibrate` makes; with --json also the probability of each word, and the words of the line that the model
            has not learned.
        markup: xml, html or placeholders: take tags and placeholders out of each line, translate its text, and put them
            back by word alignment. Placeholders, also taken out with xml and html, are `{name}`, `%s`, URLs, e-mail
            addresses and the like. A line whose markup is broken is reported and translated as text.
        keep_numbers: With --markup: keep numbers as they are, too.
        recase: Translate lines in capitals, and headlines with a capital on every word, in sentence case, and give the
            translations the same capitals.
        respell: Read each word that is not in the training text as the closest word that is, within one mistake, or two
            in words of six letters or more. Warnings say which.
        repunctuate: Translate lines that end without punctuation with a full stop, and take it off the translations.
        to: With a model of several target languages: the one to translate into, say fr.
        workers: Processes that translate side by side on a CPU, with one thread each. With ctranslate2 these are
            threads, and 1 means all cores.
        batch_tokens: Source tokens translated at a time.
        backend: torch or ctranslate2. The latter takes a folder that `export` has written, which may be quantised; any
            other model is first exported in float32 to a temporary folder. It has no --attention, --confidence,
            --markup, --precision or --quantize, no hard terms and no ensembles. In float32 greedy translations are the
            same. Its beam search has only the length penalty |Y|^alpha, and stops as soon as it has found as
            many translations as it keeps. So it is asked for twice as many, and the best by the model's own penalty are
            written. One in a thousand may differ from torch's.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        precision: The number format in which torch multiplies: float32; bfloat16, faster on processors made for it,
            but rounded differently; or auto, the one that a short trial finds faster. Standard error says which.
        quantize: int8: by torch on a CPU, with matrices rounded to 8 bits: faster for large models, slower for small
            ones.
        json: Write a JSON object per line: source, and translations with their scores and the terms of the glossary.
    """
    from ..files import replaced_file

    search = search_options(None if sample else num_beams, n_best, length_penalty, max_tokens)
    search |= sampling_options(sample, temperature, top_k, top_p, seed, num_beams, length_penalty)
    if minimum_bayes_risk:
        search["minimum_bayes_risk"] = True
    if n_best or json:
        search["return_dict_in_generate"] = not sample
    check_engine(backend, quantize, precision, device)
    if backend == "ctranslate2":
        _check_ctranslate2(model, attention, confidence, markup, workers, seed)
    aligns, beam_search = markup or attention, backend == "torch" and not sample and num_beams != 1
    refuse(
        (
            minimum_bayes_risk and (sample or num_beams in (1, 2)),
            _RISK_NEEDS_BEAMS,
        ),
        (keep_numbers and not markup, "--keep-numbers needs --markup."),
        (recase and aligns, "--recase changes the words that --markup and --attention align: leave them out."),
        (
            repunctuate and aligns,
            "--repunctuate adds a sign that --markup and --attention would align: leave them out.",
        ),
        (respell and markup, "--respell would change markup, too: leave out --markup or --respell."),
        (
            markup not in (None, "xml", "html", "placeholders"),
            f"There is no markup {markup!r}: choose xml, html or placeholders.",
        ),
        (terms not in ("hard", "soft"), f"--terms are hard or soft, not {terms!r}."),
        (terms == "soft" and not glossary, "--terms soft needs a --glossary."),
        (
            glossary and terms == "hard" and not beam_search,
            "--glossary needs a beam search by torch: no --backend, no --sample, no --num-beams 1; or --terms soft, if "
            "the model was trained so.",
        ),
    )
    check_positive(longest=longest, workers=workers, batch_tokens=batch_tokens)
    import_models()
    from ..translation import load_glossary

    entries = load_glossary(glossary) if glossary else None
    calibration, unknown = _calibration_of(model, json) if confidence else (None, None)
    reading = {"markup": markup, "keep_numbers": keep_numbers, **reading_options(model, recase, respell, repunctuate)}
    blocks = input_blocks(sentences, input, as_they_come=seed is None)
    with replaced_file(output) if output else contextlib.nullcontext(sys.stdout) as file:
        found = translations_of(
            model, blocks, backend, int8=quantize is not None, precision=precision, warn=True, device=device,
            longest=longest, split=split, prefix=prefix, align=attention, glossary=entries, terms=terms,
            calibration=calibration, to=to, workers=workers, batch_tokens=batch_tokens, **reading, **search,
        )  # fmt: skip
        for number, (source, hypotheses) in enumerate(found, start=1):
            if json:
                file.write(_json_of(source, hypotheses, unknown, respell))
            else:
                file.writelines(_lines_of(number, hypotheses, bool(n_best), confidence))


def score(
    *,
    model: list[str],
    sources: Path,
    targets: Path,
    rank: bool = False,
    to: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Scores given translations: how likely the model finds each.

    Writes a line per pair: score (as beam search ranks), log-probability, log-probability per token, translation. A
    model that reads preceding sentences takes consecutive sources as a document, as `translate` does; with --rank equal
    sources in a row are one.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub; several score together, as an ensemble.
        sources: Text file of sources.
        targets: Text file of their translations, line by line.
        to: With a model of several target languages: the language of the translations, say fr.
        rank: Group the translations of a source that is on several lines, best first.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        json: Write a JSON object per line instead.
    """
    import_models()
    from ..files import text_lines
    from ..translation.lines import one_line

    texts, translations = list(text_lines(sources)), list(text_lines(targets))
    if len(texts) != len(translations):
        raise ValueError(f"{sources} has {len(texts)} lines and {targets} {len(translations)}: they must agree.")
    pairs = list(zip(texts, translations, strict=True))
    contexts = _contexts_of_ranked(model[0], texts) if rank else None
    scored = list(zip(pairs, scores_of_pairs(model, pairs, device, to=to, contexts=contexts)[0], strict=True))
    if rank:
        first = {text: number for number, text in reversed(list(enumerate(texts)))}
        scored.sort(key=lambda each: (first[each[0][0]], -each[1].score))
    for (source_text, target_text), each in scored:
        values = {"score": each.score, "log_probability": each.log_probability, "per_token": each.per_token}
        if json:
            print(_json_line({"source": source_text, "target": target_text, **values, "tokens": each.tokens}))
        else:
            print(*(f"{value:.4f}" for value in values.values()), one_line(target_text), sep="\t")


def _contexts_of_ranked(model: str, sources: list[str]) -> list[tuple[str, ...]]:
    """What stands before each source; one on several lines in a row, with several translations, is one sentence."""
    from ..data.context import context_settings, contexts_of
    from ..run.loading import find_model, load_its_tokenizer

    groups = [(source, len(list(lines))) for source, lines in itertools.groupby(sources)]
    read = context_settings(load_its_tokenizer(find_model(model))).sentences
    contexts = contexts_of((source for source, _ in groups), read)
    return [context for context, (_, lines) in zip(contexts, groups, strict=True) for _ in range(lines)]


def scores_of_pairs(
    models: list[str],
    pairs: list[tuple[str, str]],
    device: str,
    title: str | None = None,
    **options,
) -> tuple[list["PairScore"], "PreTrainedTokenizerBase"]:
    """The scores of pairs by one model or several, and their tokenizer; options are those of `score_pairs`."""
    import_models()
    from tqdm import tqdm

    from ..run.loading import load_ensemble
    from ..translation import score_pairs

    use_memory_well()
    with while_loading():
        loaded, tokenizer = load_ensemble(models, device)
    with tqdm(total=len(pairs), unit="pair", desc=title, disable=not sys.stderr.isatty()) as bar:
        return score_pairs(loaded, tokenizer, pairs, on_progress=bar.update, **options), tokenizer


def translations_of(
    models: list[str],
    blocks: Iterable[list[str]],
    backend: str = "torch",
    *,
    int8: bool = False,
    precision: str = "float32",
    warn: bool = False,
    device: str = "auto",
    **options,
) -> Iterator[tuple[str, list["Hypothesis"]]]:
    """Every line of the blocks with its translations; progress on standard error if it is a terminal.

    With `warn` it warns of words that the models cannot know. The options are those of `translate_lines`.
    """
    import_models()
    from tqdm import tqdm

    from ..files import temporary_folder
    from ..run.loading import find_model, load_engine, load_model
    from ..translation import ExportedModel, translate_lines
    from ..translation.lines import UnknownWordsWarnings

    use_memory_well()
    sources: collections.deque[str] = collections.deque()  # of the block that is being translated

    def remembered() -> Iterator[list[str]]:
        for block in blocks:
            sources.extend(block)
            yield block
            sys.stdout.flush()  # by then all of the block's translations are written

    with contextlib.ExitStack() as stack:
        engines = models
        if backend == "ctranslate2":
            engines = [find_model(models[0])]
            if not ExportedModel.is_in(engines[0]):
                from ..export.ctranslate2 import to_ctranslate2

                engines = [stack.enter_context(temporary_folder()) / "exported"]
                to_ctranslate2(*load_model(models[0], "cpu"), engines[0])
        with while_loading():
            loaded, tokenizer = load_engine(engines, backend, device, int8=int8, precision=precision)
        bar = stack.enter_context(tqdm(unit="sentence", disable=not sys.stderr.isatty()))
        wanted = options.get("num_return_sequences", 1)
        if not options.get("do_sample") and wanted > options.get("num_beams", loaded.generation_config.num_beams or 1):
            options["num_beams"] = wanted
        beams = check_penalty(options, loaded)
        if options.get("minimum_bayes_risk") and beams < 3:
            raise UsageError(_RISK_NEEDS_BEAMS)
        warnings = None
        if warn:
            warnings = UnknownWordsWarnings(unknown_words(models, tokenizer))
        for hypotheses in translate_lines(loaded, tokenizer, remembered(), on_progress=bar.update, **options):
            if warnings is not None:
                read = hypotheses[0].read
                warnings.look_at(read.words, read.respelled)
            yield sources.popleft(), hypotheses
        if warnings is not None:
            warnings.sum_up()


def _check_ctranslate2(models: list[str], attention, confidence, markup, workers: int, seed) -> None:
    refuse(
        (len(models) > 1, "CTranslate2 has no ensembles: give --backend ctranslate2 one --model."),
        (attention, "CTranslate2 does not say which words were looked at: --attention is for --backend torch."),
        (confidence, "CTranslate2 does not say how likely each token is: --confidence is for --backend torch."),
        (markup, "CTranslate2 does not align words, as markup needs it: --markup is for --backend torch."),
        (
            seed is not None and workers > 1,
            "With --backend ctranslate2 what is drawn depends on the worker: give --seed or --workers.",
        ),
    )


def search_options(
    num_beams: int | None, n_best: int | None = None, length_penalty: float | None = None, max_tokens: int | None = None
) -> dict:
    """Those of these options that were given, as `generate()` takes them."""
    check_positive(num_beams=num_beams, n_best=n_best, max_tokens=max_tokens)
    if num_beams is not None and n_best is not None and n_best > num_beams:
        raise UsageError(f"--n-best {n_best} needs --num-beams of at least {n_best}, not {num_beams}.")
    if length_penalty is not None and not math.isfinite(length_penalty):
        raise UsageError(f"--length-penalty must be finite, not {length_penalty}.")
    if length_penalty is not None and num_beams == 1:
        raise UsageError(_PENALTY_NEEDS_BEAMS)
    # Otherwise the model's own number would count, which may be more than the beams asked for.
    options = {"num_beams": num_beams, "num_return_sequences": n_best or 1}
    options |= {"length_penalty": length_penalty, "max_new_tokens": max_tokens}
    return {name: value for name, value in options.items() if value is not None}


def check_penalty(options: Mapping, engine) -> int:
    """How many beams there will be; UsageError for a length penalty with only one, which may be the model's own."""
    beams = options.get("num_beams", engine.generation_config.num_beams or 1)
    if "length_penalty" in options and beams == 1:
        raise UsageError(_PENALTY_NEEDS_BEAMS)
    return beams


def sampling_options(
    sample: bool, temperature: float, top_k: int, top_p: float, seed: int | None, num_beams, length_penalty
) -> dict:
    """The options of `generate()` for --sample; a seed is set for the whole process."""
    if not sample:
        if (temperature, top_k, top_p, seed) != (1.0, 0, 1.0, None):
            raise UsageError("--temperature, --top-k, --top-p and --seed are for --sample.")
        return {}
    if num_beams not in (None, 1):
        raise UsageError("Give --sample or --num-beams, not both.")
    if length_penalty is not None:
        raise UsageError("--length-penalty is for a beam search: give it or --sample, not both.")
    if not 0 < temperature < math.inf or top_k < 0 or not 0 < top_p <= 1:
        raise UsageError(
            "--temperature must be above 0 and finite, --top-k at least 0, and --top-p above 0 and at most 1."
        )
    check_seed(seed)
    if seed is not None:
        from transformers import set_seed

        set_seed(seed)
    return {"do_sample": True, "num_beams": 1, "temperature": temperature, "top_k": top_k, "top_p": top_p}


def input_blocks(sentences: list[str] | None, path: Path | None, *, as_they_come: bool = True) -> Iterable[list[str]]:
    """The sentences given, or the lines of a file, in blocks; or those of standard input, in blocks or as they come."""
    from ..files import decoded_lines, text_lines
    from ..translation import in_blocks, lines

    if sentences and path:
        raise UsageError(f"Give sentences or --input, not both: {sentences[0]!r:.60} is taken for a sentence.")
    for sentence in sentences or ():
        if any("\ud800" <= character <= "\udfff" for character in sentence):  # Python's stand-ins for wrong bytes
            raise UsageError(f"{sentence!a} is not UTF-8.")
    if sentences or path:
        return in_blocks(sentences or text_lines(path))
    if sys.stdin is None:
        raise UsageError("Standard input is closed: give sentences or --input.")
    if sys.stdin.isatty():
        logger.info("Reading sentences from the terminal; end with Ctrl-D.")
    # A file of its own: the interpreter closes sys.stdin when it ends, and cannot while a thread waits for a line.
    read = decoded_lines(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), "standard input")
    return lines.as_they_come(read) if as_they_come else in_blocks(read)


def _calibration_of(models: list[str], as_json: bool) -> tuple["Calibration", Callable[[str], list[str]] | None]:
    """A model's calibration and, for JSON, a function that finds the words of a line that it has not learned."""
    from ..run.loading import calibration_of, find_model, load_its_tokenizer

    calibration = calibration_of(models)
    if not as_json:  # the warnings say it
        return calibration, None
    return calibration, unknown_words(models, load_its_tokenizer(find_model(models[0])))


def unknown_words(models: list[str], tokenizer: "PreTrainedTokenizerBase") -> "UnknownWords":
    """A function that finds words that the models cannot know."""
    from ..data.known_words import UnknownWords
    from ..run.loading import word_counts_of

    return UnknownWords(tokenizer, word_counts_of(models))


def reading_options(models: list[str], recase: bool, respell: bool, repunctuate: bool) -> dict[str, Any]:
    """The options of how text is read as those of `translate_lines`. Options that are not set cost nothing."""
    if not recase and not respell and not repunctuate:
        return {}
    from ..run.loading import find_model, load_its_tokenizer, word_counts_of
    from ..translation import Casing, Punctuation, Spelling

    counts, options = word_counts_of(models), {}
    if recase:
        options["casing"] = Casing(counts)
    if repunctuate:
        options["punctuation"] = Punctuation(counts)
    if respell:
        if counts is None:
            named = ", ".join(map(str, models))
            raise UsageError(f"--respell needs the list of words that a training makes ({named}): leave it out.")
        options["spelling"] = Spelling(load_its_tokenizer(find_model(models[0])), counts)
    return options


def _json_of(
    source: str, hypotheses: list["Hypothesis"], unknown: Callable[[str], list[str]] | None, respell: bool
) -> str:
    """The JSON for a line. With `unknown`, which finds words, it also says how sure the model is of each word."""
    read, records = hypotheses[0].read, []
    for each in hypotheses:
        record = asdict(replace(each, read=None))
        for name in ("cut", "read", "written"):
            del record[name]
        for name in ("alignment", "terms", "broken_markup"):
            if record[name] is None:
                del record[name]
        likelihood = record.pop("likelihood")
        if unknown is None:
            del record["confidence"]
        else:
            record["words"] = likelihood["words"] if likelihood else []
        records.append(record)
    flags = {} if unknown is None else {"unknown_words": unknown(read.words)}
    flags |= {"respelled": read.respelled} if respell else {}
    return _json_line({"source": source, **flags, "translations": records}) + "\n"


def _lines_of(number: int, hypotheses: list["Hypothesis"], n_best: bool, with_confidence: bool) -> Iterator[str]:
    """The lines of text that are written for a line; the confidence of a blank one is empty."""
    from ..translation.lines import one_line

    for each in hypotheses if n_best else hypotheses[:1]:
        score = "" if each.score is None else f"{each.score:.4f}"
        fields = [str(number), score] if n_best else []
        alignment = [] if each.alignment is None else [str(each.alignment)]
        confidence = "" if each.confidence is None else f"{each.confidence:.2f}"
        yield "\t".join([*fields, one_line(each.text), *alignment, *[confidence] * with_confidence]) + "\n"


def _json_line(record: dict) -> str:
    return json_format.dumps(record, ensure_ascii=False)
