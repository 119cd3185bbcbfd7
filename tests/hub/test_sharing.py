"""Publishing, and using what was published, with the real clients."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from tests.system.conftest import corpus, run  # noqa: F401  (fixtures)

from .conftest import clients_of, serving


NAME = "tester/small"

CLI = """
import sys
from vanilla_transformer.cli import main
sys.exit(main(sys.argv[1:]))
"""

# What people do with a model of the Hub. REMOTE: in a process that cannot import the package.
USE = """
import json, sys
REMOTE, revision = sys.argv[1] == "remote", sys.argv[2] if len(sys.argv) > 2 else None
trust = {"revision": revision}
if REMOTE:
    sys.modules["vanilla_transformer"] = None
    trust["trust_remote_code"] = True
else:
    import vanilla_transformer
import torch
from transformers import (
    AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline
)
name, texts = "tester/small", ["The dog is old.", "I am here."]
tokenizer = AutoTokenizer.from_pretrained(name, **trust)
model = AutoModelForSeq2SeqLM.from_pretrained(name, **trust).eval()
batch = tokenizer(texts, return_tensors="pt", padding=True)
ids = model.generate(**batch).tolist()
base = AutoModel.from_pretrained(name, **trust).eval()
classifier = AutoModelForSequenceClassification.from_pretrained(name, num_labels=3, **trust).eval()
assert AutoConfig.from_pretrained(name, **trust).model_type == "vanilla_transformer"
assert base(**batch, decoder_input_ids=batch.input_ids).last_hidden_state.shape[-1] == model.config.d_model
assert classifier(**batch).logits.shape == (2, 3)
translator = pipeline("translation_en_to_de", model=name, **trust)
print(json.dumps({
    "ids": ids,
    "texts": tokenizer.batch_decode(ids, skip_special_tokens=True),
    "pipeline": [each["translation_text"] for each in translator(texts)],
    "remote code": sorted(module for module in sys.modules if "transformers_modules.tester" in module) != [],
    "beams": model.generation_config.num_beams,
}))
"""


def finished(process, status=0) -> str:
    """What a process printed, or its errors if it was to end with some."""
    out, errors = process.communicate(timeout=180)
    assert process.returncode == status, errors
    return out if status == 0 else errors


def files_of(hub, revision="main") -> dict[str, bytes]:
    files = hub.repos["model", NAME].commit(revision)["files"]
    return {name: Path(hub.blob(entry["sha"])).read_bytes() for name, entry in files.items()}


def card_of(hub) -> str:
    return files_of(hub)["README.md"].decode()


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):  # noqa: F811
    """A Hub with a published run, which the tests leave as it is, and what publishing printed."""
    options = ("--license", "apache-2.0", "--dataset", "wmt/wmt14", "--title", "A small model", "--tag", "v1")
    with serving() as hub:
        with clients_of(hub, tmp_path_factory.mktemp("home")) as start:
            process = start(CLI, "publish", run, NAME, "--debug", *options)
            out, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
        yield hub, out, errors


@pytest.fixture
def use(published, tmp_path):
    """Starts Python code, in a process with an empty cache, on the published model."""
    with clients_of(published[0], tmp_path / "home") as start:
        yield start


@pytest.fixture
def publish(hub_python, run):  # noqa: F811
    def publish(*options, status=0, model=run, **environment):
        return finished(hub_python(CLI, "publish", model, NAME, *options, **environment), status)

    return publish


class TestPublish:
    def test_everything_is_there(self, published, run):  # noqa: F811
        hub, out, _ = published
        assert out.splitlines()[-1].startswith(f"{hub.url}/{NAME}/commit/")
        found = files_of(hub)
        assert {
            "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json", "recipe.yaml", "scores.json", "data.json", "environment.json", "log.jsonl",
            "learning_curve.png", "attention.png", "translations/small.jsonl", "modeling_vanilla_transformer.py",
            "pipeline_vanilla_transformer.py",
        } <= found.keys()  # fmt: skip
        assert found["model.safetensors"] == (run / "averaged" / "model.safetensors").read_bytes()
        assert hub.repos["model", NAME].commit("main")["files"]["model.safetensors"]["lfs"]
        assert hub.repos["model", NAME].commit("v1") == hub.repos["model", NAME].commit("main")
        assert not hub.repos["model", NAME].private
        auto_map = json.loads(found["config.json"])["auto_map"]
        assert {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification"} <= {*auto_map}

    def test_the_token_stays_where_it_is(self, published):
        # (The stub answers 400 to a token at its content host, which would have ended the upload.)
        hub, out, errors = published
        assert "hf_write" not in out + errors
        assert not [name for name, content in files_of(hub).items() if b"hf_write" in content]
        assert any(request["cdn"] for request in hub.log)
        assert not any(request["auth"] for request in hub.log if request["cdn"])

    def test_private_and_only_for_those_who_may(self, hub, publish, hub_python, tmp_path):
        publish("--private")
        assert hub.repos["model", NAME].private
        stranger = {"HF_TOKEN": "hf_read", "HF_HOME": str(tmp_path / "strangers")}
        errors = finished(hub_python(CLI, "translate", "--model", NAME, "I am here.", **stranger), 1)
        assert "no such model on the Hub, or not for you" in errors

    def test_without_the_right_token(self, hub, hub_python, run):  # noqa: F811
        processes = [hub_python(CLI, "publish", run, NAME, HF_TOKEN=token) for token in ("", "hf_wrong", "hf_read")]
        for process in processes:
            errors = finished(process, 1)
            assert "hf auth login" in errors.splitlines()[-1]
            assert "hf_wrong" not in errors
        assert ("model", NAME) not in hub.repos

    def test_a_branch_and_a_pull_request(self, hub, publish, run, tmp_path):  # noqa: F811
        publish()
        head = hub.repos["model", NAME].refs["refs/heads/main"]
        greedy = shutil.copytree(run, tmp_path / "greedy")
        path = greedy / "averaged" / "generation_config.json"
        path.write_text(path.read_text(encoding="utf-8").replace('"num_beams": 2', '"num_beams": 1'), encoding="utf-8")
        publish("--revision", "greedy", model=greedy)
        beams = [json.loads(files_of(hub, name)["generation_config.json"])["num_beams"] for name in ("greedy", "main")]
        assert beams == [1, 2]
        out = publish("--pull-request", "--message", "A better card", "--title", "Another title")
        assert "/discussions/" in out.splitlines()[-1]
        assert hub.repos["model", NAME].refs["refs/heads/main"] == head
        [request] = [name for name in hub.repos["model", NAME].refs if name.startswith("refs/pr/")]
        assert b"# Another title" in files_of(hub, request)["README.md"]

    def test_a_dry_run_sends_nothing(self, hub, publish):
        out = publish("--dry-run")
        assert re.search(r"^ +[\d,]+  model\.safetensors$", out, flags=re.MULTILINE)
        assert "README.md" in out
        assert hub.log == []

    def test_the_hub_falters(self, hub, publish):
        faults = [
            hub.fault("status", r"/api/repos/create", status=503, times=2),
            hub.fault("drop", r"/api/repos/create"),
            hub.fault("status", r"^/lfs/", status=503, times=7),  # more than the client bears
            hub.fault("status", r"/commit/main", status=500, times=2),
            hub.fault("drop", r"/commit/main"),
        ]
        publish()
        assert [fault["hits"] for fault in faults] == [2, 1, 7, 2, 1]
        assert "model.safetensors" in files_of(hub)

    def test_killed_in_the_middle_and_begun_again(self, hub, hub_python, publish, run):  # noqa: F811
        fault = hub.fault("status", r"^/lfs/", times=1000)
        process = hub_python(CLI, "publish", run, NAME)
        while not fault["hits"]:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.communicate()
        fault["times"] = fault["hits"]
        assert files_of(hub).keys() == {".gitattributes"}  # nothing of it, rather than half
        publish()
        assert "model.safetensors" in files_of(hub)
        commits = {**hub.repos["model", NAME].commits}
        publish()
        assert hub.repos["model", NAME].commits == commits  # nothing was new

    def test_a_folder_that_is_no_run(self, hub, publish, run):  # noqa: F811
        publish(model=run / "averaged")
        assert "no records of its training" in card_of(hub)
        assert "scores.json" not in files_of(hub)

    def test_mistakes(self, hub_python, run, tmp_path):  # noqa: F811
        bare = shutil.copytree(run / "averaged", tmp_path / "bare")
        (bare / "tokenizer.json").unlink()
        processes = {
            "There is no model in": (hub_python(CLI, "publish", tmp_path, NAME), 1),
            "lacks tokenizer.json": (hub_python(CLI, "publish", bare, NAME), 1),
            "give USER/NAME": (hub_python(CLI, "publish", run, "small"), 2),
            "not both": (hub_python(CLI, "publish", run, NAME, "--tag", "v1", "--pull-request"), 2),
        }
        for message, (process, status) in processes.items():
            assert message in finished(process, status)


class TestUse:
    def test_with_and_without_the_package(self, use):
        ours, theirs = map(json.loads, map(finished, [use(USE, "package"), use(USE, "remote", "v1")]))
        assert ours["texts"] == ours["pipeline"]
        assert (ours.pop("remote code"), theirs.pop("remote code")) == (False, True)
        assert ours == theirs

    def test_offline_from_the_cache(self, published, use):
        online = finished(use(USE, "package"))
        requests = len(published[0].log)
        offline = use(USE, "package", HF_HUB_OFFLINE="1")
        command = use(CLI, "translate", "--model", NAME, "The dog is old.", "I am here.", HF_HUB_OFFLINE="1")
        assert finished(offline) == online
        assert finished(command).splitlines() == json.loads(online)["texts"]
        assert len(published[0].log) == requests

    def test_commands_take_a_repository_and_a_revision(self, use, run):  # noqa: F811
        names = (run, f"{NAME}@v1", f"{NAME}@v2", "nobody/model")
        local, tagged, *missing = [use(CLI, "translate", "--model", name, "I am here.") for name in names]
        assert finished(tagged) == finished(local)
        for process in missing:
            assert "no such model on the Hub" in finished(process, 1)

    def test_none_of_a_repositorys_code_is_run_unasked(self, published, hub, hub_python, tmp_path):
        files = files_of(published[0])
        trap = f"open({str(tmp_path / 'sprung')!r}, 'w')\n".encode()
        hub.seed("model", NAME, {name: trap if name.endswith(".py") else text for name, text in files.items()})
        processes = [hub_python(CLI, "translate", "--model", NAME, "I am here."), hub_python(USE, "package")]
        assert [bool(finished(process)) for process in processes] == [True, True]
        assert not (tmp_path / "sprung").exists()

    def test_a_pickle_is_not_opened(self, published, hub, hub_python, tmp_path):
        files = files_of(published[0])
        del files["model.safetensors"]
        files["pytorch_model.bin"] = b"cos\nsystem\n(S'touch " + str(tmp_path / "sprung").encode() + b"'\ntR."
        hub.seed("model", NAME, files)
        for process in [hub_python(USE, "package"), hub_python(USE, "remote")]:
            errors = finished(process, 1)
            assert "has no weights in safetensors" in errors
        assert not (tmp_path / "sprung").exists()


class TestCard:
    def test_its_metadata_are_what_the_client_reads(self, published, run):  # noqa: F811
        data = ModelCard(card_of(published[0])).data
        assert (data.language, data.license, data.library_name) == (["en", "de"], "apache-2.0", "transformers")
        assert (data.pipeline_tag, data.datasets, data.model_name) == ("translation", ["wmt/wmt14"], "A small model")
        results = {result.metric_name: result for result in data.eval_results}
        kept = json.loads((run / "scores.json").read_text(encoding="utf-8"))
        wanted = ("averaged", "small", "sacrebleu")
        [bleu] = [s["value"] for s in kept if (s["model"], s["test_set"], s["metric"]) == wanted]
        assert results["sacrebleu"].metric_value == round(bleu, 2)
        assert {"sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter", "exact_match"} <= results.keys()
        assert all("version:" in result.metric_args["signature"] for result in data.eval_results)

    def test_its_lines_run(self, published, use, run):  # noqa: F811
        with_package, without = re.findall(r"```python\n(.*?)```", card_of(published[0]), flags=re.DOTALL)
        hidden = "import sys; sys.modules['vanilla_transformer'] = None\n"
        expected = use(CLI, "translate", "--model", run, "The dog is old.")
        processes = [use(with_package), use(hidden + without)]
        translation = finished(expected).strip()
        assert all(translation in finished(process) for process in processes)


TRAINING = """
import json, sys
import vanilla_transformer
from datasets import Dataset
from vanilla_transformer import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
rows = [tokenizer("The dog is old.", text_target="Der Hund ist alt.") for _ in range(8)]
data = Dataset.from_list([{"input_ids": row.input_ids, "labels": row.labels} for row in rows])
args = VanillaTransformerTrainingArguments(
    sys.argv[2], max_tokens=64, max_steps=6, save_steps=2, eval_strategy="no", load_best_model_at_end=False,
    push_to_hub=True, hub_model_id="tester/small", hub_strategy=sys.argv[3], hub_always_push=True, use_cpu=True,
)
trainer = VanillaTransformerTrainer(model, args, train_dataset=data, processing_class=tokenizer)
trainer.train()
if len(sys.argv) > 4:
    trainer.push_to_hub(license="mit", model_name="A pushed model")
