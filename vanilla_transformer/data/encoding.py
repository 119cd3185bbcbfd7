"""From sentence pairs to token ids, leaving out what cannot be learned from, with an account of what was left out."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class PairLimits:
    """Which pairs are kept; `</s>` counts as a token.

    Attributes:
        max_source_length: Longest source, in tokens.
        max_target_length: Longest target, in tokens.
        max_length_ratio: The longer side has at most this many times the tokens of the shorter; None: any.
    """

    max_source_length: int = 256
    max_target_length: int = 256
    max_length_ratio: float | None = None

    def reason_to_drop(self, source_length: int, target_length: int) -> str | None:
        """Why a pair of these lengths in tokens is left out, or None if it is kept."""
        if min(source_length, target_length) <= 1:
            return "empty side"
        if source_length > self.max_source_length:
            return f"source over {self.max_source_length} tokens"
        if target_length > self.max_target_length:
            return f"target over {self.max_target_length} tokens"
        longer, shorter = max(source_length, target_length), min(source_length, target_length)
        if self.max_length_ratio is not None and longer > self.max_length_ratio * shorter:
            return f"length ratio over {self.max_length_ratio}"
        return None


@dataclass
class EncodingReport:
    """What became of a corpus.

    Attributes:
        pairs: Pairs read.
        kept: Pairs kept.
        dropped: Pairs left out, by reason.
        source_tokens: Tokens of all kept sources, `</s>` included.
        target_tokens: Tokens of all kept targets, `</s>` included.
    """

    pairs: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    source_tokens: int = 0
    target_tokens: int = 0

    def __str__(self) -> str:
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in self.dropped.items()) or "none"
        return (
            f"{self.kept:,} of {self.pairs:,} pairs kept ({self.source_tokens:,} source and {self.target_tokens:,} "
            f"target tokens); dropped: {dropped}"
        )


def encode_corpus(
    corpus: "Dataset",
    tokenizer: "PreTrainedTokenizerFast",
    source_language: str,
    target_language: str,
    limits: PairLimits | None = None,
) -> tuple["Dataset", EncodingReport]:
    """Turns text into ids and leaves out the pairs that `limits` forbids.

    Args:
        corpus: Rows `{"translation": {source_language: text, target_language: text}}`.
        tokenizer: What makes ids of text.
        source_language: Language code of the source.
        target_language: Language code of the target.
        limits: Which pairs are kept; None keeps all, as a test set must.

    Returns:
        A dataset with `input_ids` and `labels` (lists of ids ending in `</s>`), and the report.

    Raises:
        ValueError: No pair is left.
    """
    from datasets import Dataset, Features, List, Value

    report = EncodingReport(pairs=len(corpus))
    rows: dict[str, list[list[int]]] = {"input_ids": [], "labels": []}
    for batch in corpus.iter(10_000):
        sources = tokenizer([pair[source_language].strip() for pair in batch["translation"]]).input_ids
        targets = tokenizer([pair[target_language].strip() for pair in batch["translation"]]).input_ids
        for source, target in zip(sources, targets, strict=True):
            reason = limits.reason_to_drop(len(source), len(target)) if limits else None
            if reason is not None:
                report.dropped[reason] = report.dropped.get(reason, 0) + 1
                continue
            rows["input_ids"].append(source)
            rows["labels"].append(target)
    report.kept = len(rows["labels"])
    report.source_tokens = sum(map(len, rows["input_ids"]))
    report.target_tokens = sum(map(len, rows["labels"]))
    if not report.kept:
        raise ValueError(f"No pair is left to use: {report}.")
    features = Features({name: List(Value("int32")) for name in rows})
    return Dataset.from_dict(rows, features=features), report
