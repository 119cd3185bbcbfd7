"""Ensembles average log-probabilities in forward passes, in our search and in transformers'."""

import pytest
import torch
from transformers.generation import GenerationMixin

from vanilla_transformer import EnsembleForConditionalGeneration, paper_generation_config
from vanilla_transformer.model.generation_vanilla_transformer import length_penalty

from .conftest import build_model, sharpened, sums_of_one_pass, transformers_own


def members() -> list:
    """Three models that have nothing in common but the vocabulary."""
    sizes = [{}, {"d_model": 24, "decoder_layers": 1, "norm_first": True}, {"encoder_layers": 1, "head_dim": 6}]
    return [sharpened(build_model(seed, **size)) for seed, size in enumerate(sizes)]


@pytest.fixture
def ensemble():
    found = EnsembleForConditionalGeneration(members())
    found.generation_config = paper_generation_config(found.config)
    return found


def test_scores_are_the_normalised_mean_of_log_probabilities(ensemble, sources):
    targets = torch.randint(3, 40, (5, 6))
    with torch.no_grad():
        found = ensemble(**sources, decoder_input_ids=targets).logits
        each = [model(**sources, decoder_input_ids=targets).logits.double().softmax(-1) for model in ensemble.models]
    product = (each[0] * each[1] * each[2]) ** (1 / 3)
    expected = product / product.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(found.double().exp(), expected, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found.exp(), each[0].float(), atol=0.05)


def test_loss_is_the_mean_negative_log_likelihood(ensemble, sources):
    labels = torch.tensor([[5, 6, 2, -100], [7, 2, -100, -100]] * 2 + [[8, 9, 10, 2]])
    with torch.no_grad():
        output = ensemble(**sources, labels=labels)
    real = labels != -100
    chosen = output.logits.gather(2, labels.clamp(min=0)[..., None])[..., 0][real]
    assert output.loss.item() == pytest.approx(-chosen.mean().item(), rel=1e-5)


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 4, "num_return_sequences": 3}])
def test_our_search_equals_transformers_own(ensemble, sources, options, ours_used):
    own = GenerationMixin._beam_search if options["num_beams"] > 1 else GenerationMixin._sample
    penalty = {"length_penalty_type": "length", "early_stopping": False} if options["num_beams"] > 1 else {}
    found = ensemble.generate(**sources, **options, **penalty)
    assert ours_used
    expected = ensemble.generate(**sources, **options, **penalty, custom_generate=own)
    assert found.tolist() == expected.tolist()


def test_sequence_scores_equal_one_forward_pass(ensemble, sources):
    output = ensemble.generate(**sources, return_dict_in_generate=True)
    sums, lengths = sums_of_one_pass(ensemble, sources, output.sequences)
    expected = sums / torch.tensor([length_penalty(int(length), 0.6, "gnmt") for length in lengths])
    torch.testing.assert_close(output.sequences_scores, expected, atol=1e-4, rtol=0)


def test_ensemble_of_one_equals_its_member(sources):
    [model, *_] = members()
    model.generation_config = paper_generation_config(model.config)
    expected = model.generate(**sources, return_dict_in_generate=True)
    found = EnsembleForConditionalGeneration([model]).generate(**sources, return_dict_in_generate=True)
    assert found.sequences.tolist() == expected.sequences.tolist()
    torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)


def test_order_of_members_changes_nothing(ensemble, sources):
    turned = EnsembleForConditionalGeneration(list(ensemble.models)[::-1])
    turned.generation_config = ensemble.generation_config
    assert turned.generate(**sources).tolist() == ensemble.generate(**sources).tolist()


def test_output_ends_where_learned_positions_of_any_member_end(sources):
    learned = build_model(1, position_embedding_type="learned", max_position_embeddings=16)
    for models in ([learned, members()[0]], [members()[0], learned]):
        ensemble = EnsembleForConditionalGeneration(models)
        ensemble.generation_config = paper_generation_config(ensemble.config, eos_token_id=None)
        assert ensemble.positions == 16
        assert ensemble.generate(**sources, eos_token_id=None).shape[1] == 16


def test_hook_on_a_member_takes_effect(ensemble, sources, ours_used):
    before = ensemble.generate(**sources, num_beams=2)
    ensemble.models[1].lm_head.register_forward_hook(lambda module, inputs, output: output.flip(-1))
    found = ensemble.generate(**sources, num_beams=2)
    assert len(ours_used) == 2
    assert not torch.equal(found, before)
    assert torch.equal(found, transformers_own(ensemble, **sources, num_beams=2))


def test_cross_attentions_contain_the_heads_of_every_member(ensemble, sources):
    ensemble.set_attn_implementation("eager")
    output = ensemble(**sources, decoder_input_ids=torch.zeros(5, 3, dtype=torch.long), output_attentions=True)
    [layer] = output.cross_attentions  # one member has one layer
    assert layer.shape == (5, 12, 3, 7)
    torch.testing.assert_close(layer.sum(-1), torch.ones(5, 12, 3))


def test_mismatched_or_missing_members_are_rejected():
    for models, message in (
        ([build_model(), build_model(vocab_size=41)], r"vocab_size is \[40, 41\]"),
        ([build_model(), build_model(eos_token_id=3)], "eos_token_id"),
        ([], "at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            EnsembleForConditionalGeneration(models)


def test_what_an_ensemble_cannot_do_is_refused(ensemble, sources):
    with pytest.raises(ValueError, match="leave assistant_model out"):
        ensemble.generate(**sources, assistant_model=ensemble.models[0])
    for options in ({"num_beams": 1}, {"num_beams": 2}):
        with pytest.raises(ValueError, match="ask its members for theirs"):
            ensemble.generate(**sources, **options, output_hidden_states=True, return_dict_in_generate=True)
    logits, *_ = ensemble(**sources, decoder_input_ids=torch.full((5, 2), 4), return_dict=False)
    assert logits.shape == (5, 2, 40)


def test_saving_an_ensemble_raises(ensemble, tmp_path):
    with pytest.raises(NotImplementedError, match="its members"):
        ensemble.save_pretrained(tmp_path / "ensemble")
    assert not list(tmp_path.iterdir())
