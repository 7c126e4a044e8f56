"""Effects of the groups of rows that are predicted: known groups and new ones.

Given a draw of theta, the effect of a group in the data of the run has its posterior there, a
quadrature rule by the nodes of its likelihood; that of a new group is Normal(0, Sigma). A row has
the part ``w = u_1 + z u_2`` of its linear predictor from its group, ``z`` the slope's column.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.models.mixed.group_constants import EXACT_NODES, PANEL_CELLS, PANELS
from streammc.models.mixed.group_effects import node_quantiles, table_nodes
from streammc.models.mixed.mixed_model import TableModel
from streammc.prediction.label_index import UNKNOWN, LabelIndex, label_text
from streammc.protocols import Index, Matrix, Vector

_CACHE_BYTES: Final = 2**27
"""Nodes of groups that are kept for the next rows: 5,000 groups at 100 draws and 15 nodes."""
_USUAL_NODES: Final = 15
_EVEN: Final = 0.25
"""Largest skewness and excess kurtosis of intercepts whose quantiles follow from four moments."""
_EVEN_OF_TWO: Final = 0.7
"""The same of one of two effects: nodes of two are not dense."""
_PANEL_ROOM: Final = 256
_DENSE_OF_TWO: Final = 25
"""Nodes for each of intercept and slope where quantiles are those of the nodes."""

Cube = NDArray[np.float64]


class GroupPart(NamedTuple):
    """Distribution of the group's part w of the predictors of some rows, at each of S draws."""

    rows: Index
    """(k,) which of the rows."""
    mean: Matrix
    """(k, S)"""
    sd: Matrix
    skewness: Matrix
    kurtosis: Matrix
    """Excess kurtosis."""
    values: Cube | None
    """(k, S, Q) values of w; ``None``: it is normal."""
    shares: Cube | None
    """(k, S, Q) their weights, of sum 1."""
    dense: bool = False
    """Whether the values are so many that quantiles are theirs."""


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
    _constants: dict[int, Vector] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker of a cluster needs: no addresses of this process, no lock."""
        return vars(self) | {"_cache": OrderedDict(), "_constants": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore with a lock of this process."""
        vars(self).update(state, _lock=Lock())

    @property
    def spread(self) -> float:
        """Standard deviation of the intercept of a new group, at the mean draw."""
        return float(np.sqrt(self.covariance[:, 0].mean()))

    @property
    def nodes(self) -> int:
        """Usual number of values of w of a row and draw."""
        if self.known is None or self.known.inner.name == "gaussian":
            return _USUAL_NODES
        return max(node_room(self.known), _USUAL_NODES)

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

    def of_rows(self, groups: Index, X: NDArray[Any]) -> list[GroupPart]:
        """Return the distribution of w for rows ``X`` (m, q) of these groups (m,), in parts."""
        carrier = self._carrier(X)
        new = np.flatnonzero(groups == UNKNOWN)
        sd = self.spread_of_new(X[new])
        zero = np.zeros(sd.shape)
        parts = [GroupPart(new, zero, sd, zero, zero, None, None)] if len(new) else []
        known = np.unique(groups[groups != UNKNOWN])
        by_size: dict[int, list[tuple[Index, Cube, Cube]]] = {}
        for group, nodes in zip(known, self._nodes_of(known), strict=True):
            rows = np.flatnonzero(groups == group)
            w = np.broadcast_to(nodes[None, :, 0], (len(rows), *nodes[:, 0].shape))
            if self.slope is not None:
                w = w + carrier[rows, None, None] * nodes[:, 1]
            share = np.broadcast_to(nodes[:, -1], w.shape)
            by_size.setdefault(w.shape[-1], []).append((rows, w, share))
        gaussian = self.known is not None and self.known.inner.name == "gaussian"
        for size, found in sorted(by_size.items()):
            rows, values, shares = (
                np.ascontiguousarray(np.concatenate(each)) for each in zip(*found, strict=True)
            )
            mean = (values * shares).sum(axis=-1)
            away = values - mean[..., None]
            square = shares * away * away
            sd = np.sqrt(square.sum(axis=-1))
            if gaussian:
                zero = np.zeros(sd.shape)
                parts.append(GroupPart(rows, mean, sd, zero, zero, None, None))
                continue
            unit = away / np.maximum(sd, 1e-100)[..., None]
            skewness = (shares * unit**3).sum(axis=-1)
            kurtosis = (shares * unit**4).sum(axis=-1) - 3.0
            assert self.known is not None
            dense = size >= _dense_room(self.known)
            parts.append(GroupPart(rows, mean, sd, skewness, kurtosis, values, shares, dense))
        return parts

    def spread_of_new(self, X: NDArray[Any]) -> Matrix:
        """Return the standard deviations (m, S) of w for rows of new groups."""
        found: Matrix = np.sqrt(_quadratic(self.covariance.T, self._carrier(X)[:, None]))
        return found

    def _carrier(self, X: NDArray[Any]) -> Vector:
        """Return the slope's column (m,) on the scale of the store of the run; 0 without one."""
        if self.slope is None:
            return np.zeros(len(X))
        column, scale, shift = self.slope
        found: Vector = np.asarray(X[:, column], dtype=np.float64) * scale + shift
        return found

    def _nodes_of(self, groups: Index) -> list[Cube]:
        """Return the nodes (S, effects + 1, Q) of each of some known groups."""
        if not len(groups):
            return []
        assert self.known is not None
        with self._lock:
            kept = {int(g): self._cache[g] for g in groups.tolist() if g in self._cache}
        missing = np.array([g for g in groups.tolist() if g not in kept], np.int64)
        if len(missing):
            usual = self._computed(missing, self.known, node_room(self.known))
            kept |= {g: nodes.copy() for g, nodes in zip(missing.tolist(), usual, strict=True)}
            odd = missing[_uneven(usual, _EVEN if self.slope is None else _EVEN_OF_TWO)]
            if len(odd) and self.known.inner.name != "gaussian":
                nodes = PANEL_CELLS
                if self.slope is not None:
                    nodes = max(_DENSE_OF_TWO, self.known.nodes)
                dense = replace(self.known, nodes=nodes)
                found = self._computed(odd, dense, _dense_room(self.known))
                kept |= {g: nodes.copy() for g, nodes in zip(odd.tolist(), found, strict=True)}
        with self._lock:
            for g in groups.tolist():
                self._cache[g] = kept[g]
                self._cache.move_to_end(g)
            size = sum(nodes.nbytes for nodes in self._cache.values())
            while size > _CACHE_BYTES:
                size -= self._cache.popitem(last=False)[1].nbytes
        return [kept[g] for g in groups.tolist()]

    def _computed(self, groups: Index, model: TableModel, room: int) -> Cube:
        """Return the nodes (k, S, effects + 1, room) of groups; they end with zeros of share 0."""
        offset = model.table.groups.offset
        first, last = offset[groups], offset[groups + 1]
        places = np.stack([first, last - first]).astype(np.float64)
        out = np.empty((len(groups), len(self.theta), len(model.effects) + 1, room))
        if model.nodes not in self._constants:
            self._constants[model.nodes] = model.constants
        table_nodes(self.theta, places, self._constants[model.nodes], out)
        if self.slope is None:
            order = np.argsort(out[:, :, :1], axis=-1, kind="stable")
            out = np.take_along_axis(out, order, axis=-1)
        wrong = np.flatnonzero(~np.isfinite(out).all(axis=(1, 2, 3)))
        if len(wrong):
            raise DataError(
                "expected a finite likelihood of every group at the draws of the run, found "
                f"none of group {int(groups[wrong[0]]) + 1} of {model.column!r}, in the "
                "order of the store of the run: check its columns"
            )
        return out


