"""generate(): the cache and the batch change nothing; the paper's beam search and length limit."""

import copy
import logging

import pytest
import torch
from transformers import GenerationConfig, Seq2SeqTrainer, Seq2SeqTrainingArguments, StoppingCriteriaList

from vanilla_transformer.model.generation_vanilla_transformer import SourceLengthLimit, paper_generation_config

from .conftest import sharpened


STRATEGIES = {
    "greedy": {"num_beams": 1},
    "beam": {"num_beams": 4, "length_penalty": 0.6},
    "sampled": {"do_sample": True},
    "sampled beams": {"do_sample": True, "num_beams": 3},
}


def generate(model, unlabelled, seed=3, **options):
    torch.manual_seed(seed)
    return model.generate(**unlabelled, **{"max_new_tokens": 12, **options})


def without_padding(row):
    return [token for token in row.tolist() if token != 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_cache_changes_nothing(tiny_model, unlabelled, strategy):
    model, options = tiny_model(), STRATEGIES[strategy]
    if strategy == "sampled":  # by transformers in both cases: ours draws other random numbers
        options = {**options, "encoder_no_repeat_ngram_size": 20}
    cached = generate(model, unlabelled, **options, use_cache=True)
    assert torch.equal(cached, generate(model, unlabelled, **options, use_cache=False))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_eager_and_sdpa_translate_alike(tiny_model, unlabelled, strategy):
    eager, sdpa = (tiny_model(attn_implementation=name) for name in ("eager", "sdpa"))
    options = STRATEGIES[strategy]
    assert torch.equal(generate(eager, unlabelled, **options), generate(sdpa, unlabelled, **options))


def test_greedy_takes_the_best_next_token(tiny_model, unlabelled):
    model, target = tiny_model(), torch.zeros(1, 1, dtype=torch.long)
    source = unlabelled["input_ids"][:1]
    for _ in range(6):
        target = torch.cat([target, model(source, decoder_input_ids=target).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generate(model, {"input_ids": source}, max_new_tokens=6, suppress_tokens=None), target)


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("extra", [{}, {"extra_length": 3}])
def test_each_output_ends_at_its_own_limit(tiny_model, unlabelled, strategy, extra):
    model, lengths = tiny_model(), unlabelled["attention_mask"].sum(1)
    limit = StoppingCriteriaList([SourceLengthLimit(lengths, **extra)])
    # Without end and padding tokens a model never stops by itself.
    got = generate(
        model, unlabelled, **STRATEGIES[strategy], max_new_tokens=100, stopping_criteria=limit, suppress_tokens=[1, 2]
    )
    more = extra.get("extra_length", 50)
    assert [len(without_padding(row)) - 1 for row in got] == [6 + more, 4 + more]


def test_beam_cut_at_the_limit_ignores_its_neighbours(tiny_model, unlabelled):
    model, options = tiny_model(), {**STRATEGIES["beam"], "max_new_tokens": 100, "suppress_tokens": [1, 2]}

    def cut(inputs, lengths):
        return generate(model, inputs, **options, stopping_criteria=[SourceLengthLimit(torch.tensor(lengths), 5)])

    together, alone = cut(unlabelled, [6, 4]), cut({"input_ids": unlabelled["input_ids"][1:, :4]}, [4])
    assert without_padding(together[1]) == without_padding(alone[0])


def test_padding_without_a_mask_is_not_read(tiny_model, unlabelled):
    model = sharpened(tiny_model())
    ids, options = unlabelled["input_ids"], {"num_beams": 3, "max_new_tokens": 9, "return_dict_in_generate": True}
    expected = model.generate(**unlabelled, **options)
    for given in ({"inputs": ids}, {"input_ids": ids}, {"input_ids": ids, "attention_mask": None}):
        found = model.generate(**given, **options)
        assert torch.equal(found.sequences, expected.sequences)
        assert torch.equal(found.sequences_scores, expected.sequences_scores)
    hidden = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert not torch.equal(hidden.sequences_scores, expected.sequences_scores)
    model.generation_config.eos_token_id = [2, model.config.pad_token_id]  # then it may be meant
    found = model.generate(ids, **options)
    assert torch.equal(found.sequences, model.generate(ids, attention_mask=torch.ones_like(ids), **options).sequences)


def test_saved_limit_ends_where_learned_positions_do(tiny_model, unlabelled):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    model.generation_config.update(max_new_tokens=100, suppress_tokens=[1, 2])
    assert model.generate(**unlabelled).shape == (2, 9)
    prefix = torch.randint(5, 20, (2, 3))
    assert model.generate(**unlabelled, decoder_input_ids=prefix).shape[1] == 9
    with pytest.raises(ValueError, match="positions"):  # what a call asks for is not changed in silence
        model.generate(**unlabelled, max_new_tokens=100)


def test_each_sentence_may_have_its_own_start_token(tiny_model, unlabelled):
    model, starts = tiny_model(), torch.tensor([[0], [4]])
    prefix = torch.cat((starts, torch.tensor([[7, 8], [9, 10]])), dim=1)
    found = model.generate(**unlabelled, decoder_start_token_id=[0, 4], decoder_input_ids=prefix, num_beams=2)
    assert torch.equal(found[:, :3], prefix)


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_neither_padding_nor_a_forced_end_makes_limits_depend_on_neighbours(tiny_model, unlabelled, strategy):
    model = tiny_model()
    model.generation_config.update(max_length_offset=2, suppress_tokens=[1, 2], pad_token_id=1)
    sources, options = unlabelled["input_ids"].masked_fill(unlabelled["attention_mask"] == 0, 1), STRATEGIES[strategy]
    for forced in ({}, {"forced_eos_token_id": 7}):
        together = model.generate(sources, **options, **forced)  # the mask is inferred
        assert together.tolist() == model.generate(**unlabelled, **options, **forced).tolist()
        alone = model.generate(sources[1:, :4], **options, **forced)
        assert [len(without_padding(row)) - 1 for row in together] == [6 + 2, 4 + 2]
        assert without_padding(together[1]) == without_padding(alone[0])


def test_given_config_and_prefix_work_with_the_papers_limit(tiny_model, unlabelled, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model, config = tiny_model(), GenerationConfig(num_beams=2, do_sample=False, eos_token_id=2)
    expected = model.generate(**unlabelled, num_beams=2)
    found = model.generate(**unlabelled, generation_config=config)
    assert found.tolist() == expected.tolist()
    assert (config.max_length, "deprecated" in caplog.text) == (None, False)
    start, prefix = model.config.decoder_start_token_id, torch.randint(5, 20, (2, 9))
    for begun, expected_length in ((prefix, 11), (torch.cat((torch.full((2, 1), start), prefix), dim=1), 11)):
        found = model.generate(**unlabelled, decoder_input_ids=begun, max_length_offset=0, suppress_tokens=[1, 2])
        assert found.shape[1] == expected_length


def test_length_limit_applies_per_sentence():
    limit = SourceLengthLimit(torch.tensor([2, 4]), extra_length=1)
    reached = limit(torch.zeros(6, 4, dtype=torch.long), None)  # three tokens after the start, three rows per source
    assert reached.tolist() == [True, True, True, False, False, False]


def test_paper_generation_config_round_trips(tiny_model, tmp_path):
    model = tiny_model()
    model.generation_config = paper_generation_config(model.config)
    model.save_pretrained(tmp_path)
    found = type(model).from_pretrained(tmp_path).generation_config
    assert (found.num_beams, found.length_penalty, found.early_stopping) == (4, 0.6, "never")
    assert (found.length_penalty_type, found.max_length_offset) == ("gnmt", 50)
    assert (found.bos_token_id, found.pad_token_id, found.eos_token_id, found.decoder_start_token_id) == (0, 1, 2, 0)


def test_new_model_is_greedy_with_the_papers_limit(tiny_model, unlabelled, tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    for each in (model, type(model).from_pretrained(tmp_path)):
        found = each.generation_config
        assert (found.num_beams or 1, found.length_penalty_type, found.max_length_offset) == (1, "gnmt", 50)
    without_end = model.generate(**unlabelled, eos_token_id=None)
    assert without_end.shape[1] == 1 + unlabelled["input_ids"].shape[1] + 50


@pytest.mark.parametrize("alpha", [1e308, -1e308, 51])
def test_extreme_length_penalties_are_rejected(tiny_model, unlabelled, alpha):
    model = tiny_model()
    with pytest.raises(ValueError, match="length_penalty must be from -50 to 50, not "):
        model.generate(**unlabelled, num_beams=2, length_penalty=alpha)
    with pytest.raises(ValueError, match="length_penalty must be from -50 to 50, not "):
        model.generate(**unlabelled, num_beams=2, length_penalty=alpha, bad_words_ids=[[9]])  # transformers' search
    assert model.generate(**unlabelled, num_beams=2, length_penalty=-50.0).shape[0] == len(unlabelled["input_ids"])


@pytest.mark.parametrize("offset", [-1, 2.5, True, "50"])
def test_invalid_limits_are_rejected(tiny_model, unlabelled, offset):
    with pytest.raises(ValueError, match="max_length_offset must be None or a number of tokens"):
        tiny_model().generate(**unlabelled, max_length_offset=offset)


def test_generate_follows_the_paper_generation_config(tiny_model, unlabelled):
    differing = 0
    for seed in range(8):
        model = tiny_model(seed=seed)
        explicit = generate(model, unlabelled, num_beams=4, length_penalty=0.6, early_stopping="never")
        differing += generate(model, unlabelled).tolist() != explicit.tolist()
        model.generation_config = paper_generation_config(model.config)
        assert torch.equal(generate(model, unlabelled), explicit)
    assert differing  # from greedy search, otherwise this shows nothing


def test_paper_generation_config_accepts_overrides(tiny_config, tmp_path):
    config = paper_generation_config(tiny_config(pad_token_id=9), num_beams=5, length_penalty=1.0, max_length=7)
    assert (config.num_beams, config.length_penalty, config.max_length, config.pad_token_id) == (5, 1.0, 7, 9)
    for penalty in ({}, {"length_penalty": 0.3}):  # also if a recipe sets it but one beam is wanted
        paper_generation_config(tiny_config(), num_beams=1, **penalty).save_pretrained(tmp_path)
        assert GenerationConfig.from_pretrained(tmp_path).num_beams == 1


def test_transformers_trainer_leaves_no_limit_behind(tiny_model, batch, unlabelled, tmp_path):
    """Its Seq2SeqTrainer writes transformers' `max_length` of 20 into the config of every model that it evaluates."""
    model = tiny_model(eos_token_id=39)
    model.lm_head.weight.data[39] = 0  # outputs end late
    before = model.generate(**unlabelled)
    assert before.shape[1] > 30
    rows = [{name: tensor[row].tolist() for name, tensor in batch.items()} for row in range(2)]
    arguments = Seq2SeqTrainingArguments(tmp_path / "run", predict_with_generate=True, use_cpu=True, report_to="none")
    Seq2SeqTrainer(model, arguments).predict(rows)
    assert model.generation_config.max_length == 20
    model.save_pretrained(tmp_path / "model")
    for each in (model, type(model).from_pretrained(tmp_path / "model")):
        assert torch.equal(each.generate(**unlabelled), before)
        config = copy.deepcopy(each.generation_config)
        assert torch.equal(each.generate(**unlabelled, generation_config=config), before)
    model.generation_config.max_length = 21
    assert model.generate(**unlabelled).shape[1] == 21
    model.generation_config = GenerationConfig(max_length=20, max_length_offset=50, pad_token_id=1, eos_token_id=39)
    assert model.generate(**unlabelled, decoder_start_token_id=0).shape[1] == 20
