"""Work on a Dask cluster: its address, the connection, its workers, and tasks that may fail.

Without TLS everyone who reaches a scheduler can run code on its workers and read what they send. A
plain address is therefore used only on the loopback interface, unless the user insists.

A worker that dies is no error: the scheduler runs its tasks again on another worker, and since a
task depends on its arguments alone, the bits are the same. A worker that hangs is given up by the
scheduler after ``distributed.scheduler.worker-ttl`` (5 minutes).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from streammc.errors import (
    BusyError,
    ConfigError,
    IdentityError,
    MissingError,
    OutOfMemoryError,
    StoreError,
    StreammcError,
    UnavailableError,
)
from streammc.stores.cloud.address import store_root
from streammc.stores.format.manifest import read_manifest
from streammc.unfinished import Prefix, mark

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
        match = _LOCAL.fullmatch(self.text)
        return int(match[1]) if match else 0


def names_cluster(text: str) -> bool:
    """Return whether a text is meant as the address of a cluster."""
    return text.startswith(("tcp://", "tls://", "local:")) or text.endswith(".json")


def scheduler_url(address: ClusterAddress) -> str:
    """Return the ``tcp://`` or ``tls://`` address of an existing scheduler."""
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
    address: Any = None
    try:
        with open(path, encoding="utf-8") as file:
            address = json.loads(file.read(_LARGEST)).get("address")
    except (OSError, ValueError, AttributeError):
        pass
    if not isinstance(address, str):
        raise ConfigError(
            f"expected the JSON of a Dask scheduler with its address in {path!r}, found something "
            "else: give the file that 'dask scheduler --scheduler-file' wrote"
        )
    return address


_open: dict[ClusterAddress, Any] = {}
"""Clients that are kept until :func:`close_all`, by address."""
_started: dict[ClusterAddress, tuple[Any, TemporaryDirectory[str]]] = {}
"""Clusters of ``local:N`` that this process has started, with their temporary folders."""
_keeping = False
_START_SECONDS: Final = 60.0
CONNECT_SECONDS = 10.0


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
    """Yield a client of the cluster; start one only for ``local:N``."""
    address = None
    try:
        with _client_of(scheduler) as client:
            address = client.scheduler.address
            yield client
    except BaseException as error:  # of its use, or of its end
        if address is not None and _is_lost(error):
            raise gone(address) from error
        raise


