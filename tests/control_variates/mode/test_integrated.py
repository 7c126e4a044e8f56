"""Responses that the columns fit without error: a usable centre, or a refusal with a remedy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc.control_variates import compute
from streammc.errors import ModelError
from streammc.models import gaussian, student_t
from streammc.priors import gamma, half_student_t, inverse_gamma, normal
from streammc.stores import from_arrays

PRIOR = {"*": normal(scale=10.0), "sigma": half_student_t(3, 10.0)}
builds = pytest.mark.parametrize("build", [gaussian, student_t])
RNG = np.random.default_rng(0)
COLUMNS = np.c_[np.ones(50), RNG.normal(size=(50, 2))]
WIDE = RNG.normal(size=(5, 8))


@builds
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((50, 1)), np.full(50, 3.0)),
        (np.ones((50, 1)), np.zeros(50)),
        (np.ones((50, 1)), np.full(50, 1e5)),
        (np.ones((2, 1)), np.full(2, 3.0)),
        (COLUMNS, COLUMNS @ [1.0, 2.0, 3.0]),
        (1e6 * COLUMNS, COLUMNS @ [1.0, 2.0, 3.0]),
        (np.vstack([WIDE, WIDE]), np.tile(np.arange(5.0), 2)),
    ],
    ids=["constant", "zero", "large", "two", "perfect", "large columns", "repeated rows"],
)
def test_an_improper_posterior_is_refused_with_a_remedy_that_helps(build, X, y):
    with pytest.raises(ModelError, match=r"improper at sigma = 0; .*sigma=inverse_gamma\(2, 1\)"):
        compute(from_arrays(X, y), build(PRIOR))
    remedy = build({**PRIOR, "sigma": inverse_gamma(2, 1)})
    assert compute(from_arrays(X, y), remedy).certificate["converged"]


def test_a_weight_counts_as_rows():
    store = from_arrays(np.ones((1, 1)), np.array([3.0]), weight=np.array([2.0]))
    with pytest.raises(ModelError, match="total weight 2 for 1 independent"):
        compute(store, gaussian(PRIOR))
    assert compute(store, gaussian({**PRIOR, "sigma": gamma(2.5, 1.0)})).certificate["converged"]


def test_a_small_residual_is_no_exact_fit():
    rng = np.random.default_rng(3)
    y = 1e9 + rng.normal(size=200)
    found = compute(
        from_arrays(np.ones((200, 1)), y), gaussian({"*": normal(location=1e9, scale=100.0)})
    )
    assert np.exp(found.theta_star[1]) == pytest.approx(y.std(), rel=0.02)


@builds
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((1, 1)), np.array([3.0])),
        (np.ones((1, 1)), np.array([1e5])),
        (WIDE, np.arange(5.0)),
        (WIDE[:2], np.array([3.0, 3.0])),
    ],
    ids=["one row", "one large row", "more columns than rows", "two rows"],
)
def test_a_proper_posterior_has_a_centre(build, X, y):
    found = compute(from_arrays(X, y), build(PRIOR))
    assert found.certificate["converged"]
    assert any("fit the response without error" in line for line in found.certificate["warnings"])
    assert np.isfinite(found.factor).all()


def test_the_centre_is_at_the_mode_of_the_scale_alone():
    y = np.arange(5.0)
    found = compute(from_arrays(WIDE, y), gaussian(PRIOR))
    logs = np.linspace(-6.0, 4.0, 2001)
    marginal = [
        stats.multivariate_normal.logpdf(y, np.zeros(5), 100 * WIDE @ WIDE.T + s * s * np.eye(5))
        + stats.t.logpdf(s / 10.0, 3)
        + np.log(s)
        for s in np.exp(logs)
    ]
    assert abs(found.theta_star[8] - logs[np.argmax(marginal)]) < 0.4
    mass = np.exp(marginal - np.max(marginal))
    mass /= mass.sum()
    sd = np.sqrt(mass @ (logs - mass @ logs) ** 2)
    assert abs(found.factor[8, 8] / sd - 1.0) < 0.2
    s2 = np.exp(2.0 * found.theta_star[8])
    given = 100 * WIDE.T @ np.linalg.solve(100 * WIDE @ WIDE.T + s2 * np.eye(5), y)
    np.testing.assert_allclose(found.theta_star[:8], given, rtol=1e-6)
