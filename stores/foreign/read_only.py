"""Objects of a group for zarr, in which an absent chunk is an error and no fill value."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterable
from typing import Final

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from streammc.stores.cloud.address import Root
from streammc.stores.format.layout import MAX_CHUNK_BYTES
from streammc.stores.format.object_access import exists, read_range, read_small

_METADATA: Final = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class ReadOnly(Store):
    """The objects of a store as a ``zarr.abc.store.Store`` without fill values for what is absent.

    Parameters
    ----------
    root
        The group.
    """

    def __init__(self, root: Root) -> None:
        super().__init__(read_only=True)
        self.root = root

    def __eq__(self, other: object) -> bool:
        """Return whether both are of one place."""
        return isinstance(other, ReadOnly) and other.root == self.root

    def __hash__(self) -> int:
        """Return the hash of the place."""
        return hash(str(self.root))

    async def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return an object or a part of it; ``None`` only for absent metadata."""
        content = await asyncio.to_thread(self._read, key, byte_range)
        return None if content is None else prototype.buffer.from_bytes(content)

    def _read(self, key: str, part: ByteRequest | None) -> bytes | None:
        if key.rpartition("/")[2] in _METADATA and not exists(self.root, key):
            return None
        if isinstance(part, RangeByteRequest):
            return read_range(self.root, key, part.start, part.end - part.start).tobytes()
        content = read_small(self.root, key, MAX_CHUNK_BYTES + (1 << 20))
        if isinstance(part, OffsetByteRequest):
            return content[part.offset :]
        return content[-part.suffix :] if isinstance(part, SuffixByteRequest) else content

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return parts of objects."""
        return list(
            await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))
        )

    async def exists(self, key: str) -> bool:
        """Return whether there is an object."""
        return await asyncio.to_thread(exists, self.root, key)

    @property
    def supports_writes(self) -> bool:
        """Return False."""
        return False

    @property
    def supports_deletes(self) -> bool:
        """Return False."""
        return False

    @property
    def supports_listing(self) -> bool:
        """Return False."""
        return False

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse."""
        raise io.UnsupportedOperation("read only")

    async def delete(self, key: str) -> None:
        """Refuse."""
        raise io.UnsupportedOperation("read only")

    def list(self) -> AsyncIterator[str]:
        """Refuse."""
        raise io.UnsupportedOperation("read only")

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Refuse."""
        raise io.UnsupportedOperation("read only")

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Refuse."""
        raise io.UnsupportedOperation("read only")
