"""Does a model agree with itself? Derivatives, simulator, support, stability.

A wrong derivative does not stop a sampler; it makes it slow, or biased where control
variates use it. So every family, shipped or written by a user, goes through the same
checks: derivatives against differences of the value, the simulator against the
likelihood by the identities of Bartlett (1953), and probabilities against one.

No single step suits every likelihood: where its scale is 1e-8 a step of 1e-3 is far too
long, and where its terms are of size 1e9 a step of 1e-6 leaves nothing but their rounding.
So a ladder of steps is tried, and the difference with the smallest estimated error taken:
by how much the differences of neighbouring steps disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, ModelError
from streammc.models.base import predictors_at
from streammc.priors.scaled import with_defaults
from streammc.protocols import Matrix, Model, Rows, Vector

CONFIRM: Final = 8
"""Times as many simulated responses where a moment seems wrong: scores have heavy tails."""
Z_LIMIT: Final = 4.5
SIZES: Final = (0.0, 1e-300, 1.0, 37.0, 709.0, 746.0, 1e4)
"""Predictors at which stability is checked: a zero, where sums round, where ``exp`` does."""
MOST_COMBINATIONS: Final = 4096


@dataclass(frozen=True)
class Report:
    """What :func:`check_model` found."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(finding.passed for finding in self.findings)

    def __str__(self) -> str:
        """Return one line per check."""
        lines = [
            f"{'ok  ' if f.passed else 'FAIL'} {f.name}: {f.worst:.2g} (limit {f.limit:.2g}) "
            f"{f.detail}".rstrip()
            for f in self.findings
        ]
        return "\n".join([f"model {self.model}", *lines])


def check_model(
    model: Model,
    *,
    rows: Rows | None = None,
    support: Vector | Sequence[float] | None = None,
    points: int = 16,
    centre: Sequence[float] = (0.0,),
    draws: int = 20_000,
    seed: int = 0,
) -> Report:
    """Check a model against itself.

    Parameters
    ----------
    model
        Any :class:`streammc.protocols.Model`.
    rows
        Rows at which derivatives are checked, for a model that sees the design itself
        (``n_linear`` 0), which is not simulated then.
    support
        Values that carry all but 1e-9 of the probability at predictors of size 3, for
        a discrete response: their probabilities must sum to one.
    points
        Number of predictor values, standard normal, at which derivatives and moments
        are checked.
    centre
        What is added to each predictor, or to all.
    draws
        Simulated responses at each of them.
    seed
        Seed of everything random here.

    Returns
    -------
    Report
        One finding per check; ``report.passed`` is whether all hold.

    Examples
    --------
    >>> from streammc.models import check_model, logistic
    >>> check_model(logistic(), support=[0.0, 1.0]).passed
    True
    """
    if not hasattr(model, "prior_table") or isinstance(model, type):
        raise ConfigError(
            f"expected a model, found {type(model).__name__}: "
            "pass one such as streammc.models.logistic()"
        )
    rng = np.random.default_rng(seed)
    p = model.n_linear + model.n_scalar
    if model.n_linear == 0:
        return _check_of_theta(model, rows, rng)
    eta = rng.standard_normal((p, points)) + np.broadcast_to(centre, p)[:, None]
    y = model.simulate(eta, rng)
    at = Place(eta, y, np.zeros((0, points)))
    findings = [
        _interface(model, y, rng),
        *derivatives(model, at),
        _orders(model, at),
        _extremes(model, y, rng),
        *_moments(model, eta, draws, rng),
    ]
    if support is not None:
        findings.append(_total_probability(model, eta, np.asarray(support, dtype=np.float64)))
    return Report(model.name, tuple(findings))


def _start(model: Model, rows: Rows) -> Vector:
    """Return the start, NaN where the model refuses one."""
    try:
        return model.start(rows)
    except ModelError:
        return np.full(model.dim(rows.X.shape[1]), np.nan)


def _check_of_theta(model: Model, rows: Rows | None, rng: np.random.Generator) -> Report:
    """Check the derivatives of a model of theta and the rows' columns."""
    if rows is None or len(rows.y) == 0:
        raise ConfigError(
            f"expected rows for the model {model.name!r}, which sees the columns themselves, found "
            "none: pass rows=..."
        )
    theta = np.nan_to_num(_start(model, rows)) + 0.1 * rng.standard_normal(
        model.dim(rows.X.shape[1])
    )
    at = Place(np.tile(theta[:, None], len(rows.y)), rows.y, rows.X.T)
    return Report(model.name, (*derivatives(model, at), _orders(model, at)))


