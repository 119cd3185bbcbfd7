"""Measures of heads: by hand for attention made by hand, and of a real model whatever the padding."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation import heads as heads_module
from vanilla_transformer.evaluation.heads import MEASURES, measure_heads, sums_of_measures
from vanilla_transformer.evaluation.pieces import merged, words_between_blanks
from vanilla_transformer.evaluation.word_alignments import GoldAlignment

from ..model.conftest import build_model


TEXTS = ["A man's old dog , 3 € !", "Der alte Hund eines Mannes ."]
PAIRS = [tuple(TEXTS), ("A dog", "Hund ."), ("old", "alte"), ("", "Hund"), ("A dog !", ""), ("dog . dog", "Hund Hund")]


def means(weights, *, ends=(), punctuation=(), causal=False):
    """The measures of one head on one sentence, by name; those of no position are left out."""
    queries, keys = weights.shape
    there = [torch.tensor([[place in places for place in range(keys)]]) for places in (ends, punctuation)]
    real = [torch.ones(1, length, dtype=torch.bool) for length in (queries, keys)]
    sums, counts = sums_of_measures(weights[None, None], *real, *there, causal=causal)
    values = zip(MEASURES, sums[0].tolist(), counts.tolist(), strict=True)
    return {name: total / count for name, total, count in values if count}


def test_a_head_that_looks_at_itself():
    found = means(torch.eye(4), ends=[3], punctuation=[1, 2])
    expected = {"previous": 0, "same": 1, "next": 0, "end": 1 / 4, "punctuation": 1 / 2}
    assert found == pytest.approx(expected | {"entropy": 0, "relative_entropy": 0})


@pytest.mark.parametrize(("offset", "name"), [(-1, "previous"), (1, "next")])
def test_a_head_that_looks_beside_itself(offset, name):
    """What has no neighbour on that side looks at itself, and does not count."""
    weights = torch.eye(4).roll(offset, dims=1)
    edge = 0 if offset < 0 else 3
    weights[edge] = torch.eye(4)[edge]
    found = means(weights)
    assert found[name] == 1
    assert found["same"] == pytest.approx(1 / 4)
    assert found["entropy"] == 0


def test_a_head_that_looks_evenly():
    found = means(torch.full((3, 5), 0.2), ends=[4], punctuation=[0, 4])
    expected = {"previous": 0.2, "same": 0.2, "next": 0.2, "end": 0.2, "punctuation": 0.4}
    assert found == pytest.approx(expected | {"entropy": math.log(5), "relative_entropy": 1})


def test_a_head_of_the_decoder_that_looks_evenly():
    weights = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    found = means(weights, ends=[0], causal=True)
    assert "next" not in found
    assert found["previous"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["same"] == found["end"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found["entropy"] == pytest.approx((math.log(2) + math.log(3)) / 3)
    assert found["relative_entropy"] == pytest.approx(1)  # the first position has no choice


def test_one_token_alone():
    found = means(torch.ones(1, 1), ends=[0])
    assert found == {"same": 1, "end": 1, "punctuation": 0, "entropy": 0}


@settings(max_examples=50, deadline=None)
@given(data=st.data(), queries=st.integers(1, 6), keys=st.integers(1, 6), causal=st.booleans())
def test_padding_has_no_influence(data, queries, keys, causal):
    keys = queries if causal else keys
    seed = data.draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(1, 2, queries, keys, generator=generator)
    more_queries, more_keys = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    padded = torch.rand(1, 2, queries + more_queries, keys + more_keys, generator=generator)
    padded[..., :queries, :keys] = weights

    def real(length, total):
        return (torch.arange(total) < length)[None]

    signs = torch.rand(2, 1, keys + more_keys, generator=generator) < 0.5
    alone = sums_of_measures(weights, real(queries, queries), real(keys, keys), *signs[..., :keys], causal=causal)
    among = real(queries, queries + more_queries), real(keys, keys + more_keys)
    together = sums_of_measures(padded, *among, *signs, causal=causal)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other)


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(TEXTS, TokenizerSettings(vocab_size=265))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = build_model(vocab_size=265)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                weight.mul_(6)  # heads that look somewhere
    return model


def by_name(found):
    return {(head.attention, head.layer, head.head): head.measures for head in found}


def test_heads_of_a_model(model, tokenizer):
    config = model.config
    found = measure_heads(model, tokenizer, iter(PAIRS))
    names = [(head.attention, head.layer, head.head) for head in found]
    for attention, layers, heads in (
        ("encoder", config.encoder_layers, config.encoder_attention_heads),
        ("decoder", config.decoder_layers, config.decoder_attention_heads),
        ("cross", config.decoder_layers, config.decoder_attention_heads),
    ):
        expected = [(i + 1, j + 1) for i in range(layers) for j in range(heads)]
        assert [name[1:] for name in names if name[0] == attention] == [(None, None), *expected]
    evenly = by_name(found)["encoder", None, None]
    assert evenly["relative_entropy"] == pytest.approx(1)
    assert all(head.measures["next"] is None for head in found if head.attention == "decoder")
    assert all(head.measures["relative_entropy"] < 0.999 for head in found if head.layer)
    assert model.config._attn_implementation == "sdpa"


def test_batches_do_not_matter(model, tokenizer, monkeypatch):
    pairs = PAIRS * 3
    gold = [GoldAlignment(frozenset(), frozenset({(0, 0)} if source and target else {})) for source, target in pairs]
    expected = by_name(measure_heads(model, tokenizer, pairs, gold))
    sizes = []
    for limit, value in (("_MOST_PAIRS", 1), ("_MOST_CELLS", 900), ("_MOST_TOKENS", 60)):
        monkeypatch.setattr(heads_module, limit, value)
        sizes.append([len(batch) for batch in heads_module._batches(tokenizer, pairs, None)])
        found = by_name(measure_heads(model, tokenizer, pairs, gold))
        for name, measures in expected.items():
            assert found[name] == pytest.approx(measures, abs=1e-5)
        monkeypatch.undo()
    assert sizes[0] == [1] * len(pairs)
    assert all(1 < max(size) < len(pairs) for size in sizes[1:])


def test_alignment_errors_are_those_of_the_words_most_looked_at(model, tokenizer):
    """Gold made from one head's own attention: that head makes no error."""
    source, target = TEXTS
    texts = tokenizer(source).input_ids, tokenizer(text_target=target).input_ids
    read = torch.tensor([[model.config.decoder_start_token_id, *texts[1][:-1]]])
    model.set_attn_implementation("eager")
    outputs = model(input_ids=torch.tensor([texts[0]]), decoder_input_ids=read, output_attentions=True)
    model.set_attn_implementation("sdpa")
    columns, rows = (words_between_blanks(tokenizer, *each) for each in zip(texts, TEXTS, strict=True))
    looked_at = merged(outputs.cross_attentions[1][0, 2], rows, columns).argmax(dim=-1).tolist()
    links = frozenset((there, here) for here, there in enumerate(looked_at))
    found = by_name(measure_heads(model, tokenizer, [tuple(TEXTS)], [GoldAlignment(links, links)]))
    assert found["cross", 2, 3]["aer"] == 0
    assert max(measures["aer"] for name, measures in found.items() if name[0] == "cross" and name[1]) > 0
    assert "aer" not in found["encoder", 1, 1]


