"""`train auto`: a recipe chosen by the text there is, the time there is, and the speed of the machine.

    pairs -> what is known of the text -> speed of each size of model here -> choices, each with its reason -> YAML

The rule is [`choose`]. It is fixed: nothing is tuned on the user's text, which decides by its size alone. Where its
numbers come from stands in the documentation (Little text), with the runs that they were taken from.
"""

import hashlib
import json
import logging
import math
import os
import re
import statistics
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from .data.corpora import naming_in_errors, open_stream, read_corpus
from .data.mixture import open_mixture
from .data.tokenizer import SPECIAL_TOKENS
from .environment import has_bfloat16
from .evaluation.scores import score_translations
from .files import json_rows, replaced_folder, text_lines, write_text
from .model.configuration_vanilla_transformer import VanillaTransformerConfig
from .model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .run.folder import RunFolder
from .run.loading import chosen_device, load_model
from .run.recipe import DataSettings, Recipe, load_recipe, recipe_of
from .translation import translate


logger = logging.getLogger(__name__)

AUTO = "auto"
FEWEST_PAIRS = 200
_MOST_LOOKED_AT = 1_000_000  # pairs: facts of more do not change a choice
_HELD_OUT = "held out"
_TRIED = "tried on the validation pairs"
# Beams, length penalty, no_repeat_ngram_size.
_DECODINGS = ((1, 1.0, 0), (5, 1.0, 0), (5, 1.5, 0), (5, 1.0, 3), (5, 1.5, 3), (5, 2.0, 3))
_MOST_TRIED_ON = 300  # validation pairs
_LONGER = 5  # tokens that a translation may have more than is usual: poor models do not know where to end

# Sizes of models by width: layers of encoder and decoder, heads, width of the feed-forward networks.
_SIZES = {128: (2, 4, 512), 256: (4, 4, 1024), 512: (6, 8, 2048)}
_TOKENS = {128: 0.0, 256: 40e6, 512: 300e6}  # target tokens that a size is worth its while from
_WORDS_PER_PIECE = 125  # of running text, both sides, for each piece of the vocabulary
_VOCABULARIES = (500, 1000, 2000, 4000, 8000, 16000, 32000)
_PIECES_PER_WORD = 1.6  # about, with vocabularies of that size
_APOSTROPHE = re.compile(r"[^\W\d_]['’‘`´ʼʻꞌ′][^\W\d_]")
_BATCH = 4096  # tokens: a processor trains them nearly twice as fast as 1,024
_FEWEST_UPDATES = 400  # a batch is made smaller, down to 1,024, where there would be fewer


@dataclass(frozen=True)
class TextFacts:
    """What is known of parallel text.

    Attributes:
        pairs: How many there are.
        distinct: How many of them differ.
        words: Running words of the different pairs' sources and targets: what stands between blanks, or a third of the
            characters where no blanks are written.
        types: Different words of source and target.
        scripts: The script that most letters of source and target are in.
        copied: Share of the target's words that stand in its source, too, from 0 to 1.
        apostrophes: Share of the words of source and target that have one between letters, from 0 to 1.
    """

    pairs: int
    distinct: int
    words: tuple[int, int]
    types: tuple[int, int]
    scripts: tuple[str, str]
    copied: float
    apostrophes: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        source, target = (
            f"{words:,} words ({types:,} different)" for words, types in zip(self.words, self.types, strict=True)
        )
        scripts = " and ".join(dict.fromkeys(self.scripts))
        return (
            f"{self.pairs:,} pairs, {self.distinct:,} of them different; {source} in the source and {target} in the "
            f"target, {scripts}; {self.copied:.0%} of the target's words stand in its source"
        )


@dataclass(frozen=True)
class Choice:
    """The value of one field of a recipe (`training.max_tokens`), and why it has it."""

    field: str
    value: Any
    reason: str


