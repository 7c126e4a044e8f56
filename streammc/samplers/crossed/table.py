"""Sums of a table over the levels of its factors, and its rows in the order of each factor.

Two sequential reads of the rows, whatever their order: the first adds up, the second puts the
levels of the other factors into the order of the levels of each. These are mapped from a file
without a name, which the system removes with the process, and written in windows that fit in
memory.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.errors import ConfigError, RefusedError, StorageIOError
from streammc.likelihood.blocks import allocate_rows
from streammc.numerics.jit import i8, index_vector, inline, jit, matrix, vector
from streammc.protocols import Dataset, Index, Matrix, Vector
from streammc.samplers.crossed.likelihoods import Rows
from streammc.samplers.crossed.sweep import (
    Codes,
    Crossed,
    solve_semidefinite,
    write_semidefinite_root,
)

PIECE: Final = 1 << 16
"""Rows of a block."""
_MAPPED_ABOVE: Final = 1 << 28
"""Bytes of levels above which they are mapped from a file."""
_WINDOW_BYTES: Final = 1 << 29
"""Bytes of a factor's order that are written in one read."""
_MOST_LEVELS: Final = 2**31 - 1

_levels = types.Array(types.uint32, 2, "C", readonly=True)
_codes = types.Array(types.int32, 2, "C")
_some_codes = types.Array(types.int32, 1, "C", readonly=True)


class Term(NamedTuple):
    """The effects of the levels of a factor."""

    columns: tuple[int, ...] = (-1,)
    """Column of the design of each; -1: an intercept."""
    correlated: bool = False
    """Whether the correlations of several are sampled."""


class Piece(NamedTuple):
    """Some rows: ``X`` (m, q), responses (m,), weights (m,) and levels (m, F) from 0."""

    X: Matrix
    y: Vector
    weight: Vector
    levels: NDArray[np.uint32]
    offset: Vector
    """(m,), which ``y`` of a Gaussian response is less already."""


@jit(
    types.void(matrix, vector, vector, _levels, index_vector, index_vector, index_vector,
               index_vector, index_vector, matrix, vector, vector, vector, matrix, vector,
               index_vector),
    borrow=True,
)  # fmt: skip
def _add(  # type: ignore[no-untyped-def]
    X, y, weight, levels, first, effect, component, pair, column, gram, cross, totals, response,
    design, own, rows,
):  # fmt: skip
    """Add rows to the sums; ``totals`` (2,) are the sum of the weights and y'Wy."""
    q = X.shape[1]
    for i in range(y.shape[0]):
        w = weight[i]
        wy = w * y[i]
        totals[0] += w
        totals[1] += wy * y[i]
        for j in range(q):
            wx = w * X[i, j]
            cross[j] += wx * y[i]
            for k in range(j + 1):
                gram[j, k] += wx * X[i, k]
        for f in range(levels.shape[1]):
            level = levels[i, f]
            rows[first[f] + level] += 1
            k = component[f + 1] - component[f]
            at, square = effect[f] + level * k, pair[f] + level * k * k
            for c in range(k):
                z = _value_of(X, i, column[component[f] + c])
                response[at + c] += z * wy
                for d in range(k):
                    both = z * _value_of(X, i, column[component[f] + d])
                    own[square + c * k + d] += w * both
                for j in range(q):
                    design[at + c, j] += z * w * X[i, j]


@inline
def _value_of(X, i, column):  # type: ignore[no-untyped-def]
    return 1.0 if column < 0 else X[i, column]


