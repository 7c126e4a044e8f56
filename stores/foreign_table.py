"""A zarr group of another program as a data set: rows identical to those of an ingested copy.

The group, of version 2 or 3, is untrusted. Its metadata are checked before zarr sees them: shape,
chunks, dtype and codecs. zarr decodes; what it reads comes through :class:`.ReadOnly`, in which a
missing chunk is an error. zarr alone would take the fill value for it, a number like any other.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final
from zlib import crc32

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from streammc.errors import StoreError, StreammcError
from streammc.protocols import RowBlock
from streammc.stores.cloud.address import CloudFolder, Root
from streammc.stores.format.layout import (
    FORMAT,
    MAX_CHUNK_BYTES,
    MAX_ROWS,
    Layout,
    Member,
    choose_chunk_rows,
)
from streammc.stores.format.manifest import Entry, Manifest, make_manifest
from streammc.stores.format.objects import (
    absent_objects,
    at_once,
    exists,
    object_stamps,
    parse_json,
    read_range,
    read_small,
)
from streammc.stores.packed_values import DECIDING, StoredNumbers
from streammc.stores.rows.piece_cache import CachedRows, Pieces
from streammc.stores.rows.row_blocks import Block
from streammc.stores.rows.row_weights import MAX_WEIGHT

_METADATA: Final = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class ReadOnly(Store):
    """The objects of a store as a ``zarr`` store without fill values for what is absent."""

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
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
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
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of objects."""
        return list(
            await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))
        )

    async def exists(self, key: str) -> bool:
        """Return whether there is an object."""
        return await asyncio.to_thread(exists, self.root, key)

    supports_writes = supports_deletes = supports_listing = False

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


MAX_CHUNKS: Final = 1_000_000
_CODECS: Final = {"bytes", "crc32c", "zstd", "gzip", "blosc", "transpose", "sharding_indexed"}
_COMPRESSORS: Final = {"zstd", "gzip", "zlib", "blosc", "lz4", "bz2", "lzma"}
_FILTERS: Final = {"shuffle", "delta"}
_V3_DTYPES: Final = {
    "bool": "bool",
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"float{bits}" for bits in (16, 32, 64)},
}


@dataclass(frozen=True)
class ArrayFacts:
    """Checked metadata of an array."""

    path: str
    version: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    """Shape of what is one object: a chunk, or a shard."""
    inner: tuple[int, ...] | None
    """Shape of the pieces of a shard."""
    dtype: np.dtype[Any]
    dimensions: tuple[str | None, ...]
    document: bytes
    attributes: dict[str, Any] = field(default_factory=dict)
    """Those that say whether the numbers are the values."""

    @property
    def metadata_key(self) -> str:
        """Key of the metadata in the group."""
        return f"{self.path}/{'zarr.json' if self.version == 3 else '.zarray'}"

    @property
    def documents(self) -> dict[str, bytes]:
        """What the fingerprint has of the metadata, by key; ``zarr.json`` has the attributes."""
        by_key = {self.metadata_key: self.document}
        if self.version == 2 and self.attributes:
            by_key[f"{self.path}/.zattrs"] = json.dumps(self.attributes, sort_keys=True).encode()
        return by_key

    @property
    def read_rows(self) -> int:
        """Rows that are decoded together."""
        return (self.inner or self.chunks)[0]


def read_array_facts(root: Root, path: str, ndim: int) -> ArrayFacts:
    """Return the metadata of the array ``path`` of a group."""
    for name, version in (("zarr.json", 3), (".zarray", 2)):
        key = f"{path}/{name}"
        if exists(root, key):
            content = read_small(root, key)
            what = f"{key!r} of {str(root)!r}"
            document = parse_json(content, what, constants=True)
            facts = (_version_3 if version == 3 else _version_2)(document, path, what, content)
            _check(facts, ndim, what, root)
            return replace(facts, attributes=_deciding(root, facts, document))
    raise StoreError(
        f"expected the zarr array {path!r} in {str(root)!r}, found none: name the arrays of design "
        f"and response, as '{root}#X=NAME&y=NAME'"
    )