def _interface(model: Model, y: Vector, rng: np.random.Generator) -> Finding:
    """Count what does not follow ``protocols.Model``."""
    names = ("first", "second")
    labels = model.labels(names)
    rows = Rows(rng.standard_normal((len(y), 2)), y, np.zeros(len(y)), np.ones(len(y)))
    start = _start(model, rows)
    prior = with_defaults(model, rows, names).prior_table(labels)
    faults = {
        "dim": model.dim(2) != 2 * model.n_linear + model.n_scalar,
        "labels": len(labels) != model.dim(2) or len(set(labels)) != len(labels),
        "response_fault": model.response_fault(y) is not None,
        "start": start.shape != (model.dim(2),) or not np.isfinite(start).all(),
        "describe": json.loads(json.dumps(model.describe())) != model.describe(),
        "prior": prior.shape not in ((model.dim(2), 5), (model.dim(2), 5 + model.dim(2))),
    }
    wrong = [name for name, fault in faults.items() if fault]
    return Finding("interface", len(wrong), 0, ", ".join(wrong))


def _orders(model: Model, at: Place) -> Finding:
    """Count rows whose bits depend on the order asked for or on their neighbours."""
    eta, y, X = at
    full = evaluate(model, eta, y, 2, X)
    p = len(eta)
    alone = np.hstack(
        [
            evaluate(model, eta[:, [i]], y[[i]], 2, np.ascontiguousarray(X[:, [i]]))
            for i in range(len(y))
        ]
    )
    wrong = (
        (evaluate(model, eta, y, 0, X)[0] != full[0])
        | (evaluate(model, eta, y, 1, X)[: 1 + p] != full[: 1 + p]).any(axis=0)
        | (alone != full).any(axis=0)
    )
    return Finding("same bits for every order and place", float(wrong.sum()), 0, "rows differ")


def _extremes(model: Model, y: Vector, rng: np.random.Generator) -> Finding:
    """Count NaN, and densities of +inf, for predictors up to 1e4."""
    p = model.n_linear + model.n_scalar
    grid = np.array([*(-size for size in SIZES), *SIZES])
    if len(grid) ** p <= MOST_COMBINATIONS:
        axes = np.array(np.meshgrid(*[grid] * p, indexing="ij")).reshape(p, -1)
    else:
        axes = rng.choice(grid, size=(p, MOST_COMBINATIONS))
    responses = np.unique(y)
    eta = np.tile(axes, len(responses))
    out = evaluate(model, eta, np.repeat(responses, axes.shape[1]))
    wrong = np.isnan(out).any(axis=0) | (out[0] == np.inf)
    where = f"first at eta {eta[:, int(np.argmax(wrong))].tolist()}" if wrong.any() else ""
    return Finding("NaN or +inf for predictors up to 1e4", float(wrong.sum()), 0, where)


def _moments(model: Model, eta: Matrix, draws: int, rng: np.random.Generator) -> list[Finding]:
    """Check ``E[l_a] = 0`` and ``E[l_a l_b + l_ab] = 0`` under the simulator."""
    p, points = eta.shape
    repeated = np.repeat(eta, draws, axis=1)
    y = model.simulate(repeated, rng)
    pairs = [(a, b) for a in range(p) for b in range(a, p)]

    def both(eta: Matrix, y: Vector) -> tuple[float, float]:
        out = evaluate(model, eta, y)
        slope, bend = out[1 : 1 + p], out[1 + p :]
        for k, (a, b) in enumerate(pairs):
            bend[k] += slope[a] * slope[b]
        return _largest_z(slope), _largest_z(bend)

    first = second = 0.0
    for point in range(points):  # one at a time: a row's expansion may be wide
        here = slice(point * draws, (point + 1) * draws)
        largest = both(repeated[:, here], y[here])
        if max(largest) > Z_LIMIT:
            more = np.repeat(eta[:, [point]], CONFIRM * draws, axis=1)
            largest = both(more, model.simulate(more, rng))
        first, second = max(first, largest[0]), max(second, largest[1])
    return [
        Finding("simulated mean of the score", first, Z_LIMIT, "z"),
        Finding("simulated mean of score squared plus curvature", second, Z_LIMIT, "z"),
    ]


