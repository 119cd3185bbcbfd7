"""A model that reads the previous sentence: trained on documents in several ways, killed, resumed and used."""

import json
import math
import shlex
import signal

import pytest
import yaml

from vanilla_transformer.run.loading import load_model
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.run import train
from vanilla_transformer.translation import score_pairs, translate

from ..warm_python import CLI, PACKAGE
from .conftest import RECIPE, assert_same_run, finished, json_of, lines_of, losses, output_of, refused, written


OVERRIDES = {
    "data.context_sentences": "1",
    "training.label_smoothing_factor": "0",
    "decoding.max_length_offset": "5",
}
TYPED = [word for name, value in OVERRIDES.items() for word in (f"--{name}", value)]


@pytest.fixture(scope="module")
def documents(corpus, tmp_path_factory):
    """The corpus, split into documents of three sentences."""
    folder = tmp_path_factory.mktemp("documents")
    for split in ("train", "validation", "test"):
        for language in ("en", "de"):
            lines = lines_of(corpus / f"{split}.{language}")
            in_documents = [line for n, text in enumerate(lines) for line in ([""] * (n % 3 == 0 < n) + [text])]
            written(folder / f"{split}.{language}", in_documents)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def in_context(documents, tmp_path_factory):
    """A run trained on these documents."""
    recipe = load_recipe(documents / "recipe.yaml", {**OVERRIDES, "data.folder": str(documents)})
    return train(recipe, tmp_path_factory.mktemp("runs") / "run")


def test_documents_of_an_sgm_test_set_are_apart(in_context, documents, tmp_path):
    texts = {language: lines_of(documents / f"test.{language}")[:23] for language in ("en", "de")}
    for language, kind in (("en", "srcset"), ("de", "refset")):
        content = ""
        for document, lines in enumerate("\n".join(texts[language]).split("\n\n")):
            segments = "".join(f'<seg id="{place}">{line}</seg>\n' for place, line in enumerate(lines.split("\n"), 1))
            content += f'<doc sysid="ref" docid="d{document}">\n{segments}</doc>\n'
        whole = f'<{kind} setid="t" srclang="en" trglang="{language}">\n{content}</{kind}>\n'
        (tmp_path / f"test.{language}.sgm").write_text(whole, encoding="utf-8")
        written(tmp_path / f"test.{language}", texts[language])
    found = []
    for ending in ("", ".sgm"):
        files = [tmp_path / f"test.{language}{ending}" for language in ("en", "de")]
        words = ("--sources", files[0], "--references", files[1], "--metrics", "chrf", "--num-beams", "1", "--json")
        [_, *scores] = json.loads(output_of("evaluate", "--model", in_context.path, *words))["scores"]
        found.append([each["value"] for each in scores])
    assert found[0] == found[1]


def perplexity(scores) -> float:
    return math.exp(-sum(each.log_probability for each in scores) / sum(each.tokens for each in scores))


def test_run_results_match_translate_and_score_pairs(in_context, documents):
    rows = [json.loads(line) for line in lines_of(in_context.translations / "small.jsonl")]
    lines = lines_of(documents / "test.en")
    assert [row["source"] for row in rows] == [line for line in lines if line]  # blank lines only end documents
    model, tokenizer = load_model(in_context.path, "cpu")
    found = translate(model, tokenizer, lines)
    assert [text for line, text in zip(lines, found, strict=True) if line] == [row["hypothesis"] for row in rows]
    last, _ = load_model(in_context.good_checkpoints()[-1], "cpu")
    pairs = list(zip(*(lines_of(documents / f"validation.{language}") for language in ("en", "de")), strict=True))
    logged = [record["eval_perplexity"] for record in in_context.log_records() if "eval_perplexity" in record][-1]
    in_place, alone = (
        [each for each in score_pairs(last, tokenizer, pairs, contexts=contexts) if each.tokens > 1]
        for contexts in (None, [()] * len(pairs))
    )
    assert perplexity(in_place) == pytest.approx(logged, rel=1e-5)
    differences = [abs(one.log_probability - other.log_probability) for one, other in zip(in_place, alone, strict=True)]
    assert max(differences) > 1e-3
    sides = [
        f"--{name} {documents / f'test.{language}'}" for name, language in (("sources", "en"), ("references", "de"))
    ]
    typed = shlex.split(f"evaluate --model {in_context.path} --domain --json {' '.join(sides)}")
    of_test, its_own = json.loads(output_of(*typed))["domain"]
    tested = [(row["source"], row["reference"]) for row in rows]  # without the blank lines
    before = [tuple(row["context"]) for row in rows]
    of_pairs = perplexity(score_pairs(model, tokenizer, tested, contexts=before))
    assert of_test["perplexity"] == pytest.approx(of_pairs)
    chosen = [each for each in score_pairs(model, tokenizer, pairs) if each.tokens > 1]
    assert (its_own["text"], its_own["perplexity"]) == ("validation", pytest.approx(perplexity(chosen)))


