"""Reads of the objects of a store, wherever it is: files, or objects of an object store.

The functions take the place of a store, a path or a ``CloudFolder``. Files are read by
``format.objects``, everything else by ``cloud.requests``. An object that is missing or
forbidden is an error in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import MissingError, StoreError
from streammc.stores.cloud.address import CloudFolder, Root
from streammc.stores.format import objects
from streammc.stores.format.layout import MANIFEST, METADATA
from streammc.stores.format.objects import MAX_JSON_BYTES, Bytes, damaged


def exists(root: Root, key: str) -> bool:
    """Return whether the store has an object ``key``, or a folder of objects."""
    if isinstance(root, Path):
        return os.path.lexists(root / key)
    from streammc.stores.cloud import requests

    return requests.head(root, key) is not None


def has_array(root: Root, name: str) -> bool:
    """Return whether the store has the array ``name``."""
    return exists(root, name if isinstance(root, Path) else f"{name}/{METADATA}")


def read_object(
    root: Root, key: str, into: Bytes, crc: int | None = None, forget: bool = False
) -> int:
    """Fill ``into`` with the whole object ``key``; see ``objects.read_object``."""
    if isinstance(root, Path):
        return objects.read_object(root, key, into, crc, forget)
    from streammc.stores.cloud import requests

    found = requests.read_into(root, key, into)
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
    if isinstance(root, Path):
        return objects.read_range(root, key, start, length)
    from streammc.stores.cloud import requests

    return np.frombuffer(requests.read_range(root, key, start, length, tag), np.uint8)


def at_once(root: Root, reads: list[Callable[[], Any]]) -> list[Any]:
    """Return the results of some reads: of an object store made at once, of files in turn."""
    if isinstance(root, Path):
        return [read() for read in reads]
    from streammc.stores.cloud import requests

    return requests.read_ranges(reads)


def will_read(root: Root, key: str) -> None:
    """Ask the system to read a file ahead; do nothing for an object store."""
    if isinstance(root, Path):
        objects.will_read(root, key)


def checksum_object(root: Root, key: str, size: int) -> int:
    """Return the crc32c of the object ``key`` of ``size`` bytes."""
    if isinstance(root, Path):
        return objects.checksum_object(root, key, size)
    return read_object(root, key, np.empty(size, np.uint8))


def read_small(root: Root, key: str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of the object ``key``; refuse one above ``limit`` bytes."""
    if isinstance(root, Path):
        return objects.read_small(root, key, limit)
    from streammc.stores.cloud import requests

    return bytes(requests.read_whole(root, key, limit))


def list_files(root: Root) -> Mapping[str, Any]:
    """Return the status of every object of a store by key, except the manifest.

    A plain web server lists nothing: the result is then empty.
    """
    if isinstance(root, Path):
        return objects.list_files(root)
    if not root.listable:
        return {}
    from streammc.stores.cloud import requests

    found = requests.list_objects(root)
    hidden = {key for key in found if key == MANIFEST or key.rpartition("/")[2].startswith(".")}
    return {key: status for key, status in found.items() if key not in hidden}


def statuses(root: CloudFolder, keys: Collection[str]) -> Mapping[str, Any]:
    """Return the status of objects by key: listed, or of a web server asked for one by one."""
    if root.listable:
        return list_files(root)
    from streammc.stores.cloud import requests

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
            raise objects.translate(error, what) from error
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


def require_store(root: Root) -> None:
    """Refuse a place without a store: no directory, or no object.

    Raises
    ------
    MissingError, StoreError, AccessError, ConfigError
        As ``objects.require_directory``; of an object store, if nothing is there.
    """
    if isinstance(root, Path):
        objects.require_directory(root)
    elif not exists(root, MANIFEST) and not _anything(root):
        raise MissingError(f"expected a store at {str(root)!r}, found nothing: check the address")


def _anything(folder: CloudFolder) -> bool:
    return any(exists(folder, key) for key in ("zarr.json", ".zgroup", ".zarray", ".zmetadata"))
