"""Draws of the effects of groups for some rows: one for each draw of theta and group."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammc.models.mixed.mixed_model import TableModel
from streammc.prediction.effect_draws import draws_of_group
from streammc.prediction.group_draws import require_checked
from streammc.protocols import Index, Matrix, Rows

_AS_STORED = (0.0, 1.0)


def parts_of_groups(
    bound: TableModel, table: Any, at: Index, rows: Rows, theta: Matrix, seed: int
) -> Matrix:
    """Return (m, S) the part ``z . u`` of the predictor of rows from the effects of their groups.

    The effects are drawn from their exact posterior given theta and the rows of the group, so that
    (theta, u) is a draw of the joint posterior; rows of one group share them.

    Parameters
    ----------
    bound, table
        The mixed model with its table.
    at, rows
        Numbers (m,) of the rows in the table, and the rows.
    theta
        (S, d) draws.
    """
    require_checked(table, None)
    groups = np.searchsorted(table.groups.offset, at, side="right") - 1
    part = np.empty((len(at), len(theta)))
    for group in np.unique(groups).tolist():
        u = np.stack(list(draws_of_group(bound, group, theta, _AS_STORED, seed)))
        own = np.flatnonzero(groups == group)
        part[own] = u[:, 0]
        if bound.slope is not None:
            z = rows.X[own, bound.features.index(bound.slope)]
            part[own] += z[:, None] * u[:, 1]
    return part
