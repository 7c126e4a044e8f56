"""Quantiles of weighted draws; weights may be negative.

With weights ``w`` the distribution function of draws ``x`` is

    F(t) = sum over x_s <= t of w_s / sum of w_s.

With negative weights ``F`` is not monotone. The quantile at ``p`` is then the midpoint of the
first draw with ``F >= p`` and the first draw from which on ``F >= p`` holds throughout. With
positive weights the two draws are the same: the usual inverse of ``F``. Equal weights give
the quantiles of ``numpy.quantile``, which interpolates between two draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-12


def quantiles(
    values: NDArray[np.float64],
    probabilities: Sequence[float],
    weights: NDArray[np.float64] | None,
    *,
    overwrite: bool = False,
) -> NDArray[np.float64]:
    """Return quantiles over the last axis, ``(len(probabilities), ...)``, of draws (..., S).

    ``weights`` (S,) have a positive sum; ``None``: all equal. ``overwrite`` allows ``values`` to be
    sorted in place, which saves a copy.
    """
    levels = np.asarray(probabilities, dtype=np.float64)
    if weights is None or (weights == weights[0]).all():
        return _interpolated(values, levels, overwrite)
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    total = float(weights.sum())
    below = np.cumsum(weights[order], axis=-1)
    out = np.empty((len(levels), *values.shape[:-1]))
    last = values.shape[-1] - 1
    for k, p in enumerate(levels):
        reached = below >= p * total * (1.0 - _ROUNDING)
        first = reached.argmax(axis=-1)
        # The draw after the last draw with F < p.
        stays = np.minimum(last + 1 - (~reached[..., ::-1]).argmax(axis=-1), last)
        stays = np.where(reached.all(axis=-1), 0, stays)
        pair = [np.take_along_axis(ordered, i[..., None], -1)[..., 0] for i in (first, stays)]
        out[k] = pair[0] if (first == stays).all() else 0.5 * (pair[0] + pair[1])
    return out


def mean(values: NDArray[np.float64], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the weighted mean over the last axis; ``None`` as weights: all equal."""
    if weights is None:
        plain: NDArray[np.float64] = values.mean(axis=-1)
        return plain
    weighted: NDArray[np.float64] = values @ (weights / weights.sum())
    return weighted


def _interpolated(
    values: NDArray[np.float64], levels: NDArray[np.float64], overwrite: bool
) -> NDArray[np.float64]:
    """Return the quantiles of ``numpy.quantile`` by a sort, here faster than its partition."""
    n = values.shape[-1]
    position = levels * (n - 1)
    low = np.floor(position).astype(np.int64)
    high = np.minimum(low + 1, n - 1)
    ordered = values if overwrite else values.copy()
    ordered.sort(axis=-1)
    share = position - low
    out = np.empty((len(levels), *values.shape[:-1]))
    for k in range(len(levels)):
        a, b = ordered[..., low[k]], ordered[..., high[k]]
        out[k] = a if share[k] == 0.0 else a + (b - a) * share[k]
    return out
