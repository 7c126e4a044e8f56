"""The one form of zarr v3 groups and arrays: documents, chunks, and their checksums.

Stores, runs and results are written with it. A group of a run or a result is a JSON document. The
crc32c of the whole text, with zeros in place of the checksum, is at a fixed position:
``{"attributes": {"streammc": {"checksum": "xxxxxxxx", ...``. zarr ignores it. streammc checks it
before it uses any number of the document.

Their chunks are raw little-endian values in C order (strings: ``vlen-utf8``) and four bytes of
crc32c, which is zarr's codec chain ``bytes, crc32c``. zarr's default has no checksum of the data: a
flipped bit would be read as a number. Chunks of a store have their checksums in its manifest.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, StoreError, StreammcError
from streammc.trace.disk import read_files

_HEAD: Final = b'{"attributes": {"streammc": {"checksum": "'
_BLANK: Final = b"00000000"
_END: Final = len(_HEAD) + len(_BLANK)

DOCUMENT: Final = "zarr.json"
"""Name of the document of a group or an array."""
DOCUMENT_LIMIT: Final = 256 * 2**20
"""Largest length in bytes of a document that is read."""


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """Return the crc32c of some bytes."""
    return int(google_crc32c.value(data))


def crc_bytes(data: bytes | NDArray[np.uint8]) -> bytes:
    """Return the crc32c of some bytes as the four bytes that zarr's codec appends."""
    return crc32c(data).to_bytes(_CRC_BYTES, "little")


def plain(value: Any) -> Any:
    """Return ``value`` as strict JSON types: NaN and infinities become ``None``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def seal(
    attributes: Mapping[str, Any], own: Mapping[str, Any], nodes: Mapping[str, Any] | None = None
) -> bytes:
    """Return a group document with attributes, streammc's state ``own`` and a checksum.

    ``nodes`` are the documents of the nodes below the group, by name.
    """
    marked = {"streammc": {"checksum": _BLANK.decode(), **own}, **attributes}
    # The attributes come first, where the checksum is looked for.
    document = {"attributes": marked, **group_document(marked, nodes)}
    text = json.dumps(document, allow_nan=False).encode()
    checksum = f"{crc32c(text):08x}".encode()
    return _HEAD + checksum + text[_END:]


def is_sealed(data: bytes) -> bool:
    """Return whether a document was written by :func:`seal`, even if it is damaged."""
    return data.startswith(_HEAD)


def unseal(data: bytes, where: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``(attributes, own)`` of a sealed document.

    Raises
    ------
    StoreError
        If the document was not written by :func:`seal`, or is damaged.
    """
    if not _HEAD.startswith(data[: len(_HEAD)]):  # one that was cut, to nothing even, is damaged
        raise StoreError(
            f"expected a zarr group written by streammc, found another file at {where}"
            ": check the path"
        )
    found = data[len(_HEAD) : _END]
    if f"{crc32c(_HEAD + _BLANK + data[_END:]):08x}".encode() != found:
        raise StoreError(
            f"expected {where} as it was written, found another checksum: the file is damaged "
            "or was edited; restore it from a copy"
        )
    try:
        attributes = json.loads(data)["attributes"]
        own = attributes.pop("streammc")
        del own["checksum"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"expected JSON written by streammc in {where}: {error}; restore the file from a copy"
        ) from error
    return attributes, own


