"""What the length penalty gains on the validation set, and whether that can carry over to other text.

    python scripts/experiments/length_penalty.py runs/multi30k_en_de multi30k --penalties 1.0 1.4 1.8

The first table has the number of reference words per source word, set by set: if a set's ratio differs from that of the
training text, a penalty that fits it fits that set alone. The second has the ratio of the model's own translations, and
their BLEU (lower-cased, tokenised; beam 5). The test set's ratio is always shown, its BLEU only with --test.
"""

import argparse
from pathlib import Path

from vanilla_transformer.data.corpora import read_corpus
from vanilla_transformer.data.readers import plain_or_packed
from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import translate


SETS = {"train": "training text", "val": "validation", "test_2016_flickr": "test_2016_flickr"}
METRIC = "bleu_lowercase_tokenized"


def words_per_word(sources: list[str], targets: list[str]) -> float:
    return sum(len(text.split()) for text in targets) / sum(len(text.split()) for text in sources)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a model")
    parser.add_argument("data", type=Path, help="folder with train, val and test_2016_flickr, .en and .de")
    parser.add_argument("--penalties", type=float, nargs="+", default=[1.0, 1.4, 1.8])
    parser.add_argument("--test", action="store_true", help="translate the test set, too")
    arguments = parser.parse_args()

    pairs = {}
    print("| set | target words per source word |")
    print("| --- | ---: |")
    for name, title in SETS.items():
        files = [plain_or_packed(arguments.data / f"{name}.{language}") for language in ("en", "de")]
        pairs[name] = list(zip(*read_corpus([str(path) for path in files], "en", "de").texts(), strict=True))
        print(f"| {title} | {words_per_word(*pairs[name]):.3f} |")

    model, tokenizer = load_model(arguments.run)
    print("\n| length penalty | set | target words per source word | BLEU |")
    print("| ---: | --- | ---: | ---: |")
    for penalty in arguments.penalties:
        for name in list(SETS)[1 : 3 if arguments.test else 2]:
            sources, references = map(list, pairs[name])
            found = translate(model, tokenizer, sources, num_beams=5, length_penalty=penalty)
            [score] = score_translations(found, [references], [METRIC], target_language="de")
            print(f"| {penalty:g} | {SETS[name]} | {words_per_word(sources, found):.3f} | {score.value:.2f} |")


if __name__ == "__main__":
    main()
