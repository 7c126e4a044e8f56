"""Sums of the expansion over rows with codes, by level; their change to sums of all columns.

A row of the design is ``x = B u + o``: ``u`` has the dense columns and the 0/1 indicators of
levels, ``B`` is diagonal with ``on - off``, and ``o`` has ``off`` in the columns of levels. With
``c`` the second derivative of a row in its linear predictor,

    sum c x x' = B (sum c u u') B + (B s) o' + o (B s)' + (sum c) o o',    s = sum c u.

Sums over ``u`` cost by the number of factors and not of levels (:mod:`level_kernel`).
"""

from __future__ import annotations

from typing import Final

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
        count = np.zeros(0, np.int64) if columns is None else columns.width
        widths = count + 1
        self.first: Index = np.concatenate([[0], np.cumsum(widths)[:-1]])[: len(widths)]
        p = self._p = 1 + n_scalar
        dense = 0 if columns is None else len(columns.place)
        self._half = -(-dense // 4) * 4 + p + 1
        self.sums = np.zeros((int(widths.sum()), 2 * self._half))
        sizes = np.triu(np.outer(widths, widths), 1).reshape(-1)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self.cross: Index = np.concatenate([starts[:-1], widths]).astype(np.int64)
        self.crosses = np.zeros((2, int(starts[-1])))
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

    def _products(self, points: Matrix) -> Matrix:
        """Return what each code adds to the linear predictor at each point, (levels, R)."""
        R = (1 + len(points)) // 2 * 2
        found = np.zeros((len(self.sums), R))
        if self.columns is None:
            return found
        for row, first, count in zip(
            self.first, self.columns.first, self.columns.width, strict=True
        ):
            here = slice(first, first + count)
            on, off = self.columns.on[here], self.columns.off[here]
            block = found[row : row + count + 1, : len(points)]
            block[:] = points[:, here] @ off
            block[1:] += (points[:, here] * (on - off)).T
        return found

    def totals(self, dense: Matrix) -> Matrix:
        """Return sums (2, 1 + d + d d) over all columns from those over the dense ones.

        Log-likelihood, gradient and upper half of the Hessian, as high and low parts. The change
        is linear, so that both parts change alike.
        """
        if self.columns is None:
            return dense
        low = self.sums[:, self._half :]
        parts = zip(dense, (self.sums[:, : self._half], low), self.crosses, strict=True)
        return np.stack([self._widened(*part) for part in parts])

    def _widened(self, dense: Vector, sums: Matrix, crosses: Vector) -> Vector:
        columns, p = self.columns, self._p
        assert columns is not None
        q, n_dense = len(columns.on), len(columns.place)
        d, d_dense = q + p - 1, n_dense + p - 1
        at, q4 = columns.place, -(-n_dense // 4) * 4
        kept = np.concatenate([at, np.arange(q, d)])
        slope, hessian = np.zeros(d), np.zeros((d, d))
        slope[kept] = dense[1 : 1 + d_dense]
        hessian[np.ix_(kept, kept)] = dense[1 + d_dense :].reshape(d_dense, d_dense)
        hessian[:q, :q] += np.triu(hessian[:q, :q], 1).T
        s = np.zeros(q)
        whole = sums[self.first[0] : self.first[0] + columns.width[0] + 1].sum(axis=0)
        s[at] = whole[:n_dense]
        for k, (row, first, count) in enumerate(
            zip(self.first, columns.first, columns.width, strict=True)
        ):
            here, own = slice(first, first + count), sums[row + 1 : row + count + 1]
            hessian[here, at] = own[:, :n_dense]
            hessian[at, here] = own[:, :n_dense].T
            np.fill_diagonal(hessian[here, here], own[:, q4])
            s[here] = own[:, q4]
            slope[here] = own[:, q4 + 1]
            hessian[here, q:] = own[:, q4 + 2 : q4 + 1 + p]
            self._add_crosses(k, crosses, hessian)
        scale = columns.on - columns.off
        linear = hessian[:q, :q]
        linear *= scale[:, None] * scale
        linear += np.outer(scale * s, columns.off)
        linear += np.outer(columns.off, scale * s + whole[q4] * columns.off)
        slope[:q] = scale * slope[:q] + whole[q4 + 1] * columns.off
        hessian[:q, q:] = scale[:, None] * hessian[:q, q:] + np.outer(
            columns.off, whole[q4 + 2 : q4 + 1 + p]
        )
        return np.concatenate([dense[:1], slope, np.triu(hessian).reshape(-1)])

    def _add_crosses(self, k: int, crosses: Vector, hessian: Matrix) -> None:
        """Write the entries of the pairs of levels of factor ``k`` with later factors."""
        assert self.columns is not None
        first, count = self.columns.first, self.columns.width
        K = len(first)
        for l in range(k + 1, K):
            start, shape = self.cross[k * K + l], (count[k] + 1, count[l] + 1)
            pairs = crosses[start : start + shape[0] * shape[1]].reshape(shape)[1:, 1:]
            rows = slice(first[k], first[k] + count[k])
            columns = slice(first[l], first[l] + count[l])
            hessian[rows, columns] = pairs
            hessian[columns, rows] = pairs.T
