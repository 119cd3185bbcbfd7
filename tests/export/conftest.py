"""What every export is tried on."""

from itertools import islice

import pytest

from vanilla_transformer import TokenizerSettings, learn_tokenizer, phrasebook


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [row["en"] for row in islice(phrasebook("test"), 24)]


@pytest.fixture(scope="module")
def tokenizer():
    rows = islice(phrasebook("train"), 200)
    return learn_tokenizer((text for row in rows for text in row.values()), TokenizerSettings(vocab_size=300))
