"""At temperature T every sampler targets prior x likelihood^(1/T).

Against closed forms and grids, with two partners that must be rejected: the posterior itself,
and the one whose prior is tempered too. And bit for bit what weights divided by T give.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS
from problems import batch_z
from quick import quick

from streammc import registry
from streammc.control_variates import ControlVariates, compute
from streammc.errors import ConfigError, IdentityError, ModelError
from streammc.likelihood.data_views import tempered
from streammc.likelihood.temperature import Schedule, schedule_of
from streammc.models import gaussian, gaussian_mean, logistic
from streammc.priors import flat, normal
from streammc.runs.interactive import sample
from streammc.runs.job import run_job
from streammc.runs.record import identity
from streammc.samplers import hmc, hmc_ecs, hmc_ecs_signed, mh, sghmc, sgld
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

T = 4.0
N, SCALE = 3000, 0.05
COVARIANCE = np.array([[1.0, 0.6], [0.6, 1.0]])
SAMPLERS = {
    "hmc": hmc(),
    "hmc-ecs": hmc_ecs(),
    "hmc-ecs-signed": hmc_ecs_signed(),
    "sgld": sgld(step_size=0.3),
    "sghmc": sghmc(),
    "mh": mh(),
    "mh, no pass": mh(control_variate="none", covariance="full", start=0.2),
}
Z = 4.5
NO_PRIOR = {"*": flat(), "sigma": flat()}


@cache
def means():
    root = np.linalg.cholesky(COVARIANCE)
    X = np.random.default_rng(0).normal(size=(N, 2)) @ root.T + [0.3, -0.2]
    return from_arrays(X), gaussian_mean(covariance=COVARIANCE, prior=normal(scale=SCALE))


def closed_form(temperature, of_prior=1.0):
    """Mean and covariance, likelihood and prior at temperatures of their own."""
    X = means()[0].rows().arrays[0]
    information = N * np.linalg.inv(COVARIANCE) / temperature
    covariance = np.linalg.inv(information + np.eye(2) / SCALE**2 / of_prior)
    return covariance @ information @ X.mean(axis=0), covariance


def largest_z(theta, moments):
    """The largest z of mean and covariance of draws (chain, draw, d)."""
    mean, covariance = moments
    found = []
    for i in range(len(mean)):
        found.append(batch_z(theta[..., i].ravel(), mean[i]))
        for j in range(i + 1):
            product = (theta[..., i] - mean[i]) * (theta[..., j] - mean[j])
            found.append(batch_z(product.ravel(), covariance[i, j]))
    return np.abs(found).max()


@pytest.mark.parametrize("kind", quick(SAMPLERS, "hmc", "hmc-ecs"))
def test_every_sampler_has_the_moments_of_the_closed_form(kind, tmp_path):
    data, model = means()
    options = {"draws": 10_000, "warmup": 500, "chains": 4, "seed": 7, "temperature": T}
    report = run_job(
        RunRequest(data, model, SAMPLERS[kind], path=tmp_path / "run", audit=False, **options)
    )
    theta = RunDirectory.open(report.path).draws_matrix()
    mean, covariance = closed_form(T)
    # Steps of a size widen what sgld and sghmc sample, by what they predict.
    ratio = report.summary["sampling"]["predicted_variance_ratio"] or {}
    wide = np.sqrt([ratio.get(label, 1.0) for label in report.summary["parameters"]])
    assert largest_z(theta, (mean, covariance * np.outer(wide, wide))) < Z
    for rejected in (closed_form(1.0), closed_form(T, of_prior=T)):
        assert largest_z(theta, rejected) > 5 * Z


@cache
def choices():
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(N), rng.standard_t(4, size=N)]
    y = rng.random(N) < 1.0 / (1.0 + np.exp(-X @ [-1.5, 0.5]))
    return X, y.astype(np.float64), logistic(prior=normal(scale=0.1))


def on_a_grid(temperature, of_prior=1.0):
    """Mean and covariance of the logistic posterior by quadrature."""
    X, y, _ = choices()
    axes = [np.linspace(-1.8, 0.2, 81), np.linspace(-0.3, 1.2, 61)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    log = np.zeros(len(theta))
    for rows in np.array_split(np.arange(N), 20):
        eta = X[rows] @ theta.T
        log += (y[rows, None] * eta - np.logaddexp(0.0, eta)).sum(axis=0)
    log = log / temperature - 0.5 * np.square(theta / 0.1).sum(axis=1) / of_prior
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = mass @ theta
    return mean, (theta - mean).T @ (mass[:, None] * (theta - mean))


def test_a_subsample_has_the_moments_of_a_grid(tmp_path):
    X, y, model = choices()
    sampler = hmc_ecs(subsample_size=200)
    options = {"draws": 2500, "warmup": 300, "chains": 4, "seed": 2}
    path = tmp_path / "run"
    report = run_job(
        RunRequest(
            from_arrays(X, y), model, sampler, path=path, temperature=T, audit=True, **options
        )
    )
    theta = RunDirectory.open(report.path).draws_matrix()
    assert report.summary["sampling"]["log_lik_variance_mean"] > 1e-4
    assert report.summary["audit"]["largest_z"] < Z
    assert largest_z(theta, on_a_grid(T)) < Z
    for rejected in (on_a_grid(1.0), on_a_grid(T, of_prior=T)):
        assert largest_z(theta, rejected) > 5 * Z


@pytest.mark.parametrize(
    "kind", quick(sorted(SAMPLERS_OF_ROWS), "hmc", "hmc-ecs", "mh", "pt", "sgld")
)
def test_draws_and_audit_are_those_of_weights_divided_by_t(kind, tmp_path):
    temperature = 0.5 if kind == "hmc" else 3.0
    X, y, model = choices()
    weight = np.random.default_rng(3).integers(0, 4, N).astype(np.float64)
    found = []
    for name, heat, data in (
        ("hot", temperature, from_arrays(X, y, weight=weight)),
        ("divided", 1.0, from_arrays(X, y, weight=weight / temperature)),
        ("cold", 1.0, from_arrays(X, y, weight=weight)),
    ):
        options = {"draws": 60, "warmup": 60, "chains": 2, "seed": 1, "audit": True}
        few = {"n_levels": 3, "n_steps": 4} if kind in ("pt", "spt", "stt", "tt") else {}
        sampler = registry.sampler(kind)(**few)
        report = run_job(
            RunRequest(data, model, sampler, path=tmp_path / name, temperature=heat, **options)
        )
        run = RunDirectory.open(report.path)
        found.append((run.draws_matrix(), report.summary["audit"], run.read_group("sample_stats")))
    hot, divided, cold = found
    np.testing.assert_array_equal(divided[0], hot[0])
    assert divided[1] == hot[1]
    for name in set(divided[2]) - {"temperature"}:
        np.testing.assert_array_equal(divided[2][name], hot[2][name])
    assert not np.array_equal(cold[0], hot[0])


def test_temperature_one_changes_nothing(tmp_path):
    data, model = means()
    asked = {"warmup": 30, "chains": 2, "seed": 4}
    digests = set()
    for k, options in enumerate([{}, {"temperature": 1.0}, {"temperature": "1"}]):
        path = tmp_path / str(k)
        report = run_job(RunRequest(data, model, hmc(), draws=30, path=path, **asked, **options))
        run = RunDirectory.open(report.path)
        assert identity(RunRequest(data, model, hmc(), **asked)) == run.identity
        assert "temperature" not in run.identity
        assert 1.0 == report.summary["sampling"]["temperature"]
        digests.add(run.digest())
    assert 1 == len(digests)


def test_the_temperature_is_part_of_a_run(tmp_path):
    data, model = means()
    options = {"warmup": 30, "chains": 2, "seed": 4, "path": tmp_path / "run"}
    run_job(RunRequest(data, model, hmc(), draws=30, temperature=T, **options))
    run = RunDirectory.open(tmp_path / "run")
    assert Schedule(T) == schedule_of(run.identity)
    assert data.fingerprint == run.identity["store"]
    assert not run_job(RunRequest(data, model, hmc(), draws=30, temperature=T, **options)).changed
    assert run_job(RunRequest(data, model, hmc(), draws=60, temperature=T, **options)).changed
    for other in (1.0, 5.0):
        with pytest.raises(IdentityError, match=f"temperature is 4.0, asked for {other}"):
            run_job(RunRequest(data, model, hmc(), draws=60, temperature=other, **options))


def test_control_variates_of_another_temperature_are_refused(tmp_path):
    data, model = means()
    compute(data, model, temperature=T).save(tmp_path / "hot")
    hot, cold = ControlVariates.open(tmp_path / "hot"), compute(data, model)
    assert (T, 1.0) == (hot.temperature, cold.temperature)
    assert hot.digest() != cold.digest()
    options = {"draws": 10, "warmup": 10, "chains": 1, "seed": 1}
    assert run_job(
        RunRequest(data, model, hmc(), control_variates=hot, temperature=T, **options)
    ).finished
    for cv, heat, text in (
        (hot, 1.0, "at temperature 1, found temperature 4"),
        (hot, 2.0, "at temperature 2, found temperature 4; .*--temperature 2"),
        (cold, 2.0, "at temperature 2, found temperature 1"),
    ):
        with pytest.raises(IdentityError, match=text):
            run_job(
                RunRequest(data, model, hmc(), control_variates=cv, temperature=heat, **options)
            )
    other = tempered(from_arrays(np.ones((9, 2))), T)
    with pytest.raises(IdentityError, match="for the store"):
        hot.require(other, model)


def test_a_schedule_is_for_samplers_with_an_acceptance_test():
    data, model = means()
    for sampler, name in ((hmc_ecs(), "hmc-ecs"), (None, "auto")):
        with pytest.raises(ConfigError, match=f"constant temperature for {name}, found '9:sqrt'"):
            run_job(RunRequest(data, model, sampler, temperature="9:sqrt"))
    with pytest.raises(ConfigError, match="finite number above 0"):
        sample(data, model, temperature=-1)


def test_a_scale_without_a_proper_prior_needs_rows_by_the_temperature():
    rng = np.random.default_rng(1)
    data, model = from_arrays(np.ones((40, 1)), rng.normal(size=40)), gaussian(prior=NO_PRIOR)
    assert compute(data, model, temperature=10.0).temperature == 10.0
    with pytest.raises(ModelError, match=r"at least 60 rows .* temperature 20"):
        compute(data, model, temperature=20.0)


@pytest.mark.parametrize("temperature", ["100:60", "9:sqrt"])
def test_a_schedule_ends_at_the_posterior(temperature, tmp_path):
    data, model = means()
    sampler = mh(step_size=1.7)
    options = {"draws": 4000, "warmup": 100, "chains": 4, "seed": 3, "temperature": temperature}
    report = run_job(RunRequest(data, model, sampler, path=tmp_path / "run", **options))
    run = RunDirectory.open(report.path)
    expected = Schedule.parse(temperature).at(0, 100)
    for chain in run.read_group("warmup_sample_stats")["temperature"]:
        np.testing.assert_array_equal(expected, chain)
    assert np.all(run.read_group("sample_stats")["temperature"] == 1.0)
    assert largest_z(run.draws_matrix(), closed_form(1.0)) < Z
    assert largest_z(run.draws_matrix(), closed_form(1.5)) > 5 * Z
    assert temperature == report.summary["sampling"]["temperature"]
    assert not any("temperature" in line for line in report.warnings)


def test_draws_before_a_schedule_has_ended_are_told(tmp_path):
    data, model = means()
    options = {"draws": 50, "warmup": 20, "chains": 2, "seed": 3, "temperature": "100:60"}
    told = run_job(RunRequest(data, model, mh(), path=tmp_path / "run", **options)).warnings
    assert any("from iteration 60 on" in line and "first 40 draws" in line for line in told)
    assert not any("blocks" in line for line in told)


def test_one_definition_for_a_schedule_and_its_last_temperature():
    data, model = means()
    key = {"warmup": 1, "chains": 1, "seed": 1, "temperature": "9:50"}
    found = identity(RunRequest(data, model, mh(), **key))
    assert "9:50" == found["temperature"]
    assert Schedule.parse("9:50") == schedule_of(found)
    assert 1.0 == compute(data, model, temperature="9:50").temperature
