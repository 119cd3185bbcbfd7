"""Tables 1 and 2 of the paper, measured and counted: python scripts/benchmarks/complexity.py --picture complexity.png

Table 1: one layer of self-attention (ours, with its four projections), of recurrence (torch's LSTM) and of convolution
(of width 3, plain and separable) on sequences of n vectors of width d. Each takes the same number of vectors in total,
so a batch of longer sequences has fewer of them. Layers take turns within each round; times are medians over the
rounds. The paper's table has only leading terms. Beside the times are the floating-point operations that each layer
actually performs (torch counts them), and below them the length up to which attention is cheaper than another layer:
by the paper's leading terms, by that count, and by the clock.

Table 2: floating-point operations of training the paper's base and big model, counted on our modules (forward and
backward, all matrix products) on the meta device, which needs no memory, beside the paper's estimate.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.environment import machine
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerAttention


WIDTH = 3  # the paper's k, for convolutions
HEAD_DIM = 64

# The paper's leading term for n vectors of width d; "per layer" and "sequential operations" of Table 1.
TABLE_1: dict[str, tuple[str, str, Callable[[int, int], float]]] = {
    "self-attention": ("O(n² · d)", "O(1)", lambda n, d: n * n * d),
    "recurrence": ("O(n · d²)", "O(n)", lambda n, d: n * d * d),
    "convolution": ("O(k · n · d²)", "O(1)", lambda n, d: WIDTH * n * d * d),
    "separable convolution": ("O(k · n · d + n · d²)", "O(1)", lambda n, d: WIDTH * n * d + n * d * d),
}
STYLES = {"self-attention": "o-", "recurrence": "s-", "convolution": "^-", "separable convolution": "v--"}


# ------------------------------------------------------------------------------- layers: (batch, n, d) to (batch, n, d)


class SelfAttention(nn.Module):
    def __init__(self, d: int, implementation: str):
        super().__init__()
        heads = max(1, d // HEAD_DIM)
        config = VanillaTransformerConfig(
            d_model=d, encoder_attention_heads=heads, decoder_attention_heads=heads, attn_implementation=implementation
        )
        self.attention = VanillaTransformerAttention(config, heads, is_causal=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.attention(states)[0]


class Recurrence(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.lstm(states)[0]


class Convolution(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.convolution = nn.Conv1d(d, d, WIDTH, padding=WIDTH // 2)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.convolution(states.transpose(1, 2)).transpose(1, 2)


class SeparableConvolution(nn.Module):
    """Each channel by itself, then all channels at each position (section 4, citing Xception)."""

    def __init__(self, d: int):
        super().__init__()
        self.by_channel = nn.Conv1d(d, d, WIDTH, padding=WIDTH // 2, groups=d)
        self.by_position = nn.Linear(d, d)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.by_position(self.by_channel(states.transpose(1, 2)).transpose(1, 2))


def build(name: str, d: int, implementation: str = "sdpa") -> nn.Module:
    if name == "self-attention":
        return SelfAttention(d, implementation)
    kinds = {"recurrence": Recurrence, "convolution": Convolution, "separable convolution": SeparableConvolution}
    return kinds[name](d)


def counted(name: str, n: int, d: int) -> int:
    """Floating-point operations (products and sums) of one forward pass over one sequence.

    Counting at lengths 1 and 2 is enough: every layer has a n + b n^2.
    """
    once, twice = (_counted(name, length, d) for length in (1, 2))
    b = (twice - 2 * once) // 2
    return (once - b) * n + b * n * n


@cache
def _counted(name: str, n: int, d: int) -> int:
    with torch.device("meta"):
        layer, states = build(name, d, "eager"), torch.empty(1, n, d)
    with FlopCounterMode(display=False) as counter:
        layer(states)
    return counter.get_total_flops()


# ----------------------------------------------------------------------------------------------------------- Table 1


@dataclass
class Row:
    """Seconds for `vectors` vectors, medians over rounds; operations of one forward pass over them."""

    layer: str
    n: int
    d: int
    vectors: int
    forward_seconds: float
    backward_seconds: float
    operations: int

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds


def timed(layer: nn.Module, states: torch.Tensor) -> tuple[float, float]:
    """Seconds of a forward and of a backward pass."""

    def now() -> float:
        if states.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    layer.zero_grad()
    start = now()
    output = layer(states)
    middle = now()
    output.sum().backward()
    return middle - start, now() - middle


def measure(
    lengths: list[int], widths: list[int], vectors: int, rounds: int, implementation: str = "sdpa", device: str = "cpu"
) -> list[Row]:
    """Times every layer at every length and width, once per round; a warm-up round does not count."""
    torch.manual_seed(0)
    layers = {(name, d): build(name, d, implementation).to(device) for name in TABLE_1 for d in widths}
    cases = [(name, n, d) for d in widths for n in lengths for name in TABLE_1]
    times: dict[tuple, list[tuple[float, float]]] = {case: [] for case in cases}
    for _ in range(rounds + 1):
        for name, n, d in cases:
            states = torch.randn(max(1, vectors // n), n, d, device=device, requires_grad=True)
            times[name, n, d].append(timed(layers[name, d], states))
    rows = []
    for name, n, d in cases:
        forward, backward = (statistics.median(part) for part in zip(*times[name, n, d][1:], strict=True))
        batch = max(1, vectors // n)
        rows.append(Row(name, n, d, batch * n, forward, backward, batch * counted(name, n, d)))
    return rows


def crossing(lengths: list[int], ours: list[float], others: list[float]) -> float:
    """The length above which `ours` is larger, interpolated between lengths on a logarithmic scale.

    0 if it is larger at all lengths; infinity if it is not larger at the last.
    """
    gaps = [math.log(a / b) for a, b in zip(ours, others, strict=True)]
    if gaps[-1] <= 0:
        return math.inf
    for i in reversed(range(len(gaps) - 1)):
        if gaps[i] <= 0:
            return lengths[i] * (lengths[i + 1] / lengths[i]) ** (gaps[i] / (gaps[i] - gaps[i + 1]))
    return 0.0


def crossings(rows: list[Row]) -> Iterator[dict]:
    """For each width and each other layer: the length up to which attention is cheaper."""
    lengths = sorted({row.n for row in rows})
    powers = [2**step for step in range(1, 17)]
    ours = "self-attention"
    for d in sorted({row.d for row in rows}):
        seconds = {name: [row.seconds for row in rows if (row.layer, row.d) == (name, d)] for name in TABLE_1}
        for other in list(TABLE_1)[1:]:
            yield {
                "d": d,
                "other": other,
                "paper": crossing(powers, *([TABLE_1[name][2](n, d) for n in powers] for name in (ours, other))),
                "counted": crossing(powers, *([counted(name, n, d) for n in powers] for name in (ours, other))),
                "measured": crossing(lengths, seconds[ours], seconds[other]),
            }


# ----------------------------------------------------------------------------------------------------------- Table 2

# Section 5.2 and footnote 5: hours of training on 8 P100s, each assumed to sustain 9.5 TFLOP/s.
PAPERS_TRAINING = {
    "base": {"updates": 100_000, "hours": 12, "operations": 3.3e18},
    "big": {"updates": 300_000, "hours": 84, "operations": 2.3e19},
}
GPUS, SUSTAINED = 8, 9.5e12
UPDATE_TOKENS = 25_000  # section 5.1, on either side


def training_operations(config: VanillaTransformerConfig, tokens: int, length: int) -> int:
    """Floating-point operations of one update on `tokens` source and `tokens` target tokens in sentences of `length`.

    Matrix products of the forward and the backward pass; softmax, normalisation, dropout and Adam are left out.
    """
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config).train()
        ids = torch.zeros(tokens // length, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    return round(counter.get_total_flops() * tokens / ids.numel())


def training_rows(lengths: tuple[int, ...] = (30, 100)) -> Iterator[dict]:
    for name, paper in PAPERS_TRAINING.items():
        config = VanillaTransformerConfig.from_name(name, attn_implementation="eager")
        for length in lengths:
            update = training_operations(config, UPDATE_TOKENS, length)
            estimate = paper["hours"] * 3600 * GPUS * SUSTAINED
            yield {
                "model": name,
                "tokens in a sentence": length,
                "operations of an update": update,
                "updates": paper["updates"],
                "operations": update * paper["updates"],
                "paper": paper["operations"],
                "hours x 8 x 9.5e12": estimate,
                "share of 9.5 TFLOP/s that the matrix products used": update * paper["updates"] / estimate,
            }


# ------------------------------------------------------------------------------------------------- tables and picture


def shown(length: float) -> str:
    return {0: "never", math.inf: "all n measured"}.get(length, f"n < {length:.0f}")


def print_tables(machine: str, rows: list[Row], training: list[dict]) -> None:
    print(f"{machine}\n\nTable 1. Milliseconds for {rows[0].vectors:,} vectors, forward and backward (and GFLOP):\n")
    print("| d | n | " + " | ".join(f"{name} {TABLE_1[name][0]}" for name in TABLE_1) + " |")
    print("| ---: | ---: |" + " ---: |" * len(TABLE_1))
    for d, n in sorted({(row.d, row.n) for row in rows}):
        cells = [row for row in rows if (row.d, row.n) == (d, n)]
        print(f"| {d} | {n} | " + " | ".join(f"{1e3 * c.seconds:.1f} ({c.operations / 1e9:.2f})" for c in cells) + " |")
    print("\nSelf-attention is cheaper than …\n\n| d | than | by Table 1 | counted with all constants | by the clock |")
    print("| ---: | --- | --- | --- | --- |")
    for found in crossings(rows):
        lengths = " | ".join(shown(found[kind]) for kind in ("paper", "counted", "measured"))
        print(f"| {found['d']} | {found['other']} | {lengths} |")
    print("\nTable 2. Operations of training, counted on our modules:\n")
    print("| model | tokens in a sentence | an update | updates | training | the paper | of 9.5 TFLOP/s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in training:
        model, length, update, updates, operations, paper, _, share = row.values()
        print(f"| {model} | {length} | {update:.2e} | {updates:,} | {operations:.2e} | {paper:.1e} | {share:.0%} |")
    print(
        f"""
