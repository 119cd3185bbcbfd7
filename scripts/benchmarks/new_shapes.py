"""What shapes that are new cost on a GPU, with cuDNN's attention and without, as the model has it.

    python scripts/benchmarks/new_shapes.py

cuDNN compiles its attention for every shape of a batch. The small model trains in bfloat16 on 50 shapes, and base with
random weights translates 256 sources to 30 tokens each, with a beam of 4. The first pass is what a user waits for, and
the second shows that only new shapes cost. Each way begins with shapes that it has not seen.
"""

import contextlib
import statistics
import time

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.model import modeling_vanilla_transformer, steps_vanilla_transformer
from vanilla_transformer.model.masks_vanilla_transformer import without_cudnn


SMALL = {"vocab_size": 8000, "d_model": 192, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "dropout": 0.3}  # fmt: skip
TOKENS = 4096  # of a batch
LENGTHS = range(9, 59)


def seconds_of(action) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def training() -> list[float]:
    """Seconds of a step on each shape, the median of each pass over them."""
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**SMALL)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step(length: int) -> None:
        ids = torch.randint(4, 8000, (TOKENS // length, length), device="cuda")
        mask = torch.ones_like(ids)
        mask[0, -1] = 0
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=ids, return_logits=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step(LENGTHS[0] - 1)  # what is made at the first step does not count
    return [statistics.median(seconds_of(lambda each=length: step(each)) for length in LENGTHS) for _ in range(2)]


def translating() -> list[float]:
    """Seconds of the same search, the first time and again."""
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(vocab_size=37_000))
    model = model.eval().to("cuda", torch.bfloat16)
    ids = torch.randint(4, 37_000, (256, 24), device="cuda")
    mask = (torch.arange(24, device="cuda") < torch.randint(8, 25, (256, 1), device="cuda")).long()
    options = {"num_beams": 4, "max_new_tokens": 30, "eos_token_id": None}
    return [seconds_of(lambda: model.generate(input_ids=ids, attention_mask=mask, **options)) for _ in range(2)]


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, milliseconds\n")
    print("| | cuDNN | new shapes | known shapes |\n| --- | --- | ---: | ---: |")
    for name, measure in (("a training step", training), ("a search", translating)):
        for cudnn in (False, True):
            torch.manual_seed(0)
            for module in (modeling_vanilla_transformer, steps_vanilla_transformer):
                module.without_cudnn = (lambda query: contextlib.nullcontext()) if cudnn else without_cudnn
            new, known = (1000 * seconds for seconds in measure())
            print(f"| {name} | {'on' if cudnn else 'off'} | {new:.1f} | {known:.1f} |", flush=True)


if __name__ == "__main__":
    main()
