"""Why SGLD is not HMC: which part is bias, and which is slow mixing.

On the Gaussian approximation with precision ``Lambda`` (eigenvalues ``l``) and the identity as
preconditioner, ``theta' = theta - (eps / 2) (Lambda theta + noise) + N(0, eps I)`` has in every
eigendirection the variance

    [1 + eps v / 4] / [l (1 - eps l / 4)],

``v`` being the variance of the gradient estimate there: the factor ``1 / (1 - eps l / 4)`` is the
error of the discretisation, ``1 + eps v / 4`` that of the subsample. Its autocorrelation is
``1 - eps l / 2``, so IF = 4 / (eps l) - 1. Nothing is stable beyond ``eps = 4 / max l``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from bench.papers.hmc_ecs.methods import Case
from bench.papers.measures import Array, Run, inefficiency
from streammc.control_variates import ControlVariates
from streammc.likelihood.blocks import allocate_rows

NOISE_ROWS = 50_000


def precision(cv: ControlVariates) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of minus the Hessian of the log posterior."""
    root = np.linalg.inv(cv.factor)
    values, vectors = np.linalg.eigh(root.T @ root)
    return values, vectors


def largest_step(cv: ControlVariates) -> float:
    """Return the step size beyond which SGLD with the identity diverges."""
    return float(4.0 / precision(cv)[0].max())


def gradient_noise(
    case: Case, cv: ControlVariates, draws: Array, rows: int, order: int | None
) -> Array:
    """Return the covariance (d, d) of the gradient estimated from ``rows`` rows.

    Averaged over 16 draws; logistic regression. ``order`` 2 subtracts the expansion at
    ``cv.theta_star``, ``None`` nothing.
    """
    store, rng = case.store, np.random.default_rng(5)
    chosen = np.sort(rng.choice(store.n_rows, min(NOISE_ROWS, store.n_rows), replace=False))
    block = allocate_rows(len(chosen), store.n_features)
    store.rows().gather(chosen, 1, block)
    star = block.X @ cv.theta_star
    flat = draws.reshape(-1, draws.shape[-1])
    total = np.zeros((flat.shape[1], flat.shape[1]))
    picked = flat[:: max(len(flat) // 16, 1)][:16]
    for theta in picked:
        eta = block.X @ theta
        slope = block.y - expit(eta)
        if order == 2:
            chance = expit(star)
            slope -= block.y - chance - chance * (1.0 - chance) * (eta - star)
        gradients = slope[:, None] * block.X
        total += np.cov(gradients.T)
    found: Array = total / len(picked) * store.n_rows**2 / rows
    return found


def directions(
    case: Case, cv: ControlVariates, truth: Run, rows: int, runs: dict[str, tuple[Run, int | None]]
) -> list[dict[str, Any]]:
    """Return bias and mixing in the loosest, the median and the tightest direction.

    ``runs``: SGLD runs by name, with the order of their control variates.
    """
    values, vectors = precision(cv)
    d = len(values)
    lines = []
    for name, (run, order) in runs.items():
        step = float(run.facts["sampling"]["step_size"])
        noise = gradient_noise(case, cv, truth.draws, rows, order)
        for label, i in (("loosest", 0), ("median", d // 2), ("tightest", d - 1)):
            axis, size = vectors[:, i], values[i]
            along = run.draws @ axis
            factor = 4.0 / (step * size) - 1.0
            kept = run.draws.shape[0] * run.draws.shape[1]
            lines.append(
                {
                    "method": name,
                    "direction": label,
                    "eps_lambda": step * size,
                    "discretisation": 1.0 / (1.0 - step * size / 4.0),
                    "subsampling": 1.0 + step * float(axis @ noise @ axis) / 4.0,
                    "variance": float(along.var() * size),
                    "if_predicted": factor,
                    "if": float(inefficiency(along[..., None])[0]),
                    "mcse": float(np.sqrt(factor / kept)),
                    "mcse_one": float(np.sqrt(factor / run.draws.shape[1])),
                    "shift": float(abs(along.mean() - (truth.moments()[0] @ axis)) * np.sqrt(size)),
                }
            )
    return lines
