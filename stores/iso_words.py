"""Dates and times as ISO text: every moment is written in one way."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

ISO_DATE: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
"""A date, with or without a time of day, as a regular expression."""
MOMENT: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
"""A date with a time of day, of which the hour suffices, as a regular expression."""
_TIME: Final = r"([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)?"
PADDED_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]*0"
"""A time of day with a zero at the end of its fraction."""


def iso_word(word: str, times: bool = False) -> str:
    """Return a text of a moment in the way of ``column_values.iso_text``; other text unchanged.

    With ``times``: ``12:30`` is a time of day as well, and not a score or a verse.
    """
    time = re.fullmatch(_TIME, word)
    if time is not None and (times or time[2]):
        seconds = time[2] or ":00"
        return time[1] + (seconds.rstrip("0").rstrip(".") if "." in seconds else seconds)
    parts = re.fullmatch(MOMENT, word)
    if parts is None:
        return word
    day, hour, minute, second, fraction, zone = parts.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {hour}:{minute or '00'}:{second or '00'}")
        if zone not in (None, "Z"):
            digits = zone[1:].replace(":", "").ljust(4, "0")
            ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            moment = moment - ahead if zone[0] == "+" else moment + ahead
    except (ValueError, OverflowError):  # no such day or hour
        return word
    text = f"{moment}{(fraction or '').rstrip('0').rstrip('.')}"
    return text.removesuffix(" 00:00:00") if zone is None else f"{text}Z"


DATES: Final = ("year", "month", "weekday", "hour", "days")
"""Numbers of a date or moment; ``days`` are those since 1970-01-01, with their fraction."""
_FIRST: Final = date(1970, 1, 1)


@lru_cache(maxsize=1 << 20)
def date_number(function: str, word: str) -> float:
    """Return one of :data:`DATES` of a date, a moment or a time of day as ISO text; else NaN.

    Of a weekday Monday is 0. A moment with a zone counts in UTC, a date begins at midnight, and a
    time of day has an hour alone.

    Examples
    --------
    >>> [date_number(each, "2024-02-29 12:30:00") for each in DATES]
    [2024.0, 2.0, 3.0, 12.0, 19782.520833333332]
    """
    word = iso_word(word).removesuffix("Z")
    time = re.fullmatch(_TIME, word)
    if time is not None:
        of_day = word[:2] < "24" and word[3:5] < "60"  # not a duration
        return float(word[:2]) if function == "hour" and of_day else float("nan")
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        return float("nan")
    if re.fullmatch(ISO_DATE, word) is None:
        return float("nan")
    if function == "days":
        midnight = datetime(moment.year, moment.month, moment.day)
        return (moment.date() - _FIRST).days + (moment - midnight).total_seconds() / 86400.0
    if function == "weekday":
        return float(moment.weekday())
    return float({"year": moment.year, "month": moment.month, "hour": moment.hour}[function])
