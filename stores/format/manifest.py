"""The manifest: every object of a store with its length and crc32c.

zarr by itself reads a deleted chunk as zeros and a flipped bit as a number. The
manifest lists every valid object, and its digest is the store's fingerprint: SHA-256
over ``key NUL size NUL crc32c`` lines in the order of the keys.

It also keeps the records of the files that the rows came from: as a part of the one file that
makes a store, and outside of the fingerprint, which is that of equal rows from other places.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from streammc.command_mark import MADE_BY, mark_entry
from streammc.errors import StoreError, StreammcError
from streammc.stores.cloud.address import Root
from streammc.stores.format.generations import are_inputs
from streammc.stores.format.layout import FORMAT, MANIFEST
from streammc.stores.format.object_access import (
    checksum_object,
    exists,
    read_object,
    read_small,
)
from streammc.stores.format.objects import Bytes, damaged, parse_json

INPUTS: Final = "inputs"
"""Key of the records of the files of each generation."""
_INPUTS_CRC: Final = "inputs_crc32c"


class Entry(NamedTuple):
    """Manifest entry of one object: its length in bytes and its crc32c."""

    size: int
    crc: int


class Fault(NamedTuple):
    """One object that contradicts the manifest."""

    key: str
    kind: str
    """``missing``, ``changed``, ``extra`` or ``unreadable``."""
    detail: str


@dataclass(frozen=True)
class Manifest:
    """Objects of a store by key, in sorted order."""

    entries: dict[str, Entry]
    inputs: tuple[list[dict[str, Any]] | None, ...] = ()
    """Records of the files of each generation (``sources.input_record``); ``None``: not known."""
    made_by: str | None = None
    """Mark of the command that made the store, see ``command_mark``; no part of the fingerprint."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all keys, sizes and checksums, in hexadecimal."""
        digest = hashlib.sha256()
        for key, entry in self.entries.items():
            digest.update(f"{key}\0{entry.size}\0{entry.crc:08x}\n".encode())
        return digest.hexdigest()

    @property
    def total_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(entry.size for entry in self.entries.values())

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        document = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            **mark_entry(self.made_by),
            "objects": {key: list(entry) for key, entry in self.entries.items()},
        }
        if any(self.inputs):
            document |= {INPUTS: list(self.inputs), _INPUTS_CRC: _checksum(list(self.inputs))}
        return (json.dumps(document, separators=(",", ":")) + "\n").encode()


def make_manifest(
    entries: dict[str, Entry],
    inputs: Iterable[list[dict[str, Any]] | None] = (),
    made_by: str | None = None,
) -> Manifest:
    """Return the manifest of ``entries`` in any order.

    Parameters
    ----------
    entries
        Objects by key.
    inputs
        Records of the files of each generation.
    made_by
        Mark of the command that makes the store.
    """
    return Manifest(dict(sorted(entries.items())), tuple(inputs), made_by)


def read_manifest(root: Root) -> Manifest:
    """Return the manifest of the store at ``root``.

    Raises
    ------
    StoreError
        If it is missing, not of this format, or contradicts its own fingerprint.
    """
    what = f"{MANIFEST!r} in store {str(root)!r}"
    if not exists(root, MANIFEST):
        raise StoreError(
            f"expected {what}, found none: not a streammc store, or an unfinished one; "
            "make it with 'streammc ingest'"
        )
    document = parse_json(read_small(root, MANIFEST), what)
    if document.get("format") != FORMAT or not isinstance(document.get("objects"), dict):
        raise StoreError(
            f"expected format {FORMAT} in {what}, found {repr(document.get('format'))[:40]}: "
            "make the store again, or use the version that made it"
        )
    entries = {}
    for key, value in document["objects"].items():
        if not (isinstance(value, list) and len(value) == 2 and all(map(_is_count, value))):
            raise StoreError(
                f"expected [size, crc32c] for {key[:100]!r} in {what}: copy or make the store again"
            )
        entries[key] = Entry(*value)
    inputs = document.get(INPUTS, [])
    if INPUTS in document and (
        not are_inputs(inputs) or document.get(_INPUTS_CRC) != _checksum(inputs)
    ):
        raise StoreError(
            f"expected {what} with the records of its input files as they were written, found "
            "others: copy or make the store again"
        )
    made_by = document.get(MADE_BY)
    manifest = make_manifest(entries, inputs, made_by if isinstance(made_by, str) else None)
    if document.get("fingerprint") != manifest.fingerprint:
        raise StoreError(
            f"expected {what} with its own fingerprint, found another: copy or make the store again"
        )
    return manifest


def _checksum(inputs: list[Any]) -> int:
    """Return the crc32c of the records of input files, as compact JSON."""
    return int(google_crc32c.value(json.dumps(inputs, separators=(",", ":")).encode()))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def check_object(
    root: Root, key: str, entry: Entry, more: Callable[[Bytes], object] | None = None
) -> None:
    """Read one object and compare it with its entry; ``more`` then checks its content.

    Raises
    ------
    StoreError
        If it differs.
    """
    if more is not None:
        content = np.empty(entry.size, np.uint8)
        read_object(root, key, content, entry.crc)
        more(content)
        return
    found = checksum_object(root, key, entry.size)
    if found != entry.crc:
        raise damaged(root, key, entry.crc, found)


def find_faults(
    root: Root,
    manifest: Manifest,
    present: Iterable[str],
    progress: Callable[[int, int], None] | None = None,
    checks: Mapping[str, Callable[[Bytes], object]] | None = None,
) -> list[Fault]:
    """Read every object once; return the missing, changed, extra and unreadable objects.

    Parameters
    ----------
    root, manifest
        The store.
    present
        Keys of all files in it, without the manifest.
    progress
        Called with (bytes checked, bytes in all).
    checks
        Further checks of the contents of some objects, by key; see ``chunk_reading.shard_checks``.
    """
    on_disk = set(present)
    extra = sorted(on_disk - {*manifest.entries})
    faults = [Fault(key, "extra", "not in the manifest") for key in extra]
    done = 0
    for key, entry in manifest.entries.items():
        if key not in on_disk:
            faults.append(Fault(key, "missing", "in the manifest, not on disk"))
        else:
            try:
                check_object(root, key, entry, (checks or {}).get(key))
            except StoreError as error:
                faults.append(Fault(key, "changed", str(error)))
            except StreammcError as error:
                faults.append(Fault(key, "unreadable", str(error)))
        done += entry.size
        if progress is not None:
            progress(done, manifest.total_bytes)
    return faults
