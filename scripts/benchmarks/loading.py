"""How long it takes to load a model: `from_pretrained` side by side with Marian's, and the first translation.

    python scripts/benchmarks/loading.py

Our model and `MarianMTModel`, of the same sizes (the paper's base model) and with random weights, are saved in a
temporary folder. Then each is loaded in its own process, in turn, after transformers has been imported. In another
process `vanilla-transformer translate` translates a sentence, after the imports that it cannot avoid: torch, and the
parts of transformers needed for a model and a tokenizer. The table has the medians. Weights come from the page cache.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path


SENTENCE = "A man sees the dog."


def import_what_cannot_be_avoided() -> None:
    import torch
    from transformers import AutoTokenizer, MarianMTModel, PreTrainedTokenizerFast  # noqa: F401

    torch.set_num_threads(1)


def load_ours(folder: Path) -> None:
    from vanilla_transformer import VanillaTransformerForConditionalGeneration

    VanillaTransformerForConditionalGeneration.from_pretrained(folder / "ours")


def load_marian(folder: Path) -> None:
    from transformers import MarianMTModel

    MarianMTModel.from_pretrained(folder / "marian")


def translate(folder: Path) -> None:
    from vanilla_transformer.cli import main

    with contextlib.redirect_stdout(io.StringIO()):  # `translate` writes to the one it finds at its start
        status = main(["translate", SENTENCE, "--model", str(folder / "ours"), "--max-tokens", "10"])
    if status:
        raise SystemExit(status)


MEASURED: dict[str, Callable[[Path], None]] = {
    "from_pretrained, ours": load_ours,
    "from_pretrained, MarianMTModel": load_marian,
    "translate, one sentence": translate,
}


def seconds(name: str, folder: Path) -> tuple[float, float]:
    """Seconds of the imports, and of the measured task; called in a new process."""
    started = time.perf_counter()
    import_what_cannot_be_avoided()
    from transformers.utils import logging

    logging.disable_progress_bar()
    imported = time.perf_counter()
    MEASURED[name](folder)
    return imported - started, time.perf_counter() - imported


def save_models(folder: Path) -> None:
    """Also called in a new process, so that no other process inherits its imports."""
    from transformers import MarianConfig, MarianMTModel

    from vanilla_transformer import (
        TokenizerSettings,
        VanillaTransformerConfig,
        VanillaTransformerForConditionalGeneration,
        learn_tokenizer,
        paper_generation_config,
    )

    config = VanillaTransformerConfig()
    ours = VanillaTransformerForConditionalGeneration(config)
    ours.generation_config = paper_generation_config(config)
    ours.save_pretrained(folder / "ours")
    learn_tokenizer([SENTENCE], TokenizerSettings(vocab_size=265)).save_pretrained(folder / "ours")
    names = ("vocab_size", "d_model", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    names += tuple(
        f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads", "ffn_dim")
    )
    sizes = {name: getattr(config, name) for name in names}
    MarianMTModel(MarianConfig(**sizes, forced_eos_token_id=config.eos_token_id)).save_pretrained(folder / "marian")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURED}
    with tempfile.TemporaryDirectory() as temporary:
        _in_a_process(save_models, Path(temporary))
        for _ in range(rounds):
            for name in MEASURED:
                times[name].append(_in_a_process(seconds, name, Path(temporary)))
    print(
        f"| median of {rounds} | imports, s | then, s | fastest, s | slowest, s |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for name, taken in times.items():
        imports, then = zip(*taken, strict=True)
        print(
            f"| {name} | {statistics.median(imports):.2f} | {statistics.median(then):.2f} | {min(then):.2f} | "
            f"{max(then):.2f} |"
        )


def _in_a_process(function: Callable, *arguments):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(function, *arguments).result()


if __name__ == "__main__":
    main()
