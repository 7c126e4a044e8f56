"""Names of runs at addresses: texts and errors show the address, not the local folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from streammc.errors import StreammcError

P = ParamSpec("P")
T = TypeVar("T")

_addresses: dict[str, str] = {}
"""Local folder of a run -> its address."""


def name_folder(folder: Path, address: str) -> None:
    """Show ``address`` in place of ``folder`` from now on."""
    _addresses[str(folder)] = address


def named(text: str) -> str:
    """Return a text with the addresses of runs in place of their local folders."""
    for folder, address in _addresses.items():
        text = text.replace(folder, address)
    return text


def named_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let the errors of a function name addresses of runs in place of their local folders."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except StreammcError as error:
            if _addresses and error.args and isinstance(error.args[0], str):
                error.args = (named(error.args[0]), *error.args[1:])
            raise

    return call
