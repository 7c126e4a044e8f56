"""Effective draws per gradient: the split integrator against the leapfrog, and NUTS.

Three posteriors: hmc-ecs on a million rows of a logistic regression with 29 columns, correlated
0.3 from one to the next; hmc on the demo data (11,000 rows, 29 columns); hmc on a Student-t
regression of 60 rows whose degrees of freedom are sampled, far from Gaussian. One chain each.
``python bench/trajectory.py`` prints a table and one line of JSON; ``--grid`` adds fixed
numbers of steps of fixed sizes, all of a length from 0.9 to 3.2.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from dataclasses import replace
from importlib import resources

import numpy as np
from arviz_stats.base import array_stats

import streammc
from streammc.control_variates.plan.subsample_plan import plan
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.problem import full_data, subsampled

ROWS, DIM, WARMUP = 1_000_000, 29, 2000
DRAWS = {"logistic 1e6": 40_000, "higgs11k": 10_000, "student-t 60": 40_000}
PRIOR = streammc.priors.normal(10.0)


def logistic_rows():
    """Return the problem of hmc-ecs on a million rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, DIM))
    for j in range(1, DIM):
        X[:, j] = 0.3 * X[:, j - 1] + np.sqrt(1 - 0.3**2) * X[:, j]
    beta = 0.3 * rng.standard_normal(DIM)
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-X @ beta))).astype(float)
    store, model = streammc.from_arrays(X.astype(np.float32), y), streammc.models.logistic(PRIOR)
    cv = streammc.control_variates(store, model)
    return subsampled(store, model, cv, plan(cv, store, model), streammc.samplers.hmc_ecs())


def higgs():
    """Return the problem of hmc on the demo data."""
    found = resources.files("streammc.demo_data") / "higgs11k.csv.gz"
    with found.open("rb") as raw, gzip.open(raw, "rt") as lines:
        table = np.array([list(map(float, row)) for row in list(csv.reader(lines))[1:]])
    y, X = table[:, 0], table[:, 1:]
    X = np.c_[np.ones(len(y)), (X - X.mean(axis=0)) / X.std(axis=0)]
    return in_full(streammc.from_arrays(X, y), streammc.models.logistic(PRIOR))


def student_t():
    """Return the problem of hmc on a small regression with heavy tails."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(60), rng.standard_normal((60, 4))]
    y = X @ np.array([1.0, 0.5, -0.5, 0.2, 0.0]) + rng.standard_t(3, size=60)
    return in_full(streammc.from_arrays(X, y), streammc.models.student_t(PRIOR))


def in_full(store, model):
    """Return the problem of hmc."""
    cv = streammc.control_variates(store, model)
    return full_data(store, model, cv, streammc.samplers.hmc())


def smallest(draws: np.ndarray) -> float:
    """Return the smallest effective sample size of the columns."""
    columns = (np.ascontiguousarray(draws[None, :, j]) for j in range(draws.shape[1]))
    return float(min(array_stats.ess(column, method="mean") for column in columns))


def measure(problem, draws: int, seed: int = 1, **options) -> dict[str, float]:
    """Return effective draws per gradient and per millisecond of CPU time."""
    chain = HamiltonianKernel(replace(problem, **options), seed=seed, chain=0)
    chain.initialise()
    chain.advance(WARMUP, True)
    began = time.thread_time()
    found = chain.advance(draws, False)
    used = time.thread_time() - began
    theta, steps = found["theta"], found["n_steps"]
    ess = smallest(theta)
    squares = smallest((theta - theta.mean(axis=0)) ** 2)
    return {
        "steps": float(steps.mean()),
        "step_size": float(found["step_size"].mean()),
        "acceptance": float(found["acceptance_rate"].mean()),
        "diverging": int(found["diverging"].sum()),
        "ess": ess / draws,
        "ess_squares": squares / draws,
        "per_gradient": min(ess, squares) / steps.sum(),
        "per_ms": min(ess, squares) / used / 1e3,
        "us": used / draws * 1e6,
    }


RULES = {
    f"{integrator}, {kind}, target {target}": {
        "leapfrog": integrator == "leapfrog",
        "nuts": kind == "nuts",
        "target_acceptance": target,
    }
    for integrator in ("leapfrog", "split")
    for kind, targets in (("jittered", (0.6, 0.8, 0.85, 0.95)), ("nuts", (0.85,)))
    for target in targets
}
SIZES = [round(0.1 * i, 1) for i in range(2, 17)]
GRID = {
    f"{integrator}, {n} of {size}": {
        "leapfrog": integrator == "leapfrog",
        "step_size": size,
        "trajectory_length": n * size,
    }
    for integrator in ("leapfrog", "split")
    for n in range(1, 9)
    for size in SIZES
    if 0.9 <= n * size <= 3.2
}
PROBLEMS = {"logistic 1e6": logistic_rows, "higgs11k": higgs, "student-t 60": student_t}


def main() -> None:
    """Print effective draws per gradient by posterior and rule."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--grid", action="store_true")
    rules = {**RULES, **(GRID if parser.parse_args().grid else {})}
    results = []
    for name, build in PROBLEMS.items():
        problem = build()
        print(f"\n{name}\n\n| trajectory | steps | acceptance | ESS | ESS of squares | ", end="")
        print("per gradient | per ms |\n|---|---|---|---|---|---|---|")
        for rule, options in rules.items():
            found = measure(problem, DRAWS[name], **options)
            print(
                f"| {rule} | {found['steps']:.2f} | {found['acceptance']:.2f} | {found['ess']:.2f} "
                f"| {found['ess_squares']:.2f} | {found['per_gradient']:.3f} "
                f"| {found['per_ms']:.3g} |",
                flush=True,
            )
            numbers = {key: float(f"{value:.4g}") for key, value in found.items()}
            results.append({"posterior": name, "trajectory": rule, **numbers})
    print(json.dumps({"trajectory": results}))


if __name__ == "__main__":
    main()
