"""`vanilla-transformer plot` draws schedules, and rejects bad arguments before it loads a model."""

import pytest

from vanilla_transformer.commands.plot import plot
from vanilla_transformer.commands.process import UsageError

from .conftest import assert_is_a_picture


def test_warmup_of_any_length_is_drawn(path, panels):
    plot("schedule", ["512:50000000", "256:4000"], output=path)
    assert_is_a_picture(path)
    long, short = (line.get_xydata() for line in panels[0].lines)
    assert len(long) < 10_000
    assert long[:, 0].max() > 200_000_000
    for line, warmup in ((long, 50_000_000), (short, 4000)):
        assert line[line[:, 1].argmax(), 0] == warmup


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (["schedule", f"512:{10**13}"], {}, "is not a schedule"),
        (["positions"], {"layer": 0}, "--layer is for attention"),
        (["attention", "MODEL", " \n"], {}, "The sentence is blank"),
    ],
)
def test_invalid_arguments_are_rejected(path, words, options, message):
    with pytest.raises(UsageError, match=message):
        plot(words[0], words[1:], output=path, **options)
    assert list(path.parent.iterdir()) == []


def test_unusable_output_path_is_rejected_first(path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*missing to write a\.png to"):
        plot("attention", ["no model", "A dog."], output=path.parent / "missing" / "a.png")
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=f"{path} is a folder"):
        plot("attention", ["no model", "A dog."], output=path)
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        plot("attention", ["no model", "A dog."], output=path.with_suffix(".jpg"))
