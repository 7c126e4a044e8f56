"""A copy of a store on a local disk, checked object by object, that can be stopped and resumed."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from streammc.errors import (
    BusyError,
    IdentityError,
    OutputError,
    StorageIOError,
    StoreError,
    StreammcError,
)
from streammc.stores.cloud.address import Root, store_root
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import (
    Entry,
    Manifest,
    check_object,
    read_manifest,
    shard_checks,
)
from streammc.stores.format.objects import local_path, read_object
from streammc.stores.format.partial import refuse_existing
from streammc.stores.format.shards import Bytes
from streammc.stores.in_threads import in_threads
from streammc.stores.store import open_store
from streammc.trace.disk import sync_directory, try_lock
from streammc.unfinished import MARK, mark, unmark

_THREADS: Final = 4
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def pull(
    address: str, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Copy the store at ``address`` to ``folder``; the copy has the same fingerprint.

    Objects go to ``<folder>.pulling`` first. After an interruption the same call goes on there:
    objects whose checksum is right are kept.

    Parameters
    ----------
    address
        The store.
    folder
        Path of the copy on this machine. If the same store is there, nothing is done.
    progress
        Called with (bytes done, bytes in all).

    Returns
    -------
    dict
        ``path``, ``address``, ``objects``, ``bytes``, ``bytes_read`` of this call,
        ``fingerprint`` and ``seconds``.

    Raises
    ------
    StoreError
        If there is no store of streammc, or an object fails its checksum.
    IdentityError
        If something else is at ``folder``.
    BusyError
        If another process is copying to ``folder``.
    UnavailableError, AccessError, StorageIOError, OutputError
        If the object store or the disk refuses; what was copied is kept.
    """
    started = time.monotonic()
    store, target = open_store(address), local_path(folder)
    if store.foreign is not None:
        raise StoreError(
            f"expected a store of streammc at {store.address!r}, found a zarr group of another "
            "program, which has no checksums: copy it with the tools of its service"
        )
    result = {
        "path": str(target),
        "address": store.address,
        "objects": len(store.manifest.entries),
        "bytes": store.manifest.total_bytes,
        "bytes_read": 0,
        "fingerprint": store.fingerprint,
    }
    if _already(target, store.fingerprint):
        return {**result, "seconds": time.monotonic() - started}
    if os.path.lexists(target):
        raise IdentityError(
            f"expected nothing at {str(target)!r}, or a copy of {store.address!r}, found something "
            "else: choose another path or delete it"
        )
    refuse_existing(target)
    with _staging(target) as staging:
        root = store_root(store.address)
        checks = shard_checks(store.layout, store.address)
        result["bytes_read"] = _copy(root, store.manifest, staging, checks, progress)
        _commit(store.manifest, staging, target)
    return {**result, "seconds": time.monotonic() - started}


def _already(target: Path, fingerprint: str) -> bool:
    """Return whether the same store is at ``target``, as far as its manifest and lengths say."""
    if not os.path.lexists(target / MANIFEST):
        return False
    try:
        return open_store(target).fingerprint == fingerprint
    except StreammcError:
        return False


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Make or reuse the folder of an unfinished copy, locked."""
    staging = target.with_name(f"{target.name}.pulling")
    try:
        staging.mkdir(exist_ok=True)
        lock = os.open(staging, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise OutputError(
            f"cannot create {str(staging)!r}: {error.strerror}; give a path in an existing, "
            "writable folder"
        ) from error
    try:
        if not try_lock(lock):
            raise BusyError(
                f"expected {str(staging)!r} to be free, found it locked by another process: wait "
                "until that has ended, or stop it"
            )
        unmark(staging)  # the mark of a killed process; this one makes its own
        mark(staging)
        yield staging
    finally:
        os.close(lock)


def _copy(
    root: Root,
    manifest: Manifest,
    staging: Path,
    checks: Mapping[str, Callable[[Bytes], object]],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Read every object that is not there yet; return the bytes that were read."""
    _drop_others(staging, manifest)
    done = read = 0
    lock = threading.Lock()

    def one(item: tuple[str, Entry]) -> tuple[int, bool]:
        key, entry = item
        if _is_there(staging, key, entry, checks.get(key)):
            return entry.size, False
        content = np.empty(entry.size, np.uint8)
        read_object(root, key, content, entry.crc)
        if key in checks:
            checks[key](content)
        with lock:
            (staging / key).parent.mkdir(parents=True, exist_ok=True)
        _write(staging / key, content.data)
        return entry.size, True

    def finished(result: tuple[int, bool]) -> None:
        nonlocal done, read
        size, new = result
        done, read = done + size, read + size * new
        if progress is not None:
            progress(done, manifest.total_bytes)

    in_threads(one, manifest.entries.items(), _THREADS, finished)
    return read


def _is_there(
    staging: Path, key: str, entry: Entry, check: Callable[[Bytes], object] | None
) -> bool:
    """Return whether an earlier call has copied an object completely."""
    try:
        check_object(staging, key, entry, check)
    except StreammcError:
        return False
    return True


def _drop_others(staging: Path, manifest: Manifest) -> None:
    """Remove files of another store, whose unfinished copy was here."""
    for path in sorted(staging.rglob("*"), reverse=True):
        key = path.relative_to(staging).as_posix()
        if key.startswith(MARK):
            continue
        if path.is_symlink() or (not path.is_dir() and key not in manifest.entries):
            path.unlink()
        elif path.is_dir() and not any(each.startswith(f"{key}/") for each in manifest.entries):
            shutil.rmtree(path)


def _write(path: Path, content: memoryview) -> None:
    try:
        if os.path.lexists(path):
            path.unlink()  # of the wrong length or content: never written through a link
        with open(path, "xb", buffering=0) as file:
            while content:
                content = content[file.write(content) :]
    except OSError as error:
        raise _refused(error, path) from error


def _commit(manifest: Manifest, staging: Path, target: Path) -> None:
    """Make the copy durable and let it appear at ``target``."""
    try:
        for key in manifest.entries:
            descriptor = os.open(staging / key, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _write(staging / MANIFEST, memoryview(manifest.encode()))
        if read_manifest(staging).fingerprint != manifest.fingerprint:
            raise StoreError(
                f"expected the manifest just written to {str(staging)!r}, found another: check "
                "the disk"
            )
        unmark(staging)
        for path in (*sorted(each for each in staging.iterdir() if each.is_dir()), staging):
            sync_directory(path)
        refuse_existing(target)
        os.rename(staging, target)
        sync_directory(target.parent)
    except OSError as error:
        if isinstance(error, StreammcError):
            raise
        raise _refused(error, staging) from error


def _refused(error: OSError, path: Path) -> StreammcError:
    kind = StorageIOError if error.errno in _DISK else OutputError
    return kind(
        f"cannot write {str(path)!r}: {error.strerror}; make room and give the same command again, "
        "what was copied is kept"
    )
