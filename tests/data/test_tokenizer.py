"""The tokenizer: no text is lost, sizes are exact, learning is repeatable and agrees with BPE written out in Python."""

import copy
import json
import os
import pickle
import random
import re
import subprocess
import sys
import unicodedata
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.warm_python import LIBRARIES
from vanilla_transformer.data.tokenizer import (
    BOS_ID,
    CONTINUATION,
    EOS_ID,
    KINDS,
    MAX_WORD_LENGTH,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    TokenizerSettings,
    learn_tokenizer,
    load_tokenizer,
)
from vanilla_transformer.files import text_lines


REPOSITORY = Path(__file__).parents[2]
CORPUS = [
    "Two young men are playing football in the park.",
    "Zwei junge Männer spielen Fußball im Park.",
    "A man doesn't see the dog's ball.",
    "Ein Mann sieht den Ball des Hundes nicht.",
    "Ein kleines Mädchen läuft über die Straße; ein Hund läuft ihm nach.",
    "A little girl runs across the street; a dog runs after her.",
] * 3
SIZES = {"bpe": 400, "wordpiece": 656}

SNIPPETS = [
    *SPECIAL_TOKENS, " ", "  ", "\n", "\r\n", "\t", "\0", "\x1b", "\u00a0", "\u0085", "\u2028", "\ufeff", "\ufffd",
    "\u200b", "\u200d", "Ġ", "Ċ", "ĉ", "▁", "##", "##ing", CONTINUATION, "@@", "\u0301", "e\u0301\u0323", "a\u030a",
    "ﬁ", "İ", "한", "\u1112\u1161\u11ab", "שָׁלוֹם", "مرحبا", "\u202e", "हिन्दी", "läuft", "dog's",
    "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "\U0010ffff",
]  # fmt: skip
anything = st.lists(st.one_of(st.text(), st.sampled_from(SNIPPETS), st.sampled_from(CORPUS))).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def fresh(request) -> PreTrainedTokenizerFast:
    return learn_tokenizer(CORPUS, TokenizerSettings(request.param, SIZES[request.param]))


@pytest.fixture(scope="module")
def folder(fresh, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    fresh.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def reloaded(folder) -> PreTrainedTokenizerFast:
    return load_tokenizer(folder)


def decoded(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def mark_order_is_settled(text: str) -> bool:
    """Whether no combining mark of the text is newer than the Unicode tables of the tokenizers library (Unicode 9)."""
    return all(unicodedata.combining(c) == unicodedata.ucd_3_2_0.combining(c) for c in text)


@given(text=anything)
@example("")
@example(" ")
@example("\u0301 starts with a combining mark")
@example("x" * (MAX_WORD_LENGTH * 5 + 1))
@example("👍" * (MAX_WORD_LENGTH + 1))
@example(" " * 1000 + "\n" * 1000)
@example("".join(map(chr, range(0x250))))
@settings(max_examples=250, deadline=None)
def test_any_text_round_trips(fresh, reloaded, text):
    ids = fresh(text).input_ids
    assert ids[-1] == EOS_ID
    assert not set(ids[:-1]) & {BOS_ID, PAD_ID, EOS_ID, UNK_ID}
    back = decoded(fresh, ids)
    assert unicodedata.normalize("NFC", back) == unicodedata.normalize("NFC", text)
    if mark_order_is_settled(text):
        assert back == unicodedata.normalize("NFC", text)
    assert reloaded(text).input_ids == ids
    assert decoded(reloaded, ids) == back


def test_copies_still_treat_special_tokens_as_text(fresh):
    for twin in (copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))):
        assert twin("a </s> b").input_ids == fresh("a </s> b").input_ids
        assert twin(["a </s> b"] * 2).input_ids == fresh(["a </s> b"] * 2).input_ids


