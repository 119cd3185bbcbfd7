"""`evaluate` and `compare` as processes."""

import json
import os
import shutil

import pytest
import sacrebleu

from vanilla_transformer.data.forms import FORMS, texts_in_form
from vanilla_transformer.evaluation.scores import score_segments
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.run.loading import load_its_tokenizer, word_counts_of
from vanilla_transformer.translation import Spelling

from ..warm_python import CLI, PACKAGE
from .conftest import command, finished, lines_of, output_of, refused, write_small_model, written


METRICS = ("sacrebleu", "bleu_paper", "chrf")
TREES = {
    "gold": "(S (NP (PRP I)) (VP (VBP am)))\n" * 2,
    "parsed": "(S (NP (PRP I)) (NP (VBP am)))\n(S (NP (PRP I)) (VP (VBP was)))\n",
}


def evaluated(*arguments, **options) -> dict:
    """What `evaluate --json` prints."""
    return json.loads(output_of("evaluate", *arguments, "--json", **options))


def values_of(*arguments) -> list[float]:
    return [each["value"] for each in evaluated(*arguments)["scores"]]


@pytest.fixture
def worse(corpus, tmp_path):
    """The references, every second one without its last two words."""
    lines = [line.rsplit(" ", 2)[0] if i % 2 else line for i, line in enumerate(lines_of(corpus / "test.de"))]
    return written(tmp_path / "worse.de", lines)


