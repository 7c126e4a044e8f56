"""Factors with a sampled scale, from the table to the draws, against quadrature and the truth."""

from __future__ import annotations

import numpy as np
import pytest
from problems import batch_z

import streammc
from streammc import models, priors, samplers
from streammc.errors import RefusedError

LEVELS = 12
ROWS = 4000


def table(tau, n=ROWS):
    """A binary response with an effect for each of twelve levels, of unequal size."""
    rng = np.random.default_rng(11)
    share = 1.0 / np.arange(1, LEVELS + 1)
    level = rng.choice(LEVELS, n, p=share / share.sum())
    eta = -0.7 + tau * rng.normal(size=LEVELS)[level]
    return {"y": (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int), "g": level}


def reference(given, tilt=0.0):
    """Posterior means of intercept, log tau, tau and the first effect, by quadrature.

    Given intercept and tau the levels are independent, and each is an integral over its effect.
    ``tilt`` is a power of tau that does not belong there.
    """
    n = np.bincount(given["g"])
    s = np.bincount(given["g"], weights=given["y"])
    v = np.linspace(-7.5, 7.5, 241)
    weight = np.exp(-0.5 * v**2) / np.exp(-0.5 * v**2).sum()
    fine = np.linspace(-5.0, 5.0, 101)  # an intercept may be known to 0.01, or to 0.3
    b, t = -0.7 + 0.02 * np.sinh(fine), np.linspace(-10.0, 2.0, 145)
    log, first = np.empty((len(b), len(t))), np.empty((len(b), len(t)))
    for i in range(len(b)):
        eta = b[i] + np.exp(t)[:, None] * v
        terms = s[:, None, None] * eta - n[:, None, None] * np.logaddexp(0.0, eta)
        top = terms.max(axis=2, keepdims=True)
        mass = np.exp(terms - top) * weight
        log[i] = (np.log(mass.sum(axis=2)) + top[:, :, 0]).sum(axis=0)
        first[i] = np.exp(t) * (mass[0] @ v) / mass[0].sum(axis=1)
    log += np.log(np.cosh(fine))[:, None] - 0.5 * (b[:, None] / 2.0) ** 2
    log += -2.0 * np.log1p(np.exp(2 * t) / 3.0) + t + tilt * t
    mass = np.exp(log - log.max())
    values = (b[:, None], t, np.exp(t), first)
    return [float((mass * value).sum() / mass.sum()) for value in values]


def sample(given, sampler, draws=6000, **options):
    """Return draws (draw,) of intercept, log tau, tau and the first effect, of one chain."""
    data = streammc.from_table(
        given, formula="y ~ 1 + (1 | g)", group_as={"g": "columns"}, standardize=False
    )
    prior = {"Intercept": priors.normal(2.0), "tau[g]": priors.half_student_t(3.0, 1.0)}
    run = streammc.sample(
        data, models.logistic(prior=prior), sampler=sampler, draws=draws, warmup=1500, chains=1,
        seed=2, audit=False, **options,
    )  # fmt: skip
    posterior = run["posterior"]
    tau = np.asarray(posterior["tau"])[0, :, 0]
    intercept, first = (np.asarray(posterior[name])[0, :, 0] for name in ("beta", "u"))
    return [intercept, np.log(tau), tau, first]


def z_scores(drawn, truth):
    return np.abs([batch_z(each, mean) for each, mean in zip(drawn, truth, strict=True)])


@pytest.fixture(scope="module")
def subsampled():
    return sample(table(0.6), samplers.hmc_ecs())


def test_a_subsample_gives_the_posterior_of_effects_and_scale(subsampled):
    assert z_scores(subsampled, reference(table(0.6))).max() < 4.5


def test_leaving_out_the_normaliser_of_the_effects_is_caught(subsampled):
    assert z_scores(subsampled, reference(table(0.6), tilt=LEVELS)).max() > 4.5


@pytest.mark.slow
@pytest.mark.parametrize("trajectory", ["jittered", "nuts"])
def test_all_rows_give_the_posterior_of_effects_and_scale(trajectory):
    drawn = sample(table(0.6), samplers.hmc(trajectory=trajectory))
    assert z_scores(drawn, reference(table(0.6))).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [samplers.hmc_ecs, samplers.hmc])
