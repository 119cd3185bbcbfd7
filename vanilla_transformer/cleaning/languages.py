"""Which language a text is in, and which script: py3langid and Unicode's own names."""

import math
import unicodedata
from functools import lru_cache

from ..data.languages import base_of


SCRIPTS = {
    "am": "ETHIOPIC",
    "ar": "ARABIC",
    "ary": "ARABIC",
    "arz": "ARABIC",
    "as": "BENGALI",
    "ba": "CYRILLIC",
    "be": "CYRILLIC",
    "bg": "CYRILLIC",
    "bn": "BENGALI",
    "bo": "TIBETAN",
    "ckb": "ARABIC",
    "crh": "LATIN CYRILLIC",
    "dv": "THAANA",
    "dz": "TIBETAN",
    "el": "GREEK",
    "fa": "ARABIC",
    "gom": "DEVANAGARI LATIN",
    "grc": "GREEK",
    "gu": "GUJARATI",
    "hbo": "HEBREW",
    "he": "HEBREW",
    "hi": "DEVANAGARI",
    "hy": "ARMENIAN",
    "ja": "HAN HIRAGANA KATAKANA",
    "ka": "GEORGIAN",
    "kk": "CYRILLIC",
    "km": "KHMER",
    "kn": "KANNADA",
    "ko": "HANGUL HAN",
    "ku": "LATIN ARABIC",
    "ky": "CYRILLIC",
    "lo": "LAO",
    "mk": "CYRILLIC",
    "ml": "MALAYALAM",
    "mn": "CYRILLIC",
    "mr": "DEVANAGARI",
    "my": "MYANMAR",
    "ne": "DEVANAGARI",
    "or": "ORIYA",
    "pa": "GURMUKHI",
    "ps": "ARABIC",
    "ru": "CYRILLIC",
    "sa": "DEVANAGARI",
    "sd": "ARABIC DEVANAGARI",
    "sdh": "ARABIC",
    "si": "SINHALA",
    "sr": "CYRILLIC LATIN",
    "ta": "TAMIL",
    "te": "TELUGU",
    "tg": "CYRILLIC",
    "th": "THAI",
    "ti": "ETHIOPIC",
    "tt": "CYRILLIC",
    "ug": "ARABIC",
    "uk": "CYRILLIC",
    "ur": "ARABIC",
    "uzs": "ARABIC",
    "wuu": "HAN",
    "yi": "HEBREW",
    "yue": "HAN",
    "zh": "HAN",
}


_LATIN = "LATIN"
_NAMED = {  # scripts by their codes of ISO 15924, as in "uz_Cyrl"
    "Arab": "ARABIC",
    "Armn": "ARMENIAN",
    "Beng": "BENGALI",
    "Cyrl": "CYRILLIC",
    "Deva": "DEVANAGARI",
    "Ethi": "ETHIOPIC",
    "Geor": "GEORGIAN",
    "Grek": "GREEK",
    "Gujr": "GUJARATI",
    "Guru": "GURMUKHI",
    "Hans": "HAN",
    "Hant": "HAN",
    "Hebr": "HEBREW",
    "Latn": _LATIN,
    "Mong": "MONGOLIAN",
    "Tfng": "TIFINAGH",
    "Tibt": "TIBETAN",
}


@lru_cache(maxsize=16)
def scripts_of(code: str) -> frozenset[str]:
    """The scripts of a language's text: the one that its code names ("uz_Cyrl"), else the usual ones; empty if unknown.

    A language that is not in `SCRIPTS` is usually written in Latin letters if it can be identified.
    """
    _, *rest = code.replace("_", "-").split("-")
    named = [_NAMED[each.title()] for each in rest if each.title() in _NAMED]
    return frozenset(named) or _usual_scripts(base_of(code))


def _usual_scripts(language: str) -> frozenset[str]:
    known = language in SCRIPTS or language in _identifier().labels
    return frozenset(SCRIPTS.get(language, _LATIN).split()) if known else frozenset()


@lru_cache(maxsize=16)
def is_identified(code: str) -> bool:
    """Whether text of this language can be told from that of others. In an unusual script it cannot."""
    language = base_of(code)
    return language in _identifier().labels and scripts_of(code) <= _usual_scripts(language)


def odds_of_another(text: str, code: str) -> float:
    """How many times likelier the likeliest language is than this; 1 if they are the same, or it is not identified."""
    if text.isupper():
        text = text.lower()
    likeliest, best = _identifier().classify(text)
    if likeliest == base_of(code) or not is_identified(code):  # most texts end here: ranking all takes as long again
        return 1.0
    expected = dict(_identifier().rank(text)).get(base_of(code), 0.0)
    return float(best) / float(expected) if expected > 0 else math.inf


@lru_cache(maxsize=1)
def _identifier():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def share_of_other_scripts(text: str, code: str) -> float:
    """The share of a text's letters that are in none of its language's scripts; 0 without letters, or if unknown."""
    expected = scripts_of(code)
    if not expected or (text.isascii() and _LATIN in expected):
        return 0.0
    scripts = [script_of(character) for character in text if character.isalpha()]
    return sum(script not in expected for script in scripts) / len(scripts) if scripts else 0.0


@lru_cache(maxsize=1 << 14)
def script_of(letter: str) -> str:
    """The script of a letter by Unicode's names, in capitals."""
    name = unicodedata.name(letter, "UNKNOWN").split()
    if name[0] in ("FULLWIDTH", "HALFWIDTH"):
        name = name[1:]
    return "HAN" if name[0] in ("CJK", "IDEOGRAPHIC") else name[0].partition("-")[0]
