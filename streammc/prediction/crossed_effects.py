"""Effects of factors that cross: summaries and draws of levels, and the part of rows in them.

A run of ``gibbs`` keeps, in the state from which it continues, moments of the effect of every level
over all draws, and some draws of all effects together (``samplers.crossed.kernel``). So nothing is
computed again: neither needs the rows of the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.group_table import CrossedFactor
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.table_scale import turn_of_effects
from streammc.prediction.prediction_request import INTEGRATE, PredictionRequest
from streammc.prediction.predictors import rows_of_run, standardization
from streammc.prediction.row_effects import (
    UNKNOWN,
    GroupPart,
    LabelIndex,
    cornish_fisher,
    label_text,
    named_groups,
    require_temperature_one,
)
from streammc.protocols import Index, Matrix, Vector
from streammc.trace.row_arrays import GROUPS, Column, RowArrays
from streammc.trace.run_directory import RunDirectory

_CHUNK: Final = 1 << 16
"""Levels of a chunk of a result."""
_FAR: Final = 0.7
"""Skewness, and excess kurtosis, above which quantiles are those of draws."""
_PIECE: Final = 1 << 20
_SCALE: Final = "linear predictor; a slope per unit of its column in the table"


@dataclass(frozen=True, eq=False)
class KeptEffects:
    """What the chains of a run know of the effects of all levels, E in all.

    The k effects of a level stand together, levels in their order, factors one after the other.
    """

    count: int
    """Draws of a chain of which there are moments."""
    moments: NDArray[np.float64]
    """(chains, E, 4) mean, and sums of the powers 2 to 4 of the differences from it, on the scale
    of the table."""
    draws: NDArray[np.float32]
    """(E, S) draws of all chains, one chain after the other, on the scale of the store."""
    numbers: Index
    """(S / chains,) their numbers in each chain."""
    first: Index
    """(F + 1,) first effect of each factor, and E."""
    turns: tuple[Matrix, ...]
    """Of each factor what turns the effects of a level to the scale of the table (k, k)."""

    @classmethod
    def of(cls, run: RunDirectory, model: CrossedModel, table: Any) -> KeptEffects:
        """Read them from a finished run.

        DataError if the run is unfinished, or made no draw that is kept.
        """
        checkpoint = run.checkpoint() if run.finished() else None
        if checkpoint is None:
            raise DataError(
                f"expected a finished run at {str(run.path)!r}, found {run.committed_draws} of "
                f"{run.draws} draws: resume it"
            )
        arrays, meta = checkpoint
        states = meta["chains"]
        stride, count = int(states[0]["stride"]), int(states[0]["count"])
        kept = [arrays[f"chain{chain}_kept"] for chain in range(run.chains)]
        numbers = stride * np.arange(1, len(kept[0]) + 1) - 1
        sizes = [
            each.n_groups * len(effects)
            for each, effects in zip(table.crossed, model.effects, strict=True)
        ]
        return cls(
            count,
            np.stack([arrays[f"chain{chain}_moments"] for chain in range(run.chains)]),
            np.ascontiguousarray(np.concatenate(kept).T),
            numbers,
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            tuple(turn_of_effects(each, table.attributes) for each in model.effects),
        )

    def places(self, number: int, start: int, stop: int) -> slice:
        """Return the places of the effects of levels ``start`` to ``stop`` of a factor."""
        first, k = int(self.first[number]), len(self.turns[number])
        return slice(first + k * start, first + k * stop)

    def drawn(self, number: int, levels: Index) -> NDArray[np.float64]:
        """Return draws (m, k, S) of the effects of levels of a factor, on the table's scale."""
        k = len(self.turns[number])
        places = self.first[number] + k * levels[:, None] + np.arange(k)
        found: NDArray[np.float64] = np.einsum(
            "dc,mcs->mds", self.turns[number], self.draws[places].astype(np.float64)
        )
        return found

    def pooled(self, places: slice) -> tuple[Vector, Vector, Vector, Vector]:
        """Return mean, sd, skewness and excess kurtosis of effects over the draws of all chains."""
        means, *powers = np.moveaxis(self.moments[:, places], -1, 0)
        n, total = self.count, self.count * len(means)
        mean = means.mean(axis=0)
        away = means - mean
        second = (powers[0] + n * away**2).sum(axis=0) / total
        third = (powers[1] + 3.0 * away * powers[0] + n * away**3).sum(axis=0) / total
        fourth = powers[2] + 4.0 * away * powers[1] + 6.0 * away**2 * powers[0] + n * away**4
        sd = np.sqrt(second)
        safe = np.maximum(second, 1e-200)
        return mean, sd, third / safe**1.5, fourth.sum(axis=0) / total / safe**2 - 3.0

    def quantiles(self, number: int, start: int, stop: int, ends: Sequence[float]) -> list[Vector]:
        """Return the quantiles of the effects of levels of a factor, each (m k,).

        The normal ones, corrected for skewness and kurtosis (Cornish and Fisher 1938); where these
        are large those of the draws that are kept.
        """
        from scipy.special import ndtri

        mean, sd, skewness, kurtosis = self.pooled(self.places(number, start, stop))
        far = np.flatnonzero((np.abs(skewness) > _FAR) | (np.abs(kurtosis) > _FAR))
        k = len(self.turns[number])
        drawn = self.drawn(number, start + far // k)[np.arange(len(far)), far % k]
        kept = np.quantile(drawn, ends, axis=1)
        found = []
        for k, end in enumerate(ends):
            each = mean + sd * cornish_fisher(np.full(len(mean), ndtri(end)), skewness, kurtosis)
            each[far] = kept[k]
            found.append(each)
        return found

    def mean_error(self, places: slice) -> float | None:
        """Return the standard error of a mean, in sds of its effect, root mean square.

        It comes from the differences between chains; ``None`` of a single chain.
        """
        chains = len(self.moments)
        if chains == 1:
            return None
        between = self.moments[:, places, 0].var(axis=0, ddof=1) / chains
        _, sd, _, _ = self.pooled(places)
        return float(np.sqrt(np.mean(between / np.maximum(sd, 1e-100) ** 2)))


def factor_of(model: CrossedModel, table: Any, name: str | None) -> tuple[int, CrossedFactor]:
    """Return number and labels of the factor that is asked for; ConfigError if it is not one."""
    names = list(model.crossed)
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        found = "none" if name is None else repr(name)
        raise ConfigError(
            f"expected one of the factors that cross, {', '.join(names)}, as factor, found "
            f"{found}: name one"
        )
    number = names.index(name)
    return number, table.crossed[number]


def _rows_of_levels(table: Any, number: int, levels: int) -> Index:
    """Return the number of rows (levels,) of each level of a factor."""
    rows = np.zeros(levels, np.int64)
    for start in range(0, table.n_rows, _PIECE):
        own = table.row_levels(start, min(start + _PIECE, table.n_rows))[:, number]
        rows += np.bincount(own, minlength=levels)
    return rows


def _opened(
    run: RunDirectory, model: CrossedModel, table: Any, request: PredictionRequest
) -> tuple[Any, KeptEffects, int, CrossedFactor]:
    table = rows_of_run(run, table)
    require_temperature_one(run)
    number, factor = factor_of(model, table, request.factor)
    return table, KeptEffects.of(run, model, table), number, factor


def write_level_effects(
    run: RunDirectory,
    model: CrossedModel,
    table: Any,
    path: Any,
    request: PredictionRequest,
    *,
    fewer: bool,
) -> dict[str, Any]:
    """Write the effects of all levels of a factor; see ``group_summaries.write_effects``."""
    began = time.perf_counter()
    if not fewer:
        raise ConfigError(
            "expected no number of draws for effects of factors that cross, whose moments are "
            f"those of all draws, found {request.draws}: leave it out"
        )
    table, kept, number, factor = _opened(run, model, table, request)
    rows = _rows_of_levels(table, number, factor.n_groups)
    names, own = model.effects[number], kept.places(number, 0, factor.n_groups)
    by_effect = Column(dims=("effect",), sizes=(len(names),))
    columns = dict.fromkeys(("mean", "sd", *request.names), by_effect) | {"rows": Column("int64")}
    kind = "string" if factor.labels(0, 1).dtype.kind == "S" else "int64"
    with RowArrays(
        path, columns, factor.n_groups, _CHUNK, kind, request.overwrite, GROUPS
    ) as writer:
        for start in range(0, factor.n_groups, writer.chunk_rows):
            stop = min(start + writer.chunk_rows, factor.n_groups)
            writer.write_ids(start, factor.labels(start, stop))
            mean, sd, _, _ = kept.pooled(kept.places(number, start, stop))
            found = {"mean": mean, "sd": sd}
            ends = kept.quantiles(number, start, stop, request.ends)
            found |= dict(zip(request.names, ends, strict=True))
            values = {name: each.reshape(-1, len(names)) for name, each in found.items()}
            writer.target.write(start, values | {"rows": rows[start:stop]})
            if request.progress is not None:
                request.progress(stop, factor.n_groups)
        facts: dict[str, Any] = {
            "groups": factor.n_groups,
            "group": factor.column,
            "effects": list(names),
            "scale": _SCALE,
            "draws": kept.count * len(kept.moments),
            "interval": request.interval,
            "quantiles": list(request.names),
            "mean_error": kept.mean_error(own),
            **_origin(run, table, began),
        }
        return facts | writer.commit(facts, {"effect": (("effect",), np.array(names))})


def write_level_draws(
    run: RunDirectory,
    model: CrossedModel,
    table: Any,
    path: Any,
    labels: Sequence[str],
    request: PredictionRequest,
) -> dict[str, Any]:
    """Write the draws of some levels that are kept; see ``effect_draws.write_effect_draws``."""
    began = time.perf_counter()
    table, kept, number, factor = _opened(run, model, table, request)
    numbers = named_groups(factor, labels)
    step = -(-len(kept.numbers) * run.chains // request.draws)
    chosen = np.arange(len(kept.numbers))[::step]
    rows = _rows_of_levels(table, number, factor.n_groups)[numbers]
    shape, names = (run.chains, len(chosen)), model.effects[number]
    columns = {
        "u": Column("float64", ("chain", "draw", "effect"), (*shape, len(names))),
        "rows": Column("int64"),
    }
    kind = "string" if factor.labels(0, 1).dtype.kind == "S" else "int64"
    with RowArrays(path, columns, len(numbers), 1, kind, request.overwrite, GROUPS) as writer:
        for place, level in enumerate(numbers.tolist()):
            writer.write_ids(place, factor.labels(level, level + 1))
            drawn = kept.drawn(number, np.array([level])).reshape(len(names), run.chains, -1)
            values = {"u": np.moveaxis(drawn[:, :, chosen], 0, -1)[None]}
            writer.target.write(place, values | {"rows": rows[place : place + 1]})
        facts: dict[str, Any] = {
            "groups": len(numbers),
            "group": factor.column,
            "effects": list(names),
            "scale": _SCALE,
            "chains": shape[0],
            "draws": shape[1],
            "seed": request.seed,
            **_origin(run, table, began),
        }
        arrays = {
            "effect": (("effect",), np.array(names)),
            "chain": (("chain",), np.arange(run.chains)),
            "draw": (("draw",), kept.numbers[chosen]),
        }
        return facts | writer.commit(facts, arrays)


def _origin(run: RunDirectory, table: Any, began: float) -> dict[str, Any]:
    return {
        "run": run.place,
        "store": table.address,
        "store_fingerprint": table.fingerprint,
        "seconds": time.perf_counter() - began,
    }


@dataclass(eq=False)
class CrossedEffects:
    """Effects of the levels of the rows of a table, at S draws of theta that are kept.

    It has what tasks ask of ``row_effects.RowEffects``; the groups of a row are its levels (F,).
    """

    theta: Matrix
    """(S, d) draws, on the scale of the store of the run."""
    numbers: Index
    """(S / chains,) numbers of the draws in each chain, of which one comes after the other."""
    draws: NDArray[np.float32]
    """(E, S) effects."""
    covariances: tuple[NDArray[np.float64], ...]
    """Of each factor (S, k, k) of the effects of a new level."""
    slopes: tuple[tuple[int, ...], ...]
    """Of each factor the columns of its effects, -1 of an intercept."""
    scale: Vector
    """(q,) what turns the columns of the table, with ``shift``, to those of the run's store."""
    shift: Vector
    table: Any
    """The table that is predicted."""
    same: bool
    """Whether ``table`` is the data of the run."""
    integrate: bool
    """Whether rows of new levels are predicted, or refused."""
    places: list[Index | None]
    """Of each factor the place in ``draws`` of the first effect of each level of the table, or
    ``UNKNOWN``; ``None``: the table has no such factor."""
    columns: list[int]
    """Of each factor its place among those of the table."""
    index: None = None
    known: None = None
    nodes: int = 15

    @property
    def spread(self) -> float:
        """Standard deviation of the intercepts of new levels together, at the mean draw."""
        deviations = self.spread_of_new(
            -self.shift[None] / self.scale
        )  # where slopes count nothing
        return float(np.sqrt((deviations**2).mean()))

    def groups_of(self, start: int, stop: int) -> Index:
        """Return the places (m, F) of the levels of rows, ``UNKNOWN`` of new ones.

        DataError if a row has a new level and these are to be refused.
        """
        found = np.full((stop - start, len(self.places)), UNKNOWN)
        if any(each is not None for each in self.places):
            own = self.table.row_levels(start, stop)
            for f, places in enumerate(self.places):
                if places is not None:
                    found[:, f] = places[own[:, self.columns[f]]]
        if not self.integrate and (found == UNKNOWN).any():
            row, f = np.argwhere(found == UNKNOWN)[0]
            where = f"row {start + row + 1} of {self.table.address!r}"
            raise DataError(
                "expected rows of levels that the run has seen, found "
                f"{self.label(start + row, f)} in {where}: leave such rows out, or predict them "
                "as rows of new levels with new_groups integrate"
            )
        return found

    def groups_at(self, rows: Index) -> Index:
        """Return the places (m, F) of the levels of rows by their numbers, ascending.

        They are as in ``groups_of``, which reads consecutive rows.
        """
        found = np.empty((len(rows), len(self.places)), np.int64)
        cuts = np.searchsorted(rows, np.arange(0, self.table.n_rows + _PIECE, _PIECE))
        for piece, (low, high) in enumerate(pairwise(cuts.tolist())):
            if low < high:
                start = piece * _PIECE
                own = self.groups_of(start, min(start + _PIECE, self.table.n_rows))
                found[low:high] = own[rows[low:high] - start]
        return found

    def label(self, row: int, f: int) -> str:
        """Return the label of a row in a factor, with the column, for print."""
        if self.places[f] is None:
            return f"no column of factor {f + 1}"
        factor = self.table.crossed[self.columns[f]]
        level = int(self.table.row_levels(row, row + 1)[0, self.columns[f]])
        return f"{factor.column} {label_text(factor.labels(level, level + 1)[0])!r}"

    def of_rows(self, groups: Index, X: NDArray[Any]) -> list[GroupPart]:
        """Return the distribution of the effects of rows together, given theta: all in one part."""
        m, S = len(groups), self.draws.shape[1]
        mean, variance = np.zeros((m, S)), np.zeros((m, S))
        for f, own in enumerate(groups.T):
            known = own != UNKNOWN
            z = self._columns_of(f, X)
            for c, each in enumerate(z.T):
                if known.all():
                    mean += each[:, None] * self.draws[own + c]
                else:
                    mean[known] += each[known, None] * self.draws[own[known] + c]
            if not known.all():
                variance[~known] += self._variance(f, z[~known])
        zero = np.zeros((m, S))
        return [GroupPart(np.arange(m), mean, np.sqrt(variance), zero, zero, None, None)]

    def spread_of_new(self, X: NDArray[Any]) -> Matrix:
        """Return the standard deviations (m, S) of rows of new levels of all factors."""
        of_factors = (self._variance(f, self._columns_of(f, X)) for f in range(len(self.slopes)))
        sd: Matrix = np.sqrt(sum(of_factors))
        return sd

    def _columns_of(self, f: int, X: NDArray[Any]) -> Matrix:
        """Return the columns (m, k) of the effects of a factor as in the store of the run."""
        z = np.ones((len(X), len(self.slopes[f])))
        for c, column in enumerate(self.slopes[f]):
            if column >= 0:
                z[:, c] = X[:, column] * self.scale[column] + self.shift[column]
        return z

    def _variance(self, f: int, z: Matrix) -> Matrix:
        """Return the variances (m, S) of rows of new levels of a factor, by their columns."""
        if z.shape[1] == 1:
            return z**2 * self.covariances[f][:, 0, 0]
        root = np.linalg.cholesky(self.covariances[f])
        found: Matrix = (np.einsum("mc,scd->msd", z, root) ** 2).sum(axis=-1)
        return found


def crossed_effects(
    run: RunDirectory,
    model: CrossedModel,
    table: Any,
    request: PredictionRequest,
    design: Mapping[str, Any],
    table_design: Mapping[str, Any],
) -> CrossedEffects:
    """Return the effects of the rows of a table at the draws that are kept, or some of them.

    ConfigError if the table has levels, and the data of the run are not given.
    """
    require_temperature_one(run)
    same = table.fingerprint == run.identity["store"]
    trained_on = table if same else request.trained_on
    if trained_on is None:
        trained_on = table.earlier(run.identity["store"])
    names = [each.column for each in table.crossed]
    if trained_on is None:
        raise ConfigError(
            f"expected the data set of the run as trained_on, found none: it has the labels of "
            f"{', '.join(map(repr, model.crossed))}; give "
            f"trained_on=streammc.open_store({run.attributes.get('store')!r})"
        )
    trained_on = rows_of_run(run, trained_on)
    factors = trained_on.crossed
    kept = KeptEffects.of(run, model, trained_on)
    places: list[Index | None] = []
    for first, factor, effects in zip(kept.first, factors, model.effects, strict=False):
        k = len(effects)
        if factor.column not in names:
            places.append(None)
            continue
        if same:
            places.append(first + k * np.arange(factor.n_groups))
            continue
        other = table.crossed[names.index(factor.column)]
        index = LabelIndex(factor)
        found = np.concatenate([
            index.find(other.labels(start, min(start + _PIECE, other.n_groups)))
            for start in range(0, other.n_groups, _PIECE)
        ])  # fmt: skip
        places.append(np.where(found == UNKNOWN, UNKNOWN, first + k * found))
    step = -(-kept.draws.shape[1] // request.draws)
    numbers = kept.numbers[::step]
    reported = run.draws_matrix()[:, numbers]
    theta = model.unconstrain(reported.reshape(-1, reported.shape[2]))
    of_chains = kept.draws.reshape(len(kept.draws), run.chains, -1)
    slopes = tuple(columns for columns, _ in model.columns_of_effects)
    scale, shift = np.ones(0), np.zeros(0)
    if model.features:
        q = len(model.features)
        mean, own = standardization(design, q)
        other_mean, other = standardization(table_design, q)
        scale, shift = other / own, (other_mean - mean) / own
    return CrossedEffects(
        theta=theta,
        numbers=numbers,
        draws=of_chains[:, :, ::step].reshape(len(kept.draws), -1),
        covariances=model.covariances(theta),
        slopes=slopes,
        scale=scale,
        shift=shift,
        table=table,
        same=same,
        integrate=request.new_groups == INTEGRATE,
        places=places,
        columns=[names.index(each.column) if each.column in names else -1 for each in factors],
    )
