"""Calls of a function on the workers of a cluster, such as an interval of every chain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from streammc.stores.cluster.scheduler_connection import connected
from streammc.stores.cluster.waiting import results
from streammc.stores.cluster.worker_checks import Need, require_workers, same_versions, versions


class WorkerTasks:
    """The workers of a cluster that see a store and a shared folder.

    Parameters
    ----------
    client
        A client of the cluster.
    need
        What was checked of its workers, and is of those that come later.
    """

    def __init__(self, client: Any, need: Need) -> None:
        self._client, self._need = client, need

    def run(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        names: Sequence[str],
        stop: Callable[[], bool],
    ) -> list[Any] | None:
        """Return the results of ``function(*call)`` for every call; ``None`` if it was stopped.

        A call may be made twice, where a worker dies: it must depend on its arguments alone.

        Parameters
        ----------
        function
            Importable on the workers.
        calls, names
            Arguments, and the name of each call for messages.
        stop
            Polled several times a second.

        Raises
        ------
        UnavailableError, BusyError, OutOfMemoryError, StreammcError
            As of ``waiting.results``.
        """
        token = f"streammc-{uuid4().hex[:8]}"
        ours = tuple(versions().items())
        futures = [
            self._client.submit(_call, ours, function, *call, key=f"{token}-{number}", pure=False)
            for number, call in enumerate(calls)
        ]

        def describe(key: str) -> str:
            prefix, _, number = key.rpartition("-")
            return names[int(number)] if prefix == token else f"the task {key!r}"

        return results(futures, self._client, describe, self._need, stop)


def _call(ours: tuple[tuple[str, str], ...], function: Callable[..., Any], *call: Any) -> Any:
    same_versions(ours)
    return function(*call)


@contextmanager
def worker_tasks(store: Any, scheduler: Any, folder: Path) -> Iterator[WorkerTasks]:
    """Yield the workers of a cluster, checked: versions, the store, and a shared folder.

    Parameters
    ----------
    store
        A store on disk.
    scheduler
        Address of a cluster, or a client.
    folder
        Existing directory that the workers must see.

    Raises
    ------
    StoreError, IdentityError, UnavailableError, BusyError, OutOfMemoryError
        If a worker cannot do the tasks; see ``worker_checks.require_workers``.
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
        yield WorkerTasks(client, need)
