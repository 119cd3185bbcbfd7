"""Faults that a pair of texts shows by itself: the rules by name, and the mending before them."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html.entities import html5

import regex

from ..data.languages import is_language_code
from ..data.scripts import UNSPACED
from .languages import odds_of_another, share_of_other_scripts


@dataclass(frozen=True)
class CleaningSettings:
    """The settings of the rules.

    Attributes:
        source_language, target_language: Codes, say "en" and "pt_BR".
        max_characters: Maximum characters on a side.
        max_length_ratio: How many times as long one side may be as the other. Four characters are added to both,
            because short texts vary more. An East Asian ideogram or syllable counts as three letters.
        min_letters: Share of either side's characters that must be letters. Only half the characters of markup and
            addresses count.
        language_odds: A text is dropped if another language is this many times likelier than its own.
        max_other_script: Share of letters that may be in other scripts than the language's.
        max_target_repeats: Maximum pairs of different sources with the same target.
        skip: Names of rules not to use.
    """

    source_language: str
    target_language: str
    max_characters: int = 1000
    max_length_ratio: float = 2.5
    min_letters: float = 0.4
    language_odds: float = 10.0
    max_other_script: float = 0.3
    max_target_repeats: int = 5
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.source_language == self.target_language:
            raise ValueError(f"Source and target language are both {self.source_language!r}: give two different codes.")
        for code in (self.source_language, self.target_language):
            if not is_language_code(code):
                raise ValueError(f"{code!r} is not a language code, say 'de' or 'pt_BR'.")
        for name, least in (
            ("max_characters", 1),
            ("max_length_ratio", 1),
            ("language_odds", 1),
            ("min_letters", 0),
            ("max_other_script", 0),
            ("max_target_repeats", 1),
        ):
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise ValueError(f"{name} must be at least {least} and finite, not {value:g}.")
        if unknown := [name for name in self.skip if name not in REASONS]:
            raise ValueError(f"There is no rule {unknown[0]!r}: choose from {', '.join(REASONS)}.")


Test = Callable[[str, str, CleaningSettings], bool]

# ------------------------------------------------------------------------------------------------------------- mending

# With a semicolon: `&region` in an address is not an entity, though browsers read it as one.
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
# A match begins at the first blank of a run: tried from each of them, a long run takes quadratic time.
_ENDS_OF_LINES = re.compile(r"(?<!\s)\s*[\r\n\t\x1c-\x1e\x85\u2028\u2029]\s*")


def mend(text: str) -> str:
    """The text as it was meant, in one line and in NFC: mojibake, Windows-1252, HTML's entities, control characters.

    Bytes that are not UTF-8 come as `surrogateescape` makes them. Text beyond mending stays, for a rule to find.
    """
    if text.isascii() and "&" not in text and text.isprintable():
        return text.strip()
    from ftfy import fix_encoding

    if any("\udc80" <= character <= "\udcff" for character in text):
        raw = text.encode(errors="surrogateescape")
        try:
            text = raw.decode("cp1252")
        except UnicodeDecodeError:
            return text
    text = _ENTITY.sub(_unescaped, fix_encoding(text))
    return unicodedata.normalize("NFC", _CONTROLS.sub("", _ENDS_OF_LINES.sub(" ", text)).strip())


def _unescaped(entity: re.Match) -> str:
    if len(entity[0]) > 100:  # no character; Python reads no number of more than 4,300 digits
        return entity[0]
    known = entity[0][1] == "#" or entity[0][1:] in html5  # of `&amplifier;` unescape would read the first four letters
    return html.unescape(entity[0]) if known else entity[0]


# ----------------------------------------------------------------------------------------------------------- the rules

_MARKUP = re.compile(r"</?[A-Za-z!][^<>]*>|\{\{.*?\}\}|\[\[.*?\]\]")
# Letters of scripts without spaces, and Korean ones, stand beside an address without a blank.
_BESIDE = UNSPACED + "\u3000-\u303f\uac00-\ud7a3\uff00-\uff65"
_IN_ADDRESS = f"(?![{_BESIDE}])"
_ADDRESS = re.compile(
    rf"(?:https?://|www\.)[^\s<>\"')\]»«”“„’‘{_BESIDE}]+(?<![.,;:!?…])"
    rf"|(?:{_IN_ADDRESS}[\w.+-])+@(?:{_IN_ADDRESS}[\w-])+\.(?:{_IN_ADDRESS}[\w.-])+(?<=\w)"
)
# Blanks belong to a number only in front of three digits: "2019 12" are two.
_NUMBER = re.compile("(?:\\d{1,3}(?:[ \u00a0\u202f]\\d{3}(?!\\d))+|\\d+)(?:[.,:'\u2019\u066b\u066c]\\d+)*")
_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.(?:\d{2}){1,2}")
_NO_WORD = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


def _empty(source: str, target: str, settings: CleaningSettings) -> bool:
    return not source.strip() or not target.strip()


def _too_long(source: str, target: str, settings: CleaningSettings) -> bool:
    return max(len(source), len(target)) > settings.max_characters


def _broken_encoding(source: str, target: str, settings: CleaningSettings) -> bool:
    return _is_broken(source) or _is_broken(target)


def _is_broken(text: str) -> bool:
    if text.isascii():
        return False
    from ftfy.badness import is_bad

    no_text = ("Cc", "Cs", "Co")
    return "\ufffd" in text or any(unicodedata.category(each) in no_text for each in text) or is_bad(text)


def _numbers_or_markup(source: str, target: str, settings: CleaningSettings) -> bool:
    return min(_share_of_letters(source), _share_of_letters(target)) < settings.min_letters


def _share_of_letters(text: str) -> float:
    """The share of letters in all but blanks. Half the characters of markup and addresses count as non-letters."""
    rest = _without_addresses(_MARKUP.sub("", text), "")
    letters = sum(unicodedata.category(each)[0] in "LM" for each in rest)
    others = len("".join(rest.split())) - letters
    return letters / max(1, letters + others + (len(text) - len(rest)) // 2)


def _identical(source: str, target: str, settings: CleaningSettings) -> bool:
    return plain(source) == plain(target)


def plain(text: str) -> str:
    """Letters and digits alone, in small letters: the same for texts that differ in nothing else."""
    return _NO_WORD.sub(" ", text.casefold()).strip()


def _length_ratio(source: str, target: str, settings: CleaningSettings) -> bool:
    shorter, longer = sorted((_length(source) + 4, _length(target) + 4))
    return longer > settings.max_length_ratio * shorter


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text) + 2 * sum(each >= "\u2e80" for each in text)


def _source_script(source: str, target: str, settings: CleaningSettings) -> bool:
    return share_of_other_scripts(_without_addresses(source, " "), settings.source_language) > settings.max_other_script


def _target_script(source: str, target: str, settings: CleaningSettings) -> bool:
    return share_of_other_scripts(_without_addresses(target, " "), settings.target_language) > settings.max_other_script


def _source_language(source: str, target: str, settings: CleaningSettings) -> bool:
    return odds_of_another(source, settings.source_language) > settings.language_odds


def _target_language(source: str, target: str, settings: CleaningSettings) -> bool:
    return odds_of_another(target, settings.target_language) > settings.language_odds


def _addresses_differ(source: str, target: str, settings: CleaningSettings) -> bool:
    if not any(map(_may_have_addresses, (source, target))):
        return False
    return Counter(_ADDRESS.findall(source)) != Counter(_ADDRESS.findall(target))


def _may_have_addresses(text: str) -> bool:
    """True for few texts: looking for addresses takes long."""
    return "@" in text or "://" in text or "www." in text


def _without_addresses(text: str, instead: str) -> str:
    return _ADDRESS.sub(instead, text) if _may_have_addresses(text) else text


def _numbers_differ(source: str, target: str, settings: CleaningSettings) -> bool:
    """Whether each side has a number that the other lacks: one that is missing may be written out there."""
    ours, theirs = _numbers(source), _numbers(target)
    return bool(ours - theirs) and bool(theirs - ours)


def _numbers(text: str) -> Counter:
    """The numbers of a text as their digits alone, in whatever script: 50,000 is 50.000 and ٥٠٬٠٠٠.

    A date is several: 3.4.1990 is 3/4/1990 and 03.04.1990. A time may have a zero in front, too.
    """
    found: Counter = Counter()
    for number in _NUMBER.findall(_without_addresses(text, " ")):
        digits = ["".join(str(int(digit)) for digit in part) for part in re.findall(r"\d+", number)]
        if _DATE.fullmatch(number):
            found.update(map(_without_zeros, digits))
        else:
            found["".join([_without_zeros(digits[0]), *digits[1:]])] += 1
    return found


def _without_zeros(digits: str) -> str:
    return digits.lstrip("0") or "0"


# In the order in which they are asked: the quick ones first. The first that holds is the reason.
RULES: dict[str, Test] = {
    "empty": _empty,
    "too_long": _too_long,
    "broken_encoding": _broken_encoding,
    "numbers_or_markup": _numbers_or_markup,
    "identical": _identical,
    "length_ratio": _length_ratio,
    "addresses_differ": _addresses_differ,
    "numbers_differ": _numbers_differ,
    "source_script": _source_script,
    "target_script": _target_script,
    "source_language": _source_language,
    "target_language": _target_language,
}

# Every reason to drop a pair: those of the rules above, and those that only its neighbours or the whole corpus show.
REASONS = {
    "empty": "a side is blank",
    "too_long": "a side has more than `max_characters`",
    "broken_encoding": "characters that no text has, or mojibake that cannot be mended",
    "numbers_or_markup": "a side is mostly numbers, signs, tags or addresses",
    "identical": "both sides are the same except for capitals and punctuation",
    "length_ratio": "one side is more than `max_length_ratio` times as long as the other",
    "addresses_differ": "the sides have different URLs or e-mail addresses",
    "numbers_differ": "each side has a number that the other lacks",
    "source_script": "the source is in another script",
    "target_script": "the target is in another script",
    "source_language": "the source is in another language",
    "target_language": "the target is in another language",
    "misaligned": "several pairs in a row do not belong together",
    "repeated_pair": "the same pair came before",
    "repeated_target": "the same target came `max_target_repeats` times before, with other sources",
    "near_duplicate": "almost the same pair came before",
    "score": "two models find that the sides do not belong together",
}
# In files a reason is its number here; 0: the pair is kept.
NUMBERED = ("", *REASONS)


def check_pair(source: str, target: str, settings: CleaningSettings) -> dict[str, str | None]:
    """Mends a pair and applies the rules that need nothing but the pair.

    It can be pickled and keeps nothing between calls, so `datasets.Dataset.map(num_proc=...)` and cluster engines can
    run it as they like. For a language that py3langid does not know, the rules of languages find nothing, and those of
    scripts only if its script is known.

    Args:
        source, target: The texts as they were read; bytes that are not UTF-8 as `errors="surrogateescape"` gives them.
        settings: Languages, limits and the rules to skip.

    Returns:
        `source` and `target`, mended, and `reason`: the first rule that holds, None if the pair is good.
    """
    source, target = mend(source), mend(target)
    for name, holds in RULES.items():
        if name not in settings.skip and holds(source, target, settings):
            return {"source": source, "target": target, "reason": name}
    return {"source": source, "target": target, "reason": None}
