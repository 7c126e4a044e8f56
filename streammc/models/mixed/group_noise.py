"""Noise of group effects: how well the rows of a typical group determine them."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammc.models.mixed.table_model import TableModel
from streammc.protocols import Index, Matrix, Rows, Vector


def typical_noise(model: TableModel, rows: Rows, group: Index, theta: Vector) -> Vector:
    """Return the covariance of the noise with which groups see their effects.

    A group's information about its effects is ``I_g = sum_i w_i z_i z_i'``, with ``w_i`` minus the
    second derivative of the log-likelihood of row i in its predictor, at effects of 0.

    Parameters
    ----------
    rows, group
        Rows of some groups, and the number of the group (m,) of each, from 0 on.
    theta
        (d,) position, where groups count by how much they say about the effects' variance:
        by the square of ``tau^2 / (tau^2 + 1 / I_g)``.

    Returns
    -------
    (s,) for ``numerics.marginal_precision``: of an intercept the weighted median of ``1 / I_g``, of
    two effects the inverse of the weighted mean of ``I_g``; empty where groups have no information.
    """
    q, effects = model.n_features, len(model.effects)
    curve = np.maximum(row_curvature(model, rows, theta), 0.0)
    total = int(group.max(initial=-1)) + 1
    tau2 = np.exp(2.0 * theta[q + model.inner.n_scalar :][:effects])
    first = np.bincount(group, curve, total)
    seen = first > 0.0
    if not np.any(seen):
        return np.zeros(0)
    if effects == 1:
        noise = 1.0 / first[seen]
        weight = np.square(tau2[0] / (tau2[0] + noise))
        order = np.argsort(noise)
        half = np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())
        return np.array([noise[order][min(half, len(order) - 1)]])
    x = rows.X[:, model.features.index(model.slope or "")]
    both = [np.bincount(group, curve * part, total) for part in (np.ones(len(x)), x * x, x)]
    shrunk = [tau2[0] * both[0], tau2[1] * both[1]]
    weight = np.square(sum(part / (1.0 + part) for part in shrunk) / 2.0)
    mean = [np.average(part, weights=weight) for part in both] if weight.sum() > 0.0 else [0.0] * 3
    if not mean[0] * mean[1] > (1.0 + 1e-9) * mean[2] ** 2:
        return np.zeros(0)
    if not model.correlated:
        return np.array([1.0 / mean[0], 1.0 / mean[1]])
    inverse: Matrix = np.linalg.inv(np.array([[mean[0], mean[2]], [mean[2], mean[1]]]))
    return np.array([inverse[0, 0], inverse[1, 1], inverse[0, 1]])


def row_curvature(model: TableModel, rows: Rows, theta: Vector) -> Vector:
    """Return minus the weighted second derivative of each row (m,) in its linear predictor."""
    q, scalars = model.n_features, model.inner.n_scalar
    m, p = len(rows.y), 1 + scalars
    eta = np.empty((p, m))
    eta[0] = rows.X @ theta[:q] + rows.offset
    eta[1:] = theta[q : q + scalars, None]
    out = np.empty((1 + p + p * (p + 1) // 2, m))
    inner: Any = model.inner
    inner.link(eta, rows.X.T, rows.y, inner.constants, 2, out)
    curvature: Vector = np.where(rows.weight != 0.0, -rows.weight * out[1 + p], 0.0)
    return curvature
