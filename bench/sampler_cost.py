"""Cost of an iteration of ``hmc`` and ``hmc-ecs``, of a plan and of an audit.

    python bench/sampler_cost.py [--write]

CPU time of one chain of each sampler in turn, by rows, columns and model, of the plan and of an
audit. Prints the measurements, what ``auto`` chooses by the constants of today, and the constants
fitted to them by least squares of the logarithms; they go by hand into
``streammc/runs/setup.py``.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np
from page import machine, publish, short
from scipy.optimize import least_squares

import streammc
from streammc.control_variates.bound import resolved
from streammc.control_variates.certify import compute
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.runs import setup
from streammc.runs.audit import audit_draws, log_weights
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.problem import full_data, subsampled

ROWS, COLUMNS = (1_000, 10_000, 100_000, 1_000_000), (10, 50)
MODELS = ("logistic", "poisson", "student_t")
MOST_ENTRIES = 20_000_000


def table(kind: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a design with an intercept, and a response."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))].astype(np.float32)
    eta = X @ (rng.normal(size=d) / (2 * np.sqrt(d)))
    if kind == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    if kind == "poisson":
        return X, rng.poisson(np.exp(eta)).astype(float)
    return X, eta + rng.standard_t(5, size=n)


def iteration_seconds(problem: object) -> tuple[float, float]:
    """Return the CPU seconds of an iteration after warm-up, and its steps."""
    kernel = HamiltonianKernel(problem, 1, 0)
    kernel.initialise()
    kernel.advance(200, True)
    n, best = 50, np.inf
    while True:
        began = time.process_time()
        found = kernel.advance(n, False)
        best = min(best, (time.process_time() - began) / n)
        if best * n > 0.1:
            return best, float(found["n_steps"].mean())
        n *= 2


def measure(kind: str, n: int, d: int) -> dict[str, float]:
    """Return the measured seconds of one table."""
    model = getattr(streammc.models, kind)(**({"df": 5.0} if kind == "student_t" else {}))
    store = streammc.from_arrays(*table(kind, n, d))
    model = resolved(model, store)
    cv = compute(store, model, order=2)
    began = time.process_time()
    made = plan(cv, store, model, PlanRequest(perturbed=True))
    planned = time.process_time() - began
    found = {} if made.refused is not None else {"plan": planned}
    found["hmc"], found["steps"] = iteration_seconds(
        full_data(store, model, cv, streammc.samplers.hmc())
    )
    if made.refused is None:
        found["hmc-ecs"], _ = iteration_seconds(
            subsampled(store, model, cv, made, streammc.samplers.hmc_ecs())
        )
        found["rows"] = len(made.certainty_rows) + made.subsample_size
        draws = cv.theta_star + np.zeros((audit_draws(n), 1))
        none = np.zeros(len(draws))
        began = time.process_time()
        log_weights(store, model, cv, draws, none, none, scheduler="sync")
        found["audit"] = time.process_time() - began
    return found


def choice(kind: str, n: int, d: int, found: dict[str, float]) -> str:
    """Return a line of the table: seconds for 1,000 effective draws, measured and predicted."""
    share = 1000.0 / setup.EFFECTIVE
    hmc = share * setup.ITERATIONS * found["hmc"]
    ecs = setup.ITERATIONS * found["hmc-ecs"] + found["plan"] + found["audit"]
    ecs *= share
    cost = setup.cost_from_sizes(n, d, found["rows"])
    slower = (hmc if cost.all_rows else ecs) / min(hmc, ecs)
    cells = [
        kind, f"{n:,}", str(d), short(hmc), short(cost.hmc), short(ecs), short(cost.hmc_ecs),
        "hmc" if cost.all_rows else "hmc-ecs", f"{slower:.2f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure every table; print a table and the fitted constants."""
    cases = []
    for kind, n, d in itertools.product(MODELS, ROWS, COLUMNS):
        if n * d > MOST_ENTRIES:
            continue
        found = measure(kind, n, d)
        cases.append((kind, n, d, found))
        print(kind, n, d, {key: float(f"{value:.3g}") for key, value in found.items()}, flush=True)
    head = [
        "model", "rows", "columns", "hmc, s", "predicted", "hmc-ecs, s", "predicted", "auto",
        "slower than the faster",
    ]  # fmt: skip
    lines = [f"{machine()}:", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [choice(*case) for case in cases if "audit" in case[-1] and case[2] == COLUMNS[0]]
    print("\n".join(lines))
    if "--write" in sys.argv:
        publish("small-tables.md", "choice", lines)
    for name, guess in setup.COSTS.items():
        known = [(n, d, each) for _, n, d, each in cases if name in each]

        def misfit(log: np.ndarray, name: str = name, known: list = known) -> np.ndarray:
            made = [
                setup.SECONDS[name](np.exp(log), n, d, each.get("rows", 0.0))
                for n, d, each in known
            ]
            return np.log(made) - np.log([each[name] for *_, each in known])

        fit = least_squares(misfit, np.log(guess), loss="soft_l1")
        ratio = np.exp(np.abs(fit.fun))
        constants = [float(f"{c:.2g}") for c in np.exp(fit.x)]
        print(f"{name}: {constants}, off by at most {ratio.max():.2f}")


if __name__ == "__main__":
    main()
