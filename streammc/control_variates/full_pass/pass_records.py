"""Records of the compiled pass: rows, points, results and buffers of ``block_kernel``."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from numba import types

from streammc.numerics.expand_runs import codes_type
from streammc.protocols import Index, Matrix, Vector


class PassRows(NamedTuple):
    """Rows of one call: (m, q) design, and (m,) vectors."""

    single: Annotated[Any, types.Array(types.float32, 2, "C", readonly=True)]
    """The design as float32, or an array without rows."""
    double: Annotated[Any, types.Array(types.float64, 2, "C", readonly=True)]
    """The design as float64, or an array without rows."""
    codes: Annotated[Any, codes_type]
    """(m, K) codes of the factors whose columns are not in the design; or (0, 0)."""
    y: Vector
    offset: Vector
    weight: Vector


class PassPoints(NamedTuple):
    """Points at which rows are evaluated, and sizes."""

    theta: Vector
    """(d,) expansion point."""
    columns: Matrix
    """(n_linear R, q rounded up to fours): theta and the S shifts of each linear predictor,
    in R >= 1 + S rows."""
    shifts: Matrix
    """(S, d) shifts from ``theta`` at which remainders are evaluated."""
    n_linear: int
    n_scalar: int
    n_features: int
    order: int
    """Order of the control variates."""
    tile: int
    """Rows of a tile."""
    level_first: Index
    """(K,), see ``level_kernel.sum_levels``."""
    level_cross: Index
    level_products: Matrix
    """(levels, R) what each level adds to the linear predictor."""
    with_sums: int
    """0: nothing is added to ``totals``."""


class PassSums(NamedTuple):
    """Results: ``remainders`` and ``squares`` are written, all others added to."""

    totals: Matrix
    """(2, 1 + d + d d) log-likelihood, gradient, upper half of the Hessian: high and low parts."""
    remainders: Matrix
    """(S, m) remainders, or (S, 0) for none."""
    squares: Vector
    """(m,) mean squares of the remainders over the shifts."""
    counts: Index
    """Rows by score; see ``add_to_histogram``."""
    power_sums: Annotated[Any, types.Array(types.float64, 4, "C")]
    terms: Matrix
    """(4, S) sum of the first-order terms; of the second-order terms c; of c^2; of (sum of c over
    a full tile)^2."""
    levels: Matrix
    """Sums by level and, in ``crosses``, by pairs of levels; see ``level_kernel.sum_levels``."""
    crosses: Matrix
    flags: Index
    """(3,) counts of the rows whose log-likelihood or derivatives at theta are not finite, and of
    full tiles; then the first such row of this call, or -1."""


class Plain(NamedTuple):
    """Sums of at most ``block_kernel.SUM_ROWS`` rows, and buffers to make them."""

    V: Any
    """(1 + d,) log-likelihood and gradient."""
    G: Any
    """(p (p + 1) / 2, q4, q4) Hessian by pair of predictors."""
    W: Any
    """(q4, tile) weighted design."""
    g: Any
    """(q4,)."""


class Shifted(NamedTuple):
    """Buffers of a tile for the remainders at the shifts."""

    eta: Any
    """(p, m) predictors at theta; ``step`` their changes, ``moved`` their sum."""
    step: Any
    moved: Any
    out: Any
    """(1 + p + p (p + 1) / 2, m) output of the link at the shift."""
    slope: Any
    bend: Any
