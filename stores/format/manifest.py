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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError, StreammcError
from streammc.stores.cloud.address import Root
from streammc.stores.format.layout import FORMAT, MANIFEST, Layout, Member, holds_texts
from streammc.stores.format.objects import (
    checksum_object,
    damaged,
    exists,
    parse_json,
    read_object,
    read_small,
)
from streammc.stores.format.shards import Bytes, Shards, check_shard, decode_shard
from streammc.trace.zarr_files import crc32c
from streammc.unfinished import MADE_BY, mark_entry

Inputs = Sequence[list[dict[str, Any]] | None]
"""Records of the files of each generation, as in a manifest; ``None`` where they are not known."""


def are_inputs(inputs: Any) -> bool:
    """Return whether ``inputs`` has a list of records, or null, for each generation."""
    return isinstance(inputs, list) and all(map(are_records, inputs))


def are_records(files: Any) -> bool:
    """Return whether ``files`` is null, or a list of records with path, size and time."""
    return files is None or (isinstance(files, list) and all(map(_is_record, files)))


def _is_record(file: Any) -> bool:
    return (
        isinstance(file, dict)
        and isinstance(file.get("path"), str)
        and type(file.get("bytes")) is int
        and file["bytes"] >= 0
        and type(file.get("modified_ns")) is int
    )


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
    """Records of the files of each generation (``sources.input_files``); ``None``: not known."""
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
    return crc32c(json.dumps(inputs, separators=(",", ":")).encode())


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
        Further checks of the contents of some objects, by key; see ``shard_checks``.
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


class Scratch:
    """Memory for encoded chunks, reused: fresh memory costs a page fault every 4 kB."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return ``size`` bytes, which the next call overwrites."""
        if self._kept.nbytes < size:
            self._kept = np.empty(size, np.uint8)
        return self._kept[:size]


def read_chunk(
    place: tuple[Root, Member, int],
    entry: Entry,
    into: NDArray[Any],
    rows: int,
    shards: Shards | None = None,
    *,
    forget: bool = False,
    scratch: Scratch | None = None,
) -> None:
    """Fill ``into``, a chunk of whole rows, with chunk number ``chunk`` of an array.

    Parameters
    ----------
    place
        The store, the array and the number of the chunk.
    entry
        Entry of the object in the manifest.
    into
        Array of the shape of a chunk.
    rows
        Rows in this chunk; the rest is padding.
    shards
        How the chunk is cut into pieces, if it is.
    forget
        Whether to drop the file from the page cache.
    scratch
        Memory for the encoded chunk.

    Raises
    ------
    StoreError
        If the object is missing or fails its checksum; the message names it.
    """
    root, member, chunk = place
    raw, key = into.reshape(-1).view(np.uint8), member.key(chunk)
    if shards is None:
        read_object(root, key, raw, entry.crc, forget)
        return
    encoded = (scratch or Scratch()).take(entry.size)
    read_object(root, key, encoded, entry.crc, forget)
    what = f"{key!r} of store {str(root)!r}"
    used = -(-rows // shards.piece_rows)
    piece_bytes = member.row_bytes * shards.piece_rows
    decode_shard(encoded, raw, used, piece_bytes, shards.zstd, what)


def shard_checks(layout: Layout, where: str) -> dict[str, Callable[[Bytes], object]]:
    """Return by key a function that compares a whole shard with its digest; none without shards.

    It raises StoreError for a shard with pieces of another one.
    """
    return {
        member.key(chunk): partial(
            check_shard,
            pieces=own.chunk_rows // own.shards.piece_rows,
            used=-(-rows_of_chunk(own, chunk) // own.shards.piece_rows),
            what=f"{member.key(chunk)!r} of store {where!r}",
        )
        for member, own in layout.all_members
        if own.shards is not None
        for chunk in range(own.n_chunks)
    }


def rows_of_chunk(layout: Layout, chunk: int) -> int:
    """Return the rows in the file of chunk number ``chunk``, with those of later generations."""
    held = layout.n_rows + layout.later_rows
    return min(layout.chunk_rows, held - chunk * layout.chunk_rows)


def read_values(
    root: Root, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
) -> NDArray[Any]:
    """Return the entries ``start`` to ``stop`` of an array; texts as bytes of one width.

    Raises
    ------
    StoreError
        If a chunk is missing or fails its checksum; the message names it.
    """
    parts = list(_parts(root, layout, member, manifest, start, stop))
    shape = member.shape(0)
    found = np.concatenate(parts) if parts else np.empty(shape, member.dtype)
    return found.view(f"S{member.columns}")[:, 0] if holds_texts(member) else found


def _parts(
    root: Root, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
) -> Iterator[NDArray[Any]]:
    size = layout.chunk_rows
    for chunk in range(start // size, -(-stop // size)):
        values = np.empty(member.shape(size), member.dtype)
        first, entry = chunk * size, manifest.entries[member.key(chunk)]
        rows = rows_of_chunk(layout, chunk)
        read_chunk((root, member, chunk), entry, values, rows, layout.shards)
        yield values[max(start - first, 0) : stop - first]
