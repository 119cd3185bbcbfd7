"""How fast our search translates beside transformers' own and CTranslate2, in one run with the same weights.

    python scripts/benchmarks/translation.py RUN multi30k/test_2016_flickr.en.gz multi30k/test_2016_flickr.de.gz

RUN is a trained run folder or model. The paper's base model is measured beside it, with random weights and outputs of
fixed length. Contestants take turns within each round; figures are medians over the rounds, and ratios compare
medians.

All use the same batches, threads, length penalty and stopping rule: |Y|^0.6, and a sentence is done when it has as
many finished hypotheses as the search has open ones, the only rule that CTranslate2 has. CTranslate2 differs in two
ways: its sources are token strings instead of ids; and where the length is fixed it forbids the end token, while the
others merely do not stop there. The int8 models (its and ours) and the bfloat16 one have rounded weights, and so other
translations. Without the package, CTranslate2's rows are left out.

Memory is resident memory on Linux, each contestant alone in a new process that translates a task's first batch.
"Model" is what loading the model took, "peak" the most beyond that during translation. Anything packed or read only
when needed counts in "peak", so compare the sums.

With `--device cuda` models are on the GPU. Memory is then what torch has allocated there: "model" is the weights,
"peak" the most beyond them while the first batch is translated. Models in int8, CTranslate2 and workers are left out.
A GPU wants larger batches: `--batch-sizes 512 64 1`.
"""

import argparse
import copy
import ctypes
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import sacrebleu
import torch
from tqdm import tqdm
from transformers import MarianMTModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerationMixin
from transformers.utils import logging as transformers_logging

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    to_marian,
    translate_lines,
)
from vanilla_transformer.environment import machine, resident_bytes
from vanilla_transformer.files import text_lines
from vanilla_transformer.model.modeling_vanilla_transformer import sinusoids
from vanilla_transformer.run.loading import load_model, load_weights
from vanilla_transformer.translation.int8 import quantize_int8
from vanilla_transformer.translation.precision import in_precision


try:
    import ctranslate2

    from vanilla_transformer.export.ctranslate2 import to_ctranslate2
except ImportError:
    ctranslate2 = None

# A length penalty and a stopping rule that every contestant has: all outputs in float32 should be the same.
BEAM = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": True, "length_penalty_type": "length"}
GREEDY = {"num_beams": 1}
LIMIT = 99  # most tokens of a translation by the trained model
FIXED = 30  # tokens of every translation by the base model


@dataclass(frozen=True)
class Task:
    """Sources, as ids, to translate with the model in a folder, in batches of `size`."""

    model: str
    folder: Path
    sources: list[list[int]]
    size: int
    search: dict
    limit: int = LIMIT
    has_fixed_length: bool = False

    def batches(self) -> list[list[list[int]]]:
        """Sources of similar length together."""
        ordered = sorted(self.sources, key=len, reverse=True)
        return [ordered[start : start + self.size] for start in range(0, len(ordered), self.size)]


@dataclass
class Row:
    """One contestant at one task."""

    model: str
    search: str
    batch: int
    contestant: str
    sentences_per_second: float
    target_tokens_per_second: float
    ours_is_faster_by: float
    model_megabytes: float | None
    peak_megabytes: float | None
    outputs_as_ours: float
    sacrebleu: float | None


# ------------------------------------------------------------------------------------------------------- contestants

# Contestants are functions from a batch of a task to its translations, as ids without the start token.
Contestant = Callable[[list[list[int]], Task], list[list[int]]]


def generating(generate: Callable, model: PreTrainedModel) -> Contestant:
    pad, device = model.config.pad_token_id, model.device

    def translate(batch: list[list[int]], task: Task) -> list[list[int]]:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in batch], device=device)
        options = (
            task.search | {"max_new_tokens": task.limit} | ({"eos_token_id": None} if task.has_fixed_length else {})
        )
        found = generate(input_ids=ids, attention_mask=(ids != pad).long(), **options)
        return [[token for token in row[1:] if token != pad] for row in found.tolist()]

    return translate


def loaded(folder: Path, device: str) -> VanillaTransformerForConditionalGeneration:
    return load_weights(VanillaTransformerForConditionalGeneration, folder / "model").eval().to(device)


