"""`train` and `prepare` as processes: what a run folder holds, and when mistakes are found."""

import dataclasses
import gzip
import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
import yaml
from datasets import load_from_disk
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from vanilla_transformer import translate
from vanilla_transformer.command_line import run_command
from vanilla_transformer.data.corpora import TextCorpus
from vanilla_transformer.run.folder import WEIGHTS, RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.sharing.model_card import model_card
from vanilla_transformer.training import run_results

from ..warm_python import CLI, LIBRARIES, PACKAGE
from .conftest import command, finished, json_of, lines_of, losses, output_of, refused


@pytest.fixture
def train(corpus, tmp_path):
    """The arguments of `train` for the small recipe and a new folder; tests add more."""
    return ["train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path / "run"]


def test_run_folder_records_scores_losses_and_settings(run, corpus):
    scores = json_of(run / "scores.json")
    assert {(s["model"], s["test_set"], s["metric"]) for s in scores} == {
        (model, test_set, metric)
        for model in ("averaged", "best", "last")
        for test_set in ("validation", "small")
        for metric in ("chrf", "sacrebleu", "exact_match")
    }
    assert all("version:" in s["signature"] and 0 <= s["value"] <= 100 for s in scores)
    assert [*losses(run)] == list(range(1, 25))
    assert [r["step"] for r in map(json.loads, lines_of(run / "log.jsonl")) if "eval_bleu" in r] == [8, 16, 24]
    filtered = json_of(run / "data.json")["train"]
    assert filtered["pairs"] == 600 == filtered["kept"] + sum(filtered["dropped"].values())
    decoding = json_of(run / "averaged" / "generation_config.json")
    assert (decoding["num_beams"], decoding["length_penalty"]) == (2, 0.6)
    assert yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))["data"]["folder"] == str(corpus)


def test_run_folder_holds_best_model_by_validation(run):
    scores = json_of(run / "scores.json")
    first = [s for s in scores if (s["test_set"], s["metric"]) == ("validation", "chrf")]
    assert len({s["value"] for s in first}) > 1  # or the choice would not show
    [chosen] = {s["model"] for s in scores if s["chosen"]}
    assert max(s["value"] for s in first) == next(s["value"] for s in first if s["model"] == chosen)
    folders = {"averaged": run / "averaged", "best": run / "best", "last": RunFolder(run).good_checkpoints()[-1]}
    expected = load_file(folders[chosen] / "model.safetensors")
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in expected.items())
    assert model.generation_config.num_beams == 2
    translator = pipeline("translation_en_to_de", model=str(run))
    kept = json.loads(lines_of(run / "translations" / "small.jsonl")[0])
    assert translator(kept["source"])[0]["translation_text"] == kept["hypothesis"]


def corpora_of(sources, targets) -> dict[str, TextCorpus]:
    corpus = TextCorpus("given", list(zip(sources, targets, strict=True)), {"languages": ["en", "de"]})
    return dict.fromkeys(("validation", "small"), corpus)


def test_bad_average_is_not_chosen(run, corpus, tmp_path):
    folder = RunFolder(shutil.copytree(run, tmp_path / "run"))
    weights = load_file(folder.averaged / WEIGHTS)
    save_file({name: weight.fill_(0) for name, weight in weights.items()}, folder.averaged / WEIGHTS)
    recipe = load_recipe(folder.recipe, {"evaluation.metrics": "[chrf]", "decoding.num_beams": "1"})
    sources = lines_of(corpus / "test.en")
    said = translate(*load_model(folder.best), sources, num_beams=1)
    assert any(said)  # the best model's translations serve as the references
    run_results.score(folder, recipe, corpora_of(sources, said), show_progress=False)
    assert not any(s["chosen"] for s in json_of(folder.scores) if s["model"] == "averaged")
    assert (folder.path / WEIGHTS).read_bytes() != (folder.averaged / WEIGHTS).read_bytes()


