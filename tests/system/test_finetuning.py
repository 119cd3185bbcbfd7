"""`vanilla-transformer finetune`, as a process: transformers' own Trainer on our models and on Marian's."""

import json
import re
import shutil
import sys
import unicodedata
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, EvalPrediction, GenerationConfig

from vanilla_transformer import phrasebook, score_translations, translate
from vanilla_transformer.cli import main
from vanilla_transformer.training.finetuning import FinetuningArguments, Pairs, with_adapters

from .conftest import finished, json_of, lines_of, refused, write_marian, write_small_model, written


IN_OTHER_ORDER = {"train_sampling_strategy": "group_by_length"}  # Trainer validates in this order too
NEW = ["Donaudampf", "<formal>"]


@pytest.fixture(scope="module")
def pulled(tmp_path_factory) -> Path:
    """A folder with a saved model, and pairs for training and validation, some of them with new words."""
    folder = tmp_path_factory.mktemp("finetuning")
    rows = list(islice(phrasebook("train"), 200))
    for row in rows[::4]:
        row.update(en=f"<formal> {row['en']}", de=f"Donaudampf {row['de']}")
    write_small_model(folder / "base", (text for row in rows for text in row.values()), num_beams=2)
    for name, chosen in (("train", rows), ("validation", rows[:6])):
        written(folder / f"{name}.jsonl", (json.dumps({"translation": row}, ensure_ascii=False) for row in chosen))
    return folder


def finetune(output: Path, *more: str, **options) -> list[str]:
    """The arguments of the command."""
    given = {
        "model_name_or_path": "base", "train_file": "train.jsonl", "validation_file": "validation.jsonl",
        "source_language": "en", "target_language": "de", "output_dir": output, "learning_rate": 0.005,
        "max_steps": 12, "logging_steps": 1, **options,
    }  # fmt: skip
    words = [str(word) for name, value in given.items() if value is not None for word in (f"--{name}", value)]
    return ["finetune", *words, "--use_cpu", *more]


