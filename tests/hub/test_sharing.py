"""Publishing models and using them, with the real clients."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

import vanilla_transformer.model
from tests.system.conftest import corpus, write_marian  # noqa: F401  (fixtures)
from tests.system.conftest import run as trained  # noqa: F401
from vanilla_transformer.model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.run.digests import DIGESTS

from ..warm_python import CLI
from .conftest import ServedHub, ended


NAME = "tester/small"
MODEL_CODE = Path(vanilla_transformer.model.__file__).parent

# Runs several commands in turn, answering yes to every question, and prints their statuses. A word that begins with
# "HF_" sets an environment variable, for this command and those after it.
COMMANDS = """
import builtins, json, os, sys, traceback
from huggingface_hub import constants
from vanilla_transformer import hub
from vanilla_transformer.cli import main
hub.FIRST_WAIT = 0.01
builtins.input = lambda *question: "y"
for words in json.loads(sys.argv[1]):
    os.environ.update(word.split("=") for word in words if word.startswith("HF_"))
    constants.HF_HUB_OFFLINE = os.environ["HF_HUB_OFFLINE"] == "1"  # which was read at import
    sys.argv[1:] = [word for word in words if not word.startswith("HF_")]
    try:
        status = main(sys.argv[1:])
    except SystemExit as error:
        status = error.code
    except Exception:  # --debug
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        print(f"=== {status}", file=stream)
"""

# Typical uses of a model from the Hub. REMOTE: in a process that cannot import the package.
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
assert not {*tokenizer("</s> <pad><s>a <unk>").input_ids[:-1]} & {*tokenizer.all_special_ids}
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


MARIANS_TEXT = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("tester/converted", trust_remote_code=True)
assert tokenizer("</s> a <pad>").input_ids.count(tokenizer.eos_token_id) == 1
"""


def finished(process, status=0) -> str:
    """The output of a process, or its errors if it was expected to fail."""
    return ended(process, status)[bool(status)]


def commands(hub_python, *several: tuple) -> list[tuple[int, str, str]]:
    """Runs commands in one process, and returns the status, the output and the errors of each."""
    process = hub_python(COMMANDS, json.dumps([[*map(str, words)] for words in several]))
    printed = process.communicate(timeout=180)
    outs, errors = (re.findall(r"((?:(?!===).*\n)*)=== (\d)\n", text) for text in printed)
    assert len(outs) == len(errors) == len(several), printed
    return [(int(status), out, error) for (out, status), (error, _) in zip(outs, errors, strict=True)]


def files_of(hub, revision="main", name=NAME) -> dict[str, bytes]:
    files = hub.repos["model", name].commit(revision)["files"]
    return {name: Path(hub.blob(entry["sha"])).read_bytes() for name, entry in files.items()}


def snippets_of(card: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)


def card_of(hub) -> str:
    return files_of(hub)["README.md"].decode()


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):  # noqa: F811
    """A run folder whose model answers every text at length and differently; after 24 updates it would be silent."""
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("talking") / "small")
    model = VanillaTransformerForConditionalGeneration.from_pretrained(folder / "averaged")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    for place in (folder, folder / "averaged"):
        (place / DIGESTS).unlink()  # the model is changed on purpose
        (place / "model.safetensors").unlink()  # which may be one file with two names
        model.save_pretrained(place)
    return folder


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
    """A Hub with a published run, which tests must not change, and the output of publishing."""
    options = ("--license", "apache-2.0", "--dataset", "wmt/wmt14", "--title", "A small model", "--tag", "v1")
    with ServedHub(tmp_path_factory.mktemp("published") / "home") as hub:
        with hub.clients() as start:
            done = ended(start(CLI, "publish", run, NAME, "--debug", *options))
        yield hub, *done


@pytest.fixture
def use(published):
    """Starts Python code, in a process with an empty cache, on the published model."""
    with published[0].clients() as start:
        yield start


