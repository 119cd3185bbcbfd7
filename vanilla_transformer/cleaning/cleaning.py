"""From a dirty corpus to a clean one, in steps that resume after any interruption.

    corpus -> shards of pairs
      rules     each shard by itself: mending, rules of a pair, misaligned runs; hashes       (workers)
      repeats   all shards: repeated pairs and targets, near duplicates
      scores    each shard by itself, with two models                                         (workers)
      files     kept pairs, dropped pairs, the report                                         (workers)

Each step keeps its findings in files in `.unfinished` in the folder. A shard's files are complete or missing. They
take as much space as the packed text, plus a hundred bytes a pair. Memory does not depend on the corpus, except for
nine bytes a pair that the system may keep on the disk instead. The output depends only on the pairs and the settings,
not on workers or interruptions.
"""

import gzip
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np

from ..data.corpora import PairStream, open_stream
from ..files import alone_in, flush, named_in_errors, read_json, remove_leftovers, replaced_path, write_json
from ..resuming import check_begun_with, check_digest, check_free
from ..worker_processes import in_order, processors, worker_processes
from .languages import is_identified, scripts_of
from .repeats import KEYS, VERDICT, find_repeats
from .report import CleaningReport
from .rules import CleaningSettings
from .scoring import Scoring, begin_scoring, least_of_best, score_shard
from .shards import ShardFiles, check_shard, write_shard


logger = logging.getLogger(__name__)

LIBRARIES = ("ftfy", "py3langid", "rensa")
Progress = Callable[[str, int, int | None], None]
_EMPTY = "Empty the folder to begin anew, or choose another one."


def clean(
    where: str | Path | Sequence[str | Path] | Mapping[str, str],
    output: str | Path,
    settings: CleaningSettings,
    *,
    folder: str | Path = ".",
    scoring: Scoring | None = None,
    workers: int | None = None,
    shard_pairs: int = 10_000,
    patience: float = 3600.0,
    on_progress: Progress = lambda step, done, total: None,
) -> CleaningReport:
    """Writes the good pairs of a corpus to two files, `clean.LANGUAGE.gz`, and the others to `dropped.jsonl.gz`.

    Line n of one file belongs to line n of the other. Beside them are `report.json`, `report.md` and `report.png`.
    Called again with the same arguments, it continues interrupted work.

    Args:
        where, folder: The corpus, as for [`load_corpus`]. Bytes of text files that are not UTF-8 are mended.
        output: A folder, in which one process works at a time; it is made if it is missing.
        settings: Languages, limits, rules to skip.
        scoring: The models that score the pairs left by the rules, and which of these to keep.
        workers: Processes; None: one for each core.
        shard_pairs: Pairs that are saved at a time; misaligned runs are searched for among them.
        patience: Seconds without a new pair after which reading from the Hub is given up.
        on_progress: Called with the name of a step, the number of pairs done, and the number of all pairs, if known.

    Raises:
        ImportError: A library of the extra `clean` is missing.
        FileNotFoundError: There is no such corpus, or no such model.
        FileExistsError: There are other files of these names, or another process works in the folder.
        ValueError: The corpus is malformed; the work in the folder was begun with something else, or is damaged; no
            pair is left.
    """
    check_libraries()
    workers, output = processors() if workers is None else workers, Path(output)
    if min(workers, shard_pairs) < 1:
        raise ValueError(f"workers ({workers}) and shard_pairs ({shard_pairs}) must be at least 1.")
    languages = settings.source_language, settings.target_language
    with alone_in(output):
        report_file, unfinished = output / "report.json", output / ".unfinished"
        begun_file = unfinished / "begun.json"
        # Each records what earlier work was begun with: the report once that is finished, the other until then.
        earlier = next((path for path in (report_file, begun_file) if path.exists()), None)
        remedy = _EMPTY if earlier == report_file else "Remove it to begin anew."
        begun_with = None if earlier is None else read_json(earlier, remedy).get("begun_with", {})
        stream = open_stream(
            where,
            *languages,
            folder=folder,
            patience=patience,
            begun=(begun_with or {}).get("corpus"),
            errors="surrogateescape",
        )
        facts = {
            "corpus": stream.identity,
            "settings": asdict(settings) | {"skip": sorted(settings.skip)},
            "shard_pairs": shard_pairs,
            "libraries": {name: version(name) for name in LIBRARIES},
            "scoring": scoring.facts() if scoring else None,
        }
        if begun_with is not None:
            check_begun_with(earlier, begun_with, facts)
        work = _Work(output, unfinished, settings, workers, on_progress)
        if earlier == report_file:
            report = CleaningReport.load(report_file)
            for name, entry in report.files.items():
                check_digest(output / name, entry, _EMPTY)
            shutil.rmtree(unfinished, ignore_errors=True)
            logger.info("%s is complete already.", report_file)
            return report
        if earlier is None:
            for name in (*work.names, "report.md", "report.png"):
                check_free(output / name)
            if unfinished.exists():  # nobody knows any more what its files were made from
                shutil.rmtree(unfinished)
            unfinished.mkdir()
            write_json(begun_file, {"begun_with": facts})
        return work.finish(stream, shard_pairs, scoring, CleaningReport(facts, off=_not_checked(settings)))


