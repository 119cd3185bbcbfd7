"""How fast we train beside MarianMTModel and torch.nn.Transformer: whole optimiser steps, same shapes, same batches.

    python scripts/benchmarks/training.py --source multi30k/train.en.gz --target multi30k/train.de.gz

Without files the text is the built-in phrasebook. Every contestant runs in its own process, which trains only in its
turn: an epoch of the same few bucketed batches of real sentences, after one to warm up. Turns go round; figures are
medians over the rounds, and ratios compare medians. Where memory does not hold all contestants at once (base),
`--fresh` starts a new process for every turn. All use AdamW (fused), dropout and label smoothing 0.1, and bfloat16 by
autocast.

"stock" is a process as Python starts it. "tuned" has the process settings of `vanilla-transformer train`: allocator
and matrix products. Ours is measured tuned, once with `VanillaTransformerTrainer` and once in a bare loop;
`--stock-too` adds ours without the settings. The ceiling is the speed of the matrix products of the model's linear
layers alone, with the same settings.

On a GPU the settings make no difference and are left out; `--compile` adds all contestants under `torch.compile`.

    python scripts/benchmarks/training.py --shapes tiny --lengths 64 256 1024 4096

instead measures single pairs with this many tokens on each side. Memory is the peak of a contestant's process since it
began (resident, or allocated on the GPU), with model, gradients and Adam's averages.
"""

import argparse
import contextlib
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from datasets import Dataset
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm
from training_contestants import MODELS, SHAPES, Task, our_model
from transformers import TrainerCallback
from transformers.utils import logging as transformers_logging

from vanilla_transformer import (
    TokenBatchSampler,
    TokenizerSettings,
    VanillaTransformerTrainer,
    VanillaTransformerTrainingArguments,
    learn_tokenizer,
    phrasebook,
)
from vanilla_transformer.commands.process import prepare_for_training
from vanilla_transformer.environment import machine, resident_bytes
from vanilla_transformer.files import text_lines, write_json


@dataclass(frozen=True)
class Contestant:
    model: str
    tuned: bool = False
    trainer: bool = False  # ours only
    compiled: bool = False

    def __str__(self) -> str:
        parts = ["through Trainer"] * self.trainer + ["compiled"] * self.compiled + ["stock", "tuned"][self.tuned :][:1]
        return f"{self.model}, {', '.join(parts)}"


# --------------------------------------------------------------------------------------------------------- processes


class Turns:
    """Within a contestant's process: trains only when told to, and reports how long an epoch took."""

    def __init__(self, connection: Connection, steps: int, device: str):
        self.connection, self.steps, self.device = connection, steps, device
        self.done = 0
        self._wait()

    def _wait(self) -> None:
        try:
            self.connection.recv()
        except EOFError:  # there are no more turns
            raise SystemExit from None
        self.started = time.perf_counter()

    def after_step(self) -> None:
        self.done += 1
        if self.done % self.steps == 0:
            if self.device == "cuda":
                torch.cuda.synchronize()
            self.connection.send((time.perf_counter() - self.started, peak_megabytes(self.device)))
            self._wait()


class TurnsOfTrainer(TrainerCallback):
    def __init__(self, turns: Turns):
        self.turns = turns

    def on_step_end(self, args, state, control, **kwargs):
        self.turns.after_step()


def contestant_process(contestant: Contestant, task: Task, connection: Connection) -> None:
    """Trains until it is told to stop."""
    transformers_logging.set_verbosity_error()
    if contestant.tuned:
        prepare_for_training()
    torch.manual_seed(0)
    if contestant.trainer:
        train_with_trainer(task, connection)
        return
    model, step = MODELS[contestant.model](task)
    if contestant.compiled:
        step = torch.compile(step, dynamic=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True)
    turns = Turns(connection, len(task.sampler()), task.device)
    for epoch in itertools.count():
        for batch in task.batches(epoch):
            batch = {name: tensor.to(task.device) for name, tensor in batch.items()}
            optimizer.zero_grad(set_to_none=True)
            with task.autocast():
                loss = step(batch)
            loss.backward()
            optimizer.step()
            turns.after_step()


def train_with_trainer(task: Task, connection: Connection) -> None:
    """The same steps as a user's, without validation and checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = VanillaTransformerTrainingArguments(
            folder,
            max_tokens=task.max_tokens,
            bf16=task.bf16,
            eval_strategy="no",
            save_strategy="no",
            load_best_model_at_end=False,
            disable_tqdm=True,
            use_cpu=task.device == "cpu",
        )
        trainer = VanillaTransformerTrainer(our_model(task), arguments, train_dataset=Dataset.from_list(task.rows))
        trainer.add_callback(TurnsOfTrainer(Turns(connection, len(trainer.train_batches), task.device)))
        trainer.train()


def peak_megabytes(device: str) -> float:
    """The most memory this process has held: resident, or allocated on the GPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return (resident_bytes("VmHWM") or math.nan) / 2**20


# ----------------------------------------------------------------------------------------------------------- ceiling