def facts_of(pairs: Iterable[tuple[str, str]]) -> TextFacts:
    """Counts what [`choose`] goes by."""
    from .cleaning.languages import script_of

    count, copied, seen = 0, 0, set()
    words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    scripts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        count += 1
        if (key := hash(tuple(pair))) in seen:
            continue
        seen.add(key)
        cut = [_words_of(text) for text in pair]
        copied += len(set(cut[0]) & set(cut[1]))
        for side, text in enumerate(pair):
            words[side].update(cut[side])
            scripts[side].update(script_of(letter) for letter in text[:50] if letter.isalpha())
    source, target = words
    within = [sum(count for word, count in each.items() if _APOSTROPHE.search(word)) for each in words]
    return TextFacts(
        pairs=count,
        distinct=len(seen),
        words=(source.total(), target.total()),
        types=(len(source), len(target)),
        scripts=tuple(each.most_common(1)[0][0] if each else "no letters" for each in scripts),
        copied=copied / max(1, target.total()),
        apostrophes=(within[0] / max(1, source.total()), within[1] / max(1, target.total())),
    )


def _words_of(text: str) -> list[str]:
    words = text.split()
    if len(text) > 25 * max(1, len(words)):  # a script without blanks
        return [text[start : start + 3] for start in range(0, len(text), 3)]
    return words


# ------------------------------------------------------------------------------------------------------------ the rule


def choose(facts: TextFacts, minutes: float, speeds: Mapping[int, float], *, bf16: bool) -> list[Choice]:
    """The rule: fields of a recipe for this text and this time, each with its reason.

    Args:
        facts: The text.
        minutes: The time that training may take.
        speeds: Target tokens that one second trains, by the width of the model.
        bf16: Whether the device is fast at bfloat16.
    """
    words = sum(facts.words)
    fitting = [size for size in _VOCABULARIES if size * _WORDS_PER_PIECE <= words]
    pieces = fitting[-1] if fitting else _VOCABULARIES[0]
    # A batch is as large as its longer side, and a tenth of it is padding.
    share = 0.9 * facts.words[1] / max(facts.words)
    trained = {width: 60 * minutes * speed * share for width, speed in speeds.items()}
    width = max(each for each in speeds if trained[each] >= _TOKENS[each])
    layers, heads, inner = _SIZES[width]
    tokens = trained[width]
    passes = tokens / _tokens_of(facts)
    dropout = 0.1 if passes < 20 else 0.2 if passes < 60 else 0.3
    batch = _BATCH
    while batch > 1024 and tokens / batch < _FEWEST_UPDATES:
        batch //= 2
    warmup = int(min(4000, max(50, 0.2 * tokens / batch)))
    by_speed = f"{tokens / 1e6:,.1f} million target tokens, {share * speeds[width]:,.0f} a second"
    return [
        Choice(
            "tokenizer.vocab_size",
            pieces,
            f"{words:,} running words: at least {_WORDS_PER_PIECE} for each piece, so that rare pieces are learned too",
        ),
        Choice(
            "tokenizer.apostrophe_as_letter",
            facts.apostrophes[0] < 0.01 and facts.apostrophes[1] > 0.02,
            f"{facts.apostrophes[1]:.1%} of the target's words have an apostrophe between letters, "
            f"and {facts.apostrophes[0]:.1%} of the source's",
        ),
        Choice("model.d_model", width, f"{minutes:g} minutes are about {by_speed}; a larger model needs more"),
        Choice("model.encoder_layers", layers, ""),
        Choice("model.decoder_layers", layers, ""),
        Choice("model.encoder_attention_heads", heads, ""),
        Choice("model.decoder_attention_heads", heads, ""),
        Choice("model.encoder_ffn_dim", inner, ""),
        Choice("model.decoder_ffn_dim", inner, ""),
        Choice("model.dropout", dropout, f"about {passes:.0f} passes: the oftener it reads a sentence, the more"),
        Choice("model.attn_implementation", "eager", "the faster one for short sentences"),
        Choice("training.max_minutes", minutes, "the time there is"),
        Choice("training.max_steps", 1_000_000, "the clock ends it"),
        Choice("training.max_tokens", batch, f"about {tokens / batch:,.0f} updates; larger batches train faster"),
        Choice("training.warmup_steps", warmup, "a fifth of the updates, 4,000 at most"),
        Choice(
            "training.noam_factor",
            round(min(1.0, math.sqrt(warmup / 1000)), 3),
            "the highest rate is at most that of 1,000 updates of warm-up",
        ),
        Choice("training.average_last", 6, "the checkpoints of the last three tenths of the time"),
        Choice("training.metric_for_best_model", "chrf", "tells poor translations apart where BLEU is near 0 for all"),
        Choice("training.early_stopping_patience", 8, "evaluations: it ends before the time if it only overfits"),
        Choice("training.generation_num_beams", 1, "validation is to be quick"),
        Choice("training.logging_steps", 50, ""),
        Choice("training.bf16", bf16, f"this device is {'' if bf16 else 'not '}fast at it"),
        Choice("decoding.num_beams", 5, "to begin with"),
        Choice("decoding.length_penalty", 1.0, ""),
        Choice("decoding.length_penalty_type", "length", ""),
        Choice("evaluation.metrics", ["chrf", "sacrebleu"], ""),
    ]


