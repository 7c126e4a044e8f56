"""The data of the comparisons with peers, and what a chain of draws is worth.

Logistic regression, 29 columns, each correlated 0.3 with the next, coefficients of sd 0.3. The
folder holds ``X.npy`` (float32), ``y.npy``, the posterior mode ``centre.npy`` and ``factor.npy``,
a square root of the inverse Hessian there: every side gets the same centre and the same mass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIM = 29
CHUNK = 250_000
NAMES = ("X", "y", "centre", "factor")


def make_rows(folder: str, rows: int) -> None:
    """Write the rows, the mode and the square root of the inverse Hessian."""
    import streammc

    rng = np.random.default_rng(0)
    beta = 0.3 * rng.standard_normal(DIM)
    X = np.lib.format.open_memmap(f"{folder}/X.npy", "w+", np.float32, (rows, DIM))
    y = np.empty(rows)
    for start in range(0, rows, CHUNK):
        part = rng.standard_normal((min(CHUNK, rows - start), DIM))
        for j in range(1, DIM):
            part[:, j] = 0.3 * part[:, j - 1] + np.sqrt(1 - 0.3**2) * part[:, j]
        X[start : start + CHUNK] = part
        part = X[start : start + CHUNK].astype(float)
        y[start : start + CHUNK] = rng.random(len(part)) < 1 / (1 + np.exp(-part @ beta))
    X.flush()
    np.save(f"{folder}/y.npy", y)
    store = streammc.from_arrays(np.load(f"{folder}/X.npy"), y)
    cv = streammc.control_variates(store, streammc.models.logistic(streammc.priors.normal(10.0)))
    np.save(f"{folder}/centre.npy", cv.theta_star)
    np.save(f"{folder}/factor.npy", cv.factor)


def load_rows(folder: str) -> list[NDArray[Any]]:
    """Return X (n, d) float32, y (n,) float64, the mode (d,) and the factor (d, d)."""
    return [np.load(Path(folder) / f"{name}.npy") for name in NAMES]


def worth(draws: NDArray[Any], centre: NDArray[Any], factor: NDArray[Any]) -> dict[str, float]:
    """Return the smallest effective sizes, and the errors in posterior sd.

    At these n the Laplace approximation at the mode is the posterior, to well within what is
    compared here; ``sd_error`` is the root mean square, over parameters, of sd / sd_Laplace - 1.
    """
    from arviz_stats.base import array_stats

    draws = np.asarray(draws, float)
    draws = draws.reshape(-1, *draws.shape[-2:])  # (chain, draw, parameter)
    exact = np.sqrt((factor**2).sum(axis=1))
    centred = draws - draws.mean(axis=(0, 1))
    means, squares = (
        [array_stats.ess(np.ascontiguousarray(part[..., j]), method="mean") for j in range(DIM)]
        for part in (draws, centred**2)
    )
    sd = np.sqrt((centred**2).mean(axis=(0, 1)))
    return {
        "ess": float(min(means)),
        "ess_squares": float(min(squares)),
        "sd_error": float(np.sqrt(np.mean((sd / exact - 1) ** 2))),
        "sd_bias": float(np.mean(sd / exact - 1)),
        "mean_error": float(np.abs((draws.mean(axis=(0, 1)) - centre) / exact).max()),
    }
