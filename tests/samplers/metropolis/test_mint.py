"""``mint``: its marginal against quadrature and the closed form, and its summary.

With rows drawn with replacement the marginal is known without any expansion: the prior times
``(mean_i exp(s l_i(theta)))^m``, ``s = n^lambda / m``. The partner estimates again where the chain
is, and must be found out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from problems import batch_z

from streammc.control_variates import compute
from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.errors import ConfigError, IdentityError
from streammc.likelihood.data_views import tempered
from streammc.likelihood.temperature import Schedule
from streammc.models import gaussian_mean, logistic
from streammc.numerics.jit import jit
from streammc.priors import flat, normal
from streammc.runs.job import run_job
from streammc.samplers import mint
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.metropolis.acceptance import ESTIMATED, TEST_SIGNATURE
from streammc.samplers.metropolis.mint import decide, noise_checks
from streammc.samplers.metropolis.options import metropolis
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

Z = 4.5
MORE = 2


@jit(TEST_SIGNATURE)
def estimating_again(settings, facts, terms, draws, memory, carried, reply, table):
    """Forget the estimate after every decision: every other one makes it anew."""
    again = carried[ESTIMATED] == 0.0
    verdict = decide(settings, facts, terms, draws, memory, carried, reply, table)
    if verdict < MORE and not again:
        carried[ESTIMATED] = 0.0
    return verdict


def draw(data, model, sampler, n, *, test=None, warmup=2000, seed=1):
    """Return (n, d) draws of one chain without a run directory, and whether it moved."""
    hot = tempered(data, sampler.implied_temperature(data.n_rows))
    problem = metropolis(hot, model, without_pass(bind(hot, model)), None, sampler, Schedule())
    kernel = (problem if test is None else replace(problem, decide=test)).kernel(seed, 0)
    kernel.initialise()
    kernel.advance(warmup, True)
    found = kernel.advance(n, False)
    every = 1 if test is None else 2
    return found["theta"][::every], found["acceptance_rate"][::every]


def on_a_grid(log_density, lo, hi):
    """Return mean and variance by quadrature."""
    theta = np.linspace(lo, hi, 4001)
    log = log_density(theta)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = mass @ theta
    return mean, mass @ np.square(theta - mean)


def power_mean(log_lik, log_prior, scale, m, theta):
    terms = scale * log_lik(theta)
    return m * np.log(np.exp(terms).mean(axis=0)) + log_prior(theta)


def off(theta, mean, variance):
    """Return the largest |z| of mean and variance."""
    return max(abs(batch_z(theta, mean)), abs(batch_z(np.square(theta - mean), variance)))


X = np.array([-2.0, -1.5, -1.0, -0.7, -0.4, 0.3, 0.8, 1.2, 1.6, 2.5])
Y = np.array([1.0, 0, 0, 0, 1, 0, 1, 1, 0, 1])
CHOICES = from_arrays(X[:, None], Y), logistic(prior=normal(scale=1.5))


@pytest.mark.parametrize("options", [
    {}, {"proposal": "langevin"}, {"proposal": "sghmc", "n_steps": 2, "gradient_size": 3},
], ids=lambda options: options.get("proposal", "random-walk"))  # fmt: skip
def test_the_marginal_is_that_of_the_power_mean_whatever_the_noise(options):
    data, model = CHOICES
    m = 3
    sampler = mint(subsample_size=m, alpha=0.9, step_size=1.5, **options)
    scale = len(X) / m / sampler.implied_temperature(len(X))

    def log_lik(theta):
        eta = X[:, None] * theta
        return Y[:, None] * eta - np.logaddexp(0.0, eta)

    marginal = partial(power_mean, log_lik, lambda theta: -0.5 * (theta / 1.5) ** 2, scale)
    exact = on_a_grid(partial(marginal, m), -12, 12)

    hot = on_a_grid(lambda t: m * scale * log_lik(t).mean(0) - 0.5 * (t / 1.5) ** 2, -12, 12)
    theta = draw(data, model, sampler, 300_000)[0][:, 0]
    assert off(theta, *exact) < Z
    assert off(theta, *hot) > 2 * Z
    again = draw(data, model, sampler, 300_000, test=estimating_again)[0][:, 0]
    assert off(again, *exact) > 2 * Z


def means(x):
    return from_arrays(x[:, None]), gaussian_mean(prior=flat())


@pytest.mark.parametrize("finite", [False, True], ids=["with", "without"])
@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.7])
def test_the_variance_is_one_over_n_lambda_less_the_noise(alpha, finite):
    """``1 / (n^lambda - n^(2 lambda - tau) f)``, ``f = 1 - m / n`` without replacement.

    Rows at the same distance from their mean: nothing of the noise is the same everywhere, which
    would only make the chain slow, and the estimates are normal.
    """
    n, m = 500, 200
    data, model = means(np.repeat([-1.0, 1.0], n // 2))
    sampler = mint(subsample_size=m, alpha=alpha, replace=not finite, step_size=2.4 * m**-0.35)
    tau, exponent = sampler.exponents(n)
    cold, noise = n**exponent, n ** (2.0 * exponent - tau)
    theta, moved = draw(data, model, sampler, 40_000, warmup=0)
    assert 0.2 < moved.mean() < 0.7
    factors = {False: 1.0, True: n / (n - 1.0) * (1.0 - m / n)}
    assert off(theta[:, 0], 0.0, 1.0 / (cold - noise * factors[finite])) < Z
    if alpha == 0.7:
        assert off(theta[:, 0], 0.0, 1.0 / (cold - noise * factors[not finite])) > Z
        assert off(theta[:, 0], 0.0, 1.0 / cold) > Z


@pytest.mark.slow
def test_re_estimating_the_current_position_widens_the_marginal():
    x = np.random.default_rng(3).normal(size=20_000)
    data, model = means(x)
    m = 400
    sampler = mint(subsample_size=m, step_size=0.5)
    cold = len(x) ** sampler.exponents(len(x))[1]
    assert cold == pytest.approx(20.0)
    z = x - x.mean()
    marginal = partial(
        power_mean, lambda theta: -0.5 * (z[:, None] - theta) ** 2, lambda theta: 0.0, cold / m, m
    )
    grid = np.linspace(-2, 2, 401)
    log = marginal(grid)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    exact = mass @ grid, mass @ np.square(grid - mass @ grid)
    assert exact[1] * cold == pytest.approx(1.05, abs=0.005)
    theta = draw(data, model, sampler, 60_000, warmup=100)[0][:, 0] - x.mean()
    assert off(theta, *exact) < Z
    assert off(theta, 0.0, 1.0 / (cold - cold**2 / m)) < Z
    again = draw(data, model, sampler, 60_000, test=estimating_again)[0][:, 0] - x.mean()
    assert off(again, *exact) > Z
    assert again.var() * cold > 1.2


def test_mint_with_an_exact_expansion_draws_the_tempered_posterior(tmp_path):
    x = np.random.default_rng(4).normal(size=3000)
    data, model = means(x)
    sampler = mint(control_variate=2, subsample_size=100, alpha=0.95)
    options = {"draws": 10_000, "warmup": 500, "chains": 4, "seed": 1}
    report = run_job(RunRequest(data, model, sampler, path=tmp_path / "run", **options))
    run = RunDirectory.open(report.path)
    theta = run.draws_matrix()[..., 0].ravel()
    cold = 3000 ** sampler.exponents(3000)[1]
    assert off(theta, x.mean(), 1.0 / cold) < Z
    assert off(theta, x.mean(), 1.0 / (cold - cold**2 / 100)) > 3 * Z
    sampling = report.summary["sampling"]
    assert 1e-12 > sampling["log_lik_variance_mean"] >= 0.0
    facts = sampling["mint"]
    assert cold == pytest.approx(100**0.95)
    assert 3000 / cold == pytest.approx(facts["temperature"])
    assert np.all(run.read_group("sample_stats")["temperature"] == facts["temperature"])
    assert 1.0 == pytest.approx(facts["marginal"]["mu[x0]"]["variance_ratio"])
    assert report.summary["audit"] is None
    assert not report.warnings


def test_control_variates_are_those_of_its_temperature():
    data, model = CHOICES
    sampler = mint(control_variate=2, subsample_size=5)
    options = {"draws": 10, "warmup": 10, "chains": 1, "seed": 1}
    heat = 3.0 * sampler.implied_temperature(10)
    kept = compute(data, model, temperature=heat)
    done = run_job(
        RunRequest(data, model, sampler, control_variates=kept, temperature=3.0, **options)
    )
    assert heat == pytest.approx(done.summary["sampling"]["mint"]["temperature"])
    with pytest.raises(IdentityError, match="expected control variates at temperature"):
        run_job(RunRequest(data, model, sampler, control_variates=compute(data, model), **options))


def test_the_summary_says_what_the_noise_does():
    x = np.random.default_rng(5).normal(size=5000)
    data, model = means(x)
    sampler = mint(subsample_size=100, alpha=0.5, replace=False)
    report = run_job(RunRequest(data, model, sampler, draws=10_000, warmup=500, seed=2))
    facts = report.summary["sampling"]["mint"]
    assert (100, 0.5) == (facts["subsample_size"], pytest.approx(facts["alpha"]))
    assert 100 == pytest.approx(5000 ** facts["tau"])
    assert 0.98 == facts["finite_factor"]
    # var(l_i) = 1/2 at the mean; n^(2 lambda - tau) = 1
    assert 0.4 < facts["noise_variance"] < 0.6
    assert 1.05 < facts["marginal"]["mu[x0]"]["variance_ratio"] < 1.15
    assert abs(facts["marginal"]["mu[x0]"]["shift"]) < 0.1
    assert not any("variance" in line or "skewed" in line for line in report.warnings)


def test_noise_that_is_too_large_and_chains_that_stay_are_told():
    x = np.random.default_rng(6).normal(size=5000)
    data, model = means(x)
    loud = mint(subsample_size=1000, alpha=0.95, step_size=0.05)
    lines = run_job(RunRequest(data, model, loud, draws=200, warmup=200, seed=2)).warnings
    assert any(
        "above 2: the chain sticks" in line and "control_variate=2" in line for line in lines
    )
    far = mint(subsample_size=1000, alpha=0.5, step_size=1e6, start=0.0)
    lines = run_job(RunRequest(data, model, far, draws=20, warmup=1, seed=2)).warnings
    assert any(line.startswith("4 of 4 chains of mint are stuck") for line in lines)


@pytest.mark.parametrize(("third", "skewed"), [(0.08, False), (0.12, True), (None, False)])
def test_estimates_whose_skewness_moves_the_density_by_a_tenth_are_told(third, skewed):
    known = {"tau": 0.5, "lambda": 0.25, "alpha": 0.5, "temperature": 2.0, "subsample_size": 100}
    noise = {"noise_variance": 0.5, "finite_factor": 1.0, "marginal": None, "third_order": third}
    facts = {"sampler": "mint", "chains": 4, "decision_error_unknown": 0.0}
    checks = noise_checks(
        {"sampling": {**facts, "mint": {**known, **noise, "chains_that_never_moved": 0}}}
    )
    warnings = [each.warning for each in checks if each.warning]
    assert [skewed] * skewed == ["has 0.12 on average beyond v / 2" in each for each in warnings]


def test_mint_exponents_follow_tau_alpha_and_lambda():
    assert 0.25 == pytest.approx(mint(tau=0.5, alpha=0.5).exponents(10_000)[1])
    assert (100, 10) == (mint(tau=0.5).rows_of(10_000), mint().rows_of(100))
    assert 1000 == mint().rows_of(10**9)
    assert 0.4 == mint(**{"lambda": 0.4}).exponents(10_000)[1]
    assert 10_000**0.6 == pytest.approx(mint(exponent=0.4).implied_temperature(10_000))
    described = mint(exponent=0.4, tau=0.5).describe()
    assert mint(exponent=0.4, tau=0.5) == mint(
        **{k: described[k] for k in set(described) - {"name"}}
    )
    with pytest.raises(ConfigError, match=r"expected lambda < tau = 0\.5 \(100 of 10000 rows\)"):
        mint(tau=0.5, exponent=0.5).exponents(10_000)
    with pytest.raises(ConfigError, match="at most the 50 rows of the data set, found 60"):
        mint(subsample_size=60).rows_of(50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.5, "subsample_size": 100}, "tau or subsample_size, which say the same"),
        ({"alpha": 0.5, "exponent": 0.1}, "alpha or exponent, which say the same"),
        ({"lambda": 0.5, "exponent": 0.1}, "lambda or exponent, which are one option"),
        ({"alpha": 1.0}, "alpha must be below 1"),
        ({"alpha": 0.0}, "alpha must be a finite number"),
        ({"tau": 1.5}, "tau must be a finite number"),
        ({"replace": 1}, "replace must be true or false"),
        ({"subsample_size": 1}, "subsample_size must be 2 or more"),
        ({"lamda": 0.5}, "unknown option 'lamda' of mint"),
    ],
)
def test_wrong_values_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        mint(**options)