STRING: Final = "string"
NUMERIC: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
)
_STRING_LIMIT: Final = 256 * 2**20
_CRC_BYTES: Final = 4
_AT_ONCE: Final = 8 * 2**20
"""Bytes of the chunk files that are read before their values are used."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class ArraySpec:
    """Shape, chunks, dtype name and dimension names of one array on disk."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    axis: int = 0
    """Axis along which chunks follow each other; each has the whole of all others."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return -(-self.shape[self.axis] // self.chunk[self.axis]) if self.shape else 1

    def key(self, number: int = 0) -> str:
        """Return the name of the file of a chunk."""
        return chunk_key(number if axis == self.axis else 0 for axis in range(len(self.shape)))

    def chunk_bytes(self) -> int:
        """Return the bytes of a chunk file of a numeric array; of texts the most they can have."""
        if self.dtype == STRING:
            return _STRING_LIMIT
        return prod(self.chunk) * np.dtype(self.dtype).itemsize + _CRC_BYTES

    def document(self) -> dict[str, Any]:
        """Return the ``zarr.json`` of the array."""
        text: dict[str, Any] = {"name": "vlen-utf8"}
        return array_document(
            self.shape,
            # zarr rejects a chunk of length zero, even for an empty array.
            [max(1, length) for length in self.chunk],
            self.dtype,
            self.dims,
            [text if self.dtype == STRING else raw_codec(self.dtype), {"name": "crc32c"}],
            fill_value(self.dtype),
        )

    def document_bytes(self) -> bytes:
        """Return the content of the ``zarr.json`` of the array."""
        return json.dumps(self.document()).encode()


def dtype_name(dtype: Any) -> str:
    """Return the zarr name of a dtype.

    Raises
    ------
    ConfigError
        If it is not numeric, boolean or text.
    """
    kind = np.dtype(dtype)
    if kind.kind in "UT":
        return STRING
    if kind.name not in NUMERIC:
        raise ConfigError(f"expected numbers, truth values or text, found dtype {kind}: convert it")
    return str(kind.name)


def check_name(name: str, error: type[StreammcError] = ConfigError) -> None:
    """Raise ``error`` unless ``name`` can be a directory and a node of a zarr group."""
    if not _NAME.fullmatch(name):
        raise error(
            f"expected a name of letters, digits, '_', '-' and '.', found {name!r:.80}: rename it"
        )


def chunk_key(index: Iterable[int]) -> str:
    """Return the file name of a chunk."""
    return ".".join(["c", *map(str, index)])


def fill_value(dtype: str) -> Any:
    """Return the fill value of a dtype, which readers get for a missing chunk, in JSON."""
    return {"bool": False, STRING: "", "float32": "NaN", "float64": "NaN"}.get(dtype, 0)


def raw_codec(dtype: str) -> dict[str, Any]:
    """Return zarr's codec of raw little-endian values."""
    codec: dict[str, Any] = {"name": "bytes"}
    if np.dtype(dtype).itemsize > 1:
        codec["configuration"] = {"endian": "little"}
    return codec


def array_document(
    shape: Sequence[int],
    chunk: Sequence[int],
    dtype: str,
    dims: Sequence[str],
    codecs: list[dict[str, Any]],
    fill: Any,
) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        # "." keeps the chunks of an array in one directory: one fsync for all.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": list(dims),
        "storage_transformers": [],
    }


