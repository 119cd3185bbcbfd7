"""Texts to score: every form is read as it is meant, and what is wrong is named with file and line."""

import gzip
import json

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


class TestText:
    def test_lines(self, tmp_path):
        [text] = read_texts(written(tmp_path / "a.de", "eins\n\ndrei\u2028drei\n"), "reference", "de")
        assert text.segments == ["eins", "", "drei\u2028drei"]
        assert (text.name, text.ids, text.language) == ("a.de", None, None)

    def test_empty(self, tmp_path):
        with pytest.raises(ValueError, match=r"a\.de is empty"):
            read_texts(written(tmp_path / "a.de", ""), "reference")

    @pytest.mark.parametrize("name", ["a.tsv", "a.xml", "a.csv.gz"])
    def test_other_formats(self, tmp_path, name):
        with pytest.raises(ValueError, match=rf"{name}: segments are read from text, .jsonl and .sgm"):
            read_texts(written(tmp_path / name, "eins\tone\n"), "reference")

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            read_texts(tmp_path / "nowhere", "reference")

    def test_not_utf8(self, tmp_path):
        (tmp_path / "a.de").write_bytes("gut\ngrün\n".encode("latin-1"))
        with pytest.raises(ValueError, match=r"a\.de, line 2 is not UTF-8"):
            read_texts(tmp_path / "a.de", "reference")


class TestJsonLines:
    @pytest.mark.parametrize(
        ("role", "row"),
        [
            ("hypothesis", "gut"),
            ("hypothesis", {"hypothesis": "gut", "reference": "schlecht"}),
            ("hypothesis", {"source": "good", "translations": [{"text": "gut", "score": -1.0}, {"text": "fein"}]}),
            ("hypothesis", {"translation_text": "gut"}),
            ("reference", {"reference": "gut", "hypothesis": "schlecht"}),
            ("reference", {"translation": {"en": "good", "de": "gut"}}),
            ("reference", {"en": "good", "de": "gut"}),
        ],
    )
    def test_forms(self, tmp_path, role, row):
        [text] = read_texts(json_lines(tmp_path / "a.jsonl", row, row), role, "de")
        assert text.segments == ["gut", "gut"]

    def test_several_references(self, tmp_path):
        path = json_lines(tmp_path / "a.jsonl", {"references": ["a", "b"]}, {"references": ["c", "d"]})
        assert [(text.name, text.segments) for text in read_texts(path, "reference")] == [
            ("a.jsonl:1", ["a", "c"]),
            ("a.jsonl:2", ["b", "d"]),
        ]
        path = json_lines(tmp_path / "b.jsonl", {"references": ["a", "b"]}, {"references": ["c"]})
        with pytest.raises(ValueError, match=r"b\.jsonl, line 2 has 1 references, but the lines before 2"):
            read_texts(path, "reference")

    @pytest.mark.parametrize("row", [{"en": "good", "fr": "bon"}, {"reference": None}, 3, [], {"references": []}])
    def test_nothing_there(self, tmp_path, row):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 2 has no text under 'reference' or 'de'"):
            read_texts(json_lines(tmp_path / "a.jsonl", "gut", row), "reference", "de")

    def test_no_json(self, tmp_path):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 2 is not JSON"):
            read_texts(written(tmp_path / "a.jsonl", '"gut"\ngut\n'), "reference")

    def test_half_a_character(self, tmp_path):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 2 has half a character"):
            read_texts(written(tmp_path / "a.jsonl", '"gut"\n"\\ud83d"\n'), "reference")
        whole = written(tmp_path / "b.jsonl", '"\\ud83d\\ude00"\n')
        assert read_texts(whole, "reference")[0].segments == ["\U0001f600"]


