"""The modes of a posterior, from several starts of Newton's method on rows in memory.

A conflict of prior and likelihood leaves a mode at each of them. A normal prior far from a
Gaussian response adds a mode whose scale is that of the residuals about the prior's
location. A heavy-tailed prior adds a mode at its own location, however far the data are.

Everywhere here ``table`` is the table of the prior (``protocols.Prior``). The rows of a mixed model
are groups: a row of the design is the first row and the number of rows of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from streammc.control_variates.mode.newton import Objective, Point, in_memory, maximise
from streammc.errors import ModelError
from streammc.models.base import predictors_at
from streammc.models.mixed.effect_terms import is_table_model
from streammc.numerics.prior import (
    COLUMNS,
    FLAT,
    HALF_NORMAL,
    HALF_STUDENT_T,
    JOINT_NORMAL,
    KIND,
    LAPLACE,
    LKJ,
    LOCATION,
    LOG_FLAT,
    LOGIT_BETA,
    NORMAL,
    SCALE,
    SHAPE,
    STUDENT_T,
    UNIFORM,
    joint_normal,
    log_prior,
    put,
    smooth,
)
from streammc.priors import normal
from streammc.protocols import Index, Matrix, Model, Rows, Vector

SEARCH_ROWS: Final = 4096
"""Largest number of the rows in memory on which the other starts run; of groups four times as many
of the table, where 4096 would be too few groups."""
MOST_PARAMETERS: Final = 300
"""Above this dimension only the first start runs: factorisations cost more than the rows."""
COMPARABLE: Final = math.log(1e4)
"""Modes within this log evidence of the best are named: Laplace's formula is crude."""
STARTING: Final = math.log(20.0)
"""Chains also start at modes within this log evidence of the best."""
_ITERATIONS: Final = 100
_LEAST_OF_GROUP: Final = 64
"""Rows of a group that are always kept in the search."""
_SETTLED: Final = 0.1
_APART: Final = 0.5


@dataclass(frozen=True)
class Mode:
    """A mode and the log of the posterior mass around it, up to a constant."""

    point: Point
    log_evidence: float


def find_modes(
    model: Model, rows: Rows, n_rows: int, table: Matrix, objective: Objective
) -> list[Mode]:
    """Return the modes found from several starts, the one with most evidence first.

    If the log posterior is concave, the model's own start is the only one. The other starts run on
    at most 4096 of the rows, weighted to represent all; if they end in several modes, each of these
    is refined on all ``rows``, which represent ``n_rows``: ``objective`` is their log-likelihood,
    counted ``n_rows / len(rows)`` times. ModelError if no start leads to a mode, that of the first
    start.
    """
    start = model.start(rows)
    failed: ModelError | None = None
    climbed: list[Point] = []
    try:
        climbed = [maximise(objective, start, table)]
    except ModelError as error:
        failed = error
    points = [point for point in climbed if _settled(point)]
    if not concave(model, table) and _searched(model, len(start)):
        points = _search(model, rows, n_rows, table, objective, start, points)
    points = points or climbed
    if not points:
        assert failed is not None
        raise failed
    if len(points) == 1:
        return [Mode(points[0], 0.0)]
    density = log_posteriors(model, rows, n_rows / len(rows.y), table)
    evidence = corrected_evidence(density, points, _table_rows(model, rows) * _columns(model, rows))
    return [Mode(points[k], float(evidence[k])) for k in np.argsort(-evidence, kind="stable")]


def comparable(modes: Sequence[Mode], within: float = COMPARABLE) -> list[Mode]:
    """Return the modes whose log evidence is at most ``within`` below that of the first."""
    return [mode for mode in modes if mode.log_evidence >= modes[0].log_evidence - within]


def apart(theta: Vector, point: Point) -> float:
    """Return the root mean square over d whitened coordinates of ``theta`` minus a mode."""
    z = solve_triangular(point.factor, theta - point.theta, lower=True)
    return float(np.sqrt(np.mean(z * z)))


