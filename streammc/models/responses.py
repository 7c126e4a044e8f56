"""Responses: which ones a family is defined for, and what several families expect."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Index, Matrix, Vector

MAX_COUNT: Final = 2.0**53
"""Above it not every whole number is a float64."""


def _fault(good: NDArray[np.bool_], expected: str) -> tuple[Index, str] | None:
    """Return where ``good`` is false, or ``None``."""
    wrong = np.flatnonzero(~good)
    return None if wrong.size == 0 else (wrong, expected)


def binary_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not 0 or 1."""
    return _fault((y == 0.0) | (y == 1.0), "0 or 1 (recode labels such as {1, 2} or {-1, 1})")


def count_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not a whole number from 0 to 2^53."""
    # NaN fails every comparison.
    good = (y >= 0.0) & (y <= MAX_COUNT) & (np.floor(y) == y)
    return _fault(good, "whole numbers from 0 to 2**53")


def proportion_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not in [0, 1]."""
    return _fault(
        (y >= 0.0) & (y <= 1.0),
        "proportions from 0 to 1 (successes / trials, with the trials as weights)",
    )


_ROUNDED: Final = 0.0051
"""Error of a proportion rounded to two digits, 0.005, and its own rounding."""


def share_fault(y: Vector, trials: Vector) -> tuple[Index, str] | None:
    """Return where the proportion ``y`` is no number of successes out of ``trials`` (m,).

    0 and 1 are, of any number of trials above 0. A proportion in between needs a success and a
    failure, and may be rounded. Without trials a row weighs as one trial: fractions are then no
    shares, and their posterior would be that of one trial a row.
    """
    inside = (y > 0.0) & (y < 1.0) & (trials > 0.0)
    some = np.where(inside, trials, 2.0)
    most = np.ceil(some) - 1.0  # successes, beside one failure
    nearest = np.clip(np.rint(y * some), 1.0, np.maximum(most, 1.0))
    good = (most >= 1.0) & (np.abs(y * some - nearest) <= _ROUNDED * some)
    return _fault(
        good | ~inside,
        "shares of known trials (the trials as --trials and the successes as response, or as "
        "--weight of the shares; in Python trials= and weight=)",
    )


def real_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not finite."""
    return _fault(np.isfinite(y), "finite numbers")


def exponential_mean(eta: Matrix) -> Vector:
    """Return the means ``exp(eta)`` (m,) of predictors (p, m); infinite where one overflows."""
    with np.errstate(over="ignore"):
        mean: Vector = np.exp(eta[0])
    return mean


def location(eta: Matrix) -> Vector:
    """Return the first of the predictors (p, m): the mean under an identity link, (m,)."""
    first: Vector = eta[0]
    return first
