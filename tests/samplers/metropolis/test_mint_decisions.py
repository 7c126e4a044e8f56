"""The test of ``mint``: acceptance, the carried estimate, and its distance from normal."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from streammc.samplers import mint
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    ESTIMATED,
    KNOWN,
    MORE,
    N_CARRIED,
    N_DRAWS,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    POPULATION,
    REJECT,
    VARIANCE,
    WANTED,
    add_terms,
)
from streammc.samplers.metropolis.mint import NORMALITY, decide


class Chain:
    """One chain's memory, and decisions with terms and a uniform in plain sight."""

    def __init__(self, population=1000, *, m, **options):
        self.prepared = mint(**options).acceptance_test(population, m)
        self.population, self.carried = population, np.zeros(N_CARRIED)

    def decide(self, terms, known=0.0, u=0.5):
        facts, reply, kept = np.zeros(N_FACTS), np.zeros(N_REPLY), np.zeros(N_TERMS)
        facts[KNOWN], facts[POPULATION] = known, self.population
        settings, table = self.prepared.settings, self.prepared.table
        rest = np.full(N_DRAWS, u), np.zeros(N_MEMORY), self.carried, reply, table
        verdict = decide(settings, facts, kept, *rest)
        if verdict == MORE:
            assert reply[WANTED] == len(terms)
            add_terms(np.asarray(terms, float), len(terms), 1.0, facts, kept)
            assert len(terms) == facts[COUNT]
            verdict = decide(settings, facts, kept, *rest)
        return verdict, reply


def test_the_first_estimate_is_kept_whatever_it_is():
    chain = Chain(m=4)
    assert REJECT == chain.decide([np.nan, 1, 2, 3])[0]
    assert 0.0 == chain.carried[ESTIMATED]
    assert ACCEPT == chain.decide([-50, -60, -70, -80], u=0.999)[0]
    assert 1.0 == chain.carried[ESTIMATED]


@pytest.mark.parametrize("known", [-3.0, 0.4])
def test_acceptance_probability_is_the_exponential_of_the_difference(known):
    for mean in (-2.0, 0.3):
        chance = min(1.0, np.exp(known + mean))
        chain = Chain(m=2)
        chain.decide([0, 0])
        assert ACCEPT == chain.decide([mean - 1, mean + 1], known=known, u=chance * 0.999)[0]
        if chance < 1.0:
            assert REJECT == chain.decide([mean - 1, mean + 1], known=known, u=chance * 1.001)[0]


def test_reported_variance_and_error_belong_to_the_kept_position():
    rows = np.array([1.0, 2.0, 4.5])
    chain = Chain(m=3, population=5, replace=False)
    _, reply = chain.decide(rows)
    variance = np.var(rows, ddof=1) / 3 * (1 - 3 / 5)
    assert reply[VARIANCE] == pytest.approx(variance)
    kept = pytest.approx(reply[ERROR], nan_ok=True)
    for known in (-np.inf, np.nan, -1e9):
        verdict, reply = chain.decide([5.0, 5.0, 5.0], known=known)
        assert (REJECT, pytest.approx(variance), kept) == (verdict, reply[VARIANCE], reply[ERROR])
    assert 0.0 == Chain(m=3, population=3, replace=False).decide(rows)[1][VARIANCE]
    again = Chain(m=3, population=5).decide(rows)[1][VARIANCE]
    assert again == pytest.approx(variance / (1 - 3 / 5))


@pytest.mark.parametrize("m", [30, 100])
def test_the_distance_from_normal_is_that_of_the_mean(m):
    """Against the largest difference of distribution functions, for exponential rows."""
    rng = np.random.default_rng(7)
    t = np.sort((rng.gamma(m, size=400_000) - m) / np.sqrt(m))
    found = np.abs(np.arange(1, len(t) + 1) / len(t) - norm.cdf(t)).max()
    estimates = []
    for _ in range(300):
        _, reply = Chain(m=m).decide(rng.exponential(size=m))
        estimates.append(reply[ERROR])
    exact = NORMALITY * 2.0 / np.sqrt(m)
    assert found == pytest.approx(exact, rel=0.15)
    # The skewness of few terms is less than that of all.
    assert 0.6 * exact < np.nanmean(estimates) < 1.1 * exact
    assert found < 0.6 * 0.126 * 2.0 / np.sqrt(m)  # what a studentised mean would have


def test_one_row_that_is_most_of_the_variance_is_not_called_normal():
    _, reply = Chain(m=20).decide([*np.zeros(19), 50.0])
    assert np.isnan(reply[ERROR])
    _, reply = Chain(m=20).decide([*np.zeros(19), 0.5])  # whose variance moves nothing
    assert reply[ERROR] < 0.01
