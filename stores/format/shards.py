"""Shards: chunk files of several pieces of rows, each compressed and checked by itself.

The bytes are those of zarr's codec ``sharding_indexed``: the pieces one after the other, and at
the end offset and length of each piece (little-endian uint64) with a crc32c. A piece is the raw
block, compressed with zstd where the store says so, followed by its crc32c. Pieces past the last
row are absent.

The crc32c of data that are followed by their own crc32c does not depend on the data. Before the
index, where the format allows a gap, stands a digest of the checksums of the pieces: with it the
crc32c of the whole shard in the manifest, and so the fingerprint, tell shards of one length apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.trace.zarr_files import crc_bytes, raw_codec

Bytes = NDArray[np.uint8]

PIECE_BYTES: Final = 1 << 20
PIECE_ROWS: Final = 16384
SHARD_ROWS: Final = 1 << 20
SHARD_BYTES: Final = 64 << 20
ZSTD_LEVEL: Final = 3
_ABSENT: Final = 2**64 - 1
_CRC: Final = 4
_DIGEST: Final = 8
_FRAME: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Shards:
    """How the chunks of a store are cut into pieces."""

    piece_rows: int
    zstd: bool = False

    def codecs(self, inner: list[dict[str, Any]], columns: int | None) -> list[dict[str, Any]]:
        """Return the codecs of an array in ``zarr.json``; ``inner`` are those of a raw chunk."""
        packed = []
        if self.zstd:
            configuration = {"level": ZSTD_LEVEL, "checksum": False}
            packed.append({"name": "zstd", "configuration": configuration})
        shape = [self.piece_rows] if columns is None else [self.piece_rows, columns]
        return [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": shape,
                    "codecs": [*inner, *packed, {"name": "crc32c"}],
                    "index_codecs": [raw_codec("uint64"), {"name": "crc32c"}],
                    "index_location": "end",
                },
            }
        ]


def choose_piece_rows(row_bytes: int) -> int:
    """Return the rows of a piece: 16,384, fewer where rows are wide, at least 512."""
    rows = PIECE_ROWS
    while rows > 512 and rows * row_bytes > PIECE_BYTES:
        rows //= 2
    return rows


def encode_shard(raw: Bytes, used: int, piece_bytes: int, zstd: bool) -> Bytes:
    """Return a shard of the raw block ``raw``, whose bytes from ``used`` on are padding."""
    from numcodecs.zstd import compress

    pieces = len(raw) // piece_bytes
    index = np.full((pieces, 2), _ABSENT, "<u8")
    parts: list[bytes] = []
    place = 0
    for piece in range(-(-used // piece_bytes)):
        block = raw[piece * piece_bytes : (piece + 1) * piece_bytes]
        content = compress(block, ZSTD_LEVEL) if zstd else block.tobytes()
        parts += [content, crc_bytes(content)]
        index[piece] = place, len(content) + _CRC
        place += len(content) + _CRC
    parts.append(blake2b(b"".join(parts[1::2]), digest_size=_DIGEST).digest())
    end = index.tobytes()
    return np.frombuffer(b"".join([*parts, end, crc_bytes(end)]), np.uint8)


def index_bytes(pieces: int) -> int:
    """Return the length of the index at the end of a shard."""
    return 16 * pieces + _CRC


def read_index(end: Bytes, pieces: int, used: int, size: int, what: str) -> NDArray[np.int64]:
    """Return offset and length (pieces, 2) of the pieces of a shard; -1 of those past ``used``.

    Parameters
    ----------
    end
        The last bytes of the shard, ``index_bytes(pieces)`` of them.
    pieces, used
        Pieces of a shard, and how many of this one hold rows.
    size
        Length of the shard.
    what
        The shard, for messages.

    Raises
    ------
    StoreError
        If the checksum is wrong, or pieces are missing, overlap or lie outside.
    """
    if crc_bytes(end[:-_CRC].tobytes()) != end[-_CRC:].tobytes():
        raise _damaged("an index with its checksum", what)
    index = np.frombuffer(end[:-_CRC].tobytes(), "<u8").reshape(pieces, 2)
    absent = index[:, 0] == _ABSENT
    if absent[:used].any() or not absent[used:].all():
        raise _damaged(f"{used} pieces", what)
    # Below 2**62, so that sums do not wrap.
    if (index[:used] >= 2**62).any():
        raise _damaged("pieces inside", what)
    found = np.where(absent[:, None], 0, index).astype(np.int64)
    found[absent] = -1
    starts, ends = found[:used, 0], found[:used].sum(axis=1)
    order = np.argsort(starts, kind="stable")
    limit = size - index_bytes(pieces)
    if (found[:used, 1] <= _CRC).any() or (ends > limit).any():
        raise _damaged("pieces inside", what)
    if (starts[order][1:] < ends[order][:-1]).any():
        raise _damaged("pieces that do not overlap", what)
    return found


def decode_piece(content: Bytes, into: Bytes, zstd: bool, what: str, *, check: bool = True) -> None:
    """Fill ``into`` with the raw block of one piece; nothing beyond its length is written.

    Raises
    ------
    StoreError
        If the checksum is wrong, or the piece has another length.
    """
    body = content[:-_CRC]
    if check and crc_bytes(body) != content[-_CRC:].tobytes():
        raise _damaged("a piece with its checksum", what)
    if not zstd:
        if body.nbytes != into.nbytes:
            raise _damaged(f"a piece of {into.nbytes} bytes", what)
        into[:] = body
        return
    from numcodecs.zstd import decompress

    if _content_size(body[:18].tobytes()) != into.nbytes:
        raise _damaged(f"a piece of {into.nbytes} bytes", what)
    try:
        decompress(body, into)
    except (RuntimeError, ValueError) as error:
        raise _damaged("a piece compressed with zstd", what) from error


def decode_shard(
    encoded: Bytes, into: Bytes, used: int, piece_bytes: int, zstd: bool, what: str
) -> None:
    """Fill ``into`` with the rows of a whole shard, whose checksum the caller has compared.

    Parameters
    ----------
    encoded
        The shard.
    into
        The raw block; pieces past ``used`` become zeros.
    used
        Pieces that hold rows.
    piece_bytes
        Bytes of the raw block of one piece.
    zstd
        Whether pieces are compressed.
    what
        The shard, for messages.

    Raises
    ------
    StoreError
        If it contradicts its index.
    """
    index = check_shard(encoded, len(into) // piece_bytes, used, what)
    for piece in range(used):
        start, count = index[piece]
        block = into[piece * piece_bytes : (piece + 1) * piece_bytes]
        decode_piece(encoded[start : start + count], block, zstd, what, check=False)
    into[used * piece_bytes :] = 0


def check_shard(encoded: Bytes, pieces: int, used: int, what: str) -> NDArray[np.int64]:
    """Compare the digest of a whole shard with the checksums of its pieces; return its index.

    The caller has compared the checksum of the shard, which does not see a piece replaced by
    another one of its length with a checksum of its own.

    Raises
    ------
    StoreError
        If it contradicts its index or its digest.
    """
    length = index_bytes(pieces)
    if len(encoded) < length:
        raise _damaged(f"at least {length} bytes", what)
    index = read_index(encoded[-length:], pieces, used, len(encoded), what)
    ends = index[:used].sum(axis=1)
    between = encoded[ends.max(initial=0) : -length].tobytes()
    sums = b"".join(encoded[end - _CRC : end].tobytes() for end in ends)
    # Shards of earlier versions have nothing there.
    if between and between != blake2b(sums, digest_size=_DIGEST).digest():
        raise _damaged("the digest of its pieces", what)
    return index


def tail_bytes(pieces: int) -> int:
    """Return the length of what follows the pieces of a shard: digest and index."""
    return _DIGEST + index_bytes(pieces)


def read_tail(
    tail: Bytes, pieces: int, used: int, size: int, crc: int, what: str
) -> NDArray[np.int64]:
    """Return the index as :func:`read_index`, from the tail of a shard of which ``crc`` is known.

    A piece followed by its own crc32c takes the checksum of a shard from one state to another that
    depends on the length alone. So lengths, digest and index decide the checksum of the whole
    shard, and the tail of a shard of another store is found without its pieces.

    Raises
    ------
    StoreError
        As :func:`read_index`; also if the shard has another checksum.
    """
    length = index_bytes(pieces)
    index = read_index(tail[-length:], pieces, used, size, what)
    ends = index[:used].sum(axis=1)
    first = size - len(tail)
    starts = np.concatenate([[0], ends[:-1]])
    if used and ((index[:used, 0] != starts).any() or not first <= ends[-1] <= first + _DIGEST):
        raise _damaged("pieces one after the other", what)
    found = 0
    for count in index[:used, 1].tolist():
        zeros = bytes(count - _CRC)
        found = google_crc32c.extend(google_crc32c.extend(found, zeros), crc_bytes(zeros))
    rest = tail[ends.max(initial=0) - first :].tobytes()
    if google_crc32c.extend(found, rest) != crc:
        raise _damaged("the checksum of the manifest", what)
    return index


def _content_size(header: bytes) -> int:
    """Return the content size that a zstd frame declares; -1 if it declares none."""
    if len(header) < 6 or header[:4] != _FRAME:
        return -1
    flags = header[4]
    single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
    if width == 0:
        if not single:
            return -1
        width = 1
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    if len(header) < start + width:
        return -1
    size = int.from_bytes(header[start : start + width], "little")
    return size + 256 if width == 2 else size


def _damaged(expected: str, what: str) -> StoreError:
    return StoreError(
        f"expected {expected} in the shard {what}, found another: the object is damaged; copy or "
        "make the store again"
    )
