"""Connections to a cluster: to one that exists, or to worker processes on this machine."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streammc.errors import ConfigError, UnavailableError
from streammc.stores.cluster.scheduler_address import ClusterAddress, names_cluster, scheduler_url

_open: dict[ClusterAddress, Any] = {}
"""Clients that are kept until :func:`close_all`, by address."""
_started: dict[ClusterAddress, Any] = {}
"""Clusters of ``local:N`` that this process has started."""
_keeping = False


def is_cluster(scheduler: Any) -> bool:
    """Return whether a scheduler is a cluster: an address, or a ``distributed.Client``."""
    if isinstance(scheduler, ClusterAddress):
        return True
    if isinstance(scheduler, str):
        return names_cluster(scheduler)
    # A Client, without an import of distributed.
    return hasattr(scheduler, "compute") and hasattr(scheduler, "subscribe_topic")


@contextmanager
def connected(scheduler: Any) -> Iterator[Any]:
    """Yield a client of the cluster; start one only for ``local:N``.

    Raises
    ------
    ConfigError
        If the address is no address or not safe, or distributed is not installed.
    UnavailableError
        If there is no scheduler at the address.
    """
    if not isinstance(scheduler, str | ClusterAddress):
        yield scheduler
        return
    address = ClusterAddress(scheduler) if isinstance(scheduler, str) else scheduler
    if address in _open:
        yield _open[address]
        return
    client = _connect(address)
    if _keeping:
        _open[address] = client
        yield client
        return
    try:
        yield client
    finally:
        _close(address, client)


def keep_open() -> None:
    """Keep connections for the next pass, until :func:`close_all` or the end of the process."""
    global _keeping
    if not _keeping:
        atexit.register(close_all)
    _keeping = True


def close_all() -> None:
    """Close all connections that were kept, and the workers that were started."""
    global _keeping
    _keeping = False
    while _open:
        _close(*_open.popitem())


def _close(address: ClusterAddress, client: Any) -> None:
    client.close()
    cluster = _started.pop(address, None)
    if cluster is not None:
        cluster.close()


def _connect(address: ClusterAddress) -> Any:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ConfigError(
            "a scheduler address needs the package distributed: pip install distributed"
        ) from error
    if address.local_workers:
        cluster = LocalCluster(
            n_workers=address.local_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would listen on the port 8787
            silence_logs=50,
        )
        _started[address] = cluster
        return Client(cluster, set_as_default=False)
    url = scheduler_url(address)
    try:
        return Client(url, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        advice = "start one" + ", check the certificates" * url.startswith("tls")
        raise UnavailableError(
            f"expected a dask scheduler at {url!r}, found none: {advice}, or omit --scheduler"
        ) from error
    except Exception as error:  # any type: an answer in another protocol is misread
        raise UnavailableError(
            f"expected a dask scheduler at {url!r}, found something else that answers there "
            f"({type(error).__name__}): check the port; that of the dashboard is another"
        ) from error
