"""Warnings of directions that the prior alone decides: collinear columns and separation."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates import compute
from streammc.errors import ModelError
from streammc.models import gaussian, logistic, poisson, probit
from streammc.priors import flat, normal
from streammc.stores import from_arrays


def arrays(n=600, seed=3):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    y = rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))
    return X, y.astype(float)


def warnings(X, y, model=None, **options):
    return compute(from_arrays(X, y, **options), model or logistic()).certificate["warnings"]


@pytest.mark.parametrize("model", [logistic(), poisson(), logistic(prior=normal(scale=0.5))])
def test_ordinary_data_give_no_warning_of_weak_directions(model):
    assert [] == warnings(*arrays(), model)


def test_few_rows_give_no_warning_of_weak_directions():
    assert [] == warnings(*arrays(n=30))


@pytest.mark.parametrize(
    ("extra", "rank", "named"),
    [
        (lambda X: X[:, 1], "3 of 4", "beta[x1], beta[x3]"),
        (lambda X: 3 * X[:, 1] - X[:, 2] + 2, "3 of 4", "beta[x3]"),
        (lambda X: np.zeros(len(X)), "3 of 4", "about beta[x3]"),
        (lambda X: np.c_[X[:, 1], X[:, 1]], "3 of 5", "beta[x4]"),
    ],
)
def test_collinear_columns_are_counted_and_named(extra, rank, named):
    X, y = arrays()
    (line,) = warnings(np.c_[X, extra(X)], y)
    assert f"rank {rank}" in line
    *others, last = named.split(", ")
    assert last in line
    assert all(other in line for other in others)  # the order of a tie is that of rounding


def test_nearly_equal_columns_are_not_called_collinear():
    X, y = arrays()
    noise = 1e-3 * np.random.default_rng(1).normal(size=len(X))
    assert [] == warnings(np.c_[X, X[:, 1] + noise], y)


def test_separation_is_named():
    X, _ = arrays()
    (line,) = warnings(X, (X[:, 1] > 0.3).astype(float))
    assert line.startswith("separation: ")
    assert "beta[x1]" in line


def test_one_row_on_the_wrong_side_is_no_separation():
    X, _ = arrays()
    y = (X[:, 1] > 0.3).astype(float)
    wrong = np.argsort(np.abs(X[:, 1] - 0.3))[10:20]
    y[wrong] = 1 - y[wrong]
    assert [] == warnings(X, y, logistic(normal(scale=10.0)))


def test_a_category_without_events_is_separated():
    X, y = arrays()
    dummy = (np.arange(len(X)) < 25).astype(float)
    y[:25] = 0
    for build in (logistic, poisson, probit):
        for events in (1, 40):  # of a probit link the steps are the smaller, the more rows
            weight = np.full(len(X), float(events))
            (line,) = warnings(np.c_[X, dummy], y, build(), weight=weight)
            assert "keeps beta[x3] from running away" in line
        with pytest.raises(ModelError, match="expected a posterior with a mode"):
            warnings(np.c_[X, dummy], y, build(flat()))
    weight = np.where(np.arange(len(X)) < 25, 0.0, 1.0)
    (line,) = warnings(np.c_[X, dummy], y, weight=weight)
    assert "rank 3 of 4" in line  # rows that do not count say nothing at all


def test_certificate_is_silent_far_from_the_mode():
    X, y = arrays()
    store = from_arrays(X, y)
    cv = compute(store, logistic(), theta_star=np.array([9.0, -9.0, 9.0]), passes=1)
    assert (False, []) == (cv.certificate["converged"], cv.certificate["warnings"])


def test_fewer_rows_than_columns():
    rng = np.random.default_rng(2)
    lines = warnings(rng.normal(size=(10, 20)), rng.integers(0, 2, 10))
    assert "rank 10 of 20" in lines[0]
    assert "and 16 more" in lines[0] or "more" in lines[0]
    assert lines[1].startswith("separation: ")


def test_a_prior_far_narrower_than_the_response_is_named():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(500), rng.normal(size=500)]
    y = 5e4 + 2e3 * X[:, 1] + 1e3 * rng.normal(size=500)
    store = from_arrays(X, y, feature_names=["Intercept", "area"])
    certificate = compute(store, gaussian(normal(scale=10.0))).certificate
    (line,) = certificate["warnings"]
    assert "in conflict with the likelihood: it moves beta[Intercept]" in line
    (note,) = certificate.notes
    assert note.startswith("the prior that was given decides about beta[Intercept], beta[area]")
    wide = gaussian(prior=normal(scale=1e6))
    assert compute(store, wide).certificate["warnings"] == []
