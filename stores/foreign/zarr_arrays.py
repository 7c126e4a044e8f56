"""Arrays of a zarr group of another program, versions 2 and 3, read as untrusted data.

The metadata are checked before zarr sees them: shape, chunks, dtype and codecs. zarr decodes;
what it reads comes through :class:`.ReadOnly`, in which a missing chunk is an error. zarr alone
would take the fill value for it, a number like any other.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from streammc.errors import StoreError, StreammcError
from streammc.stores.cloud.address import CloudFolder, Root
from streammc.stores.foreign.read_only import ReadOnly
from streammc.stores.format.layout import MAX_CHUNK_BYTES, MAX_ROWS
from streammc.stores.format.object_access import exists, read_range, read_small
from streammc.stores.format.objects import parse_json
from streammc.stores.packed_values import DECIDING

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
        found = {self.metadata_key: self.document}
        if self.version == 2 and self.attributes:
            found[f"{self.path}/.zattrs"] = json.dumps(self.attributes, sort_keys=True).encode()
        return found

    @property
    def read_rows(self) -> int:
        """Rows that are decoded together."""
        return (self.inner or self.chunks)[0]


def read_array_facts(root: Root, path: str, ndim: int) -> ArrayFacts:
    """Return the metadata of the array ``path`` of a group.

    Raises
    ------
    StoreError
        If there is no such array, or it has another rank, no numbers, chunks out of limits, or
        codecs that are not known here.
    """
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
    """Refuse a shard without one of its pieces, for which zarr would take the fill value.

    Raises
    ------
    StoreError
        If a piece with rows of the array is absent.
    """
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
    given = document.get("attributes")
    if facts.version == 2:
        key = f"{facts.path}/.zattrs"
        given = {}
        if exists(root, key):
            what = f"{key!r} of {str(root)!r}"
            given = parse_json(read_small(root, key), what, constants=True)
    attributes = given if isinstance(given, dict) else {}
    found = {name: attributes[name] for name in DECIDING if name in attributes}
    if facts.version == 2 and "_ARRAY_DIMENSIONS" in attributes:
        fill = document.get("fill_value")
        # Floats without a mark have NaN there, which is no value anyway.
        if fill is not None and fill != "NaN":
            found["fill_value"] = fill
    return found


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
    """Return rows of an array in ``dtype``, exactly.

    Raises
    ------
    StoreError
        If a number is not finite, or an integer above 2**53.
    """
    found = np.asarray(values)
    if found.dtype.kind == "f":
        bad = ~np.isfinite(found)
    elif found.dtype.itemsize == 8 and found.dtype.kind == "i":
        bad = (found > 2**53) | (found < -(2**53))
    elif found.dtype.itemsize == 8:
        bad = found > 2**53
    else:
        bad = np.zeros(0, bool)
    if bad.any():
        row = start + int(np.argwhere(bad)[0][0])
        raise StoreError(
            f"expected finite numbers that float64 holds in {where}, found {found[bad][0]} in row "
            f"{row}, counted from 0: correct them, or ingest the table"
        )
    return np.ascontiguousarray(found, dtype)
