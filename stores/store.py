"""A store on disk, opened for reading."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import BusyError, StoreError, StreammcError
from streammc.group_table import CrossedFactor, GroupTable
from streammc.protocols import Index, PassTask
from streammc.shown import Shown
from streammc.stores.cloud.address import Root, split_arrays, store_root
from streammc.stores.data_set import RowTable, dataset_facts
from streammc.stores.format.codes import read_columns
from streammc.stores.format.generations import GENERATIONS, earlier_attributes, with_inputs
from streammc.stores.format.layout import (
    CROSSED,
    LEVEL,
    MANIFEST,
    METADATA,
    ROW_GROUP,
    ROW_ID,
    Layout,
    Member,
    chunks_per_block,
    described_effects,
)
from streammc.stores.format.manifest import (
    Fault,
    Manifest,
    check_object,
    find_faults,
    read_manifest,
    read_values,
    shard_checks,
)
from streammc.stores.format.objects import (
    exists,
    list_files,
    object_stamps,
    parse_json,
    read_small,
    require_store,
)
from streammc.stores.format.schema import ATTRIBUTE, check_features, read_schema
from streammc.stores.rows.row_blocks import Block, later_blocks, store_blocks
from streammc.trace.kinds import STORE, ZARR_GROUPS, found_at, refuse_other_kind

if TYPE_CHECKING:
    from streammc.stores.foreign_table import ForeignTable
    from streammc.stores.rows.piece_cache import CachedRows
    from streammc.stores.rows.row_source import MappedRows


T = TypeVar("T")


class Store(RowTable, Shown):
    """A ``Dataset`` of a store on disk (format 1); made by :func:`open_store`.

    Parameters
    ----------
    root
        Absolute path of the store.
    attributes, layout, manifest
        Checked metadata of the store.
    foreign
        The arrays, if they are those of a zarr group of another program.
    """

    def __init__(
        self,
        root: Root,
        attributes: dict[str, Any],
        layout: Layout,
        manifest: Manifest,
        foreign: ForeignTable | None = None,
    ) -> None:
        self.address = str(root) if foreign is None else foreign.address
        self.attributes: Mapping[str, Any] = MappingProxyType(attributes)
        self.feature_names: tuple[str, ...] = tuple(attributes["features"])
        self.fingerprint = self._found = manifest.fingerprint
        self.foreign = foreign
        self.layout = layout
        self.manifest = manifest
        self.n_features = len(self.feature_names)
        self.n_rows = layout.n_rows
        self.response: str | None = attributes["response"]
        self._first_row = 0
        self._lock = Lock()
        self._root = root
        self._rows: MappedRows | CachedRows | None = None

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        """Return how a worker of a cluster opens the same store again."""
        return _opened_again, (self.address, self.fingerprint)

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<Store {self.address!r}: {self.n_rows} rows, {self.n_features} features>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        design = self.layout.member("X")
        assert design is not None
        layout = {
            "layout": f"{design.dtype} columns, chunks of {self.layout.chunk_rows:,} rows",
            "megabytes": self.manifest.total_bytes / 1e6,
        }
        return "Store", dataset_facts(self, **layout)

    def rows(self) -> MappedRows | CachedRows:
        """Return the rows: mapped at the first call, or read through a cache.

        Shards and stores at an address have a cache; see ``rows.piece_cache``.

        Raises
        ------
        StoreError
            If a chunk file contradicts the manifest.
        BusyError
            If the store was replaced, or rows were appended, after it was opened.
        OutOfMemoryError
            If the system allows no further mapping.
        """
        with self._lock:
            if self._rows is None:
                self._rows = self._open_rows()
            return self._rows

    def _open_rows(self) -> MappedRows | CachedRows:
        from streammc.stores.rows.row_source import open_rows

        if self.foreign is not None:
            return self.foreign.rows()
        coded = read_columns(self.attributes)
        rows = open_rows(self._root, self.layout, self.manifest, coded)
        self._refuse_another()
        return rows

    def block_rows(self) -> int:
        """Return the rows of one block of :meth:`reduce`."""
        chunk_rows = self.layout.chunk_rows
        return chunk_rows * chunks_per_block(self.n_rows, chunk_rows)

    def piece_rows(self) -> int:
        """Return the rows of a piece of a block: a chunk."""
        return self.layout.chunk_rows

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the ids of rows (m,); see ``Dataset.row_ids``.

        Raises
        ------
        StoreError
            If a chunk is missing or fails its checksum; the message names it.
        BusyError
            If the store was replaced, or rows were appended, after it was opened.
        """
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        member = self.layout.member(ROW_ID)
        if member is None:
            moved = self.attributes["shuffle_seed"] is not False or self.attributes.get("n_dropped")
            return None if moved else np.arange(start, stop)
        return self._values(self.layout, member, start, stop)

    def _values(self, layout: Layout, member: Member, start: int, stop: int) -> NDArray[Any]:
        """Return the entries ``start`` to ``stop`` of an array; see :meth:`row_ids`."""
        try:
            return read_values(self._root, layout, member, self.manifest, start, stop)
        except StoreError:
            self._refuse_another()
            raise

    def row_groups(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the labels of the groups of rows (m,), ``None`` without; see :meth:`row_ids`."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        if self.groups is not None:
            return self.groups.labels_of_rows(start, stop)
        member = self.layout.member(ROW_GROUP)
        if member is None:
            return None
        return self._values(self.layout, member, start, stop)

    @cached_property
    def groups(self) -> GroupTable | None:
        """The groups of a mixed model, or ``None``; a :exc:`StoreError` if they are damaged."""
        if not self.attributes.get("groups"):
            return None
        from streammc.stores.rows.groups import read_groups

        return read_groups(self._root, self.layout, self.manifest, self.attributes["groups"])

    @cached_property
    def crossed(self) -> tuple[CrossedFactor, ...]:  # type: ignore[override]
        """The factors that cross; labels of rows that were appended follow the earlier ones."""

        def factor(each: Mapping[str, Any], layout: Layout) -> CrossedFactor:
            levels = each["levels"]

            def labels(start: int, stop: int) -> NDArray[Any]:
                return self._values(layout, layout.members[0], start, min(stop, levels))

            return CrossedFactor(each["column"], levels, labels, *described_effects(each))

        stated = self.attributes.get(CROSSED, ())
        layouts = self.layout.groups[len(self.layout.groups) - len(stated) :]
        return tuple(factor(each, layout) for each, layout in zip(stated, layouts, strict=True))

    def row_levels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint32]:
        """Return the levels (m, F) of the factors that cross; see :meth:`row_ids`."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        member = self.layout.member(LEVEL)
        if member is None:
            return super().row_levels(start, stop)
        found = self._values(self.layout, member, start, stop)
        for column, each in zip(found.T, self.attributes[CROSSED], strict=True):
            if len(column) and column.max() >= each["levels"]:
                raise StoreError(
                    f"expected levels of 0 to {each['levels'] - 1} of {each['column']!r} in store "
                    f"{self.address!r}, found {column.max()}: copy or make the store again"
                )
        return found

    def blocks(self) -> Sequence[Block]:
        """Return the row blocks of a full pass, in the order of the rows."""
        if self.foreign is not None:
            return self.foreign.blocks(self.block_rows())
        shapes = (self.block_rows(), read_columns(self.attributes))
        blocks = store_blocks(self._root, self.layout, self.manifest, *shapes)
        return later_blocks(blocks, self._first_row) if self._first_row else blocks

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``.

        Raises
        ------
        StoreError
            If a chunk is missing or fails its checksum; the message names it.
        BusyError
            If the store was replaced, or rows were appended, after it was opened.
        """
        from streammc.stores.reduction import run

        try:
            return run(task, self.blocks(), scheduler=scheduler, progress=progress)
        except StoreError:
            self._refuse_another()
            raise

    def earlier(self, fingerprint: str) -> Store | None:
        """Return the store as it was before rows were appended, read from its present files."""
        kept = earlier_attributes(self.attributes, fingerprint)
        if kept is None:
            return None
        n_rows = kept["n_rows"]
        layout = replace(self.layout, n_rows=n_rows, later_rows=self.n_rows - n_rows)
        before = Store(self._root, kept, layout, self.manifest)
        before.fingerprint = fingerprint
        return before

    def recorded_generations(self) -> dict[str, Any]:
        """Return ``generations`` and ``sources`` with the files of each; empty if there is one."""
        if GENERATIONS not in self.attributes:
            return {}
        kept = with_inputs(self.attributes, self.manifest.inputs)
        return {GENERATIONS: kept, "sources": [name for each in kept for name in each["sources"]]}

    def rows_after(self, first_row: int) -> Store:
        """Return a store whose passes read the rows from ``first_row`` on, under their numbers."""
        later = Store(self._root, dict(self.attributes), self.layout, self.manifest)
        later._first_row = first_row
        return later

    def worker_tasks(self, scheduler: Any, folder: Path) -> AbstractContextManager[Any]:
        """Return the workers of a cluster for tasks on this store; see ``stores.dask_cluster``."""
        from streammc.stores.dask_cluster import worker_tasks

        return worker_tasks(self, scheduler, folder)

    def stamps(self) -> Index:
        """Return size, modification time in ns and inode (objects, 3), by sorted key.

        Raises
        ------
        StoreError
            If an object is missing.
        """
        return object_stamps(self._root, self._keys())

    def recheck(self, stamps: Index) -> None:
        """Check the objects that changed since ``stamps`` against the manifest.

        Raises
        ------
        StoreError
            If an object fails its checksum, or the stamps are of another store.
        """
        keys = self._keys()
        if stamps.shape != (len(keys), 3):
            raise StoreError(
                f"expected stamps of {len(keys)} objects of store {self.address!r}, "
                f"found {stamps.shape[0]}: they belong to another store; open the store again"
            )
        if self.foreign is not None:
            self.foreign.require_unchanged()
            return
        for position in np.flatnonzero(np.any(self.stamps() != stamps, axis=1)):
            check_object(self._root, keys[position], self.manifest.entries[keys[position]])

    def _keys(self) -> list[str]:
        """Return the keys of the objects of this store, sorted."""
        if self.foreign is not None:
            return sorted(self.manifest.entries)
        return sorted([*self.layout.metadata_keys(), *self.layout.chunk_sizes()])

    def _refuse_another(self) -> None:
        """Raise BusyError if the store was replaced or extended after it was opened."""
        if self.foreign is None and read_manifest(self._root).fingerprint != self._found:
            raise BusyError(
                f"expected store {self.address!r} as it was opened, found another in its place: "
                "open it again, or give the same command again"
            )


