"""What all tests share."""

import os
from pathlib import Path

import pytest


# The clients must not look for the Hub, whatever a test asks them for.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    """Public data beside the repository, for tests that also look at real text."""
    if not SHARED.is_dir():
        pytest.skip("the data folder ../shared/data is not there")
    return SHARED
