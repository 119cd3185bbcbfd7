"""`vanilla-transformer COMMAND`: each command is a function below; its help is its docstring and its signature."""

import argparse
import collections
import contextlib
import ctypes
import inspect
import json
import logging
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .translation import Hypothesis


logger = logging.getLogger("vanilla_transformer")


class UsageError(ValueError):
    """Arguments that make no sense together: the process ends with status 2, as for an unknown one."""


# ---------------------------------------------------------------------------------------------------------- commands


def train(recipe: str, *, output: Path | None = None, resume: bool = False, overrides: dict | None = None) -> None:
    """Trains a translator as a recipe says: vocabulary, training, averaging, scores, pictures.

    Any field of the recipe can be set on the command line: --training.max_steps 2000 --data.folder corpora

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file.
        output: The run folder; runs/RECIPE if it is not given.
        resume: Go on with the run in that folder from its last complete checkpoint.
    """
    from .training.recipe import load_recipe
    from .training.run import train as train_recipe

    _use_memory_well()
    output = output or Path("runs") / Path(recipe).stem
    folder = train_recipe(load_recipe(recipe, overrides), output, resume=resume, show_progress=True)
    print(_scores_table(json.loads(folder.scores.read_text(encoding="utf-8"))))
    print(f"\nEverything is in {folder.path}. Translate with it:")
    print(f'  vanilla-transformer translate --model {folder.path} "..."')


def tokenizer(files: list[Path], *, output: Path, kind: str = "bpe", vocab_size: int = 37_000, lowercase: bool = False):
    """Learns a vocabulary from text files and saves it for `AutoTokenizer.from_pretrained`.

    Args:
        files: Text files, plain or .gz: source and target together for a shared vocabulary.
        output: Folder to save it in; it must not exist yet.
        kind: bpe or wordpiece.
        vocab_size: Number of pieces, special tokens and single bytes included.
        lowercase: Lower-case all text.
    """
    from .data.tokenizer import TokenizerSettings, learn_tokenizer
    from .files import text_lines, written_beside

    settings = TokenizerSettings(kind, vocab_size, lowercase)
    with written_beside(output) as beside:
        learn_tokenizer(text_lines(*files), settings, show_progress=sys.stderr.isatty()).save_pretrained(beside)
    logger.info("Saved a %s vocabulary of %s pieces in %s.", kind, f"{vocab_size:,}", output)


def average(checkpoints: list[Path], *, output: Path, last: int = 5) -> None:
    """Averages the weights of checkpoints into one model.

    Args:
        checkpoints: Checkpoint folders, or one run folder, whose last checkpoints are taken.
        output: Folder of the averaged model; it must not exist yet.
        last: How many of a run folder's last checkpoints to take.
    """
    from .run_folder import RunFolder
    from .training.averaging import average_checkpoints

    if len(checkpoints) == 1 and (found := RunFolder(checkpoints[0]).good_checkpoints()):
        if not 1 <= last <= len(found):
            raise UsageError(f"{checkpoints[0]} has {len(found)} checkpoints: choose --last from 1 to {len(found)}.")
        checkpoints = found[-last:]
    average_checkpoints(checkpoints, output)
    logger.info("Averaged %d checkpoints into %s.", len(checkpoints), output)


def translate(
    sentences: list[str] | None = None,
    *,
    model: Path,
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
    workers: int = 1,
    batch_tokens: int = 4096,
    json: bool = False,
) -> None:
    """Translates the sentences given, a file, or standard input: one line in, one line out, as the lines come.

    Args:
        sentences: Sentences to translate; without them, lines are read.
        model: A run folder or a model's folder.
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
        workers: Processes that translate side by side on a CPU, with one thread each.
        batch_tokens: Source tokens translated at a time.
        json: Write a JSON object per line: source, and translations with their scores.
    """
    from .files import replaced_file
    from .translation import as_they_come, in_blocks

    if sentences and input:
        raise UsageError("Give sentences or --input, not both.")
    options = _search_options(num_beams, n_best, length_penalty, max_tokens)
    options |= _sampling_options(sample, temperature, top_k, top_p, seed, num_beams)
    if n_best or json:
        options |= {"return_dict_in_generate": not sample}
    lines = sentences or _input_lines(input)
    blocks = in_blocks(lines) if sentences or input else as_they_come(lines)
    with replaced_file(output) if output else contextlib.nullcontext(sys.stdout) as file:
        found = _translations(model, blocks, batch_tokens=batch_tokens, prefix=prefix, workers=workers, **options)
        for number, (source, hypotheses) in enumerate(found, start=1):
            file.writelines(_translation_lines(number, source, hypotheses, bool(n_best), json))


