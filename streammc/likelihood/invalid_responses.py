"""Responses outside the support of a model, in rows or in the rows of groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streammc.errors import ModelError
from streammc.models.mixed.recognise import is_mixed_model, is_table_model
from streammc.protocols import Dataset, Index, Matrix, Model, Vector


def invalid_responses(model: Model, X: Matrix, y: Vector) -> tuple[Index, Vector, str] | None:
    """Return places of invalid responses, the responses, and what was expected; ``None``: none.

    Parameters
    ----------
    model
        The model.
    X, y
        (m, q) and (m,) rows. Where they are groups, the places are rows of their table, else
        positions in ``y``.
    """
    if is_table_model(model):
        return model.fault(X)
    found = model.response_fault(y)
    return None if found is None else (found[0], y[found[0]], found[1])


def needs_response(model: Model) -> bool:
    """Return whether a data set without a response is refused."""
    return model.n_linear > 0 or model.joint is not None or is_mixed_model(model)


def response_check(dataset: Dataset, model: Model) -> Callable[[Matrix, Vector], None]:
    """Return a function of rows that raises ModelError for a response outside the support."""

    def check(X: Matrix, y: Vector) -> None:
        fault = invalid_responses(model, np.asarray(X, dtype=np.float64), y)
        if fault is not None:
            _, values, expected = fault
            raise ModelError(
                f"{model.name}: expected {expected} in the column {dataset.response!r}, found "
                f"{values[0]:g}; correct the data or choose another model"
            )

    return check
