"""Connections to a cluster: to one that exists, or to worker processes on this machine."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from streammc.errors import BusyError, ConfigError, StreammcError, UnavailableError
from streammc.owner_mark import Prefix, mark
from streammc.stores.cluster.scheduler_address import ClusterAddress, names_cluster, scheduler_url

_open: dict[ClusterAddress, Any] = {}
"""Clients that are kept until :func:`close_all`, by address."""
_started: dict[ClusterAddress, tuple[Any, TemporaryDirectory[str]]] = {}
"""Clusters of ``local:N`` that this process has started, with their temporary folders."""
_keeping = False
_START_SECONDS: Final = 60.0


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
    BusyError
        If the scheduler goes away while the client is used, whatever it was used for.
    """
    client = None
    try:
        with _client_of(scheduler) as client:
            yield client
    except BaseException as error:  # of its use, or of its end
        if client is not None and _is_lost(error):
            raise gone(client) from error
        raise


def gone(client: Any) -> BusyError:
    """Return the error for a scheduler that went away."""
    return BusyError(
        f"expected the scheduler {client.scheduler.address} until the end, found it gone: start it "
        "again, then give the same command again"
    )


def _is_lost(error: BaseException) -> bool:
    """Return whether an error is one of distributed for a scheduler that went away."""
    from asyncio import CancelledError

    from distributed.comm.core import CommClosedError

    if isinstance(error, StreammcError):
        return False
    lost = (CommClosedError, CancelledError, ConnectionError)
    if isinstance(error, OSError) and error.errno is None:  # its own have no number
        return str(error).startswith("Timed out trying to connect to") or isinstance(error, lost)
    return isinstance(error, lost) or type(error).__name__ == "FutureCancelledError"


@contextmanager
def _client_of(scheduler: Any) -> Iterator[Any]:
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
        _quieten()
    _keeping = True


def _quieten() -> None:
    """Let no traceback of a connection come before the error that says the same in one line."""
    import dask.config

    if not any(dask.config.get(name, None) for name in ("logging", "distributed.logging")):
        dask.config.set(logging={"distributed.client": "critical"})


def close_all() -> None:
    """Close all connections that were kept, and the workers that were started."""
    global _keeping
    _keeping = False
    while _open:
        _close(*_open.popitem())


def _close(address: ClusterAddress, client: Any) -> None:
    client.close()
    if address in _started:
        cluster, scratch = _started.pop(address)
        try:
            cluster.close()
        finally:
            scratch.cleanup()


def _connect(address: ClusterAddress) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "a scheduler address needs the package distributed: pip install distributed"
        ) from error
    if address.local_workers:
        return _start_workers(address)
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


def _start_workers(address: ClusterAddress) -> Any:
    """Start the workers of ``local:N``; return a client of theirs."""
    import dask
    from distributed import Client, LocalCluster

    # In dask's own folder a lock and an empty folder would stay behind.
    prefix: Prefix = "streammc-workers-"
    scratch = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    mark(Path(scratch.name))
    with dask.config.set({"temporary-directory": scratch.name}):
        cluster = LocalCluster(
            n_workers=0,  # none before close_all() knows of them: a signal may come at any time
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would listen on the port 8787
            silence_logs=50,
        )
        _started[address] = cluster, scratch
        client = Client(cluster, set_as_default=False)
        try:
            cluster.scale(address.local_workers)
            client.wait_for_workers(address.local_workers, timeout=_START_SECONDS)
        except TimeoutError:
            pass  # those that are there do the work, and none is an error of the pass
        except BaseException:
            _close(address, client)
            raise
    return client
