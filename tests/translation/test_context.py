"""Lines are translated, scored and aligned with the sentences before them as context."""

import numpy as np
import pytest

from vanilla_transformer.attention.weights import align_words
from vanilla_transformer.data.context import SEPARATOR, ContextSettings, set_context
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.translation import score_pairs, translate, translate_lines
from vanilla_transformer.translation import sentences as module
from vanilla_transformer.translation.by_torch import TorchEngine
from vanilla_transformer.translation.likelihood import likelihoods

from ..model.conftest import build_model
from ..reference_transformer import NumpyTransformer
from .conftest import SENTENCES


LINES = ["A man sees.", "The dog runs.", "Two men play.", "", "A girl sees the dog.", " No. "]
CONTEXTS = [(), ("A man sees.",), ("A man sees.", "The dog runs."), (), (), ("A girl sees the dog.",)]


@pytest.fixture(scope="module")
def tokenizer():
    learned = learn_tokenizer(SENTENCES * 2, TokenizerSettings(vocab_size=280), tags=[SEPARATOR])
    set_context(learned, ContextSettings(2, 60))
    return learned


@pytest.fixture(scope="module")
def model():
    return build_model(vocab_size=281)


@pytest.fixture
def read(monkeypatch):
    """The ids of the sources that the engine was given, by their texts."""
    found = {}

    class Noting(TorchEngine):
        def translate(self, batches):
            for batch in batches:
                found.update(zip(batch.texts, batch.sources, strict=True))
            return super().translate(batches)

    monkeypatch.setattr(module, "TorchEngine", Noting)
    return found


def ids_of(tokenizer, context, text):
    """The definition, sentence by sentence."""
    front = [[*tokenizer(each, add_special_tokens=False).input_ids, 280] for each in context]
    return [*(number for each in front for number in each), *tokenizer(text.strip()).input_ids]


def test_lines_are_read_after_their_context(model, tokenizer, read):
    texts = translate(model, tokenizer, LINES, num_beams=1, max_new_tokens=5)
    assert texts[3] == ""
    lines = [line.strip() for line in LINES]
    wanted = {text: ids_of(tokenizer, context, text) for text, context in zip(lines, CONTEXTS, strict=True) if text}
    assert read == wanted
    options = {"num_beams": 1, "max_new_tokens": 5}
    assert translate(model, tokenizer, LINES[::-1], contexts=CONTEXTS[::-1], **options) == texts[::-1]
    assert read == wanted
    blocks = [LINES[:2], LINES[2:5], LINES[5:]]  # documents continue across blocks
    assert [best.text for best, *_ in translate_lines(model, tokenizer, blocks, **options)] == texts
    assert read == wanted
    with pytest.raises(ValueError, match="fewer contexts than lines"):
        translate(model, tokenizer, LINES, contexts=CONTEXTS[:2], **options)
    read.clear()
    translate(model, tokenizer, LINES, contexts=[()] * len(LINES), **options)
    assert read == {text: tokenizer(text).input_ids for text in lines if text}
    plain = learn_tokenizer(SENTENCES * 2, TokenizerSettings(vocab_size=280))
    read.clear()
    translate(model, plain, LINES, contexts=CONTEXTS, **options)
    assert read == {text: plain(text).input_ids for text in lines if text}


def test_scores_in_context_match_float64_reference(model, tokenizer):
    reference = NumpyTransformer(model)
    targets = ["Ein Mann.", "Der Hund", "Zwei", "", "Das", "Nein."]
    pairs = list(zip(LINES, targets, strict=True))
    found = score_pairs(model, tokenizer, pairs)
    for (source, target), context, each in zip(pairs, CONTEXTS, found, strict=True):
        ids = tokenizer(text_target=target).input_ids
        decoder = np.array([model.config.decoder_start_token_id, *ids[:-1]])
        logits = np.asarray(reference.logits(np.array(ids_of(tokenizer, context, source)), decoder), np.float64)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        assert each.log_probability == pytest.approx(sum(row[i] for row, i in zip(log_p, ids, strict=True)), abs=1e-3)
    given = score_pairs(model, tokenizer, pairs[::-1], contexts=CONTEXTS[::-1])[::-1]
    sums = [sum(each.tokens) for each in likelihoods(model, tokenizer, pairs)]
    for each, other, total in zip(found, given, sums, strict=True):
        assert each.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert each.log_probability == pytest.approx(total, abs=1e-4)
    alone = score_pairs(model, tokenizer, pairs, contexts=[()] * len(pairs))
    differ = [abs(a.log_probability - b.log_probability) > 1e-3 for a, b in zip(found, alone, strict=True)]
    assert differ == [bool(context) for context in CONTEXTS]


def test_words_are_aligned_with_their_own_sentence(model, tokenizer):
    pair, context = ("The dog runs.", "Der Hund rennt."), ("A man sees.",)
    [found] = align_words(model, tokenizer, [pair], contexts=[context])
    assert found.source == ["The", "dog", "runs", "."]
    [alone] = align_words(model, tokenizer, [pair])
    assert alone.source == found.source
    assert alone.weights != found.weights
    [hypotheses] = translate_lines(
        model, tokenizer, [[pair[0]]], contexts=[context], align=True, num_beams=1, max_new_tokens=5
    )
    assert (
        hypotheses[0].alignment == align_words(model, tokenizer, [(pair[0], hypotheses[0].text)], contexts=[context])[0]
    )