def open_array(root: Root, facts: ArrayFacts) -> Any:
    """Return the ``zarr.Array`` of ``facts``; raise StoreError if zarr refuses its metadata."""
    version: Any = facts.version
    try:
        return zarr.open_array(ReadOnly(root), path=facts.path, mode="r", zarr_format=version)
    except StreammcError:
        raise
    except Exception as error:  # zarr has no class of its own for metadata that it refuses
        raise _wrong("metadata that zarr accepts", facts.metadata_key, error) from error


def chunk_keys(array: Any, facts: ArrayFacts) -> list[str]:
    """Return the keys in the group of all chunks of an array."""
    grid = [-(-length // chunk) for length, chunk in zip(facts.shape, facts.chunks, strict=True)]
    encode = array.metadata.encode_chunk_key
    return [f"{facts.path}/{encode(place)}" for place in np.ndindex(*grid)]


def check_shard(root: Root, facts: ArrayFacts, key: str, place: tuple[int, ...], size: int) -> None:
    """Refuse a shard without one of its pieces, for which zarr would take the fill value."""
    assert facts.inner is not None
    counts = [chunk // inner for chunk, inner in zip(facts.chunks, facts.inner, strict=True)]
    length = 16 * math.prod(counts) + 4
    end = read_range(root, key, max(size - length, 0), min(length, size))
    if len(end) != length:
        raise StoreError(
            f"expected a shard in {key!r} of {str(root)!r}, found fewer bytes: copy it"
        )
    index = np.frombuffer(end[:-4].tobytes(), "<u8").reshape(*counts, 2)[..., 0]
    used = tuple(
        slice(-(-min(chunk, total - at * chunk) // inner))
        for chunk, inner, total, at in zip(
            facts.chunks, facts.inner, facts.shape, place, strict=True
        )
    )
    if (index[used] == 2**64 - 1).any():
        raise StoreError(
            f"expected every piece of the shard {key!r} of {str(root)!r}, found one absent, which "
            "may stand for lost data as well as for fill values: write the array with "
            "write_empty_chunks=True, or ingest it"
        )


def _deciding(root: Root, facts: ArrayFacts, document: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an array that say whether its numbers are the values.

    In version 2 xarray writes the mark of missing values as ``fill_value``, and the names of the
    dimensions as an attribute. Other programs write any ``fill_value``, which means nothing.
    """
    stored = document.get("attributes")
    if facts.version == 2:
        key = f"{facts.path}/.zattrs"
        stored = {}
        if exists(root, key):
            what = f"{key!r} of {str(root)!r}"
            stored = parse_json(read_small(root, key), what, constants=True)
    attributes = stored if isinstance(stored, dict) else {}
    deciding = {name: attributes[name] for name in DECIDING if name in attributes}
    if facts.version == 2 and "_ARRAY_DIMENSIONS" in attributes:
        fill = document.get("fill_value")
        # Floats without a mark have NaN there, which is no value anyway.
        if fill is not None and fill != "NaN":
            deciding["fill_value"] = fill
    return deciding


def _version_3(document: dict[str, Any], path: str, what: str, content: bytes) -> ArrayFacts:
    if document.get("node_type") != "array" or document.get("zarr_format") != 3:
        raise _wrong("a zarr array", what, document.get("node_type"))
    dtype = document.get("data_type")
    if not isinstance(dtype, str) or dtype not in _V3_DTYPES:
        raise _wrong("numbers as data_type", what, dtype)
    grid = document.get("chunk_grid")
    own = grid.get("configuration") if isinstance(grid, dict) else None
    if not isinstance(own, dict) or not isinstance(grid, dict) or grid.get("name") != "regular":
        raise _wrong("a regular chunk_grid", what, grid)
    inner = _codecs(document.get("codecs"), what, outer=True)
    shape = document.get("shape")
    names = document.get("dimension_names")
    rank = len(shape) if isinstance(shape, list) else 0
    dimensions = tuple(names) if isinstance(names, list) else (None,) * rank
    return ArrayFacts(
        path,
        3,
        _extent(shape, what, "shape"),
        _extent(own.get("chunk_shape"), what, "chunk_shape"),
        None if inner is None else _extent(inner, what, "chunk_shape of the shards"),
        np.dtype(_V3_DTYPES[dtype]),
        dimensions,
        content,
    )


def _codecs(codecs: Any, what: str, *, outer: bool) -> Any:
    """Check the codecs; return the shape of the pieces if they are shards."""
    if not isinstance(codecs, list) or not codecs:
        raise _wrong("codecs", what, codecs)
    inner = None
    for codec in codecs:
        name = codec.get("name") if isinstance(codec, dict) else None
        if name not in _CODECS or (name == "sharding_indexed" and not (outer and len(codecs) == 1)):
            raise _wrong(f"codecs among {', '.join(sorted(_CODECS))}", what, codec)
        if name == "sharding_indexed":
            own = codec.get("configuration") or {}
            _codecs(own.get("codecs"), what, outer=False)
            ends = [each.get("name") for each in own.get("index_codecs") or [{}]]
            if own.get("index_location", "end") != "end" or ends != ["bytes", "crc32c"]:
                raise _wrong("an index with a crc32c at the end of each shard", what, ends)
            inner = own.get("chunk_shape")
    return inner


def _version_2(document: dict[str, Any], path: str, what: str, content: bytes) -> ArrayFacts:
    if document.get("zarr_format") != 2:
        raise _wrong("a zarr array", what, document.get("zarr_format"))
    compressor = document.get("compressor")
    name = compressor.get("id") if isinstance(compressor, dict) else compressor
    if name is not None and name not in _COMPRESSORS:
        raise _wrong(f"a compressor among {', '.join(sorted(_COMPRESSORS))}", what, name)
    for each in document.get("filters") or []:
        name = each.get("id") if isinstance(each, dict) else each
        if name not in _FILTERS:
            raise _wrong(f"filters among {', '.join(sorted(_FILTERS))}", what, name)
    text = document.get("dtype")
    try:
        dtype = np.dtype(text if isinstance(text, str) else "O")
    except TypeError:
        dtype = np.dtype("O")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise _wrong("numbers as dtype", what, text)
    shape = _extent(document.get("shape"), what, "shape")
    chunks = _extent(document.get("chunks"), what, "chunks")
    names: tuple[str | None, ...] = (None,) * len(shape)
    return ArrayFacts(path, 2, shape, chunks, None, dtype, names, content)


def _extent(value: Any, what: str, field: str) -> tuple[int, ...]:
    good = isinstance(value, list) and all(type(each) is int for each in value)
    if not good or not all(0 < each <= MAX_ROWS for each in value):
        raise _wrong(f"positive integers up to {MAX_ROWS} as {field}", what, value)
    return tuple(value)


def _check(facts: ArrayFacts, ndim: int, what: str, root: Root) -> None:
    if len(facts.shape) != ndim or len(facts.chunks) != ndim:
        raise _wrong(f"{ndim} dimensions", what, f"shape {list(facts.shape)}")
    for shape in (facts.chunks, facts.inner or facts.chunks):
        size = math.prod(shape) * facts.dtype.itemsize
        if len(shape) != ndim or size > MAX_CHUNK_BYTES:
            limit = f"chunks of at most {MAX_CHUNK_BYTES >> 20} MB"
            raise _wrong(limit, what, f"{size} bytes a chunk")
    if any(chunk % inner for chunk, inner in zip(facts.chunks, facts.inner or (1,), strict=False)):
        raise _wrong("shards of whole pieces", what, facts.inner)
    count = math.prod(
        -(-length // chunk) for length, chunk in zip(facts.shape, facts.chunks, strict=True)
    )
    if count > MAX_CHUNKS:
        raise _wrong(f"at most {MAX_CHUNKS:,} chunks", what, f"{count:,}; rechunk it")
    if isinstance(root, CloudFolder) and not root.listable and count > 1000:
        raise _wrong("at most 1000 chunks on a web server", what, f"{count:,}")


def _wrong(expected: str, what: str, found: Any) -> StoreError:
    return StoreError(
        f"expected {expected} in {what}, found {repr(found)[:100]}: use another array, or ingest "
        "the table"
    )


def numbers(values: Any, dtype: str, where: str, start: int) -> NDArray[Any]:
    """Return rows of an array in ``dtype``, exactly."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
    elif array.dtype.itemsize == 8 and array.dtype.kind == "i":
        bad = (array > 2**53) | (array < -(2**53))
    elif array.dtype.itemsize == 8:
        bad = array > 2**53
    else:
        bad = np.zeros(0, bool)
    if bad.any():
        row = start + int(np.argwhere(bad)[0][0])
        raise StoreError(
            f"expected finite numbers that float64 holds in {where}, found {array[bad][0]} in row "
            f"{row}, counted from 0: correct them, or ingest the table"
        )
    return np.ascontiguousarray(array, dtype)


_PIECE_BYTES: Final = 256 << 10
_NAMES: Final = ("X", "y", "offset", "weight")
_ADVICE: Final = (
    "open the group with xarray, which decodes it, and ingest it with streammc.from_xarray"
)


class ForeignTable:
    """Arrays of a zarr group that streammc did not make; the rows of a ``Store``.

    There is no manifest: the fingerprint is that of the metadata, with the attributes that say
    whether the numbers are the values, and of the length, the time and the tag of every chunk, so
    that a copy is another data set.

    ``arrays`` has their names in the group, by ``X``, ``y``, ``offset`` and ``weight``.
    """

    def __init__(self, root: Root, arrays: Mapping[str, str]) -> None:
        self.root, self._names = root, tuple(arrays.items())
        self._facts = {
            name: read_array_facts(root, arrays[name], 2 if name == "X" else 1)
            for name in _NAMES
            if name in arrays
        }
        X = self._facts["X"]
        n_rows = X.shape[0]
        for facts in self._facts.values():
            if facts.shape[0] != n_rows:
                raise StoreError(
                    f"expected {n_rows} rows in {facts.path!r} of {str(root)!r}, as "
                    f"{X.path!r} has, found {facts.shape[0]}: name arrays of one table"
                )
        self._numbers = {
            name: StoredNumbers(
                facts.attributes, facts.dtype, self._where(facts), _ADVICE, StoreError
            )
            for name, facts in self._facts.items()
        }
        self._arrays = {name: open_array(root, facts) for name, facts in self._facts.items()}
        self._chunk_keys = {
            name: chunk_keys(array, self._facts[name]) for name, array in self._arrays.items()
        }
        members = tuple(
            Member(name, _dtype(facts, name), X.shape[1] if name == "X" else None)
            for name, facts in self._facts.items()
        )
        self.layout = Layout(n_rows, _pass_rows(X, members[0].row_bytes), members)
        fragment = "&".join(f"{name}={facts.path}" for name, facts in self._facts.items())
        self.address = f"{root}#{fragment}"
        self.attributes: dict[str, Any] = {
            "format": FORMAT,
            "n_rows": n_rows,
            "response": arrays.get("y"),
            "features": [f"x{column}" for column in range(X.shape[1])],
            "intercept": False,
            "standardization": None,
            "formula": None,
            "shuffle_seed": False,
            "sources": [str(root)],
            "dtype": members[0].dtype,
        }
        self.manifest = self._manifest_now()
        self._whole_shards: set[str] = set()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Return how a worker of a cluster opens the same arrays again."""
        return _opened_again, (self.root, self._names, self.manifest.fingerprint)

    def _manifest_now(self) -> Manifest:
        """Return the metadata, and lengths, times and tags of the chunks, as a manifest."""
        entries = {}
        for facts in self._facts.values():
            now = read_array_facts(self.root, facts.path, len(facts.shape))
            for key, content in now.documents.items():
                entries[key] = Entry(len(content), crc32(content))
        for name, keys in self._chunk_keys.items():
            for key, (size, *rest) in zip(keys, self._stamps(name), strict=True):
                entries[key] = Entry(int(size), crc32(repr(rest).encode()))
        return make_manifest(entries)

    def _where(self, facts: ArrayFacts) -> str:
        return f"{facts.path!r} of {str(self.root)!r}"

    def _stamps(self, name: str) -> Any:
        """Return size, time and tag of every chunk of an array; refuse one without a chunk."""
        keys = self._chunk_keys[name]
        try:
            stamps = object_stamps(self.root, keys).tolist()
        except StoreError as error:
            absent = absent_objects(self.root, keys)
            if not absent:
                raise
            raise StoreError(
                f"expected {len(keys)} chunks of {self._where(self._facts[name])}, found "
                f"{len(absent)} absent, {absent[0]!r} first: zarr leaves out chunks of nothing but "
                "the fill value, and lost ones look the same; write them with "
                "write_empty_chunks=True, or ingest the table"
            ) from error
        # An inode number says nothing of the content, and differs on another mount.
        return [[*each[:2], 0] for each in stamps] if isinstance(self.root, Path) else stamps

    def rows(self) -> CachedRows:
        """Return the rows, read through a new cache of decoded chunks."""
        own, row_bytes = self._facts["X"].read_rows, self.layout.members[0].row_bytes
        size = own * max(_PIECE_BYTES // (own * row_bytes), 1)
        return CachedRows(_ForeignPieces(self, size))

    def blocks(self, size: int) -> Sequence[Block]:
        """Return the row blocks of a full pass, of ``size`` rows each, in the order of the rows."""
        self.require_unchanged()
        n_rows = self.layout.n_rows
        return [
            _ForeignBlock(index, self, start, min(size, n_rows - start))
            for index, start in enumerate(range(0, n_rows, size))
        ]

    def require_unchanged(self) -> None:
        """Refuse a group that has changed since it was opened."""
        if self._manifest_now() != self.manifest:
            raise StoreError(
                f"expected {self.address!r} as it was, found changed chunks or metadata: open it "
                "again"
            )

    def read_rows(self, start: int, stop: int) -> Pieces:
        """Return the rows ``start`` to ``stop``; an array that the group lacks is empty."""
        rows: dict[str, NDArray[Any]] = {}
        for name, array in self._arrays.items():
            facts = self._facts[name]
            where = self._where(facts)
            if facts.inner is not None:
                self._check_shards(name, start, stop)
            try:
                values = array[start:stop]
            except StoreError:
                raise
            except (ValueError, RuntimeError, TypeError, EOFError) as error:
                reason = type(error).__name__
                raise StoreError(
                    f"expected rows {start} to {stop} of {where}, found chunks that cannot be "
                    f"decoded ({reason}): copy or make the group again"
                ) from error
            self._numbers[name].refuse_marked(np.asarray(values), start)
            rows[name] = numbers(values, self.layout.members[len(rows)].dtype, where, start)
        weight = rows.get("weight", np.empty(0))
        if weight.size and (weight.min() < 0.0 or weight.max() > MAX_WEIGHT):
            raise StoreError(
                f"expected weights from 0 to 2**53 in rows {start} to {stop} of "
                f"{self.address!r}, found others: correct them"
            )
        return Pieces(*(rows.get(name, np.empty(0)) for name in _NAMES))

    def _check_shards(self, name: str, start: int, stop: int) -> None:
        facts = self._facts[name]
        grid = [-(-n // chunk) for n, chunk in zip(facts.shape, facts.chunks, strict=True)]
        for at, place in enumerate(np.ndindex(*grid)):
            key, rows = self._chunk_keys[name][at], facts.chunks[0]
            inside = place[0] * rows < stop and (place[0] + 1) * rows > start
            if inside and key not in self._whole_shards:
                check_shard(self.root, facts, key, place, self.manifest.entries[key].size)
                self._whole_shards.add(key)


@lru_cache(maxsize=4)
def _opened_again(root: Root, names: tuple[tuple[str, str], ...], fingerprint: str) -> ForeignTable:
    """Return the arrays in another process; raise StoreError if they have changed."""
    table = ForeignTable(root, dict(names))
    if table.manifest.fingerprint != fingerprint:
        raise StoreError(
            f"expected {table.address!r} as it was, found changed chunks: give every worker the "
            "same group"
        )
    return table


def open_foreign(root: Root, arrays: Mapping[str, str]) -> ForeignTable:
    """Open arrays of a zarr group; without names ``X``, and ``y`` where there is one."""
    names = dict(arrays)
    if not names:
        names = {
            name: name
            for name in _NAMES
            if name == "X" or exists(root, f"{name}/zarr.json") or exists(root, f"{name}/.zarray")
        }
    if "X" not in names:
        raise StoreError(
            f"expected the array of the design, as '{root}#X=NAME&y=NAME', found others: name it"
        )
    return ForeignTable(root, names)


class _ForeignPieces:
    """Reader of the pieces of a foreign table; see ``piece_cache.PieceReader``."""

    def __init__(self, table: ForeignTable, piece_rows: int) -> None:
        X, y, offset, weight = (table.layout.member(name) for name in _NAMES)
        assert X is not None
        self._table = table
        self.n_rows, self.columns, self.where = table.layout.n_rows, X.columns or 0, table.address
        self.piece_rows = piece_rows
        dtype = None if y is None else y.dtype
        self.dtypes = X.dtype, dtype, offset is not None, weight is not None

    def read(self, pieces: Sequence[int]) -> list[Pieces]:
        """Return some pieces."""
        size = self.piece_rows
        return at_once(
            self._table.root,
            [
                lambda piece=piece: self._table.read_rows(  # type: ignore[misc]
                    piece * size, min((piece + 1) * size, self.n_rows)
                )
                for piece in pieces
            ],
        )


@dataclass(frozen=True)
class _ForeignBlock:
    """A block of rows of a full pass; a worker of a cluster opens the arrays again."""

    index: int
    table: ForeignTable
    start: int
    rows: int
    coded: ClassVar[bool] = False

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows piece by piece, in order."""
        step = self.table.layout.chunk_rows
        for start in range(self.start, self.start + self.rows, step):
            m = min(step, self.start + self.rows - start)
            X, y, offset, weight = self.table.read_rows(start, start + m)
            yield RowBlock(
                self.index,
                start,
                X,
                y if y.size else np.zeros(m),
                offset if offset.size else np.zeros(m),
                weight if weight.size else np.ones(m),
            )


def _dtype(facts: ArrayFacts, name: str) -> str:
    """Return float32 if it holds every number of the design exactly, else float64."""
    kind, size = facts.dtype.kind, facts.dtype.itemsize
    narrow = kind == "b" or (kind in "iu" and size <= 2) or (kind == "f" and size <= 4)
    return "float32" if name == "X" and narrow else "float64"


def _pass_rows(X: ArrayFacts, row_bytes: int) -> int:
    """Return the rows of a piece of a full pass: as a store has them, in whole chunks."""
    wanted = choose_chunk_rows(row_bytes, X.shape[0])
    rows = max(wanted // X.read_rows, 1) * X.read_rows
    return min(rows, X.shape[0])
