"""Coded factors: one integer a row in place of indicator columns, chosen, counted and expanded.

A factor is coded where its indicators stand alone in the design, one after the other, as those of
``C(g)`` or of a column of text. An interaction, such as ``x:C(g)``, stays as columns of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.coded_matrix import CODE_DTYPE
from streammc.protocols import Index, Matrix, Vector
from streammc.stores.format.codes import described_codes
from streammc.stores.format.layout import CODES
from streammc.stores.formula.expressions import Report, Values, level_index
from streammc.stores.formula.fitted import Design, factor_node, is_factor
from streammc.stores.formula.parser import Node, label
from streammc.stores.ingest.table_blocks import Scan

CODED_ABOVE: Final = 64
"""Number of columns of a factor above which it is coded; ``bench/dimension.py`` has the times."""


class CodedFactor(NamedTuple):
    """A factor of a formula whose columns are codes."""

    node: Node
    first: int
    """Its first column among ``Design.names``."""
    codes: Index
    """(levels,) code of each level: 0, or the number of its column from 1."""

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.codes.max())

    @property
    def range(self) -> slice:
        """The columns among ``Design.names``."""
        return slice(self.first, self.first + self.columns)

    def encode(self, design: Design, values: Values, report: Report) -> Vector:
        """Return the codes of rows (m,) as numbers; report unseen levels."""
        levels = level_index(self.node, values, design.states, report)
        return self.codes[levels].astype(np.float64)


def coded_factors(design: Design, above: int) -> list[CodedFactor]:
    """Return the factors of more than ``above`` columns, in their order.

    The one of fewest columns stays as it is if the design would have no other column.
    """
    wide = [each for each in lone_factors(design) if each.columns > above]
    coded = sum(each.columns for each in wide)
    if wide and coded == len(design.names) and not design.terms.intercept:
        wide.remove(min(wide, key=lambda each: each.columns))
    return wide


def stated_factors(design: Design, attributes: Mapping[str, Any]) -> list[CodedFactor]:
    """Return the factors that a store has as codes."""
    stated = {each["first"] - design.terms.intercept for each in attributes.get(CODES, ())}
    return [each for each in lone_factors(design) if each.first in stated]


def codes_attribute(factors: Sequence[CodedFactor], design: Design) -> list[dict[str, Any]]:
    """Return the attribute ``codes`` of a store."""
    shift = int(design.terms.intercept)
    return [described_codes(label(each.node), each.first + shift, each.columns) for each in factors]


def lone_factors(design: Design) -> list[CodedFactor]:
    """Return every factor whose indicators stand alone, one after the other, with its codes."""
    columns = [column for column in design.columns if column.fields]
    factors, at = [], 0
    while at < len(columns):
        node, _ = columns[at].fields[0]
        end = at
        while end < len(columns) and len(columns[end].fields) == 1:
            if columns[end].fields[0][0] != node or columns[end].scale != 1:
                break
            end += 1
        fields = [column.fields[0][1] for column in columns[at:end]]
        if is_factor(node, design.kinds) and len(set(fields)) == len(fields) > 0:
            factors.append(CodedFactor(node, at, _codes(design, node, fields)))
        at = max(end, at + 1)
    for factor in design.factors:
        node = factor_node(factor)
        levels = len(design.states[label(node)]["levels"])
        factors.append(CodedFactor(node, at, _codes(design, node, range(levels))))
        at += levels + 1
    return factors


def _codes(design: Design, node: Node, fields: Sequence[int]) -> Index:
    codes = np.zeros(len(design.states[label(node)]["levels"]), np.int64)
    codes[np.asarray(fields)] = np.arange(1, len(fields) + 1)
    return codes


class LevelCounts:
    """Rows by code of each factor, in blocks whose last features are codes."""

    def __init__(self, factors: Sequence[CodedFactor], n_features: int) -> None:
        self._factors = factors
        self._coded = np.zeros(n_features, np.bool_)
        for factor in factors:
            self._coded[factor.range] = True
        self.dense: Index = np.flatnonzero(~self._coded)
        """The features that are stored as they are."""
        self._counts = [np.zeros(factor.columns + 1, np.int64) for factor in factors]

    def add(self, values: Matrix, counts: Index | None = None) -> None:
        """Add the rows of a block (c, m), each as often as ``counts`` (m,) says."""
        for index, count in enumerate(self._counts, len(self.dense)):
            rows = np.bincount(values[index].astype(np.int64), counts, minlength=len(count))
            count += rows.astype(np.int64, copy=False)

    def add_counts(self, factor: int, rows: Index) -> None:
        """Add the number of rows by code (columns + 1,) of the factor number ``factor``."""
        self._counts[factor][: len(rows)] += rows

    def widened(self, scan: Scan) -> Scan:
        """Return the scan with an entry for every column of the design, and for all others.

        The mean of an indicator is its share of the rows.
        """
        if not self._factors:
            return scan
        n_dense = len(self.dense)
        others = scan.mean[n_dense + len(self._factors) :]
        shares = np.concatenate([count[1:] for count in self._counts]) / scan.n_counted

        def wide(values: Vector, of_levels: Vector) -> Vector:
            features = np.empty(len(self._coded))
            features[self.dense], features[self._coded] = values[:n_dense], of_levels
            return np.concatenate([features, values[len(values) - len(others) :]])

        return replace(
            scan,
            mean=wide(scan.mean, shares),
            sd=wide(scan.sd, np.sqrt(shares * (1.0 - shares))),
            minimum=wide(scan.minimum, (shares == 1.0).astype(np.float64)),
            maximum=wide(scan.maximum, (shares > 0.0).astype(np.float64)),
            rounding=wide(scan.rounding, np.zeros(len(shares))),
        )


Arrays = Mapping[str, NDArray[Any]]

_SLICE_BYTES: Final = 1 << 19
"""Bytes of the arrays that are written at once: a part of the second-level cache."""


class Expansion:
    """Arrays of a store, written from records.

    A factor is one code in a record, whatever the store has: the indicators of the factors that
    a store holds as columns, ``((code == j) - mean) / scale``, and the intercept are written last,
    so that a shuffle moves few bytes.

    ``records`` is their dtype: dense columns ``X``, ``codes`` of the ``factors`` in this order,
    and one field for each other array. The store has the factors ``stored`` as codes. ``mean`` and
    ``scale`` (features,) are of every column of the design without the intercept.
    """

    def __init__(
        self,
        records: np.dtype[Any],
        intercept: bool,
        x_dtype: str,
        factors: Sequence[CodedFactor],
        stored: Sequence[CodedFactor],
        mean: Vector,
        scale: Vector,
    ) -> None:
        stored_first = {factor.first for factor in stored}
        coded = np.zeros(mean.size, np.bool_)
        absent = np.zeros(mean.size, np.bool_)
        for factor in factors:
            coded[factor.range] = True
            absent[factor.range] = factor.first in stored_first
        place = intercept + np.cumsum(~absent) - 1
        self._intercept = intercept
        self._dense = _runs(place[~coded])
        self._kept = [k for k, factor in enumerate(factors) if factor.first in stored_first]
        self._levels = []
        for k, factor in enumerate(factors):
            if factor.first not in stored_first:
                first, own = int(place[factor.first]), factor.range
                zero = (-mean[own] / scale[own]).astype(x_dtype)
                one = ((1.0 - mean[own]) / scale[own]).astype(x_dtype)
                self._levels.append((k, first, zero, one))
        width = intercept + int((~absent).sum())
        self.dtypes: dict[str, np.dtype[Any]] = {"X": np.dtype((x_dtype, (width,)))}
        """Dtype of a row of each array, with the shape of the row."""
        if stored:
            self.dtypes[CODES] = np.dtype((CODE_DTYPE, (len(stored),)))
        others = [name for name in records.names or () if name not in ("X", CODES)]
        self.dtypes |= {name: records[name] for name in others}
        self.row_bytes = sum(
            prod(dtype.shape) * dtype.base.itemsize for dtype in self.dtypes.values()
        )
        self.slice_rows = max(1, _SLICE_BYTES // self.row_bytes)

    def empty(self, rows: int) -> dict[str, NDArray[Any]]:
        """Return new arrays of ``rows`` rows, by name."""
        return {name: np.empty(rows, dtype) for name, dtype in self.dtypes.items()}

    def write(self, records: NDArray[Any], into: Arrays) -> None:
        """Write the records (m,) into the rows (m, ..) of every array of ``into``."""
        for name, array in into.items():
            if name == "X":
                self._write_design(records, array)
            elif name == CODES:
                array[:] = records[CODES][:, self._kept]
            elif array.dtype.kind == "u" and records[name].dtype.kind == "S":
                texts = np.ascontiguousarray(records[name])
                array[:] = texts.view(np.uint8).reshape(len(texts), -1)
            else:
                array[:] = records[name]

    def _write_design(self, records: NDArray[Any], X: NDArray[Any]) -> None:
        if self._intercept:
            X[:, 0] = 1
        done = 0
        for start, stop in self._dense:
            X[:, start:stop] = records["X"][:, done : done + stop - start]
            done += stop - start
        for k, first, zero, one in self._levels:
            X[:, first : first + zero.size] = zero
            codes = records[CODES][:, k].astype(np.intp)
            rows = np.flatnonzero(codes)
            codes = codes[rows] - 1
            X[rows, first + codes] = one[codes]


def _runs(places: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Return the runs ``(start, stop)`` of consecutive numbers in ascending ``places``."""
    if not places.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(places) > 1) + 1).tolist(), places.size]
    return [(int(places[low]), int(places[high - 1]) + 1) for low, high in pairwise(cuts)]
