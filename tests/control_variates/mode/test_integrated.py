"""Responses that the columns fit without error: a usable centre, or a refusal with a remedy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from streammc import registry
from streammc.control_variates import compute
from streammc.control_variates.mode.exact_fit import exact_fit, improper_scale
from streammc.errors import ModelError
from streammc.models import gamma as gamma_regression
from streammc.models import gaussian, lognormal, poisson, student_t, weibull
from streammc.priors import exponential, gamma, half_student_t, inverse_gamma, normal
from streammc.protocols import Rows
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


GROUP = np.repeat(np.arange(6), [1, 2, 3, 4, 5, 6])
LEVEL = np.array([3.1, 0.7, 2.2, 5.0, 1.3, 4.4])
X = np.c_[np.ones(21), np.random.default_rng(4).normal(size=21)]


def in_groups(y, group=GROUP, columns=X, **more):
    names = ["Intercept", "x"][: columns.shape[1]]
    return from_arrays(columns, y, groups=group, feature_names=names, **more)


def with_line(level):
    """Responses that are constant in their groups but for a line in x."""
    return level[GROUP] + 0.5 * X[:, 1]


SHAPES = {
    "constant": in_groups(LEVEL[GROUP]),
    "one value": in_groups(np.full(21, 3.0)),
    "no column": in_groups(LEVEL[GROUP], columns=X[:, :1]),
    "line": in_groups(with_line(LEVEL)),
    "offset": in_groups(LEVEL[GROUP] + 2.0 * X[:, 1], offset=2.0 * X[:, 1]),
    "weights": in_groups(LEVEL[GROUP], weight=np.resize([0.5, 0.0, 2.0], 21)),
    "pairs": in_groups(np.repeat(LEVEL, 2), np.repeat(np.arange(6), 2), X[:12]),
    "two groups": in_groups(np.repeat([1.0, 2.0], 10), np.repeat([0, 1], 10), X[:20]),
    "large": in_groups(1e6 * LEVEL[GROUP]),
}


@builds
@pytest.mark.parametrize("shape", SHAPES)
def test_a_response_that_effects_of_groups_fit_is_refused_in_one_way(build, shape):
    with pytest.raises(ModelError, match=r"effects of group do not fit .* improper at sigma = 0; "):
        compute(SHAPES[shape], build())


@pytest.mark.parametrize("shape", ["constant", "no column"])
def test_a_gamma_response_that_is_fitted_leaves_no_shape(shape):
    with pytest.raises(
        ModelError, match=r"improper at shape = infinity; .*shape=exponential\(0.1\)"
    ):
        compute(SHAPES[shape], gamma_regression())
    remedy = gamma_regression({"shape": exponential(0.1)})
    assert compute(SHAPES[shape], remedy).certificate["converged"]


def test_slopes_of_groups_fit_lines_of_their_own():
    data = in_groups(LEVEL[GROUP] + LEVEL[::-1][GROUP] * X[:, 1])
    data.groups = replace(data.groups, terms=("1", "x"), correlated=True)
    with pytest.raises(ModelError, match=r"for 11 independent columns and effects of group"):
        compute(data, gaussian())


def test_columns_in_single_precision_fit_up_to_their_rounding():
    x = X[:, 1].astype(np.float32).astype(float)
    y = LEVEL[GROUP] + 0.5 * X[:, 1]
    columns = np.c_[np.ones(21), x]
    with pytest.raises(ModelError, match="effects of group do not fit"):
        compute(in_groups(y, columns=columns), gaussian())
    noise = np.random.default_rng(5).normal(size=21)  # small beside the level alone
    found = compute(in_groups(1e7 + y + noise, columns=columns), gaussian())
    assert found.certificate["converged"]


def test_a_row_that_is_not_fitted_leaves_a_scale():
    y = LEVEL[GROUP].copy()
    y[-1] += 1.0
    assert compute(in_groups(y), gaussian()).certificate["converged"]
    with pytest.raises(ModelError, match="total weight 20 of 21 for 6 independent columns"):
        compute(in_groups(y), student_t())
    # Degrees of freedom that count the one row as much as the others together.
    assert compute(in_groups(y), student_t(df=40.0)).certificate["converged"]


def test_counts_that_are_constant_in_their_groups_have_a_posterior():
    data = in_groups(np.round(LEVEL)[GROUP])
    assert compute(data, poisson()).certificate["converged"]


def test_a_scale_whose_prior_vanishes_at_0_is_found():
    remedy = gaussian({"sigma": inverse_gamma(2, 1)})
    assert compute(SHAPES["constant"], remedy).certificate["converged"]


@pytest.mark.parametrize("name", ["beta", "inverse-gaussian", "lognormal", "weibull"])
def test_a_stated_family_that_fits_without_error_is_refused_where_it_is_improper(name):
    """Proper while the power of the prior and the rank, here 1, are above the rows."""
    model, store = registry.model(name), partial(from_arrays, y=np.full(60, 0.3))
    scale = model().residual_scale
    remedy = inverse_gamma(2, 1) if scale.power > 0.0 else exponential(0.1)
    at = {"*": normal(scale=10.0)}
    with pytest.raises(ModelError, match=rf"improper at {scale.label} = .*; give {scale.label} a"):
        compute(store(np.ones((60, 1))), model({**at, scale.label: half_student_t(3, 10.0)}))
    found = compute(store(np.ones((60, 1))), model({**at, scale.label: remedy}))
    assert found.certificate["converged"]


@pytest.mark.parametrize(("build", "rows"), [(gamma_regression, 7), (weibull, 4)])
def test_a_shape_is_improper_from_as_many_rows_as_its_tail_allows(build, rows):
    """The density of a row at an exact fit goes as shape^(1 / 2) of gamma, as shape of Weibull."""
    prior = {"*": normal(scale=10.0), "shape": half_student_t(3, 10.0)}
    for n, improper in ((rows - 1, False), (rows, True)):
        one = Rows(np.ones((n, 1)), np.full(n, 3.0), np.zeros(n), np.ones(n))
        model = build(prior)
        table = model.prior_table(("beta[x]", "shape"))
        assert improper == bool(improper_scale(model, one, table, ("beta[x]", "shape"))[1])


@pytest.mark.parametrize("build", [lognormal, weibull])
@pytest.mark.parametrize(("time", "refused"), [(2.0, True), (3.0, True), (5.0, False)])
def test_a_time_censored_after_an_exact_fit_leaves_a_posterior(build, time, refused):
    y = np.where(np.arange(60) < 10, -time, 3.0)
    rows = Rows(np.ones((60, 1)), y, np.zeros(60), np.ones(60))
    model = replace(build({"*": normal(scale=10.0), "sigma": PRIOR["sigma"]}), censored=True)
    assert refused == (exact_fit(model, rows) is not None)
