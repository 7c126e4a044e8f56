"""JSON documents that carry their own checksum, as a zarr group document.

The crc32c of the whole text, with zeros in place of the checksum, is at a fixed position:
``{"attributes": {"streammc": {"checksum": "xxxxxxxx", ...``. zarr ignores it. streammc
checks it before it uses any number of the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np

from streammc.errors import StoreError

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
