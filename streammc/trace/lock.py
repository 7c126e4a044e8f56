"""The lock for one writer per run: a ``flock`` that ends with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streammc.errors import BusyError, MissingError, OutputError, StoreError
from streammc.trace.disk import creation_error, read_file, reporting, try_lock
from streammc.trace.zarr_files import DOCUMENT_LIMIT, is_sealed
from streammc.unfinished import is_temporary, refuse_reserved_name

FOLDER: Final = "checkpoint"
FILE: Final = "lock"
"""The lock file of a run is ``FOLDER/FILE`` in its directory."""

_locked: set[tuple[int, int]] = set()
"""Device and inode of each run directory that this process has locked."""


def is_locked_here(path: Path) -> bool:
    """Return whether this process has the lock of the run at ``path``."""
    try:
        info = path.stat()
    except OSError:
        return False
    return (info.st_dev, info.st_ino) in _locked


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Lock the run at ``path`` for writing; make its directory if it is missing.

    The lock file is never deleted: two processes could then lock two different files.

    Raises
    ------
    BusyError
        If another process (or another thread of this one) has the lock.
    OutputError, AccessError
        If the directory cannot be made, or has other files than those of a run.
    """
    make_run_folder(path)
    where = path / FOLDER / FILE
    with reporting("open", where):
        descriptor = os.open(where, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with reporting("lock", where):
            free = try_lock(descriptor) and _is_at(where, descriptor)
        if not free:
            raise BusyError(
                f"expected the run at {path} to be free, found it locked by another process: "
                "wait until that has ended, or stop it"
            )
        info = path.stat()
        key = (info.st_dev, info.st_ino)
        _locked.add(key)
        try:
            yield
        finally:
            _locked.discard(key)
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at its path, and not just removed."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def make_run_folder(path: Path) -> None:
    """Make the directory of a run, or check that an existing one is empty or a run."""
    if not (is_temporary(path) or os.path.lexists(path / FOLDER / FILE)):
        refuse_reserved_name(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        usable = _is_empty_or_run(path)
        if usable:
            (path / FOLDER).mkdir(exist_ok=True)
    except FileExistsError:
        raise OutputError(f"expected a directory at {path}, found a file: choose another") from None
    except OSError as error:
        raise creation_error(error, path) from error
    if not usable:
        raise OutputError(
            f"expected a new or empty directory, or a run of streammc, found other files in {path}:"
            " choose another output"
        )


def _is_empty_or_run(path: Path) -> bool:
    """Return whether ``path`` is empty, a run, or the remains of an interrupted start."""
    names = {entry.name for entry in path.iterdir()}
    if names <= {FOLDER} and not (names and any((path / FOLDER).iterdir())):
        return True
    if (path / FOLDER / FILE).exists():  # after the listing: another may have begun since
        return True
    try:
        return is_sealed(read_file(path / "zarr.json", limit=DOCUMENT_LIMIT))
    except (MissingError, StoreError):
        return False
