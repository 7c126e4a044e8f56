"""Ladders that end at the prior: modes get their masses, and chains that cannot restart warn."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from ladders import problem

from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.errors import ConfigError
from streammc.models import binomial, gaussian_mixture
from streammc.priors import flat, normal
from streammc.runs.job import run_job
from streammc.samplers import pt, spt, stt, tt
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.tempering.facts import FEWEST_RESTARTS, restart_warnings
from streammc.samplers.tempering.ladder import LOG_LIK
from streammc.samplers.tempering.problem import MOST_LEVELS, MOST_VISITED, WARM, settle, tempering
from streammc.stores import from_arrays

BENCH = Path(__file__).resolve().parents[3] / "bench"
LIMIT = 4.5


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import mixture_modes

    monkeypatch.setattr(mixture_modes, "IMPORTANCE_DRAWS", 2000)
    mixture_modes.truth.cache_clear()
    yield mixture_modes
    sys.modules.pop("mixture_modes", None)


def pair(prior=None):
    """Two components of 8 rows, 5 sd apart, with priors that tell them apart a little."""
    rng = np.random.default_rng(2)
    x = np.r_[rng.normal(-2.5, 1.0, 8), rng.normal(2.5, 1.0, 8)][:, None]
    data = from_arrays(x, np.zeros(len(x)), feature_names=["x"])
    named = {"mu[0, x]": normal(3.0, location=-0.3), "mu[1, x]": normal(3.0, location=0.3)}
    return data, gaussian_mixture(2, prior=prior or named)


def drawn(sampler, tmp_path, *, prior=None, draws=400, warmup=200, chains=2, seed=1):
    data, model = pair(prior)
    return run_job(RunRequest(
        data, model, sampler, path=tmp_path / "run", draws=draws, warmup=warmup, chains=chains,
        seed=seed, audit=False,
    ))  # fmt: skip


def warned(report, text):
    return any(text in line for line in report.warnings)


@pytest.mark.slow
def test_pt_at_automatic_settings_gives_six_modes_their_masses(bench):
    found = bench.run("three", pt(), seed=1, draws=500)
    right = bench.truth("three")
    # Three restarts are worth an independent draw of a mode: visits last unequally long.
    effective = found.summary["tempering"]["restarts"] / 3.0
    error = np.sqrt(right.mass * (1.0 - right.mass) / effective + right.error**2)
    assert error.max() < 0.02
    assert np.abs((found.share - right.mass) / error).max() < LIMIT
    exchanged = right.mass[::-1]  # a broken partner: the components in another order
    assert np.abs((found.share - exchanged) / error).max() > LIMIT
    value, spread = (
        found.summary["tempering"][f"log_normalising_constant{end}"] for end in ("", "_error")
    )
    assert abs(value - right.log_evidence) < LIMIT * math.hypot(spread, 0.01)


@pytest.mark.slow
def test_tt_that_is_hardly_ever_accepted_warns_that_the_masses_are_not_known(bench):
    found = bench.run("three", tt(), seed=1, draws=200)
    assert found.summary["tempering"]["transition_acceptance"] < 0.05
    assert any("came from the prior level" in line for line in found.summary["warnings"])


def test_a_ladder_above_the_prior_warns_that_chains_do_not_restart(tmp_path):
    """The settings that were automatic: all draws are in modes near the starts."""
    report = drawn(pt(n_levels=7, beta_min=0.125), tmp_path, draws=60, warmup=40)
    assert warned(report, "ends at beta 0.125, above the prior, and no chain ever restarts")
    assert "restarts" not in report.summary["tempering"]


@pytest.mark.parametrize("build", [pt, tt, spt, stt])
def test_a_flat_prior_ends_the_ladder_above_it_and_warns(build, tmp_path):
    report = drawn(build(n_levels=4), tmp_path, prior=flat(), draws=30, warmup=30)
    assert warned(report, "the prior is flat and cannot be sampled")
    assert report.summary["tempering"]["levels"]["beta"][-1] == WARM


def test_a_ladder_that_never_restarts_warns(tmp_path):
    """One step from the posterior to a prior that is 1,000 times as wide."""
    report = drawn(pt(n_levels=2), tmp_path, prior=normal(3000.0), draws=60, warmup=60)
    assert report.summary["tempering"]["restarts"] == 0
    assert warned(report, "no state came from the prior level down to level 0 in any chain")


def test_few_restarts_warn_and_many_do_not():
    tally = {"beta": np.array([1.0, 0.0]), "prior_is_proper": np.asarray(1)}
    few, enough = (
        {**tally, "restarts": np.asarray(n)} for n in (FEWEST_RESTARTS - 1, FEWEST_RESTARTS)
    )
    assert "only 19 states came from the prior level" in restart_warnings([few, enough])[0]
    assert [] == restart_warnings([enough, enough])


@pytest.mark.parametrize("build", [pt, spt, stt, tt])
def test_levels_come_from_the_barrier_of_a_pilot_and_end_at_the_prior(build):
    data, model = pair()
    cv = without_pass(bind(data, model))
    found, reason = settle(data, model, cv, build(), seed=3)
    again, _ = settle(data, model, cv, build(), seed=3)
    assert found == again
    assert 3 <= found.n_levels <= (MOST_LEVELS if build in (pt, spt) else MOST_VISITED)
    assert found.beta_min == 0.0
    assert f"{found.n_levels} levels: global barrier" in reason
    assert "the last level is the prior" in reason
    fixed, _ = settle(data, model, cv, build(n_levels=4, beta_min=0.2), seed=3)
    assert fixed == build(n_levels=4, beta_min=0.2)


def test_the_pilot_chooses_at_most_the_levels_that_were_allowed():
    data, model = pair()
    cv = without_pass(bind(data, model))
    free, _ = settle(data, model, cv, pt(), seed=3)
    assert free.n_levels > 4
    found, reason = settle(data, model, cv, pt(max_levels=4), seed=3)
    assert found.n_levels == 4
    assert f"which asks for {free.n_levels}" in reason
    with pytest.raises(ConfigError, match="max_levels must be a positive whole number"):
        pt(max_levels=0)


def test_a_resumed_run_has_the_levels_of_the_pilot(tmp_path):
    first = drawn(pt(), tmp_path, draws=40, warmup=40)
    more = drawn(pt(), tmp_path, draws=60, warmup=40)
    levels = [r.summary["tempering"]["levels"]["rows"] for r in (first, more)]
    assert levels[0] == levels[1]
    assert "global barrier" in more.summary["sampling"]["reason"]


@pytest.mark.parametrize(
    "sampler", [pt(n_levels=4), spt(n_levels=4), spt(n_levels=3, subsets="independent")]
)
def test_the_last_level_draws_from_the_prior_in_every_iteration(sampler):
    data, model = pair()
    given = tempering(data, model, without_pass(bind(data, model)), sampler)
    kernel = given.kernel(1, 0)
    kernel.initialise()
    expected = given.kernel(1, 0)
    expected.set_state(*kernel.get_state())
    fresh = expected.fresh(50)
    seen = []
    for _ in range(50):
        kernel.advance(1, False)
        seen.append(kernel.replicas.theta.copy())
    # The draw is at the last level, or at the one that it was exchanged with.
    near = [np.abs(theta - one).max(axis=1).min() for theta, one in zip(seen, fresh, strict=True)]
    assert np.median(near) < 1e-12
    if sampler.subsets_of_rows:
        last = kernel._places.replica_at[-1]
        assert kernel.ladder.hi[-1] == kernel.ladder.lo[-1]
        assert kernel.replicas.scalars[last, LOG_LIK] == 0.0


def test_chains_start_from_the_prior_and_come_to_the_rows(tmp_path):
    """Eight chains, each with a draw of its own: both modes are among the starts."""
    data, model = pair()
    given = tempering(data, model, without_pass(bind(data, model)), pt(n_levels=6))
    signs, heights = [], []
    for chain in range(8):
        kernel = given.kernel(1, chain)
        kernel.initialise()
        signs.append(np.sign(np.diff(kernel.replicas.theta[0])[0]))
        heights.append(kernel.replicas.scalars[0, LOG_LIK])
    assert {-1.0, 1.0} == set(signs)
    assert min(heights) > -80.0  # of prior draws most are below


def test_evidence_of_binomial_trials_is_that_of_bernoulli_rows_and_the_coefficients(tmp_path):
    trials, successes = np.array([5.0, 8.0, 3.0]), np.array([2.0, 6.0, 0.0])
    X = np.ones((3, 1))
    settings = {"draws": 400, "warmup": 200, "chains": 4, "seed": 1, "audit": False}
    sampler = pt(n_levels=5)
    data = from_arrays(X, successes, trials=trials)
    found = run_job(
        RunRequest(data, binomial(prior=normal(1.5)), sampler, path=tmp_path / "a", **settings)
    )
    grid = np.linspace(-12.0, 12.0, 20_001)
    from scipy.stats import binom, norm

    density = norm.pdf(grid, 0.0, 1.5)
    for n, k in zip(trials, successes, strict=True):
        density = density * binom.pmf(k, n, 1.0 / (1.0 + np.exp(-grid)))
    right = np.log(density.sum() * (grid[1] - grid[0]))
    tempering_facts = found.summary["tempering"]
    value, error = (tempering_facts[f"log_normalising_constant{e}"] for e in ("", "_error"))
    assert abs(value - right) < LIMIT * error
    assert error < 0.05
    # With weights as well nobody knows the trials: the text says what is missing.
    data = from_arrays(X, successes, trials=trials, weight=np.full(3, 2.0))
    found = run_job(
        RunRequest(data, binomial(prior=normal(1.5)), sampler, path=tmp_path / "b", **settings)
    )
    assert "log C(n, k)" in found.summary["tempering"]["log_normalising_constant_lacks"]


def test_flat_problem_built_by_hand_keeps_its_ladder_above_zero():
    given = problem(pt(n_levels=3, beta_min=0.2), np.eye(2), np.zeros(2))
    kernel = given.kernel(1, 0)
    kernel.initialise()
    assert not kernel.ends_at_prior
    assert np.isfinite(kernel.advance(5, True)["theta"]).all()
