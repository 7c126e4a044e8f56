"""Directions that only the prior determines: collinear columns, separation.

Minus the Hessian, scaled to a unit diagonal, has an eigenvalue of 0 for every
combination of columns that is constant 0. Separation shows in the likelihood without the
prior: it rises for ever as its coefficients grow, and every step of Newton's method moves
some predictor by about 1 (by 1 / eta under a probit link), however many were made, while the
curvature vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streammc.control_variates.mode.newton import Objective, Point, maximise
from streammc.errors import ModelError
from streammc.priors import normal
from streammc.protocols import Matrix, Rows, Vector

LARGEST_DIMENSION = 2000
"""Above it the eigenvalues would cost more than the pass."""
SMALLEST_EIGENVALUE = 1e-10
LARGEST_MOVE = 0.5
"""Move of a linear predictor by a step of Newton's method that has not converged."""
_SLOW_MOVE = 0.05
_VANISHED = 10.0
"""Standard deviation of a predictor of which the rows say nothing: a slow move is one too."""
_WIDEST = 64
_STEPS = 8
_SHOWN = 4


def weak_directions(
    sums: tuple[float, Vector, Matrix],
    theta: Vector,
    sd: Vector,
    labels: Sequence[str],
    likelihood: Objective,
    rows: Sequence[Rows],
    n_linear: int,
) -> list[str]:
    """Return one warning for each kind of direction that only the prior determines.

    Parameters
    ----------
    sums
        Log-likelihood, gradient (d,) and Hessian (d, d) at ``theta``, all rows.
    theta, sd, labels
        Posterior mode, posterior standard deviations and names (d,).
    likelihood
        Log-likelihood of the rows in memory, scaled to all rows.
    rows
        Rows whose linear predictors are checked.
    n_linear
        Number of linear predictors to check; 0 where columns are not the cause.
    """
    if len(theta) > LARGEST_DIMENSION:
        return []
    lines = []
    scale = np.sqrt(np.maximum(-np.diag(sums[2]), 0.0))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(-sums[2] / scale / scale[:, None])
    known = values > SMALLEST_EIGENVALUE
    flat = np.abs(values) <= SMALLEST_EIGENVALUE
    if flat.any():
        why = "collinear or constant columns: " if n_linear else ""
        lines.append(
            f"{why}the likelihood has rank {int((~flat).sum())} of {len(theta)}, and the prior "
            f"alone decides about {names_of(labels, np.abs(vectors[:, flat]).max(axis=1))}"
        )
    shares = vectors[:, known]
    step = shares @ ((shares.T @ (sums[1] / scale)) / values[known]) / scale
    if largest_move(rows, step, n_linear)[0] <= _SLOW_MOVE:
        return lines
    # Too wide to affect a few steps; without this prior the curvature might be singular.
    wide = np.vstack(
        [normal(1e4 * s, location=t).table(("",)) for t, s in zip(theta, sd, strict=True)]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            alone = maximise(likelihood, theta, wide, max_iterations=_STEPS)
        except ModelError:
            return lines
    step = alone.step
    if runs_away(rows, alone, n_linear):
        lines.append(
            "separation: some combination of columns tells the response (almost) exactly, and "
            f"the prior alone keeps {names_of(labels, np.abs(step) / sd)} from running away"
        )
    return lines


def runs_away(rows: Sequence[Rows], at: Point, n_linear: int) -> bool:
    """Return whether the next step of Newton's method still moves the predictor of a row."""
    largest, sd = largest_move(rows, at.step, n_linear, at.factor)
    return largest > LARGEST_MOVE or (largest > _SLOW_MOVE and sd > _VANISHED)


def largest_move(
    rows: Sequence[Rows], step: Vector, n_linear: int, factor: Matrix | None = None
) -> tuple[float, float]:
    """Return the largest move of a linear predictor by ``step``, over rows of some weight.

    With ``factor`` also the largest standard deviation of the predictors that move most, else 0.
    """
    largest = widest = 0.0
    for some in rows:
        X = some.X[some.weight > 0.0]
        q = X.shape[1]
        for a in range(n_linear):
            own = slice(a * q, (a + 1) * q)
            moved = np.abs(X @ step[own])
            largest = max(largest, float(moved.max(initial=0.0)))
            if factor is not None and len(moved):
                most = np.argsort(-moved, kind="stable")[:_WIDEST]
                sd = np.linalg.norm(X[most] @ factor[own], axis=1)
                widest = max(widest, float(sd[moved[most] > _SLOW_MOVE].max(initial=0.0)))
    return largest, widest


def unchecked(dim: int, by_passes: bool) -> list[str]:
    """Return a warning that names the checks that ``dim`` parameters do not allow.

    Parameters
    ----------
    dim
        Parameters.
    by_passes
        Whether full passes made all Newton steps, since rows in memory were too few.
    """
    if dim <= LARGEST_DIMENSION and not by_passes:
        return []
    rank = "collinear columns, separation and " if dim > LARGEST_DIMENSION else ""
    return [
        f"{dim:,} parameters are too many to look for {rank}a prior in conflict with the "
        "likelihood: merge the rare levels of factors, or leave columns out, to have that looked "
        "for"
    ]


def names_of(labels: Sequence[str], loading: Vector) -> str:
    """Return the labels with the largest loadings in the direction, the largest first."""
    order = np.argsort(-loading, kind="stable")
    strong = [labels[j] for j in order if loading[j] >= 0.1 * loading.max()]
    more = f" and {len(strong) - _SHOWN} more" if len(strong) > _SHOWN else ""
    return ", ".join(strong[:_SHOWN]) + more
