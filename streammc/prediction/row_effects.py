"""Effects of the groups of rows that are predicted: known groups and new ones.

Given a draw of theta, the effect of a group in the data of the run has its posterior there, a
quadrature rule by the nodes of its likelihood; that of a new group is Normal(0, Sigma). A row has
the part ``w = u_1 + z u_2`` of its linear predictor from its group, ``z`` the slope's column.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.models.mixed.group_constants import GAUSSIAN, KIND, NODES
from streammc.models.mixed.group_posterior import table_nodes
from streammc.models.mixed.table_link import TABLE
from streammc.models.mixed.table_model import TableModel
from streammc.prediction.label_index import UNKNOWN, LabelIndex, label_text
from streammc.protocols import Index, Matrix, Vector

_NORMAL_NODES: Final = 15
"""Nodes for the mean response where the effect is normal."""
SCORE_NODES: Final = 61
"""The same for the density of a response, which may be narrow beside the effect."""
_CACHE_BYTES: Final = 2**27
"""Nodes of groups that are kept for the next rows: 5,000 groups at 100 draws and 15 nodes."""
_MOST_SKEW: Final = 1.0

Cube = NDArray[np.float64]


class GroupPart(NamedTuple):
    """Distribution of the group's part w of the predictors of m rows, at each of S draws."""

    values: Cube
    """(m, S, Q) values of w."""
    shares: Cube
    """(m, S, Q) their weights, of sum 1."""
    normal: NDArray[np.bool_]
    """(m,) where w is normal."""
    mean: Matrix
    """(m, S)"""
    sd: Matrix
    skewness: Matrix


