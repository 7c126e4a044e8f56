"""Sequential t-tests: acceptance rates and reported errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from acceptance_decisions import decisions
from scipy.stats import norm, t
from term_populations import metropolis, population

from streammc.errors import ConfigError
from streammc.numerics.jit import f8, i8, jit, vector
from streammc.samplers import mh_austere
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    M2,
    M3,
    MEAN,
    N_CARRIED,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    POPULATION,
    TEST_SIGNATURE,
    UNIFORM,
)
from streammc.samplers.metropolis.mh_austere import (
    EPSILONS,
    FIRST_PAIR,
    SIZES,
    TERMS,
    decide,
    drift_grid,
    pair_table,
    sequential_test,
    student_threshold,
    tabulated,
)

SIZE = 500


def prepare(population, *, m, **options):
    return mh_austere(**options).acceptance_test(population, m)


@jit(TEST_SIGNATURE)
def at_uniform(settings, facts, terms, draws, memory, carried, reply, table):
    """The test with a given uniform: the last of its settings."""
    draws[UNIFORM] = settings[settings.shape[0] - 1]
    return decide(settings, facts, terms, draws, memory, carried, reply, table)


@jit(TEST_SIGNATURE)
def replaced(settings, facts, terms, draws, memory, carried, reply, table):
    """Broken: the same without the finite population in the standard error."""
    draws[UNIFORM] = settings[settings.shape[0] - 1]
    size = facts[POPULATION]
    if facts[COUNT] < size:
        facts[POPULATION] = 1e12
    verdict = decide(settings, facts, terms, draws, memory, carried, reply, table)
    facts[POPULATION] = size
    return verdict


@jit(f8(f8, i8, vector))
def threshold(normal, n, exact):
    return student_threshold(normal, n, exact)


def expected(delta, size, spread, m, epsilon):
    """Return the probability of acceptance and of a wrong decision, averaged over u."""
    drifts = drift_grid(size)
    test = sequential_test(size, m, epsilon, drifts)
    u = (np.arange(200_000) + 0.5) / 200_000
    drift = (delta - np.log(u)) * math.sqrt(size - 1.0) / spread
    wrong = np.interp(np.abs(drift), drifts, test.error)
    return metropolis(delta) - (np.sign(drift) * wrong).mean(), wrong.mean()


def flips(test, kind, mu, m, epsilon, n, size=SIZE):
    """Return the share of wrong decisions at ``mu_std``, the decisions and what was expected."""
    prepared = prepare(size, m=m, epsilon=epsilon)
    settings = np.append(prepared.settings, 0.5)
    delta = math.log(0.5) + mu / math.sqrt(size - 1.0)
    x = population(kind, size)
    found = decisions(
        test, settings, x, n=n, seed=3, delta=delta, replace=False, table=prepared.table
    )
    wrong = 1.0 - found.accepted if mu > 0.0 else found.accepted
    return wrong, found, sequential_test(size, m, epsilon, np.array([abs(mu)]))


def test_thresholds_are_students() -> None:
    for epsilon in (*EPSILONS, 1e-4):
        table = np.zeros(12)
        table[2:] = t.isf(epsilon, np.arange(1.0, 11.0))
        for n in (2, 3, 11):
            assert threshold(norm.isf(epsilon), n, table) == t.isf(epsilon, n - 1)
        for n in (96, 150, 5000, 10**7):
            found = threshold(norm.isf(epsilon), n, table)
            assert found == pytest.approx(t.isf(epsilon, n - 1), rel=1e-5)


@pytest.mark.parametrize(
    "n", [20_000, pytest.param(250_000, marks=pytest.mark.slow)], ids=["2e4", "2.5e5"]
)
@pytest.mark.parametrize("delta", [-1.2, -0.3, 0.4])
def test_acceptance_is_metropolis_within_the_sequential_error(delta: float, n: int) -> None:
    size, m, epsilon, spread = 200, 25, 0.05, 20.0
    prepared = prepare(size, m=m, epsilon=epsilon)
    curve, wrong = expected(delta, size, spread, m, epsilon)
    for kind in ("normal", "skewed", "heavy"):
        x = spread * population(kind, size)
        found = decisions(
            decide, prepared.settings, x, n=n, seed=1, delta=delta, replace=False,
            table=prepared.table,
        )  # fmt: skip
        mcse = math.sqrt(0.25 / n)
        off = abs(found.accepted - metropolis(delta))
        assert off <= found.error.mean() + 4.5 * mcse
        if kind == "normal":
            # Student's t of normal terms: not only within the error, but with it.
            assert abs(found.accepted - curve) <= 4.5 * mcse + 2e-3
            assert found.error.mean() >= wrong
    assert wrong > epsilon


@pytest.mark.parametrize("mu", [0.001, 2.0])
@pytest.mark.parametrize(("m", "epsilon"), [(50, 0.005), (100, 0.1)])
def test_wrong_decisions_are_those_of_the_recursion(m: int, epsilon: float, mu: float) -> None:
    n = 40_000
    wrong, found, test = flips(at_uniform, "normal", mu, m, epsilon, n)
    mcse = math.sqrt(test.error[0] * (1.0 - test.error[0]) / n)
    assert abs(wrong - test.error[0]) <= 4.5 * mcse + 1e-3
    rows_mcse = found.used.std() / math.sqrt(n)
    assert abs(found.used.mean() - test.rows[0]) <= 4.5 * rows_mcse + 0.005 * test.rows[0]
    # The claim is one for the sequence: epsilon, that of one look, would be too small.
    assert wrong <= found.error.mean() + 4.5 * mcse
    assert (found.used[found.forced] == SIZE).all()
    if mu < 1.0:
        assert wrong > 2.0 * epsilon
        assert found.error.mean() <= 1.5 * wrong


def test_the_finite_population_matters() -> None:
    wrong, found, test = flips(replaced, "normal", 0.001, 50, 0.02, 20_000)
    mcse = math.sqrt(test.error[0] / 20_000)
    assert abs(wrong - test.error[0]) > 10.0 * mcse
    assert found.used.mean() > 1.05 * test.rows[0]


@pytest.mark.parametrize("kind", ["skewed", "heavy", "rare"])
@pytest.mark.parametrize(
    ("m", "epsilon"), [pytest.param(50, 0.005, marks=pytest.mark.slow), (100, 0.1)]
)
def test_skewed_terms_err_more_and_the_test_says_so(kind: str, m: int, epsilon: float) -> None:
    n, more = 20_000, 0.0
    for mu in (0.001, 2.0):
        wrong, found, test = flips(at_uniform, kind, mu, m, epsilon, n, size=1500)
        mcse = math.sqrt(max(wrong, 1.0 / n) / n)
        assert wrong <= found.error.mean() + 4.5 * mcse
        more = max(more, wrong - test.error[0] - 4.5 * mcse)
    # What the recursion says alone is too little: it assumes normal means.
    assert more > 0.0


def test_the_error_of_skewed_terms_is_that_of_an_edgeworth_expansion_near_the_threshold() -> None:
    size, m, epsilon, sd, away = 5000, 100, 0.05, 1.0, 0.5
    prepared = prepare(size, m=m, epsilon=epsilon)
    error = {}
    for third in (0.0, 0.4):
        facts, reply, carried = np.zeros(N_FACTS), np.zeros(N_REPLY), np.zeros(N_CARRIED)
        facts[POPULATION], facts[COUNT], facts[MEAN] = size, m, math.log(0.5) + away
        facts[M2], facts[M3] = sd**2 * (m - 1.0), third * m
        words = np.zeros(N_TERMS), np.array([0.5, 0.0, 0.0]), np.zeros(N_MEMORY)
        assert ACCEPT == decide(prepared.settings, facts, *words, carried, reply, prepared.table)
        error[third] = reply[ERROR]
    statistic = away / math.sqrt(sd**2 / m * (1.0 - (m - 1.0) / (size - 1.0)))
    near = (t.isf(epsilon, m - 1) / statistic) ** 2
    assert 0.05 < near < 0.2
    x = 0.4 / (sd**2 * (m - 1.0) / m) ** 1.5 / math.sqrt(m)
    # 16 x^4, what is left of it far from the threshold, is less.
    assert 16.0 * x**4 < near
    expected = x * (0.252 + 0.25 * x) * near
    assert expected == pytest.approx(error[0.4] - error[0.0], rel=1e-6)


def test_the_search_at_a_decision_keeps_its_bound_and_takes_the_cheapest() -> None:
    size, spread, delta, bound, n = 1000, 30.0, -0.5, 0.05, 20_000
    prepared = prepare(size, m=None, conservative=False, max_error=bound)
    assert prepared.first == 0
    x = spread * population("normal", size)
    found = decisions(
        decide, prepared.settings, x, n=n, seed=2, delta=delta, replace=False,
        table=prepared.table,
    )  # fmt: skip
    u = (np.arange(20_000) + 0.5) / 20_000
    drift = (delta - np.log(u)) * math.sqrt(size - 1.0) / spread
    drifts, cheapest, error = drift_grid(size), math.inf, 0.0
    for epsilon in EPSILONS:
        for m in SIZES:
            test = tabulated(size, m, epsilon)
            signed = np.sign(drift) * np.interp(np.abs(drift), drifts, test.error)
            rows = np.interp(np.abs(drift), drifts, test.rows).mean()
            if abs(signed.mean()) <= bound and rows < cheapest:
                cheapest, error = rows, signed.mean()
    mcse = found.used.std() / math.sqrt(n)
    assert abs(found.used.mean() - cheapest) <= 4.5 * mcse + 0.01 * cheapest
    share = math.sqrt(0.25 / n)
    assert abs(found.accepted - metropolis(delta) + error) <= 4.5 * share + 2e-3
    assert cheapest < 0.9 * conservative_rows(size, bound)


def conservative_rows(size: int, bound: float) -> float:
    prepared = prepare(size, m=None, max_error=bound)
    x = 30.0 * population("normal", size)
    return decisions(
        decide, prepared.settings, x, n=5000, seed=2, delta=-0.5, replace=False,
        table=prepared.table,
    ).used.mean()  # fmt: skip


def test_given_the_uniform_every_decision_keeps_the_bound() -> None:
    size, n, bound = 1000, 20_000, 0.02
    prepared = prepare(size, m=None, conservative=False, max_error=bound, given_uniform=True)
    for mu in (0.5, -2.0):
        settings = np.append(prepared.settings, 0.5)
        delta = math.log(0.5) + mu / math.sqrt(size - 1.0)
        found = decisions(
            at_uniform, settings, population("normal", size), n=n, seed=4, delta=delta,
            replace=False, table=prepared.table,
        )  # fmt: skip
        wrong = 1.0 - found.accepted if mu > 0.0 else found.accepted
        assert 0.0 < wrong <= bound + 4.5 * math.sqrt(bound / n)


def test_where_no_pair_is_good_enough_the_sweep_decides() -> None:
    size, n = 1000, 2_000
    prepared = prepare(size, m=50, conservative=False, max_error=1e-9, given_uniform=True)
    settings = np.append(prepared.settings, 0.5)
    x = population("normal", size)
    for mu in (1e-9, -1e-9):
        delta = math.log(0.5) + mu
        found = decisions(
            at_uniform, settings, x, n=n, seed=4, delta=delta, replace=False,
            table=prepared.table,
        )  # fmt: skip
        assert found.accepted == (1.0 if mu > 0.0 else 0.0)
        assert found.forced.all()
        assert (found.error == 0.0).all()


@pytest.mark.parametrize("size", [1, 2, 30, 50])
def test_a_population_of_one_look_is_decided_by_all_of_it(size: int) -> None:
    prepared = prepare(size, m=50, epsilon=0.01)
    assert prepared.first == size
    x = np.zeros(size) if size == 1 else population("normal", size)
    found = decisions(
        decide, prepared.settings, x, n=20_000, seed=1, delta=-0.7, replace=False,
        table=prepared.table,
    )  # fmt: skip
    assert abs(found.accepted - metropolis(-0.7)) <= 4.5 * math.sqrt(0.25 / 20_000)
    assert found.forced.all()
    assert (found.used == size).all()


def test_a_bound_that_no_pair_meets_is_refused() -> None:
    with pytest.raises(ConfigError, match="at best: raise max_error"):
        prepare(100_000, m=50, epsilon=None, max_error=1e-6)


def test_a_look_has_two_terms_at_least() -> None:
    """One term has no spread to test with."""
    settings, _ = pair_table(100, 1, 0.05, 0.1, False, False)
    assert 2.0 == settings[FIRST_PAIR + TERMS]
    wider, _ = pair_table(100, 7, 0.05, 0.1, False, False)
    assert 7.0 == wider[FIRST_PAIR + TERMS]


def test_the_pair_is_chosen_once_unless_asked_otherwise() -> None:
    sweeps = [mh_austere(**options).acceptance_test(1000, 50).sweeps for options in
              ({}, {"conservative": True}, {"conservative": False})]  # fmt: skip
    assert [False, False, True] == sweeps