class TestPublish:
    def test_published_repository_is_complete(self, published, run):
        hub, out, _ = published
        assert out.splitlines()[-1].startswith(f"{hub.url}/{NAME}/commit/")
        found = files_of(hub)
        assert {
            "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json", "recipe.yaml", "known_words.txt.gz", "scores.json", "data.json",
            "environment.json", "log.jsonl", "learning_curve.png", "attention.png", "translations/small.jsonl",
            "modeling_vanilla_transformer.py", "pipeline_vanilla_transformer.py",
        } <= found.keys()  # fmt: skip
        assert found["model.safetensors"] == (run / "model.safetensors").read_bytes()
        code = {path.name: path.read_bytes() for path in MODEL_CODE.glob("*_vanilla_transformer.py")}
        assert {name: content for name, content in found.items() if name.endswith(".py")} == code
        assert hub.repos["model", NAME].commit("main")["files"]["model.safetensors"]["lfs"]
        assert hub.repos["model", NAME].commit("v1") == hub.repos["model", NAME].commit("main")
        assert not hub.repos["model", NAME].private
        auto_map = json.loads(found["config.json"])["auto_map"]
        assert {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification"} <= {*auto_map}

    def test_token_does_not_leak(self, published):
        # (The stub answers 400 to a token at its content host, which would have ended the upload.)
        hub, out, errors = published
        assert "hf_write" not in out + errors
        assert not [name for name, content in files_of(hub).items() if b"hf_write" in content]
        assert any(request["cdn"] for request in hub.log)
        assert not any(request["auth"] for request in hub.log if request["cdn"])

    @pytest.mark.slow
    def test_publishing_and_reading_need_permission(self, hub, hub_python, run):
        publish = ("publish", "--debug", "--private", run / "averaged", NAME)
        read = ("translate", "--debug", "--model", NAME, "I am here.")
        tokens = [f"HF_TOKEN={token}" for token in ("", "hf_wrong", "hf_read")]
        *refused, done, unknown, stranger, reader = commands(
            hub_python,
            *((token, *publish) for token in tokens),
            ("HF_TOKEN=hf_write", *publish),
            *((token, *read) for token in (*tokens[1:], "HF_TOKEN=hf_write")),
        )
        assert [status for status, *_ in (*refused, done, unknown, stranger, reader)] == [1, 1, 1, 0, 1, 1, 0]
        for _, _, errors in (*refused, unknown, stranger):
            assert "hf auth login" in errors.splitlines()[-1]
            assert not re.search("hf_(wrong|read|write)", errors)
        assert "does not know your token" in unknown[2]
        assert "no such model on the Hub that you may read" in stranger[2]
        assert hub.repos["model", NAME].private

    @pytest.mark.slow
    def test_branch_and_pull_request_leave_main_unchanged(self, hub, hub_python, run, tmp_path):
        model, greedy = run / "averaged", shutil.copytree(run / "averaged", tmp_path / "greedy")
        path = greedy / "generation_config.json"
        path.write_text(path.read_text(encoding="utf-8").replace('"num_beams": 2', '"num_beams": 1'), encoding="utf-8")
        *_, (_, out, _), _ = commands(
            hub_python,
            ("publish", model, NAME),
            ("publish", greedy, NAME, "--revision", "greedy"),
            ("publish", model, NAME, "--pull-request", "--message", "A better card", "--title", "Another title"),
            ("publish", greedy, NAME, "--revision", "refs/pr/1", "--title", "A third title"),
        )
        beams = [json.loads(files_of(hub, name)["generation_config.json"])["num_beams"] for name in ("greedy", "main")]
        assert beams == [1, 2]
        assert "/discussions/" in out.splitlines()[-1]
        assert b"# small" in files_of(hub)["README.md"]
        assert hub.repos["model", NAME].refs.keys() == {
            f"refs/{name}" for name in ("heads/main", "heads/greedy", "pr/1")
        }
        assert b"# A third title" in files_of(hub, "refs/pr/1")["README.md"]
        request = hub.repos["model", NAME].commit("refs/pr/1")
        assert hub.repos["model", NAME].commit(request["parent"])["title"] == "A better card"

    def test_publishing_retries_when_the_hub_falters(self, hub, hub_python, run):
        model, busy = run / "averaged", r"/api/repos/create"
        faults = [
            hub.fault("status", busy, status=503, times=2),
            hub.fault("drop", busy),
            hub.fault("status", busy, status=429, headers={"Retry-After": "1"}),
            hub.fault("status", r"^/lfs/", status=503, times=7),  # more than the client retries
            hub.fault("status", r"/commit/main", status=500, times=2),
            hub.fault("drop", r"/commit/main"),
            hub.fault("status", busy, status=429, headers={"Retry-After": "1000"}, skip=1),
        ]
        [patient, asked] = commands(hub_python, ("publish", model, NAME), ("publish", model, NAME))
        assert not any(fault["times"] for fault in faults)
        assert (patient[0], asked[0]) == (0, 1)
        assert "(status 429); trying again in 1 seconds" in patient[2]
        assert "publish again in 1000 seconds, which finishes the job" in asked[2]
        assert "model.safetensors" in files_of(hub)

    def test_commit_may_be_made_though_its_answer_is_lost(self, hub, hub_python, run):
        assert commands(hub_python, ("publish", run, NAME))[0][0] == 0
        fault = hub.fault("truncate", r"/commit/main")
        [[status, _, said]] = commands(hub_python, ("publish", run / "averaged", NAME))
        assert (status, fault["hits"]) == (0, 1), said
        assert "scores.json" not in files_of(hub)
        [[status, _, said]] = commands(hub_python, ("publish", run / "averaged", NAME, "--revision", "refs/pr/99"))
        assert status == 1
        assert "log in" not in said

    @pytest.mark.slow
    def test_interrupted_publishing_can_be_repeated(self, hub, hub_python, run, tmp_path):
        fault = hub.fault("status", r"^/lfs/", times=1000)
        places = [tmp_path / name for name in ("killed", "interrupted")]
        for place in places:
            place.mkdir()
        killed, interrupted = (
            hub_python(CLI, "publish", run / "averaged", NAME, TMPDIR=str(place)) for place in places
        )
        for process in (killed, interrupted):
            process.until(lambda: all(any(place.iterdir()) for place in places) and fault["hits"])
        killed.kill()
        killed.communicate()
        interrupted.send_signal(signal.SIGINT)
        assert finished(interrupted, 130).endswith("Interrupted.\n")
        assert not [*places[1].iterdir()]
        fault["times"] = 0
        assert files_of(hub).keys() == {".gitattributes"}  # nothing, rather than half of it
        publish = ("publish", run / "averaged", NAME)
        results = commands(hub_python, publish, publish)
        assert [status for status, *_ in results] == [0, 0]
        assert "model.safetensors" in files_of(hub)
        assert len(hub.repos["model", NAME].commits) == 2  # with the empty repository's own: the second added none

    @pytest.mark.slow
    def test_models_without_a_run_are_published(self, hub, hub_python, run, tmp_path):
        classifier, converted, averaged = tmp_path / "classifier", tmp_path / "converted", run / "averaged"
        write_marian(tmp_path / "marian")
        VanillaTransformerForSequenceClassification.from_pretrained(averaged, num_labels=3).save_pretrained(classifier)
        for name in ("tokenizer.json", "tokenizer_config.json", "recipe.yaml"):
            shutil.copy(averaged / name, classifier)
        models = {"averaged": averaged, "checkpoint": run / "checkpoints" / "checkpoint-16", "classifier": classifier}
        models |= {"converted": converted, "copied": "tester/averaged"}
        convert = ("convert", tmp_path / "marian", "--output", converted)
        results = commands(
            hub_python, convert, *(("publish", model, f"tester/{name}") for name, model in models.items())
        )
        assert [status for status, *_ in results] == [0] * 6
        found = {name: files_of(hub, name=f"tester/{name}") for name in models}
        cards = {name: ModelCard(files["README.md"].decode()) for name, files in found.items()}
        translator = {"generation_config.json", "tokenizer.json", "known_words.txt.gz", "recipe.yaml"}
        more = {
            **dict.fromkeys(("averaged", "checkpoint", "copied"), translator),
            "classifier": {"tokenizer.json", "recipe.yaml"},
            "converted": {"generation_config.json", "source.spm", "target.spm", "vocab.json"},
        }
        for name, files in found.items():
            assert {path for path in files if not path.endswith(".py")} == {
                ".gitattributes", "README.md", "config.json", "model.safetensors", "tokenizer_config.json", *more[name]
            }  # fmt: skip
            assert "no records of its training" in cards[name].content
            kind = "text-classification" if name == "classifier" else "translation"
            assert cards[name].data.pipeline_tag == kind
        assert cards["checkpoint"].data.language == ["en", "de"]
        assert (run / "recipe.yaml").read_text(encoding="utf-8") in cards["checkpoint"].content
        assert cards["converted"].data.language is None
        # The snippets of the cards, and text for Marian that looks like special tokens.
        hidden = "import sys; sys.modules['vanilla_transformer'] = None\n"
        lines = [snippets_of(cards[name].content) for name in ("classifier", "converted", "checkpoint")]
        processes = [
            hub_python("\n".join(ours for ours, _ in lines)),
            hub_python(hidden + "\n".join(theirs for _, theirs in lines[:2]) + MARIANS_TEXT),
        ]
        ours, theirs = map(finished, processes)
        assert ours.splitlines()[0] == theirs.splitlines()[0]
        assert ours.count("translation_text") == 2
        # A model that replaces another leaves none of its files behind.
        [(status, *_)] = commands(hub_python, ("publish", averaged, "tester/converted"))
        assert status == 0
        assert files_of(hub, name="tester/converted").keys() == found["averaged"].keys()

    @pytest.mark.slow
    def test_existing_tag_is_not_moved(self, hub, hub_python, run):
        publish = ("publish", run / "averaged", NAME, "--tag", "v1")
        first, again, other = commands(hub_python, publish, publish, (*publish, "--title", "Another"))
        assert (first[0], again[0], other[0]) == (0, 0, 1)
        assert "but v1 is already the name of" in other[2]
        assert len(hub.repos["model", NAME].commits) == 3
        assert b"# small" in files_of(hub, "v1")["README.md"]

    def test_mistakes_and_dry_runs_send_nothing(self, hub, hub_python, run, tmp_path):
        bare, other = (shutil.copytree(run / "averaged", tmp_path / name) for name in ("bare", "other"))
        (bare / "tokenizer.json").unlink()
        config = json.loads((other / "config.json").read_text(encoding="utf-8"))
        (other / "config.json").write_text(json.dumps(config | {"model_type": "marian"}), encoding="utf-8")
        unfinished = shutil.copytree(
            run, tmp_path / "run", ignore=shutil.ignore_patterns("averaged", "best", "scores.json")
        )
        (unfinished / "config.json").unlink()
        commit = "0123456789abcdef0123456789abcdef01234567"
        mistakes = {
            ("publish", tmp_path, NAME): (1, "There is no model in"),
            ("publish", unfinished, NAME): (1, "is not finished and has no model yet, only checkpoints"),
            ("publish", bare, NAME): (1, "lacks tokenizer.json"),
            ("publish", other, NAME): (1, "is a model of the kind marian, which our code does not fit"),
            ("publish", run, "small"): (2, "give USER/NAME"),
            ("publish", run, "../small", "--dry-run"): (1, "is not a valid name on the Hub"),
            ("publish", run, NAME, "--tag", "v 1", "--dry-run"): (1, "'v 1' is not a valid name of a branch or tag"),
            ("publish", run, NAME, "--tag", "", "--dry-run"): (1, "'' is not a valid name of a branch or tag"),
            ("publish", run, "a b/small", "--dry-run"): (1, "is not a valid name on the Hub"),
            ("publish", run, NAME, "--tag", "v1", "--pull-request"): (2, "not both"),
            ("publish", run, NAME, "--revision", "dev", "--pull-request"): (2, "not both"),
            ("publish", run, NAME, "--revision", commit): (1, "is a commit, which cannot be changed"),
            ("HF_HUB_OFFLINE=1", "publish", run, NAME): (1, "HF_HUB_OFFLINE is set, so nothing can be published"),
            ("translate", "--model", NAME, "Hello."): (1, "no such model of the Hub in the cache; HF_HUB_OFFLINE"),
        }
        *results, dry = commands(hub_python, *mistakes, ("publish", run, NAME, "--dry-run"))
        for (status, message), (found, _, errors) in zip(mistakes.values(), results, strict=True):
            assert message in errors
            assert found == status
        assert dry[0] == 0
        assert re.search(r"^ +[\d,]+  model\.safetensors$", dry[1], flags=re.MULTILINE)
        assert re.search(r"^ +[\d,]+  translations/small\.jsonl$", dry[1], flags=re.MULTILINE)
        assert hub.log == []


class TestUse:
    def test_package_remote_code_and_offline_cache_agree(self, published, use):
        online = [use(USE, "package"), use(USE, "remote", "v1")]
        ours, theirs = map(json.loads, map(finished, online))
        assert ours["texts"] == ours["pipeline"]
        assert len({text.strip() for text in ours["texts"]} - {""}) == 2
        assert (ours["remote code"], theirs["remote code"]) == (False, True)
        assert {**ours, "remote code": True} == theirs
        requests = len(published[0].log)
        command = "from vanilla_transformer.cli import main; main(['translate', '--model', name, *texts])"
        offline = [use(USE + command, "package", offline=True), use(USE, "remote", "v1", offline=True)]
        [found, *lines], [found_remotely] = (finished(process).splitlines() for process in offline)
        assert [json.loads(found), json.loads(found_remotely)] == [ours, theirs]
        assert lines == ours["texts"]
        assert len(published[0].log) == requests

    @pytest.mark.slow
    def test_commands_accept_a_repository_and_a_revision(self, use, run):
        names = (run, f"{NAME}@v1/", f"./{NAME}", f"{NAME}@v2", "nobody/model")
        found = commands(use, *(("translate", "--model", name, "I am here.") for name in names))
        local, tagged, (status, _, errors), *missing = found
        assert (status, f"There is no model in ./{NAME}" in errors) == (1, True)  # it can only be a folder
        assert tagged[:2] == local[:2]
        assert tagged[1].strip()
        told = (f"{NAME} on the Hub has no revision v2.", "no such model on the Hub")
        for (status, _, errors), message in zip(missing, told, strict=True):
            assert status == 1
            assert message in errors

    def test_new_calibration_stays_in_its_revision(self, published, hub, hub_python, corpus):  # noqa: F811
        """Files in the cache are links to contents that revisions share."""
        hub.seed("model", NAME, {**files_of(published[0]), "confidence.json": b"{}"})
        text = ("--sources", corpus / "validation.en", "--references", corpus / "validation.de", "--num-beams", "1")
        [(status, _, errors)] = commands(hub_python, ("calibrate", NAME, *text, "--threshold", "median"))
        assert status == 0, errors
        cached = hub.home / "hub" / f"models--{NAME.replace('/', '--')}"
        [calibrated] = cached.glob("snapshots/*/confidence.json")
        assert json.loads(calibrated.read_text())["record"]["num_beams"] == 1
        assert b"{}" in [path.read_bytes() for path in cached.glob("blobs/*")]

    def test_repository_code_is_never_run_unasked(self, published, hub, hub_python, tmp_path):
        trap = f"open({str(tmp_path / 'sprung')!r}, 'w')\n".encode()
        files = {name: trap if name.endswith(".py") else text for name, text in files_of(published[0]).items()}
        files |= {"custom_generate/generate.py": trap, "evil.py": trap}
        files |= dict.fromkeys(("../up.json", "../../../up.json", "sub/../../up.json"), b"{}")
        config, tokenizer = (json.loads(files[name]) for name in ("config.json", "tokenizer_config.json"))
        elsewhere = dict.fromkeys(config["auto_map"], "tester/evil--evil.Evil")
        files["config.json"] = json.dumps(config | {"auto_map": elsewhere}).encode()
        hub.seed("model", NAME, files)
        evil = tokenizer | {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "tokenizer_class": "Evil"}
        hub.seed("model", "tester/evil", {**files, "tokenizer_config.json": json.dumps(evil).encode()})
        processes = [hub_python(USE, "package")]
        translate = [("translate", "--model", name, "I am here.") for name in (NAME, "tester/evil")]
        (works, *_), (refused, _, why) = commands(hub_python, *translate)
        assert (works, refused) == (0, 1)
        assert "contains custom code" in why
        assert finished(processes[0])
        assert not (tmp_path / "sprung").exists()
        assert not [*hub.home.parent.rglob("up.json"), *hub.home.parent.parent.glob("up.json")]

    def test_pickled_weights_are_not_opened(self, published, hub, hub_python, tmp_path):
        files = files_of(published[0])
        del files["model.safetensors"]
        files["pytorch_model.bin"] = b"cos\nsystem\n(S'touch " + str(tmp_path / "sprung").encode() + b"'\ntR."
        hub.seed("model", NAME, files)
        theirs = hub_python(USE, "remote")
        [(status, _, errors)] = commands(hub_python, ("translate", "--model", NAME, "I am here."))
        assert status == 1
        for each in (errors, finished(theirs, 1)):
            assert "has no weights in safetensors" in each
        assert not (tmp_path / "sprung").exists()

    def test_weights_index_may_only_name_safetensors(self, published, hub, hub_python):
        files = files_of(published[0])
        weights = files.pop("model.safetensors")
        index = {"metadata": {}, "weight_map": {"model.shared.weight": "w.json"}}
        files |= {"w.json": weights, "model.safetensors.index.json": json.dumps(index).encode()}
        hub.seed("model", NAME, files)
        theirs = [hub_python(USE, where) for where in ("package", "remote")]
        [(status, _, errors)] = commands(hub_python, ("translate", "--model", NAME, "The dog is old."))
        assert status == 1
        for each in (errors, *(finished(process, 1) for process in theirs)):
            assert "leads to the weights 'w.json': only a file NAME.safetensors" in each


class TestCard:
    def test_card_metadata_is_read_by_the_client(self, published, run):
        data = ModelCard(card_of(published[0])).data
        assert (data.language, data.license, data.library_name) == (["en", "de"], "apache-2.0", "transformers")
        assert (data.pipeline_tag, data.datasets, data.model_name) == ("translation", ["wmt/wmt14"], "A small model")
        results = {result.metric_name: result for result in data.eval_results}
        kept = json.loads((run / "scores.json").read_text(encoding="utf-8"))
        [chrf] = [s["value"] for s in kept if s["chosen"] and (s["test_set"], s["metric"]) == ("small", "chrf")]
        assert results["chrf"].metric_value == round(chrf, 2) > 1
        assert {"sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter", "exact_match"} <= results.keys()
        assert all("version:" in result.metric_args["signature"] for result in data.eval_results)

    def test_card_snippets_run(self, published, use, run):
        with_package, without = snippets_of(card_of(published[0]))
        hidden = "import sys; sys.modules['vanilla_transformer'] = None\n"
        words = ["translate", "--model", str(run), "The dog is old."]
        translate = f"\nfrom vanilla_transformer.cli import main; main({words})"
        processes = [use(with_package + translate), use(hidden + without)]
        ours, theirs = map(finished, processes)
        translation = ours.splitlines()[-1]
        assert repr(translation) in ours.splitlines()[0]
        assert repr(translation) in theirs


TRAINING = """
import json, os, sys
import vanilla_transformer
from datasets import Dataset
from vanilla_transformer import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.sharing.model_card import bare_card
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, output = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
rows = [tokenizer("The dog is old.", text_target="Der Hund ist alt.") for _ in range(8)]
data = Dataset.from_list([{"input_ids": row.input_ids, "labels": row.labels} for row in rows])
token = os.environ.pop("HF_TOKEN")  # to be had from the arguments alone
for strategy in ("every_save", "checkpoint", "all_checkpoints", "end"):
    args = VanillaTransformerTrainingArguments(
        f"{output}/{strategy}", max_tokens=64, max_steps=6, save_steps=2, eval_strategy="no", report_to="none",
        load_best_model_at_end=False, push_to_hub=True, hub_model_id=f"tester/{strategy}", hub_strategy=strategy,
        hub_always_push=True, hub_token=token, use_cpu=True,
    )
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    trainer = VanillaTransformerTrainer(model, args, train_dataset=data, processing_class=tokenizer, card=bare_card)
    trainer.train()
    trainer.push_to_hub(license="mit", model_name=f"A {strategy} model", token=token)
model.push_to_hub("tester/python", private=True, token=token)
tokenizer.push_to_hub("tester/python", token=token)
"""

# Loads every commit, without the package.
EVERY_COMMIT = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
for name, commit in json.loads(sys.argv[1]):
    where = {"revision": commit, "trust_remote_code": True}
    tokenizer = AutoTokenizer.from_pretrained(name, **where)
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **where)
    ids = model.generate(**tokenizer(["The dog is old."], return_tensors="pt"))
    print(json.dumps([name, tokenizer.batch_decode(ids, skip_special_tokens=True)]))