def evaluate(
    *,
    reference: Path,
    model: Path | None = None,
    source: Path | None = None,
    hypotheses: Path | None = None,
    target_language: str = "de",
    metrics: list[str] | None = None,
    num_beams: int | None = None,
    json: bool = False,
) -> None:
    """Scores a model's translations of a test set, or a file of translations.

    Args:
        reference: Text file of reference translations, a line per sentence.
        model: A run folder or a model's folder; with --source.
        source: Text file of the sentences to translate.
        hypotheses: Text file of translations to score, instead of --model and --source.
        target_language: Language code of the translations, for the Moses tokeniser.
        metrics: Which scores: sacrebleu, sacrebleu_lowercase, bleu_lowercase_tokenized, chrf, exact_match.
        num_beams: Hypotheses kept in beam search; the model's own setting if it is not given.
        json: Print JSON instead of a table.
    """
    from dataclasses import asdict

    from .evaluation.scores import score_translations
    from .files import text_lines

    if (hypotheses is None) == (model is None or source is None) or (hypotheses and (model or source)):
        raise UsageError("Give --hypotheses FILE, or --model and --source.")
    references = list(text_lines(reference))
    if hypotheses is not None:
        translations = list(text_lines(hypotheses))
    else:
        sources = list(text_lines(source))
        if len(sources) != len(references):
            raise ValueError(f"{source} has {len(sources)} lines and {reference} {len(references)}: they must agree.")
        found = _translations(model, [sources], **_search_options(num_beams))
        translations = [hypotheses[0].text for _, hypotheses in found]
    scores = score_translations(
        translations,
        references,
        metrics or ["sacrebleu", "chrf"],
        target_language=target_language,
        test_set=reference.name,
    )
    records = [asdict(score) for score in scores]
    print(_json_text(records) if json else _scores_table(records))


def score(*, model: Path, source: Path, target: Path, rank: bool = False, json: bool = False) -> None:
    """Scores given translations: how likely the model finds each.

    Writes a line per pair: score (as beam search ranks), log-probability, log-probability per token, translation.

    Args:
        model: A run folder or a model's folder.
        source: Text file of sources.
        target: Text file of their translations, line by line.
        rank: Put the translations of a source that stands in several lines one after the other, best first.
        json: Write a JSON object per line instead.
    """
    from tqdm import tqdm

    from .files import text_lines
    from .run_folder import load_model
    from .translation import score_pairs

    sources, targets = list(text_lines(source)), list(text_lines(target))
    if len(sources) != len(targets):
        raise ValueError(f"{source} has {len(sources)} lines and {target} {len(targets)}: they must agree.")
    _use_memory_well()
    loaded, tokenizer = load_model(model)
    pairs = list(zip(sources, targets, strict=True))
    with tqdm(total=len(pairs), unit="pair", disable=not sys.stderr.isatty()) as bar:
        scores = score_pairs(loaded, tokenizer, pairs, on_progress=bar.update)
    scored = list(zip(pairs, scores, strict=True))
    if rank:
        first = {text: number for number, text in reversed(list(enumerate(sources)))}
        scored.sort(key=lambda each: (first[each[0][0]], -each[1].score))
    for (source_text, target_text), each in scored:
        values = {"score": each.score, "log_probability": each.log_probability, "per_token": each.per_token}
        if json:
            print(_json_line({"source": source_text, "target": target_text, **values, "tokens": each.tokens}))
        else:
            print(*(f"{value:.4f}" for value in values.values()), target_text, sep="\t")


