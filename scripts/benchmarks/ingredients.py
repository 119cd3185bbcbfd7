"""How much of a training step each ingredient missing from the paper costs, all in one run.

    python scripts/benchmarks/ingredients.py --source train.en.gz --target train.de.gz

Whole steps of the model of multi30k_en_de, on the same batches of 1,024 tokens, in turn, in processor time. Tokens are
those of the batch without BPE-dropout, so the columns say how fast a run gets through its text. "off" appears twice:
the difference between the two is noise.
"""

import argparse
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vanilla_transformer import (
    TokenizerSettings,
    TranslationCollator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    learn_tokenizer,
)
from vanilla_transformer.data.batching import TokenBatchSampler
from vanilla_transformer.data.encoding import encode_pairs
from vanilla_transformer.data.guided_alignment import GuidedAlignment
from vanilla_transformer.data.rewriting import rewritten_windows
from vanilla_transformer.data.subword_dropout import BPEDropout
from vanilla_transformer.environment import has_bfloat16
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.muon import Muon, muon_groups


MAX_TOKENS, WARM_UP = 1024, 2
INGREDIENTS = {
    "off": {},
    "off, again": {},
    "attention dropout 0.1": {"attention_dropout": 0.1},
    "activation dropout 0.1": {"activation_dropout": 0.1},
    "word dropout 0.1, both sides": {"source_word_dropout": 0.1, "target_word_dropout": 0.1},
    "layerdrop 0.1, both stacks": {"encoder_layerdrop": 0.1, "decoder_layerdrop": 0.1},
    "moving average of the weights": {"ema": 0.999},
    "BPE-dropout 0.1": {"bpe_dropout": 0.1},
    "R-Drop": {"r_drop_alpha": 5.0},
    "guided alignment": {"guide": 0.1},
    "Muon": {"muon": "ours"},
    "Muon, torch's own": {"muon": "torch's"},
}


def stepping(choices: dict, vocab_size: int, guide: GuidedAlignment) -> Callable[[list[dict], int], None]:
    """A training step with an ingredient, as a function of a batch's pairs and its number."""
    torch.manual_seed(0)
    fields = {name: value for name, value in choices.items() if name not in ("ema", "bpe_dropout", "guide", "muon")}
    config = VanillaTransformerConfig(
        **{**load_recipe("multi30k_en_de").model, "vocab_size": vocab_size, "label_smoothing": 0.1, **fields}
    )
    model = VanillaTransformerForConditionalGeneration(config).train()
    groups, rate = muon_groups(model, [], 0.0), {"lr": 1e-4}
    if choices.get("muon") == "ours":
        optimizers = [Muon(groups, betas=(0.9, 0.98), eps=1e-9, **rate)]
    elif "muon" in choices:
        matrices, others = ([each for each in groups if each["muon"] is muon] for muon in (True, False))
        optimizers = [torch.optim.Muon(matrices, **rate), torch.optim.AdamW(others, fused=True, **rate)]
    else:
        optimizers = [torch.optim.AdamW(model.parameters(), fused=True, **rate)]
    collate = TranslationCollator()
    averaged = [parameter.detach().clone() for parameter in model.parameters()]
    average = get_ema_multi_avg_fn(choices["ema"]) if "ema" in choices else None

    def step(pairs: list[dict], number: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16(True)):
            batch = collate(pairs)
            if "guide" in choices:
                batch["alignment"] = guide(batch["input_ids"], batch["attention_mask"], batch["labels"])
            loss = model(**batch, return_logits=False).loss
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        if average is not None:
            average(averaged, [parameter.detach() for parameter in model.parameters()], number)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="source sentences, one on a line")
    parser.add_argument("--target", type=Path, required=True, help="their translations")
    parser.add_argument("--rounds", type=int, default=60, help="batches, each of which every ingredient takes once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=8000)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = list(zip(text_lines(arguments.source), text_lines(arguments.target), strict=True))
    tokenizer = learn_tokenizer(
        (side for pair in texts for side in pair), TokenizerSettings(vocab_size=arguments.vocabulary)
    )
    sources, targets, _ = encode_pairs(tokenizer, texts)
    bpe_dropout = BPEDropout(tokenizer, 0.1)
    warm = [{"input_ids": source, "labels": target} for source, target in zip(sources, targets, strict=True)]
    bpe_dropout(warm, (1,))  # one pass fills its cache of words
    guide = GuidedAlignment(zip(sources, targets, strict=True), weight=INGREDIENTS["guided alignment"]["guide"])
    steps = {name: stepping(choices, len(tokenizer), guide) for name, choices in INGREDIENTS.items()}
    lengths = [len(source) for source in sources], [len(target) for target in targets]
    sampler = TokenBatchSampler(*lengths, MAX_TOKENS)
    batches = [[warm[i] for i in batch] for batch in islice(sampler, WARM_UP + arguments.rounds)]
    start = time.process_time()
    cut_again = list(rewritten_windows([bpe_dropout], iter(batches), (0,), MAX_TOKENS))
    seconds = {name: [0.0] for name in steps}
    seconds["BPE-dropout 0.1"] = [(time.process_time() - start) * arguments.rounds / len(batches)]
    for number in range(len(batches)):
        turns = list(steps.items())
        first = number % len(turns)  # the first to see a batch pays for its new sizes
        for name, step in turns[first:] + turns[:first]:
            start = time.process_time()
            step((cut_again if "bpe_dropout" in INGREDIENTS[name] else batches)[number], number)
            if number >= WARM_UP:
                seconds[name].append(time.process_time() - start)
    tokens = sum(len(pair["labels"]) for batch in batches[WARM_UP:] for pair in batch)
    rates = {name: tokens / sum(took) for name, took in seconds.items()}
    print("| ingredient | target tokens a second | of those without it |\n| --- | ---: | ---: |")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rate / rates['off']:.2f} |")


if __name__ == "__main__":
    main()
