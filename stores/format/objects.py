"""Safe reads of the objects of an untrusted store, wherever it is: files, or an object store.

A file is opened without following a link and without waiting for a FIFO, must be regular and of
the expected length, and is checked against its crc32c. Objects elsewhere are read by
``cloud.requests``. An object that is missing or forbidden is an error in both.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    AccessError,
    ConfigError,
    MissingError,
    OutOfMemoryError,
    StorageIOError,
    StoreError,
    StreammcError,
)
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder, Root
from streammc.stores.format.layout import MANIFEST, METADATA
from streammc.stores.format.shards import Bytes
from streammc.trace.addresses import given_path

MAX_JSON_BYTES: Final = 64 << 20
_PIECE: Final = 8 << 20
_CACHED: Final = 1 << 20
"""Bytes read before each checksum step, so that it finds them in the processor's cache."""
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` made absolute.

    Raises
    ------
    ConfigError
        If it is a URL (whose credentials are not repeated) or cannot be a path.
    """
    return Path(os.path.abspath(given_path(path)))


def cached_bytes() -> int:
    """Return the bytes of a store that may stay in the page cache: half of the memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def exists(root: Root, key: str) -> bool:
    """Return whether the store has an object ``key``, or a folder of objects."""
    if isinstance(root, Path):
        return os.path.lexists(root / key)
    return requests.head(root, key) is not None


def has_array(root: Root, name: str) -> bool:
    """Return whether the store has the array ``name``."""
    return exists(root, name if isinstance(root, Path) else f"{name}/{METADATA}")


def require_store(root: Root) -> None:
    """Refuse a place without a store: no directory, or no object.

    Raises
    ------
    MissingError, StoreError, AccessError, ConfigError
        As :func:`require_directory`; of an object store, if nothing is there.
    """
    if isinstance(root, Path):
        require_directory(root)
    elif not exists(root, MANIFEST) and not _anything(root):
        raise MissingError(f"expected a store at {str(root)!r}, found nothing: check the address")


def require_directory(path: Path) -> None:
    """Refuse a path that is not a readable directory.

    Raises
    ------
    MissingError, StoreError, AccessError, ConfigError
        If it does not exist, is not a directory, may not be read, or is not a valid path.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode):
            raise StoreError(f"expected a directory at {str(path)!r}, found a file: give a store")
        # Without this check the files inside would look missing instead of forbidden.
        effective = os.access in os.supports_effective_ids
        if not os.access(path, os.R_OK | os.X_OK, effective_ids=effective):
            raise AccessError(
                f"expected to read {str(path)!r}: permission denied; change its permissions"
            )
    except OSError as error:
        if isinstance(error, StreammcError):
            raise
        if error.errno == errno.ENOENT:
            raise MissingError(
                f"expected a store at {str(path)!r}, found nothing: check the path"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigError(
                "expected a path, found a name that is too long: give a shorter one"
            ) from error
        if error.errno == errno.ENOTDIR:
            raise StoreError(
                f"expected a store at {str(path)!r}: a parent is a file; check the path"
            ) from error
        raise translate(error, repr(str(path))) from error


def _anything(folder: CloudFolder) -> bool:
    return any(exists(folder, key) for key in ("zarr.json", ".zgroup", ".zarray", ".zmetadata"))


def read_object(
    root: Root, key: str, into: Bytes, crc: int | None = None, forget: bool = False
) -> int:
    """Fill ``into`` with the whole object ``key``; see :func:`read_file`."""
    if isinstance(root, Path):
        return read_file(root, key, into, crc, forget)
    found = requests.read_into(root, key, into)
    if crc is not None and found != crc:
        raise damaged(root, key, crc, found)
    return found


def read_file(
    root: Path, key: str, into: Bytes, crc: int | None = None, forget: bool = False
) -> int:
    """Fill ``into`` with the whole file ``key``; return its crc32c.

    With ``forget`` the system is told to drop the file from its page cache.

    Raises
    ------
    StoreError
        As :func:`open_object`, or if the checksum is not ``crc``.
    """
    descriptor = open_object(root, key, into.nbytes)
    found = 0
    try:
        for start in range(0, into.nbytes, _CACHED):
            piece = into[start : start + _CACHED]
            _fill(descriptor, piece, f"{key!r} in store {str(root)!r}")
            # The C extension takes a NumPy array but not a memoryview; no copy is made.
            found = int(google_crc32c.extend(found, piece))
        if forget and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    if crc is not None and found != crc:
        raise damaged(root, key, crc, found)
    return found


def read_range(root: Root, key: str, start: int, length: int, tag: str | None = None) -> Bytes:
    """Return ``length`` bytes of an object from ``start`` on.

    Raises
    ------
    StoreError
        If it is missing or shorter, or of an object store and no longer the one of ``tag``.
    """
    if not isinstance(root, Path):
        return np.frombuffer(requests.read_range(root, key, start, length, tag), np.uint8)
    descriptor = open_object(root, key, None)
    into = np.empty(length, np.uint8)
    try:
        os.lseek(descriptor, start, os.SEEK_SET)
        _fill(descriptor, into, f"{key!r} in store {str(root)!r}")
    finally:
        os.close(descriptor)
    return into


def at_once(root: Root, reads: list[Callable[[], Any]]) -> list[Any]:
    """Return the results of some reads: of an object store made at once, of files in turn."""
    if isinstance(root, Path):
        return [read() for read in reads]
    return requests.read_ranges(reads)


def will_read(root: Root, key: str) -> None:
    """Ask the system to read a file ahead, without an error; do nothing for an object store."""
    if not isinstance(root, Path):
        return
    with suppress(OSError):
        descriptor = os.open(root / key, _FLAGS)
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def checksum_object(root: Root, key: str, size: int) -> int:
    """Return the crc32c of the object ``key`` of ``size`` bytes."""
    if isinstance(root, Path):
        return checksum_file(root, key, size)
    return read_object(root, key, np.empty(size, np.uint8))


def checksum_file(root: Path, key: str, size: int) -> int:
    """Return the crc32c of the file ``key`` in bounded memory."""
    descriptor = open_object(root, key, size)
    buffer, done, crc = np.empty(min(size, _PIECE), np.uint8), 0, 0
    try:
        while done < size:
            piece = buffer[: min(size - done, _PIECE)]
            _fill(descriptor, piece, f"{key!r} in store {str(root)!r}")
            crc = int(google_crc32c.extend(crc, piece))
            done += piece.nbytes
    finally:
        os.close(descriptor)
    return crc


def read_small(root: Root, key: str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of the object ``key``; refuse one above ``limit`` bytes."""
    if isinstance(root, Path):
        return read_small_file(root, key, limit)
    return bytes(requests.read_whole(root, key, limit))


def read_small_file(root: Path, key: str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of the file ``key``; refuse a file above ``limit`` bytes."""
    descriptor = open_object(root, key, None)
    try:
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size > limit:
        raise StoreError(
            f"expected at most {limit} bytes in {key!r} of store {str(root)!r}, found {size}"
            ": copy or make the store again"
        )
    content = np.empty(size, np.uint8)
    read_file(root, key, content)
    return content.tobytes()


def list_files(root: Root) -> Mapping[str, Any]:
    """Return the status of every object of a store by key, except the manifest.

    A plain web server lists nothing: the result is then empty.
    """
    if isinstance(root, Path):
        return files_below(root)
    if not root.listable:
        return {}
    found = requests.list_objects(root)
    hidden = {key for key in found if key == MANIFEST or key.rpartition("/")[2].startswith(".")}
    return {key: status for key, status in found.items() if key not in hidden}


def files_below(root: Path) -> dict[str, os.stat_result]:
    """Return the status of every file of a store by key, except the manifest; follow no links.

    Names that start with a dot are ignored: desktops and NFS make such files.
    """
    found: dict[str, os.stat_result] = {}
    folders = [""]
    for folder in folders:
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    key = folder + entry.name
                    if entry.name.startswith(".") or key == MANIFEST:
                        continue
                    if entry.is_dir(follow_symlinks=False) and folder.count("/") == 0:
                        folders.append(key + "/")
                    else:
                        found[key] = entry.stat(follow_symlinks=False)
        except OSError as error:
            raise translate(error, repr(str(root / folder))) from error
    return found


def statuses(root: CloudFolder, keys: Collection[str]) -> Mapping[str, Any]:
    """Return the status of objects by key: listed, or of a web server asked for one by one."""
    if root.listable:
        return list_files(root)
    found = requests.read_ranges([lambda key=key: requests.head(root, key) for key in keys])  # type: ignore[misc]
    return {key: each for key, each in zip(keys, found, strict=True) if each is not None}


def object_stamps(root: Root, keys: Collection[str]) -> NDArray[np.int64]:
    """Return size, modification time in ns and inode, or a tag's digest, (objects, 3), by key.

    Raises
    ------
    StoreError
        If an object is missing.
    """
    found = {} if isinstance(root, Path) else statuses(root, keys)
    rows = []
    for key in keys:
        what = f"{key!r} in store {str(root)!r}"
        try:
            status = os.lstat(root / key) if isinstance(root, Path) else found[key]
        except OSError as error:
            raise translate(error, what) from error
        except KeyError:
            raise StoreError(
                f"expected {what}, found nothing: copy or make the store again"
            ) from None
        # Some file systems have inode numbers of 64 bits.
        rows.append((status.st_size, status.st_mtime_ns, status.st_ino & (2**63 - 1)))
    return np.array(rows, np.int64).reshape(len(rows), 3)


def absent_objects(root: Root, keys: Sequence[str]) -> list[str]:
    """Return the keys without an object."""
    if isinstance(root, Path):
        return [key for key in keys if not os.path.lexists(root / key)]
    found = statuses(root, keys)
    return [key for key in keys if key not in found]


def open_object(root: Path, key: str, size: int | None) -> int:
    """Return a descriptor of the regular file ``key``, ``size`` bytes long.

    Raises
    ------
    StoreError
        If it is missing, a link, not a regular file, or of another length.
    AccessError, StorageIOError
        If the system refuses.
    """
    what = f"{key!r} in store {str(root)!r}"
    try:
        descriptor = os.open(root / key, _FLAGS)
    except OSError as error:
        raise translate(error, what) from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and size in (None, found.st_size):
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"expected {what} to be a regular file: copy or make the store again")
    raise StoreError(
        f"expected {what} to have {size} bytes, found {found.st_size}: copy or make the store again"
    )


def _fill(descriptor: int, into: Bytes, what: str) -> None:
    view, done = into.data, 0
    try:
        while done < into.nbytes:
            count = os.readv(descriptor, [view[done:]])
            if count == 0:
                raise StoreError(
                    f"expected {into.nbytes - done} more bytes in {what}: truncated"
                    "; copy or make the store again"
                )
            done += count
    except OSError as error:
        raise translate(error, what) from error


def damaged(root: object, key: str, expected: int, found: int) -> StoreError:
    """Return the error for an object whose checksum is wrong."""
    return StoreError(
        f"expected crc32c {expected:08x} of {key!r} in store {str(root)!r}, found {found:08x}: "
        "the file is damaged; copy or make the store again"
    )


def translate(error: OSError, what: str) -> StreammcError:
    """Return the streammc error for an ``error`` of the system in reading ``what``."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StoreError(f"expected {what}, found nothing: copy or make the store again")
    if error.errno == errno.ELOOP:
        return StoreError(f"expected {what} to be a file, found a link: copy the store again")
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessError(f"expected to read {what}: {reason}; check the permissions")
    if error.errno == errno.ENOMEM:
        return OutOfMemoryError(f"no memory to read {what}: {reason}; free memory")
    return StorageIOError(f"cannot read {what}: {reason}; check the disk")


def parse_json(content: bytes, what: str, *, constants: bool = False) -> dict[str, Any]:
    """Return ``content`` as a JSON object: UTF-8, no repeated key, bounded depth, NaN if allowed.

    Raises
    ------
    StoreError
        If ``content`` is anything else.
    """
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=None if constants else _refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        reason = re.sub(r"\s+", " ", reason)[:200]
        raise StoreError(f"expected JSON in {what}, found {reason}: make it again") from error
    if not isinstance(document, dict):
        raise StoreError(
            f"expected a JSON object in {what}, found {type(document).__name__}"
            ": copy or make the store again"
        )
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a repeated key")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"the constant {name}")
