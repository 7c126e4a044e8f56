"""Densities against scipy.stats; settings by number, sequence and label."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from streammc.errors import ConfigError
from streammc.numerics.prior import log_prior, prior_curvature
from streammc.priors import flat, normal
from streammc.protocols import Prior, Vector

LABELS = ("beta[Intercept]", "beta[age]", "beta[log size]")


def density(prior: Prior, theta: Vector) -> tuple[float, Vector, Vector]:
    """Return log density, gradient and curvature."""
    table = prior.table(LABELS)
    gradient, curvature = np.zeros(3), np.full(3, np.nan)
    value = log_prior(theta, table, gradient)
    prior_curvature(theta, table, curvature)
    return value, gradient, curvature


THETA = [np.array([0.3, -2.0, 40.0]), np.zeros(3), np.array([1e4, -1e-9, 5.0])]


@pytest.mark.parametrize("theta", THETA, ids=["some", "zero", "far"])
def test_normal_density_equals_scipy(theta: Vector) -> None:
    scale, location = np.array([10.0, 0.5, 3.0]), np.array([0.0, -1.0, 2.0])
    value, gradient, curvature = density(normal(list(scale), location=list(location)), theta)
    expected = stats.norm(location, scale).logpdf(theta).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    np.testing.assert_allclose(gradient, (location - theta) / scale**2, rtol=1e-14)
    np.testing.assert_allclose(curvature, scale**-2.0, rtol=1e-14)


def test_gradient_is_the_derivative_of_the_density() -> None:
    prior, theta = normal({"age": 0.7, "*": 2.0}, location=0.4), np.array([0.3, -2.0, 4.0])
    _, gradient, curvature = density(prior, theta)
    h = 1e-4
    for j in range(3):
        up, down = theta.copy(), theta.copy()
        up[j] += h
        down[j] -= h
        slope = (density(prior, up)[0] - density(prior, down)[0]) / (2 * h)
        bend = (density(prior, up)[1] - density(prior, down)[1]) / (2 * h)
        assert gradient[j] == pytest.approx(slope, rel=1e-8)
        assert curvature[j] == pytest.approx(-bend[j], rel=1e-8)


def test_gradient_is_added_to_the_given_array() -> None:
    gradient = np.array([1.0, 2.0, 3.0])
    log_prior(np.ones(3), normal(1.0).table(LABELS), gradient)
    np.testing.assert_array_equal([0.0, 1.0, 2.0], gradient)


def test_flat_density_is_one() -> None:
    value, gradient, curvature = density(flat(), np.array([1e6, -3.0, 0.0]))
    assert value == 0.0
    np.testing.assert_array_equal(np.zeros((2, 3)), [gradient, curvature])


def test_a_kind_that_does_not_exist_gives_nan() -> None:
    table = normal().table(LABELS)
    table[1, 0] = 77.0
    assert np.isnan(log_prior(np.zeros(3), table, np.zeros(3)))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (2.5, [2.5, 2.5, 2.5]),
        (3, [3.0, 3.0, 3.0]),
        (np.float32(0.5), [0.5, 0.5, 0.5]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        (np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        ({"beta[age]": 2.0, "*": 9.0}, [9.0, 2.0, 9.0]),
        ({"age": 2.0, "log size": 4.0, "beta[Intercept]": 1.0}, [1.0, 2.0, 4.0]),
    ],
)
def test_scale_by_number_sequence_or_label(scale: object, expected: list[float]) -> None:
    assert expected == normal(scale=scale).table(LABELS)[:, 2].tolist()  # type: ignore[arg-type]


def test_location_not_named_is_zero() -> None:
    assert [0.0, 1.5, 0.0] == normal(location={"age": 1.5}).table(LABELS)[:, 1].tolist()


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, True, "wide", None, [], {}, [[1.0]]])
def test_scale_that_is_no_positive_number_is_refused(scale: object) -> None:
    with pytest.raises(ConfigError, match="prior scale") as caught:
        normal(scale=scale)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_array_of_the_wrong_shape_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="prior scale") as caught:
        normal(scale=np.ones((30, 3)))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("location", [np.nan, np.inf, "here", [0.0, np.nan]])
def test_location_that_is_not_finite_is_refused(location: object) -> None:
    with pytest.raises(ConfigError, match="prior location"):
        normal(location=location)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ([1.0, 2.0], "must have 3 numbers, one for each of 'beta.Intercept.'.*, found 2"),
        ({"agee": 1.0, "*": 2.0}, "found 'agee', which is none: did you mean 'age'"),
        ({"age": 1.0}, "must cover every parameter, found nothing for 'beta.Intercept.', 'beta"),
        ({"age": 1.0, "beta[age]": 2.0, "*": 3.0}, "must name 'beta.age.' once, found it twice"),
    ],
)
def test_scale_that_does_not_fit_the_labels_is_refused(scale: object, message: str) -> None:
    prior = normal(scale=scale)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        prior.table(LABELS)


def test_description_is_json_and_does_not_depend_on_the_order_of_labels() -> None:
    one, other = normal({"age": 2.0, "*": 1.0}), normal({"*": 1.0, "age": 2.0})
    assert json.dumps(one.describe()) == json.dumps(other.describe())
    assert {"family": "normal", "scale": {"*": 1.0, "age": 2.0}, "location": 0.0} == one.describe()
    assert one == other
    assert hash(one) == hash(other)


def test_a_mapping_changed_afterwards_does_not_change_the_prior() -> None:
    scale = {"*": 1.0}
    prior = normal(scale)
    scale["*"] = 5.0
    assert 1.0 == prior.table(LABELS)[0, 2]
