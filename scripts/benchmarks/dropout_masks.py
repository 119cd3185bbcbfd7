"""How much of a training step on a CPU our dropout masks save, compared with torch's.

    python scripts/benchmarks/dropout_masks.py

Whole steps with AdamW on random tokens, with the two kinds of mask in turn; medians. "tiny" is the model of
multi30k_en_de (dropout 0.3), "base" the paper's (0.1).
"""

import argparse
import statistics
import time

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.model import dropout_vanilla_transformer
from vanilla_transformer.run.recipe import load_recipe


LENGTH = 16  # tokens of a sentence, about Multi30k's mean
TASKS = {"tiny, 1,024 tokens": 1024, "tiny, 4,096 tokens": 4096, "base, 2,048 tokens": 2048}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    may_draw_bits = dropout_vanilla_transformer._may_draw_bits
    kinds = {"own": may_draw_bits, "torch's": lambda states: False}
    print(
        "| step | precision | own, ms | torch's, ms | torch's / own |\n| --- | --- | ---: | ---: | ---: |", flush=True
    )
    for name, tokens in TASKS.items():
        torch.manual_seed(0)
        fields = {**load_recipe("multi30k_en_de").model, "vocab_size": 8000} if "tiny" in name else {}
        config = VanillaTransformerConfig(**fields, label_smoothing=0.1)
        model = VanillaTransformerForConditionalGeneration(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        batch = {name: torch.randint(4, 8000, (tokens // LENGTH, LENGTH)) for name in ("input_ids", "labels")}
        for dtype in (torch.float32, torch.bfloat16):
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for turn in range(arguments.rounds + 1):  # the first is a warm-up
                for kind in list(kinds)[:: 1 if turn % 2 else -1]:
                    dropout_vanilla_transformer._may_draw_bits = kinds[kind]
                    start = time.perf_counter()
                    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                        loss = model(**batch, return_logits=False).loss
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    times[kind].append(time.perf_counter() - start)
            own, torchs = (1000 * statistics.median(taken[1:]) for taken in times.values())
            precision = str(dtype).removeprefix("torch.")
            print(f"| {name} | {precision} | {own:.1f} | {torchs:.1f} | {torchs / own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
