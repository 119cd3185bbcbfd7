"""What new shapes cost on a GPU, with cuDNN's attention and without it.

    python scripts/benchmarks/new_shapes.py

cuDNN compiles its attention for every shape of a batch, and torch prefers it for bfloat16. The base model with random
weights translates 256 sources into 30 tokens each, round after round: the shapes are new only in the first. Then a
small model trains in bfloat16 for 50 steps, each with another shape. Each line of output says whether cuDNN was
allowed.
"""

import contextlib
import copy
import statistics
import time
from itertools import product

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.model import modeling_vanilla_transformer, steps_vanilla_transformer
from vanilla_transformer.translation.precision import in_precision


SMALL = {"d_model": 192, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "dropout": 0.3}  # fmt: skip
ROUNDS = 6
STEPS, WARM_UP = 60, 10


def allow_cudnn(allowed: bool) -> None:
    """Overrides the model's own choice."""
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    for module in (modeling_vanilla_transformer, steps_vanilla_transformer):
        module.without_cudnn = lambda query: contextlib.nullcontext()


def now() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def translate() -> None:
    base = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(vocab_size=37_000)).eval()
    models = {dtype: in_precision(copy.deepcopy(base).cuda(), dtype) for dtype in ("float32", "bfloat16")}
    lengths = torch.randint(9, 26, (256,)).sort(descending=True).values
    mask = (torch.arange(int(lengths[0])) < lengths[:, None]).long().cuda()
    ids = torch.randint(4, 37_000, mask.shape, device="cuda") * mask
    seconds = {case: [] for case in product((4, 1), models, (True, False))}
    for _ in range(ROUNDS):
        for (beams, dtype, cudnn), taken in seconds.items():
            allow_cudnn(cudnn)
            begun = now()
            models[dtype].generate(
                input_ids=ids, attention_mask=mask, num_beams=beams, max_new_tokens=30, eos_token_id=None
            )
            taken.append(now() - begun)
    for (beams, dtype, cudnn), taken in seconds.items():
        speed = len(ids) / statistics.median(taken[1:])
        print(f"{dtype}, beam {beams}, cuDNN {cudnn}: {[round(each, 3) for each in taken]} s, then {speed:.1f}/s")


def train(cudnn: bool) -> None:
    allow_cudnn(cudnn)
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(vocab_size=8000, **SMALL))
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    for step in range(STEPS):
        if step == WARM_UP:
            begun = now()
        length = 9 + step
        ids = torch.randint(4, 8000, (4096 // length, length)).cuda()
        mask = torch.ones_like(ids)
        mask[0, -1] = 0
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=ids, return_logits=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"training, cuDNN {cudnn}: {1000 * (now() - begun) / (STEPS - WARM_UP):.2f} ms a step", flush=True)


def main() -> None:
    torch.manual_seed(0)
    translate()
    for cudnn in (False, True):
        train(cudnn)


if __name__ == "__main__":
    main()