@lru_cache(maxsize=4)
def _opened_again(address: str, fingerprint: str) -> Store:
    """Return the store at ``address`` in another process; raise StoreError if it has changed."""
    store = open_store(address)
    if store.fingerprint != fingerprint and (before := store.earlier(fingerprint)) is not None:
        return before
    if store.fingerprint != fingerprint:
        raise StoreError(
            f"expected the store {address!r} as it was (fingerprint {fingerprint[:12]}), found "
            f"{store.fingerprint[:12]}: give every worker the same store"
        )
    return store


@documented()
def open_store(path: str | os.PathLike[str]) -> Store:
    """Open the store at ``path`` and check that it is whole, without reading the rows.

    Every document is read as untrusted JSON. The files, their kinds and lengths must agree with the
    shapes and the manifest. :meth:`Store.reduce` and ``verify`` check the checksums of the rows.

    Parameters
    ----------
    path
        Directory of the store on this machine, or its address: ``s3://``, ``gs://``, ``az://`` or
        ``https://``, which need ``streammc[cloud]``. A zarr group of another program, of version
        2 or 3, is opened where it is: with its arrays ``X`` and ``y``, or with those that follow
        the path, as ``data.zarr#X=features&y=label``, also ``offset`` and ``weight``.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If it is not a store, or a file in it is missing, foreign or of the wrong length.
    AccessError
        If it may not be read.
    ConfigError
        If ``path`` is neither a path nor such an address, or an address with credentials.
    UnavailableError
        If an object store does not answer.
    """
    place, arrays = split_arrays(path)
    root = store_root(place)
    if not arrays and isinstance(root, Path):
        refuse_other_kind(root, STORE, *(ZARR_GROUPS if has_design(root) else ()))
    require_store(root)
    if arrays or is_foreign(root):
        from streammc.stores.foreign_table import open_foreign

        table = open_foreign(root, arrays)
        return Store(root, table.attributes, table.layout, table.manifest, table)
    attributes, layout = read_schema(root)
    manifest = read_manifest(root)
    check_keys(root, layout, manifest)
    for key in layout.metadata_keys():
        check_object(root, key, manifest.entries[key])
    check_features(root, attributes["features"])
    return Store(root, attributes, layout, manifest)


