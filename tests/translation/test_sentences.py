"""Translating sentences with torch: order, batches, limits, workers and pieces; and scores of given pairs."""

import os
from itertools import islice

import pytest
import torch
from transformers import GenerationConfig

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.translation import Glossary, in_blocks, score_pairs, translate, translate_lines

from ..export.conftest import ending_model
from ..model.conftest import build_model
from .conftest import SENTENCES


@pytest.fixture
def model():
    return build_model(vocab_size=280)


class Echo(torch.nn.Module):
    """A model that "translates" a sentence into itself and remembers what it was asked."""

    device = torch.device("cpu")

    def __init__(self):
        super().__init__()
        self.generation_config = GenerationConfig()
        self.shapes, self.options, self.modes, self.gradients = [], [], [], []

    def generate(self, input_ids, attention_mask, **options):
        assert torch.equal(attention_mask, (input_ids != 1).long())
        self.shapes.append(tuple(input_ids.shape))
        self.options.append(options)
        self.modes.append(self.training)
        self.gradients.append(torch.is_grad_enabled())
        return input_ids


def best_of(found) -> list[str]:
    return [best.text for best, *_ in found]


@pytest.mark.parametrize("batch_tokens", [1, 30, 120, 4096])
def test_translations_come_back_in_the_order_given(tokenizer, batch_tokens):
    model, steps = Echo(), []
    found = translate(model, tokenizer, SENTENCES, batch_tokens=batch_tokens, on_progress=steps.append)
    assert found == [sentence if sentence.strip() else "" for sentence in SENTENCES]
    assert sum(steps) == sum(rows for rows, _ in model.shapes) == 5  # blank lines need no work
    assert len(steps) == len(model.shapes)
    assert all(rows * length <= batch_tokens or rows == 1 for rows, length in model.shapes)
    assert any(rows > 1 for rows, _ in model.shapes) == (batch_tokens > 1)


def test_blank_input_skips_model_and_special_tokens_survive(tokenizer):
    model = Echo()
    assert translate(model, tokenizer, ["", "  ", "\n"]) == ["", "", ""]
    assert translate(model, tokenizer, []) == []
    assert model.shapes == []
    assert translate(model, tokenizer, ["a </s> b <pad>"]) == ["a </s> b <pad>"]  # in the input they are plain text


def test_white_space_around_texts_is_never_read(model, tokenizer):
    """Training strips it, too."""
    around = Echo()
    assert translate(around, tokenizer, ["  A dog. ", "A dog.\u3000"]) == ["A dog."] * 2
    assert around.shapes == [(2, len(tokenizer("A dog.").input_ids))]
    [[best]] = translate_lines(Echo(), tokenizer, [[" A man sees the dog.  The girl runs. "]], split="en")
    assert best.text == "A man sees the dog. The girl runs."
    stripped = score_pairs(model, tokenizer, [("No.", "A dog.")])
    assert score_pairs(model, tokenizer, [(" No. ", "A dog.\t")]) == stripped


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 4}, {}])
def test_batch_equals_one_by_one_and_blocks(model, tokenizer, options):
    model.generation_config = paper_generation_config(model.config)
    together = translate(model, tokenizer, SENTENCES, **options)
    assert together == [translate(model, tokenizer, [sentence], **options)[0] for sentence in SENTENCES]
    assert together == best_of(translate_lines(model, tokenizer, in_blocks(SENTENCES, 3), **options))
    assert len(set(together)) > 3  # sources matter, so a mixed-up order would show


@pytest.mark.parametrize("training", [True, False])
def test_eval_mode_is_used_and_training_mode_restored(tokenizer, training):
    model = Echo().train(training)
    translate(model, tokenizer, SENTENCES)
    assert (model.modes, model.gradients, model.training) == ([False], [False], training)
    with pytest.raises(RuntimeError, match="stop"):
        translate(model, tokenizer, SENTENCES, on_progress=lambda _: (_ for _ in ()).throw(RuntimeError("stop")))
    assert model.training == training


