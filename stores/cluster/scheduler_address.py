"""Addresses of Dask clusters as text, and which of them are safe to use.

Without TLS everyone who reaches a scheduler can run code on its workers and read what they send. A
plain address is therefore used only on the loopback interface, unless the user insists.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from streammc.errors import ConfigError, MissingError

_LARGEST: Final = 1 << 20
_URL: Final = re.compile(r"(tcp|tls)://(\[[^\]]+\]|[^:/@\[\]]+):([0-9]{1,5})/?")
_LOCAL: Final = re.compile(r"local:([1-9][0-9]{0,3})")


@dataclass(frozen=True)
class ClusterAddress:
    """Address of a cluster: ``tcp://``, ``tls://``, a scheduler file, or ``local:N``.

    Attributes
    ----------
    text
        As it was given.
    insecure
        Whether a plain ``tcp://`` address that is not loopback may be used.
    """

    text: str
    insecure: bool = False

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    @property
    def local_workers(self) -> int:
        """Worker processes to start on this machine; 0 for a cluster that exists."""
        found = _LOCAL.fullmatch(self.text)
        return int(found[1]) if found else 0


def names_cluster(text: str) -> bool:
    """Return whether a text is meant as the address of a cluster."""
    return text.startswith(("tcp://", "tls://", "local:")) or text.endswith(".json")


def scheduler_url(address: ClusterAddress) -> str:
    """Return the ``tcp://`` or ``tls://`` address of an existing scheduler.

    Raises
    ------
    ConfigError
        If it is no address, or a plain one that is not loopback.
    MissingError
        If the scheduler file does not exist.
    """
    url = address.text
    if not url.startswith(("tcp://", "tls://")) and url.endswith(".json"):
        url = _of_file(url)
    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(
            f"expected a scheduler tcp://HOST:PORT, tls://HOST:PORT, FILE.json or local:N, found "
            f"{url[:100]!r}: give one of them"
        )
    if match[1] == "tcp" and not address.insecure and not is_loopback(match[2]):
        raise ConfigError(
            f"expected TLS to a scheduler on another machine, found {url!r}: everyone on the way "
            "could run code there; use tls:// with the certificates of dask's configuration, or "
            "--insecure-cluster (in Python a distributed.Client)"
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its loopback interface."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _of_file(path: str) -> str:
    """Return the address in a scheduler file, as ``dask scheduler --scheduler-file`` writes it."""
    if not os.path.lexists(path):
        raise MissingError(
            f"expected a scheduler file at {path!r}, found nothing: check the path, or start the "
            "scheduler with --scheduler-file"
        )
    found: Any = None
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(_LARGEST)).get("address")
    except (OSError, ValueError, AttributeError):
        pass
    if not isinstance(found, str):
        raise ConfigError(
            f"expected the JSON of a Dask scheduler with its address in {path!r}, found something "
            "else: give the file that 'dask scheduler --scheduler-file' wrote"
        )
    return found
