"""The chain of pt and spt: equal levels, one level, invariance of bits, tallies."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from ladders import Tabulated, problem
from scipy import stats
from scipy.special import betainc

from streammc.errors import OutOfMemoryError
from streammc.likelihood.contiguous_rows import log_likelihood
from streammc.priors import normal
from streammc.samplers import pt, spt
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.common.statistics import TEMPERED_STATISTICS
from streammc.samplers.common.tuning import LOG_AVERAGE
from streammc.samplers.tempering.kernel import respaced, round_end
from streammc.samplers.tempering.ladder import (
    EXPLORERS,
    LOG_LIK,
    STALE,
    allocate_replicas,
    geometric,
)
from streammc.samplers.tempering.parallel_kernel import (
    LEAST_SECONDS,
    Choice,
    ParallelKernel,
    shares,
)

LIMIT = 4.5


def regression(options, *, n=30, d=2, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
    y = X @ np.linspace(0.5, -0.5, d) + rng.normal(size=n)
    return problem(options, X, y, prior=normal(scale))


def started(given, seed=1, chain=0, **settings):
    kernel = ParallelKernel(given, seed, chain, **settings)
    kernel.initialise()
    return kernel


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_equal_levels_always_swap_and_every_replica_makes_round_trips(levels):
    """Even-odd: one level an iteration, 2 L a round trip. Sweep: from the last to the first."""
    for swaps in ("even-odd", "sweep"):
        sampler = pt(n_levels=levels, beta_min=0.5, ladder="geometric", swaps=swaps, step_size=1.0)
        kernel = started(regression(sampler))
        kernel.problem.set_beta(kernel.ladder, np.ones(levels))
        out = kernel.advance(40 * levels, False)
        assert (out["swap_accepted"] == 1.0).all()
        counts = np.bincount(out["replica"].astype(int), minlength=levels)
        np.testing.assert_array_equal(40, counts)
        tallies = kernel.tallies()
        assert 0.0 == tallies["barrier"]
        trips = 40 * levels if swaps == "sweep" or levels == 2 else 20 * levels
        assert trips - levels <= tallies["round_trips"] <= trips
        np.testing.assert_allclose(0.0, tallies["log_ratio_warmer"], atol=1e-12)


@pytest.mark.parametrize(
    ("build", "settings"),
    [(pt, {}), (spt, {}), (spt, {"subsets": "independent"}), (spt, {"resample": 2})],
)
def test_stored_log_likelihood_and_gradient_belong_to_the_level_of_a_replica(build, settings):
    """Also right after it has come there, or its rows were exchanged: gradients guide hmc."""
    given = regression(
        build(n_levels=4, beta_min=0.25, ladder="geometric", step_size=0.2, **settings), d=3
    )
    kernel = started(given)
    swapped, fresh, slope = 0.0, 0, np.zeros(3)
    for _ in range(20):
        swapped += kernel.advance(1, False)["swap_accepted"].sum()
        for m, r in enumerate(kernel._places.replica_at):
            log_lik = log_likelihood(
                given.link, given.joint, given.base, kernel.held(m), kernel.ladder.lo[m],
                kernel.ladder.hi[m], kernel.replicas.theta[r], 1, slope, kernel.trial.scratch,
            )  # fmt: skip
            np.testing.assert_allclose(log_lik, kernel.replicas.scalars[r, LOG_LIK], rtol=1e-12)
            if kernel.replicas.scalars[r, STALE] == 0.0:
                np.testing.assert_allclose(slope, kernel.replicas.slope[r], atol=1e-10)
                fresh += 1
    assert swapped > 0.0
    assert fresh > 0


@pytest.mark.parametrize("explorer", EXPLORERS)
def test_one_level_is_the_inner_kernel_bit_for_bit(explorer):
    found = []
    for build in (pt, spt):
        sampler = build(n_levels=1, explorer=explorer, step_size=0.3, inner_steps=2)
        given = regression(sampler)
        kernel = started(given)
        draws = started(given).draw(50)
        alone = allocate_replicas(1, given.dim)
        alone.z[:] = kernel.replicas.z
        found.append(kernel.advance(50, False)["theta"])
        trial = allocate_trial(given.dim, given.n_predictors)
        for t in range(50):
            for numbers in draws[t, 0]:
                given.explore(
                    given.link, given.joint, given.base, given.full, kernel.ladder, 0, alone, 0,
                    numbers, trial,
                )  # fmt: skip
            np.testing.assert_array_equal(alone.theta[0], found[-1][t])
    np.testing.assert_array_equal(*found)


CHAINS = {
    "pt": pt(n_levels=4, beta_min=0.1),
    "pt to the prior": pt(n_levels=4, beta_min=0.0, explorer="random-walk", swaps="sweep"),
    "pt, several iterations a draw": pt(n_levels=4, beta_min=0.0, iterations_per_draw=3),
    "nested": spt(n_levels=4, beta_min=0.1),
    "nested to the prior": spt(n_levels=4, beta_min=0.0, resample=1),
    "independent to the prior": spt(n_levels=4, beta_min=0.0, subsets="independent"),
    "independent": spt(n_levels=4, beta_min=0.1, subsets="independent"),
    "nested, resampled": spt(n_levels=4, beta_min=0.1, resample=2),
    "independent, resampled": spt(n_levels=4, beta_min=0.1, resample=1, subsets="independent"),
}


@pytest.mark.parametrize("name", CHAINS)
def test_batches_and_checkpoints_change_no_bit(name):
    """The ladder moves after 25 and 75 iterations; a run is resumed in warm-up and after it."""
    given = regression(CHAINS[name])
    whole = started(given)
    expected = [whole.advance(110, True), whole.advance(60, False)]
    found = []
    kernel = started(given, batch_iterations=7)
    for part, warmup in ((17, True), (40, True), (53, True), (21, False), (39, False)):
        found.append(kernel.advance(part, warmup))
        arrays, meta = kernel.get_state()
        kernel = ParallelKernel(given, 1, 0, batch_iterations=13)
        kernel.set_state(arrays, json.loads(json.dumps(meta)))
    for column in ("theta", *TEMPERED_STATISTICS):
        np.testing.assert_array_equal(
            np.concatenate([part[column] for part in expected]),
            np.concatenate([part[column] for part in found]),
            err_msg=column,
        )
    for column, values in whole.tallies().items():
        np.testing.assert_array_equal(values, kernel.tallies()[column], err_msg=column)
    moved = np.abs(whole.ladder.beta - geometric(4, given.options.beta_min))
    assert moved[1:-1].min() > 1e-6
    assert 0.0 == moved[0] == moved[-1]
    assert not np.array_equal(started(given, seed=2).advance(110, True)["theta"], found[0]["theta"])


@pytest.mark.parametrize("name", ["pt", "independent, resampled"])
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_levels_side_by_side_are_the_same_bits(name, explorer):
    given = regression(replace(CHAINS[name], explorer=explorer))
    alone, together = started(given), started(given)
    together.threads, together._choice = 3, lambda seconds: True
    for count, warmup in ((60, True), (30, False)):
        expected, found = alone.advance(count, warmup), together.advance(count, warmup)
        for column, values in expected.items():
            np.testing.assert_array_equal(values, found[column], err_msg=column)
    for column, values in alone.get_state()[0].items():
        np.testing.assert_array_equal(values, together.get_state()[0][column], err_msg=column)


@pytest.mark.parametrize(("swaps", "proposed"), [("even-odd", 5), ("sweep", 10)])
def test_every_pair_is_proposed_each_iteration_or_every_second_one(swaps, proposed):
    kernel = started(regression(pt(n_levels=3, beta_min=0.5, swaps=swaps, step_size=0.3)))
    kernel.advance(10, False)
    assert [proposed] * 2 == kernel.tallies()["swaps_proposed"].tolist()


def test_rows_of_independent_subsets_follow_the_ladder():
    kernel = started(regression(CHAINS["independent"]))
    before = kernel.ladder.hi.copy()
    kernel.advance(round_end(0), True)
    ladder = kernel.ladder
    assert (before[1:] != ladder.hi[1:]).any()
    for m, order in enumerate(kernel._order, start=1):
        rows = kernel.own.y[ladder.lo[m] : ladder.hi[m]]
        np.testing.assert_array_equal(kernel.problem.full.y[order[: len(rows)]], rows)


def test_levels_are_shared_out_by_their_rows():
    found = shares(np.array([80, 40, 30, 10, 1]), 3)
    assert [[0], [1, 4], [2, 3]] == [list(part) for part in found]
    assert [[0], [1], []] == [list(part) for part in shares(np.array([5, 5]), 3)]


def test_threads_are_tried_where_iterations_are_long_and_kept_where_they_pay():
    for after, kept in ((0.5, True), (0.95, False)):
        choice = Choice()
        assert [False, False] == [choice(0.0), choice(LEAST_SECONDS / 2)]
        assert choice(1.0)
        assert [kept, kept] == [choice(after), choice(0.1 if not kept else 2.0)]
    lonely = started(regression(pt(n_levels=2)))
    assert not lonely._threads_pay(1.0)  # other chains have the cores
    lonely.threads = 2
    assert lonely._threads_pay(1.0)


def test_adaptation_rounds_double():
    ends = [25, 75, 175, 375, 775]
    assert ends == sorted({round_end(i) for i in range(775)})
    assert [round_end(i) for i in (24, 25, 74, 75)] == [25, 75, 75, 175]


def rejection(beta, d):
    """Of powers of a standard normal density: |theta|^2 / 2 is Gamma(d / 2, beta)."""
    warm, cold = beta[1:], beta[:-1]
    return 1.0 - 2.0 * (1.0 - betainc(d / 2, d / 2, cold / (cold + warm)))


CROOKED = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.01])


@pytest.mark.parametrize("d", [1, 4])
def test_equal_rejection_of_powers_of_a_gaussian_is_geometric(d):
    beta = CROOKED.copy()
    assert np.ptp(rejection(beta, d)) > 0.5
    for _ in range(8):
        beta = respaced(beta, rejection(beta, d))
        assert (np.diff(beta) < 0.0).all()
    np.testing.assert_allclose(geometric(6, 0.01), beta, rtol=0.02)
    assert np.ptp(rejection(beta, d)) < 0.02


def test_respacing_works_for_rates_of_zero_one_and_nan():
    beta = np.array([1.0, 0.5, 0.1, 0.0])
    for rate in ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [np.nan, 0.5, 0.5], [1.0, 0.0, 0.0]):
        found = respaced(beta, np.array(rate))
        assert (np.diff(found) < 0.0).all()
        assert [1.0, 0.0] == [found[0], found[-1]]


def gaussian(d, levels, **options):
    """Powers of a standard normal density, likelihood and all."""
    fixed = {"n_levels": levels, "beta_min": 0.01, "path": "posterior", "inner_steps": 2}
    return problem(pt(**fixed, **options), np.eye(d), np.zeros(d))


def test_warmup_finds_the_geometric_ladder_of_a_gaussian():
    kernel = started(gaussian(4, 6))
    kernel.move_ladder(CROOKED)
    kernel.advance(round_end(1000), True)
    spacing = np.diff(np.log(kernel.ladder.beta))
    assert np.ptp(np.diff(np.log(CROOKED))) > 3.0
    np.testing.assert_allclose(np.log(0.01) / 5, spacing, rtol=0.25)
    # Step sizes are those of the levels where they are now.
    np.testing.assert_allclose(
        1.0, np.exp(kernel._tuning[:, LOG_AVERAGE]) * kernel.ladder.beta**0.5 / 1.3, rtol=0.3
    )


def test_rejection_rates_are_those_of_a_gaussian_and_of_no_other_dimension():
    # The standard error of a mean over 8 chains is itself known to 27 %: over 32, to 13 %.
    kernels = [started(gaussian(4, 5, ladder="geometric"), chain=c) for c in range(32)]
    rates = []
    for kernel in kernels:
        kernel.advance(200, True)
        kernel.advance(500, False)
        rates.append(1.0 - kernel.tallies()["swap_rate"])
    error = np.std(rates, axis=0, ddof=1) / np.sqrt(len(rates))
    z = (np.mean(rates, axis=0) - rejection(geometric(5, 0.01), 4)) / error
    assert np.abs(z).max() < LIMIT
    of_another = (np.mean(rates, axis=0) - rejection(geometric(5, 0.01), 5)) / error
    assert np.abs(of_another).max() > LIMIT


def log_evidence(given, scale):
    X, y = given.full.design.T, given.full.y
    covariance = np.eye(len(y)) + scale**2 * X @ X.T
    return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


def test_log_normalising_constant_of_a_conjugate_regression():
    sampler = pt(n_levels=8, beta_min=0.0, n_steps=5)
    given = regression(sampler)
    tallies = []
    for chain in range(24):
        kernel = started(given, chain=chain)
        kernel.advance(175, True)
        kernel.advance(750, False)
        tallies.append(kernel.tallies())
    found = kernel.described(tallies)
    value, error = found["log_normalising_constant"], found["log_normalising_constant_error"]
    assert error < 0.05
    assert abs(value - log_evidence(given, 2.0)) < LIMIT * error
    assert abs(value - log_evidence(given, 2.6)) > LIMIT * error  # another prior
    assert [] == found["warnings"]
    assert found["restarts"] > 100
    # From above and from below the same, but for the prior, whose likelihoods are too wide.
    both = [
        np.mean([t[f"log_ratio_{side}"] for t in tallies], axis=0) for side in ("warmer", "colder")
    ]
    np.testing.assert_allclose(both[0][:-2], both[1][:-2], atol=0.1)


def test_the_normalising_constant_has_what_the_likelihood_leaves_out_where_that_is_known():
    kernel = started(regression(pt(n_levels=3, beta_min=0.0, step_size=0.3)))
    kernel.advance(4, False)
    tally, name = kernel.tallies(), "log_normalising_constant"
    known, shifted, unknown = (
        kernel.described([{**tally, "log_constant": np.asarray(constant)}])
        for constant in (0.0, -2.5, math.nan)
    )
    assert known[name] - 2.5 == pytest.approx(shifted[name])
    assert known[name] == pytest.approx(unknown[name])
    lacks = [f"{name}_lacks" in found for found in (known, shifted, unknown)]
    assert [False, False, True] == lacks


def test_warns_of_levels_that_hardly_swap_and_of_no_round_trip():
    sampler = pt(n_levels=2, beta_min=1e-6, ladder="geometric")
    kernel = started(regression(sampler, n=2000, d=6))
    kernel.advance(60, True)
    kernel.advance(60, False)
    found = kernel.described([kernel.tallies()])
    words = ("n_levels=", "back", "no chain ever restarts")
    assert [True] * 3 == [w in found["warnings"][i] for i, w in enumerate(words)]
    assert "log_normalising_ratio" in found
    assert None is found["barrier_error"]


def test_too_short_a_run_has_unknown_rates_without_an_error():
    kernels = [started(regression(pt(n_levels=3, beta_min=0.0)), chain=c) for c in range(2)]
    for kernel in kernels:
        kernel.advance(1, False)  # one of two pairs had its turn
    found = kernels[0].described([kernel.tallies() for kernel in kernels])
    assert [None] == [rate for rate in found["levels"]["swap_rate"] if rate is None]
    assert None is found["barrier"] is found["barrier_error"]
    json.dumps(found, allow_nan=False)
    for kernel in kernels:
        kernel._forget()
    json.dumps(kernels[0].described([kernel.tallies() for kernel in kernels]), allow_nan=False)


def test_level_at_the_prior_may_visit_states_of_likelihood_zero():
    kernel = Tabulated("powers").kernel
    kernel.problem.set_beta(kernel.ladder, np.array([1.0, 0.4, 0.0]))
    kernel.initialise()
    hot = []
    for _ in range(300):
        kernel.advance(1, False)
        hot.append(kernel.log_lik(kernel._places.replica_at[2], 2))
    assert 30 < np.isneginf(hot).sum() < 290
    found = kernel.tallies()
    assert np.isfinite(found["log_ratio_warmer"]).all()
    assert (found["swap_rate"] > 0.0).all()


def test_subsets_that_do_not_fit_are_refused():
    given = regression(CHAINS["nested"])
    with pytest.raises(OutOfMemoryError, match="found 30 rows of a chain"):
        ParallelKernel(replace(given, memory=lambda: 30 * 5 * 8 - 1), 1, 0)
    ParallelKernel(replace(given, memory=lambda: 30 * 5 * 8), 1, 0)


def test_nested_and_independent_subsets_have_their_rows():
    for name, parts in (("nested", 1), ("independent", 2)):
        kernel = Tabulated(name).kernel
        assert parts == len(kernel._order)
        for m in (1, 2):
            rows = kernel.own.y[kernel.ladder.lo[m] : kernel.ladder.hi[m]].astype(int)
            assert len(set(rows)) == round(4 * kernel.ladder.beta[m])
            np.testing.assert_array_equal(
                kernel._order[0 if parts == 1 else m - 1][: len(rows)], rows
            )
