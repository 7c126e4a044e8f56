"""The masses of the modes of Gaussian mixtures: ladders at automatic settings.

Two posteriors of component means, whose modes are the ways to say which component is which, with
unequal masses because the priors of the components differ: three components of 60 rows on a line,
6 sd apart (6 modes), and four of 40 to 60 rows in three dimensions (24 modes). The truth is
importance sampling from a mixture of t densities at all modes. Total variation is between the
masses of the modes and the shares of the draws in them. Run as ``python bench/mixture_modes.py
[--seeds 10] [--case four] [--samplers pt]``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import streammc
from streammc import samplers
from streammc.errors import SamplingWarning
from streammc.models import gaussian_mixture
from streammc.priors import normal
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory

IMPORTANCE_DRAWS = 4000
"""Of every mode."""
DF = 8.0


class Case(NamedTuple):
    """A mixture of unit Gaussians with equal weights."""

    centres: np.ndarray
    """(K, q)."""
    rows: tuple[int, ...]
    location: np.ndarray
    """(K, q) of the normal priors of the means."""
    scale: np.ndarray
    """(K, q)."""

    @property
    def permutations(self) -> np.ndarray:
        """(K!, K) which centre every component has."""
        return np.array(list(itertools.permutations(range(len(self.centres)))))


CASES = {
    "three": Case(
        np.array([[-6.0], [0.0], [6.0]]),
        (60, 60, 60),
        np.array([[-3.0], [0.8], [1.5]]),
        np.array([[7.5], [9.0], [7.5]]),
    ),
    "four": Case(
        np.array([[0.0, 0.0, 0.0], [3.5, 0.0, 0.5], [0.0, 3.5, -0.5], [2.0, 2.0, 3.0]]),
        (60, 50, 45, 40),
        np.array([[0.0, 0.0, 0.0], [3.5, 0.0, 0.5], [0.0, 3.5, -0.5], [2.0, 2.0, 3.0]]),
        np.array([[2.0] * 3, [2.6] * 3, [2.2] * 3, [3.0] * 3]),
    ),
}


@lru_cache
def observations(name: str) -> np.ndarray:
    """Return the (N, q) rows."""
    case, rng = CASES[name], np.random.default_rng(14)
    parts = zip(case.centres, case.rows, strict=True)
    return np.concatenate([rng.normal(centre, 1.0, (n, len(centre))) for centre, n in parts])


def problem(name: str) -> tuple[Dataset, Model]:
    """Return rows and model."""
    case, x = CASES[name], observations(name)
    features = [f"x{a}" for a in range(x.shape[1])]
    data = streammc.from_arrays(x, np.zeros(len(x)), feature_names=features)
    prior = {
        f"mu[{k}, {feature}]": normal(case.scale[k, a], location=case.location[k, a])
        for k in range(len(case.centres))
        for a, feature in enumerate(features)
    }
    model = gaussian_mixture(len(case.centres), np.ones(x.shape[1]), prior=prior)
    return data, model


def log_density(name: str, means: np.ndarray) -> np.ndarray:
    """Return the log posterior density (n,) of means (n, K, q), by NumPy alone, normaliser and all.

    The integral of its exponential is the evidence.
    """
    case, x = CASES[name], observations(name)
    K, q = case.centres.shape
    z = (means - case.location) / case.scale
    prior = -0.5 * z**2 - np.log(case.scale) - 0.5 * math.log(2.0 * math.pi)
    out = prior.sum(axis=(1, 2))
    for row in x:
        squares = ((row - means) ** 2).sum(axis=2)
        top = squares.min(axis=1, keepdims=True)
        out += np.log(np.exp(-0.5 * (squares - top)).sum(axis=1)) - 0.5 * top[:, 0]
    return out - len(x) * (math.log(K) + 0.5 * q * math.log(2.0 * math.pi))


def mode(name: str, means: np.ndarray) -> np.ndarray:
    """Return the mode (K, q) next to ``means``, by expectation and maximisation."""
    case, x = CASES[name], observations(name)
    for _ in range(500):
        log_share = -0.5 * ((x[:, None] - means) ** 2).sum(axis=2)
        share = np.exp(log_share - np.logaddexp.reduce(log_share, axis=1)[:, None])
        precision = share.sum(axis=0)[:, None] + case.scale**-2.0
        means = (share.T @ x + case.location / case.scale**2) / precision
    return means


def curvature(name: str, means: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Return minus the Hessian (K q, K q) of the log density, by differences."""
    d = means.size
    moves = step * np.eye(d).reshape(d, *means.shape)
    out = np.empty((d, d))
    for i in range(d):
        signs = itertools.product((1.0, -1.0), repeat=2)
        four = [log_density(name, means + s * moves[i] + t * moves) for s, t in signs]
        out[i] = (four[0] - four[1] - four[2] + four[3]) / (4.0 * step**2)
    return -0.5 * (out + out.T)


