"""Table 3 in miniature: its rows, the results that survive a kill, and the verdicts on differences."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import table3
import table3_results

from vanilla_transformer import VanillaTransformerConfig, load_recipe

from .conftest import SCRIPTS, write_files_like_multi30ks


QUICK = ["--updates", "2", "--sentences", "2", "--vocabulary", "300", "--narrower", "16", "--tokens", "256"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_files_like_multi30ks(tmp_path_factory.mktemp("data") / "multi30k", {"train": 60, "val": 4})


@pytest.fixture
def reproduce(data, tmp_path, monkeypatch):
    """Runs the script with more options; returns the lines of its results."""

    def reproduce(*options):
        words = ["table3.py", "--data", str(data), "--output", str(tmp_path / "out"), *QUICK, *options]
        monkeypatch.setattr("sys.argv", words)
        table3.main()
        return (tmp_path / "out" / "results.jsonl").read_text().splitlines()

    return reproduce


def test_killed_script_loses_only_the_current_run(reproduce, tmp_path, capsys):
    """Killed while writing the second run's line, it keeps the first, byte for byte."""
    rows = ["--rows", "base", "table3-c1", "--seeds", "1"]
    whole = reproduce(*rows)
    assert [json.loads(line)["row"] for line in whole[1:]] == ["base", "table3-c1"]
    results = tmp_path / "out" / "results.jsonl"
    results.write_text("\n".join([*whole[:2], whole[2][:30]]))
    [prepared] = (tmp_path / "out").glob("data_*")
    shutil.rmtree(prepared)  # the results alone are enough to resume
    capsys.readouterr()
    again = reproduce(*rows)
    assert again[:2] == whole[:2]
    both = [json.loads(line) for line in (whole[2], again[2])]
    for record in both:
        del record["cpu_seconds"]
    assert both[0] == both[1]  # the seed determines everything
    assert "base seed 1" not in capsys.readouterr().out
    assert reproduce(*rows) == again  # nothing is left to do


def test_results_file_rejects_other_settings(reproduce):
    reproduce("--rows", "table3-c1", "--seeds", "1")
    for others in (("--tokens", "512"), ("--languages", "de", "en"), ("--bf16",)):
        with pytest.raises(SystemExit, match="was begun with"):
            reproduce("--rows", "table3-c1", "--seeds", "2", *others)


def test_number_of_updates_scales_with_minutes(data, tmp_path):
    settings = table3.Settings(16, 256, 300, 2, "en-de", "0123456789", updates=1)
    table3.prepare(table3.load_text(data, ["en", "de"]), tmp_path, settings)
    few, many = (table3.updates_within(minutes, ["base"], 2, settings, tmp_path) for minutes in (0.5, 50))
    assert 20 < many / few < 500


@pytest.mark.slow
def test_killed_script_leaves_no_workers_and_resumes(data, tmp_path):
    words = [sys.executable, SCRIPTS / "experiments" / "table3.py", "--data", data, "--output", tmp_path, *QUICK]
    words += ["--rows", "base", "table3-c1", "table3-a1", "--seeds", "2", "--workers", "2"]
    results = tmp_path / "results.jsonl"
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        while not results.exists() or results.read_text().count("\n") < 3:
            time.sleep(0.1)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    assert len(workers) >= 2
    assert psutil.wait_procs(workers, timeout=30)[1] == []  # none outlives the script
    before = results.read_text().splitlines()[:3]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    after = results.read_text().splitlines()
    assert after[:3] == before
    assert len({(json.loads(line)["row"], json.loads(line)["seed"]) for line in after[1:]}) == len(after) - 1 == 6


def test_scaled_rows_keep_the_papers_proportions():
    """A scaled row is to the scaled base what the paper's row is to its base."""
    paper, small = VanillaTransformerConfig.from_name("base"), table3.scaled("base", 8, 500)
    for row in table3.ROWS:
        ours, theirs = table3.scaled(row, 8, 500), VanillaTransformerConfig.from_name(row)
        for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim"):
            assert getattr(ours, name) * getattr(paper, name) == getattr(theirs, name) * getattr(small, name)
        for side in ("encoder", "decoder"):
            for name in (f"{side}_layers", f"{side}_attention_heads", "dropout", "position_embedding_type"):
                assert getattr(ours, name) == getattr(theirs, name)
        assert ours.head_dim * 8 == theirs.head_dim
        assert ours.value_head_dim * 8 == theirs.value_head_dim
        assert ours.vocab_size == 500
    for row, factor, said in (("base", 7, "--narrower 7 does not divide d_model = 512"), ("table3-a4", 32, "32 heads")):
        with pytest.raises(ValueError, match=said):
            table3.scaled(row, factor, 500)