"""


def test_pushes_in_the_middle_of_training_can_be_loaded(hub, hub_python, run, tmp_path):  # noqa: F811
    finished(hub_python(TRAINING, run / "averaged", tmp_path / "out", "every_save", "push"))
    commits = [oid for oid, commit in hub.repos["model", NAME].commits.items() if "config.json" in commit["files"]]
    assert len(commits) >= 2  # a push is left out while another one runs
    for process in [hub_python(USE, "remote", oid) for oid in (commits[0], commits[-1])]:
        assert json.loads(finished(process))["texts"]
    card = ModelCard(card_of(hub))
    assert (card.data.license, card.data.pipeline_tag) == ("mit", "translation")
    assert "# A pushed model" in card.content


def test_a_run_publishes_itself(hub, hub_python, corpus, tmp_path):  # noqa: F811
    options = ("--data.folder", corpus, "--output", tmp_path / "run", "--training.push_to_hub", "true")
    refused = hub_python(CLI, "train", corpus / "recipe.yaml", *options)
    assert "needs training.hub_model_id" in finished(refused, 1)
    options += ("--training.hub_model_id", NAME, "--training.hub_strategy", "every_save")
    finished(hub_python(CLI, "train", corpus / "recipe.yaml", *options))
    found = files_of(hub)
    assert "scores.json" in found
    assert not [name for name in found if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    assert "## How good it is" in card_of(hub)
    assert f"vanilla-transformer train {corpus / 'recipe.yaml'}" in card_of(hub)
    assert json.loads(finished(hub_python(USE, "package")))["texts"]
