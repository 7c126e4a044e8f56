"""Requests to object stores: repeated within a budget of seconds, with errors of our own.

The text of an error of the service is never passed on: it can hold request headers, keys or
whole documents. What remains is the address, the kind of the failure and the status.
"""

from __future__ import annotations

import random
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    IdentityError,
    StoreError,
    StreammcError,
)
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.cloud.connection import connect
from streammc.stores.cloud.failures import budget, judge

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 4.0
_RANGE: Final = 4 << 20
"""Most bytes of one request: a larger object is read by several at once."""
_REQUESTS: Final = 16
"""Most requests of a process at once."""


class ObjectStatus(NamedTuple):
    """Status of one object, with the names of ``os.stat_result``."""

    st_size: int
    st_mtime_ns: int
    st_ino: int
    """Digest of the tag that the service gives to the content."""
    tag: str | None
    st_mode: int = stat.S_IFREG


def read_range(
    folder: CloudFolder, key: str, start: int, length: int, tag: str | None = None
) -> Any:
    """Return ``length`` bytes of an object from ``start`` on, as a buffer.

    Raises
    ------
    StoreError
        If the object is missing or shorter, or has changed since it had ``tag``.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """
    import obstore

    what = f"{key!r} in store {str(folder)!r}"
    options: Any = {"range": (start, start + length)}
    if tag is not None:
        options["if_match"] = tag

    def get() -> Any:
        return obstore.get(_store(folder), folder.key(key), options=options).bytes()

    content = attempt(what, get)
    if len(content) != length:
        raise StoreError(
            f"expected {length} bytes from byte {start} of {what}, found {len(content)}: "
            "copy or make the store again"
        )
    return content


def read_ranges(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of some requests, made at once."""
    if len(requests) == 1:
        return [requests[0]()]
    futures = [_pool().submit(request) for request in requests]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def read_into(folder: CloudFolder, key: str, into: NDArray[np.uint8]) -> int:
    """Fill ``into`` with a whole object, by several requests at once; return its crc32c."""
    parts = [into[start : start + _RANGE] for start in range(0, into.nbytes, _RANGE)]

    def read(number: int) -> None:
        piece = parts[number]
        content = read_range(folder, key, number * _RANGE, piece.nbytes)
        piece[:] = np.frombuffer(content, np.uint8)

    crc = 0
    if len(parts) == 1:
        read(0)
        return int(google_crc32c.value(into))
    futures = [_pool().submit(read, number) for number in range(len(parts))]
    try:
        for future, piece in zip(futures, parts, strict=True):
            future.result()
            crc = int(google_crc32c.extend(crc, piece))  # while the next parts arrive
    finally:
        for future in futures:
            future.cancel()
    return crc


def read_whole(folder: CloudFolder, key: str, limit: int) -> Any:
    """Return an object of at most ``limit`` bytes, as a buffer, by one request.

    Raises
    ------
    StoreError
        If it is missing or larger.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """
    import obstore

    what = f"{key!r} in store {str(folder)!r}"

    def get() -> Any:
        found = obstore.get(_store(folder), folder.key(key))
        size = int(found.meta["size"])
        if size > limit:
            raise StoreError(
                f"expected at most {limit} bytes in {what}, found {size}: copy or make the store "
                "again"
            )
        content = found.bytes()
        if len(content) != size:
            raise ConnectionError("a truncated body")
        return content

    return attempt(what, get)


def head(folder: CloudFolder, key: str) -> ObjectStatus | None:
    """Return the status of an object; ``None`` if there is none."""
    import obstore

    try:
        found = attempt(
            f"{key!r} in store {str(folder)!r}",
            lambda: obstore.head(_store(folder), folder.key(key)),
        )
    except StoreError:
        return None
    return status_of(found)


def list_objects(folder: CloudFolder) -> dict[str, ObjectStatus]:
    """Return the status of every object below a folder by its key in the folder."""
    import obstore

    def collect() -> dict[str, ObjectStatus]:
        found = {}
        prefix = f"{folder.prefix}/" if folder.prefix else ""
        for batch in obstore.list(_store(folder), folder.prefix or None):
            for each in batch:
                found[str(each["path"])[len(prefix) :]] = status_of(each)
        return found

    return attempt(f"the objects of {str(folder)!r}", collect)


def first_objects(folder: CloudFolder) -> list[str]:
    """Return the keys of the first objects below a folder, a page at most.

    Raises
    ------
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """
    import obstore

    def collect() -> list[str]:
        pages = obstore.list(_store(folder), folder.prefix or None, chunk_size=1000)
        return [str(each["path"]) for each in next(iter(pages), [])]

    return attempt(f"the objects of {str(folder)!r}", collect)


def write(
    folder: CloudFolder, key: str, content: bytes | NDArray[np.uint8], *, new: bool = False
) -> None:
    """Write one object; with ``new`` only if there is none, decided by the service.

    Raises
    ------
    IdentityError
        With ``new``, if there is one with another content.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """
    import obstore

    data = content if isinstance(content, bytes) else content.tobytes()
    what = f"{key!r} in {str(folder)!r}"
    if not new:
        attempt(what, lambda: obstore.put(_store(folder), folder.key(key), data))
        return
    try:
        attempt(what, lambda: obstore.put(_store(folder), folder.key(key), data, mode="create"))
    except IdentityError:
        # The answer to an earlier try may have been lost: then the object is ours.
        if not _holds(folder, key, data):
            raise


def _holds(folder: CloudFolder, key: str, data: bytes) -> bool:
    """Return whether an object has this content; one deleted meanwhile has not."""
    there = head(folder, key)
    if there is None or there.st_size != len(data):
        return False
    try:
        return bytes(read_range(folder, key, 0, len(data))) == data
    except StoreError:
        return False


def delete(folder: CloudFolder, keys: Sequence[str]) -> None:
    """Delete objects; missing ones are ignored."""
    import obstore

    for key in keys:
        try:
            attempt(
                f"{key!r} in {str(folder)!r}",
                lambda key=key: obstore.delete(_store(folder), folder.key(key)),  # type: ignore[misc]
            )
        except StoreError:
            continue


def attempt(what: str, action: Callable[[], T]) -> T:
    """Return the result of ``action``, repeated with growing pauses while a failure may pass.

    Raises
    ------
    StreammcError
        The failure, once it is certain or the budget of seconds is used up.
    """
    deadline, pause, tries = time.monotonic() + budget(), _FIRST_PAUSE, 0
    while True:
        tries += 1
        try:
            return action()
        except StreammcError:
            raise
        except Exception as error:  # the classes of obstore, OSError and ValueError
            failure, passing = judge(error, what, tries)
            wait = pause * (0.5 + random.random())
            if not passing or time.monotonic() + wait > deadline:
                raise failure from None
        time.sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _store(folder: CloudFolder) -> Any:
    return connect(folder.scheme, folder.bucket)


def status_of(found: Any) -> ObjectStatus:
    """Return the status of an object as the service describes it."""
    tag = found.get("e_tag") or found.get("version")
    digest = crc32(str(tag).encode())
    modified = int(found["last_modified"].timestamp()) * 10**9
    return ObjectStatus(int(found["size"]), modified, digest, found.get("e_tag"))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUESTS, thread_name_prefix="streammc-request")