def _searched(model: Model, dim: int) -> bool:
    """Return whether to try other starts: in a network each would end in another mode."""
    countless = model.multimodal and not model.exchangeable
    return dim <= MOST_PARAMETERS and not countless


def _search(
    model: Model,
    rows: Rows,
    n_rows: int,
    table: Matrix,
    objective: Objective,
    start: Vector,
    points: list[Point],
) -> list[Point]:
    """Return the modes found from all starts, including ``points``, in no particular order."""
    search_objective = objective
    sample = _thinned(model, rows)
    counted = n_rows / len(rows.y) * _table_rows(model, rows) / _table_rows(model, sample)
    if sample is not rows:
        search_objective = in_memory(model, sample, counted)
    heights = log_posteriors(model, sample, counted, table)
    with np.errstate(all="ignore"):
        known: list[Point] = []
        _climb(model, search_objective, points[0].theta if points else start, table, known)
        here, factor = (known[0].theta, known[0].factor) if known else (start, None)
        for other in starting_points(model, search_objective, heights, table, here, factor):
            _climb(model, search_objective, other, table, known)
        if len(known) == 1 and points:
            return points
        if sample is rows:
            return known
        final = list(points)
        for point in known:
            _climb(model, objective, point.theta, table, final)
    return final


def _climb(
    model: Model, objective: Objective, theta: Vector, table: Matrix, known: list[Point]
) -> None:
    """Climb from ``theta``, and add the mode to ``known`` unless it is there already."""
    try:
        point = maximise(objective, theta, table, max_iterations=_ITERATIONS)
    except ModelError:
        return
    if _settled(point) and not any(_same(model, point, other) for other in known):
        known.append(point)


def _same(model: Model, point: Point, other: Point) -> bool:
    """Return whether two modes coincide, or differ only by the labels of components."""
    if max(apart(point.theta, other), apart(other.theta, point)) <= _APART:
        return True
    height_difference = abs(point.log_posterior - other.log_posterior)
    if not model.exchangeable or height_difference > 1e-6 * (1.0 + abs(point.log_posterior)):
        return False
    return any(apart(theta, point) <= _APART for theta in model.relabelled(other.theta))


def _settled(point: Point) -> bool:
    return point.decrement < _SETTLED and math.isfinite(point.log_posterior)


