"""Parallel text for training, one side of it made by a model; interrupted work can be continued.

    text -> chunks of lines -> translations -> pairs that are kept -> a piece of either file, and the report

Let y' be the search's result for x, or a sample from p(y | x). Then training uses

- back-translation (Sennrich et al. 2016, arXiv:1511.06709): pairs (x'(y), y) for y in the target language, x' by a
  model of the reverse direction, argmax_x p(x | y). Samples x' ~ p(x | y) are often the better sources (Edunov et al.
  2018, arXiv:1808.09381).
- forward translation, or self-training: pairs (x, y'(x)) for x in the source language.
- sequence-level distillation (Kim and Rush 2016, arXiv:1606.07947): the same with the training text's own sources and a
  teacher q. The student's loss -sum_y q(y | x) log p(y | x) is approximated by -log p(y' | x), y' = argmax_y q(y | x).
"""

import gzip
import hashlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, repeat
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from ..data.encoding import PairLimits
from ..files import alone_in, named_in_errors, read_json, remove_leftovers, text_lines, write_json
from ..resuming import check_begun_with, check_digest, check_free
from .by_ctranslate2 import ExportedModel
from .decoding import Decoding, Hypothesis
from .lines import in_blocks, one_line
from .sentences import Model, translate_lines


logger = logging.getLogger(__name__)

_ANEW = "Remove both files and their report to begin anew."
LIMITS = PairLimits(max_source_length=256, max_target_length=256, max_length_ratio=3.0)


@dataclass
class SyntheticReport:
    """The work done so far, and its inputs: the JSON file beside the text.

    Attributes:
        begun_with: Digests of text and models, languages, and all options that affect the output.
        complete: Whether the files have their final names.
        lines: Lines of the text that are done.
        kept: Pairs that were written.
        dropped: Lines that were left out, by reason.
        seconds: How long the translations took.
        files: Size and SHA-256 of the source side and of the target side, by name.
    """

    begun_with: dict
    complete: bool = False
    lines: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    files: dict[str, dict] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "SyntheticReport":
        """Reads a report; ValueError if the file is not one."""
        remedy = "Remove it to begin anew, or choose another folder."
        content = read_json(path, remedy)
        content.pop("lines_per_second", None)
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(f"{path} is not a report of synthetic text. {remedy}") from error

    def save(self, path: Path) -> None:
        """Writes the report, with the speed; the file is complete from the moment it appears."""
        speed = round(self.lines / self.seconds, 1) if self.seconds else None
        write_json(path, {**asdict(self), "lines_per_second": speed})

    def __str__(self) -> str:
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in self.dropped.items()) or "none"
        speed = f" {self.lines / self.seconds:,.1f} lines a second." if self.seconds else ""
        return f"{self.kept:,} of {self.lines:,} lines kept; dropped: {dropped}.{speed}"