def ceiling_process(task: Task, connection: Connection) -> None:
    """Computes only the linear layers' matrix products of an epoch: the forward one and both backward ones."""
    prepare_for_training()
    dtype = torch.bfloat16 if task.bf16 else torch.float32
    products = []
    for rows, inputs, outputs, count in linear_layers(task):
        x, w, y = (
            torch.randn(shape, device=task.device).to(dtype)
            for shape in ((rows, inputs), (outputs, inputs), (rows, outputs))
        )
        products += [(x, w.T, count), (y, w, count), (y.T, x, count)]
    turns = Turns(connection, 1, task.device)
    while True:
        for left, right, count in products:
            for _ in range(count):
                left @ right
        turns.after_step()


def linear_layers(task: Task) -> list[tuple[int, int, int, int]]:
    """(rows, inputs, outputs, how often) of the products of all batches of an epoch."""
    d, ffn, layers, vocabulary = (task.sizes[name] for name in ("d_model", "ffn_dim", "layers", "vocab_size"))
    found = []
    for batch in task.batches(0):
        source, target = batch["input_ids"].numel(), batch["labels"].numel()
        found += [(source, d, d, (4 + 2) * layers), (target, d, d, (4 + 2) * layers)]
        found += [
            (source, d, ffn, layers),
            (source, ffn, d, layers),
            (target, d, ffn, layers),
            (target, ffn, d, layers),
        ]
        found += [(int((batch["labels"] != -100).sum()), d, vocabulary, 1)]
    return found


def floating_point_operations(task: Task) -> int:
    """Operations of an epoch's matrix products, attention's included, forward and backward; counted, not run."""
    with torch.device("meta"):
        model = our_model(replace(task, device="meta")).train()
    with FlopCounterMode(display=False) as counter:
        for batch in task.batches(0):
            model(**{name: tensor.to("meta") for name, tensor in batch.items()}).loss.backward()
    return counter.get_total_flops()


# -------------------------------------------------------------------------------------------------------- the rounds


def real_rows(source: Path | None, target: Path | None, vocabulary: int) -> list[dict[str, list[int]]]:
    """Token ids of all pairs of two text files, or of the phrasebook."""
    if source is None:
        pairs = [(pair["en"], pair["de"]) for pair in itertools.islice(phrasebook("train"), 30_000)]
        vocabulary = min(1_500, vocabulary)  # it has hardly more pieces to learn
    else:
        pairs = list(zip(text_lines(source), text_lines(target), strict=True))
    tokenizer = learn_tokenizer((text for pair in pairs for text in pair), TokenizerSettings(vocab_size=vocabulary))
    sources, targets = (tokenizer([pair[side] for pair in pairs])["input_ids"] for side in (0, 1))
    return [{"input_ids": source, "labels": target} for source, target in zip(sources, targets, strict=True)]


def sample_of(rows: list[dict[str, list[int]]], max_tokens: int, batches: int) -> list[dict[str, list[int]]]:
    """The pairs of this many batches, spread evenly from the shortest to the longest."""
    lengths = ([len(row[side]) for row in rows] for side in ("input_ids", "labels"))
    every = list(TokenBatchSampler(*lengths, max_tokens, shuffle=False))
    chosen = [every[int((number + 0.5) * len(every) / batches)] for number in range(batches)]
    return [rows[number] for batch in chosen for number in batch]


