"""Corpora: every form is read to the same dataset, and every fault is named with its place and its remedy."""

import gzip
import json
import shutil

import datasets
import pytest
from datasets import Dataset, DatasetDict, Features, Translation

from vanilla_transformer.data.corpora import corpus_fingerprint, load_corpus
from vanilla_transformer.data.phrasebook import phrasebook


# The third pair is blank on both sides and the last has separators of Unicode that are text, not ends of lines.
ENGLISH = ["A dog.", "Two cats sleep.", "", "One\u2028line \u0085here."]
GERMAN = ["Ein Hund.", "Zwei Katzen schlafen.", "", "Eine Zeile: größer."]
ROWS = [{"en": english, "de": german} for english, german in zip(ENGLISH, GERMAN, strict=True)]


@pytest.fixture(autouse=True)
def _no_shared_cache(tmp_path, monkeypatch):
    """Parquet files are read through a cache: not the one of whoever runs the tests."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def write(path, text):
    """Writes text (or bytes) as it is, gzipped if the name says so."""
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


# ---------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_dataset(form, tmp_path):
    corpus = load_corpus(FORMS[form](tmp_path), "en", "de")
    assert corpus["translation"][:] == ROWS
    assert corpus.features == Features({"translation": Translation(languages=["en", "de"])})
    assert corpus_fingerprint(corpus) == corpus_fingerprint(as_translation())


@pytest.mark.parametrize("form", ["TSV with a header", "JSONL", "Parquet with a column per language"])
def test_languages_that_are_named_can_be_read_the_other_way_round(form, tmp_path):
    corpus = load_corpus(FORMS[form](tmp_path), "de", "en")
    assert corpus["translation"][:] == ROWS
    assert corpus.features["translation"].languages == ["de", "en"]


def test_without_a_header_the_first_column_is_the_source(tmp_path):
    corpus = load_corpus(tsv(tmp_path), "de", "en")
    assert corpus["translation"][0] == {"de": "A dog.", "en": "Ein Hund."}


def test_relative_paths_are_relative_to_the_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    two_files(tmp_path / "sub")
    tsv(tmp_path / "sub")
    assert load_corpus(["sub/c.en", "sub/c.de"], "en", "de", folder=tmp_path)["translation"][:] == ROWS
    assert load_corpus("c.tsv", "en", "de", folder=tmp_path / "sub")["translation"][:] == ROWS


def test_absolute_paths_ignore_the_folder(tmp_path):
    assert len(load_corpus(tsv(tmp_path), "en", "de", folder="/nowhere")) == len(ROWS)


def test_a_line_may_lack_its_end(tmp_path):
    files = [write(tmp_path / "c.en", "a\nb"), write(tmp_path / "c.de", "c\nd\n")]
    assert load_corpus(files, "en", "de")["translation"][:] == [{"en": "a", "de": "c"}, {"en": "b", "de": "d"}]


def test_phrasebook_gives_so_many_pairs_of_its_split():
    stream = phrasebook("validation")
    expected = [next(stream) for _ in range(7)]
    assert load_corpus("phrasebook:validation:7", "en", "de")["translation"][:] == expected
    assert load_corpus("phrasebook:validation:7", "de", "en")["translation"][:] == expected


def test_a_file_may_be_called_like_the_phrasebook(tmp_path):
    assert len(load_corpus(tsv(tmp_path, name="phrasebook.tsv").name, "en", "de", folder=tmp_path)) == len(ROWS)


def test_parquet_written_anew_is_read_anew(tmp_path):
    load_corpus(parquet(as_columns(), tmp_path), "en", "de")
    other = parquet(Dataset.from_dict({"en": ["new"], "de": ["neu"]}), tmp_path)
    assert load_corpus(other, "en", "de")["translation"][:] == [{"en": "new", "de": "neu"}]


# ----------------------------------------------------------------------------------------------------- fingerprint


@pytest.mark.parametrize(
    "rows",
    [ROWS[::-1], ROWS[:-1], [{"en": row["de"], "de": row["en"]} for row in ROWS], [*ROWS, {"en": "", "de": ""}]],
    ids=["order", "fewer", "sides", "one more blank pair"],
)
def test_fingerprint_changes_with_the_text(rows):
    assert corpus_fingerprint({"translation": rows}) != corpus_fingerprint({"translation": ROWS})


def test_fingerprint_knows_where_a_side_ends():
    one, other = {"en": "ab", "de": "c"}, {"en": "a", "de": "bc"}
    assert corpus_fingerprint({"translation": [one]}) != corpus_fingerprint({"translation": [other]})


# ---------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("shorter", ["en", "de"])
def test_different_line_counts_name_the_shorter_file_and_its_last_line(shorter, tmp_path):
    files = {code: write(tmp_path / code, "x\n" * 2 + code * (code != shorter)) for code in ("en", "de")}
    with pytest.raises(ValueError, match=rf"{files[shorter]} ends after line 2, but .* must belong to line k"):
        load_corpus(list(files.values()), "en", "de")


def test_invalid_utf8_is_named_by_file_and_line(tmp_path):
    files = [write(tmp_path / "c.en", "a\nb\n"), write(tmp_path / "c.de", b"c\n\xe4\n")]
    with pytest.raises(ValueError, match=rf"{files[1]}, line 2 is not UTF-8 .*iconv"):
        load_corpus(files, "en", "de")


@pytest.mark.parametrize(("name", "good"), [("c.tsv", b"a\tb"), ("c.jsonl", b'{"en": "a", "de": "b"}')])
def test_invalid_utf8_in_one_file_is_named_too(name, good, tmp_path):
    with pytest.raises(ValueError, match=rf"{name}, line 2 is not UTF-8"):
        load_corpus(write(tmp_path / name, good + b"\n\xff\n"), "en", "de")


@pytest.mark.parametrize(
    "form", ["JSONL", "JSONL with translation", "Parquet with a column per language", "folder with translation"]
)
def test_missing_language_names_place_and_columns(form, tmp_path):
    with pytest.raises(ValueError, match=r"(line|row) 1 has no text for 'fr'; the columns are: .*'en'"):
        load_corpus(FORMS[form](tmp_path), "en", "fr")


def test_text_that_is_null_is_named(tmp_path):
    path = write(tmp_path / "c.jsonl", '{"en": "a", "de": "b"}\n{"en": "a", "de": null}\n')
    with pytest.raises(ValueError, match=r"c.jsonl, line 2 has no text for 'de'"):
        load_corpus(path, "en", "de")


@pytest.mark.parametrize("line", ["[1]", '"text"', "3", "null"])
def test_json_that_is_no_object_is_named(line, tmp_path):
    with pytest.raises(ValueError, match=r"c.jsonl, line 1 has no text for 'en'"):
        load_corpus(write(tmp_path / "c.jsonl", line), "en", "de")


@pytest.mark.parametrize("value", ['"text"', "null", "[1]"])
def test_translation_that_is_no_object_is_named(value, tmp_path):
    path = write(tmp_path / "c.jsonl", f'{{"translation": {value}}}')
    with pytest.raises(ValueError, match=r"c.jsonl, line 1 has no text for 'en'"):
        load_corpus(path, "en", "de")


def test_broken_json_is_named(tmp_path):
    path = write(tmp_path / "c.jsonl", '{"en": "a", "de": "b"}\n{"en": "a"\n')
    with pytest.raises(ValueError, match=r"c.jsonl, line 2 is not JSON"):
        load_corpus(path, "en", "de")


def test_half_a_surrogate_pair_is_named(tmp_path):
    # JSON can spell what is no text: no encoding of Unicode can write it.
    path = write(tmp_path / "c.jsonl", '{"en": "a", "de": "b"}\n{"en": "\\ud800", "de": "b"}\n')
    with pytest.raises(ValueError, match=r"c.jsonl, line 2"):
        load_corpus(path, "en", "de")


def test_tsv_line_with_too_few_columns_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"c.tsv, line 2 has 1 columns: expected source TAB target"):
        load_corpus(write(tmp_path / "c.tsv", "a\tb\nc\nd\te\n"), "en", "de")


def test_tsv_line_with_too_many_columns_is_named(tmp_path):
    # Which of the tabs divides the pair? Nobody knows, and the rest would be lost in silence.
    with pytest.raises(ValueError, match=r"c.tsv, line 2 has 3 columns: expected source TAB target"):
        load_corpus(write(tmp_path / "c.tsv", "a\tb\nc\td\te\n"), "en", "de")
    with pytest.raises(ValueError, match=r"c.tsv, line 2 has 2 columns: expected de TAB fr TAB en"):
        load_corpus(write(tmp_path / "c.tsv", "de\tfr\ten\nc\td\n"), "en", "de")


def test_tsv_header_without_one_of_the_languages_is_no_pair(tmp_path):
    with pytest.raises(ValueError, match=r"c.tsv has columns for en, fr but none for 'de'"):
        load_corpus(write(tmp_path / "c.tsv", "en\tfr\na dog\tun chien\n"), "en", "de")


def test_file_that_is_there_only_packed_is_found_by_its_plain_name(tmp_path):
    for name, text in (("a.en", "a dog\n"), ("a.de", "ein Hund\n")):
        write(tmp_path / f"{name}.gz", text)
    assert load_corpus(["a.en", "a.de"], "en", "de", folder=tmp_path)["translation"][:] == [
        {"en": "a dog", "de": "ein Hund"}
    ]


def test_byte_order_mark_does_not_hide_a_header(tmp_path):
    # Spreadsheets write one; taken for text it would swap the languages in silence.
    path = write(tmp_path / "c.tsv", b"\xef\xbb\xbfde\ten\nein Hund\ta dog\n")
    assert load_corpus(path, "en", "de")["translation"][:] == [{"en": "a dog", "de": "ein Hund"}]


@pytest.mark.parametrize("name", ["c.tsv", "c.jsonl"])
def test_empty_file_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=rf"{name} is empty"):
        load_corpus(write(tmp_path / name, ""), "en", "de")


def test_two_empty_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        load_corpus([write(tmp_path / "a", ""), write(tmp_path / "b", "")], "en", "de")


def test_tsv_of_nothing_but_a_header_is_empty(tmp_path):
    with pytest.raises(ValueError, match=r"c.tsv is empty"):
        load_corpus(write(tmp_path / "c.tsv", "en\tde\n"), "en", "de")


@pytest.mark.parametrize("keep", [parquet, saved])
def test_empty_table_is_refused(keep, tmp_path):
    path = keep(Dataset.from_dict({"en": [], "de": []}), tmp_path)
    with pytest.raises(ValueError, match=f"{path} is empty"):
        load_corpus(path, "en", "de")


def test_damaged_parquet_is_named(tmp_path):
    path = write(tmp_path / "c.parquet", b"PAR1 and then rubbish")
    with pytest.raises(ValueError, match=r"c\.parquet"):
        load_corpus(path, "en", "de")


def test_same_file_twice_is_refused(tmp_path):
    path = two_files(tmp_path)[0]
    with pytest.raises(ValueError, match=rf"{path} is given as source and as target: give two files"):
        load_corpus([path, path], "en", "de")


def test_same_file_by_a_link_is_refused(tmp_path):
    path = two_files(tmp_path)[0]
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ValueError, match="as source and as target"):
        load_corpus([path, tmp_path / "link"], "en", "de")


def test_copy_of_the_same_text_is_refused(tmp_path):
    path = two_files(tmp_path)[0]
    shutil.copy(path, tmp_path / "copy")
    with pytest.raises(ValueError, match="hold the same text: give source and target"):
        load_corpus([path, tmp_path / "copy"], "en", "de")


def test_some_equal_lines_are_no_fault(tmp_path):
    files = [write(tmp_path / "a", "OK\nyes\n"), write(tmp_path / "b", "OK\nja\n")]
    assert load_corpus(files, "en", "de")["translation"][0] == {"en": "OK", "de": "OK"}


def test_same_language_twice_is_refused():
    with pytest.raises(ValueError, match="both 'en'; give two different codes"):
        load_corpus("phrasebook:train:1", "en", "en")


def test_unknown_kind_of_file_names_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"c.docx is of no known kind: give .*\.tsv, \.jsonl or \.parquet"):
        load_corpus(write(tmp_path / "c.docx", "x"), "en", "de")


@pytest.mark.parametrize("where", ["missing.tsv", ["missing.en", "missing.de"]])
def test_missing_file_is_named(where, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\."):
        load_corpus(where, "en", "de", folder=tmp_path)


@pytest.mark.parametrize("where", [["a"], ["a", "b", "c"]])
def test_other_numbers_of_files_are_refused(where):
    with pytest.raises(ValueError, match=r"is no corpus: give two line-aligned text files"):
        load_corpus(where, "en", "de")


@pytest.mark.parametrize("where", [None, 3, {"train": "c.tsv", "test": "d.tsv"}])
def test_what_is_no_path_at_all_is_refused(where):
    with pytest.raises(ValueError, match="two line-aligned text files"):
        load_corpus(where, "en", "de")


def test_folder_of_several_splits_names_them(tmp_path):
    DatasetDict({"train": as_columns(), "test": as_columns()}).save_to_disk(str(tmp_path / "all"))
    with pytest.raises(ValueError, match=r"holds several splits: give one of .*all/train, .*all/test"):
        load_corpus(tmp_path / "all", "en", "de")
    assert len(load_corpus(tmp_path / "all" / "test", "en", "de")) == len(ROWS)


def test_other_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is no folder saved by datasets: give "):
        load_corpus(tmp_path, "en", "de")


@pytest.mark.parametrize(
    "where", ["phrasebook", "phrasebook:train", "phrasebook:train:", "phrasebook:train:-3", "phrasebook:train:1:2"]
)
def test_bad_phrasebook_shows_a_good_one(where):
    with pytest.raises(ValueError, match=r"is no corpus: .* say phrasebook:train:50000"):
        load_corpus(where, "en", "de")


def test_unknown_split_of_the_phrasebook_names_the_known_ones():
    with pytest.raises(ValueError, match='"train", "validation" or "test", got \'dev\''):
        load_corpus("phrasebook:dev:3", "en", "de")


def test_phrasebook_of_no_pairs_is_empty():
    with pytest.raises(ValueError, match="phrasebook:train:0 is empty"):
        load_corpus("phrasebook:train:0", "en", "de")


def test_phrasebook_has_only_english_and_german():
    with pytest.raises(ValueError, match=r"from en to fr is no corpus: .* between en and de"):
        load_corpus("phrasebook:train:3", "en", "fr")
