"""Waiting for tasks of a cluster, and the errors for what happens there meanwhile.

A worker that dies is no error: the scheduler runs its tasks again on another one, and since a task
depends on its arguments alone, the bits are the same. A worker that hangs is given up by the
scheduler after ``distributed.scheduler.worker-ttl`` (5 minutes).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from streammc.errors import OutOfMemoryError, StreammcError
from streammc.stores.cluster import worker_checks
from streammc.stores.cluster.scheduler_connection import gone
from streammc.stores.cluster.worker_checks import Need, needed_bytes, no_worker

POLL_SECONDS = 0.5


def results(
    futures: Sequence[Any],
    client: Any,
    describe: Callable[[str], str],
    need: Need,
    stop: Callable[[], bool] | None = None,
) -> list[Any] | None:
    """Return the results of tasks, in their order; ``None`` if ``stop()`` became true.

    Parameters
    ----------
    futures
        Their futures; the others are cancelled when one fails.
    client
        The client that submitted them.
    describe
        Returns in words what the task with a key does, for messages.
    need
        What the tasks need of a worker.
    stop
        Polled several times a second.

    Raises
    ------
    BusyError
        If the client has noticed that the scheduler went away; the errors of distributed for it
        become this one in ``scheduler_connection.connected``.
    UnavailableError
        If there is no worker for 30 seconds.
    OutOfMemoryError
        If workers die of a task, and their memory is hardly what it needs.
    StreammcError
        If workers die of a task for another reason. Errors of a task arrive as they are.
    """
    from distributed.scheduler import KilledWorker

    idle_since: float | None = None
    found: list[Any] = []
    try:
        for future in futures:
            while True:
                if stop is not None and stop():
                    return None
                try:
                    found.append(future.result(timeout=POLL_SECONDS))
                    break
                except TimeoutError:
                    if future.done():  # since; or the task itself raised it
                        found.append(future.result())
                        break
                idle_since = _watch(client, idle_since)
        return found
    except KilledWorker as error:
        filled = _filled_its_memory(client, error.last_worker)
        raise _killed(error, describe, need, filled=filled) from error
    finally:
        _cancel(futures, client)


def _watch(client: Any, idle_since: float | None) -> float | None:
    """Return since when the cluster has no worker; raise if that is too long, or it went away."""
    if client.status != "running":
        raise gone(client)
    if client.scheduler_info()["workers"]:
        return None
    now = time.monotonic()
    if idle_since is not None and now - idle_since >= worker_checks.WORKER_SECONDS:
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