def measured(
    task: Task, contestants: list[Contestant], rounds: int, fresh: bool
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of an epoch and peak megabytes of every contestant, and of the ceiling, round by round."""
    starts = {str(each): partial(started, str(each), contestant_process, each, task) for each in contestants}
    starts["ceiling"] = partial(started, "ceiling", ceiling_process, task)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in starts}
    with (
        contextlib.ExitStack() as all_at_once,
        tqdm(total=rounds * len(starts), desc=f"{task.shape} {'bf16' if task.bf16 else 'float32'}") as bar,
    ):
        # All processes start before any trains, so that many cores start them together.
        turns = {} if fresh else {name: all_at_once.enter_context(start()) for name, start in starts.items()}
        for warm_up in turns.values():
            warm_up()
        for _ in range(rounds):
            for name, start in starts.items():
                with start() if fresh else contextlib.nullcontext(turns[name]) as turn:
                    if fresh:
                        turn()  # to warm up
                    results[name].append(turn())
                bar.update()
    return results


@contextlib.contextmanager
def started(name: str, function: Callable, *arguments) -> Iterator[Callable[[], tuple[float, float]]]:
    """A process; the yielded function gives it a turn. The first is a warm-up and should not count."""
    context = get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=function, args=(*arguments, theirs), daemon=True)

    def turn() -> tuple[float, float]:
        try:
            connection.send(True)
            return connection.recv()
        except (EOFError, BrokenPipeError):
            process.join()
            ended = f"{name} ended with status {process.exitcode}."
            raise SystemExit(f"{ended} If memory was what it lacked: --fresh, or fewer --max-tokens.") from None

    process.start()
    theirs.close()
    try:
        yield turn
    finally:
        connection.close()
        process.terminate()
        process.join()


def rows_of_table(task: Task, contestants: list[Contestant], rounds: int, fresh: bool) -> Iterator[dict]:
    """Medians over the rounds."""
    results = measured(task, contestants, rounds, fresh)
    seconds = {name: statistics.median(each[0] for each in result) for name, result in results.items()}
    tokens = sum(len(row["labels"]) for row in task.rows)
    operations = floating_point_operations(task)
    ceiling = sum(6 * math.prod(shape) for shape in linear_layers(task)) / seconds["ceiling"]
    peers = {kind: [str(c) for c in contestants if c.model != "ours" and c.tuned is kind] for kind in (False, True)}
    fastest = {kind: min((seconds[name] for name in names), default=math.nan) for kind, names in peers.items()}
    for contestant in contestants:
        name = str(contestant)
        speed = operations / seconds[name]
        yield {
            "shape": task.shape,
            "dtype": "bfloat16" if task.bf16 else "float32",
            "contestant": name,
            "target_tokens_per_second": round(tokens / seconds[name], 1),
            "best_target_tokens_per_second": round(tokens / min(each[0] for each in results[name]), 1),
            "beside_fastest_stock_peer": round(fastest[False] / seconds[name], 3),
            "beside_fastest_tuned_peer": round(fastest[True] / seconds[name], 3),
            "gflops_per_second": round(speed / 1e9, 1),
            "share_of_ceiling": round(speed / ceiling, 3),
            "peak_megabytes": round(max(each[1] for each in results[name])),
        }


def pairs_of(length: int, vocabulary: int) -> list[dict[str, list[int]]]:
    """A few pairs with this many tokens on either side."""
    generator = torch.Generator().manual_seed(length)
    sides = torch.randint(4, vocabulary, (max(1, 1_024 // length), 2, length - 1), generator=generator).tolist()
    return [{"input_ids": [*source, 2], "labels": [*target, 2]} for source, target in sides]


def tasks(options: argparse.Namespace, device: str) -> Iterator[tuple[str, Task]]:
    """What to measure, with a heading."""
    for shape in options.shapes:
        vocabulary = min(10_000, SHAPES[shape]["vocab_size"])
        if options.lengths:
            samples = {
                f"pairs of {length:,} tokens": (pairs_of(length, vocabulary), length) for length in options.lengths
            }
        else:
            every = real_rows(options.source, options.target, vocabulary)
            rows = sample_of(every, options.max_tokens, options.batches)
            samples = {f"{len(rows)} pairs in batches of {options.max_tokens:,} tokens": (rows, options.max_tokens)}
        for dtype in options.dtypes:
            for name, (rows, max_tokens) in samples.items():
                task = Task(shape, dtype == "bfloat16", rows, max_tokens, device)
                yield f"{shape}, {dtype}: {name}, {task.sampler().real_share():.1%} of their cells real", task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="source sentences, one on a line")
    parser.add_argument("--target", type=Path, help="their translations")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=4_096, help="padded tokens of a batch, on either side")
    parser.add_argument("--batches", type=int, default=6, help="batches of an epoch, which is what a turn takes")
    parser.add_argument("--lengths", nargs="+", type=int, help="tokens of a side, for single pairs in place of text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="a new process for every turn: less memory, more time")
    parser.add_argument("--stock-too", action="store_true", help="ours without the settings for its process, too")
    parser.add_argument("--compile", action="store_true", help="everyone under torch.compile, too")
    parser.add_argument("--models", nargs="+", metavar="MODEL", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = [False, True] if device == "cpu" else [False]
    contestants = [Contestant("ours", settings[-1], trainer=True)] if "ours" in options.models else []
    for name in options.models:
        of_it = settings if name != "ours" or options.stock_too else settings[-1:]
        contestants += [Contestant(name, tuned) for tuned in of_it]
    if options.compile:
        contestants += [Contestant(name, settings[-1], compiled=True) for name in options.models]
    found = []
    for heading, task in tasks(options, device):
        print(f"\n{heading}")
        names = "tokens/s", "best", "x stock", "x tuned", "GFLOP/s", "ceiling", "MB"
        print(" " * 38, *(f"{name:>9}" for name in names))
        for row in rows_of_table(task, contestants, options.rounds, options.fresh):
            found.append({"task": heading, **row})
            print(
                f"{row['contestant']:38} {row['target_tokens_per_second']:9,.0f} "
                f"{row['best_target_tokens_per_second']:9,.0f} {row['beside_fastest_stock_peer']:9.2f} "
                f"{row['beside_fastest_tuned_peer']:9.2f} {row['gflops_per_second']:9.0f} "
                f"{row['share_of_ceiling']:9.0%} {row['peak_megabytes']:9,}",
                flush=True,
            )
    if options.json:
        where = {
            "device": torch.cuda.get_device_name() if device == "cuda" else machine()["processor"],
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        write_json(options.json, {"machine": where, "rows": found})


if __name__ == "__main__":
    main()
