"""The account of a cleaning: as JSON, as a page of Markdown, and as a picture."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..files import read_json, write_json, write_text
from .rules import REASONS
from .shards import WrittenShard, chosen


@dataclass
class CleaningReport:
    """The outcome of cleaning the pairs of a corpus.

    Attributes:
        begun_with: Identity of the corpus, settings, versions of libraries, models.
        pairs: Pairs read.
        kept: Pairs kept.
        mended: Kept pairs whose text was mended.
        dropped: Pairs dropped, by rule, in the order of the rules; 0 where a rule found none.
        off: Checks that could not be made, and why.
        least_score: The lowest score of the kept pairs; None without scores.
        examples: Some pairs of each rule, and of "mended".
        files: Size and SHA-256 of each file, by name: kept sources, kept targets, dropped pairs.
    """

    begun_with: dict
    pairs: int = 0
    kept: int = 0
    mended: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    off: list[str] = field(default_factory=list)
    least_score: float | None = None
    examples: dict[str, list[dict]] = field(default_factory=dict)
    files: dict[str, dict] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "CleaningReport":
        """Reads a report; ValueError if the file is not one."""
        remedy = "Empty its folder to begin anew, or choose another one."
        try:
            return cls(**read_json(path, remedy))
        except TypeError as error:
            raise ValueError(f"{path} is not a report of a cleaning. {remedy}") from error

    def add(self, shard: WrittenShard) -> None:
        """Counts a shard."""
        self.pairs += shard.kept + shard.dropped.total()
        self.kept += shard.kept
        self.mended += shard.mended
        for name, count in shard.dropped.items():
            self.dropped[name] += count
        for name, examples in shard.examples.items():
            self.examples[name] = chosen([*self.examples.get(name, []), *examples])

    def save(self, path: Path) -> None:
        """Writes the report as JSON, atomically."""
        write_json(path, asdict(self))

    def save_page(self, path: Path, picture: str) -> None:
        """Writes the report as a page with a picture of that name."""
        lines = ["# What became of the pairs", "", f"{self}", "", f"![Pairs dropped by each rule]({picture})", ""]
        lines += ["| rule | a pair is dropped if | pairs | share |", "| --- | --- | ---: | ---: |"]
        for name, meaning in REASONS.items():
            share = self.dropped[name] / max(1, self.pairs)
            lines.append(f"| {name} | {meaning} | {self.dropped[name]:,} | {share:.2%} |")
        lines += ["", *(f"Not checked: {each}" for each in self.off), ""]
        lines += ["Every dropped pair is in `dropped.jsonl.gz`. Some of each kind:"]
        for name in (*REASONS, "mended"):
            if name in self.examples:
                lines += ["", f"## {name}", "", "```text"]
                lines += [line for each in self.examples[name] for line in _shown(each)]
                lines.append("```")
        write_text(path, "\n".join(lines) + "\n")

    def save_picture(self, path: Path) -> None:
        """Draws the pairs that each rule has dropped."""
        from ..plots import plot_counts

        title = f"{self.kept:,} of {self.pairs:,} pairs kept"
        plot_counts(self.dropped, path, total=self.pairs, xlabel="pairs dropped", title=title)

    def __str__(self) -> str:
        dropped = "; ".join(f"{count:,} {name}" for name, count in Counter(self.dropped).most_common() if count)
        mended = f" Mended: {self.mended:,} of those kept." if self.mended else ""
        return f"{self.kept:,} of {self.pairs:,} pairs kept; dropped: {dropped or 'none'}.{mended}"


_LONGEST = 160  # characters of an example on the page


def _shown(example: dict) -> list[str]:
    facts = ", ".join(
        f"{name.replace('_', ' ')} {example[name]}" for name in ("score", "repeats_line") if name in example
    )
    lines = [f"{example['line']}" + (f" ({facts})" if facts else "")]
    for name in ("source", "target", "mended_source", "mended_target"):
        if name in example:
            text = example[name] if len(example[name]) <= _LONGEST else f"{example[name][:_LONGEST]}…"
            text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
            lines.append(f"    {name.replace('_', ' ')}: {text.replace('```', '` ` `')}")
    return lines
