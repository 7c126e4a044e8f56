"""Named arrays and JSON in one zarr group, written completely or not at all.

For results that are computed once and then only read, such as control variates. Each
array is one chunk with its checksum; the group document lists all arrays.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import AccessError, ConfigError, MissingError, OutputError, StoreError
from streammc.trace.addresses import given_path
from streammc.trace.codec import (
    DOCUMENT_LIMIT,
    NUMERIC,
    STRING,
    ArraySpec,
    check_name,
    chunk_checksum,
    chunk_key,
    consolidated,
    decode,
    document,
    document_bytes,
    dtype_name,
    encode,
    plain,
    seal,
    unseal,
)
from streammc.trace.debris import collect_beside, marked_partial
from streammc.trace.disk import read_file, swap, sync_directory, write_files
from streammc.unfinished import current_mark, mark_entry, refuse_reserved_name, remove, unmark

KIND: Final = "arrays"
_FORMAT: Final = 1


def write_arrays(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    *,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write arrays and JSON as a zarr v3 group at ``path``; replace an earlier such group.

    The group is built beside ``path``, fsynced and renamed. A reader finds the old group or
    the new one; see ``durable.swap``.

    Parameters
    ----------
    path
        Directory to make; it must be absent, empty or written by this function.
    arrays
        Arrays of numbers, booleans or text, by name.
    meta
        JSON attributes of the group. NaN and infinities become null.
    dims
        Dimension names by array; default ``<name>_dim_0``, ...

    Raises
    ------
    ConfigError
        For a dtype or a name that cannot be stored, or if ``path`` has the name of something
        unfinished.
    OutputError
        If ``path`` is anything else, or cannot be created.
    StorageIOError, AccessError
        If the file system refuses.
    """
    target = given_path(path)
    refuse_reserved_name(target)
    if "streammc" in meta:
        raise ConfigError("expected meta without the reserved key 'streammc': rename it")
    if target.exists() and not _replaceable(target):
        raise OutputError(
            f"expected nothing or an older result at {target}, found something else"
            ": choose another path"
        )
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        collect_beside(target)
        lock = marked_partial(partial)
    except OSError as error:
        kind = AccessError if isinstance(error, PermissionError) else OutputError
        raise kind(
            f"expected to create {str(target)!r}, found {error.strerror}: choose another path"
        ) from error
    try:
        files: dict[Path, bytes] = {}
        listed, metadata = {}, {}
        for name, values in sorted(arrays.items()):
            check_name(name)
            array = np.asarray(values)
            names = (dims or {}).get(name) or [f"{name}_dim_{axis}" for axis in range(array.ndim)]
            spec = ArraySpec(array.shape, array.shape, dtype_name(array.dtype), tuple(names))
            chunk = encode(array, spec.dtype)
            listed[name] = {
                "shape": list(spec.shape),
                "dtype": spec.dtype,
                "size": len(chunk),
                "crc32c": chunk_checksum(chunk),
            }
            metadata[name] = document(spec)
            (partial / name).mkdir()
            files[partial / name / "zarr.json"] = document_bytes(spec)
            files[partial / name / chunk_key((0,) * array.ndim)] = chunk
        own = {"format": _FORMAT, "kind": KIND, "arrays": listed, **mark_entry(current_mark())}
        files[partial / "zarr.json"] = seal(plain(meta), own, consolidated(metadata))
        write_files(files)
        unmark(partial)
        sync_directory(partial)
        swap(partial, target)
    finally:
        if partial.exists():
            with suppress(OSError):
                remove(partial)
        os.close(lock)


def read_arrays(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the ``(arrays, meta)`` that :func:`write_arrays` wrote, with verified checksums.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If the group is not of streammc or damaged; the message names the file.
    """
    source = given_path(path)
    if not source.exists():
        raise MissingError(
            f"expected a result of streammc at {source}, found nothing: check the path"
        )
    meta, listed = _read_group(source)
    arrays = {}
    for name, entry in listed.items():
        where = source / name / chunk_key((0,) * len(entry["shape"]))
        try:
            chunk = read_file(where, limit=entry["size"])
        except MissingError:
            raise StoreError(
                f"expected {where}, found none: the result is incomplete"
                "; delete it and compute it again"
            ) from None
        if len(chunk) != entry["size"] or chunk_checksum(chunk) != entry["crc32c"]:
            raise StoreError(
                f"expected {where} as it was written, found another size or checksum: the file "
                "is damaged; delete the result and compute it again"
            )
        arrays[name] = decode(chunk, tuple(entry["shape"]), entry["dtype"], where)
    return arrays, meta


def _read_group(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    where = source / "zarr.json"
    try:
        meta, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a zarr group at {source}, found no zarr.json: choose another path"
        ) from None
    if own.get("kind") != KIND or own.get("format") != _FORMAT:
        raise StoreError(
            f"expected format {_FORMAT} of kind {KIND!r} in {where}, found "
            f"format {own.get('format')} of kind {own.get('kind')!r}: update streammc or choose "
            "another path"
        )
    for name, entry in own["arrays"].items():
        check_name(name, StoreError)
        shape, dtype = entry["shape"], entry["dtype"]
        sizes = all(isinstance(n, int) and n >= 0 for n in shape)
        if not sizes or dtype not in (*NUMERIC, STRING):
            raise StoreError(
                f"expected an array of numbers or text, found {entry} in {where}"
                ": delete the result and compute it again"
            )
        if dtype != STRING and prod(shape) * np.dtype(dtype).itemsize + 4 != entry["size"]:
            raise StoreError(
                f"expected sizes that agree in {where}, found {name} {entry}"
                ": delete the result and compute it again"
            )
    return meta, own["arrays"]


def _replaceable(target: Path) -> bool:
    """Return whether ``target`` is an empty directory or an older result."""
    if not target.is_dir():
        return False
    if not any(target.iterdir()):
        return True
    try:
        _read_group(target)
    except StoreError:
        return False
    return True
