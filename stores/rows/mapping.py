"""The chunk files of an array as one contiguous, read-only array in memory.

An address range is reserved without access (``PROT_NONE``), then every file is
mapped into its place (``MAP_FIXED``). Pages belong to the page cache: they cost no
anonymous memory and the system drops them under pressure. To gather a row is then plain
indexing in compiled code, at memory speed if the page is cached.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import OutOfMemoryError, StorageIOError
from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.objects import open_object, read_file

_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0)
_PROT_NONE: Final = 0
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Range:
    """Owner of an address range; the arrays made from it keep it alive."""

    def __init__(self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self.address = _map(None, size, _PROT_NONE, flags, -1)
        self._unmap = weakref.finalize(self, _libc.munmap, self.address, size)
        self.__array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.address, True),
            "version": 3,
        }

    def place(self, descriptor: int, start: int, size: int) -> None:
        """Map the whole file ``descriptor`` at ``start`` bytes into the range."""
        address = self.address + start
        _map(address, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor)
        _libc.madvise(address, size, mmap.MADV_RANDOM)


def map_member(root: Path, layout: Layout, member: Member) -> NDArray[Any]:
    """Return all chunks of ``member`` as one read-only array, padding included."""
    size = layout.chunk_bytes(member)
    shape = member.shape(layout.chunk_rows * layout.n_chunks)
    dtype = np.dtype(member.dtype).newbyteorder("<")
    if size % mmap.PAGESIZE and layout.n_chunks > 1:
        # Files can be mapped at whole pages only: not chunks of one-byte responses, where pages
        # have 64 kB.
        return _load_member(root, layout, member, shape)
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    owner = _Range(pages * layout.n_chunks, shape, dtype)
    for chunk in range(layout.n_chunks):
        descriptor = open_object(root, member.key(chunk), size)
        try:
            owner.place(descriptor, chunk * size, size)
        finally:
            os.close(descriptor)
    return np.asarray(owner)


def _load_member(
    root: Path, layout: Layout, member: Member, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return ``member`` read into memory, for chunks that are not whole pages of this machine."""
    array = np.empty(shape, member.dtype)
    raw = array.reshape(-1).view(np.uint8)
    size = layout.chunk_bytes(member)
    for chunk in range(layout.n_chunks):
        read_file(root, member.key(chunk), raw[chunk * size : (chunk + 1) * size])
    array.flags.writeable = False
    return array


def _map(address: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    result = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if result is not None and result != _MAP_FAILED:
        return int(result)
    code = ctypes.get_errno()
    if code == errno.ENOMEM:
        raise OutOfMemoryError(
            f"cannot map {size} bytes: {os.strerror(code)}; raise vm.max_map_count and "
            "'ulimit -v', or make the store again with a larger --chunk-rows"
        )
    raise StorageIOError(f"cannot map {size} bytes of a chunk: {os.strerror(code)}; check the disk")
