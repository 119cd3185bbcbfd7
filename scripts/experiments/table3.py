"""Table 3 of the paper in miniature: its rows, narrower by one factor, trained on Multi30k.

    python scripts/experiments/table3.py --data multi30k --output runs/table3 --updates 5000 --bf16 --workers 2

All widths of the paper (d_model, d_ff, d_k, d_v) are divided by --narrower; layers, heads, dropout and label smoothing
are the paper's. All rows have one vocabulary, the same batches for a seed, the same number of updates (big has three
times as many, as in the paper) and equation 3 with --peak times the rate that it has at 4,000 updates of warm-up,
reached after 15 % of the updates; over the last --cooldown share of them, it falls to 0. The measures are the paper's:
perplexity per word piece and BLEU (sacreBLEU, beam search of section 6.1, no averaging) on the development set.

The number of updates is --updates, or else the most that fits into --minutes of processor time, found by timing each
row for a few updates. It is kept in OUTPUT/results.jsonl beside every finished run; table3_results.py prints their
table at any time. The same command resumes after an interruption: killed at any moment, it loses only the runs in
progress. All rows get their first seed before any gets its second. A short budget flatters models that learn fast,
such as rows with few layers.

--full-size trains nothing: it prints the commands for the paper's own sizes and data.
"""

import argparse
import math
import shlex
import time
from concurrent.futures import as_completed
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset, disable_progress_bars, load_from_disk
from table3_results import ROWS, Results, Settings, print_report
from transformers import set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as transformers_logging

from vanilla_transformer import (
    TokenizerSettings,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTrainer,
    VanillaTransformerTrainingArguments,
    learn_tokenizer,
    load_tokenizer,
    paper_generation_config,
)
from vanilla_transformer.commands.process import prepare_for_training
from vanilla_transformer.data.corpora import TextCorpus, read_corpus
from vanilla_transformer.files import alone_in, written_beside
from vanilla_transformer.worker_processes import worker_processes


RISE = 0.15  # share of the updates for warm-up
# At least one row of each kind, those that differ from base the most.
FEW = ("base", *(f"table3-{row}" for row in ("a1", "b1", "c1", "c4", "c5", "d1", "d3", "e")))
FOR_VALIDATION = 0.15  # of the budget
WIDTHS = ("d_model", "head_dim", "value_head_dim", "encoder_ffn_dim", "decoder_ffn_dim")


def scaled(row: str, narrower: int, vocab_size: int) -> VanillaTransformerConfig:
    """A row's model with all its widths divided by one factor.

    Raises:
        ValueError: The factor does not divide a width.
    """
    paper = VanillaTransformerConfig.from_name(row)
    fields = paper.to_diff_dict() | {"vocab_size": vocab_size, "max_position_embeddings": 256}
    for name in WIDTHS:
        width = fields[name]  # None: d_model / heads
        if width is not None and width % narrower:
            raise ValueError(f"--narrower {narrower} does not divide {name} = {width} of {row}.")
        fields[name] = width and width // narrower
    if fields["head_dim"] is None and fields["d_model"] % paper.encoder_attention_heads:
        raise ValueError(f"--narrower {narrower} leaves {row} with {paper.encoder_attention_heads} heads no whole d_k.")
    return VanillaTransformerConfig(**fields)


# -------------------------------------------------------------------------------------------------------------- data


def load_text(data: Path, languages: list[str]) -> dict[str, TextCorpus]:
    """All pairs of the training and the development set."""
    return {
        split: read_corpus([f"{name}.{language}" for language in languages], *languages, folder=data)
        for split, name in (("train", "train"), ("validation", "val"))
    }


def data_folder(output: Path, settings: Settings) -> Path:
    """The folder beside a results file with its tokenizer and encoded text."""
    text = f"{settings.languages}_{settings.vocabulary}_{settings.sentences}_{settings.text[:8]}"
    return output / f"data_{text}"


def prepare(corpora: dict[str, TextCorpus], output: Path, settings: Settings) -> None:
    """Learns the vocabulary and encodes training and development set, unless that is done."""
    if data_folder(output, settings).exists():
        return
    texts = (text for pair in corpora["train"].pairs for text in pair)
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=settings.vocabulary))
    measured = replace(corpora["validation"], pairs=corpora["validation"].pairs[: settings.sentences])
    with written_beside(data_folder(output, settings)) as beside:
        tokenizer.save_pretrained(beside / "tokenizer")
        for split, corpus in (("train", corpora["train"]), ("validation", measured)):
            encoded, _ = corpus.encoded(tokenizer)
            if split == "train":
                encoded = encoded.filter(lambda row: max(map(len, (row["input_ids"], row["labels"]))) <= 128)
            encoded.save_to_disk(beside / split)


