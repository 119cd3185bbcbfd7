"""How fast `vanilla-transformer prepare` tokenises, on one core and with more workers, and how much memory it takes.

    python scripts/benchmarks/preparing.py --source a.en.gz b.en.gz --target a.de.gz b.de.gz --json figures.json

The text is repeated up to the number of pairs asked for; its vocabulary is learned from it. Each preparation runs in
its own process. Seconds of one core are CPU time; the ways to tokenise take turns, chunk by chunk.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from vanilla_transformer.data.corpora import PairStream
from vanilla_transformer.data.encoding import PairLimits, encode_pairs
from vanilla_transformer.data.preparing import CHUNK_PAIRS, prepare
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer, load_tokenizer
from vanilla_transformer.environment import resident_bytes
from vanilla_transformer.files import text_lines


def stream_of(source: list[Path], target: list[Path], pairs: int) -> PairStream:
    """This many pairs from the files, which are repeated as needed."""

    def read(unit: int):
        rounds = (zip(text_lines(*source), text_lines(*target), strict=True) for _ in cycle([None]))
        return islice((pair for each in rounds for pair in each), pairs)

    return PairStream(str(source[0]), 1, read, {"pairs": pairs}, pairs=pairs)


def measure_tokenising(source: list[Path], target: list[Path], vocabulary: str, pairs: int) -> dict:
    """Microseconds of one core per pair: reading, the tokenizer's own call, ours, and the backend's part of ours."""
    tokenizer = load_tokenizer(vocabulary)
    started = time.process_time()
    texts = list(stream_of(source, target, pairs).read(0))
    seconds = {"reading": time.process_time() - started}

    def by_the_call(chunk):
        sides = ([pair[side].strip() for pair in chunk] for side in (0, 1))
        found = (tokenizer(side, return_attention_mask=False).input_ids for side in sides)
        return tuple([np.array(ids, dtype=np.int32) for ids in side] for side in found)

    ways = {
        "tokenizer(...)": by_the_call,
        "encode_pairs": lambda chunk: encode_pairs(tokenizer, chunk)[:2],
        "encode_batch_fast": lambda chunk: tokenizer.backend_tokenizer.encode_batch_fast([t for p in chunk for t in p]),
    }
    same = True
    for start in range(0, pairs, CHUNK_PAIRS):
        chunk, results = texts[start : start + CHUNK_PAIRS], {}
        for name, way in ways.items():
            started = time.process_time()
            results[name] = way(chunk)
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - started
        for theirs, ours in zip(results["tokenizer(...)"], results["encode_pairs"], strict=True):
            same = same and all(map(np.array_equal, theirs, ours)) and len(theirs) == len(ours)
    figures = {name: round(1e6 * each / pairs, 1) for name, each in seconds.items()}
    return {
        "pairs": pairs,
        "microseconds_per_pair": figures,
        "pairs_per_second_and_core": round(1e6 / figures["encode_pairs"]),
        "same_ids": same,
    }


def measure_preparing(source: list[Path], target: list[Path], vocabulary: str, pairs: int, workers: int) -> dict:
    """One preparation: pairs per second, CPU time of its parts, and peak memory of its processes."""
    # A spawned process would spawn its workers, too; a user gets the system's default.
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    tokenizer = load_tokenizer(vocabulary)
    stream = stream_of(source, target, pairs)
    with tempfile.TemporaryDirectory() as folder:
        prepare(stream_of(source, target, 10), tokenizer, f"{folder}/warm_up", workers=1)  # one-time loading
        at_first, before = resident_bytes("VmHWM") >> 20, cpu_seconds()
        started = time.perf_counter()
        report = prepare(stream, tokenizer, f"{folder}/output", limits=PairLimits(), workers=workers)
        seconds = time.perf_counter() - started
    reading_and_writing, tokenising = (after - b for after, b in zip(cpu_seconds(), before, strict=True))
    return {
        "pairs": pairs,
        "workers": workers,
        "seconds": round(seconds, 2),
        "pairs_per_second": round(pairs / seconds),
        "tokens_per_second": round((report.source_tokens + report.target_tokens) / seconds),
        "cpu_seconds_reading_and_writing": round(reading_and_writing, 2),
        "cpu_seconds_of_workers": round(tokenising, 2),
        "megabytes_at_first": at_first,
        "megabytes_at_most": resident_bytes("VmHWM") >> 20,
        "megabytes_of_a_worker_at_most": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds of this process, and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return tuple(usage.ru_utime + usage.ru_stime for usage in usages)


def alone(function, *arguments):
    """Calls the function in a new process and returns its result."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, nargs="+", required=True)
    parser.add_argument("--target", type=Path, nargs="+", required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as vocabulary:
        texts = text_lines(*options.source, *options.target)
        learn_tokenizer(texts, TokenizerSettings(vocab_size=options.vocab_size)).save_pretrained(vocabulary)
        files = options.source, options.target, vocabulary
        figures = {"tokenising": alone(measure_tokenising, *files, min(options.pairs)), "preparing": []}
        print(json.dumps(figures["tokenising"], indent=2))
        for workers in options.workers:
            for pairs in options.pairs:
                figures["preparing"].append(alone(measure_preparing, *files, pairs, workers))
                print(json.dumps(figures["preparing"][-1], indent=2), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