def synthesize(
    model: Model,
    tokenizer: PreTrainedTokenizerFast,
    text: str | Path,
    output: str | Path,
    *,
    languages: tuple[str, str],
    to: str | None = None,
    forward: bool = False,
    made_by: Mapping | None = None,
    limits: PairLimits = LIMITS,
    seed: int = 0,
    chunk_lines: int = 4096,
    batch_tokens: int = 4096,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda more, lines: None,
    **generate_options,
) -> SyntheticReport:
    """Translates a text into two line-aligned files, `NAME.LANGUAGE.gz`, and a report, `NAME.report.json`.

    Line n of one file belongs to line n of the other. A pair is left out if its given line is blank or too long, or if
    its translation is empty, was cut at the length limit, or is out of the limits.

    The same arguments give the same two files, however often the work was interrupted: only whole chunks are kept when
    a process ends, and the random numbers of a chunk depend only on the seed and the chunk's number.

    Args:
        model, tokenizer, workers, batch_tokens: As for [`translate_lines`]; `workers` may change on resuming.
        text: A file of lines, plain or `.gz`. It is read twice.
        output: A folder, in which one process works at a time; it is made if it is missing.
        languages: Codes of the languages that the model translates from and to, for the names of the files.
        to: The language to ask a model of several for, as for [`translate_lines`].
        forward: Whether the text becomes the source of the training pairs. Otherwise it becomes the target.
        made_by: Facts about the model, say its digest. They are kept in the report and must not change. ("path" may.)
        limits: Which pairs are kept, by their tokens. A given line over its limit is not translated.
        seed: Seed of samples.
        chunk_lines: Lines to translate between saves: the most that an interruption can cost.
        on_progress: Called with the number of lines done since the last call, and the number of all lines.
        **generate_options: As for [`translate_lines`].

    Raises:
        FileNotFoundError, IsADirectoryError: There is no such text.
        FileExistsError: There are other files of these names, or another process works in the folder.
        ValueError: The text is malformed, or names another language; the work in the folder was begun with something
            else, or is damaged; no pair is left; CTranslate2 is to draw samples, which it could not repeat.
    """
    if chunk_lines < 1:
        raise ValueError(f"chunk_lines must be 1 or more, not {chunk_lines}.")
    if languages[0] == languages[1]:
        raise ValueError(f"Source and target language are both {languages[0]!r}: give two different codes.")
    text, output = Path(text), Path(output)
    name = name_of(text, languages)
    decoding = _decoding_facts(Decoding.resolve(generate_options, model.generation_config))
    if decoding["do_sample"] and isinstance(model, ExportedModel):
        raise ValueError("CTranslate2 cannot draw the same samples again after an interruption: translate with torch.")
    lines, digest = _read_through(text)
    begun_with = {
        "text": {"path": str(text), "lines": lines, "sha256": digest},
        "text_is_the": "source" if forward else "target",
        "translated": {"from": languages[0], "to": languages[1]},
        **(made_by or {}),
        "decoding": decoding,
        "seed": seed if decoding["do_sample"] else None,
        "limits": asdict(limits),
        "chunk_lines": chunk_lines,
        "batch_tokens": batch_tokens,
    }
    sides = [output / f"{name}.{language}.gz" for language in (languages if forward else languages[::-1])]
    with alone_in(output):
        path = output / f"{name}.report.json"
        remove_leftovers(output, path.name)
        report = _opened(path, begun_with, sides)
        if report.complete:
            logger.info("%s is complete already.", path)
            return report
        if report.lines:
            logger.info("%s continues after %s lines.", path, f"{report.lines:,}")
        on_progress(report.lines, lines)
        show = partial(on_progress, lines=lines)
        work, found = _Work(tokenizer, forward, limits, seed, chunk_lines, path, report, show), []
        options = {"workers": workers, "batch_tokens": batch_tokens, "on_progress": show, "to": to, **generate_options}
        digests: dict[Path, str] = {}
        with ExitStack() as stack, torch.random.fork_rng(devices=[]):
            files = {side.name: stack.enter_context(_growing(side, report.files.get(side.name))) for side in sides}
            chunks = work.chunks(text_lines(text, digests=digests), files, found)
            # No line has a context, since some lines are left out, and chunks may be done already.
            for best, *_ in translate_lines(model, tokenizer, chunks, contexts=repeat(()), **options):
                found.append(best)
        if digests[text] != digest:
            raise ValueError(f"{text} was changed while it was read: restore it, or begin anew in another folder.")
        if not report.kept:
            for left in (path, *map(_unfinished, sides)):  # so that the next call may have other arguments
                left.unlink(missing_ok=True)
            raise ValueError(f"No pair of {text} is left to use: {report}")
        for side in sides:
            if _unfinished(side).exists():
                os.replace(_unfinished(side), side)
        report.complete = True
        report.save(path)
    return report


def name_of(text: Path, languages: tuple[str, str]) -> str:
    """The base name of the files: the text's name without the endings for format and language."""
    name = text.name.removesuffix(".gz").removesuffix(".txt")
    if name.endswith(f".{languages[1]}"):
        raise ValueError(
            f"{text} is {languages[1]} according to its name, but the model translates from {languages[0]} to "
            f"{languages[1]}: give it text in {languages[0]}, or a model of the other direction."
        )
    return name.removesuffix(f".{languages[0]}")


def _read_through(text: Path) -> tuple[int, str]:
    """How many lines a text has, and its SHA-256. An error in it is found before anything is translated."""
    digests: dict[Path, str] = {}
    read = text_lines(text, digests=digests)
    if not text.is_file():
        raise ValueError(f"{text} cannot be read twice: give a file, not a pipe.")
    return sum(1 for _ in read), digests[text]


def _decoding_facts(decoding: Decoding) -> dict:
    sampling = ("temperature", "top_k", "top_p")
    searching = ("length_penalty", "length_penalty_type", "early_stopping")
    facts = {name: value for name, value in vars(decoding).items() if value is not None and name != "given"}
    if not decoding.minimum_bayes_risk:  # files begun before there was such a choice have no fact about it
        del facts["minimum_bayes_risk"]
    for name in ("prefix", "align", "constrained", "scores", *(searching if decoding.do_sample else sampling)):
        del facts[name]
    return facts | {name: decoding.given[name] for name in decoding.others}


# --------------------------------------------------------------------------------------------------------- the folder


