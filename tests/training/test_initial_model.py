"""Starting from another model's weights: rows of new pieces, and shapes that do not fit."""

import pytest
import torch

from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.initial_model import take_weights, with_new_rows


PARTS = [[70, 71], [80, 81, 81]]


@pytest.mark.parametrize("options", [{}, {"tie_word_embeddings": False, "output_bias": True}])
def test_new_rows_are_means_and_keep_old_logits(make_model, options):
    old = make_model(seed=3, **options).eval()
    if options:
        torch.nn.init.normal_(old.lm_head.bias)
    config = type(old.config)(**{**old.config.to_dict(), "vocab_size": old.config.vocab_size + 2})
    new = VanillaTransformerForConditionalGeneration(config).eval()
    new.load_state_dict(with_new_rows(old.state_dict(), PARTS))
    for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        before, after = old.get_submodule(name).weight, new.get_submodule(name).weight
        assert torch.equal(after[: len(before)], before)
        torch.testing.assert_close(after[-2], (before[70] + before[71]) / 2)
        torch.testing.assert_close(after[-1], (before[80] + 2 * before[81]) / 3)
    ids = torch.tensor([[70, 80, 90, 2]])
    with torch.no_grad():
        logits = [model(input_ids=ids, decoder_input_ids=torch.tensor([[0, 75, 76]])).logits for model in (old, new)]
    pieces = old.config.vocab_size
    torch.testing.assert_close(logits[1][..., :pieces], logits[0])
    # A mean of rows gives the mean of their logits, and all old probabilities shrink by the same factor.
    torch.testing.assert_close(logits[1][..., -2], logits[0][..., [70, 71]].mean(-1))
    lost = logits[0].log_softmax(-1) - logits[1].log_softmax(-1)[..., :pieces]
    torch.testing.assert_close(lost, lost[..., :1].expand_as(lost))
    assert (lost > 0).all()


def test_initial_model_of_other_shape_is_rejected(make_model, tokenizer, tmp_path):
    make_model(seed=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    wider = type(make_model().config)(**{**make_model().config.to_dict(), "vocab_size": 265})
    for model, said in (
        (make_model(encoder_ffn_dim=32), "model.encoder_ffn_dim is 32"),
        (VanillaTransformerForConditionalGeneration(wider), "model.vocab_size is 265"),
    ):
        with pytest.raises(ValueError, match=f"{said}, and in initial_model"):
            take_weights(model, str(tmp_path), tokenizer)