The paper does not count, it multiplies: hours x {GPUS} GPUs x 9.5 TFLOP/s, which it takes for what a P100 sustains
(base 12 h: 3.28e18, big 3.5 days: 2.30e19). The last column is the share of that which the model's matrix products
need if each update has 25,000 + 25,000 tokens and no padding; the rest went into padding, into everything that is no
matrix product, into communication and into not reaching 9.5 TFLOP/s."""
    )


def draw(rows: list[Row], path: Path) -> None:
    """Draws seconds per thousand vectors against length, a column of panels for each width, log-log."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    widths, kinds = sorted({row.d for row in rows}), {"forward": "forward_seconds", "forward and backward": "seconds"}
    measured = {found["d"]: found["measured"] for found in crossings(rows) if found["other"] == "recurrence"}
    figure = Figure(figsize=(1 + 4 * len(widths), 7.5), layout="constrained")
    panels = figure.subplots(len(kinds), len(widths), sharex=True, sharey="row", squeeze=False)
    for across, d in enumerate(widths):
        for down, (kind, field) in enumerate(kinds.items()):
            axes = panels[down][across]
            for name, style in STYLES.items():
                of = [row for row in rows if (row.layer, row.d) == (name, d)]
                milliseconds = [1e6 * getattr(row, field) / row.vectors for row in of]
                axes.plot([row.n for row in of], milliseconds, style, markersize=4, label=name)
            axes.axvline(d, color="black", linestyle=":", label="n = d (Table 1: attention = recurrence)")
            if kind != "forward" and 0 < measured[d] < math.inf:
                axes.axvline(measured[d], color="tab:gray", linestyle="-.", label="attention = recurrence, measured")
            axes.set(yscale="log", title=f"d = {d}, {kind}")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            if down == len(kinds) - 1:
                axes.set_xlabel("length n (vectors in a sequence)")
            if across == 0:
                axes.set_ylabel("milliseconds per 1,000 vectors")
    handles = {}
    for axes in panels.flat:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("One layer on sequences of different length: what Table 1 looks like on a clock")
    figure.savefig(path, dpi=100)


