"""A file of an object store that is read as a table: its status, and its bytes as a stream."""

from __future__ import annotations

import io
from typing import Any

from streammc.errors import DataError, MissingError, StoreError
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.cloud.connection import connect
from streammc.stores.cloud.requests import attempt, status_of
from streammc.trace.file_stamp import FileStamp


class InputObject(io.RawIOBase):
    """The bytes of an object, read by ranges; every read is of the content that was opened.

    Parameters
    ----------
    place
        Address of the object.

    Raises
    ------
    MissingError
        If there is none.
    DataError
        In a read, if the object has changed or is gone since it was opened.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """

    def __init__(self, place: CloudFolder) -> None:
        super().__init__()
        self._place = place
        found = _head(place)
        if found is None:
            raise MissingError(
                f"expected a file at {str(place)!r}, found nothing: check the address"
            )
        self._size = int(found["size"])
        self._tag = found.get("e_tag")
        self._at = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from any byte on."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, into: Any) -> int:
        """Fill a buffer from the position on, by one request; return the number of bytes."""
        import obstore

        length = min(len(into), self._size - self._at)
        if length <= 0:
            return 0
        place = self._place
        options: Any = {"range": (self._at, self._at + length)}
        if self._tag is not None:
            options["if_match"] = self._tag

        def get() -> Any:
            content = obstore.get(
                connect(place.scheme, place.bucket), place.prefix, options=options
            )
            found = content.bytes()
            if len(found) != length:
                raise ConnectionError("a truncated body")
            return found

        try:
            into[:length] = memoryview(attempt(f"the file {str(place)!r}", get))
        except StoreError as error:
            raise DataError(
                f"expected {str(place)!r} to stay as it is while it is read, found it changed or "
                "gone: wait until no program writes it, and read it again"
            ) from error
        self._at += length
        return length


def object_stamp(place: CloudFolder) -> FileStamp | None:
    """Return size, time and digest of the tag of an object; ``None`` if there is none."""
    found = _head(place)
    if found is None:
        return None
    status = status_of(found)
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _head(place: CloudFolder) -> Any:
    import obstore

    def head() -> Any:
        return obstore.head(connect(place.scheme, place.bucket), place.prefix)

    try:
        return attempt(f"the file {str(place)!r}", head)
    except StoreError:
        return None
