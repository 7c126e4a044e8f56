"""The test with a concentration bound: its constants, its promise, and its steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from acceptance_decisions import decisions
from term_populations import metropolis, population

from streammc.numerics.jit import f8, i8, jit
from streammc.samplers import mh_sublhd
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    BOUND,
    COUNT,
    KNOWN,
    M2,
    MEAN,
    MORE,
    N_CARRIED,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    POPULATION,
    REJECT,
    TEST_SIGNATURE,
    UNIFORM,
    VARIANCE,
)
from streammc.samplers.metropolis.mh_sublhd import INEQUALITIES, decide, half_width


def prepare(population, *, m, **options):
    return mh_sublhd(**options).acceptance_test(population, m)


@jit(TEST_SIGNATURE)
def at_uniform(settings, facts, terms, draws, memory, carried, reply, table):
    """The test with a given uniform: the last of its settings."""
    draws[UNIFORM] = settings[settings.shape[0] - 1]
    return decide(settings, facts, terms, draws, memory, carried, reply, table)


@jit(f8(f8, f8, f8, f8, f8, i8))
def width(n, size, variance, largest, delta, inequality):
    return half_width(n, size, variance, largest, delta, inequality)


def test_half_widths_equal_hand_computed_values() -> None:
    """s = 3, C = 2, delta = 0.05, N = 1000."""
    few = 3 * math.sqrt(2 * 0.901 * math.log(100) / 100)
    few += (7 / 3 + 3 / math.sqrt(2)) * 4 * math.log(100) / 100
    many = 3 * math.sqrt(2 * 0.2 * (1 + 1 / 800) * math.log(100) / 800)
    many += (7 / 3 + 3 / math.sqrt(2)) * 4 * math.log(100) / 800
    assert width(100.0, 1000.0, 9.0, 2.0, 0.05, 0) == pytest.approx(few, rel=1e-14)
    assert width(800.0, 1000.0, 9.0, 2.0, 0.05, 0) == pytest.approx(many, rel=1e-14)
    plain = 3 * math.sqrt(2 * math.log(60) / 100) + 12 * math.log(60) / 100
    assert width(100.0, 1000.0, 9.0, 2.0, 0.05, 1) == pytest.approx(plain, rel=1e-14)


MANY = pytest.param("bernstein-serfling", 250_000, marks=pytest.mark.slow)
KINDS = ["normal", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("skewed", "heavy"))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inequality", "n"), [*((name, 20_000) for name in INEQUALITIES), MANY])
def test_acceptance_is_metropolis_within_delta(kind: str, inequality: str, n: int) -> None:
    size, limit = 400, 0.1
    prepared = prepare(size, m=50, delta=limit, inequality=inequality)
    x = population(kind, size)
    for delta in (-1.2, -0.3, 0.4) if n < 100_000 else (-0.3,):
        found = decisions(decide, prepared.settings, x, n=n, seed=1, delta=delta, replace=False)
        off = abs(found.accepted - metropolis(delta))
        assert off <= found.error.mean() + 4.5 * math.sqrt(0.25 / n)
        assert set(np.unique(found.error)) <= {0.0, limit}
        assert (found.forced == (found.error == 0.0)).all()
        assert set(np.unique(found.used)) <= {50, 100, 200, 400}
        assert 0.0 < found.forced.mean() < 1.0


@pytest.mark.parametrize("inequality", INEQUALITIES)
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (0.1, True), (0.01, False)])
def test_wrong_decisions_stay_below_delta_where_the_bound_holds(
    factor: float, holds: bool, inequality: str
) -> None:
    """One term in 500 makes the mean; not met, it is missed where the bound is too small.

    The constants are so large that even a tenth of the bound keeps the promise.
    """
    size, n, limit = 500, 20_000, 0.1
    x = np.zeros(size)
    x[17] = size
    prepared = prepare(size, m=50, delta=limit, bound="model", inequality=inequality)
    found = decisions(
        at_uniform, np.append(prepared.settings, 0.5), x, n=n, seed=2,
        delta=math.log(0.5) + 0.1, replace=False, bound=factor * size,
    )  # fmt: skip
    wrong = 1.0 - found.accepted
    assert bool(wrong <= limit + 4.5 * math.sqrt(limit / n)) is holds


@pytest.mark.parametrize("gamma", [1.001, 1.5, 3.0])
def test_looks_grow_geometrically_up_to_all_terms(gamma: float) -> None:
    size = 500
    prepared = prepare(size, m=40, gamma=gamma, delta=0.3)
    found = decisions(
        decide, prepared.settings, 2.0 * population("normal", size), n=5000, seed=3,
        delta=-0.5, replace=False,
    )  # fmt: skip
    sizes, n = set(), 40
    while n < size:
        sizes.add(n)
        n = max(min(size, math.ceil(gamma * n)), n + 1)
    assert set(np.unique(found.used)) <= sizes | {size}
    assert found.forced.any()


def test_model_without_row_bounds_needs_a_pass_and_a_loose_bound_costs_rows() -> None:
    size = 400
    x = population("normal", size)
    largest = float(np.abs(x).max())
    options = {"n": 5000, "seed": 1, "delta": -0.5, "replace": False}
    by_pass = decisions(decide, prepare(size, m=50).settings, x, **options)
    model = prepare(size, m=50, bound="model").settings
    silent = decisions(decide, model, x, **options)
    exact = decisions(decide, model, x, bound=largest, **options)
    loose = decisions(decide, model, x, bound=5.0 * largest, **options)
    np.testing.assert_array_equal(by_pass.used, silent.used)
    np.testing.assert_array_equal(by_pass.used, exact.used)
    assert loose.used.mean() > 1.02 * exact.used.mean()


def test_the_first_look_decides_where_its_interval_excludes_the_threshold() -> None:
    size, n, spread, largest, p = 400.0, 50.0, 4.0, 3.0, 2.0
    settings = prepare(int(size), m=int(n), delta=0.1, p=p, bound="model").settings
    half = width(n, size, spread, largest, 0.1 * (p - 1.0) / p, 0)
    facts, draws = np.zeros(N_FACTS), np.full(8, 0.5)
    facts[[POPULATION, COUNT, M2, BOUND, KNOWN]] = size, n, n * spread, largest, -0.7
    psi = math.log(0.5) + 0.7
    for off, expected in ((half, ACCEPT), (-half, REJECT)):
        for factor, verdict in ((1.0 + 1e-6, expected), (1.0 - 1e-6, MORE)):
            facts[MEAN] = psi + factor * off
            reply = np.zeros(N_REPLY)
            rest = (np.zeros(N_TERMS), draws, np.zeros(N_MEMORY), np.zeros(N_CARRIED), reply)
            assert verdict == decide(settings, facts, *rest, np.zeros((1, 1)))
            variance = 0.0 if verdict == MORE else spread / n * (1.0 - (n - 1.0) / (size - 1.0))
            assert reply[VARIANCE] == pytest.approx(variance, rel=1e-14)