def numbers(text: str) -> list[int]:
    return sorted(int(word) for word in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=numbers, default=[16, 32, 64, 128, 256, 512, 1024], help="n, say 16,64,256")
    parser.add_argument("--widths", type=numbers, default=[64, 256, 512], help="d, say 64,512")
    parser.add_argument("--vectors", type=int, default=2048, help="vectors of a batch, of all its sequences together")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cuda for a GPU")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"], help="how attention is computed")
    parser.add_argument("--picture", type=Path, help="PNG file to draw Table 1 in")
    parser.add_argument("--json", type=Path, help="write all numbers to this file too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    where = f"{arguments.threads} threads" if arguments.device == "cpu" else torch.cuda.get_device_name()
    on_what = f"{machine()['processor']}, {where}, torch {torch.__version__}, {arguments.attention}"

    rows = measure(
        arguments.lengths,
        arguments.widths,
        arguments.vectors,
        arguments.rounds,
        arguments.attention,
        arguments.device,
    )
    training = list(training_rows())
    print_tables(on_what, rows, training)
    if arguments.picture:
        draw(rows, arguments.picture)
    if arguments.json:
        found = [{k: None if v == math.inf else v for k, v in row.items()} for row in crossings(rows)]
        record = {
            "machine": on_what,
            "table_1": [asdict(row) for row in rows],
            "cheaper_below": found,
            "table_2": training,
        }
        arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