class TestEvaluate:
    def test_file_scores_match_sacrebleu(self, corpus, worse):
        content = evaluated("--hypotheses", worse, "--references", corpus / "test.de")
        assert content["comparisons"] == []
        scores = {each["metric"]: each for each in content["scores"]}
        assert list(scores) == ["sacrebleu", "sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter"]
        expected = sacrebleu.corpus_bleu(lines_of(worse), [lines_of(corpus / "test.de")])
        assert scores["sacrebleu"]["value"] == pytest.approx(expected.score)
        assert scores["sacrebleu"]["statistics"]["brevity_penalty"] == pytest.approx(expected.bp)
        assert expected.bp < 1
        assert all(each["confidence"] > 0 and "bs:1000" in each["signature"] for each in scores.values())
        assert "-de-escaped-atat" in scores["bleu_paper"]["signature"]  # the language comes from the file's ending

    def test_table_has_every_column_and_metric(self, corpus, worse):
        options = ("--hypotheses", worse, "--references", corpus / "test.de", "--resamples", "100")
        caption, heading, *rows = command("evaluate", *options).stdout.splitlines()
        assert caption == "Scores on test.de:"
        assert heading.split("  ")[0] == "system"
        columns = [heading.index(name) for name in ("metric", "score", "95 % interval", "signature")]
        assert [row[columns[0] :].split()[0] for row in rows] == [
            "sacrebleu", "sacrebleu_lowercase", "bleu_paper", "chrf", "chrf++", "ter"
        ]  # fmt: skip
        for row in rows:
            assert row.startswith("worse.de")
            assert row[columns[3] :].startswith("nrefs:1|bs:100|")
        verbose = command("evaluate", *options, "--verbose").stdout
        assert verbose.startswith("\n".join([caption, heading, *rows]) + "\n\nsystem")
        assert "BP=" in verbose

    def test_model_score_matches_run_folder(self, run, corpus):
        options = ("--sources", corpus / "test.en", "--references", corpus / "test.de")
        scores = {each["metric"]: each["value"] for each in evaluated("--model", run, *options)["scores"]}
        kept = json.loads((run / "scores.json").read_text(encoding="utf-8"))
        [chrf] = [s["value"] for s in kept if (s["chosen"], s["test_set"], s["metric"]) == (True, "small", "chrf")]
        assert scores["chrf"] == chrf > 1
        assert 1 < scores["perplexity_per_token"] < scores["perplexity_per_word"]

    def test_sentence_longer_than_learned_positions_has_no_perplexity(self, corpus, tmp_path):
        write_small_model(tmp_path / "model", lines_of(corpus / "train.en"))
        positions = {"position_embedding_type": "learned", "max_position_embeddings": 20}
        config = VanillaTransformerConfig.from_pretrained(tmp_path / "model", **positions)
        model = VanillaTransformerForConditionalGeneration(config)
        model.generation_config = paper_generation_config(config, num_beams=1)
        model.save_pretrained(tmp_path / "model")
        sources = written(tmp_path / "long.en", ["The dog is old. " * 9])
        words = ("--sources", sources, "--references", written(tmp_path / "long.de", ["Der Hund ist alt."]))
        done = finished(
            "evaluate", "--model", tmp_path / "model", *words, "--metrics", "chrf", "--target-language", "de",
            "--source-language", "en", "--domain",
        )  # fmt: skip
        assert "chrf" in done.stdout
        assert "perplexity" not in done.stdout
        assert "There is no perplexity: " in done.stderr
        assert "Nothing can be said about the domain of long.de: A side of pair 1 has" in done.stderr

    def test_second_system_is_tested_against_the_first(self, corpus, worse):
        reference = corpus / "test.de"
        files = ("--hypotheses", reference, worse, "--references", reference)
        comparisons = evaluated(*files, "--metrics", *METRICS, "--resamples", "200")["comparisons"]
        assert [each["metric"] for each in comparisons] == [*METRICS]
        assert {(each["baseline"], each["system"]) for each in comparisons} == {("test.de", "worse.de")}
        assert all(each["difference"] < 0 and each["randomization_p"] < 0.1 for each in comparisons)
        verbose = output_of("evaluate", *files, "--metrics", "chrf", "--verbose")
        table = verbose.split("\n\n")[0]
        assert "p (randomisation)  one-sided p (bootstrap)" in table
        assert len(table.splitlines()) == 4
        assert "ar:10000" in verbose

    def test_hypothesis_may_match_any_reference(self, corpus, worse):
        files = ("--hypotheses", worse, "--references", corpus / "test.de", worse)
        [score] = evaluated(*files, "--metrics", "exact_match", "--resamples", "0")["scores"]
        assert score["value"] == 100
        assert score["signature"].startswith("nrefs:2|")
        assert score["confidence"] is None

    def test_segment_scores_match_score_segments(self, corpus, worse):
        options = ("--references", corpus / "test.de", "--metrics", "chrf", "ter", "--segments")
        expected = score_segments(lines_of(worse), lines_of(corpus / "test.de"), ["chrf", "ter"], target_language="de")
        lines = output_of("evaluate", "--hypotheses", worse, *options, "--json").splitlines()
        found = [json.loads(line) for line in lines]
        assert [{name: each[name] for name in ("chrf", "ter")} for each in found] == expected
        assert [each["hypothesis"] for each in found] == lines_of(worse)
        heading, *rows = command("evaluate", "--hypotheses", worse, *options).stdout.splitlines()
        assert heading.split("\t") == ["system", "segment", "chrf", "ter", "hypothesis"]
        assert [row.split("\t")[2] for row in rows] == [f"{each['chrf']:.2f}" for each in expected]

    def test_every_segment_stays_on_one_line(self, tmp_path):
        text = "eins\tzwei\ndrei\u2028vier\x85fünf"
        path = written(tmp_path / "a.jsonl", [json.dumps(text)])
        options = ("--references", path, "--metrics", "exact_match", "exact_match", "--segments")
        row = command("evaluate", "--hypotheses", path, *options).stdout.split("\n")[1]
        assert row.split("\t") == ["a.jsonl", "1", "100.00", "eins zwei drei\u2028vier\x85fünf"]
        assert json.loads(command("evaluate", "--hypotheses", path, *options, "--json").stdout)["hypothesis"] == text

    def test_pipe_scores_like_a_file(self, corpus, worse):
        options = ("--references", corpus / "test.de", "--metrics", "chrf")
        text = worse.read_text(encoding="utf-8")
        piped = evaluated("--hypotheses", "/dev/stdin", *options, input=text)["scores"]
        plain = evaluated("--hypotheses", worse, *options)["scores"]
        assert [{**each, "system": ""} for each in piped] == [{**each, "system": ""} for each in plain]

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_closed_output_pipe_exits_quietly(self, corpus, worse, unbuffered):
        arguments = ("--hypotheses", worse, "--references", corpus / "test.de", "--metrics", "chrf", "--segments")
        read, write = os.pipe()
        os.close(read)
        with open(write, "w") as closed:
            environment = {"PYTHONUNBUFFERED": unbuffered}
            done = PACKAGE.run(CLI, "evaluate", *arguments, stdout=closed, environment=environment)
        assert (done.returncode, done.stderr) == (141, "")

    def test_word_metrics_warn_for_unspaced_languages(self, corpus):
        options = ("--hypotheses", corpus / "test.de", "--references", corpus / "test.de", "--target-language")
        said = command("evaluate", *options, "th", "--metrics", "sacrebleu", "ter", "chrf").stderr
        assert "th is written without spaces, and sacrebleu, ter cannot find words in it: report chrf" in said
        assert command("evaluate", *options, "zh", "--metrics", "sacrebleu", "chrf").stderr == ""
        assert command("evaluate", *options, "de", "--metrics", "sacrebleu").stderr == ""

    def test_translate_json_scores_like_plain_text(self, run, corpus, tmp_path):
        path = tmp_path / "found.jsonl"
        command("translate", "--model", run, "--input", corpus / "test.en", "--output", path, "--json")
        plain = written(tmp_path / "found.de", [json.loads(line)["translations"][0]["text"] for line in lines_of(path)])
        references = ("--references", corpus / "test.de")
        assert values_of("--hypotheses", path, *references) == values_of("--hypotheses", plain, *references)

    def test_test_set_scores_like_separate_files(self, run, corpus, tmp_path):
        rows = zip(lines_of(corpus / "test.en"), lines_of(corpus / "test.de"), strict=True)
        path = written(tmp_path / "test.tsv", ["\t".join(row) for row in rows])
        files = ("--sources", corpus / "test.en", "--references", corpus / "test.de")
        options = ("--model", run, "--metrics", "chrf")
        assert values_of(*options, "--test-set", path) == values_of(*options, *files)

    def test_forms_score_like_files_in_that_form(self, run, corpus, tmp_path):
        """A form scores like files that are written in that form."""
        sources, references = corpus / "test.en", corpus / "test.de"
        options = ("--model", run, "--metrics", "chrf", "--resamples", "0")
        picture = tmp_path / "forms.png"
        words = (*options, "--sources", sources, "--references", references, "--forms", "upper", "lower")
        clean, upper, lower = evaluated(*words, "--picture", picture)["scores"]
        assert [each["form"] for each in (clean, upper, lower)] == ["clean", "upper", "lower"]
        assert picture.read_bytes().startswith(b"\x89PNG")
        for form, found in (("upper", upper), ("lower", lower)):
            changed = [
                written(tmp_path / path.name, [getattr(line, form)() for line in lines_of(path)])
                for path in (sources, references)
            ]
            files = ("--sources", changed[0], "--references", changed[1] if form == "upper" else references)
            by_hand = evaluated(*options, *files)["scores"][0]
            assert found["value"] == by_hand["value"]
            kept = 100 * found["value"] / clean["value"] if clean["value"] else None
            assert found["kept"] == pytest.approx(kept)
            assert found["signature"] == f"{by_hand['signature']}|form:{form}|form_seed:12345"
            assert found["test_set"] == f"test.de ({form})"
        spelling = Spelling(load_its_tokenizer(run), word_counts_of([run]))
        read = [spelling.correct(line) for line in texts_in_form("typos", lines_of(sources))]
        assert read not in (lines_of(sources), texts_in_form("typos", lines_of(sources)))
        files = ("--sources", written(tmp_path / "read.en", read), "--references", references)
        found = evaluated(*options, "--sources", sources, "--references", references, "--forms", "typos", "--respell")
        assert found["scores"][1]["value"] == evaluated(*options, *files)["scores"][0]["value"]
        assert "--respell: only a model translates" in refused(
            "evaluate", "--hypotheses", references, "--references", references, "--respell", status=2
        )
        table = command("evaluate", *options, "--sources", sources, "--references", references, "--forms").stdout
        caption, heading, *rows = table.splitlines()
        assert caption == "Scores on test.de, as it is and in other forms:"
        assert heading.split("  ")[0] == "form"
        assert [row.split()[0] for row in rows] == ["clean", *FORMS]


