"""Small experiments on questions that every reader of the paper asks; docs/explanation/questions.md has the answers.

    python scripts/experiments/paper_questions.py warmup --pictures docs/explanation
    python scripts/experiments/paper_questions.py all --pictures docs/explanation

Each takes at most a minute or two on one core, prints a table and draws a picture. The model is a small one of ours,
trained on the built-in phrasebook (English to German), unless a table says otherwise.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import nn
from torch.nn import functional as F

from vanilla_transformer import (
    TokenizerSettings,
    TranslationCollator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    learn_tokenizer,
    phrasebook,
)
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerEncoder,
)


SENTENCES, BATCH = 6400, 32
SMALL = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "dropout": 0.0,
}
Panel = Callable  # draws on one pair of axes


# ----------------------------------------------------------------------------------------------------- shared by all


@cache
def text() -> tuple[int, list[dict], dict]:
    """Size of the vocabulary, training batches and one validation batch of the phrasebook."""
    pairs = {split: list(islice(phrasebook(split), n)) for split, n in (("train", SENTENCES), ("validation", 128))}
    settings = TokenizerSettings(vocab_size=600)
    tokenizer = learn_tokenizer((side for pair in pairs["train"] for side in pair.values()), settings)
    rows = {}
    for split, found in pairs.items():
        sides = [tokenizer([pair[language] for pair in found]).input_ids for language in ("en", "de")]
        rows[split] = [dict(zip(("input_ids", "labels"), row, strict=True)) for row in zip(*sides, strict=True)]
    collate = TranslationCollator()
    batches = [collate(rows["train"][i : i + BATCH]) for i in range(0, SENTENCES, BATCH)]
    return len(tokenizer), batches, collate(rows["validation"])


def small(seed: int = 0, **choices) -> VanillaTransformerForConditionalGeneration:
    torch.manual_seed(seed)
    config = VanillaTransformerConfig(vocab_size=text()[0], **{**SMALL, **choices})
    return VanillaTransformerForConditionalGeneration(config)


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)


def learn(model: nn.Module, updates: int, rate: Callable[[int], float] | float, every: int = 20) -> list[tuple]:
    """Trains in place; returns (update, validation loss in nats per token), and stops if the loss is not finite."""
    optimizer, curve, batches = adam(model), [(0, validation_loss(model))], text()[1]
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = rate(update) if callable(rate) else rate
        model.train()
        optimizer.zero_grad()
        model(**batches[update % len(batches)]).loss.backward()
        optimizer.step()
        if update % every == 0:
            curve.append((update, validation_loss(model)))
            if not math.isfinite(curve[-1][1]):
                return curve[:-1]
    return curve


@torch.no_grad()
def validation_loss(model: nn.Module) -> float:
    return model.eval()(**text()[2]).loss.item()


def rms(states: torch.Tensor) -> float:
    return states.square().mean().sqrt().item()


def print_table(headings: list, rows: list[list]) -> None:
    print("\n| " + " | ".join(map(str, headings)) + " |\n| --- |" + " ---: |" * (len(headings) - 1))
    for row in rows:
        print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")


def draw(path: Path | None, title: str, *panels: Panel) -> None:
    """Draws panels in rows of up to two: more are illegible at the width of a page."""
    if path is None:
        return
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(max(6.5, 4.6 * columns), 3.8 * rows), layout="constrained")
    figure.suptitle(title)
    for axes, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, panels, strict=True):
        panel(axes)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)


def lines(title: str, curves: dict[str, list[tuple]], x: str, y: str, **settings) -> Panel:
    def panel(axes):
        for (name, points), marker in zip(curves.items(), "os^vDP", strict=False):
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=3, label=name)
        axes.set(title=title, xlabel=x, ylabel=y, **settings)
        if "yticks" in settings:
            axes.yaxis.set_minor_formatter(NullFormatter())  # no powers of ten between them
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)

    return panel


def learning(title: str, curves: dict[str, list[tuple]], **settings) -> Panel:
    return lines(title, curves, "updates", "validation loss (nats per token)", **settings)


def heat(title: str, values: np.ndarray, x: str, y: str) -> Panel:
    def panel(axes):
        colours, norm = matplotlib.colormaps["viridis"].with_extremes(bad="white"), LogNorm(0.1, 5)
        axes.imshow(np.ma.masked_equal(values, 0), cmap=colours, norm=norm)
        for (row, column), value in np.ndenumerate(values):
            ink = "white" if value and norm(value) < 0.6 else "black"
            axes.text(column, row, f"{value:.1f}" if value else "0", ha="center", va="center", fontsize=8, color=ink)
        axes.set(title=title, xlabel=x, ylabel=y, xticks=range(values.shape[1]), yticks=range(values.shape[0]))

    return panel


# ------------------------------------------------------------------------------------------------------- the questions


def scaling(picture: Path | None) -> None:
    """Why divide by the square root of d_k?"""
    torch.manual_seed(0)
    rows, gradients = [], {"divided by sqrt(d_k)": [], "not divided": []}
    for d_k in (1, 4, 16, 64, 256, 1024):
        query, keys = torch.randn(500, 1, d_k), torch.randn(500, 32, d_k)
        scores, found = (query * keys).sum(-1), []
        for name, factor in (("divided by sqrt(d_k)", d_k**-0.5), ("not divided", 1.0)):
            weights = (scores * factor).softmax(-1)
            jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
            size = jacobian.flatten(1).norm(dim=1).mean().item()
            gradients[name].append((d_k, size))
            found += [weights.max(-1).values.mean().item(), size]
        rows.append([d_k, scores.std().item(), *found])
    headings = ["d_k", "standard deviation of q · k"]
    for name in gradients:
        headings += [f"largest of 32 weights, {name}", f"norm of softmax's derivative, {name}"]
    print_table(headings, rows)
    curves = {}
    for name, factor in (("divided by sqrt(d_k)", 1.0), ("not divided", 8.0)):
        model = small(encoder_attention_heads=1, decoder_attention_heads=1)  # d_k = 64
        for module in model.modules():
            if isinstance(module, VanillaTransformerAttention):
                module.scaling *= factor
        curves[name] = learn(model, 300, 2e-3)
    print_table(["one head of d_k = 64, 300 updates", "validation loss"], [[n, c[-1][1]] for n, c in curves.items()])
    panel = lines("Random queries and keys", gradients, "d_k", "norm of softmax's derivative", xscale="log")
    draw(picture, "Why divide by the square root of d_k?", panel, learning("One head, d_k = 64", curves))


def embeddings(picture: Path | None) -> None:
    """Why multiply embeddings by the square root of d_model?"""
    variants = {
        "times sqrt(d_model)": ({}, 1.0),
        "not multiplied": ({"scale_embedding": False}, 1.0),
        "not multiplied, embeddings begin 8 times as large": ({"scale_embedding": False}, 8.0),
    }
    rows, curves = [], {}
    for name, (choices, factor) in variants.items():
        model = small(**choices)
        with torch.no_grad():
            model.model.shared.weight *= factor
        stack, ids = model.model.encoder, text()[2]["input_ids"]
        words = rms(stack.embed_tokens(ids) * stack.embed_scale)
        positions = rms(stack.embed_positions(torch.arange(ids.shape[1])))
        curves[name] = learn(model, 300, 2e-3)
        rows.append([name, words, positions, curves[name][0][1], curves[name][-1][1]])
    sizes = ["d_model = 64", "size of words (RMS)", "size of positions (RMS)"]
    print_table([*sizes, "loss before training", "loss after 300 updates"], rows)
    ticks = (2, 3, 5, 10, 20)
    logarithmic = {"yscale": "log", "yticks": ticks, "yticklabels": ticks}
    draw(picture, "Why multiply embeddings by the square root of d_model?", learning("", curves, **logarithmic))


def warmup(picture: Path | None) -> None:
    """Why does post-norm need warm-up?"""
    peak, rise, updates = 2e-3, 80, 240
    rates = {"warm-up": lambda update: peak * min(1, update / rise), "no warm-up": lambda update: peak}
    rows, curves, norms = [], {}, {}
    for norm, first in (("post-norm", False), ("pre-norm", True)):
        model = small(encoder_layers=6, decoder_layers=6, norm_first=first)
        model(**text()[1][0]).loss.backward()
        norms[norm] = [
            (i + 1, layer.fc2.weight.grad.norm().item()) for i, layer in enumerate(model.model.decoder.layers)
        ]
        for name, rate in rates.items():
            model = small(encoder_layers=6, decoder_layers=6, norm_first=first)
            curves[f"{norm}, {name}"] = learn(model, updates, rate, every=40)
        rows += [[f"{norm}, {name}", curves[f"{norm}, {name}"][-1][1]] for name in rates]
    print_table([f"6 + 6 layers, rate {peak:g}", f"validation loss after {updates} updates"], rows)
    print_table(["gradient norm of W_2 before training, decoder layer", *range(1, 7)],
                [[norm, *(value for _, value in points)] for norm, points in norms.items()])  # fmt: skip
    before = lines("Before training", norms, "decoder layer", "gradient norm of W_2", ylim=(0, None))
    draw(picture, "Why does post-norm need warm-up?", before, learning("6 + 6 layers, learning rate 0.002", curves))


def heads(picture: Path | None) -> None:
    """Why several heads? A layer is to say which token stands two to the left and which three to the right."""
    curves, kinds, length, updates = {}, 16, 12, 300
    for number in (1, 2, 4, 8):
        sums = dict.fromkeys(range(0, updates + 1, 20), 0.0)
        for seed in range(3):
            torch.manual_seed(seed)
            sizes = {**SMALL, "encoder_layers": 1, "encoder_attention_heads": number}
            encoder = VanillaTransformerEncoder(VanillaTransformerConfig(vocab_size=kinds, pad_token_id=None, **sizes))
            model = nn.ModuleList((encoder, nn.Linear(SMALL["d_model"], 2 * kinds)))
            optimizer = adam(model)
            for update in range(updates + 1):
                optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (update + 1) / 50)
                ids = torch.randint(kinds, (64, length))
                wanted = torch.stack((ids.roll(2, 1), ids.roll(-3, 1)), dim=-1)  # (batch, length, 2), wrapping around
                scores = model[1](encoder(ids).last_hidden_state).unflatten(-1, (2, kinds))
                loss = F.cross_entropy(scores.flatten(0, 2), wanted.flatten())
                if update in sums:
                    sums[update] += (scores.argmax(-1) == wanted).all(-1).float().mean().item() / 3
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        name = f"{number} head{'s' * (number > 1)} of {SMALL['d_model'] // number}"
        curves[name] = [(update, 100 * share) for update, share in sums.items()]
    shown = (60, 100, 140, 200, 300)
    rows = [[name, *(f"{dict(points)[u]:.1f} %" for u in shown)] for name, points in curves.items()]
    print_table(["positions with both tokens right, after updates", *shown], rows)
    panel = lines("One encoder layer, d_model = 64", curves, "updates", "both neighbours right (%)", ylim=(0, 101))
    draw(picture, "Why several heads?", panel)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation over all positions of all sentences, padding included, as a vision model would have it."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states.flatten(0, 1)).unflatten(0, states.shape[:2])


def with_batch_norm(model: nn.Module) -> nn.Module:
    for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
        for place, module in list(layer.named_children()):
            if isinstance(module, nn.LayerNorm):
                setattr(layer, place, BatchNorm(SMALL["d_model"]))
    return model


@torch.no_grad()
def leaks(model: nn.Module) -> tuple[float, float]:
    """Largest change of a logit in training mode: of the first sentence when its neighbours are reordered; of the
    first position when the last token of the targets changes."""
    inputs = {name: text()[1][0][name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    before = model.train()(**inputs).logits
    neighbours, future = ({name: tensor.clone() for name, tensor in inputs.items()} for _ in range(2))
    for name in ("input_ids", "attention_mask"):
        neighbours[name][1:] = inputs[name][1:].flip(0)
    future["decoder_input_ids"][:, -1] = 99
    by_neighbours = (model(**neighbours).logits - before)[0].abs().max().item()
    return by_neighbours, (model(**future).logits - before)[:, 0].abs().max().item()


def normalisation(picture: Path | None) -> None:
    """Why LayerNorm and not BatchNorm?"""
    rows, curves = [], {}
    for name, change in (("LayerNorm", lambda model: model), ("BatchNorm", with_batch_norm)):
        influences = leaks(change(small()))
        of_seeds = [learn(change(small(seed)), 300, 2e-3, every=30) for seed in range(3)]
        curves[name] = [
            (points[0][0], statistics.mean(loss for _, loss in points)) for points in zip(*of_seeds, strict=True)
        ]
        rows.append([name, *influences, " ".join(f"{curve[-1][1]:.2f}" for curve in of_seeds)])
    headings = ["in training", "changed by the neighbours", "first position changed by the future"]
    print_table([*headings, "validation loss of three seeds, 300 updates"], rows)
    panel = learning("2 + 2 layers, mean of three seeds", curves)
    draw(picture, "Why LayerNorm and not BatchNorm?", panel)


@torch.no_grad()
def parallel(picture: Path | None) -> None:
    """What can run in parallel, and what cannot?"""
    model = small(d_model=256, encoder_ffn_dim=1024, decoder_ffn_dim=1024).eval()
    lstm = nn.LSTM(256, 256, num_layers=4, batch_first=True).eval()
    encoded = model.model.encoder(torch.randint(4, 600, (1, 32)))

    def at_once(ids):
        return model(encoder_outputs=encoded, decoder_input_ids=ids).logits

    def step_by_step(ids):
        past, logits = None, []
        for position in range(ids.shape[1]):
            step = model(
                encoder_outputs=encoded,
                decoder_input_ids=ids[:, position : position + 1],
                past_key_values=past,
                use_cache=True,
            )
            past = step.past_key_values
            logits.append(step.logits)
        return torch.cat(logits, dim=1)

    contestants = {
        "decoder, all positions at once (training)": at_once,
        "decoder, one position after the other (translating)": step_by_step,
        "LSTM of four layers, given all its inputs": lambda ids: lstm(model.model.shared(ids)),
    }
    curves, rows = {name: [] for name in contestants}, []
    for length in (8, 16, 32, 64, 128, 256):
        ids = torch.randint(4, 600, (1, length))
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(5):
            for name, run in contestants.items():
                start = time.perf_counter()
                run(ids)
                times[name].append(1e3 * (time.perf_counter() - start))
        for name, found in times.items():
            curves[name].append((length, statistics.median(found)))
        difference = (at_once(ids) - step_by_step(ids)).abs().max().item()
        rows.append([length, *(points[-1][1] for points in curves.values()), difference])
    print_table(
        ["length", *(f"{name}, ms" for name in contestants), "largest difference of the first two's logits"], rows
    )
    logarithmic = {"xscale": "log", "yscale": "log", "ylim": (1, 3e3)}  # room for the legend
    panel = lines("One sentence, 2 + 2 layers, d_model = 256", curves, "target tokens", "milliseconds", **logarithmic)
    draw(picture, "What can run in parallel, and what cannot?", panel)


def masks(picture: Path | None) -> None:
    """What do the masks do?"""

    def set_mask(model, on: bool):
        for layer in model.model.decoder.layers:
            layer.self_attn.is_causal = on
        return model

    def influence(model, name: str, inputs: dict) -> np.ndarray:
        """(target position, changed position): how much a changed token of the inputs changes the scores."""
        before, columns = model(**inputs).logits, []
        for position in range(inputs[name].shape[1]):
            changed = inputs[name].clone()
            changed[0, position] = 99
            columns.append((model(**{**inputs, name: changed}).logits - before)[0].abs().amax(-1))
        return torch.stack(columns, dim=1).numpy()

    model = small(attn_implementation="sdpa").eval()
    torch.manual_seed(1)
    mask = torch.tensor([[1] * 6 + [0] * 3])
    inputs = {
        "input_ids": torch.randint(4, 600, (1, 9)),
        "attention_mask": mask,
        "decoder_input_ids": torch.randint(4, 600, (1, 8)),
    }
    with torch.no_grad():
        maps = {
            "Target, causal mask": influence(set_mask(model, True), "decoder_input_ids", inputs),
            "Target, no causal mask": influence(set_mask(model, False), "decoder_input_ids", inputs),
            "Source, 3 of 9 are padding": influence(set_mask(model, True), "input_ids", inputs),
            "Source, padding not masked": influence(
                model, "input_ids", {**inputs, "attention_mask": torch.ones_like(mask)}
            ),
        }
    future = np.triu(np.ones((8, 8)), 1) == 1
    for name, found in maps.items():
        what, hidden = ("future", found[future]) if "Target" in name else ("padding", found[:, 6:])
        print(f"{name}: the {what} changes a logit by up to {hidden.max():.3g}, the rest by up to {found.max():.3g}")
    rows = []
    for name, on in (("with the causal mask", True), ("without", False)):
        model = set_mask(small(attn_implementation="sdpa"), on)
        as_trained = learn(model, 300, 2e-3)[-1][1]
        rows.append([f"trained {name}", as_trained, validation_loss(set_mask(model, True))])
    print_table(["300 updates", "validation loss as in training", "loss where the future is not there"], rows)
    panels = [
        heat(name, found, f"changed {name[:6].lower()} position", "position of the score")
        for name, found in maps.items()
    ]
    draw(picture, "What do the masks do? The largest change of a logit, by the token that is changed", *panels)


QUESTIONS = {
    function.__name__: function for function in (scaling, embeddings, warmup, heads, normalisation, parallel, masks)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=[*QUESTIONS, "all"])
    parser.add_argument("--pictures", type=Path, help="folder for question_NAME.png")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in QUESTIONS if arguments.question == "all" else [arguments.question]:
        start, cpu = time.perf_counter(), time.process_time()
        print(f"## {QUESTIONS[name].__doc__}")
        QUESTIONS[name](arguments.pictures / f"question_{name}.png" if arguments.pictures else None)
        print(f"\n({time.perf_counter() - start:.0f} s, {time.process_time() - cpu:.0f} s of them computing)\n")


if __name__ == "__main__":
    main()
