r"""The parts of text in all scripts: letters with their marks, and scripts without spaces between words.

Python's own `\w` does not match combining marks: the vowels of Hindi and Thai, and the tilde of Guarani's g̃, would end
a word.
"""

import regex


# For character classes: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese.
UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# A letter, mark, digit or joiner of a script that has spaces between words.
LETTER = regex.compile(rf"[[\p{{L}}\p{{M}}\p{{N}}_\u200c\u200d]--[{UNSPACED}]]", regex.V1)
# Letters side by side, or one of a script without spaces, with its marks.
LETTERS = regex.compile(rf"{LETTER.pattern}+|[{UNSPACED}]\p{{M}}*", regex.V1)
# A word is a run of such letters; every other sign is a word of its own.
WORD = regex.compile(rf"{LETTERS.pattern}|\S", regex.V1)
_UNSPACED_SIGN = regex.compile(f"[{UNSPACED}]")
_MARK = regex.compile(r"[\p{M}\u200c\u200d]")


def is_unspaced(text: str) -> bool:
    """Whether a text has a letter of a script without spaces between words."""
    return _UNSPACED_SIGN.search(text) is not None


def is_mark(character: str) -> bool:
    """Whether a character belongs to the one before it: a combining mark, or a joiner."""
    return _MARK.match(character) is not None
