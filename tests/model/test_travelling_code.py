"""A saved model carries its code: it loads with `trust_remote_code=True` where the package is missing."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from transformers import AutoConfig, AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments, pipeline
from transformers.dynamic_module_utils import get_relative_imports

import vanilla_transformer.model
from vanilla_transformer.model.code_vanilla_transformer import TranslationTasks
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config

from ..warm_python import LIBRARIES
from .conftest import CLASSES, TEXTS, TRANSLATOR, build, build_config, build_model, sharpened


CODE = sorted(Path(vanilla_transformer.model.__file__).parent.glob("*_vanilla_transformer.py"))
MODEL, BASE, CLASSIFIER = "model", "base", "classifier"

# Every use of a model, through the Auto classes alone.
USE = """
import json, sys, torch
from transformers import (
    AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline
)
folder, texts = sys.argv[1], json.loads(sys.argv[2])

def load(kind, name="model", **options):
    return kind.from_pretrained(f"{folder}/{name}", **TRUST, **options).eval()

def translate(model):
    beam = model.generate(**batch, return_dict_in_generate=True)
    return [beam.sequences.tolist(), beam.sequences_scores.tolist(), model.generate(**batch, num_beams=1).tolist()]

tokenizer = AutoTokenizer.from_pretrained(f"{folder}/model", **TRUST)
batch = tokenizer(texts, return_tensors="pt", padding=True)
config = AutoConfig.from_pretrained(f"{folder}/model", **TRUST)
model, base = load(AutoModelForSeq2SeqLM), load(AutoModel, "base")
classifier = load(AutoModelForSequenceClassification, "classifier")
from_translator = load(AutoModelForSequenceClassification, num_labels=5)
found = {
    "classes": [type(each).__name__ for each in (config, model, base, classifier, from_translator)],
    "translations": translate(model),
    "states": base(**batch, decoder_input_ids=batch["input_ids"]).last_hidden_state.tolist(),
    "classes of texts": classifier(**batch).logits.tolist(),
    "encoder of a translator": from_translator.model(**batch).last_hidden_state.tolist(),
}
for task in ("translation", "translation_en_to_de", "translation_xx_to_yy"):
    found[task] = pipeline(task, model=f"{folder}/model", **TRUST)(texts, return_scores=True)
found["text-classification"] = pipeline(
    "text-classification", model=f"{folder}/classifier", tokenizer=tokenizer, **TRUST
)(texts)
found["modules"] = sorted({type(each).__module__.split(".")[0] for each in (config, model, base, classifier)})
"""

# Without the package: the same, and then everything people do with a model that they have loaded.
WITHOUT_PACKAGE = f"""
import sys
sys.modules["vanilla_transformer"] = None
TRUST = dict(trust_remote_code=True)
{USE}
import copy, pickle
from transformers.generation import GenerationMixin

def refuse(*args, **kwargs):
    raise AssertionError("transformers' own search")

theirs, GenerationMixin._beam_search = GenerationMixin._beam_search, refuse
found["by our search"] = translate(model)
GenerationMixin._beam_search = theirs

translator = pipeline(model=f"{{folder}}/model", **TRUST)
found["no task"] = translator(texts, return_scores=True)
translator.save_pretrained(f"{{folder}}/again")
found["again"] = translate(AutoModelForSeq2SeqLM.from_pretrained(f"{{folder}}/again", **TRUST))
config.save_pretrained(f"{{folder}}/configuration")
classifier.save_pretrained(f"{{folder}}/classifier again")
found["classifier again"] = load(AutoModelForSequenceClassification, "classifier again")(**batch).logits.tolist()
found["copies"] = [translate(copy.deepcopy(model)), translate(pickle.loads(pickle.dumps(model)))]

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()(**batch, labels=batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)).loss.backward()
optimizer.step()
model.eval().save_pretrained(f"{{folder}}/learned")
found["learned"] = translate(model)
found["learned and loaded"] = translate(load(AutoModelForSeq2SeqLM, "learned"))
found["loaded from the package"] = sorted(name for name in sys.modules if name.startswith("vanilla_transformer."))