@pytest.mark.slow
def test_killed_stream_resumes_and_prepared_text_matches(in_context, documents, tmp_path):
    typed = ["train", str(documents / "recipe.yaml"), "--data.folder", str(documents), *TYPED]
    stream = [*typed, "--data.stream", "true", "--data.buffer_pairs", "100"]
    finished(*stream, "--output", tmp_path / "unbroken")
    folder = tmp_path / "killed"
    with PACKAGE.start(CLI, *stream, "--output", str(folder)) as process:
        log = folder / "log.jsonl"
        process.until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 14)
        process.send_signal(signal.SIGKILL)
        process.completed(timeout=120)
    assert not (folder / "scores.json").exists()
    finished(*stream, "--output", folder, "--resume")
    assert_same_run(folder, tmp_path / "unbroken")
    finished("prepare", *typed[1:], "--output", documents / "prepared", "--workers", "2")
    finished(*typed, "--data.train", "{prepared: prepared}", "--output", tmp_path / "prepared")
    # The fixture trained in this process, whose matrix products may differ from the command's in the last bit.
    finished(*typed, "--output", tmp_path / "text")
    assert losses(tmp_path / "prepared") == losses(tmp_path / "text")
    alone = [*typed, "--data.train", "{prepared: prepared}", "--data.context_sentences", "0"]
    assert "prepared with the context_sentences 1, and the recipe has 0" in refused(*alone, "--output", tmp_path / "0")
    assert "was begun with data.context_sentences = 1, not 0" in refused(
        *typed, "--data.context_sentences", "0", "--output", in_context.path, "--resume"
    )


@pytest.mark.slow
def test_commands_read_lines_as_documents(in_context, documents, run, tmp_path):
    run_of_documents = str(in_context.path)
    rows = [json.loads(line) for line in lines_of(in_context.translations / "small.jsonl")]
    output_of(
        "translate", "--model", run_of_documents, "--input", documents / "test.en", "--output", tmp_path / "out.de"
    )
    there = zip(lines_of(documents / "test.en"), lines_of(tmp_path / "out.de"), strict=True)
    assert [text for line, text in there if line] == [row["hypothesis"] for row in rows]
    table = [{"en": row["source"], "de": row["reference"], "document": n // 3} for n, row in enumerate(rows)]
    test_set = written(tmp_path / "test.jsonl", map(json.dumps, table))
    typed = shlex.split(f"evaluate --model {run_of_documents} --test-set {test_set} --metrics chrf --json")
    scores = {each["metric"]: each["value"] for each in json.loads(output_of(*typed))["scores"]}
    [recorded] = [
        each["value"]
        for each in json_of(in_context.scores)
        if each["chosen"] and each["test_set"] == "small" and each["metric"] == "chrf"
    ]
    assert scores["chrf"] == pytest.approx(recorded) != 0
    sides = ["--sources", documents / "test.en", "--targets", documents / "test.de"]
    assert len(output_of("score", "--model", run_of_documents, *sides).splitlines()) == len(
        lines_of(documents / "test.de")
    )
    (first, second), answers = (lines_of(documents / f"test.{language}")[:2] for language in ("en", "de"))

    def scores_of(sources, targets, *options):
        files = ["--sources", written(tmp_path / "s", sources), "--targets", written(tmp_path / "t", targets)]
        found = output_of("score", "--model", run_of_documents, *files, "--json", *options).splitlines()
        return {(row["source"], row["target"]): row["score"] for row in map(json.loads, found)}

    ranked = scores_of([first, first, second, second], [*answers, *answers], "--rank")
    assert len(ranked) == 4
    for pair, score in scores_of([first, second], answers).items():
        assert ranked[pair] == pytest.approx(score)
    recipe = yaml.safe_load(RECIPE) | {"initial_model": str(run)}
    (tmp_path / "on.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    typed = ["train", tmp_path / "on.yaml", "--data.folder", documents, "--data.context_sentences", "1"]
    assert "needs the token <sep>, which this vocabulary lacks" in refused(*typed, "--output", tmp_path / "on")


def test_invalid_context_recipes_are_rejected(documents):
    for overrides, message in (
        ({"data.context_sentences": "-1"}, "data.context_sentences must be from 0 to 100, not -1"),
        ({"data.context_sentences": "1.5"}, "data.context_sentences must be int, not 1.5"),
        ({"evaluation.metrics": "[evalb]"}, "data.context_sentences is for translation"),
        ({"data.train": "[{corpus: a.tsv, tag: <sep>}]"}, "the tag <sep> ends a sentence of context: choose another"),
    ):
        with pytest.raises(ValueError, match=message):
            load_recipe(documents / "recipe.yaml", OVERRIDES | overrides)
