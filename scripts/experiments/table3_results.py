"""The results of Table 3 in miniature: the file that keeps them, and what they say beside the paper's.

    python scripts/experiments/table3_results.py docs/explanation/table3_results.jsonl

prints the table of a results file of table3.py, finished or not.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class PaperRow:
    """A row of Table 3: perplexity and BLEU on newstest2013, millions of parameters, and its difference from base."""

    what: str
    perplexity: float
    bleu: float
    parameters: int
    label_smoothing: float = 0.1


ROWS = {
    "base": PaperRow("", 4.92, 25.8, 65),
    "table3-a1": PaperRow("1 head", 5.29, 24.9, 65),
    "table3-a2": PaperRow("4 heads", 5.00, 25.5, 65),
    "table3-a3": PaperRow("16 heads", 4.91, 25.8, 65),
    "table3-a4": PaperRow("32 heads", 5.01, 25.4, 65),
    "table3-b1": PaperRow("d_k / 4", 5.16, 25.1, 58),
    "table3-b2": PaperRow("d_k / 2", 5.01, 25.4, 60),
    "table3-c1": PaperRow("2 layers", 6.11, 23.7, 36),
    "table3-c2": PaperRow("4 layers", 5.19, 25.3, 50),
    "table3-c3": PaperRow("8 layers", 4.88, 25.5, 80),
    "table3-c4": PaperRow("d_model / 2", 5.75, 24.5, 28),
    "table3-c5": PaperRow("d_model x 2", 4.66, 26.0, 168),
    "table3-c6": PaperRow("d_ff / 2", 5.12, 25.4, 53),
    "table3-c7": PaperRow("d_ff x 2", 4.75, 26.2, 90),
    "table3-d1": PaperRow("dropout 0.0", 5.77, 24.6, 65),
    "table3-d2": PaperRow("dropout 0.2", 4.95, 25.5, 65),
    "table3-d3": PaperRow("smoothing 0.0", 4.67, 25.3, 65, label_smoothing=0.0),
    "table3-d4": PaperRow("smoothing 0.2", 5.47, 25.7, 65, label_smoothing=0.2),
    "table3-e": PaperRow("learned positions", 4.92, 25.7, 65),
    "big": PaperRow("big", 4.33, 26.4, 213),
}
SAME = {"perplexity": 0.05, "bleu": 0.1}  # differences in the paper, from one run each, too small to show a direction


@dataclass(frozen=True)
class Settings:
    """The settings of all runs in one results file.

    Attributes:
        narrower: The paper's widths are divided by this.
        tokens: Most padded tokens of a batch, on either side.
        vocabulary: Number of pieces.
        sentences: Most development sentences to measure on.
        languages: Source and target, with a hyphen between them.
        text: Half of the SHA-256 of the training pairs, and half of that of the development pairs.
        updates: Updates of every row except big, which has three times as many.
        peak: Factor of the learning rate at the end of the warm-up.
        cooldown: Share of the updates, at the end, over which the learning rate falls to 0.
        bf16: Whether matrix products are computed in bfloat16.
    """

    narrower: int
    tokens: int
    vocabulary: int
    sentences: int
    languages: str
    text: str
    updates: int
    peak: float = 1.0
    cooldown: float = 0.0
    bf16: bool = False

    def updates_of(self, row: str) -> int:
        return self.updates * (3 if row == "big" else 1)


class Results:
    """The JSON-lines file: settings first, then a line for each finished run."""

    def __init__(self, path: Path):
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        self._end = text.rfind(b"\n") + 1  # a killed process may have left half a line after it
        lines = [json.loads(line) for line in text[: self._end].splitlines()]
        self.settings = Settings(**lines[0]) if lines else None
        self.runs = lines[1:]

    def begin(self, settings: Settings) -> None:
        self.settings = settings
        self._append(asdict(settings))

    def add(self, record: dict) -> None:
        self.runs.append(record)
        self._append(record)

    def _append(self, record: dict) -> None:
        with self.path.open("ab") as file:
            file.truncate(self._end)
            file.write(json.dumps(record).encode() + b"\n")
            self._end = file.tell()

    def missing(self, rows: list[str], seeds: int) -> Iterator[tuple[str, int]]:
        """Rows and seeds that are not done yet, all rows once before any comes twice."""
        done = {(record["row"], record["seed"]) for record in self.runs}
        return ((row, seed) for seed in range(1, seeds + 1) for row in rows if (row, seed) not in done)


def summary(runs: list[dict]) -> list[dict]:
    """For each row, its means, its spread over seeds, and how its differences from base compare with the paper's."""
    of = {row: [record for record in runs if record["row"] == row] for row in ROWS}
    found = []
    for row, records in of.items():
        if not records:
            continue
        summed = {"row": row, "seeds": len(records), "parameters": records[0]["parameters"]}
        for name in ("perplexity", "bleu"):
            values = [record[name] for record in records]
            summed[name] = statistics.mean(values)
            summed[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
            summed[f"{name}_verdict"] = verdict(name, row, of)
        found.append(summed)
    return found


def verdict(name: str, row: str, runs_of: dict[str, list[dict]]) -> str:
    """Whether a row's difference from base has the paper's sign: "agrees", "differs", or "within noise".

    Where the paper has almost no difference, it is "agrees (no difference)" if ours is within noise, too, and else
    "differs (no difference in the paper)".

    With one seed the noise is unknown: the verdict is then "same sign", "other sign", or "no difference in the paper".

    Noise is twice the standard error of a difference of means, from the seeds' variance pooled over all rows;
    perplexities are compared by their logarithms.
    """
    if row == "base" or not runs_of["base"]:
        return ""
    values = {
        r: [math.log(x[name]) if name == "perplexity" else x[name] for x in xs] for r, xs in runs_of.items() if xs
    }
    ours = statistics.mean(values[row]) - statistics.mean(values["base"])
    papers = getattr(ROWS[row], name) - getattr(ROWS["base"], name)
    same = abs(papers) <= SAME[name] + 1e-9
    variances = [(statistics.variance(x), len(x) - 1) for x in values.values() if len(x) > 1]
    if not variances:
        return "no difference in the paper" if same else "same sign" if ours * papers > 0 else "other sign"
    pooled = sum(variance * freedom for variance, freedom in variances) / sum(freedom for _, freedom in variances)
    noise = 2 * math.sqrt(pooled * (1 / len(values[row]) + 1 / len(values["base"])))
    if same:
        return "agrees (no difference)" if abs(ours) <= noise else "differs (no difference in the paper)"
    if abs(ours) <= noise:
        return "within noise"
    return "agrees" if ours * papers > 0 else "differs"


def print_report(results: Results) -> None:
    settings, rows = results.settings, summary(results.runs)
    seconds = sum(record["cpu_seconds"] for record in results.runs)
    seeds = "mean ± standard deviation over seeds, " if any(row["seeds"] > 1 for row in rows) else "one seed, "
    print(
        f"\nWidths divided by {settings.narrower}, {settings.vocabulary:,} pieces, {settings.updates:,} updates of "
        f"{settings.tokens:,} tokens (big: three times as many); {len(results.runs)} runs, {seconds / 60:.0f} minutes "
        f"of processor time. Ours: {seeds}up to {settings.sentences:,} development sentences.\n"
    )
    print(
        "| row | | PPL, paper | PPL, ours | against base | BLEU, paper | BLEU, ours | against base "
        "| parameters, paper (M) | ours (k) | seeds |"
    )
    print("| --- | --- | ---: | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for row in rows:
        paper = ROWS[row["row"]]
        cells = [row["row"], paper.what]
        for name, digits in (("perplexity", 2), ("bleu", 1)):
            spread = "" if row[f"{name}_spread"] is None else f" ± {row[f'{name}_spread']:.{digits}f}"
            cells += [f"{getattr(paper, name):.{digits}f}", f"{row[name]:.{digits}f}{spread}", row[f"{name}_verdict"]]
        cells += [f"{paper.parameters}", f"{row['parameters'] / 1e3:,.0f}", f"{row['seeds']}"]
        print("| " + " | ".join(cells) + " |")
    for kind in ("agrees", "within noise", "differs", "same sign", "other sign"):
        for name in ("perplexity", "bleu"):
            if named := [row["row"] for row in rows if row[f"{name}_verdict"].startswith(kind)]:
                print(f"\n{name}, {kind}: {', '.join(named)}", end="")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="results.jsonl of the --output of table3.py")
    file = parser.parse_args().file
    try:
        results = Results(file)
    except (OSError, ValueError, TypeError) as error:
        parser.error(f"{file} is not a results file of table3.py: {error}")
    if results.settings is None:
        parser.error(f"There are no results in {file}.")
    print_report(results)


if __name__ == "__main__":
    main()