def convert(model: str, *, output: Path) -> None:
    """Makes a Marian (OPUS-MT) translation model one of ours, with its tokenizer and its decoding.

    Args:
        model: A folder, or a repository of the Hub, say Helsinki-NLP/opus-mt-en-de.
        output: Folder to save the model in; it must not exist yet.
    """
    from transformers import AutoConfig, AutoTokenizer, MarianMTModel

    from .files import written_beside
    from .model.conversion_vanilla_transformer import from_marian
    from .run_folder import load_weights

    if (kind := AutoConfig.from_pretrained(model).model_type) != "marian":
        raise ValueError(f"{model} is no Marian model but one of the kind {kind}: only Marian's can be converted.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except ImportError as error:
        raise ValueError(
            'Marian\'s tokenizers need sentencepiece: pip install "vanilla-transformer[marian]"'
        ) from error
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{model} has no whole Marian tokenizer: source.spm, target.spm and vocab.json.") from error
    with written_beside(output) as beside:
        from_marian(load_weights(MarianMTModel, model)).save_pretrained(beside)
        tokenizer.save_pretrained(beside)
    logger.info("Saved the model and its tokenizer in %s.", output)


def export(model: Path, *, output: Path, format: str = "ctranslate2", quantization: str | None = None) -> None:
    """Writes a model and its tokenizer for another engine: CTranslate2, which translates without torch.

    Args:
        model: A run folder or a model's folder.
        output: Folder to save it in; it must not exist yet.
        format: ctranslate2.
        quantization: How weights are stored: float32, float16, bfloat16, int16, int8, int8_float32, int8_float16 or
            int8_bfloat16. float32 if it is not given.
    """
    if format != "ctranslate2":
        raise UsageError(f"There is no format {format!r}: choose ctranslate2.")
    try:
        from .export.ctranslate2 import QUANTIZATIONS, to_ctranslate2
    except ImportError as error:
        raise ValueError(str(error)) from error
    from .run_folder import load_model

    if quantization not in (None, *QUANTIZATIONS):
        raise UsageError(f"There is no quantization {quantization!r}: choose {', '.join(QUANTIZATIONS)}.")
    to_ctranslate2(*load_model(model), output, quantization=quantization)
    logger.info("Saved the model and its tokenizer in %s.", output)


def plot(what: str, subject: list[str] | None = None, *, output: Path, model: Path | None = None, layer: int = -1):
    """Draws a picture: curve RUN, attention SENTENCE, schedule [WARMUP ...], or positions.

    Args:
        what: curve (of a run folder), attention (of a model on a sentence), schedule (equation 3) or positions (3.5).
        subject: The run folder, the sentence, or numbers of warm-up updates.
        output: PNG file to write.
        model: For attention: a run folder or a model's folder.
        layer: For attention: the decoder layer, counted from 0; the last if it is not given.
    """
    drawings = {"curve": _plot_curve, "attention": _plot_attention, "schedule": _plot_schedule}
    if what == "positions":
        _plot_positions(output)
    elif what in drawings:
        drawings[what](subject or [], output, model, layer)
    else:
        raise UsageError(f"Nothing to draw is called {what!r}: choose curve, attention, schedule or positions.")


def recipes() -> None:
    """Lists the recipes that come with the package."""
    from .training.recipe import list_recipes

    for name, description in list_recipes().items():
        print(f"{name:<20} {description}")


COMMANDS: tuple[Callable, ...] = (recipes, train, translate, score, evaluate, tokenizer, average, convert, export, plot)


# ------------------------------------------------------------------------------------------- what the commands use


def _use_memory_well() -> None:
    """Lets glibc keep freed memory: by default large tensors go back to the system and are faulted in at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)


def _input_lines(path: Path | None) -> Iterable[str]:
    from .files import decoded_lines, text_lines

    if path is not None:
        return text_lines(path)
    if sys.stdin.isatty():
        logger.info("Reading sentences from the terminal; end with Ctrl-D.")
    # A file of its own: the interpreter closes sys.stdin when it ends, and cannot while a thread waits for a line.
    return decoded_lines(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), "standard input")


def _one_line(text: str) -> str:
    return " ".join(re.split(r"[\r\n]+", text))


def _search_options(
    num_beams: int | None,
    n_best: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int | None = None,
) -> dict:
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


def _translations(model: Path, blocks: Iterable[list[str]], **options) -> Iterator[tuple[str, list["Hypothesis"]]]:
    """Every line of the blocks with its translations; progress on standard error if it is a terminal."""
    from tqdm import tqdm

    from .run_folder import load_model
    from .translation import translate_lines

    _use_memory_well()
    loaded, tokenizer = load_model(model)
    wanted = options.get("num_return_sequences", 1)
    if not options.get("do_sample") and wanted > options.get("num_beams", loaded.generation_config.num_beams or 1):
        options["num_beams"] = wanted
    sources: collections.deque[str] = collections.deque()  # of the block that is being translated

    def remembered() -> Iterator[list[str]]:
        for block in blocks:
            sources.extend(block)
            yield block
            sys.stdout.flush()  # by then all of the block's translations are written

    with tqdm(unit="sentence", disable=not sys.stderr.isatty()) as bar:
        for hypotheses in translate_lines(loaded, tokenizer, remembered(), on_progress=bar.update, **options):
            yield sources.popleft(), hypotheses


def _translation_lines(number: int, source: str, hypotheses: list["Hypothesis"], n_best: bool, as_json: bool):
    if as_json:
        translations = [{"text": each.text, "score": each.score} for each in hypotheses]
        yield _json_line({"source": source, "translations": translations}) + "\n"
    elif n_best:
        for each in hypotheses:
            score = "" if each.score is None else f"{each.score:.4f}"
            yield f"{number}\t{score}\t{_one_line(each.text)}\n"
    else:
        yield f"{_one_line(hypotheses[0].text)}\n"


def _scores_table(records: list[dict]) -> str:
    rows = [(r.get("model", ""), r["test_set"], r["metric"], f"{r['value']:.2f}", r["signature"]) for r in records]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).strip()
        for row in rows
    )


def _json_line(record: dict) -> str:
    return json.dumps(record, ensure_ascii=False)


def _json_text(records: list[dict]) -> str:
    return json.dumps(records, indent=2, ensure_ascii=False)


def _plot_curve(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from .plots import plot_learning_curve
    from .run_folder import RunFolder

    if len(subject) != 1:
        raise UsageError("Give one run folder: plot curve RUN --output FILE.png")
    plot_learning_curve(RunFolder(subject[0]).log_records(), output)


def _plot_attention(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from .evaluation.attention import cross_attention
    from .plots import plot_attention
    from .run_folder import load_model

    if len(subject) != 1 or model is None:
        raise UsageError('Give a model and one sentence: plot attention "SENTENCE" --model MODEL --output FILE.png')
    loaded, tokenizer = load_model(model)
    layers = loaded.config.decoder_layers
    if not -layers <= layer < layers:
        raise UsageError(f"{model} has {layers} decoder layers: choose --layer from 0 to {layers - 1}.")
    weights, source_tokens, target_tokens = cross_attention(loaded, tokenizer, subject[0], layer=layer)
    title = f"Decoder layer {layer % layers}: attention on the source"
    plot_attention(weights, source_tokens, target_tokens, output, title=title)


def _plot_schedule(subject: list[str], output: Path, model: Path | None, layer: int) -> None:
    from .plots import plot_schedule
    from .training.schedule import noam

    if not all(text.isdecimal() and int(text) > 0 for text in subject):
        raise UsageError(f"Warm-ups are numbers of updates, at least 1, not {' '.join(subject)}.")
    warmups = [int(text) for text in subject] or [4000, 8000]
    steps = range(1, 5 * max(warmups))
    plot_schedule({f"d_model 512, warm-up {w:,}": [noam(s, 512, w) for s in steps] for w in warmups}, output)


def _plot_positions(output: Path) -> None:
    import torch

    from .model.modeling_vanilla_transformer import sinusoids
    from .plots import plot_positional_encoding

    plot_positional_encoding(sinusoids(torch.arange(100), 128), output)


# ------------------------------------------------------------------------- from functions to a command line and back


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0 if it succeeded, 1 if it failed. (A command line that makes no sense ends the process with 2.)
    """
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    values = vars(options)
    command, debug = values.pop("command"), values.pop("debug")
    if "overrides" in inspect.signature(command).parameters:
        values["overrides"] = _overrides(parser, rest)
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        _configure_logging()
        command(**values)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 1
    except UsageError as error:
        parser.error(str(error))
    except Exception as error:
        if debug:
            raise
        # What users can mend has a message of its own; of anything else its kind is the best hint.
        kind = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
        print(f"vanilla-transformer: {kind}{' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _configure_logging() -> None:
    """Our messages on standard error; of transformers' only errors, and none of its bars for every file it touches."""
    from transformers.utils import logging as transformers_logging

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logger.setLevel(logging.INFO)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vanilla-transformer",
        description='The Transformer of "Attention Is All You Need": train it, translate with it, measure it.',
        allow_abbrev=False,
    )
    from . import __version__

    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for function in COMMANDS:
        _add_command(commands, function)
    return parser


def _add_command(commands, function: Callable) -> None:
    summary, details = _split_docstring(function)
    command = commands.add_parser(
        function.__name__,
        help=summary.splitlines()[0],
        description=summary,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=function)
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "overrides":
            _add_parameter(command, parameter, details[parameter.name])


def _add_parameter(command: argparse.ArgumentParser, parameter: inspect.Parameter, help: str) -> None:
    kind, many = _kind(parameter.annotation)
    required = parameter.default is inspect.Parameter.empty
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        many_of = ("+" if required else "*") if many else None
        command.add_argument(parameter.name, type=kind, nargs=many_of, help=help)
        return
    flag = f"--{parameter.name.replace('_', '-')}"
    if kind is bool:
        command.add_argument(flag, action="store_true", help=help)
        return
    if parameter.default not in (None, inspect.Parameter.empty):
        help += f" Default: {parameter.default}."
    default = None if required else parameter.default
    nargs = "+" if many else None
    command.add_argument(flag, type=kind, nargs=nargs, required=required, default=default, help=help)


def _kind(annotation: Any) -> tuple[type, bool]:
    """The type of a parameter's values and whether it takes several: `list[Path] | None` is (Path, True)."""
    if isinstance(annotation, types.UnionType):
        [annotation] = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    if typing.get_origin(annotation) is list:
        return typing.get_args(annotation)[0], True
    return annotation, False


def _split_docstring(function: Callable) -> tuple[str, dict[str, str]]:
    """What stands before `Args:` and, by name, what stands there of each argument."""
    summary, _, arguments = inspect.getdoc(function).partition("\nArgs:\n")
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {6,}.+)*)", arguments, flags=re.MULTILINE)
    return summary.strip(), {name: " ".join(text.split()) for name, text in found}


def _overrides(parser: argparse.ArgumentParser, rest: list[str]) -> dict[str, str]:
    """`--training.max_steps 2000` or `--training.max_steps=2000`, as `{"training.max_steps": "2000"}`."""
    found, waiting = {}, list(rest)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if not re.fullmatch(r"--\w+(\.\w+)*", name) or (not equals and not waiting):
            parser.error(f"expected --section.field VALUE, not {name!r}")
        found[name[2:]] = value if equals else waiting.pop(0)
    return found


if __name__ == "__main__":
    sys.exit(main())
