"""Effects of the groups of rows that are predicted: known groups and new ones.

Given a draw of theta, the posterior of the effect of a group in the data of the run is that of the
nodes of its quadrature: values of the effect, with shares of sum 1. The effect of a new group is
Normal(0, Sigma). A row has the part ``w = u_1 + z u_2`` of its linear predictor from its group,
``z`` the slope's column (``slope_column``).

The nodes give four moments of w, and these its quantiles where it is nearly normal. The nodes of
other groups are computed again, so densely that the quantiles of w are those of its values there.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError, IdentityError, RefusedError
from streammc.group_table import CrossedFactor, GroupTable
from streammc.likelihood.data_views import by_group
from streammc.likelihood.temperature import temperature_of
from streammc.models.mixed.group_constants import EXACT_NODES, PANEL_CELLS, PANELS
from streammc.models.mixed.group_effects import node_quantiles, table_nodes
from streammc.models.mixed.mixed_model import MixedModel, TableModel
from streammc.prediction import predictors
from streammc.prediction.prediction_request import DRAWS, GROUP_DRAWS, INTEGRATE, PredictionRequest
from streammc.prediction.predictors import Draws, matched, rows_of_run
from streammc.protocols import Dataset, Index, Matrix, Model, PassTask, RowBlock, Vector
from streammc.trace.run_directory import RunDirectory

UNKNOWN: Final = -1
"""Number of a label that no group has."""
_PIECE: Final = 1 << 18
"""Labels of groups that are read at once."""
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplicative hashing spreads the bits of a word."""
_NUMBER_BYTES: Final = 20
"""Length of the longest int64 as text."""
_WHOLE: Final = re.compile(rb"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
"""A whole number, also as a float is written."""
_ZEROS: Final = re.compile(rb"(-?)0+([0-9]+)(?:\.0+)?")
"""A whole number with zeros before it."""
_TRUTHS: Final = {
    b"0": (b"False", b"false", b"FALSE"),
    b"1": (b"True", b"true", b"TRUE"),
}
"""Texts of the two booleans by their number, which is the label of a boolean."""


class LabelIndex:
    """Search for the groups of a table by label; a label is compared as a whole.

    Integers and texts are compared as texts where only one of the two tables has integers. A label
    that no group has is searched for in its other spellings: whole numbers and the same as floats
    (``1``, ``1.0``), booleans as numbers and as texts (``1``, ``True``, ``true``), and, where only
    one of the two tables has integers, with zeros before a number (``1``, ``01``). It is found if
    one group has them; a group named as written comes first. Labels of the groups are read once,
    and again where a label is found.
    """

    def __init__(self, groups: GroupTable | CrossedFactor) -> None:
        self._groups = groups
        hashes = np.empty(groups.n_groups, np.uint64)
        for start in range(0, groups.n_groups, _PIECE):
            piece = groups.labels(start, min(start + _PIECE, groups.n_groups))
            hashes[start : start + len(piece)] = _hashes(as_text(piece))
        self._order: Index = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, labels: NDArray[Any]) -> Index:
        """Return the number of the group of each label (m,), or ``UNKNOWN``."""
        wanted, inverse = np.unique(as_text(labels), return_inverse=True)
        number = self._as_written(wanted)
        boolean = self._groups.n_groups <= len(_TRUTHS)
        own = self._groups.labels(0, 1).dtype
        numbers = own.kind != "S"
        padded = min(own.itemsize, _NUMBER_BYTES) if not numbers and labels.dtype.kind != "S" else 0
        others = [
            (place, text)
            for place in np.flatnonzero(number == UNKNOWN).tolist()
            for text in spellings(wanted[place], boolean, numbers, padded)
        ]
        if others:
            group = self._as_written(np.array([text for _, text in others]))
            known = group != UNKNOWN
            place = np.array([place for place, _ in others])[known]
            pairs = np.unique(np.stack([place, group[known]], axis=1), axis=0)
            places, first, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
            number[places[count == 1]] = pairs[first[count == 1], 1]
        return number[inverse]

    def example(self) -> str:
        """Return the label of a group."""
        return label_text(self._groups.labels(0, 1)[0])

    def _as_written(self, wanted: NDArray[np.bytes_]) -> Index:
        """Return the number of the group of each text (m,), or ``UNKNOWN``."""
        hashes = _hashes(wanted)
        at = np.searchsorted(self._hashes, hashes)
        number = np.full(len(wanted), UNKNOWN)
        unresolved = np.arange(len(wanted))
        while True:  # groups of one hash stand side by side: labels may be of a later one
            unresolved = unresolved[at[unresolved] < len(self._hashes)]
            unresolved = unresolved[self._hashes[at[unresolved]] == hashes[unresolved]]
            if not len(unresolved):
                return number
            group = self._order[at[unresolved]]
            same = self._labels_of(group) == wanted[unresolved]
            number[unresolved[same]] = group[same]
            unresolved = unresolved[~same]
            at[unresolved] += 1

    def _labels_of(self, groups: Index) -> NDArray[Any]:
        """Return the labels of groups as texts, one read for each piece of the table."""
        out = np.empty(len(groups), object)
        pieces = groups // _PIECE
        for piece in np.unique(pieces):
            here = np.flatnonzero(pieces == piece)
            start = int(groups[here].min())
            stop = int(groups[here].max()) + 1
            out[here] = as_text(self._groups.labels(start, stop))[groups[here] - start]
        return out