def losses(output: Path) -> list[float]:
    history = json_of(output / "trainer_state.json")["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


@pytest.fixture(scope="module")
def tuned(pulled) -> Path:
    """A fully fine-tuned model, validated at the end."""
    output = pulled / "tuned"
    arguments = ("--do_train", "--do_eval", "--predict_with_generate", "--metric", "sacrebleu", "chrf")
    words = finetune(output, *arguments, save_steps=6, num_beams=3, **IN_OTHER_ORDER)
    told = finished(*words, cwd=pulled).stderr
    assert "parameters learn" in told
    assert "pairs to train on" in told
    assert "Warning" not in told
    return output


def test_finetuning_learns_and_saves_a_complete_model(pulled, tuned):
    assert losses(tuned)[-1] < losses(tuned)[0] - 0.3
    before, after = load_file(pulled / "base" / "model.safetensors"), load_file(tuned / "model.safetensors")
    assert before.keys() == after.keys()
    assert not any(torch.equal(before[name], after[name]) for name in before if "weight" in name)
    assert (tuned / "checkpoint-6").is_dir()
    card = (tuned / "README.md").read_text()
    assert "train.jsonl" in card
    assert "- translation\n" in card


def test_recorded_scores_match_the_saved_model(pulled, tuned):
    results = json_of(tuned / "eval_results.json")
    rows = [json.loads(line)["translation"] for line in lines_of(pulled / "validation.jsonl")]
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(tuned), AutoTokenizer.from_pretrained(tuned)
    found = translate(model, tokenizer, [row["en"] for row in rows], num_beams=3)
    references = [row["de"] for row in rows]
    for score in score_translations(found, references, ["sacrebleu", "chrf"], target_language="de"):
        assert results[f"eval_{score.metric}"] == pytest.approx(score.value)
        assert results[f"eval_{score.metric}_signature"] == score.signature
    assert results["eval_chrf"] > 0


def test_scoring_uses_raw_references_in_any_order(pulled, tmp_path):
    # One is not NFC, and the tokenizer reads it as the next one.
    texts = [
        "Der Hund ist alt.",
        "Die Ka\u0308tzchen schlafen.",
        "Die Kätzchen schlafen.",
        "Ich bin hier, und du?",
        "Nein.",
    ]
    file = written(tmp_path / "pairs.jsonl", (json.dumps({"en": "Hello.", "de": text}) for text in texts))
    tokenizer = AutoTokenizer.from_pretrained(pulled / "base")
    arguments = FinetuningArguments("base", "en", "de", validation_file=[file])
    pairs = Pairs(arguments, tokenizer)
    labels = pairs.for_validation()["labels"][::-1]
    longest = 3 + max(map(len, labels))
    guesses = [tokenizer(text_target="Ja.").input_ids, *labels[1:]]  # all but one are right
    translations = np.array([[0, *ids] + [-100] * (longest - len(ids)) for ids in guesses])
    padded = np.array([ids + [-100] * (40 - len(ids)) + [tokenizer.pad_token_id] * 5 for ids in labels])
    said = [*(unicodedata.normalize("NFC", text) for text in texts[:4]), "Ja."]
    [expected] = score_translations(said, texts, ["sacrebleu"], target_language="de")
    assert 50 < expected.value < 100
    assert pairs.score(EvalPrediction(translations, padded)) == {"sacrebleu": pytest.approx(expected.value)}
    assert pairs.signatures == {"eval_sacrebleu_signature": expected.signature}


@pytest.mark.slow
def test_resumed_run_ends_with_the_same_weights(pulled, tuned):
    expected = load_file(tuned / "model.safetensors")
    shutil.rmtree(tuned / "checkpoint-12")
    (tuned / "model.safetensors").unlink()
    state = tuned / "checkpoint-6" / "trainer_state.json"
    state.write_text(re.sub(r'"loss": [\d.]+', '"loss": 99.0', state.read_text(), count=1))  # marks this run's history
    assert refused(*finetune(tuned, "--do_train", **IN_OTHER_ORDER), cwd=pulled) == (
        f"vanilla-transformer: {tuned} has checkpoints: go on with --resume_from_checkpoint last, or name another "
        "folder."
    )
    words = finetune(tuned, "--do_train", resume_from_checkpoint="last", save_steps=6, **IN_OTHER_ORDER)
    finished(*words, cwd=pulled)
    found = load_file(tuned / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert losses(tuned)[0] == 99.0
    assert len(losses(tuned)) == 12


@pytest.mark.slow
def test_adapters_and_new_tokens_train_resume_and_merge(pulled):
    """Only the adapters and the new rows change, also after a resume and a merge."""
    output = pulled / "adapters"
    arguments = ("--do_train", "--new_tokens", *NEW)
    options = {"lora_rank": 4, "save_steps": 6, "learning_rate": 0.02, "lr_scheduler_type": "constant"}
    begun = finetune(output, *arguments, **(options | {"max_steps": 6}))
    assert "Warning" not in finished(*begun, cwd=pulled).stderr
    finished(*finetune(output, *arguments, resume_from_checkpoint="last", **options), cwd=pulled)
    assert len(losses(output)) == 12
    assert losses(output)[-1] < losses(output)[0] - 0.1
    stored = load_file(output / "adapter_model.safetensors")
    kinds = {name.rpartition(".")[0].split(".")[-1] for name in stored}
    assert kinds == {"lora_A", "lora_B", "token_adapter", "base_layer"}  # PEFT also saves a resized embedding
    assert not (output / "model.safetensors").exists()

    tokenizer = AutoTokenizer.from_pretrained(output)
    base = AutoModelForSeq2SeqLM.from_pretrained(pulled / "base")
    old = base.get_input_embeddings().num_embeddings
    assert tokenizer.convert_tokens_to_ids(NEW) == [old, old + 1]
    base.resize_token_embeddings(len(tokenizer))
    model = PeftModel.from_pretrained(base, output)
    texts = ["<formal> I am here.", "The dog is old."]
    found = translate(model, tokenizer, texts)

    merged = pulled / "merged"
    finished(*finetune(merged, *arguments, "--merge_adapter", **(options | {"save_steps": 12})), cwd=pulled)
    whole = load_file(merged / "model.safetensors")
    unchanged = load_file(pulled / "base" / "model.safetensors")
    projections = {name for name in unchanged if name.endswith(("q_proj.weight", "v_proj.weight"))}
    assert projections
    for name, value in unchanged.items():
        assert torch.equal(whole[name][: len(value)], value) == (name not in projections), name
    assert whole["model.shared.weight"].shape[0] == len(tokenizer)
    model = AutoModelForSeq2SeqLM.from_pretrained(merged)
    assert model.lm_head.weight is model.model.shared.weight
    assert translate(model, AutoTokenizer.from_pretrained(merged), texts) == found  # the same run, without a stop


@pytest.mark.slow
def test_marian_model_can_be_finetuned(pulled):
    write_marian(pulled / "marian")
    model = AutoModelForSeq2SeqLM.from_pretrained(pulled / "marian")
    model.generation_config = GenerationConfig(**{**model.generation_config.to_dict(), "max_length": None})
    model.save_pretrained(pulled / "marian")
    arguments = ("--do_train", "--do_eval", "--predict_with_generate", "--new_tokens", *NEW, "--merge_adapter")
    options = {"max_target_length": 70, "max_eval_samples": 2, "lora_rank": 2, "num_beams": 2}
    options |= {"model_name_or_path": "marian", "max_steps": 2}
    finished(*finetune(pulled / "marian_tuned", *arguments, **options), cwd=pulled)
    tuned = AutoModelForSeq2SeqLM.from_pretrained(pulled / "marian_tuned")
    assert tuned.config.vocab_size == model.config.vocab_size + 2
    arguments = torch.load(pulled / "marian_tuned" / "training_args.bin", weights_only=False)
    assert arguments.generation_max_length == 70  # this model sets no limit, and transformers' default is 20
    results = json_of(pulled / "marian_tuned" / "eval_results.json")
    assert results["eval_sacrebleu_signature"].startswith("nrefs:1")
    assert results["eval_loss"] > 0


WRONG = [
    ((), {}, "There is nothing to do"),
    (("--do_train",), {"train_file": None}, "There are no pairs to train on: give --dataset_name or"),
    (("--do_eval", "--do_predict"), {}, "translate --model"),
    (("--do_train", "--merge_adapter"), {}, "--merge_adapter needs adapters: give --lora_rank."),
    (("--do_train", "--max_train_samples=0"), {}, "--max_train_samples must be at least 1, not 0."),
    (("--do_eval", "--metric", "blue"), {}, "unknown metric 'blue'"),
    (("--do_train", "--r_drop_alpha=-1"), {}, "--r_drop_alpha must be at least 0 and finite, not -1.0."),
    (("--do_train", "--new_tokens", "ä"), {}, "The vocabulary has ä already: leave that out of"),
    (("--do_train",), {"target_language": "fr"}, "train.jsonl, line 1 has no text for 'fr'"),
    (("--do_train",), {"lora_alpha": 7}, "--lora_alpha needs adapters: give --lora_rank"),
    (("--do_eval",), {"num_beams": 3}, "--metric and --num_beams are for translations: give --predict_with_generate"),
    (("--do_eval",), {"metric_for_best_model": "ter"}, "ter needs --greater_is_better False"),
    (("--do_train",), {"max_source_length": 2}, "No pair is left to train on: raise --max_source_length"),
]


def test_invalid_arguments_are_rejected(pulled, tmp_path, monkeypatch, capsys):
    """Runs in this process, which has already imported everything."""
    monkeypatch.chdir(pulled)
    for arguments, options, told in WRONG:
        assert main(finetune(tmp_path / "out", *arguments, **options)) == 1
        assert told in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()


def test_r_drop_is_off_unless_requested(pulled, tuned, tmp_path, monkeypatch):
    monkeypatch.chdir(pulled)
    base = shutil.copytree(pulled / "base", tmp_path / "base")
    config = json_of(base / "config.json")
    (base / "config.json").write_text(json.dumps({**config, "r_drop_alpha": 5.0}), encoding="utf-8")
    first = {}
    for alpha, more in ((0.0, ()), (3.0, ("--r_drop_alpha", "3"))):
        output = tmp_path / str(alpha)
        options = {"model_name_or_path": base, "max_steps": 1, "save_strategy": "no", **IN_OTHER_ORDER}
        assert main(finetune(output, "--do_train", *more, **options)) == 0
        assert json_of(output / "config.json")["r_drop_alpha"] == alpha
        [first[alpha]] = losses(output)
    assert first[0.0] == losses(tuned)[0] < first[3.0]


def test_label_smoothing_is_the_models_unless_given(pulled, tmp_path, monkeypatch):
    monkeypatch.chdir(pulled)
    base = shutil.copytree(pulled / "base", tmp_path / "base")
    config = json_of(base / "config.json")
    (base / "config.json").write_text(json.dumps({**config, "label_smoothing": 0.5}), encoding="utf-8")
    first = []
    none, r_drop = ("--label_smoothing_factor", "0"), ("--r_drop_alpha", "3")
    for smoothing, more in ((0.5, ()), (0.0, none), (0.0, (*none, *r_drop))):
        output = tmp_path / str(len(first))
        options = {"model_name_or_path": base, "max_steps": 1, "save_strategy": "no", **IN_OTHER_ORDER}
        assert main(finetune(output, "--do_train", *more, **options)) == 0
        assert json_of(output / "config.json")["label_smoothing"] == smoothing
        first += losses(output)
    assert first[1] < first[0]
    assert first[1] < first[2]


def test_missing_peft_error_names_the_remedy(pulled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    arguments = FinetuningArguments("base", "en", "de", lora_rank=2)
    with pytest.raises(ImportError, match=r"pip install 'vanilla-transformer\[finetune\]'"):
        with_adapters(None, arguments, [])
