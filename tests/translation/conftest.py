"""Sentences, some of them blank, and a tokenizer that knows their characters."""

import pytest

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


SENTENCES = [
    "A man sees the dog.",
    "",
    "The little girl runs across the street and a dog runs after her. No. A dog sees the little girl.",
    "No.",
    " \t",
    "Two men play football in the park.",
    "Straße äöü 日本 🙂",
]


@pytest.fixture(scope="session")
def tokenizer():
    return learn_tokenizer(SENTENCES * 2, TokenizerSettings(vocab_size=280))
