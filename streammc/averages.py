"""Average predictions, comparisons and slopes over all rows at every draw, from one pass.

A *scenario* is the table with some columns changed, such as ``distance + 1``. With ``h_i(theta)``
the mean response of row i in a scenario, its average over a group of rows is

    A(theta) = sum_i w_i h_i(theta) / sum_i w_i.

Each ``h_i`` is expanded to second order around the mean of the draws. A pass adds up value,
gradient and Hessian, one number, one vector and one matrix per scenario and group, and ``A`` at
every draw then costs as much as a product with that matrix, however many rows there are. The rest
of the expansion is a mean over a random sample of rows of every group (a difference estimate), the
same rows in every scenario; its standard error over the standard deviation of the draws is
reported, and more rows are taken where it is above ``ENOUGH``, if need be by a second pass. A group
with no more rows than the sample is exact.

Comparisons and slopes are functions of the averages of two scenarios.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammc import rng
from streammc.control_variates.full_pass.block_kernel import tile_rows
from streammc.control_variates.full_pass.scenario_sums import (
    add_scenarios,
    find_levels,
    gather,
)
from streammc.diagnostics.quantiles import mean, quantiles
from streammc.diagnostics.text import interval_ends
from streammc.errors import ConfigError, DataError, StreammcError
from streammc.frames import data_set
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.models.base import wide
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.mixed.mixed_model import MixedModel
from streammc.numerics.coded_matrix import expanded_rows
from streammc.prediction.crossed_effects import CrossedEffects, crossed_effects
from streammc.prediction.effect_draws import draws_of_group
from streammc.prediction.mean_responses import CategoryChance, NormalRules, responses
from streammc.prediction.predict import model_of, opened_run, require_predictable
from streammc.prediction.prediction_request import GROUP_DRAWS, INTERVAL, PredictionRequest
from streammc.prediction.predictors import (
    Coefficients,
    Draws,
    check,
    load_draws,
    on_table,
    require_rows,
    standardization,
)
from streammc.prediction.row_effects import (
    UNKNOWN,
    RowEffects,
    effect_covariance,
    needs_rows_of_run,
    row_effects,
)
from streammc.protocols import Dataset, Index, Matrix, Model, PassTask, RowBlock, Vector
from streammc.runs import record
from streammc.settings import PassOptions, called_with
from streammc.stores.formula.expressions import Codes, Values, numbers
from streammc.stores.formula.fitted import Design, is_factor, read_design, refused
from streammc.stores.formula.parser import (
    ELEMENTWISE,
    MISSING,
    Call,
    Column,
    Node,
    Number,
    Operation,
    argument_of,
    columns_of,
    label,
    parse_expression,
    tokenize,
    values_of,
    walk,
)
from streammc.stores.ingest.columns import INTERCEPT
from streammc.stores.store import open_store
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray

ENOUGH: Final = 0.01
"""Standard error of the remainder, in standard deviations of the draws, that is small enough."""
FEWEST: Final = 128
"""Rows of a group whose remainders are evaluated first."""
SAMPLED: Final = 256
"""Rows of a group that the first pass samples."""
MOST_SAMPLED: Final = 2**18
"""Most rows of all groups together that a second pass samples."""
MOST_GROUPS: Final = 2000
MOST_BYTES: Final = 2**28
"""Bytes of the sums of all groups and scenarios."""
_STEP: Final = 1e-3
"""Step of the differences by which a mean response is expanded, in its predictors."""
_DERIVATIVE: Final = 1e-3
"""Step of the difference quotient of a slope, in standard deviations of its column."""
DRAWS: Final = 4000
NEW: Final = "new"
KNOWN: Final = "known"
GROUPS: Final = (NEW, KNOWN)
MEAN: Final = "mean"
ROW_ID: Final = "row_id"
CATEGORY: Final = "category"
_ENTRIES: Final = 2**18
"""Rows times derivatives of all scenarios that are in memory together."""
_LEAST_ROWS: Final = 2**12
_AT_ONCE: Final = 2**19
"""Rows times draws that are evaluated together."""

_THRESHOLDS: Final = ("<", "<=", ">", ">=", "==", "!=")

Change = Callable[[Vector], Vector]
"""Returns the values (m,) of a column in a scenario, from those of the table."""


class Columns:
    """The columns of a table behind the rows of a store, and the design made from them.

    Parameters
    ----------
    attributes
        Of a data set: features, standardisation and formula.

    Raises
    ------
    ConfigError
        Later, if a column is asked for that the design does not show as it is.
    """

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.features = list(attributes["features"])
        self._intercept = int(self.features[:1] == [INTERCEPT])
        self._mean, self._scale = standardization(attributes, len(self.features))
        self.standardised = attributes.get("standardization") is not None
        groups = (attributes.get("groups"), *(attributes.get("crossed") or ()))
        self._grouped = {each["column"] for each in groups if each}
        single = attributes.get("dtype") == "float32"
        self._digits = 6 if single else 14
        """Exact digits of a value that comes back, of the larger of it and its spread."""
        self._rounding = 2.0**-23 if single else 2.0**-52
        document = attributes.get("formula")
        self.design: Design | None = (
            None if document is None else read_design(document, "the store")
        )
        names = self.features[self._intercept :]
        self.numbers: dict[str, tuple[int, float]] = {}
        """Column of the design and its multiple of a column of numbers."""
        self.levels: dict[str, tuple[list[Any], dict[int, int]]] = {}
        """Levels of a column, and the level of each indicator of the design."""
        self.reference: dict[str, Any] = {}
        if self.design is None:
            self.numbers = {name: (j, 1.0) for j, name in enumerate(names, self._intercept)}
            return
        self._columns = [each for each in self.design.columns if each.fields]
        for j, column in enumerate(self._columns, self._intercept):
            if len(column.fields) != 1:
                continue
            node, index = column.fields[0]
            inner = argument_of(node)
            factor = is_factor(node, self.design.kinds) and column.scale == 1.0
            if factor and isinstance(inner, Column):
                state = self.design.states[label(node)]
                _, places = self.levels.setdefault(inner.name, (state["levels"], {}))
                places[j] = index
                self.reference[inner.name] = state["reference"]
            elif isinstance(node, Column):
                self.numbers[node.name] = (j, column.scale)

    @property
    def names(self) -> list[str]:
        """The columns of the table that the model sees."""
        return list(self.numbers) if self.design is None else self.design.table_columns

    def require(self, names: Sequence[str], *, changed: bool) -> None:
        """Raise ConfigError unless these columns, and all that changes with them, are known."""
        for name in names:
            if name in self._grouped and name not in self.names:
                raise ConfigError(
                    f"expected a column of fixed effects, found {name!r}, whose levels have random "
                    "effects: read them with streammc effects, and rows with streammc predict"
                )
            if name not in self.names:
                raise ConfigError(
                    f"expected a column of the model, found {name!r}: choose among "
                    f"{', '.join(self.names[:8])}{', ...' * (len(self.names) > 8)}"
                )
            if changed and self.design is not None and name in self.design.factors:
                raise ConfigError(
                    f"expected a column of fixed effects, found {name!r} of (1 | {name}): its "
                    "effects are read from the run, not compared"
                )
        marks = [name for name in names if changed and self._beside_marks(name)]
        if marks:
            raise ConfigError(
                f"expected a column in no interaction with {MISSING}(...), found {marks[0]!r}: "
                "compare predictions of two tables"
            )
        for name in self._needed(names) if changed else names:
            if name not in self.numbers and name not in self.levels:
                raise ConfigError(
                    f"expected a column that the formula has as it is, or a factor, found {name!r} "
                    "inside other expressions alone: add it to the formula by itself, or compare "
                    "predictions of two tables"
                )

    def _needed(self, names: Sequence[str]) -> list[str]:
        """Return the columns that the design columns which change with ``names`` are made of."""
        if self.design is None:
            return list(names)
        needed = dict.fromkeys(names)
        for j in self.affected(names):
            for node, _ in self._columns[j - self._intercept].fields:
                needed |= dict.fromkeys(values_of(node))
        if self._moves_offset(names):
            for node in self.design.terms.offsets:
                needed |= dict.fromkeys(values_of(node))
        return list(needed)

    def _beside_marks(self, name: str) -> bool:
        """Return whether a column of the design has a column of the table and a missing()."""
        if self.design is None:
            return False
        nodes = [
            [node for node, _ in self._columns[j - self._intercept].fields]
            for j in self.affected([name])
        ]
        parts = [part for each in nodes for node in each for part in walk(node)]
        return any(isinstance(part, Call) and part.function == MISSING for part in parts)

    def _moves_offset(self, names: Sequence[str]) -> bool:
        """Return whether the formula has offsets of these columns."""
        offsets = () if self.design is None else self.design.terms.offsets
        return any({*values_of(node)} & {*names} for node in offsets)

    def has_threshold(self, name: str) -> bool:
        """Return whether the formula compares a column with a number, as ``I(x > 15)``."""
        if self.design is None:
            return False
        nodes = [node for column in self._columns for node, _ in column.fields]
        return any(
            isinstance(part, Operation) and part.operator in _THRESHOLDS and name in values_of(part)
            for node in (*nodes, *self.design.terms.offsets)
            for part in walk(node)
        )

    def is_boolean(self, name: str) -> bool:
        """Return whether a column has truth values."""
        return self.design is not None and self.design.kinds[name] == "boolean"

    def sd(self, name: str) -> float:
        """Return the standard deviation by which a column of numbers was scaled.

        ConfigError if the columns were not standardised.
        """
        if not self.standardised:
            raise ConfigError(
                f"expected standardised columns to know the standard deviation of {name!r}, found "
                "others: give a step, or make the data set with standardize"
            )
        j, multiple = self.numbers[name]
        return float(self._scale[j] / abs(multiple))

    def affected(self, names: Sequence[str]) -> list[int]:
        """Return the columns of ``X`` that change with columns of the table."""
        if self.design is None:
            return [self.numbers[name][0] for name in names]
        return [
            j
            for j, column in enumerate(self._columns, self._intercept)
            if any({*values_of(node)} & {*names} for node, _ in column.fields)
        ]

    def values(self, X: Matrix, names: Sequence[str]) -> dict[str, Vector]:
        """Return columns of the table (m,) of rows ``X`` (m, q): numbers, or numbers of levels."""
        found: dict[str, Vector] = {}
        for name in names:
            if name in self.levels:
                levels, places = self.levels[name]
                value = np.full(len(X), float(levels.index(self.reference[name])))
                at, level = np.array([*places]), np.array([*places.values()], np.float64)
                cut = (0.5 - self._mean[at]) / self._scale[at]
                find_levels(np.ascontiguousarray(X), at, cut, level, value)
                found[name] = value
            else:
                j, multiple = self.numbers[name]
                value = (X[:, j] * self._scale[j] + self._mean[j]) / multiple
                # The number of the table: 65 comes back as 64.9999995 where rows are of single
                # precision, and a threshold or a bound in the formula would see the difference.
                tidy = np.round(value, self._decimals(name, 1.0)) + 0.0
                lost = self._rounding * np.abs(X[:, j] * (self._scale[j] / multiple))
                lost += 2.0**-52 * abs(self._mean[j] / multiple)
                found[name] = np.where(np.abs(tidy - value) <= lost, tidy, value)
        return found

    def _decimals(self, name: str, value: float) -> int:
        """Return how many decimals of a number of the table come back, about ``value``."""
        j, multiple = self.numbers[name]
        size = abs(value) or 1.0
        if not self.standardised:
            return self._digits - 1 - math.floor(math.log10(size))
        spread, centre = 8.0 * abs(self._scale[j] / multiple), abs(self._mean[j] / multiple)
        exact = 13 - math.floor(math.log10(max(spread, centre)))
        return min(self._digits - 1 - math.floor(math.log10(spread)), exact)

    def label(self, name: str, value: float) -> Any:
        """Return a value of a column as the table has it: a level, or a number."""
        if name in self.levels:
            return self.levels[name][0][int(value)]
        return round(float(value), self._decimals(name, value)) + 0.0

    def row(self, values: Mapping[str, float], offset: float) -> tuple[Matrix, Vector]:
        """Return the row (1, q) of these values of all columns, and its offset (1,).

        ``offset`` is that of a column of offsets; those of the formula are computed.
        """
        given = {name: np.array([value]) for name, value in values.items()}
        q = len(self.features)
        if self.design is None:
            raw = np.stack([given[name] for name in self.numbers])
        else:
            read = self._as_read(given)
            raw = self.design.some(range(q - self._intercept), read)
            if self.design.terms.offsets:
                offset = float(self.design.offset(read, refused).item())
        X = np.ones((1, q))
        columns = slice(self._intercept, q)
        X[:, columns] = (raw.T - self._mean[columns]) / self._scale[columns]
        return X, np.array([offset])

    def replaced(
        self, X: Matrix, changes: Mapping[str, Change]
    ) -> tuple[list[int], Matrix, Vector | float]:
        """Return what a scenario changes in rows ``X`` (m, q): columns, their values, offsets.

        Offsets (m,) are added to those of the rows.
        """
        if not changes:
            return [], X[:, :0], 0.0
        names = list(changes)
        before = self.values(X, self._needed(names))
        values = dict(before)
        for name, change in changes.items():
            values[name] = change(values[name])
        columns, moved = self.affected(names), 0.0
        if self.design is None:
            raw = np.stack([values[name] for name in names])
        else:
            raw = self.design.some([j - self._intercept for j in columns], self._as_read(values))
            if self._moves_offset(names):
                old, new = (self.design.offset(self._as_read(v), refused) for v in (before, values))
                moved = new - old
        return columns, (raw.T - self._mean[columns]) / self._scale[columns], moved

    def _as_read(self, values: Mapping[str, Vector]) -> Values:
        """Return values as a table gives them: levels of text as codes."""
        assert self.design is not None
        read: dict[str, Vector | Codes] = {}
        for name, column in values.items():
            if name not in self.levels:
                read[name] = column
            elif isinstance(self.levels[name][0][0], str):
                read[name] = Codes(column, [str(level) for level in self.levels[name][0]])
            else:
                read[name] = np.asarray(self.levels[name][0], np.float64)[column.astype(np.int64)]
        return read


class NewEffects:
    """Variance of the effects of new groups in the predictor of a row.

    A factor with effects ``u ~ N(0, C)`` and columns ``z`` of a row adds ``z' u`` to its predictor.
    The variance, ``z' C z`` summed over the factors, is linear in the products of the columns.
    """

    def __init__(self, model: MixedModel | CrossedModel) -> None:
        self.model, self._expanded = model, dict[bytes, tuple[Vector, Matrix, Matrix]]()
        if isinstance(model, CrossedModel):
            self._columns = [columns for columns, _ in model.columns_of_effects]
        else:
            slope = () if model.slope is None else (model.features.index(model.slope),)
            self._columns = [(-1, *slope)]

    def products(self, X: Matrix) -> Matrix:
        """Return the products (m, K) of the columns of all pairs of effects of a factor."""
        found = []
        for columns in self._columns:
            z = np.stack([np.ones(len(X)) if c < 0 else X[:, c] for c in columns], axis=1)
            found.append((z[:, :, None] * z[:, None]).reshape(len(X), -1))
        return np.concatenate(found, axis=1)

    def covariances(self, own: Matrix) -> Matrix:
        """Return covariances (S, K) of these pairs at unconstrained parameters (S, c)."""
        if isinstance(self.model, CrossedModel):
            before = np.zeros((len(own), self.model.inner.n_scalar))
            found = self.model.covariances(np.concatenate([before, own], axis=1))
            return np.concatenate([each.reshape(len(own), -1) for each in found], axis=1)
        covariance = effect_covariance(self.model, own)
        return covariance[:, :1] if self.model.slope is None else covariance[:, [0, 1, 1, 2]]

    def log_variance(self, own: Vector, Z: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return the logarithm of the variance (m,) of rows, and its derivatives in ``own`` (c,).

        ``Z`` (m, K) are products; see :func:`_differences`.
        """
        at = own.tobytes()  # one point in all tiles of a pass, where a table has many slopes
        if at not in self._expanded:
            self._expanded[at] = _differences(lambda moves: self.covariances(own + moves), len(own))
        value, slope, bend = (each @ Z.T for each in self._expanded[at])
        value = np.maximum(value, np.finfo(np.float64).tiny)
        slope /= value
        bend /= value
        pairs = [(a, b) for a in range(len(own)) for b in range(a + 1)]
        for pair, (a, b) in enumerate(pairs):
            bend[pair] -= slope[a] * slope[b]
        return np.log(value), slope, bend


