"""How a file of a table is known again: by path, size and time, then by inode and contents.

A file can be replaced by another one of its size and modification time. Its inode or the time of
its last change of status, which cannot be set, are then others; but they are also others after
``chmod``, a link or a copy with ``cp -p``. So the file is read again, and a checksum decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import google_crc32c

from streammc.errors import StreammcError
from streammc.stores.sources.input_files import input_files, input_stamp
from streammc.trace.local_path import is_address

STATE: Final = "state"
"""Key of a record: inode and time of the last change of status; null at an address."""
CRC: Final = "crc32c"
"""Key of a record: checksum of the contents; null where they were not read."""
_BLOCK: Final = 4 << 20


def input_record(path: str) -> dict[str, Any]:
    """Return path, size, modification time and state of a file, as JSON.

    Raises
    ------
    OSError, StreammcError
        If its status cannot be read.
    """
    stamp = input_stamp(path)
    return {
        "path": path if is_address(path) else os.path.abspath(path),
        "bytes": stamp.size,
        "modified_ns": stamp.modified_ns,
        STATE: input_state(path),
    }


def input_state(path: str) -> str | None:
    """Return inode and time of the last change of status of a file; ``None`` at an address.

    Raises
    ------
    OSError
        If its status cannot be read.
    """
    if is_address(path):
        return None
    found = os.stat(path)
    return f"{found.st_ino}-{found.st_ctime_ns}"


def content_crc(path: str) -> int | None:
    """Return the crc32c of the contents of a file; ``None`` at an address.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    if is_address(path):
        return None
    found = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            found = google_crc32c.extend(found, block)
    return int(found)


def with_crc(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the checksum of the file; null if it is another one by now."""
    path = str(record["path"])
    try:
        found = content_crc(path)
        same = input_record(path) == record
    except OSError:
        found, same = None, False
    return {**record, CRC: found if same else None}


def same_input(before: Mapping[str, Any], path: str) -> bool:
    """Return whether the file at ``path`` is the one of a record; it is read only if in doubt.

    Records of earlier versions have no state.

    Raises
    ------
    OSError, StreammcError
        If it cannot be read.
    """
    now = input_record(path)
    if any(before[name] != now[name] for name in ("bytes", "modified_ns")):
        return False
    if before.get(STATE) in (None, now[STATE]):
        return True
    known = before.get(CRC)
    return known is not None and known == content_crc(path)


def input_records(sources: Any) -> list[dict[str, Any]] | None:
    """Return the record of every file, see :func:`input_record`, or ``None`` for tables in memory.

    Also ``None`` where a file cannot be found or read: the reader of the table says so.
    """
    found = []
    for source in sources if isinstance(sources, (list, tuple)) else [sources]:
        if not isinstance(source, (str, os.PathLike)):
            return None
        try:
            found += [input_record(each.path) for each in input_files(os.fspath(source))]
        except (OSError, StreammcError):
            return None
    return found


def same_inputs(before: list[dict[str, Any]] | None, now: list[dict[str, Any]] | None) -> bool:
    """Return whether the files of a generation are these, in their order."""
    if before is None or now is None or len(before) != len(now):
        return False
    pairs = list(zip(before, now, strict=True))
    return all(old["path"] == new["path"] for old, new in pairs) and all(
        same_input(old, old["path"]) for old, _ in pairs
    )


def known_input(path: str, there: list[dict[str, Any]]) -> bool:
    """Return whether the file at ``path`` is one of those that were appended."""
    return any(each["path"] == path and same_input(each, path) for each in there)
