"""Groups and arrays of zarr v3 as bytes that carry their own checksums.

A group is a JSON document. The crc32c of the whole text, with zeros in place of the checksum, is
at a fixed position: ``{"attributes": {"streammc": {"checksum": "xxxxxxxx", ...``. zarr ignores
it. streammc checks it before it uses any number of the document.

A chunk is raw little-endian values in C order (strings: ``vlen-utf8``) and four bytes of crc32c,
which is zarr's codec chain ``bytes, crc32c``. zarr's default has no checksum of the data: a flipped
bit would be read as a number.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, StoreError, StreammcError

_HEAD: Final = b'{"attributes": {"streammc": {"checksum": "'
_BLANK: Final = b"00000000"
_END: Final = len(_HEAD) + len(_BLANK)

DOCUMENT_LIMIT: Final = 256 * 2**20
"""Largest length in bytes of a document that is read."""


def crc32c(data: Any) -> int:
    """Return the crc32c of a bytes-like object."""
    # bytes(): the extension module takes no memoryview.
    return int(google_crc32c.value(data if isinstance(data, bytes) else bytes(data)))


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
    attributes: Mapping[str, Any], own: Mapping[str, Any], rest: Mapping[str, Any] | None = None
) -> bytes:
    """Return a zarr v3 group document with attributes, streammc's state ``own`` and a checksum."""
    document = {
        "attributes": {"streammc": {"checksum": _BLANK.decode(), **own}, **attributes},
        "zarr_format": 3,
        "node_type": "group",
        **(rest or {}),
    }
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
    if not is_sealed(data):
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
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class ArraySpec:
    """Shape, chunks, dtype name and dimension names of one array on disk."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]

    def chunk_bytes(self) -> int:
        """Return the bytes of a chunk file of a numeric array."""
        return prod(self.chunk) * np.dtype(self.dtype).itemsize + _CRC_BYTES


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


def chunk_key(index: tuple[int, ...]) -> str:
    """Return the file name of a chunk."""
    return ".".join(["c", *map(str, index)])


def fill_value(dtype: str) -> Any:
    """Return the fill value of a dtype, which readers get for a missing chunk, in JSON."""
    return {"bool": False, STRING: "", "float32": "NaN", "float64": "NaN"}.get(dtype, 0)


def document(spec: ArraySpec) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array."""
    serializer: dict[str, Any] = {"name": "bytes"}
    if spec.dtype == STRING:
        serializer = {"name": "vlen-utf8"}
    elif np.dtype(spec.dtype).itemsize > 1:
        serializer["configuration"] = {"endian": "little"}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": spec.dtype,
        # zarr rejects a chunk of length zero, even for an empty array.
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [max(1, length) for length in spec.chunk]},
        },
        # "." keeps the chunks of an array in one directory: one fsync for all.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill_value(spec.dtype),
        "codecs": [serializer, {"name": "crc32c"}],
        "attributes": {},
        "dimension_names": list(spec.dims),
        "storage_transformers": [],
    }


def document_bytes(spec: ArraySpec) -> bytes:
    """Return the content of the ``zarr.json`` of an array."""
    return json.dumps(document(spec)).encode()


def consolidated(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``consolidated_metadata`` of a group: the documents of the nodes below it."""
    inline = {"kind": "inline", "must_understand": False, "metadata": dict(metadata)}
    return {"consolidated_metadata": inline}


def encode(array: NDArray[Any], dtype: str) -> bytes:
    """Return one whole chunk as the bytes of its file."""
    if dtype == STRING and array.dtype.kind == "S":
        body = struct.pack("<I", array.size) + _prefixed(array)
    elif dtype == STRING:
        texts = [str(text).encode() for text in array.ravel().tolist()]
        body = struct.pack("<I", len(texts)) + b"".join(
            struct.pack("<I", len(text)) + text for text in texts
        )
    else:
        body = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()
    return body + struct.pack("<I", crc32c(body))


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
    if len(data) < _CRC_BYTES or struct.pack("<I", crc32c(body)) != data[-_CRC_BYTES:]:
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
