"""Several corpora to train on as one: each with a weight, and with a tag in front of its sources if they have one."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from pathlib import Path
from typing import Any

from .corpora import Pair, PairStream, TextCorpus, naming_in_errors, open_stream, read_corpus
from .languages import is_language_tag, language_tag, tempered
from .tokenizer import check_tag


UNIT_PAIRS = 1_000  # for text in memory: a tenth of a stream's, so that small corpora mix well too
MOST_COPIES = 100


@dataclass(frozen=True)
class CorpusSettings:
    """One of several training corpora.

    Attributes:
        corpus: Where its pairs are, in any form that `load_corpus` reads.
        weight: How often each of its pairs occurs, relative to those of the other corpora.
        tag: A token of its own in front of every source, say `<bt>` for back-translations (Caswell et al. 2019).
        vocabulary: Whether the vocabulary and the list of known words are also made from it.
        source_language: Language code of its sources; by default that of `data`.
        target_language: The same for its targets. With several target languages, each source gets a tag that names its
            own, `<2de>`; see `languages`.
        documents: With `data.context_sentences`: whether its lines follow each other as in documents. If not, each line
            is read alone.

    Raises:
        ValueError: `corpus` is a prepared one, `weight` is not above 0, or `tag` cannot be a token.
    """

    corpus: Any
    weight: float = 1.0
    tag: str | None = None
    vocabulary: bool = True
    source_language: str | None = None
    target_language: str | None = None
    documents: bool = True

    def __post_init__(self):
        if isinstance(self.corpus, Mapping) and "prepared" in self.corpus:
            raise ValueError(
                f"corpus = {self.corpus!r} holds token ids, and several corpora are read as text: give the "
                "text, or prepare all of them together (vanilla-transformer prepare takes such a recipe)"
            )
        if not self.weight > 0:
            raise ValueError(f"weight is {self.weight}; choose a number above 0")
        if self.tag is not None:
            check_tag(self.tag)
            if is_language_tag(self.tag):
                raise ValueError(
                    f"the tag {self.tag!r} stands for a target language: choose another, or give target_language"
                )


def copies_of(weights: Sequence[float]) -> list[int]:
    """The smallest whole numbers in the ratio of the weights: 2 and 1 for 1 and 0.5.

    Raises:
        ValueError: No numbers up to 100 are within one per cent of it.
    """
    ratios = [weight / max(weights) for weight in weights]
    parts = [Fraction(ratio).limit_denominator(MOST_COPIES) for ratio in ratios]
    most = lcm(*(part.denominator for part in parts))
    # The error must be below a hundredth of the ratio, so that a ratio too small for a number fails.
    near = all(abs(part - ratio) < ratio / 100 for part, ratio in zip(parts, ratios, strict=True))
    if most > MOST_COPIES or not near:
        raise ValueError(
            f"data.train: the weights {', '.join(map(str, weights))} are not a ratio of whole numbers up to "
            f"{MOST_COPIES}: choose rounder ones, nearer to each other, say 1 and 0.5"
        )
    return [int(part * most) for part in parts]


class Mixture(PairStream):
    """Corpora whose units form one stream, those of corpus i in c_i copies, in another order in every pass.

    The c_i are the smallest whole numbers with `c_i / c_j = weight_i / weight_j`, so a pass has `sum(c_i * pairs_i)`
    pairs. A source x of a corpus with a tag t is trained on as `t x` ("Tagged Back-Translation", Caswell et al. 2019):
    `read` gives (source, target, tag) of such a corpus. `texts` has all pairs once, without tags.

    Args:
        settings: The settings of each corpus.
        corpora: The corpora, each in memory or as a stream of bounded units.
        temperature: Above 1, small corpora come more often than by their pairs alone; see `tempered`.
    """

    def __init__(
        self,
        settings: Sequence[CorpusSettings],
        corpora: Sequence[TextCorpus | PairStream],
        temperature: float = 1.0,
    ):
        self.settings, self.corpora = settings, corpora
        self.streams = [_in_units(each) if isinstance(each, TextCorpus) else each for each in corpora]
        weights = [each.weight for each in settings]
        if temperature == 1:
            self.copies = copies_of(weights)
        elif None in (counts := [stream.pairs for stream in self.streams]):
            name = self.streams[counts.index(None)].name
            raise ValueError(f"data.sampling_temperature: the number of pairs in {name} is unknown; give weights.")
        else:
            self.copies = tempered(weights, counts, temperature, MOST_COPIES)
        targets = [corpus.identity["languages"][1] for corpus in corpora]
        several = len(set(targets)) > 1
        self._fronts = [
            (*([language_tag(target)] if several else []), *([each.tag] if each.tag is not None else []))
            for each, target in zip(settings, targets, strict=True)
        ]
        self._places = [
            (part, unit)
            for part, (stream, copies) in enumerate(zip(self.streams, self.copies, strict=True))
            for _ in range(copies)
            for unit in range(stream.units)
        ]
        self.tags = tuple(dict.fromkeys(tag for front in self._fronts for tag in front))
        identity = [
            {
                "name": stream.name,
                "files": _files_in(each.corpus),
                "pairs": stream.pairs,
                "copies": copies,
                "tag": each.tag,
                "vocabulary": each.vocabulary,
                "units": stream.units,
                "fingerprint": corpus.fingerprint,
                "corpus": corpus.identity,
            }
            for each, corpus, stream, copies in zip(settings, corpora, self.streams, self.copies, strict=True)
        ]
        counts = [part["copies"] * part["pairs"] for part in identity if part["pairs"] is not None]
        context = max(corpus.context_sentences for corpus in corpora)
        super().__init__(
            ", ".join(stream.name for stream in self.streams),
            len(self._places),
            self._open,
            {"languages": corpora[0].identity["languages"], "mixture": identity}
            | ({"context_sentences": context} if context else {}),
            patience=0.0,  # each stream has its own
            pairs=sum(counts) if len(counts) == len(identity) else None,
        )
        for stream in self.streams:
            stream.stop = self.stop

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the text and its order, but not of its location."""
        decisive = ("fingerprint", "copies", "tag", "vocabulary", "units")
        parts = [{name: part[name] for name in decisive} for part in self.identity["mixture"]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def texts(self) -> Iterator[Pair]:
        """The pairs that a vocabulary is learned from, each once. Corpora take turns: some readers stop early."""
        chosen = zip(self.settings, self.corpora, strict=True)
        left = [iter(corpus.texts()) for each, corpus in chosen if each.vocabulary]
        while left:
            for texts in [*left]:
                if (pair := next(texts, None)) is None:
                    left.remove(texts)
                else:
                    yield pair

    def _open(self, place: int) -> Iterator[tuple]:
        part, unit = self._places[place]
        pairs, front = self.streams[part].read(unit), self._fronts[part]
        return ((*pair, *front) for pair in pairs) if front else pairs

    def __str__(self) -> str:
        return "; ".join(
            f"{copies} x {'an unknown number of' if stream.pairs is None else format(stream.pairs, ',')} pairs of "
            f"{stream.name}{'' if each.tag is None else f' with the tag {each.tag}'}"
            for each, stream, copies in zip(self.settings, self.streams, self.copies, strict=True)
        )


def difference(before: Mapping, now: Mapping) -> str | None:
    """How `data.train` of one identity differs from that of another, apart from the text; None if it does not."""
    if changed := _other_languages("data", before, now):
        return changed
    old, new = (each.get("mixture", [None]) for each in (before, now))
    if len(old) != len(new):
        return f"{len(old)} {'corpus' if len(old) == 1 else 'corpora'} in data.train, not {len(new)}"
    if None in (*old, *new):
        return None
    weights = [" to ".join(str(part["copies"]) for part in parts) for parts in (old, new)]
    if weights[0] != weights[1]:
        return f"weights of {weights[0]} in data.train, not {weights[1]}"
    for number, (was, is_now) in enumerate(zip(old, new, strict=True)):
        if changed := _other_languages(f"data.train[{number}]", was.get("corpus", {}), is_now["corpus"]):
            return changed
        for name in ("tag", "vocabulary"):
            if was[name] != is_now[name]:
                return f"data.train[{number}].{name} = {was[name]!r}, not {is_now[name]!r}"
    return None


def _other_languages(field: str, before: Mapping, now: Mapping) -> str | None:
    old, new = (" to ".join(each.get("languages", ())) for each in (before, now))
    return f"{field} from {old}, not from {new}" if old and new and old != new else None


def without_places(identity: Mapping) -> dict:
    """The identity of a corpus without the places of a mixture's files, which may be moved."""
    found = dict(identity)
    if "mixture" in found:
        found["mixture"] = [
            {name: value for name, value in part.items() if name not in ("name", "files")} for part in found["mixture"]
        ]
    return found


def _files_in(corpus: Any) -> list[str]:
    if isinstance(corpus, Mapping):  # on the Hub, or prepared
        return []
    return [str(file) for file in (corpus if isinstance(corpus, (list, tuple)) else [corpus])]


def _in_units(corpus: TextCorpus) -> PairStream:
    """Text in memory as a stream; each unit has pairs from all parts of the text."""
    units, rows = -(-len(corpus.pairs) // UNIT_PAIRS), corpus.rows()
    return PairStream(corpus.name, units, lambda unit: iter(rows[unit::units]), patience=0.0, pairs=len(rows))


def open_mixture(
    settings: Sequence[CorpusSettings],
    source_language: str,
    target_language: str,
    *,
    folder: str | Path = ".",
    patience: float = 3600.0,
    begun: Mapping | None = None,
    stream: bool = False,
    temperature: float = 1.0,
    context_sentences: int = 0,
) -> Mixture:
    """Opens several corpora to be trained on as one.

    Args:
        settings: The corpora; those without their own languages have the following.
        source_language, target_language, folder, patience: As for `open_stream`.
        begun: Identity of the mixture that this one continues: the same commits of the Hub are read.
        stream: Read corpora in pieces where possible (Parquet files, most data sets of the Hub). Others are held in
            memory: a file that can only be read from its beginning cannot be mixed with others.
        temperature: As for [`Mixture`].
        context_sentences: As for `open_stream`, for corpora that are documents.

    Raises:
        FileNotFoundError, ValueError: As `read_corpus` and `open_stream` do; or the weights have no ratio of small
            whole numbers.
    """
    before = (begun or {}).get("mixture", [])
    corpora: list[TextCorpus | PairStream] = []
    for number, each in enumerate(settings):
        options = {"folder": folder, "patience": patience}
        options["begun"] = before[number]["corpus"] if number < len(before) else None
        options["context_sentences"] = context_sentences if each.documents else 0
        where = each.corpus, each.source_language or source_language, each.target_language or target_language
        with naming_in_errors(f"data.train[{number}].corpus"):
            opened = open_stream(*where, **options) if stream else None
            corpora.append(opened if opened and opened.bounded else read_corpus(*where, **options))
    return Mixture(settings, corpora, temperature)
