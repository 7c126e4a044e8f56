"""Formatting of numbers in messages."""

from __future__ import annotations


def percent(share: float) -> str:
    """Return a share in per cent as text, to two significant digits, without an exponent.

    Examples
    --------
    >>> percent(1.0), percent(0.0123), percent(12.6), percent(0.0)
    ('100 %', '1.2 %', '1300 %', '0 %')
    """
    rounded = float(f"{100.0 * share:.2g}")
    return f"{rounded:.10f}".rstrip("0").rstrip(".") + " %"