@jit(types.void(vector, i8, matrix))
def _halve(own, k, sums):  # type: ignore[no-untyped-def]
    """Replace the sums (E_f, m) of the levels of a factor of k effects by ``F_l^-1`` times them."""
    F, part = np.zeros((k, k)), np.empty(k)
    for l in range(sums.shape[0] // k):
        write_semidefinite_root(own, l * k * k, F)
        for j in range(sums.shape[1]):
            for c in range(k):
                part[c] = sums[l * k + c, j]
            solve_semidefinite(F, part)
            for c in range(k):
                sums[l * k + c, j] = part[c]


@jit(
    types.void(_levels, vector, matrix, index_vector, i8, index_vector, i8, i8, _codes, matrix,
               types.Array(types.float64, 3, "C")),
    borrow=True,
)  # fmt: skip
def _place(  # type: ignore[no-untyped-def]
    levels, weight, columns, first, f, at, low, high, codes, row_weight, slopes
):
    """Write the levels of the other factors at the places of rows in the order of factor ``f``.

    ``at`` (levels of f,) are the next places, and move on; those outside of ``low`` to ``high`` are
    left out.
    """
    F = levels.shape[1]
    for i in range(levels.shape[0]):
        own = levels[i, f]
        place = at[own]
        at[own] = place + 1
        if low <= place < high:
            other = f * (F - 1)
            for g in range(F):
                if g != f:
                    codes[other, place] = first[g] + levels[i, g]
                    other += 1
            if row_weight.shape[1] > 0:
                row_weight[f, place] = weight[i]
            if slopes.shape[1] > 0:
                for j in range(columns.shape[1]):
                    slopes[f, place, j] = columns[i, j]


@jit(types.boolean(index_vector, i8, _some_codes, types.Array(types.int32, 1, "C")))
def _nested(start, low, codes, parent):  # type: ignore[no-untyped-def]
    """Write the level of another factor of each level; return whether all its rows have that one.

    Levels are numbered from ``low`` on.
    """
    for l in range(start.shape[0] - 1):
        for i in range(start[l] + 1, start[l + 1]):
            if codes[i] != codes[start[l]]:
                return False
        if start[l + 1] > start[l]:
            parent[low + l] = codes[start[l]]
    return True


@jit(i8(index_vector, i8), borrow=True)
def _root(parent, l):  # type: ignore[no-untyped-def]
    while parent[l] != l:
        parent[l] = parent[parent[l]]
        l = parent[l]
    return l


@jit(types.void(index_vector, i8, _some_codes, index_vector), borrow=True)
def _join(start, low, codes, parent):  # type: ignore[no-untyped-def]
    """Join the levels, from number ``low`` on, of a factor with those of another in its rows."""
    for l in range(start.shape[0] - 1):
        for i in range(start[l], start[l + 1]):
            a, b = _root(parent, low + l), _root(parent, codes[i])
            if a != b:
                parent[max(a, b)] = min(a, b)


def ordered(
    pieces: Callable[[], Iterator[Piece]], table: Crossed, q: int, dtype: str, offset: bool
) -> Rows:
    """Return the rows in the order of each factor, mapped from files where they are many."""
    F, n = len(table.first) - 1, int(table.rows)
    single = np.dtype(dtype) == np.float32
    values = _mapped((F, n, q + 1), np.dtype(np.float32 if single else np.float64))
    none = np.zeros((F, 0, q + 1), np.float64 if single else np.float32)
    offsets = _mapped((F, n if offset else 0), np.float64)
    for f in range(F):
        at = table.start[table.first[f] + f : table.first[f + 1] + f].copy()
        for piece in pieces():
            places = _places(np.ascontiguousarray(piece.levels[:, f]), at)
            values[f, places, :q] = piece.X
            values[f, places, q] = piece.y
            if offset:
                offsets[f, places] = piece.offset
    return Rows(values, none, offsets) if single else Rows(none, values, offsets)


@jit(index_vector(types.Array(types.uint32, 1, "C"), index_vector))
def _places(levels, at):  # type: ignore[no-untyped-def]
    """Return the places (m,) of rows in the order of a factor, of whose levels ``at`` moves on."""
    places = np.empty(levels.shape[0], np.int64)
    for i in range(levels.shape[0]):
        places[i] = at[levels[i]]
        at[levels[i]] += 1
    return places


def summed(
    pieces: Callable[[], Iterator[Piece]],
    sizes: Index,
    q: int,
    weighted: bool,
    terms: Sequence[Term] = (),
    sums_suffice: bool = True,
) -> Crossed:
    """Return the sums of a table, and its rows in the order of each factor.

    Parameters
    ----------
    pieces
        Yields the rows, the same at every call.
    sizes
        (F,) levels of each factor.
    q
        Columns of the design.
    weighted
        Whether weights of rows differ; otherwise all are that of the first row, 1.
    terms
        Effects of each factor; none: intercepts.
    sums_suffice
        Whether sweeps read no rows but those of slopes in ``Crossed.slopes``.
    """
    terms = tuple(terms) or (Term(),) * len(sizes)
    F, L = len(sizes), int(sizes.sum())
    widths = np.array([len(each.columns) for each in terms])
    if (sizes * widths).sum() > _MOST_LEVELS:
        raise RefusedError(
            f"expected at most {_MOST_LEVELS:,} effects of all factors that cross together, found "
            f"{(sizes * widths).sum():,}: leave one factor out"
        )
    first, effect, component, pair = (
        _ends(each) for each in (sizes, sizes * widths, widths, sizes * widths**2)
    )
    pairs = [k * (k - 1) // 2 * term.correlated for k, term in zip(widths, terms, strict=True)]
    column = np.array([each for term in terms for each in term.columns], np.int64)
    E = int(effect[-1])
    gram, cross, totals = np.zeros((q, q)), np.zeros(q), np.zeros(2)
    response, design, rows = np.zeros(E), np.zeros((E, q)), np.zeros(L, np.int64)
    own = np.zeros(int(pair[-1]))
    n = 0
    for piece in pieces():
        _add(*piece[:4], first, effect, component, pair, column, gram, cross, totals, response,
             design, own, rows)  # fmt: skip
        n += len(piece.y)
    gram += np.tril(gram, -1).T
    start = np.concatenate([
        np.concatenate([[0], np.cumsum(rows[first[f] : first[f + 1]])]) for f in range(F)
    ])  # fmt: skip
    used = sorted({*column.tolist()} - {-1})
    slot = np.array([used.index(each) if each >= 0 else -1 for each in column.tolist()], np.int64)
    codes = _mapped((F * (F - 1), n), np.int32)
    row_weight = _mapped((F, n if weighted else 0), np.float64)
    reads = bool(used) and sums_suffice and F > 1
    slopes = _mapped((F, n if reads else 0, len(used)), np.float64)
    row_bytes = 4 * (F - 1) + 8 * weighted + 8 * reads * len(used)
    window = max(_WINDOW_BYTES // max(row_bytes, 1), PIECE)
    for low in range(0, n if F > 1 or weighted else 0, window):
        at = [start[first[f] + f : first[f + 1] + f].copy() for f in range(F)]
        for piece in pieces():
            columns = np.ascontiguousarray(piece.X[:, used if reads else []])
            for f in range(F):
                _place(piece.levels, piece.weight, columns, first, f, at[f], low, low + window,
                       codes, row_weight, slopes)  # fmt: skip
    within = np.empty((F * q, q))
    for f in range(F):
        Y = design[effect[f] : effect[f + 1]].copy()
        _halve(own[pair[f] : pair[f + 1]], int(widths[f]), Y)
        within[f * q : (f + 1) * q] = gram - _product(Y, Y)
    nested, parent = _nests(first, start, codes)
    unit = np.ones(len(column))
    unit[column >= 0] = np.sqrt(np.diag(gram)[column[column >= 0]] / totals[0])
    return Crossed(
        gram, within, cross, float(totals[1]), float(totals[0]), float(n), first, effect,
        component, _ends(widths + pairs), column, slot, unit, pair, own, response, design,
        start, codes, slopes, row_weight,
        nested, parent,
    )  # fmt: skip


def halved(table: Crossed, f: int, sums: Matrix) -> Matrix:
    """Return ``F_l^-1`` times sums (E_f, m) of the levels of a factor; see ``sweep``."""
    k, found = int(table.component[f + 1] - table.component[f]), np.array(sums)
    _halve(table.own[table.pair[f] : table.pair[f + 1]], k, found)
    return found


def _ends(sizes: Index) -> Index:
    """Return where each of several parts begins that stand in one row, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _nests(first: Index, start: Index, codes: Codes) -> tuple[Index, Codes]:
    """Return ``Crossed.nested`` and ``parent``."""
    F, L = len(first) - 1, int(first[-1])
    pairs, parents = [], [np.empty((0, L), np.int32)]
    for f in range(F):
        bounds = start[first[f] + f : first[f + 1] + f + 1]
        for place, g in enumerate(g for g in range(F) if g != f):
            parent = np.full(L, -1, np.int32)
            if _nested(bounds, first[f], codes[f * (F - 1) + place], parent):
                pairs += [f, g]
                parents.append(parent[None])
    return np.array(pairs, np.int64), np.concatenate(parents)


def _product(S: Matrix, means: Matrix) -> Matrix:
    """Return ``S' means``, with the same bits on any number of cores."""
    out: Matrix = np.einsum("lj,lk->jk", S, means)
    return out


def _mapped(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return a new array; a large one is a file without a name."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= _MAPPED_ABOVE:
        return np.zeros(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="streammc-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, not later
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
    except OSError as error:
        raise StorageIOError(
            f"expected room for {size / 1e9:.1f} GB of levels in {tempfile.gettempdir()}, found "
            f"none ({error.strerror}): set TMPDIR to a folder of a larger disk"
        ) from error


def pieces_of(
    dataset: Dataset, centre: Vector | None, check: Callable[[Matrix, Vector, Vector], None]
) -> Iterator[Piece]:
    """Yield the rows of a data set; Gaussian responses are less their offset and ``x . centre``.

    ``centre`` ``None``: another response, which stays as it is.
    """
    source, n, q = dataset.rows(), dataset.n_rows, dataset.n_features
    for start in range(0, n, PIECE):
        m = min(PIECE, n - start)
        rows = allocate_rows(m, q)
        source.gather(np.array([start]), m, rows)
        used = rows.weight > 0.0
        check(rows.X[used], rows.y[used], rows.weight[used])
        levels = np.ascontiguousarray(dataset.table.row_levels(start, start + m))
        y = rows.y if centre is None else rows.y - rows.offset - rows.X @ centre
        yield Piece(rows.X, y, rows.weight, levels, rows.offset)


class Structure(NamedTuple):
    """What a table says about its factors."""

    nested: tuple[tuple[int, int], ...]
    """Pairs (f, g): the rows of a level of f have one level of g."""
    parts: int
    """Parts of the table that share no level of the factors that cross."""
    largest: float
    """Share of the rows in the largest of them."""


def structure_of(table: Crossed) -> Structure:
    """Return which factors are nested, and the parts into which rows fall by the others."""
    F, L = len(table.first) - 1, int(table.first[-1])
    pairs = {(int(f), int(g)) for f, g in table.nested.reshape(-1, 2)}
    parent = np.arange(L)
    bounds = [table.start[table.first[f] + f : table.first[f + 1] + f + 1] for f in range(F)]
    joined = False
    for f in range(F):
        for g in range(f + 1, F):
            if (f, g) not in pairs and (g, f) not in pairs:
                joined = True
                _join(bounds[f], table.first[f], table.codes[f * (F - 1) + g - 1], parent)
    if not joined:
        return Structure(tuple(sorted(pairs)), 1, 1.0)
    crossing = next(
        f
        for f in range(F)
        if any(f != g and (f, g) not in pairs and (g, f) not in pairs for g in range(F))
    )
    rows = np.diff(bounds[crossing])
    own = np.arange(table.first[crossing], table.first[crossing + 1])
    roots = np.array([_root(parent, l) for l in own])[rows > 0]
    _, number = np.unique(roots, return_inverse=True)
    share = np.bincount(number, rows[rows > 0]) / table.rows
    return Structure(tuple(sorted(pairs)), len(share), float(share.max()))


def require_distinct(structure: Structure, names: tuple[str, ...]) -> None:
    """Refuse factors that are one another's copies."""
    for f, g in structure.nested:
        if f < g and (g, f) in structure.nested:
            raise ConfigError(
                f"expected factors that tell rows apart, found {names[f]!r} and {names[g]!r} with "
                "the same rows in each level: the sum of their effects is identified, not each; "
                "leave one out"
            )
