"""How fast two checkouts of this project are, side by side: search, training, loading and importing.

    git worktree add ../before COMMIT
    python scripts/benchmarks/checkouts.py ../before . --tasks beam_tiny training_tiny

Each checkout has its own process, on one thread, and they take turns within one run. Each figure is the processor time
of a task, which a busy machine disturbs less than clock time. Ratios compare medians and are above 1 if the second
checkout is faster. Models have random weights and vocabularies of 8,000, sources have 8 to 24 tokens, and every
translation is made 24 tokens long, so that both checkouts do the same work. Training works as in `train`: the same
process settings, the loss without logits, and full batches that hardly ever have the same size twice.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


SIZES = {
    "tiny": {"d_model": 128, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256},
    "base": {},
}  # fmt: skip
# Each task: the size of the model, the kind of work, and its options.
TASKS = {
    "beam_tiny": ("tiny", "search", {"num_beams": 4, "sentences": 16}),
    "beam_tiny_many": ("tiny", "search", {"num_beams": 4, "sentences": 256}),
    "beam_tiny_alone": ("tiny", "search", {"num_beams": 4, "sentences": 1}),
    "beam_tiny_no_repeat": ("tiny", "search", {"num_beams": 4, "sentences": 16, "no_repeat_ngram_size": 3}),
    "greedy_tiny": ("tiny", "search", {"num_beams": 1, "sentences": 64}),
    "beam_base": ("base", "search", {"num_beams": 4, "sentences": 16}),
    "greedy_base": ("base", "search", {"num_beams": 1, "sentences": 64}),
    "int8_tiny": ("tiny", "search", {"num_beams": 4, "sentences": 16, "int8": True}),
    "int8_base": ("base", "search", {"num_beams": 4, "sentences": 16, "int8": True}),
    "training_tiny": ("tiny", "training", {"tokens": 2048}),
    "training_tiny_bf16": ("tiny", "training", {"tokens": 2048, "bf16": True}),
    "training_tiny_r_drop": ("tiny", "training", {"tokens": 1024, "r_drop_alpha": 5.0}),
    "training_tiny_r_drop_bf16": ("tiny", "training", {"tokens": 1024, "bf16": True, "r_drop_alpha": 5.0}),
    "training_base": ("base", "training", {"tokens": 512}),
    "training_base_bf16": ("base", "training", {"tokens": 512, "bf16": True}),
    "loading_base": ("base", "loading", {}),
    "import": ("tiny", "importing", {}),
}


def prepared(name: str) -> Callable[[], object]:
    """A function that does one turn of the task, in a process started with the checkout in its path."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    import vanilla_transformer

    size, kind, options = TASKS[name]
    if kind == "importing":
        elsewhere = tempfile.gettempdir()  # Python looks for modules in the current folder first
        return lambda: subprocess.run([sys.executable, "-c", "import vanilla_transformer"], cwd=elsewhere, check=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = vanilla_transformer.VanillaTransformerConfig(**SIZES[size], vocab_size=8000, attn_implementation="eager")
    model = vanilla_transformer.VanillaTransformerForConditionalGeneration(config).eval()
    if kind == "loading":
        folder = tempfile.TemporaryDirectory()  # ends with the process
        model.save_pretrained(folder.name)
        return lambda: AutoModelForSeq2SeqLM.from_pretrained(folder.name)

    if kind == "training":
        return training_steps(model, **options)

    sentences = options["sentences"]
    lengths = torch.randint(8, 25, (sentences,))
    mask = (torch.arange(24) < lengths[:, None]).long()
    source = torch.randint(4, 8000, (sentences, 24)).masked_fill(mask == 0, config.pad_token_id)
    if options.get("int8"):
        from vanilla_transformer.translation.int8 import quantize_int8

        quantize_int8(model)
    else:
        try:
            from vanilla_transformer.translation.packed import pack_linear
        except ImportError:  # this checkout packs by itself
            pass
        else:
            pack_linear(model)
    length = {"max_new_tokens": 24, "eos_token_id": 7999, "max_length_offset": None}
    of_search = {name: options[name] for name in ("num_beams", "no_repeat_ngram_size") if name in options}
    model.generation_config.update(**length)
    return lambda: model.generate(source, attention_mask=mask, do_sample=False, **of_search)


def training_steps(model, tokens: int, bf16: bool = False, r_drop_alpha: float = 0.0) -> Callable[[], None]:
    """A function that does five training steps, each on the next of an endless stream of random batches."""
    import torch

    from vanilla_transformer.commands.process import prepare_for_training

    prepare_for_training()
    model.config.r_drop_alpha = r_drop_alpha
    optimizer = torch.optim.AdamW(model.train().parameters(), 1e-4, fused=True)
    draws = random.Random(0)

    def batch() -> dict[str, torch.Tensor]:
        longest = draws.randint(12, 40), draws.randint(12, 40)
        sentences = tokens // max(longest)
        source, target = (torch.randint(4, 8000, (sentences, length)) for length in longest)
        lengths = torch.randint(8, longest[0] + 1, (sentences, 1))
        mask = (torch.arange(longest[0]) < lengths).long()
        source = source.masked_fill(mask == 0, model.config.pad_token_id)
        return {"input_ids": source, "attention_mask": mask, "labels": target}

    def steps() -> None:
        for _ in range(5):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = model(**batch(), return_logits=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def processor_seconds() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def serve() -> None:
    """Answers each task's name with the processor seconds of one turn."""
    known = {}
    for line in sys.stdin:
        name = line.strip()
        known[name] = known.get(name) or prepared(name)
        before = processor_seconds()
        known[name]()
        print(json.dumps(processor_seconds() - before), flush=True)


def turn(process: subprocess.Popen, name: str) -> float:
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"{process.args[-1]}: the process of this checkout has ended; its message is above.")
    return json.loads(answer)


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment for a process with this checkout's package and one thread."""
    if not (checkout / "vanilla_transformer").is_dir():
        sys.exit(f"{checkout} is not a checkout: it has no folder vanilla_transformer")
    return os.environ | {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, help="the one to compare with, then the one to judge")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    processes = []
    for checkout in args.checkouts:
        words = [sys.executable, __file__, "serve", str(checkout)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(words, env=environment_of(checkout), **pipes))
    try:
        print("| task | before | after | before / after |\n| --- | --- | --- | --- |", flush=True)
        for name in args.tasks:
            for process in processes:
                turn(process, name)  # to warm up
            times = [[], []]
            for i in range(args.rounds):
                for place in (0, 1) if i % 2 else (1, 0):
                    times[place].append(turn(processes[place], name))
            before, after = map(statistics.median, times)
            print(f"| {name} | {before:.3f} | {after:.3f} | {before / after:.2f} |", flush=True)
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        main()
