"""The command `adapt`: a small phrasebook model learns a word that it has never read."""

import json
import shutil
from itertools import islice

import pytest
import yaml

from vanilla_transformer import adapting, phrasebook, score_translations, translate
from vanilla_transformer.adapting import AdaptSettings, adaptation_recipe
from vanilla_transformer.command_line import run_command
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.run.recipe import load_recipe

from ..warm_python import CLI, PACKAGE, all_completed
from .conftest import json_of, lines_of, losses, written


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    """Files of pairs with a word that the phrasebook lacks."""
    folder = tmp_path_factory.mktemp("domain")
    for name, pairs in (("train", 300), ("dev", 12)):
        rows = list(islice(phrasebook("train" if name == "train" else "validation"), pairs))
        for language, word in (("en", "steamboat"), ("de", "Donaudampfer")):
            written(folder / f"{name}.{language}", (f"{word} {row[language]}" for row in rows))
    return folder


def words(run, domain, output, *more):
    """The command line."""
    files = {name: json.dumps([str(domain / f"{name}.{side}") for side in ("en", "de")]) for name in ("train", "dev")}
    words = ["adapt", run, "--output", output, "--data.train", files["train"], "--data.validation", files["dev"]]
    words += ["--training.max_steps", 24, "--training.eval_steps", 8, "--training.save_steps", 8]
    words += ["--training.logging_steps", 1, "--training.warmup_steps", 2, "--training.learning_rate", 0.003]
    return [str(word) for word in (*words, "--device", "cpu", *more)]


@pytest.fixture(scope="module")
def adapted(run, corpus, domain, tmp_path_factory):
    output = tmp_path_factory.mktemp("adapted") / "run"
    replay = ("--replay", corpus / "train.en", corpus / "train.de", "--replay-weight", "0.5", "--floor", "100")
    return output, words(run, domain, output, *replay), run_command(words(run, domain, output, *replay))


def test_two_processes_adapt(run, domain, tmp_path):
    output = tmp_path / "run"
    with PACKAGE.together(2, CLI, *words(run, domain, output)) as running:
        done = all_completed(running)
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    assert [each["set"] for each in json_of(output / "adaptation.json")["sets"]] == ["validation", "old"]


def test_adaptation_report_matches_recomputed_scores(adapted, run, corpus):
    output, _, status = adapted
    assert status == 0
    account = json_of(output / "adaptation.json")
    new, old = account["sets"]
    assert (new["set"], old["set"]) == ("validation", "old")
    for row in (new, old):
        kept = [json.loads(line) for line in lines_of(output / "translations" / f"{row['set']}.jsonl")]
        model, tokenizer = load_model(run)
        before = translate(model, tokenizer, [each["source"] for each in kept], num_beams=2)
        assert row["before"]["score"] == pytest.approx(score(before, kept))
        assert row["after"]["score"] == pytest.approx(score([each["hypothesis"] for each in kept], kept))
        assert row["difference"] == pytest.approx(row["after"]["score"] - row["before"]["score"])
        low, high = row["difference_interval"]
        assert low < row["difference"] < high
        assert 1 < row["before"]["score"] != row["after"]["score"]
    assert [row["source"] for row in kept] == lines_of(corpus / "validation.en")  # from the model's own recipe
    recipe = load_recipe(output / "recipe.yaml")
    assert [each.vocabulary for each in recipe.data.mixture] == [True, False]
    assert account["pieces"] == len(load_model(output)[1]) - 400 > 0
    assert "ĠDonaudampfer" in load_model(output)[1].get_vocab()
    assert f"grown by {account['pieces']} pieces" in (output / "adaptation.md").read_text(encoding="utf-8")


def score(texts, rows):
    return score_translations(texts, [row["reference"] for row in rows], ["chrf"], target_language="de")[0].value


def test_finished_adaptation_is_not_repeated(adapted, capsys):
    output, command, _ = adapted
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert run_command(command) == 0
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert "| new (validation) |" in capsys.readouterr().out
    # As an earlier version wrote it, with the width of heads and the folder as it was typed.
    recipe = (output / "recipe.yaml").read_text()
    assert "head_dim" not in recipe
    earlier = recipe.replace("model:\n", "model:\n  head_dim: 16\n  value_head_dim: 16\n")
    for after in ("\n", " adapted"):
        earlier = earlier.replace(f"{command[1]}{after}", f"{command[1]}/{after}")
    (output / "recipe.yaml").write_text(earlier)
    assert run_command(command) == 0, capsys.readouterr().err
    (output / "recipe.yaml").write_text(recipe)
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert run_command(["adapt", f"{command[1]}/", *command[2:]]) == 0
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert run_command([*command, "--floor", "3"]) == 1
    assert "was begun as" in capsys.readouterr().err
    place = command.index("--replay") + 1
    assert run_command([*command[:place], "nowhere.tsv", *command[place + 2 :]]) == 1
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before  # the account is still there


@pytest.mark.parametrize("more", [(), pytest.param(("--lora-rank", "4"), marks=pytest.mark.slow)])
def test_interrupted_adaptation_resumes_exactly(run, domain, tmp_path, more):
    options = ("--no-floor", "--grow-vocabulary", "7", *more)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run_command(words(run, domain, whole, *options)) == 0
    assert run_command(words(run, domain, broken, *options, "--training.max_steps", "11")) == 0
    assert run_command(words(run, domain, broken, *options)) == 0
    assert len(losses(whole)) == 24
    assert losses(broken) == losses(whole)
    for weights in ("model.safetensors", "checkpoints/checkpoint-24/model.safetensors"):
        assert (broken / weights).read_bytes() == (whole / weights).read_bytes()
    load_model(whole)  # it has all the weights of a plain model, whatever was trained


