"""Whether CTranslate2 translates as torch does: how many outputs of a trained model on real sentences are the same.

    python scripts/benchmarks/engines.py runs/multi30k_en_de test_2016_flickr.en

The same model translates the same sentences with torch and, exported, with CTranslate2: greedily, with its own
settings, as in the paper, and with CTranslate2's own length penalty and stopping rule. Translations are the same if
their texts are; where the search has scores, the table says how often each engine's is better. The last column says
how often all texts returned by beam search are the same.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from vanilla_transformer import ExportedModel, Hypothesis, to_ctranslate2, translate_lines
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.loading import load_model


GREEDY = {"num_beams": 1}
PAPER = {
    "num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.6, "length_penalty_type": "gnmt",
    "early_stopping": "never", "max_length_offset": 50, "return_dict_in_generate": True,
}  # fmt: skip
SEARCHES = {
    "greedy": GREEDY,
    "the model's own": {"return_dict_in_generate": True},
    "the paper's, beam 4": PAPER,
    "CTranslate2's, beam 4": {**PAPER, "length_penalty_type": "length", "early_stopping": True},
}


def row(name: str, kind: str, here: list[list[Hypothesis]], there: list[list[Hypothesis]]) -> str:
    pairs = list(zip(here, there, strict=True))
    same = sum(ours[0].text == theirs[0].text for ours, theirs in pairs)
    scored = [
        (ours[0].score, theirs[0].score) for ours, theirs in pairs if None not in (ours[0].score, theirs[0].score)
    ]
    better = [str(sum(a > b + 1e-4 for a, b in each)) for each in (scored, [each[::-1] for each in scored])]
    every = sum([each.text for each in ours] == [each.text for each in theirs] for ours, theirs in pairs)
    cells = [name, kind, f"{same:,} of {len(pairs):,}", *(better if scored else ["", ""]), f"{every:,}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a run folder or a model's folder")
    parser.add_argument("sources", type=Path, help="a text file")
    parser.add_argument("--sentences", type=int, default=1000, help="how many of its lines; Default: 1000")
    parser.add_argument("--quantization", nargs="+", default=["float32", "int8"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    model, tokenizer = load_model(arguments.model)
    lines = list(text_lines(arguments.sources))[: arguments.sentences]
    print("| search | exported in | the same | better by torch | by CTranslate2 | all returned the same |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as temporary:
        for kind in arguments.quantization:
            to_ctranslate2(model, tokenizer, Path(temporary) / kind, quantization=kind)
        for name, search in SEARCHES.items():
            with tqdm(total=len(lines) * (1 + len(arguments.quantization)), desc=name) as bar:
                options = {**search, "on_progress": bar.update}
                here = list(translate_lines(model, tokenizer, [lines], **options))
                for kind in arguments.quantization:
                    exported = ExportedModel(Path(temporary) / kind)
                    there = list(translate_lines(exported, tokenizer, [lines], **options))
                    print(row(name, kind, here, there), flush=True)


if __name__ == "__main__":
    main()
