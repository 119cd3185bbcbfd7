"""Which source words the model attends to as it writes each target word."""

import copy
import json

import pytest
import torch
from transformers.modeling_outputs import Seq2SeqLMOutput

from vanilla_transformer.attention.weights import WordAlignment, align_words, attentions
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer

from ..model.conftest import build_model


TEXTS = ["A man's dog, 3 € !", "Der Hund eines Mannes"]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(TEXTS, TokenizerSettings(vocab_size=265))


@pytest.fixture(scope="module")
def model():
    return build_model(vocab_size=265)


class Looking(torch.nn.Module):
    """A model whose heads attend to known source positions."""

    def __init__(self, attention: torch.Tensor):
        super().__init__()
        self.config, self.device, self.attention, self.set_to = build_model().config, torch.device("cpu"), attention, []

    def set_attn_implementation(self, name):
        self.set_to.append(name)

    def forward(self, input_ids, attention_mask, labels, output_attentions, return_dict):
        assert output_attentions
        assert not self.training
        return Seq2SeqLMOutput(cross_attentions=(None, self.attention))


def test_word_aligns_with_the_most_attended_word(tokenizer):
    source, target = "dog man", "Hund Mann"
    pieces = [len(tokenizer(word, add_special_tokens=False).input_ids) for word in ("dog", "man", "Hund", "Mann")]
    assert min(pieces) > 1
    attention = torch.zeros(1, 2, pieces[2] + pieces[3] + 1, pieces[0] + pieces[1] + 1)
    attention[0, :, :, -1] = 0.9  # the end gets the most attention but is not a word
    attention[0, 0, : pieces[2], pieces[0] : -1] = 0.1 / pieces[1]  # Hund: to man, spread over its pieces
    attention[0, 1, : pieces[2], 0] = 0.06  # ... and to one piece of dog
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


def test_alignments_can_be_concatenated():
    first, second = WordAlignment(["a", "b"], ["x"], [1], [0.5]), WordAlignment(["c"], ["y", "z"], [0, 0], [0.1, 0.2])
    assert first + second == WordAlignment(["a", "b", "c"], ["x", "y", "z"], [1, 2, 2], [0.5, 0.1, 0.2])


def test_batch_aligns_like_single_texts(model, tokenizer):
    pairs = [tuple(TEXTS), ("A dog", "Hund"), ("", "Hund"), ("A", "")]
    together = align_words(model, tokenizer, pairs)
    for pair, found in zip(pairs, together, strict=True):
        [alone] = align_words(model, tokenizer, [pair])
        assert (found.target, found.links) == (alone.target, alone.links)
        assert found.weights == pytest.approx(alone.weights, abs=1e-5)
    assert together[0].source == ["A", "man", "'s", "dog", ",", "3", "€", "!"]
    assert together[0].target == ["Der", "Hund", "eines", "Mannes"]


def test_attentions_equal_those_of_the_forward_pass(model, tokenizer):
    found = attentions(model, tokenizer, *TEXTS)
    source, target = tokenizer(TEXTS[0], return_tensors="pt"), tokenizer(text_target=TEXTS[1], return_tensors="pt")
    model.set_attn_implementation("eager")
    outputs = model(**source, labels=target.input_ids, output_attentions=True)
    model.set_attn_implementation("sdpa")
    for weights, layers in (
        (found.encoder, outputs.encoder_attentions),
        (found.decoder, outputs.decoder_attentions),
        (found.cross, outputs.cross_attentions),
    ):
        torch.testing.assert_close(weights, torch.stack([layer[0] for layer in layers]))
    assert len(found.source) == source.input_ids.shape[1]
    assert found.written[-1] == "</s>"
    assert found.read == ["<s>", *found.written[:-1]]
    assert (found.decoder.triu(1) == 0).all()


def test_target_defaults_to_the_models_own_translation(model, tokenizer):
    batch = tokenizer([TEXTS[0]], return_tensors="pt")
    written = tokenizer.decode(model.generate(**batch)[0], skip_special_tokens=True)
    found, expected = attentions(model, tokenizer, TEXTS[0]), attentions(model, tokenizer, TEXTS[0], written)
    assert found.written == expected.written
    torch.testing.assert_close(found.cross, expected.cross)
    assert model.config._attn_implementation == "sdpa"
    assert not model.training
    dropping = copy.deepcopy(model).train()
    for module in dropping.modules():
        if hasattr(module, "dropout"):
            module.dropout = 0.9
    assert attentions(dropping, tokenizer, TEXTS[0]).written == expected.written
    assert dropping.training


def test_source_ids_replace_the_source_text(model, tokenizer):
    ids = tokenizer("A cat is here.").input_ids
    expected = attentions(model, tokenizer, "A cat is here.")
    found = attentions(model, tokenizer, TEXTS[0], source_ids=ids)
    assert (found.source, found.written) == (expected.source, expected.written)
    torch.testing.assert_close(found.cross, expected.cross)
    with pytest.raises(ValueError, match="by_words and source_ids"):
        attentions(model, tokenizer, TEXTS[0], source_ids=ids, by_words=True)


def test_attention_by_words_merges_the_pieces(model, tokenizer):
    pieces, found = attentions(model, tokenizer, *TEXTS), attentions(model, tokenizer, *TEXTS, by_words=True)
    assert found.source == ["A", "man", "'s", "dog", ",", "3", "€", "!", "</s>"]
    assert found.written == ["Der", "Hund", "eines", "Mannes", "</s>"]
    assert found.read == ["<s>", "Der", "Hund", "eines", "Mannes"]
    for attention in ("encoder", "decoder", "cross"):
        weights, queries, keys = found.of(attention)
        assert weights.shape[2:] == (len(queries), len(keys))
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
    assert (found.decoder.triu(1) == 0).all()
    end = len(pieces.source) - 1
    torch.testing.assert_close(found.cross[..., -1, -1], pieces.cross[..., -1, end])
    first = len(tokenizer("Der", add_special_tokens=False).input_ids)
    torch.testing.assert_close(found.cross[..., 0, -1], pieces.cross[..., :first, end].mean(dim=-1))
    torch.testing.assert_close(found.decoder[..., 1, 0], pieces.decoder[..., 1 : 1 + first, 0].mean(dim=-1))


def test_empty_texts_work_and_unknown_attention_raises(model, tokenizer):
    found = attentions(model, tokenizer, "", "", by_words=True)
    assert (found.source, found.read, found.written) == (["</s>"], ["<s>"], ["</s>"])
    assert (found.cross == 1).all()
    with pytest.raises(ValueError, match="no attention 'self': choose encoder, decoder, cross"):
        found.of("self")


@pytest.mark.slow  # needs a package that nothing else here uses
def test_bertviz_accepts_the_attentions(model, tokenizer):
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed (pip install bertviz)")
    seen = attentions(model, tokenizer, *TEXTS)
    for view in (bertviz.model_view, bertviz.head_view):
        page = view(
            encoder_attention=[layer[None] for layer in seen.encoder],
            decoder_attention=[layer[None] for layer in seen.decoder],
            cross_attention=[layer[None] for layer in seen.cross],
            encoder_tokens=seen.source,
            decoder_tokens=seen.read,
            html_action="return",
        )
        assert json.dumps(seen.source)[1:-1] in page.data