print(json.dumps(found))
"""

WITH_PACKAGE = f"""
import vanilla_transformer
TRUST = dict()
{USE}
TRUST = dict(trust_remote_code=True)
found["with trust"] = [type(load(AutoModelForSeq2SeqLM)).__module__, type(load(AutoModel, "base")).__module__]
found["pipeline with trust"] = type(pipeline("translation", model=f"{{folder}}/model", **TRUST)).__module__
print(json.dumps(found))
"""

PACKAGE_AFTERWARDS = """
import sys
from transformers import AutoModelForSeq2SeqLM
folder = sys.argv[1] + "/model"
theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
import vanilla_transformer
ours = AutoModelForSeq2SeqLM.from_pretrained(folder)
print(type(theirs).__module__.split(".")[0], type(ours).__module__.split(".")[0])
"""

WITHOUT_TRUST = """
import sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folder = sys.argv[1] + "/model"
for load in (
    AutoConfig.from_pretrained,
    AutoModel.from_pretrained,
    AutoModelForSeq2SeqLM.from_pretrained,
    lambda folder: pipeline("translation", model=folder),
    lambda folder: AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=False),
):
    try:
        load(folder)
    except ValueError as error:
        print("trust_remote_code=True" in str(error))
print(AutoTokenizer.from_pretrained(folder)("No.").input_ids)
"""


FROM_THE_HUB = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
trust = dict(trust_remote_code=True)
config = AutoConfig.from_pretrained("me/model", **trust)
config.save_pretrained(sys.argv[1] + "/configuration from the Hub")
model = AutoModelForSeq2SeqLM.from_pretrained("me/model", **trust)
model.save_pretrained(sys.argv[1] + "/from the Hub")
tokenizer = AutoTokenizer.from_pretrained("me/model", **trust)
batch = tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)
translator = pipeline("translation_en_to_de", model="me/model", **trust)
print(json.dumps([model.generate(**batch).tolist(), translator(json.loads(sys.argv[2]), return_scores=True)]))
"""


@pytest.fixture(scope="module")
def models():
    """One of each class; the translator decodes like the paper and is confident enough for sources to matter."""
    models = {name: build(kind, vocab_size=280) for name, kind in zip((BASE, CLASSIFIER), CLASSES[::2], strict=True)}
    models[MODEL] = sharpened(build_model(seed=1, vocab_size=280))
    models[MODEL].generation_config = paper_generation_config(models[MODEL].config, max_length_offset=3)
    return models


@pytest.fixture(scope="module")
def folder(models, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, model in models.items():
        model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / MODEL)
    return folder


def run(code: str, folder: Path, modules: Path) -> str:
    """Runs code in a fresh process, without a user to ask, and returns its output."""
    environment = {"HF_HOME": str(modules / "home"), "HF_MODULES_CACHE": str(modules)}
    finished = LIBRARIES.run(code, folder, json.dumps(TEXTS), cwd=modules, environment=environment)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


@pytest.fixture(scope="module")
def without_package(folder, tmp_path_factory):
    return json.loads(run(WITHOUT_PACKAGE, folder, tmp_path_factory.mktemp("modules")))


@pytest.fixture(scope="module")
def with_package(folder, tmp_path_factory):
    modules = tmp_path_factory.mktemp("modules")
    return json.loads(run(WITH_PACKAGE, folder, modules)), sorted(path.name for path in modules.rglob("*.py"))


# ------------------------------------------------------------------------------------------------ in separate processes


def test_saved_code_loads_without_the_package(without_package):
    assert without_package["loaded from the package"] == []
    assert without_package["modules"] == ["transformers_modules"]


def test_results_equal_those_with_the_package(without_package, with_package):
    for what, found in with_package[0].items():
        if what in ("modules", "with trust", "pipeline with trust"):
            continue
        assert without_package[what] == found, what


def test_results_equal_those_in_this_process(without_package, models, tokenizer):
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    output = models[MODEL].generate(**batch, return_dict_in_generate=True)
    ids, scores, greedy = without_package["translations"]
    assert ids == output.sequences.tolist()
    # Another process may round sums differently. A log-probability has the absolute error of its logits.
    assert scores == pytest.approx(output.sequences_scores.tolist(), rel=1e-5, abs=2e-5)
    assert greedy == models[MODEL].generate(**batch, num_beams=1).tolist()
    assert len({tuple(row) for row in ids}) == len(TEXTS)
    texts = tokenizer.batch_decode(output.sequences, skip_special_tokens=True)
    assert [record["translation_text"] for record in without_package["translation"]] == texts


