"""Streams from the Hub yield the right pairs, whatever breaks."""

import json
import time
from functools import partial

import pytest

from .conftest import ended, parquet_file


slow = partial(pytest.param, marks=pytest.mark.slow)
TOO_MANY = {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}}
READ = """
import json, sys
from vanilla_transformer.data.corpora import open_stream
corpus = {"hub": "wmt/wmt14", "config": "de-en", "split": sys.argv[1]}
stream = open_stream(corpus, "en", "de", patience=float(sys.argv[2]))
print(json.dumps([stream.units, [pair for unit in range(stream.units) for pair in stream.read(unit)]]))
"""


def read(process) -> tuple[int, list[tuple[str, str]]]:
    units, pairs = json.loads(ended(process)[0])
    return units, [tuple(pair) for pair in pairs]


def test_stream_yields_every_pair_in_row_group_units(wmt14, hub_python):
    units, pairs = read(hub_python(READ, "train", 60))
    assert units == 24  # three files of eight row groups
    assert sorted(pairs) == sorted(wmt14)
    assert len(read(hub_python(READ, "test", 60))[1]) == 20


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "path": r"^/lfs/", "status": 503, "times": 8},  # more than any client retries by itself
        slow({"kind": "status", "path": r"^/lfs/", "status": 404, "times": 3}),  # a shard that vanishes and comes back
        slow({"kind": "truncate", "path": r"^/lfs/", "after": 1000, "times": 20}),
        {"kind": "reset", "path": r"^/lfs/", "after": 1000, "times": 20},
        {"kind": "drop", "path": r"^/(lfs|api)/", "times": 12},
        slow({"kind": "short", "path": r"^/lfs/", "after": 1000, "times": 2}),
        slow({"kind": "page", "path": r"^/lfs/", "times": 2}),
        slow({**TOO_MANY, "path": r"^/lfs/", "times": 8}),
    ],
    ids=lambda fault: f"{fault['kind']} {fault.get('status', '')}",
)
def test_broken_answers_neither_lose_nor_repeat_pairs(wmt14, hub, hub_python, fault):
    injected = hub.fault(**fault, skip=8)
    _, pairs = read(hub_python(READ, "train", 60))
    assert sorted(pairs) == sorted(wmt14)
    assert injected["hits"] == fault["times"]


@pytest.mark.slow
def test_stream_survives_an_outage(wmt14, hub, hub_python):
    stalled = hub.fault("stall", r"^/lfs/", skip=10, delay=2)
    process = hub_python(READ, "train", 60)
    process.until(lambda: stalled["hits"])
    hub.down()  # in the middle of an answer
    served = len(hub.log)
    time.sleep(5)
    hub.up()
    _, pairs = read(process)
    assert sorted(pairs) == sorted(wmt14)
    assert len(hub.log) > served


def test_stream_gives_up_on_lasting_failure(wmt14, hub, hub_python):
    hub.fault("status", r"^/lfs/", skip=8, times=10_000)
    _, errors = ended(hub_python(READ, "train", 3), 1)
    assert "trying again in 2 seconds, from the same place" in errors
    assert "wmt/wmt14 (de-en, train) cannot be read any more: nothing has come for" in errors


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "path": "README", "status": 503, "times": 8},
        slow({"kind": "drop", "path": "README", "times": 3}),
        slow({"kind": "page", "path": "/revision/", "times": 2}),
        slow({**TOO_MANY, "path": ".", "times": 3}),
    ],
    ids=lambda fault: f"{fault['kind']} {fault['path']}",
)
def test_opening_survives_broken_answers(wmt14, hub, hub_python, fault):
    injected = hub.fault(**fault)
    assert sorted(read(hub_python(READ, "train", 60))[1]) == sorted(wmt14)
    assert injected["hits"] == fault["times"]


