"""Temporary folders for results without a path; what is written there need not survive a crash.

Such a folder is removed at the exit of its process, so that a power cut can lose nothing: its
files are written without fsync. A commit of 40 files takes 2 ms instead of 20 to 100.

Files of a small result are not written before somebody opens its path: the 400 files of a run
take 20 to 200 ms, by the file system, and most are never read.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from streammc.errors import StreammcError
from streammc.owner_mark import Prefix, new_folder, remove

KEPT_BYTES: Final = 64 * 2**20
"""Bytes of unwritten results of a process together; beyond that the oldest are written."""

_folders: set[Path] = set()
"""Temporary folders of this process."""
_unwritten: dict[Path, tuple[int, Callable[[], None]]] = {}
"""Folder -> bytes of its result, and the function that writes it; oldest first."""
_writing: Final = threading.RLock()


def is_temporary(path: Path) -> bool:
    """Return whether ``path`` is in a temporary folder of this process."""
    return bool(_folders) and any(parent in _folders for parent in (path, *path.parents))


def is_temporary_folder(path: Path) -> bool:
    """Return whether ``path`` is itself a temporary folder of this process."""
    return path in _folders


def temporary_folder(prefix: Prefix) -> Path:
    """Return a new folder that is removed at the exit of this process, but not of its forks.

    The folder around it has the mark of this process, by which ``streammc gc`` knows what a killed
    process left.
    """
    around = new_folder(prefix)
    folder = around / (prefix.strip("-").rpartition("-")[2] or "result")
    folder.mkdir()
    _folders.add(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def discard_folder(folder: Path) -> None:
    """Remove a temporary folder before the exit of this process."""
    _remove(folder, os.getpid())


def write_later(folder: Path, size: int, write: Callable[[], None]) -> None:
    """Let ``write`` fill a temporary folder when :func:`write_now` asks for it.

    It is called earlier if there are unwritten results of more than ``KEPT_BYTES``; one that then
    fails stays in memory.
    """
    with _writing:
        _unwritten[Path(os.path.realpath(folder))] = size, write
        while len(_unwritten) > 1 and sum(kept for kept, _ in _unwritten.values()) > KEPT_BYTES:
            oldest = next(iter(_unwritten))
            with suppress(StreammcError):
                write_now(oldest)
            if oldest in _unwritten:
                break


def write_now(folder: Path) -> None:
    """Write the result of a temporary folder, if it is not written yet.

    Raises
    ------
    StorageIOError, AccessError
        If the file system refuses; the result stays in memory.
    """
    if not _unwritten:
        return
    folder = Path(os.path.realpath(folder))
    with _writing:
        if (found := _unwritten.get(folder)) is not None:
            found[1]()
            del _unwritten[folder]


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        _unwritten.pop(Path(os.path.realpath(folder)), None)
        _folders.discard(folder)
        with suppress(OSError):
            remove(folder.parent)
