"""``mh-minibatch``: Barker's function within the error of each decision, broken partners."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from acceptance_decisions import decisions
from barker import SIZE, Z, curve, terms
from scipy.special import expit, ndtr, ndtri

from streammc.numerics.jit import jit
from streammc.samplers import mh_minibatch
from streammc.samplers.metropolis import clt
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    ERROR,
    FORCED,
    KNOWN,
    MORE,
    N_CARRIED,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    POPULATION,
    SWEEP,
    SWEPT,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    USED,
    VARIANCE,
    WANTED,
    add_terms,
)
from streammc.samplers.metropolis.correction import correction
from streammc.samplers.metropolis.mh_minibatch import decide

M = 40
SIZES = {"normal": M, "skewed": M, "t3": 100}
"""Of 40 terms with such tails one dominates too often to tell anything."""
OPTIONS = {
    "default": {},
    "corrected": {"skew_corrected": True},
    "delta": {"delta": 0.02},
    "paper": {"correction": "paper"},
    "wide": {"sigma": 1.2},
}


def prepare(population, *, m, **options):
    return mh_minibatch(**{"delta": None, **options}).acceptance_test(population, m)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "sd"),
    [
        ("normal", "default", 1.7),
        *(("skewed", "default", sd) for sd in (0.5, 1.7)),
        *((kind, "corrected", 0.95) for kind in SIZES),
        *(("skewed", options, 0.95) for options in ("delta", "paper", "wide")),
        ("t3", "default", 0.95),
    ],
)
def test_many_decisions_keep_their_promise(kind: str, options: str, sd: float) -> None:
    m = SIZES[kind]
    found = curve(decide, prepare(SIZE, m=m, **OPTIONS[options]), terms(kind, sd, m))
    assert found.excess <= found.claimed, (found.deviation, found.error)
    assert (found.forced == 0.0).all()
    assert found.claimed < {"normal": 0.02, "skewed": 0.08, "t3": 0.05}[kind]


@pytest.mark.parametrize("kind", SIZES)
def test_decisions_follow_barker(kind: str) -> None:
    m = SIZES[kind]
    found = curve(decide, prepare(SIZE, m=m), terms(kind, 0.5, m), n=20_000)
    assert found.excess <= found.claimed < 0.02
    assert (found.used < 1.2 * m).all()


def test_skew_correction_removes_most_of_what_skewness_does() -> None:
    x = terms("skewed", 0.95, M)
    plain = curve(decide, prepare(SIZE, m=M), x, n=100_000, deltas=(0.0,))
    corrected = curve(decide, prepare(SIZE, m=M, skew_corrected=True), x, n=100_000, deltas=(0.0,))
    assert abs(plain.deviation[0]) > 0.025
    assert abs(corrected.deviation[0]) < 0.012
    assert corrected.claimed < 0.5 * plain.claimed


@jit(TEST_SIGNATURE)
def _without_normal(settings, facts, kept, draws, memory, carried, reply, table):
    draws[1] = 0.0
    return decide(settings, facts, kept, draws, memory, carried, reply, table)


def test_broken_tests_are_caught() -> None:
    x = terms("normal", 0.5, M)
    prepared = prepare(SIZE, m=M)
    nothing = prepared._replace(table=np.array([[-1e-9, 1e-9], [0.0, 1.0]]))
    wide = prepared._replace(table=prepare(SIZE, m=M, sigma=1.4).table)
    for test, broken in ((decide, nothing), (decide, wide), (_without_normal, prepared)):
        found = curve(test, broken, x, n=20_000)
        assert found.excess > found.claimed + 0.005


@pytest.mark.parametrize("kind", ["heavy", "rare"])
def test_decisions_report_an_unknown_error_where_the_bound_fails(kind: str) -> None:
    x = terms(kind, 2.2, M)
    found = curve(decide, prepare(SIZE, m=M, delta=0.02), x, n=5_000, deltas=(0.4,))
    assert abs(found.deviation[0]) > 0.02 + Z * found.mcse[0]
    assert found.unknown[0] > 0.9


def test_too_few_terms_claim_more_than_delta_or_nothing() -> None:
    options = {"n": 20_000, "deltas": (-0.4, 0.4)}
    few = curve(decide, prepare(SIZE, m=10, delta=0.02), terms("skewed", 0.98, 10), **options)
    assert (few.unknown > 0.9).all()
    more = curve(decide, prepare(SIZE, m=40, delta=0.02), terms("skewed", 0.98, 40), **options)
    assert more.excess <= more.claimed
    assert more.claimed > 0.02


def test_bound_of_the_paper_takes_thousands_of_terms_or_all() -> None:
    x = terms("normal", 0.5, 7000)
    options = {"n": 20, "seed": 1, "delta": 0.0, "replace": True}
    prepared = prepare(SIZE, m=100, delta=0.12, bound="clt")
    found = decisions(decide, prepared.settings, x, table=prepared.table, **options)
    # 6.4 E|X|^3 + 2 E|X| is 11.8 for normal terms, and 8.4 is what no terms go below.
    assert prepared.first == 4900
    assert 9_400 < found.used.mean() < 9_900
    assert found.used.min() > 8_500
    assert ((found.error > 0.115) & (found.error < 0.14)).all()
    prepared = prepare(SIZE, m=100, delta=0.05, bound="clt")
    found = decisions(decide, prepared.settings, x, table=prepared.table, **options)
    assert prepared.first == 0
    assert found.forced.all()
    assert (found.used == SIZE).all()
    assert (found.error == 0.0).all()


@pytest.mark.parametrize("delta", [-1.0, 0.5])
def test_a_sweep_decides_exactly(delta: float) -> None:
    x = terms("skewed", 5.0, M)[:300]
    prepared = prepare(300, m=M)
    found = decisions(
        decide, prepared.settings, x, n=50_000, seed=1, delta=delta, replace=True,
        table=prepared.table,
    )  # fmt: skip
    chance = expit(delta)
    assert found.forced.all()
    assert (found.error == 0.0).all()
    assert abs(found.accepted - chance) < Z * np.sqrt(chance * (1.0 - chance) / 50_000)


def test_sizes_are_multiples_of_m() -> None:
    prepared = prepare(SIZE, m=M)
    found = decisions(
        decide, prepared.settings, terms("normal", 1.5, M), n=2_000, seed=1, delta=0.0,
        replace=True, table=prepared.table,
    )  # fmt: skip
    assert {0} == set((found.used % M).astype(int))
    assert 3 <= len(np.unique(found.used)) <= 6


def _asked(settings, sample, known, swept, population, normal, uniform2, table):
    facts, reply = np.zeros(N_FACTS), np.zeros(N_REPLY)
    kept, memory = np.zeros(N_TERMS), np.zeros(N_MEMORY)
    facts[KNOWN], facts[POPULATION] = known, population
    if sample.size:
        add_terms(sample, sample.size, 1.0, facts, kept)
    if swept is not None:
        facts[SWEPT], facts[SWEPT_MEAN] = 1.0, swept
    draws = np.array([0.5, normal, uniform2])
    verdict = decide(settings, facts, kept, draws, memory, np.zeros(N_CARRIED), reply, table)
    return verdict, reply


def test_every_sample_of_a_tiny_population_is_decided_as_the_paper_says() -> None:
    values, known, m, population = np.array([-1.9, 0.2, 2.3]), -0.4, 3, 7
    made = correction(1.0)
    settings = prepare(population, m=m).settings
    settings[0] = m  # no least number of terms
    grid = (np.arange(30) + 0.5) / 30
    normals = ndtri(grid)
    corrections = np.interp(grid, made.table[1], made.table[0])

    def follows(sample: np.ndarray) -> float | None:
        variance = sample.var(ddof=1) / sample.size
        if variance >= 1.0:
            return None
        mean = known + sample.mean()
        return float(ndtr((mean + corrections) / np.sqrt(1.0 - variance)).mean())

    chances, grown, swept = [], 0, 0
    for first in product(values, repeat=m):
        sample = np.array(first)
        expected = follows(sample)
        if expected is None:
            verdict, reply = _asked(settings, sample, known, None, population, 0.0, 0.5, made.table)
            assert (MORE, m) == (verdict, reply[WANTED])
            sample = np.append(sample, values)
            grown += 1
            expected = follows(sample)
        if expected is None:
            verdict, _ = _asked(settings, sample, known, None, population, 0.0, 0.5, made.table)
            assert SWEEP == verdict
            verdict, reply = _asked(settings, sample, known, 0.9, population, 0.0, 0.5, made.table)
            # The uniform number is 1/2, and Delta is 0.5: above its logit.
            assert (ACCEPT, 1.0, 0.0) == (verdict, reply[FORCED], reply[ERROR])
            swept += 1
            continue
        accepted = 0
        for normal in normals:
            for u in grid:
                verdict, reply = _asked(
                    settings, sample, known, None, population, normal, u, made.table
                )
                accepted += verdict == ACCEPT
        assert sample.size == reply[USED]
        np.testing.assert_allclose(reply[VARIANCE], sample.var(ddof=1) / sample.size, rtol=1e-12)
        chances.append((accepted / grid.size**2, expected))
    found, expected_ = np.array(chances).T
    np.testing.assert_allclose(found, expected_, atol=0.02)
    assert abs(found.mean() - expected_.mean()) < 2e-3
    assert grown > 3
    assert len(chances) > 10
    assert grown >= swept


@pytest.mark.parametrize("tail", [8.0, 16.0])
def test_the_normal_number_is_given_the_skewness_that_the_noise_lacks(tail: float) -> None:
    sample = np.concatenate([np.linspace(-0.3, 0.3, 19), [tail]])
    n, deviations = sample.size, sample - sample.mean()
    prepared = prepare(10_000, m=n, skew_corrected=True, delta=None)

    def accepts(known: float, normal: float) -> bool:
        words = (prepared.settings, sample, known, None, 10_000, normal, 0.5, prepared.table)
        return _asked(*words)[0] == ACCEPT

    def noise(normal: float) -> float:
        """What a decision adds to what is known: it is negative where the verdict changes."""
        low, high = -10.0, 10.0
        while high - low > 1e-12:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if accepts(middle, normal) else (middle, high)
        return -high

    room = made_variance() - deviations @ deviations / (n - 1) / n
    skew = np.clip(2.0 * (deviations**3).sum() / n / n**2 / room**1.5, -1.0, 1.0)
    assert (0.03 < skew < 0.1) if tail == 8.0 else 0.4 < skew < 1.0
    z = np.array([-1.5, 0.0, 2.0])
    # Cornish and Fisher, scaled to a variance of 1.
    expected = (z + skew / 6.0 * (z**2 - 1.0)) / np.sqrt(1.0 + skew**2 / 18.0)
    found = np.array([noise(normal) for normal in z])
    np.testing.assert_allclose(np.diff(found), np.sqrt(room) * np.diff(expected), rtol=1e-9)


def made_variance() -> float:
    """Variance of noise and normal number together where skewness is corrected."""
    return float(correction(1.4).sigma ** 2)


def test_the_error_of_a_skewed_decision_has_the_term_of_second_order() -> None:
    sample = 4.0 * np.linspace(0.0, 1.0, 30) ** 3
    n = sample.size
    settings, table = (
        (prepared := prepare(10_000, m=n, skew_corrected=True)).settings,
        prepared.table,
    )
    settings[-1] = 0.0  # the error of the table
    reply = _asked(settings, sample, 0.0, None, 10_000, 0.0, 0.5, table)[1]
    facts, kept = np.zeros(N_FACTS), np.zeros(N_TERMS)
    add_terms(sample, n, 1.0, facts, kept)
    error = clt.second_order(facts, kept, clt.variance_of_mean(facts))
    assert 0.0 < error == pytest.approx(reply[ERROR], rel=1e-12)