def test_callers_length_limit_replaces_the_papers(tokenizer):
    config = GenerationConfig(max_new_tokens=3)
    for bound in ({"max_length": 4}, {"max_new_tokens": 3}, {"generation_config": config}):
        model = Echo()
        translate(model, tokenizer, SENTENCES, **bound)
        assert model.options == [{"synced_gpus": False, **bound}]


def test_output_is_limited_to_source_plus_50_tokens(tokenizer):
    """For our models and for others, whose configuration lacks this limit. No translation here ends by itself."""
    sources = tokenizer([sentence for sentence in SENTENCES if sentence.strip()]).input_ids
    for own in (True, False):
        model, lengths = build_model(vocab_size=280), []
        if not own:
            model.generation_config = GenerationConfig(**paper_generation_config(model.config, num_beams=1).to_dict())
            del model.generation_config.max_length_offset
        generate = model.generate

        def noted(generate=generate, lengths=lengths, **options):
            output = generate(**options)
            lengths.extend(int((row > 2).sum()) for row in output)
            return output

        model.generate = noted
        translate(model, tokenizer, SENTENCES, num_beams=1, suppress_tokens=[0, 1, 2])
        assert lengths == sorted((len(source) + 50 for source in sources), reverse=True)


def test_pair_score_is_length_penalized_log_probability(model, tokenizer):
    """Checked with the loss of one forward pass and the length penalty by hand."""
    model.generation_config = paper_generation_config(model.config)
    sources = [sentence for sentence in SENTENCES if sentence.strip()]
    targets = ["Ein Hund.", "Ja", "", "Zwei Hunde sehen den Mann im Park.", "x"]
    pairs = list(zip(sources, targets, strict=True))
    together = score_pairs(model, tokenizer, pairs, batch_tokens=40)
    for pair, found in zip(pairs, together, strict=True):
        source, target = (tokenizer(text, return_tensors="pt").input_ids for text in pair)
        with torch.no_grad():
            loss = model(source, labels=target).loss.item()  # nats per token
        assert found.tokens == target.shape[1]
        assert found.per_token == pytest.approx(-loss, rel=1e-4)
        assert found.log_probability == pytest.approx(-loss * found.tokens, rel=1e-4)
        assert found.score == pytest.approx(found.log_probability / ((5 + found.tokens) / 6) ** 0.6, rel=1e-5)
    assert score_pairs(model, tokenizer, []) == []


def test_workers_change_neither_scores_nor_order(model, tokenizer):
    options = {"num_beams": 3, "num_return_sequences": 3, "return_dict_in_generate": True, "max_length_offset": 5}
    alone = list(translate_lines(model, tokenizer, [SENTENCES], batch_tokens=60, **options))
    assert [len(hypotheses) for hypotheses in alone] == [3, 1, 3, 3, 1, 3, 3]
    assert alone[1][0].text == ""
    options |= {"workers": 2, "batch_tokens": 60, "on_progress": (steps := []).append}
    for ours, theirs in zip(translate_lines(model, tokenizer, in_blocks(SENTENCES, 4), **options), alone, strict=True):
        scores = [each.score for each in theirs]
        assert scores == sorted(scores, reverse=True)
        assert [each.text for each in ours] == [each.text for each in theirs]
        assert [each.score for each in ours] == pytest.approx(scores, abs=1e-4)
    assert sum(steps) == 5


@pytest.mark.parametrize("asked", ["by the model", "by the call", "by a config"])
def test_samples_do_not_depend_on_worker_count(model, tokenizer, asked):
    model.generation_config.do_sample = asked == "by the model"
    options = {"num_beams": 1, "max_new_tokens": 8}
    if asked == "by the call":
        options["do_sample"] = True
    elif asked == "by a config":
        options = {"generation_config": GenerationConfig(**options, do_sample=True)}

    def drawn(workers):
        torch.manual_seed(5)
        return best_of(translate_lines(model, tokenizer, [["A man."] * 6], batch_tokens=1, workers=workers, **options))

    alone = drawn(1)
    assert len(set(alone)) == 6
    assert drawn(2) == alone


