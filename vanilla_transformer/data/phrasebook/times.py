"""Numbers, dates and times as phrases to draw from."""

from functools import cache

from .lexicon import expressions, rows
from .numbers import (
    german_multiplier,
    number_in_english,
    number_in_german,
    ordinal_in_english,
    ordinal_in_german,
    year_in_english,
    year_in_german,
)
from .phrases import Phrase, Pools, phrases


AT = Phrase("at", "um")


@cache
def spelled(start: int, stop: int) -> tuple[Phrase, ...]:
    """Returns the numbers of a range in words."""
    return tuple(Phrase(number_in_english(n), number_in_german(n)) for n in range(start, stop))


@cache
def years(start: int, stop: int) -> tuple[Phrase, ...]:
    """Returns the years of a range in words."""
    return tuple(Phrase(year_in_english(n), year_in_german(n)) for n in range(start, stop))


@cache
def dates() -> tuple[tuple[str, str, str], ...]:
    """Returns the days of the year: "the third of May", "dritte Mai" (nominative), "dritten Mai" (dative)."""
    return tuple(
        (f"the {ordinal_in_english(day)} of {english}", f"{stem}e {german}", f"{stem}en {german}")
        for english, german, days in rows(expressions.MONTHS)
        for day in range(1, int(days) + 1)
        for stem in [ordinal_in_german(day)]
    )


@cache
def clock_times() -> tuple[Phrase, ...]:
    """Returns the times of the clock, in steps of five minutes: "ten past six" and "zehn nach sechs"."""
    times = []
    for hour in range(1, 13):
        english_hour = number_in_english(hour)
        times.append(Phrase(f"{english_hour} o'clock", f"{german_multiplier(hour)} Uhr"))
        for english, german in rows(expressions.MINUTES):
            german_hour = number_in_german(hour % 12 + 1 if german == "halb" else hour)
            times.append(Phrase(f"{english} {english_hour}", f"{german} {german_hour}"))
    return tuple(times)


@cache
def weekdays() -> tuple[Phrase, ...]:
    """Returns "on Monday" and the other days of the week."""
    return tuple(Phrase(f"on {english}", f"am {german}") for english, german in rows(expressions.WEEKDAYS))


@cache
def times(table: str) -> Pools:
    """Returns the times of a table, most often, and the weekdays, months and dates."""
    months = tuple(Phrase(f"in {english}", f"im {german}") for english, german, _ in rows(expressions.MONTHS))
    days = tuple(Phrase(f"on {english}", f"am {dative}") for english, _, dative in dates())
    return (*[phrases(table)] * 5, weekdays(), weekdays(), months, days)


@cache
def days_of_travel() -> tuple[Phrase, ...]:
    """Returns "today", "tomorrow" and the weekdays."""
    return (*phrases(expressions.FUTURE_TIMES)[:2], *weekdays())
