"""What batches from a stream cost: pairs per second, memory, and the share of their cells that hold a token.

    python scripts/benchmarks/stream.py --source train.en.gz --target train.de.gz --pairs 1000000 4500000

Streams of these sizes, drawn from the given text so that lengths have its distribution, go through one pass of
`TokenBatchStream`, each in its own process. Nothing is trained.
"""

import argparse
import json
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from vanilla_transformer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.batching import TranslationCollator
from vanilla_transformer.data.corpora import ROWS_PER_UNIT, Pair, PairStream
from vanilla_transformer.environment import resident_bytes
from vanilla_transformer.files import text_lines


def drawn_from(text: list[Pair], pairs: int) -> PairStream:
    """A stream of `pairs` pairs that is not stored anywhere."""

    def unit(number: int) -> Iterator[Pair]:
        rows = min(ROWS_PER_UNIT, pairs - number * ROWS_PER_UNIT)
        for choice in np.random.default_rng(number).integers(len(text), size=rows).tolist():
            yield text[choice]

    return PairStream("text drawn at random", -(-pairs // ROWS_PER_UNIT), unit)


def one_pass(text: list[Pair], vocabulary: int, pairs: int, max_tokens: int, buffer_pairs: int) -> dict:
    """The figures of one stream."""
    tokenizer = learn_tokenizer((side for pair in text for side in pair), TokenizerSettings(vocab_size=vocabulary))
    stream = TokenBatchStream(
        drawn_from(text, pairs),
        tokenizer,
        max_tokens,
        buffer_pairs=buffer_pairs,
        passes=1,
        collate=TranslationCollator(),
    )
    before, started = resident_bytes("VmRSS") / 2**20, time.perf_counter()
    batches = tokens = cells = 0
    for batch in stream:
        batches += 1
        tokens += int(batch["attention_mask"].sum()) + int((batch["labels"] != -100).sum())
        cells += batch["input_ids"].numel() + batch["labels"].numel()
    seconds = time.perf_counter() - started
    return {
        "pairs": stream.report.pairs,
        "batches": batches,
        "pairs_per_second": pairs / seconds,
        "real_share": tokens / cells,
        "tokens_per_pair": tokens / pairs,
        "memory_before_mb": before,
        "peak_memory_mb": resident_bytes("VmHWM") / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 4_500_000])
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--max-tokens", type=int, default=25_000)
    parser.add_argument("--buffer-pairs", type=int, default=200_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    text = list(zip(text_lines(arguments.source), text_lines(arguments.target), strict=True))
    context, rows = get_context("spawn"), []
    for pairs in arguments.pairs:
        with context.Pool(1) as process:
            job = (text, arguments.vocabulary, pairs, arguments.max_tokens, arguments.buffer_pairs)
            rows.append(process.apply(one_pass, job))
        print(
            f"{pairs:,} pairs: {rows[-1]['pairs_per_second']:,.0f} pairs/s, {rows[-1]['batches']:,} batches, "
            f"{rows[-1]['real_share']:.1%} real, {rows[-1]['memory_before_mb']:.0f} MB before and "
            f"{rows[-1]['peak_memory_mb']:.0f} MB at most",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
