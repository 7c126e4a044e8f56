"""Default priors from the data to the posterior and the record of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

import streammc
from streammc import models
from streammc.control_variates import compute, resolved
from streammc.errors import IdentityError, ModelError
from streammc.likelihood.data_views import tempered
from streammc.models import user
from streammc.priors import NamedPriors, by_name, from_description, gamma, normal, scaled, text
from streammc.runs.job import run_job
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

HEIGHTS = 170.0 + 7.0 * np.random.default_rng(12).normal(size=30)


def heights(unit: float = 1.0) -> Any:
    return from_arrays(np.ones((30, 1)), unit * HEIGHTS, feature_names=["Intercept"])


def run(path: Path, model: Any = None, **options: Any) -> Any:
    settings = {"draws": 60, "warmup": 60, "chains": 2, "seed": 3, "audit": False, **options}
    return run_job(RunRequest(heights(), model or models.gaussian(), hmc(), path=path, **settings))


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_a_mean_far_from_zero_is_that_of_a_flat_prior(unit: float, tmp_path: Path) -> None:
    report = run_job(
        RunRequest(heights(unit), models.gaussian(), draws=3000, seed=1, path=tmp_path / "r")
    )
    exact = stats.t(29, HEIGHTS.mean(), HEIGHTS.std(ddof=1) / np.sqrt(30))
    found = report.summary["parameters"]["beta[Intercept]"]
    noise = 4.5 * found["mcse_mean"] / unit
    assert noise < 0.1 * exact.std()
    assert abs(found["mean"] / unit - exact.mean()) < 0.1 * exact.std() + noise
    assert found["sd"] / unit == pytest.approx(exact.std(), rel=0.15)
    # A fixed default decides.
    fixed = models.gaussian(normal(10.0 * unit))
    other = compute(heights(unit), fixed).theta_star[0] / unit
    assert abs(other - exact.mean()) > 0.3 * exact.std()


@pytest.mark.parametrize("unit", [1e6, 1e-6])
def test_mode_follows_the_units_of_response_and_columns(unit: float) -> None:
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(50), 3.0 + rng.normal(size=50)]
    y = 20.0 + X @ [1.0, 2.0] + rng.normal(size=50)
    model = models.gaussian()
    plain = compute(from_arrays(X, y), model)
    other = compute(from_arrays(X * [1.0, 1.0 / unit], unit * y), model)
    factor = np.array([unit, unit * unit])
    sd = plain.posterior_sd()
    away = np.append(other.theta_star[:2] / factor, other.theta_star[2] - np.log(unit))
    assert (np.abs(away - plain.theta_star) < 0.01 * sd).all()
    np.testing.assert_allclose(other.posterior_sd()[:2] / factor, sd[:2], rtol=1e-3)


@pytest.mark.parametrize("build", [models.poisson, models.negative_binomial])
def test_counts_of_a_million_are_not_decided_by_the_prior(build: Any) -> None:
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(40), rng.normal(size=40)]
    y = rng.poisson(1e6 * np.exp(0.3 * X[:, 1])).astype(float)
    data = from_arrays(X, y)
    ours, flat = compute(data, build()), compute(data, build({"*": normal(1e6)}))
    assert (np.abs(ours.theta_star - flat.theta_star)[:2] < 0.1 * flat.posterior_sd()[:2]).all()


def test_few_events_in_a_large_exposure_are_not_decided_by_the_prior() -> None:
    exposure = np.full(4, np.log(1e20))
    data = from_arrays(np.ones((4, 1)), np.ones(4), offset=exposure)
    flat = compute(data, models.poisson(normal(1e6)))
    away = [
        abs(compute(data, model).theta_star - flat.theta_star) / flat.posterior_sd()
        for model in (models.poisson(), models.poisson(normal(10.0)))
    ]
    assert away[0] < 0.1 < away[1]


def test_numbers_are_recorded_with_the_run(tmp_path: Path) -> None:
    report = run(tmp_path / "r")
    priors = report.summary["priors"]
    assert ["beta[Intercept]", "sigma"] == priors["scaled_with_data"]
    wide = 2.5 * HEIGHTS.std()
    kept = RunDirectory.open(tmp_path / "r").identity["model"]["prior"]
    intercept = kept["priors"]["beta[Intercept]"]
    assert HEIGHTS.mean() == pytest.approx(intercept["location"], abs=0.01 * wide)
    assert wide == pytest.approx(intercept["scale"], rel=0.005)
    text = f"normal({intercept['location']:g}, {intercept['scale']:g})"
    assert text == priors["parameters"]["beta[Intercept]"]
    assert f"half_student_t(3, {intercept['scale']:g})" == priors["parameters"]["sigma"]
    fixed = run(tmp_path / "s", models.gaussian(normal(10.0))).summary["priors"]
    assert [] == fixed["scaled_with_data"]
    assert "normal(0, 10)" == fixed["parameters"]["beta[Intercept]"]


def test_a_run_goes_on_with_the_priors_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r"
    whole = run(tmp_path / "s", draws=100).summary
    run(path)
    with monkeypatch.context() as patch:  # as if another version had other defaults
        for module in (by_name, text):
            patch.setattr(module, "RULE", 2)
        with pytest.raises(IdentityError, match="joint_rule is 1, asked for 2"):
            run(path, draws=100)
    longer = run(path, draws=100).summary
    assert whole["priors"] == longer["priors"]
    assert whole["parameters"] == longer["parameters"]
    predicted = streammc.predict(path, heights(), tmp_path / "p", model=models.gaussian())
    assert 30 == predicted.sizes["row"]
    with pytest.raises(IdentityError):
        run(path, models.gaussian({"sigma": scaled.scale_prior(3.0)}), draws=100)
    with pytest.raises(IdentityError):
        run(path, models.gaussian(normal(10.0)), draws=100)


def test_a_run_of_fixed_priors_is_not_taken_for_one_of_defaults(tmp_path: Path) -> None:
    run(tmp_path / "r", models.gaussian(normal(10.0)))
    with pytest.raises(IdentityError):
        run(tmp_path / "r", draws=100)


def test_control_variates_of_defaults_are_those_of_the_run(tmp_path: Path) -> None:
    cv = compute(heights(), models.gaussian())
    report = run(tmp_path / "r", control_variates=cv)
    assert cv.theta_star.shape == (2,)
    assert report.finished
    cv.require(heights(), models.gaussian())
    with pytest.raises(IdentityError):
        cv.require(heights(), models.gaussian({"sigma": scaled.scale_prior(3.0)}))


def test_temperature_and_weights_do_not_change_the_priors() -> None:
    plain = resolved(models.gaussian(), heights())
    assert plain == resolved(models.gaussian(), tempered(heights(), 100.0))
    weighted = from_arrays(
        np.ones((30, 1)), HEIGHTS, feature_names=["Intercept"], weight=np.full(30, 1e9)
    )
    assert plain == resolved(models.gaussian(), weighted)


def test_a_large_table_gives_the_same_numbers_every_time() -> None:
    rng = np.random.default_rng(6)
    n = 100_000
    X = np.c_[np.ones(n), rng.normal(size=n)]
    data = from_arrays(X, 1e4 + 3.0 * rng.normal(size=n))
    first = resolved(models.gaussian(), data)
    assert isinstance(first.prior, NamedPriors)
    assert first == resolved(models.gaussian(), data)
    slope = first.prior_table(first.labels(data.feature_names))[1]
    assert 7.5 == pytest.approx(slope[2], rel=0.02)


def test_invalid_responses_are_reported_as_with_any_prior() -> None:
    data = from_arrays(np.ones((4, 1)), [0.0, 2.0, 1.0, 1.0])
    messages = []
    for prior in (None, normal(10.0)):
        with pytest.raises(ModelError) as caught:
            compute(data, models.logistic(prior))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "0 or 1" in messages[0]


def test_a_model_of_ones_own_is_resolved_and_recognised(tmp_path: Path) -> None:
    def build() -> Any:
        return user(
            "mean",
            log_lik=lambda eta, y: -0.5 * (y - eta[0]) ** 2,
            gradient=lambda eta, y: np.array([y - eta[0]]),
            hessian=lambda eta, y: np.full((1, 1, len(y)), -1.0),
        )

    path = tmp_path / "r"
    run(path, build())
    described = RunDirectory.open(path).identity["model"]["prior"]
    assert ("beta[Intercept]",) == from_description(described).scaled
    assert run(path, build(), draws=100).finished


def test_mixtures_far_from_zero_are_not_decided_by_the_prior() -> None:
    rng = np.random.default_rng(7)
    x = 1e5 + 1e3 * np.r_[rng.normal(-3.0, 1.0, 100), rng.normal(3.0, 1.0, 100)]
    cv = compute(from_arrays(x[:, None]), models.gaussian_mixture_free())
    low, high = models.gaussian_mixture_free().constrain(cv.theta_star)[:2]
    assert x[:100].mean() == pytest.approx(low, abs=500.0)
    assert x[100:].mean() == pytest.approx(high, abs=500.0)


def test_draws_that_a_default_prior_decides_about_are_not_trusted() -> None:
    y = np.random.default_rng(0).normal(size=100)  # any number of degrees of freedom fits
    store = from_arrays(np.ones((100, 1)), y, feature_names=["Intercept"])
    settings = {"draws": 2000, "seed": 1, "sampler": hmc()}
    decided = streammc.sample(store, models.student_t(), **settings).attrs["verdict"]
    assert decided.startswith("Take these draws with care, for one reason: the default prior ")
    assert "decides about nu" in decided
    given = models.student_t({"nu": gamma(2.0, 0.1)})
    stated = streammc.sample(store, given, **settings)
    assert stated.attrs["verdict"].startswith("These draws can be trusted")
    (note,) = json.loads(stated.attrs["summary"])["notes"]
    assert "the prior that was given decides about nu" in note
    assert (
        streammc.sample(store, models.gaussian(), **settings)
        .attrs["verdict"]
        .startswith("These draws can be trusted")
    )


def test_priors_have_the_same_bits_on_any_number_of_cores() -> None:
    """BLAS sums in another order on another number of threads."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 40)) @ (np.eye(40) + 0.3 * rng.normal(size=(40, 40)))
    data = from_arrays(X, (rng.random(20_000) < 0.4).astype(float))

    def table(threads: int) -> Any:
        with threadpool_limits(threads, user_api="blas"):
            model = resolved(models.logistic(), data)
            return model.prior_table(model.labels(data.feature_names))

    np.testing.assert_array_equal(table(1), table(2))