def _largest_z(samples: Matrix) -> float:
    """Return the largest |mean| in standard errors over (k, draws)."""
    mean = samples.mean(axis=-1)
    error = samples.std(axis=-1, ddof=1) / np.sqrt(samples.shape[-1])
    # Samples that are all alike have no error: their mean must be zero.
    z = np.where(np.abs(mean) < 1e-12, 0.0, np.abs(mean) / np.maximum(error, 1e-300))
    return float(np.where(np.isnan(z), np.inf, z).max())


def _total_probability(model: Model, eta: Matrix, support: Vector) -> Finding:
    """Compare the sum over ``support`` of ``exp(l)`` with one."""
    worst = 0.0
    for i in range(eta.shape[1]):
        column = np.repeat(eta[:, i : i + 1], len(support), axis=1)
        total = float(np.exp(evaluate(model, column, support, 0)[0]).sum())
        worst = max(worst, abs(total - 1.0))
    return Finding("probabilities sum to one", worst, 1e-9, "error of the sum")


DERIVATIVE_LIMIT: Final = 1e-9
"""Largest error of a derivative, relative to it, beyond what the difference may be off."""
DOUBT: Final = 8.0
"""Times the estimated error of a difference: the most that it is off."""
NOISE: Final = 16.0
"""Times the rounding of a derivative that shows at the shortest steps: the most allowed."""
UNKNOWN: Final = 1e-3
"""Of value, derivatives and 1: a difference that may be off by more says nothing; it fails."""


@dataclass(frozen=True)
class Finding:
    """One check: the worst case against its limit."""

    name: str
    worst: float
    limit: float
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the worst case is within the limit; NaN is not."""
        return self.worst <= self.limit


class Place(NamedTuple):
    """Predictors (p, m), responses (m,) and a design (q, m)."""

    eta: Matrix
    y: Vector
    X: Matrix


def evaluate(
    model: Model, eta: Matrix, y: Vector, order: int = 2, X: Matrix | None = None
) -> Matrix:
    """Return ``out`` (1 + p + p(p+1)/2, m) of the link; NaN where it writes nothing."""
    p, m = eta.shape
    out = np.full((1 + p + p * (p + 1) // 2, m), np.nan)
    model.link(
        np.ascontiguousarray(eta, dtype=np.float64),
        np.zeros((0, m)) if X is None else X,
        np.ascontiguousarray(y, dtype=np.float64),
        model.constants,
        order,
        out,
    )
    return out


def _worst(name: str, at: Place, error: Matrix) -> Finding:
    """Return the finding for errors (k, m) of derivatives."""
    error = np.where(np.isnan(error), np.inf, error)
    i = int(np.argmax(error.max(axis=0)))
    return Finding(
        name,
        float(error.max()),
        DERIVATIVE_LIMIT,
        f"at eta {at.eta[:, i].tolist()}, y {at.y[i]:g}",
    )


def derivatives(model: Model, at: Place, floor: float = 0.0) -> tuple[Finding, Finding]:
    """Compare first and second derivatives with differences of value and first derivatives.

    The error of a derivative, relative to it, is what its distance from the difference
    exceeds: eight times the error of the difference, the rounding of the derivative itself,
    and ``floor`` times the largest of value, derivatives and 1.
    """
    eta, y, X = at
    p = len(eta)
    out = evaluate(model, eta, y, 2, X)
    scale = np.maximum(1.0, np.abs(out).max(axis=0))
    own = [1 + p + a * p - a * (a - 1) // 2 for a in range(p)]
    by_difference = []
    for a in range(p):
        # Sixteen standard deviations, if the second derivative is right.
        with np.errstate(all="ignore"):
            width = 16.0 / np.sqrt(np.abs(out[own[a]]))
        longest = np.fmin(0.25 * np.maximum(1.0, np.abs(eta[a])), width)
        by_difference.append(
            differences(lambda moved: evaluate(model, moved, y, 2, X), eta, a, longest)
        )

    def error(row: int, a: int, of: int) -> Vector:
        """Return the errors (m,) of ``out[row]`` as the derivative of ``out[of]`` in eta[a]."""
        slope, doubt = by_difference[a].slope[of], by_difference[a].error[of]
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(out[row]), np.abs(slope))
            allowed = DOUBT * doubt + NOISE * by_difference[a].noise[row] + floor * scale
            excess = np.abs(out[row] - slope) - allowed
            unknown = DOUBT * doubt > UNKNOWN * np.maximum(size, scale)
            result = np.where(excess > 0.0, excess / size, 0.0 * np.abs(excess))
        return np.where(unknown, np.inf, result)

    first = [error(1 + a, a, 0) for a in range(p)]
    pairs = [(a, b) for a in range(p) for b in range(a, p)]
    second = [
        error(1 + p + row, *way)
        for row, (a, b) in enumerate(pairs)
        for way in ((a, 1 + b), (b, 1 + a))
    ]
    return (
        _worst("first derivatives", at, np.array(first)),
        _worst("second derivatives", at, np.array(second)),
    )


def refuse_wrong_derivatives(model: Model, rows: Rows, theta: Vector, most: int = 16) -> None:
    """Compare the derivatives at a few rows near ``theta`` with differences.

    ModelError if one is off by more than 1e-4 of the largest of value, derivative and 1.
    """
    few = Rows(*(np.ascontiguousarray(part[:most]) for part in rows))
    eta = predictors_at(model, few, theta)
    # Off the start, where a derivative may be zero by chance; the same for all rows.
    eta += 0.1 * np.cos(1.0 + np.arange(len(eta)))[:, None]
    with np.errstate(all="ignore"):
        for finding in derivatives(model, Place(eta, few.y, few.X.T), floor=1e-4):
            if np.isfinite(finding.worst) and not finding.passed:
                raise ModelError(
                    f"expected the {finding.name} of the model {model.name!r} to be those of its "
                    f"log-likelihood, found them off by {finding.worst:.2g} {finding.detail}: "
                    "correct them, and run streammc.models.check_model"
                )


FACTOR: Final = 4.0
STEPS: Final = tuple(FACTOR**-k for k in range(15))
"""Relative to the longest."""
_EPSILON: Final = 2.0**-52
_LAST: Final = 5

Array = NDArray[np.float64]


class Difference(NamedTuple):
    """Derivatives of k functions at m places by differences, (k, m) each."""

    slope: Array
    error: Array
    """Estimated error of ``slope``; infinite where no difference is finite."""
    noise: Array
    """Rounding of the functions' values, as it shows at the shortest steps."""