def _thinned(model: Model, rows: Rows) -> Rows:
    """Return at most 4096 of the rows, drawn without replacement, in their order.

    Of a mixed model: groups that have 16,384 rows together, at least 256 groups; of a long group
    only the first rows.
    """
    most, longest = SEARCH_ROWS, 0
    if is_table_model(model):
        most = max(4 * SEARCH_ROWS * len(rows.y) // _table_rows(model, rows), SEARCH_ROWS // 16)
        longest = max(4 * SEARCH_ROWS // min(most, len(rows.y)), _LEAST_OF_GROUP)
        if np.max(rows.X[:, 1]) > longest:
            rows = rows._replace(X=np.minimum(rows.X, [math.inf, longest]))
    if len(rows.y) <= most:
        return rows
    picked = np.random.default_rng(0).choice(len(rows.y), most, replace=False)
    return Rows(*(part[np.sort(picked)] for part in rows))


def _table_rows(model: Model, rows: Rows) -> int:
    """Return the number of rows; of a mixed model the rows of all its groups."""
    return int(np.sum(rows.X[:, 1])) if is_table_model(model) else len(rows.y)


def _columns(model: Model, rows: Rows) -> int:
    """Return the number of columns of the design; of a mixed model that of the rows of a group."""
    return int(model.n_features if is_table_model(model) else rows.X.shape[1])


CONCAVE: Final = (
    FLAT, NORMAL, JOINT_NORMAL, LAPLACE, UNIFORM, LOG_FLAT, HALF_NORMAL, HALF_STUDENT_T,
    LOGIT_BETA, LKJ,
)  # fmt: skip
"""Kinds of prior whose logarithm is concave in theta."""
_PRIOR_DRAWS: Final = 2
_WIDE_DRAWS: Final = 2
_WIDE: Final = 10.0
"""Laplace standard deviations of the dispersed draws around the first mode."""
_LADDER: Final = (-4, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
"""Trial shifts of a log scale."""
UNFELT: Final = 1e4
"""Posterior standard deviations of a normal prior that is not felt."""
_START_ITERATIONS: Final = 50


def concave(model: Model, table: Matrix) -> bool:
    """Return whether the log posterior is concave: then it has one mode."""
    known = model.log_concave
    return bool(known and np.isin(table[:, KIND], CONCAVE).all())


def starting_points(
    model: Model,
    objective: Objective,
    heights: Callable[[Matrix], Vector],
    table: Matrix,
    first: Vector,
    factor: Matrix | None,
) -> Iterator[Vector]:
    """Yield starts of Newton's method other than ``first`` (d,).

    The mode of the likelihood alone; the locations of the prior, half-way to them, and draws from
    the prior, each with the scale parameters of highest density there, by their log posterior
    ``heights``; draws 10 Laplace standard deviations wide, where there is a ``factor``; ``first``
    with its components in other orders, where the model has components. Without a mode, ``first``
    is the first start and ``factor`` ``None``.
    """
    alone = without_prior(model, first, factor, table, objective)
    with suppress(ModelError):
        yield maximise(objective, first, alone, max_iterations=_START_ITERATIONS).theta
    rng = np.random.default_rng(0)
    located = prior_location(table, first)
    starts = [located, 0.5 * (first + located)]
    starts += [_drawn(table, first, rng) for _ in range(_PRIOR_DRAWS)]
    scales = log_scales(model, len(first))
    for start in starts:
        if not np.array_equal(start, first):
            yield matched(heights, start, scales)
    if factor is not None:
        for _ in range(_WIDE_DRAWS):
            yield first + _WIDE * (factor @ rng.standard_normal(len(first)))
    relabelled = list(model.relabelled(first))
    height, *others = heights(np.array([first, *relabelled]))
    for other, other_height in zip(relabelled, others, strict=True):
        # The same height means that only the labels differ: no mode of its own.
        if abs(other_height - height) > 1e-8 * (1.0 + abs(height)):
            yield other


def without_prior(
    model: Model, theta: Vector, factor: Matrix | None, table: Matrix, likelihood: Objective
) -> Matrix:
    """Return the prior table with normal priors too wide to affect the likelihood.

    They are centred at ``theta``, and 10^4 times as wide as the posterior, by its ``factor``,
    and as the likelihood. Shape parameters, such as degrees of freedom, keep their priors:
    the likelihood may have no maximum in them.
    """
    curved = np.maximum(-np.diag(likelihood(theta)[2]), 0.0)
    sd = 1.0 / np.sqrt(np.where(curved > 0.0, curved, np.inf))
    if factor is not None:
        sd = np.maximum(sd, np.sqrt(np.sum(factor**2, axis=1)))
    shapes = log_scales(model, len(table))
    if model.location_scale:
        shapes = shapes[1:]
    out = table.copy()
    free = np.setdiff1d(np.flatnonzero(sd > 0.0), shapes)
    put(out, free, normal_rows(theta[free], UNFELT * sd[free]))
    return out


def normal_rows(location: Vector, scale: Vector) -> Matrix:
    """Return rows (k, 5) of the prior table with normal densities."""
    rows = [normal(s, location=t).table(("",))[0] for s, t in zip(scale, location, strict=True)]
    return np.reshape(rows, (-1, COLUMNS))


def matched(heights: Callable[[Matrix], Vector], theta: Vector, scales: Index) -> Vector:
    """Return ``theta`` with each scale parameter, in turn, at its best value on a grid."""
    best = theta.copy()
    for j in scales:
        trials = np.tile(best, (len(_LADDER), 1))
        trials[:, j] += _LADDER
        best = trials[int(np.argmax(heights(trials)))]
    return best


def log_scales(model: Model, d: int) -> Index:
    """Return the positions in theta of the parameters that are sampled as their logarithms.

    The scales of factors are not among them: the search keeps these as they were estimated.
    """
    at_zero, at_one = (model.constrain(np.full(d, at)) for at in (0.0, 1.0))
    positive = np.flatnonzero((at_zero > 0.0) & np.isclose(at_one, math.e * at_zero))
    return np.setdiff1d(positive, [block.scale for block in model.factors])


def prior_location(table: Matrix, first: Vector) -> Vector:
    """Return the locations of the priors that have one, and ``first`` elsewhere."""
    out = first.copy()
    has = np.isin(table[:, KIND], (NORMAL, JOINT_NORMAL, STUDENT_T, LAPLACE, LKJ))
    out[has] = table[has, LOCATION]
    between = table[:, KIND] == UNIFORM
    out[between] = 0.5 * (table[between, LOCATION] + table[between, SHAPE])
    return out


def _drawn(table: Matrix, first: Vector, rng: np.random.Generator) -> Vector:
    """Return a draw from the priors that have a location, and ``first`` elsewhere."""
    out = first.copy()
    joint, shifts = joint_normal(table, rng.standard_normal((1, len(table))))
    out[joint] = shifts[0]
    for j, row in enumerate(table):
        if row[KIND] == NORMAL:
            out[j] = row[LOCATION] + row[SCALE] * rng.standard_normal()
        elif row[KIND] == STUDENT_T:
            out[j] = row[LOCATION] + row[SCALE] * rng.standard_t(row[SHAPE])
        elif row[KIND] == LAPLACE:
            out[j] = row[LOCATION] + row[SCALE] * rng.laplace()
        elif row[KIND] == UNIFORM:
            out[j] = rng.uniform(row[LOCATION], row[SHAPE])
    return out


_DF: Final = 4.0
_DRAWS: Final = 400
_FEWEST: Final = 100
_MOST_ENTRIES: Final = 4e8
"""Entries of the design that all draws together may touch: about 0.5 s."""
_MOST_PARAMETERS: Final = 20
_LEAST_ESS: Final = 20.0


def laplace_evidence(point: Point) -> float:
    """Return ``log p + sum log diag(S) + d / 2 log(2 pi)`` at a mode, the log mass around it."""
    volume = float(np.log(np.diag(point.factor)).sum())
    return point.log_posterior + volume + 0.5 * len(point.theta) * math.log(2.0 * math.pi)


def log_posteriors(
    model: Model, rows: Rows, scale: float, table: Matrix
) -> Callable[[Matrix], Vector]:
    """Return the function thetas (S, d) -> (S,) log posterior of ``rows`` counted ``scale`` times.

    The prior is smoothed by :func:`streammc.numerics.prior.smooth`, as in Newton's method.
    Values that are not finite become minus infinity.
    """
    rows = Rows(*(np.ascontiguousarray(part[rows.weight > 0.0]) for part in rows))
    weight, columns = rows.weight * scale, np.ascontiguousarray(rows.X.T)
    table, constants = smooth(table), model.constants

    def evaluate(thetas: Matrix) -> Vector:
        values, out = np.empty(len(thetas)), np.empty((1, len(rows.y)))
        for s, theta in enumerate(thetas):
            eta = predictors_at(model, rows, theta)
            model.link(eta, columns, rows.y, constants, 0, out)
            values[s] = weight @ out[0] + log_prior(theta, table, np.zeros_like(theta))
        return np.where(np.isfinite(values), values, -np.inf)

    return evaluate


def corrected_evidence(
    log_posterior: Callable[[Matrix], Vector], points: Sequence[Point], entries: int
) -> Vector:
    """Return the log masses around several modes, (K,).

    Importance sampling from a mixture of Student t distributions with 4 degrees of freedom, one at
    every mode with the shape of its Laplace approximation; a draw belongs to the mode whose
    component is densest there. Laplace's formula stays where a mode has fewer than 20 effective
    draws, above 20 parameters, and where rows times columns, the ``entries`` of one evaluation, are
    too many.
    """
    evidence = np.array([laplace_evidence(point) for point in points])
    d, K = len(points[0].theta), len(points)
    draws = min(_DRAWS, int(_MOST_ENTRIES / max(entries, 1)) // K)
    if d > _MOST_PARAMETERS or draws < _FEWEST:
        return evidence
    rng = np.random.default_rng(0)
    thetas = np.concatenate(
        [
            point.theta
            + (rng.standard_normal((draws, d)) @ point.factor.T)
            / np.sqrt(rng.chisquare(_DF, size=(draws, 1)) / _DF)
            for point in points
        ]
    )
    density = np.stack([_log_t(thetas, point) for point in points])
    logw = log_posterior(thetas) - (logsumexp(density, axis=0) - math.log(K))
    nearest = np.argmax(density, axis=0)
    for k in range(K):
        own = logw[nearest == k]
        own = own[np.isfinite(own)]
        if not len(own):
            continue
        ess = math.exp(2.0 * logsumexp(own) - logsumexp(2.0 * own))
        if ess >= _LEAST_ESS:
            evidence[k] = logsumexp(own) - math.log(len(thetas))
    return evidence


def _log_t(thetas: Matrix, point: Point) -> Vector:
    """Return the log density (S,) of the Student t around a mode."""
    d = len(point.theta)
    z = solve_triangular(point.factor, (thetas - point.theta).T, lower=True)
    constant = (
        math.lgamma(0.5 * (_DF + d))
        - math.lgamma(0.5 * _DF)
        - 0.5 * d * math.log(_DF * math.pi)
        - float(np.log(np.diag(point.factor)).sum())
    )
    out: Vector = constant - 0.5 * (_DF + d) * np.log1p((z * z).sum(axis=0) / _DF)
    return out


ADVICE: Final = "compare with --sampler pt"
"""End of the warning about other modes."""
_SHOWN: Final = 3


def mode_words(model: Model, modes: Sequence[Mode], labels: Sequence[str]) -> list[str]:
    """Return a warning that names the other modes of comparable evidence."""
    if len(modes) < 2:
        return []
    best = modes[0].point
    sd = np.sqrt(np.sum(best.factor**2, axis=1))
    named = []
    for mode in modes[1 : 1 + _SHOWN]:
        order = np.argsort(-np.abs(mode.point.theta - best.theta) / sd, kind="stable")
        value = model.constrain(mode.point.theta)
        at = ", ".join(f"{labels[j]} = {value[j]:.4g}" for j in order[:_SHOWN])
        named.append(f"{at} (log evidence {modes[0].log_evidence - mode.log_evidence:.1f} lower)")
    more = len(modes) - 1 - len(named)
    return [
        f"the posterior has {'another mode' if len(modes) == 2 else 'other modes'} of comparable "
        f"evidence: {'; '.join(named)}{f'; and {more} more' if more else ''}. A chain may not "
        f"find its way between them: {ADVICE}"
    ]


def exact_fit_words(model: Model, labels: Sequence[str]) -> str:
    """Return the warning about a response that the columns fit without error."""
    scale = labels[int(log_scales(model, len(labels))[0])]
    return (
        f"the columns can fit the response without error: near 0 the prior of {scale} alone "
        f"decides about it, and theta_star is the mode with {scale} integrated"
    )


def starting_modes(modes: Sequence[Mode]) -> tuple[tuple[float, ...], ...] | None:
    """Return the modes other than ``theta_star`` at which chains start, or None."""
    near = comparable(modes, STARTING) if len(modes) > 1 else []
    return tuple(tuple(mode.point.theta.tolist()) for mode in near[1:]) or None
