"""Check of a path given by the user: text or a path object, on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from streammc.errors import ConfigError

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


def is_address(path: object) -> bool:
    """Return whether ``path`` is text that begins with a scheme, as ``s3://`` does."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def real_place(path: str) -> str:
    """Return where a file is, without links; an address as it is."""
    return path if is_address(path) else os.path.realpath(path)


def given_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as a ``Path``, not made absolute.

    Raises
    ------
    ConfigError
        If it is a URL (whose credentials are not repeated) or cannot be a path.
    """
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