class TestSgm:
    def test_segments(self, tmp_path):
        content = sgm("Q&amp;A: 3 &lt; 4", " a &nbsp; b & c ", "")
        [text] = read_texts(written(tmp_path / "ref.de.sgm", content), "reference", "de")
        assert text.segments == ["Q&A: 3 < 4", "a &nbsp; b & c", ""]
        assert text.ids == [("d1", "1"), ("d1", "2"), ("d1", "3")]
        assert text.language == "de"

    def test_any_case_quotes_and_lines(self, tmp_path):
        content = (
            "<REFSET trglang='de'>\n<DOC docid=x sysid=r><SEG id=1> eins\nzwei </SEG><hl><seg id=2>drei</seg></hl>"
        )
        [text] = read_texts(written(tmp_path / "a.sgm", content), "reference", "de")
        assert text.segments == ["eins zwei", "drei"]
        assert text.ids == [("x", "1"), ("x", "2")]

    def test_several_systems(self, tmp_path):
        content = sgm("a", system="one") + "\n" + sgm("b", system="two")
        texts = read_texts(written(tmp_path / "a.sgm", content), "hypothesis")
        assert [(text.name, text.segments) for text in texts] == [("a.sgm:one", ["a"]), ("a.sgm:two", ["b"])]

    def test_documents_in_another_order(self, tmp_path):
        first = sgm("a", "b", document="x") + sgm("c", document="y")
        second = sgm("C", document="y", system="s") + sgm("A", "B", document="x", system="s")
        [reference] = read_texts(written(tmp_path / "ref.sgm", first), "reference")
        [system] = read_texts(written(tmp_path / "sys.sgm", second), "hypothesis")
        assert aligned([reference, system])[1].segments == ["A", "B", "C"]

    def test_another_language(self, tmp_path):
        path = written(tmp_path / "a.sgm", sgm("a"))
        with pytest.raises(ValueError, match=r"a\.sgm is in 'de' by its own words, but the reference is to be in 'fr'"):
            read_texts(path, "reference", "fr")
        assert read_texts(path, "reference", "de_AT")[0].language == "de"

    def test_sources_have_the_source_language(self, tmp_path):
        head = '<srcset setid="t" srclang="en">'
        [text] = read_texts(written(tmp_path / "a.sgm", sgm("a", head=head)), "source", "en")
        assert text.language == "en"

    def test_cut_off(self, tmp_path):
        with pytest.raises(ValueError, match="the last segment does not end"):
            read_texts(written(tmp_path / "a.sgm", sgm("a", "b").partition("</p>")[0][:-5]), "reference")

    def test_an_end_is_missing(self, tmp_path):
        content = sgm("eins", "zwei", "drei").replace("eins</seg>", "eins")
        with pytest.raises(ValueError, match=r"a\.sgm, line 5: a segment begins before the last one ends"):
            read_texts(written(tmp_path / "a.sgm", content), "reference")

    def test_bytes_as_windows_writes_them(self, tmp_path):
        (tmp_path / "a.sgm").write_bytes(b"\xef\xbb\xbf" + sgm("eins", "zwei").replace("\n", "\r\n").encode())
        assert read_texts(tmp_path / "a.sgm", "reference")[0].segments == ["eins", "zwei"]

    def test_compressed(self, tmp_path):
        (tmp_path / "a.sgm.gz").write_bytes(gzip.compress(sgm("eins").encode()))
        assert read_texts(tmp_path / "a.sgm.gz", "reference")[0].segments == ["eins"]

    def test_no_segments(self, tmp_path):
        with pytest.raises(ValueError, match=r"a\.sgm holds no <seg>"):
            read_texts(written(tmp_path / "a.sgm", "eins\nzwei\n"), "reference")

    def test_the_same_segment_twice(self, tmp_path):
        with pytest.raises(ValueError, match="segment 1 of document 'd1' more than once"):
            read_texts(written(tmp_path / "a.sgm", sgm("a") + sgm("b")), "reference")


class TestAligned:
    def test_different_numbers(self):
        with pytest.raises(ValueError, match="a has 2 segments and b 1"):
            aligned([Text("a", ["x", "y"]), Text("b", ["x"])])

    def test_a_document_is_missing(self):
        one, two = Text("a", ["x", "y"], [("d", "1"), ("e", "1")]), Text("b", ["x"], [("d", "1")])
        with pytest.raises(ValueError, match="b lacks segment 1 of document 'e', which a has"):
            aligned([one, two])
        with pytest.raises(ValueError, match="a has a segment 1 of document 'e', which b lacks"):
            aligned([two, one])
