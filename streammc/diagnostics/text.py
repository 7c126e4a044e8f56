"""Formatting of numbers in messages, tables and reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

AGAINST: Final = "against"
"""Heading of the reference levels in a table of coefficients."""


def reference_texts(
    references: Mapping[str, Sequence[str]] | None, labels: Iterable[str]
) -> dict[str, str]:
    """Return the reference levels of those labels that have some, as ``origin[ATL]``."""
    known = references or {}
    return {label: ", ".join(known[label]) for label in labels if label in known}


def percent(share: float) -> str:
    """Return a share in per cent as text, to two significant digits, without an exponent.

    Examples
    --------
    >>> percent(1.0), percent(0.0123), percent(12.6), percent(0.0)
    ('100 %', '1.2 %', '1300 %', '0 %')
    """
    rounded = float(f"{100.0 * share:.2g}")
    return f"{rounded:.10f}".rstrip("0").rstrip(".") + " %"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as text with ``digits`` significant digits; ``-`` for none or not finite."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{digits}g}"


def statistic_text(column: str, value: float | None, error: float | None) -> str:
    """Return a statistic of a parameter as text; ``-`` where it is undefined.

    Means and quantiles have as many digits as ``error``, the Monte Carlo standard error of the
    mean, allows, at least four.
    """
    if value is None:
        return "-"
    if column.startswith("ess"):
        return f"{value:.0f}"
    if column == "r_hat":
        return f"{value:.3f}"
    if column == "mcse_mean":
        return number(value, 2)
    digits = 4
    if column != "sd" and error and value and math.isfinite(value):  # to the error's first digit
        digits += math.floor(math.log10(abs(value))) - math.floor(math.log10(error)) - 3
    return number(value, min(max(digits, 4), 9))


def factor_text(value: float | None) -> str:
    """Return a factor as text; near 1 with two significant digits of its distance from 1."""
    if value is None or not 0.0 < abs(value - 1.0) < 0.01:
        return number(value)
    return f"{value:.{min(1 - math.floor(math.log10(abs(value - 1.0))), 15)}f}"
