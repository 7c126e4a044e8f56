"""Checks that arguments are a data set, a model, a sampler, control variates or a function."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Final

from streammc.errors import ConfigError
from streammc.registry import MODELS, SAMPLERS

PASS_OPTIONS: Final = """
Parameters
----------
scheduler : None, 'sync', int, str or distributed.Client
    Where full passes run: ``None``, on all cores; ``"sync"``, in this thread; a number of
    threads; a Dask cluster by its address, ``"tls://host:port"``, ``"tcp://host:port"`` on this
    machine or the scheduler's ``"FILE.json"``, or by a client; ``"local:N"``, N processes.
progress : Callable[[int, int], None] | None
    Called as ``progress(done, total)`` after every block of a full pass, in blocks; ``done``
    starts again with every pass.
"""
"""Parameters of every function that makes a full pass; see ``Dataset.reduce``."""

_MARKS: Final = {
    "data set": ("fingerprint", "a data set, such as streammc.open_store(path)"),
    "model": ("prior_table", "a model, such as streammc.models.logistic()"),
    "sampler": ("describe", "a sampler, such as streammc.samplers.hmc(), or None"),
}
"""Per kind, an attribute that identifies it, and the expected argument in messages."""


def check_kinds(store: object, *model: object, sampler: object = None) -> None:
    """Raise ConfigError unless the arguments are a data set, models, and a sampler or None."""
    arguments = [("data set", store), *(("model", each) for each in model)]
    for kind, argument in arguments if sampler is None else [*arguments, ("sampler", sampler)]:
        mark, expected = _MARKS[kind]
        if hasattr(argument, mark) and not isinstance(argument, type):
            continue
        if isinstance(argument, str) and (builder := _named(kind, argument)):
            raise ConfigError(f"expected a {kind}, found the text {argument!r}: write {builder}")
        raise ConfigError(
            f"expected {expected}, found {type(argument).__name__}{_hint(kind, argument)}"
        )


def check_control_variates(argument: object) -> None:
    """Raise ConfigError unless it is control variates or ``None``, but a path, for example."""
    if argument is not None and not hasattr(argument, "theta_star"):
        raise ConfigError(
            f"expected control variates, found {type(argument).__name__}: pass what "
            "streammc.control_variates(store, model) returned"
        )


def check_progress(progress: object) -> None:
    """Raise ConfigError if ``progress`` is neither a function nor ``None``."""
    if progress is not None and not callable(progress):
        raise ConfigError(
            f"expected progress to be a function, called with counts as the work goes on, found "
            f"{progress!r}: leave it out, or give one, such as print"
        )


def _named(kind: str, name: str) -> str | None:
    """Return the call that builds the model or sampler with the closest name, or None."""
    builders = {"model": MODELS, "sampler": SAMPLERS}.get(kind, {})
    near = get_close_matches(name.lower().replace("_", "-"), builders, n=1)
    return f"streammc.{kind}s.{near[0].replace('-', '_')}()" if near else None


def _hint(kind: str, argument: object) -> str:
    if kind == "data set" and isinstance(argument, str | os.PathLike):
        return f": write streammc.open_store({os.fspath(argument)!r})"
    if kind == "data set" and hasattr(argument, "columns"):
        return ": call streammc.from_table(table, response=...), with like= for prediction"
    if callable(argument):
        return ": call it, name()"
    return ": pass one"