class TestCompare:
    def test_comparison_has_scores_groups_examples_and_plot(self, corpus, worse, tmp_path):
        options = ("--references", corpus / "test.de", "--sources", corpus / "test.en", "--examples", "2", "--json")
        options += ("--training-text", corpus / "train.en", "--plot", tmp_path / "groups.png")
        content = json.loads(output_of("compare", corpus / "test.de", worse, *options))
        assert [each["metric"] for each in content["comparisons"]] == ["sacrebleu", "chrf", "ter"]
        by_length, by_frequency = content["groups"].values()
        assert sum(each["segments"] for each in by_length) == sum(each["segments"] for each in by_frequency) == 12
        assert all(each["values"]["test.de"] > each["values"]["worse.de"] for each in by_frequency)
        losses = content["differences"]["worse.de"]
        assert len(losses) == 2
        assert all(each["segment"] % 2 == 0 for each in losses)
        assert all(each["hypotheses"]["test.de"] != each["hypotheses"]["worse.de"] for each in losses)
        assert losses[0]["source"] == lines_of(corpus / "test.en")[losses[0]["segment"] - 1]
        assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")

    def test_references_may_be_listed_or_repeated(self, corpus, worse):
        files = (corpus / "test.de", worse)
        for options in (("--references", *files), ("--references", files[0], "--references", files[1])):
            output = output_of("compare", *files, *options, "--metrics", "exact_match", "--examples", "0", "--json")
            scores = json.loads(output)["scores"]
            assert [each["value"] for each in scores] == [100, 100]
            assert all(each["signature"].startswith("nrefs:2|") for each in scores)

    def test_model_is_compared_with_a_file(self, run, corpus):
        options = ("--references", corpus / "test.de", "--sources", corpus / "test.en")
        output = output_of("compare", run, corpus / "test.de", *options)
        assert "sacrebleu by words (or characters) in the source:" in output
        assert f"Where test.de differs most from {run}:" in output
        assert "  reference" in output

    def test_identical_files_differ_nowhere(self, corpus):
        reference = corpus / "test.de"
        words = ("compare", reference, reference, "--references", reference, "--metrics", "chrf")
        assert "No sentence of test.de' scores otherwise than that of test.de." in output_of(*words)
        assert "No sentence" not in output_of(*words, "--examples", "0")  # it has not looked

    def test_files_are_read_before_models_translate(self, run, corpus, tmp_path):
        shutil.copytree(run, tmp_path / "run")
        (tmp_path / "run" / "model.safetensors").unlink()  # so that it cannot translate
        words = ("--references", corpus / "test.de", "--sources", corpus / "test.en")
        assert "there is no text file 'missing.de'" in refused("compare", tmp_path / "run", "missing.de", *words)
        (tmp_path / "latin.en").write_bytes("naïve\n".encode("latin-1"))
        words = ("compare", tmp_path / "run", corpus / "test.de", *words)
        assert "latin.en, line 1 is not UTF-8" in refused(*words, "--training-text", tmp_path / "latin.en")

    def test_a_bad_seed_shows_before_models_translate(self, run, corpus, tmp_path, monkeypatch):
        shutil.copytree(run, tmp_path / "run")
        (tmp_path / "run" / "model.safetensors").unlink()
        words = ("--references", corpus / "test.de", "--sources", corpus / "test.en")
        monkeypatch.setenv("SACREBLEU_SEED", "twelve")
        for systems in (("compare", tmp_path / "run", corpus / "test.de"), ("evaluate", "--model", tmp_path / "run")):
            assert "SACREBLEU_SEED must be a whole number" in refused(*systems, *words), systems


