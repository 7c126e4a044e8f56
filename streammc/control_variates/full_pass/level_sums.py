"""Sums of the expansion over rows with codes, by level; their change to sums of all columns.

A row of the design is ``x = B u + o``: ``u`` has the dense columns and the 0/1 indicators of
levels, ``B`` is diagonal with ``on - off``, and ``o`` has ``off`` in the columns of levels. With
``c`` the second derivative of a row in its linear predictor,

    sum c x x' = B (sum c u u') B + (B s) o' + o (B s)' + (sum c) o o',    s = sum c u.

Sums over ``u`` cost by the number of factors and not of levels (:mod:`level_kernel`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.protocols import Index, Matrix, Model, Vector

_NONE: Final = np.empty((0, 0), np.uint16)


def takes_codes(model: Model) -> bool:
    """Return whether sums by level are possible: one linear predictor, and no look at columns."""
    return model.n_linear == 1 and not getattr(model, "sees_columns", False)


class LevelSums:
    """Sums by level, of a model with one linear predictor.

    Parameters
    ----------
    columns
        The columns of the design; ``None`` for a design without codes, which has no sums here.
    points
        (1 + S, d) parameters at which rows are evaluated: theta, and the S shifts.
    n_scalar
        Scalar parameters of the model.
    """

    def __init__(self, columns: CodedColumns | None, points: Matrix, n_scalar: int) -> None:
        self.columns = columns
        width = np.zeros(0, np.int64) if columns is None else columns.width
        self.first, self.cross = _places(width)
        self._n_scalar = n_scalar
        self._half = 0 if columns is None else _sums_of_level(columns, n_scalar)
        self.sums = np.zeros((int((width + 1).sum()), 2 * self._half))
        self.crosses = np.zeros((2, _n_pairs(width)))
        self.products = self._products(points)

    def dense(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the components (.., dense + scalars) of ``vectors`` (.., d) without levels."""
        if self.columns is None:
            return vectors
        q = len(self.columns.on)
        parts = [vectors[..., self.columns.place], vectors[..., q:]]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def codes(self, X: NDArray[np.float64] | CodedMatrix) -> NDArray[np.uint16]:
        """Return the codes (m, K) of rows, read-only."""
        codes = X.codes if isinstance(X, CodedMatrix) else _NONE
        view = np.ascontiguousarray(codes).view()
        view.flags.writeable = False
        return view

    def flat(self, dense: Matrix) -> Matrix:
        """Return the sums of dense columns (2, ..), of levels and of pairs as one (2, N)."""
        if self.columns is None:
            return dense
        parts = [self.sums[:, : self._half], self.sums[:, self._half :]]
        levels = np.stack([part.reshape(-1) for part in parts])
        return np.concatenate([dense, levels, self.crosses], axis=1)

    def expansion(self, totals: Matrix, dim: int) -> tuple[float, Vector, Matrix]:
        """Return log-likelihood, gradient and Hessian in all columns; ``dim`` without levels."""
        if self.columns is None:
            return expansion_of(totals, dim)
        return wide_expansion(self.columns, self._n_scalar, totals)

    def _products(self, points: Matrix) -> Matrix:
        """Return what each code adds to the linear predictor at each point, (levels, R)."""
        R = (1 + len(points)) // 2 * 2
        found = np.zeros((len(self.sums), R))
        if self.columns is None:
            return found
        for row, here in zip(self.first, _slices(self.columns), strict=True):
            on, off = self.columns.on[here], self.columns.off[here]
            block = found[row : row + len(on) + 1, : len(points)]
            block[:] = points[:, here] @ off
            block[1:] += (points[:, here] * (on - off)).T
        return found


def expansion_of(totals: NDArray[np.float64], dim: int) -> tuple[float, Vector, Matrix]:
    """Return log-likelihood, gradient and Hessian from compensated totals."""
    with np.errstate(invalid="ignore"):
        both = totals[0] + totals[1]
    upper = np.triu(both[1 + dim :].reshape(dim, dim))
    return float(both[0]), both[1 : 1 + dim], upper + np.triu(upper, 1).T


