"""Responses: what families expect of them, and the check of those of a table or of its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, ModelError
from streammc.models.mixed.effect_terms import is_mixed_model, is_table_model
from streammc.protocols import Dataset, Index, Matrix, Model, Vector

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


def check_levels(levels: object, most: int) -> None:
    """Raise ConfigError if ``levels`` is neither a number of categories nor ``None``."""
    whole = isinstance(levels, int) and not isinstance(levels, bool)
    if levels is not None and not (whole and 2 <= cast(int, levels) <= most):
        raise ConfigError(
            f"levels must be a whole number from 2 to {most}, the number of categories, found "
            f"{levels!r}: leave it out to take it from the data"
        )


def category_fault(y: Vector, levels: int | None, most: int) -> tuple[Index, str] | None:
    """Return where ``y`` is not the number of one of ``levels`` categories; ``None``: of most."""
    note = f"levels={levels}, unless another number is given"
    if levels is None:
        levels, note = most, f"of at most {most} categories"
    good = (y >= 0.0) & (y <= levels - 1.0) & (np.floor(y) == y)
    return _fault(good, f"whole numbers from 0 to {levels - 1} ({note})")


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


MOST_TRIALS: Final = 2.0**26 - 1.0
"""Most trials of a row whose successes a response states beside them."""
_PER_TRIAL: Final = MOST_TRIALS + 1.0


def counts_of_trials(y: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Return responses ``2^26 trials + successes`` (m,), which are exact, and weights of 0 and 1.

    ``y`` are shares, and the weights their trials. Rows without trials are 0, of weight 0.
    """
    trials, there = np.rint(weight), weight > 0.0
    return np.where(there, _PER_TRIAL * trials + np.rint(y * trials), 0.0), there.astype(np.float64)


def shares_of_trials(counts: Vector) -> tuple[Vector, Vector]:
    """Return shares and trials (m,): the inverse of :func:`counts_of_trials`."""
    trials = np.floor(counts / _PER_TRIAL)
    successes = counts - _PER_TRIAL * trials
    shares: Vector = successes / np.maximum(trials, 1.0)
    return shares, trials


def trials_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``2^26 trials + successes`` are no such counts, or of too many trials."""
    trials = np.floor(y / _PER_TRIAL)
    with np.errstate(invalid="ignore"):
        successes = y - _PER_TRIAL * trials
        good = (trials >= 0.0) & (trials <= MOST_TRIALS) & (np.floor(y) == y)
        good &= (successes >= 0.0) & (successes <= trials)
    return _fault(good, f"at most {MOST_TRIALS:,.0f} trials a row")


def positive_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not finite or not above 0."""
    return _fault((y > 0.0) & np.isfinite(y), "finite numbers above 0")


def amount_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not finite or below 0."""
    return _fault((y >= 0.0) & np.isfinite(y), "finite numbers from 0")


def time_fault(model: Model, y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is no time above 0, or minus one of a model of censored times."""
    return positive_fault(np.abs(y) if model.censored else y)


def inner_fault(y: Vector) -> tuple[Index, str] | None:
    """Return where ``y`` is not between 0 and 1."""
    return _fault(
        (y > 0.0) & (y < 1.0),
        "shares between 0 and 1, neither of which the beta distribution has (leave such rows out, "
        "move them inside, as by (y (n - 1) + 0.5) / n, or model whether a share is 0 or 1 apart)",
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


def unexpected_offset(model: Model, found: str = "an offset") -> ModelError:
    """Return the error for rows with an offset that a model does not take."""
    return ModelError(
        f"expected rows without an offset for {model.name!r}, which has a linear predictor for "
        f"each category, found {found}: make the data set without it"
    )


def invalid_responses(
    model: Model, X: Matrix, y: Vector, trials: Vector | None = None
) -> tuple[Index, Vector, str] | None:
    """Return places of invalid responses, the responses, and what was expected; ``None``: none.

    Parameters
    ----------
    model
        The model.
    X, y
        (m, q) and (m,) rows; places are positions in ``y``. For groups, places are rows of their
        table.
    trials
        (m,) trials of the rows; ``None``: shares of them are not checked. Groups have those of
        their table.
    """
    if is_table_model(model):
        return model.fault(X)
    found = model.response_fault(y)
    if found is None and trials is not None:
        found = model.share_fault(y, trials)
    if found is None:
        return None
    at, expected = found
    return at, shares_of_trials(y[at])[1] if model.sees_trials else y[at], expected


def trials_of_weight(dataset: Dataset) -> float:
    """Return the trials of a row of weight 1; 0 if shares of trials need no check.

    The weights of rows are trials divided by the temperature T: weight 1 is T trials. A store made
    with trials needs no check: its proportions were computed from them.
    """
    stated = dataset.attributes.get("trials")
    return 0.0 if stated else dataset.temperature


def needs_response(model: Model) -> bool:
    """Return whether a data set without a response is refused."""
    return model.n_linear > 0 or model.joint is not None or is_mixed_model(model)


def response_check(dataset: Dataset, model: Model) -> Callable[[Matrix, Vector, Vector], None]:
    """Return a function of X, y and weights that raises ModelError for an invalid response."""
    per_weight = trials_of_weight(dataset)

    def check(X: Matrix, y: Vector, weight: Vector) -> None:
        trials = weight * per_weight if per_weight else None
        fault = invalid_responses(model, np.asarray(X, dtype=np.float64), y, trials)
        if fault is not None:
            _, values, expected = fault
            raise ModelError(
                f"{model.name}: expected {expected} in the column {dataset.response!r}, found "
                f"{values[0]:g}; correct the data or choose another model"
            )

    return check


def row_name(dataset: Dataset, row: int) -> str:
    """Return the name of row ``row`` of a store, such as ``the row with row_id 17231``.

    The index in a shuffled store does not identify a row of the table. It is used only where
    the store has no ids.
    """
    ids = dataset.row_ids(row, row + 1)
    if ids is None:
        return f"row {row} of the store, counted from 0"
    found = ids[0]
    shown = repr(found.decode("utf-8", "replace")) if isinstance(found, bytes) else str(found)
    column = dataset.attributes.get("row_id")
    source = "its place in the table, from 0" if column is None else f"column {column!r}"
    return f"the row with row_id {shown} ({source})"