class MeanResponse:
    """The mean response of rows as a function of their predictors; of a mixed model, in new groups.

    The parameters of the effects of groups are predictors without a column, as a scale is. With a
    ``category`` it is the probability of this one.
    """

    def __init__(self, model: Model, category: int | None = None) -> None:
        regression = model
        self.effects: NewEffects | None = None
        """The effects of new groups of a mixed model."""
        if isinstance(model, MixedModel | CrossedModel):
            regression, self.effects = model.inner, NewEffects(model)
        self._chance = None if category is None else CategoryChance(model.of_a_row, category)
        self._model: Model | CategoryChance = self._chance or regression
        self.n_linear, self.n_scalar = regression.n_linear, regression.n_scalar
        if self.effects is not None:
            self.n_scalar += self.effects.model.n_covariance
            self._rules: NormalRules = NormalRules(self._model)
        self.takes_offset = model.of_a_row.takes_offset

    def __call__(self, eta: NDArray[np.float64], Z: Matrix) -> Matrix:
        """Return means (m, S) at predictors (p, m, S); ``Z`` (m, k) as of ``NewEffects``."""
        if self.effects is None:
            return responses(self._model, eta)
        count = self.effects.model.n_covariance
        variance = Z @ self.effects.covariances(eta[-count:, 0].T).T
        sd = np.sqrt(np.maximum(variance, 0.0))
        return self._rules.means(np.ascontiguousarray(eta[:-count]), sd)

    def products(self, X: Matrix) -> Matrix:
        """Return the products of rows in the coordinates of the run; see ``NewEffects``."""
        return X[:, :0] if self.effects is None else self.effects.products(X)

    def derivatives(self, eta: Matrix, Z: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return the mean response (m,) at predictors ``eta`` (p, m), and its derivatives in them.

        First derivatives (p, m), and second ones (p (p + 1) / 2, m) in the pairs b <= a, by a.
        """
        if self.effects is None:
            if self._chance is not None:
                return self._chance.derivatives(eta)
            return _differences(partial(self._moved, eta), len(eta))
        p = len(eta) - self.effects.model.n_covariance
        variance, *of_variance = self.effects.log_variance(eta[p:, 0], Z)
        points = np.concatenate([eta[:p], variance[None]])
        return _composed(_differences(partial(self._moved, points), p + 1), *of_variance)

    def _moved(self, points: Matrix, moves: Matrix) -> Matrix:
        """Return means (k, m) at points (p, m), to which ``moves`` (k, p) are added.

        The last coordinate, where groups are new, is the logarithm of the variance of their part.
        """
        moved = points[:, None] + moves.T[:, :, None]
        if self.effects is None:
            means = responses(self._model, moved.reshape(len(points), -1, 1))
            return means.reshape(len(moves), -1)
        moved = moved.swapaxes(1, 2)
        return self._rules.means(np.ascontiguousarray(moved[:-1]), np.exp(0.5 * moved[-1])).T

    def predictors(self, X: Matrix, offset: Vector, theta: Matrix) -> NDArray[np.float64]:
        """Return the predictors (p, m, S) of rows ``X`` (m, q) at parameters (S, D)."""
        q, n_linear = X.shape[1], self.n_linear
        eta = np.empty((n_linear + self.n_scalar, len(X), len(theta)))
        for a in range(n_linear):
            np.matmul(X, theta[:, a * q : (a + 1) * q].T, out=eta[a])
        eta[0] += offset[:, None]
        eta[n_linear:] = theta[:, None, n_linear * q :].transpose(2, 1, 0)
        return eta


Scenario = Mapping[str, Change]
"""Columns of a table that are changed, all rows alike."""


class Sums(NamedTuple):
    """Sums over the rows of a group, of every scenario."""

    rows: int
    weight: float
    moments: NDArray[np.float64]
    """(scenarios, 1 + D + D D) weighted value, gradient and Hessian."""
    key: Vector
    """(k,) random keys of the rows of the sample, sorted: the smallest of all rows."""
    X: NDArray[Any]
    """(k, q) the sample, as the table has it."""
    offset: Vector
    sampled_weight: Vector

    def first(self, count: int) -> Sums:
        """Return the sums with the first rows of the sample alone, which are a sample, too."""
        return Sums(*self[:3], *(part[:count] for part in self[3:]))


@dataclass(frozen=True, eq=False)
class AverageTask(PassTask[dict[tuple[float, ...], Sums]]):
    """The sums of every group and scenario."""

    response: MeanResponse
    columns: Columns
    scenarios: Sequence[Scenario]
    by: Sequence[str]
    by_row: bool
    centre: Vector
    """(D,) the unconstrained parameters around which responses are expanded."""
    run_scale: tuple[Vector, Vector]
    """Mean and scale (q,) of the columns in the coordinates of the run."""
    table_scale: tuple[Vector, Vector]
    weights: bool | str
    """Whether rows count as their weight, or the column of the design that has it."""
    sampled: int
    seed: int

    def map(self, block: RowBlock) -> dict[tuple[float, ...], Sums]:
        """Return the sums of contiguous rows by the values of ``by``."""
        X = np.asarray(expanded_rows(block.X))
        m = len(X)
        if not self.response.takes_offset and block.offset.any():
            raise DataError(
                "expected rows without an offset for a model of categories without an order, found "
                "an offset: make the data set without it"
            )
        order, starts, labels = self.grouped(X, block.start)
        weight = self.weight(X, block)[order]
        moments = self._moments(X, block.offset, weight, order, np.array([*starts[1:], m]))
        keys = rng.stream(self.seed, 0, rng.Role.PLAN, block.start).random(m)[order]
        found: dict[tuple[float, ...], Sums] = {}
        for g, (low, high) in enumerate(zip(starts, [*starts[1:], m], strict=True)):
            chosen = low + _smallest(keys[low:high], self.sampled)
            rows = order[chosen]
            found[labels[g]] = Sums(
                high - low, float(weight[low:high].sum()), moments[g], keys[chosen],
                X[rows], block.offset[rows], weight[chosen],
            )  # fmt: skip
        return found

    def _moments(
        self, X: Matrix, offset: Vector, weight: Vector, order: Index, ends: Index
    ) -> NDArray[np.float64]:
        """Return the moments (groups, scenarios, size) of rows ``order`` of ``X``.

        ``ends`` (groups,) are the numbers of rows up to the end of each group; ``weight`` is in
        this order.
        """
        response, q, S = self.response, X.shape[1], len(self.scenarios)
        n_linear, p = response.n_linear, response.n_linear + response.n_scalar
        width = p + p * (p + 1) // 2
        value = np.zeros((len(ends), S))
        gradients = np.zeros((len(ends), S, width, q + 1))
        hessians = np.zeros((len(ends), S, n_linear * (n_linear + 1) // 2, q, q))
        beta = self.centre[: n_linear * q].reshape(n_linear, q)
        step = max(_ENTRIES // max(S * (1 + width), q), _LEAST_ROWS)
        X, room = np.ascontiguousarray(X), np.empty((min(step, len(order)), q))
        for low in range(0, len(order), step):
            here = order[low : low + step]
            as_read = room[: len(here)]
            gather(X, here, as_read)
            rows, w = self.in_run(as_read), weight[low : low + step]
            eta = np.empty((p, len(here)))
            eta[:n_linear], eta[n_linear:] = beta @ rows.T, self.centre[n_linear * q :, None]
            eta[0] += offset[here]
            first, place, values = [0], list[int](), list[Matrix]()
            derivatives = np.empty((S, width, len(here)))
            means = np.empty((S, len(here)))
            for s, scenario in enumerate(self.scenarios):
                columns, new, moved = self.columns.replaced(as_read, scenario)
                new = self.in_run(new, columns).T
                eta_s = eta.copy()
                eta_s[:n_linear] += beta[:, columns] @ (new - rows[:, columns].T)
                eta_s[0] += moved
                changed = rows
                if response.effects is not None:
                    changed = rows.copy()
                    changed[:, columns] = new.T
                means[s], slope, bend = response.derivatives(eta_s, response.products(changed))
                derivatives[s, :p], derivatives[s, p:] = slope, bend
                place += columns
                values.append(new)
                first.append(len(place))
            derivatives *= w
            means *= w
            if not w.all():  # inf * 0 must not become NaN
                derivatives[:, :, w == 0.0] = means[:, w == 0.0] = 0.0
            inside = np.clip(ends - low, 0, len(here))
            for g, (a, b) in enumerate(zip([0, *inside[:-1]], inside, strict=True)):
                value[g] += means[:, a:b].sum(axis=1)
            add_scenarios(
                rows, inside, n_linear, tile_rows(q), np.array(first), np.array(place, np.int64),
                np.ascontiguousarray(np.concatenate(values)), derivatives, gradients, hessians,
            )  # fmt: skip
        return _in_parameters(value, gradients, hessians, q, n_linear, p)

    def combine(
        self, left: dict[tuple[float, ...], Sums], right: dict[tuple[float, ...], Sums]
    ) -> dict[tuple[float, ...], Sums]:
        """Merge the sums of two neighbouring parts of the rows."""
        both = dict(left)
        for key, sums in right.items():
            both[key] = sums if key not in both else self._joined(both[key], sums)
        self._require_few(len(both))
        return both

    def scenario(self, X: Matrix, offset: Vector, scenario: Scenario) -> tuple[Matrix, Vector]:
        """Return rows ``X`` (k, q) and offsets of a scenario, in the coordinates of the run."""
        changed, offset = self.changed(X, offset, scenario)
        return self.in_run(changed), offset

    def changed(self, X: Matrix, offset: Vector, scenario: Scenario) -> tuple[Matrix, Vector]:
        """Return rows ``X`` (k, q) and offsets of a scenario, as the table has them."""
        changed = np.array(X, np.float64)
        places, values, moved = self.columns.replaced(changed, scenario)
        changed[:, places] = values
        return changed, offset + moved

    def _require_few(self, groups: int) -> None:
        """Raise DataError if there are too many groups of rows for their sums."""
        sizes = 8 * len(self.scenarios) * _size(len(self.centre))
        most = min(MOST_GROUPS, max(MOST_BYTES // sizes, 1))
        if groups > most:
            wanted = "choose columns of fewer values"
            if self.by_row:
                wanted = "give a table of fewer rows, such as a grid of values"
            raise DataError(
                f"expected at most {most} groups of rows, found more by "
                f"{', '.join(self.by) or 'row'}: {wanted}, or ask for fewer variables at once"
            )

    def _joined(self, a: Sums, b: Sums) -> Sums:
        key = np.concatenate([a.key, b.key])
        order = np.argsort(key, kind="stable")[: self.sampled]
        parts = [np.concatenate(pair)[order] for pair in zip(a[4:], b[4:], strict=True)]
        return Sums(a.rows + b.rows, a.weight + b.weight, a.moments + b.moments, key[order], *parts)

    def in_run(self, X: Matrix, columns: Sequence[int] | slice = slice(None)) -> Matrix:
        """Return rows of the table, or some columns of them, in the coordinates of the run."""
        mean, scale, other_mean, other_scale = (
            each[columns] for each in (*self.run_scale, *self.table_scale)
        )
        if np.array_equal(mean, other_mean) and np.array_equal(scale, other_scale):
            return X
        moved: Matrix = (X * other_scale + (other_mean - mean)) / scale
        return moved

    def grouped(self, X: Matrix, first: int) -> tuple[Index, list[int], list[tuple[float, ...]]]:
        """Return an order of rows from row ``first`` on; see :func:`_sorted_by`."""
        if self.by_row:
            groups = np.arange(first, first + len(X), dtype=np.float64)[:, None]
        else:
            values = self.columns.values(X, self.by)
            groups = np.stack([values[name] for name in self.by], axis=1) if self.by else X[:, :0]
        found = _sorted_by(groups)
        self._require_few(len(found[1]))
        return found

    def weight(self, X: Matrix, block: RowBlock) -> Vector:
        """Return the weight of each row (m,)."""
        if self.weights is False:
            return np.ones(len(X))
        if self.weights is True:
            return np.asarray(block.weight, np.float64)
        values = self.columns.values(X, [self.weights])[self.weights]
        # A column that was standardised comes back with a rounding error.
        values = np.where(np.abs(values) < 1e-6 * np.abs(values).max(initial=0.0), 0.0, values)
        if not (values >= 0.0).all():
            raise DataError(
                f"expected weights of at least 0, found {values.min():g} in {self.weights!r}: "
                "choose another column"
            )
        return values


def _smallest(keys: Vector, count: int) -> Index:
    """Return the places of the ``count`` smallest keys, in their order."""
    near = np.flatnonzero(keys < (count + 6.0 * math.sqrt(count)) / len(keys))  # they are uniform
    if len(near) < count:
        near = np.arange(len(keys))
    order: Index = near[np.argsort(keys[near])[:count]]
    return order


def _size(dim: int) -> int:
    return 1 + dim + dim * dim


def _sorted_by(groups: Matrix) -> tuple[Index, list[int], list[tuple[float, ...]]]:
    """Return an order of rows (m, k) by group, the first row of each group, and its values."""
    code, size = np.zeros(len(groups), np.int64), 1
    for column in groups.T:
        own, count = _codes(column)
        if size * count >= 2**62:
            code, size = _codes(code)
        code, size = code * count + own, size * count
    small = code.astype(np.uint16) if size <= 2**16 else code  # sorted by its digits
    order: Index = np.argsort(small, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return order, starts.tolist(), [tuple(map(float, groups[order[at]])) for at in starts]


def _codes(values: NDArray[Any]) -> tuple[Index, int]:
    """Return an integer from 0 for each value (m,), in their order, and one above the largest."""
    low = values.min(initial=0.0)
    shifted = values - low
    if shifted.max(initial=0.0) < 2**16:
        whole = shifted.astype(np.int64)
        if (whole == shifted).all():
            return whole, int(whole.max(initial=0)) + 1
    known, code = np.unique(values, return_inverse=True)
    return code, len(known)


def _differences(values: Callable[[Matrix], Matrix], p: int) -> tuple[Vector, Matrix, Matrix]:
    """Return values (n,) of n functions of p coordinates, and derivatives by finite differences.

    ``values`` of moves (k, p) of the coordinates are (k, n). First derivatives (p, n), and second
    ones (p (p + 1) / 2, n) in the pairs b <= a, by a.
    """
    moves = [np.zeros(p)]
    for a in range(p):
        for b in range(a + 1):
            for signs in ((1, 1), (-1, -1)) if a == b else ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                move = np.zeros(p)
                move[a] += signs[0] * _STEP
                move[b] += signs[1] * _STEP if a != b else 0.0
                moves.append(move)
    means = values(np.array(moves))
    n = means.shape[1]
    slope, bend = np.empty((p, n)), np.empty((p * (p + 1) // 2, n))
    at, pair = 1, 0
    for a in range(p):
        for b in range(a + 1):
            if a == b:
                up, down = means[at], means[at + 1]
                slope[a] = (up - down) / (2.0 * _STEP)
                bend[pair] = (up - 2.0 * means[0] + down) / _STEP**2
                at += 2
            else:
                mixed = means[at] - means[at + 1] - means[at + 2] + means[at + 3]
                bend[pair] = mixed / (4.0 * _STEP**2)
                at += 4
            pair += 1
    return means[0], slope, bend


def _composed(
    outer: tuple[Vector, Matrix, Matrix], slopes: Matrix, bends: Matrix
) -> tuple[Vector, Matrix, Matrix]:
    """Return derivatives of a function whose last coordinate is a function of c others.

    ``slopes`` (c, n) and ``bends`` (c (c + 1) / 2, n) are the derivatives of that coordinate, and
    ``outer`` are value and derivatives of the function in its own: see :func:`_differences`.
    """
    value, slope, bend = outer
    p, c = len(slope) - 1, len(slopes)
    last = p * (p + 1) // 2  # where the pairs of the last coordinate begin
    rows = [bend[:last]]
    pair = 0
    for a in range(c):
        rows.append(bend[last : last + p] * slopes[a])
        for b in range(a + 1):
            both = bend[last + p] * slopes[a] * slopes[b] + slope[p] * bends[pair]
            rows.append(both[None])
            pair += 1
    return value, np.concatenate([slope[:p], slope[p] * slopes]), np.concatenate(rows)


def _in_parameters(
    value: Matrix,
    gradients: NDArray[np.float64],
    hessians: NDArray[np.float64],
    q: int,
    n_linear: int,
    p: int,
) -> NDArray[np.float64]:
    """Return weighted value, gradient and Hessian in all parameters, flat: (groups, scenarios, .).

    From the sums of ``scenario_sums.add_scenarios``.
    """
    d = n_linear * q + p - n_linear
    places = [slice(a * q, a * q + q) for a in range(n_linear)]
    places += [slice(at, at + 1) for at in range(n_linear * q, d)]
    own = [slice(0, q)] * n_linear + [slice(q, q + 1)] * (p - n_linear)
    gradient = np.concatenate([gradients[:, :, a, own[a]] for a in range(p)], axis=2)
    hessian = np.zeros((*value.shape, d, d))
    pair = 0
    for a in range(p):
        for b in range(a + 1):
            if a < n_linear:
                upper = np.triu(hessians[:, :, pair])
                part = upper + np.triu(upper, 1).swapaxes(2, 3)
            else:
                part = gradients[:, :, p + pair, None, own[b]]
            hessian[:, :, places[a], places[b]] = part
            hessian[:, :, places[b], places[a]] = part.swapaxes(2, 3)
            pair += 1
    flat = hessian.reshape(*value.shape, d * d)
    return np.concatenate([value[:, :, None], gradient, flat], axis=2)


class Contrast(NamedTuple):
    """A function of the averages of two scenarios, or of one."""

    term: str
    contrast: str
    pair: tuple[int, int]
    """Indices of the two scenarios: the changed one, then the reference."""
    compare: Comparison


class Comparison(NamedTuple):
    """A function of the averages (S,) in two scenarios."""

    value: Callable[[Vector, Vector], Vector]
    slopes: Callable[[float, float], tuple[float, float]]
    """Its derivatives in both."""
    needs: str = "mean responses overflow at some rows or draws; change the column by less"
    """What is wrong, and to be done, where a value is not finite, or an average out of bounds."""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """Between which both averages are."""


def _difference(step: float = 1.0) -> Comparison:
    return Comparison(lambda a, b: (a - b) / step, lambda a, b: (1.0 / step, -1.0 / step))


_POSITIVE: Final = (0.0, math.inf)
_ABOVE_ZERO: Final = "ratios are of averages above 0; ask for the difference"
COMPARISONS: Final[dict[str, Comparison]] = {
    "difference": _difference(),
    "ratio": Comparison(
        lambda a, b: a / b, lambda a, b: (1.0 / b, -a / (b * b)), _ABOVE_ZERO, _POSITIVE
    ),
    "lnratio": Comparison(
        lambda a, b: np.log(a / b), lambda a, b: (1.0 / a, -1.0 / b), _ABOVE_ZERO, _POSITIVE
    ),
    "lnor": Comparison(
        lambda a, b: np.log(a / (1.0 - a) * (1.0 - b) / b),
        lambda a, b: (1.0 / (a * (1.0 - a)), -1.0 / (b * (1.0 - b))),
        "odds are of averages between 0 and 1; ask for the difference or the ratio",
        (0.0, 1.0),
    ),
}
"""Comparisons of two averages: their names as in marginaleffects."""
_ONE: Final = Comparison(lambda a, b: a, lambda a, b: (1.0, 0.0))


class Answer(NamedTuple):
    """A contrast in a group of rows, at every draw."""

    contrast: Contrast
    group: tuple[float, ...]
    draws: Vector
    """(S,)"""
    error: float
    """Standard error of the draws from the sample of rows, in standard deviations of the draws."""


def answers(
    task: AverageTask,
    sums: Mapping[tuple[float, ...], Sums],
    contrasts: Sequence[Contrast],
    theta: Matrix,
) -> list[Answer]:
    """Return every contrast in every group at draws ``theta`` (S, D).

    Of each sample as many rows are evaluated as the error asks for.
    """
    found = dict[tuple[float, ...], list[tuple[Vector, float]]]()
    for group in sorted(group for group, own in sums.items() if own.weight > 0.0):
        own, rows = sums[group], FEWEST
        averages = [_taylor(moments, theta - task.centre) / own.weight for moments in own.moments]
        while True:
            with np.errstate(all="ignore"):  # what is not finite is refused
                made = _of_group(task, own.first(rows), contrasts, theta, averages)
            worst = max(error for _, error in made)
            if worst <= ENOUGH or rows >= len(own.key):
                break
            rows = math.ceil(1.5 * rows * (worst / ENOUGH) ** 2)
        found[group] = made
    return [
        Answer(contrast, group, *made[k])
        for k, contrast in enumerate(contrasts)
        for group, made in found.items()
    ]


def _of_group(
    task: AverageTask,
    own: Sums,
    contrasts: Sequence[Contrast],
    theta: Matrix,
    averages: Sequence[Vector],
) -> list[tuple[Vector, float]]:
    """Return the draws of every contrast in a group, and their error."""
    rest, errors = _remainders(task, own, contrasts, theta, averages)
    whole = [taylor + part for taylor, part in zip(averages, rest, strict=True)]
    made = []
    for contrast, squares in zip(contrasts, errors, strict=True):
        draws = _contrasted(contrast, whole, squares)
        sd = float(draws.std())
        made.append((draws, math.sqrt(float(squares.mean())) / sd if sd > 0.0 else 0.0))
    return made


def _contrasted(contrast: Contrast, averages: Sequence[Vector], errors: Vector) -> Vector:
    """Return the draws (S,) of a contrast; DataError if they or their ``errors`` are not finite."""
    a, b = contrast.pair
    draws = contrast.compare.value(averages[a], averages[b])
    low, high = contrast.compare.bounds
    inside = all(((each > low) & (each < high)).all() for each in (averages[a], averages[b]))
    if not (inside and np.isfinite([*draws, *errors]).all()):
        raise DataError(
            f"expected finite answers, found others for {contrast.term or 'the mean response'}:"
            f" {contrast.compare.needs}"
        )
    return draws


def _taylor(moments: Vector, delta: Matrix) -> Vector:
    """Return the sum of expansions at (S, D) shifts from their centre."""
    d = delta.shape[1]
    bent = delta @ moments[1 + d :].reshape(d, d)
    total: Vector = (
        moments[0] + delta @ moments[1 : 1 + d] + 0.5 * np.einsum("sd,sd->s", bent, delta)
    )
    return total


def _remainders(
    task: AverageTask,
    own: Sums,
    contrasts: Sequence[Contrast],
    theta: Matrix,
    averages: Sequence[Vector],
) -> tuple[list[Vector], list[Vector]]:
    """Return the mean remainders (S,) of each scenario, and squared errors (S,) of each contrast.

    They are ``N / m sum w r / sum w`` over m of the N rows of a group.
    """
    m, draws = len(own.X), len(theta)
    scale = own.rows / m / own.weight
    rows = [task.scenario(own.X, own.offset, each) for each in task.scenarios]
    response = task.response
    products = [response.products(X) for X, _ in rows]
    before = [response.predictors(*each, task.centre[None]) for each in rows]
    at = [response.derivatives(eta[:, :, 0], Z) for eta, Z in zip(before, products, strict=True)]
    pairs = [(a, b) for a in range(len(before[0])) for b in range(a + 1)]
    rest = [np.empty(draws) for _ in rows]
    errors = [np.empty(draws) for _ in contrasts]
    centre = [float(average.mean()) for average in averages]
    step = max(_AT_ONCE // max(m, 1), 1)
    for low in range(0, draws, step):
        part = slice(low, low + step)
        left = []
        for s, (X, offset) in enumerate(rows):
            f, slope, bend = at[s]
            eta = response.predictors(X, offset, theta[part])
            moved = eta - before[s]
            exact = response(eta, products[s])
            taylor = f[:, None] + sum(d[:, None] * by for d, by in zip(slope, moved, strict=True))
            for (a, b), d in zip(pairs, bend, strict=True):
                taylor += (d if a != b else 0.5 * d)[:, None] * moved[a] * moved[b]
            left.append((exact - taylor) * own.sampled_weight[:, None])
            rest[s][part] = scale * left[s].sum(axis=0)
        for k, contrast in enumerate(contrasts):
            a, b = contrast.pair
            of_a, of_b = contrast.compare.slopes(centre[a], centre[b])
            each = of_a * left[a] + of_b * left[b]
            spread = each.var(axis=0, ddof=1) if m > 1 else np.zeros(each.shape[1])
            missing = 1.0 - m / own.rows
            errors[k][part] = (own.rows / own.weight) ** 2 * missing * spread / m
    return rest, errors


def scenarios_of(
    columns: Columns, variables: Mapping[str, Any], compare: str
) -> tuple[list[Scenario], list[Contrast]]:
    """Return the scenarios and the contrasts of ``variables``; see :func:`comparisons`."""
    if compare not in COMPARISONS:
        raise ConfigError(
            f"expected a comparison among {', '.join(COMPARISONS)}, found {compare!r}: choose one"
        )
    columns.require(list(variables), changed=True)
    scenarios, contrasts = list[Scenario]([{}]), list[Contrast]()

    def add(name: str, change: Change) -> int:
        scenarios.append({name: change})
        return len(scenarios) - 1

    comparison = COMPARISONS[compare]
    for name, wanted in variables.items():
        if name in columns.levels:
            levels = columns.levels[name][0]
            pairs = _pairs(name, levels, columns.reference[name], wanted)
            used = sorted({level for pair in pairs for level in pair})
            place = {level: add(name, partial(_set_to, float(level))) for level in used}
            contrasts += [
                Contrast(name, f"{levels[a]} - {levels[b]}", (place[a], place[b]), comparison)
                for a, b in pairs
            ]
            continue
        low, high, words = _numbers(columns, name, wanted)
        pair = add(name, high), 0 if low is None else add(name, low)
        contrasts.append(Contrast(name, words, pair, comparison))
    return scenarios, contrasts


def _set_to(value: float, column: Vector) -> Vector:
    return np.full(len(column), value)


def _moved_by(value: float, column: Vector) -> Vector:
    return column + value


def _pairs(name: str, levels: list[Any], reference: Any, wanted: Any) -> list[tuple[int, int]]:
    """Return pairs (level, reference level) of indices."""
    first, n = levels.index(reference), len(levels)
    if wanted in (None, "reference"):
        return [(level, first) for level in range(n) if level != first]
    if wanted == "pairwise":
        return [(a, b) for b in range(n) for a in range(b + 1, n)]
    if wanted == "sequential":
        return [(level + 1, level) for level in range(n - 1)]
    spelled = [str(level) for level in levels]
    chosen = [str(each) for each in wanted] if isinstance(wanted, (list, tuple)) else []
    if len(chosen) != 2 or not {*chosen} <= {*spelled}:
        raise ConfigError(
            f"expected reference, pairwise, sequential or two levels of {name!r} such as "
            f"[{spelled[0]},{spelled[-1]}], found {wanted!r}: give one of these"
        )
    return [(spelled.index(chosen[1]), spelled.index(chosen[0]))]


def _numbers(columns: Columns, name: str, wanted: Any) -> tuple[Change | None, Change, str]:
    """Return the changes to the low and to the high value of a column, and words for both.

    ``None``: the column as it is.
    """
    if wanted is None:
        wanted = [0, 1] if columns.is_boolean(name) else 1
    if isinstance(wanted, str) and wanted == "sd":
        half = 0.5 * columns.sd(name)
        return partial(_moved_by, -half), partial(_moved_by, half), "sd"
    good = isinstance(wanted, Real) and not isinstance(wanted, bool)
    if good and math.isfinite(wanted) and wanted != 0:
        step = float(wanted)
        return None, partial(_moved_by, step), f"{step:+g}"
    try:
        low, high = (float(each) for each in wanted)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected a step such as 1, sd, or two values such as [10,20] of {name!r}, found "
            f"{wanted!r}: give one of these"
        ) from None
    return partial(_set_to, low), partial(_set_to, high), f"{high:g} - {low:g}"


def slopes_of(
    columns: Columns, variables: Sequence[str], spread: Callable[[str], float]
) -> tuple[list[Scenario], list[Contrast]]:
    """Return the scenarios and the contrasts of the derivatives in columns of numbers.

    ``spread`` returns about the standard deviation of one, above 0.
    """
    columns.require(variables, changed=True)
    scenarios, contrasts = list[Scenario](), list[Contrast]()
    for name in variables:
        if name in columns.levels:
            raise ConfigError(
                f"expected a column of numbers, found the factor {name!r}: its levels are compared "
                "by comparisons"
            )
        if columns.has_threshold(name):
            raise ConfigError(
                f"expected a smooth function of {name!r}, found a comparison in the formula, which "
                "has no slope: compare two values by comparisons"
            )
        step = _DERIVATIVE * spread(name)
        for sign in (1.0, -1.0):
            scenarios.append({name: partial(_moved_by, sign * step)})
        pair = len(scenarios) - 2, len(scenarios) - 1
        contrasts.append(Contrast(name, "dY/dX", pair, _difference(2.0 * step)))
    return scenarios, contrasts


class RowMeans(NamedTuple):
    """Weighted sums over the rows of a group, of which a row of means and modes is made."""

    weight: float
    numbers: dict[str, float]
    offset: float
    counts: dict[str, Vector]
    """(levels,) by column of levels."""


@dataclass(frozen=True, eq=False)
class MeansTask(PassTask[dict[tuple[float, ...], RowMeans]]):
    """The means and counts of the columns of a table, by group."""

    task: AverageTask

    def map(self, block: RowBlock) -> dict[tuple[float, ...], RowMeans]:
        """Return the sums of contiguous rows."""
        columns, X = self.task.columns, np.asarray(expanded_rows(block.X), np.float64)
        values = columns.values(X, columns.names)
        weight = self.task.weight(X, block)
        order, starts, labels = self.task.grouped(X, block.start)
        found = {}
        for group, rows in zip(labels, np.split(order, starts[1:]), strict=True):
            w, counts, sums = weight[rows], dict[str, Vector](), dict[str, float]()
            for name, value in values.items():
                if name in columns.levels:
                    size = len(columns.levels[name][0])
                    level = value[rows].astype(np.int64)
                    counts[name] = np.bincount(level, w, size).astype(np.float64)
                else:
                    sums[name] = float(w @ value[rows])
            offset = float(w @ block.offset[rows])
            found[group] = RowMeans(float(w.sum()), sums, offset, counts)
        return found

    def combine(
        self, left: dict[tuple[float, ...], RowMeans], right: dict[tuple[float, ...], RowMeans]
    ) -> dict[tuple[float, ...], RowMeans]:
        """Add the sums of two neighbouring parts of the rows."""
        both = dict(left)
        for group, own in right.items():
            before = both.get(group)
            both[group] = own if before is None else RowMeans(
                before.weight + own.weight,
                {name: value + own.numbers[name] for name, value in before.numbers.items()},
                before.offset + own.offset,
                {name: count + own.counts[name] for name, count in before.counts.items()},
            )  # fmt: skip
        return both


def _sums_at_means(
    task: AverageTask, means: Mapping[tuple[float, ...], RowMeans]
) -> dict[tuple[float, ...], Sums]:
    """Return the sums of the row of means and modes of each group."""
    columns, found = task.columns, dict[tuple[float, ...], Sums]()
    task = replace(task, by=(), weights=False)
    for group, own in means.items():
        if own.weight > 0.0:
            values = {name: total / own.weight for name, total in own.numbers.items()}
            values |= {
                name: float(value > 0.5)
                for name, value in values.items()
                if columns.is_boolean(name)
            }
            values |= {name: float(count.argmax()) for name, count in own.counts.items()}
            X, offset = columns.row(values, own.offset / own.weight)
            block = RowBlock(0, 0, X, np.zeros(1), offset, np.ones(1))
            (found[group],) = task.map(block).values()
    return found


class KnownSums(NamedTuple):
    """Sums over the rows of a group of rows, at every draw."""

    weight: float
    totals: Matrix
    """(scenarios, S) weighted mean responses."""
    X: Matrix
    """(1, q) the first row."""


@dataclass(frozen=True, eq=False)
class KnownTask(PassTask[dict[tuple[float, ...], KnownSums]]):
    """The mean responses of all rows at every draw, with a draw of the effects of their groups."""

    task: AverageTask
    model: Model | CategoryChance
    """The regression of the mixed model, or the probability of a category of it."""
    coefficients: Coefficients
    effects: RowEffects | CrossedEffects
    drawn: dict[int, Matrix] = field(default_factory=dict)
    """(S, effects) draws of the effects of a group: the same in all blocks and scenarios."""

    def _part_of(self, groups: Index, X: Matrix) -> Matrix:
        """Return draws (m, S) of the effects of the groups of rows ``X`` in their predictors."""
        effects = self.effects
        if isinstance(effects, CrossedEffects):
            (part,) = effects.of_rows(groups, X)
            return part.mean
        assert effects.known is not None
        numbers, place = np.unique(groups, return_inverse=True)
        for number in numbers.tolist():
            if number not in self.drawn:
                each = draws_of_group(
                    effects.known, number, effects.theta, (0.0, 1.0), self.task.seed
                )
                self.drawn[number] = np.stack(list(each))
        u = np.stack([self.drawn[number] for number in numbers.tolist()])[place]
        found: Matrix = u[:, :, 0]
        if effects.slope is not None:
            column, scale, shift = effects.slope
            found = found + (scale * X[:, column] + shift)[:, None] * u[:, :, 1]
        return found

    def map(self, block: RowBlock) -> dict[tuple[float, ...], KnownSums]:
        """Return the sums of contiguous rows by the values of ``by``."""
        task, effects = self.task, self.effects
        X = np.asarray(expanded_rows(block.X), np.float64)
        groups = effects.groups_of(block.start, block.start + len(X))
        for at, *factor in np.argwhere(groups == UNKNOWN)[:1].tolist():
            row = block.start + at
            raise DataError(
                "expected rows of groups that the run has seen, found "
                f"{effects.label(row, *factor)} in row {row + 1}: leave such rows out, or ask for "
                "new groups"
            )
        weight = task.weight(X, block)
        order, starts, keys = task.grouped(X, block.start)
        parts = np.split(order, starts[1:])
        totals = np.zeros((len(parts), len(task.scenarios), self.coefficients.draws))
        step = self.coefficients.tile_rows()
        for s, scenario in enumerate(task.scenarios):
            changed, offset = task.changed(X, block.offset, scenario)
            for g, rows in enumerate(parts):
                for low in range(0, len(rows), step):
                    at = rows[low : low + step]
                    eta = self.coefficients.predictors(changed[at], offset[at])
                    eta[0] += self._part_of(groups[at], changed[at])
                    totals[g, s] += weight[at] @ responses(self.model, eta)
        return {
            key: KnownSums(float(weight[rows].sum()), totals[g], X[rows[:1]])
            for g, (key, rows) in enumerate(zip(keys, parts, strict=True))
        }

    def combine(
        self, left: dict[tuple[float, ...], KnownSums], right: dict[tuple[float, ...], KnownSums]
    ) -> dict[tuple[float, ...], KnownSums]:
        """Add the sums of two neighbouring parts of the rows."""
        both = dict(left)
        for key, own in right.items():
            if key in both:
                before = both[key]
                own = KnownSums(before.weight + own.weight, before.totals + own.totals, before.X)
            both[key] = own
        return both


def _known_task(
    call: AverageCall,
    run: RunDirectory,
    model: Model,
    table: Any,
    task: AverageTask,
    posterior: Draws,
    category: int | None,
) -> KnownTask:
    """Return the task for the known groups of a run of a mixed model.

    ConfigError if the model or the table has no groups, or the rows of the run are not there.
    """
    if not isinstance(model, MixedModel | CrossedModel):
        raise ConfigError(
            f"expected known groups of a run of a mixed model, found one of {model.name!r} without "
            "groups: leave groups out"
        )
    run_store, trained_on = run.attributes.get("store"), None
    same = table.fingerprint == run.identity["store"]
    there = [each.column for each in table.crossed]
    for name in model.crossed or (model.column,):
        if not (
            same or name in there or (not model.crossed and table.row_groups(0, 1) is not None)
        ):
            raise ConfigError(
                f"expected rows with labels of {name!r}, found none at {table.address!r}: give "
                "a table with this column, a large one as a store made with --like"
            )
    if needs_rows_of_run(model, table, run.identity["store"]):
        in_memory = run_store in (None, "memory")
        trained_on = _as_fitted(run, call.table) if in_memory else open_store(run_store)
    request = PredictionRequest(
        draws=call.n_draws, trained_on=trained_on, scheduler=call.scheduler, seed=call.seed
    )
    described = record.describe_design(table.attributes)
    effects: RowEffects | CrossedEffects
    if isinstance(model, CrossedModel):
        effects = crossed_effects(run, model, table, request, posterior.design, described)
        theta = effects.theta
    else:
        theta, effects = row_effects(run, model, table, posterior, request, described)
    coefficients = on_table(
        model.inner, theta[:, : -model.n_covariance], posterior.weights, posterior.design, described
    )
    regression: Model | CategoryChance = model.inner
    if category is not None:
        regression = CategoryChance(model.inner, category)
    return KnownTask(task, regression, coefficients, effects)


def _as_fitted(run: RunDirectory, table: Any) -> Any:
    """Return a table as the rows in memory that a run was fitted to; ConfigError if it is not."""
    with suppress(StreammcError):
        rows = data_set(run, table, fitted=True)
        if rows.fingerprint == run.identity["store"]:
            return rows
    raise ConfigError(
        "expected the table of a run on rows in memory, whose groups have the effects, found "
        "another: give the table that was fitted, or sample a store of it"
    )


def _of_known_groups(
    sums: Mapping[tuple[float, ...], KnownSums], contrasts: Sequence[Contrast]
) -> list[Answer]:
    """Return every contrast in every group of rows."""
    found = []
    for contrast in contrasts:
        for group, own in sorted(sums.items(), key=lambda item: item[0]):
            if own.weight > 0.0:
                averages = list(own.totals / own.weight)
                draws = _contrasted(contrast, averages, np.zeros(1))
                found.append(Answer(contrast, group, draws, 0.0))
    return found


def tested(found: Sequence[Answer], equations: Sequence[str]) -> list[Answer]:
    """Return left minus right side of equations of rows ``b1``, ``b2``, ... at every draw.

    The error is at most the sum of those of the rows, times the derivatives in them.
    """
    draws = {f"b{k}": each.draws for k, each in enumerate(found, 1)}
    centre = {name: each.mean(keepdims=True) for name, each in draws.items()}
    spread = {name: float(each.std()) for name, each in draws.items()}
    made = []
    for text in equations:
        left, right = _sides(text, draws)

        def value(at: Mapping[str, Vector], left: Node = left, right: Node = right) -> Vector:
            with np.errstate(all="ignore"):
                return np.asarray(numbers(left, at, {}) - numbers(right, at, {}))

        own = value(draws)
        if not np.isfinite(own).all():
            raise DataError(
                f"expected finite values at every draw, found others of the hypothesis {text!r}: "
                "divide by nothing that may be 0, and take logarithms of numbers above 0"
            )
        own, sd, error = np.broadcast_to(own, draws["b1"].shape), float(own.std()), 0.0
        for name in {*columns_of(left), *columns_of(right)}:
            step = 1e-3 * spread[name]
            if step > 0.0 and sd > 0.0:
                moved = value(centre | {name: centre[name] + step}) - value(centre)
                of_row = found[int(name[1:]) - 1].error
                error += abs(float(moved.item())) / step * spread[name] * of_row / sd
        contrast = Contrast(text, "", (0, 0), _ONE)
        made.append(Answer(contrast, (), np.ascontiguousarray(own), error))
    return made


def _sides(text: str, rows: Mapping[str, Any]) -> tuple[Node, Node]:
    """Return both sides of an equation of rows ``b1``, ``b2``, ...; it is parsed, never run."""
    try:
        tokens = tokenize(text)
        at = [k for k, token in enumerate(tokens) if token.text in ("=", "==")]
        parts = [tokens] if len(at) != 1 else [tokens[: at[0]], tokens[at[0] + 1 :]]
        if len(at) != 1 or not all(parts):
            raise ConfigError("expected one = between two sides")
        left, right = map(parse_expression, parts)
    except ConfigError as error:
        found = str(error).replace("the formula", "the hypothesis").replace("a formula", "one")
        raise ConfigError(f"hypothesis {text!r}: {found}; write it as in 'b1 - b2 = 0'") from None
    for part in (*walk(left), *walk(right)):
        if isinstance(part, Column) and part.name not in rows:
            raise ConfigError(
                f"hypothesis {text!r}: expected rows of the result, b1 to b{len(rows)}, found "
                f"{part.name!r}: count the rows from the top"
            )
        simple = isinstance(part, (Column, Number)) or (
            isinstance(part, Call) and part.function in ELEMENTWISE
        )
        if not simple and not (isinstance(part, Operation) and part.operator in _ARITHMETIC):
            raise ConfigError(
                f"hypothesis {text!r}: expected arithmetic with one =, found a comparison or a "
                "function of columns: write it as in 'b1 - b2 = 0'"
            )
    return left, right


_ARITHMETIC: Final = ("+", "-", "*", "/", "**", "negative", "positive")


def table_of_answers(
    call: AverageCall, made: Callable[[Columns, Dataset], tuple[list[Scenario], list[Contrast]]]
) -> Any:
    """Return the answers of a run for a table, a row each; see :func:`comparisons`."""
    run = opened_run(call.run)
    model = model_of(run, call.model)
    weight = None if call.weights is True else call.weights
    known = call.groups == KNOWN
    table = data_set(run, call.table, groups=known, weight=weight, sampled=False)
    require_predictable(model, PredictionRequest())
    if call.weights is False or call.by_row:
        require_rows(table, "count each once")
    posterior = load_draws(run, model, call.n_draws)
    described = record.describe_design(table.attributes)
    for line in check({**posterior.design, "response": None}, {**described, "response": None}):
        warnings.warn(line, stacklevel=4)
    columns, q = Columns(table.attributes), table.n_features
    columns.require(call.columns_by, changed=False)
    scenarios, contrasts = made(columns, table)
    if not contrasts:
        raise ConfigError(
            "expected a variable, found none: name a column of the model, of numbers for slopes"
        )
    theta = wide(model, posterior.theta, q)
    categories = categories_of(call, model)
    task = AverageTask(
        response=MeanResponse(model, categories[0]),
        columns=columns,
        scenarios=scenarios,
        by=call.columns_by,
        by_row=call.by_row,
        centre=mean(theta.T, posterior.weights),
        run_scale=standardization(posterior.design, q),
        table_scale=standardization(described, q),
        weights=_weights(call, columns, table),
        sampled=SAMPLED,
        seed=call.seed,
    )
    passes: Any = partial(table.reduce, scheduler=call.scheduler, progress=call.progress)
    rows: Mapping[tuple[float, ...], Sums | KnownSums]
    found, labels = list[Answer](), dict[tuple[float, ...], dict[str, Any]]()
    for category in categories:
        task = replace(task, response=MeanResponse(model, category))
        if call.groups == KNOWN:
            known = passes(_known_task(call, run, model, table, task, posterior, category))
            rows, own = known, _of_known_groups(known, contrasts)
        elif call.at == MEAN:
            columns.require(columns.names, changed=True)
            means = _sums_at_means(task, passes(MeansTask(task)))
            rows, own = means, answers(task, means, contrasts, theta)
        else:
            rows, own = _averaged(task, passes, contrasts, theta)
        beside = () if category is None else (float(category),)
        found += [each._replace(group=each.group + beside) for each in own]
        for group, sums in rows.items():
            labels[group + beside] = _labels(call, columns, table, group, sums.X)
            if category is not None:
                labels[group + beside] |= {CATEGORY: category}
    if call.equations:
        found, labels = tested(found, call.equations), {(): {}}
    worst = max((each.error for each in found), default=0.0)
    if worst > ENOUGH:
        warnings.warn(
            f"averages are from a sample of rows with a standard error of up to {worst:.2g} "
            "standard deviations of the draws: the column error has that of each",
            stacklevel=4,
        )
    return _as_given(_as_table(call, found, labels, posterior.weights), call.table)


def categories_of(call: AverageCall, model: Model) -> list[int] | list[None]:
    """Return the categories whose probabilities are averaged; ``[None]``: the mean response is."""
    regression, asked = model.of_a_row, call.categories
    if not regression.takes_levels:
        if asked:
            raise ConfigError(
                f"expected a category of a model of categories, such as ordinal, found one of "
                f"{regression.name!r}, whose mean response is averaged: leave category out"
            )
        return [None]
    levels = cast(int, regression.levels)
    wrong = [each for each in asked if each not in range(levels)]
    if wrong:
        raise ConfigError(
            f"expected a category from 0 to {levels - 1}, found {wrong[0]!r}: choose among these"
        )
    if not asked and regression.nominal:
        return list(range(levels))
    return list(dict.fromkeys(asked)) or [None]


def _averaged(
    task: AverageTask, passes: Any, contrasts: Sequence[Contrast], theta: Matrix
) -> tuple[dict[tuple[float, ...], Sums], list[Answer]]:
    """Return the sums over all rows and the answers, by a second pass if the error asks for it."""
    sums = passes(task)
    found = answers(task, sums, contrasts, theta)
    worst = max((each.error for each in found), default=0.0)
    if worst > ENOUGH:
        wanted = math.ceil(1.5 * SAMPLED * (worst / ENOUGH) ** 2)
        task = replace(task, sampled=min(wanted, max(MOST_SAMPLED // len(sums), SAMPLED)))
        found = answers(task, passes(task), contrasts, theta)
    return sums, found


def _labels(
    call: AverageCall, columns: Columns, table: Dataset, group: tuple[float, ...], X: NDArray[Any]
) -> dict[str, Any]:
    """Return the columns of the result that name a group: of a single row all that are known."""
    found = {
        name: columns.label(name, value)
        for name, value in zip(call.columns_by, group, strict=False)
    }
    if call.by_row:
        row = int(group[0])
        ids = table.row_ids(row, row + 1)
        own = row if ids is None else ids[0]
        found[ROW_ID] = own.decode() if isinstance(own, bytes) else int(own)
    if call.by_row or call.at == MEAN:
        known = [
            name for name in columns.names if name in columns.numbers or name in columns.levels
        ]
        for name, value in columns.values(np.asarray(X[:1], np.float64), known).items():
            found.setdefault(name, columns.label(name, float(value[0])))
    return found


def _as_table(
    call: AverageCall,
    found: Sequence[Answer],
    labels: Mapping[tuple[float, ...], Mapping[str, Any]],
    weights: Vector | None,
) -> pa.Table:
    """Return answers as a table."""
    if not found:
        raise DataError("expected rows with a weight above 0, found none: choose other weights")
    draws = np.stack([each.draws for each in found])
    low, high = quantiles(draws, interval_ends(call.interval), weights)
    centre = mean(draws, weights)
    spread = np.sqrt(mean((draws - centre[:, None]) ** 2, weights))
    fields: dict[str, Any] = {
        "term": [each.contrast.term for each in found],
        "contrast": [each.contrast.contrast for each in found],
    }
    fields = {name: words for name, words in fields.items() if any(words)}
    for name in labels[found[0].group]:
        fields[name] = [labels[each.group][name] for each in found]
    fields |= {
        "estimate": centre,
        "std_error": spread,
        "conf_low": low,
        "conf_high": high,
        "error": [each.error for each in found],
    }
    if call.equations:
        fields["above_zero"] = mean((draws > 0.0).astype(np.float64), weights)
    if call.keep_draws:
        fields["draws"] = list(draws)
    return pa.table(fields)


def _as_given(found: pa.Table, table: Any) -> Any:
    """Return a result as the frame that was given: of pandas or polars, else of Arrow."""
    first = table[0] if isinstance(table, (list, tuple)) and table else table
    package = type(first).__module__.partition(".")[0]
    if package == "pandas":
        return found.to_pandas()
    if package == "polars":
        import polars

        return polars.from_arrow(found)
    return found


def _weights(call: AverageCall, columns: Columns, table: Dataset) -> bool | str:
    """Return the weights of a task; ConfigError if a store does not have the column."""
    name = call.weights
    if isinstance(name, bool):
        return name
    if table.attributes.get("weight") == name and table.attributes.get("trials") is None:
        return True
    if name not in columns.numbers:
        raise ConfigError(
            f"expected {name!r} as the weight of {table.address!r}, or as a number of its formula, "
            f"found neither (its weight is {table.attributes.get('weight')!r}, its trials "
            f"{table.attributes.get('trials')!r}): give the table with this column"
        )
    return name


@dataclass(frozen=True)
class AverageOptions(PassOptions):
    """Options of all averages.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    table : data set, path, table, or list of them
        The rows to average over: a store or its path, or a table as of ``from_table`` with the
        columns of the run.
    by
        Columns of the model whose values form the groups of rows; ``()``: all rows together.
    by_row
        An answer for each row of a small table.
    category : int or list of int
        Average the probability of this category of ``ordinal`` or ``multinomial``, in place of the
        mean response. The result then has the column ``category``. ``()``: the mean response, of
        ``multinomial``, which has none, every category.
    at : {'mean'} or None
        One row in place of all rows, or of each group of ``by``: means of numbers, most frequent
        levels. ``None``: the average over the rows.
    groups : {'new', 'known'}
        Of a mixed model: ``new`` averages over new groups; at ``known`` each row has posterior
        draws of the effects of its own group, and every row is evaluated at every draw.
    weights : bool or column
        Whether a row counts as its weight, trials included; else every row counts once. A column
        of the table: a row counts as its value.
    hypothesis : str or list of str
        Equations such as ``"b1 - b2 = 0"``, of the rows of the result in their order. The result
        then has a row for each: left minus right side, and ``above_zero``, the posterior
        probability that it is above 0.
    model
        The model of the run; needed for a model of your own.
    interval
        Probability of the interval, with equal tails.
    draws
        Number of draws, thinned from all chains together. ``None``: 4,000, or 100 for known groups.
    seed
        Seed of the sample of rows.
    keep_draws
        Add a column ``draws`` with a list of all of them.
    progress : Callable[[int, int], None] | None
        Called as ``progress(done, total)`` after every block of a full pass, in blocks; ``done``
        starts again with every pass.
    """

    _: KW_ONLY
    by: str | Sequence[str] = ()
    by_row: bool = False
    category: int | Sequence[int] = ()
    at: str | None = None
    groups: str = NEW
    weights: bool | str = True
    hypothesis: str | Sequence[str] = ()
    model: Model | None = None
    interval: float = INTERVAL
    draws: int | None = None
    seed: int = 0
    keep_draws: bool = False
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError where an option is out of its range."""
        PredictionRequest(draws=self.n_draws, interval=self.interval, seed=self.seed)
        for name, value, known in (("at", self.at, (None, MEAN)), ("groups", self.groups, GROUPS)):
            if value not in known:
                words = " or ".join(repr(each) for each in known)
                raise ConfigError(f"expected {words} as {name}, found {value!r}: choose one")
        for name, other, given, why in (
            ("by_row", "by", self.by_row and self.columns_by, "there is an answer for each row"),
            ("by_row", "at", self.by_row and self.at, "a mean row is no row of the table"),
            ("at", "groups", self.at and self.groups == KNOWN, "a mean row is of no known group"),
        ):
            if given:
                raise ConfigError(f"expected {name} or {other}, found both: {why}; leave one out")

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        few = GROUP_DRAWS if self.groups == KNOWN else DRAWS
        return few if self.draws is None else self.draws

    @property
    def columns_by(self) -> tuple[str, ...]:
        """The columns ``by``."""
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def categories(self) -> tuple[int, ...]:
        """The categories."""
        given = self.category
        return tuple(given) if isinstance(given, Sequence) else (given,)

    @property
    def equations(self) -> tuple[str, ...]:
        """The hypotheses."""
        given = self.hypothesis
        return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True)