def wide_expansion(
    columns: CodedColumns, n_scalar: int, totals: Matrix
) -> tuple[float, Vector, Matrix]:
    """Return log-likelihood, gradient and Hessian in all columns, from ``LevelSums.flat``."""
    with np.errstate(invalid="ignore"):
        both = totals[0] + totals[1]
    p, q, at = 1 + n_scalar, len(columns.on), columns.place
    d, n_dense = q + n_scalar, len(at)
    d_dense = n_dense + n_scalar
    end = 1 + d_dense + d_dense**2
    first, cross = _places(columns.width)
    shape = (int((columns.width + 1).sum()), _sums_of_level(columns, n_scalar))
    levels = both[end : end + shape[0] * shape[1]].reshape(shape)
    pairs = both[end + shape[0] * shape[1] :]
    kept = np.concatenate([at, np.arange(q, d)])
    slope, hessian, s = np.zeros(d), np.zeros((d, d)), np.zeros(q)
    slope[kept] = both[1 : 1 + d_dense]
    upper = np.triu(both[1 + d_dense : end].reshape(d_dense, d_dense))
    hessian[np.ix_(kept, kept)] = upper + np.triu(upper, 1).T
    whole = levels[: columns.width[0] + 1].sum(axis=0)
    s[at] = whole[:n_dense]
    own = _Columns(-(-n_dense // 4) * 4, p)
    for row, here in zip(first, _slices(columns), strict=True):
        block = levels[row + 1 : row + 1 + here.stop - here.start]
        hessian[here, at] = block[:, :n_dense]
        hessian[at, here] = block[:, :n_dense].T
        np.fill_diagonal(hessian[here, here], block[:, own.bend])
        s[here] = block[:, own.bend]
        slope[here] = block[:, own.slope]
        hessian[here, q:] = block[:, own.mixed]
    _add_pairs(columns, cross, pairs, hessian)
    scale, off = columns.on - columns.off, columns.off
    linear = hessian[:q, :q]
    linear *= scale[:, None]
    linear *= scale
    linear += np.outer(scale * s, off)
    linear += np.outer(off, scale * s + whole[own.bend] * off)
    slope[:q] = scale * slope[:q] + whole[own.slope] * off
    hessian[:q, q:] = scale[:, None] * hessian[:q, q:] + np.outer(off, whole[own.mixed])
    hessian[q:, :q] = hessian[:q, q:].T
    lower = np.tril_indices(q, -1)
    linear[lower] = linear.T[lower]
    return float(both[0]), slope, hessian


class _Columns:
    """Columns of the sums of a level, after those of c z; see ``level_kernel.sum_levels``."""

    def __init__(self, start: int, p: int) -> None:
        self.bend, self.slope = start, start + 1
        self.mixed = slice(start + 2, start + 1 + p)


def _places(width: Index) -> tuple[Index, Index]:
    """Return the arrays ``first`` and ``cross`` of ``level_kernel.sum_levels``."""
    widths = width + 1
    sizes = np.triu(np.outer(widths, widths), 1).reshape(-1)
    starts = np.cumsum(sizes) - sizes
    return np.cumsum(widths) - widths, np.concatenate([starts, widths]).astype(np.int64)


def _n_pairs(width: Index) -> int:
    return int(np.triu(np.outer(width + 1, width + 1), 1).sum())


def _sums_of_level(columns: CodedColumns, n_scalar: int) -> int:
    """Return the number of sums of a level, without low parts."""
    return -(-len(columns.place) // 4) * 4 + 2 + n_scalar


def _slices(columns: CodedColumns) -> list[slice]:
    """Return the columns of each factor."""
    return [slice(a, a + n) for a, n in zip(columns.first, columns.width, strict=True)]


def _add_pairs(columns: CodedColumns, cross: Index, pairs: Vector, hessian: Any) -> None:
    """Write the entries of pairs of levels of different factors."""
    blocks, K = _slices(columns), len(columns.first)
    for k in range(K):
        for l in range(k + 1, K):
            shape = (columns.width[k] + 1, columns.width[l] + 1)
            start = cross[k * K + l]
            table = pairs[start : start + shape[0] * shape[1]].reshape(shape)[1:, 1:]
            hessian[blocks[k], blocks[l]] = table
            hessian[blocks[l], blocks[k]] = table.T
