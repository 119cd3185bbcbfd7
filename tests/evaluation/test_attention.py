"""Words and what the model looked at when it wrote them."""

import pytest
import torch
from transformers.modeling_outputs import Seq2SeqLMOutput

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation.attention import WordAlignment, align_words, cross_attention

from ..model.conftest import build_model


TEXTS = ["A man's dog, 3 € !", "Der Hund eines Mannes"]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(TEXTS, TokenizerSettings(vocab_size=265))


class Looking(torch.nn.Module):
    """Its heads look at known places of the source."""

    def __init__(self, attention: torch.Tensor):
        super().__init__()
        self.config, self.device, self.attention, self.set_to = build_model().config, torch.device("cpu"), attention, []

    def set_attn_implementation(self, name):
        self.set_to.append(name)

    def forward(self, input_ids, attention_mask, labels, output_attentions):
        assert output_attentions
        assert not self.training
        return Seq2SeqLMOutput(cross_attentions=(None, self.attention))


def test_a_word_is_aligned_with_the_word_most_looked_at(tokenizer):
    source, target = "dog man", "Hund Mann"
    pieces = [len(tokenizer(word, add_special_tokens=False).input_ids) for word in ("dog", "man", "Hund", "Mann")]
    assert min(pieces) > 1
    attention = torch.zeros(1, 2, pieces[2] + pieces[3] + 1, pieces[0] + pieces[1] + 1)
    attention[0, :, :, -1] = 0.9  # the end is looked at most, and is no word
    attention[0, 0, : pieces[2], pieces[0] : -1] = 0.1 / pieces[1]  # Hund: on man, shared by its pieces
    attention[0, 1, : pieces[2], 0] = 0.06  # ... and on one piece of dog
    attention[0, 0, pieces[2] : -1, 0] = 0.1
    model = Looking(attention).train()
    [found] = align_words(model, tokenizer, [(source, target)])
    assert found.source == ["dog", "man"]
    assert found.target == ["Hund", "Mann"]
    assert found.links == [1, 0]
    assert found.weights == pytest.approx([0.05, 0.05])
    assert str(found) == "Hund=man Mann=dog"
    assert model.training
    assert model.set_to == ["eager", model.config._attn_implementation]


def test_one_behind_the_other():
    first, second = WordAlignment(["a", "b"], ["x"], [1], [0.5]), WordAlignment(["c"], ["y", "z"], [0, 0], [0.1, 0.2])
    assert first + second == WordAlignment(["a", "b", "c"], ["x", "y", "z"], [1, 2, 2], [0.5, 0.1, 0.2])


def test_words_of_any_text(tokenizer):
    [found] = align_words(build_model(vocab_size=265), tokenizer, [tuple(TEXTS)])
    assert found.source == ["A", "man", "'s", "dog", ",", "3", "€", "!"]
    assert found.target == ["Der", "Hund", "eines", "Mannes"]


def test_texts_of_a_batch_are_aligned_as_alone(tokenizer):
    model = build_model(vocab_size=265)
    pairs = [tuple(TEXTS), ("A dog", "Hund"), ("", "Hund"), ("A", "")]
    together = align_words(model, tokenizer, pairs)
    for pair, found in zip(pairs, together, strict=True):
        [alone] = align_words(model, tokenizer, [pair])
        assert (found.target, found.links) == (alone.target, alone.links)
        assert found.weights == pytest.approx(alone.weights, abs=1e-5)


def test_attention_is_that_of_the_forward_pass(tokenizer):
    model = build_model(vocab_size=265)
    weights, source, target = cross_attention(model, tokenizer, TEXTS[0], TEXTS[1])
    assert weights.shape == (4, len(target), len(source))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, len(target)))
    assert model.config._attn_implementation == "sdpa"
    assert not model.training
