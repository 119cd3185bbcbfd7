"""The other commands as processes, and how the command line answers unknown arguments."""

import json
import subprocess
import sys

import torch
from ctranslate2 import Translator
from transformers import AutoTokenizer, MarianMTModel, MarianTokenizer

from vanilla_transformer import translate
from vanilla_transformer.run.recipe import load_recipe

from .conftest import command, finished, lines_of, output_of, refused, write_marian, written


def test_tokenizer_is_saved_and_large_vocabulary_rejected(corpus, tmp_path):
    words = ["tokenizer", corpus / "train.en", "--output", tmp_path / "t", "--vocab-size"]
    assert "at most" in refused(*words, "40000")
    assert list(tmp_path.iterdir()) == []
    output_of(*words, "400")
    assert (tmp_path / "t" / "tokenizer.json").is_file()


def test_average_matches_the_runs_averaged_model(run, tmp_path):
    output_of("average", run, "--output", tmp_path / "mean", "--last", "2")
    weights = "model.safetensors"
    assert (tmp_path / "mean" / weights).read_bytes() == (run / "averaged" / weights).read_bytes()


def test_converted_model_translates_like_marian(corpus, tmp_path):
    write_marian(tmp_path / "marian")
    output_of("convert", tmp_path / "marian", "--output", tmp_path / "ours")
    sentences = lines_of(corpus / "test.en")[:4]
    model = MarianMTModel.from_pretrained(tmp_path / "marian")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
    found = output_of("translate", *sentences, "--model", tmp_path / "ours").splitlines()
    assert found == translate(model, tokenizer, sentences)
    glossary = written(tmp_path / "glossary.tsv", ["dog\tHund"])
    found = output_of("translate", "The dog is old.", "--model", tmp_path / "ours", "--glossary", glossary)
    assert "Hund" in found


def test_convert_rejects_incomplete_and_foreign_models(run, tmp_path):
    def said(folder) -> str:
        return refused("convert", folder, "--output", tmp_path / "ours")

    folder = tmp_path / "marian"
    write_marian(folder)
    settings = (folder / "config.json").read_text(encoding="utf-8")
    text = json.dumps(json.loads(settings) | {"decoder_layers": 3})
    (folder / "config.json").write_text(text, encoding="utf-8")
    assert "not complete: model.decoder.layers.2" in said(folder)
    (folder / "config.json").write_text(settings, encoding="utf-8")
    saved = (folder / "generation_config.json").read_text(encoding="utf-8")
    (folder / "generation_config.json").write_text(saved[:20], encoding="utf-8")  # transformers would ignore it
    assert "generation_config.json is not JSON" in said(folder)
    (folder / "generation_config.json").write_text(saved, encoding="utf-8")
    weights = MarianMTModel.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert "has no weights in safetensors" in said(folder)
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:40])
        assert "no whole Marian tokenizer" in said(folder), name
        (folder / name).write_bytes(whole)
    (folder / "target.spm").unlink()
    assert "no whole Marian tokenizer" in said(folder)
    assert "is not a Marian model" in said(run / "averaged")
    assert [path.name for path in tmp_path.iterdir()] == ["marian"]


def test_exported_model_translates_like_the_run(run, corpus, tmp_path):
    output_of("export", run, "--output", tmp_path / "out", "--quantization", "float32", "--to", "ctranslate2")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    sentences = lines_of(corpus / "test.en")
    found = Translator(str(tmp_path / "out"), intra_threads=1).translate_batch(
        [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(sentences).input_ids],
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=9,
    )
    rows = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
    expected = output_of("translate", *sentences, "--model", run, "--num-beams", "1", "--max-tokens", "9").splitlines()
    assert tokenizer.batch_decode(rows, skip_special_tokens=True) == expected


