"""Builders of samplers: their signature, their help, and one description of each option."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from streammc import registry
from streammc.docstrings import entries, sections
from streammc.errors import ConfigError
from streammc.samplers.common import options
from streammc.samplers.common.options import builder


@dataclass(frozen=True, kw_only=True)
class Base:
    """Options of both.

    Parameters
    ----------
    size
        Rows.
    rate
        In seconds.
    """

    size: int | None = None
    rate: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Own(Base):
    """Sampler ``own-one``.

    Parameters
    ----------
    rate
        In hours.
    start
        Anywhere.
    """

    start: float = 0.0
    name: ClassVar[str] = "own-one"


own_one = builder(Own, {"from": "start"})


def test_help_composes_the_options_of_all_bases() -> None:
    assert (
        "Sampler ``own-one``.\n\nParameters\n----------\n"
        "size : int | None, default None\n    Rows.\n"
        "rate : float, default 1.0\n    In hours.\n"
        "start : float, default 0.0\n    Anywhere.\n\n"
        "Raises\n------\nConfigError\n"
        "    If an option does not exist or has a value outside its range."
    ) == own_one.__doc__
    assert ["size", "rate", "start"] == list(inspect.signature(own_one).parameters)
    assert "own_one" == own_one.__name__


def test_another_spelling_is_the_same_option() -> None:
    assert Own(start=2.0) == own_one(**{"from": 2.0})
    with pytest.raises(ConfigError, match="expected from or start, which are one option"):
        own_one(**{"from": 2.0, "start": 2.0})


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown option 'ratio' of own-one: did you mean 'rate'"):
        own_one(ratio=2.0)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="unknown option 'x' of own-one: choose from size, rate"):
        own_one(x=2.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", registry.SAMPLERS)
def test_a_builder_is_named_and_typed_as_its_sampler(name: str) -> None:
    build = registry.sampler(name)
    made = build()
    assert name.replace("-", "_") == build.__name__
    assert name == made.name
    assert isinstance(made, inspect.signature(build).return_annotation)
    assert build is pickle.loads(pickle.dumps(build))


def test_no_text_of_an_option_stands_twice() -> None:
    classes = {
        base
        for name in registry.SAMPLERS
        for base in type(registry.sampler(name)()).__mro__
        if base is not object
    }
    texts = [
        meaning
        for doc in [options._SHARED, *(vars(each)["__doc__"] for each in classes)]
        for _, meaning in entries(sections(doc).get("Parameters", "")).values()
    ]
    assert len(texts) > 90
    assert sorted(set(texts)) == sorted(texts)


@pytest.mark.parametrize("name", registry.SAMPLERS)
def test_every_option_is_a_keyword(name):
    options = fields(type(registry.sampler(name)()))
    assert options
    assert all(option.kw_only for option in options)
