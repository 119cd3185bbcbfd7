"""`translate` and `score` as processes: what they print, where, and how they end."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from vanilla_transformer import Punctuation, quantize_int8, score_pairs, translate
from vanilla_transformer.commands.translate import input_blocks
from vanilla_transformer.run.loading import load_model

from ..warm_python import CLI, PACKAGE, PIPE, WarmProcess
from .conftest import command, finished, lines_of, output_of, refused, written


DOG = "The dog is old."


@contextlib.contextmanager
def translating(run, *options):
    """A `translate` that reads typed lines; killed after two minutes."""
    words, environment = ("translate", "--model", run, *options), {"PYTHONUNBUFFERED": ""}
    with PACKAGE.start(CLI, *words, stdin=PIPE, environment=environment) as process:
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
    """The output of `translate`, split into texts and approximate scores."""
    parts = re.split(r"(-\d+\.\d+)", output)
    return parts[::2] + [pytest.approx(float(score), abs=1e-3) for score in parts[1::2]]


@pytest.fixture(scope="module")
def sentences(corpus) -> list[str]:
    return lines_of(corpus / "test.en")


@pytest.fixture(scope="module")
def alone(run, sentences) -> str:
    """The translations of the sentences."""
    return output_of("translate", *sentences, "--model", run)


# ----------------------------------------------------------------------------------------------------- lines in and out


def test_one_line_in_one_line_out(run):
    text = "\ufeffThe dog is old.\r\n\n   \n😀 \u2028 x\nNo line feed at the end"
    translations = output_of("translate", "--model", run, input=text).split("\n")
    assert len(translations) == 6  # five lines and the text after the last line feed
    assert translations[1] == translations[2] == translations[5] == ""
    assert output_of("translate", "--model", run, input="") == ""


def test_arguments_files_standard_input_and_workers_agree(run, corpus, sentences, alone, tmp_path):
    words = ("translate", "--model", run)
    assert output_of(*words, input="\n".join(sentences)) == alone
    output_of(*words, "--input", corpus / "test.en", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8") == alone
    one, two = (output_of(*words, *sentences, "--device", "cpu", "--workers", number) for number in ("1", "2"))
    assert one == two == output_of(*words, "--device", "cpu", "--workers", "2", input="\n".join(sentences))
    kept = map(json.loads, lines_of(run / "translations" / "small.jsonl"))
    assert alone.splitlines() == [each["hypothesis"] for each in kept]


def test_each_line_is_answered_before_the_next(run):
    with translating(run, "--max-tokens", "5") as process:
        for line in (DOG, "", "I am here."):
            assert answer(process, line).endswith("\n")
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_interrupt_while_waiting_ends_cleanly(run):
    with translating(run) as process:
        assert answer(process, "I am here.").endswith("\n")
        process.send_signal(signal.SIGINT)
        process.wait()
        errors = process.stderr.read()
    assert "Fatal" not in errors
    assert "Interrupted." in errors
    assert process.returncode == 130


def test_paragraphs_and_long_lines_are_split(run):
    pair = [DOG, "Anna is sleeping."]
    each = output_of("translate", *pair, "--model", run).splitlines()
    split = command("translate", " ".join(pair), "--model", run, "--split", "en")
    assert (split.stdout, split.stderr) == (" ".join(each) + "\n", "")
    long = command("translate", pair[1], " ".join(pair), "--model", run, "--longest", "12")
    assert re.match(r"Line 2 has \d+ tokens at a stretch, more than 12: translated in 2 pieces", long.stderr)
    assert long.stdout.splitlines() == [each[1], " ".join(each)]


def test_options_accept_underscores_and_hyphens(run, tmp_path):
    """`--num_beams` means the same as `--num-beams`; everything after `--` is text."""
    spelled = [
        output_of("translate", "--model", run, *words, "--", "--num_beams=2", "The dog.")
        for words in (["--num-beams", "3", "--n-best=2"], ["--num_beams", "3", "--n_best=2"])
    ]
    assert spelled[0] == spelled[1]
    assert len(spelled[0].splitlines()) == 4
    missing = refused("train", tmp_path / "none.yaml", "--training.max-steps", "many", "--plain_process")
    assert "none.yaml" in missing
    wrong = refused("train", "phrasebook", "--training.max-steps", "many", "--output", tmp_path / "run")
    assert "training.max_steps must be int, not 'many'" in wrong


# ----------------------------------------------------------------------------------------------------------- the search


def test_n_best_lists_ranked_translations_with_scores(run):
    lines = [DOG, "", "I am here."]
    rows = [line.split("\t") for line in output_of("translate", *lines, "--model", run, "--n-best", "3").splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    for number in "13":
        scores = [float(score) for line, score, _ in rows if line == number]
        assert scores == sorted(scores, reverse=True)
    best = output_of("translate", *lines, "--model", run, "--num-beams", "3").splitlines()
    assert [rows[i][2] for i in (0, 3, 4)] == best
    as_json = output_of("translate", *lines, "--model", run, "--n-best", "3", "--json").splitlines()
    for record, line, number in zip(map(json.loads, as_json), lines, "123", strict=True):
        assert record["source"] == line
        found = [[number, f"{each['score']:.4f}", each["text"]] for each in record["translations"]]
        assert found == [row for row in rows if row[0] == number]


def test_samples_are_repeatable(run):
    def drawn(*options):
        output = output_of("translate", DOG, "--model", run, "--sample", "--n-best", "4", *options)
        return [line.split("\t")[2] for line in output.split("\n")[:-1]]  # a sample may contain any character

    assert drawn("--seed", "1") == drawn("--seed", "1", "--num-beams", "1") != drawn("--seed", "2")
    assert len(set(drawn("--seed", "1", "--top-k", "1"))) == 1


def test_prefix_and_max_tokens_are_respected(run):
    begun = output_of("translate", DOG, "--model", run, "--prefix", "Der Hund", "--max-tokens", "4")
    assert begun.startswith("Der Hund")
    assert len(output_of("translate", DOG, "--model", run, "--max-tokens", "1")) < len(begun)


def test_attention_prints_word_alignment(run):
    lines = output_of("translate", DOG, "", "--model", run, "--attention", "--prefix", "Der Hund").splitlines()
    translation, alignment = lines[0].split("\t")
    pairs = [pair.rsplit("=", 1) for pair in alignment.split(" ")]
    assert "".join(target for target, _ in pairs) == "".join(translation.split())
    assert {source for _, source in pairs} <= {"The", "dog", "is", "old", "."}
    assert lines[1] == "\t"
    assert pairs[0][0] == "Der"
    assert pairs[1][0].startswith("Hund")  # a model of 24 updates may continue the word
    record = json.loads(output_of("translate", DOG, "--model", run, "--attention", "--json"))
    assert record["translations"][0]["alignment"]["source"] == ["The", "dog", "is", "old", "."]


def test_markup_is_kept_or_reported_as_broken(run, tmp_path):
    lines = [f"<b>{DOG}</b> {{name}} 7<br>", "<p>", f"<b>{DOG}", ""]
    text = written(tmp_path / "lines", lines)
    options = ("--model", run, "--input", text, "--markup", "html", "--keep-numbers")
    done = finished("translate", *options)
    first, *rest = done.stdout.splitlines()
    assert [first.count(each) for each in ("<b>", "</b>", "{name}", "7", "<br>")] == [1, 1, 1, 1, 1]
    assert rest[0::2] == ["<p>", ""]
    assert "<" not in rest[1]
    # Unknown words are looked for only in the text, not in the markup.
    assert done.stderr.splitlines()[0] == "Line 3: broken markup, translated as text: <b> is not closed in this line."
    assert not any("Line 1" in line for line in done.stderr.splitlines())
    records = [json.loads(line)["translations"][0] for line in output_of("translate", *options, "--json").splitlines()]
    assert [each["text"] for each in records] == [first, *rest]
    assert [number for number, each in enumerate(records, start=1) if "broken_markup" in each] == [3]
    assert "alignment" not in records[0]


def test_recase_restores_capitals(run):
    plain = output_of("translate", DOG, "--model", run)
    done = finished("translate", DOG.upper(), DOG, "--model", run, "--recase")
    assert done.stdout == plain.upper() + plain != 2 * plain
    assert "has not learned" not in done.stderr  # the model does not see the capitals
    assert "--recase changes the words" in refused(
        "translate", DOG, "--model", run, "--recase", "--attention", status=2
    )


def test_respell_reads_typos_as_known_words(run):
    plain = output_of("translate", DOG, "--model", run)
    done = finished("translate", "Teh dog is olld.", DOG.upper(), "--model", run, "--respell", "--recase")
    assert done.stdout == plain + plain.upper() != 2 * plain
    assert 'Line 1: the model has not learned "Teh" (read as "The"), "olld" (read as "old")' in done.stderr
    record = json.loads(output_of("translate", "TEH DOG IS OLD.", "--model", run, "--respell", "--recase", "--json"))
    assert record["respelled"] == {"Teh": "The"}
    assert record["translations"][0]["text"] == plain.strip().upper()
    assert "would change markup" in refused("translate", DOG, "--model", run, "--respell", "--markup", "xml", status=2)


def test_repunctuate_adds_full_stop_only_for_reading(run):
    plain = output_of("translate", DOG, "--model", run)
    bare = output_of("translate", DOG.removesuffix("."), DOG, "--model", run, "--repunctuate")
    assert bare == f"{Punctuation().take_off(plain.strip())}\n{plain}"
    assert "--repunctuate adds a sign" in refused(
        "translate", DOG, "--model", run, "--repunctuate", "--markup", "xml", status=2
    )


def test_respell_needs_the_word_list(run, tmp_path):
    model = shutil.copytree(run / "averaged", tmp_path / "model")
    for path in model.glob("known_words*"):
        path.unlink()
    assert "--respell needs the list of words" in refused("translate", DOG, "--model", model, "--respell", status=2)


def test_unknown_words_are_reported(run, tmp_path):
    """They are named on standard error, once per line; translations and their order do not change."""
    model = shutil.copytree(run / "averaged", tmp_path / "model")
    lines = [DOG, "I am here, 日本, here.", "", DOG] + ["Hello."] * 30
    text = written(tmp_path / "lines", lines)

    def translated(*options):
        done = finished("translate", "--model", model, "--input", text, "--num-beams", "1", *options)
        return done.stdout, done.stderr.splitlines()

    out, warnings = translated()
    words = '"here", "日本"'
    assert warnings[0] == f"Line 2: the model has not learned {words}: the translation may be wrong."
    assert warnings[1].startswith('Line 5: the model has not learned "Hello"')
    assert len(warnings) == 22
    assert warnings[-1].startswith("31 of 34 lines have words that the model has not learned")
    one, two = (translated("--device", "cpu", "--workers", number) for number in ("1", "2"))
    assert one == two
    assert one[1] == warnings
    output_of("export", model, "--output", tmp_path / "exported")
    by_ctranslate2 = command(
        "translate", *lines[:2], "--model", tmp_path / "exported", "--backend", "ctranslate2", "--num-beams", "1"
    )
    assert by_ctranslate2.stderr.splitlines() == warnings[:1]
    (model / "known_words.txt.gz").write_bytes(b"no list")
    again, damaged = translated()
    assert again == out
    assert "known_words.txt.gz is not a list of words" in damaged[0]
    (model / "known_words.txt.gz").unlink()
    again, without_list = translated()
    assert again == out
    bytes_alone = 'Line 2: the model has not learned "日本,": the translation may be wrong.'
    assert damaged[1:] == without_list == [bytes_alone]


# ------------------------------------------------------------------------------------------------- models and engines


def test_int8_output_matches_python_api(run, sentences):
    model, tokenizer = load_model(run, "cpu")
    exact = translate(model, tokenizer, sentences)
    quantize_int8(model)
    options = ("--quantize", "int8", "--workers", "2", "--device", "cpu")
    found = output_of("translate", *sentences, "--model", run, *options)
    assert found.splitlines() == translate(model, tokenizer, sentences) != exact


def test_bfloat16_output_matches_python_api(run, sentences):
    model, tokenizer = load_model(run)
    exact = translate(model, tokenizer, sentences)
    found = output_of("translate", *sentences, "--model", run, "--precision", "bfloat16")
    assert found.splitlines() == translate(model.to(torch.bfloat16), tokenizer, sentences) != exact
    assert "Translates in " in command("translate", *sentences, "--model", run, "--precision", "auto").stderr


def test_ctranslate2_output_matches_torch(run, sentences, tmp_path):
    """For a run, which is converted temporarily, and for an exported folder: in the same order and form."""
    exported = tmp_path / "exported"
    output_of("export", run, "--output", exported)
    text = written(tmp_path / "lines", [*sentences, "", f"{DOG} I am here. " * 30])
    for options, model in (
        (["--num-beams", "1", "--longest", "40", "--max-tokens", "9"], run),
        (["--split", "en", "--prefix", "Der", "--json"], exported),
        (["--n-best", "2", "--length-penalty", "1", "--workers", "2", "--device", "cpu"], exported),
    ):
        by_torch = command("translate", "--model", run, "--input", text, *options)
        options += ["--backend", "ctranslate2", "--output", tmp_path / "out"]
        done = finished("translate", "--model", model, "--input", text, *options)
        assert done.stderr == by_torch.stderr  # says which line was cut
        found = (tmp_path / "out").read_text(encoding="utf-8")
        assert texts_and_scores(found) == texts_and_scores(by_torch.stdout)
    sampled = ("translate", DOG, "--model", exported, "--backend", "ctranslate2", "--sample", "--seed")
    assert output_of(*sampled, "1") == output_of(*sampled, "1") != output_of(*sampled, "2")
    assert "was exported: CTranslate2 can run it (translate --backend ctranslate2)" in refused(
        "translate", "hello", "--model", exported
    )


def test_missing_device_is_rejected(run, corpus, tmp_path):
    output_of("translate", "The dog.", "--model", run, "--device", "cpu")
    missing = "mps" if sys.platform == "linux" else "cuda"
    files = ("--sources", corpus / "test.en", "--targets", corpus / "test.de")
    for arguments in (
        ["translate", "The dog.", "--model", run],
        ["score", "--model", run, *files],
        ["evaluate", "--model", run, "--sources", files[1], "--references", files[3]],
        ["parse", "The dog .", "--model", run],
        ["serve", run],
        ["train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", tmp_path / "run"],
    ):
        said = refused(*arguments, "--device", missing)
        assert f"torch finds no device {missing} on this machine: choose auto or" in said
    assert list(tmp_path.iterdir()) == []


def test_ensemble_combines_models_of_one_vocabulary(run, corpus, tmp_path):
    def scores(*models):
        options = [option for model in models for option in ("--model", model)]
        lines = output_of("translate", DOG, *options, "--n-best", "2").splitlines()
        return [float(line.split("\t")[1]) for line in lines]

    assert scores(run, run / "averaged") == pytest.approx(scores(run), abs=1e-3)
    assert scores(run, run / "checkpoints" / "checkpoint-16") != pytest.approx(scores(run), abs=1e-3)

    def likelihoods(*models):
        files = ("--sources", corpus / "test.en", "--targets", corpus / "test.de")
        lines = output_of("score", "--model", *models, *files).splitlines()
        return [float(line.split("\t")[1]) for line in lines]

    assert likelihoods(run, run / "averaged") == pytest.approx(likelihoods(run), abs=1e-3)
    assert likelihoods(run, run / "checkpoints" / "checkpoint-16") != pytest.approx(likelihoods(run), abs=1e-3)

    other = shutil.copytree(run / "averaged", tmp_path / "other")
    content = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    first, second, *_ = [piece for piece, number in vocabulary.items() if number > 10]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert "another vocabulary" in refused("translate", "--model", run, "--model", other, "hello")


# ------------------------------------------------------------------------------------------------------------- mistakes


def test_invalid_options_are_rejected(tmp_path):
    for options, message in (
        ("--n-best 3 --num-beams 2", "--n-best 3 needs --num-beams of at least 3, not 2"),
        ("--n-best 0", "--n-best must be at least 1, not 0"),
        ("--top-k 5", "are for --sample"),
        ("--sample --n-best 3 --num-beams 4", "Give --sample or --num-beams, not both"),
        ("--sample --temperature 0", "--temperature must be above 0"),
        ("--num-beams 1 --length-penalty 0.6", "--length-penalty is for a beam search: leave it out"),
        ("--sample --length-penalty 0.6", "--length-penalty is for a beam search: give it or --sample, not both"),
        ("--longest 0", "--longest must be at least 1"),
        ("--backend abacus", "There is no backend 'abacus': choose torch or ctranslate2"),
        ("--backend ctranslate2 --attention", "--attention is for --backend torch"),
        ("--backend ctranslate2 --model other", "CTranslate2 has no ensembles"),
        ("--backend ctranslate2 --sample --seed 1 --workers 2", "depends on the worker: give --seed or --workers"),
        ("--backend ctranslate2 --quantize int8", "--quantize is for --backend torch"),
        ("--backend ctranslate2 --glossary terms.tsv", "--glossary needs a beam search by torch"),
        ("--sample --glossary terms.tsv", "--glossary needs a beam search by torch"),
        ("--num-beams 1 --glossary terms.tsv", "--glossary needs a beam search by torch"),
        ("--terms soft", "--terms soft needs a --glossary"),
        ("--terms medium --glossary terms.tsv", "--terms are hard or soft, not 'medium'"),
        ("--backend ctranslate2 --markup html", "--markup is for --backend torch"),
        ("--markup sgml", "There is no markup 'sgml': choose xml, html or placeholders"),
        ("--keep-numbers", "--keep-numbers needs --markup"),
        ("--quantize int7", "no quantization 'int7' to translate with: choose int8"),
        ("--precision float16", "no precision 'float16' to translate in: choose auto, float32 or bfloat16"),
        ("--precision auto --quantize int8", "--quantize int8 has a precision of its own"),
        ("--precision bfloat16 --backend ctranslate2", "--precision is for --backend torch"),
    ):
        assert message in refused("translate", "hello", "--model", tmp_path, *options.split(), status=2)


def test_unusable_models_and_files_are_rejected(run, tmp_path):
    assert r"'\udcff' is not UTF-8." in refused("translate", "\udcff", "--model", run, status=2)
    model = shutil.copytree(run / "averaged", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    del weights["model.decoder.layers.0.fc1.weight"]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "latin").write_bytes("gut\nschön\n".encode("latin-1"))
    missing = tmp_path / "missing" / "out"
    for words, message in (
        (["hello", "--model", model], "not complete: model.decoder.layers.0.fc1.weight is missing"),
        (["hello", "--model", tmp_path], f"no model in {tmp_path}"),
        (["--model", run, "--input", tmp_path / "latin", "--output", tmp_path / "out"], "line 2 is not UTF-8"),
        (["--model", run, "--input", tmp_path], "is a folder; name a text file in it"),
        (["hello", "--model", tmp_path / "none", "--output", missing], "There is no folder"),  # found at the start
    ):
        assert message in refused("translate", *words)
    assert not (tmp_path / "out").exists()
    greedy = shutil.copytree(run / "averaged", tmp_path / "greedy")
    decoding = json.loads((greedy / "generation_config.json").read_text(encoding="utf-8"))
    (greedy / "generation_config.json").write_text(json.dumps({**decoding, "num_beams": 1}), encoding="utf-8")
    for words in (
        ["translate", "hello"],
        ["backtranslate", "--input", run / "recipe.yaml", "--output", tmp_path / "out"],
    ):
        languages = ["--source-language", "en", "--target-language", "de"][: 4 * (words[0] == "backtranslate")]
        errors = refused(*words, "--model", greedy, *languages, "--length-penalty", "2", status=2)
        assert "--length-penalty is for a beam search" in errors


# ---------------------------------------------------------------------------------------------------------------- score


@pytest.fixture
def scored(run, tmp_path):
    """Makes the arguments of `score` for sources and targets."""

    def words(sources: list[str], targets: list[str], *options) -> list:
        files = written(tmp_path / "en", sources), written(tmp_path / "de", targets)
        return ["score", "--model", run, "--sources", files[0], "--targets", files[1], *options]

    return words


def test_lines_wait_for_a_whole_block_if_a_seed_is_given(monkeypatch):
    lines = ["one", "two", "three"]
    for as_they_come, blocks in ((True, [["one"], ["two"], ["three"]]), (False, [lines])):
        read, write = os.pipe()
        with os.fdopen(read, "rb") as stdin, os.fdopen(write, "wb", 0) as typed:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=stdin.fileno, isatty=lambda: False))
            found = input_blocks(None, None, as_they_come=as_they_come)
            blocks_seen = []
            for line in lines:
                typed.write(f"{line}\n".encode())
                if as_they_come:
                    blocks_seen.append(next(found))
            typed.close()
            assert [*blocks_seen, *found] == blocks


def test_every_pair_gets_a_score(scored, run):
    targets = ["Der Hund ist alt.", "", "Ich bin hier."]
    rows = [line.split("\t") for line in output_of(*scored([DOG, "", "I am here."], targets)).splitlines()]
    assert [row[3] for row in rows] == targets
    expected = score_pairs(*load_model(run), list(zip([DOG, "", "I am here."], targets, strict=True)))
    for row, each in zip(rows, expected, strict=True):
        wanted = [each.score, each.log_probability, each.per_token]
        assert [float(value) for value in row[:3]] == pytest.approx(wanted, abs=1e-4)
        assert len(set(wanted)) == (3 if each.tokens > 1 else 1)
    assert "2 lines" in refused(*scored(["a", "b"], ["a"]))


def test_translations_of_one_source_are_ranked(scored):
    targets = ["Der Hund ist alt.", "Ich bin hier.", "Alt alt alt Hund der der der."]
    output = output_of(*scored([DOG, "I am here.", DOG], targets, "--rank", "--json"))
    records = [json.loads(line) for line in output.splitlines()]
    assert [record["source"] for record in records] == [DOG, DOG, "I am here."]
    assert records[0]["score"] > records[1]["score"]