@dataclass(eq=False)
class RowEffects:
    """Effects of the groups of the rows of a table, at draws of theta.

    Parameters
    ----------
    theta
        (S, d) draws, on the scale of the store of the run.
    table
        The table that is predicted.
    covariance
        (S, 3) of the effects of a new group: variance of intercept, covariance, variance of slope.
    slope
        Column of the slope, and scale and shift that turn it into that of the run's store;
        ``None`` without one.
    known
        The model with the data of the run; ``None`` if all groups are new.
    same
        Whether ``table`` is the data of the run.
    integrate
        Whether rows of new groups are predicted, or refused.
    """

    theta: Matrix
    table: Any
    covariance: Matrix
    slope: tuple[int, float, float] | None
    known: TableModel | None
    same: bool
    integrate: bool
    index: LabelIndex | None = None
    _cache: OrderedDict[int, Cube] = field(default_factory=OrderedDict)
    _constants: Vector | None = None
    _lock: Any = field(default_factory=Lock)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker of a cluster needs: no addresses of this process, no lock."""
        return vars(self) | {"_cache": OrderedDict(), "_constants": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore with a lock of this process."""
        vars(self).update(state, _lock=Lock())

    @property
    def spread(self) -> float:
        """Standard deviation of the intercept of a new group, at the mean draw."""
        return float(np.sqrt(self.covariance[:, 0].mean()))

    @property
    def nodes(self) -> int:
        """Largest number of values of w of a row and draw."""
        if self.known is None or self._is_gaussian():
            return _NORMAL_NODES
        return max(self._node_count(), _NORMAL_NODES)

    def groups_of(self, start: int, stop: int) -> Index:
        """Return the number of the group of each row, or ``UNKNOWN``.

        Raises
        ------
        DataError
            If a row is of a new group and these are to be refused.
        """
        if self.same:
            offset = self.table.groups.offset
            found: Index = np.searchsorted(offset, np.arange(start, stop), side="right") - 1
            return found
        labels = self.table.row_groups(start, stop)
        if labels is None or self.index is None:
            found = np.full(stop - start, UNKNOWN)
        else:
            found = self.index.find(labels)
        if not self.integrate and (found == UNKNOWN).any():
            row = int(np.flatnonzero(found == UNKNOWN)[0])
            label = "no label" if labels is None else repr(label_text(labels[row]))
            raise DataError(
                f"expected rows of groups that the run has seen, found {label} in row "
                f"{start + row + 1} of {self.table.address!r}: leave such rows out, or predict "
                "them as rows of new groups with new_groups integrate"
            )
        return found

    def of_rows(self, groups: Index, X: NDArray[Any], normal_nodes: int = 0) -> GroupPart:
        """Return the distribution of w for rows ``X`` (m, q) of these groups (m,).

        ``normal_nodes``: number of values where w is normal; 0 for the usual number.
        """
        m, draws = len(groups), len(self.theta)
        z, weights = np.polynomial.hermite_e.hermegauss(normal_nodes or _NORMAL_NODES)
        weights /= weights.sum()
        known = np.unique(groups[groups != UNKNOWN])
        found = self._nodes_of(known)
        gaussian = self.known is not None and self._is_gaussian()
        size = max(len(z), 0 if gaussian or not len(known) else self._node_count())
        part = GroupPart(
            np.zeros((m, draws, size)),
            np.zeros((m, draws, size)),
            np.full(m, gaussian) | (groups == UNKNOWN),
            np.zeros((m, draws)),
            np.zeros((m, draws)),
            np.zeros((m, draws)),
        )
        carrier = self._carrier(X)
        new = groups == UNKNOWN
        part.sd[new] = np.sqrt(_quadratic(self.covariance.T, carrier[new, None]))
        for group, nodes in zip(known, found, strict=True):
            rows = np.flatnonzero(groups == group)
            w, share = nodes[None, :, 0], nodes[:, -1]
            if self.slope is not None:
                w = w + carrier[rows, None, None] * nodes[:, 1]
            mean = (w * share).sum(axis=-1)
            away = w - mean[..., None]
            square = share * away * away
            sd = np.sqrt(square.sum(axis=-1))
            part.mean[rows], part.sd[rows] = mean, sd
            if gaussian:
                continue
            third = (square * away).sum(axis=-1)
            part.skewness[rows] = third / np.maximum(sd, 1e-100) ** 3
            part.values[rows, :, : w.shape[-1]] = w
            part.shares[rows, :, : w.shape[-1]] = share
        normal = part.normal
        part.values[normal, :, : len(z)] = (
            part.mean[normal][..., None] + part.sd[normal][..., None] * z
        )
        part.shares[normal, :, : len(z)] = weights
        return part

    def _carrier(self, X: NDArray[Any]) -> Vector:
        """Return the slope's column (m,) on the scale of the store of the run; 0 without one."""
        if self.slope is None:
            return np.zeros(len(X))
        column, scale, shift = self.slope
        found: Vector = np.asarray(X[:, column], dtype=np.float64) * scale + shift
        return found

    def _is_gaussian(self) -> bool:
        return bool(self._own()[TABLE + KIND] == GAUSSIAN)

    def _node_count(self) -> int:
        assert self.known is not None
        per_effect = int(self._own()[TABLE + NODES])
        return per_effect if len(self.known.effects) == 1 else per_effect * per_effect

    def _own(self) -> Vector:
        """Return the constants of the run's groups, with addresses of this process."""
        assert self.known is not None
        if self._constants is None:
            self._constants = self.known.constants
        return self._constants

    def _nodes_of(self, groups: Index) -> list[Cube]:
        """Return the nodes (S, effects + 1, Q) of each of some known groups."""
        if not len(groups):
            return []
        assert self.known is not None
        with self._lock:
            kept = {int(g): self._cache[g] for g in groups.tolist() if g in self._cache}
        missing = np.array([g for g in groups.tolist() if g not in kept], np.int64)
        if len(missing):
            offset = self.known.table.groups.offset
            first, last = offset[missing], offset[missing + 1]
            places = np.stack([first, last - first]).astype(np.float64)
            effects = len(self.known.effects)
            out = np.empty((len(missing), len(self.theta), effects + 1, self._node_count()))
            table_nodes(self.theta, places, self._own(), out)
            wrong = np.flatnonzero(~np.isfinite(out).all(axis=(1, 2, 3)))
            if len(wrong):
                raise DataError(
                    "expected a finite likelihood of every group at the draws of the run, found "
                    f"none of group {int(missing[wrong[0]]) + 1} of {self.known.column!r}, in the "
                    "order of the store of the run: check its columns"
                )
            kept |= {g: nodes.copy() for g, nodes in zip(missing.tolist(), out, strict=True)}
        with self._lock:
            for g in groups.tolist():
                self._cache[g] = kept[g]
                self._cache.move_to_end(g)
            size = next(iter(kept.values())).nbytes
            while len(self._cache) * size > _CACHE_BYTES:
                self._cache.popitem(last=False)
        return [kept[g] for g in groups.tolist()]


def quantile_points(part: GroupPart, levels: Matrix) -> Cube:
    """Return quantiles (m, S, J) of w at ``levels`` (S, J): normal, corrected for skewness.

    The first terms of the expansion of Cornish and Fisher (1938).
    """
    from scipy.special import ndtri

    z = ndtri(levels)
    skewness = np.clip(part.skewness, -_MOST_SKEW, _MOST_SKEW)[..., None]
    found: Cube = part.mean[..., None] + part.sd[..., None] * (z + (z * z - 1.0) * skewness / 6.0)
    return found


def _quadratic(covariance: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of ``u_1 + z u_2``, of rows ``z`` (m, 1) and draws (3, S)."""
    total: NDArray[np.float64] = covariance[0] + z * (2.0 * covariance[1] + z * covariance[2])
    return np.maximum(total, 0.0)