def test_worker_failures_are_reported(model, tokenizer):
    class Deadly(type(model)):
        def generate(self, **kwargs):
            os._exit(9)

    with pytest.raises(ValueError, match="length_penalty_type must be"):
        list(translate_lines(model, tokenizer, [SENTENCES], workers=2, length_penalty_type="nonsense"))
    with pytest.raises(ValueError, match="at least 1 worker, not 0"):
        list(translate_lines(model, tokenizer, [SENTENCES], workers=0))
    model.__class__ = Deadly
    with pytest.raises(ChildProcessError, match="has died, perhaps for lack of memory: use fewer workers"):
        list(translate_lines(model, tokenizer, [SENTENCES], workers=2))


def test_too_long_line_is_split_and_reported(tokenizer, caplog):
    long = "A man sees the dog. The girl runs across the street. No."
    lines = ["No.", "", long, "A dog."]
    assert best_of(translate_lines(Echo(), tokenizer, in_blocks(lines, 2), longest=30)) == lines
    assert [record.getMessage() for record in caplog.records] == [
        f"Line 3 has {len(tokenizer(long).input_ids)} tokens at a stretch, more than 30: translated in 2 pieces."
    ]


def test_line_longer_than_the_models_positions_is_cut(tokenizer, caplog):
    model = build_model(vocab_size=280, position_embedding_type="learned", max_position_embeddings=30)
    long = "A man sees the dog. The girl runs across the street. No."
    assert len(translate(model, tokenizer, ["No.", long], num_beams=1)) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"Line 2 has {len(tokenizer(long).input_ids)} tokens at a stretch, more than 30: translated in 2 pieces."
    ]


def test_no_limit_goes_beyond_the_models_positions(tokenizer):
    model = build_model(vocab_size=280, position_embedding_type="learned", max_position_embeddings=40)
    model.generation_config = paper_generation_config(model.config, eos_token_id=None)
    sampled = {"do_sample": True, "num_beams": 1, "align": True}
    sampled["calibration"] = Calibration(50.0, 0.0, {"mean_surprisal": -1.0})
    for options in ({"num_beams": 2}, {"num_beams": 2, "prefix": "A man sees"}, sampled):
        torch.manual_seed(0)
        found = list(translate_lines(model, tokenizer, [["No.", "A dog."] * 4], max_new_tokens=100, **options))
        assert all(best.cut for best, *_ in found)
    # Half characters have more tokens than the model wrote: it cannot read these translations again.
    assert all(best.likelihood is None and best.alignment.links == [] for best, *_ in found)
    [[best]] = translate_lines(model, tokenizer, [["A dog."]], max_new_tokens=3, **sampled)
    assert best.likelihood is not None
    assert best.alignment.links


def test_search_may_find_fewer_translations_than_asked_for(model, tokenizer):
    options = {"num_beams": 4, "num_return_sequences": 4, "forced_eos_token_id": 2, "max_new_tokens": 1}
    for scored in (True, False):
        [found] = translate_lines(model, tokenizer, [["No."]], return_dict_in_generate=scored, **options)
        assert [each.score for each in found] == [0 if scored else None]  # of the forced end
    # Only one translation of as many tokens has the whole term.
    options |= {
        "forced_eos_token_id": None,
        "max_new_tokens": len(tokenizer("Hund", add_special_tokens=False).input_ids),
    }
    [found] = translate_lines(model, tokenizer, [["No."]], glossary=Glossary([("No", "Hund")]), **options)
    assert all("Hund" in each.text and each.score is None for each in found)


def test_prefix_may_be_longer_than_the_limit(model, tokenizer):
    model.generation_config = paper_generation_config(model.config, max_length_offset=2)
    prefix = "A man sees the dog. " * 3
    for lines in (["No."], ["No.", "A dog sees the little girl. " * 5]):
        [best, *_], *_ = translate_lines(model, tokenizer, [lines], prefix=prefix)
        assert best.text.startswith(prefix.strip())


