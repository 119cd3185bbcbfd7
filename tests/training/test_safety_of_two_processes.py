"""Two processes skip the same updates, also if only one of them saw something odd, and one of them reports."""

import json
from pathlib import Path

import pytest
import torch

from tests.warm_python import PACKAGE, all_completed


SCRIPT = """
import json, math, sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import set_seed

from tests.training.conftest import QUIET, SIZES
from tests.training.test_safety import PoisonedLoss
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.training.trainer import VanillaTransformerTrainer

folder = Path(sys.argv[1])
set_seed(0)
tokenizer = learn_tokenizer(["a tiny vocabulary of tiny words"] * 3, TokenizerSettings(vocab_size=264))
texts = [{"source": f"a tiny w{i}", "target": f"tiny words {i}"} for i in range(12)]
rows = [{"input_ids": tokenizer(t["source"]).input_ids, "labels": tokenizer(t["target"]).input_ids} for t in texts]
model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(vocab_size=len(tokenizer), **SIZES))
options = {**QUIET, "max_steps": 9, "max_tokens": 30, "max_skipped_updates": 2}
arguments = VanillaTransformerTrainingArguments(str(folder / "checkpoints"), **options)
updates = {1, 3, 4} if arguments.process_index == 1 else set()
trainer = VanillaTransformerTrainer(
    model, arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
    callbacks=[PoisonedLoss(model, updates, lambda loss: loss + math.inf)],
)
try:
    trainer.train()
    error = None
except FloatingPointError as stopped:
    error = str(stopped)
torch.save(model.state_dict(), folder / f"{arguments.process_index}.pt")
told = {"error": error, "update": trainer.state.global_step, "log": trainer.state.log_history}
(folder / f"{arguments.process_index}.json").write_text(json.dumps(told))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    with PACKAGE.together(2, SCRIPT, folder, cwd=Path(__file__).parents[2]) as running:
        for done in all_completed(running):
            assert done.returncode == 0, done.stderr
    return folder


def told(folder):
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def test_both_skip_the_same_updates_and_stop(folder):
    one, other = told(folder)
    assert one["update"] == other["update"] == 4
    assert one["error"] == other["error"]
    assert "Stopped after update 4: 2 updates in a row" in one["error"]
    assert [record["skipped_updates"] for record in one["log"] if "loss" in record] == [1, 0, 1, 1]
    weights = [torch.load(folder / f"{rank}.pt") for rank in range(2)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert all(torch.isfinite(weight).all() for weight in weights[0].values())


def test_the_pairs_of_both_are_in_one_file(folder):
    lines = (folder / "checkpoints" / "not_finite.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert f"The {len(rows)} pairs of update 4" in told(folder)[0]["error"]
    assert len({row["source"] for row in rows}) == len(rows) >= 4  # two batches without a pair in common
    assert all(row["update"] == 4 and row["target"] == f"tiny words {row['source'][8:]}" for row in rows)
