"""Every command as a process: what it prints, where, and how it ends."""

import contextlib
import json
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import yaml
from ctranslate2 import Translator
from datasets import Dataset, load_from_disk
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, MarianMTModel, MarianTokenizer

from vanilla_transformer import quantize_int8, translate
from vanilla_transformer.cli import COMMANDS
from vanilla_transformer.run_folder import RunFolder, load_model
from vanilla_transformer.training import run_results
from vanilla_transformer.training.recipe import load_recipe

from ..warm_python import CLI, PACKAGE, PIPE, WarmProcess
from .conftest import command, write_marian


def lines_of(path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


class TestTrain:
    def test_the_run_folder_has_everything(self, run):
        found = {
            str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and "checkpoints" not in str(path)
        }
        assert {
            "recipe.yaml",
            "environment.json",
            "data.json",
            "finished.json",
            "log.jsonl",
            "scores.json",
            "learning_curve.png",
            "attention.png",
            "tokenizer/tokenizer.json",
            "translations/small.jsonl",
            "translations/validation.jsonl",
            *(f"{model}/{name}" for model in ("averaged", "best") for name in ("model.safetensors", "config.json")),
            *(
                f"{model}/{name}"
                for model in ("averaged", "best")
                for name in ("generation_config.json", "recipe.yaml")
            ),
        } <= found
        assert not [name for name in found if name.startswith(".") or "/." in name]

    def test_scores_have_names_and_signatures(self, run):
        scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))
        assert {(s["model"], s["test_set"], s["metric"]) for s in scores} == {
            (model, test_set, metric)
            for model in ("averaged", "best", "last")
            for test_set in ("validation", "small")
            for metric in ("sacrebleu", "exact_match")
        }
        assert all("version:" in s["signature"] and 0 <= s["value"] <= 100 for s in scores)

    def test_one_model_with_two_names_is_scored_once(self, run, tmp_path, monkeypatch):
        folder = RunFolder(shutil.copytree(run, tmp_path / "run"))
        first, *_, last = (checkpoint / "model.safetensors" for checkpoint in folder.good_checkpoints())
        recipe, loaded = load_recipe(folder.recipe), []
        pairs = Dataset.from_list([{"translation": {"en": "The dog is old.", "de": "Der Hund ist alt."}}])
        monkeypatch.setattr(run_results, "load_model", lambda path: loaded.append(path) or load_model(path))
        for weights, times in ((first, 3), (last, 2)):
            shutil.copy(weights, folder.best)
            loaded.clear()
            run_results.score(folder, recipe, dict.fromkeys(("validation", "small"), pairs), show_progress=False)
            assert len(loaded) == times
            scores = json.loads(folder.scores.read_text(encoding="utf-8"))
            assert [s["model"] for s in scores] == ["averaged"] * 4 + ["best"] * 4 + ["last"] * 4
        assert [{**s, "model": "best"} for s in scores[8:]] == scores[4:8]

    def test_the_log_has_one_record_per_update(self, run):
        records = [json.loads(line) for line in lines_of(run / "log.jsonl")]
        assert [r["step"] for r in records if "loss" in r] == list(range(1, 25))
        assert [r["step"] for r in records if "eval_bleu" in r] == [8, 16, 24]

    def test_filter_counts_are_kept(self, run):
        train = json.loads((run / "data.json").read_text(encoding="utf-8"))["train"]
        assert train["pairs"] == 600
        assert train["kept"] + sum(train["dropped"].values()) == 600

    def test_the_decoding_is_saved_with_the_model(self, run):
        decoding = json.loads((run / "averaged" / "generation_config.json").read_text(encoding="utf-8"))
        assert (decoding["num_beams"], decoding["length_penalty"]) == (2, 0.6)

    def test_the_resolved_recipe_is_a_recipe(self, run, corpus):
        assert yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))["data"]["folder"] == str(corpus)

    def test_an_occupied_folder_is_not_touched(self, run, corpus):
        before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
        done = command("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", run)
        assert done.returncode == 1
        assert "--resume" in done.stderr
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before

    def test_a_resume_with_another_recipe_is_refused(self, run, corpus):
        done = command(
            "train",
            corpus / "recipe.yaml",
            "--data.folder",
            corpus,
            "--output",
            run,
            "--resume",
            "--model.d_model",
            "64",
        )
        assert done.returncode == 1
        assert "model.d_model = 32, not 64" in done.stderr

    def test_a_resume_with_other_data_is_refused(self, run, corpus, tmp_path):
        for path in corpus.iterdir():
            text = path.read_text(encoding="utf-8")
            (tmp_path / path.name).write_text(text.replace("Anna", "Hanna"), encoding="utf-8")
        recipe = (run / "recipe.yaml").read_text(encoding="utf-8").replace(str(corpus), str(tmp_path))
        copy = tmp_path / "run"
        shutil.copytree(run, copy)
        (copy / "recipe.yaml").write_text(recipe, encoding="utf-8")
        done = command("train", copy / "recipe.yaml", "--output", copy, "--resume")
        assert done.returncode == 1
        assert "not the one that" in done.stderr

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            (["--training.max_stps", "3"], "did you mean training.max_steps?"),
            (["--training.max_steps", "many"], "training.max_steps must be int"),
            (["--data.train", "[nowhere.en, nowhere.de]"], "nowhere.en"),
            (["--training.max_tokens", "5"], "more than max_tokens = 5"),
            (["--training.label_smoothing_factor", "1.5"], "label_smoothing_factor must be"),
            (["--decoding.num_beams", "0"], "decoding.num_beams must be"),
            (["--evaluation.metrics", "[]"], "evaluation.metrics is empty"),
            (["--data.test", "{a/b: [test.en, test.de]}"], "no name for a test set"),
            (["--data.test", "{t: [nowhere.en, test.de]}"], "nowhere.en"),
        ],
    )
    def test_a_mistake_is_one_line_and_exit_status_1(self, corpus, tmp_path, override, message):
        done = command(
            "train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path / "run", *override
        )
        assert done.returncode == 1
        assert message in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr

    def test_what_a_failed_start_left_does_not_stop_the_next_one(self, corpus, tmp_path):
        folder = tmp_path / "run"
        command(
            "train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder, "--training.max_tokens", "5"
        )
        done = command(
            "train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder, "--training.max_tokens", "6"
        )
        assert "more than max_tokens = 6" in done.stderr

    def test_a_folder_that_is_no_run_is_left_alone(self, corpus, tmp_path):
        (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
        done = command("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path, "--resume")
        assert done.returncode == 1
        assert "it holds thesis.txt" in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

    def test_debug_shows_the_traceback(self, tmp_path):
        done = command("train", "no such recipe", "--debug")
        assert done.returncode == 1
        assert "Traceback" in done.stderr


@contextlib.contextmanager
def translating(run, *options):
    """A `translate` that reads what is typed into it; killed after two minutes."""
    with PACKAGE.start(
        CLI, "translate", "--model", run, *options, stdin=PIPE, environment={"PYTHONUNBUFFERED": ""}
    ) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()


def answer(process: WarmProcess, line: str) -> str:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


def texts_and_scores(output: str) -> list:
    """What `translate` wrote, number by number and text by text."""
    parts = re.split(r"(-\d+\.\d+)", output)
    return parts[::2] + [pytest.approx(float(score), abs=1e-3) for score in parts[1::2]]


class TestTranslate:
    def test_one_line_in_one_line_out(self, run):
        text = "\ufeffThe dog is old.\r\n\n   \n😀 \u2028 x\nNo line feed at the end"
        done = command("translate", "--model", run, input=text)
        assert done.returncode == 0, done.stderr
        translations = done.stdout.split("\n")
        assert len(translations) == 6  # five lines and what follows the last line feed
        assert translations[1] == translations[2] == translations[5] == ""

    def test_arguments_files_and_standard_input_agree(self, run, corpus, tmp_path):
        sentences = lines_of(corpus / "test.en")
        given = command("translate", *sentences, "--model", run).stdout
        read = command("translate", "--model", run, input="\n".join(sentences)).stdout
        command("translate", "--model", run, "--input", corpus / "test.en", "--output", tmp_path / "out")
        assert given == read == (tmp_path / "out").read_text(encoding="utf-8")
        kept = [json.loads(line)["hypothesis"] for line in lines_of(run / "translations" / "small.jsonl")]
        assert given.splitlines() == kept

    def test_a_line_in_gives_a_line_out_before_the_next_is_typed(self, run):
        with translating(run, "--max-tokens", "5") as process:
            for line in ("The dog is old.", "", "I am here."):
                assert answer(process, line).endswith("\n")
            process.stdin.close()
            assert process.stdout.read() == ""
        assert process.returncode == 0

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_an_interrupt_while_waiting_for_a_line(self, run, workers):
        with translating(run, "--workers", workers) as process:
            assert answer(process, "I am here.").endswith("\n")
            process.send_signal(signal.SIGINT)
            process.wait()
            errors = process.stderr.read()
        assert "Fatal" not in errors
        assert "Interrupted." in errors
        assert process.returncode == 1

    @pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
    def test_no_worker_outlives_its_parent(self, run):
        with translating(run, "--workers", "2") as process:
            answer(process, "I am here.")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(children) == 2
            process.kill()
            process.wait()
        for _ in range(100):
            if not any(Path(f"/proc/{child}").exists() for child in children):
                break
            time.sleep(0.1)
        assert not any(Path(f"/proc/{child}").exists() for child in children)

    def test_workers_translate_the_same_and_a_line_at_a_time(self, run, corpus):
        sentences = lines_of(corpus / "test.en")
        alone = command("translate", *sentences, "--model", run).stdout
        assert command("translate", *sentences, "--model", run, "--workers", "2").stdout == alone
        assert command("translate", "--model", run, "--workers", "2", input="\n".join(sentences)).stdout == alone

    def test_weights_of_8_bits(self, run, corpus):
        sentences = lines_of(corpus / "test.en")
        model, tokenizer = load_model(run)
        quantize_int8(model)
        done = command("translate", *sentences, "--model", run, "--quantize", "int8", "--workers", "2")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == translate(model, tokenizer, sentences)

    def test_the_best_few_with_their_scores(self, run):
        sentences = ["The dog is old.", "", "I am here."]
        done = command("translate", *sentences, "--model", run, "--n-best", "3")
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
        for number in "13":
            scores = [float(score) for line, score, _ in rows if line == number]
            assert scores == sorted(scores, reverse=True)
        best = command("translate", *sentences, "--model", run, "--num-beams", "3").stdout.splitlines()
        assert [rows[i][2] for i in (0, 3, 4)] == best

    def test_json_lines(self, run):
        done = command("translate", "The dog is old.", "", "--model", run, "--json", "--n-best", "2")
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert [record["source"] for record in records] == ["The dog is old.", ""]
        assert [len(record["translations"]) for record in records] == [2, 1]
        assert all(each["score"] <= 0 for record in records for each in record["translations"])

    def test_samples_are_repeatable(self, run):
        def drawn(*options):
            done = command("translate", "The dog is old.", "--model", run, "--sample", "--n-best", "4", *options)
            assert done.returncode == 0, done.stderr
            return [line.split("\t")[2] for line in done.stdout.split("\n")[:-1]]  # a sample is any text

        assert drawn("--seed", "1") == drawn("--seed", "1") != drawn("--seed", "2")
        assert len(set(drawn("--seed", "1", "--top-k", "1"))) == 1

    def test_by_ctranslate2_as_by_torch(self, run, corpus, tmp_path):
        """Of a run, which is converted for the time being, and of an exported folder: in the same order and form."""
        exported = tmp_path / "exported"
        assert command("export", run, "--output", exported).returncode == 0
        lines = [*lines_of(corpus / "test.en"), "", "The dog is old. I am here. " * 30]
        (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for options, model in (
            (["--num-beams", "1", "--longest", "40", "--max-tokens", "9"], run),
            (["--split", "en", "--prefix", "Der", "--json"], exported),
            (["--n-best", "2", "--length-penalty", "1", "--workers", "2"], exported),
        ):
            by_torch = command("translate", "--model", run, "--input", tmp_path / "lines", *options)
            options += ["--backend", "ctranslate2", "--output", tmp_path / "out"]
            done = command("translate", "--model", model, "--input", tmp_path / "lines", *options)
            assert done.returncode == 0, done.stderr
            assert done.stderr == by_torch.stderr  # says which line was cut
            found = (tmp_path / "out").read_text(encoding="utf-8")
            assert texts_and_scores(found) == texts_and_scores(by_torch.stdout)
        sampled = (
            "translate",
            "The dog is old.",
            "--model",
            exported,
            "--backend",
            "ctranslate2",
            "--sample",
            "--seed",
        )
        assert command(*sampled, "1").stdout == command(*sampled, "1").stdout != command(*sampled, "2").stdout

    def test_an_exported_folder_is_for_ctranslate2(self, run, tmp_path):
        assert command("export", run, "--output", tmp_path / "out", "--to", "ctranslate2").returncode == 0
        done = command("translate", "hello", "--model", tmp_path / "out")
        assert done.returncode == 1
        assert "was exported: CTranslate2 can run it (translate --backend ctranslate2)" in done.stderr

    def test_a_prefix_and_a_limit(self, run):
        done = command("translate", "The dog is old.", "--model", run, "--prefix", "Der Hund", "--max-tokens", "4")
        assert done.stdout.startswith("Der Hund")
        shortest = command("translate", "The dog is old.", "--model", run, "--max-tokens", "1")
        assert len(shortest.stdout) < len(done.stdout)

    def test_which_words_were_looked_at(self, run):
        done = command("translate", "The dog is old.", "", "--model", run, "--attention", "--prefix", "Der Hund")
        translation, alignment = done.stdout.splitlines()[0].split("\t")
        pairs = [pair.rsplit("=", 1) for pair in alignment.split(" ")]
        assert "".join(target for target, _ in pairs) == "".join(translation.split())
        assert {source for _, source in pairs} <= {"The", "dog", "is", "old", "."}
        assert done.stdout.splitlines()[1] == "\t"
        assert [target for target, _ in pairs][:2] == ["Der", "Hund"]
        record = json.loads(command("translate", "The dog is old.", "--model", run, "--attention", "--json").stdout)
        assert record["translations"][0]["alignment"]["source"] == ["The", "dog", "is", "old", "."]

    def test_paragraphs_and_lines_too_long(self, run):
        sentences = ["The dog is old.", "I am here."]
        alone = command("translate", *sentences, "--model", run).stdout.splitlines()
        split = command("translate", " ".join(sentences), "--model", run, "--split", "en")
        assert split.stdout == " ".join(alone) + "\n"
        assert split.stderr == ""
        long = command("translate", "I am here.", " ".join(sentences), "--model", run, "--longest", "12")
        assert "Line 2 has" in long.stderr
        assert "more than 12: translated in 2 pieces" in long.stderr
        assert long.stdout.splitlines() == [alone[1], " ".join(alone)]

    def test_an_ensemble(self, run, corpus):
        def scores(*models):
            options = [option for model in models for option in ("--model", model)]
            done = command("translate", "The dog is old.", *options, "--n-best", "2")
            assert done.returncode == 0, done.stderr
            return [float(line.split("\t")[1]) for line in done.stdout.splitlines()]

        assert scores(run, run / "averaged") == pytest.approx(scores(run), abs=1e-3)
        assert scores(run, run / "checkpoints" / "checkpoint-16") != pytest.approx(scores(run), abs=1e-3)
        scored = command("score", "--model", run, run, "--sources", corpus / "test.en", "--targets", corpus / "test.de")
        assert scored.returncode == 0, scored.stderr

    def test_an_ensemble_of_two_vocabularies(self, run, tmp_path):
        shutil.copytree(run / "averaged", tmp_path / "other")
        path = tmp_path / "other" / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        first, second, *_ = [piece for piece, number in vocabulary.items() if number > 10]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        path.write_text(json.dumps(content), encoding="utf-8")
        done = command("translate", "--model", run, "--model", tmp_path / "other", "hello")
        assert done.returncode == 1
        assert "another vocabulary" in done.stderr

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--n-best", "3", "--num-beams", "2"], "--n-best 3 needs --num-beams of at least 3, not 2"),
            (["--n-best", "0"], "--n-best must be at least 1, not 0"),
            (["--top-k", "5"], "are for --sample"),
            (["--sample", "--num-beams", "4"], "Give --sample or --num-beams, not both"),
            (["--sample", "--temperature", "0"], "--temperature must be above 0"),
            (["--longest", "0"], "--longest must be at least 1"),
            (["--backend", "abacus"], "There is no backend 'abacus': choose torch or ctranslate2"),
            (["--backend", "ctranslate2", "--attention"], "--attention is for --backend torch"),
            (["--backend", "ctranslate2", "--model", "other"], "CTranslate2 has no ensembles"),
            (
                ["--backend", "ctranslate2", "--sample", "--seed", "1", "--workers", "2"],
                "what is drawn depends on the worker: give --seed or --workers",
            ),
            (["--backend", "ctranslate2", "--quantize", "int8"], "--quantize is for --backend torch"),
            (["--quantize", "int7"], "no quantization 'int7' to translate with: choose int8"),
        ],
    )
    def test_options_that_make_no_sense_together(self, tmp_path, options, message):
        done = command("translate", "hello", "--model", tmp_path, *options)
        assert done.returncode == 2
        assert message in done.stderr

    def test_weights_that_are_missing_are_not_made_up(self, run, tmp_path):
        shutil.copytree(run / "averaged", tmp_path / "model")
        weights = load_file(tmp_path / "model" / "model.safetensors")
        del weights["model.decoder.layers.0.fc1.weight"]
        save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
        done = command("translate", "hello", "--model", tmp_path / "model")
        assert done.returncode == 1
        assert "not complete: model.decoder.layers.0.fc1.weight is missing" in done.stderr

    def test_no_input_no_output(self, run):
        done = command("translate", "--model", run, input="")
        assert (done.returncode, done.stdout) == (0, "")

    def test_what_is_not_utf8_is_named(self, run, tmp_path):
        (tmp_path / "latin").write_bytes("gut\nschön\n".encode("latin-1"))
        done = command("translate", "--model", run, "--input", tmp_path / "latin", "--output", tmp_path / "out")
        assert done.returncode == 1
        assert "latin, line 2 is not UTF-8" in done.stderr
        assert not (tmp_path / "out").exists()

    def test_a_missing_model_is_named(self, tmp_path):
        done = command("translate", "hello", "--model", tmp_path)
        assert done.returncode == 1
        assert f"no model in {tmp_path}" in done.stderr

    def test_a_place_that_cannot_be_written_shows_before_the_work_is_done(self, run, tmp_path):
        done = command("translate", "hello", "--model", tmp_path / "none", "--output", tmp_path / "missing" / "out")
        assert done.returncode == 1
        assert "There is no folder" in done.stderr

    def test_a_folder_is_no_input(self, run, tmp_path):
        done = command("translate", "--model", run, "--input", tmp_path)
        assert done.returncode == 1
        assert "is a folder; name a text file in it" in done.stderr


class TestPrepare:
    @pytest.mark.slow
    def test_a_corpus_is_prepared_once(self, corpus, run, tmp_path):
        options = ("--data.folder", corpus, "--data.max_target_length", "20", "--output", tmp_path / "prepared")
        done = command("prepare", corpus / "recipe.yaml", *options, "--workers", "2")
        assert done.returncode == 0, done.stderr
        assert done.stderr == "Learned a vocabulary of 400 pieces.\n"
        assert "of 600 pairs kept" in done.stdout
        assert "target over 20 tokens" in done.stdout
        prepared = tmp_path / "prepared"
        for name in ("tokenizer.json", "tokenizer_config.json"):  # what a run learns of the same corpus
            assert (prepared / "tokenizer" / name).read_bytes() == (run / "tokenizer" / name).read_bytes()
        assert 0 < max(load_from_disk(str(prepared))["target_length"]) <= 20
        again = command("prepare", corpus / "recipe.yaml", *options)
        assert again.returncode == 0, again.stderr
        assert "is complete already" in again.stderr
        other = command("prepare", corpus / "recipe.yaml", *options, "--tokenizer", run / "tokenizer")
        assert other.returncode == 1
        assert len(other.stderr.splitlines()) == 1
        assert "was begun with another vocabulary" in other.stderr

    @pytest.mark.slow
    def test_a_given_vocabulary(self, corpus, run, tmp_path):
        arguments = (corpus / "recipe.yaml", "--data.folder", corpus, "--tokenizer", run / "tokenizer")
        done = command("prepare", *arguments, "--output", tmp_path / "prepared")
        assert (done.returncode, done.stderr) == (0, "")
        learned, given = (
            AutoTokenizer.from_pretrained(folder / "tokenizer") for folder in (run, tmp_path / "prepared")
        )
        assert given.get_vocab() == learned.get_vocab()

    def test_a_folder_that_is_something_else_is_left_alone(self, corpus, run):
        before = sorted(run.rglob("*"))
        done = command("prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--output", run)
        assert done.returncode == 1
        assert "is no prepared corpus, it holds" in done.stderr
        assert sorted(run.rglob("*")) == before


class TestScore:
    def test_a_line_for_every_pair(self, run, tmp_path):
        targets = ["Der Hund ist alt.", "", "Ich bin hier."]
        (tmp_path / "en").write_text("The dog is old.\n\nI am here.\n", encoding="utf-8")
        (tmp_path / "de").write_text("".join(f"{target}\n" for target in targets), encoding="utf-8")
        done = command("score", "--model", run, "--sources", tmp_path / "en", "--targets", tmp_path / "de")
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert [row[3] for row in rows] == targets
        for score, total, per_token, _ in rows:
            assert float(total) <= float(score) < 0
            assert float(total) <= float(per_token) < 0

    def test_translations_of_one_source_are_ranked(self, run, tmp_path):
        (tmp_path / "en").write_text("The dog is old.\nI am here.\nThe dog is old.\n", encoding="utf-8")
        (tmp_path / "de").write_text(
            "Der Hund ist alt.\nIch bin hier.\nAlt alt alt Hund der der der.\n", encoding="utf-8"
        )
        options = ("--model", run, "--sources", tmp_path / "en", "--targets", tmp_path / "de", "--rank", "--json")
        records = [json.loads(line) for line in command("score", *options).stdout.splitlines()]
        assert [record["source"] for record in records] == ["The dog is old.", "The dog is old.", "I am here."]
        assert records[0]["score"] > records[1]["score"]

    def test_files_of_different_lengths(self, run, tmp_path):
        (tmp_path / "en").write_text("a\nb\n", encoding="utf-8")
        (tmp_path / "de").write_text("a\n", encoding="utf-8")
        done = command("score", "--model", run, "--sources", tmp_path / "en", "--targets", tmp_path / "de")
        assert done.returncode == 1
        assert "2 lines" in done.stderr


class TestOthers:
    def test_tokenizer(self, corpus, tmp_path):
        done = command(
            "tokenizer", corpus / "train.en", corpus / "train.de", "--output", tmp_path / "t", "--vocab-size", "400"
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "t" / "tokenizer.json").is_file()

    def test_too_large_a_vocabulary_leaves_nothing(self, corpus, tmp_path):
        done = command("tokenizer", corpus / "test.en", "--output", tmp_path / "t", "--vocab-size", "40000")
        assert done.returncode == 1
        assert "at most" in done.stderr
        assert list(tmp_path.iterdir()) == []

    def test_average_of_a_run_is_its_averaged_model(self, run, tmp_path):
        done = command("average", run, "--output", tmp_path / "mean", "--last", "2")
        assert done.returncode == 0, done.stderr
        weights = "model.safetensors"
        assert (tmp_path / "mean" / weights).read_bytes() == (run / "averaged" / weights).read_bytes()

    def test_a_converted_model_translates_as_marian_does(self, corpus, tmp_path):
        write_marian(tmp_path / "marian")
        done = command("convert", tmp_path / "marian", "--output", tmp_path / "ours")
        assert done.returncode == 0, done.stderr
        sentences = lines_of(corpus / "test.en")[:4]
        done = command("translate", *sentences, "--model", tmp_path / "ours")
        assert done.returncode == 0, done.stderr
        model = MarianMTModel.from_pretrained(tmp_path / "marian")
        tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
        assert done.stdout.splitlines() == translate(model, tokenizer, sentences)

    @pytest.mark.parametrize("lost", ["weights", "source.spm"])
    def test_half_a_marian_model_is_not_converted(self, tmp_path, lost):
        write_marian(tmp_path / "in" / "marian")
        if lost == "weights":
            settings = json.loads((tmp_path / "in" / "marian" / "config.json").read_text(encoding="utf-8"))
            text = json.dumps(settings | {"decoder_layers": 3})
            (tmp_path / "in" / "marian" / "config.json").write_text(text, encoding="utf-8")
        else:
            (tmp_path / "in" / "marian" / "source.spm").unlink()
        done = command("convert", tmp_path / "in" / "marian", "--output", tmp_path / "ours")
        assert done.returncode == 1
        expected = "not complete: model.decoder.layers.2" if lost == "weights" else "no whole Marian tokenizer"
        assert expected in done.stderr.splitlines()[-1]
        assert [path.name for path in tmp_path.iterdir()] == ["in"]

    def test_what_is_no_marian_model_is_not_converted(self, run, tmp_path):
        done = command("convert", run / "averaged", "--output", tmp_path / "ours")
        assert done.returncode == 1
        assert "is no Marian model" in done.stderr.splitlines()[-1]
        assert list(tmp_path.iterdir()) == []

    def test_an_exported_model_translates_as_before(self, run, corpus, tmp_path):
        done = command("export", run, "--output", tmp_path / "out", "--quantization", "float32")
        assert done.returncode == 0, done.stderr
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
        sentences = lines_of(corpus / "test.en")
        found = Translator(str(tmp_path / "out"), intra_threads=1).translate_batch(
            [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(sentences).input_ids],
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=9,
        )
        rows = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
        done = command("translate", *sentences, "--model", run, "--num-beams", "1", "--max-tokens", "9")
        assert done.stdout.splitlines() == tokenizer.batch_decode(rows, skip_special_tokens=True)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--quantization", "int7"], "There is no quantization 'int7': choose float32, float16,"),
            (["--to", "dance"], "There is no engine 'dance' to export to: choose ctranslate2 or onnx"),
            (["--to", "onnx", "--quantization", "int8"], "--quantization is for CTranslate2: ONNX gets float32"),
        ],
    )
    def test_an_export_of_no_known_kind(self, tmp_path, options, message):
        done = command("export", tmp_path / "missing", "--output", tmp_path / "out", *options)
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "words",
        [
            ["curves", "RUN", "RUN"],
            ["schedule", "512:4000", "256:100"],
            ["positions"],
            ["attention", "RUN", "The dog is old."],
            ["attention", "RUN", "The dog is old.", "Der Hund ist alt.", "--attention", "decoder", "--lines"],
            ["attention", "RUN", "The dog.", "Der Hund.", "--layer", "1", "--head", "2", "--query", "Hund", "--words"],
            ["attention", "RUN", "A dog.", "--layer", "1", "--lines", "--query", "1", "--query", "</s>"],
        ],
    )
    def test_plot(self, run, tmp_path, words):
        picture = tmp_path / "picture.svg"
        done = command("plot", *[run if word == "RUN" else word for word in words], "--output", picture)
        assert done.returncode == 0, done.stderr
        assert picture.read_text(encoding="utf-8").startswith("<?xml")

    @pytest.mark.parametrize(
        ("words", "status", "message"),
        [
            (["attention", "RUN", "A dog.", "--layer", "2"], 2, "1 such layers: choose --layer from 1 to 1"),
            (["attention", "RUN", "A dog.", "--layer", "0"], 2, "choose --layer from 1 to 1"),
            (["attention", "RUN", "A dog.", "--layer", "1", "--head", "3"], 2, "choose --head from 1 to 2"),
            (["attention", "RUN", "A dog.", "--head", "1"], 2, "--head is for the heads of one layer: add --layer"),
            (["attention", "RUN", "A dog.", "--attention", "self"], 2, "choose encoder, decoder, cross"),
            (["attention", "RUN", "A dog.", "Ein Hund.", "--layer", "1", "--query", "Katze"], 2, "none of the words"),
            (["attention", "RUN"], 2, "Give a model and a sentence"),
            (["schedule", "512"], 2, "Schedules are D_MODEL:WARMUP"),
            (["schedule", "512:0"], 2, "Schedules are D_MODEL:WARMUP"),
            (["curves"], 2, "Give one run folder or several"),
            (["curves", "nowhere"], 1, "no training log nowhere"),
            (["curves", "RUN", "--layer", "1"], 2, "--layer is for attention"),
            (["positions", "RUN"], 2, "of no model"),
            (["dance"], 2, "Nothing to draw is called 'dance'"),
        ],
    )
    def test_a_plot_of_nothing(self, run, tmp_path, words, status, message):
        words = [run if word == "RUN" else word for word in words]
        done = command("plot", *words, "--output", tmp_path / "picture.png")
        assert done.returncode == status
        assert message in done.stderr.splitlines()[-1]
        assert list(tmp_path.iterdir()) == []

    def test_recipes(self):
        listed = command("recipes").stdout
        assert "phrasebook" in listed
        assert "multi30k_en_de" in listed

    @pytest.mark.parametrize("name", [function.__name__ for function in COMMANDS])
    def test_help(self, name):
        done = command(name, "--help")
        assert done.returncode == 0
        assert f"usage: vanilla-transformer {name}" in done.stdout

    @pytest.mark.parametrize("arguments", [[], ["dance"], ["translate"], ["translate", "--modle", "x"]])
    def test_a_senseless_command_line_is_exit_status_2(self, arguments):
        done = command(*arguments)
        assert done.returncode == 2
        assert "usage" in done.stderr