class PredictionsCall(AverageOptions):
    """Arguments of :func:`predictions`."""

    run: str | os.PathLike[str] | xarray.DataTree
    table: Any


@dataclass(frozen=True)
class SlopesCall(AverageOptions):
    """Arguments of :func:`slopes`.

    Parameters
    ----------
    variables
        Columns of numbers; ``None``: all of them.
    """

    run: str | os.PathLike[str] | xarray.DataTree
    table: Any
    variables: str | Sequence[str] | None = None


@dataclass(frozen=True)
class ComparisonsCall(AverageOptions):
    """Arguments of :func:`comparisons`.

    Parameters
    ----------
    variables : mapping, names, or None
        What is compared, by column: of numbers a step such as 1, ``"sd"`` around each value, or
        two values ``[10, 20]``; of levels ``"reference"``, ``"pairwise"``, ``"sequential"`` or
        two levels. ``None`` as a value: 1 and ``"reference"``; in place of all: every column.
    comparison : {'difference', 'ratio', 'lnratio', 'lnor'}
        Of the averages of the high and of the low value.
    """

    run: str | os.PathLike[str] | xarray.DataTree
    table: Any
    variables: Mapping[str, Any] | str | Sequence[str] | None = None
    _: KW_ONLY
    comparison: str = "difference"


