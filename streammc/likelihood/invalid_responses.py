"""Responses outside the support of a model, in rows or in the rows of groups; names of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streammc.errors import ModelError
from streammc.models.mixed.effect_terms import is_mixed_model, is_table_model
from streammc.protocols import Dataset, Index, Matrix, Model, Vector


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
    return None if found is None else (found[0], y[found[0]], found[1])


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