def load(output: Path, settings: Settings) -> tuple:
    """Tokenizer, training rows, development rows."""
    data = data_folder(output, settings)
    return load_tokenizer(data / "tokenizer"), load_from_disk(data / "train"), load_from_disk(data / "validation")


# -------------------------------------------------------------------------------------------------------------- runs


def make_trainer(
    row: str, seed: int, settings: Settings, output: Path, data: tuple[object, Dataset, Dataset]
) -> VanillaTransformerTrainer:
    tokenizer, train, validation = data
    updates = settings.updates_of(row)
    warmup = max(1, round(RISE * updates))
    arguments = VanillaTransformerTrainingArguments(
        str(output / "trainer"),
        max_tokens=settings.tokens,
        max_steps=updates,
        warmup_steps=warmup,
        noam_factor=settings.peak * math.sqrt(warmup / 4000),
        cooldown_steps=round(settings.cooldown * updates),
        bf16=settings.bf16,
        label_smoothing_factor=ROWS[row].label_smoothing,
        seed=seed,
        eval_strategy="no",
        save_strategy="no",
        load_best_model_at_end=False,
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    set_seed(seed)
    config = scaled(row, settings.narrower, len(tokenizer))
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(config)
    trainer = VanillaTransformerTrainer(
        model, arguments, train_dataset=train, eval_dataset=validation, processing_class=tokenizer
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def begin_process() -> None:
    """Sets one thread and the command line's settings for training, and silences transformers' messages."""
    torch.set_num_threads(1)
    prepare_for_training()
    transformers_logging.set_verbosity_error()


def run(job: tuple[str, int], settings: Settings, output: Path) -> dict:
    """Trains and measures one row with one seed."""
    row, seed = job
    begin_process()
    start = time.process_time()
    trainer = make_trainer(row, seed, settings, output, load(output, settings))
    trainer.train()
    found = trainer.evaluate()
    return {
        "row": row,
        "seed": seed,
        "loss": found["eval_loss"],
        "perplexity": found["eval_perplexity"],
        "bleu": found["eval_bleu"],
        "parameters": trainer.model.num_parameters(),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def updates_within(minutes: float, rows: list[str], seeds: int, settings: Settings, output: Path) -> int:
    """How many updates every row and seed can have in this many minutes of processor time."""
    begin_process()
    seconds, data = 0.0, load(output, settings)
    for row in rows:
        trainer = make_trainer(row, 0, settings, output, data)
        for batch, number in zip(trainer.get_train_dataloader(), range(5), strict=False):
            if number == 1:  # the first is slower
                start = time.process_time()
            with trainer.accelerator.autocast():
                loss = trainer.model.train()(**batch).loss
            loss.backward()
        seconds += (time.process_time() - start) / 4 * 1.1 * (3 if row == "big" else 1)  # 10 % more for the optimizer
    return max(1, int((1 - FOR_VALIDATION) * 60 * minutes / (seeds * seconds)))


def train_missing(results: Results, rows: list[str], seeds: int, workers: int, minutes: float, output: Path) -> None:
    """Runs the missing jobs as long as processor time is left."""

    def spent() -> float:
        return sum(record["cpu_seconds"] for record in results.runs) / 60

    def finished(record: dict) -> None:
        results.add(record)
        print(
            "{row} seed {seed}: perplexity {perplexity:.2f}, BLEU {bleu:.1f}, {cpu_seconds} s".format(**record),
            flush=True,
        )

    waiting = results.missing(rows, seeds)
    work = partial(run, settings=results.settings, output=output)
    if workers == 1:
        for job in waiting:
            if spent() < minutes:
                finished(work(job))
        return
    running = set()
    with worker_processes(work, workers, start_method="spawn") as submit:
        while True:
            while len(running) < workers and spent() < minutes and (job := next(waiting, None)) is not None:
                running.add(submit(job))
            if not running:
                return
            done = next(as_completed(running))
            running.remove(done)
            finished(done.result())


def full_size_overrides(row: str) -> tuple[str, dict[str, str]]:
    """The recipe and its overrides for a row at the paper's own size."""
    recipe = "wmt14_en_de_big" if row == "big" else "wmt14_en_de_base"
    base, config = (
        VanillaTransformerConfig.from_name(name).to_dict() for name in ("big" if row == "big" else "base", row)
    )
    overrides = {f"model.{name}": str(value) for name, value in config.items() if value != base[name]}
    if ROWS[row].label_smoothing != 0.1:
        overrides["training.label_smoothing_factor"] = str(ROWS[row].label_smoothing)
    return recipe, {**overrides, "training.average_last": "0"}


def print_full_size() -> None:
    for row in ROWS:
        recipe, overrides = full_size_overrides(row)
        words = [word for name, value in overrides.items() for word in (f"--{name}", value)]
        output = f"runs/{row.replace('table3-', 'table3_')}"
        print(shlex.join(["vanilla-transformer", "train", recipe, *words, "--output", output]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/multi30k"), help="folder of Multi30k's files")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], help="source and target")
    parser.add_argument("--output", type=Path, default=Path("runs/table3"))
    parser.add_argument("--minutes", type=float, default=600, help="processor time, of all runs and workers together")
    parser.add_argument("--updates", type=int, help="of a row, instead of as many as there is time for")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=(*ROWS, "all"),
        default=list(FEW),
        metavar="ROW",
        help=f"by default {', '.join(FEW)}; or all",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--narrower", type=int, default=4, help="what the paper's widths are divided by")
    parser.add_argument("--tokens", type=int, default=2048, help="of a batch, on either side")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--peak", type=float, default=1.0, help="multiplies the learning rate")
    parser.add_argument("--cooldown", type=float, default=0.3, help="share of the updates in which it falls to 0")
    parser.add_argument("--bf16", action="store_true", help="compute matrix products in bfloat16")
    parser.add_argument("--sentences", type=int, default=1014, help="development sentences to measure on, at most")
    parser.add_argument("--full-size", action="store_true", help="print the commands for the paper's sizes and data")
    arguments = parser.parse_args()
    if arguments.full_size:
        return print_full_size()
    for name in ("narrower", "tokens", "vocabulary", "sentences", "seeds", "workers"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be 1 or more, not {getattr(arguments, name)}.")
    if not 0 < arguments.peak < math.inf or not 0 <= arguments.cooldown < 1 - RISE:
        parser.error(f"--peak must be above 0, and --cooldown at least 0 and below {1 - RISE}.")
    if not arguments.data.is_dir():
        parser.error(
            f"There is no folder {arguments.data}: give Multi30k's train.en, train.de, val.en and val.de by --data."
        )
    disable_progress_bars()
    arguments.output.mkdir(parents=True, exist_ok=True)
    with alone_in(arguments.output):
        reproduce(arguments)
    return None


def reproduce(arguments: argparse.Namespace) -> None:
    output, rows = arguments.output, list(ROWS) if "all" in arguments.rows else arguments.rows
    results = Results(output / "results.jsonl")
    try:
        for row in rows:
            scaled(row, arguments.narrower, arguments.vocabulary)
        corpora = load_text(arguments.data, arguments.languages)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    names = ("narrower", "tokens", "vocabulary", "sentences", "peak", "cooldown", "bf16")
    chosen = {name: getattr(arguments, name) for name in names}
    chosen["languages"] = "-".join(arguments.languages)
    chosen["text"] = "".join(corpus.fingerprint[:32] for corpus in corpora.values())
    begun = results.settings
    if begun and asdict(begun) != chosen | {"updates": arguments.updates or begun.updates}:
        raise SystemExit(f"{output} was begun with {begun}: go on with these, or choose another --output.")
    settings = begun or Settings(**chosen, updates=arguments.updates or 1)
    prepare(corpora, output, settings)
    if not begun:
        fitting = arguments.updates or updates_within(arguments.minutes, rows, arguments.seeds, settings, output)
        results.begin(Settings(**chosen, updates=fitting))
    try:
        train_missing(results, rows, arguments.seeds, arguments.workers, arguments.minutes, output)
    except ChildProcessError as error:
        raise SystemExit(f"{error} The same command goes on where it was.") from error
    if left := list(results.missing(rows, arguments.seeds)):
        print(f"The {arguments.minutes:g} minutes are over, {len(left)} runs are left: raise --minutes to go on.")
    print_report(results)


if __name__ == "__main__":
    main()
