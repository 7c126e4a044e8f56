"""What the paper does not print of section 4.2: alpha, and how the pixels are scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bench.papers import mnist
from bench.papers.measures import Array
from bench.papers.mint.digits import ALPHA, MINT, PLAIN, TEMPERED, temperature, tune_and_run

DRAWS, LONG, FULL_DRAWS, SCALED_DRAWS = 10_000, 50_000, 1000, 5000
SHORT = (
    (ALPHA, LONG, 1), (0.8, DRAWS, 3), (0.9, DRAWS, 3), (0.9, LONG, 1), (0.99, DRAWS, 3),
)  # fmt: skip
"""Alpha, draws and number of runs."""


def standardised(found: mnist.Digits) -> mnist.Digits:
    """Return images whose pixels have mean 0 and variance 1; those that never vary are 0."""
    mean, spread = found.X.mean(axis=0), found.X.std(axis=0)
    scale = np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    images = [((X - mean) * scale).astype(np.float32) for X in (found.X, found.X_test)]
    return mnist.Digits(images[0], found.y, images[1], found.y_test)


def step_at(step: float, hot: float, n: int) -> float:
    """Return a step in proportion to the root of the temperature."""
    return float(f"{step * (hot / temperature(n)) ** 0.5:.2g}")


def training_errors(found: mnist.Digits) -> int:
    """Return how many training images a maximum-likelihood fit gets wrong: 0 if separable."""
    sign = np.where(found.y == 1.0, 1.0, -1.0)

    def loss(theta: Array) -> tuple[float, Array]:
        margin = sign * (found.X @ theta.astype(np.float32))
        slope = (sign * np.exp(-np.logaddexp(0.0, margin))).astype(np.float32)
        return float(np.logaddexp(0.0, -margin).sum()), -np.asarray(found.X.T @ slope, float)

    start = np.zeros(found.X.shape[1])
    fit = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 600})
    return int((sign * (found.X @ fit.x.astype(np.float32)) <= 0.0).sum())


def measure(work: Path, threads: int, base: dict[str, Any]) -> dict[str, Any]:
    """Run short chains at every alpha, and of standardised pixels; ``base``: those before."""
    found = mnist.digits()
    n, methods = len(found.y), base["methods"]
    alphas = {f"mint, α = {ALPHA:g}": methods[MINT] | {"temperature": temperature(n)}}
    first = methods[MINT]["step"]
    for alpha, draws, count in SHORT:
        hot = temperature(n, alpha)
        step = step_at(first, hot, n)
        path = work / f"alpha-{alpha}"
        line, _ = tune_and_run(path, found, MINT, draws, count, threads, alpha, step=step)
        alphas[f"mint, α = {alpha:g}" + ", longer" * (draws == LONG)] = line | {"temperature": hot}
    step = step_at(methods[TEMPERED]["step"], hot, n)
    path = work / f"alpha-{alpha}-full"
    line, _ = tune_and_run(path, found, TEMPERED, FULL_DRAWS, 1, threads, alpha, step=step)
    alphas[f"{TEMPERED}, the same T"] = line | {"temperature": hot}
    scaled, lines = standardised(found), {}
    square = float((scaled.X.astype(np.float64) ** 2).sum(axis=1).mean())
    scale = (base["square"] / square) ** 0.5
    for name in (MINT, TEMPERED, PLAIN):
        path = work / f"standardised-{name.replace(' ', '-')}"
        length = SCALED_DRAWS if name == MINT else FULL_DRAWS
        lines[name], _ = tune_and_run(path, scaled, name, length, 1, threads, scale=scale)
    return {
        "alphas": alphas, "standardised": lines, "standardised_square": square,
        "wrong": training_errors(found),
    }  # fmt: skip
