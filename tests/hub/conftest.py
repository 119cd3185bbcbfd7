"""A Hub on loopback for the real clients: forks of a process that has read its address, as they do at import."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from vanilla_transformer.data.phrasebook import phrasebook

from ..warm_python import WarmProcess, WarmPython
from .hubfaults import FaultyHub


# What clients import, which takes seconds. Not the package, for some clients must do without it. Shortens the pauses
# between tries, which would make every broken answer cost a minute.
CLIENT = """
import datasets, matplotlib.figure, transformers.pipelines, transformers.trainer
import datasets.config as settings
from huggingface_hub.utils import _http
from transformers import AutoModel, AutoTokenizer
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
get_checkpoint_conversion_mapping("")
for name in ("READ", "READ_SERVER_UNAVAILABLE", "READ_RATE_LIMIT", "OPEN"):
    setattr(settings, f"STREAMING_{name}_RETRY_INTERVAL", 0.01)
settings.USE_PARQUET_EXPORT = False
for function in (_http.http_backoff, _http.http_stream_backoff.__wrapped__):
    function.__kwdefaults__.update(base_wait_time=0.01, max_wait_time=0.02)
"""


class ServedHub(FaultyHub):
    """A Hub that must know every request it gets, and its clients.

    Attributes:
        home: The folder where clients keep what they read, `HF_HOME`.
    """

    def __init__(self, home: Path):
        super().__init__()
        self.home = home

    def __enter__(self) -> "ServedHub":
        super().__enter__()
        online, offline = self.env(self.home), {**self.env(self.home), "HF_HUB_OFFLINE": "1"}
        self._pythons = [
            WarmPython("torch", "pyarrow.parquet", code=CLIENT, environment=env) for env in (online, offline)
        ]
        return self

    @contextmanager
    def clients(self) -> Iterator[Callable[..., WarmProcess]]:
        """Starts Python code, with arguments, in processes that use this Hub and have nothing in their cache at first.

        Any still running at the end are killed.
        """
        shutil.rmtree(self.home, ignore_errors=True)
        with ExitStack() as stack:

            def start(code: str, *arguments, offline: bool = False, **environment) -> WarmProcess:
                process = self._pythons[offline].start(code, *arguments, environment=environment)
                stack.enter_context(process)
                stack.callback(process.kill)
                return process

            yield start
        assert not self.unhandled, self.unhandled


def ended(process: WarmProcess, status: int = 0) -> tuple[str, str]:
    """Waits for the process to end with this status; returns its output and errors."""
    out, errors = process.communicate(timeout=240)
    assert process.returncode == status, errors
    return out, errors


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[ServedHub]:
    with ServedHub(tmp_path_factory.mktemp("served") / "home") as hub:
        yield hub


@pytest.fixture
def hub(served) -> ServedHub:
    """A Hub with nothing on it."""
    served.reset()
    return served


@pytest.fixture
def hub_python(hub) -> Iterator[Callable[..., WarmProcess]]:
    with hub.clients() as start:
        yield start


def parquet_file(pairs: list[tuple[str, str]], languages=("en", "de"), rows_per_group: int = 1000) -> bytes:
    """Parquet as `datasets` writes translations."""
    source, target = languages
    kind = pa.struct([(source, pa.string()), (target, pa.string())])
    rows = pa.array([{source: a, target: b} for a, b in pairs], type=kind)
    features = {"translation": {"languages": [source, target], "_type": "Translation"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"translation": rows}).replace_schema_metadata(metadata)
    file = io.BytesIO()
    parquet.write_table(table, file, row_group_size=rows_per_group)
    return file.getvalue()


@pytest.fixture
def wmt14(hub) -> list[tuple[str, str]]:
    """Seeds wmt/wmt14 as it is laid out on the Hub; returns the training pairs (en, de), from the phrasebook."""
    train, held_out = (
        [(pair["en"], pair["de"]) for pair in islice(phrasebook(split), count)]
        for split, count in (("train", 1200), ("validation", 40))
    )
    files, card = {}, "---\nconfigs:\n"
    for config in ("de-en", "fr-en"):
        card += f"- config_name: {config}\n  data_files:\n"
        languages = tuple(config.split("-"))
        parts = {"train": [train[i::3] for i in range(3)], "validation": [held_out[:20]], "test": [held_out[20:]]}
        for split, shards in parts.items():
            card += f"  - split: {split}\n    path: {config}/{split}-*\n"
            for number, shard in enumerate(shards):
                turned = [(target, source) for source, target in shard]  # de-en: German comes first
                name = f"{config}/{split}-{number:05d}-of-{len(shards):05d}.parquet"
                files[name] = parquet_file(turned, languages, rows_per_group=50)
    hub.seed("dataset", "wmt/wmt14", {"README.md": f"{card}---\n".encode(), **files})
    return train
