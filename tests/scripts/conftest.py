"""The runnable files of scripts/, as modules."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch


SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))  # some import others, as they do when they are run


def load_script(name: str):
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(found)  # where dataclasses look their module up
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(autouse=True)
def same_settings_of_torch():
    """What scripts set for their process does not stay for the tests after them."""
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def complexity():
    return load_script("complexity")


@pytest.fixture(scope="session")
def paper_questions():
    """On a tenth of the text."""
    script = load_script("paper_questions")
    script.SENTENCES = 640
    return script


@pytest.fixture(scope="session")
def reproduce_table3():
    return load_script("reproduce_table3")


@pytest.fixture(scope="session")
def table3_results():
    return load_script("table3_results")


@pytest.fixture(scope="session")
def benchmark_training():
    return load_script("benchmark_training")
