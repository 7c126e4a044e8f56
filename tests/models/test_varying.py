"""Families whose scale or chance depends on the columns."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special, stats

import streammc
from streammc import from_table, models, registry, samplers, scorer
from streammc.control_variates.bound import bind, with_data
from streammc.control_variates.full_pass.block_pass import RowSums
from streammc.diagnostics.derived import exponentials
from streammc.errors import (
    ConfigError,
    IdentityError,
    ModelError,
    RefusedError,
    SamplingWarning,
    StoreError,
)
from streammc.models import check_model
from streammc.models.check import evaluate
from streammc.protocols import Rows
from streammc.runs.record import registered_model

VARYING: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "gaussian": (("sigma",), (0.0, 0.0)),
    "gamma": (("shape",), (0.0, 0.0)),
    "negative-binomial": (("phi",), (0.0, 0.0)),
    "inverse-gaussian": (("shape",), (0.0, 0.0)),
    "lognormal": (("sigma",), (0.0, 0.0)),
    "weibull": (("shape",), (0.0, 0.0)),
    "beta": (("phi",), (0.0, 2.0)),
    "beta-binomial": (("phi",), (0.0, 2.0)),
    "tweedie": (("logit_power", "phi"), (0.0, 0.0)),
    "zero-inflated-poisson": (("logit_zi",), (0.0, 0.0)),
    "zero-inflated-negative-binomial": (("logit_zi", "phi"), (0.0, 0.0)),
    "hurdle-poisson": (("logit_hu",), (0.0, 0.0)),
}
"""Parameters that vary, and where responses are drawn from: predictors of these means."""

OWN_DESIGNS = ("hmc", "hmc-ecs", "hmc-ecs-signed", "laplace")
"""Samplers whose linear predictors may have columns of their own."""


def both(name: str, *varying: str) -> tuple[Any, Any]:
    """Return the model whose named parameters vary, and the family."""
    build = registry.model(name)
    return build(varying=varying), build()


@pytest.mark.parametrize("name", VARYING)
def test_a_model_that_varies_agrees_with_itself(name: str) -> None:
    names, centre = VARYING[name]
    model, _ = both(name, *names)
    at = (*centre, *centre[1:] * (model.n_linear - 2))
    report = check_model(model, centre=at)
    assert report.passed, str(report)


@pytest.mark.parametrize("name", VARYING)
def test_a_row_has_the_density_of_the_family(name: str) -> None:
    names, _ = VARYING[name]
    rng = np.random.default_rng(4)
    for chosen in {names, names[:1], names[-1:]}:
        model, family = both(name, *chosen)
        own = [each.name for each in model.parameters]
        order = [own.index(each.name) for each in family.parameters]
        eta = rng.standard_normal((len(order), 300))  # as the family states them
        y = family.simulate(eta, rng)
        moved = np.empty_like(eta)
        moved[order] = eta
        expected, found = evaluate(family, eta, y), evaluate(model, moved, y)
        size = np.abs(expected[0]) + 1.0
        assert np.max(np.abs(found[0] - expected[0]) / size) < 2e-13
        slopes = found[1 : 1 + len(order)][order]
        scale = np.abs(expected).max(axis=0) + 1.0
        assert np.max(np.abs(slopes - expected[1 : 1 + len(order)]) / scale) < 2e-12
        np.testing.assert_allclose(model.mean(moved), family.mean(eta), rtol=1e-12)


def test_simulated_chances_are_those_of_the_parameter_that_varies() -> None:
    model, _ = both("zero-inflated-negative-binomial", "logit_zi")
    assert model.labels(["a", "b"])[2:] == ("logit_zi[a]", "logit_zi[b]", "phi")
    m = 200_000
    eta = np.vstack([np.full(m, 3.0), np.repeat([-2.0, 1.0], m // 2), np.full(m, 4.0)])
    zeros = (model.simulate(eta, np.random.default_rng(5)) == 0.0).reshape(2, -1).mean(axis=1)
    chance = special.expit([-2.0, 1.0])  # a count of mean 20 is never 0
    error = np.sqrt(chance * (1.0 - chance) / (m // 2))
    assert np.all(np.abs(zeros - chance) < 4.5 * error)


@pytest.mark.parametrize("name", VARYING)
def test_a_model_is_made_of_its_description(name: str) -> None:
    model, family = both(name, *VARYING[name][0])
    again = registered_model(model.describe())
    assert again == model
    assert again.describe()["varying"] == list(VARYING[name][0])
    assert "varying" not in family.describe()
    assert pickle.loads(pickle.dumps(model)) == model
    q = ["Intercept", "x"]
    assert len(model.labels(q)) == model.dim(2) == 2 * model.n_linear + model.n_scalar
    assert {each.exponential for each in model.table_scale(q)} != {""}


@pytest.mark.parametrize(
    ("name", "varying", "found"),
    [
        ("gaussian", "nu", "found 'nu': choose among sigma"),
        ("gaussian", "sigma,sigma", "found 'sigma'"),
        ("weibull", 3, "found 3: write one"),
        ("weibull", ["beta"], "found 'beta': choose among shape"),
        ("weibull", [["shape"]], "names of parameters"),
        ("zero-inflated-negative-binomial", "zi", "choose among phi, logit_zi"),
    ],
)
def test_what_cannot_vary_is_refused(name: str, varying: Any, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.model(name)(varying=varying)
    assert found in str(caught.value)


def spread_table(n: int = 4000) -> tuple[dict[str, Any], Any, Any]:
    """Return a table with y ~ Normal(1 + 0.5 x, exp(-0.5 + 0.4 x)), its design and response."""
    rng = np.random.default_rng(6)
    x = rng.normal(2.0, 1.5, n)
    y = 1.0 + 0.5 * x + np.exp(-0.5 + 0.4 * x) * rng.standard_normal(n)
    return {"x": x, "y": y}, np.c_[np.ones(n), x], y


def test_draws_are_about_the_optimum_and_one_scale_for_all_is_not() -> None:
    table, X, y = spread_table()

    def loss(theta: Any) -> float:
        return -float(stats.norm.logpdf(y, X @ theta[:2], np.exp(X @ theta[2:])).sum())

    best = optimize.minimize(loss, np.zeros(4), method="BFGS")
    error = np.sqrt(np.diag(best.hess_inv))
    data = from_table(table, formula="y ~ x")
    means = []
    for sampler in (samplers.hmc(), samplers.hmc_ecs()):
        run = streammc.sample(
            data, models.gaussian(varying="sigma"), sampler=sampler, seed=7, chains=2, draws=2000
        )
        posterior = run["posterior"]
        means.append(
            np.concatenate([posterior[k].mean(("chain", "draw")).values for k in ("beta", "sigma")])
        )
        # 0.1 sd of the posterior for 4,000 draws and a prior of no weight
        assert np.all(np.abs(means[-1] - best.x) < 0.1 * error), means[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        same = streammc.sample(data, models.gaussian(), seed=7, chains=2)["posterior"]
    assert np.any(
        np.abs(same["beta"].mean(("chain", "draw")).values - best.x[:2]) > 0.5 * error[:2]
    )


def test_starts_at_the_best_constants() -> None:
    _, X, y = spread_table()
    rows = Rows(X, y, np.full(len(y), 0.25), np.ones(len(y)))
    theta = models.gaussian(varying="sigma").start(rows)
    assert theta == pytest.approx([y.mean() - 0.25, 0.0, np.log(y.std()), 0.0], abs=1e-3)


def test_default_priors_follow_the_unit_of_the_response() -> None:
    table, _, y = spread_table()
    for times in (1.0, 1e6):
        data = from_table({**table, "y": times * y}, formula="y ~ x")
        bound = streammc.sample(
            data, models.gaussian(varying="sigma"), seed=1, draws=100, warmup=100, chains=1
        )
        found = bound["posterior"]["sigma"].mean(("chain", "draw")).values
        assert found[0] == pytest.approx(-0.5 + np.log(times), abs=0.15)
        assert found[1] == pytest.approx(0.4, abs=0.1)


def test_questions_of_a_chance_that_varies(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    n = 3000
    x = rng.normal(size=n)
    zero = rng.random(n) < special.expit(-1.0 + x)
    k = np.where(zero, 0, rng.poisson(np.exp(0.5 + 0.3 * x)))
    data = from_table({"x": x, "k": k}, formula="k ~ x", dtype="float64")
    model = models.zero_inflated_poisson(varying="logit_zi")
    run = streammc.sample(
        data, model, seed=1, chains=2, draws=200, sampler=samplers.hmc(), path=tmp_path / "run"
    )
    posterior = run["posterior"]
    b, z = (posterior[v].values.reshape(-1, 2).T for v in ("beta", "logit_zi"))

    def mean(at: Any) -> Any:
        return np.exp(b[0] + b[1] * at) * special.expit(-z[0] - z[1] * at)

    predicted = streammc.predict(run, data, draws=400)
    expected = np.array([mean(each).mean() for each in x])
    at = predicted["row_id"].values
    np.testing.assert_allclose(predicted["mean"].values, expected[at], rtol=1e-9)
    compared = streammc.comparisons(run, data, variables="x").to_pydict()
    change = np.mean([(mean(each + 1.0) - mean(each)).mean() for each in x])
    assert compared["estimate"][0] == pytest.approx(change, rel=1e-3)
    scorer.export(run, tmp_path / "model.json")
    scored = scorer.load(tmp_path / "model.json").predict({"x": x[:50]})
    assert np.abs(np.asarray(scored["mean"]) / expected[:50] - 1.0).max() < 0.05  # 200 draws
    score = streammc.score(run, data)
    eta = np.exp(b[0] + b[1] * x[:, None]), special.expit(z[0] + z[1] * x[:, None])
    density = (1.0 - eta[1]) * stats.poisson.pmf(k[:, None], eta[0])
    total = np.log((np.where(k[:, None] == 0, eta[1], 0.0) + density).mean(axis=1)).sum()
    assert score["lpd"]["estimate"] == pytest.approx(total, rel=1e-6)


def test_groups_and_factors_with_a_scale_take_one_predictor() -> None:
    rng = np.random.default_rng(9)
    table = {"y": rng.normal(size=60), "x": rng.normal(size=60), "g": np.arange(60) % 6}
    data = from_table(table, formula="y ~ x + (1 | g)")
    with pytest.raises((ConfigError, ModelError), match="with 2 linear predictors"):
        streammc.sample(data, models.gaussian(varying="sigma"))


def test_a_model_file_of_another_mean_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    table = {"k": rng.negative_binomial(2, 0.4, 400), "x": rng.normal(size=400)}
    data = from_table(table, formula="k ~ x")
    model = models.zero_inflated_negative_binomial(varying="logit_zi")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(
            data, model, seed=1, chains=1, draws=50, warmup=50, path=tmp_path / "run",
            sampler=samplers.hmc(),
        )  # fmt: skip
    with pytest.raises(StoreError, match=r"predict with streammc\.predict"):
        scorer.export(run, tmp_path / "model.json")


@pytest.mark.parametrize("varying", [(), ("phi",)])
def test_trials_are_no_overdispersion(varying: tuple[str, ...]) -> None:
    rng = np.random.default_rng(12)
    n = 1000
    x, trials = rng.normal(size=n), rng.integers(5, 40, n)
    mean, phi = special.expit(0.3 * x), np.exp(1.5 + 0.3 * x)
    successes = rng.binomial(trials, rng.beta(mean * phi, (1.0 - mean) * phi))
    table = {"k": successes, "n": trials, "x": x}
    data = from_table(table, formula="k ~ x", trials="n")
    certificate = streammc.control_variates.compute(
        data, models.beta_binomial(varying=varying)
    ).certificate
    assert certificate.warnings == ()


def test_the_default_prior_of_a_scale_is_about_the_unit_of_the_response() -> None:
    table, _, y = spread_table()
    data = from_table({**table, "y": 1e6 * y}, formula="y ~ x")
    (joint,) = (
        each
        for each in with_data(models.gaussian(varying="sigma"), data).prior.joint
        if "sigma[x]" in each.labels
    )
    place = joint.labels.index("sigma[Intercept]")
    assert joint.location[place] == pytest.approx(np.log(1e6 * y.std()), abs=0.1)
    assert np.sqrt(joint.covariance[place, place]) == pytest.approx(2.5, rel=0.2)


def test_ratios_are_of_what_the_first_predictor_means() -> None:
    features = ("Intercept", "x")

    def shown(model: Any) -> list[str]:
        return [label for _, label, _ in exponentials(model.table_scale(features), features)]

    assert shown(models.zero_inflated_poisson(varying="logit_zi")) == ["beta[x]"]
    assert shown(models.gaussian(varying="sigma")) == ["sigma[x]"]
    assert shown(models.multinomial(levels=3)) == ["beta[1, x]", "beta[2, x]"]


def driven_table() -> tuple[dict[str, Any], Any, Any, Any]:
    """Return a table of y, x and w, and the columns x and w of 2,000 rows: sigma is of x alone."""
    rng = np.random.default_rng(14)
    x, w = rng.normal(size=2000), rng.normal(3.0, 2.0, size=2000)
    y = 1.0 + 0.5 * x - 0.3 * w + np.exp(0.2 + 0.4 * x) * rng.normal(size=2000)
    return {"y": y, "x": x, "w": w}, x, w, y


def means_of(run: Any, *names: str) -> Any:
    posterior = run["posterior"]
    return np.concatenate([posterior[k].mean(("chain", "draw")).values.ravel() for k in names])


def sds_of(run: Any, *names: str) -> Any:
    posterior = run["posterior"]
    return np.concatenate([posterior[k].std(("chain", "draw")).values.ravel() for k in names])


@pytest.mark.parametrize("build", ["hmc", "hmc_ecs", "hmc_ecs_signed", "laplace", "nuts"])
def test_draws_with_columns_of_their_own_are_about_the_optimum(build: str) -> None:
    table, x, w, y = driven_table()

    def loss(theta: Any) -> float:
        eta = theta[0] + theta[1] * x + theta[2] * w
        return -float(stats.norm.logpdf(y, eta, np.exp(theta[3] + theta[4] * x)).sum())

    best = optimize.minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-6})
    sampler = samplers.hmc(trajectory="nuts") if build == "nuts" else getattr(samplers, build)()
    data = from_table(table, formula="y ~ x + w", formula_for="sigma ~ x")
    run = streammc.sample(data, models.gaussian(), sampler=sampler, seed=7, chains=2, draws=2000)
    assert run["posterior"]["sigma"].dims[-1] == "sigma_dim"
    found, error = means_of(run, "beta", "sigma"), sds_of(run, "beta", "sigma")
    assert np.all(np.abs(found - best.x) < 0.15 * error), (found - best.x) / error
    # The scale of another column is another model: it is not about this optimum.
    other = from_table(table, formula="y ~ x + w", formula_for="sigma ~ w")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        wrong = streammc.sample(other, models.gaussian(), sampler=samplers.hmc(), seed=7, chains=2)
    assert np.any(np.abs(means_of(wrong, "beta", "sigma") - best.x) > 1.0 * error)


def test_a_formula_of_a_constant_is_the_family_itself() -> None:
    table, *_ = driven_table()
    constant = from_table(table, formula="y ~ x + w", formula_for="sigma ~ 1")
    plain = from_table(table, formula="y ~ x + w")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        one = streammc.sample(
            constant, models.gaussian(), sampler=samplers.hmc(), seed=3, chains=2, draws=4000
        )
        two = streammc.sample(
            plain, models.gaussian(), sampler=samplers.hmc(), seed=3, chains=2, draws=4000
        )
    sd = two["posterior"]["beta"].std(("chain", "draw")).values
    assert np.all(np.abs(means_of(one, "beta") - means_of(two, "beta")) < 0.12 * sd)
    log_scale = np.log(two["posterior"]["sigma"])
    found = means_of(one, "sigma")
    assert abs(found[0] - float(log_scale.mean())) < 0.12 * float(log_scale.std())


def test_columns_that_are_all_of_them_change_no_bit() -> None:
    table, *_ = driven_table()
    data = from_table(table, formula="y ~ x + w")
    both_all = from_table(table, formula="y ~ x + w", formula_for="sigma ~ x + w")
    for sampler in (samplers.hmc(), samplers.hmc_ecs(subsample_size=200)):
        one, two = (
            streammc.sample(each, model, sampler=sampler, seed=5, chains=1, draws=50, warmup=50)
            for each, model in (
                (data, models.gaussian(varying="sigma")),
                (both_all, models.gaussian()),
            )
        )
        for name in ("beta", "sigma"):
            np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])


def test_sums_of_the_pass_are_those_of_the_columns() -> None:
    table, x, w, y = driven_table()
    data = from_table(table, formula="y ~ x + w", formula_for="sigma ~ x")
    own, whole = bind(data, models.gaussian()).model, models.gaussian(varying="sigma")
    assert own.designs == ((0, 1, 2), (0, 1))
    at = [0, 1, 2, 3, 4]  # of (beta, sigma) of three columns each
    rng = np.random.default_rng(15)
    X, zeros, ones = np.c_[np.ones(len(x)), x, w], np.zeros(len(x)), np.ones(len(x))
    theta, shifts = rng.normal(0.0, 0.3, 5), rng.normal(0.0, 0.1, (3, 5))
    found = []
    with_none = np.append(theta, 0.0), np.c_[shifts, np.zeros(3)]
    for model, points in ((own, (theta, shifts)), (whole, with_none)):
        sums, squares, left = RowSums(model, *points, 2, 3), np.zeros(len(x)), np.empty((3, len(x)))
        sums.add(X, y, zeros, ones, squares, left)
        found.append((*sums.expansion(), left))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1][at])
    np.testing.assert_array_equal(found[0][2], found[1][2][np.ix_(at, at)])
    np.testing.assert_array_equal(found[0][3], found[1][3])
    assert np.abs(found[1][1][5]) > 1.0  # the sixth coefficient is none of the model


def test_questions_of_columns_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    n = 3000
    x, w = rng.normal(size=n), rng.normal(5.0, 2.0, size=n)
    zero = rng.random(n) < special.expit(-3.0 + 0.4 * w)
    k = np.where(zero, 0, rng.poisson(np.exp(0.5 + 0.3 * x)))
    table = {"x": x, "w": w, "k": k}
    data = from_table(table, formula="k ~ x", formula_for="logit_zi ~ w", dtype="float64")
    model = models.zero_inflated_poisson()
    settings: dict[str, Any] = {"seed": 1, "chains": 2, "sampler": samplers.hmc()}
    streammc.sample(data, model, draws=100, path=tmp_path / "run", **settings)
    run = streammc.sample(data, model, draws=200, path=tmp_path / "run", **settings)
    whole = streammc.sample(data, model, draws=200, path=tmp_path / "whole", **settings)
    posterior = run["posterior"]
    b, z = (posterior[v].values.reshape(-1, 2).T for v in ("beta", "logit_zi"))
    np.testing.assert_array_equal(posterior["logit_zi"], whole["posterior"]["logit_zi"])

    def mean(x: Any, w: Any) -> Any:
        return np.exp(b[0] + b[1] * x) * special.expit(-z[0] - z[1] * w)

    expected = np.array([mean(*each).mean() for each in zip(x, w, strict=True)])
    predicted = streammc.predict(run, data, draws=400)
    at = predicted["row_id"].values
    np.testing.assert_allclose(predicted["mean"].values, expected[at], rtol=1e-9)
    for name, moved in (("x", mean(x[:, None] + 1.0, w[:, None])),
                        ("w", mean(x[:, None], w[:, None] + 1.0))):  # fmt: skip
        compared = streammc.comparisons(run, data, variables=name).to_pydict()
        change = float((moved - mean(x[:, None], w[:, None])).mean())
        assert compared["estimate"][0] == pytest.approx(change, rel=1e-3)
    scorer.export(run, tmp_path / "model.json")
    few = {"x": x[:50], "w": w[:50]}
    scored = scorer.load(tmp_path / "model.json").predict(few)
    assert np.abs(np.asarray(scored["mean"]) / expected[:50] - 1.0).max() < 0.05  # 200 draws
    score = streammc.score(run, data)
    eta = np.exp(b[0] + b[1] * x[:, None]), special.expit(z[0] + z[1] * w[:, None])
    density = (1.0 - eta[1]) * stats.poisson.pmf(k[:, None], eta[0])
    total = np.log((np.where(k[:, None] == 0, eta[1], 0.0) + density).mean(axis=1)).sum()
    assert score["lpd"]["estimate"] == pytest.approx(total, rel=1e-6)
    residuals = streammc.residuals(run, data)["residual"].values
    assert abs(residuals.mean()) < 4.5 / np.sqrt(n)
    assert abs(residuals.std() - 1.0) < 4.5 / np.sqrt(2 * n)
    other = from_table(table, formula="k ~ x + w", dtype="float64")
    with pytest.raises(
        IdentityError, match="with --formula-for logit_zi, as the run, found one with one formula"
    ):
        streammc.predict(run, other)


def test_default_priors_are_of_the_columns_of_each() -> None:
    table, x, _, y = driven_table()
    data = from_table({**table, "y": 1e3 * y}, formula="y ~ x + w", formula_for="sigma ~ x")
    bound = bind(data, models.gaussian()).model
    (scale,) = (each for each in bound.prior.joint if "sigma[x]" in each.labels)
    assert scale.labels == ("sigma[Intercept]", "sigma[x]")
    own = from_table({"y": 1e3 * y, "x": x}, formula="y ~ x")
    alone = with_data(models.gaussian(varying="sigma"), own)
    (expected,) = (each for each in alone.prior.joint if "sigma[x]" in each.labels)
    np.testing.assert_allclose(scale.covariance, expected.covariance, rtol=1e-12)
    np.testing.assert_allclose(scale.location, expected.location, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "formula_for", "kind", "found"),
    [
        (models.logistic(), "sigma ~ x", ModelError, "parameters that formulas of their own"),
        (models.gaussian(), "nu ~ x", ConfigError, "found 'nu': choose among sigma"),
        (models.gaussian(varying="sigma"), "sigma ~ x", ConfigError, "the option varying beside"),
        (models.poisson(), "phi ~ x", ModelError, "choose another family"),
    ],
)
def test_a_formula_that_nothing_drives_is_refused(
    model: Any, formula_for: str, kind: type[Exception], found: str
) -> None:
    rng = np.random.default_rng(3)
    table = {"y": rng.integers(0, 2, 50), "x": rng.normal(size=50)}
    data = from_table(table, formula="y ~ x", formula_for=formula_for)
    with pytest.raises(kind, match=found):
        streammc.sample(data, model, seed=1)


@pytest.mark.parametrize("name", [n for n in registry.SAMPLERS if n not in OWN_DESIGNS])
def test_samplers_without_coordinates_for_it_are_refused(name: str) -> None:
    table, *_ = driven_table()
    data = from_table(table, formula="y ~ x + w", formula_for="sigma ~ x")
    with pytest.raises(RefusedError, match=f"found {name}, whose"):
        streammc.sample(data, models.gaussian(), sampler=registry.sampler(name)(), seed=1)
