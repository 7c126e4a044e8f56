"""Paths and addresses that a user gives, and the addresses that messages show for local folders."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from streammc.errors import ConfigError, StreammcError

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


def is_address(path: object) -> bool:
    """Return whether ``path`` is text that begins with a scheme, as ``s3://`` does."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def real_place(path: str) -> str:
    """Return where a file is, without links; an address as it is."""
    return path if is_address(path) else os.path.realpath(path)


def given_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a ``Path``, not made absolute."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"expected a path, found {type(path).__name__}: give text or a pathlib.Path"
        )
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme:
        raise ConfigError(
            f"expected a path on this machine, found a URL {scheme.group(1)}://...: "
            "give a local path; only stores and runs can be at an address"
        )
    if not text or "\0" in text:
        raise ConfigError(f"expected a path, found {text[:200]!r}: give the path of a store or run")
    return Path(path)


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
