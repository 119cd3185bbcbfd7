"""A small corpus, a small recipe and one small trained run, shared by all tests of the command line."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import sentencepiece
import torch
import yaml
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer, set_seed

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config

from ..model.conftest import build_model
from ..warm_python import PACKAGE


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
  metrics: [chrf, sacrebleu, exact_match]  # after so few updates only chrF is above 0
  examples: []  # drawing the attention on one takes as long as the training
"""
# A normal exit spends half a second on tearing down the imported modules.
COMMAND = """
import os, sys
from vanilla_transformer.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as error:
    status = error.code
sys.stdout.flush()
os._exit(status)
"""


def command(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs `vanilla-transformer` in its own process, as a user does."""
    return PACKAGE.run(COMMAND, *arguments, **options)


def finished(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs a command that must succeed."""
    done = command(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def output_of(*arguments, **options) -> str:
    return finished(*arguments, **options).stdout


def refused(*arguments, status: int = 1, **options) -> str:
    """Returns the last line of stderr of a command that must fail. Bad usage (2) prints the usage before it."""
    done = command(*arguments, **options)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert ("usage: " in done.stderr) == (status == 2)
    return done.stderr.splitlines()[-1]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def json_of(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def losses(folder: Path) -> dict[int, float]:
    """The loss of each update of a run."""
    records = map(json.loads, lines_of(folder / "log.jsonl"))
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def assert_same_run(folder: Path, expected: Path) -> None:
    """Every update had the same loss in the same epoch, and the models are equal bit for bit."""
    assert losses(folder) == losses(expected)
    found, epochs = (
        [record["epoch"] for record in map(json.loads, lines_of(each / "log.jsonl"))] for each in (folder, expected)
    )
    assert found == epochs == sorted(epochs)
    for weights in [
        f"{model}/model.safetensors" for model in ("averaged", "best", "ema") if (expected / model).exists()
    ]:
        assert (folder / weights).read_bytes() == (expected / weights).read_bytes()


def write_small_model(folder: Path, texts: Iterable[str], **decoding) -> None:
    """Writes an untrained model of the recipe's size, with a tokenizer learned from these texts."""
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=400))
    set_seed(0)
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **yaml.safe_load(RECIPE)["model"])
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(config, **decoding)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_marian(folder: Path) -> None:
    """Writes a Marian model with random weights and a SentencePiece tokenizer, in a folder laid out like OPUS-MT's."""
    folder.mkdir(parents=True)
    rows = list(islice(phrasebook("train"), 400))
    pieces = {}
    for name, language in (("source", "en"), ("target", "de")):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([row[language] for row in rows]), model_prefix=str(folder / name), vocab_size=150,
            minloglevel=2,
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        for line in lines_of(folder / f"{name}.vocab"):
            pieces[line.split("\t")[0]] = None
    words = ["</s>", "<unk>", *(piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")), "<pad>"]
    vocabulary = {piece: number for number, piece in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tokenizer = MarianTokenizer(str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json"))
    tokenizer.save_pretrained(folder)
    pad = vocabulary["<pad>"]
    config = MarianConfig(
        vocab_size=len(words), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, activation_function="swish",
        scale_embedding=True, max_position_embeddings=512, pad_token_id=pad, decoder_start_token_id=pad,
        bos_token_id=0, eos_token_id=0, forced_eos_token_id=0, init_std=0.3,
    )  # fmt: skip
    set_seed(0)
    model = MarianMTModel(config)
    model.final_logits_bias.normal_()
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=64, bad_words_ids=[[pad]], pad_token_id=pad, decoder_start_token_id=pad,
        bos_token_id=0, eos_token_id=0, forced_eos_token_id=0, renormalize_logits=True,
    )  # fmt: skip
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for split, pairs in (("train", 600), ("validation", 12), ("test", 12)):
        rows = list(islice(phrasebook(split), pairs))
        for language in ("en", "de"):
            written(folder / f"{split}.{language}", (row[language] for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(corpus, tmp_path_factory) -> Path:
    """A finished run folder."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    examples = ("--evaluation.examples", "[The dog is old.]")
    finished("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder, *examples)
    return folder


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A separate disk of 32 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "none", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="session")
def random_translator(tmp_path_factory) -> Path:
    """A model with random weights: its translations differ for every sentence and hardly ever end by themselves."""
    tokenizer = learn_tokenizer((row["en"] for row in islice(phrasebook("train"), 200)), TokenizerSettings("bpe", 300))
    model = build_model(seed=5, vocab_size=300, d_model=32, norm_first=True, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight *= 3
    model.generation_config = paper_generation_config(model.config)
    folder = tmp_path_factory.mktemp("random_translator") / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
