from __future__ import annotations

from typing import Any

import click
import pytest

from streammc.cli.values import KeyValue, Limits, LocalPath, Names, PositiveNumber, WholeNumber


def convert(kind: Any, text: Any) -> Any:
    return kind.convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "1e3", "nan", "", "10" * 20, "101", "auto"])
def test_whole_numbers_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(WholeNumber(1, 100), text)


def test_whole_numbers_are_converted() -> None:
    assert 100 == convert(WholeNumber(1, 100), "100")
    assert convert(WholeNumber(1, auto=True), "auto") is None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "x", "", "1e999"])
def test_numbers_that_are_not_positive_and_finite_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(PositiveNumber(), text)


def test_positive_numbers_are_converted() -> None:
    assert 1e-3 == convert(PositiveNumber(), "1e-3")
    assert convert(PositiveNumber(auto=True), "auto") is None


def test_urls_are_refused_without_their_credentials() -> None:
    with pytest.raises(click.BadParameter) as caught:
        convert(LocalPath(), "s3://key:secret@bucket/x")
    assert "s3://" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 5000])
def test_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(LocalPath(), text)


def test_names_may_hold_commas_in_quotes() -> None:
    assert ("a", "b,c", "d e") == convert(Names(), 'a,"b,c", d e')


@pytest.mark.parametrize("text", ["", "a,,b", "a,a"])
def test_names_are_neither_empty_nor_repeated(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(Names(), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jitter=0.1", ("jitter", 0.1)),
        ("order=1", ("order", 1)),
        ("certainty=false", ("certainty", False)),
        ("step-size=auto", ("step_size", None)),
        ("variance=paper", ("variance", "paper")),
        ("x=a=b", ("x", "a=b")),
    ],
)
def test_option_values_are_converted_to_number_boolean_or_text(
    text: str, expected: tuple[str, Any]
) -> None:
    assert expected == convert(KeyValue(), text)


@pytest.mark.parametrize("text", ["jitter", "=1", ""])
def test_options_need_key_and_value(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(KeyValue(), text)


def test_limits_of_the_check_are_converted() -> None:
    assert {"rhat": 1.01, "ess": 400.0} == convert(Limits(), "rhat=1.01, ess=400")


@pytest.mark.parametrize("text", ["", "rhat", "rhat=x", "rhat=0", "k=1", "ess=1,ess=2"])
def test_invalid_limits_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(Limits(), text)
