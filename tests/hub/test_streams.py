"""Streams from the Hub: the right pairs, whatever breaks, from any place on."""

import json
import time

import pytest


READ = """
import json, sys
from vanilla_transformer.data.streams import open_stream
corpus = {"hub": "wmt/wmt14", "config": "de-en", "split": sys.argv[1]}
stream = open_stream(corpus, "en", "de", patience=float(sys.argv[2]))
print(json.dumps([stream.units, [pair for unit in range(stream.units) for pair in stream.read(unit)]]))
"""


def read(process) -> tuple[int, list[tuple[str, str]]]:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    units, pairs = json.loads(out)
    return units, [tuple(pair) for pair in pairs]


def test_every_pair_in_units_of_row_groups(wmt14, hub_python):
    units, pairs = read(hub_python(READ, "train", 60))
    assert units == 24  # three files of eight row groups
    assert sorted(pairs) == sorted(wmt14)
    assert len(read(hub_python(READ, "test", 60))[1]) == 20


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "path": r"^/lfs/", "status": 503, "times": 8},  # more than any client of itself bears
        {"kind": "status", "path": r"^/lfs/", "status": 404, "times": 3},  # a shard that vanishes and comes back
        {"kind": "truncate", "path": r"^/lfs/", "after": 1000, "times": 20},
        {"kind": "reset", "path": r"^/lfs/", "after": 1000, "times": 20},
        {"kind": "drop", "path": r"^/(lfs|api)/", "times": 12},
    ],
    ids=lambda fault: f"{fault['kind']} {fault.get('status', '')}",
)
def test_broken_answers_lose_no_pair_and_repeat_none(wmt14, hub, hub_python, fault):
    injected = hub.fault(**fault, skip=8)
    _, pairs = read(hub_python(READ, "train", 60))
    assert sorted(pairs) == sorted(wmt14)
    assert injected["hits"] == fault["times"]


def test_an_outage_is_sat_out(wmt14, hub, hub_python):
    stalled = hub.fault("stall", r"^/lfs/", skip=10, delay=2)
    process = hub_python(READ, "train", 60)
    while not stalled["hits"]:
        assert process.poll() is None
        time.sleep(0.05)
    hub.down()  # in the middle of an answer
    served = len(hub.log)
    time.sleep(5)
    hub.up()
    _, pairs = read(process)
    assert sorted(pairs) == sorted(wmt14)
    assert len(hub.log) > served


def test_what_does_not_come_back_is_given_up(wmt14, hub, hub_python):
    hub.fault("status", r"^/lfs/", skip=8, times=10_000)
    process = hub_python(READ, "train", 3)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "trying again in 2 seconds, from the same place" in errors
    assert "wmt/wmt14 (de-en, train) cannot be read any more: nothing has come for" in errors


def test_a_dataset_that_never_was_is_told_at_once(hub, hub_python):
    process = hub_python(READ, "train", 3600)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "There is no wmt/wmt14 (de-en, train), or not for you" in errors
