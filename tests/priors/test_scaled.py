"""Default priors in the units of the data, computed from rows in memory."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from streammc import models
from streammc.errors import ConfigError
from streammc.models import user
from streammc.numerics.prior import LOCATION, SCALE
from streammc.priors import ScaledPriors, normal, parse
from streammc.priors.scaled import with_defaults
from streammc.priors.text import prior_texts
from streammc.protocols import Rows

N = 200
NAMES = ["Intercept", "x", "d"]


def data(
    location: float = 170.0, mean: float = 10.0, share: float = 0.02, sd: float = 7.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = mean + rng.normal(size=N)
    d = np.arange(N) < share * N
    y = location + sd * (0.6 * (x - mean) + 0.8 * rng.normal(size=N))
    return np.c_[np.ones(N), x, d], y


def rows(X: Any, y: Any = None, offset: Any = 0.0, weight: Any = 1.0) -> Rows:
    n = len(X)
    full = [np.zeros(n) + np.asarray(part, float) for part in (offset, weight)]
    return Rows(np.asarray(X, float), np.zeros(n) if y is None else np.asarray(y, float), *full)


def table(model: Any, at: Rows, names: Any = NAMES) -> np.ndarray:
    """Return location and scale of every parameter."""
    built = with_defaults(model, at, names)
    labels = built.labels(names)
    flags = built.support_flags(labels)
    return built.prior.table(labels[: len(flags)], flags)[:, [LOCATION, SCALE]]


def texts(model: Any, at: Rows, names: Any = NAMES) -> dict[str, str]:
    built = with_defaults(model, at, names)
    labels = built.labels(names)
    return prior_texts(
        built.prior, labels, built.support_flags(labels), built.fixed_defaults(labels)
    )


def test_gaussian_defaults_are_in_units_of_response_and_columns() -> None:
    X, y = data()
    found = texts(models.gaussian(), rows(X, y))
    slope = float(f"{2.5 * y.std() / X[:, 1].std():.3g}")
    unit = float(f"{2.5 * y.std():.3g}")
    dummy = float(f"{math.sqrt(2.0) * unit:.3g}")  # the difference of two effects of that unit
    wide = math.hypot(unit, slope * X[:, 1].mean(), dummy * X[:, 2].mean())
    prior = dict(parse(found["beta[Intercept]"]).settings)
    assert y.mean() == pytest.approx(prior["location"], abs=0.01 * wide)
    assert wide == pytest.approx(prior["scale"], rel=0.005)
    assert f"normal(0, {slope:g})" == found["beta[x]"]
    assert f"normal(0, {dummy:g})" == found["beta[d]"]
    assert f"half_student_t(3, {unit:g})" == found["sigma"]


@pytest.mark.parametrize("build", [models.gaussian, models.student_t])
@pytest.mark.parametrize("factor", [1e-6, 1e6, 3.7])
def test_defaults_follow_the_units_of_the_response(build: Any, factor: float) -> None:
    X, y = data()
    plain, moved = table(build(), rows(X, y)), table(build(), rows(X, factor * y))
    rtol = 1e-12 if math.log10(factor).is_integer() else 0.01
    np.testing.assert_allclose(moved[:3], factor * plain[:3], rtol=rtol)
    assert factor * plain[3, 1] == pytest.approx(moved[3, 1], rel=rtol)
    np.testing.assert_array_equal(moved[4:], plain[4:])  # nu has no unit


@pytest.mark.parametrize("build", [models.gaussian, models.logistic, models.poisson])
@pytest.mark.parametrize("factor", [1e-6, 1e6, 3.7])
def test_defaults_follow_the_units_of_a_column(build: Any, factor: float) -> None:
    X, y = data(3.0, sd=1.0)
    y = y if build is models.gaussian else np.round(np.clip(y - 2.0, 0.0, 1.0))
    other = X * [1.0, factor, 1.0]
    plain, moved = table(build(), rows(X, y)), table(build(), rows(other, y))
    rtol = 1e-12 if math.log10(factor).is_integer() else 0.01
    assert plain[1, 1] == pytest.approx(factor * moved[1, 1], rel=rtol)
    keep = [0, 2]
    np.testing.assert_allclose(moved[keep], plain[keep], rtol=rtol)


def test_rare_dummy_has_the_scale_of_its_range() -> None:
    X, y = data(share=0.005)
    wide = 2.5 * math.sqrt(2.0) * y.std()
    assert wide == pytest.approx(table(models.gaussian(), rows(X, y))[2, 1], rel=0.005)
    centred = X - [0.0, *X[:, 1:].mean(axis=0)]
    scaled = centred / [1.0, *centred[:, 1:].std(axis=0)]  # as a standardised store has it
    expected = wide * centred[:, 2].std()
    found = table(models.gaussian(), rows(scaled, y))[2, 1]
    assert expected == pytest.approx(found, rel=0.005)


def test_constant_column_beside_an_intercept_has_scale_one() -> None:
    X, y = data()
    found = table(models.logistic(), rows(np.c_[X[:, :2], np.full(N, 1e4)], y > 170.0))
    assert [0.0, 2.5] == found[2].tolist()


def test_first_constant_column_without_a_name_is_an_intercept() -> None:
    _, y = data()
    found = table(models.gaussian(), rows(np.full((N, 1), 2.0), y), ["a"])
    assert y.mean() / 2.0 == pytest.approx(found[0, 0], abs=0.1)
    assert 2.5 * y.std() / 2.0 == pytest.approx(found[0, 1], rel=0.005)


def test_slopes_without_an_intercept_reach_the_mean_of_the_response() -> None:
    X, y = data()
    found = table(models.gaussian(), rows(X[:, 1:], y), ["x", "d"])
    reach = math.hypot(y.mean(), y.std())
    assert 2.5 * reach / X[:, 1].std() == pytest.approx(found[0, 1], rel=0.005)


@pytest.mark.parametrize("mean", [0.0, 1e3])
def test_intercept_is_as_wide_as_uncentred_columns_need(mean: float) -> None:
    X, y = data(mean=mean)
    slope = 3.0 * y.std()
    found = table(models.gaussian(), rows(X, y))
    at_zero = y.mean() - slope * mean  # where the line of that slope meets x = 0
    assert abs(at_zero - found[0, 0]) < 3.0 * found[0, 1]


def test_location_has_the_digits_that_its_scale_needs() -> None:
    y = 123_456.789 + np.random.default_rng(2).normal(size=N)
    found = table(models.gaussian(), rows(np.ones((N, 1)), y), ["a"])
    assert abs(found[0, 0] - y.mean()) < 0.01 * found[0, 1]
    assert found[0, 1] < 3.0


@pytest.mark.parametrize("size", [1e6, 1e12])
@pytest.mark.parametrize("build", [models.poisson, models.negative_binomial])
def test_log_links_start_at_the_log_of_the_mean_rate(build: Any, size: float) -> None:
    X, _ = data(mean=0.0)
    exposure = np.log(np.linspace(1.0, 3.0, N))
    y = np.round(size * np.exp(exposure))
    found = table(build(), rows(X, y, exposure))
    assert math.log(size) == pytest.approx(found[0, 0], abs=0.05)
    assert found[0, 1] >= 5.0


def test_rare_events_do_not_move_the_intercept_to_nought() -> None:
    X, _ = data(mean=0.0)
    y = np.arange(N) == 7
    for build, expected in (
        (models.logistic, math.log(1.0 / (N - 1.0))),
        (models.binomial, math.log(1.0 / (N - 1.0))),
        (models.poisson, math.log(1.0 / N)),
    ):
        assert expected == pytest.approx(table(build(), rows(X, y))[0, 0], abs=0.05)


def test_offset_is_taken_from_the_response() -> None:
    X, y = data()
    offset = 1000.0 * np.sin(np.arange(N))
    plain = table(models.gaussian(), rows(X, y))
    np.testing.assert_allclose(table(models.gaussian(), rows(X, y + offset, offset)), plain)


@pytest.mark.parametrize("build", [models.gaussian, models.logistic, models.poisson, models.probit])
def test_weights_count_as_repeated_rows_and_have_no_unit(build: Any) -> None:
    X, y = data()
    y = y if build is models.gaussian else (y > 175.0) * 1.0
    times = 1 + np.arange(N) % 3
    repeated = rows(np.repeat(X, times, axis=0), np.repeat(y, times))
    expected = table(build(), repeated)
    for unit in (1.0, 1e-12, 1e12):
        found = table(build(), rows(X, y, weight=unit * times))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("build", [models.logistic, models.probit, models.poisson])
def test_responses_that_are_all_alike_have_a_finite_intercept(build: Any) -> None:
    ends = (0.0, 1.0) if build is not models.poisson else (0.0,)
    for end in ends:
        found = table(build(), rows(np.ones((N, 1)), np.full(N, end)), ["a"])
        assert 2.0 < abs(found[0, 0]) < 8.0


@pytest.mark.parametrize("y", [[5.0], [5.0, 5.0, 5.0], [0.0], [np.nan], [np.inf, np.nan]])
@pytest.mark.parametrize("build", [models.gaussian, models.student_t, models.logistic])
def test_few_constant_or_invalid_responses_give_proper_priors(build: Any, y: Any) -> None:
    found = table(build(), rows(np.ones((len(y), 1)), y), ["a"])
    assert np.isfinite(found).all()
    assert (found[:, 1] > 0.0).all()
    no_weight = table(build(), rows(np.ones((len(y), 1)), y, weight=0.0), ["a"])
    assert np.isfinite(no_weight).all()


def test_constant_response_is_its_own_unit() -> None:
    X = np.ones((3, 1))
    plain, moved = (
        table(models.gaussian(), rows(X, np.full(3, size)), ["a"]) for size in (5.0, 5e9)
    )
    np.testing.assert_allclose(moved[0], 1e9 * plain[0], rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize(
    "build",
    [
        lambda c: models.gaussian_mean(c * c),
        lambda c: models.gaussian_mixture(3, c * c),
        lambda c: models.gaussian_mixture_free(2),
        lambda c: models.gaussian_mixture_free(2, scale=c),
    ],
)
def test_means_of_columns_follow_the_units_of_the_columns(build: Any, factor: float) -> None:
    X, _ = data()
    at, names = X[:, 1:2], ["x"]
    plain, moved = (
        table(build(1.0), rows(at), names),
        table(build(factor), rows(factor * at), names),
    )
    np.testing.assert_allclose(moved[:, 1], factor * plain[:, 1], rtol=1e-12)
    locations = [text.startswith("normal") for text in texts(build(1.0), rows(at), names).values()]
    np.testing.assert_allclose(moved[locations, 0], factor * plain[locations, 0], rtol=1e-12)
    assert at.mean() == pytest.approx(plain[0, 0], abs=0.05)


def test_ordered_means_keep_one_prior() -> None:
    X, _ = data()
    built = with_defaults(models.gaussian_mixture_free(), rows(X[:, 1:2]), ["x"])
    assert (5, 5) == built.prior_table(built.labels(["x"])).shape


def test_named_priors_stay_and_the_others_scale() -> None:
    X, y = data()
    plain = texts(models.gaussian(), rows(X, y))
    found = texts(models.gaussian({"x": normal(1.0)}), rows(X, y))
    assert {**plain, "beta[x]": "normal(0, 1)"} == found


@pytest.mark.parametrize("prior", [normal(10.0), {"*": normal(10.0)}])
def test_common_prior_leaves_no_default_to_the_data(prior: Any) -> None:
    X, y = data()
    model = models.gaussian(prior)
    assert model is with_defaults(model, rows(X, y), NAMES)
    expected = dict.fromkeys(["beta[Intercept]", "beta[x]", "beta[d]"], "normal(0, 10)")
    assert {**expected, "sigma": "half_student_t(3, 10)"} == texts(model, rows(X, y))


def test_parameters_without_a_unit_keep_fixed_defaults() -> None:
    X, y = data(3.0, sd=1.0)
    assert "gamma(2, 0.1)" == texts(models.student_t(), rows(X, y))["nu"]
    counts = texts(models.negative_binomial(), rows(X, np.round(abs(y))))
    assert "half_student_t(3, 10)" == counts["phi"]


def test_model_of_ones_own_has_slopes_of_a_link() -> None:
    X, y = data(mean=0.0)
    model = user(
        "two",
        link=lambda *_: None,
        predictors=("a", "b"),
        locations=("shift",),
        scales=("tau",),
    )
    found = texts(model, rows(X, y))
    slope = f"normal(0, {2.5 / X[:, 1].std():.3g})"
    assert [slope, slope] == [found["a[x]"], found["b[x]"]]
    assert "normal(0, 10)" == found["a[Intercept]"] == found["shift"]
    assert "half_student_t(3, 10)" == found["tau"]


def test_defaults_without_data_have_no_numbers() -> None:
    model = models.gaussian()
    assert isinstance(model.prior, ScaledPriors)
    with pytest.raises(ConfigError, match=r"prior of 'beta\[a\]' with its numbers.*resolved") as e:
        model.prior_table(model.labels(["a"]))
    assert "\n" not in str(e.value)


def test_numbers_are_those_that_are_described() -> None:
    X, y = data()
    built = with_defaults(models.gaussian(), rows(X, y), NAMES)
    described = json.loads(json.dumps(built.describe()))["prior"]
    assert ["beta[Intercept]", "beta[x]", "beta[d]", "sigma"] == described["scaled"]
    for label, text in texts(built, rows(X, y)).items():
        assert parse(text).describe() == described["priors"][label]
