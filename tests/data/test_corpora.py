"""Corpora: every file format gives the same dataset, and every error names its place and its remedy."""

import gzip
import hashlib
import json
import shutil
from itertools import islice

import datasets
import pytest
from datasets import Dataset, DatasetDict, Features, Translation

from vanilla_transformer.data.corpora import TextCorpus, load_corpus, open_stream, read_corpus
from vanilla_transformer.data.phrasebook import phrasebook


# The third pair is blank on both sides; the last contains Unicode separators that are text, not line ends.
ENGLISH = ["A dog.", "Two cats sleep.", "", "One\u2028line \u0085here."]
GERMAN = ["Ein Hund.", "Zwei Katzen schlafen.", "", "Eine Zeile: größer."]
ROWS = [{"en": english, "de": german} for english, german in zip(ENGLISH, GERMAN, strict=True)]


@pytest.fixture(autouse=True)
def _no_shared_cache(tmp_path, monkeypatch):
    """Parquet files are read through a cache; this keeps the user's own cache out of the tests."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def fingerprint_of(rows):
    return TextCorpus("rows", [(row["en"], row["de"]) for row in rows], {"languages": ["en", "de"]}).fingerprint


def write(path, text):
    """Writes text (or bytes) unchanged, gzipped if the name ends in .gz."""
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def lines(rows):
    return "".join(f"{row}\n" for row in rows)


def two_files(folder, end="\n", suffix=""):
    sides = {"en": ENGLISH, "de": GERMAN}
    return [write(folder / f"c.{code}{suffix}", "".join(text + end for text in side)) for code, side in sides.items()]


def tsv(folder, columns=("en", "de"), header=False, name="c.tsv"):
    first = ["\t".join(columns)] if header else []
    return write(folder / name, lines(first + ["\t".join(row[code] for code in columns) for row in ROWS]))


def jsonl(folder, wrap=lambda row: row, name="c.jsonl"):
    return write(folder / name, lines(json.dumps(wrap(row), ensure_ascii=False) for row in ROWS))


def wrapped(row):
    return {"translation": row, "id": 7}


def parquet(dataset, folder):
    dataset.to_parquet(folder / "c.parquet")
    return folder / "c.parquet"


def saved(dataset, folder):
    dataset.save_to_disk(str(folder / "saved"))
    return folder / "saved"


def as_translation():
    features = Features({"translation": Translation(languages=["en", "de"])})
    return Dataset.from_dict({"translation": ROWS}, features=features)


def as_columns():
    return Dataset.from_dict({"id": [1, 2, 3, 4], "de": GERMAN, "en": ENGLISH})


FORMS = {
    "two files": two_files,
    "two files, gzip": lambda folder: two_files(folder, suffix=".gz"),
    "two files, CRLF": lambda folder: two_files(folder, end="\r\n"),
    "TSV": tsv,
    "TSV with a header": lambda folder: tsv(folder, header=True),
    "TSV with a header the other way round": lambda folder: tsv(folder, ("de", "en"), header=True),
    "TSV, gzip": lambda folder: tsv(folder, name="c.tsv.gz"),
    "JSONL": jsonl,
    "JSONL with translation": lambda folder: jsonl(folder, wrapped),
    "JSONL, gzip": lambda folder: jsonl(folder, name="c.jsonl.gz"),
    "Parquet with translation": lambda folder: parquet(as_translation(), folder),
    "Parquet with a column per language": lambda folder: parquet(as_columns(), folder),
    "folder with translation": lambda folder: saved(as_translation(), folder),
    "folder with a column per language": lambda folder: saved(as_columns(), folder),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_dataset(form, tmp_path):
    where = FORMS[form](tmp_path)
    corpus = load_corpus(where, "en", "de")
    assert corpus["translation"][:] == ROWS
    assert corpus.features == Features({"translation": Translation(languages=["en", "de"])})
    in_memory, stream = read_corpus(where, "en", "de"), open_stream(where, "en", "de")
    assert in_memory.fingerprint == fingerprint_of(ROWS)
    assert list(in_memory.texts()) == list(stream.texts()) == [(row["en"], row["de"]) for row in ROWS]
    assert (in_memory.name, in_memory.identity) == (stream.name, stream.identity)


@pytest.mark.parametrize("form", ["two files", "two files, gzip", "TSV, gzip", "JSONL"])
def test_a_text_file_is_read_once(form, tmp_path, monkeypatch):
    """Its digest is computed while its lines are read."""
    where = FORMS[form](tmp_path)
    expected = open_stream(where, "en", "de").identity
    monkeypatch.setattr("vanilla_transformer.data.corpora.sha256_of", lambda path: pytest.fail(f"{path} is read again"))
    assert read_corpus(where, "en", "de").identity == expected


@pytest.mark.parametrize("form", ["TSV with a header", "JSONL", "Parquet with a column per language"])
def test_named_languages_can_be_swapped(form, tmp_path):
    corpus = load_corpus(FORMS[form](tmp_path), "de", "en")
    assert corpus["translation"][:] == ROWS
    assert corpus.features["translation"].languages == ["de", "en"]
    assert read_corpus(FORMS[form](tmp_path), "de", "en").fingerprint == fingerprint_of(ROWS)
    # Without column names, the first column is the source.
    corpus = load_corpus(tsv(tmp_path), "de", "en")
    assert corpus["translation"][0] == {"de": "A dog.", "en": "Ein Hund."}


def test_relative_paths_are_relative_to_the_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    two_files(tmp_path / "sub")
    tsv(tmp_path / "sub")
    assert load_corpus(["sub/c.en", "sub/c.de"], "en", "de", folder=tmp_path)["translation"][:] == ROWS
    assert load_corpus("c.tsv", "en", "de", folder=tmp_path / "sub")["translation"][:] == ROWS
    assert len(load_corpus(tmp_path / "sub" / "c.tsv", "en", "de", folder="/nowhere")) == len(ROWS)


@pytest.mark.parametrize(
    ("files", "where", "expected"),
    [
        ({"c.en": "a\nb", "c.de": "c\nd\n"}, ["c.en", "c.de"], [("a", "c"), ("b", "d")]),  # no newline at the end
        ({"a.gz": "a dog\n", "b.gz": "ein Hund\n"}, ["a", "b"], [("a dog", "ein Hund")]),  # only gzipped files exist
        ({"a": "OK\nyes\n", "b": "OK\nja\n"}, ["a", "b"], [("OK", "OK"), ("yes", "ja")]),
        # Spreadsheets write a byte order mark; read as text, it would silently swap the languages.
        ({"c.tsv": b"\xef\xbb\xbfde\ten\nein Hund\ta dog\n"}, "c.tsv", [("a dog", "ein Hund")]),
        ({"c.tsv": "DE\tEN\nein Hund\ta dog\n"}, "c.tsv", [("a dog", "ein Hund")]),
    ],
)
def test_unusual_files_are_read_correctly(files, where, expected, tmp_path):
    for name, content in files.items():
        write(tmp_path / name, content)
    rows = load_corpus(where, "en", "de", folder=tmp_path)["translation"][:]
    assert rows == [{"en": english, "de": german} for english, german in expected]


def test_phrasebook_gives_the_requested_pairs_of_a_split(tmp_path):
    expected = list(islice(phrasebook("validation"), 7))
    assert load_corpus("phrasebook:validation:7", "en", "de")["translation"][:] == expected
    assert load_corpus("phrasebook:validation:7", "de", "en")["translation"][:] == expected
    assert len(load_corpus(tsv(tmp_path, name="phrasebook.tsv").name, "en", "de", folder=tmp_path)) == len(ROWS)


def test_rewritten_parquet_is_read_again(tmp_path):
    load_corpus(parquet(as_columns(), tmp_path), "en", "de")
    other = parquet(Dataset.from_dict({"en": ["new"], "de": ["neu"]}), tmp_path)
    assert load_corpus(other, "en", "de")["translation"][:] == [{"en": "new", "de": "neu"}]


def test_fingerprint_matches_version_0_1_0_and_changes_with_text():
    """Resuming an old run compares against it."""
    assert fingerprint_of([{"en": "A dog.", "de": "Ein Hund."}]) == (
        hashlib.sha256(b'[["de", "Ein Hund."], ["en", "A dog."]]').hexdigest()
    )
    swapped = [{"en": row["de"], "de": row["en"]} for row in ROWS]
    for rows in (ROWS[::-1], ROWS[:-1], swapped, [*ROWS, {"en": "", "de": ""}]):
        assert fingerprint_of(rows) != fingerprint_of(ROWS)
    assert fingerprint_of([{"en": "ab", "de": "c"}]) != fingerprint_of([{"en": "a", "de": "bc"}])


GOOD = '{"en": "a", "de": "b"}\n'
MALFORMED = {
    "invalid UTF-8 in a TSV": ("c.tsv", b"a\tb\n\xff\n", r"c.tsv, line 2 is not UTF-8"),
    "invalid UTF-8 in JSONL": ("c.jsonl", GOOD.encode() + b"\xff\n", r"c.jsonl, line 2 is not UTF-8"),
    "a text that is null": ("c.jsonl", GOOD + '{"en": "a", "de": null}\n', r"c.jsonl, line 2 has no text for 'de'"),
    "broken JSON": ("c.jsonl", GOOD + '{"en": "a"\n', r"c.jsonl, line 2 is not JSON"),
    # JSON can spell half a surrogate pair, which no Unicode encoding can write.
    "half a surrogate pair": ("c.jsonl", GOOD + '{"en": "\\ud800", "de": "b"}\n', r"c.jsonl, line 2"),
    **{
        f"JSON that is no object: {line}": ("c.jsonl", line, r"c.jsonl, line 1 has no text for 'en'")
        for line in ("[1]", '"text"', "3", "null", *(f'{{"translation": {value}}}' for value in ('"a"', "null", "[1]")))
    },
    "too few columns": ("c.tsv", "a\tb\nc\nd\te\n", r"c.tsv, line 2 has 1 column: expected source TAB target"),
    # Nobody can tell which tab divides the pair, and the rest would be lost silently.
    "too many columns": ("c.tsv", "a\tb\nc\td\te\n", r"c.tsv, line 2 has 3 columns: expected source TAB target"),
    "fewer than the header": ("c.tsv", "de\tfr\ten\nc\td\n", r"line 2 has 2 columns: expected de TAB fr TAB en"),
    "no such column": ("c.tsv", "en\tfr\na dog\tun chien\n", r"c.tsv has columns for en, fr but none for 'de'"),
    "nothing in a TSV": ("c.tsv", "", r"c.tsv is empty"),
    "nothing in JSONL": ("c.jsonl", "", r"c.jsonl is empty"),
    "nothing but a header": ("c.tsv", "en\tde\n", r"c.tsv is empty"),
    "damaged Parquet": ("c.parquet", b"PAR1 and then rubbish", r"c\.parquet"),
    "an unknown kind": ("c.docx", "x", r"c.docx is of no known kind: give .*\.tsv, \.jsonl or \.parquet"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_files_raise_naming_the_place(what, tmp_path):
    name, content, message = MALFORMED[what]
    with pytest.raises(ValueError, match=message):
        load_corpus(write(tmp_path / name, content), "en", "de")


def test_invalid_file_pairs_are_rejected(tmp_path):
    for shorter in ("en", "de"):
        files = {code: write(tmp_path / code, "x\n" * 2 + code * (code != shorter)) for code in ("en", "de")}
        with pytest.raises(ValueError, match=rf"{files[shorter]} ends after line 2, but .* must belong to line k"):
            load_corpus(list(files.values()), "en", "de")
    path, other = two_files(tmp_path)
    write(other, b"c\n\xe4\n")
    with pytest.raises(ValueError, match=rf"{other}, line 2 is not UTF-8 .*iconv"):
        load_corpus([path, other], "en", "de")
    (tmp_path / "link").symlink_to(path)
    for same in (path, tmp_path / "link"):
        with pytest.raises(ValueError, match=rf"{path} is given as source and as target: give two files"):
            load_corpus([path, same], "en", "de")
    with pytest.raises(ValueError, match="hold the same text: give source and target"):
        load_corpus([path, shutil.copy(path, tmp_path / "copy")], "en", "de")
    with pytest.raises(ValueError, match="is empty"):
        load_corpus([write(tmp_path / "a", ""), write(tmp_path / "b", "")], "en", "de")


@pytest.mark.parametrize(
    "form", ["JSONL", "JSONL with translation", "Parquet with a column per language", "folder with translation"]
)
def test_missing_language_error_names_place_and_columns(form, tmp_path):
    with pytest.raises(ValueError, match=r"(line|row) 1 has no text for 'fr'; the columns are: .*'en'"):
        load_corpus(FORMS[form](tmp_path), "en", "fr")


def test_empty_tables_and_invalid_folders_are_rejected(tmp_path):
    for keep in (parquet, saved):
        path = keep(Dataset.from_dict({"en": [], "de": []}), tmp_path)
        with pytest.raises(ValueError, match=f"{path} is empty"):
            load_corpus(path, "en", "de")
    with pytest.raises(ValueError, match=r"is not a folder saved by datasets: give "):
        load_corpus(tmp_path, "en", "de")
    for name in ("state.json", "dataset_info.json", "data-00000-of-00001.arrow"):
        damaged = saved(as_columns(), tmp_path / name) / name
        damaged.write_bytes(damaged.read_bytes()[:40])
        with pytest.raises(ValueError, match=rf"{damaged.parent} is damaged \(.*\): save it again"):
            load_corpus(damaged.parent, "en", "de")
    with pytest.raises(ValueError, match="is not a folder saved by datasets"):
        load_corpus(".", "en", "de")
    DatasetDict({"train": as_columns(), "test": as_columns()}).save_to_disk(str(tmp_path / "all"))
    with pytest.raises(ValueError, match=r"holds several splits: give one of .*all/train, .*all/test"):
        load_corpus(tmp_path / "all", "en", "de")
    assert len(load_corpus(tmp_path / "all" / "test", "en", "de")) == len(ROWS)


def test_invalid_corpus_specifications_are_rejected(tmp_path):
    for where in ("missing.tsv", ["missing.en", "missing.de"]):
        with pytest.raises(FileNotFoundError, match=r"missing\."):
            load_corpus(where, "en", "de", folder=tmp_path)
    for where in (["a"], ["a", "b", "c"], None, 3, {"train": "c.tsv", "test": "d.tsv"}):
        with pytest.raises(ValueError, match="is not a corpus: give two line-aligned text files"):
            load_corpus(where, "en", "de")
    with pytest.raises(ValueError, match="both 'en'; give two different codes"):
        load_corpus("phrasebook:train:1", "en", "en")
    for rest in ("", ":train", ":train:", ":train:-3", ":train:1:2", f":train:{10**20}"):
        with pytest.raises(ValueError, match=r"is not a corpus: .* say phrasebook:train:50000"):
            load_corpus(f"phrasebook{rest}", "en", "de")
    with pytest.raises(ValueError, match='"train", "validation" or "test", got \'dev\''):
        load_corpus("phrasebook:dev:3", "en", "de")
    with pytest.raises(ValueError, match="phrasebook:train:0 is empty"):
        load_corpus("phrasebook:train:0", "en", "de")
    with pytest.raises(ValueError, match=r"from en to fr is not a corpus: .* between en and de"):
        load_corpus("phrasebook:train:3", "en", "fr")
