"""Context: each source gets the preceding sentences of its own document, in every file format, as ids and text."""

import gzip
import json
from dataclasses import replace
from itertools import islice

import pytest
import torch
from datasets import Dataset

from vanilla_transformer.data import corpora, mixture
from vanilla_transformer.data.augmentation import Augmentation
from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.context import (
    SEPARATOR,
    ContextSettings,
    context_settings,
    contexts_of,
    set_context,
    texts_in_context,
)
from vanilla_transformer.data.corpora import open_stream, read_corpus
from vanilla_transformer.data.encoding import PairLimits, encode_pairs
from vanilla_transformer.data.mixture import CorpusSettings, open_mixture
from vanilla_transformer.data.prepared import load_prepared
from vanilla_transformer.data.preparing import prepare
from vanilla_transformer.data.terms import TERM_MARKERS, TermAnnotation, learn_lexicon
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer, load_tokenizer


DOCUMENTS = [[f"{'<sep> ' * (i % 3 == 0)}text {d} {i}" for i in range(length)] for d, length in enumerate((4, 1, 7, 2))]
SOURCES = [text for document in DOCUMENTS for text in document]
WITH_DOCUMENT = [{"en": t, "de": t.upper(), "document": d} for d, each in enumerate(DOCUMENTS) for t in each]
LIMITS = PairLimits(40, 40)


