"""Options stated once: dataclasses whose fields make signatures, command lines, jobs and records.

A field states name, type and default of an option. :func:`setting` adds the text and the bounds
that the command line and job files show; an option of Python alone is a plain field. The meaning
stands under ``Parameters`` in the docstring of the class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Real
from typing import Any, Final, ParamSpec, TypeVar, cast

from streammc.docstrings import completed, docs_of
from streammc.errors import ConfigError

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def setting(default: Any = MISSING, help: str = "", **facts: Any) -> Any:
    """Return the field of an option that the command line has, too.

    Parameters
    ----------
    default
        Default; without one the option is required.
    help
        Line of help on the command line, and description of the key in a job file.
    **facts
        ``minimum``, ``exclusiveMinimum``, ``exclusiveMaximum``, as in JSON Schema, and ``most``,
        the limit of the command line; ``key``, the table of a job file, or ``table.name``,
        several with spaces between;
        ``recorded``, false for an option that is not kept with the result; others are described
        in ``cli/options.py``, which reads them.
    """
    return field(default=default, metadata={"help": help, **facts})


@dataclass(frozen=True, kw_only=True)
class OverwriteOption:
    """Option of everything that makes an output."""

    overwrite: bool = setting(
        False, "Replace an existing output of the same kind.", environment=False, recorded=False
    )


INTERVAL: Final = 0.9
"""Default probability of intervals."""


def check_interval(interval: Any) -> None:
    """Raise ConfigError if the probability of an interval is not a number between 0 and 1."""
    number = isinstance(interval, Real) and not isinstance(interval, bool)
    if not (number and 0.0 < interval < 1.0):
        raise ConfigError(
            f"expected an interval between 0 and 1, found {interval!r}: give a number such as 0.9"
        )


@dataclass(frozen=True, kw_only=True)
class IntervalOption:
    """Option of everything that shows or returns intervals.

    Parameters
    ----------
    interval
        Probability of the intervals, between 0 and 1, with equal tails: 0.9 leaves 5 % of the draws
        out on each side.
    """

    interval: float = setting(
        INTERVAL,
        "Probability of the intervals.",
        exclusiveMinimum=0,
        exclusiveMaximum=1,
        key="predict report",
        recorded=False,
    )


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """Options of everything that makes full passes.

    Parameters
    ----------
    scheduler : None, 'sync', int, str or distributed.Client
        Where full passes run: ``None``, on all cores; ``"sync"``, in this thread; a number of
        threads; a Dask cluster by its address, ``"tls://host:port"``, ``"tcp://host:port"`` on this
        machine or the scheduler's ``"FILE.json"``, or by a client; ``"local:N"``, N processes.
    """

    scheduler: Any = setting(
        None,
        "Where full passes run: sync, a number of local threads, tcp://HOST:PORT, "
        "tls://HOST:PORT, a scheduler's FILE.json, or local:N processes.",
        metavar="S",
    )


def stated_fields(settings: Any) -> list[Field[Any]]:
    """Return the fields of a settings class: its own first, then those of its bases."""
    known = {each.name: each for each in fields(settings)}
    bases = settings.__mro__ if isinstance(settings, type) else type(settings).__mro__
    names = dict.fromkeys(name for base in bases for name in inspect.get_annotations(base))
    return [known[name] for name in names if name in known]


def values_of(settings: Any, kind: type) -> dict[str, Any]:
    """Return the values of settings that the class ``kind`` has, too, by name."""
    known = {each.name for each in fields(settings)}
    return {each.name: getattr(settings, each.name) for each in fields(kind) if each.name in known}


def recorded(settings: Any, **resolved: Any) -> dict[str, Any]:
    """Return the values of settings that are kept with a result; ``resolved`` replaces some."""
    kept = [each.name for each in stated_fields(settings) if each.metadata.get("recorded", True)]
    return {name: resolved.get(name, getattr(settings, name)) for name in kept}


def called_with(settings: Callable[P, S]) -> Callable[[Callable[[S], R]], Callable[P, R]]:
    """Return a decorator: the function of a settings object is called with the object's fields.

    Signature and help of the function are those of the settings class and its bases. A class may
    have ``SAME``, names that other programs have for its fields, which are taken for them, and
    ``ELSEWHERE``, names that are answered with what to write.
    """
    kind = cast(Any, settings)
    same, elsewhere = getattr(kind, "SAME", {}), getattr(kind, "ELSEWHERE", {})
    order = {each.name: place for place, each in enumerate(stated_fields(kind))}
    made = inspect.signature(kind)
    parameters = sorted(made.parameters.values(), key=lambda each: (each.kind, order[each.name]))

    def decorate(function: Callable[[S], R]) -> Callable[P, R]:
        signature = made.replace(
            parameters=parameters, return_annotation=inspect.signature(function).return_annotation
        )

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            named = {same.get(name, name): value for name, value in kwargs.items()}
            foreign = next((name for name in kwargs if name in elsewhere), None)
            if foreign is not None:
                raise TypeError(
                    f"{function.__name__}(): expected a name of streammc, found {foreign!r}: "
                    f"write {elsewhere[foreign]}"
                )
            if len(named) < len(kwargs):
                twice = next(ours for name, ours in same.items() if {name, ours} <= {*kwargs})
                raise TypeError(
                    f"{function.__name__}(): expected {twice!r} once, found it under another name "
                    "too: leave out one"
                )
            try:
                given = signature.bind(*args, **cast(Any, named))
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(kind(**given.arguments))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = completed(signature, [function.__doc__, *docs_of(kind)])
        return call

    return decorate
