"""The posteriors of van de Meent et al. 2014: rows by the paper's recipe, kernels at its starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

import streammc
from bench.papers.measures import Array
from streammc import samplers
from streammc.models import gaussian_mean
from streammc.runs.setup import decide
from streammc.samplers.common.sampler import RunRequest, Setup

GAUSSIAN, PROCESS = "gaussian", "gp"
HMC, MH = "HMC", "MH"
METHODS = ("inner", "stt", "tt", "spt", "pt")
"""In the order of the paper's tables; ``inner`` is the inner kernel alone."""
PRIOR_SD = 10.0
"""sigma_0 of the Gaussian mean, which the paper does not print."""
NARROW, WIDE = 3.0, 30.0
"""Sigma = 3^2 I and 30^2 I; the paper does not print it. With N = 1024 a trajectory of 10 steps of
0.01 is as long as the posterior's standard deviation of 0.09 with the first, a tenth of its 0.9
with the second."""
MU_0, SIGMA_0, A_F, B_F, A_N, B_N = 0.5, 1.0, 4.0, 1.0, 2.0, 2.0
LEVELS, BETA_MIN = 7, 0.125
STEP = {HMC: 0.01, MH: 0.1}
LEAPFROGS = {GAUSSIAN: 10, PROCESS: 5}
EXPLORER = {HMC: "hmc", MH: "random-walk"}
SCALES = (1.0, 0.5, 2.0)
"""The three chains start at the prior mean times these."""
SEED = 2014


@dataclass(frozen=True)
class Cell:
    """One sampler on one posterior."""

    model: str
    inner: str
    dim: int
    """|theta|: D, for the Gaussian process D + 2."""
    rows: int
    method: str
    tuned: bool = False
    """Defaults of the sampler instead of the paper's fixed ladder and steps."""
    row_sd: float = NARROW
    """Root of Sigma, of the Gaussian mean."""

    @property
    def name(self) -> str:
        """Return what names its file."""
        kind = "tuned" if self.tuned else "paper"
        kind += f"-{self.row_sd:g}" * (self.model == GAUSSIAN)
        return f"{self.model}-{self.inner}-{self.dim}-{self.rows}-{self.method}-{kind}"


def generators(model: str, dim: int) -> list[np.random.Generator]:
    """Return streams for parameters, rows and noise: more rows begin with the fewer ones."""
    streams = np.random.SeedSequence([SEED, dim, int(model == PROCESS)]).spawn(3)
    return [np.random.default_rng(stream) for stream in streams]


def gaussian_rows(dim: int, n: int, row_sd: float) -> tuple[Array, Array]:
    """Return theta (D,) from its prior, and rows (n, D) around it (eqs. 19 and 20)."""
    first, second, _ = generators(GAUSSIAN, dim)
    theta = PRIOR_SD * first.standard_normal(dim)
    return theta, theta + row_sd * second.standard_normal((n, dim))


def process_rows(dim: int, n: int) -> tuple[Array, Array, Array]:
    """Return theta (D + 2,) from its prior, X (n, D) and y (n,) (eqs. 21 to 27)."""
    first, second, third = generators(PROCESS, dim)
    lengths = np.exp(MU_0 + SIGMA_0 * first.standard_normal(dim - 2))
    height, noise = first.gamma(A_F, 1.0 / B_F), first.gamma(A_N, 1.0 / B_N)
    x = lengths.mean() * second.standard_normal((n, dim - 2))
    scaled = x / lengths
    square = (scaled**2).sum(axis=1)
    gap = np.maximum(square[:, None] + square - 2.0 * scaled @ scaled.T, 0.0)
    covariance = height**2 * np.exp(-0.5 * gap)
    covariance[np.diag_indices(n)] += noise**2
    y = np.linalg.cholesky(covariance) @ third.standard_normal(n)
    return np.concatenate([lengths, [height, noise]]), x, y


def prior_mean(model: str, dim: int) -> Array:
    """Return the prior mean of the parameters as the paper writes them."""
    if model == GAUSSIAN:
        return np.zeros(dim)
    lengths = np.full(dim - 2, np.exp(MU_0 + 0.5 * SIGMA_0**2))
    return np.concatenate([lengths, [A_F / B_F, A_N / B_N]])


def first_position(model: str, dim: int, chain: int) -> Array:
    """Return the start of a chain in the coordinates that are sampled."""
    start = SCALES[chain % len(SCALES)] * prior_mean(model, dim)
    return start if model == GAUSSIAN else np.log(start)


@lru_cache(maxsize=4)
def data(model: str, dim: int, n: int, row_sd: float) -> tuple[Any, Any]:
    """Return rows in memory, and the model."""
    if model == GAUSSIAN:
        _, x = gaussian_rows(dim, n, row_sd)
        table = streammc.from_arrays(x, np.zeros(n))
        prior = streammc.priors.normal(PRIOR_SD)
        return table, gaussian_mean(row_sd**2, dim, prior=prior)
    from streammc.models import gaussian_process

    _, x, y = process_rows(dim, n)
    return streammc.from_arrays(x, y), gaussian_process()


def sampler(cell: Cell) -> Any:
    """Return the sampler of a cell."""
    options: dict[str, Any] = {"explorer": EXPLORER[cell.inner], "beta_min": BETA_MIN}
    if not cell.tuned:
        options |= {
            "n_steps": LEAPFROGS[cell.model], "step_size": STEP[cell.inner], "jitter": 0.0,
            "covariance": "identity", "ladder": "geometric",
        }  # fmt: skip
    if cell.method == "inner":
        return samplers.pt(**options, n_levels=1)
    parallel = cell.method in ("pt", "spt")
    if parallel and not cell.tuned:
        options["swaps"] = "sweep"
    return getattr(samplers, cell.method)(**options, n_levels=LEVELS)


@lru_cache(maxsize=2)
def centre(cell: Cell) -> Any:
    """Return where the coordinates of the sampler have their origin, and their scale."""
    return decide(
        RunRequest(*data(cell.model, cell.dim, cell.rows, cell.row_sd), sampler(cell), None)
    ).cv


@lru_cache(maxsize=2)
def posed(cell: Cell) -> Any:
    """Return the problem of a cell, which its chains share; all methods have one centre."""
    table, model = data(cell.model, cell.dim, cell.rows, cell.row_sd)
    cv = centre(replace(cell, method="inner", inner=HMC))
    options = sampler(cell)
    return options.problem(RunRequest(table, model), Setup(options, cv, None, ""))


def kernel(cell: Cell, chain: int, seed: int = 1) -> Any:
    """Return a chain of a cell at its start, nothing run."""
    problem = posed(cell)
    start = first_position(cell.model, cell.dim, chain) - problem.base.theta_star
    whitened = np.linalg.solve(problem.base.factor, start)
    made = replace(problem, first=whitened, spread=0.0).kernel(seed, chain)
    if cell.inner == HMC and not cell.tuned:
        made.ladder.step[:] = STEP[HMC]  # the paper's is the same at every level
    made.initialise()
    return made


def exact_moments(cell: Cell) -> tuple[Array, float]:
    """Return mean (D,) and variance of the posterior of the Gaussian mean."""
    _, x = gaussian_rows(cell.dim, cell.rows, cell.row_sd)
    variance = 1.0 / (1.0 / PRIOR_SD**2 + cell.rows / cell.row_sd**2)
    return variance * x.sum(axis=0) / cell.row_sd**2, variance
