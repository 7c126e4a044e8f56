"""Addresses of stores: a path on this machine, or a folder of an object store.

An address never holds credentials. One that might is refused without being repeated: a user
before ``@``, or a query, in which signatures travel.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from streammc.errors import ConfigError
from streammc.trace.addresses import given_path

SCHEMES: Final = ("s3", "gs", "az", "https", "http", "file")
_ADDRESS: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://(.*)$", re.DOTALL)
_HOST: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?$")
_LOOPBACK: Final = re.compile(r"^(127\.0\.0\.1|localhost)(:[0-9]{1,5})?$")
_ARRAYS: Final = re.compile(r"^(.*)#((?:X|y|offset|weight)=.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CloudFolder:
    """A folder of an object store: the address alone, so that it can be pickled and printed."""

    scheme: str
    bucket: str
    """Bucket or container, or ``HOST[:PORT]`` of ``https``."""
    prefix: str
    """Key of the folder, without a slash at either end."""

    def __str__(self) -> str:
        """Return the address."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    def __truediv__(self, key: str) -> CloudFolder:
        """Return the folder ``key`` in this one."""
        return CloudFolder(self.scheme, self.bucket, f"{self.prefix}/{key}".strip("/"))

    def key(self, key: str) -> str:
        """Return the whole key of the object ``key`` of this folder."""
        return f"{self.prefix}/{key}" if self.prefix and key else self.prefix or key

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.prefix.rpartition("/")[2] or self.bucket

    @property
    def listable(self) -> bool:
        """Whether the service lists the objects of a folder: a plain web server does not."""
        return self.scheme not in ("https", "http")


Root = Path | CloudFolder
"""The place of a store."""


def store_root(path: Any) -> Root:
    """Return the place that ``path`` names: an absolute path, or a folder of an object store."""
    match = _ADDRESS.match(path) if isinstance(path, str) else None
    if match is None:
        return Path(os.path.abspath(given_path(path)))
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme not in SCHEMES:
        raise ConfigError(
            "expected a path or an address s3://, gs://, az://, https:// or file://, found "
            f"{scheme}://...: give one of them"
        )
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in rest or "#" in rest:
        raise ConfigError(
            f"expected an address without credentials, query or fragment, found {scheme}://... "
            "with them: give the plain address, and credentials in the environment or a profile"
        )
    if scheme == "file":
        if bucket not in ("", "localhost"):
            raise ConfigError(
                "expected file:///PATH on this machine, found another host: give a path"
            )
        return Path(os.path.abspath(given_path("/" + unquote(prefix))))
    parts = prefix.strip("/").split("/")
    clean = rest.isprintable() and not any(part in ("..", ".") for part in parts)
    if not _HOST.match(bucket) or not clean or ("" in parts and parts != [""]):
        raise ConfigError(
            f"expected an address {scheme}://PLACE/FOLDER of plain names, found another: check it"
        )
    if scheme == "http" and not _LOOPBACK.match(bucket):
        raise ConfigError(
            "expected https://, found http:// to another machine, where anyone on the way can "
            "change rows: use https://"
        )
    return CloudFolder(scheme, bucket, "/".join(parts))


def split_arrays(path: Any) -> tuple[Any, dict[str, str]]:
    """Return a path without its fragment ``#X=NAME&y=NAME``, and the arrays that it names."""
    match = _ARRAYS.match(path) if isinstance(path, str) else None
    if match is None:
        return path, {}
    arrays: dict[str, str] = {}
    for part in match.group(2).split("&"):
        name, _, value = part.partition("=")
        parts = value.split("/")
        if name not in ("X", "y", "offset", "weight") or name in arrays or not value:
            raise ConfigError(
                "expected arrays as #X=NAME&y=NAME, with offset and weight where there are such, "
                f"found {part[:100]!r}: give each once"
            )
        if any(each in ("", ".", "..") for each in parts) or not value.isprintable():
            raise ConfigError(
                f"expected the name of an array in the group, found {value[:100]!r}: give one"
            )
        arrays[name] = value
    return match.group(1), arrays