def check_libraries() -> None:
    """Raises ImportError if a library of the extra `clean` is missing."""
    try:
        for name in LIBRARIES:
            import_module(name)
    except ImportError as error:
        raise ImportError(f'Cleaning needs {error.name}: pip install "vanilla-transformer[clean]"') from error


def _not_checked(settings: CleaningSettings) -> list[str]:
    found = []
    for code in (settings.source_language, settings.target_language):
        if not is_identified(code):
            script = "" if scripts_of(code) else " and script"
            found.append(
                f"language{script} of the side in {code!r}, which py3langid does not know, or not in this script."
            )
    return found


class _Work:
    """The steps, in a folder of unfinished files."""

    def __init__(self, output: Path, folder: Path, settings: CleaningSettings, workers: int, on_progress: Progress):
        self.output, self.folder, self.settings, self.workers = output, folder, settings, workers
        self.on_progress = on_progress
        self.names = [f"clean.{code}.gz" for code in (settings.source_language, settings.target_language)]
        self.names.append("dropped.jsonl.gz")
        self.shards: list[tuple[int, int]] = []  # pairs before each, and in it

    def finish(
        self, stream: PairStream, shard_pairs: int, scoring: Scoring | None, report: CleaningReport
    ) -> CleaningReport:
        """Does the remaining work."""
        remove_leftovers(self.folder)
        try:
            pairs = self._apply_rules(stream, shard_pairs)
            if not pairs:
                raise ValueError(f"The corpus {stream.name} is empty.")
        except ValueError:  # once repaired, it is another corpus
            shutil.rmtree(self.folder)
            raise
        verdicts = self._find_repeats(pairs)
        if scoring is not None:
            report.least_score = self._score(scoring, verdicts)
        self._write(verdicts, report)
        if not report.kept:
            shutil.rmtree(self.folder)
            raise ValueError(f"No pair of {stream.name} is left to use: {report}")
        for name in (*report.files, "report.md", "report.png", "report.json"):
            os.replace(self.folder / name, self.output / name)
        shutil.rmtree(self.folder)
        return report

    def _files(self, number: int) -> ShardFiles:
        return ShardFiles.of(self.folder, number)

    def _apply_rules(self, stream: PairStream, shard_pairs: int) -> int:
        """Checks all shards, and returns the number of pairs. Units that were read to the end are not read again."""
        place = self.folder / "read.json"
        read = read_json(place) if place.exists() else {"units": 0, "sizes": []}
        sizes: list[int] = read["sizes"]
        if read["units"] < stream.units:
            submit_missing = partial(self._unless_there, lambda files: files.reasons)
            with worker_processes(partial(check_shard, self.settings, self.folder), self.workers) as submit:
                shards = _shards(stream, read["units"], len(sizes), shard_pairs)
                for (_, some, unit_ends), _ in in_order(shards, partial(submit_missing, submit), 2 * self.workers):
                    sizes.append(len(some))
                    self.on_progress("rules", sum(sizes), stream.pairs)
                    if unit_ends is not None:
                        write_json(place, {"units": unit_ends, "sizes": sizes})
            write_json(place, {"units": stream.units, "sizes": sizes})
        ends = np.cumsum(sizes).tolist()
        self.shards = [(end - size, size) for end, size in zip(ends, sizes, strict=True)]
        return sum(sizes)

    def _unless_there(self, which: Callable[[ShardFiles], Path], submit: Callable, shard: tuple) -> Future:
        """The future of a shard's work, which is done already if its file exists."""
        if not which(self._files(shard[0])).exists():
            return submit(shard[:2])
        done: Future = Future()
        done.set_result(None)
        return done

    def _find_repeats(self, pairs: int) -> np.ndarray:
        """The verdict on each pair so far, `VERDICT` (pairs,), on the disk."""
        place = self.folder / "verdicts.npy"
        if not place.exists():
            with replaced_path(place) as path:
                verdicts = np.lib.format.open_memmap(path, mode="w+", dtype=VERDICT, shape=(pairs,))
                for number, (before, size) in enumerate(self.shards):
                    verdicts["reason"][before : before + size] = np.load(self._files(number).reasons)
                keys = [self._files(number).keys for number in range(len(self.shards))]
                for done in find_repeats(keys, verdicts, self.settings):
                    self.on_progress("repeats", pairs * done // KEYS, pairs)
                verdicts.flush()
        return np.load(place, mmap_mode="r")

    def _score(self, scoring: Scoring, verdicts: np.ndarray) -> float:
        """Scores all remaining pairs, and returns the least score of a kept one."""
        workers = self.workers if scoring.device == "cpu" else 1
        languages = self.settings.source_language, self.settings.target_language
        score = partial(score_shard, scoring, self.folder, languages)
        shards = ((number, self._slice(verdicts, number)["reason"] == 0) for number in range(len(self.shards)))
        start_method = None if scoring.device == "cpu" else "spawn"  # a fork cannot use the parent's CUDA
        with worker_processes(score, workers, begin=begin_scoring, start_method=start_method) as submit:
            submit = partial(self._unless_there, lambda files: files.scores, submit)
            for (number, _), _ in in_order(shards, submit, 2 * workers):
                self.on_progress("scores", sum(self.shards[number]), len(verdicts))
        if scoring.min_score is not None:
            return scoring.min_score
        return least_of_best([self._files(number).scores for number in range(len(self.shards))], scoring.keep_best)

    def _write(self, verdicts: np.ndarray, report: CleaningReport) -> None:
        """Writes all files of the result into the folder of unfinished ones."""
        write = partial(write_shard, self.folder, report.least_score)
        shards = (
            (number, before, np.array(self._slice(verdicts, number))) for number, (before, _) in enumerate(self.shards)
        )
        places, digests = [self.folder / name for name in self.names], [sha256() for _ in self.names]
        with ExitStack() as stack:
            for place in places:
                stack.enter_context(named_in_errors(place))
            files = [stack.enter_context(place.open("wb")) for place in places]
            submit = stack.enter_context(worker_processes(write, self.workers))
            for (_, before, some), written in in_order(shards, submit, 2 * self.workers):
                for file, digest, part in zip(files, digests, written.parts, strict=True):
                    file.write(part)
                    digest.update(part)
                report.add(written)
                self.on_progress("files", before + len(some), len(verdicts))
            for file, digest in zip(files, digests, strict=True):
                if not file.tell():  # zcat calls a file of no bytes damaged
                    file.write(empty := gzip.compress(b"", mtime=0))
                    digest.update(empty)
        report.examples = {name: report.examples[name] for name in sorted(report.examples)}
        for place, digest in zip(places, digests, strict=True):
            flush(place)
            report.files[place.name] = {"bytes": place.stat().st_size, "sha256": digest.hexdigest()}
        report.save_picture(self.folder / "report.png")
        report.save_page(self.folder / "report.md", "report.png")
        report.save(self.folder / "report.json")

    def _slice(self, verdicts: np.ndarray, number: int) -> np.ndarray:
        before, size = self.shards[number]
        return verdicts[before : before + size]


def _shards(
    stream: PairStream, first_unit: int, number: int, shard_pairs: int
) -> Iterator[tuple[int, list[tuple[str, str]], int | None]]:
    """The shards from a unit on: their numbers, their pairs, and the units read by then, if one ends there."""
    for unit in range(first_unit, stream.units):
        pairs = stream.read(unit)
        some = list(islice(pairs, shard_pairs))
        while some:
            more = list(islice(pairs, shard_pairs))
            yield number, some, None if more else unit + 1
            number, some = number + 1, more
