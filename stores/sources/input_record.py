"""How a file of a table is known again: by path, size and time, then by inode and contents.

A file can be replaced by another one of its size and modification time. Its inode or the time of
its last change of status, which cannot be set, are then others; but they are also others after
``chmod``, a link or a copy with ``cp -p``. So the file is read again, and a checksum decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any, Final

import google_crc32c

from streammc.errors import StreammcError
from streammc.stores.sources.input_files import InputFile, input_stamp
from streammc.trace.local_path import is_address, real_place

STATE: Final = "state"
"""Key of a record: inode and time of the last change of status; null at an address."""
CRC: Final = "crc32c"
"""Key of a record: checksum of the contents; null where they were not read."""
PARTITIONS: Final = "partitions"
"""Key of a record: names and values of the folders ``name=value`` above the file, if any."""
ROWS: Final = "rows"
"""Key of a record: number of rows; absent where they were not counted."""
_BLOCK: Final = 4 << 20
_SETTLED: Final = 10**9
"""Nanoseconds after which a further write to a file surely gives it another time."""
_checksums: Final[dict[tuple[Any, ...], int]] = {}
"""Checksums of files read by this process, by place, size, times and inode."""


def input_record(path: str) -> dict[str, Any]:
    """Return path without links, size, modification time and state of a file, as JSON.

    Raises
    ------
    OSError, StreammcError
        If its status cannot be read.
    """
    stamp = input_stamp(path)
    return {
        "path": real_place(path),
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

    A file that this process has read is not read again while its size, times and inode stay.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    if is_address(path):
        return None
    found = 0
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        times = status.st_mtime_ns, status.st_ctime_ns
        key = (os.path.realpath(path), status.st_dev, status.st_ino, status.st_size, *times)
        if key in _checksums:
            return _checksums[key]
        begun = time_ns()
        while block := file.read(_BLOCK):
            found = google_crc32c.extend(found, block)
        now = os.fstat(file.fileno())
    unchanged = (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (status.st_size, *times)
    if unchanged and status.st_ctime_ns + _SETTLED < begun:
        _checksums[key] = int(found)
    return int(found)


def with_crc(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the checksum of the file; null if it is another one by now."""
    path = str(record["path"])
    try:
        found = content_crc(path)
        same = all(record[name] == value for name, value in input_record(path).items())
    except (OSError, StreammcError):
        found, same = None, False
    return {**record, CRC: found if same else None}


def complete_records(
    records: Sequence[Mapping[str, Any]] | None, rows: Sequence[int]
) -> list[dict[str, Any]] | None:
    """Return the records of the files of a generation with checksums and numbers of rows."""
    if not records:
        return None
    counts = rows if len(rows) == len(records) else [None] * len(records)
    return [
        with_crc(record) | ({} if count is None else {ROWS: count})
        for record, count in zip(records, counts, strict=True)
    ]


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


def input_records(parts: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the record of every file, see :func:`input_record`, or ``None`` for tables in memory.

    Also ``None`` where a file cannot be found or read: the reader of the table says so.

    Parameters
    ----------
    parts
        Those of a table, see ``tables.table_parts``.
    """
    found = []
    for part in parts:
        if not isinstance(part, InputFile):
            return None
        try:
            record = input_record(part.path)
        except (OSError, StreammcError):
            return None
        folders = {PARTITIONS: [list(each) for each in part.partitions]}
        found.append(record | (folders if part.partitions else {}))
    return found


def equal_input(record: Mapping[str, Any], there: Sequence[Mapping[str, Any]]) -> Any:
    """Return a record of ``there`` of a file with the rows of another file, or ``None``.

    Their sizes and checksums are equal, and the values of the folders above them. Files without
    rows are not compared, nor are those at an address, which have no checksum. Files are read only
    where their sizes are equal.

    Raises
    ------
    OSError
        If the file of ``record`` cannot be read.
    """
    alike = [
        each
        for each in there
        if each["bytes"] == record["bytes"]
        and each.get(PARTITIONS) == record.get(PARTITIONS)
        and each.get(ROWS) != 0
    ]
    found = content_crc(str(record["path"])) if alike else None
    if found is None:
        return None
    return next((each for each in alike if _crc_of(each) == found), None)


def _crc_of(record: Mapping[str, Any]) -> int | None:
    """Return the checksum of a record; of its file, if it has none and the file is unchanged."""
    known = record.get(CRC)
    if known is None:
        path = str(record["path"])
        try:
            known = content_crc(path) if same_input(record, path) else None
        except (OSError, StreammcError):
            known = None
    return known