def group_document(
    attributes: Mapping[str, Any], nodes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the ``zarr.json`` of a group, with the documents of the nodes below it."""
    document: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": dict(attributes),
    }
    return document if nodes is None else document | consolidated(nodes)


def consolidated(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``consolidated_metadata`` of a group: the documents of the nodes below it."""
    inline = {"kind": "inline", "must_understand": False, "metadata": dict(nodes)}
    return {"consolidated_metadata": inline}


def encode(array: NDArray[Any], dtype: str) -> bytes:
    """Return one whole chunk as the bytes of its file."""
    if dtype == STRING and array.dtype.kind == "S":
        body = struct.pack("<I", array.size) + _prefixed(array)
    elif dtype == STRING:
        body = encode_texts([str(text) for text in array.ravel().tolist()])
    else:
        body = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()
    return body + crc_bytes(body)


def encode_texts(texts: Sequence[str]) -> bytes:
    """Return texts as zarr's codec ``vlen-utf8`` writes them, without a checksum."""
    encoded = [text.encode() for text in texts]
    return struct.pack("<I", len(encoded)) + b"".join(
        struct.pack("<I", len(text)) + text for text in encoded
    )


def _prefixed(texts: NDArray[np.bytes_]) -> bytes:
    """Return the bytes of NUL-padded UTF-8 texts, without padding and each after its length."""
    width = texts.dtype.itemsize
    lengths = np.char.str_len(texts).astype("<u4")
    packed = np.zeros((texts.size, 4 + width), np.uint8)
    packed[:, :4] = lengths.view(np.uint8).reshape(-1, 4)
    packed[:, 4:] = np.ascontiguousarray(texts).view(np.uint8).reshape(-1, width)
    return packed[np.arange(4 + width) < 4 + lengths[:, None]].tobytes()


def chunk_checksum(data: bytes) -> int:
    """Return the checksum in the last four bytes of a chunk file.

    The crc32c of the whole file would not do: for data followed by their crc32c it is a
    constant.
    """
    return int.from_bytes(data[-_CRC_BYTES:], "little")


def checked_body(data: bytes, where: Any) -> bytes:
    """Verify the checksum of a chunk file; return its content without the checksum.

    Raises
    ------
    StoreError
        If the checksum is wrong.
    """
    body = data[:-_CRC_BYTES]
    if len(data) < _CRC_BYTES or crc_bytes(body) != data[-_CRC_BYTES:]:
        raise StoreError(
            f"expected {where} as it was written, found another checksum: the file is damaged; "
            "restore it from a copy, or delete the whole output and run again"
        )
    return body


def decode(data: bytes, shape: tuple[int, ...], dtype: str, where: Any) -> NDArray[Any]:
    """Return the array of one chunk file; text as ``<U``, never as objects.

    Raises
    ------
    StoreError
        If the checksum is wrong, or size or text contradict the metadata.
    """
    body = checked_body(data, where)
    if dtype == STRING:
        return _decode_text(body, shape, where)
    kind = np.dtype(dtype)
    if len(body) != prod(shape) * kind.itemsize:
        raise StoreError(
            f"expected {prod(shape) * kind.itemsize} bytes for shape {list(shape)} in {where}, "
            f"found {len(body)}: the file is damaged; restore it from a copy"
        )
    values = np.frombuffer(body, kind.newbyteorder("<")).reshape(shape)
    return values.astype(kind, copy=True)


def _decode_text(body: bytes, shape: tuple[int, ...], where: Any) -> NDArray[Any]:
    texts = []
    try:
        (count,) = struct.unpack_from("<I", body)
        position = 4
        for _ in range(count):
            (length,) = struct.unpack_from("<I", body, position)
            position += 4 + length
            texts.append(body[position - length : position].decode())
        whole = position == len(body) and count == prod(shape)
    except (struct.error, UnicodeDecodeError):
        whole = False
    if not whole:
        raise StoreError(
            f"expected {prod(shape)} texts in {where}, found something else"
            ": restore the file from a copy"
        )
    if 4 * len(texts) * max(map(len, texts), default=0) > _STRING_LIMIT:
        raise StoreError(
            f"expected texts of at most {_STRING_LIMIT} bytes in {where}, found more"
            ": restore the file from a copy"
        )
    return np.array(texts, dtype=np.str_).reshape(shape)


@dataclass(frozen=True)
class StoredArray:
    """An array of one chunk, written once, with size and checksum of the file of the chunk."""

    spec: ArraySpec
    size: int
    crc32c: int

    def entry(self) -> dict[str, Any]:
        """Return the array as JSON, for :func:`stored_from_entry`."""
        return {
            "shape": list(self.spec.shape),
            "dtype": self.spec.dtype,
            "dims": list(self.spec.dims),
            "size": self.size,
            "crc32c": self.crc32c,
        }


def whole_spec(dims: Sequence[str], values: NDArray[Any]) -> ArraySpec:
    """Return the spec of an array of one chunk."""
    return ArraySpec(values.shape, values.shape, dtype_name(values.dtype), tuple(dims))


def store_array(
    folder: Path, dims: Sequence[str], values: NDArray[Any]
) -> tuple[StoredArray, dict[Path, bytes]]:
    """Return an array of one chunk, and the contents of its files in ``folder``."""
    spec = whole_spec(dims, values)
    chunk = encode(values, spec.dtype)
    files = {folder / DOCUMENT: spec.document_bytes(), folder / spec.key(): chunk}
    return StoredArray(spec, len(chunk), chunk_checksum(chunk)), files


def stored_from_entry(name: str, entry: Mapping[str, Any]) -> StoredArray:
    """Return the array of an entry in a document.

    Raises
    ------
    StoreError
        If its name cannot be that of an array.
    ValueError, KeyError, TypeError
        If the entry contradicts itself.
    """
    for part in name.split("/"):
        check_name(part, StoreError)
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if dtype not in (*NUMERIC, STRING) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"array {name} of {dtype!r:.40} {shape!r:.80}")
    spec = ArraySpec(shape, shape, dtype, tuple(entry.get("dims", ())))
    if dtype != STRING and spec.chunk_bytes() != int(entry["size"]):
        raise ValueError(f"array {name} of {entry['size']} bytes and shape {shape!r:.80}")
    return StoredArray(spec, int(entry["size"]), int(entry["crc32c"]))


