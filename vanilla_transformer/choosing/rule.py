"""The rule: facts of a text, the speed of the machine, and the choices for a recipe that follow."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import regex
import torch

from ..data.tokenizer import APOSTROPHE_LETTER, APOSTROPHES, KINDS, SPECIAL_TOKENS, WORD, between_letters
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..run.loading import chosen_device
from ..training.muon import MUON, Muon, muon_groups


class Size(NamedTuple):
    """A size of model, beside its width."""

    layers: int  # of the encoder, and of the decoder
    heads: int
    ffn_dim: int
    worthwhile_from: float  # target tokens to train on


SIZES = {128: Size(2, 4, 512, 0.0), 256: Size(4, 4, 1024, 40e6), 512: Size(6, 8, 2048, 300e6)}  # by width
OF_SIZE = tuple(  # fields that depend on it
    f"model.{name}"
    for name in ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads",
                 "encoder_ffn_dim", "decoder_ffn_dim")
)  # fmt: skip
# Running words, both sides, for each piece of the vocabulary: measured for up to 8,000 pieces. More cost time.
_WORDS_PER_PIECE, _SMALL, _WORDS_PER_PIECE_BEYOND = 30, 8000, 125
_TYPES_PER_PIECE = 1.3  # beyond the smallest: each word gives a piece at least, but some come only once
VOCABULARIES = (260, 500, 1000, 2000, 4000, 8000, 16000, 32000)
_PIECES_PER_WORD = 1.6  # about, but for the smallest, whose pieces are bytes
_WORD = regex.compile(WORD.replace(r"\x{200C}\x{200D}", "\u200c\u200d"))  # tokenizers writes them its own way
_APOSTROPHE = regex.compile(between_letters(APOSTROPHES + APOSTROPHE_LETTER))
_COOLDOWN = 0.25  # of the time
_MANY_PASSES = 20  # over the text
PHRASES = "phrases"  # the choice that is no field of a recipe: whether to train on phrase pairs, too
_MOST_FOR_PHRASES = 50_000  # pairs; aligning the words of more takes minutes
# Target tokens trained for each pair. On validation phrase pairs cost 4 BLEU with 190 tokens (30,000 pairs of Tatoeba,
# five minutes), changed nothing with 560 (10,000), and gained 1.1 with 1,900 (3,000).
_TOKENS_FOR_PHRASES = 400
FIRST_DECODING = {"num_beams": 5, "length_penalty": 1.0, "length_penalty_type": "length"}
_BATCH = 4096  # tokens: a processor trains them nearly twice as fast as 1,024
# A batch is made smaller, down to 1,024, where there would be fewer. Spanish into Guarani, 15 minutes of a slow core:
# BLEU on validation is 1.2 with batches of 4,096 tokens (some 650 updates by this estimate), 6.7 with 2,048, 3.7 with
# 1,024. English into German (30,000 pairs of Tatoeba), the same time: 22.9 with 4,096 (950 updates), 24.7 with 2,048.
_FEWEST_UPDATES = 1000
# Updates of warm-up whose highest rate is the highest. 100,000 pairs of Tatoeba, five minutes of the same core, Muon:
# BLEU on validation is 17.9 with the rate of 1,000 updates, and 19.4 with 2.5 times that. Adam is worse with it.
_STEEPEST_WARMUP, _STEEPEST_WARMUP_OF_OTHERS = 250, 1000
# Spanish into Guarani, 15 minutes of the same core: BLEU on validation is 6.7 without and 11.4 with it.
_GUIDED_ALIGNMENT = 0.1
# The same: chrF on validation is 46.5 without and 48.2 with them.
_ALIGNED_EMBEDDINGS = 0.8


@dataclass(frozen=True)
class TextFacts:
    """Facts about parallel text.

    Attributes:
        pairs: How many there are.
        distinct: How many of them are distinct.
        words: Running words in sources and targets of the distinct pairs: texts between blanks, or a third of the
            characters in scripts without blanks.
        types: Different words of source and target.
        for_pieces: Different words of two characters or more, of both sides together, as a vocabulary cuts them.
        scripts: The script that most letters of source and target are in.
        copied: Share of the target's words that are also in its source, from 0 to 1.
        apostrophes: Share of the words of source and target that have one between letters, from 0 to 1.
        is_whole: Whether these are all pairs; otherwise there are more than anyone looked at.
    """

    pairs: int
    distinct: int
    words: tuple[int, int]
    types: tuple[int, int]
    for_pieces: int
    scripts: tuple[str, str]
    copied: float
    apostrophes: tuple[float, float] = (0.0, 0.0)
    is_whole: bool = True

    def __str__(self) -> str:
        source, target = (
            f"{words:,} words ({types:,} different)" for words, types in zip(self.words, self.types, strict=True)
        )
        scripts = " and ".join(dict.fromkeys(self.scripts))
        return (
            f"{'' if self.is_whole else 'the first '}{self.pairs:,} pairs, {self.distinct:,} of them different; "
            f"{source} in the source and {target} in the target, {scripts}; "
            f"{self.copied:.0%} of the target's words stand in its source"
        )


@dataclass(frozen=True)
class Choice:
    """The value of one field of a recipe (`training.max_tokens`), or of `PHRASES`, and the reason for it."""

    field: str
    value: Any
    reason: str


def facts_of(pairs: Iterable[tuple[str, str]]) -> TextFacts:
    """Counts the facts that [`choose`] depends on."""
    from ..cleaning.languages import script_of

    count, copied, seen = 0, 0, set()
    words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    scripts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for_pieces: set[str] = set()
    for pair in pairs:
        count += 1
        if (key := hash(tuple(pair))) in seen:
            continue
        seen.add(key)
        cut = [_words_of(text) for text in pair]
        in_source = set(cut[0])
        copied += sum(word in in_source for word in cut[1])
        for side, text in enumerate(pair):
            words[side].update(cut[side])
            for_pieces.update(word for word in _WORD.findall(text) if len(word) > 1)
            scripts[side].update(script_of(letter) for letter in text[:50] if letter.isalpha())
    source, target = words
    within = [sum(count for word, count in each.items() if _APOSTROPHE.search(word)) for each in words]
    return TextFacts(
        pairs=count,
        distinct=len(seen),
        words=(source.total(), target.total()),
        types=(len(source), len(target)),
        for_pieces=len(for_pieces),
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


def choose(
    facts: TextFacts,
    minutes: float,
    speeds: Mapping[int, float],
    *,
    bf16: bool,
    typed: Mapping[str, Any] | None = None,
) -> list[Choice]:
    """The rule: fields of a recipe for this text and this time, each with its reason.

    Args:
        facts: The text.
        minutes: The time that training may take.
        speeds: Target tokens trained per second, by the width of the model.
        bf16: Whether the device is fast at bfloat16.
        typed: Fields that the user sets, as `training.optim`. Layers, heads and inner width fit a typed `model.d_model`
            that has a speed; the vocabulary fits `tokenizer.kind`; warm-up and rate fit `training.max_tokens`,
            `training.warmup_steps` and `training.optim`; Muon is left out with adapters.
    """
    typed = typed or {}
    # A batch is as large as its longer side, and a tenth of it is padding.
    share = 0.9 * facts.words[1] / max(facts.words)
    trained = {width: 60 * minutes * speed * share for width, speed in speeds.items()}
    width = typed.get("model.d_model")
    if width not in [*speeds]:  # a list, for anything may have been typed
        width = max(each for each in speeds if trained[each] >= SIZES[each].worthwhile_from)
    layers, heads, inner, _ = SIZES[width]
    tokens = trained[width]
    passes = tokens / _tokens_of(facts)
    # 0.3 learns too slowly for minutes: after 54 passes it is 4 chrF behind 0.2, and after 600 it is no better.
    dropout = 0.1 if passes < _MANY_PASSES or not facts.is_whole else 0.2
    batch = _BATCH
    while batch > 1024 and tokens / batch < _FEWEST_UPDATES:
        batch //= 2
    batch = _count(typed.get("training.max_tokens"), batch)
    warmup = _count(typed.get("training.warmup_steps"), int(min(4000, max(50, 0.2 * tokens / batch))))
    with_muon = not typed.get("training.lora_rank")
    is_muon = typed.get("training.optim", MUON if with_muon else None) == MUON
    steepest = _STEEPEST_WARMUP if is_muon else _STEEPEST_WARMUP_OF_OTHERS
    of_each = tokens / max(1, facts.distinct)
    phrases = facts.distinct <= _MOST_FOR_PHRASES and of_each >= _TOKENS_FOR_PHRASES
    by_speed = f"{tokens / 1e6:,.1f} million target tokens, {share * speeds[width]:,.0f} a second"
    return [
        Choice(
            PHRASES,
            phrases,
            f"{of_each:,.0f} target tokens are trained for each pair: they help from {_TOKENS_FOR_PHRASES} on, with up "
            f"to {_MOST_FOR_PHRASES:,} pairs",
        ),
        _vocabulary(facts, KINDS.get(typed.get("tokenizer.kind"), 0)),
        Choice(
            "tokenizer.apostrophe_as_letter",
            facts.apostrophes[0] < 0.01 and facts.apostrophes[1] > 0.02,
            f"{facts.apostrophes[1]:.1%} of the target's words have an apostrophe between letters, "
            f"and {facts.apostrophes[0]:.1%} of the source's",
        ),
        Choice(OF_SIZE[0], width, f"{minutes:g} minutes are about {by_speed}; a larger model needs more"),
        *(Choice(*each, "") for each in zip(OF_SIZE[1:], (layers, layers, heads, heads, inner, inner), strict=True)),
        Choice(
            "model.dropout",
            dropout,
            f"about {passes:.0f} passes of the pairs alone: 0.1 below {_MANY_PASSES}, 0.2 from there on"
            if facts.is_whole
            else f"more than {facts.pairs:,} pairs",
        ),
        Choice("model.attn_implementation", "eager", "the faster one for short sentences"),
        Choice("training.max_minutes", minutes, "the time there is"),
        Choice("training.cooldown_steps", _COOLDOWN, "the rate falls to 0 in the last quarter of the time"),
        Choice("training.max_steps", 1_000_000, "the clock ends it"),
        Choice(
            "training.max_tokens",
            batch,
            f"about {tokens / batch:,.0f} updates: larger batches train faster, but {_FEWEST_UPDATES:,} updates are "
            "needed to learn which words belong together",
        ),
        Choice(
            "training.guided_alignment", _GUIDED_ALIGNMENT, "a word aligner shows the model where to look in the source"
        ),
        Choice("training.aligned_embeddings", _ALIGNED_EMBEDDINGS, "and words begin near their translations"),
        *([Choice("training.optim", MUON, "a short run learns more with it than with Adam")] if with_muon else []),
        Choice("training.warmup_steps", warmup, "a fifth of the updates, 4,000 at most"),
        Choice(
            "training.noam_factor",
            round(min(1.0, math.sqrt(warmup / steepest)), 3),
            f"the highest rate is at most that of {steepest:,} updates of warm-up",
        ),
        Choice("training.average_last", 6, "the checkpoints of the last three tenths of the time"),
        Choice("training.metric_for_best_model", "chrf", "tells poor translations apart where BLEU is near 0 for all"),
        Choice("training.early_stopping_patience", 8, "evaluations: it ends before the time if it only overfits"),
        Choice("training.generation_num_beams", 1, "validation is to be quick"),
        Choice("training.logging_steps", 50, ""),
        Choice("training.bf16", bf16, f"this device is {'' if bf16 else 'not '}fast at it"),
        *(Choice(f"decoding.{name}", value, "to begin with") for name, value in FIRST_DECODING.items()),
        Choice("evaluation.metrics", ["chrf", "sacrebleu"], ""),
    ]


def _count(typed: Any, chosen: int) -> int:
    """The number that was typed, or else the one that was chosen; what is no count is rejected later."""
    return typed if isinstance(typed, int) and typed > 0 else chosen


def _vocabulary(facts: TextFacts, least: int) -> Choice:
    words = sum(facts.words)
    most = VOCABULARIES[0] + facts.for_pieces / _TYPES_PER_PIECE
    possible = [size for size in VOCABULARIES if size <= most]
    needed = {size: _WORDS_PER_PIECE if size <= _SMALL else _WORDS_PER_PIECE_BEYOND for size in VOCABULARIES}
    by_words = max(size for size in VOCABULARIES if size <= max(500, words / needed[size]))
    pieces = min(by_words, possible[-1])
    why = f"{words:,} running words: at least {needed[by_words]} for each piece, so that rare pieces are learned too"
    if words < by_words * needed[by_words]:
        why = f"only {words:,} running words"
    if pieces < by_words:
        why = f"only {facts.for_pieces:,} different words: too few for more pieces"
    if pieces < least:
        pieces, why = least, "the smallest of this kind"
    return Choice("tokenizer.vocab_size", pieces, why)


def _tokens_of(facts: TextFacts) -> float:
    return _PIECES_PER_WORD * facts.words[1]


def measure_speeds(
    device: str = "auto", *, least: float = 0.0, up_to: Any = None, seconds: float = 3.0, bf16: bool = False
) -> dict[int, float]:
    """Target tokens trained per second on random text, by the width of the model.

    Args:
        device: Where to train, as for `chosen_device`.
        least: No larger size is tried once one is slower than this.
        up_to: If this is the width of a size, all up to it are tried in any case.
        seconds: How long to train each.
        bf16: Whether to train in bfloat16.
    """
    where, speeds = chosen_device(device), {}
    needed = up_to if up_to in [*SIZES] else 0  # a list, for anything may have been typed
    for width, (layers, heads, inner, _) in SIZES.items():
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
            optimizer = Muon(muon_groups(model, [], 0.0), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
            updates, begun = 0, time.perf_counter()
            while updates < 3 or time.perf_counter() - begun < seconds:
                if updates == 2:  # the first ones allocate memory
                    begun = time.perf_counter()
                with torch.autocast(where.type, torch.bfloat16, enabled=bf16):
                    loss = model(ids, attention_mask=torch.ones_like(ids), labels=ids, return_logits=False).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss.item()  # waits for a GPU
                updates += 1
        speeds[width] = (updates - 2) * ids.numel() / (time.perf_counter() - begun)
        if speeds[width] < least and width >= needed:
            break
    return speeds
