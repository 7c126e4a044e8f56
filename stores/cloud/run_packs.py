"""Objects with the files of a run: tar archives, named in the pointer with their SHA-256.

A commit changes some forty small files. One archive takes one request in place of forty, and any
tar can unpack it.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np

from streammc.errors import StoreError
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.cloud.run_pointer import Packed
from streammc.trace.durable import reporting

_LARGEST: Final = 32 * 2**20
"""Bytes of files from which on an archive gets no more of them."""
_THREADS: Final = 8


def packed(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield archives that hold ``files``, by name, between them; nothing without files."""
    part: dict[str, bytes] = {}
    size = 0
    for name, content in files.items():
        part[name] = content
        size += len(content)
        if size >= _LARGEST:
            yield _archive(part)
            part, size = {}, 0
    if part:
        yield _archive(part)


def _archive(files: Mapping[str, bytes]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return into.getvalue()


def digest(content: bytes | memoryview) -> str:
    """Return the SHA-256 of an archive, as the pointer has it."""
    return hashlib.sha256(content).hexdigest()


def fetch(folder: CloudFolder, objects: Sequence[Packed], into: Path) -> None:
    """Fetch archives, in this order, and write their files below the folder ``into``.

    Raises
    ------
    StoreError
        If an object is missing or is not the one that the pointer names.
    AccessError, UnavailableError
        If the object store refuses, or the budget of seconds is used up.
    StorageIOError
        If the local disk refuses.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(objects), _THREADS):
            part = objects[start : start + _THREADS]
            for content in pool.map(lambda each: _fetched(folder, each), part):
                _unpack(content, into)


def _fetched(folder: CloudFolder, expected: Packed) -> memoryview:
    """Return the content of an object that has the size and the digest of the pointer."""
    found = np.empty(expected.size, np.uint8)
    try:
        requests.read_into(folder, expected.key, found)
        fault = None if digest(found.data) == expected.sha256 else "another content"
    except StoreError:
        fault = "none or a shorter one"
    if fault is not None:
        raise StoreError(
            f"expected the object {expected.key!r} of the run at {str(folder)!r} as its pointer "
            f"names it, found {fault}: restore it from a copy, or sample again at another address"
        )
    return found.data


def _unpack(content: memoryview, into: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts or "\0" in str(name):
                raise StoreError(
                    f"expected names of plain files in the objects of a run, found {member.name!r}:"
                    " these objects are of another program; choose another address"
                )
            source = archive.extractfile(member)
            assert source is not None
            with reporting("write", into / name):
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(source.read())
