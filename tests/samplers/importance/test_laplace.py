"""``laplace``: exact against closed form and quadrature, honest errors, refusals, resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from command_line import streammc as command
from scipy import stats

import streammc
from streammc import models
from streammc.errors import ConfigError, RefusedError
from streammc.priors import half_student_t, normal, student_t
from streammc.runs.job import run_job
from streammc.samplers import hmc, laplace
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.importance import weighing
from streammc.samplers.importance.weighing import _require_light_tail, systematic
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

COVARIANCE = np.array([[1.0, 0.6], [0.6, 1.0]])
COUNTS = np.array([0.0, 1.0, 0.0, 2.0])
Z = 4.5


def sampled(data, model, path, **options):
    settings = {"sampler": laplace(), "draws": 5000, "warmup": 0, "chains": 4, "seed": 3}
    report = run_job(RunRequest(data, model, path=path, **{**settings, **options}))
    return RunDirectory.open(report.path), report.summary


def normal_data():
    X = np.random.default_rng(0).normal(size=(400, 2)) @ np.linalg.cholesky(COVARIANCE).T
    model = models.gaussian_mean(covariance=COVARIANCE, prior=normal(scale=0.1))
    precision = 400 * np.linalg.inv(COVARIANCE) + np.eye(2) / 0.1**2
    mean = np.linalg.solve(precision, 400 * np.linalg.inv(COVARIANCE) @ X.mean(axis=0))
    return from_arrays(X), model, mean, np.linalg.inv(precision)


def errors(theta, function, exact):
    """z of the mean of ``function`` of draws (chain, draw), by the error that ArviZ reports."""
    from arviz_stats.base import array_stats

    values = function(theta)
    return (values.mean() - exact) / float(array_stats.mcse(values, method="mean"))


def moments_z(theta, mean, covariance):
    found = [errors(theta[..., j], lambda x: x, mean[j]) for j in range(2)]
    for j in range(2):
        found.append(errors(theta[..., j], lambda x, m=mean[j]: (x - m) ** 2, covariance[j, j]))
    product = (theta[..., 0] - mean[0]) * (theta[..., 1] - mean[1])
    found.append(errors(product, lambda x: x, covariance[0, 1]))
    return np.abs(found).max()


def test_a_normal_posterior_has_equal_weights(tmp_path):
    data, model, mean, covariance = normal_data()
    run, summary = sampled(data, model, tmp_path / "run")
    assert moments_z(run.draws_matrix(), mean, covariance) < Z
    sampling = summary["sampling"]
    assert sampling["weights_ess"] == pytest.approx(20_000, rel=1e-6)
    assert sampling["largest_weight"] == pytest.approx(1.0, abs=1e-3)
    assert sampling["proposals"] == 20_000
    assert not summary["warnings"]


def test_an_approximation_of_another_width_gets_the_weights_that_mend_it(tmp_path):
    data, model, mean, covariance = normal_data()
    cv = streammc.control_variates(data, model)
    wide = replace(cv, factor=1.4 * cv.factor)
    run, summary = sampled(data, model, tmp_path / "run", control_variates=wide)
    assert summary["sampling"]["weights_ess"] < 18_000
    assert moments_z(run.draws_matrix(), mean, covariance) < Z
    unweighted = run.constant_data("proposals").reshape(4, 5000, 2)
    assert moments_z(unweighted, mean, covariance) > 5 * Z
    lp = run.read_group("sample_stats")["lp"]
    expected = stats.multivariate_normal(mean, covariance).logpdf(run.draws_matrix())
    assert np.ptp(lp - expected) < 1e-3


def counted():
    return from_arrays(np.ones((4, 1)), COUNTS), models.poisson(prior=normal(scale=2.0))


def by_quadrature(power):
    """Moment of the log rate of four counts under Normal(0, 2)."""
    grid = np.linspace(-8.0, 4.0, 20_001)
    log = COUNTS.sum() * grid - len(COUNTS) * np.exp(grid) - grid**2 / 8.0
    mass = np.exp(log - log.max())
    return float((mass * grid**power).sum() / mass.sum())


def test_a_skewed_posterior_is_that_of_quadrature(tmp_path):
    run, summary = sampled(*counted(), tmp_path / "run", draws=20_000)
    assert summary["sampling"]["pareto_k"] < 0.7
    theta = run.draws_matrix()[..., 0]
    unweighted = run.constant_data("proposals").reshape(theta.shape)
    wrong = []
    for power in (1, 2, 3):
        exact = by_quadrature(power)
        assert abs(errors(theta, lambda x, p=power: x**p, exact)) < Z, power
        wrong.append(abs(errors(unweighted, lambda x, p=power: x**p, exact)))
    assert max(wrong) > 3 * Z


@pytest.mark.parametrize(("proposals", "draws"), [(500, 500), (2000, 500), (500, 2000)])
def test_the_error_of_arviz_is_that_of_the_copies(proposals, draws):
    """Draws of N(0, 1) weighted to N(0.8, 1): the mean misses 0.8 by its reported error."""
    from arviz_stats.base import array_stats

    rng = np.random.default_rng(5)
    found, shuffled = [], []
    for _ in range(300):
        x = rng.standard_normal(4 * proposals)
        copies = systematic(np.exp(0.8 * x), 4 * draws, rng.random())
        kept = np.repeat(x, copies).reshape(4, draws)
        missed = kept.mean() - 0.8
        found.append(missed / array_stats.mcse(kept, method="mean"))
        mixed = rng.permuted(kept, axis=1)
        shuffled.append(missed / array_stats.mcse(mixed, method="mean"))
    assert 0.7 < np.mean(np.square(found)) < 1.3  # its own error is 0.08
    if proposals <= draws:
        assert np.mean(np.square(shuffled)) > 2.0


def test_copies_are_in_proportion_and_none_without_weight():
    weight = np.array([0.0, 3.0, 1.0, 0.0, 0.5, 0.0])
    for start in (0.0, 0.3, 0.999):
        copies = systematic(weight, 9, start)
        assert list(copies) == [0, 6, 2, 0, 1, 0]
    assert systematic(np.ones(7), 7, 0.5).tolist() == [1] * 7


def test_a_heavy_tail_is_refused_with_the_remedy(tmp_path):
    x = np.linspace(-2.0, 2.0, 12)
    data = from_arrays(x[:, None], (x > 0).astype(float))
    model = models.logistic(prior=student_t(df=1.0, scale=5.0))
    with pytest.raises(RefusedError, match=r"more beyond in the tail of .*use hmc-ecs, or hmc"):
        sampled(data, model, tmp_path / "run")
    assert not RunDirectory.exists(tmp_path / "run")


FEW = {"*": normal(scale=5.0), "sigma": half_student_t(3.0, 2.5)}


def few_rows(n, seed):
    """A table of n rows with an intercept, and the exact posterior sds of it and log sigma."""
    y = np.random.default_rng(seed).normal(1.0, 1.0, n)
    log_sigma = np.linspace(-6.0, 12.0, 20_001)
    precision = n * np.exp(-2 * log_sigma) + 1 / 25
    mean = n * y.mean() * np.exp(-2 * log_sigma) / precision
    square = ((y**2).sum() * np.exp(-2 * log_sigma)) - mean**2 * precision
    log = -n * log_sigma - 0.5 * (square + np.log(precision)) + log_sigma
    log += stats.t(3, scale=2.5).logpdf(np.exp(log_sigma))
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    middle, at = weight @ mean, weight @ log_sigma
    sds = weight @ (1 / precision + (mean - middle) ** 2), weight @ (log_sigma - at) ** 2
    return from_arrays(np.ones((n, 1)), y), np.sqrt(sds)


def sd_ratios(path):
    """Return the sds of runs over the exact ones (5, 2), and which runs have no warning (5,)."""
    found, silent = [], []
    for seed, n in enumerate((6, 6, 8, 8, 10), start=1):
        data, exact = few_rows(n, seed)
        run, summary = sampled(data, models.gaussian(FEW), path / str(seed), draws=1000, seed=seed)
        silent.append(not summary["warnings"])
        theta = run.draws_matrix()
        draws = np.stack([theta[..., 0], np.log(theta[..., 1])])
        found.append(draws.std(axis=(1, 2)) / exact)
    return np.array(found), np.array(silent)


def test_a_few_rows_have_the_sds_of_their_posterior(tmp_path):
    """Normal proposals did not reach the tails, and the weights of what was drawn looked well."""
    ratios, silent = sd_ratios(tmp_path)
    assert silent.all()
    assert np.abs(ratios - 1).max() < 0.05
    assert "a Student t" in RunDirectory.open(tmp_path / "1").attributes["sampler_reason"]


def test_normal_proposals_for_a_few_rows_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(weighing, "needs_heavy_proposals", lambda *_: False)
    ratios, silent = sd_ratios(tmp_path)
    assert ratios.mean() < 0.92
    assert ratios.min() < 0.87
    assert ratios[silent].min() < 0.9


def test_density_of_heavy_proposals_is_that_of_their_draws():
    rng = np.random.default_rng(2)
    z, log_density = weighing.proposals(rng, 200_000, 2, True)
    at = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0])
    inside = np.histogram(np.linalg.norm(z, axis=1), at)[0] / len(z)
    # By importance sampling from a wide normal: the mass of every ring.
    x = 6.0 * rng.standard_normal((400_000, 2))
    length = np.linalg.norm(x, axis=1)
    order = np.argsort(np.linalg.norm(z, axis=1))
    log_at = np.interp(length, np.linalg.norm(z, axis=1)[order], log_density[order])
    mass = np.exp(log_at + 0.5 * (length / 6.0) ** 2)
    rings = np.histogram(length, at, weights=mass)[0]
    assert rings / rings.sum() == pytest.approx(inside / inside.sum(), abs=0.01)


def test_a_normal_posterior_keeps_normal_proposals(tmp_path):
    data, model, _, _ = normal_data()
    run, _ = sampled(data, model, tmp_path / "run", draws=100)
    assert "Student" not in run.attributes["sampler_reason"]


@pytest.mark.parametrize("log_weight", [[0.0, np.nan], [-np.inf, -np.inf]])
def test_a_density_that_is_none_is_refused(log_weight):
    with pytest.raises(RefusedError, match="expected a posterior density at draws"):
        _require_light_tail(np.array(log_weight))


def test_a_second_mode_is_refused(tmp_path):
    data, model, *_ = normal_data()
    cv = streammc.control_variates(data, model)
    other = replace(cv.certificate, modes=((1.0, 1.0),))
    with pytest.raises(RefusedError, match="expected one mode for laplace, found others"):
        sampled(data, model, tmp_path / "run", control_variates=replace(cv, certificate=other))


@pytest.fixture(scope="module")
def logistic_data():
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(2000), rng.normal(size=(2000, 2))]
    y = (rng.random(2000) < 1 / (1 + np.exp(-X @ [-1.0, 0.5, 0.2]))).astype(float)
    return from_arrays(X, y), models.logistic(prior=normal(scale=2.5))


def test_weights_worth_few_draws_are_warned_of(logistic_data, tmp_path):
    _, summary = sampled(*logistic_data, tmp_path / "run", sampler=laplace(proposals=100))
    assert summary["sampling"]["distinct_draws"] <= 100
    assert max(row["ess_bulk"] for row in summary["parameters"].values()) < 250
    assert any("worth 99" in line and "proposals" in line for line in summary["warnings"])


def test_stopped_and_resumed_under_other_resources_it_has_the_same_bits(logistic_data, tmp_path):
    options = {"draws": 400, "warmup": 100}
    whole, summary = sampled(*logistic_data, tmp_path / "whole", **options)
    left = [1]

    def stop():
        left[0] -= 1
        return left[0] < 0

    path, seen = tmp_path / "run", set()
    for number in range(40):
        left[0] = 80
        resources = {"threads": 1 + number % 2, "batch_iterations": 7, "scheduler": "sync"}
        data, model = logistic_data
        request = RunRequest(data, model, laplace(), path=path, seed=3, chains=4, **options)
        report = run_job(replace(request, interrupted=stop, **resources))
        if report.finished:
            break
        if RunDirectory.exists(path):
            seen.add(RunDirectory.open(path).committed_draws)
    assert len(seen) > 3
    assert report.finished
    assert whole.digest() == RunDirectory.open(path).digest()
    assert summary["sampling"]["weights_ess"] == report.summary["sampling"]["weights_ess"]


def test_more_draws_are_refused_and_leave_the_run_as_it_was(logistic_data, tmp_path):
    path = tmp_path / "run"
    run, summary = sampled(*logistic_data, path, draws=60)
    with pytest.raises(RefusedError, match=r"at most 60 draws.*--overwrite"):
        sampled(*logistic_data, path, draws=61)
    again, kept = sampled(*logistic_data, path, draws=50)
    assert (60, run.digest(), summary) == (again.draws, again.digest(), kept)


def test_warmup_does_not_change_the_draws(logistic_data, tmp_path):
    found = [
        sampled(*logistic_data, tmp_path / str(warmup), draws=80, warmup=warmup)[0]
        for warmup in (0, 130)
    ]
    np.testing.assert_array_equal(found[0].draws_matrix(), found[1].draws_matrix())
    assert found[1].read_group("warmup_sample_stats")["n_rows"].max() == 0


def test_it_agrees_with_hmc(logistic_data, tmp_path):
    _, weighed = sampled(*logistic_data, tmp_path / "laplace", draws=2000)
    _, exact = sampled(*logistic_data, tmp_path / "hmc", sampler=hmc(), draws=2000, warmup=300)
    for label, row in exact["parameters"].items():
        other = weighed["parameters"][label]
        error = np.hypot(row["mcse_mean"], other["mcse_mean"])
        assert abs(row["mean"] - other["mean"]) < Z * error
        assert other["sd"] / row["sd"] == pytest.approx(1.0, abs=0.05)


def test_too_few_proposals_are_refused():
    with pytest.raises(ConfigError, match="proposals must be at least 100, found 99"):
        laplace(proposals=99)


def test_the_command_line_samples_forecasts_and_refuses(tmp_path):
    store, run = tmp_path / "store", tmp_path / "run"
    done = command("simulate", "logistic", store, "--rows", "2000", "--dim", "3", "--seed", "1")
    assert done.code == 0
    words = ("sample", store, "-o", run, "--model", "logistic", "--sampler", "laplace")
    dry = command(*words, "--dry-run", "--json")
    assert (0, "laplace") == (dry.code, dry.json["sampler"])
    assert not run.exists()
    done = command(*words, "--draws", "200", "--seed", "1", "--verbose")
    assert done.code == 0
    assert "exact, by weights: the posterior, by exact importance weights" in done.out
    assert "pareto k" in done.out
    done = command(*words, "--draws", "300")
    assert done.code == 65
    assert "--overwrite" in done.err
    done = command("audit", run)
    assert "weighs its draws by the exact posterior" in done.out + done.err
