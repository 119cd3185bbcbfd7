"""Low-rank adapters: which weights learn, and which weights they merge into."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from vanilla_transformer.training.low_rank import add_adapters, merged


def test_merged_weights_equal_those_of_peft(make_model):
    by_peft = get_peft_model(make_model(), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    ours = make_model()
    add_adapters(ours, 4, ours.config.vocab_size)
    for model in (by_peft, ours):
        torch.manual_seed(5)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter)
    ids = torch.tensor([[70, 80, 2]])
    with torch.no_grad():
        adapted = ours.eval()(input_ids=ids, decoder_input_ids=ids).logits
    expected, plain = by_peft.merge_and_unload().state_dict(), make_model()
    found = merged(ours.state_dict())
    assert found.keys() == expected.keys() == plain.state_dict().keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight)
    plain.load_state_dict(found)
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(input_ids=ids, decoder_input_ids=ids).logits, adapted)
    untouched = make_model().state_dict()
    assert merged(untouched) == untouched


@pytest.mark.parametrize("tied", [True, False])
def test_only_adapters_and_new_rows_learn(make_trainer, make_model, tied):
    # The feed-forward matrices have as many rows as the embeddings, and must not be mistaken for them.
    model = make_model(tie_word_embeddings=tied, encoder_ffn_dim=make_model().config.vocab_size)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    add_adapters(model, 2, 80)  # ids 80 to 89 are in the pairs
    make_trainer(model, lora_rank=2, noam_factor=None, learning_rate=0.1, warmup_steps=0).train()
    after = merged(model.state_dict())
    for name, weight in before.items():
        if name.endswith(("q_proj.weight", "v_proj.weight")):
            assert not torch.equal(after[name], weight), name
        elif name.endswith(("shared.weight", "embed_tokens.weight", "lm_head.weight")):
            assert torch.equal(after[name][:80], weight[:80]), name
            assert not torch.equal(after[name][80:90], weight[80:90]), name
        else:
            assert torch.equal(after[name], weight), name
