"""A directory written under a temporary name and renamed to its final path on commit."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    ConfigError,
    IdentityError,
    StorageIOError,
    StreammcError,
)
from streammc.stores.cloud.address import Root
from streammc.stores.cloud.upload import Upload, refuse_occupied
from streammc.stores.format.layout import MANIFEST
from streammc.trace.debris import collect_debris, marked_partial
from streammc.trace.disk import creation_error, swap
from streammc.unfinished import marked_folder, refuse_reserved_name, remove, unmark

_LARGE: Final = 1 << 16
"""Bytes of a file from which its write-back begins right after it is written."""


def refuse_existing(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a path that exists or lies inside a store; ``overwrite`` allows an existing store.

    Raises
    ------
    IdentityError
        If the path exists; with ``overwrite``, if it is not a store.
    ConfigError
        If it lies inside a store, or has the name of something unfinished.
    """
    refuse_reserved_name(path)
    try:
        exists = os.path.lexists(path)
        inside = next((p for p in path.parents if os.path.lexists(p / MANIFEST)), None)
    except OSError as error:
        raise creation_error(error, path) from error
    a_store = exists and os.path.lexists(path / MANIFEST)
    if exists and not overwrite:
        replace = ", or replace the store there with overwrite=True" if a_store else ""
        raise IdentityError(
            f"expected nothing at {str(path)!r}, but it exists: choose another path, delete it"
            f"{replace}"
        )
    if exists and not a_store:
        raise IdentityError(
            f"expected a store to overwrite at {str(path)!r}, found something else: choose another "
            "path or delete it yourself"
        )
    if inside is not None:
        raise ConfigError(
            f"expected an output outside every store, found {str(path)!r} inside "
            f"{str(inside)!r}: choose another path"
        )


class PartialDirectory:
    """``<name>.partial-<pid>`` beside ``path``, locked while it is being written.

    Parameters
    ----------
    path
        Final path of the directory.
    folders
        Its subdirectories.
    overwrite
        Whether the directory replaces a store at ``path``.

    Raises
    ------
    BusyError
        If another process is writing the same path.
    OutputError, AccessError, StorageIOError
        If it cannot be created.
    """

    def __init__(self, path: Path, folders: Sequence[str], *, overwrite: bool = False) -> None:
        self._path = path
        self._folders = folders
        self._overwrite = overwrite
        self._root = path.with_name(f"{path.name}.partial-{os.getpid()}")
        self._lock = -1
        try:
            collect_debris(path, f"{path.name}.partial-")
            self._lock = marked_partial(self._root)
            for folder in folders:
                (self._root / folder).mkdir()
        except OSError as error:
            if self._lock >= 0:
                self.discard()
            if isinstance(error, StreammcError):
                raise
            raise creation_error(error, path) from error

    @property
    def root(self) -> Path:
        """Temporary path of the unfinished directory; renamed to the final path on commit."""
        return self._root

    def write(self, key: str, content: bytes | NDArray[np.uint8], *, cached: bool = True) -> None:
        """Write one new file.

        Parameters
        ----------
        key
            Its path below :attr:`root`.
        content
            Whole content of the file.
        cached
            ``False`` writes past the page cache, if the system can and ``content`` is
            page-aligned and of whole pages.

        Raises
        ------
        StorageIOError
            If the disk is full or refuses.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(self._root / key, flags, 0o666)
            try:
                view = memoryview(content) if isinstance(content, bytes) else content.data
                direct = not cached and _bypass_page_cache(descriptor)
                while view:
                    try:
                        view = view[os.write(descriptor, view) :]
                    except OSError as error:
                        if not direct or error.errno != errno.EINVAL:
                            raise
                        # The rest is not of whole pages: write it through the page cache.
                        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
                        direct = False
                if len(content) >= _LARGE:
                    _begin_writeback(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self.write_error(error) from error

    def commit(self, keys: Iterable[str], last_key: str, last: bytes) -> None:
        """Sync the files ``keys``, write ``last`` as ``last_key``, sync it, then rename.

        Raises
        ------
        IdentityError
            If the path was created in the meantime.
        StorageIOError
            If the disk is full or refuses.
        """
        try:
            for key in keys:
                _sync(self._root / key)
            for folder in self._folders:
                _sync(self._root / folder)
            self.write(last_key, last)
            _sync(self._root / last_key)
            refuse_existing(self._path, overwrite=self._overwrite)
            unmark(self._root)
            _sync(self._root)
            if self._overwrite:
                swap(self._root, self._path)
            else:
                os.rename(self._root, self._path)
                _sync(self._path.parent)
        except OSError as error:
            if isinstance(error, StreammcError):
                raise
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                refuse_existing(self._path)
            raise self.write_error(error) from error
        self._release()

    def discard(self) -> None:
        """Remove the unfinished directory; do nothing after :meth:`commit`."""
        if self._lock >= 0:
            with suppress(OSError):
                remove(self._root)
            self._release()

    def _release(self) -> None:
        os.close(self._lock)
        self._lock = -1

    def write_error(self, error: OSError) -> StorageIOError:
        """Return the streammc error for an ``error`` of the operating system in writing."""
        reason = error.strerror or str(error)
        return StorageIOError(
            f"cannot write store {str(self._path)!r}: {reason}; "
            "free space or choose another path, nothing was kept"
        )


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Make a directory for temporary files beside ``target``; remove it on any exit."""
    partial = PartialDirectory(target.with_name(f"{target.name}.scratch"), [])
    try:
        yield partial.root
    except OSError as error:
        if isinstance(error, StreammcError):
            raise
        reason = error.strerror or str(error)
        raise StorageIOError(
            f"cannot write temporary files beside {str(target)!r}: {reason}; "
            "free space or choose another path, nothing was kept"
        ) from error
    finally:
        partial.discard()


def _bypass_page_cache(descriptor: int) -> bool:
    """Set O_DIRECT; return whether the system has it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, getattr(os, "O_DIRECT", 0))
    except OSError:
        return False
    return hasattr(os, "O_DIRECT")


def _begin_writeback(descriptor: int) -> None:
    # Starts to write dirty pages, without waiting. The kernel by itself first lets gigabytes
    # of them collect, and the sync of the commit then waits for the disk.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PartialStore(Protocol):
    """A store that is being written; readers see nothing of it before :meth:`commit`."""

    def write(self, key: str, content: bytes | NDArray[np.uint8], *, cached: bool = True) -> None:
        """Write one new object."""

    def commit(self, keys: Iterable[str], last_key: str, last: bytes) -> None:
        """Write ``last``, which makes the objects ``keys`` a store."""

    def discard(self) -> None:
        """Remove everything; do nothing after :meth:`commit`."""


def refuse_output(root: Root, *, overwrite: bool = False) -> None:
    """Refuse a place where something is; see :func:`refuse_existing`."""
    if isinstance(root, Path):
        refuse_existing(root, overwrite=overwrite)
    else:
        refuse_occupied(root, overwrite=overwrite)


@contextmanager
def scratch_for(root: Root) -> Iterator[Path]:
    """Make a directory for temporary files: beside ``root``, or that of the system's."""
    if isinstance(root, Path):
        with scratch(root) as folder:
            yield folder
        return
    with marked_folder("streammc-") as folder:
        yield folder


def new_output(root: Root, folders: Sequence[str], *, overwrite: bool = False) -> PartialStore:
    """Return the writer of the objects of a new store."""
    if isinstance(root, Path):
        return PartialDirectory(root, folders, overwrite=overwrite)
    return Upload(root)
