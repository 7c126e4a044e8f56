"""Priors as text: ``normal(0, 1)`` and ``NAME=PRIOR``."""

from __future__ import annotations

from typing import Any

import pytest

from streammc import priors
from streammc.errors import ConfigError
from streammc.priors import parse, parse_item
from streammc.priors.densities import FAMILIES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("normal(0, 1)", priors.normal(location=0.0, scale=1.0)),
        ("normal(scale=2)", priors.normal(scale=2.0)),
        (" Normal ( scale = 2e0 , location=-.5 ) ", priors.normal(2.0, location=-0.5)),
        ("student_t(3, 0, 2.5)", priors.student_t(3.0, 0.0, 2.5)),
        ("student-t(scale=2.5, df=3)", priors.student_t(3.0, 0.0, 2.5)),
        ("laplace(scale=1)", priors.laplace(scale=1.0)),
        ("uniform(-1, 1e2)", priors.uniform(-1.0, 100.0)),
        ("flat", priors.flat()),
        ("flat()", priors.flat()),
        ("half-normal(2)", priors.half_normal(2.0)),
        ("half_cauchy(2)", priors.half_cauchy(2.0)),
        ("half-student-t(3, 10)", priors.half_student_t(3.0, 10.0)),
        ("gamma(2, 0.1)", priors.gamma(2.0, 0.1)),
        ("inverse_gamma(3, 2)", priors.inverse_gamma(3.0, 2.0)),
        ("lognormal(0, 1)", priors.lognormal(0.0, 1.0)),
        ("exponential(1)", priors.exponential(1.0)),
    ],
)
def test_text_gives_the_prior(text: str, expected: Any) -> None:
    assert expected == parse(text)


def test_every_builder_has_a_text_form() -> None:
    builders = {name for name in priors.__all__ if name.islower()}
    others = {"as_prior", "fixed_priors", "from_description", "parse", "parse_item"}
    assert builders - others == set(FAMILIES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a prior such as"),
        ("3", "expected a prior such as"),
        ("normal(0, 1", "expected a prior such as"),
        ("normal(0, 1))", "expected a prior such as"),
        ("normal(0, (1))", "expected a prior such as"),
        ("norml(0, 1)", "unknown prior 'norml' .* did you mean 'normal'"),
        ("zzz", "choose from normal, "),
        ("__import__('os')", "expected a prior such as"),
        ("eval(1)", "unknown prior 'eval'"),
        ("normal(2)", r"give all its numbers, or name them"),
        ("normal(0, 1, 2)", "name the numbers"),
        ("normal(0, scale=1)", "give all its numbers"),
        ("normal(scale=1, 0)", "name the numbers"),
        ("normal(sd=1)", "'sd' in .* no number of normal.location, scale"),
        ("normal(scale=1, scale=2)", "'scale' in .* twice"),
        ("normal(0, x)", "expected numbers in normal.location, scale., found 'x'"),
        ("normal(0, inf)", "found 'inf'"),
        ("normal(0, nan)", "found 'nan'"),
        ("normal(0, 1_0)", "found '1_0'"),
        ("normal(0, 1,)", "found ''"),
        ("normal(0, -1)", "prior scale must be a finite number above 0"),
        ("normal(0, 1e999)", "prior scale must be a finite number above 0"),
        ("laplace(location=1)", "give all its numbers"),
        ("normal", r"expected normal.location, scale., found 'normal': give all its numbers"),
        ("normal()", "give all its numbers"),
        ("normal(location=1)", "give all its numbers"),
        ("half_cauchy", "give all its numbers"),
        ("student_t(scale=1)", "expected student_t.df, location, scale., found"),
        ("uniform(2, 1)", "low below high"),
        ("flat(1)", "expected flat"),
    ],
)
def test_text_that_is_no_prior_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("normal(0, 2)", ("*", "normal(0, 2)")),
        ("normal(scale=2)", ("*", "normal(scale=2)")),
        ("*=flat", ("*", "flat")),
        ("beta[distance]=normal(0,1)", ("beta[distance]", "normal(0,1)")),
        ("beta[a=b] = normal(scale=1)", ("beta[a=b]", "normal(scale=1)")),
        ("beta[C(origin)*]=laplace(scale=0.5)", ("beta[C(origin)*]", "laplace(scale=0.5)")),
        ("sigma=half-cauchy(2.5)", ("sigma", "half-cauchy(2.5)")),
        ("normal(0, 1)=flat", ("normal(0, 1)", "flat")),
    ],
)
def test_an_item_has_a_name_and_a_prior(text: str, expected: tuple[str, str]) -> None:
    assert expected == parse_item(text)


@pytest.mark.parametrize(
    "text",
    ["", "=flat", "beta[x]=", "beta[x]=3", "beta[x]", "x=nrml(1, 2)", "x" * 20_000 + "=flat"],
)
def test_an_item_without_a_name_or_prior_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_item(text)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
