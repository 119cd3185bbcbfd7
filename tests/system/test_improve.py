"""The command `improve`: its stages, what it rejects, and a whole chain that is killed repeatedly."""

import gzip
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from vanilla_transformer.cleaning.rules import CleaningSettings
from vanilla_transformer.command_line import run_command
from vanilla_transformer.command_processes import Command, run_commands
from vanilla_transformer.commands.clean import clean
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.files import alone_in
from vanilla_transformer.improving import _MORE_OF_CLEAN, ImproveSettings, _account, _begin, _write_pairs, stages_of
from vanilla_transformer.run.recipe import load_recipe, load_recipe_with


def recipe_of(folder, **improve):
    content = {
        "data": {
            "source_language": "en",
            "target_language": "de",
            "train": "phrasebook:train:3000",
            "validation": "phrasebook:validation:40",
            "test": {"phrasebook": "phrasebook:test:10"},
        },
        "tokenizer": {"vocab_size": 600},
        "model": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
        | {
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in (("attention_heads", 2), ("ffn_dim", 64))
        },
        "training": {"max_tokens": 512, "max_steps": 80, "warmup_steps": 20, "eval_steps": 20, "save_steps": 20}
        | {"average_last": 2, "noam_factor": 0.5, "seed": 5, "logging_steps": 20},
        "decoding": {"num_beams": 1, "max_length_offset": 20},
        "evaluation": {"metrics": ["chrf"]},
        "improve": improve,
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_each_stage_uses_the_stages_before_it(tmp_path):
    path = recipe_of(
        tmp_path,
        target_text="news.de.gz",
        source_text="web.en.txt",
        clean={"skip": ["numbers_differ", "identical"], "max_length_ratio": 3},
        teachers=3,
        student={"model": {"decoder_layers": 2}},
    )
    recipe, settings = load_recipe_with(path, improve=ImproveSettings)
    stages = list(stages_of(tmp_path / "out", recipe, settings))
    names = [
        "clean",
        "first",
        "reverse",
        "back",
        "teacher-1",
        "teacher-2",
        "teacher-3",
        "distilled",
        "distilled",
        "student",
    ]
    assert [stage.name for stage in stages] == [*names, "export"]
    words = {stage.name: " ".join(stage.words) for stage in stages}
    assert words["clean"].startswith("clean phrasebook:train:3000 --output ")
    assert words["clean"].endswith("--target-language de --max-length-ratio 3 --skip numbers_differ identical")
    assert "--forward" in words["distilled"]
    assert "--forward" not in words["back"]
    assert "/out/reverse --input news.de.gz" in words["back"]
    assert [str(stage.product.relative_to(tmp_path)) for stage in stages if stage.name == "distilled"] == [
        "out/distilled/clean.report.json",
        "out/distilled/source_text/web.report.json",
    ]

    trained = {}
    for stage in stages:
        if stage.words[0] == "train":
            overrides = dict(zip(stage.words[5::2], stage.words[6::2], strict=True))
            trained[stage.name] = load_recipe(
                path, {name.removeprefix("--"): value for name, value in overrides.items()}
            )
    assert trained["reverse"].data.source_language == "de"
    assert trained["reverse"].data.train[0].endswith("out/clean/clean.de.gz")
    assert not trained["reverse"].data.test
    assert [trained[f"teacher-{number}"].training["seed"] for number in (1, 2, 3)] == [5, 6, 7]
    assert [corpus.tag for corpus in trained["teacher-2"].data.mixture] == [None, "<bt>"]
    assert len(trained["student"].data.mixture) == 2
    assert trained["student"].model["decoder_layers"] == 2
    assert trained["first"].model["decoder_layers"] == 1
    # Floors name test sets, and the reverse direction has no test sets.
    floors = {"training.floors": "{phrasebook: 1.0}", "evaluation.metrics": "[sacrebleu]"}
    recipe, settings = load_recipe_with(path, floors, improve=ImproveSettings)
    [reverse] = [stage for stage in stages_of(tmp_path / "out", recipe, settings) if stage.name == "reverse"]
    assert reverse.words[reverse.words.index("--training.floors") + 1] == "{}"


def test_student_uses_relative_paths_where_they_resolve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"data.folder": "texts", "data.train": "[train.en, train.de]", "data.validation": "[val.en, val.de]"}
    recipe, settings = load_recipe_with(recipe_of(tmp_path), files, improve=ImproveSettings)

    def trained_on(stage) -> list[str]:
        return json.loads(stage.words[stage.words.index("--data.train") + 1])

    student = list(stages_of(Path("runs/improve"), recipe, settings))[-2]
    assert str(tmp_path) not in " ".join(student.words)
    [distilled] = trained_on(student)
    assert distilled["corpus"][0] == "../runs/improve/distilled/train.en.gz"
    (tmp_path / "elsewhere" / "texts").mkdir(parents=True)
    (tmp_path / "texts").symlink_to(tmp_path / "elsewhere" / "texts")  # now ".." leads elsewhere
    student = list(stages_of(Path("runs/improve"), recipe, settings))[-2]
    assert trained_on(student)[0]["corpus"][0] == str(tmp_path / "runs/improve/distilled/train.en.gz")


