"""Named arrays and JSON in one zarr group, written completely or not at all.

For results that are computed once and then only read, such as control variates. Each
array is one chunk with its checksum; the group document lists all arrays.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, MissingError, OutputError, StoreError
from streammc.trace.addresses import given_path
from streammc.trace.debris import collect_beside, marked_partial
from streammc.trace.disk import creation_error, read_file, swap, sync_directory, write_files
from streammc.trace.zarr_files import (
    DOCUMENT,
    DOCUMENT_LIMIT,
    StoredArray,
    check_name,
    plain,
    read_stored,
    seal,
    store_array,
    stored_from_entry,
    unseal,
)
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
        raise creation_error(error, target) from error
    try:
        files: dict[Path, bytes] = {}
        listed, nodes = {}, {}
        for name, values in sorted(arrays.items()):
            check_name(name)
            array = np.asarray(values)
            names = (dims or {}).get(name) or [f"{name}_dim_{axis}" for axis in range(array.ndim)]
            stored, own_files = store_array(partial / name, names, array)
            listed[name] = stored.entry()
            del listed[name]["dims"]
            nodes[name] = stored.spec.document()
            (partial / name).mkdir()
            files |= own_files
        own = {"format": _FORMAT, "kind": KIND, "arrays": listed, **mark_entry(current_mark())}
        files[partial / DOCUMENT] = seal(plain(meta), own, nodes)
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
    meta, stored = _read_group(source)
    return {name: read_stored(source / name, array) for name, array in stored.items()}, meta


def _read_group(source: Path) -> tuple[dict[str, Any], dict[str, StoredArray]]:
    where = source / DOCUMENT
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
    try:
        return meta, {k: stored_from_entry(k, entry) for k, entry in own["arrays"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"expected numbers or text of sizes that agree in {where}, found {error}: delete the "
            "result and compute it again"
        ) from error


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
