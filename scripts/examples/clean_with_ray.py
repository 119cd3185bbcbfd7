"""The rules of single pairs on a cluster: Ray reads Parquet, applies them, and writes Parquet with a column `reason`.

    pip install "ray[data]" "vanilla-transformer[clean]"
    python scripts/examples/clean_with_ray.py pairs/ checked/ --source en --target de

The input has a text column for each language. Rows with a `reason` should be dropped; the others are mended. Rules
that need other pairs (misaligned runs, repeats, scores) are left to `vanilla-transformer clean`, which takes the
Parquet file of the kept rows. On a cluster pass `--address auto`; without it Ray uses this machine's processors.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import ray

from vanilla_transformer.cleaning import CleaningSettings, check_pair


def check_rows(rows: dict, settings: CleaningSettings) -> dict:
    """Checks a batch of rows, given and returned by column."""
    pairs = zip(rows[settings.source_language], rows[settings.target_language], strict=True)
    found = [check_pair(source, target, settings) for source, target in pairs]
    columns = {settings.source_language: "source", settings.target_language: "target", "reason": "reason"}
    return {column: [each[name] for each in found] for column, name in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, help="Parquet file, or folder of them")
    parser.add_argument("output", type=Path, help="folder to write to")
    parser.add_argument("--source", required=True, help="language and column of the source")
    parser.add_argument("--target", required=True, help="language and column of the target")
    parser.add_argument("--address", help="of a running cluster: auto, or HOST:PORT")
    parser.add_argument("--cpus", type=int, help="processors of this machine to use, without --address")
    arguments = parser.parse_args()
    if arguments.output.exists():  # Ray would append to it
        parser.error(f"{arguments.output} exists already: remove it, or choose another folder")
    # Ray 2.60's new Parquet reader hangs on a machine with two processors.
    ray.data.DataContext.get_current().use_datasource_v2 = False
    local = {} if arguments.address else {"num_cpus": arguments.cpus, "include_dashboard": False}
    ray.init(address=arguments.address, **local)
    settings = CleaningSettings(arguments.source, arguments.target)
    begun = time.monotonic()
    rows = ray.data.read_parquet(str(arguments.input.resolve()))
    rows = rows.select_columns([arguments.source, arguments.target]).repartition(target_num_rows_per_block=10_000)
    checked = rows.map_batches(partial(check_rows, settings=settings), batch_size=1_000)
    checked.write_parquet(str(arguments.output.resolve()))
    spent = time.monotonic() - begun
    written = ray.data.read_parquet(str(arguments.output.resolve())).groupby("reason").count()
    counts = {row["reason"]: row["count()"] for row in written.take_all()}
    total = sum(counts.values())
    print(f"{total:,} pairs, {total / spent:,.0f} a second; by reason: {counts}")


if __name__ == "__main__":
    main()
