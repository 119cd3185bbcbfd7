"""Which language a text is in, and which script: py3langid and Unicode's own names."""

import math
import unicodedata
from functools import lru_cache


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


def base_of(code: str) -> str:
    """The language of a code without its country or script: "pt" of "pt_BR"."""
    return code.replace("_", "-").partition("-")[0].lower()


def is_identified(code: str) -> bool:
    """Whether text of this language can be told from that of others."""
    return base_of(code) in _identifier().labels


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
    """The share of a text's letters that are in none of its language's scripts; 0 without letters.

    A language that is not in `SCRIPTS` is written in Latin letters if it can be identified, else in any.
    """
    language = base_of(code)
    if text.isascii() and language not in SCRIPTS:
        return 0.0
    if language not in SCRIPTS and not is_identified(code):
        return 0.0
    expected = SCRIPTS.get(language, "LATIN").split()
    scripts = [script_of(character) for character in text if character.isalpha()]
    return sum(script not in expected for script in scripts) / len(scripts) if scripts else 0.0


@lru_cache(maxsize=1 << 14)
def script_of(letter: str) -> str:
    """The script of a letter by Unicode's names, in capitals."""
    name = unicodedata.name(letter, "UNKNOWN").split()
    if name[0] in ("FULLWIDTH", "HALFWIDTH"):
        name = name[1:]
    return "HAN" if name[0] in ("CJK", "IDEOGRAPHIC") else name[0].partition("-")[0]