def test_moving_average_is_scored_and_can_be_chosen(train, run, tmp_path):
    options = ("--training.ema_decay", "0.9", "--training.max_steps", "16", "--training.noam_factor", "0.5")
    finished(*train, *options)
    folder = RunFolder(tmp_path / "run")
    last = folder.good_checkpoints()[-1]
    made, saved = load_file(folder.ema / WEIGHTS), load_file(last / "ema.safetensors")
    assert made.keys() == saved.keys()
    assert all(torch.equal(weight, saved[name]) for name, weight in made.items())
    assert "ema.safetensors" in json_of(last / "digests.json")["files"]
    assert {path.name for path in folder.ema.iterdir()} == {path.name for path in folder.best.iterdir()}
    assert list(dict.fromkeys(s["model"] for s in json_of(folder.scores))) == ["averaged", "ema", "best", "last"]
    assert "`ema`: the exponential moving average of the weights; `best`" in model_card(folder.path, title="")
    assert "`ema`" not in model_card(run, title="")
    for other in (folder.averaged, folder.best, last):
        save_file({name: weight.fill_(0) for name, weight in load_file(other / WEIGHTS).items()}, other / WEIGHTS)
    recipe = load_recipe(folder.recipe, {"evaluation.metrics": "[chrf]"})
    sources = ["The old dog sleeps.", "The dog is old."]
    said = translate(*load_model(folder.ema), sources)
    assert any(said)
    run_results.score(folder, recipe, corpora_of(sources, said), show_progress=False)
    assert {s["model"] for s in json_of(folder.scores) if s["chosen"]} == {"ema"}
    assert (folder.path / WEIGHTS).read_bytes() == (folder.ema / WEIGHTS).read_bytes()


def test_run_starts_from_initial_model_and_vocabulary(train, run, tmp_path):
    folder, initial = RunFolder(tmp_path / "run"), shutil.copytree(run, tmp_path / "initial")
    (initial / "known_words.txt.gz").write_bytes(gzip.compress(b"Esperanto\n"))
    hardly = ("--training.noam_factor", "1e-12", "--training.max_steps", "8", "--model.dropout", "0.3")
    options = (*hardly, "--initial_model", initial, "--tokenizer.vocab_size", "300")
    finished(*train, *options)
    before = load_file(initial / WEIGHTS)
    for name, weight in load_file(folder.good_checkpoints()[0] / WEIGHTS).items():
        torch.testing.assert_close(weight, before[name], atol=1e-6, rtol=0)
    assert (folder.tokenizer / "tokenizer.json").read_bytes() == (initial / "tokenizer.json").read_bytes()
    words = gzip.decompress((folder.path / "known_words.txt.gz").read_bytes()).decode().split()
    assert {"Esperanto", "dog"} <= set(words)
    assert f"Trained from the weights of {initial}." in model_card(folder.path, title="").replace("\\", "")
    shutil.rmtree(initial)  # a resumed run no longer needs it
    more = [*train, *options, "--resume", "--training.max_steps", "9"]
    finished(*more)
    assert "was begun with initial_model = " in refused(*more, "--initial_model", run)
    fresh = [*train[:-1], tmp_path / "other", "--initial_model", run]
    assert "model.d_model is 64, and in initial_model" in refused(*fresh, "--model.d_model", "64")
    assert "There is no model in nowhere" in refused(*fresh[:-1], "nowhere")
    prepared = tmp_path / "prepared"
    finished("prepare", *train[1:4], "--output", prepared, "--tokenizer.vocab_size", "300")
    said = refused(*fresh, "--data.train", f"{{prepared: {prepared}}}", "--tokenizer.vocab_size", "300")
    assert f"prepare it again with --tokenizer {run}" in said


def test_best_model_may_have_the_lowest_score():
    for metric, best in (("chrf", "b"), ("ter", "a")):
        record = {"model": "any", "test_set": "validation", "metric": metric}
        scored = {Path(name): [{**record, "value": value}] for name, value in (("a", 1.0), ("b", 2.0), ("c", 2.0))}
        assert run_results.best_by_validation(scored, metric) == Path(best)
    values = {"a": (3.0, 1.0, 9.0), "b": (2.0, 3.0, 1.0)}  # two validation sets and a test set, which does not count
    sets, record = ("validation_x", "validation_y", "newstest"), {"model": "any", "metric": "chrf"}
    scored = {
        Path(name): [{**record, "test_set": name_of, "value": value} for name_of, value in zip(sets, of, strict=True)]
        for name, of in values.items()
    }
    assert run_results.best_by_validation(scored, "chrf") == Path("b")


