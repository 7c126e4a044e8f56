"""Transfer of draws to the design of a table other than the store of their run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import IdentityError, StoreError
from streammc.prediction.mean_responses import Coefficients
from streammc.protocols import Model, Vector

_LIKE: Final = "ingest the table with --like the store of the run"
_UNNAMED: Final = "offset"
"""Name of an offset that was given as an array of Dask or xarray."""
_TERMS: Final = re.compile(r" \+ (?=offset\()")
"""What joins the offsets of a formula in the name of its offset."""


def check(run: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """Refuse a table whose columns are not those of the run.

    Parameters
    ----------
    run, table
        Results of ``runs.design.describe``. Their standardisations may differ:
        :func:`on_table` transforms the draws.

    Returns
    -------
    list of str
        Warnings of names that differ where the quantities may be the same.

    Raises
    ------
    IdentityError
        If they differ; the message names the first difference.
    """
    ours, theirs = list(run["features"]), list(table["features"])
    if ours != theirs:
        pairs = zip(ours, theirs, strict=False)
        wrong = next((pair for pair in pairs if pair[0] != pair[1]), None)
        expected = (
            f"the features of the run, such as {wrong[0]!r}, found {wrong[1]!r}"
            if wrong
            else f"the {len(ours)} features of the run, found {len(theirs)}"
        )
        raise IdentityError(f"expected {expected} in the store: {_LIKE}")
    found = _compared_names(run, table)
    mine, other = run["formula"] or {}, table["formula"] or {}
    for key in ("states", "columns"):
        if mine.get(key, {}) != other.get(key, {}):
            raise IdentityError(
                f"expected the knots, levels and kinds that the run's formula "
                f"{mine.get('text')!r} was fitted with, found others in the store: {_LIKE}"
            )
    # Trials belong to the response, which a table to predict may lack.
    for key in ("offset", "trials") if table.get("response") is not None else ("offset",):
        if (run[key] is None) != (table[key] is None):
            raise IdentityError(
                f"expected {'no ' * (run[key] is None)}{key} as in the store of the run, found "
                f"{table[key] or 'none'}: {_LIKE}"
            )
    return found


def _compared_names(run: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """Refuse another offset, and another expression of the response; return warnings.

    A run of an earlier version has no name of its response, and a table to predict may have none.
    """
    found = []
    for key, effect in (("offset", "the predictions"), ("response", "the scores")):
        mine, other = run.get(key), table.get(key)
        if mine is None or other is None or _same(run, table, key):
            continue
        plain = not (run["formula"] or table["formula"])
        if not (plain and (key == "response" or _UNNAMED in (mine, other))):
            raise IdentityError(
                f"expected the {key} {mine!r} of the run, found {other!r} in the store: {_LIKE}"
            )
        found.append(
            f"the {key} of the table is {other!r}, that of the run {mine!r}: {effect} hold only "
            "if both are the same quantity"
        )
    return found


def _same(run: Mapping[str, Any], table: Mapping[str, Any], key: str) -> bool:
    """Return whether two designs have the same response, or the same offsets in any order."""
    mine, other = (_TERMS.split(each[key]) for each in (run, table))
    texts = [(each["formula"] or {}).get("text") for each in (run, table)]
    stated = key == "response" or all(name[0].startswith("offset(") for name in (mine, other))
    same_formula = texts[0] is not None and texts[0] == texts[1]
    return sorted(mine) == sorted(other) or (same_formula and stated)


def on_table(
    model: Model,
    theta: NDArray[np.float64],
    weights: Vector | None,
    run: Mapping[str, Any],
    table: Mapping[str, Any],
) -> Coefficients:
    """Return the coefficients of draws ``theta`` (S, d) for the standardisation of a table.

    The predictor of the run is ``sum_j b_j z_j`` with ``z = (x - mean) / scale``. For a table
    with ``z' = (x - mean') / scale'`` the slopes are ``b_j scale'_j / scale_j`` and the shift
    is ``sum_j b_j (mean'_j - mean_j) / scale_j``.
    """
    q = len(run["features"])
    mean, scale = standardization(run, q)
    other_mean, other_scale = standardization(table, q)
    linear = theta[:, : model.n_linear * q].reshape(len(theta), model.n_linear, q)
    slopes = np.ascontiguousarray(linear.transpose(1, 0, 2))
    shifts = slopes @ ((other_mean - mean) / scale)
    return Coefficients(
        np.ascontiguousarray(slopes * (other_scale / scale)),
        shifts,
        np.ascontiguousarray(theta[:, model.n_linear * q :].T),
        weights,
    )


def standardization(design: Mapping[str, Any], q: int) -> tuple[Vector, Vector]:
    """Return mean and scale (q,) of the columns of a design; 0 and 1 if it has none."""
    table = design["standardization"]
    if table is None:
        return np.zeros(q), np.ones(q)
    mean, scale = (np.asarray(table[key], dtype=np.float64) for key in ("mean", "scale"))
    good = mean.shape == scale.shape == (q,) and np.isfinite([mean, scale]).all()
    if not good or not (scale > 0).all():
        raise StoreError(
            f"expected a mean and a positive scale for each of {q} features, found others: "
            "verify the store"
        )
    return mean, scale