"""


@pytest.mark.slow
def test_every_pushed_commit_can_be_loaded(hub, hub_python, run, tmp_path):
    finished(hub_python(TRAINING, run / "averaged", tmp_path))
    commits = []
    for (_, name), repository in hub.repos.items():
        found = [oid for oid, commit in repository.commits.items() if "tokenizer.json" in commit["files"]]
        assert len(found) >= {"tester/every_save": 2}.get(name, 1)  # a push is skipped while another one runs
        commits += [(name, oid) for oid in found]
        for oid in repository.commits:
            assert not [path for path, content in files_of(hub, oid, name).items() if b"hf_write" in content]
    assert hub.repos["model", "tester/python"].private
    loaded = finished(hub_python(EVERY_COMMIT, json.dumps(commits))).splitlines()
    assert len(loaded) == len(commits)
    assert len({name for name, _ in map(json.loads, loaded)}) == 5
    card = ModelCard(files_of(hub, name="tester/every_save")["README.md"].decode())
    assert (card.data.license, card.data.pipeline_tag) == ("mit", "translation")
    assert "# A every_save model" in card.content


def test_run_publishes_itself(hub, hub_python, corpus, tmp_path):  # noqa: F811
    """Even without a test set."""
    train = ("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path / "run")
    train += ("--data.test", "{}", "--training.push_to_hub", "true")
    options = ("--training.hub_model_id", NAME, "--training.hub_strategy", "every_save")
    unnamed, token, done = commands(hub_python, train, (*train, "--training.hub_token", "hf_write"), (*train, *options))
    assert (unnamed[0], token[0], done[0]) == (1, 1, 0)
    assert "needs training.hub_model_id" in unnamed[2]
    assert "training.hub_token would be stored with the run" in token[2]
    assert "hf_write" not in token[2]
    found = files_of(hub)
    assert "scores.json" in found
    assert not [name for name in found if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    assert "The recipe names no test set. These are of the validation set" in card_of(hub)
    assert f"vanilla-transformer train {corpus / 'recipe.yaml'}" in card_of(hub)
    assert {result.dataset_name for result in ModelCard(card_of(hub)).data.eval_results} == {"validation"}
    finished(hub_python(USE, "package"))
    published = tmp_path / "run" / "published.json"
    assert json.loads(published.read_text()) == {"repository": NAME}
    published.unlink()
    refusal = hub.fault("status", "/api/repos/create", status=400, skip=1)  # the first request is Trainer's
    publish_again = (*train, *options, "--resume")  # its training has ended
    later = ("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path / "later")
    asked = ("--training.push_to_hub", "true", "--training.hub_model_id", "tester/later", "--resume")
    before = len(hub.log)
    results = commands(hub_python, publish_again, publish_again, later, (*later, *asked))
    assert [status for status, *_ in results] == [1, 0, 0, 0], results
    assert refusal["hits"] == 1
    assert published.exists()
    asked_for = [each["path"] for each in hub.log[before:]]
    assert f"/api/models/{NAME}/preupload/main" in asked_for  # the refused upload was not taken for done
    assert "scores.json" in files_of(hub, name="tester/later")