def test_plot_draws_every_kind_of_figure(run, tmp_path):
    for number, words in enumerate(
        (
            ["curves", run, run],
            ["schedule", "512:4000", "256:100"],
            ["positions"],
            ["attention", run, "The dog is old, Rumpelstilzchen."],
            ["attention", run, "The dog is old.", "Der Hund ist alt.", "--attention", "decoder", "--lines"],
            ["attention", run, "The dog.", "Der Hund.", "--layer", "1", "--head", "2", "--query", "Hund", "--words"],
            ["attention", run, "A dog.", "--layer", "1", "--lines", "--query", "1", "--query", "</s>"],
        )
    ):
        picture = tmp_path / f"{number}.svg"
        said = finished("plot", *words, "--output", picture).stderr
        assert said.endswith(f"Drew {picture}.\n")
        unknown = 'Line 1: the model has not learned "Rumpelstilzchen": the translation may be wrong.'
        assert (unknown in said) == ("Rumpelstilzchen" in str(words))
        assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_plot_and_export_reject_invalid_arguments(run, tmp_path):
    of_a_dog = ["plot", "attention", run, "A dog."]
    for words, status, message in (
        ([*of_a_dog, "--layer", "2"], 2, "1 such layers: choose --layer from 1 to 1"),
        ([*of_a_dog, "--layer", "0"], 2, "choose --layer from 1 to 1"),
        ([*of_a_dog, "--layer", "1", "--head", "3"], 2, "choose --head from 1 to 2"),
        ([*of_a_dog, "--head", "1"], 2, "--head is for the heads of one layer: add --layer"),
        ([*of_a_dog, "--attention", "self"], 2, "choose encoder, decoder, cross"),
        ([*of_a_dog, "Ein Hund.", "--layer", "1", "--query", "Katze"], 2, "none of the words"),
        (["plot", "attention", run], 2, "Give a model and a sentence"),
        (["plot", "schedule", "512"], 2, "Schedules are D_MODEL:WARMUP"),
        (["plot", "schedule", "512:0"], 2, "Schedules are D_MODEL:WARMUP"),
        (["plot", "curves"], 2, "Give one run folder or several"),
        (["plot", "curves", "nowhere"], 1, "no training log nowhere"),
        (["plot", "curves", run, "--layer", "1"], 2, "--layer is for attention"),
        (["plot", "positions", run], 2, "takes no model and no run"),
        (["plot", "dance"], 2, "Nothing to draw is called 'dance'"),
        (
            ["export", "x", "--quantization", "int7"],
            2,
            "no quantization 'int7' for ctranslate2: choose float32, float16,",
        ),
        (
            ["export", "x", "--to", "dance"],
            2,
            "There is no engine 'dance' to export to: choose ctranslate2, onnx or web",
        ),
        (["export", "x", "--to", "onnx", "--quantization", "int16"], 2, "'int16' for onnx: choose float32, int8."),
        (["export", "x", "--to", "onnx", "--runtime", "x.tgz"], 2, "--runtime is for --to web."),
    ):
        assert message in refused(*words, "--output", tmp_path / "picture.png", status=status)
    assert list(tmp_path.iterdir()) == []


def test_recipes_are_listed_and_printed(tmp_path):
    listed = output_of("recipes")
    assert "phrasebook" in listed
    assert "multi30k_en_de" in listed
    (tmp_path / "mine.yaml").write_text(output_of("recipes", "phrasebook"), encoding="utf-8")
    assert load_recipe(tmp_path / "mine.yaml") == load_recipe("phrasebook")
    missing = refused("recipes", "phrasebok")
    assert "There is no recipe 'phrasebok': give a YAML file or one of multi30k_en_de," in missing


def test_unknown_arguments_get_suggestions_and_usage():
    """Errors suggest a similar name, and the usage is the command's own."""
    for arguments, status, said in (
        (["train", "phrasebook", "--max_steps", "3"], 1, "max_steps is unknown; did you mean training.max_steps?"),
        (["train", "phrasebook", "--max-step=3"], 1, "max_step is unknown; did you mean training.max_steps?"),
        (["train", "--model.zzz", "3", "phrasebook"], 1, "Recipe phrasebook.yaml: model.zzz is unknown\n"),
        (["train", "phrasebook", "--zzz", "3"], 1, "zzz is unknown; choose from description, data, tokenizer,"),
        (["train", "phrasebook", "--model.zzz", "3"], 1, "model.zzz is unknown\n"),
        (["train", "--model", "{d_model: 33}", "phrasebook"], 1, "model.d_model (33) is not a multiple"),
        (["train", "phrasebook", "--minute", "5"], 2, "unrecognized arguments: --minute; did you mean --minutes?"),
        (["train", "--resum", "phrasebook"], 2, "did you mean --resume?\n"),
        (["train", "phrasebook", "--resum"], 2, "not '--resum'; did you mean --resume?\n"),
        (["translate", "--model", "x", "--numbeams", "3"], 2, "--numbeams; did you mean --num-beams?\n"),
        (["translate", "--model", "x", "--zzz", "3"], 2, "error: unrecognized arguments: --zzz\n"),
        (["translate", "--modle", "x"], 2, "error: the following arguments are required: --model; did you mean --mod"),
        (["translate", "--model", "x", "--workers", "0"], 2, "--workers must be at least 1, not 0"),
        (["parse", "--model", "x", "--batch-tokens", "0"], 2, "--batch-tokens must be at least 1, not 0"),
        (["export", "x", "--output", "y", "--to", "web", "--runtime", "z"], 2, "There is no --runtime z: give the npm"),
        (["average", "x", "y", "--output", "z", "--last", "1"], 2, "--last is for one run folder"),
        (["translate"], 2, "error: the following arguments are required: --model"),
        (["evaluate", "--model", "x", "--hypotheses", "y"], 2, "error: Give --hypotheses FILE or --model MODEL."),
    ):
        done = command(*arguments)
        assert done.returncode == status, arguments
        assert said in done.stderr
        assert (f"usage: vanilla-transformer {arguments[0]} " in done.stderr) == (status == 2)
    for arguments in ([], ["dance"]):
        assert "COMMAND" in refused(*arguments, status=2)


def test_closed_output_and_ports_out_of_range():
    shell = f"{sys.executable} -m vanilla_transformer recipes >&-"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name, least, port in (("serve", 0, "99999"), ("demo", 1, "0")):
        assert f"--port must be from {least} to 65535, not {port}" in refused(name, "nowhere", "--port", port, status=2)
