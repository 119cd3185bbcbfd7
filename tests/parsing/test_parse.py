"""The parser: any model's output becomes trees over the given words; a trained model finds the right ones."""

import json
import random

import pytest

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.parsing.linearised_trees import linearise
from vanilla_transformer.parsing.parse import parse, sentence_words, with_punctuation_tags
from vanilla_transformer.parsing.trees import read_tree
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.run import train

from ..model.conftest import build_model
from ..scripts.conftest import load_script
from ..system.conftest import command


SENTENCES = ["I saw a dog .", "", "Dogs ( big ones ) bark ;", "-- ?"]


@pytest.fixture(scope="module")
def model():
    """An untrained parser."""
    texts = ["(S (NP PRP )NP (VP VBD (NP DT NN )NP )VP . )S", "I saw a dog ."] * 3
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=280, pretokenized=True))
    model = build_model(1, vocab_size=len(tokenizer))
    model.generation_config = paper_generation_config(
        model.config, num_beams=3, length_penalty=0.3, max_length_offset=20
    )
    return model, tokenizer


def words_of(tree):
    return [leaf.word for leaf in tree.leaves()]


def test_sentence_words_equal_tree_words():
    """A no-break space or another separator outside ASCII may be part of a word."""
    assert sentence_words("10\xa0000 a\u2028b\tc") == ["10\xa0000", "a\u2028b", "c"]
    assert words_of(read_tree("(NP (CD 10\xa0000) (NNS a\u2028b))")) == ["10\xa0000", "a\u2028b"]
    assert sentence_words(" a ( f(x) ") == ["a", "-LRB-", "f-LRB-x-RRB-"]


def test_punctuation_gets_its_fixed_tags():
    tree = read_tree("(TOP (S (NP (, dogs) (NN --)) (NN ?) ('' ') (: %) (, $) (POS ')))")
    assert str(with_punctuation_tags(tree)) == "(TOP (S (NP (XX dogs) (: --)) (. ?) ('' ') (XX %) (XX $) (POS ')))"


def test_every_sentence_becomes_a_tree_over_its_words(model):
    found = parse(*model, SENTENCES)
    assert found[1] is None
    for number in (0, 2, 3):
        assert words_of(found[number].tree) == sentence_words(SENTENCES[number])
        assert found[number].repairs  # the model is untrained
        assert read_tree(str(found[number].tree)) == found[number].tree


def test_command_writes_trees_and_rejects_double_input(model, tmp_path):
    for part in model:
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "words").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    expected = ["" if each is None else str(each.tree) for each in parse(*model, SENTENCES)]
    done = command("parse", "--model", tmp_path / "model", "--input", tmp_path / "words")
    assert done.stdout.splitlines() == expected
    assert done.stderr.splitlines()[-1] == "0 of 3 outputs (0.0 %) were well-formed."
    output = ["--output", str(tmp_path / "trees"), "--num-beams", "1"]
    command("parse", SENTENCES[0], "--model", tmp_path / "model", *output)
    [line] = (tmp_path / "trees").read_text(encoding="utf-8").splitlines()
    assert words_of(read_tree(line)) == SENTENCES[0].split()
    done = command("parse", "a", "--model", "m", "--input", "b")
    said = done.stderr.splitlines()[-1].partition(": error: ")[2]
    assert (done.returncode, said) == (2, "Give sentences or --input, not both: 'a' is taken for a sentence.")


def grammar_tree(generator):
    """A random sentence of a small grammar, in the format of a treebank."""

    def noun_phrase(depth):
        noun = f"(NP-SBJ (DT the) (NN {generator.choice(['dog', 'cat', 'man', 'park'])}))"
        if depth and generator.random() < 0.6:
            return f"(NP {noun} (PP (IN {generator.choice(['in', 'near'])}) {noun_phrase(depth - 1)}))"
        return noun

    verb = f"(VP (VBD {generator.choice(['saw', 'met'])}) {noun_phrase(2)})"
    return read_tree(f"( (S {noun_phrase(1)} {verb} (. .)))")


@pytest.mark.slow
@pytest.mark.parametrize("with_words", [False, True])
def test_training_learns_a_small_grammar(with_words, tmp_path):
    generator = random.Random()
    trees = [grammar_tree(generator) for _ in range(1500)]
    sets = {"train": trees[:1400], "validation": trees[1400:1450], "test": trees[1450:]}
    load_script("examples/prepare_treebank").write_treebank(sets, tmp_path / "treebank", with_words=with_words)
    overrides = {
        "data.folder": str(tmp_path / "treebank"), "tokenizer.vocab_size": "300", "decoding.num_beams": "4",
        "model.d_model": "64", "model.encoder_layers": "2", "model.decoder_layers": "2", "model.dropout": "0.0",
        "training.max_steps": "700", "training.warmup_steps": "150", "training.noam_factor": "0.2",
        "training.eval_steps": "100", "training.save_steps": "100", "training.average_last": "2",
        "training.label_smoothing_factor": "0.0",
    }  # fmt: skip
    folder = train(load_recipe("parsing_sample", overrides), tmp_path / "run")
    scores = json.loads(folder.scores.read_text(encoding="utf-8"))
    [f1] = [s for s in scores if (s["model"], s["test_set"], s["metric"]) == ("averaged", "last_20_files", "evalb")]
    assert f1["value"] > 99
    lines = [json.loads(line) for line in (folder.translations / "last_20_files.jsonl").open(encoding="utf-8")]
    first = read_tree((tmp_path / "treebank" / "test.trees").read_text(encoding="utf-8").split("\n")[0])
    assert lines[0]["reference"] == linearise(first, with_words)
