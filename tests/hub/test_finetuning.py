"""Fine-tuning a model from the Hub on a dataset from the Hub, and pushing it back, by ids alone."""

import json
from pathlib import Path

import pytest

from ..system.conftest import write_small_model
from ..warm_python import CLI
from .conftest import ended


TRANSLATE = """
import json, sys
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
import vanilla_transformer

base, name, adapted = sys.argv[1:]
models = [AutoModelForSeq2SeqLM.from_pretrained(base), AutoModelForSeq2SeqLM.from_pretrained(name)]
if adapted == "adapted":
    models.append(PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(base), name))
tokenizer = AutoTokenizer.from_pretrained(name)
print(json.dumps([vanilla_transformer.translate(model, tokenizer, ["The old teacher reads."]) for model in models]))
"""


def seed_model(hub, folder: Path, pairs: list[tuple[str, str]]) -> None:
    write_small_model(folder, (side for pair in pairs for side in pair))
    hub.seed("model", "someone/base", {path.name: path.read_bytes() for path in folder.iterdir()})


OPTIONS = """
--model_name_or_path someone/base --dataset_name wmt/wmt14 --dataset_config_name de-en --source_language en
--target_language de --learning_rate 0.02 --max_steps 4 --max_train_samples 100 --max_eval_samples 4
--save_strategy no --use_cpu --do_train --push_to_hub
"""


def finetune(hub_python, output: Path, *more: str) -> None:
    ended(hub_python(CLI, "finetune", *OPTIONS.split(), "--output_dir", output, *more))


def pushed(hub, name: str) -> dict[str, str]:
    return hub.repos["model", name].commit("main")["files"]


@pytest.mark.slow
def test_finetuned_hub_model_is_pushed_and_loads(wmt14, hub, hub_python, tmp_path):
    seed_model(hub, tmp_path / "base", wmt14)
    scored = ("--do_eval", "--predict_with_generate", "--num_beams", "2")
    finetune(hub_python, tmp_path / "whole", *scored, "--hub_model_id", "tester/whole")
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= pushed(hub, "tester/whole").keys()
    card = (tmp_path / "whole" / "README.md").read_text()
    assert "base_model: someone/base" in card
    assert "- wmt/wmt14" in card
    results = json.loads((tmp_path / "whole" / "eval_results.json").read_text())
    assert results["eval_sacrebleu_signature"].startswith("nrefs:1|case:mixed")
    before, after = json.loads(ended(hub_python(TRANSLATE, "someone/base", "tester/whole", "whole"))[0])
    assert before != after


@pytest.mark.slow
def test_finetuned_adapters_are_pushed_and_load(wmt14, hub, hub_python, tmp_path):
    seed_model(hub, tmp_path / "base", wmt14)
    finetune(hub_python, tmp_path / "adapter", "--lora_rank", "4", "--hub_model_id", "tester/adapter")
    assert "adapter_model.safetensors" in pushed(hub, "tester/adapter")
    assert "model.safetensors" not in pushed(hub, "tester/adapter")
    translations = json.loads(ended(hub_python(TRANSLATE, "someone/base", "tester/adapter", "adapted"))[0])
    before, by_its_own_name, on_the_base = translations  # where PEFT is installed, transformers finds the base itself
    assert by_its_own_name == on_the_base != before
