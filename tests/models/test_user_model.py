"""Models of the user's own, at every level, and the Gaussian mean among them."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from problems import batch_z

import streammc
from streammc.control_variates.certify import compute
from streammc.errors import ConfigError, IdentityError, ModelError
from streammc.models import check_model, gaussian_mean, logistic, user
from streammc.models.glm.bernoulli_logit import link as logistic_link
from streammc.models.user_model import kernel_of
from streammc.priors import normal
from streammc.protocols import Rows

COVARIANCE = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 0.7]])
PRECISION = np.linalg.inv(COVARIANCE)


def table(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [0.5, 1.0, -0.5]))).astype(float)
    return X, y


def probability(eta):
    return 1 / (1 + np.exp(-eta))


def numpy_logistic(**changes):
    parts = {
        "log_lik": lambda eta, y: y * eta[0] - np.logaddexp(0, eta[0]),
        "gradient": lambda eta, y: y - probability(eta),
        "hessian": lambda eta, y: -(probability(eta) * (1 - probability(eta)))[None],
        "response": lambda y: (y == 0) | (y == 1),
        "simulate": lambda eta, rng: (rng.random(eta.shape[1]) < probability(eta[0])) * 1.0,
        "prior": normal(10.0),
    }
    return user("own", **{**parts, **changes})


def theta_logistic():
    """The same likelihood, seen as a function of theta and the columns."""

    def hessian(theta, X, y):
        p = probability(X @ theta)
        return -(p * (1 - p))[:, None, None] * X[:, :, None] * X[:, None, :]

    return user(
        "own",
        predictors=(),
        locations=("a", "b", "c"),
        log_lik=lambda theta, X, y: y * (X @ theta) - np.logaddexp(0, X @ theta),
        gradient=lambda theta, X, y: (y - probability(X @ theta))[:, None] * X,
        hessian=hessian,
    )


@pytest.mark.parametrize("build", [numpy_logistic, theta_logistic])
def test_pass_over_numpy_functions_equals_the_compiled_family(build):
    store = streammc.from_arrays(*table())
    ours, theirs = compute(store, logistic(normal(10.0))), compute(store, build())
    np.testing.assert_allclose(theirs.theta_star, ours.theta_star, rtol=1e-9)
    assert theirs.log_lik == pytest.approx(ours.log_lik, rel=1e-12)
    np.testing.assert_allclose(theirs.hessian, ours.hessian, rtol=1e-9)


@pytest.mark.parametrize("build", [numpy_logistic, theta_logistic])
def test_draws_of_numpy_functions_follow_the_compiled_family(build):
    store = streammc.from_arrays(*table())
    options = {
        "sampler": streammc.samplers.hmc_ecs(subsample_size=60),
        "draws": 100,
        "warmup": 100,
        "chains": 2,
        "seed": 3,
    }
    ours = streammc.sample(store, logistic(normal(10.0)), **options)
    theirs = streammc.sample(store, build(), **options)
    # Rounding differs in the last bit; the first draws are still the same numbers.
    first = ours["posterior"]["beta"].values[:, 0]
    own = theirs["posterior"].to_dataset()
    found = own["beta"].values if "beta" in own else np.stack([own[v].values for v in "abc"], -1)
    np.testing.assert_allclose(found[:, 0], first, rtol=1e-3)


def test_compiled_link_of_numba_gives_the_same_draws():
    store = streammc.from_arrays(*table())
    link = numba.njit(logistic_link.py_func, error_model="numpy")
    own = user("own", link=link, prior=normal(10.0))
    options = {"draws": 50, "warmup": 50, "chains": 1, "seed": 3}
    ours = streammc.sample(store, logistic(normal(10.0)), **options)
    theirs = streammc.sample(store, own, **options)
    np.testing.assert_allclose(theirs["posterior"]["beta"], ours["posterior"]["beta"], rtol=1e-6)


def test_link_of_the_package_is_used_as_it_is():
    assert kernel_of({"link": logistic_link}, 1) is logistic_link


def test_check_passes_right_models_and_finds_a_wrong_derivative():
    assert check_model(numpy_logistic(), support=[0.0, 1.0]).passed
    wrong = numpy_logistic(gradient=lambda eta, y: 1.001 * (y - probability(eta)))
    report = check_model(wrong, support=[0.0, 1.0])
    assert "first derivatives" in [f.name for f in report.findings if not f.passed]


def test_check_of_a_model_of_theta_needs_rows():
    X, y = table(50)
    rows = Rows(X, y, np.zeros(50), np.ones(50))
    report = check_model(theta_logistic(), rows=rows)
    assert [f.name for f in report.findings if not f.passed] in ([], [report.findings[2].name])
    assert report.findings[0].passed
    assert report.findings[1].passed
    with pytest.raises(ConfigError, match="expected rows"):
        check_model(theta_logistic())


def test_exception_of_a_user_function_is_raised_unchanged():
    def log_lik(eta, y):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        compute(streammc.from_arrays(*table()), numpy_logistic(log_lik=log_lik))


def test_wrong_shape_is_named():
    model = numpy_logistic(gradient=lambda eta, y: np.zeros(3))
    with pytest.raises(ModelError, match=r"expected .* to return shape \(1, \d+\), found \(3,\)"):
        compute(streammc.from_arrays(*table()), model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either link, or log_lik, gradient and hessian"),
        ({"log_lik": len}, "either link, or log_lik, gradient and hessian"),
        ({"link": len, "log_lik": len}, "either link, or log_lik, gradient and hessian"),
        ({"link": len, "predictors": ()}, "different names"),
        ({"link": len, "scales": ("beta",)}, "different names"),
    ],
)
def test_functions_or_names_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        user("own", **options)


def test_response_outside_the_support_is_refused():
    X, y = table()
    y[7] = 3.0
    with pytest.raises(ModelError, match="row_id 7 "):
        compute(streammc.from_arrays(X, y), numpy_logistic())


def test_identity_follows_the_source_of_the_functions():
    one = numpy_logistic()
    other = numpy_logistic(log_lik=lambda eta, y: y * eta[0] - np.log1p(np.exp(eta[0])))
    assert one.describe() == numpy_logistic().describe()
    assert one.describe()["code"] != other.describe()["code"]


def scaled(factor):
    return numpy_logistic(
        log_lik=lambda eta, y: factor * (y * eta[0] - np.logaddexp(0, eta[0])),
        gradient=lambda eta, y: factor * (y - probability(eta)),
        hessian=lambda eta, y: -factor * (probability(eta) * (1 - probability(eta)))[None],
    )


def test_identity_follows_the_values_that_the_functions_read():
    assert scaled(2.0).describe() == scaled(2.0).describe()
    assert scaled(2.0).describe() != scaled(8.0).describe()
    one, other = {}, {}
    exec("f = lambda eta, y: 1.5 * eta[0]", one)  # no source to read
    exec("f = lambda eta, y: 2.5 * eta[0]", other)
    codes = [numpy_logistic(log_lik=space["f"]).describe()["code"] for space in (one, other, one)]
    assert codes[0] == codes[2] != codes[1]


def test_control_variates_of_other_values_are_refused():
    store = streammc.from_arrays(*table())
    cv = compute(store, scaled(2.0))
    with pytest.raises(IdentityError):
        streammc.sample(store, scaled(8.0), control_variates=cv, draws=50, seed=1)


@pytest.mark.parametrize("part", ["gradient", "hessian"])
def test_wrong_derivatives_are_refused_before_sampling(part):
    right = {
        "gradient": lambda eta, y: -(y - probability(eta)),
        "hessian": lambda eta, y: (probability(eta) * (1 - probability(eta)))[None],
    }
    with pytest.raises(ModelError, match="derivatives of the model 'own' to be those of its"):
        compute(streammc.from_arrays(*table()), numpy_logistic(**{part: right[part]}))


def test_scales_are_reported_as_they_are_and_sampled_as_logarithms():
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(500), rng.normal(size=500)]
    y = X @ [1.0, 2.0] + 0.5 * rng.normal(size=500)

    def parts(eta, y):
        precision = np.exp(-2 * eta[1])
        return y - eta[0], precision

    def hessian(eta, y):
        r, w = parts(eta, y)
        return np.array([[-w, -2 * r * w], [-2 * r * w, -2 * r * r * w]])

    model = user(
        "normal",
        scales=("sigma",),
        log_lik=lambda eta, y: -0.919 - eta[1] - 0.5 * parts(eta, y)[0] ** 2 * parts(eta, y)[1],
        gradient=lambda eta, y: np.array(
            [parts(eta, y)[0] * parts(eta, y)[1], parts(eta, y)[0] ** 2 * parts(eta, y)[1] - 1]
        ),
        hessian=hessian,
        prior=normal(scale=10.0),
    )
    run = streammc.sample(streammc.from_arrays(X, y), model, draws=200, chains=2, seed=1)
    sigma = run["posterior"]["sigma"].values
    residual = y - X @ np.linalg.lstsq(X, y)[0]
    assert abs(sigma.mean() - residual.std()) < 0.02
    assert sigma.min() > 0.4


def test_gaussian_mean_has_the_conjugate_posterior():
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([1.0, -2.0, 0.5], COVARIANCE, size=3000)
    store = streammc.from_arrays(X)
    precision = len(X) * PRECISION + np.eye(3) / 100
    exact = np.linalg.solve(precision, PRECISION @ X.sum(axis=0))
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    for sampler in (None, streammc.samplers.hmc_ecs()):
        run = streammc.sample(
            store, gaussian_mean(COVARIANCE), sampler=sampler, draws=2000, chains=2, seed=5
        )
        z = (run["posterior"]["mu"].values.reshape(-1, 3) - exact) / sd
        # The squares have another effective size than the draws: each has its own error.
        assert max(abs(batch_z(z[:, j], 0.0)) for j in range(3)) < 4.5
        assert max(abs(batch_z(z[:, j] ** 2, 1.0)) for j in range(3)) < 4.5
        assert min(abs(batch_z(z[:, j] ** 2, 1.5)) for j in range(3)) > 4.5


def test_gaussian_mean_has_right_derivatives():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    rows = Rows(X, np.zeros(20), np.zeros(20), np.ones(20))
    report = check_model(gaussian_mean(COVARIANCE), rows=rows)
    assert report.passed, str(report)


@pytest.mark.parametrize(
    "covariance",
    [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.4, 1.0]], [[np.nan]], -1.0, "wide", np.ones((2, 3))],
)
def test_matrix_that_is_no_covariance_is_refused_in_one_line(covariance):
    with pytest.raises(ConfigError) as caught:
        gaussian_mean(covariance)
    assert "\n" not in str(caught.value)


def test_wrong_number_of_columns_is_refused():
    with pytest.raises(ConfigError, match="expected 3 columns"):
        compute(streammc.from_arrays(np.ones((10, 2))), gaussian_mean(COVARIANCE))
