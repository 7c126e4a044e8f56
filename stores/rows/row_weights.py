"""Row weights, binomial trials expressed as weights, and times that are censored.

A row of weight w contributes its likelihood to the power w. ``C`` successes in ``N`` trials
have, up to the constant ``log binomial(N, C)``, the log-likelihood

    N [(C/N) log p + (1 - C/N) log(1 - p)],

which is ``N`` times that of the response ``C/N``. Trials therefore need no array of their own.

Times are above 0. Where the event had not happened by the time ``t``, which is then censored, the
response is ``-t``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.protocols import Vector
from streammc.stores.ingest.faults import Faults

MAX_WEIGHT: Final = 2.0**53
"""Largest weight: above it float64 skips integers, and sums would lose all other rows."""


def find_weight_faults(faults: Faults, column: str, start: int, weight: Vector) -> None:
    """Record weights (m,) that are negative or too large; NaN and infinity are ignored."""
    with np.errstate(invalid="ignore"):
        faults.add("negative weights", column, start, weight < 0, weight)
        huge = (weight > MAX_WEIGHT) & np.isfinite(weight)
    faults.add("huge weights", column, start, huge, weight)


def find_trial_faults(
    faults: Faults, names: tuple[str, str], start: int, successes: Vector, trials: Vector
) -> None:
    """Record counts that are not whole numbers of at least 0, and successes above trials.

    NaN and infinity are ignored.
    """
    finite = np.isfinite(successes) & np.isfinite(trials)
    whole = finite.copy()
    for name, values in zip(names, (successes, trials), strict=True):
        bad = finite & ((values < 0) | (values != np.rint(values)))
        faults.add("fractions or negative numbers", name, start, bad, values)
        whole &= ~bad
    bad = whole & (successes > trials)
    if bad.any():
        pairs = [f"{c:.0f} of {n:.0f}" for c, n in zip(successes, trials, strict=True)]
        faults.add("more successes than trials", names[0], start, bad, pairs)


def find_time_faults(
    faults: Faults, names: tuple[str, str], start: int, times: Vector, censored: Vector
) -> None:
    """Record marks that are neither 0 nor 1, and times that are not above 0; NaN is ignored."""
    bad = np.isfinite(censored) & (censored != 0) & (censored != 1)
    faults.add("marks of censoring other than 0 and 1", names[1], start, bad, censored)
    with np.errstate(invalid="ignore"):
        faults.add("times of 0 or less", names[0], start, times <= 0, times)


def all_censored(column: str) -> DataError:
    """Return the error for times without an event."""
    return DataError(
        f"expected 0 in some row of {column!r}, found only 1: with all times censored there is no "
        "event, and the data say no more than that the rate is low; check that 1 marks the rows "
        "without an event"
    )


def proportions(successes: Vector, trials: Vector) -> Vector:
    """Return ``successes / trials`` (m,), 0 for rows without trials."""
    some = trials > 0
    result: Vector = np.where(some, successes / np.where(some, trials, 1.0), 0.0)
    return result


def weighted(
    y: NDArray[Any], offset: Vector, weight: Vector, trials: Vector, censored: Vector
) -> tuple[NDArray[Any], Vector, Vector]:
    """Check weights, trials and times; return response, offset and weight of the rows."""
    faults = Faults()
    find_weight_faults(faults, "weight", 0, weight)
    if trials.size:
        if not y.size:
            raise ConfigError("expected the successes as y with trials, found no y: pass y")
        find_trial_faults(faults, ("y", "trials"), 0, y, trials)
    if censored.size:
        if not y.size or trials.size:
            found = "trials too: leave one out" if trials.size else "no y: pass y"
            raise ConfigError(f"expected times as y with censored, found {found}")
        find_time_faults(faults, ("y", "censored"), 0, y, censored)
    faults.refuse(lambda row: f"row {row} of the arrays, counted from 0")
    if trials.size:
        y, weight = proportions(y, trials), trials * weight if weight.size else trials
        find_weight_faults(faults, "trials", 0, weight)
        faults.refuse(lambda row: f"row {row} of the arrays, counted from 0")
    if censored.size:
        if censored.all():
            raise all_censored("censored")
        y = np.where(censored == 1, -y.astype(np.float64), y)
    if weight.size and not weight.any():
        raise DataError("expected a positive weight in some row, found only 0: check the weights")
    return y, offset, weight