def _opened(path: Path, begun_with: dict, sides: list[Path]) -> SyntheticReport:
    """The report of the work, if it was begun with the same arguments; a new one where there is none."""
    if not path.exists():
        for side in sides:
            check_free(side)
        report = SyntheticReport(begun_with)
        report.save(path)
        return report
    report = SyntheticReport.load(path)
    check_begun_with(path, report.begun_with, begun_with)
    if report.complete:
        for side in sides:
            check_digest(side, report.files[side.name], _ANEW)
    return report


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")


class _GrowingFile:
    """A gzip file while it is written, with one member for each chunk."""

    def __init__(self, file, size: int, digest):
        self.file, self.size, self.digest = file, size, digest

    def append(self, lines: list[str]) -> None:
        """Adds lines; they are on the disk when this returns."""
        if not lines:
            return
        member = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        self.file.write(member)
        self.file.flush()
        os.fsync(self.file.fileno())
        self.digest.update(member)
        self.size += len(member)

    @property
    def entry(self) -> dict:
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}


@contextmanager
def _growing(path: Path, entry: dict | None) -> Iterator[_GrowingFile]:
    """Opens the file that becomes `path`, without what a killed process wrote after the last chunk."""
    place = _unfinished(path)
    entry = entry or {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    if entry["bytes"] and not place.exists() and path.exists():
        place = path  # everything was done, and this file had its name already
    else:
        check_free(path)
    with named_in_errors(place):
        if not entry["bytes"]:
            place.touch()
        digest = check_digest(place, entry, _ANEW)
        with place.open("r+b") as file:
            file.truncate(entry["bytes"])
            file.seek(entry["bytes"])
            yield _GrowingFile(file, entry["bytes"], digest)


# ----------------------------------------------------------------------------------------------------------- the pairs


@dataclass
class _Work:
    """Makes pairs from a text, and keeps track of how far it has got."""

    tokenizer: PreTrainedTokenizerFast
    forward: bool
    limits: PairLimits
    seed: int
    chunk_lines: int
    path: Path  # of the report
    report: SyntheticReport
    on_progress: Callable[[int], None]

    def chunks(
        self, lines: Iterator[str], files: dict[str, _GrowingFile], found: list[Hypothesis]
    ) -> Iterator[list[str]]:
        """The lines to translate of each remaining chunk.

        When the next one is asked for, `found` must have the best translation of each line. Then the kept pairs are
        written to the files of both sides, and the report is saved.
        """
        report = self.report
        for chunk in in_blocks(islice(lines, report.lines, None), self.chunk_lines):
            begun = time.monotonic()
            todo, dropped = self._to_translate(chunk)
            key = f"{self.seed} {report.lines // self.chunk_lines}".encode()
            torch.manual_seed(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))
            found.clear()
            self.on_progress(len(chunk) - len(todo))
            yield todo
            pairs, more_dropped = self._kept(todo, found)
            for number, (name, file) in enumerate(files.items()):
                file.append([pair[number] for pair in pairs])
                report.files[name] = file.entry
            report.lines += len(chunk)
            report.kept += len(pairs)
            report.dropped = dict(Counter(report.dropped) + dropped + more_dropped)
            report.seconds = round(report.seconds + time.monotonic() - begun, 3)
            report.save(self.path)

    def _to_translate(self, lines: list[str]) -> tuple[list[str], Counter]:
        """The lines without those that are blank or too long, which are counted."""
        todo, dropped = [], Counter()
        longest = self.limits.max_source_length if self.forward else self.limits.max_target_length
        written = [line for line in lines if line.strip()]
        for line, length in zip(written, self._lengths(text=written), strict=True):
            if length > longest:
                dropped[f"given line over {longest} tokens"] += 1
            else:
                todo.append(line)
        dropped["blank line"] = len(lines) - len(written)
        return todo, dropped

    def _kept(self, lines: list[str], found: list[Hypothesis]) -> tuple[list[tuple[str, str]], Counter]:
        """The pairs of source and target to keep. Pairs that no model should learn from are counted by reason."""
        kept, dropped = [], Counter()
        translations = [one_line(each.text) for each in found]
        for line, translation, each, *lengths in zip(
            lines, translations, found, self._lengths(text=lines), self._lengths(text_target=translations), strict=True
        ):
            order = slice(None) if self.forward else slice(None, None, -1)
            if not translation.strip():
                reason = "empty translation"
            elif each.cut:
                reason = "translation cut at its limit"
            else:
                reason = self.limits.reason_to_drop(*lengths[order])
            if reason is None:
                kept.append((line, translation)[order])
            else:
                dropped[reason] += 1
        return kept, dropped

    def _lengths(self, **texts: list[str]) -> list[int]:
        """How many tokens each text has when it is trained on: without the white space around it."""
        [(side, lines)] = texts.items()
        return (
            [len(ids) for ids in self.tokenizer(**{side: [each.strip() for each in lines]}).input_ids] if lines else []
        )
