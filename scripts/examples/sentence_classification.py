"""Sentences with labels: a split that anybody can repeat, and a baseline for an encoder to beat."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

import torch

from vanilla_transformer.files import text_lines


@dataclass(frozen=True)
class LabelledSentences:
    """Sentences and, beside each, the number of its class."""

    sentences: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.labels)


def part_of(sentence: str) -> str:
    """The part that a sentence belongs to: a tenth is "test", a tenth "validation", the others "train".

    The sentence alone decides (SHA-256 of its UTF-8, without spaces around it), so equal sentences are in the same
    part, and neither the order of files nor random numbers matter.
    """
    tenth = int.from_bytes(hashlib.sha256(sentence.strip().encode()).digest()[:8], "big") % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")


def split_by_hash(files: Mapping[int, str | PathLike[str]]) -> dict[str, LabelledSentences]:
    """Reads a text file of sentences for each class and splits them by `part_of`.

    Blank lines are left out. Within a part the first class comes first, in the order of its file.

    Args:
        files: The file of each class.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A part is empty.
    """
    parts = {name: LabelledSentences([], []) for name in ("train", "validation", "test")}
    for label, path in files.items():
        for line in text_lines(path):
            if sentence := line.strip():
                part = parts[part_of(sentence)]
                part.sentences.append(sentence)
                part.labels.append(label)
    for name, part in parts.items():
        if not len(part):
            raise ValueError(f"The {name} part of {', '.join(map(str, files.values()))} is empty: there is too little.")
    return parts


class BagOfWords:
    """Logistic regression on the set of words in a sentence; spaces separate words.

    The loss is the mean cross-entropy plus `penalty` / 2 times the sum of all squared weights (not of the biases). It
    is convex, and L-BFGS finds its minimum, in float64: no seed, no learning rate.

    Args:
        data: The sentences to learn from; only their words count.
        penalty: How much large weights cost.
        classes: The number of classes.
    """

    def __init__(self, data: LabelledSentences, penalty: float, classes: int = 2):
        words = sorted({word for sentence in data.sentences for word in sentence.split()})
        self.places = {word: place for place, word in enumerate(words)}
        self.weights = torch.zeros(len(words), classes, dtype=torch.float64, requires_grad=True)
        self.biases = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        features, labels = self._features(data.sentences), torch.tensor(data.labels)
        optimizer = torch.optim.LBFGS(
            [self.weights, self.biases], max_iter=500, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            scores = torch.sparse.mm(features, self.weights) + self.biases
            found = torch.nn.functional.cross_entropy(scores, labels) + penalty / 2 * self.weights.square().sum()
            found.backward()
            return found

        optimizer.step(loss)

    def _features(self, sentences: Sequence[str]) -> torch.Tensor:
        """(sentences, words), sparse: each row has length 1, so that long sentences do not count for more."""
        rows, columns, values = [], [], []
        for row, sentence in enumerate(sentences):
            known = sorted({self.places[word] for word in sentence.split() if word in self.places})
            rows += [row] * len(known)
            columns += known
            values += [len(known) ** -0.5 for _ in known]  # `known` may be empty
        shape = (len(sentences), len(self.places))
        return torch.sparse_coo_tensor(
            [rows, columns], values, shape, dtype=torch.float64, check_invariants=True
        ).coalesce()

    def accuracy(self, data: LabelledSentences) -> float:
        """Percentage of sentences that it classifies correctly."""
        with torch.no_grad():
            scores = torch.sparse.mm(self._features(data.sentences), self.weights) + self.biases
        return 100 * float((scores.argmax(dim=1) == torch.tensor(data.labels)).double().mean())

    @property
    def parameters(self) -> int:
        return self.weights.numel() + self.biases.numel()