def _tokens_of(facts: TextFacts) -> float:
    return _PIECES_PER_WORD * facts.words[1]


def measure_speeds(
    device: str = "auto", *, least: float = 0.0, seconds: float = 3.0, bf16: bool = False
) -> dict[int, float]:
    """Target tokens a second of updates on random text, by the width of the model.

    Args:
        device: Where to train, as for `chosen_device`.
        least: No larger size is tried once one is slower than this.
        seconds: How long to train each.
        bf16: Whether in bfloat16.
    """
    where, speeds = chosen_device(device), {}
    for width, (layers, heads, inner) in _SIZES.items():
        config = VanillaTransformerConfig(
            vocab_size=4000,
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=inner,
            decoder_ffn_dim=inner,
            attn_implementation="eager",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = VanillaTransformerForConditionalGeneration(config).to(where).train()
            ids = torch.randint(len(SPECIAL_TOKENS), config.vocab_size, (_BATCH // 32, 32), device=where)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            updates, begun = 0, time.perf_counter()
            while updates < 3 or time.perf_counter() - begun < seconds:
                if updates == 2:  # the first ones make room
                    begun = time.perf_counter()
                with torch.autocast(where.type, torch.bfloat16, enabled=bf16):
                    loss = model(ids, attention_mask=torch.ones_like(ids), labels=ids, return_logits=False).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss.item()  # waits for a GPU
                updates += 1
        speeds[width] = (updates - 2) * ids.numel() / (time.perf_counter() - begun)
        if speeds[width] < least:
            break
    return speeds


# ------------------------------------------------------------------------------------------------- from text to recipe


def chosen_recipe(
    output: Path,
    overrides: Mapping[str, str],
    minutes: float = 15.0,
    device: str = "auto",
    speeds: Mapping[int, float] | None = None,
) -> Recipe:
    """Chooses a recipe for the text that the overrides name, and writes it to `chosen.yaml` in the run folder `output`.

    Without `data.validation` some pairs are held out for it: one in twenty sources, 1,000 at most, with all of their
    pairs, by a hash of the source. They are written to `text/`, and so is the rest, which is trained on. There every
    pair stands once: what is repeated is mostly an accident of how text was gathered.

    What was chosen before is taken again, once there is a checkpoint.

    Args:
        output: The run folder.
        overrides: Fields of the recipe as they are typed; at least `data.train` and both languages. What they say is
            not chosen.
        minutes: The time for training.
        device: Where it will be.
        speeds: As `measure_speeds` returns them; None measures.

    Raises:
        ValueError: A field is missing or makes no sense, there is too little text, or the folder holds a run that was
            chosen for something else.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, not {minutes}")
    folder = RunFolder(output)
    of_data = {name: text for name, text in overrides.items() if name.startswith("data.")}
    rest = {name: text for name, text in overrides.items() if name not in of_data}
    asked = f"# train auto --minutes {minutes:g} " + " ".join(f"--{name} {text}" for name, text in of_data.items())
    asked = " ".join(asked.split())
    if folder.checkpoint_folders() and folder.chosen.is_file():
        if folder.chosen.read_text(encoding="utf-8").partition("\n")[0] != asked:
            raise ValueError(
                f"{folder.path} holds a run that was chosen for something else ({folder.chosen}): go on with it by "
                f"`vanilla-transformer train --resume {folder.path}`, or choose another output folder."
            )
        return load_recipe(folder.chosen, rest)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            "One process chooses: run `vanilla-transformer train auto ... --only-choose` first, and start the others "
            f"with {folder.chosen} for a recipe."
        )
    data = recipe_of({"data.validation": _HELD_OUT, **of_data}).data
    pairs, texts = _pairs_of(data), None
    facts = facts_of(pairs)
    if facts.distinct < FEWEST_PAIRS:
        raise ValueError(f"data.train has {facts.distinct} different pairs; {FEWEST_PAIRS} are the fewest to learn of.")
    if data.validation == _HELD_OUT:
        texts = _hold_out(pairs, data, folder)
    bf16 = has_bfloat16(chosen_device(device).type == "cpu")
    logger.info("The text: %s.", facts)
    if speeds is None:
        logger.info("Measuring the speed of this machine ...")
        speeds = measure_speeds(device, least=_TOKENS[256] / (60 * minutes), bf16=bf16)
    choices = choose(facts, minutes, speeds, bf16=bf16)
    defaults = {each.name: each.default for each in fields(DataSettings)} | {"test": {}}
    section = {name: value for name, value in vars(data).items() if value != defaults[name]} | (texts or {})
    text = f"{asked}\n# The text: {facts}.\n{_as_yaml(section, choices, held_out=texts is not None)}"
    folder.path.mkdir(parents=True, exist_ok=True)
    write_text(folder.chosen, text)
    recipe = load_recipe(folder.chosen, rest)
    for choice in choices:
        if choice.reason and choice.field not in rest:
            logger.info("%s: %s (%s)", choice.field, choice.value, choice.reason)
    return recipe


def choose_decoding(output: Path, recipe: Recipe, device: str = "auto") -> Recipe:
    """Tries a few decodings on the validation pairs of a run that is done; the recipe with the best one by its metric.

    Models of little text repeat themselves, do not know where to end, and end too soon in a wide search. So every
    decoding has a limit close to the usual length, and some forbid to repeat three tokens. What is chosen is written to
    `chosen.yaml`, and is not chosen again.

    Args:
        output: The run folder.
        recipe: The run's recipe.
        device: Where to translate, as for `chosen_device`.
    """
    folder = RunFolder(output)
    text = folder.chosen.read_text(encoding="utf-8")
    if _TRIED in text:
        return recipe
    model, tokenizer = load_model(output, device)
    metric, language = recipe.evaluation.metrics[0], recipe.data.target_language
    path = folder.translations / "validation.jsonl"
    rows = [row for _, row in json_rows(path, text_lines(path))][:_MOST_TRIED_ON]
    sources, references = ([row[side] for row in rows] for side in ("source", "reference"))
    lengths = ([len(ids) for ids in tokenizer(side).input_ids] for side in (sources, references))
    usual = statistics.median(target - source for source, target in zip(*lengths, strict=True))
    longest = max(0, round(usual)) + _LONGER
    scores: dict[tuple[int, float, int], float] = {}
    for beams, penalty, ngram in _DECODINGS:
        options = {"num_beams": beams, "length_penalty": penalty, "no_repeat_ngram_size": ngram}
        found = translate(model, tokenizer, sources, max_length_offset=longest, **options)
        [score] = score_translations(found, [references], [metric], target_language=language)
        scores[beams, penalty, ngram] = score.value
        logger.info("%s: %s %.2f on validation.", _told(beams, penalty, ngram), metric, score.value)
    beams, penalty, ngram = max(scores, key=scores.get)
    told = "; ".join(f"{value:.2f} ({_told(*each)})" for each, value in scores.items())
    decoding = {
        "num_beams": beams,
        "length_penalty": penalty,
        "length_penalty_type": "length",
        "max_length_offset": longest,
    }
    if ngram:
        decoding["no_repeat_ngram_size"] = ngram
    lines = [
        *textwrap.wrap(f"{_TRIED}: {metric} {told}", 110),
        f"translations have at most {longest} tokens more than their source; validation pairs differ by {usual:g}",
    ]
    lines = ["decoding:", *(f"  # {line}" for line in lines)]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in decoding.items()]
    before = text[text.index("decoding:\n") : text.index("evaluation:\n")]
    write_text(folder.chosen, text.replace(before, "\n".join([*lines, ""])))
    return replace(recipe, decoding={**recipe.decoding, **decoding})


def _told(beams: int, penalty: float, ngram: int) -> str:
    beams = "greedy" if beams == 1 else f"{beams} beams, length penalty {penalty:g}"
    return beams + (f", no {ngram} tokens twice" if ngram else "")


def _pairs_of(data: DataSettings) -> list[tuple[str, str]]:
    where = {"folder": data.folder, "patience": data.patience}
    languages = data.source_language, data.target_language
    if isinstance(data.train, Mapping) and "prepared" in data.train:
        raise ValueError("data.train: a prepared corpus has its vocabulary already, so there is none to choose.")
    with naming_in_errors("data.train"):
        if data.mixture:
            corpus = open_mixture(data.mixture, *languages, **where)
        else:
            corpus = (open_stream if data.stream else read_corpus)(data.train, *languages, **where)
    found = []
    for pair in corpus.texts():
        found.append(pair)
        if len(found) == _MOST_LOOKED_AT:
            if data.validation == _HELD_OUT:
                raise ValueError(f"data.validation is missing: of {len(found):,} pairs and more none are held out.")
            break
    return found


def _hold_out(pairs: Sequence[tuple[str, str]], data: DataSettings, folder: RunFolder) -> dict:
    """Writes the pairs held out and the others; returns the fields of `data` that say where."""
    if data.mixture or data.stream:
        raise ValueError("data.validation is missing: pairs are held out only of one corpus, read as a whole.")
    pairs = list(dict.fromkeys(tuple(" ".join(text.split()) for text in pair) for pair in pairs))
    digests = [hashlib.sha256(source.encode()).digest() for source, _ in pairs]
    different = sorted(set(digests))
    bar = different[min(1000, len(different) // 20)]
    languages = data.source_language, data.target_language
    with replaced_folder(folder.text) as beside:
        beside.mkdir(parents=True)
        for name, held_out in (("train", False), ("validation", True)):
            kept = [pair for pair, digest in zip(pairs, digests, strict=True) if (digest < bar) == held_out]
            for side, language in enumerate(languages):
                write_text(beside / f"{name}.{language}", "".join(f"{pair[side]}\n" for pair in kept))
    where = os.path.relpath(folder.text, data.folder)
    return {name: [f"{where}/{name}.{each}" for each in languages] for name in ("train", "validation")}


def _as_yaml(data: Mapping[str, Any], choices: Sequence[Choice], *, held_out: bool) -> str:
    """A recipe with a comment above each choice."""
    lines = [yaml.safe_dump({"description": "Chosen by the size of its text."}).strip()]
    if held_out:
        lines += ["# Validation pairs: one in twenty sources, by a hash; the others are trained on, each pair once."]
    lines += [yaml.safe_dump({"data": dict(data)}, sort_keys=False, allow_unicode=True, width=120).rstrip()]
    section = ""
    for choice in choices:
        own, _, name = choice.field.partition(".")
        lines += [] if own == section else [f"{own}:"]
        section = own
        lines += textwrap.wrap(choice.reason, 110, initial_indent="  # ", subsequent_indent="  # ")
        lines += [f"  {name}: {json.dumps(choice.value)}"]
    return "\n".join(lines) + "\n"