def test_split_line_joins_translations_of_its_sentences(model, tokenizer):
    line = "Mr. Man sees the dog. No. Two men play football in the park."
    sentences = ["Mr. Man sees the dog.", "No.", "Two men play football in the park."]
    options = {"num_beams": 2, "num_return_sequences": 2, "return_dict_in_generate": True, "max_length_offset": 3}
    found = list(translate_lines(model, tokenizer, [[line, "", "No."]], split="en", **options))
    of_sentences = list(translate_lines(model, tokenizer, [sentences], **options))
    assert found[1][0].text == ""
    assert found[2] == of_sentences[1]
    for rank in range(2):
        assert found[0][rank].text == " ".join(each[rank].text for each in of_sentences)
        assert found[0][rank].score == pytest.approx(sum(each[rank].score for each in of_sentences))


def test_prefix_starts_each_line_but_not_each_sentence(model, tokenizer):
    options = {"prefix": "A dog", "max_new_tokens": 5, "num_beams": 2}
    found = best_of(translate_lines(model, tokenizer, [SENTENCES], **options))
    model.generation_config.decoder_start_token_id = None  # transformers then takes the beginning of a sentence
    model.generation_config.bos_token_id = model.config.decoder_start_token_id
    assert best_of(translate_lines(model, tokenizer, [SENTENCES], **options)) == found
    assert [text.startswith("A dog") for text in found] == [bool(line.strip()) for line in SENTENCES]
    line = "A man sees the dog. Two men play football in the park."
    [[found]] = translate_lines(model, tokenizer, [[line]], split="en", prefix="A dog", max_length_offset=3)
    [[first], [second]] = translate_lines(model, tokenizer, [[line[:19], line[20:]]], max_length_offset=3)
    assert found.text.startswith("A dog")
    assert not first.text.startswith("A dog")
    assert found.text.endswith(f" {second.text}")


@pytest.mark.parametrize("workers", [1, 2])
def test_alignments_come_with_their_translations(model, tokenizer, workers):
    lines = ["A man sees the dog. No.", "", "Two men play football."]
    options = {"split": "en", "align": True, "workers": workers, "max_length_offset": 3}
    found = list(translate_lines(model, tokenizer, [lines], **options))
    alignments = [best.alignment for best, *_ in found]
    assert alignments[0].source == ["A", "man", "sees", "the", "dog", ".", "No", "."]
    assert alignments[1].source == alignments[1].target == []
    for (best, *_), alignment in zip(found, alignments, strict=True):
        assert "".join(alignment.target) == "".join(best.text.split())
        assert len(alignment.links) == len(alignment.weights) == len(alignment.target)
        assert all(0 <= link < len(alignment.source) for link in alignment.links)
        assert all(0 < weight <= 1 for weight in alignment.weights)
    [[second]] = translate_lines(model, tokenizer, [["No."]], align=True, max_length_offset=3)
    assert alignments[0].links[-len(second.alignment.links) :] == [6 + link for link in second.alignment.links]


@pytest.mark.parametrize("forced", [None, 2])
@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 1, "do_sample": True, "top_k": 1}])
def test_cut_translations_are_marked(tokenizer, options, forced):
    """With more room a cut translation would continue, and any other would stay the same."""
    model = ending_model(ends=2, seed=1, vocab_size=280)
    model.generation_config.forced_eos_token_id = forced
    lines = [row["en"] for row in islice(phrasebook("test"), 40)]
    short, long = (
        [best for best, *_ in translate_lines(model, tokenizer, [lines], max_new_tokens=limit, **options)]
        for limit in (6, 300)
    )
    assert {each.cut for each in short} == {True, False}
    for here, there in zip(short, long, strict=True):
        assert here.cut or (here.text == there.text and not there.cut)
        assert not here.cut or there.text.startswith(here.text.rstrip("\ufffd"))
    assert sum(each.cut and each.text == other.text for each, other in zip(short, long, strict=True)) < 4
