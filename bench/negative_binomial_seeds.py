"""Negative binomial counts that are Poisson: a scale whose posterior has a long tail.

``y ~ 1`` with ``y ~ Poisson(5)``: the posterior of ``phi`` reaches far to the right, where the
variance of a subsampled log-likelihood grows without bound. At automatic settings every seed
has to finish with the truth, which is an integral over a grid of (beta, log phi). Run as
``python bench/negative_binomial_seeds.py [--seeds N] [--rows N ...] [--draws N]``; prints a line a
run and a table. A run is off where a mean, or the share of draws below a true quantile of
``phi``, is 4.5 Monte Carlo standard errors or more from the truth.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

import streammc
from streammc.errors import SamplingWarning, StreammcError
from streammc.models import negative_binomial
from streammc.priors import half_student_t, normal
from streammc.protocols import Dataset, Model
from streammc.runs.job import RunReport, run_job
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory

RATE = 5.0
BETA_SCALE, PHI_SCALE, PHI_DF = 10.0, 10.0, 3.0
LEVELS = (0.05, 0.5, 0.95)
LARGEST_Z = 4.5


class Truth(NamedTuple):
    """Posterior means and quantiles by quadrature."""

    beta: float
    log_phi: float
    quantiles: tuple[float, ...]
    """Of ``phi``, at ``LEVELS``."""


def counts(n_rows: int, seed: int) -> np.ndarray:
    """Return (n,) Poisson counts."""
    return np.random.default_rng(seed).poisson(RATE, n_rows).astype(np.float64)


def problem(y: np.ndarray) -> tuple[Dataset, Model]:
    """Return the rows in memory and the model with explicit priors."""
    prior = {"*": normal(scale=BETA_SCALE), "phi": half_student_t(PHI_DF, PHI_SCALE)}
    return streammc.from_arrays(np.ones((len(y), 1)), y), negative_binomial(prior=prior)


def truth(y: np.ndarray, points: int = 1201) -> Truth:
    """Integrate over a grid, by NumPy and SciPy alone."""
    values, times = np.unique(y, return_counts=True)
    centre, spread = math.log(y.mean()), 1.0 / math.sqrt(y.sum())
    beta = centre + np.linspace(-9.0, 9.0, 181) * spread
    log_phi = np.linspace(-1.0, 22.0, points)
    mu, phi = np.exp(beta)[:, None], np.exp(log_phi)[None, :]
    log = np.zeros((len(beta), len(log_phi)))
    for value, count in zip(values, times, strict=True):
        rising = gammaln(value + phi) - gammaln(phi) - value * log_phi
        log += count * (rising + value * beta[:, None] - (value + phi) * np.log1p(mu / phi))
    log -= 0.5 * (beta[:, None] / BETA_SCALE) ** 2
    log += log_phi - 0.5 * (PHI_DF + 1.0) * np.log1p((phi / PHI_SCALE) ** 2 / PHI_DF)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    along = mass.sum(axis=0)
    below = np.cumsum(along) - 0.5 * along
    quantiles = np.exp(np.interp(LEVELS, below, log_phi))
    return Truth(
        float(mass.sum(axis=1) @ beta), float(along @ log_phi), tuple(float(q) for q in quantiles)
    )


def errors(draws: np.ndarray, exact: Truth) -> dict[str, float]:
    """Return z per statistic of draws (chain, draw, 2) of beta and phi."""
    from arviz_stats.base import array_stats

    beta, phi = draws[..., 0], draws[..., 1]
    compared = {"beta": (beta, exact.beta), "log phi": (np.log(phi), exact.log_phi)}
    for level, quantile in zip(LEVELS, exact.quantiles, strict=True):
        compared[f"q{100.0 * level:g} of phi"] = ((phi < quantile).astype(float), level)
    found = {}
    for name, (values, wanted) in compared.items():
        error = float(array_stats.mcse(values, method="mean")) if np.ptp(values) else 0.0
        found[name] = (float(values.mean()) - wanted) / error if error else math.inf
    return found


def run(n_rows: int, seed: int, draws: int, sampler: Any = None) -> tuple[RunReport, np.ndarray]:
    """Sample one data set at automatic settings; the draws are (chain, draw, 2)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        report = run_job(
            RunRequest(
                *problem(counts(n_rows, seed)), sampler, draws=draws, warmup=draws, seed=seed
            )
        )
    return report, RunDirectory.open(report.path).draws_matrix()


def main() -> None:
    """Print a line per run, then what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    lines = ["| rows | seeds | died | off | hmc | hmc-ecs | largest abs z | seconds a run |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for n_rows in options.rows:
        died = off = 0
        chosen: dict[str, int] = {}
        largest: list[float] = []
        begun = time.perf_counter()
        for seed in range(options.seeds):
            exact = truth(counts(n_rows, seed))
            try:
                report, draws = run(n_rows, seed, options.draws)
            except StreammcError as error:
                died += 1
                print(f"{n_rows} rows, seed {seed}: {type(error).__name__}: {error}", flush=True)
                continue
            name = report.summary["sampling"]["sampler"]
            chosen[name] = chosen.get(name, 0) + 1
            z = errors(draws, exact)
            worst = max(z, key=lambda label: abs(z[label]))
            largest.append(abs(z[worst]))
            off += largest[-1] >= LARGEST_Z
            q95 = float(np.quantile(draws[..., 1], 0.95))
            print(
                f"{n_rows} rows, seed {seed}: {name}, q95 of phi {q95:.4g} for "
                f"{exact.quantiles[-1]:.4g}, largest z {z[worst]:.1f} ({worst})",
                flush=True,
            )
        seconds = (time.perf_counter() - begun) / options.seeds
        top = max(largest, default=math.nan)
        lines.append(
            f"| {n_rows} | {options.seeds} | {died} | {off} | {chosen.get('hmc', 0)} | "
            f"{chosen.get('hmc-ecs', 0)} | {top:.1f} | {seconds:.1f} |"
        )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