AverageCall = PredictionsCall | SlopesCall | ComparisonsCall


@called_with(ComparisonsCall)
def comparisons(call: ComparisonsCall) -> Any:
    """Compare the mean response of all rows between two values of a variable, at every draw.

    Every row keeps its other values, and the average is over all rows: an average comparison
    (marginaleffects), from one pass in constant memory.

    Returns
    -------
    pyarrow.Table, or a frame of pandas or polars where ``table`` is one
        A row for each comparison and group: ``term``, ``contrast``, the columns ``by``,
        ``estimate`` (mean of the draws), ``std_error`` (their standard deviation), ``conf_low``
        and ``conf_high``, and ``error``: standard error from a sample of rows, in ``std_error``.

    Raises
    ------
    ConfigError
        If a variable is not a column of the model, or its values cannot be changed alone.
    DataError
        If the run is unfinished, or a changed value is not one that the formula was fitted for.
    """

    def made(columns: Columns, _: Dataset) -> tuple[list[Scenario], list[Contrast]]:
        wanted = columns.names if call.variables is None else call.variables
        if isinstance(wanted, str):
            wanted = [wanted]
        named = wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
        return scenarios_of(columns, named, call.comparison)

    return table_of_answers(call, made)


@called_with(SlopesCall)
def slopes(call: SlopesCall) -> Any:
    """Average the derivative of the mean response in a variable over all rows, at every draw.

    Returns
    -------
    pyarrow.Table, or a frame
        As :func:`comparisons`; the contrast is ``dY/dX``.

    Raises
    ------
    ConfigError
        If a variable is not a column of numbers of the model.
    DataError
        If the run is unfinished.
    """

    def made(columns: Columns, table: Dataset) -> tuple[list[Scenario], list[Contrast]]:
        wanted = [call.variables] if isinstance(call.variables, str) else call.variables
        if wanted is None:
            wanted = [name for name in columns.names if name not in columns.levels]
        sample = cache(lambda: draw_subset(table, SUBSET_BYTES).X)

        def spread(name: str) -> float:
            """Return the standard deviation of a column, or in a sample; 1 of a constant one."""
            if columns.standardised:
                return columns.sd(name)
            return float(columns.values(sample(), [name])[name].std()) or 1.0

        return slopes_of(columns, wanted, spread)

    return table_of_answers(call, made)


@called_with(PredictionsCall)
def predictions(call: PredictionsCall) -> Any:
    """Average the mean response over all rows, or groups of rows, at every draw.

    With ``by`` and ``weights`` a poststratification. Predictions of every row: ``predict``.

    Returns
    -------
    pyarrow.Table, or a frame
        As :func:`comparisons`, without ``term`` and ``contrast``.

    Raises
    ------
    ConfigError
        If ``by`` is not a column of the model.
    DataError
        If the run is unfinished.
    """

    def made(*_: Any) -> tuple[list[Scenario], list[Contrast]]:
        return [{}], [Contrast("", "", (0, 0), _ONE)]

    return table_of_answers(call, made)
