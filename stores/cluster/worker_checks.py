"""Checks of the workers of a cluster before the first task: versions, storage, memory."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from streammc.errors import (
    BusyError,
    IdentityError,
    OutOfMemoryError,
    StoreError,
    StreammcError,
    UnavailableError,
)
from streammc.stores.cloud.address import store_root
from streammc.stores.format.manifest import read_manifest

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


_checked: WeakKeyDictionary[Any, set[tuple[str, Need]]] = WeakKeyDictionary()
"""Workers that were checked, by client, with what was asked of them."""


def require_workers(client: Any, need: Need) -> None:
    """Refuse a cluster without workers, or with one that cannot do the tasks.

    Raises
    ------
    UnavailableError
        If there is no worker, or one without streammc.
    BusyError
        If a worker does not answer.
    IdentityError
        If the versions of a worker are others than those of this process.
    StoreError
        If a worker does not see the store, or another one, or not the shared folder.
    OutOfMemoryError
        If a worker has less memory than its threads need for the chunks of the store.
    """
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError:
        raise no_worker(client) from None
    done = _checked.setdefault(client, set())
    asked = list(client.scheduler_info(n_workers=-1)["workers"])
    new = [each for each in asked if (each, need) not in done]
    if not new:
        return
    found = ask(client, find_spec, "streammc", workers=new)
    without = [worker for worker, spec in found.items() if spec is None]
    address = client.scheduler.address
    if without:
        raise UnavailableError(
            f"expected streammc on every worker of {address}, found {len(without)} of {len(found)} "
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

    Raises
    ------
    BusyError
        If a worker does not answer in :data:`WORKER_SECONDS`.
    """
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
    return answers


@cache
def versions() -> dict[str, str]:
    """Return the versions of what the bits of a result depend on, of this process."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("numpy", "numba", "zarr"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return {**found, "streammc": f"{import_module('streammc').__version__} ({_source_digest()})"}


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
    found = versions()
    differ = [f"{name} {found.get(name)}" for name, text in wanted if found.get(name) != text]
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
        differ = {name: found for name, found in answer["versions"].items() if ours[name] != found}
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
