"""Checkpoint files: the state of all chains as one ``.npz`` of plain arrays and JSON."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import MissingError, StoreError
from streammc.trace.codec import dtype_name
from streammc.trace.durable import read_file
from streammc.trace.sealed import crc32c

_META: Final = "meta.json"

State = tuple[dict[str, NDArray[Any]], dict[str, Any]]


def encode(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint file.

    Raises
    ------
    ConfigError
        If an array has objects, which would need pickle.
    """
    entries: dict[str, Any] = {
        _META: np.frombuffer(json.dumps(dict(meta)).encode(), dtype=np.uint8)
    }
    for name, values in arrays.items():
        entries[f"array.{name}"] = array = np.asarray(values)
        dtype_name(array.dtype)
    buffer = io.BytesIO()
    np.savez(buffer, **entries)
    return buffer.getvalue()


def decode(path: Path, size: int, checksum: int) -> State:
    """Return ``(arrays, meta)`` of the checkpoint file at ``path``, after checking it.

    The committed root has its size and crc32c, so that a substituted file is refused before
    it is parsed. Arrays of objects are not loaded.

    Raises
    ------
    StoreError
        If the file is missing, damaged or not the committed one.
    """
    try:
        data = read_file(path, limit=size)
    except MissingError:
        raise StoreError(
            f"expected the checkpoint {path}, found none: the run is incomplete"
            ": restore the file from a copy, or begin another run"
        ) from None
    if len(data) != size or crc32c(data) != checksum:
        raise StoreError(
            f"expected {path} as it was written, found another size or checksum: the checkpoint "
            "is damaged; begin another run to go on, the draws so far can be read"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                raise ValueError("compressed ones, of any size; uncompressed arrays are written")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            meta: dict[str, Any] = json.loads(stored[_META].tobytes())
            names = [name for name in stored.files if name != _META]
            arrays = {name.removeprefix("array."): stored[name] for name in names}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"expected arrays and JSON in {path}, found {error}"
            ": restore the file from a copy, or begin another run"
        ) from error
    return arrays, meta


def checksum(data: bytes) -> int:
    """Return the checksum of a checkpoint that a commit records."""
    return crc32c(data)