@pytest.mark.parametrize(
    ("pairs", "gold", "message"),
    [
        ([], None, "no sentence pair"),
        ([("a", "b")] * 2, [frozenset()], "only 1 alignments, but more sentence pairs"),
        ([("a", "b")], [frozenset()] * 2, "only 1 sentence pairs, but more alignments"),
        ([("a c", "b")], [frozenset({(0, 1)})], "pair 1 has 2 and 1 words, .* links word 0 with word 1"),
    ],
)
def test_what_cannot_be_measured(model, tokenizer, pairs, gold, message):
    alignments = None if gold is None else [GoldAlignment(links, links) for links in gold]
    with pytest.raises(ValueError, match=message):
        measure_heads(model, tokenizer, pairs, alignments)


def test_the_script(model, tokenizer, tmp_path, monkeypatch, capsys):
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "a.en").write_text("A dog\nold dog .\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("Hund\nalte Hund .\n", encoding="utf-8")
    (tmp_path / "gold").write_text("1-0\n0-0 1-1 2?2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["model", "--sources", "a.en", "--targets", "a.de", "--alignments", "gold"]
    run_script(monkeypatch, *words, "--json", "--plot", "heads.svg")
    rows = json.loads(capsys.readouterr().out)
    assert {row["attention"] for row in rows} == {"encoder", "decoder", "cross"}
    assert 0 <= rows[-1]["measures"]["aer"] <= 1
    assert (tmp_path / "heads.svg").read_text(encoding="utf-8").startswith("<?xml")
    run_script(monkeypatch, *words)
    table = capsys.readouterr().out.splitlines()
    last = rows[-1]
    number_of_rows = sum(row["attention"] == "cross" for row in rows)
    last_head = table[table.index("Attention on the source") + 1 + number_of_rows].split()
    assert last_head == [f"{last['layer']}.{last['head']}", *(f"{value:.3f}" for value in last["measures"].values())]
    (tmp_path / "a.de").write_text("Hund\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"a\.de ends after line 1, but a\.en does not"):
        run_script(monkeypatch, *words)


def run_script(monkeypatch, *words):
    script = str(Path(__file__).parents[2] / "scripts" / "attention_heads.py")
    monkeypatch.setattr(sys, "argv", [script, *words])
    runpy.run_path(script, run_name="__main__")
