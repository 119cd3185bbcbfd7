"""Tatoeba is split by sentence, and each way to adapt parses as a command."""

import argparse
import gzip
import random

import pytest

from vanilla_transformer.command_line import COMMANDS, command_parser
from vanilla_transformer.files import text_lines

from .conftest import load_script


adapt = load_script("experiments/adapt")


def test_split_parts_share_no_sentence(tmp_path):
    rows = [(f"sentence {number % 40}", f"Satz {number}") for number in range(100)]
    parts = []
    for order in (rows, random.Random(1).sample(rows, len(rows))):
        with gzip.open(tmp_path / "pairs.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines("\t".join(row) + "\n" for row in order)
        adapt.split(tmp_path / "pairs.tsv.gz", tmp_path / "split", 5)
        found = {
            name: list(
                zip(*(text_lines(tmp_path / "split" / f"{name}.{side}.gz") for side in ("en", "de")), strict=True)
            )
            for name in ("train", "validation", "test")
        }
        english = {name: [row[0] for row in each] for name, each in found.items()}
        assert len(set(english["validation"])) == len(english["validation"]) == 5
        assert len(set(english["test"])) == len(english["test"]) == 5
        assert len(set().union(*english.values())) == 40 == 10 + len(set(english["train"]))
        assert set().union(*found.values()) <= set(rows)
        assert set(found["train"]) == {row for row in rows if row[0] in set(english["train"])}
        parts.append(english["validation"])
    assert parts[0] == parts[1]


@pytest.mark.parametrize("way", adapt.VARIANTS)
def test_each_variant_parses_as_a_command(tmp_path, way):
    arguments = argparse.Namespace(
        model=tmp_path / "model", multi30k=tmp_path, output=tmp_path / "out", steps=5, every=2, options="--device cpu"
    )
    options, rest = command_parser(COMMANDS).parse_known_args(adapt.words_of(way, arguments, tmp_path))
    assert options.command.__name__ == "adapt"
    assert (options.replay is not None) == ("no replay" not in way)
    assert options.device == "cpu"
    assert rest[rest.index("--training.max_steps") + 1] == "5"
    assert not {"--replay", "--lora-rank"} & set(rest)
