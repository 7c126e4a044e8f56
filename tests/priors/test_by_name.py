"""Priors by name and pattern, defaults, and refusals of those that fit no parameter."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from streammc import models, priors
from streammc.errors import ConfigError
from streammc.priors import (
    NamedPriors,
    as_prior,
    flat,
    from_description,
    gamma,
    half_cauchy,
    half_normal,
    half_student_t,
    laplace,
    normal,
    student_t,
    uniform,
)

LABELS = (
    "beta[Intercept]",
    "beta[distance]",
    "beta[C(origin)[T.EWR]]",
    "beta[C(origin)[T.JFK]]",
    "beta[C(month)[T.2]]",
    "sigma",
    "nu",
)
POSITIVE = (False, False, False, False, False, True, True)
OWN = {"nu": gamma(2.0, 0.1)}
"""What a model that has such a parameter gives it."""


def fixed(mapping: dict[str, Any]) -> NamedPriors:
    """Return priors by name whose other defaults do not scale with the data."""
    return NamedPriors(as_prior(mapping).priors)


def row(prior: Any, label: str, positive: bool = False) -> list[float]:
    return prior.rows([label], [positive])[0].tolist()


def check(mapping: dict[str, Any], **expected: Any) -> None:
    """Compare the table of a mapping with the prior expected at each position."""
    table = fixed(mapping).table(LABELS, POSITIVE, OWN)
    default = [normal(10.0)] * 5 + [half_student_t(3.0, 10.0), gamma(2.0, 0.1)]
    for key, prior in expected.items():
        default[int(key[1:])] = prior
    for j, prior in enumerate(default):
        assert row(prior, LABELS[j], POSITIVE[j]) == table[j].tolist(), LABELS[j]


def test_parameters_that_are_not_named_have_the_default_prior() -> None:
    check({"distance": normal(1.0)}, _1=normal(1.0))


def test_single_prior_applies_to_coefficients_alone() -> None:
    table = student_t(3.0, scale=2.0).table(LABELS, POSITIVE, OWN)
    assert row(student_t(3.0, scale=2.0), "b") == table[4].tolist()
    assert row(half_student_t(3.0, 10.0), "sigma", True) == table[5].tolist()
    assert row(gamma(2.0, 0.1), "nu", True) == table[6].tolist()


def test_a_name_alone_gives_no_parameter_the_default_of_another_model() -> None:
    """A user's own ``nu`` or ``length_scale`` is a positive parameter like any other."""
    labels = ("beta[x]", "nu", "length_scale[x]", "sigma_n")
    table = normal(1.0).table(labels, (False, True, True, True))
    usual = half_student_t(3.0, 10.0)
    for j in (1, 2, 3):
        assert row(usual, labels[j], True) == table[j].tolist()


def test_names_win_over_patterns_and_longer_patterns_over_shorter() -> None:
    a, b, c, d = normal(1.0), laplace(scale=0.5), student_t(2.0, scale=3.0), flat()
    check(
        {
            "beta[C(*": a,
            "beta[C(origin)*": b,
            "beta[C(origin)[T.JFK]]": c,
            "*": d,
            "sigma": half_cauchy(2.5),
        },
        _0=d,
        _1=d,
        _2=b,
        _3=c,
        _4=a,
        _5=half_cauchy(2.5),
    )


def test_a_pattern_without_beta_is_for_coefficients() -> None:
    check({"C(origin)*": normal(1.0)}, _2=normal(1.0), _3=normal(1.0))


def test_pattern_with_a_star_in_the_middle_selects_by_prefix_and_suffix() -> None:
    both = uniform(0.0, 5.0)
    check({"beta[*T.JFK*": both, "s*a": both}, _3=both, _5=both)


def test_only_the_star_is_a_wildcard() -> None:
    for pattern in ("beta[?istance]", "beta[d.stanc*", "beta[[d]istanc*"):
        with pytest.raises(ConfigError, match=r"which fits none|which is none"):
            fixed({pattern: normal()}).table(LABELS, POSITIVE)


def test_a_column_with_a_star_in_its_name_is_named_literally() -> None:
    labels = ("beta[a*b]", "beta[aXb]")
    table = fixed({"beta[a*b]": normal(1.0)}).table(labels)
    assert [1.0, 10.0] == table[:, 2].tolist()


def test_settings_by_sequence_and_label_are_for_what_the_pattern_fits() -> None:
    table = as_prior({"C(origin)*": normal([1.0, 2.0]), "*": normal({"C(*": 3.0, "*": 4.0})}).table(
        LABELS, POSITIVE
    )
    assert [4.0, 4.0, 1.0, 2.0, 3.0] == table[:5, 2].tolist()