def ours(folder: Path, device: str) -> Contestant:
    model = in_precision(loaded(folder, device), "float32")
    return generating(model.generate, model)


def ours_bfloat16(folder: Path, device: str) -> Contestant:
    model = in_precision(loaded(folder, device), "bfloat16")
    return generating(model.generate, model)


def ours_int8(folder: Path, device: str) -> Contestant:
    model = loaded(folder, device)
    quantize_int8(model)
    return generating(model.generate, model)


def transformers_search(folder: Path, device: str) -> Contestant:
    model = loaded(folder, device)

    def generate(num_beams: int, **options):
        own = GenerationMixin._beam_search if num_beams > 1 else GenerationMixin._sample
        return model.generate(num_beams=num_beams, **options, custom_generate=own)

    return generating(generate, model)


def marian(folder: Path, device: str) -> Contestant:
    model = as_marian(loaded(folder, "cpu")).to(device)

    def generate(length_penalty_type=None, **options):
        return model.generate(**options)

    return generating(generate, model)


def as_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """The same model as a `MarianMTModel`, with our interleaved sinusoids in its table of positions."""
    halves = copy.deepcopy(model)
    halves.config.sinusoid_layout = "halves"
    marian = to_marian(halves).eval()
    for stack in (marian.model.encoder, marian.model.decoder):
        table = stack.embed_positions.weight
        table.data = sinusoids(torch.arange(len(table)), table.shape[1], model.config.sinusoid_layout)
    return marian


def ctranslate2_float32(folder: Path, device: str) -> Contestant:
    return by_ctranslate2(folder, "float32")


def ctranslate2_int8(folder: Path, device: str) -> Contestant:
    return by_ctranslate2(folder, "int8")


