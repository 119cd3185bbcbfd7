"""Classification: the split, the baseline's optimum, and the script from sentences to a table and a card."""

import json
from functools import partial

import pytest
import torch
import train_classifier
from huggingface_hub import ModelCard
from sentence_classification import BagOfWords, LabelledSentences, part_of, split_by_hash
from transformers import pipeline


DATA = LabelledSentences(["good film", "a good one", "bad film", "a bad bad one", "film"], [1, 1, 0, 0, 1])


def test_split_depends_only_on_the_sentence():
    # The first 8 bytes of SHA-256 of "a" are ca978112ca1bbdca in hexadecimal.
    assert 0xCA978112CA1BBDCA % 10 == 0
    assert part_of("a") == part_of(" a\n") == "test"
    parts = [part_of(f"sentence {number}") for number in range(3000)]
    assert parts.count("test") == pytest.approx(300, abs=50)
    assert parts.count("validation") == pytest.approx(300, abs=50)


def test_sentence_polarity_split_matches_known_sizes_without_leakage(shared):
    folder = shared / "sentence_polarity"
    parts = split_by_hash({0: folder / "rt-polarity.neg", 1: folder / "rt-polarity.pos"})
    assert {name: len(part) for name, part in parts.items()} == {"train": 8516, "validation": 1093, "test": 1053}
    sentences = {name: set(part.sentences) for name, part in parts.items()}
    assert not sentences["train"] & (sentences["validation"] | sentences["test"])


def test_empty_split_part_raises(tmp_path):
    (tmp_path / "a").write_text("a\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"The \w+ part of .*a is empty"):
        split_by_hash({0: tmp_path / "a"})


def test_logistic_regression_is_at_its_optimum():
    penalty = 0.1
    model = BagOfWords(DATA, penalty)
    words = sorted({word for sentence in DATA.sentences for word in sentence.split()})
    rows = torch.tensor([[float(word in s.split()) for word in words] for s in DATA.sentences], dtype=torch.float64)
    rows /= rows.norm(dim=1, keepdim=True)
    weights, biases = (each.detach().requires_grad_() for each in (model.weights, model.biases))
    scores = rows @ weights + biases
    chosen = scores[range(5), DATA.labels]
    loss = (scores.logsumexp(dim=1) - chosen).mean() + penalty / 2 * (weights**2).sum()
    loss.backward()
    assert max(weights.grad.abs().max(), biases.grad.abs().max()) < 1e-5  # convex, so a zero gradient is the minimum
    assert model.parameters == 2 * len(words) + 2


def test_bag_of_words_classifies_seen_and_unknown_words():
    model = BagOfWords(DATA, 1e-3)
    assert model.accuracy(DATA) == 100
    others = LabelledSentences(["unknown good words", "bad", "a bad one"], [1, 1, 0])
    assert model.accuracy(others) == pytest.approx(200 / 3)


@pytest.fixture(scope="module")
def polarity(tmp_path_factory):
    """A folder of sentences that are easily told apart."""
    folder = tmp_path_factory.mktemp("polarity")
    for name, word in (("neg", "bad"), ("pos", "good")):
        lines = [f"a {word} film with {number} scenes\n" for number in range(150)]
        (folder / f"rt-polarity.{name}").write_text("".join(lines), encoding="utf-8")
    return folder


def test_script_resumes_and_writes_results_and_card(polarity, tmp_path, printed_by):
    small = {"vocab_size": 290, "d_model": 16, "layers": 1, "attention_heads": 2, "ffn_dim": 16, "dropout": 0.0}
    small |= {"learning_rate": 0.01, "warmup_steps": 5, "batch_size": 16, "epochs": 2}
    common = [polarity, "--output", tmp_path / "runs", "--poolings", "mean", "max"]
    common += [word for name, value in small.items() for word in (f"--{name}", value)]
    run = partial(printed_by, train_classifier, *common)
    lines = run("--seeds", "1").splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["model", "runs", "validation"], ["encoder,", "mean", "1"], ["encoder,", "max", "1"], ["bag", "of", "words"],
    ]  # fmt: skip
    text = (tmp_path / "runs" / "results.json").read_text(encoding="utf-8")
    assert "test_accuracy" not in text
    before = json.loads(text)["runs"]
    record = json.loads(run("--seeds", "1", "2", "--test", "--json", "--card", tmp_path / "card.md"))
    runs = {(each["pooling"], each["seed"]): each for each in record["runs"]}
    assert len(runs) == 4
    for each in before:  # finished runs are not repeated
        again = runs[each["pooling"], each["seed"]]
        assert {**again, "test_accuracy": None} == {**each, "test_accuracy": None}
    assert min(each["test_accuracy"] for each in runs.values()) > 95
    assert record["bag_of_words"]["test_accuracy"] > 95
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "| encoder, max | 2 | 100.0 ± 0.0 |" in card
    assert ModelCard(card, ignore_metadata_errors=False).data.eval_results[0].metric_value > 95
    classify = pipeline("text-classification", model=str(tmp_path / "runs" / "mean-1" / "model"))
    assert [each["label"] for each in classify(["a good film", "a bad film"])] == ["positive", "negative"]
    with pytest.raises(SystemExit, match="choose another --output"):
        run("--epochs", "3")
    with pytest.raises(SystemExit, match="2"):
        run("--card", tmp_path / "card.md")


def test_invalid_options_exit_with_a_message(polarity, tmp_path, printed_by, capsys):
    for options, message in (
        ("--attention_heads 3 --vocab_size 290", "not a multiple of encoder_attention_heads"),
        ("--vocab_size 10", "vocab_size is 10"),
        ("--seeds -1", "seeds are from 0"),
        ("--epochs 0", "--epochs must be 1 or more"),
        ("--poolings sum", "invalid choice: 'sum'"),
    ):
        with pytest.raises(SystemExit) as ended:
            printed_by(train_classifier, polarity, "--output", tmp_path / options, *options.split())
        assert message in f"{ended.value}{capsys.readouterr().err}"
        assert not (tmp_path / options / "results.json").exists()
    folder = tmp_path / "--attention_heads 3 --vocab_size 290"  # left by a failed start: another size starts afresh
    assert len(train_classifier.Runs(folder, train_classifier.Settings(vocab_size=265)).tokenizer(DATA)) == 265


def test_foreign_results_file_is_rejected_and_kept(polarity, tmp_path, printed_by):
    for text in ('{"settings": ', "{}", "[]"):
        (tmp_path / "results.json").write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit, match=r"results\.json is not a results file of this script"):
            printed_by(train_classifier, polarity, "--output", tmp_path)
        assert (tmp_path / "results.json").read_text(encoding="utf-8") == text