def node_room(model: TableModel) -> int:
    """Return for how many nodes of a group there is room."""
    per_effect = EXACT_NODES if model.inner.name == "gaussian" else int(model.nodes)
    if per_effect <= PANELS:
        return _PANEL_ROOM
    return per_effect if model.slope is None else per_effect * per_effect


def _dense_room(model: TableModel) -> int:
    """Return the same for the nodes whose quantiles are those of the effects."""
    return _PANEL_ROOM if model.slope is None else max(_DENSE_OF_TWO, int(model.nodes)) ** 2


def _uneven(nodes: Cube, most: float) -> NDArray[np.bool_]:
    """Return (k,) whether any effect of a group (k, S, effects + 1, Q) is far from normal."""
    effects, shares = nodes[:, :, :-1], nodes[:, :, -1:]
    away = effects - (effects * shares).sum(axis=-1, keepdims=True)
    second, third, fourth = ((shares * away**p).sum(axis=-1) for p in (2, 3, 4))
    second = np.maximum(second, 1e-200)
    uneven = (np.abs(third) > most * second**1.5) | (np.abs(fourth / second**2 - 3.0) > most)
    found: NDArray[np.bool_] = uneven.any(axis=(1, 2))
    return found


def quantile_points(part: GroupPart, levels: Matrix) -> Cube:
    """Return quantiles (k, S, J) of w at ``levels`` (S, J).

    Those of the values where these are dense; elsewhere the normal ones, corrected for skewness
    and kurtosis by the expansion of Cornish and Fisher (1938).
    """
    from scipy.special import ndtri

    if part.dense:
        assert part.values is not None
        assert part.shares is not None
        out = np.empty((*part.mean.shape, levels.shape[1]))
        node_quantiles(part.values, part.shares, levels, out)
        return out
    moved = cornish_fisher(ndtri(levels), part.skewness[..., None], part.kurtosis[..., None])
    found: Cube = part.mean[..., None] + part.sd[..., None] * moved
    return found


def cornish_fisher(z: Cube, skewness: Cube, kurtosis: Cube) -> Cube:
    """Return quantiles of a standardised variate with these moments at those of a normal one."""
    cubic = (z**3 - 3.0 * z) * kurtosis / 24.0 - (2.0 * z**3 - 5.0 * z) * skewness**2 / 36.0
    found: Cube = z + (z * z - 1.0) * skewness / 6.0 + cubic
    return found


def _quadratic(covariance: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of ``u_1 + z u_2``, of rows ``z`` (m, 1) and draws (3, S)."""
    total: NDArray[np.float64] = covariance[0] + z * (2.0 * covariance[1] + z * covariance[2])
    return np.maximum(total, 0.0)
