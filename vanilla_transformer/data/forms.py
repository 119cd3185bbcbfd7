"""Forms that people write text in: capitals, typos, missing accents or full stops, emoji.

A form is a function of a text and random numbers. Training gives some pairs a form (see `augmentation`); `evaluate
--forms` gives one to every sentence of a test set. The forms use only `random()`, which Python promises to keep the
same: a seed gives the same text everywhere.

    both sides    upper, title, no_end_punctuation, doubled_end_punctuation, noise
    source only   lower, typos, no_diacritics: the translation should be as good as ever

This module needs only the standard library, because help texts list the forms.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar


TYPO_SHARE = 0.05  # of the letters
FORM_SEED = 12345  # of test sets in a form; sacreBLEU's number for its samples

# A keyboard is its rows of letters; each row is half a key to the right of the one above it.
_QWERTY = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_QWERTZ = ("qwertzuiopü", "asdfghjklöä", "yxcvbnm")
# Signs that end a sentence in many scripts, and closing signs that may follow them.
_SIGNS = ".!?…。．！？｡؟۔।॥։።"
_CLOSING = " \t\n\u00a0\u202f\"'”’“»›)]」』"
_FIRST_LETTER = re.compile(r"(?<![\w\u0300-\u036f])(?<![\w\u0300-\u036f]['’])[^\W\d_]")
_ACCENTS = re.compile("[\u0300-\u036f]")
# Letters with a stroke, and letters made of two, which Unicode does not take apart.
_STROKES = "ß:ss æ:ae œ:oe ø:o ł:l đ:d ħ:h ı:i ð:d þ:th ẞ:SS Æ:AE Œ:OE Ø:O Ł:L Đ:D Ħ:H Ð:D Þ:TH"
_PLAIN = str.maketrans(dict(pair.split(":") for pair in _STROKES.split()))
_SYMBOLS = ("!", "#", "*", "-", "•", ">", "|", "~", "=", "…", "★", "→", "✓", "😀", "😂", "👍", "🎉", "🔥", "❤️", "😢")

_T = TypeVar("_T")


@dataclass(frozen=True)
class Form:
    """A form of text.

    Calling it with a text and a `random.Random` gives the text in that form; a text that is not blank never becomes
    blank.

    Attributes:
        name: Its name in recipes and commands.
        both_sides: Whether the translation is changed too, with the same random numbers; else only the source.
        description: What it does, for help texts.
        change: Function from a text and random numbers to the text in that form.
    """

    name: str
    both_sides: bool
    description: str
    change: Callable[[str, Random], str]

    def __call__(self, text: str, generator: Random) -> str:
        changed = self.change(text, generator)
        return changed if changed.strip() else text


def texts_in_form(name: str, texts: Sequence[str], seed: int = FORM_SEED) -> list[str]:
    """Texts in one of `FORMS`. Text number n gets the random numbers of (seed, n), so that its references get the same.

    Args:
        name: One of `FORMS`.
        texts: The texts, in the order of the test set.
        seed: A whole number, 0 or more.
    """
    return [FORMS[name](text, Random(f"{seed} {number}")) for number, text in enumerate(texts)]


def check_shares(shares: Any, setting: str = "augmentation", others: Sequence[str] = ()) -> None:
    """Raises ValueError unless this is a mapping of forms to shares that sum to at most 1; the message says why.

    Args:
        shares: By the names of `FORMS`.
        setting: Its name in messages.
        others: Other names that may have a share; it does not count towards the sum.
    """
    if not isinstance(shares, Mapping):
        raise ValueError(f"{setting} must be a mapping of forms to their shares, not {shares!r:.100}; {{}} is none.")
    for form, share in shares.items():
        if form not in (*FORMS, *others):
            raise ValueError(f"{setting}: there is no form {form!r:.100}: choose from {', '.join([*FORMS, *others])}.")
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ValueError(f"{setting}: the share of {form} must be a number from 0 to 1, not {share!r:.100}.")
    if (total := sum(share for form, share in shares.items() if form not in others)) > 1 + 1e-9:
        raise ValueError(
            f"{setting}: the shares sum to {total:g}, and a text gets one form at most: lower them to 1 in all."
        )


def some_in_forms(texts: Iterable[str], shares: Mapping[str, float]) -> Iterator[str]:
    """The texts, a share of them in each form. The draw depends on the text alone, not on its place."""
    forms = [(form, shares[name]) for name, form in FORMS.items() if shares.get(name)]
    for text in texts:
        if not forms:
            yield text
            continue
        generator = Random(text)
        left = generator.random()
        for form, share in forms:
            if left < share:
                text = form(text, generator)
                break
            left -= share
        yield text


def typos(text: str, generator: Random, share: float = TYPO_SHARE) -> str:
    """A text with a share of its letters mistyped, on a QWERTY or a QWERTZ keyboard.

    A mistyped letter becomes that of a neighbouring key, changes places with the next letter, or is left out: all that
    are possible are equally likely. Only a letter of the keyboard has neighbouring keys, and a letter that stands alone
    is not left out. Combining marks stay with their letter.

    Args:
        text: Any text; only its letters change.
        generator: The random numbers.
        share: Probability that a letter is mistyped.
    """
    neighbours, written, at = _drawn(KEYBOARDS, generator), [], 0
    letters = _letters(text)
    while at < len(letters):
        letter, behind = letters[at], letters[at + 1] if at + 1 < len(letters) else ""
        at += 1
        if not letter[0].isalpha() or generator.random() >= share:
            written.append(letter)
            continue
        ways = [_drawn(neighbours[letter], generator)] if letter in neighbours else []
        if behind[:1].isalpha() and behind != letter:
            ways.append(behind + letter)
        if behind[:1].isalpha() or (at > 1 and letters[at - 2][0].isalpha()):
            ways.append("")
        written.append(_drawn(ways or [letter], generator))
        at += written[-1] == behind + letter  # both are written now
    return "".join(written)


def _letters(text: str) -> list[str]:
    """The characters of a text, each with the combining marks and joiners after it."""
    found: list[str] = []
    for character in text:
        if found and (unicodedata.category(character)[0] == "M" or character in "\u200c\u200d"):
            found[-1] += character
        else:
            found.append(character)
    return found


def _drawn(choices: Sequence[_T], generator: Random) -> _T:
    return choices[int(generator.random() * len(choices))]


def _neighbours(rows: Sequence[str]) -> dict[str, str]:
    """The letters beside each letter of a keyboard, small and capital."""
    found: dict[str, str] = {}
    for number, row in enumerate(rows):
        for place, letter in enumerate(row):
            places = [(number, place - 1), (number, place + 1), (number + 1, place - 1), (number + 1, place)]
            places += [(number - 1, place), (number - 1, place + 1)]
            beside = "".join(rows[r][p] for r, p in places if 0 <= r < len(rows) and 0 <= p < len(rows[r]))
            found |= {letter: beside, letter.upper(): beside.upper()}
    return found


KEYBOARDS = (_neighbours(_QWERTY), _neighbours(_QWERTZ))
"""The letters beside each letter, of keyboards for English and German."""


def _title(text: str, generator: Random) -> str:
    return _FIRST_LETTER.sub(lambda letter: letter[0].title(), text)


def end_of(text: str) -> tuple[str, str, str]:
    """A text in three parts: before its end signs, these signs, and the quotes, brackets and blanks after them."""
    signed = text.rstrip(_CLOSING)
    body = signed.rstrip(_SIGNS)
    return body, signed[len(body) :], text[len(signed) :]


def _without_end_punctuation(text: str, generator: Random) -> str:
    body, signs, closing = end_of(text)
    return body.rstrip() + closing if signs else text


def _doubled_end_punctuation(text: str, generator: Random) -> str:
    body, signs, closing = end_of(text)
    return body + signs + _drawn((1, 1, 2), generator) * signs[-1:] + closing


def _without_diacritics(text: str, generator: Random) -> str:
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", text.translate(_PLAIN)))
    return unicodedata.normalize("NFC", bare)


def _with_noise(text: str, generator: Random) -> str:
    """One to three symbols, mostly one symbol repeated, before or after the text."""
    first, in_front = _drawn(_SYMBOLS, generator), generator.random() < 0.5
    count, same = _drawn((1, 2, 3), generator), generator.random() < 0.7
    run = "".join([first, *(first if same else _drawn(_SYMBOLS, generator) for _ in range(count - 1))])
    return f"{run} {text}" if in_front else f"{text} {run}"


FORMS = {
    form.name: form
    for form in (
        Form("upper", True, "every letter a capital", lambda text, generator: text.upper()),
        Form("title", True, "every word with a capital, as in headlines", _title),
        Form("lower", False, "no capitals", lambda text, generator: text.lower()),
        Form("no_end_punctuation", True, "no full stop or other sign at the end", _without_end_punctuation),
        Form("doubled_end_punctuation", True, "the sign at the end two or three times", _doubled_end_punctuation),
        Form(
            "typos", False, f"one letter in {1 / TYPO_SHARE:.0f} mistyped: neighbouring keys, swaps, omissions", typos
        ),
        Form("no_diacritics", False, "letters without accents, dots and strokes", _without_diacritics),
        Form("noise", True, "a few symbols or emoji in front or behind, the same on both sides", _with_noise),
    )
}
"""All forms by name."""
