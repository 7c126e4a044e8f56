"""Arguments that are of another kind, such as a name or a data frame, are refused by name."""

from __future__ import annotations

import os
from typing import Final

from streammc.errors import ConfigError

_MARKS: Final = {
    "data set": ("fingerprint", "a data set, such as streammc.open_store(path)"),
    "model": ("prior_table", "a model, such as streammc.models.logistic()"),
    "sampler": ("describe", "a sampler, such as streammc.samplers.hmc(), or None"),
}
"""An attribute of each kind, and what to expect."""


def check_kinds(store: object, model: object = None, sampler: object = None) -> None:
    """Refuse what is of another kind; ``None`` is left to the caller.

    Raises
    ------
    ConfigError
        Saying what was expected, what was found, and how to make one of the other.
    """
    for kind, found in (("data set", store), ("model", model), ("sampler", sampler)):
        mark, expected = _MARKS[kind]
        if found is None or (hasattr(found, mark) and not isinstance(found, type)):
            continue
        raise ConfigError(f"expected {expected}, found {type(found).__name__}{_hint(kind, found)}")


def check_progress(progress: object) -> None:
    """Refuse a progress that is no function.

    Raises
    ------
    ConfigError
        If it cannot be called.
    """
    if progress is not None and not callable(progress):
        raise ConfigError(
            f"expected progress to be a function, called with counts as the work goes on, found "
            f"{progress!r}: leave it out, or give one, such as print"
        )


def _hint(kind: str, found: object) -> str:
    if kind == "data set" and isinstance(found, str | os.PathLike):
        return f": write streammc.open_store({os.fspath(found)!r})"
    if kind == "data set" and hasattr(found, "columns"):
        return ": streammc.from_table(table, response=...) makes one, with like= one for prediction"
    if callable(found):
        return ": call it, name()"
    return ": pass one"