def test_cleaning_finds_gzipped_files_by_plain_name(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}.gz").write_bytes(gzip.compress(b"A.\n"))
    files = {"data.folder": str(tmp_path), "data.train": "[train.en, train.de]"}
    recipe, settings = load_recipe_with(recipe_of(tmp_path, clean={}), files, improve=ImproveSettings)
    first = next(stages_of(tmp_path / "out", recipe, settings))
    assert first.words[1:3] == [str(tmp_path / "train.en.gz"), str(tmp_path / "train.de.gz")]


def test_without_other_text_backtranslation_is_skipped(tmp_path):
    recipe, settings = load_recipe_with(recipe_of(tmp_path, teachers=1, quantization=None), improve=ImproveSettings)
    names = [stage.name for stage in stages_of(tmp_path, recipe, settings)]
    assert names == ["first", "distilled", "student"]  # a teacher with the same pairs and seed would equal the first


def test_reverse_model_has_the_limits_of_the_other_side(tmp_path):
    path = recipe_of(tmp_path, target_text="news.de.gz", quantization=None)
    recipe, settings = load_recipe_with(path, improve=ImproveSettings)
    recipe = replace(recipe, data=replace(recipe.data, max_source_length=200, max_target_length=50))
    [words] = [stage.words for stage in stages_of(tmp_path, recipe, settings) if stage.name == "reverse"]
    found = {side: words[words.index(f"--data.max_{side}_length") + 1] for side in ("source", "target")}
    assert found == {"source": "50", "target": "200"}