def test_one_model_with_two_names_is_scored_once(run, tmp_path, monkeypatch):
    folder = RunFolder(shutil.copytree(run, tmp_path / "run"))
    first, *_, last = (checkpoint / "model.safetensors" for checkpoint in folder.good_checkpoints())
    recipe, loaded = load_recipe(folder.recipe), []
    corpora = corpora_of(["The dog is old."], ["Der Hund ist alt."])
    monkeypatch.setattr(run_results, "load_model", lambda path, _: loaded.append(path) or load_model(path))
    for weights, times in ((first, 3), (last, 2)):
        shutil.copy(weights, folder.best)
        loaded.clear()
        run_results.score(folder, recipe, corpora, show_progress=False)
        assert len(loaded) == times
        scores = json_of(folder.scores)
        assert [s["model"] for s in scores] == ["averaged"] * 6 + ["best"] * 6 + ["last"] * 6
    of_best, of_last = ([{**s, "model": "", "chosen": ""} for s in part] for part in (scores[6:12], scores[12:]))
    assert of_best == of_last


def test_mismatched_run_folder_is_left_alone(run, corpus):
    words = ["train", corpus / "recipe.yaml", "--data.folder", corpus, "--output"]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert "--resume" in refused(*words, run)
    assert "model.d_model = 32, not 64" in refused(*words, run, "--resume", "--model.d_model", "64")
    assert "is not a prepared corpus, it holds" in refused("prepare", *words[1:], run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_resume_with_changed_data_is_rejected(run, corpus, tmp_path):
    for path in corpus.iterdir():
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace("Anna", "Hanna"), encoding="utf-8")
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8").replace(str(corpus), str(tmp_path))
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "recipe.yaml").write_text(recipe, encoding="utf-8")
    assert "not the one that" in refused("train", copy / "recipe.yaml", "--output", copy, "--resume")


def test_bad_settings_are_rejected_before_reading_text(train, tmp_path):
    for override, message in (
        (["--model.d_model", "33"], "model.d_model (33) is not a multiple"),
        (["--training.report_to", "dvclive"], "training.report_to: DVCLiveCallback requires dvclive"),
        (["--training.fp16", "true", "--device", "cpu"], "training.fp16 has no effect on the device cpu"),
    ):
        assert message in refused(*train, "--data.folder", tmp_path / "nowhere", *override)
    assert not (tmp_path / "run").exists()


def test_invalid_settings_and_data_are_rejected(train):
    """The remains of a failed start do not stop the next one."""
    learned = ["--model.position_embedding_type", "learned", "--model.max_position_embeddings"]
    short = ["--data.max_source_length", "16", "--data.max_target_length", "16"]
    for override, message in (
        (["--training.max_stps", "3"], "did you mean training.max_steps?"),
        (["--training.max_steps", "many"], "training.max_steps must be int"),
        (["--training.label_smoothing_factor", "1.5"], "label_smoothing_factor must be"),
        (["--decoding.num_beams", "0"], "decoding.num_beams must be"),
        (["--evaluation.metrics", "[]"], "evaluation.metrics is empty"),
        (["--data.test", "{a/b: [test.en, test.de]}"], "is not a name for a test set"),
        (["--data.train", "[nowhere.en, nowhere.de]"], "nowhere.en"),
        (["--training.max_tokens", "5"], "more than max_tokens = 5"),
        (["--training.max_tokens", "6"], "more than max_tokens = 6"),
        (["--data.stream", "true", "--training.max_tokens", "200"], "let pairs of 256 tokens through, and a batch has"),
        (["--data.test", "{t: [nowhere.en, test.de]}"], "nowhere.en"),
        ([*learned, "99"], "data.max_source_length lets 256 tokens through, and the model has 99 learned positions"),
        ([*learned, "16", *short], "tokens, and the model has 16 learned positions: raise model.max_position"),
    ):
        assert message in refused(*train, *override), override


