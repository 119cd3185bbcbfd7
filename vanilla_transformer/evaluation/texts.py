"""Texts that are scored, segment by segment: plain, JSON lines, or the SGM files of WMT."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.languages import base_of, is_language_code
from ..files import json_rows, text_lines


_OTHER_FORMATS = (".csv", ".json", ".parquet", ".tsv", ".xml")
_ENTITIES = re.compile("&(?:amp|lt|gt|quot|apos);")  # XML's: the text of a test set may hold any other


@dataclass(frozen=True)
class Text:
    """A source, a reference, or a system's translation."""

    name: str  # its name in tables and errors
    segments: list[str]  # usually sentences
    ids: list[tuple[str, str]] | None = None  # in SGM, the document and number of each segment
    language: str | None = None  # code of its language, where the file says so


def read_texts(path: Path, role: str, language: str | None = None) -> list[Text]:
    """Reads a file of segments.

    Args:
        path: One of
            FILE.sgm, .sgml (or .gz of it): WMT's, with a document's segments in `<seg id=...>`; several systems or
            translators (`sysid`) are several texts;
            FILE.jsonl: on each line a string, or an object with the role as a key ("reference": ...; also
            "references", a list of the same length on each line), a `translation` by language codes or such codes
            themselves, or what `translate --json` writes;
            any other file but tables and XML: UTF-8 text, a segment per line, plain or .gz.
        role: "source", "reference" or "hypothesis".
        language: Code of the language: the key of segments in JSON lines, and compared with what an SGM file says.

    Returns:
        One text; several where the file has several references or systems.

    Raises:
        FileNotFoundError, IsADirectoryError: There is no such file.
        ValueError: It is empty, malformed, a table or XML, or in another language; the message names the file, and the
            line if there is one.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix in (".sgm", ".sgml"):
        texts = _sgm(path, role, language)
    elif suffix == ".jsonl":
        texts = _jsonl(path, role, language)
    elif suffix in _OTHER_FORMATS:
        raise ValueError(f"{path}: segments are read from text, .jsonl and .sgm files, and {suffix} is none of these.")
    else:
        texts = [Text(path.name, list(text_lines(path)))]
    if not texts or not texts[0].segments:
        raise ValueError(f"{path} is empty: there is nothing to score.")
    return texts


def aligned(texts: Sequence[Text]) -> list[Text]:
    """The texts with their segments in the order of the first one.

    Raises:
        ValueError: A text lacks segments or has too many.
    """
    return [texts[0], *(_in_order_of(texts[0], text) for text in texts[1:])]


def _in_order_of(first: Text, text: Text) -> Text:
    if first.ids is not None and text.ids is not None:
        places = dict(zip(text.ids, text.segments, strict=True))
        for document, number in first.ids:
            if (document, number) not in places:
                raise ValueError(
                    f"{text.name} lacks segment {number} of document {document!r}, which {first.name} has."
                )
        if len(places) > len(first.ids):
            document, number = next(iter(places.keys() - set(first.ids)))
            raise ValueError(f"{text.name} has a segment {number} of document {document!r}, which {first.name} lacks.")
        return replace(text, segments=[places[place] for place in first.ids], ids=first.ids)
    if len(first.segments) != len(text.segments):
        raise ValueError(
            f"{first.name} has {len(first.segments)} segments and {text.name} {len(text.segments)}: segment k of one "
            "must belong to segment k of the other."
        )
    return text


def _sgm(path: Path, role: str, language: str | None) -> list[Text]:
    """SGM is not XML: its text may have a bare `&`, and its tags stay open."""
    tags = re.compile(r"<(?P<tag>\w+)(?P<attributes>[^>]*)>", flags=re.IGNORECASE)
    found: dict[str, list[tuple[str, str, str]]] = {}
    declared, system, document, waiting = None, path.name, "", None
    for number, line in enumerate(text_lines(path), start=1):
        line = line if waiting is None else f"{waiting} {line}"
        waiting = None
        for tag in tags.finditer(line):
            pairs = re.findall(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", tag["attributes"])
            name, attributes = tag["tag"].lower(), {key.lower(): "".join(values) for key, *values in pairs}
            if name in ("refset", "tstset", "srcset"):
                declared = attributes.get("srclang" if name == "srcset" else "trglang", declared)
            elif name == "doc":
                system, document = attributes.get("sysid", path.name), attributes.get("docid", "")
            elif name == "seg":
                text, *end = re.split("</seg>", line[tag.end() :], maxsplit=1, flags=re.IGNORECASE)
                if re.search(r"<seg\b", text, flags=re.IGNORECASE):
                    raise ValueError(f"{path}, line {number}: a segment begins before the last one ends (</seg>).")
                if not end:
                    waiting = line[tag.start() :]
                    break
                segment = _ENTITIES.sub(lambda entity: html.unescape(entity[0]), text).strip()
                found.setdefault(system, []).append((document, attributes.get("id", str(number)), segment))
    if waiting is not None:
        raise ValueError(f"{path}: the last segment does not end (</seg> is missing): fetch the file again.")
    if not found:
        raise ValueError(f"{path} holds no <seg>: it is not an SGM file of segments.")
    if declared is not None and not is_language_code(declared):
        declared = None  # spelled out, as NIST does: "English"
    codes = [base_of(code) for code in (declared, language) if code not in (None, "any")]
    if len(set(codes)) > 1:
        raise ValueError(f"{path} declares the language {declared!r}, but the {role} should be in {language!r}.")
    texts = []
    for system, segments in found.items():
        ids = [(document, number) for document, number, _ in segments]
        [((document, number), times)] = Counter(ids).most_common(1)
        if times > 1:
            raise ValueError(f"{path} has segment {number} of document {document!r} more than once.")
        name = f"{path.name}:{system}" if len(found) > 1 else path.name
        texts.append(Text(name, [text for *_, text in segments], ids, None if declared == "any" else declared))
    return texts


def _jsonl(path: Path, role: str, language: str | None) -> list[Text]:
    columns: list[list[str]] = []
    for place, row in json_rows(path, text_lines(path)):
        segments = list(_segments_of(row, role, language))
        if not segments or not all(isinstance(segment, str) for segment in segments):
            keys = ", ".join(map(repr, row)) if isinstance(row, dict) else "none"
            wanted = repr(role) if language is None else f"{role!r} or {language!r}"
            raise ValueError(f"{place} has no text under {wanted}; its keys are: {keys}.")
        if any(re.search("[\ud800-\udfff]", segment) for segment in segments):
            raise ValueError(f"{place} has half a character (\\ud800 to \\udfff) in its text.")
        if columns and len(segments) != len(columns):
            raise ValueError(f"{place} has {len(segments)} {role}s, but the lines before {len(columns)}.")
        columns = columns or [[] for _ in segments]
        for column, segment in zip(columns, segments, strict=True):
            column.append(segment)
    names = [path.name] if len(columns) == 1 else [f"{path.name}:{i}" for i in range(1, len(columns) + 1)]
    return [Text(name, column) for name, column in zip(names, columns, strict=True)]


def _segments_of(row, role: str, language: str | None) -> Iterator:
    if isinstance(row, str):
        yield row
    elif isinstance(row, dict):
        pair = row.get("translation")
        if role in row:
            yield row[role]
        elif role == "reference" and isinstance(row.get("references"), list):
            yield from row["references"]
        elif role == "hypothesis" and isinstance(row.get("translations"), list) and row["translations"]:
            best = row["translations"][0]  # of those from `translate --json`
            yield best.get("text") if isinstance(best, dict) else best
        elif role == "hypothesis" and "translation_text" in row:
            yield row["translation_text"]
        elif language is not None and isinstance(pair, dict) and language in pair:
            yield pair[language]
        elif language is not None and language in row:
            yield row[language]
