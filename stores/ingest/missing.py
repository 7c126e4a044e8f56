"""Rows of a block that have a missing value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Matrix, Vector


def row_sums(values: Matrix) -> Vector:
    """Return the sum of each column of a block (c, m); a finite sum has only finite terms."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums: Vector = values.sum(axis=1)
    return sums


def kept_rows(values: Matrix) -> NDArray[np.intp]:
    """Return the indices of the rows of a block (c, m) without a missing value."""
    if np.isfinite(row_sums(values)).all():
        return np.arange(values.shape[1])
    return np.flatnonzero(~np.isnan(values).any(axis=0))


def drop_missing_rows(values: Matrix) -> Matrix:
    """Return the rows of a block (c, m) that have no missing value."""
    kept = kept_rows(values)
    return values[:, kept] if kept.size < values.shape[1] else values
