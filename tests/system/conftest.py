"""A small corpus, a small recipe, and one small trained run for all tests of the command line."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from vanilla_transformer.data.phrasebook import phrasebook


RECIPE = """
description: A run of seconds for tests.
data:
  source_language: en
  target_language: de
  train: [train.en, train.de]
  validation: [validation.en, validation.de]
  test:
    small: [test.en, test.de]
tokenizer:
  vocab_size: 400
model:
  d_model: 32
  encoder_layers: 1
  decoder_layers: 1
  encoder_attention_heads: 2
  decoder_attention_heads: 2
  encoder_ffn_dim: 64
  decoder_ffn_dim: 64
training:
  max_tokens: 512
  max_steps: 24
  warmup_steps: 10
  eval_steps: 8
  save_steps: 8
  logging_steps: 1
  average_last: 2
  generation_num_beams: 1
decoding:
  num_beams: 2
evaluation:
  metrics: [sacrebleu, exact_match]
  examples: [The dog is old.]
"""


def command(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs `vanilla-transformer` as a process of its own, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "vanilla_transformer.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
        **options,
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for split, pairs in (("train", 600), ("validation", 12), ("test", 12)):
        rows = list(islice(phrasebook(split), pairs))
        for language in ("en", "de"):
            text = "".join(f"{row[language]}\n" for row in rows)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(corpus, tmp_path_factory) -> Path:
    """A finished run folder."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    done = command("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder
