"""Error of the quadrature over group effects: how much it varies over the posterior.

A constant error of the log-likelihood cancels in every ratio of densities. What biases a posterior
is its variation with theta, summed over all groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from streammc.errors import ModelError
from streammc.models.mixed.mixed_model import MOST_NODES
from streammc.models.mixed.table_model import TableModel
from streammc.protocols import Matrix, Model, Rows, Vector

LARGEST_VARIATION: Final = 0.01
"""Of the log-likelihood; above it a warning."""
REFUSED_VARIATION: Final = 0.1
_MORE_NODES: Final = 10
_POINTS: Final = 8


def quadrature_variation(
    model: TableModel, rows: Rows, theta: Matrix, n_groups: int
) -> tuple[float, int]:
    """Return the largest change of the error over points ``theta`` (S, d), and the nodes used.

    The error is the difference to ten more nodes per effect. ``rows`` are a sample of the groups;
    their sum is scaled to ``n_groups``. A Gaussian response has no error.
    """
    finer = replace(model, nodes=model.nodes + _MORE_NODES)
    errors = [_log_lik(finer, rows, each) - _log_lik(model, rows, each) for each in theta]
    with np.errstate(invalid="ignore"):
        sums = np.array([float(np.sum(rows.weight * error)) for error in errors])
    scale = n_groups / max(len(rows.y), 1)
    return float(np.max(np.abs(sums - sums.mean())) * scale), model.nodes


def quadrature_warnings(
    model: Model, rows: Rows, theta_star: Vector, deltas: Matrix, n_groups: int
) -> list[str]:
    """Return a warning if the error varies by more than 0.01; see :func:`quadrature_variation`.

    Raises
    ------
    ModelError
        If it varies by more than 0.1, or is not finite.
    """
    if not isinstance(model, TableModel):
        return []
    points = theta_star + np.concatenate([np.zeros((1, len(theta_star))), deltas[:_POINTS]])
    found, nodes = quadrature_variation(model, rows, points, n_groups)
    if found <= LARGEST_VARIATION:
        return []
    text = (
        f"expected an error of the quadrature over the effects of {model.column} that varies by "
        f"less than {LARGEST_VARIATION} over the posterior, found {found:.2g} with {nodes} nodes: "
        f"use more, --option nodes={min(2 * nodes + 1, MOST_NODES)}"
    )
    if not found <= REFUSED_VARIATION:
        raise ModelError(text)
    return [text]


def _log_lik(model: TableModel, rows: Rows, theta: Vector) -> Vector:
    """Return the log-likelihoods (m,) of the groups ``rows`` at ``theta``."""
    m = len(rows.y)
    out = np.empty((1, m))
    eta = np.repeat(theta[:, None], m, axis=1)
    model.link(eta, rows.X.T, np.ascontiguousarray(rows.y), model.constants, 0, out)
    values: Vector = out[0]
    return values
