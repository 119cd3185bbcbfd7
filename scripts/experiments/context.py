"""Which pronoun is "it"? Two models on documents of two sentences, with and without the sentence before.

    python scripts/experiments/context.py --output runs/context

    The man is buying a new lamp.    Der Mann kauft eine neue Lampe.
    It is too expensive.             Sie ist zu teuer.

German has er, sie or es for "it" (and ihn, sie or es as an object), by the gender of the noun in the sentence before;
the second sentence does not show it. The phrasebook's grammar generates the text. Both models read the same pairs, in
the same vocabulary except for the separator, for the same number of updates.

Contrastive accuracy is the share of test sentences whose right translation the model finds likelier than both with a
wrong pronoun, all else equal. Each second sentence of the test set comes after a noun of each gender, so a model that
ignores the sentence before is right in one of three, whatever it says. No document of the test set is in the training
text. Finished models are not trained again; interrupted work is resumed.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from random import Random

import torch

from vanilla_transformer.data.phrasebook import (
    ACCUSATIVE,
    KNOWN,
    NOMINATIVE,
    THIRD,
    VERBS,
    Clause,
    Phrase,
    being,
    linked,
    nouns_of,
    somebody,
)
from vanilla_transformer.data.phrasebook_lexicon import DEGREES
from vanilla_transformer.files import write_text
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.run import train
from vanilla_transformer.translation import score_pairs


GENDERS = "mfn"
IT = {NOMINATIVE: ("er", "sie", "es"), ACCUSATIVE: ("ihn", "sie", "es")}
THINGS = nouns_of("clothing vehicle thing reading furniture device")
WHAT_IS_DONE = [verb for verb in VERBS if verb.base in ("see", "need", "find", "buy", "look for", "have", "lose")]
QUALITIES = {"old": "alt", "new": "neu", "big": "groß", "small": "klein", "expensive": "teuer", "beautiful": "schön"}

Pair = tuple[str, str]


def capitalised(pair: Pair) -> Pair:
    return tuple(f"{text[0].upper()}{text[1:]}." for text in pair)


def first(draw: Callable, gender: str) -> Pair:
    """A sentence with one thing of this gender."""
    noun, case = draw([noun for noun in THINGS if noun.gender == gender]), draw((NOMINATIVE, ACCUSATIVE))
    thing = None
    while thing is None or thing.gender == "p":  # a plural is not "it"
        thing = noun.phrase(draw, case, known=draw((True, False)), plain=case == NOMINATIVE)
    if case == NOMINATIVE:
        return capitalised(being(thing, draw(list(QUALITIES.items()))).in_order("main"))
    verb, subject = draw(WHAT_IS_DONE), somebody(draw)
    return capitalised(Clause(subject, verb.forms(draw(verb.tenses), subject.person), [thing]).in_order("main"))


def second(draw: Callable) -> dict[str, Pair]:
    """A sentence about "it", for each gender."""
    case, (degree, german), negated = draw((NOMINATIVE, ACCUSATIVE)), draw(list(DEGREES.items())), draw(range(4)) == 0
    english, german = linked((degree, german), draw(list(QUALITIES.items())))
    verb, subject = draw(WHAT_IS_DONE), somebody(draw)
    forms = verb.forms(draw(verb.tenses), subject.person)
    found = {}
    for gender, pronoun in zip(GENDERS, IT[case], strict=True):
        it = Phrase("it", pronoun, KNOWN, THIRD)
        clause = being(it, (english, german)) if case == NOMINATIVE else Clause(subject, forms, [it], negated)
        found[gender] = capitalised(clause.in_order("main"))
    return found


def documents(seed: str) -> Iterator[list[tuple[Pair, dict[str, Pair], str]]]:
    """An endless stream; for each second sentence, a document per gender: first sentence, second by gender, gender."""
    random = Random(seed).random

    def draw(pool):
        return pool[int(random() * len(pool))]

    while True:
        about_it = second(draw)
        yield [(first(draw, gender), about_it, gender) for gender in GENDERS]


def write_documents(folder: Path, name: str, found: Sequence[tuple[Pair, dict[str, Pair], str]]) -> None:
    """Writes both sides as lines, with a blank line after each document."""
    for side, language in enumerate(("en", "de")):
        texts = (f"{before[side]}\n{about_it[gender][side]}\n\n" for before, about_it, gender in found)
        write_text(folder / f"{name}.{language}", "".join(texts))


def trained(sentences: int, options: argparse.Namespace) -> RunFolder:
    """The run that reads this many preceding sentences, trained if necessary."""
    folder = RunFolder(options.output / f"context_{sentences}")
    overrides = {
        "data.folder": options.output.resolve(),
        "data.train": "[train.en, train.de]",
        "data.validation": "[validation.en, validation.de]",
        "data.test": "{}",
        "data.context_sentences": sentences,
        "tokenizer.vocab_size": 500,
        "model.d_model": 64,
        "model.encoder_ffn_dim": 256,
        "model.decoder_ffn_dim": 256,
        "training.max_steps": options.updates,
        "training.seed": options.seed,
        "evaluation.examples": "[]",
    }
    if not folder.scores.exists():
        train(
            load_recipe("phrasebook", {name: str(value) for name, value in overrides.items()}), folder.path, resume=True
        )
    return folder


def contrastive_accuracy(folder: RunFolder, test: Sequence[tuple[Pair, dict[str, Pair], str]]) -> float:
    """Share of documents whose right pronoun the model finds likelier than both wrong ones."""
    model, tokenizer = load_model(folder.path, "cpu")
    pairs = [pair for _, about_it, _ in test for pair in about_it.values()]
    contexts = [(before[0],) for before, *_ in test for _ in GENDERS]
    scores = iter(score_pairs(model, tokenizer, pairs, contexts=contexts))
    right = 0
    for *_, gender in test:
        found = {each: next(scores).log_probability for each in GENDERS}
        right += all(found[gender] > found[other] for other in GENDERS if other != gender)
    return right / len(test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the text and both runs")
    parser.add_argument("--documents", type=int, default=12_000, help="to train on")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--test", type=int, default=600, help="documents of the test set")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    test = list(chain.from_iterable(islice(documents("test"), options.test // 3)))
    kept_apart = {(before, about_it[gender]) for before, about_it, gender in test}
    others = chain.from_iterable(documents("train"))
    others = (each for each in others if (each[0], each[1][each[2]]) not in kept_apart)
    write_documents(options.output, "validation", list(islice(others, 150)))
    write_documents(options.output, "train", list(islice(others, options.documents)))
    print("| sentences before | contrastive accuracy, % | chance, % | validation, % exactly right |")
    print("| ---: | ---: | ---: | ---: |", flush=True)
    for sentences in (0, 1):
        folder = trained(sentences, options)
        scores = json.loads(folder.scores.read_text(encoding="utf-8"))
        exact = next(each["value"] for each in scores if each["chosen"] and each["metric"] == "exact_match")
        accuracy = 100 * contrastive_accuracy(folder, test)
        print(f"| {sentences} | {accuracy:.1f} | {100 / 3:.1f} | {exact:.1f} |", flush=True)


if __name__ == "__main__":
    main()