def test_invalid_options_exit_with_a_message(reproduce, tmp_path, capsys):
    for options, message in (
        (["--narrower", "7"], "--narrower 7 does not divide"),
        (["--languages", "en", "xx"], "train.xx"),
        (["--workers", "0"], "--workers must be 1 or more"),
    ):
        with pytest.raises(SystemExit) as ended:
            reproduce("--rows", "base", *options)
        assert message in f"{ended.value}{capsys.readouterr().err}"
        assert not (tmp_path / "out" / "results.jsonl").exists()


def test_documents_give_one_command_for_table_3():
    files = [SCRIPTS / "experiments" / "table3.py", *SCRIPTS.parent.glob("*.md"), *SCRIPTS.parent.glob("docs/**/*.md")]
    found = [re.findall(r"table3\.py (--data [^`\n]*)", path.read_text(encoding="utf-8")) for path in files]
    assert sum(map(len, found)) >= 2
    assert {command for commands in found for command in commands} == {
        "--data multi30k --output runs/table3 --updates 5000 --bf16 --workers 2"
    }


def test_full_size_commands_match_the_papers_rows(capsys):
    table3.print_full_size()
    for line, (row, paper) in zip(capsys.readouterr().out.splitlines(), table3.ROWS.items(), strict=True):
        _, _, recipe, *words = shlex.split(line)
        overrides = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
        del overrides["output"]
        loaded = load_recipe(recipe, overrides)
        expected = VanillaTransformerConfig.from_name(row, vocab_size=9)
        assert VanillaTransformerConfig(vocab_size=9, **loaded.model).to_dict() == expected.to_dict()
        assert loaded.training.get("label_smoothing_factor", 0.1) == paper.label_smoothing


def runs(**values):
    """One result for each seed of each row: `base=(5.0, 5.1)`."""
    return [
        {"row": row.replace("_", "-"), "seed": seed, "perplexity": value, "bleu": 100 / value, "parameters": 1000}
        for row, of_seeds in values.items()
        for seed, value in enumerate(of_seeds, 1)
    ]


def test_verdicts_compare_directions_against_base():
    """Row A1 of the paper has higher perplexity and lower BLEU, row E differs in neither; one seed decides nothing."""
    for ours, verdict in (((6.0, 6.1), "agrees"), ((4.0, 4.1), "differs"), ((5.0, 5.1), "within noise")):
        [_, row] = table3_results.summary(runs(base=(5.0, 5.1), table3_a1=ours))
        assert (row["perplexity_verdict"], row["bleu_verdict"]) == (verdict, verdict)
    for ours, verdict in (((5.05, 5.06), "agrees (no difference)"), ((7, 7.1), "differs (no difference in the paper)")):
        [_, row] = table3_results.summary(runs(base=(5.0, 5.1), table3_e=ours))
        assert row["perplexity_verdict"] == verdict
    [_, worse, better, like] = table3_results.summary(
        runs(base=(5.0,), table3_a1=(9.0,), table3_c1=(4.0,), table3_e=(4.0,))
    )
    assert worse["perplexity_spread"] is None
    assert (worse["perplexity_verdict"], worse["bleu_verdict"]) == ("same sign", "same sign")
    assert (better["perplexity_verdict"], better["bleu_verdict"]) == ("other sign", "other sign")
    assert like["perplexity_verdict"] == "no difference in the paper"


def test_table_is_printed_without_changing_the_file(tmp_path, printed_by):
    """A line that a killed process left unfinished stays in the file until the next result overwrites it."""
    settings = table3_results.Settings(8, 1024, 4000, 1014, "en-de", "0123456789", updates=1200)
    results = table3_results.Results(tmp_path / "results.jsonl")
    results.begin(settings)
    for record in runs(base=(5.0, 5.1), table3_a1=(6.0, 6.1)):
        results.add({**record, "cpu_seconds": 30.0})
    whole = results.path.read_bytes()
    results.path.write_bytes(whole + b'{"row": "ba')
    printed = printed_by(table3_results, results.path)
    assert "1,200 updates of 1,024 tokens" in printed
    assert "4 runs, 2 minutes" in printed
    assert "| table3-a1 | 1 head | 5.29 | 6.05 ± 0.07 | agrees | 24.9 | 16.5 ± 0.2 | agrees |" in printed
    assert results.path.read_bytes() == whole + b'{"row": "ba'
    again = table3_results.Results(results.path)
    assert again.settings == settings
    again.add({"row": "big"})
    assert results.path.read_bytes() == whole + b'{"row": "big"}\n'


def test_error_names_a_file_without_results(tmp_path, capsys, printed_by):
    file = tmp_path / "other.jsonl"
    for text in ("", "no JSON\n", '{"loss": 1.0}\n', "[1]\n"):
        file.write_text(text)
        with pytest.raises(SystemExit):
            printed_by(table3_results, file)
        assert str(file) in capsys.readouterr().err