def is_foreign(root: Root) -> bool:
    """Return whether there is a zarr group of another program."""
    if isinstance(root, Path):
        found = found_at(root)
        return found is not None and found.kind in ZARR_GROUPS
    if exists(root, MANIFEST):
        return False
    if not exists(root, METADATA):
        return exists(root, ".zgroup") or exists(root, ".zmetadata")
    group = parse_json(
        read_small(root, METADATA), f"{METADATA!r} of store {str(root)!r}", constants=True
    )
    own = group.get("attributes")
    return not (isinstance(own, dict) and ATTRIBUTE in own)


def has_design(root: Root) -> bool:
    """Return whether there is an array called X."""
    return exists(root, "X/zarr.json") or exists(root, "X/.zarray")


def check_keys(root: Root, layout: Layout, manifest: Manifest) -> None:
    """Refuse a store whose shapes, manifest and files disagree."""
    sizes: dict[str, int | None] = dict.fromkeys(layout.metadata_keys())
    sizes.update(layout.chunk_sizes())
    entries = manifest.entries
    for key in sorted({*sizes} ^ {*entries}):
        where = "in the manifest" if key in sizes else "in the shapes"
        raise StoreError(
            f"expected {key[:100]!r} {where} of store {str(root)!r}, found none: "
            "copy or make the store again"
        )
    found = list_files(root)
    if not isinstance(root, Path) and not root.listable:
        return
    for key, entry in entries.items():
        what = f"{key!r} in store {str(root)!r}"
        if key not in found:
            raise StoreError(f"expected {what}, found nothing: copy or make the store again")
        if not stat.S_ISREG(found[key].st_mode):
            raise StoreError(f"expected {what} to be a regular file: copy the store again")
        for expected in (entry.size, sizes[key]):
            if expected not in (None, found[key].st_size):
                raise StoreError(
                    f"expected {what} to have {expected} bytes, found {found[key].st_size}: "
                    "copy or make the store again"
                )