def read_stored(folder: Path, array: StoredArray) -> NDArray[Any]:
    """Return the values of an array of one chunk.

    Raises
    ------
    StoreError
        If it is missing, damaged, or not the one that was written.
    """
    where = folder / array.spec.key()
    data = _present(read_files([where], limit=array.size), where)
    values = decode(data, array.spec.shape, array.spec.dtype, where)
    if len(data) != array.size or chunk_checksum(data) != array.crc32c:
        raise StoreError(
            f"expected {where} as it was written, found another version of it: restore the file "
            "from a copy, or delete the whole output and run again"
        )
    return values


def read_chunk(folder: Path, spec: ArraySpec, number: int) -> NDArray[Any]:
    """Return the values of a chunk, without padding.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """
    return _read_some(folder, spec, [number])[0]


def read_chunks(folder: Path, spec: ArraySpec, total: int) -> Iterator[NDArray[Any]]:
    """Yield the chunks of an array that grows; compare their sequence with ``total`` at the end.

    Raises
    ------
    StoreError
        If a chunk is missing, damaged, or not the one that was written at its place.
    """
    found, step = 0, max(1, _AT_ONCE // spec.chunk_bytes())
    for first in range(0, spec.n_chunks, step):
        for values in _read_some(folder, spec, range(first, min(first + step, spec.n_chunks))):
            found = fold(found, interval_checksum(values))
            yield values
    if found != total:
        raise StoreError(
            f"expected the chunks of {folder} as they were committed, found others in their "
            "place: restore the array from a copy"
        )


def _read_some(folder: Path, spec: ArraySpec, numbers: Sequence[int]) -> list[NDArray[Any]]:
    """Return the values of some chunks, without padding."""
    paths = [folder / spec.key(number) for number in numbers]
    contents = read_files(paths, limit=spec.chunk_bytes())
    arrays = []
    for number, where in zip(numbers, paths, strict=True):
        values = decode(_present(contents, where), spec.chunk, spec.dtype, where)
        left = spec.shape[spec.axis] - number * spec.chunk[spec.axis]
        arrays.append(values[:left] if spec.axis == 0 else values[:, :left])
    return arrays


def _present(contents: Mapping[Path, bytes], where: Path) -> bytes:
    """Return the content of a chunk file; refuse one that is missing."""
    if where not in contents:
        raise StoreError(
            f"expected {where}, found none: the output is incomplete; restore the file from a "
            "copy, or delete the whole output and run again"
        )
    return contents[where]


def read_growing(folder: Path, spec: ArraySpec, total: int) -> NDArray[Any]:
    """Return the values of an array that grows; see :func:`read_chunks`."""
    whole, start = np.empty(spec.shape, spec.dtype), 0
    for values in read_chunks(folder, spec, total):
        stop = start + values.shape[spec.axis]
        whole[(*[slice(None)] * spec.axis, slice(start, stop))] = values
        start = stop
    return whole


def interval_checksum(values: NDArray[Any]) -> int:
    """Return the checksum of the values in one chunk, without padding."""
    return crc32c(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())


def fold(total: int, part: int) -> int:
    """Return the checksum of a sequence of chunks extended by one chunk.

    ``total`` is the checksum of the sequence, ``part`` that of the chunk.
    """
    return crc32c(struct.pack("<II", total, part))