def test_adaptation_keeps_what_the_model_can_read(run, corpus, tmp_path, monkeypatch, caplog):
    """Its decoding, its limits of length, and the text that it was validated on, not one of the same name."""
    model = shutil.copytree(run, tmp_path / "model")
    recipe = yaml.safe_load((model / "recipe.yaml").read_text())
    recipe["data"] |= {"folder": ".", "max_source_length": 90, "max_target_length": 80, "max_length_ratio": 3}
    (model / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    for name in ("generation_config.json", "averaged/generation_config.json"):
        (model / name).write_text("{}")  # a greedy one
    more = {"data.train": "[dev.en, dev.de]"}
    for folder, expected in ((corpus, True), (tmp_path / "other", False)):
        folder.mkdir(exist_ok=True)
        if not expected:
            for side in ("en", "de"):
                written(folder / f"validation.{side}", [f"Something else in {side}."])
        monkeypatch.chdir(folder)
        found = adaptation_recipe(str(model), AdaptSettings(), {**more, "data.validation": "[x.en, x.de]"})
        assert vars(found.data.limits) == {"max_source_length": 90, "max_target_length": 80, "max_length_ratio": 3}
        assert found.decoding["num_beams"] == 1
        assert ("old" in found.data.test) == expected
        assert ("is not the text that the model was validated on" in caplog.text) == (not expected)
    (tmp_path / "other" / "validation.de").unlink()
    found = adaptation_recipe(str(model), AdaptSettings(), {**more, "data.validation": "[x.en, x.de]"})
    assert "old" not in found.data.test


def test_floor_is_measured_as_training_does(random_translator, corpus, tmp_path, monkeypatch):
    """A vocabulary without capitals has none in its references."""
    model = shutil.copytree(random_translator, tmp_path / "model")
    tokenizer = json_of(model / "tokenizer.json")
    tokenizer["normalizer"]["normalizers"].insert(0, {"type": "Lowercase"})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    more = {
        "data.train": "[a, b]",
        "data.validation": "[a, b]",
        "data.source_language": "en",
        "data.target_language": "de",
    }
    old = [str(corpus / f"validation.{side}") for side in ("en", "de")]
    recipe = adaptation_recipe(str(model), AdaptSettings(old=old), more)
    answers = [line.lower() for line in lines_of(corpus / "validation.de")]
    monkeypatch.setattr(adapting, "_translations", lambda *arguments, **options: answers)
    assert adapting._floor_of(str(model), recipe, 1.0, "cpu")[0] == pytest.approx(99)


def test_typed_floors_are_kept(run, corpus, domain, tmp_path, capsys):
    tests = {
        f"--data.test.{name}": json.dumps([str(corpus / f"test.{side}") for side in ("en", "de")])
        for name in ("old", "more")
    }
    more = [word for pair in tests.items() for word in pair]
    command = words(run, domain, tmp_path / "run", *more, "--grow-vocabulary", "0", "--training.max_steps", "8")
    assert run_command([*command, "--training.floors", "{old: 0, more: 0}"]) == 0
    assert load_recipe(tmp_path / "run" / "recipe.yaml").training["floors"] == {"old": 0, "more": 0}
    assert run_command([*command, "--training.floors", "{old: 0, more: 30}"]) == 1
    assert "training.floors" in capsys.readouterr().err


def test_mistakes_are_found_before_the_old_text_is_translated(run, corpus, domain, tmp_path, caplog, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    old = ("--old", str(corpus / "validation.en"), str(corpus / "validation.de"))
    missing = ("--data.train", "[missing.en, missing.de]")
    for output, more, said in (
        ("run", missing, "there is no text file 'missing.en'"),
        ("mine", (), "holds notes.txt"),
        ("run", ("--training.average_last", "2"), "average_last"),
    ):
        assert run_command(words(run, domain, tmp_path / output, *old, *more)) == 1
        assert said in capsys.readouterr().err
        assert " translates " not in caplog.text
    assert not (tmp_path / "run").exists()


def test_options_are_checked_first(capsys):
    for more, said in (
        (["--replay", "[a.en, a.de]"], "--replay takes the names of files without brackets"),
        (["--old", "a.en", "a.de", "a.fr"], "--old takes one file of pairs, or two of lines, not 3"),
        (["--replay-weight", "2"], "--replay-weight is for --replay"),
        (["--floor", "2", "--no-floor"], "--floor or --no-floor, not both"),
    ):
        with pytest.raises(SystemExit) as ended:
            run_command(["adapt", "no-model", "--output", "nowhere", *more])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


def test_no_model_is_saved_below_the_floor(random_translator, corpus, domain, tmp_path, capsys):
    sources = lines_of(corpus / "validation.en")
    translations = translate(*load_model(random_translator), sources)  # as references they make it a perfect model
    old = written(tmp_path / "old.en", sources), written(tmp_path / "old.de", translations)
    more = ("--data.source_language", "en", "--data.target_language", "de", "--training.max_steps", "8")
    command = words(random_translator, domain, tmp_path / "run", "--old", *map(str, old), "--floor", "30", *more)
    assert run_command(command) == 1
    assert "is above its floors (70.00 BLEU on old)" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run" / "model.safetensors").exists()
