"""Fixtures and checks shared by the tests of all pictures."""

import warnings

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread


LOG = [
    {"step": 100, "loss": 6.1, "learning_rate": 1e-4, "elapsed_seconds": 31.0},
    {"step": 100, "eval_loss": 5.5, "eval_perplexity": 244.7, "eval_bleu": 1.3, "elapsed_seconds": 33.0},
    {"step": 200, "loss": 4.2, "learning_rate": 2e-4, "elapsed_seconds": 64.0},
    {"step": 200, "eval_loss": 3.9, "eval_perplexity": 49.4, "eval_bleu": 17.0, "elapsed_seconds": 66.0},
    {"step": 200, "train_loss": 5.15, "train_runtime": 66.0},
]


def assert_is_a_picture(path):
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(path)[..., :3]
    height, width = pixels.shape[:2]
    assert 300 < width < 6000
    assert 300 < height < 6000
    assert pixels.var() > 1e-3
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing is left beside it


@pytest.fixture(autouse=True)
def every_warning_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "picture.png"


@pytest.fixture
def panels(monkeypatch):
    """The axes of the next figure, captured when it is saved."""
    seen = []
    save = Figure.savefig

    def savefig(figure, *arguments, **settings):
        seen.extend(figure.axes)
        return save(figure, *arguments, **settings)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return seen