def gone(address: str) -> BusyError:
    """Return the error for a scheduler that went away."""
    return BusyError(
        f"expected the scheduler {address} until the end, found it gone: start it again, then give "
        "the same command again"
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
        return Client(url, timeout=CONNECT_SECONDS, set_as_default=False)
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


WORKER_SECONDS = 30.0
"""Seconds that a cluster may have no worker, and that a worker may take for an answer."""
_BASE_BYTES: Final = 350 << 20
"""Memory of a worker with streammc imported and its kernels loaded."""
_CHUNKS: Final = 3
"""Chunks of every array that a thread holds at once, at most."""
_SHOWN: Final = 3


class Need(NamedTuple):
    """What tasks need of a worker, beside the versions of this process."""

    store: str | None = None
    """Path or address of a store that it must see."""
    fingerprint: str | None = None
    """Fingerprint of that store."""
    chunk_bytes: int = 0
    """Bytes of a chunk of all arrays together."""
    shared: str | None = None
    """Path of a file that it must see: its folder is shared."""


_able: WeakKeyDictionary[Any, set[tuple[str, Need]]] = WeakKeyDictionary()
"""Workers that were checked, by client, with what was asked of them."""


def require_workers(client: Any, need: Need) -> None:
    """Refuse a cluster without workers, or with one that cannot do the tasks."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError:
        raise no_worker(client) from None
    done = _able.setdefault(client, set())
    asked = list(client.scheduler_info(n_workers=-1)["workers"])
    new = [each for each in asked if (each, need) not in done]
    if not new:
        return
    specs = ask(client, find_spec, "streammc", workers=new)
    without = [worker for worker, spec in specs.items() if spec is None]
    address = client.scheduler.address
    if without:
        raise UnavailableError(
            f"expected streammc on every worker of {address}, found {len(without)} of {len(specs)} "
            f"without it ({without[0]}): install the same version there"
        )
    answers = ask(client, describe_worker, need, workers=new)
    _check_versions(answers)
    for worker, answer in answers.items():
        _check_storage(worker, answer, need)
        _check_memory(worker, answer, need)
    done.update((worker, need) for worker in answers)


def ask(client: Any, function: Any, *arguments: Any, workers: list[str]) -> dict[str, Any]:
    """Return the answer of each worker, outside of its queue of tasks; errors are answers.

    There is none of a worker that died meanwhile: one whose connection closed. A task that
    reaches it nevertheless compares versions itself.
    """
    from distributed.comm.core import CommClosedError

    try:
        answers: dict[str, Any] = client.sync(
            client._run,
            function,
            *arguments,
            workers=workers,
            on_error="return",
            callback_timeout=WORKER_SECONDS,
        )
    except TimeoutError:
        raise BusyError(
            f"expected an answer of all {len(workers)} workers of {client.scheduler.address} "
            f"within {WORKER_SECONDS:g} s, found none of some: check for workers that hang, then "
            "give the same command again"
        ) from None
    return {
        worker: answer
        for worker, answer in answers.items()
        if not isinstance(answer, CommClosedError)
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of what the bits of a result depend on, of this process."""
    from importlib.metadata import PackageNotFoundError, version

    numbers = {"python": platform.python_version()}
    for name in ("numpy", "numba", "zarr"):
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "none"
    return {**numbers, "streammc": f"{import_module('streammc').__version__} ({_source_digest()})"}


def _source_digest() -> str:
    """Return a digest of all sources of streammc: versions alone do not tell checkouts apart."""
    whole = hashlib.sha256()
    for package in ("streammc", "streammc.stores"):
        root = Path(str(import_module(package).__file__)).parent
        for path in sorted(root.rglob("*.py")):  # links to folders are not followed
            whole.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()[:8]


@cache
def same_versions(wanted: tuple[tuple[str, str], ...]) -> None:
    """Raise IdentityError unless this process has the versions of the one that made a task."""
    own = versions()
    differ = [f"{name} {own.get(name)}" for name, text in wanted if own.get(name) != text]
    if differ:
        raise IdentityError(
            f"expected {', '.join(f'{name} {text}' for name, text in wanted)} on every worker, "
            f"found {', '.join(differ)} on {platform.node()}: install the same versions there"
        )


def describe_worker(need: Need, dask_worker: Any = None) -> dict[str, Any]:
    """Return versions, storage and memory as a worker sees them; runs there."""
    fault = None
    if need.store is not None:
        try:
            seen = read_manifest(store_root(need.store)).fingerprint
            if need.fingerprint != seen:
                fault = f"another store there (fingerprint {seen[:12]})"
        except StreammcError as error:
            fault = f"no store that it can read ({error})"
    if need.shared is not None and not os.path.lexists(need.shared):
        fault = f"no file {need.shared!r} that this process has just written"
    manager = getattr(dask_worker, "memory_manager", None)
    return {
        "versions": versions(),
        "fault": fault,
        "memory": getattr(manager, "memory_limit", None),
        "threads": getattr(getattr(dask_worker, "state", None), "nthreads", 1),
    }


def no_worker(client: Any) -> UnavailableError:
    """Return the error for a cluster without workers."""
    address = client.scheduler.address
    return UnavailableError(
        f"expected a worker at the scheduler {address}, found none for {WORKER_SECONDS:g} s: "
        f"start one with 'dask worker {address}', or omit --scheduler"
    )


def needed_bytes(need: Need, threads: int) -> int:
    """Return the memory that a worker needs for a pass, in bytes."""
    return _BASE_BYTES + threads * _CHUNKS * need.chunk_bytes


def _check_versions(answers: dict[str, Any]) -> None:
    """Raise IdentityError with a table of the versions that differ, one entry per worker."""
    ours, lines = versions(), []
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            lines.append(f"{worker}: a streammc that does not answer ({type(answer).__name__})")
            continue
        differ = {
            name: theirs for name, theirs in answer["versions"].items() if ours[name] != theirs
        }
        if differ:
            lines.append(f"{worker}: " + ", ".join(f"{k} {v}" for k, v in differ.items()))
    if lines:
        more = f" | and {len(lines) - _SHOWN} more" * (len(lines) > _SHOWN)
        raise IdentityError(
            f"expected {', '.join(f'{name} {text}' for name, text in ours.items())} on every "
            f"worker, found | {' | '.join(lines[:_SHOWN])}{more} |: install the same versions there"
        )


def _check_storage(worker: str, answer: dict[str, Any], need: Need) -> None:
    if answer["fault"] is not None and need.shared is not None and "no file" in answer["fault"]:
        raise StoreError(
            f"expected the folder of {need.shared!r} on storage that worker {worker} shares, found "
            f"{answer['fault']}: use a shared folder, or leave out --chains-on"
        )
    if answer["fault"] is not None:
        raise StoreError(
            f"expected the store {need.store!r} at worker {worker}, found {answer['fault']}: give "
            "every worker the same store at the same path"
        )


def _check_memory(worker: str, answer: dict[str, Any], need: Need) -> None:
    limit, threads = answer["memory"], answer["threads"]
    least = needed_bytes(need, threads)
    if limit and least > limit:
        raise OutOfMemoryError(
            f"expected at least {least / 1e9:.2g} GB of memory for the {threads} threads of worker "
            f"{worker} and chunks of {need.chunk_bytes / 1e6:.3g} MB, found a limit of "
            f"{limit / 1e9:.2g} GB: use workers with more memory or fewer threads"
        )


POLL_SECONDS = 0.5


def results(
    futures: Sequence[Any],
    client: Any,
    describe: Callable[[str], str],
    need: Need,
    stop: Callable[[], bool] | None = None,
) -> list[Any] | None:
    """Return the results of tasks, in their order; ``None`` if ``stop()`` became true.

    ``describe`` names the task with a key in messages. ``stop`` is polled several times a second.
    When a task fails, the others are cancelled. Errors of a task arrive as they are; the errors of
    distributed for a scheduler that went away become a BusyError in :func:`connected`.
    """
    from distributed.scheduler import KilledWorker

    idle_since: float | None = None
    values: list[Any] = []
    try:
        for future in futures:
            while True:
                if stop is not None and stop():
                    return None
                try:
                    values.append(future.result(timeout=POLL_SECONDS))
                    break
                except TimeoutError:
                    if future.done():  # since; or the task itself raised it
                        values.append(future.result())
                        break
                idle_since = _watch(client, idle_since)
        return values
    except KilledWorker as error:
        filled = _filled_its_memory(client, error.last_worker)
        raise _killed(error, describe, need, filled=filled) from error
    finally:
        _cancel(futures, client)


def _watch(client: Any, idle_since: float | None) -> float | None:
    """Return since when the cluster has no worker; raise if that is too long, or it went away."""
    scheduler = client.scheduler  # None once the client has given up to find it again
    if client.status != "running" or scheduler is None:
        raise gone("of the cluster" if scheduler is None else scheduler.address)
    if client.scheduler_info()["workers"]:
        return None
    now = time.monotonic()
    if idle_since is not None and now - idle_since >= WORKER_SECONDS:
        raise no_worker(client)
    return now if idle_since is None else idle_since


def _cancel(futures: Sequence[Any], client: Any) -> None:
    """Cancel what is not done, if the scheduler can still be told."""
    waiting = [future for future in futures if not future.done()]
    if waiting and client.status == "running":
        client.cancel(waiting)


def _filled_its_memory(client: Any, worker: Any) -> bool:
    """Return whether a worker was ended at its memory limit, as its nanny told the scheduler."""
    events = client.get_events("worker-restart-memory") or ()
    return any(event["worker"] == worker.address for _, event in events)


def _killed(
    error: Any, describe: Callable[[str], str], need: Need, *, filled: bool = False
) -> StreammcError:
    """Return the error for a task of which several workers have died.

    ``filled``: whether the last one was ended at its memory limit.
    """
    worker = error.last_worker
    limit, threads = worker.memory_limit, worker.nthreads
    least = needed_bytes(need, threads)
    work = describe(str(error.task))
    died = f"{error.allowed_failures + 1} workers died of it (the last {worker.address})"
    if limit and (filled or limit < 2 * least):
        return OutOfMemoryError(
            f"expected {work} to fit into a worker, of which {threads} threads need about "
            f"{least / 1e9:.2g} GB, found a limit of {limit / 1e9:.2g} GB; {died}: use workers "
            "with more memory or fewer threads"
        )
    return StreammcError(
        f"expected {work} to be done by a worker, found that {died}: check these files and the log "
        "of the worker, then give the same command again"
    )


def _run_calls(
    client: Any,
    need: Need,
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    stop: Callable[[], bool],
) -> list[Any] | None:
    """Return the results of ``function(*call)`` for every call; ``None`` if it was stopped.

    A call may be made twice, where a worker dies: it must depend on its arguments alone. Workers
    import ``function``; ``names`` are those of the calls in messages.
    """
    token = f"streammc-{uuid4().hex[:8]}"
    ours = tuple(versions().items())
    futures = [
        client.submit(_call, ours, function, *call, key=f"{token}-{number}", pure=False)
        for number, call in enumerate(calls)
    ]

    def describe(key: str) -> str:
        prefix, _, number = key.rpartition("-")
        return names[int(number)] if prefix == token else f"the task {key!r}"

    return results(futures, client, describe, need, stop)


def _call(ours: tuple[tuple[str, str], ...], function: Callable[..., Any], *call: Any) -> Any:
    same_versions(ours)
    return function(*call)


@contextmanager
def worker_tasks(store: Any, scheduler: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function ``(function, calls, names, stop)`` that has workers make the calls.

    They are checked: versions, the store, and the existing ``folder``, which they must see.
    """
    mark = folder / f".shared-{uuid4().hex}"
    need = Need(store.address, store.manifest.fingerprint, 0, str(mark))
    with connected(scheduler) as client:
        mark.touch()
        try:
            require_workers(client, need)
        finally:
            with suppress(OSError):
                os.unlink(mark)
        yield partial(_run_calls, client, need)
