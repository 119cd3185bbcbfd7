"""How fast our search translates beside transformers' own, side by side in one run with the same weights.

    python scripts/benchmark_translation.py RUN multi30k/test_2016_flickr.en multi30k/test_2016_flickr.de

RUN is a trained run folder or model; the paper's base model is measured beside it, with random weights and outputs of
fixed length. Contestants take turns within each round; figures are medians over the rounds, ratios those of medians.
"""

import argparse
import copy
import json
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu
import torch
from tqdm import tqdm
from transformers import MarianMTModel, PreTrainedModel
from transformers.generation import GenerationMixin

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    to_marian,
    translate_lines,
)
from vanilla_transformer.files import text_lines
from vanilla_transformer.model.modeling_vanilla_transformer import sinusoids
from vanilla_transformer.run_folder import load_model


# transformers' own penalty and stopping, which every contestant has; with these all outputs are to be the same.
BEAM = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False, "length_penalty_type": "length"}
GREEDY = {"num_beams": 1}


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
    outputs_as_ours: float
    sacrebleu: float | None


def as_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """The same function as a `MarianMTModel`, whose table of positions takes our interleaved sinusoids too."""
    halves = copy.deepcopy(model)
    halves.config.sinusoid_layout = "halves"
    marian = to_marian(halves).eval()
    for stack in (marian.model.encoder, marian.model.decoder):
        table = stack.embed_positions.weight
        table.data = sinusoids(torch.arange(len(table)), table.shape[1], model.config.sinusoid_layout)
    return marian


def contestants(model: VanillaTransformerForConditionalGeneration, beams: int) -> dict:
    """What is measured: functions from a batch and the options of `generate` to token ids."""
    marian = as_marian(model)
    own_search = GenerationMixin._beam_search if beams > 1 else GenerationMixin._sample

    def by_marian(batch, options):
        options = {name: value for name, value in options.items() if name != "length_penalty_type"}
        return marian.generate(**batch, **options)

    return {
        "ours": lambda batch, options: model.generate(**batch, **options),
        "GenerationMixin, same model": lambda batch, options: model.generate(
            **batch, **options, custom_generate=own_search
        ),
        "MarianMTModel, same weights": by_marian,
    }


def padded(sources: list[list[int]], size: int, pad: int) -> list[dict[str, torch.Tensor]]:
    """Batches of `size` sources of like length."""
    ordered = sorted(sources, key=len, reverse=True)
    batches = []
    for start in range(0, len(ordered), size):
        rows = ordered[start : start + size]
        ids = torch.tensor([row + [pad] * (len(rows[0]) - len(row)) for row in rows])
        batches.append({"input_ids": ids, "attention_mask": (ids != pad).long()})
    return batches


def measured(name: str, model: PreTrainedModel, sources, size: int, options: dict, rounds: int, decode) -> list[Row]:
    """The rows of one task."""
    pad, beams = model.config.pad_token_id, options["num_beams"]
    batches, competing = padded(sources, size, pad), contestants(model, beams)
    times, outputs = {contestant: [] for contestant in competing}, {}
    for _ in tqdm(range(rounds), desc=f"{name}, {beams} hypotheses, batch {size}"):
        for contestant, generate in competing.items():
            started = time.perf_counter()
            found = [row for batch in batches for row in generate(batch, options).tolist()]
            times[contestant].append(time.perf_counter() - started)
            outputs[contestant] = [[token for token in row[1:] if token != pad] for row in found]
    ours = statistics.median(times["ours"])
    rows = []
    for contestant, taken in times.items():
        seconds, found = statistics.median(taken), outputs[contestant]
        same = sum(a == b for a, b in zip(found, outputs["ours"], strict=True)) / len(found)
        search = f"beam {beams}" if beams > 1 else "greedy"
        tokens = sum(map(len, found)) / seconds
        bleu = decode(found) if decode else None
        rows.append(Row(name, search, size, contestant, len(found) / seconds, tokens, seconds / ours, same, bleu))
    return rows


def speedup_of_workers(model, tokenizer, texts: list[str], rounds: int) -> tuple[dict[int, float], bool]:
    """Sentences a second of one and of two workers with one thread each, and whether they translate the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times, outputs = {1: [], 2: []}, {}
    for _ in tqdm(range(rounds), desc="workers"):
        for workers, taken in times.items():
            started = time.perf_counter()
            found = translate_lines(model, tokenizer, [texts], workers=workers, batch_tokens=1024, num_beams=4)
            outputs[workers] = [best.text for best, *_ in found]
            taken.append(time.perf_counter() - started)
    torch.set_num_threads(threads)
    return {n: len(texts) / statistics.median(taken) for n, taken in times.items()}, outputs[1] == outputs[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--sentences", type=int, default=256, help="for the trained model in batches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    trained, tokenizer = load_model(arguments.model)
    trained = trained.eval()
    texts = list(text_lines(arguments.sources))[: arguments.sentences]
    references = list(text_lines(arguments.references))[: arguments.sentences]
    ids = tokenizer(texts).input_ids
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)

    def bleu(found: list[list[int]]) -> float:
        hypotheses = tokenizer.batch_decode(found, skip_special_tokens=True)
        return sacrebleu.corpus_bleu(hypotheses, [[references[i] for i in order[: len(found)]]]).score

    bounded = {"max_length": 100}
    rows = []
    for size, options in ((64, BEAM), (32, BEAM), (64, GREEDY)):
        rows += measured("trained", trained, ids, size, options | bounded, arguments.rounds, bleu)
    per_second, same = speedup_of_workers(trained, tokenizer, list(text_lines(arguments.sources)), arguments.rounds)
    few = [ids[i] for i in order[:: max(1, len(order) // 32)]]
    for options in (BEAM, GREEDY):
        rows += measured("trained", trained, few, 1, options | bounded, arguments.rounds, None)
    torch.manual_seed(0)
    base = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig()).eval()
    lengths = torch.randint(8, 25, (32,)).tolist()
    made_up = [[*torch.randint(4, 37_000, (length,)).tolist(), 2] for length in lengths]
    fixed = {"max_new_tokens": 30, "eos_token_id": None}
    for size, options in ((32, BEAM), (1, BEAM), (32, GREEDY)):
        chosen = made_up if size > 1 else made_up[:4]
        rows += measured("base", base, chosen, size, options | fixed, min(3, arguments.rounds), None)

    machine = f"{platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}"
    print(f"\n{machine}\n")
    print("| model | search | batch | | sentences/s | tokens/s | ours is faster by | same outputs | BLEU |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        score = "" if row.sacrebleu is None else f"{row.sacrebleu:.2f}"
        print(
            f"| {row.model} | {row.search} | {row.batch} | {row.contestant} | {row.sentences_per_second:.1f} | "
            f"{row.target_tokens_per_second:.0f} | {row.ours_is_faster_by:.2f} | {row.outputs_as_ours:.1%} | {score} |"
        )
    print(
        f"\nWorkers with one thread each, beam 4: {per_second[1]:.1f} sentences/s with one, {per_second[2]:.1f} with "
        f"two ({per_second[2] / per_second[1]:.2f} times), {'the same' if same else 'other'} translations."
    )
    if arguments.json:
        record = {"machine": machine, "rows": [asdict(row) for row in rows], "workers": per_second}
        arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