def as_text(labels: NDArray[Any]) -> NDArray[np.bytes_]:
    """Return labels, int64 or texts as bytes, as texts."""
    return labels if labels.dtype.kind == "S" else labels.astype(f"S{_NUMBER_BYTES}")


def label_text(label: Any) -> str:
    """Return a label, an int64 or a text as bytes, for a message."""
    return (label.decode() if isinstance(label, bytes) else str(label))[:60]


def spellings(label: bytes, boolean: bool, numbers: bool = False, padded: int = 0) -> list[bytes]:
    """Return the other texts of a label that is a whole number or a boolean; else none.

    ``boolean``: a number can be that of a boolean, since the groups are not more than two.
    ``numbers``: the labels of the groups are integers, so that ``01`` is 1. ``padded`` is the
    longest text of a label of the groups, if 1 may be written ``01`` there; else 0.
    """
    zeros = _ZEROS.fullmatch(label) if numbers else None
    if zeros is not None:
        return [b"%d" % int(zeros[1] + zeros[2])]
    whole = _WHOLE.fullmatch(label)
    texts: list[bytes] = []
    if whole is not None:
        number = b"0" if whole[1] == b"-0" else whole[1]
        texts = [number, number + b".0", *_TRUTHS.get(number, ())]
        texts += [number.zfill(width) for width in range(len(number) + 1, padded + 1)]
    for number, truths in _TRUTHS.items():
        if label in truths:
            texts = [*truths, *([number] if boolean else [])]
    return [text for text in texts if text != label]


_CANDIDATES: Final = 5000
"""Labels among which those near an unknown one are searched."""


