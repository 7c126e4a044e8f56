"""A prior that decides against the data is named, and an informative one is not."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from streammc import from_table
from streammc.control_variates import compute
from streammc.likelihood import data_views
from streammc.models import gaussian, logistic, student_t
from streammc.priors import half_normal, half_student_t, normal
from streammc.stores import from_arrays

SIGMA = {"sigma": half_student_t(3, 10.0)}


def conflicts(X, y, model):
    lines = compute(from_arrays(X, y), model).certificate["warnings"]
    return [line for line in lines if "in conflict" in line]


def regression(n=200, q=3, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, q - 1))]
    return X, scale * (X @ np.arange(1.0, q + 1) + rng.normal(size=n))


@pytest.mark.parametrize("build", [gaussian, student_t])
def test_a_prior_that_holds_coefficients_back_is_named_with_scales_free(build):
    # Leaves as large as those of mesquite, in its units: sigma takes up what the prior forbids.
    X, y = regression(n=46, scale=300.0)
    (line,) = conflicts(X, y, build({"*": normal(scale=10.0), **SIGMA}))
    assert "the prior is in conflict with the likelihood" in line
    assert "beta[x2]" in line
    fit = np.linalg.lstsq(X, y, rcond=None)[0]
    residual = np.sqrt(np.mean((y - X @ fit) ** 2))
    expected = np.abs(fit[2]) / (residual * np.sqrt(np.linalg.inv(X.T @ X)[2, 2]))
    reported = float(line.split("by up to ")[1].split(" ")[0])
    assert 0.5 * expected < reported < 2.0 * expected
    assert [] == conflicts(X, y, build({"*": normal(scale=3000.0), **SIGMA}))


def test_a_response_far_from_the_prior_is_named_where_the_mode_is_at_the_prior():
    y = 1e5 + np.random.default_rng(0).normal(size=100)
    (line,) = conflicts(np.ones((100, 1)), y, gaussian({"*": normal(scale=10.0), **SIGMA}))
    assert "beta[x0] to 0.1" in line
    assert "from 1e+05" in line


def test_a_prior_of_ones_own_is_named():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(2000), rng.normal(size=2000)]
    y = (rng.random(2000) < 1.0 / (1.0 + np.exp(-X @ [0.2, 1.0]))).astype(float)
    (line,) = conflicts(X, y, logistic({"*": normal(scale=10.0), "beta[x1]": normal(scale=0.01)}))
    assert "beta[x1] to" in line
    assert [] == conflicts(X, y, logistic({"*": normal(scale=10.0), "beta[x1]": normal(scale=1.0)}))


def test_theta_star_far_from_the_location_of_its_prior_is_named():
    X, y = regression()
    prior = {"*": normal(scale=10.0), "beta[x2]": normal(scale=0.6), **SIGMA}
    (line,) = conflicts(X, y, gaussian(prior))
    assert "prior standard deviations from where its prior is centred (beta[x2])" in line
    X, y = regression(scale=20.0)
    (line,) = conflicts(X, y, gaussian({"*": normal(scale=1e3), "sigma": half_normal(4.0)}))
    assert "sigma" in line


@pytest.mark.parametrize("n", [5, 8, 12, 30])
def test_few_rows_under_an_ordinary_prior_give_no_conflict_warning(n):
    for seed in range(12):
        X, y = regression(n=n, seed=seed)
        assert [] == conflicts(X, y, gaussian({"*": normal(scale=3.0), **SIGMA}))


def test_prior_as_informative_as_the_data_gives_no_conflict_warning():
    X, y = regression(n=100)
    sd = 0.1  # of the likelihood, and of the prior, whose location is 3 of them away
    prior = {"*": normal(scale=10.0), "beta[x2]": normal(location=3.3, scale=sd), **SIGMA}
    assert [] == conflicts(X, y, gaussian(prior))


def test_more_columns_than_rows_give_no_conflict_warning():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 20))
    assert [] == conflicts(X, (rng.random(10) < 0.5).astype(float), logistic(normal(scale=0.5)))
    assert [] == conflicts(X, rng.normal(size=10), gaussian({"*": normal(scale=0.5), **SIGMA}))


def test_rows_in_memory_are_compared_with_themselves(monkeypatch):
    # 200 of 20,000 rows stand for all: their mode is 10 posterior sd from that of all.
    monkeypatch.setattr(data_views, "SUBSET_ROWS", 200)
    X, y = regression(n=20_000)
    prior = {"*": normal(scale=10.0), "beta[x2]": normal(location=3.0, scale=0.008), **SIGMA}
    assert [] == conflicts(X, y, gaussian(prior))
    far = {"*": normal(scale=10.0), "beta[x2]": normal(location=2.0, scale=0.008), **SIGMA}
    assert len(conflicts(X, y, gaussian(far))) == 1


def certified(X, y, model, weight=None):
    names = [f"x{j}" for j in range(X.shape[1])]
    return compute(from_arrays(X, y, feature_names=names, weight=weight), model)


def binary(n, slope=1.0, rare=0, seed=0):
    """Return rows of an intercept, x and, for ``rare`` rows that are 1 but one, a 0/1 column."""
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=n), np.arange(n) < rare]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-slope * X[:, 1]))).astype(float)
    y[:rare] = 1.0
    y[: min(rare, 1)] = 0.0
    return X[:, : 2 + (rare > 0)], y


def test_information_of_prior_and_rows_is_that_of_dense_matrices():
    X, y = binary(60)
    scales = np.array([3.0, 0.6])
    prior = {"x0": normal(scale=scales[0]), "x1": normal(scale=scales[1])}
    cv = certified(X, y, logistic(prior))
    (note,) = cv.certificate.notes
    of_rows, of_prior = -cv.hessian, np.diag(scales**-2.0)
    posterior, alone = np.linalg.inv(of_rows + of_prior), np.linalg.inv(of_rows)
    part = 1.0 - np.diag(posterior) / np.diag(alone)
    assert f"supplies {part[1]:.0%} of the information on beta[x1]" in note
    free = certified(X, y, logistic(normal(scale=1e4))).theta_star
    shift = abs(free[1] - cv.theta_star[1]) / np.sqrt(posterior[1, 1])
    assert f"moves it by {shift:.2g} sd, to {cv.theta_star[1]:.3g} from {free[1]:.3g}" in note
    assert part[0] < 0.1
    assert "x0" not in note
    assert [] == list(cv.certificate["warnings"])


def test_a_default_that_decides_about_a_rare_level_is_a_warning():
    X, y = binary(400, rare=10)
    weight = np.where(X[:, 2], 0.25, 1.0)  # as little information as no ten rows of weight 1 have
    certificate = certified(X, y, logistic(), weight).certificate
    (line,) = certificate["warnings"]
    assert line.startswith("the default prior decides about beta[x2]: it supplies ")
    assert "merge rare levels" in line
    assert [] == list(certificate.notes)
    # Stated, it is the user's own; of a common level it decides nothing.
    given = certified(X, y, logistic({"x2": normal(scale=3.5)}), weight).certificate
    assert ([], 1) == (list(given["warnings"]), len(given.notes))
    common = certified(X, y, logistic()).certificate
    assert ([], []) == (list(common["warnings"]), list(common.notes))


def test_estimates_are_named_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    x = 100.0 * rng.normal(size=50)
    y = (rng.random(50) < 1.0 / (1.0 + np.exp(-0.02 * x))).astype(float)
    frame = pandas.DataFrame({"x": x, "y": y})
    store = from_table(frame, response="y", dtype="float64", seed=1)
    (note,) = compute(store, logistic({"x": normal(scale=0.4)})).certificate.notes
    free = compute(store, logistic(normal(scale=1e4))).theta_star[1] / x.std()
    assert f"from {free:.3g}" in note


def test_the_jacobian_of_a_scale_is_no_information_of_its_prior():
    y = np.random.default_rng(3).normal(size=6)
    assert [] == list(certified(np.ones((6, 1)), y, gaussian()).certificate["warnings"])
    narrow = {"sigma": half_normal(0.1)}
    lines = certified(np.ones((6, 1)), y, gaussian(narrow)).certificate
    assert any("sigma" in line for line in (*lines.notes, *lines["warnings"]))


def test_separation_is_named_once():
    x = np.arange(20) - 9.5
    y = (x > 0).astype(float)
    (line,) = certified(np.c_[np.ones(20), x], y, logistic()).certificate["warnings"]
    assert line.startswith("separation")
