"""What an iteration of every family of samplers costs, beside its bare arithmetic.

    python bench/loops.py [CASE ...] [--write]

Logistic regression with ten columns; one core, warm. The chains run as in ``sample``, batches and
random numbers and all. The bare loop has only the arithmetic of as many rows as the chains say
they evaluated (``n_rows``): predictors, link and sums over plain arrays, with the gradient where
the sampler needs one; where rows are drawn anew, also their copy from the table and their
expansion at ``theta_star``. For groups it is the compiled likelihood of a group, called in turn.
Both run in turn in one process; medians of CPU time, and of the ratios of neighbours. ``--write``
writes the table to ``docs/measurements/iteration.md``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from page import machine, publish, short

from streammc import from_arrays
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.data_views import by_group
from streammc.models import logistic
from streammc.numerics.process_limits import single_threaded
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import (
    hmc,
    hmc_ecs,
    mh,
    mh_austere,
    mh_fixed,
    mh_minibatch,
    mh_sublhd,
    mint,
    pt,
    sgld,
    tt,
)
from streammc.samplers.common.sampler import RunRequest

DIM, REPEATS, SECONDS = 10, 9, 0.3
TILE = 512


class Case(NamedTuple):
    """A sampler, its table, and the arithmetic of a row that it evaluates."""

    sampler: Any
    rows: int
    bare: str
    """``value``, ``gradient``, ``fresh`` (copied and expanded too), ``pair`` (fresh, two values
    a row, each counted) or ``groups``."""


CASES = {
    "hmc": Case(hmc(), 20_000, "gradient"),
    "mh": Case(mh(), 20_000, "value"),
    "mh-minibatch": Case(mh_minibatch(), 200_000, "pair"),
    "mh-fixed": Case(mh_fixed(), 200_000, "pair"),
    "mh-austere": Case(mh_austere(), 200_000, "pair"),
    "mh-sublhd": Case(mh_sublhd(), 200_000, "pair"),
    "mint": Case(mint(subsample_size=1000), 200_000, "fresh"),
    "sgld": Case(sgld(subsample_size=1000), 200_000, "fresh gradient"),
    "pt": Case(pt(n_levels=6, beta_min=0.1), 2_000, "gradient"),
    "tt": Case(tt(n_levels=6, beta_min=0.1), 2_000, "gradient"),
    "hmc-ecs, groups": Case(hmc_ecs(), 200_000, "groups"),
}


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def held_rows(link, constants, X, y, theta, order, total):
    """Evaluate ``total`` rows of X (d, n), in turn, with the sum of their gradients."""
    d, n = X.shape
    flat, flat_out, gradient = np.empty(TILE), np.empty(3 * TILE), np.zeros(d)
    value, start = 0.0, 0
    while total > 0:
        w = min(TILE, n - start, total)
        eta, out = flat[:w].reshape((1, w)), flat_out[: 3 * w].reshape((3, w))
        for i in range(w):
            eta[0, i] = 0.0
        for j in range(d):
            for i in range(w):
                eta[0, i] += theta[j] * X[j, start + i]
        link(eta, X[:, start : start + w], y[start : start + w], constants, order, out)
        for i in range(w):
            value += out[0, i]
        if order > 0:
            for j in range(d):
                part = 0.0
                for i in range(w):
                    part += out[1, i] * X[j, start + i]
                gradient[j] += part
        start = start + w if start + w < n else 0
        total -= w
    return value + gradient[0]


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def drawn_rows(link, constants, table, responses, rows, star, theta, values, order):
    """Copy ``rows`` of the table (n, d), expand them, and evaluate ``values`` remainders each."""
    d = table.shape[1]
    X, y = np.empty((d, TILE)), np.empty(TILE)
    flat, flat_out, gradient = np.empty((2, TILE)), np.empty((2, 3 * TILE)), np.zeros(d)
    value = 0.0
    for first in range(0, rows.shape[0], TILE):
        w = min(TILE, rows.shape[0] - first)
        at_star, eta = flat[0, :w].reshape((1, w)), flat[1, :w].reshape((1, w))
        taylor = flat_out[0, : 3 * w].reshape((3, w))
        out = flat_out[1, : 3 * w].reshape((3, w))
        for i in range(w):
            row = rows[first + i]
            y[i] = responses[row]
            for j in range(d):
                X[j, i] = table[row, j]
        at_star[0, :] = 0.0
        for j in range(d):
            for i in range(w):
                at_star[0, i] += star[j] * X[j, i]
        link(at_star, X[:, :w], y[:w], constants, 2, taylor)
        for _ in range(values):
            eta[0, :] = at_star[0]
            for j in range(d):
                for i in range(w):
                    eta[0, i] += theta[j] * X[j, i]
            link(eta, X[:, :w], y[:w], constants, order, out)
            for i in range(w):
                s = eta[0, i] - at_star[0, i]
                value += out[0, i] - taylor[0, i] - taylor[1, i] * s - 0.5 * taylor[2, i] * s * s
            if order > 0:
                for j in range(d):
                    part = 0.0
                    for i in range(w):
                        s = eta[0, i] - at_star[0, i]
                        part += (out[1, i] - taylor[1, i] - taylor[2, i] * s) * X[j, i]
                    gradient[j] += part
    return value + gradient[0]


@njit(nogil=True)
def groups_in_turn(link, constants, X, y, theta, total):
    """Evaluate ``total`` groups with their gradients, one call each; X (2, n) has their rows."""
    d, n = theta.shape[0], X.shape[1]
    eta, out = np.empty((d, 1)), np.empty((1 + d, 1))
    eta[:, 0] = theta
    value = 0.0
    for i in range(total):
        g = i % n
        link(eta, X[:, g : g + 1], y[g : g + 1], constants, 1, out)
        value += out[0, 0]
    return value


def make_table(case: Case) -> tuple[Any, Any]:
    """Return a data set and its model."""
    rng = np.random.default_rng(1)
    n = case.rows
    X = np.c_[np.ones(n), rng.standard_normal((n, DIM - 1))]
    eta = X @ (0.3 * rng.standard_normal(DIM))
    if case.bare != "groups":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
        return from_arrays(X, y), logistic(prior=normal(scale=10.0))
    groups = np.repeat(np.arange(n // 50), 50)
    eta += rng.standard_normal(n // 50)[groups]
    y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    return by_group(from_arrays(X, y, groups=groups), logistic(prior=normal(scale=10.0)))


def bare(case: Case, data: Any, model: Any, theta: Any) -> Callable[[int], float]:
    """Return a function that does the arithmetic of so many rows."""
    source = data.rows()
    everything = allocate_rows(data.n_rows, data.n_features)
    source.gather(np.arange(data.n_rows), 1, everything)
    link, constants = model.link, model.constants
    table, y = np.ascontiguousarray(everything.X), everything.y.copy()
    X = np.ascontiguousarray(table.T)
    if case.bare == "groups":
        return lambda total: groups_in_turn(link, constants, X, y, theta, total)
    if case.bare in ("value", "gradient"):
        order = int(case.bare == "gradient")
        return lambda total: held_rows(link, constants, X, y, theta, order, total)
    rng, values = np.random.default_rng(2), 2 if case.bare == "pair" else 1
    order, small = int(case.bare.endswith("gradient")), 0.01 * theta

    def fresh(total: int) -> float:
        rows = rng.integers(0, len(table), total // values)
        return drawn_rows(link, constants, table, y, rows, theta, small, values, order)

    return fresh


def measured(case: Case) -> tuple[str, float, float, float, float]:
    """Return rows of an iteration, microseconds of both, their ratio, and nanoseconds a row."""
    data, model = make_table(case)
    request = RunRequest(data, model, case.sampler, seed=1, chains=1)
    setup = decide(request)
    problem = setup.sampler.problem(request, setup)
    chain = problem.kernel(1, 0)
    chain.initialise()
    chain.advance(300, True)
    arithmetic = bare(case, data, model, setup.cv.theta_star.copy())
    begun = time.thread_time()
    chain.advance(50, False)
    n = max(int(50 * SECONDS / (time.thread_time() - begun)), 10)
    ours, theirs, rows = [], [], 0.0
    for turn in range(REPEATS + 1):
        begun = time.thread_time()
        total = int(chain.advance(n, False)["n_rows"].sum())
        middle = time.thread_time()
        arithmetic(total)
        if turn:
            ours.append((middle - begun) / n * 1e6)
            theirs.append((time.thread_time() - middle) / n * 1e6)
            rows += total / n / REPEATS
    ratio = statistics.median(x / y for x, y in zip(ours, theirs, strict=True))
    mine = statistics.median(ours)
    return short(rows), mine, statistics.median(theirs), ratio, 1e3 * mine / rows


def main() -> None:
    """Measure the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*CASES, []])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    head = ["sampler", "rows an iteration", "streammc, us", "bare loop, us", "ratio", "ns a row"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in options.case or CASES:
        with single_threaded():
            rows, mine, theirs, ratio, each = measured(CASES[name])
        parts = [name, rows, short(mine), short(theirs), f"{ratio:.2f}", short(each)]
        lines.append(f"| {' | '.join(parts)} |")
        print(lines[-1], flush=True)
    if options.write:
        publish("iteration.md", "loops", [*lines, "", f"One core of {machine()}."])


if __name__ == "__main__":
    main()