def expected(sentences: int) -> list[tuple[str, str, tuple[str, ...]]]:
    """Each pair with its context, straight from the definition."""
    return [
        (text, text.upper(), tuple(document[max(0, i - sentences) : i]))
        for document in DOCUMENTS
        for i, text in enumerate(document)
    ]


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """The same documents in every file format."""
    folder = tmp_path_factory.mktemp("documents")
    lines = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"
    with gzip.open(folder / "text.en.gz", "wt") as file:
        file.write(lines)
    (folder / "text.de").write_text(lines.upper())
    (folder / "blank.tsv").write_text("".join(f"{t}\t{t.upper()}\n" if t else "\n" for t in lines.splitlines()))
    rows = "".join(f"{row['document']}\t{row['de']}\t{row['en']}\n" for row in WITH_DOCUMENT)
    (folder / "column.tsv").write_text(f"document\tde\ten\n{rows}")
    (folder / "text.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in WITH_DOCUMENT))
    Dataset.from_list(WITH_DOCUMENT).to_parquet(folder / "text.parquet")
    translations = [
        {"translation": {k: row[k] for k in ("en", "de")}, "document": row["document"]} for row in WITH_DOCUMENT
    ]
    Dataset.from_list(translations).save_to_disk(folder / "saved")
    where = [["text.en", "text.de"], "blank.tsv", "column.tsv", "text.jsonl", "text.parquet", "saved"]
    return folder, where


@pytest.fixture(scope="module")
def tokenizer():
    learned = learn_tokenizer(
        [*SOURCES, *map(str.upper, SOURCES)], TokenizerSettings(vocab_size=280), tags=["<bt>", SEPARATOR]
    )
    set_context(learned, ContextSettings(2, 40))
    return learned


def test_context_is_the_same_in_every_format(forms):
    folder, where = forms
    for each in where:
        for sentences in (1, 3, 100):
            options = {"folder": folder, "context_sentences": sentences}
            corpus = read_corpus(each, "en", "de", **options)
            assert corpus.rows() == expected(sentences), each
            assert corpus.pairs == [row[:2] for row in expected(sentences)]
            stream = open_stream(each, "en", "de", **options)
            assert [row for unit in range(stream.units) for row in stream.read(unit)] == expected(sentences), each
            assert list(stream.read(0, 5)) == expected(sentences)[5:], each
            assert list(stream.texts()) == corpus.pairs
        without = read_corpus(each, "en", "de", folder=folder) if each != "blank.tsv" else None
        assert without is None or without.fingerprint != corpus.fingerprint
        assert without is None or without.contexts is None


def test_blank_sources_add_no_context_and_blank_pairs_end_it():
    rows = [("a", "A"), (" ", "B"), ("c", " "), ("d", "D"), ("", " "), ("e", "E")]
    found = list(corpora.pairs_in_context(rows, 2))
    assert found == [("a", "A", ()), (" ", "B", ()), ("c", " ", ("a",)), ("d", "D", ("a", "c")), ("e", "E", ())]
    assert contexts_of([" a", "b ", "\t", "c", "d"], 1, ["x", "y"]) == [("y",), ("a",), (), (), ("c",)]


def test_ids_join_the_sentences_with_separators(tokenizer):
    separator = tokenizer.get_added_vocab()[SEPARATOR]
    ids = {text: tokenizer(text, add_special_tokens=False).input_ids for text in SOURCES}
    rows = [(*row, "<bt>") for row in expected(3)]
    longest = max(map(len, ids.values())) + 1
    limits = replace(LIMITS, max_source_length=longest + 8)
    sources, targets, report = encode_pairs(tokenizer, rows, limits)
    assert report.kept == len(rows)
    assert 0 < sum(map(len, sources)) == report.source_tokens
    left_out = 0
    for (source, target, context, _), found, other in zip(rows, sources, targets, strict=True):
        assert other.tolist() == tokenizer(target).input_ids
        whole, room = [*ids[source], tokenizer.eos_token_id], limits.max_source_length - 1
        for text in context[::-1]:
            if len(whole) + len(ids[text]) + 1 > room:
                left_out += 1
                break
            whole = [*ids[text], separator, *whole]
        assert found.tolist() == [tokenizer.get_added_vocab()["<bt>"], *whole]
        assert whole.count(separator) <= len(context)  # "<sep>" in the text never becomes a separator
    assert 0 < left_out < len(rows)
    texts, contexts = texts_in_context(tokenizer, sources)
    assert texts == [row[0] for row in rows]
    assert all(context == row[2][len(row[2]) - len(context) :] for row, context in zip(rows, contexts, strict=True))
    _, _, report = encode_pairs(tokenizer, expected(3), replace(LIMITS, max_source_length=longest))
    assert report.kept == len(SOURCES)  # context takes only the room that is left


def test_prepared_and_resumed_streams_keep_their_contexts(forms, tokenizer, tmp_path):
    folder, where = forms
    options = {"folder": folder, "context_sentences": 2}
    rows, _ = read_corpus(where[0], "en", "de", **options).encoded(tokenizer, LIMITS)
    stream = open_stream(where[0], "en", "de", **options)
    prepare(stream, tokenizer, tmp_path / "prepared", limits=LIMITS, workers=1, shard_pairs=3)
    prepared = load_prepared(tmp_path / "prepared")
    assert prepared.rows["input_ids"] == rows["input_ids"]
    assert list(prepared.texts()) == [row[:2] for row in expected(2)]
    assert prepared.context_sentences == 2
    with pytest.raises(ValueError, match="with the context_sentences 2, and the recipe has 1: prepare it again"):
        prepared.check("prepared", ["en", "de"], LIMITS, TokenizerSettings(), 1)
    every = sorted(rows["input_ids"])
    for world in (1, 2):
        found = []
        for rank in range(world):
            choices = {"limits": LIMITS, "buffer_pairs": 5, "seed": 3, "rank": rank, "world_size": world, "passes": 1}
            whole = list(TokenBatchStream(stream, tokenizer, 60, **choices))
            begun = TokenBatchStream(stream, tokenizer, 60, **choices)
            first = list(islice(begun, 2))
            again = TokenBatchStream(stream, tokenizer, 60, **choices)
            again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
            for one, other in zip(whole, [*first, *again], strict=True):
                assert [row["input_ids"].tolist() for row in one] == [row["input_ids"].tolist() for row in other]
            found += [row["input_ids"].tolist() for batch in whole for row in batch]
        assert sorted(found) == every
    alone = TokenBatchStream(open_stream(where[0], "en", "de", folder=folder), tokenizer, 60, limits=LIMITS, passes=1)
    with pytest.raises(ValueError, match="corpus was"):
        alone.load_state_dict(begun.state_dict())


def test_mixture_adds_context_only_to_documents(forms, monkeypatch):
    monkeypatch.setattr(mixture, "UNIT_PAIRS", 4)
    folder, where = forms
    settings = [CorpusSettings(where[0], tag="<bt>"), CorpusSettings("text.jsonl", documents=False)]
    mixed = open_mixture(settings, "en", "de", folder=folder, context_sentences=2)
    assert mixed.context_sentences == 2
    found = sorted(row for unit in range(mixed.units) for row in mixed.read(unit))
    assert found == sorted([*[(*row, "<bt>") for row in expected(2)], *[row[:2] for row in expected(2)]])
    assert mixed.fingerprint != open_mixture(settings, "en", "de", folder=folder).fingerprint


def test_context_sentences_get_the_same_form(tokenizer):
    rows = [(source, target, context, "<bt>") for source, target, context in expected(1)]
    sources, targets, _ = encode_pairs(tokenizer, rows)
    pairs = [{"input_ids": source, "labels": target} for source, target in zip(sources, targets, strict=True)]
    found = Augmentation(tokenizer, {"upper": 1.0})(pairs, (1,))
    texts, contexts = texts_in_context(tokenizer, [pair["input_ids"] for pair in found])
    assert texts == [row[0].upper() for row in rows]
    assert contexts == [tuple(map(str.upper, row[2])) for row in rows]
    assert {pair["input_ids"][0] for pair in found} == {tokenizer.get_added_vocab()["<bt>"]}


def test_soft_terms_leave_the_context_unchanged():
    rows = [
        ("a dog", "ein Hund", ()),
        ("the cat", "die Katze", ("a dog",)),
        ("a dog", "ein Hund", ("the cat", "a dog")),
    ]
    lexicon = learn_lexicon([row[:2] for row in rows] * 9)
    texts = [text for row in rows for text in row[:2]]
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=270), tags=["<bt>", *TERM_MARKERS, SEPARATOR])
    set_context(tokenizer, ContextSettings(2, 90))
    sources, targets, _ = encode_pairs(tokenizer, [(*row, "<bt>") for row in rows])
    pairs = [{"input_ids": source, "labels": target} for source, target in zip(sources, targets, strict=True)]
    for (source, _, context), old, new in zip(
        rows, sources, TermAnnotation(tokenizer, lexicon, 1.0)(pairs, (1,)), strict=True
    ):
        front = len(old) - len(tokenizer(source).input_ids)
        assert list(new["input_ids"][:front]) == old[:front].tolist()
        src, _, done, separator = (tokenizer.get_added_vocab()[each] for each in (*TERM_MARKERS, SEPARATOR))
        assert {src, done} <= set(new["input_ids"][front:])
        assert list(new["input_ids"]).count(separator) == len(context)


def test_context_settings_round_trip_through_the_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    assert context_settings(load_tokenizer(tmp_path)) == ContextSettings(2, 40)
    plain = learn_tokenizer(SOURCES, TokenizerSettings(vocab_size=270))
    assert context_settings(plain) == ContextSettings()
    with pytest.raises(ValueError, match=r"data.context_sentences = 1 needs the token <sep>, which this vocabulary"):
        set_context(plain, ContextSettings(1, 40))
    config = tmp_path / "tokenizer_config.json"
    for wrong in (
        3,
        {"sentences": -1, "max_source_length": 9},
        {"sentences": True, "max_source_length": 9},
        {"more": 1},
    ):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"context": wrong}))
        with pytest.raises(ValueError, match=r"tokenizer_config.json has context = "):
            context_settings(load_tokenizer(tmp_path))
    set_context(tokenizer, ContextSettings())
    assert context_settings(tokenizer) == ContextSettings()
    set_context(tokenizer, ContextSettings(2, 40))
    assert torch.is_tensor(tokenizer("a", return_tensors="pt").input_ids)  # the setting is not passed on to calls