@given(texts=st.lists(anything, min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_batch_equals_its_texts_one_by_one(reloaded, texts):
    alone = [reloaded(text).input_ids for text in texts]
    assert reloaded(texts).input_ids == alone
    assert [e.ids for e in reloaded.backend_tokenizer.encode_batch(texts)] == alone
    assert reloaded.batch_decode(alone, skip_special_tokens=True) == [decoded(reloaded, ids) for ids in alone]


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_ids_decode(fresh, data):
    """A model may generate anything: decoding never crashes, and removes only the one leading blank."""
    ids = data.draw(st.lists(st.integers(0, len(fresh) - 1), max_size=20))
    pieces = [piece for piece in fresh.convert_ids_to_tokens(ids) if piece not in SPECIAL_TOKENS]
    spelt = {char: byte for byte, char in byte_spelling().items()}
    text = bytes(spelt[char] for piece in pieces for char in piece.removeprefix(CONTINUATION)).decode(errors="replace")
    assert decoded(fresh, ids) == text.removeprefix(" ")


def test_every_character_of_the_basic_plane_round_trips(fresh):
    text = "".join(chr(c) for c in range(0x10000) if not 0xD800 <= c < 0xE000 and not unicodedata.combining(chr(c)))
    expected = unicodedata.normalize("NFC", text)
    assert decoded(fresh, fresh(text).input_ids) == expected


def test_first_word_uses_the_same_piece_as_later_ones(fresh):
    assert fresh.tokenize("Ein") == ["ĠEin"]
    assert fresh.tokenize("Ein Ein") == ["ĠEin", "ĠEin"]


def test_hashes_in_text_are_not_mistaken_for_continuations():
    tokenizer = learn_tokenizer(["##ing sing ##ing ing"] * 9, TokenizerSettings("wordpiece", 520))
    for text in ("##ing", "sing", "s##ing", f"s{CONTINUATION}ing"):
        assert decoded(tokenizer, tokenizer(text).input_ids) == text


def test_lowercase_applies_to_text_and_vocabulary(tmp_path):
    for kind in KINDS:
        tokenizer = learn_tokenizer(CORPUS, TokenizerSettings(kind, SIZES[kind], lowercase=True))
        tokenizer.save_pretrained(tmp_path / kind)
        for version in (tokenizer, load_tokenizer(tmp_path / kind)):
            ids = version("Zwei MÄNNER, A\u030a Σ </S>").input_ids
            assert decoded(version, ids) == "zwei männer, å σ </s>"
        learned = [piece.lstrip("Ġ" + CONTINUATION) for piece in tokenizer.get_vocab()]
        assert not any(c.isascii() and c.isupper() for piece in learned if len(piece) > 1 for c in piece)


ADDED = ["<a>", "Donaudampf", "läuft und läuft", "Ωmega"]  # a single character may be the spelling of a byte


@pytest.fixture(scope="module")
def extended(fresh, tmp_path_factory) -> PreTrainedTokenizerFast:
    tokenizer = copy.deepcopy(fresh)
    assert tokenizer.add_tokens(ADDED) == len(ADDED)
    tokenizer.save_pretrained(path := tmp_path_factory.mktemp("extended"))
    return load_tokenizer(path)


@given(parts=st.lists(st.one_of(anything, st.sampled_from([*ADDED, " <a>", "<a> ", " Donaudampf "]))))
@example(parts=["<a>", "<a>", " <a>", "\n<a>"])
@settings(max_examples=100, deadline=None)
def test_any_text_round_trips_with_added_tokens(extended, parts):
    text = "".join(parts)
    back = decoded(extended, extended(text).input_ids)
    assert unicodedata.normalize("NFC", back) == unicodedata.normalize("NFC", text)


def test_added_token_matches_only_at_word_start(fresh, extended):
    size = len(fresh)
    assert len(extended) == size + len(ADDED)
    assert extended("<a> Donaudampf.").input_ids[:2] == [size, size + 1]
    for text in ("Ein Hund", "x<a>", "<s>", "</s>"):  # within a word it is text, as before
        assert extended(text).input_ids == fresh(text).input_ids
    before, after = fresh("Ein", add_special_tokens=False).input_ids, fresh("Hund").input_ids
    assert extended("Ein <a> Hund").input_ids == [*before, size, *after]


def test_special_tokens_have_their_fixed_ids(fresh, reloaded):
    for tokenizer in (fresh, reloaded):
        assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
        ids = (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
        assert ids == (BOS_ID, PAD_ID, EOS_ID, UNK_ID) == (0, 1, 2, 3)
        assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3]


def test_every_text_ends_with_eos_before_the_padding(reloaded):
    body = reloaded("Ein Hund", add_special_tokens=False).input_ids
    encoded = reloaded("Ein Hund", text_target="Ein Hund")
    assert encoded.input_ids == encoded.labels == [*body, EOS_ID]
    assert set(encoded) == {"input_ids", "attention_mask", "labels"}
    assert reloaded("").input_ids == [EOS_ID]
    assert reloaded("Ein Hund", "Ein Hund").input_ids == [*body, EOS_ID] * 2
    batch = reloaded(["Ein Hund", "Ein Hund sieht den Ball."], padding=True)
    missing = len(batch.input_ids[1]) - len(body) - 1
    assert missing > 0
    assert batch.input_ids[0] == [*body, EOS_ID] + [PAD_ID] * missing
    assert batch.attention_mask[0] == [1] * (len(body) + 1) + [0] * missing
    assert set(batch) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("pretokenized", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_corpus_remain_plain_text(kind, pretokenized):
    corpus = ["</s></s> <pad> <s> <unk>", "".join(SPECIAL_TOKENS), "x<s>y </s> <pad>z"] * 2000
    size = {"bpe": 268, "wordpiece": 524}[kind]
    tokenizer = learn_tokenizer(corpus, TokenizerSettings(kind, size, pretokenized=pretokenized))
    for text in (*SPECIAL_TOKENS, *corpus[:3], "x</s>"):
        ids = tokenizer(text).input_ids
        assert min(ids[:-1]) > UNK_ID
        assert decoded(tokenizer, ids) == text
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]


@pytest.mark.parametrize("pretokenized", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_tags_follow_the_pieces_and_never_match_text(kind, pretokenized, tmp_path):
    tags, corpus = ["<bt>", "<2de>"], ["<bt> <2de>", "<bt><bt>", "x<2de>y <bt>z"] * 2000
    settings = TokenizerSettings(kind, {"bpe": 265, "wordpiece": 521}[kind], pretokenized=pretokenized)
    without, learned = learn_tokenizer(corpus, settings), learn_tokenizer(corpus, settings, tags=tags)
    learned.save_pretrained(tmp_path)
    for tokenizer in (learned, load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        size = settings.vocab_size
        assert tokenizer.get_vocab() == {**without.get_vocab(), "<bt>": size, "<2de>": size + 1}
        for text in (*tags, *corpus[:3]):
            ids = tokenizer(text).input_ids
            assert ids == without(text).input_ids
            assert tokenizer.decode([size, size + 1, *ids], skip_special_tokens=True) == text
    for tag in ("bt", "<b t>", "<s>", "<pad>", "<>", "< >", "<-->", "<b>>", "<ä>", "<bt>\n", "", f"<{'a' * 51}>"):
        with pytest.raises(ValueError, match=r"the tag .* cannot be a token: write a word between angle brackets"):
            learn_tokenizer(corpus, settings, tags=[tag])


def test_text_length_is_unlimited(reloaded, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = reloaded("Ein Hund läuft. " * 5000).input_ids
    assert len(ids) > 20_000
    assert not caplog.records
    assert reloaded.backend_tokenizer.truncation is None


RELOAD = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = [tokenizer(text).input_ids for text in json.load(sys.stdin)]
assert not any(name.startswith("vanilla_transformer") for name in sys.modules)
print(json.dumps([ids, tokenizer.batch_decode(ids, skip_special_tokens=True)]))
"""


def test_auto_tokenizer_works_without_this_package(fresh, folder, tmp_path):
    texts = [*SNIPPETS, *CORPUS, "".join(SNIPPETS)]
    run = LIBRARIES.run(RELOAD, folder, input=json.dumps(texts), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    ids, back = json.loads(run.stdout)
    assert ids == fresh(texts).input_ids
    assert back == [unicodedata.normalize("NFC", text) for text in texts]
    assert not (folder / "tokenizer.py").exists()


def test_load_tokenizer_rejects_missing_and_foreign_tokenizers(fresh, tmp_path):
    with pytest.raises(ValueError, match=r"no tokenizer\.json in .*nowhere.*learn_tokenizer"):
        load_tokenizer(tmp_path / "nowhere")
    other = Tokenizer.from_str(fresh.backend_tokenizer.to_str().replace('"<pad>"', '"[PAD]"'))
    PreTrainedTokenizerFast(tokenizer_object=other, pad_token="[PAD]").save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"other.*\[PAD\].*ids 0 to 3: learn one"):
        load_tokenizer(tmp_path / "other")


def test_load_tokenizer_matches_auto_tokenizer(fresh, tmp_path):
    fresh.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    names = [settings["tokenizer_class"], "PreTrainedTokenizerFast", "TokenizersBackend", "Unknown", None]
    for changed in (
        *({"tokenizer_class": name} for name in names),
        {"auto_map": {"AutoTokenizer": [None, "code.Kind"]}},
    ):
        file.write_text(json.dumps({**settings, **changed}), encoding="utf-8")
        expected, found = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False), load_tokenizer(tmp_path)
        assert type(found) is type(expected), changed
        assert found.init_kwargs == expected.init_kwargs, changed
    file.write_text(json.dumps({**settings, "tokenizer_class": "MarianTokenizer"}), encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read"):  # it needs other files
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("kind", "smallest"), [("bpe", 260), ("wordpiece", 516)])
def test_vocabulary_has_exact_size_and_learning_is_silent(kind, smallest, capfd):
    with pytest.raises(ValueError, match=r"asked for 37,000 pieces, the text allows at most \d+; lower") as error:
        learn_tokenizer(CORPUS, TokenizerSettings(kind))
    most = int(re.search(r"at most (\d+)", str(error.value)).group(1))
    for size in (smallest, smallest + 1, smallest + 77, most):
        tokenizer = learn_tokenizer(CORPUS, TokenizerSettings(kind, size), show_progress=True)
        assert len(tokenizer) == tokenizer.vocab_size == size
        assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert capfd.readouterr() == ("", "")  # not in a terminal
    with pytest.raises(ValueError, match=f"at most {most};"):
        learn_tokenizer(CORPUS, TokenizerSettings(kind, most + 1))
    with pytest.raises(ValueError, match=f"vocab_size is {smallest - 1}; {kind} needs at least {smallest}"):
        TokenizerSettings(kind, smallest - 1)
    with pytest.raises(ValueError, match="vocab_size is 1,000,001; choose at most 1,000,000"):
        TokenizerSettings(kind, 1_000_001)


def test_learning_with_upper_form_shortens_uppercase_text():
    texts = [f"the old dog {verb} with {animal}s" for verb in ("runs", "plays", "sleeps") for animal in ("cat", "bird")]
    plain, loud = (
        learn_tokenizer(texts * 9, TokenizerSettings(vocab_size=290, forms=forms)) for forms in ({}, {"upper": 1})
    )
    capitals = [text.upper() for text in texts]
    lengths = [sum(map(len, tokenizer(capitals).input_ids)) for tokenizer in (plain, loud)]
    assert lengths[1] < lengths[0] / 2
    for shares, message in (
        ({"loud": 0.1}, "tokenizer.forms: there is no form 'loud': choose from upper"),
        ({"upper": 2}, "tokenizer.forms: the share of upper must be a number from 0 to 1, not 2"),
        ({"terms": 0.1}, "tokenizer.forms: there is no form 'terms'"),
        (0.1, "tokenizer.forms must be a mapping"),
    ):
        with pytest.raises(ValueError, match=message):
            TokenizerSettings(forms=shares)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_from_invalid_input_raises(kind, tmp_path):
    (tmp_path / "corpus").write_bytes(b"good\n\xff\n")
    for texts, error, message in (
        ([], ValueError, "no text"),
        (["", ""], ValueError, "no text"),
        ("one string", TypeError, "text_lines"),
        (["fine", None], TypeError, "text 2 .* None"),
        (text_lines(tmp_path / "corpus"), ValueError, "line 2 is not UTF-8"),
    ):
        with pytest.raises(error, match=message):
            learn_tokenizer(texts, TokenizerSettings(kind, 600))
    with pytest.raises(ValueError, match="'unigram'; choose one of 'bpe', 'wordpiece'"):
        TokenizerSettings("unigram")


LEARN = """
import random, sys
from pathlib import Path
from vanilla_transformer.data.tokenizer import KINDS, TokenizerSettings, learn_tokenizer
lines = [" ".join(str(i * j % 997) + "wäöçß"[i % 5] for j in range(9)) for i in range(3000)]
random.shuffle(lines)
for kind in KINDS:
    folder = Path(sys.argv[1]) / kind
    learn_tokenizer(lines, TokenizerSettings(kind, 1200)).save_pretrained(folder)
"""


@pytest.mark.slow
def test_processes_and_threads_do_not_change_the_tokenizer(tmp_path):
    environments = [{"RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "1"}, {"RAYON_NUM_THREADS": "3"}]
    runs = []
    for number, environment in enumerate(environments):
        command = [sys.executable, "-c", LEARN, str(tmp_path / str(number))]
        runs.append(subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | environment))
    assert [run.wait() for run in runs] == [0] * len(runs)
    for kind in KINDS:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert len({(tmp_path / str(number) / kind / name).read_bytes() for number in range(len(runs))}) == 1


# --- Learning, against BPE written out (Sennrich et al. 2016, algorithm 1) ---


def byte_spelling() -> dict[int, str]:
    """GPT-2's visible character for every byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def bpe_by_hand(lines: list[str], size: int, mark: str = "") -> tuple[list[str], list[tuple[str, str]]]:
    """Vocabulary and merges; the most frequent pair first, ties broken by the smallest ids."""
    alphabet = sorted(byte_spelling().values())
    vocabulary = [*SPECIAL_TOKENS, *([mark + char for char in alphabet] if mark else []), *alphabet]
    words = Counter("Ġ" + word for line in lines for word in line.split(" "))
    spelt = {word: [word[0], *(mark + char for char in word[1:])] for word in words}
    merges = []
    while len(vocabulary) < size:
        pairs = Counter()
        for word, pieces in spelt.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        first, second = min(pairs, key=lambda pair: (-pairs[pair], *map(vocabulary.index, pair)))
        merged = first + second.removeprefix(mark)
        merges.append((first, second))
        vocabulary += [merged] if merged not in vocabulary else []
        for word, pieces in spelt.items():
            i, spelt[word] = 0, []
            while i < len(pieces):
                both = tuple(pieces[i : i + 2]) == (first, second)
                spelt[word].append(merged if both else pieces[i])
                i += 2 if both else 1
    return vocabulary, merges


def random_lines(seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices("abc", k=draw.randint(1, 8))) for _ in range(6)) for _ in range(8)]


@pytest.mark.parametrize("lines", [CORPUS[:1], ["low lower newest widest low low"], *map(random_lines, range(6))])
def test_bpe_learns_the_merges_of_the_algorithm(lines):
    lines = [line.replace(".", "") for line in lines]
    tokenizer = learn_tokenizer(lines, TokenizerSettings("bpe", 275))
    vocabulary, merges = bpe_by_hand(lines, 275)
    learned = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    assert [tuple(merge) for merge in learned["merges"]] == merges
    assert list(learned["vocab"]) == vocabulary


@pytest.mark.parametrize("lines", [random_lines(seed) for seed in range(6)])
def test_wordpiece_learns_the_pieces_of_the_algorithm(lines):
    tokenizer = learn_tokenizer(lines, TokenizerSettings("wordpiece", 540))
    vocabulary, _ = bpe_by_hand(lines, 540, mark=CONTINUATION)
    assert tokenizer.convert_ids_to_tokens(range(540)) == vocabulary


@pytest.fixture(scope="module")
def letters_tokenizer() -> PreTrainedTokenizerFast:
    return learn_tokenizer(random_lines(0), TokenizerSettings("wordpiece", 540))


@given(text=st.text("abc ", max_size=40))
@settings(max_examples=50, deadline=None)
def test_wordpiece_takes_the_longest_piece_first(letters_tokenizer, text):
    tokenizer = letters_tokenizer
    vocabulary, expected = tokenizer.get_vocab(), []
    for word in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(" " + text if text else ""):
        start = 0
        while start < len(word[0]):
            rest = (CONTINUATION if start else "") + word[0][start:]
            piece = next(rest[:end] for end in range(len(rest), 0, -1) if rest[:end] in vocabulary)
            expected.append(piece)
            start += len(piece.removeprefix(CONTINUATION))
    assert tokenizer.tokenize(text) == expected


@pytest.fixture(scope="module", params=KINDS)
def for_spaced_text(request) -> PreTrainedTokenizerFast:
    trees = ["(S (NP-SBJ PRP$ )NP-SBJ ''"] * 9
    return learn_tokenizer([*CORPUS, *trees], TokenizerSettings(request.param, SIZES[request.param], pretokenized=True))


def test_pretokenized_text_splits_only_at_spaces(for_spaced_text):
    [ids] = for_spaced_text(["(S (NP-SBJ PRP$ )NP-SBJ (S"], add_special_tokens=False).input_ids
    assert [for_spaced_text.decode([each]).strip() for each in ids] == ["(S", "(NP-SBJ", "PRP$", ")NP-SBJ", "(S"]


@settings(deadline=None)
@given(anything)
def test_any_pretokenized_text_round_trips(for_spaced_text, text):
    ids = for_spaced_text(text).input_ids
    assert UNK_ID not in ids
    assert ids.count(EOS_ID) == 1
    assert for_spaced_text.decode(ids[:-1]) == unicodedata.normalize("NFC", text)
