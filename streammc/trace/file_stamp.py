"""Stamps that detect a changed file: size, modification time and inode, and their differences."""

from __future__ import annotations

import os
import time
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Size in bytes, modification time in ns and inode of a file."""

    size: int
    modified_ns: int
    inode: int


def file_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """Return the stamp of the file at ``path``, following links.

    Raises
    ------
    OSError
        If its status cannot be read.
    """
    found = os.stat(path)
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def utc_text(modified_ns: int) -> str:
    """Return a time in ns since 1970 as UTC text that ``touch -d`` accepts.

    Examples
    --------
    >>> utc_text(1_700_000_000_000_000_042)
    '2023-11-14T22:13:20.000000042Z'
    """
    seconds, rest = divmod(modified_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


def stamp_difference(before: FileStamp, now: FileStamp) -> str:
    """Return text on how the stamp ``now`` differs from ``before``, for an error message."""
    if now.size != before.size:
        return f"another size ({before.size:,} bytes before, {now.size:,} now)"
    if now.modified_ns != before.modified_ns:
        return (
            f"another modification time ({utc_text(before.modified_ns)} before, "
            f"{utc_text(now.modified_ns)} now) at the same size"
        )
    return "another file of the same size and modification time in its place"
