"""Formatting of numbers in messages, tables and reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

AGAINST: Final = "against"
"""Heading of the reference levels in a table of coefficients."""


def reference_texts(
    references: Mapping[str, Sequence[str]] | None, labels: Iterable[str]
) -> dict[str, str]:
    """Return the reference levels of those labels that have some, as ``origin[ATL]``."""
    known = references or {}
    return {label: ", ".join(known[label]) for label in labels if label in known}


_FACTOR: Final = re.compile(r"C\(\s*([^,()]+?)\s*[,)]")


def compared_text(label: str, references: Sequence[str]) -> str:
    """Return what the coefficient of a column compares; a column of numbers is one more unit.

    ``references`` are the reference levels that it is compared with.

    Examples
    --------
    >>> compared_text("C(origin)[T.ORD]", ["C(origin)[ATL]"]), compared_text("distance", [])
    ('origin: ORD against ATL', 'distance +1')
    """
    if not references:
        return f"{label} +1"
    reference = references[0]
    brackets = [k for k, sign in enumerate(reference) if sign == "["]
    ends = [k for k in brackets if label.startswith(reference[: k + 1])]
    if len(references) > 1 or not ends:
        return f"{label} against {', '.join(references)}"
    term = reference[: ends[-1]]
    level, other = (each[len(term) + 1 : -1] for each in (label, reference))
    factor = _FACTOR.match(term)
    return f"{factor[1] if factor else term}: {level.removeprefix('T.')} against {other}"


def interval_ends(interval: float) -> tuple[float, float]:
    """Return the probabilities of the ends of an interval with equal tails."""
    return (1.0 - interval) / 2.0, (1.0 + interval) / 2.0


def interval_names(interval: float) -> tuple[str, str]:
    """Return the names of the ends of an interval.

    Examples
    --------
    >>> interval_names(0.9), interval_names(0.95)
    (('q5', 'q95'), ('q2.5', 'q97.5'))
    """
    low, high = (f"q{100.0 * end:.6g}" for end in interval_ends(interval))
    return low, high


def interval_heading(interval: float) -> str:
    """Return the heading of a column of intervals, such as ``90 % interval``."""
    return f"{100.0 * interval:.6g} % interval"


BAND: Final = "band"
"""Column of a table of statistics with an interval."""


def cell_text(column: str, entry: Mapping[str, float | None], interval: float) -> str:
    """Return a statistic of a parameter as text; in the column ``BAND`` its interval."""
    names = interval_names(interval) if column == BAND else (column,)
    texts = [statistic_text(name, entry.get(name), entry.get("mcse_mean")) for name in names]
    return between(*texts) if column == BAND else texts[0]


def ratio_rows(ratios: Mapping[str, Any], interval: float) -> list[list[str]]:
    """Return what is compared, median and interval of the ratios of columns that change alone."""
    together, references = ratios.get("only_together", ()), ratios.get("references") or {}
    low, high = interval_names(interval)
    return [
        [
            compared_text(label, references.get(label, ())),
            factor_text(entry.get("median")),
            between(factor_text(entry.get(low)), factor_text(entry.get(high))),
        ]
        for label, entry in ratios["parameters"].items()
        if label not in together
    ]


def between(low: str, high: str) -> str:
    """Return an interval as text, from the texts of its ends."""
    return "-" if "-" in (low, high) else f"{low} to {high}"


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


def formula_text(attributes: Mapping[str, Any]) -> str | None:
    """Return the formula of a store, or all of them: ``y ~ x + w; sigma ~ x``."""
    texts = [each["formula"] for each in attributes.get("designs") or ()]
    return "; ".join(texts) or (attributes.get("formula") or {}).get("text")


def missing_text(formula: Mapping[str, Any] | None) -> str | None:
    """Return what stands for missing values in a stored formula, ``12 of 'age' at 50.3``."""
    each = [
        f"{state['rows']:,} of {name!r} "
        + ("as a level" if isinstance(state["value"], str) else f"at {state['value']:.4g}")
        for name, state in ((formula or {}).get("missing") or {}).items()
    ]
    return "; ".join(each) or None