def by_ctranslate2(folder: Path, kind: str) -> Contestant:
    threads = torch.get_num_threads()
    translator = ctranslate2.Translator(str(folder / kind), compute_type=kind, inter_threads=1, intra_threads=threads)
    tokens = json.loads((folder / kind / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {token: number for number, token in enumerate(tokens)}

    def translate(batch: list[list[int]], task: Task) -> list[list[int]]:
        found = translator.translate_batch(
            [[tokens[number] for number in row] for row in batch],
            **ctranslate2_options(task.search),
            max_decoding_length=task.limit,
            min_decoding_length=task.limit if task.has_fixed_length else 0,
        )
        return [[ids[token] for token in each.hypotheses[0]] for each in found]

    return translate


def ctranslate2_options(search: dict) -> dict:
    """The same search; its penalty counts the end token if that is returned."""
    penalty = search.get("length_penalty", 0)
    return {"beam_size": search["num_beams"], "length_penalty": penalty, "return_end_token": True}


CONTESTANTS = {
    "ours": ours,
    "ours bfloat16": ours_bfloat16,
    "ours int8": ours_int8,
    "GenerationMixin, same model": transformers_search,
    "MarianMTModel, same weights": marian,
}
if ctranslate2 is not None:
    CONTESTANTS |= {"CTranslate2 float32": ctranslate2_float32, "CTranslate2 int8": ctranslate2_int8}
ON_CPU_ONLY = {"ours int8", "CTranslate2 float32", "CTranslate2 int8"}


def contestants(folder: Path, device: str) -> dict[str, Contestant]:
    left_out = ON_CPU_ONLY if device != "cpu" else set()
    return {name: build(folder, device) for name, build in CONTESTANTS.items() if name not in left_out}


# ------------------------------------------------------------------------------------------------------- measurements


def measured(
    task: Task, competing: dict[str, Contestant], rounds: int, threads: int, device: str, decode=None
) -> list[Row]:
    """The rows of one task."""
    beams, batches = task.search["num_beams"], task.batches()
    times, outputs = {name: [] for name in competing}, {}
    for translate in competing.values():
        translate(batches[0][:1], task)  # one-time work of the first call does not count
    for _ in tqdm(range(rounds), desc=f"{task.model}, {beams} hypotheses, batch {task.size}"):
        for name, translate in competing.items():
            started = time.perf_counter()
            outputs[name] = [row for batch in batches for row in translate(batch, task)]
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    rows = []
    for name, seconds in medians.items():
        found = outputs[name]
        same = sum(a == b for a, b in zip(found, outputs["ours"], strict=True)) / len(found)
        row = Row(
            task.model, f"beam {beams}" if beams > 1 else "greedy", task.size, name, len(found) / seconds,
            sum(map(len, found)) / seconds, seconds / medians["ours"], *memory(name, task, threads, device), same,
            decode(found) if decode else None,
        )  # fmt: skip
        rows.append(row)
    return rows


def memory(name: str, task: Task, threads: int, device: str) -> tuple[float | None, float | None]:
    """Megabytes that a contestant takes to load its model, and the most beyond that to translate a batch."""
    if device == "cuda":
        return memory_on_the_gpu(name, task)
    if sys.platform != "linux":
        return None, None
    context = get_context("forkserver")  # forks a process that has imported the libraries and done nothing else
    context.set_forkserver_preload(
        ["vanilla_transformer.translation", to_marian.__module__, "ctranslate2", "sacrebleu"]
    )
    with ProcessPoolExecutor(1, mp_context=context) as alone:
        return alone.submit(memory_of_this_process, name, task, threads).result()


def memory_on_the_gpu(name: str, task: Task) -> tuple[float, float]:
    """Like `memory`. torch counts exactly, so this needs no process of its own."""
    before = torch.cuda.memory_allocated()
    translate = CONTESTANTS[name](task.folder, "cuda")
    with_model = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    translate(task.batches()[0], task)
    return (with_model - before) / 2**20, (torch.cuda.max_memory_allocated() - with_model) / 2**20


def memory_of_this_process(name: str, task: Task, threads: int) -> tuple[float, float]:
    torch.set_num_threads(threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    before = resident_bytes("VmRSS")
    translate = CONTESTANTS[name](task.folder, "cpu")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # leftovers of loading are not part of the model
    with_model = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, which was that of loading
    translate(task.batches()[0], task)
    return (with_model - before) / 2**20, (resident_bytes("VmHWM") - with_model) / 2**20


def with_workers(folder: Path, tokenizer: PreTrainedTokenizerBase, texts: list[str], rounds: int) -> list[dict]:
    """Sentences per second, from text to text, with one and two workers of one thread each, in beam search.

    The time of ours includes that of starting the workers, which CTranslate2's translator has done before.
    """
    model, competing = in_precision(loaded(folder, "cpu"), "float32"), {}
    for workers in (1, 2):

        def by_ours(workers=workers):
            options = {"workers": workers, "batch_tokens": 1024, "max_new_tokens": LIMIT, **BEAM}
            return [best.text for best, *_ in translate_lines(model, tokenizer, [texts], **options)]

        competing["ours", workers] = by_ours
        if ctranslate2 is not None:
            competing["CTranslate2 float32", workers] = texts_by_ctranslate2(folder, tokenizer, texts, workers)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times, outputs = {each: [] for each in competing}, {}
    for _ in tqdm(range(rounds), desc="workers"):
        for each, translate in competing.items():
            started = time.perf_counter()
            outputs[each] = translate()
            times[each].append(time.perf_counter() - started)
    torch.set_num_threads(threads)
    speeds = {each: len(texts) / statistics.median(taken) for each, taken in times.items()}
    rows = []
    for (name, workers), speed in speeds.items():
        same = sum(a == b for a, b in zip(outputs[name, workers], outputs["ours", 1], strict=True)) / len(texts)
        scale = speed / speeds[name, 1]
        rows.append({"contestant": name, "workers": workers, "speed": speed, "times_one": scale, "same": same})
    return rows


def texts_by_ctranslate2(folder: Path, tokenizer, texts: list[str], workers: int) -> Callable[[], list[str]]:
    translator = ctranslate2.Translator(str(folder / "float32"), inter_threads=workers, intra_threads=1)
    options = {"max_batch_size": 1024, "batch_type": "tokens", "max_decoding_length": LIMIT, "min_decoding_length": 0}

    def translate() -> list[str]:
        sources = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(texts).input_ids]
        found = translator.translate_batch(sources, **options, **ctranslate2_options(BEAM))
        rows = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
        return tokenizer.batch_decode(rows, skip_special_tokens=True)

    return translate


# ---------------------------------------------------------------------------------------------------------- the tasks


def saved(model: VanillaTransformerForConditionalGeneration, tokenizer, folder: Path) -> Path:
    """A folder with the model in every contestant's format."""
    model.save_pretrained(folder / "model")
    if ctranslate2 is not None:
        for kind in ("float32", "int8"):
            to_ctranslate2(model, tokenizer, folder / kind, quantization=kind)
    return folder


def trained_rows(folder: Path, tokenizer, texts: list[str], references: list[str], options: argparse.Namespace):
    ids = tokenizer(texts).input_ids
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)

    def bleu(found: list[list[int]]) -> float:
        hypotheses = tokenizer.batch_decode(found, skip_special_tokens=True)
        return sacrebleu.corpus_bleu(hypotheses, [[references[i] for i in order]]).score

    competing = contestants(folder, options.device)
    few = [ids[i] for i in order[:: max(1, len(order) // 32)]]
    for size in options.batch_sizes or (64, 1):
        for search in (BEAM, GREEDY):
            task = Task("trained", folder, few if size == 1 else ids, size, search)
            decode = None if size == 1 else bleu
            yield from measured(task, competing, options.rounds, options.threads, options.device, decode)


def base_rows(folder: Path, vocab_size: int, options: argparse.Namespace):
    sizes = options.batch_sizes or (32, 1)
    lengths = torch.randint(8, 25, (max(64, *sizes),)).tolist()
    made_up = [[*torch.randint(4, vocab_size, (length,)).tolist(), 2] for length in lengths]
    competing = contestants(folder, options.device)
    for size in sizes:
        for search in (BEAM, GREEDY):
            task = Task("base", folder, made_up[: size if size > 1 else 4], size, search, FIXED, True)
            yield from measured(task, competing, min(3, options.rounds), options.threads, options.device)


def print_tables(machine: str, rows: list[Row], workers: list[dict]) -> None:
    def shown(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    print(f"\n{machine}\n")
    print("| model | search | batch | | sentences/s | tokens/s | ours is faster by |", end="")
    print(" model, MB | peak, MB | same outputs | BLEU |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row.model} | {row.search} | {row.batch} | {row.contestant} | {row.sentences_per_second:.1f} | "
            f"{row.target_tokens_per_second:.0f} | {row.ours_is_faster_by:.2f} | {shown(row.model_megabytes, 0)} | "
            f"{shown(row.peak_megabytes, 0)} | {row.outputs_as_ours:.1%} | {shown(row.sacrebleu, 2)} |"
        )
    if workers:
        print("\nTrained model, beam 4, from text to text, workers with one thread each:\n")
        print("| | workers | sentences/s | times one worker's | same translations |")
        print("| --- | ---: | ---: | ---: | ---: |")
    for row in workers:
        print("| {contestant} | {workers} | {speed:.1f} | {times_one:.2f} | {same:.1%} |".format(**row))
    if ctranslate2 is None and workers:
        print('\nCTranslate2 is not installed: pip install "vanilla-transformer[ctranslate2]"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--sentences", type=int, default=256, help="for the trained model in batches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch-sizes", nargs="+", type=int, help="Default: 64 and 1, for the base model 32 and 1")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()

    trained, tokenizer = load_model(arguments.model)
    trained.to("cpu").generation_config.max_length = None  # every task has its own
    sources = list(text_lines(arguments.sources))
    texts, references = sources[: arguments.sentences], list(text_lines(arguments.references))[: arguments.sentences]
    torch.manual_seed(0)
    base = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig()).eval()
    with tempfile.TemporaryDirectory() as temporary:
        folder = saved(trained, tokenizer, Path(temporary) / "trained")
        rows = list(trained_rows(folder, tokenizer, texts, references, arguments))
        workers = with_workers(folder, tokenizer, sources, arguments.rounds) if arguments.device == "cpu" else []
        folder = saved(base, tokenizer, Path(temporary) / "base")
        rows += base_rows(folder, base.config.vocab_size, arguments)

    where = torch.cuda.get_device_name() if arguments.device == "cuda" else machine()["processor"]
    where += f", {arguments.threads} threads, torch {torch.__version__}"
    print_tables(where, rows, workers)
    if arguments.json:
        record = {"machine": where, "rows": [asdict(row) for row in rows], "workers": workers}
        arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
