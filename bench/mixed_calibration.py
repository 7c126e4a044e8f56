"""Whether intervals of mixed models hold the truth as often as they say.

Run as ``python bench/mixed_calibration.py [TABLES] [--write]``, by default 100 tables of 200 groups
of 1 to 40 rows: the truth of each is drawn from the priors, Normal(0, 1) of two coefficients and
half-Normal(1) of tau, and the table is sampled at automatic settings. Counts how often central
90 % intervals of tau and the coefficients hold the truth, beside intervals half as wide, which must
fail. ``--write`` puts the table into
``docs/measurements/mixed-models.md``.
"""

from __future__ import annotations

import argparse
import math
import warnings

import numpy as np
from page import machine, publish

import streammc
from streammc.errors import SamplingWarning
from streammc.priors import half_normal, normal

GROUPS, LEVEL = 200, 0.9
NAMES = ("beta[Intercept]", "beta[x]", "tau[group]")


def draws_and_truth(seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the draws (n, 3) of one table, its true parameters (3,) and the sampler."""
    rng = np.random.default_rng(seed)
    truth = np.append(rng.normal(size=2), abs(rng.normal()))
    group = np.repeat(np.arange(GROUPS), rng.integers(1, 41, GROUPS))
    X = np.column_stack([np.ones(len(group)), rng.normal(size=len(group))])
    eta = X @ truth[:2] + (truth[2] * rng.normal(size=GROUPS))[group]
    y = (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    data = streammc.from_arrays(X, y, groups=group, feature_names=["Intercept", "x"])
    prior = dict(zip(NAMES, (normal(1.0), normal(1.0), half_normal(1.0)), strict=True))
    model = streammc.models.logistic(prior=prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(data, model, draws=1000, chains=4, seed=seed, audit=False)
    posterior = run["posterior"]
    beta = posterior["beta"].to_numpy().reshape(-1, 2)
    tau = posterior["tau"].to_numpy().reshape(-1, 1)
    return np.hstack([beta, tau]), truth, str(streammc.facts(run)["summary"]["sampling"]["sampler"])


def holds(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return whether the central interval of each parameter holds its true value."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return (low <= truth) & (truth <= high)


def main() -> None:
    """Sample the tables, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="?", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    counts = np.zeros((2, 3))
    samplers: dict[str, int] = {}
    for seed in range(1, options.tables + 1):
        draws, truth, sampler = draws_and_truth(seed)
        samplers[sampler] = samplers.get(sampler, 0) + 1
        mean = draws.mean(axis=0)
        counts += [holds(draws, truth), holds(mean + 0.5 * (draws - mean), truth)]
    n = options.tables
    error = math.sqrt(LEVEL * (1.0 - LEVEL) / n)
    z = (counts / n - LEVEL) / error
    lines = [
        f"{machine()}; {n} tables, {', '.join(f'{c} by {s}' for s, c in samplers.items())}:", "",
        "| parameter | 90 % interval holds the truth | binomial z | half as wide | z |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for j, name in enumerate(NAMES):
        found, narrow = counts[:, j] / n
        lines.append(f"| {name} | {found:.2f} | {z[0, j]:.1f} | {narrow:.2f} | {z[1, j]:.1f} |")
    print("\n".join(lines))
    if options.write:
        publish("mixed-models.md", "calibration", lines)
    if not (np.abs(z[0]) < 3.0).all() or not (z[1] < -4.0).all():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
