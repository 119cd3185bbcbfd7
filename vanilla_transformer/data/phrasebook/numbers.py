"""Numbers in words."""

from .lexicon import expressions, word_lists


LARGEST_NUMBER = 9999
# The centuries whose years are counted in hundreds: as a year, 1982 is "neunzehnhundert…" and not "eintausend…".
YEARS_BY_HUNDREDS = range(11, 20)
ENGLISH_NUMBERS, GERMAN_NUMBERS = word_lists(expressions.NUMBERS)
ENGLISH_TENS, GERMAN_TENS = word_lists(expressions.TENS)
ENGLISH_ORDINALS, GERMAN_ORDINALS = word_lists(expressions.ORDINALS)


def number_in_english(n: int) -> str:
    """Spells a number in English, the British way: "one thousand two hundred and thirty-four".

    Args:
        n: A number from 0 to 9999.

    Raises:
        ValueError: If the number is outside that range.
    """
    check_number(n)
    if n < 20:
        return ENGLISH_NUMBERS[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH_NUMBERS[ones]}" if ones else "")
    thousands, below_thousand = divmod(n, 1000)
    hundreds, below_hundred = divmod(below_thousand, 100)
    words = [f"{ENGLISH_NUMBERS[thousands]} thousand"] if thousands else []
    if hundreds:
        words.append(f"{ENGLISH_NUMBERS[hundreds]} hundred")
    if below_hundred:
        words.append(f"and {number_in_english(below_hundred)}")
    return " ".join(words)


def number_in_german(n: int) -> str:
    """Spells a number in German, as one counts: "eins", "einhunderteins", "eintausendzweihundertvierunddreißig".

    Args:
        n: A number from 0 to 9999.

    Raises:
        ValueError: If the number is outside that range.
    """
    check_number(n)
    if n < 20:
        return GERMAN_NUMBERS[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return (f"{german_multiplier(ones)}und" if ones else "") + GERMAN_TENS[tens - 2]
    unit, name = (1000, "tausend") if n >= 1000 else (100, "hundert")
    multiplier, remainder = divmod(n, unit)
    return f"{german_multiplier(multiplier)}{name}" + (number_in_german(remainder) if remainder else "")


def year_in_english(n: int) -> str:
    """Spells a year: "nineteen hundred and eighty-two", but "two thousand and one".

    Args:
        n: A year from 0 to 9999.

    Raises:
        ValueError: If the year is outside that range.
    """
    hundreds, below_hundred = divmod(n, 100)
    if hundreds not in YEARS_BY_HUNDREDS:
        return number_in_english(n)
    words = f"{number_in_english(hundreds)} hundred"
    return f"{words} and {number_in_english(below_hundred)}" if below_hundred else words


def year_in_german(n: int) -> str:
    """Spells a year: "neunzehnhundertzweiundachtzig", but "zweitausendeins".

    Args:
        n: A year from 0 to 9999.

    Raises:
        ValueError: If the year is outside that range.
    """
    hundreds, below_hundred = divmod(n, 100)
    if hundreds not in YEARS_BY_HUNDREDS:
        return number_in_german(n)
    return f"{number_in_german(hundreds)}hundert" + (number_in_german(below_hundred) if below_hundred else "")


def german_multiplier(digit: int) -> str:
    """Returns a digit as it stands inside a number: "ein" in "einundzwanzig" and "eintausend", not "eins"."""
    return "ein" if digit == 1 else GERMAN_NUMBERS[digit]


def check_number(n: int) -> None:
    """Raises a ValueError for a number that the phrasebook cannot spell."""
    if not 0 <= n <= LARGEST_NUMBER:
        raise ValueError(f"n must be between 0 and {LARGEST_NUMBER}, got {n}")


def ordinal_in_english(n: int) -> str:
    """Returns "third", "twentieth", "twenty-first" for a day of the month."""
    if n < 20:
        return ENGLISH_ORDINALS[n - 1]
    tens, ones = divmod(n, 10)
    name = ENGLISH_TENS[tens - 2]
    return f"{name}-{ENGLISH_ORDINALS[ones - 1]}" if ones else f"{name[:-1]}ieth"


def ordinal_in_german(n: int) -> str:
    """Returns the stem "dritt", "zwanzigst", "einundzwanzigst" for a day of the month."""
    return GERMAN_ORDINALS[n - 1] if n < 20 else f"{number_in_german(n)}st"