def verify(
    path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Read every object of a store and compare it with the manifest.

    ``progress`` is called with (bytes checked, bytes in all).

    Returns
    -------
    dict
        ``path``, ``ok``, ``objects``, ``bytes``, ``fingerprint`` and ``faults``, a list
        of ``{key, kind, detail}`` with kind ``missing``, ``changed``, ``extra``,
        ``unreadable`` or ``inconsistent``.
    """
    place, arrays = split_arrays(path)
    root = store_root(place)
    if arrays:
        raise StoreError(
            f"expected a store of streammc at {str(path)!r}, found arrays of another program, "
            "which have no checksums: ingest them"
        )
    if isinstance(root, Path):
        refuse_other_kind(root, STORE)
    require_store(root)
    report: dict[str, Any] = {"path": str(root), "ok": False, "objects": 0, "bytes": 0}
    report["fingerprint"] = None
    try:
        manifest = read_manifest(root)
    except StoreError as error:
        if not exists(root, MANIFEST):
            raise
        report["faults"] = [Fault(MANIFEST, "changed", str(error))._asdict()]
        return report
    listed = isinstance(root, Path) or root.listable
    present = list_files(root) if listed else manifest.entries
    checks = {}
    with suppress(StreammcError):  # what is wrong is a fault of an object
        checks = shard_checks(open_store(str(root)).layout, str(root))
    faults = find_faults(root, manifest, present, progress, checks)
    if not faults:
        try:
            _ = open_store(str(root)).groups
        except StoreError as error:
            faults.append(Fault(METADATA, "inconsistent", str(error)))
    return report | {
        "ok": not faults,
        "objects": len(manifest.entries),
        "bytes": manifest.total_bytes,
        "fingerprint": manifest.fingerprint,
        "faults": [fault._asdict() for fault in faults],
    }


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return attributes, arrays, chunks and fingerprint of a store, without reading its rows."""
    store = open_store(path)
    layout = store.layout
    return {
        "path": store.address,
        **store.attributes,
        **store.recorded_generations(),
        "references": store.references(),
        "n_features": store.n_features,
        "arrays": {
            member.name: {"dtype": member.dtype, "shape": list(member.shape(own.n_rows))}
            for member, own in layout.all_members
        },
        "chunk_rows": layout.chunk_rows,
        "n_chunks": layout.n_chunks,
        "row_bytes": layout.row_bytes,
        **({} if layout.shards is None else {"shards": asdict(layout.shards)}),
        "objects": len(store.manifest.entries),
        "bytes": store.manifest.total_bytes,
        "fingerprint": store.fingerprint,
    }