def test_a_scale_near_zero_is_sampled(sampler):
    given = table(0.02, 20_000)
    drawn, truth = sample(given, sampler(), draws=20_000), reference(given)
    assert truth[2] < 0.1
    assert z_scores(drawn, truth).max() < 4.5


def crossed(n=20_000):
    """Two crossed factors and a column, and the effects that the response was drawn with."""
    rng = np.random.default_rng(5)
    a, b, x = rng.integers(0, 30, n), rng.integers(1, 13, n), rng.normal(size=n)
    effects = 0.5 * rng.normal(size=30), 0.3 * rng.normal(size=12)
    eta = -0.4 + 0.8 * x + effects[0][a] + effects[1][b - 1]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    names = np.array([f"A{k:02d}" for k in range(30)])
    return {"y": y, "x": x, "origin": names[a], "month": b}, effects


@pytest.fixture(scope="module")
def crossed_run():
    given, _ = crossed()
    data = streammc.from_table(given, formula="y ~ x + (1 | origin) + (1 | month)")
    assert [each["levels"] for each in data.attributes["factors"]] == [30, 12]
    assert getattr(data, "groups", None) is None
    return streammc.sample(data, models.logistic(), seed=1, draws=1000, chains=2)


def test_two_crossed_factors_are_recovered(crossed_run):
    posterior = crossed_run["posterior"]
    u = np.asarray(posterior["u"]).reshape(-1, 42)
    tau = np.asarray(posterior["tau"]).reshape(-1, 2)
    for own, effects, scale in zip((u[:, :30], u[:, 30:]), crossed()[1], tau.T, strict=True):
        # effects are known up to what the intercept takes up
        centred = own - own.mean(axis=1, keepdims=True)
        z = (centred.mean(axis=0) - (effects - effects.mean())) / centred.std(axis=0)
        assert np.abs(z).max() < 4.5
        assert abs(np.log(scale).mean() - np.log(effects.std())) < 4.5 * np.log(scale).std()


def test_labels_of_effects_are_those_of_the_levels(crossed_run):
    posterior = crossed_run["posterior"]
    names = [str(name) for name in posterior["u"].coords["u_dim"].values]
    assert ["origin=A00", "origin=A01", "month=12"] == [names[0], names[1], names[-1]]
    assert ["origin", "month"] == [str(name) for name in posterior["tau"].coords["tau_dim"].values]


@pytest.mark.slow
def test_one_factor_is_integrated_and_another_is_columns():
    rng = np.random.default_rng(8)
    n = 12_000
    user, month, x = rng.integers(0, 400, n), rng.integers(0, 8, n), rng.normal(size=n)
    effects, of_users = 0.4 * rng.normal(size=8), 0.7 * rng.normal(size=400)
    eta = 0.2 + 0.5 * x + effects[month] + of_users[user]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    given = {"y": y, "x": x, "user": user, "month": month}
    data = streammc.from_table(given, formula="y ~ x + (1 | user) + (1 | month)")
    assert data.groups.column == "user"
    assert data.attributes["factors"] == [{"column": "month", "first": 2, "levels": 8}]
    run = streammc.sample(data, models.logistic(), seed=1, draws=1000, chains=2, audit=False)
    tau = np.asarray(run["posterior"]["tau"]).reshape(-1, 2)
    u = np.asarray(run["posterior"]["u"]).reshape(-1, 8)
    u -= u.mean(axis=1, keepdims=True)
    z = (u.mean(axis=0) - (effects - effects.mean())) / u.std(axis=0)
    assert np.abs(z).max() < 4.5
    truth = np.log([effects.std(), 0.7])
    assert (np.abs(np.log(tau).mean(axis=0) - truth) < 4.5 * np.log(tau).std(axis=0)).all()


OTHERS = ["laplace", "pt", "mh", "sgld", "mintee", "hmc_ecs_signed", "mint"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_samplers_refuse_a_sampled_scale_in_one_line(name):
    data = streammc.from_table(table(0.6, 400), formula="y ~ (1 | g)", group_as=["g=columns"])
    made = getattr(samplers, name)
    with pytest.raises(RefusedError, match=r"expected hmc-ecs or hmc for tau\[g\]") as caught:
        streammc.sample(data, models.logistic(), sampler=made(), seed=1, draws=10)
    assert "\n" not in str(caught.value)