def test_diversify_trains_teachers_on_three_versions(tmp_path):
    teacher = {"training": {"max_steps": 90, "seed": 8}}
    improve = {"diversify": True, "teachers": 2, "quantization": None, "teacher": teacher}
    path = recipe_of(tmp_path, **improve)
    recipe, settings = load_recipe_with(path, improve=ImproveSettings)
    stages = list(stages_of(tmp_path, recipe, settings))
    teachers = ["teacher-1", "teacher-2"]
    assert [each.name for each in stages] == ["first", "reverse", *["diverse"] * 2, *teachers, "distilled", "student"]
    seeds = [stage.words[stage.words.index("--training.seed") + 1] for stage in stages[4:6]]
    assert seeds == ["8", "9"]
    forward, backward = (" ".join(stage.words) for stage in stages[2:4])
    assert re.search("/first --input .*/pairs/train.en.gz .*--forward", forward)
    assert re.search("/reverse --input .*/pairs/train.de.gz (?!.*--forward)", backward)
    overrides = dict(zip(stages[4].words[5::2], stages[4].words[6::2], strict=True))
    assert overrides["--training.max_steps"] == "90"
    corpora = [each["corpus"][0] for each in json.loads(overrides["--data.train"])]
    assert [each.removeprefix(f"{tmp_path}/") for each in corpora] == [
        "pairs/train.en.gz",
        "diverse/first/train.en.gz",
        "diverse/reverse/train.en.gz",
    ]
    # A folder from an older version with fewer fields is resumed.
    (tmp_path / "older").mkdir()
    _begin(tmp_path / "older", recipe, ImproveSettings())
    plan = json.loads((tmp_path / "older" / "plan.json").read_text(encoding="utf-8"))
    del plan["improve"]["teacher"], plan["improve"]["diversify"], plan["data"]["context_sentences"]
    (tmp_path / "older" / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    _begin(tmp_path / "older", recipe, ImproveSettings())
    with pytest.raises(ValueError, match=r"was begun with .*diversify = False, not True"):
        _begin(tmp_path / "older", recipe, ImproveSettings(diversify=True))


def test_invalid_plan_is_rejected_before_training(tmp_path, capsys):
    path, english = recipe_of(tmp_path), tmp_path / "news.en.txt"
    english.write_text("A dog.\n")
    german = text_in_german(tmp_path / "news.de.gz", 3)
    blank = tmp_path / "blank.de"
    blank.write_text("\n \n")
    for words, said in [
        (["--improve.teachers", "0"], "improve.teachers must be at least 1"),
        (["--improve.pairs_weight", "-1"], "improve.pairs_weight must be above 0"),
        (["--improve.pairs_weight", "2"], "improve.pairs_weight is for back-translated text"),
        (
            ["--improve.pairs_weight", "0.003", "--improve.target_text", str(german)],
            "improve.pairs_weight: 0.003 and 1 are not a ratio of whole numbers up to 100",
        ),
        (["--initial_model", "somewhere"], "initial_model: improve trains all models from random weights"),
        (["--improve.clean", "{source_language: fr}"], "improve.clean.source_language is unknown"),
        (["--improve.teacher", "{training: {max_tokens: 0}}"], "max_tokens"),
        (
            ["--improve.student", "{training: {max_tokens: 200}}"],
            "has training.max_tokens = 200: raise this, and update_tokens",
        ),
        (
            ["--improve.diversify", "true", "--improve.teacher", "{training: {max_tokens: 200}}"],
            "has training.max_tokens = 200: raise this, and update_tokens",
        ),
        (["--training.seed", "4294967295"], "training.seed: the last of 2 teachers would have 4294967296"),
        (["--improve.teacher", "{training: {seed: two}}"], "training.seed must be int, not 'two'"),
        (
            ["--improve.student", "{model: {position_embedding_type: learned, max_position_embeddings: 99}}"],
            "data.max_source_length lets 256 tokens through, and the model has 99 learned positions",
        ),
        (["--improve.teecher", "2"], "improve.teecher is unknown"),
        (["--improve.clean", "true"], "improve.clean must be dict or null, not True"),
        (["--improve.clean", "{max_length: 3}"], "improve.clean.max_length is unknown; did you mean"),
        (["--improve.clean", "{workers: many}"], "improve.clean.workers must be int, not 'many'"),
        (["--improve.clean", "{min_letters: -1}"], "improve.clean.min_letters must be at least 0"),
        (["--improve.clean", "{workers: 0}"], "improve.clean.workers must be at least 1, not 0"),
        (["--improve.clean", "{keep_best: 0.9}"], "improve.clean: keep_best and min_score are for score_models"),
        (["--improve.clean", "{score_models: [a], keep_best: 0.9}"], "improve.clean: score_models must be two"),
        (["--improve.clean", "{score_models: [a, b], keep_best: 0.9}"], "improve.clean.score_models: There is no "),
        (["--evaluation.metrics", "[bleurt]"], "evaluation.metrics: bleurt is unknown"),
        (["--training.save_steps", "0.5"], "training.save_steps"),
        (["--improve.clean", "{skip: [lies]}"], "There is no rule 'lies': choose from"),
        (["--improve.student", "{decoder_layers: 2}"], "give the student's fields by section"),
        (["--improve.student", "{model: {decoder_layer: 2}}"], "model.decoder_layer is unknown; did you mean"),
        (["--improve.teacher", "{training: 3}"], "improve.teacher.training: give the teacher's fields by section"),
        (["--improve.teacher", "{training: {max_step: 2}}"], "training.max_step is unknown; did you mean"),
        (["--improve.target_text", str(english)], "improve.target_text: "),
        (["--improve.target_text", str(blank)], "blank.de has no text: every line is blank"),
        (["--improve.target_text", "nowhere.de"], "there is no text file 'nowhere.de'"),
        (["--improve.quantization", "int7"], "improve.quantization: choose from float32"),
        (["--data.train", "[{corpus: phrasebook:train:10}, {corpus: phrasebook:train:20}]"], "give it one corpus"),
        (["--data.validation", "[{corpus: phrasebook:validation:10}]"], "improve measures on one set"),
        (["--decoding.no_repeat_ngram_size", "3"], "The student's decoding sets no_repeat_ngram_size = 3"),
        (["--improve.student", "{model: {value_head_dim: 4}}"], "CTranslate2 has no value_head_dim (4)"),
    ]:
        assert run_command(["improve", str(path), "--output", str(tmp_path / "out"), *words]) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run_command(["train", str(path), "--output", str(tmp_path / "run"), "--improve.teachers", "2"]) == 1
    assert "improve.teachers is only for the command improve" in capsys.readouterr().err


def test_multiline_texts_stay_aligned(tmp_path):
    pairs = [("a\nb", "c"), ("x", "y\r\nz"), ("p", "q")]
    rows = "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in pairs)
    (tmp_path / "pairs.jsonl").write_text(rows)
    recipe = load_recipe(recipe_of(tmp_path), {"data.train": "pairs.jsonl", "data.folder": str(tmp_path)})
    _write_pairs(tmp_path / "pairs", recipe, ["train"])
    sides = [gzip.decompress((tmp_path / "pairs" / f"train.{side}.gz").read_bytes()) for side in ("en", "de")]
    assert sides == [b"a b\nx\np\n", b"c\ny z\nq\n"]
    _write_pairs(tmp_path / "pairs", recipe, ["train"])
    (tmp_path / "pairs.jsonl").write_text(rows[:-1])
    with pytest.raises(ValueError, match=r"data\.train: \S+pairs\.jsonl has changed since"):
        _write_pairs(tmp_path / "pairs", recipe, ["train"])
    (tmp_path / "pairs.jsonl").unlink()  # it is not needed any more
    _write_pairs(tmp_path / "pairs", recipe, ["train"])


def test_only_the_student_is_published(tmp_path):
    published = {"training.push_to_hub": "true", "training.hub_model_id": "me/small"}
    recipe, settings = load_recipe_with(recipe_of(tmp_path), published, improve=ImproveSettings)
    stages = [stage for stage in stages_of(tmp_path, recipe, settings) if stage.words[0] == "train"]
    assert [stage.name for stage in stages if "--training.push_to_hub" not in stage.words] == ["student"]
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "scores.json").write_text("[]")
    assert not stages[-1].done  # the upload may have failed
    (tmp_path / "student" / "published.json").write_text("{}")
    assert stages[-1].done