class TestEvalb:
    @pytest.fixture
    def files(self, tmp_path):
        for name, content in TREES.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        return "--gold", tmp_path / "gold", "--parsed", tmp_path / "parsed"

    def test_table_and_errors_are_printed(self, files):
        done = finished("evalb", *files)
        assert done.stdout.splitlines()[3:5] == [
            "   1    2    0   66.67  66.67     2      3    3      0      2     2   100.00",
            "   2    2    1    0.00   0.00     0      0    0      0      0     0     0.00",
        ]
        assert done.stderr == "line 2 is an error: the parse has 'was' for the word 'am'\n"

    def test_json_scores_follow_the_parameter_file(self, files, tmp_path):
        found = json.loads(output_of("evalb", *files, "--json"))
        assert found["overall"]["f1"] == pytest.approx(200 / 3)
        assert (found["overall"]["errors"], found["short"]["valid"]) == (1, 1)
        assert [sentence["status"] for sentence in found["sentences"]] == [0, 1]
        (tmp_path / "own.prm").write_text("EQ_LABEL VP NP\nEQ_WORD am was\n", encoding="utf-8")
        found = json.loads(output_of("evalb", *files, "--parameters", tmp_path / "own.prm", "--json"))
        assert found["overall"]["f1"] == 100


FILES = {
    "test.txt": "eins\n",
    "short.de": "eins\n",
    "empty.de": "",
    "test.tsv": "a\tb\n",
    "test.sgm": '<refset trglang="de"><doc sysid="r" docid="d">\n<seg id="1">eins</seg>\n</doc></refset>',
    "broken": "(S\n" * 2,
    "longer": TREES["parsed"] * 2,
    "own.prm": "LABELLED 1\n",
    **TREES,
}
OF_LANGUAGES = "evaluate --hypotheses test.de --source-language en --target-language de --test-set"
REFUSED = (
    ("compare test.de test.de --references test.de --training-text test.de", 2, "--training-text groups sentences"),
    ("evaluate --references test.de", 2, "--hypotheses"),
    ("evaluate --hypotheses test.de --model x --references test.de", 2, "--hypotheses"),
    ("evaluate --hypotheses test.de", 2, "--references"),
    ("evaluate --hypotheses test.de --references test.de --test-set x", 2, "--references"),
    ("evaluate --hypotheses test.de --test-set test.tsv", 2, "--source-language"),
    ("evaluate --hypotheses test.de --references nowhere.de", 1, "nowhere.de"),
    ("evaluate --hypotheses nowhere.de --references test.de", 1, "nowhere.de"),
    ("evaluate --hypotheses short.de --references test.de", 1, "test.de has 12 segments and short.de 1"),
    ("evaluate --hypotheses empty.de --references test.de", 1, "empty.de is empty"),
    ("evaluate --hypotheses latin.de --references test.de", 1, "latin.de, line 1 is not UTF-8"),
    ("evaluate --hypotheses test.txt --references test.txt", 2, "--target-language"),
    ("evaluate --hypotheses test.de --references test.de --metrics bleu", 1, "unknown metric 'bleu'"),
    ("evaluate --hypotheses test.de --references test.de --resamples 1", 2, "--resamples"),
    ("evaluate --hypotheses test.de --references test.sgm --target-language fr", 1, "declares the language 'de'"),
    (f"{OF_LANGUAGES} nowhere/test.tsv", 1, "There is no corpus nowhere/test.tsv: give"),
    (f"{OF_LANGUAGES} ../nowhere", 1, "There is no corpus ../nowhere: give"),
    (f"{OF_LANGUAGES} user/name:config:test:more", 1, "There is no corpus user/name:config:test:more: give"),
    ("evaluate --model RUN --sources test.en --references test.de --target-language fr", 1, "language is to be 'fr'"),
    ("evaluate --model RUN --sources test.en --references test.de --forms capitals", 2, "no form 'capitals'"),
    ("evaluate --model RUN --references test.de --forms upper", 2, "--sources FILE"),
    ("evaluate --model RUN --sources test.en --references test.de --picture x.png", 2, "--picture draws"),
    ("evaluate --model RUN --sources test.en --references test.de --forms --picture x.pdf", 1, "in .png or .svg"),
    ("evaluate --hypotheses test.de --references test.de --forms", 2, "give --model MODEL"),
    (
        "evaluate --hypotheses test.de --references test.de --num-beams 4 --device cpu",
        2,
        "--num-beams and --device: only",
    ),
    ("evaluate --hypotheses test.de --references test.de --segments --verbose", 2, "--verbose adds to the table"),
    ("evaluate --hypotheses test.de --references test.de test.de --metrics evalb", 2, "with one reference, not 2"),
    ("compare test.de test.de --references test.de --num-beams 4", 2, "--num-beams is about models"),
    ("compare test.de --references test.de", 2, "two systems"),
    ("compare test.de test.de --plot x.png --references test.de", 2, "--sources"),
    ("compare test.de somebody/model --references test.de", 1, "the Hub"),
    ("compare test.de test.de --training-text nowhere --references test.de", 1, "nowhere"),
    ("compare test.de test.de --examples -1 --references test.de", 2, "--examples"),
    ("evalb --gold gold --parsed empty.de", 1, "is empty"),
    ("evalb --gold empty.de --parsed parsed", 1, "is empty"),
    ("evalb --gold gold --parsed longer", 1, "has 2 lines and"),
    ("evalb --gold broken --parsed parsed", 1, "line 1 of the gold trees is malformed: 1 of the brackets are not"),
    ("evalb --gold gold --parsed parsed --parameters own.prm", 1, "own.prm, line 1: LABELLED is unknown"),
    ("evalb --gold nowhere --parsed nowhere", 1, "nowhere"),
)


def test_invalid_arguments_are_rejected(run, corpus, tmp_path):
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "latin.de").write_bytes("grün\n".encode("latin-1"))
    for words, status, message in REFUSED:
        assert message in refused(*words.replace("RUN", str(run)).split(), status=status, cwd=tmp_path), words
    assert not (tmp_path / "x.png").exists()
