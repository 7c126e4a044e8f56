"""Coverage of 90 % intervals of a logistic model with ten slopes of each of 300 groups.

    python bench/slopes_coverage.py [--write] [--tables 100]

Every table has parameters and effects of its own, from the same distribution. Parameters are those
of the priors of the run, so that intervals of the posterior cover them in 90 % of all tables, and
effects likewise. ``--write`` puts the table into docs/measurements/crossed.md.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from page import machine, publish

GROUPS, ROWS, SLOPES = 300, 9_000, 10
NAMES = [f"x{k}" for k in range(SLOPES)]
INSIDE = ("q5", "q95")


def correlations(k: int, rng: np.random.Generator) -> Any:
    """Return a draw (k, k) of LKJ(2), by the onion method (Lewandowski, Kurowicka and Joe 2009)."""
    shape = 2.0 + 0.5 * (k - 2)
    R = np.eye(k)
    R[0, 1] = R[1, 0] = 2.0 * rng.beta(shape, shape) - 1.0
    for m in range(2, k):
        shape -= 0.5
        direction = rng.normal(size=m)
        direction *= np.sqrt(rng.beta(0.5 * m, shape)) / np.linalg.norm(direction)
        R[m, :m] = R[:m, m] = np.linalg.cholesky(R[:m, :m]) @ direction
    return R


def covered(seed: int) -> dict[str, Any]:
    """Return of one table whether intervals hold the truth, by the kind of a quantity."""
    import streammc
    from streammc.diagnostics.summary import draws_and_labels, summarize_draws
    from streammc.priors import half_normal, lkj, normal

    rng = np.random.default_rng([seed, 11])
    k = SLOPES + 1
    beta, tau = 0.5 * rng.normal(size=k), 0.7 * np.abs(rng.normal(size=k))
    R = correlations(k, rng)
    u = rng.normal(size=(GROUPS, k)) @ (np.linalg.cholesky(R) * tau[:, None]).T
    group, X = rng.integers(0, GROUPS, ROWS), rng.normal(size=(ROWS, SLOPES))
    group[:GROUPS] = np.arange(GROUPS)
    eta = beta[0] + u[group, 0] + ((beta[1:] + u[group, 1:]) * X).sum(axis=1)
    table = {"y": (rng.logistic(size=ROWS) < eta).astype(int), "g": group}
    table |= dict(zip(NAMES, X.T, strict=True))
    terms = " + ".join(NAMES)
    rows = streammc.from_table(table, formula=f"y ~ {terms} + (1 + {terms} | g)", standardize=False)
    prior = {"beta*": normal(0.0, 0.5), "tau*": half_normal(0.7), "rho*": lkj(2.0)}
    run = streammc.sample(
        rows, streammc.models.logistic(prior=prior), seed=seed, draws=800, warmup=300, chains=2
    )
    found = summarize_draws(*draws_and_labels(run))
    every = ["Intercept", *NAMES]
    truth = {f"beta[{each}]": beta[c] for c, each in enumerate(every)}
    truth |= {f"tau[g:{each}]": tau[c] for c, each in enumerate(every)}
    truth |= {f"rho[g:{every[j]},{every[i]}]": R[i, j] for i in range(k) for j in range(i)}
    held: dict[str, Any] = {"beta": [], "tau": [], "rho": []}
    for name, value in truth.items():
        row = found[name]
        held[name.partition("[")[0]].append(row[INSIDE[0]] <= value <= row[INSIDE[1]])
    effects = streammc.effects(run, rows).sortby("group")
    inside = (effects[INSIDE[0]].values <= u) & (u <= effects[INSIDE[1]].values)
    return held | {"effects": inside.ravel()}


def main() -> None:
    """Count over all tables; the standard error is that of the rate of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tables", type=int, default=100)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rates: dict[str, list[float]] = {}
    for seed in range(asked.tables):
        for kind, held in covered(seed).items():
            rates.setdefault(kind, []).append(float(np.mean(held)))
    lines = []
    for kind, each in rates.items():
        mean, error = np.mean(each), np.std(each, ddof=1) / np.sqrt(len(each))
        lines.append(f"| {kind} | {mean:.3f} | {error:.3f} | {(mean - 0.9) / error:.1f} |")
        print(lines[-1], flush=True)
    if asked.write:
        head = [f"{machine()}; {asked.tables} tables.", ""]
        head += ["| intervals of | coverage | standard error | from 0.9 |", "|---|---|---|---|"]
        publish("crossed.md", "slopes-coverage", [*head, *lines])


if __name__ == "__main__":
    main()
