"""Head measures match values computed by hand, and neither padding nor batching changes them."""

import json
import math

import attention_heads
import head_measures
import pytest
import torch
from head_measures import (
    MEASURES,
    AlignmentError,
    GoldAlignment,
    Head,
    measure_heads,
    read_alignments,
    sums_of_measures,
    words_between_blanks,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from vanilla_transformer.attention.pieces import merged
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer

from ..model.conftest import build_model


TEXTS = ["A man's old dog , 3 € !", "Der alte Hund eines Mannes ."]
PAIRS = [tuple(TEXTS), ("A dog", "Hund ."), ("old", "alte"), ("", "Hund"), ("A dog !", ""), ("dog . dog", "Hund Hund")]


def means(weights, *, ends=(), punctuation=(), causal=False):
    """The measures of one head on one sentence, by name, without those that count no position."""
    queries, keys = weights.shape
    there = [torch.tensor([[place in places for place in range(keys)]]) for places in (ends, punctuation)]
    real = [torch.ones(1, length, dtype=torch.bool) for length in (queries, keys)]
    sums, counts = sums_of_measures(weights[None, None], *real, *there, causal=causal)
    values = zip(MEASURES, sums[0].tolist(), counts.tolist(), strict=True)
    return {name: total / count for name, total, count in values if count}


def test_diagonal_and_uniform_heads_match_hand_computed_values():
    itself = {"previous": 0, "same": 1, "next": 0, "end": 1 / 4, "punctuation": 1 / 2}
    evenly = {"previous": 0.2, "same": 0.2, "next": 0.2, "end": 0.2, "punctuation": 0.4}
    for weights, places, expected, entropy, relative in (
        (torch.eye(4), {"ends": [3], "punctuation": [1, 2]}, itself, 0, 0),
        (torch.full((3, 5), 0.2), {"ends": [4], "punctuation": [0, 4]}, evenly, math.log(5), 1),
    ):
        expected |= {"entropy": entropy, "relative_entropy": relative}
        assert means(weights, **places) == pytest.approx(expected)
    assert means(torch.ones(1, 1), ends=[0]) == {"same": 1, "end": 1, "punctuation": 0, "entropy": 0}


def test_neighbour_heads_match_hand_computed_values():
    """A position without a neighbour on that side attends to itself and does not count."""
    for offset, name, edge in ((-1, "previous", 0), (1, "next", 3)):
        weights = torch.eye(4).roll(offset, dims=1)
        weights[edge] = torch.eye(4)[edge]
        found = means(weights)
        assert found[name] == 1
        assert found["same"] == pytest.approx(1 / 4)
        assert found["entropy"] == 0


def test_uniform_causal_head_matches_hand_computed_values():
    weights = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    found = means(weights, ends=[0], causal=True)
    assert "next" not in found
    assert found["previous"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["same"] == found["end"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found["entropy"] == pytest.approx((math.log(2) + math.log(3)) / 3)
    assert found["relative_entropy"] == pytest.approx(1)  # the first position has no choice


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
                weight.mul_(6)  # so that the heads focus
    return model


def by_name(found):
    return {(head.attention, head.layer, head.head): head.measures for head in found}


def test_every_head_of_a_model_is_measured(model, tokenizer):
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


def test_batch_size_does_not_change_measures(model, tokenizer, monkeypatch):
    pairs = PAIRS * 3
    gold = [GoldAlignment(frozenset(), frozenset({(0, 0)} if source and target else {})) for source, target in pairs]
    expected = by_name(measure_heads(model, tokenizer, pairs, gold))
    sizes = []
    for limit, value in (("_MOST_PAIRS", 1), ("_MOST_CELLS", 900), ("_MOST_TOKENS", 60)):
        monkeypatch.setattr(head_measures, limit, value)
        sizes.append([len(batch) for batch in head_measures._batches(tokenizer, pairs, None)])
        found = by_name(measure_heads(model, tokenizer, pairs, gold))
        for name, measures in expected.items():
            assert found[name] == pytest.approx(measures, abs=1e-5)
        monkeypatch.undo()
    assert sizes[0] == [1] * len(pairs)
    assert all(1 < max(size) < len(pairs) for size in sizes[1:])


def test_alignment_error_uses_most_attended_words(model, tokenizer):
    """With gold links made from one head's own attention, that head makes no errors."""
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


def test_invalid_pairs_and_alignments_raise(model, tokenizer):
    for pairs, gold, message in (
        ([], None, "no sentence pair"),
        ([("a", "b")] * 2, [frozenset()], "only 1 alignments, but more sentence pairs"),
        ([("a", "b")], [frozenset()] * 2, "only 1 sentence pairs, but more alignments"),
        ([("a c", "b")], [frozenset({(0, 1)})], "pair 1 has 2 and 1 words, .* links word 0 with word 1"),
    ):
        alignments = None if gold is None else [GoldAlignment(links, links) for links in gold]
        with pytest.raises(ValueError, match=message):
            measure_heads(model, tokenizer, pairs, alignments)


def test_script_reports_measures_and_rejects_unequal_files(model, tokenizer, tmp_path, monkeypatch, printed_by):
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "a.en").write_text("A dog\nold dog .\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("Hund\nalte Hund .\n", encoding="utf-8")
    (tmp_path / "gold").write_text("1-0\n0-0 1-1 2?2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["model", "--sources", "a.en", "--targets", "a.de", "--alignments", "gold"]
    rows = json.loads(printed_by(attention_heads, *words, "--json", "--plot", "heads.svg"))
    assert {row["attention"] for row in rows} == {"encoder", "decoder", "cross"}
    assert 0 <= rows[-1]["measures"]["aer"] <= 1
    assert (tmp_path / "heads.svg").read_text(encoding="utf-8").startswith("<?xml")
    table = printed_by(attention_heads, *words).splitlines()
    last = rows[-1]
    number_of_rows = sum(row["attention"] == "cross" for row in rows)
    last_head = table[table.index("Attention on the source") + 1 + number_of_rows].split()
    assert last_head == [f"{last['layer']}.{last['head']}", *(f"{value:.3f}" for value in last["measures"].values())]
    (tmp_path / "a.de").write_text("Hund\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.de ends after line 1, but a\.en does not"):
        printed_by(attention_heads, *words)


def test_plot_shows_every_measure_except_entropy_in_nats(tmp_path, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.extend(figure.axes), save(figure, *a, **k)))
    heads = [
        Head("cross", None, None, {"previous": 0.25, "next": None, "entropy": 1.5}),
        Head("cross", 1, 1, {"previous": 0.5, "next": 0.125, "entropy": 0.7, "aer": 0.75}),
    ]
    attention_heads.plot_heads({"Cross": heads}, tmp_path / "a.png", title="What the heads do")
    axes = drawn[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["previous", "next", "aer"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["even", "1.1"]
    assert [text.get_text() for text in axes.texts] == ["0.25", "–", "–", "0.50", "0.12", "0.75"]
    for groups in ({}, {"Cross": []}):
        with pytest.raises(ValueError, match="nothing to draw"):
            attention_heads.plot_heads(groups, tmp_path / "b.png")


@pytest.mark.parametrize("kind", [("bpe", 290), ("wordpiece", 540)])
def test_words_are_split_at_blanks(kind):
    texts = ["The old dogs of the old town", "Die alten Hunde der alten Stadt"] * 3
    tokenizer = learn_tokenizer(texts, TokenizerSettings(*kind))
    for text in ("The old dogs, 日本 !", "  two  blanks ", "", "x", "don't 3.5 ü"):
        ids = tokenizer(text).input_ids
        places = words_between_blanks(tokenizer, ids, text)
        assert ["".join(tokenizer.decode([ids[place] for place in each]).split()) for each in places] == text.split()
    with pytest.raises(ValueError, match="does not keep the 2 words of 'old dogs' apart"):
        words_between_blanks(tokenizer, tokenizer("old dogs bark").input_ids, "old dogs")


def test_alignments_are_read_and_bad_links_raise(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1?2 2p1  3P3\n\n10-11\n", encoding="utf-8")
    assert list(read_alignments(path)) == [
        GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2), (2, 1), (3, 3)})),
        GoldAlignment(frozenset(), frozenset()),
        GoldAlignment(frozenset({(10, 11)}), frozenset({(10, 11)})),
    ]
    for link in ("1", "1-", "1-2-3", "a-b", "-1-2", "1:2", "1-٣"):
        path.write_text(f"0-0\n0-0 {link}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"gold\.txt, line 2: .* is not a link"):
            list(read_alignments(path))


def test_alignment_error_rate_by_hand():
    """Of A = {00, 11, 21, 32}, S = {00, 12} and P = S + {11, 32}: 1 - (1 + 3) / (4 + 2)."""
    error = AlignmentError()
    assert error.rate is None
    gold = GoldAlignment(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (1, 1), (3, 2)}))
    error.add({(0, 0), (1, 1), (2, 1), (3, 2)}, gold)
    assert error.rate == pytest.approx(1 - 4 / 6)
    error.add({(0, 0)}, GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0)})))
    assert error.rate == pytest.approx(1 - 6 / 8)  # over all sentences, not the mean of their rates
    sure = frozenset({(0, 0), (1, 1)})
    for links, rate in ((set(sure), 0), ({(0, 1)}, 1), (set(), 1)):
        error = AlignmentError()
        error.add(links, GoldAlignment(sure, sure))
        assert error.rate == rate