def test_opening_waits_for_an_unreachable_hub(wmt14, hub, hub_python):
    hub.down()
    process = hub_python(READ, "train", 60)
    assert "wmt/wmt14 (de-en, train) cannot be reached (ConnectError" in process.stderr.readline()
    hub.up()
    assert sorted(read(process)[1]) == sorted(wmt14)


@pytest.mark.parametrize("refused", ["token", "forbidden", "missing"])
def test_refused_access_is_reported_without_retrying(wmt14, hub, hub_python, refused):
    if refused == "forbidden":
        hub.fault("status", "/api/", status=403, times=10_000)
    elif refused == "missing":
        hub.repos.clear()
    process = hub_python(READ, "train", 3600, **({"HF_TOKEN": "hf_wrong"} if refused == "token" else {}))
    _, errors = ended(process, 1)
    assert "wmt/wmt14 (de-en, train) does not exist, or you may not read it (" in errors
    assert "trying again" not in errors


def test_files_without_rows_are_skipped(hub, hub_python):
    pairs = [(f"a {number}", f"b {number}") for number in range(30)]
    parts = [[], pairs[:10], [], pairs[10:], []]
    files = {f"train-{n:05d}-of-00005.parquet": parquet_file(part, rows_per_group=7) for n, part in enumerate(parts)}
    card = b"---\nconfigs:\n- config_name: de-en\n  data_files:\n  - split: train\n    path: train-*\n---\n"
    hub.seed("dataset", "wmt/wmt14", {"README.md": card, **files})
    assert read(hub_python(READ, "train", 5))[1] == pairs


def test_stream_reports_whether_its_units_are_bounded(wmt14, hub, hub_python):
    card = b"---\nconfigs:\n- config_name: lines\n  data_files:\n  - split: train\n    path: train.jsonl\n---\n"
    hub.seed("dataset", "acme/lines", {"README.md": card, "train.jsonl": b'{"en": "a", "de": "b"}\n' * 5})
    code = """if True:
        from vanilla_transformer.data.corpora import open_stream
        for name, config in (("wmt/wmt14", "de-en"), ("acme/lines", "lines")):
            stream = open_stream({"hub": name, "config": config}, "en", "de", patience=10)
            print(stream.bounded, sum(1 for unit in range(stream.units) for pair in stream.read(unit)))
    """
    assert ended(hub_python(code))[0] == "True 1200\nFalse 5\n"


BEGIN = """
import json, os, sys
from vanilla_transformer.data.corpora import open_stream
begun = json.loads(sys.argv[2])
stream = open_stream({"hub": "wmt/wmt14", "config": "de-en", **json.loads(sys.argv[1])}, "en", "de", begun=begun)
print(json.dumps([stream.identity, stream.fingerprint, [pair for n in range(stream.units) for pair in stream.read(n)]]))
"""


@pytest.mark.slow
def test_resumed_stream_keeps_its_commit(wmt14, hub, hub_python):
    def opened(begun=None, **where):
        out, errors = hub_python(BEGIN, json.dumps(where), json.dumps(begun)).communicate(timeout=120)
        return errors if not out else json.loads(out)

    begun, fingerprint, pairs = opened()
    repository = hub.repos["dataset", "wmt/wmt14"]
    old = repository.commit("main")["oid"]
    files = [path for path in repository.commit("main")["files"] if "train" in path]
    new = hub.seed("dataset", "wmt/wmt14", dict.fromkeys(files, parquet_file([("new", "neu")])))
    assert begun["revision"] == old != new
    assert opened(begun) == [begun, fingerprint, pairs]
    assert opened(begun, revision=old) == [begun, fingerprint, pairs]  # explicitly pinned in the meantime
    assert opened()[0]["revision"] == new
    for asked in ("main", new):  # an explicit revision wins
        identity, other, pairs = opened(begun, revision=asked)
        assert (identity["revision"], pairs) == (new, [["new", "neu"]] * 3)
        assert other != fingerprint
    del repository.commits[old]
    errors = opened(begun)
    assert f"The work was begun with commit {old} and cannot continue without it: start over" in errors