def differences(
    function: Callable[[Matrix], Matrix], x: Matrix, a: int, longest: Array
) -> Difference:
    """Return the derivative of every row of ``function(x)`` in ``x[a]``, and its error.

    Differences are of fourth order. ``function`` goes from (p, m) to (k, m), column by column.
    ``longest`` (m,) are the longest steps to try: steps across the whole of a narrow likelihood
    agree with each other, and not with its derivative.
    """
    by_step, floors, still = [], [], []
    with np.errstate(all="ignore"):
        for step in STEPS:
            total: Array = np.zeros(())
            values = []
            for steps, factor in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
                moved = x.copy()
                moved[a] += steps * step * longest
                value = function(moved)
                total = total + factor * value
                values.append(value)
            h = step * longest
            slope = total / (12.0 * h)
            by_step.append(slope)
            largest = np.abs(values).max(axis=0)
            floors.append(_EPSILON * (largest + np.abs(x[a] * slope)) / h)
            still.append(np.ptp(values, axis=0) == 0.0)
        slopes, floor = np.array(by_step), np.array(floors)
        gaps = np.abs(np.diff(slopes, axis=0))
        # The neighbours' gaps too: one gap is small by chance. Rounding grows as steps shrink.
        error = gaps + floor[:-1]
        for distance in (1, 2):
            before = FACTOR**distance * gaps[:-distance]
            error[distance:] = np.maximum(error[distance:], before)
            error[:-distance] = np.maximum(error[:-distance], gaps[distance:])
        # Terms that cancel leave coarse values: short steps then show no change at all.
        unseen = np.array(still[:-1])
        error[unseen & ~unseen.all(axis=0)] = np.inf
        steps_taken = np.array(STEPS[-_LAST - 1 : -1])[:, None, None] * longest
        rounding = np.nan_to_num(gaps[-_LAST:] * steps_taken, nan=0.0, posinf=0.0).max(axis=0)
    error[~np.isfinite(error)] = np.inf
    best = error.argmin(axis=0)[None]
    slope, doubt = (np.take_along_axis(table, best, 0)[0] for table in (slopes, error))
    return Difference(slope, doubt, rounding)
