"""Reading texts to score: plain text, JSON lines and SGM. Errors name the file and, where possible, the line."""

import gzip
import json
import re

import pytest

from vanilla_transformer.evaluation.texts import Text, aligned, read_texts


def written(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def json_lines(path, *rows):
    return written(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def sgm(*segments, document="d1", head='<refset setid="t" srclang="any" trglang="de">', system="ref"):
    lines = [f'<seg id="{i}">{text}</seg>' for i, text in enumerate(segments, start=1)]
    return "\n".join([head, f'<doc sysid="{system}" docid="{document}">', "<p>", *lines, "</p>", "</doc>", "</refset>"])


def test_text_splits_only_at_newlines(tmp_path):
    [text] = read_texts(written(tmp_path / "a.de", "eins\n\ndrei\u2028drei\n"), "reference", "de")
    assert text.segments == ["eins", "", "drei\u2028drei"]
    assert (text.name, text.ids, text.language) == ("a.de", None, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.de", "", "is empty"),
        *((name, "eins\n", "segments are read from text, .jsonl and .sgm") for name in ("a.tsv", "a.xml", "a.csv.gz")),
        ("a.de", "gut\ngrün\n".encode("latin-1"), ", line 2 is not UTF-8"),
        *((f"{i}.jsonl", f'"gut"\n{json.dumps(row)}\n', ", line 2 has no text under 'reference' or 'de'")
          for i, row in enumerate([{"en": "good", "fr": "bon"}, {"reference": None}, 3, [], {"references": []}])),
        ("a.jsonl", '"gut"\ngut\n', ", line 2 is not JSON"),
        ("a.jsonl", '"gut"\n"\\ud83d"\n', ", line 2 has half a character"),
        ("a.jsonl", '{"references": ["a", "b"]}\n{"references": ["c"]}\n', "line 2 has 1 references, but the lines be"),
        ("a.sgm", sgm("a", "b").partition("</p>")[0][:-5], "the last segment does not end"),
        ("a.sgm", sgm("eins", "zwei").replace("eins</seg>", "eins"), ", line 5: a segment begins before the last"),
        ("a.sgm", "eins\nzwei\n", "holds no <seg>"),
        ("a.sgm", sgm("a") + sgm("b"), "has segment 1 of document 'd1' more than once"),
        ("a.sgm", sgm("a", head='<refset trglang="fr">'), "declares the language 'fr', but the reference should be"),
    ],
)  # fmt: skip
def test_invalid_files_raise_errors_naming_the_file(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_texts(tmp_path / name, "reference", "de")
    assert name in str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_texts(tmp_path / "nowhere", "reference")


def test_spelled_out_language_is_ignored(tmp_path):
    (tmp_path / "a.sgm").write_text(sgm("eins", head='<refset trglang="German">'))
    assert [text.segments for text in read_texts(tmp_path / "a.sgm", "reference", "de")] == [["eins"]]


def test_json_lines_of_every_layout_are_read(tmp_path):
    for role, row, expected in (
        ("hypothesis", "gut", ["gut"]),
        ("hypothesis", {"hypothesis": "gut", "reference": "schlecht"}, ["gut"]),
        ("hypothesis", {"source": "good", "translations": [{"text": "gut", "score": -1.0}, {"text": "x"}]}, ["gut"]),
        ("hypothesis", {"translation_text": "gut"}, ["gut"]),
        ("reference", {"reference": "gut", "hypothesis": "schlecht"}, ["gut"]),
        ("reference", {"translation": {"en": "good", "de": "gut"}}, ["gut"]),
        ("reference", {"en": "good", "de": "gut"}, ["gut"]),
        ("reference", {"references": ["a", "b"]}, ["a", "b"]),
    ):
        texts = read_texts(json_lines(tmp_path / "a.jsonl", row, row), role, "de")
        assert [text.segments for text in texts] == [[each] * 2 for each in expected]
    assert [text.name for text in texts] == ["a.jsonl:1", "a.jsonl:2"]
    whole = written(tmp_path / "b.jsonl", '"\\ud83d\\ude00"\n')  # a character beyond 16 bits
    assert read_texts(whole, "reference")[0].segments == ["\U0001f600"]


class TestSgm:
    def test_reads_segments_ids_and_language(self, tmp_path):
        content = sgm("Q&amp;A: 3 &lt; 4", " a &nbsp; b & c ", "")
        [text] = read_texts(written(tmp_path / "ref.de.sgm", content), "reference", "de")
        assert text.segments == ["Q&A: 3 < 4", "a &nbsp; b & c", ""]
        assert text.ids == [("d1", "1"), ("d1", "2"), ("d1", "3")]
        assert text.language == "de"
        assert read_texts(tmp_path / "ref.de.sgm", "reference", "de_AT")[0].language == "de"
        source = written(tmp_path / "b.sgm", sgm("a", head='<srcset setid="t" srclang="en">'))
        assert read_texts(source, "source", "en")[0].language == "en"

    def test_accepts_any_case_quotes_and_line_breaks(self, tmp_path):
        content = (
            "<REFSET trglang='de'>\n<DOC docid=x sysid=r><SEG id=1> eins\nzwei </SEG><hl><seg id=2>drei</seg></hl>"
        )
        [text] = read_texts(written(tmp_path / "a.sgm", content), "reference", "de")
        assert text.segments == ["eins zwei", "drei"]
        assert text.ids == [("x", "1"), ("x", "2")]

    def test_each_system_becomes_one_text(self, tmp_path):
        content = sgm("a", system="one") + "\n" + sgm("b", system="two")
        texts = read_texts(written(tmp_path / "a.sgm", content), "hypothesis")
        assert [(text.name, text.segments) for text in texts] == [("a.sgm:one", ["a"]), ("a.sgm:two", ["b"])]

    def test_documents_in_another_order_are_aligned(self, tmp_path):
        first = sgm("a", "b", document="x") + sgm("c", document="y")
        second = sgm("C", document="y", system="s") + sgm("A", "B", document="x", system="s")
        [reference] = read_texts(written(tmp_path / "ref.sgm", first), "reference")
        [system] = read_texts(written(tmp_path / "sys.sgm", second), "hypothesis")
        assert aligned([reference, system])[1].segments == ["A", "B", "C"]

    def test_reads_windows_line_endings_bom_and_gzip(self, tmp_path):
        (tmp_path / "a.sgm").write_bytes(b"\xef\xbb\xbf" + sgm("eins", "zwei").replace("\n", "\r\n").encode())
        assert read_texts(tmp_path / "a.sgm", "reference")[0].segments == ["eins", "zwei"]
        (tmp_path / "a.sgm.gz").write_bytes(gzip.compress(sgm("eins").encode()))
        assert read_texts(tmp_path / "a.sgm.gz", "reference")[0].segments == ["eins"]


def test_aligning_mismatched_texts_raises():
    one, two = Text("a", ["x", "y"], [("d", "1"), ("e", "1")]), Text("b", ["x"], [("d", "1")])
    for texts, message in (
        ([Text("a", ["x", "y"]), Text("b", ["x"])], "a has 2 segments and b 1"),
        ([one, two], "b lacks segment 1 of document 'e', which a has"),
        ([two, one], "a has a segment 1 of document 'e', which b lacks"),
    ):
        with pytest.raises(ValueError, match=message):
            aligned(texts)
