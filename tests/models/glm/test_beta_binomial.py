"""Beta-binomial regression: its density with 50 digits, its posterior by scipy, its stores.

Responses that the link sees are ``2^26 trials + successes``; a store made with ``trials`` has
shares and the trials as weights, as ``binomial`` sees them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from families import PER_TRIAL, beta_binomial_log_lik
from scipy import optimize, special, stats

import streammc
from streammc import models, samplers
from streammc.control_variates import compute, update
from streammc.control_variates.bound import bind
from streammc.errors import ConfigError, IdentityError, ModelError
from streammc.likelihood.data_views import gather
from streammc.models.check import evaluate
from streammc.models.responses import MOST_TRIALS, counts_of_trials, shares_of_trials
from streammc.priors import flat, normal
from streammc.protocols import Dataset, Vector

BETA, PHI = (0.3, 0.5), 6.0
Table = dict[str, Any]


def table(rows: int, phi: float = PHI, seed: int = 1) -> Table:
    """Return a table of successes ``k`` out of ``n`` trials, some of none."""
    rng = np.random.default_rng(seed)
    x, n = rng.normal(size=rows), rng.integers(0, 30, rows)
    mu = special.expit(BETA[0] + BETA[1] * x)
    return {"x": x, "k": rng.binomial(n, rng.beta(mu * phi, (1 - mu) * phi)), "n": n}


def data(of: Table, **options: Any) -> Dataset:
    return streammc.from_table(of, formula="k ~ x", trials="n", **options)


def log_choose(of: Table) -> float:
    n, k = of["n"], of["k"]
    return float(
        (special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)).sum()
    )


def scipy_log_lik(of: Table, theta: Vector) -> float:
    """Return the log-likelihood by scipy, with the number of orders of the trials."""
    mu, phi = special.expit(theta[0] + theta[1] * of["x"]), math.exp(theta[2])
    some = of["n"] > 0
    each = stats.betabinom.logpmf(of["k"], of["n"], mu * phi, (1.0 - mu) * phi)
    return float(each[some].sum())


@pytest.mark.parametrize("log_phi", [-30.0, -2.0, 0.0, 3.0, 10.0, math.log(1e8), 25.0])
def test_link_has_the_digits_of_50(log_phi: float) -> None:
    model, worst = models.beta_binomial(), np.zeros(6)
    cases = [(1, 1), (7, 0), (7, 3), (60, 58), (1000, 1), (10**6, 3 * 10**5), (MOST_TRIALS, 5e7)]
    for eta in (-6.0, -0.4, 0.0, 2.5):
        for n, k in cases:
            y = PER_TRIAL * n + k
            found = evaluate(model, np.array([[eta], [log_phi]]), np.array([y]))[:, 0]
            with mpmath.workdps(60):
                orders = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
                exact = [
                    beta_binomial_log_lik(mpmath.mpf(y), mpmath.mpf(eta), mpmath.mpf(log_phi))
                    if order == (0, 0)
                    else mpmath.diff(
                        lambda a, b, y=y: beta_binomial_log_lik(mpmath.mpf(y), a, b),
                        (mpmath.mpf(eta), mpmath.mpf(log_phi)),
                        order,
                    )
                    for order in orders
                ]
            # The largest term of the sum, beside which others cancel.
            size = n * (1.0 + abs(eta) + abs(log_phi) + math.log(n))
            error = np.array([float(abs(a - b)) / size for a, b in zip(found, exact, strict=True)])
            worst = np.maximum(worst, error)
    assert (worst < 4e-15).all(), worst


def test_large_phi_is_binomial_and_small_phi_is_all_or_none() -> None:
    n, k, eta = 40.0, 13.0, 0.4
    y = np.array([PER_TRIAL * n + k])
    at = np.array([[eta], [math.log(1e8)]])
    binomial = k * eta - n * math.log1p(math.exp(eta))
    found = evaluate(models.beta_binomial(), at, y)[:, 0]
    assert abs(found[0] - binomial) < n * n / 1e8
    assert abs(found[1] - (k - n * special.expit(eta))) < n * n / 1e8
    assert abs(found[2]) < n * n / 1e8
    all_of_it = evaluate(models.beta_binomial(), np.array([[eta], [-200.0]]), y + n - k)[0, 0]
    assert abs(all_of_it - special.log_expit(eta)) < 1e-12


@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_probabilities_are_those_of_scipy_and_sum_to_one(n: int) -> None:
    k, eta, phi = np.arange(n + 1.0), 0.7, 2.3
    at = np.array([[eta], [math.log(phi)]]) + np.zeros(n + 1)
    orders = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    found = evaluate(models.beta_binomial(), at, PER_TRIAL * n + k)[0] + orders
    mu = special.expit(eta)
    np.testing.assert_allclose(
        found, stats.betabinom.logpmf(k, n, mu * phi, (1 - mu) * phi), atol=1e-12
    )
    assert abs(np.exp(found).sum() - 1.0) < 1e-12


def test_counts_of_trials_are_exact_and_come_back() -> None:
    n = np.concatenate([np.arange(2000.0), [1e7 + 1.0, MOST_TRIALS]])
    for share in (0.0, 1 / 3, 0.999, 1.0):
        k = np.rint(share * n)
        y = k / np.maximum(n, 1.0)
        counts, weight = counts_of_trials(y, n)
        assert (counts == PER_TRIAL * n + k).all()
        assert (weight == (n > 0)).all()
        shares, trials = shares_of_trials(counts)
        assert (shares == y).all()
        assert (trials == n).all()


def test_simulated_shares_have_the_distribution() -> None:
    rng, m, n = np.random.default_rng(3), 40_000, 12
    eta = np.array([[0.6], [math.log(3.0)]]) + np.zeros(m)
    y = models.beta_binomial().simulate_trials(eta, np.full(m, float(n)), rng)
    mu = special.expit(0.6)
    counts = np.bincount(np.rint(y * n).astype(int), minlength=n + 1)

    def p_value(phi: float) -> float:
        expected = m * stats.betabinom.pmf(np.arange(n + 1), n, mu * phi, (1 - mu) * phi)
        return float(stats.chisquare(counts, expected * m / expected.sum()).pvalue)

    assert p_value(3.0) > 1e-3
    assert p_value(3.3) < 1e-6
    counted = models.beta_binomial().simulate(eta, rng)
    assert models.beta_binomial().response_fault(counted) is None


@pytest.mark.parametrize("sampler", [samplers.hmc(), samplers.hmc_ecs()], ids=lambda s: s.name)
def test_posterior_is_at_the_maximum_of_the_likelihood_by_scipy(sampler: Any) -> None:
    of = table(3000)
    start = np.array([*BETA, math.log(PHI)])
    best = optimize.minimize(lambda at: -scipy_log_lik(of, at), start, method="Nelder-Mead",
                             options={"xatol": 1e-6, "fatol": 1e-6}).x  # fmt: skip
    cv = compute(data(of), models.beta_binomial())
    error = np.sqrt(np.diag(np.linalg.inv(-cv.hessian)))
    run = streammc.sample(data(of), models.beta_binomial(), sampler=sampler, seed=1)["posterior"]
    draws = np.vstack(
        [run["beta"].to_numpy().reshape(-1, 2).T, np.log(run["phi"]).to_numpy().ravel()]
    )
    assert np.abs((draws.mean(axis=1) - best) / error).max() < 0.2
    assert np.abs(draws.std(axis=1) / error - 1.0).max() < 0.1
    binomial = streammc.sample(data(of), models.binomial(), seed=1)["posterior"]["beta"]
    assert (binomial.std(("chain", "draw")).to_numpy() / error[:2]).max() < 0.7  # too narrow


def test_view_has_counts_and_weights_of_one() -> None:
    of = table(500)
    bound = bind(data(of), models.beta_binomial(), temperature=4.0)
    rows = gather(bound.dataset, np.arange(500))
    expected = np.where(of["n"] > 0, PER_TRIAL * of["n"] + of["k"], 0.0)
    assert (np.sort(rows.y) == np.sort(expected)).all()
    assert (rows.weight == 0.25 * (rows.y > 0.0)).all()
    again = bind(bound.dataset, bound.model)
    assert again.dataset is bound.dataset
    assert gather(data(of), np.arange(500)).y.max() == 1.0


def test_priors_of_the_coefficients_are_around_the_log_odds_of_all_successes() -> None:
    of = table(500)
    made = bind(data(of), models.beta_binomial()).prior_table
    same = bind(data(of), models.binomial()).prior_table
    np.testing.assert_allclose(made[:2, :2], same[:, :2], rtol=1e-12)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, Path, Path, Path]:
    """Runs of both families on one store, with their table."""
    folder, of = tmp_path_factory.mktemp("trials"), table(600)
    streammc.ingest(of, folder / "t.zarr", formula="k ~ x", trials="n")
    store = streammc.open_store(folder / "t.zarr")
    for name in ("binomial", "beta-binomial"):
        made = streammc.registry.model(name)()
        streammc.sample(store, made, seed=1, path=folder / name)
    return of, folder / "t.zarr", folder / "binomial", folder / "beta-binomial"


def test_one_store_serves_both_families_and_compare_ranks_them(
    two_runs: tuple[Table, Path, Path, Path],
) -> None:
    of, store, binomial, beta_binomial = two_runs
    found = streammc.compare([binomial, beta_binomial], loo=True)
    first, second = found["runs"]
    assert first["model"] == "beta-binomial"
    assert second["difference"]["estimate"] < -4.5 * second["difference"]["se"]
    theta = compute(streammc.open_store(store), models.beta_binomial()).theta_star
    away = first["lpd"]["estimate"] + log_choose(of) - scipy_log_lik(of, theta)
    assert abs(away) < 2.0  # p / 2 of the largest likelihood
    mu = special.expit(BETA[0] + BETA[1] * of["x"])
    truth = stats.binom.logpmf(of["k"], of["n"], mu).sum()
    assert abs(second["lpd"]["estimate"] + log_choose(of) - truth) < 15.0
    assert abs(second["lpd"]["estimate"] - truth) > 100.0


def test_predictions_and_replicates_are_shares(two_runs: tuple[Table, Path, Path, Path]) -> None:
    of, store, binomial, beta_binomial = two_runs
    data_set = streammc.open_store(store)
    tree = streammc.posterior_predictive(beta_binomial, data_set, rows=600, draws=100)
    observed = tree["observed_data"]["k"].to_numpy()
    responses = tree["posterior_predictive"]["k"].to_numpy().reshape(100, -1)
    counts = of["n"][of["n"] > 0]
    assert 0.0 <= responses.min() < responses.max() <= 1.0
    assert len(observed) == len(counts)
    n = of["n"][of["n"] > 0]
    mu = special.expit(BETA[0] + BETA[1] * of["x"])[of["n"] > 0]
    expected = (mu * (1.0 - mu) / n * (1.0 + (n - 1.0) / (1.0 + PHI))).mean()
    spread = responses.var(axis=0).mean()
    narrow = streammc.posterior_predictive(binomial, data_set, rows=600, draws=100)
    of_binomial = narrow["posterior_predictive"]["k"].to_numpy().reshape(100, -1).var(axis=0).mean()
    assert abs(spread / expected - 1.0) < 0.1 < abs(of_binomial / expected - 1.0)
    draws = tree["posterior"]
    theta = np.array([*draws["beta"][0, 0].to_numpy(), math.log(draws["phi"][0, 0])])
    own = tree["log_likelihood"]["k"][0, 0].to_numpy().sum()
    assert abs(own + log_choose(of) - scipy_log_lik(of, theta)) < 1e-6 * abs(own)
    scores = {path: streammc.predict(path, data_set).attrs for path in (binomial, beta_binomial)}
    assert scores[beta_binomial]["weight"] == of["n"].sum()
    assert scores[beta_binomial]["log_score"] > scores[binomial]["log_score"] + 0.01


def test_appended_rows_are_counted_too(tmp_path: Path) -> None:
    of, more = table(4000), table(400, seed=2)
    model = models.beta_binomial({"beta[x]": normal(1.0), "beta[Intercept]": normal(1.0)})
    streammc.ingest(of, tmp_path / "t.zarr", formula="k ~ x", trials="n", standardize=False)
    before = compute(streammc.open_store(tmp_path / "t.zarr"), model)
    streammc.append(more, tmp_path / "t.zarr")
    store = streammc.open_store(tmp_path / "t.zarr")
    updated = update(before, store, model)
    whole = compute(store, model)
    at = np.abs(updated.theta_star - whole.theta_star) / np.sqrt(
        np.diag(np.linalg.inv(-whole.hessian))
    )
    assert updated.certificate.update["kept"]
    assert at.max() < 1.0
    both = {key: np.concatenate([of[key], more[key]]) for key in of}
    exact = scipy_log_lik(both, updated.theta_star) - log_choose(both)
    assert abs(updated.log_lik - exact) < 1e-9 * abs(exact)


def test_fit_makes_no_cells_of_equal_rows() -> None:
    of = table(400)
    of["x"] = np.round(of["x"]).clip(-1, 1)
    same = streammc.fit(of, "k ~ x", "beta-binomial", trials="n", seed=1, draws=50, warmup=50)
    other = streammc.sample(data(of), models.beta_binomial(), seed=1, draws=50, warmup=50)
    assert (same["posterior"]["phi"] == other["posterior"]["phi"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"trials": None},
            r"expected successes of known trials in 'memory', found no trials.*--trials",
        ),
        (
            {"weight": "w"},
            r"expected a row for each count of successes.*found 'w'.*without --weight",
        ),
        ({"cells": "yes"}, r"found 'cells', which multiply the trials 'n'.*without --cells"),
        ({"formula": "k ~ x + (1 | g)"}, r"expected a table without groups, found those of 'g'"),
    ],
)
def test_tables_of_other_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    of = table(2000)
    of |= {"w": np.full(2000, 2), "g": np.arange(2000) % 7, "x": np.arange(2000) % 2}
    of["n"] = np.full(2000, 5)
    of["k"] = of["k"] % 6
    made = streammc.from_table(of, **{"formula": "k ~ x", "trials": "n", **options})
    for call in (compute, lambda *each: streammc.sample(*each, seed=1)):
        with pytest.raises(ModelError, match=message):
            call(made, models.beta_binomial())


def test_too_many_trials_are_refused_by_their_number() -> None:
    X, trials = np.ones((20, 1)), np.full(20, 1e9)
    rows = streammc.from_arrays(X, np.full(20, 3.0), trials=trials)
    with pytest.raises(ModelError, match=r"at most 67,108,863 trials a row .*found 1e\+09 in"):
        compute(rows, models.beta_binomial())
    compute(
        streammc.from_arrays(X, np.arange(20.0), trials=np.full(20, MOST_TRIALS)),
        models.beta_binomial(),
    )


def test_flat_priors_of_phi_and_other_families_are_refused(
    two_runs: tuple[Table, Path, Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="prior of 'phi' must be proper"):
        models.beta_binomial({"*": normal(1.0), "phi": flat()}).prior_table(["beta[x]", "phi"])
    _, store, _, beta_binomial = two_runs
    gaussian = tmp_path / "gaussian"
    streammc.sample(streammc.open_store(store), models.gaussian(), seed=1, path=gaussian)
    with pytest.raises((ModelError, IdentityError), match="leave"):
        streammc.compare([gaussian, beta_binomial], loo=True)


def test_log_constant_is_the_number_of_orders() -> None:
    of = table(300)
    rows = gather(bind(data(of), models.beta_binomial()).dataset, np.arange(300))
    found = models.beta_binomial().log_constant(rows.y, rows.weight)
    assert abs(found - log_choose(of)) < 1e-9 * abs(found)