class Truth(NamedTuple):
    """What the posterior is, by importance sampling."""

    mass: np.ndarray
    """(K!,) of every mode."""
    error: np.ndarray
    """(K!,) standard errors."""
    log_evidence: float
    effective: float
    """Effective number of the weighted draws."""


def labels(name: str, means: np.ndarray) -> np.ndarray:
    """Return (n,) which permutation of the centres means (n, K, q) are nearest to."""
    case = CASES[name]
    away = ((means[:, :, None] - case.centres) ** 2).sum(axis=3)
    components = np.arange(len(case.centres))
    costs = [away[:, components, one].sum(axis=1) for one in case.permutations]
    return np.argmin(costs, axis=0)


@lru_cache
def truth(name: str) -> Truth:
    """Sample from t densities at all modes, as many at each, and weight by their mixture."""
    case, rng = CASES[name], np.random.default_rng(5)
    modes = [mode(name, case.centres[one]) for one in case.permutations]
    d = modes[0].size
    factors = [np.linalg.cholesky(np.linalg.inv(curvature(name, one))) for one in modes]
    draws = []
    for one, factor in zip(modes, factors, strict=True):
        spread = np.sqrt(rng.chisquare(DF, (IMPORTANCE_DRAWS, 1)) / DF)
        t = rng.normal(size=(IMPORTANCE_DRAWS, d)) / spread
        draws.append(one.ravel() + t @ factor.T)
    theta = np.concatenate(draws)
    parts = []
    top = math.lgamma(0.5 * (DF + d)) - math.lgamma(0.5 * DF) - 0.5 * d * math.log(DF * math.pi)
    for one, factor in zip(modes, factors, strict=True):
        z = np.linalg.solve(factor, (theta - one.ravel()).T)
        square = (z**2).sum(axis=0)
        parts.append(top - np.log(np.diag(factor)).sum() - 0.5 * (DF + d) * np.log1p(square / DF))
    proposal = np.logaddexp.reduce(parts, axis=0) - math.log(len(modes))
    means = theta.reshape(-1, *case.centres.shape)
    log_weight = log_density(name, means) - proposal
    weight = np.exp(log_weight - log_weight.max())
    share = weight / weight.sum()
    label = labels(name, means)
    mass = np.bincount(label, share, len(modes))
    error = [math.sqrt((share**2 * ((label == k) - mass[k]) ** 2).sum()) for k in range(len(modes))]
    evidence = log_weight.max() + math.log(weight.mean())
    return Truth(mass, np.array(error), float(evidence), float(1.0 / (share**2).sum()))


class Found(NamedTuple):
    """What a run says of the masses."""

    share: np.ndarray
    """(K!,) of the draws."""
    total_variation: float
    summary: dict[str, Any]
    seconds: float


def run(name: str, sampler: Any, *, seed: int, draws: int = 1000, chains: int = 4) -> Found:
    """Draw at the settings of ``sampler``."""
    data, model = problem(name)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        report = run_job(RunRequest(data, model, sampler, draws=draws, chains=chains, seed=seed))
    seconds = time.perf_counter() - begun
    drawn = RunDirectory.open(report.path).draws_matrix()
    right = truth(name).mass
    share = np.bincount(
        labels(name, drawn.reshape(-1, *CASES[name].centres.shape)), minlength=len(right)
    ) / (chains * draws)
    return Found(share, float(0.5 * np.abs(share - right).sum()), report.summary, seconds)


def main() -> None:
    """Print one line per seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--samplers", nargs="*", default=["pt"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=1000)
    arguments = parser.parse_args()
    for name in arguments.case:
        right = truth(name)
        print(
            f"{name}: {len(right.mass)} modes of mass {right.mass.min():.4f} to "
            f"{right.mass.max():.4f}, largest error {right.error.max():.1e}, log evidence "
            f"{right.log_evidence:.3f}, effective draws {right.effective:,.0f}"
        )
        print("| sampler | seed | total variation | levels | barrier | restarts | log evidence "
              "| R-hat | warnings | seconds |")  # fmt: skip
        print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
        for sampler in arguments.samplers:
            for seed in range(1, arguments.seeds + 1):
                found = run(name, getattr(samplers, sampler)(), seed=seed, draws=arguments.draws)
                tempering = found.summary["tempering"]
                rhat = max(p["r_hat"] or 1.0 for p in found.summary["parameters"].values())
                evidence, barrier = (
                    tempering.get(key) for key in ("log_normalising_constant", "barrier")
                )
                print(
                    f"| {sampler} | {seed} | {found.total_variation:.4f} "
                    f"| {len(tempering['levels']['beta'])} "
                    f"| {'-' if barrier is None else f'{barrier:.2f}'} "
                    f"| {tempering.get('restarts', '-')} "
                    f"| {'-' if evidence is None else f'{evidence:.2f}'} | {rhat:.3f} "
                    f"| {len(found.summary['warnings'])} | {found.seconds:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