def test_labels_of_equal_priors_are_grouped_only_by_pattern() -> None:
    one = normal([7.0])
    table = fixed({"distance": one, "Intercept": normal([7.0])}).table(LABELS, POSITIVE)
    assert [7.0, 7.0] == table[:2, 2].tolist()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"distence": normal()}, "found 'distence', which is none: did you mean 'dist"),
        (
            {"beta[C(orgin)*": normal()},
            r"'beta\[C\(orgin\)\*', which fits none: did you",
        ),
        (
            {"distance": normal(), "beta[distance]": normal()},
            "must name 'beta.distance.' once, found it twice",
        ),
        ({"beta[C(o*": normal(), "beta[*EWR": normal()}, "'beta.*EWR', which fits none"),
        (
            {"beta[d*e]": normal(), "beta[dis*": normal()},
            "one longest pattern for 'beta.distance.', found .* of the same length",
        ),
        ({"sigma": normal()}, "'sigma' must be a density of a positive number, found normal: .*ha"),
        ({"s*": laplace(scale=1.0)}, "'sigma' must be a density of a positive number, found lapl"),
        ({"distance": half_normal(1.0)}, "'beta.distance.' must be a density on the whole line, f"),
        ({"*": half_normal(1.0)}, "'beta.Intercept.' must be a density on the whole line"),
        ({"sigma": uniform(-1.0, 2.0)}, "'sigma'"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(mapping: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        fixed(mapping).table(LABELS, POSITIVE)
    assert "\n" not in str(caught.value)


def test_a_single_prior_for_positive_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'beta.Intercept.' must be a density on the whole"):
        half_cauchy(1.0).table(LABELS, POSITIVE)


@pytest.mark.parametrize(
    ("build", "label"), [(models.student_t, "nu"), (models.negative_binomial, "phi")]
)
def test_flat_is_refused_where_the_likelihood_does_not_vanish(build: Any, label: str) -> None:
    labels = ["beta[x]", *build().scales]
    model = build(prior=dict.fromkeys(labels[1:], flat()) | {"*": normal()})
    with pytest.raises(ConfigError, match=f"the prior of '{label}' must be proper, found flat"):
        model.prior_table(labels)


def test_flat_is_allowed_on_a_parameter_that_only_has_the_name_of_another() -> None:
    labels = ["sigma", "nu", "phi"]
    rows = as_prior({label: flat() for label in labels}).table(labels, [True] * 3)
    assert [0.0] * 3 == rows[:, 4].tolist()


def test_a_flag_per_label_is_needed() -> None:
    with pytest.raises(ConfigError, match="flag for each of 7 labels, found 2"):
        normal().table(LABELS, (True, False))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({}, "empty mapping"),
        ({"distance": 2.5}, "prior of 'distance' must be built by streammc.priors, found float"),
        ({"distance": {"*": normal()}}, "prior of 'distance' must be built"),
        ({3: normal()}, "names as keys, found 3"),
        ("normal(0, 1)", "found str"),
    ],
)
def test_value_that_is_no_prior_is_refused(option: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        models.logistic(option)


def test_models_take_a_mapping() -> None:
    model = models.poisson({"distance": normal(1.0), "*": normal(10.0)})
    table = model.prior.table(model.labels(["Intercept", "distance"]))
    assert [10.0, 1.0] == table[:, 2].tolist()


def test_descriptions_round_trip_through_json() -> None:
    built = [
        normal({"a": 1.0, "*": 2.0}, location=[0.0, 1.0]),
        student_t(3.0, 0.5, 2.0),
        laplace(scale=0.5),
        uniform([0.0, 1.0], 2.0),
        flat(),
        half_cauchy(1.0),
        half_student_t(3.0, 1.0),
        priors.half_normal(1.0),
        gamma(1.0, 2.0),
        priors.inverse_gamma(1.0, 2.0),
        priors.lognormal(0.0, 2.0),
        priors.exponential(2.0),
        as_prior({"s*": half_cauchy(1.0), "*": normal({"*": 3.0}), "a": flat()}),
        as_prior(None),
        as_prior({"a": flat()}),
        NamedPriors((("beta[a]", normal(1.0)),)),
        NamedPriors((("beta[a]", normal(1.0)),), ("beta[a]",)),
    ]
    for prior in built:
        again = from_description(json.loads(json.dumps(prior.describe())))
        assert prior == again
        assert json.dumps(prior.describe()) == json.dumps(again.describe())
    assert len(built) == len({json.dumps(prior.describe()) for prior in built})


def test_the_order_of_a_mapping_does_not_matter() -> None:
    one = as_prior({"a": flat(), "*": normal()})
    assert one == as_prior({"*": normal(), "a": flat()})


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"family": "evil"},
        {"family": "normal", "x": 1},
        {"family": "by_name", "priors": 3},
        {"family": "by_name", "priors": {"a": {"family": "scaled", "priors": {}}}},
        {"family": "by_name", "priors": {}, "scaled": "a"},
    ],
)
def test_description_of_an_unknown_prior_is_refused(description: Any) -> None:
    with pytest.raises(ConfigError):
        from_description(description)


def test_the_table_is_contiguous_float64() -> None:
    table = fixed({"sigma": half_cauchy(1.0)}).table(LABELS, POSITIVE)
    assert (7, 5) == table.shape
    assert np.float64 == table.dtype
    assert table.flags.c_contiguous


def test_normal_takes_location_and_scale_as_its_text_does() -> None:
    assert normal(0, 5) == normal(scale=5) == priors.parse("normal(0, 5)") == normal(5)
    assert normal(1.0, 2.0) == normal(2.0, location=1.0)
    for given, named in (
        ((1, 2, 3), {}),
        ((1, 2), {"scale": 3}),
        ((1,), {"scale": 2}),
        ((), {"sd": 1}),
    ):
        with pytest.raises(
            ConfigError, match="expected normal\\(scale\\), normal\\(location, scale"
        ):
            normal(*given, **named)


def test_priors_are_shown_as_the_calls_that_make_them() -> None:
    assert repr(student_t(3, 0, 2.5)) == "student_t(df=3, location=0, scale=2.5)"
    assert repr(normal([1.0] * 9)) == "normal(location=0, scale=[1, 1, 1, 1, ...])"
    assert repr(normal({"beta[a]": 2.0, "*": 1.0})).startswith("normal(location=0, scale={'")
    many = as_prior({f"beta[x{j}]": normal() for j in range(500)})
    assert len(repr(many)) < 400
    assert repr(many).endswith("500 in all})")
    assert len(repr(models.logistic(prior=many))) < 500
