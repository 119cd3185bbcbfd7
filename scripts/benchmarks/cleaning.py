"""How fast `vanilla-transformer clean` is, and how much memory it takes, by number of phrasebook sentences and workers.

    python scripts/benchmarks/cleaning.py --pairs 100000 1000000 --workers 1 2

Each cleaning runs in its own process. Many sentences occur twice, as in real corpora, and are found. Memory is the
peak of the process, and the largest peak of its workers. The files must be the same for any number of workers.
"""

import argparse
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from vanilla_transformer.cleaning import CleaningSettings, clean


def measure(pairs: int, workers: int) -> dict:
    """The figures of one cleaning; memory in megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        report = clean(f"phrasebook:train:{pairs}", folder, CleaningSettings("en", "de"), workers=workers)
        seconds = time.monotonic() - started
    peaks = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"seconds": seconds, "peaks": list(peaks), "files": report.files, "kept": report.kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print("| pairs | kept | workers | pairs a second | MB, process | MB, largest worker |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for pairs in arguments.pairs:
        files = []
        for workers in arguments.workers:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # peaks are per process
                found = pool.submit(measure, pairs, workers).result()
            own, worker = found["peaks"]
            rate = pairs / found["seconds"]
            print(f"| {pairs:,} | {found['kept']:,} | {workers} | {rate:,.0f} | {own:.0f} | {worker:.0f} |", flush=True)
            files.append(found["files"])
        if any(each != files[0] for each in files):
            raise SystemExit("The files differ.")
    print("The files are the same for any number of workers.")


if __name__ == "__main__":
    main()