def test_every_option_of_clean_can_be_set():
    options = {*get_type_hints(CleaningSettings), *_MORE_OF_CLEAN}
    assert options == inspect.signature(clean).parameters.keys() - {"corpus", "output", "device"}


def text_in_german(path, lines: int):
    text = "".join(f"{pair['de']}\n" for pair in islice(phrasebook("test"), lines))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def improving(path, output, *words) -> list[str]:
    return [sys.executable, "-m", "vanilla_transformer", "improve", str(path), "--output", str(output), *words]


def test_chain_writes_account_and_is_not_repeated(tmp_path):
    path, output = recipe_of(tmp_path, teachers=1, quantization=None), tmp_path / "out"
    done = subprocess.run(improving(path, output), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    systems = json.loads((output / "account.json").read_text(encoding="utf-8"))["systems"]
    assert [row["system"] for row in systems] == ["first", "student"]
    assert [row.get("against") for row in systems] == [None, "first"]
    assert all(row["megabytes"] > 0 and row["sentences_per_second"] > 0 for row in systems)
    assert (output / "account.png").stat().st_size > 5000
    assert f"| student | {systems[1]['score']:.2f} ± " in done.stdout

    made = {file: file.stat().st_mtime_ns for file in output.glob("*/*") if file.is_file()}
    assert run_command(improving(path, output)[3:]) == 0
    assert {file: file.stat().st_mtime_ns for file in made} == made
    # A single validation pair has no interval.
    for side in (output / "pairs").glob("validation.*"):
        first, *_ = gzip.decompress(side.read_bytes()).splitlines(keepends=True)
        side.write_bytes(gzip.compress(first))
    for translated in output.glob("*.translations.json"):
        translated.unlink()
    account = _account(output, *load_recipe_with(path, improve=ImproveSettings), {}, "cpu")
    assert "± 0.00 | " in account.read_text(encoding="utf-8")


def test_folder_begun_with_another_plan_is_rejected(tmp_path, capsys):
    path, output = recipe_of(tmp_path), tmp_path / "out"
    recipe, settings = load_recipe_with(path, {"data.folder": str(tmp_path)}, improve=ImproveSettings)
    output.mkdir()
    _begin(output, recipe, settings)
    assert run_command(improving(path, output, "--data.folder", str(tmp_path), "--improve.teachers", "3")[3:]) == 1
    assert "was begun with improve.teachers = 2, not 3" in capsys.readouterr().err
    # After a start that failed on a mistyped path, the folder accepts any plan.
    mistyped = ("--data.train", "[gone.en, gone.de]")
    cleaned, unvalidated = (*mistyped, "--improve.clean", "{}"), ("--data.validation", "[gone.en, gone.de]")
    for more in (mistyped, unvalidated, cleaned, mistyped):
        assert run_command(improving(path, tmp_path / "new", *more)[3:]) == 1
        assert "gone.en" in capsys.readouterr().err
        assert [*(tmp_path / "new").iterdir()] == []
    # A chain that was killed right at the start is resumed.
    (output / "recipe.yaml").unlink()
    (output / ".plan.json.0123abcd").touch()
    _begin(output, recipe, settings)
    assert (output / "recipe.yaml").is_file()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert run_command(improving(path, tmp_path / "full")[3:]) == 1
    assert "has other files: choose another folder" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_failed_command_stops_the_other(tmp_path):
    endless = ["train", str(recipe_of(tmp_path)), "--output", str(tmp_path / "run"), "--training.max_steps", "1000000"]
    log = tmp_path / "other.log"
    log.write_text("before\n")
    commands = [Command("run", endless, threads=1), Command("other", ["train", "nowhere.yaml"], threads=1, log=log)]
    with pytest.raises(ValueError, match=r"`train nowhere.yaml` has failed, see .*other.log. .*the same command"):
        run_commands(commands)
    assert re.search(r"^before\n(.*\n)*vanilla-transformer: .*nowhere.yaml", log.read_text(encoding="utf-8"))
    assert all(command.seconds > 0 for command in commands)
    with alone_in(tmp_path / "run"):  # a command that still ran would hold this lock
        pass


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_repeatedly_killed_chain_gives_the_same_result(tmp_path):
    text = text_in_german(tmp_path / "news.de.gz", 200)
    student = {"model": {"encoder_layers": 2}}
    path = recipe_of(tmp_path, clean={}, diversify=True, target_text=str(text), student=student)
    ends = {}
    for name, kills in (("whole", 0), ("killed", 10)):
        words = improving(path, tmp_path / name, "--workers", "2")
        draw = random.Random(1)
        for number in range(kills + 1):
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if number < kills:
                time.sleep(draw.uniform(1, 25))
                process.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            out, err = process.communicate(timeout=900)
            if process.returncode not in (0, 130, 143, -signal.SIGKILL):
                pytest.fail(err[-3000:])
        assert process.returncode == 0, err[-3000:]
        account = json.loads((tmp_path / name / "account.json").read_text(encoding="utf-8"))
        systems = account["systems"]
        assert [row["system"] for row in systems] == ["first", "teacher-1", "ensemble", "student", "export"]
        ends[name] = [(row["system"], row["score"], row["interval"], row["megabytes"]) for row in systems]
        ends[name] += [
            (tmp_path / name / run / "model.safetensors").read_bytes() for run in ("first", "teacher-2", "student")
        ]
        ends[name] += [(tmp_path / name / "export" / "model.bin").read_bytes()]
    assert ends["whole"] == ends["killed"]
    assert "| ensemble | " in out