def named_groups(groups: Any, labels: Sequence[str]) -> Index:
    """Return the numbers of groups, or levels of a factor, by their labels, without repetitions.

    ConfigError if there is no label, or no group of that label.
    """
    if isinstance(labels, str) or not len(labels):
        raise ConfigError(
            f"expected a list of labels of groups of {groups.column!r}, found {labels!r}: name at "
            "least one"
        )
    wanted = np.array([str(each).encode() for each in dict.fromkeys(labels)])
    places = LabelIndex(groups).find(wanted)
    if (places == UNKNOWN).any():
        missing = wanted[places == UNKNOWN][0].decode()
        near = get_close_matches(missing, _near_labels(groups, missing), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "give one of its labels"
        raise ConfigError(
            f"expected a group of {groups.column!r} of the run, found {missing[:60]!r}, which is "
            f"none: {hint}"
        )
    first = np.unique(places, return_index=True)[1]  # two spellings may be one label
    numbers: Index = places[np.sort(first)]
    return numbers


def _near_labels(groups: Any, label: str) -> list[str]:
    """Return labels of about the length of another, those with the same beginning first."""
    near: list[str] = []
    for start in range(0, groups.n_groups, _PIECE):
        piece = as_text(groups.labels(start, min(start + _PIECE, groups.n_groups)))
        close = np.abs(np.strings.str_len(piece) - len(label.encode())) <= 2
        same = np.strings.startswith(piece, label[:1].encode())
        near += [each.decode() for each in piece[close & same][:_CANDIDATES]]
        near += [each.decode() for each in piece[close & ~same][: _CANDIDATES // 10]]
        if len(near) >= _CANDIDATES:
            break
    return near[:_CANDIDATES]


def _hashes(texts: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return (m,) a hash of each text; the width of the array does not matter."""
    width = -(-texts.itemsize // 8) * 8
    words = texts.astype(f"S{width}").view(np.uint8).reshape(-1, width).view("<u8")
    hashes = np.zeros(len(texts), np.uint64)
    for index in range(words.shape[1]):
        mixed = (hashes ^ words[:, index]) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(32)
        hashes = np.where(words[:, index] != 0, mixed, hashes)
    return hashes


_CACHE_BYTES: Final = 2**27
"""Nodes of groups that are kept for the next rows: 5,000 groups at 100 draws and 15 nodes."""
_USUAL_NODES: Final = 15
"""Least number of values of w, of a row and draw, for which a tile of rows has room."""
_NEARLY_NORMAL: Final = 0.25
"""Largest skewness and excess kurtosis of intercepts whose quantiles follow from four moments."""
_NEARLY_NORMAL_OF_TWO: Final = 0.7
"""The same for two effects: their nodes are too far apart to give better quantiles."""
_PANEL_ROOM: Final = 256
"""Room for the nodes or cells of panels of an intercept: their number varies with the group."""
_DENSE_OF_TWO: Final = 25
"""Dense nodes for each of intercept and slope."""

Cube = NDArray[np.float64]
"""Array of three or four dimensions, as stated."""


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
    """Whether the values are so dense that quantiles are theirs."""


@dataclass(eq=False)
class RowEffects:
    """Effects of the groups of the rows of a table, at draws of theta."""

    theta: Matrix
    """(S, d) draws, on the scale of the store of the run."""
    table: Any
    """The table that is predicted."""
    covariance: Matrix
    """(S, 3) of the effects of a new group: variance of intercept, covariance, variance of
    slope."""
    slope: tuple[int, float, float] | None
    """Column of the slope, and scale and shift that turn it into that of the run's store; ``None``
    without one."""
    known: TableModel | None
    """The model with the data of the run; ``None`` if all groups are new."""
    same: bool
    """Whether ``table`` is the data of the run."""
    integrate: bool
    """Whether rows of new groups are predicted, or refused."""
    index: LabelIndex | None = None
    """Groups of the run by label; ``None`` if ``same``, or if all groups are new."""
    _cache: OrderedDict[int, Cube] = field(default_factory=OrderedDict)
    """Nodes of groups, the last used at the end."""
    _constants: dict[int, Vector] = field(default_factory=dict)
    """Constants of ``known`` by its number of nodes."""
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

        DataError if a row is of a new group and these are to be refused.
        """
        if self.same:
            offset = self.table.groups.offset
            groups: Index = np.searchsorted(offset, np.arange(start, stop), side="right") - 1
            return groups
        labels = self.table.row_groups(start, stop)
        if labels is None or self.index is None:
            groups = np.full(stop - start, UNKNOWN)
        else:
            groups = self.index.find(labels)
        if not self.integrate and (groups == UNKNOWN).any():
            row = int(np.flatnonzero(groups == UNKNOWN)[0])
            raise DataError(
                "expected rows of groups that the run has seen, found "
                f"{self.label(start + row)} in row "
                f"{start + row + 1} of {self.table.address!r}: leave such rows out, or predict "
                "them as rows of new groups with new_groups integrate"
            )
        return groups

    def label(self, row: int) -> str:
        """Return the label of a row for print."""
        labels = self.table.row_groups(row, row + 1)
        return "no label" if labels is None else repr(label_text(labels[0]))

    def of_rows(self, groups: Index, X: NDArray[Any]) -> list[GroupPart]:
        """Return the distribution of w for rows ``X`` (m, q) of these groups (m,), in parts."""
        slope_column = self._slope_column(X)
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
                w = w + slope_column[rows, None, None] * nodes[:, 1]
            share = np.broadcast_to(nodes[:, -1], w.shape)
            by_size.setdefault(w.shape[-1], []).append((rows, w, share))
        gaussian = self.known is not None and self.known.inner.name == "gaussian"
        for size, of_size in sorted(by_size.items()):
            rows, values, shares = (
                np.ascontiguousarray(np.concatenate(each)) for each in zip(*of_size, strict=True)
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
        sd: Matrix = np.sqrt(variance_of_part(self.covariance.T, self._slope_column(X)[:, None]))
        return sd

    def _slope_column(self, X: NDArray[Any]) -> Vector:
        """Return the slope's column (m,) on the scale of the store of the run; 0 without one."""
        if self.slope is None:
            return np.zeros(len(X))
        column, scale, shift = self.slope
        z: Vector = np.asarray(X[:, column], dtype=np.float64) * scale + shift
        return z

    def _nodes_of(self, groups: Index) -> list[Cube]:
        """Return the nodes of each of some known groups, from the cache or computed.

        Nodes are (S, effects + 1, Q): at each draw the Q values of each effect, then their shares.
        """
        if not len(groups):
            return []
        assert self.known is not None
        with self._lock:
            by_group = {int(g): self._cache[g] for g in groups.tolist() if g in self._cache}
        missing = np.array([g for g in groups.tolist() if g not in by_group], np.int64)
        if len(missing):
            usual = self._computed(missing, self.known, node_room(self.known))
            by_group |= {g: nodes.copy() for g, nodes in zip(missing.tolist(), usual, strict=True)}
            most = _NEARLY_NORMAL if self.slope is None else _NEARLY_NORMAL_OF_TWO
            skewed = missing[_far_from_normal(usual, most)]
            if len(skewed) and self.known.inner.name != "gaussian":
                per_effect = PANEL_CELLS
                if self.slope is not None:
                    per_effect = max(_DENSE_OF_TWO, self.known.nodes)
                model = replace(self.known, nodes=per_effect)
                dense = self._computed(skewed, model, _dense_room(self.known))
                by_group |= {
                    g: nodes.copy() for g, nodes in zip(skewed.tolist(), dense, strict=True)
                }
        with self._lock:
            for g in groups.tolist():
                self._cache[g] = by_group[g]
                self._cache.move_to_end(g)
            size = sum(nodes.nbytes for nodes in self._cache.values())
            while size > _CACHE_BYTES:
                size -= self._cache.popitem(last=False)[1].nbytes
        return [by_group[g] for g in groups.tolist()]

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
    """Return the room for the nodes (all effects) of a group; see :meth:`RowEffects._computed`."""
    per_effect = EXACT_NODES if model.inner.name == "gaussian" else int(model.nodes)
    if per_effect <= PANELS:  # no number: PANELS or PANEL_CELLS, as many as a group needs
        return _PANEL_ROOM
    return per_effect if model.slope is None else per_effect * per_effect


def _dense_room(model: TableModel) -> int:
    """Return the room for dense nodes: so many that quantiles are theirs."""
    return _PANEL_ROOM if model.slope is None else max(_DENSE_OF_TWO, int(model.nodes)) ** 2


def _far_from_normal(nodes: Cube, most: float) -> NDArray[np.bool_]:
    """Return (k,) whether skewness or kurtosis of any effect of a group is above ``most``.

    ``nodes`` (k, S, effects + 1, Q) are those of k groups.
    """
    effects, shares = nodes[:, :, :-1], nodes[:, :, -1:]
    away = effects - (effects * shares).sum(axis=-1, keepdims=True)
    second, third, fourth = ((shares * away**p).sum(axis=-1) for p in (2, 3, 4))
    second = np.maximum(second, 1e-200)
    far = (np.abs(third) > most * second**1.5) | (np.abs(fourth / second**2 - 3.0) > most)
    any_far: NDArray[np.bool_] = far.any(axis=(1, 2))
    return any_far


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
    points: Cube = part.mean[..., None] + part.sd[..., None] * moved
    return points


def cornish_fisher(z: Cube, skewness: Cube, kurtosis: Cube) -> Cube:
    """Return quantiles of a standardised variate with these moments at those of a normal one."""
    cubic = (z**3 - 3.0 * z) * kurtosis / 24.0 - (2.0 * z**3 - 5.0 * z) * skewness**2 / 36.0
    quantiles: Cube = z + (z * z - 1.0) * skewness / 6.0 + cubic
    return quantiles


def variance_of_part(
    covariance: NDArray[np.float64], z: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the variance (m, S) of ``u_1 + z u_2``, of rows ``z`` (m, 1) and draws (3, S)."""
    total: NDArray[np.float64] = covariance[0] + z * (2.0 * covariance[1] + z * covariance[2])
    return np.maximum(total, 0.0)


class _Checked(PassTask[int]):
    """``PassTask`` that returns the number of rows: a pass checks every chunk it reads."""

    def map(self, block: RowBlock) -> int:
        return len(block.y)

    def combine(self, left: int, right: int) -> int:
        return left + right


def default_draws(model: Model) -> int:
    """Return the number of draws with which a model predicts, unless another is given."""
    return GROUP_DRAWS if isinstance(model, MixedModel) else DRAWS


def needs_rows_of_run(model: Model, table: Any, fingerprint: str) -> bool:
    """Return whether predictions of a table need the data of the run, of this fingerprint."""
    labelled = isinstance(model, MixedModel) and label_column(table) is not None
    return (labelled or bool(model.crossed)) and table.fingerprint != fingerprint


def require_checked(table: Dataset, scheduler: Any) -> None:
    """Read all rows once, which checks every chunk of a store, before they are read by place."""
    table.reduce(_Checked(), scheduler=scheduler)


def require_temperature_one(run: RunDirectory) -> None:
    """Refuse a run at another temperature, of which effects have no distribution."""
    heat = temperature_of(run.identity, run.attributes)
    if heat != 1.0:
        raise RefusedError(
            f"expected a run at temperature 1, found {heat:g}: at others the effects of groups "
            "have no distribution; sample at temperature 1"
        )


def row_effects(
    run: RunDirectory,
    model: MixedModel,
    table: Any,
    posterior: Draws,
    request: PredictionRequest,
    table_design: dict[str, Any],
) -> tuple[Matrix, RowEffects]:
    """Return draws of theta (S, d) and the effects of the groups of a table.

    Draws without weights get mean and covariance of all draws of the run. ConfigError if the table
    has labels of groups, and the data of the run are not given; IdentityError if these are others,
    or the groups of the table are of another column; RefusedError at a temperature other than 1.
    """
    require_temperature_one(run)
    column = label_column(table)
    if column not in (None, model.column):
        raise IdentityError(
            f"expected groups of {model.column!r}, as the run has, found those of {column!r} in "
            f"{table.address!r}: ingest the table with --like the store of the run"
        )
    theta = posterior.theta
    if posterior.weights is None:
        everything = model.unconstrain(run.draws_matrix())
        theta = matched(theta, everything.reshape(-1, everything.shape[-1]))
    same = table.fingerprint == run.identity["store"]
    known = index = None
    if column is not None:
        trained_on: Any = table if same else request.trained_on
        if trained_on is None:
            raise ConfigError(
                "expected the data set of the run as trained_on, found none: the effects of "
                f"known groups of {model.column!r} are computed from their rows; give "
                f"trained_on=streammc.open_store({run.attributes.get('store')!r})"
            )
        trained_on = rows_of_run(run, trained_on)
        require_checked(trained_on, request.scheduler)
        known = by_group(trained_on, model)[1]
        index = None if same else LabelIndex(trained_on.groups)
    return theta, RowEffects(
        theta,
        table,
        effect_covariance(model, theta),
        _slope(model, posterior.design, table_design),
        known,
        same,
        request.new_groups == INTEGRATE,
        index,
    )


def label_column(table: Dataset) -> str | None:
    """Return the column of the groups of a table; ``None`` without labels."""
    groups: Any = table.attributes.get("groups")
    column = table.attributes.get("row_group") if groups is None else groups["column"]
    return None if column is None else str(column)


def effect_covariance(model: MixedModel, theta: Matrix) -> Matrix:
    """Return (S, 3) the covariance of the effects: variance, covariance, variance.

    The last columns of ``theta`` (S, ..) are the unconstrained parameters of the effects.
    """
    count = model.n_covariance
    group = theta[:, -count:]
    covariance = np.zeros((len(theta), 3))
    tau = np.exp(group[:, : len(model.effects)])
    covariance[:, 0] = tau[:, 0] ** 2
    if model.slope is not None:
        covariance[:, 2] = tau[:, 1] ** 2
        covariance[:, 1] = (
            tau[:, 0] * tau[:, 1] * (np.tanh(group[:, 2]) if model.correlated else 0.0)
        )
    return covariance


def _slope(
    model: MixedModel, run: dict[str, Any], table: dict[str, Any]
) -> tuple[int, float, float] | None:
    """Return column, scale and shift of the slope: ``z = scale z' + shift`` of the table's z'."""
    if model.slope is None:
        return None
    column, q = model.features.index(model.slope), len(model.features)
    mean, scale = predictors.standardization(run, q)
    other_mean, other_scale = predictors.standardization(table, q)
    shift = (other_mean[column] - mean[column]) / scale[column]
    return column, float(other_scale[column] / scale[column]), float(shift)