SETTINGS = """
import torch
from vanilla_transformer.commands.process import prepare_for_training

torch.manual_seed(0)
left, right = torch.randn(300, 700), torch.randn(700, 500)
exact = left.double() @ right.double()
print(repr(prepare_for_training()))
print(float(((left @ right) - exact).norm() / exact.norm()))
print(torch.get_float32_matmul_precision())
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the settings are for processors")
def test_speed_settings_keep_float32_accuracy():
    done = LIBRARIES.run(SETTINGS)  # which reads the settings at its first product
    assert done.returncode == 0, done.stderr
    message, error, precision = done.stdout.splitlines()
    assert float(error) < 2e-6
    assert ("oneDNN" in message) == (precision == "medium")
    if sys.platform == "linux":
        assert "keeps the memory that it frees" in message
        assert "--plain-process" in message


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there may be nothing to set")
def test_training_reports_speed_settings_unless_plain_process(run, tmp_path, monkeypatch):
    said = command("train", tmp_path / "no.yaml").stderr
    assert said.startswith("For speed this process keeps the memory that it frees")
    assert "no.yaml" in said
    for name, words in (("train", [tmp_path / "no.yaml"]), ("adapt", [run, "--output", tmp_path / "adapted"])):
        made = []
        monkeypatch.setattr(f"vanilla_transformer.commands.{name}.prepare_for_training", made.append)
        for more in ([], ["--plain-process"]):
            assert run_command([name, *map(str, words), *more, "--device", "cpu"]) == 1  # both lack what they need
        assert made == ["cpu"]


def test_debug_shows_the_traceback():
    done = command("train", "no such recipe", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.slow
def test_corpus_is_prepared_once(corpus, run, tmp_path):
    options = ("--data.folder", corpus, "--data.max_target_length", "20", "--output", tmp_path / "prepared")
    done = finished("prepare", corpus / "recipe.yaml", *options, "--workers", "2")
    assert done.stderr == "Learned a bpe vocabulary of 400 pieces.\n"
    assert "of 600 pairs kept" in done.stdout
    assert "target over 20 tokens" in done.stdout
    prepared = tmp_path / "prepared"
    for name in ("tokenizer.json", "tokenizer_config.json"):  # as a run learns them from the same corpus
        assert (prepared / "tokenizer" / name).read_bytes() == (run / "tokenizer" / name).read_bytes()
    assert 0 < max(load_from_disk(str(prepared))["target_length"]) <= 20
    assert "is complete already" in finished("prepare", corpus / "recipe.yaml", *options).stderr
    options += ("--tokenizer", run / "tokenizer")
    assert "was begun with vocabulary.given = None, not" in refused("prepare", corpus / "recipe.yaml", *options)
    output_of("prepare", corpus / "recipe.yaml", *options, "--output", tmp_path / "given")
    learned, given = (AutoTokenizer.from_pretrained(folder / "tokenizer") for folder in (run, tmp_path / "given"))
    assert given.get_vocab() == learned.get_vocab()


def test_auto_chooses_recipe_trains_and_resumes(tmp_path):
    words = ["train", "auto", "--data.train", "phrasebook:train:300", "--data.source_language", "en"]
    # A test set may have the name of a section of the recipe.
    words += ["--data.test", "{decoding: 'phrasebook:test:20', evaluation: 'phrasebook:test:20'}"]
    words += ["--data.target_language", "de", "--minutes", "0.06", "--output", tmp_path / "run"]
    small = ["--model.d_model", "32", "--model.encoder_layers", "1", "--model.decoder_layers", "1"]
    small += ["--evaluation.metrics", "[chrf]"]
    chosen = finished(*words, *small, "--only-choose").stdout
    assert chosen == (tmp_path / "run" / "chosen.yaml").read_text()
    assert re.search(r"# only [\d,]+ running words\n", chosen)
    finished(*words, *small)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert max(record["elapsed_seconds"] for record in log) < 20
    assert load_recipe(tmp_path / "run" / "recipe.yaml").model["d_model"] == 32
    assert {each["metric"] for each in json_of(tmp_path / "run" / "scores.json")} == {"chrf"}
    assert "tried on the validation pairs: chrf + sacrebleu" in (tmp_path / "run" / "chosen.yaml").read_text()
    decoding = json_of(tmp_path / "run" / "generation_config.json")
    to_begin_with, chosen = chosen, load_recipe(tmp_path / "run" / "chosen.yaml").decoding
    assert {name: decoding[name] for name in chosen} == chosen
    assert 0 < chosen["max_length_offset"] < 50  # the default is the paper's 50
    recipe = load_recipe(tmp_path / "run" / "recipe.yaml")
    assert recipe.decoding == chosen
    # A run that was interrupted before it chose its decoding chooses it when it is resumed.
    (tmp_path / "run" / "chosen.yaml").write_text(to_begin_with)
    before = dataclasses.replace(recipe, decoding=load_recipe(tmp_path / "run" / "chosen.yaml").decoding)
    (tmp_path / "run" / "recipe.yaml").write_text(before.to_yaml())
    finished("train", "--resume", tmp_path / "run")
    assert load_recipe(tmp_path / "run" / "recipe.yaml").decoding == chosen
    assert "tried on the validation pairs" in (tmp_path / "run" / "chosen.yaml").read_text()
    assert "add --resume" in refused(*words, *small)
    again = finished(*words, *small, "--resume").stderr
    assert "Going on from" not in again  # its time is up
    assert "chosen for something else" in refused(*[*words[:-3], "5", *words[-2:]], *small, "--resume")
    assert "--training.max_minutes" in refused("train", "phrasebook", "--minutes", "3", status=2)


def test_auto_trains_on_phrase_pairs_and_resumes(tmp_path):
    run = tmp_path / "run"
    words = ["train", "auto", "--data.train", "phrasebook:train:250", "--data.source_language", "en"]
    words += ["--data.target_language", "de", "--minutes", "5", "--output", run]  # but it ends after 60 updates
    words += ["--model.d_model", "32", "--model.encoder_layers", "1", "--model.decoder_layers", "1"]
    words += ["--training.max_steps", "60", "--training.warmup_steps", "5", "--training.logging_steps", "1"]
    with PACKAGE.start(CLI, *words) as process:
        process.until(lambda: (run / "log.jsonl").exists() and (run / "log.jsonl").read_text().count("\n") > 5)
        process.send_signal(signal.SIGTERM)
        assert process.completed(timeout=120).returncode == 143
    text = {path.name: path.read_text(encoding="utf-8").splitlines() for path in (run / "text").iterdir()}
    assert re.search(r"Going on from \S+checkpoint-\d", finished("train", "--resume", run).stderr)
    assert text == {path.name: path.read_text(encoding="utf-8").splitlines() for path in (run / "text").iterdir()}
    assert len(text["phrases.en"]) == len(text["phrases.de"]) > len(text["train.en"])
    whole, phrases = load_recipe(run / "recipe.yaml").data.mixture
    assert (Path(whole.corpus[0]).name, Path(phrases.corpus[0]).name) == ("train.en", "phrases.en")
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert {record["step"] for record in log if "loss" in record} == set(range(1, 61))
    assert json_of(run / "scores.json")
    assert len(finished("translate", "--model", run, "the house").stdout.splitlines()) == 1


def test_interrupted_auto_search_resumes(tmp_path):
    run = tmp_path / "run"
    words = ["train", "auto", "--data.train", "phrasebook:train:300", "--data.source_language", "en"]
    words += ["--data.target_language", "de", "--minutes", "0.06", "--search", "0.12", "--output", run]
    words += ["--model.d_model", "32", "--model.encoder_layers", "1", "--model.decoder_layers", "1"]
    words += ["--model.dropout", "0.1", "--tokenizer.vocab_size", "300", "--training.max_tokens", "1024"]

    def scores() -> dict[str, list[float]]:
        path = run / "search" / "search.json"
        content = json_of(path) if path.exists() else {"candidates": {}}
        return {name: each["scores"] for name, each in content["candidates"].items()}

    for number, status, done in ((signal.SIGTERM, 143, 2), (signal.SIGKILL, -9, 5)):
        with PACKAGE.start(CLI, *words) as process:
            process.until(lambda done=done: sum(map(len, scores().values())) >= done)
            process.send_signal(number)
            killed = process.completed(timeout=120)
        assert killed.returncode == status
        before = scores()
    finished(*words)
    assert list(scores()) == ["as chosen", "lower rate", "BPE-dropout"]
    assert all(scores()[name][: len(each)] == each for name, each in before.items())
    assert sorted(map(len, scores().values())) == [1, 3, 3]
    chosen = (run / "chosen.yaml").read_text()
    assert f"#   as chosen: {', '.join(f'{score:.2f}' for score in scores()['as chosen'])}" in chosen
    assert load_recipe(run / "recipe.yaml").training["max_minutes"] == 0.06
    assert (run / "search" / "search.png").read_bytes().startswith(b"\x89PNG")
    searched = refused("train", "phrasebook", "--search", "3", status=2)
    assert "--search, --no-phrases and --only-choose are for `train auto`" in searched
    assert "search must be above 0" in refused(*words, "--search", "0", "--output", tmp_path / "other")