def test_copied_and_resaved_models_give_the_same(without_package, folder):
    for again in ("by our search", "again"):
        assert without_package[again] == without_package["translations"]
    assert without_package["copies"] == [without_package["translations"]] * 2
    assert without_package["no task"] == without_package["translation"]
    assert without_package["classifier again"] == without_package["classes of texts"]
    for name, of in (("again", MODEL), ("classifier again", CLASSIFIER), ("configuration", MODEL), ("learned", MODEL)):
        assert code_in(folder / name) == code_in(folder / of)
        assert entries_of(folder / name) == entries_of(folder / of)


def test_model_trains_without_the_package(without_package):
    assert without_package["learned"] == without_package["learned and loaded"]
    assert without_package["learned"][1] != without_package["translations"][1]


@pytest.mark.slow
def test_hub_repository_loads_like_a_folder(without_package, folder, tmp_path):
    """transformers fetches the code of a repository file by file; this one is in the client's cache already."""
    cached = tmp_path / "home" / "hub" / "models--me--model"
    shutil.copytree(folder / MODEL, cached / "snapshots" / ("0" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    ids, records = json.loads(run(FROM_THE_HUB, folder, tmp_path))
    assert ids == without_package["translations"][0]
    assert records == without_package["translation_en_to_de"]
    for name in ("from the Hub", "configuration from the Hub"):
        assert code_in(folder / name) == OURS
        assert entries_of(folder / name) == entries_of(folder / MODEL)


def test_installed_package_takes_precedence_over_saved_code(with_package):
    found, modules = with_package
    assert found["modules"] == ["vanilla_transformer"]
    assert found["with trust"] == ["vanilla_transformer.model.modeling_vanilla_transformer"] * 2
    assert found["pipeline with trust"] == "vanilla_transformer.model.pipeline_vanilla_transformer"
    assert modules == []


@pytest.mark.slow
def test_package_can_be_imported_after_saved_code(folder, tmp_path):
    assert run(PACKAGE_AFTERWARDS, folder, tmp_path).split() == ["transformers_modules", "vanilla_transformer"]


def test_without_trust_only_the_tokenizer_loads(folder, tokenizer, tmp_path):
    *refusals, ids = run(WITHOUT_TRUST, folder, tmp_path).splitlines()
    # transformers prints a question before it refuses; nobody answers, so both share a line
    assert [line.endswith("True") for line in refusals if line.endswith(("True", "False"))] == [True] * 5
    assert ids.endswith(str(tokenizer("No.").input_ids))
    assert not list(tmp_path.rglob("*_vanilla_transformer.py"))


# --------------------------------------------------------------------------------------------------------- saved files


def code_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.py")}


def entries_of(folder: Path) -> dict:
    fields = json.loads((folder / "config.json").read_text())
    return {name: fields.get(name) for name in ("auto_map", "custom_pipelines")}


OURS = {path.name: path.read_text() for path in CODE}
PIPELINES = {
    "translation": {"impl": "pipeline_vanilla_transformer.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"]}
}


@pytest.mark.parametrize("name", [MODEL, BASE, CLASSIFIER])
def test_every_class_saves_all_code_and_entries(folder, name):
    assert code_in(folder / name) == OURS
    entries = entries_of(folder / name)
    assert set(entries["auto_map"]) == {
        "AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification",
    }  # fmt: skip
    assert entries["custom_pipelines"] == (None if name == CLASSIFIER else PIPELINES)
    assert not [path.name for path in (folder / name).iterdir() if path.name.startswith(".")]


def test_loaded_configuration_has_no_code_entries(folder, models):
    loaded = AutoConfig.from_pretrained(folder / MODEL)
    assert not hasattr(loaded, "auto_map")
    assert not hasattr(loaded, "custom_pipelines")
    assert {**loaded.to_dict(), "_name_or_path": ""} == {**models[MODEL].config.to_dict(), "_name_or_path": ""}


def test_other_processes_write_nothing(tmp_path):
    build_model().save_pretrained(tmp_path, is_main_process=False)
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_whole_and_configuration_last(tmp_path, monkeypatch):
    replaced, replace = [], os.replace

    def watched(beside, path):
        assert Path(beside).stat().st_size > 0
        if Path(path).name == "config.json":
            assert code_in(Path(path).parent) == OURS
        replaced.append(Path(path).name)
        replace(beside, path)

    monkeypatch.setattr(os, "replace", watched)
    build_config().save_pretrained(tmp_path)
    assert sorted(replaced[:-1]) == sorted(OURS)
    assert replaced[-1] == "config.json"


def test_failed_save_keeps_the_old_files(tmp_path, monkeypatch):
    build_config().save_pretrained(tmp_path)
    before = code_in(tmp_path)

    def fail(beside, path):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        build_config().save_pretrained(tmp_path)
    assert code_in(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", *before}


@pytest.fixture
def uploads(monkeypatch):
    """The names of the files in every commit meant for the Hub."""
    commits = []

    class Repository(str):
        repo_id = "me/model"

    def commit(self, *args, operations, **kwargs):
        commits.append({operation.path_in_repo for operation in operations})

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **kwargs: Repository(repo_id))
    monkeypatch.setattr(HfApi, "create_branch", lambda self, *args, **kwargs: None)
    monkeypatch.setattr(HfApi, "create_commit", commit)
    return commits


def test_uploads_include_the_code(uploads, tmp_path):
    model = build_model()
    model.save_pretrained(tmp_path / "model", push_to_hub=True)
    model.push_to_hub("me/model")
    model.config.save_pretrained(tmp_path / "config", push_to_hub=True)
    model.config.push_to_hub("me/model")
    assert [set(OURS) | {"config.json"} <= files for files in uploads] == [True] * 4
    assert ["model.safetensors" in files for files in uploads] == [True, True, False, False]


def test_trainer_state_dict_and_pipeline_save_the_code(tmp_path, batch, models, tokenizer):
    rows = [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
    arguments = Seq2SeqTrainingArguments(tmp_path, max_steps=1, save_steps=1, use_cpu=True, report_to="none")
    trainer = Seq2SeqTrainer(build_model(), arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(tmp_path / "final")
    model = models[MODEL]
    model.save_pretrained(tmp_path / "weights", state_dict=model.state_dict())
    pipeline("translation", model=model, tokenizer=tokenizer).save_pretrained(tmp_path / "pipeline")
    for saved in ("checkpoint-1", "final", "weights", "pipeline"):
        assert code_in(tmp_path / saved) == OURS
        assert entries_of(tmp_path / saved)["custom_pipelines"] == PIPELINES
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "pipeline")) is TRANSLATOR


def test_translation_tasks_accept_any_language_pair():
    tasks = TranslationTasks(PIPELINES)
    assert "translation" in tasks
    assert "translation_en_to_de" in tasks
    assert "translation_en" not in tasks
    assert "summarization" not in tasks
    tasks["translation_en_to_de"]["pt"] = (TRANSLATOR,)  # as transformers does
    assert tasks == PIPELINES
    assert json.loads(json.dumps(tasks)) == PIPELINES
    assert "translation_en_to_de" not in TranslationTasks({"text-generation": {}})


# -------------------------------------------------------------------------------------------------- rules for the files


def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """The packages and the neighbouring files that a file imports."""
    packages, neighbours = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            packages |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level in (0, 1), f"{path.name}, line {node.lineno}: from {'.' * node.level}"
            assert node.module, f"{path.name}, line {node.lineno}: from . import"
            (neighbours if node.level else packages).add(node.module if node.level else node.module.split(".")[0])
    return packages, neighbours


def test_files_import_only_common_packages_and_neighbours():
    everywhere = {"torch", "transformers", *sys.stdlib_module_names}
    for path in CODE:
        packages, neighbours = imports_of(path)
        assert packages <= everywhere, path.name
        assert neighbours <= {other.stem for other in CODE}, path.name
        # transformers finds them by a pattern, which also matches text that only looks like an import
        assert set(get_relative_imports(path)) == neighbours, path.name


def test_every_entry_file_reaches_all_files():
    """transformers copies only the files that a class imports; they must be enough to save it with all its code."""
    for entry in ("configuration", "modeling", "classification", "pipeline"):
        reached, waiting = set(), {f"{entry}_vanilla_transformer"}
        while waiting:
            stem = waiting.pop()
            reached.add(stem)
            waiting |= set(get_relative_imports(CODE[0].parent / f"{stem}.py")) - reached
        assert reached == {other.stem for other in CODE}, entry


def test_model_folder_holds_no_other_files():
    others = {path.name for path in CODE[0].parent.iterdir()} - {path.name for path in CODE}
    assert others <= {"__init__.py", "__pycache__"}
