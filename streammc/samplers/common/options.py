"""Builders of samplers from dataclasses of options, and checks of options."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, update_wrapper
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from streammc.docstrings import completed
from streammc.errors import ConfigError

# Builders of samplers: the functions ``hmc``, ``hmc_ecs``, ... of ``streammc.samplers``.
#
# Name, type and default of an option are given once, as a field of a dataclass; its meaning is
# given under ``Parameters`` in the docstring of the same class, or in :data:`_SHARED`. A sampler
# inherits both. :func:`builder` combines them into the signature and the docstring of the function
# that a user calls.


P = ParamSpec("P")
T = TypeVar("T")

_SHARED: Final = """
Parameters
----------
unit_rows
    Rows of a unit, b: neighbours in the store, drawn together. ``None``: 1, or more if the store
    exceeds free memory and longer runs are read faster.
certainty
    Whether the rows with the largest remainders are always evaluated, in addition to the
    subsample.
covariance
    Shape of the steps: ``laplace``, the covariance of the Laplace approximation, which takes
    full passes; ``identity``, units of theta, without a pass. ``None``: ``laplace`` if the
    likelihood is a product over rows.
path
    Density that is raised to the power ``beta_m``: the ``likelihood``, or the ``posterior``, prior
    included.
probabilities
    Probabilities with which units are drawn: ``uniform``, or in proportion to their ``scores``,
    which takes one more full pass.
start
    Value of every coordinate of theta at the first position. ``None``: the sampler draws a first
    position for each chain.
subsets
    Rows of the levels: ``nested`` subsets, each a part of that of the level before, or
    ``independent`` subsets.
"""
"""Options of samplers without a common base class; an entry in a class takes precedence."""
_RAISES: Final = """\
ConfigError
    If an option does not exist or has a value outside its range."""


def builder(cls: Callable[P, T], aliases: Mapping[str, str] | None = None) -> Callable[P, T]:
    """Return the public function that builds a sampler from its options.

    Parameters
    ----------
    cls
        Dataclass of the sampler; the function has its ``name``, and takes every field by name.
    aliases
        Other spellings of options that are not valid names of Python parameters.

    Returns
    -------
    Callable
        The builder, with the docstring of ``cls`` and the options of all base classes. For an
        unknown option it raises a ConfigError that names the known options.
    """
    sampler = cast(Any, cls)
    other = dict(aliases or {})
    known = [field.name for field in fields(sampler)]

    def build(**options: Any) -> T:
        given: dict[str, Any] = {}
        for option, value in options.items():
            name = other.get(option, option)
            if name not in known:
                near = get_close_matches(option, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
                raise ConfigError(f"unknown option {option!r} of {sampler.name}: {hint}")
            if name in given:
                first, second = (each for each in options if other.get(each, each) == name)
                raise ConfigError(
                    f"expected {first} or {second}, which are one option of {sampler.name}, "
                    "found both; leave one out"
                )
            given[name] = value
        return cast(T, sampler(**given))

    update_wrapper(build, sampler, updated=())
    build.__name__ = build.__qualname__ = sampler.name.replace("-", "_")
    signature = inspect.signature(sampler).replace(return_annotation=sampler)
    build.__signature__ = signature  # type: ignore[attr-defined]
    bases = [vars(base).get("__doc__") for base in sampler.__mro__[:-1]]
    build.__doc__ = completed(signature, [*bases, _SHARED], _RAISES)
    return cast(Callable[P, T], build)


NONE: Final = "none"
LAPLACE: Final = "laplace"
RANDOM_WALK: Final = "random-walk"
DEFAULT_LENGTH: Final = math.pi / 2
"""Length of a trajectory: in a Gaussian posterior the end of a quarter period is independent
of its start."""


def check_counts(sampler: object, *names: str, least: int = 1) -> None:
    """Raise ConfigError unless these options are ``None`` or whole numbers from ``least`` on."""
    for name in names:
        value = getattr(sampler, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            wanted = "positive whole number" if least == 1 else f"whole number of {least} or more"
            raise ConfigError(
                f"{name} must be a {wanted}, found {value!r}: give one, or leave it out"
            )


def is_number(value: object) -> bool:
    """Return whether an option is a finite number; a bool is not a number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the types of the options of a dataclass, by name."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cast(Any, cls))}


def check_types(sampler: object) -> None:
    """Raise ConfigError for an option that is not one of the values of its type.

    Checked are words and numbers of a ``Literal``, ``bool``, and ``None`` where it has no meaning.
    """
    for name, hint in _hints(cast(Any, type(sampler))).items():
        value = getattr(sampler, name)
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        choices = [each for part in parts if get_origin(part) is Literal for each in get_args(part)]
        if value is None and NoneType in parts:
            continue
        if choices and (isinstance(value, bool) or value not in choices):
            raise ConfigError(
                f"{name} must be one of {', '.join(map(str, choices))}, found {value!r}"
                ": choose one of them"
            )
        if bool in parts and not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, found {value!r}: use True or False")
        if value is None:
            raise ConfigError(f"{name} must be a number, found None: give one, or leave it out")


def check_number(option: str, value: Any, interval: str = "(-inf, inf)") -> None:
    """Raise ConfigError unless ``value`` is None or a finite number of an interval.

    Parameters
    ----------
    option
        Name of the option.
    value
        Its value.
    interval
        Such as ``(0, 1]``: a round bracket leaves the end out.
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    above, below = interval[0] == "(", interval[-1] == ")"
    inside = is_number(value) and (low < value or (not above and value == low))
    if value is None or (inside and (value < high or (not below and value == high))):
        return
    wanted = f" in {interval}"
    if high == math.inf:
        wanted = f" above {low:g}" if above else f" of {low:g} or more"
    raise ConfigError(
        f"{option} must be a finite number{wanted if low > -math.inf else ''}, found {value!r}"
        ": give one, or leave it out"
    )
