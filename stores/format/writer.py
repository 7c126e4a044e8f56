"""The writer of a store: whole chunk files, visible only when the store is complete.

Everything goes to a sibling directory ``<name>.partial-<pid>``. When the last row is
in, files and directories are synced, the manifest is written last, and one rename
makes the store appear. A failure, or leaving without :meth:`StoreWriter.commit`,
removes the directory. The directory of a killed process is removed by the next writer
of the same path, which recognises it by its free lock.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, ConfigError, DataError
from streammc.numerics.coded_matrix import CODE_DTYPE
from streammc.stores.cloud.address import store_root
from streammc.stores.format.group_arrays import GroupArrays, label_array
from streammc.stores.format.layout import (
    CODES,
    CROSSED,
    FEATURE_KEY,
    GROUP_DTYPES,
    LEVEL,
    MANIFEST,
    MAX_CHUNKS,
    ROW_GROUP,
    ROW_ID,
    Effects,
    Layout,
    Member,
    make_members,
    settle_chunk_rows,
)
from streammc.stores.format.manifest import (
    Entry,
    Inputs,
    check_object,
    make_manifest,
    read_chunk,
    read_manifest,
)
from streammc.stores.format.partial import PartialDirectory, new_output, refuse_output
from streammc.stores.format.schema import (
    check_attributes,
    encode_document,
    feature_chunk,
    label_names,
    store_attributes,
    store_documents,
)
from streammc.stores.format.shards import Shards, choose_piece_rows, encode_shard
from streammc.stores.ingest.faults import Faults
from streammc.stores.number_checks import check_finite
from streammc.stores.rows.row_weights import find_weight_faults
from streammc.trace.zarr_files import crc32c
from streammc.unfinished import current_mark

if TYPE_CHECKING:
    from streammc.stores.store import Store


class StoreWriter:
    """Writer of a new store, a context manager: append rows or put chunks, then commit.

    Parameters
    ----------
    path
        Path of the new store; must not exist.
    features
        Names of the columns of the design, the intercept included.
    dtype
        ``float32`` or ``float64``: how ``X`` is stored.
    y_dtype
        ``uint8``, ``int32``, ``int64``, ``float32`` or ``float64``; ``None`` without a
        response.
    offset, weight
        Whether the store has this array; float64.
    row_id
        Dtype of the row ids: ``int64``, or ``S`` and a number of bytes for texts of at most
        that length, such as ``S36``. ``None`` stores no row ids.
    row_group
        Dtype of the label of each row's group, likewise, of rows that keep their order.
    group
        Dtype of the labels of groups, as ``row_id``; they go into :attr:`groups`. ``None``: none.
    crossed
        Labels (levels,) of each factor that crosses others, by its column; each row has its
        levels in ``level``.
    effects
        Terms of factors that cross, and whether they are correlated, by column; those that it
        lacks have an intercept.
    chunk_rows
        Rows per chunk, rounded up to 4096; about 8 MB of ``X`` by default.
    n_rows
        Number of rows to come, if known: to choose ``chunk_rows``, and to write a store
        larger than half of the memory past the page cache.
    codes
        Factors whose columns are codes, as in the attribute ``codes``; ``X`` has the others.
    overwrite
        Replace a store at ``path``, once the new one is complete.
    cloud
        ``None`` for chunk files that are mapped; ``"raw"`` or ``"zstd"`` for shards.

    Raises
    ------
    IdentityError
        If ``path`` exists; with ``overwrite``, if it is not a store.
    ConfigError
        If it is inside another store, or an option is wrong.
    BusyError
        If another process is writing it.
    OutputError, AccessError
        If it cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        features: Sequence[str],
        dtype: str = "float32",
        y_dtype: str | None = "float64",
        offset: bool = False,
        weight: bool = False,
        row_id: str | None = None,
        row_group: str | None = None,
        group: str | None = None,
        crossed: Mapping[str, NDArray[Any]] | None = None,
        effects: Mapping[str, Effects] | None = None,
        chunk_rows: int | None = None,
        n_rows: int | None = None,
        codes: Sequence[Mapping[str, Any]] = (),
        overwrite: bool = False,
        cloud: str | None = None,
    ) -> None:
        self.path = store_root(path)
        self.features = list(features)
        self._codes = {CODES: [dict(each) for each in codes]} if codes else {}
        self._dense = dense_names({"features": self.features, **self._codes})
        extra = {"offset": "float64" if offset else None, "weight": "float64" if weight else None}
        dtypes = {"X": dtype, CODES: CODE_DTYPE if codes else None, "y": y_dtype, **extra}
        self._crossed = dict(crossed or {})
        level = "uint32" if crossed else None
        dtypes |= {ROW_ID: row_id, ROW_GROUP: row_group, LEVEL: level}
        sizes = len(codes), len(self._crossed)
        members = self._members = make_members(len(self._dense), dtypes, *sizes)
        expanded = len(self.features) * np.dtype(dtype).itemsize
        widest = max(expanded, *(member.row_bytes for member in members))
        self._shards = Shards(choose_piece_rows(widest), cloud == "zstd") if cloud else None
        self.chunk_rows = settle_chunk_rows(
            members, chunk_rows, n_rows, len(self.features), self._shards
        )
        refuse_output(self.path, overwrite=overwrite)
        size = (n_rows or 0) * sum(member.row_bytes for member in members)
        self._cached = 2 * size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.n_rows = 0
        self._filled = 0
        self._written: dict[int, int] = {}  # rows by chunk
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._made_by = current_mark()
        self._buffers: dict[str, NDArray[Any]] = {}
        self.groups = None if group is None else GroupArrays(self._put, group)
        stated = self._stated = described_crossed(self._crossed, effects or {})
        labels = label_names(stated)
        own = [*(GROUP_DTYPES if group else ()), *labels]
        names = [*(member.name for member in members), *own, "feature"]
        self._partial = new_output(self.path, names, overwrite=overwrite)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove everything unless :meth:`commit` has returned."""
        self._partial.discard()

    def append(
        self,
        X: NDArray[Any],
        y: NDArray[Any] | None = None,
        *,
        offset: NDArray[Any] | None = None,
        weight: NDArray[Any] | None = None,
        codes: NDArray[Any] | None = None,
        row_id: NDArray[Any] | None = None,
        row_group: NDArray[Any] | None = None,
        level: NDArray[Any] | None = None,
    ) -> None:
        """Append rows; values are converted to the store's dtypes.

        Parameters
        ----------
        X
            (m, q) numbers, without the columns of coded factors.
        y, offset, weight
            (m,) numbers, for the arrays that the store has.
        codes
            (m, K) codes of the coded factors.
        row_id, row_group
            (m,) integers, or UTF-8 texts as bytes.
        level
            (m, F) levels of the factors that cross, from 0.

        Raises
        ------
        DataError
            If a value is not finite or not representable in the store's dtype, or a
            weight is negative or above 2**53.
        StorageIOError
            If the disk is full or refuses.
        """
        others = {"offset": offset, "weight": weight, "codes": codes}
        others |= {ROW_ID: row_id, ROW_GROUP: row_group, LEVEL: level}
        given = self._given(self.n_rows, X=X, y=y, **others)

        def fill(done: int, parts: Mapping[str, NDArray[Any]]) -> None:
            for name, part in parts.items():
                values = given[name][done : done + len(part)]
                convert(values, part, self._columns(name), self.n_rows)

        self._fill(X.shape[0], fill)

    def append_with(
        self, rows: int, write: Callable[[int, Mapping[str, NDArray[Any]]], None]
    ) -> None:
        """Append rows that the caller writes into the arrays of a chunk; errors: :meth:`append`.

        Parameters
        ----------
        rows
            Number of rows.
        write
            Called as ``write(start, arrays)`` to write the rows from ``start`` on, as many as
            the arrays have; each is of the store's dtype. Whole numbers are not checked.
        """

        def fill(done: int, parts: Mapping[str, NDArray[Any]]) -> None:
            write(done, parts)
            given = check_given(self._members, parts, self.n_rows, f"store {str(self.path)!r}")
            for name, part in given.items():
                if part.dtype.kind == "f":
                    check_finite(part.reshape(len(part), -1), self._columns(name), self.n_rows)

        self._fill(rows, fill)

    def _fill(self, rows: int, fill: Callable[[int, Mapping[str, NDArray[Any]]], None]) -> None:
        """Fill the chunk buffers with rows, and write those that are full."""
        if not self._buffers:
            self._buffers = {
                member.name: page_aligned(member.shape(self.chunk_rows), member.dtype)
                for member in self._members
            }
        done = 0
        while step := min(rows - done, self.chunk_rows - self._filled):
            chosen = slice(self._filled, self._filled + step)
            fill(done, {name: buffer[chosen] for name, buffer in self._buffers.items()})
            done += step
            self.n_rows += step
            self._filled += step
            if self._filled == self.chunk_rows:
                self._flush()

    def put_chunk(
        self,
        chunk: int,
        X: NDArray[Any],
        y: NDArray[Any] | None = None,
        *,
        offset: NDArray[Any] | None = None,
        weight: NDArray[Any] | None = None,
        codes: NDArray[Any] | None = None,
        row_id: NDArray[Any] | None = None,
        row_group: NDArray[Any] | None = None,
    ) -> None:
        """Write one chunk, in any order and from any thread; use instead of :meth:`append`.

        Parameters
        ----------
        chunk
            Its number: it holds the rows from ``chunk * chunk_rows`` on.
        X
            (chunk_rows, q) numbers, fewer rows in the last chunk alone. Arrays of the
            store's dtypes are written without a copy.
        y, offset, weight, codes, row_id, row_group
            (rows of X, ..), for the arrays that the store has.

        Raises
        ------
        ConfigError
            If the chunk was written before, or its number or length is out of range.
        DataError, StorageIOError
            As :meth:`append`.
        """
        start, rows = chunk * self.chunk_rows, X.shape[0]
        given = self._given(
            start,
            X=X,
            y=y,
            offset=offset,
            weight=weight,
            codes=codes,
            row_id=row_id,
            row_group=row_group,
        )
        with self._lock:
            if chunk < 0 or chunk in self._written or not 0 < rows <= self.chunk_rows:
                raise ConfigError(
                    f"expected 1 to {self.chunk_rows} rows of a new chunk, found {rows} of {chunk}"
                    ": put chunks of that size"
                )
            self._written[chunk] = rows
            self.n_rows += rows
        length = self.chunk_rows if chunk else rows  # a single chunk is not padded
        arrays = {}
        for member in self._members:
            names = self._columns(member.name)
            arrays[member.name] = whole(given[member.name], member, length, names, start)
        self._write_chunk(chunk, arrays)

    def commit(self, attributes: Mapping[str, Any], inputs: Inputs = ()) -> None:
        """Finish the store and make it appear at its path.

        Parameters
        ----------
        attributes
            The group attribute ``streammc`` as JSON, such as ``response`` and ``formula``.
            Format, rows, features and dtype are filled in; with groups, ``groups`` has their
            column and terms, and gets their number.
        inputs
            Records of the files of each generation, for the manifest.

        Raises
        ------
        DataError
            If there are no rows.
        ConfigError
            If a chunk is missing before the last, or not whole.
        IdentityError
            If the path was created in the meantime.
        StorageIOError
            If the disk is full or refuses.
        """
        if self.n_rows == 0:
            raise DataError(
                f"expected at least one row for store {str(self.path)!r}, found none"
                ": put a chunk first"
            )
        if self._filled:
            self._flush()
        self._check_chunks()
        given = dict(attributes)
        own = () if self.groups is None else self.groups.finish(self.n_rows)
        arrays = zip(label_names(self._stated), self._crossed.values(), strict=True)
        own += tuple(label_array(self._put, name, labels) for name, labels in arrays)
        if self.groups is not None:
            given["groups"] = self.groups.described(given["groups"])
        layout = Layout(self.n_rows, self.chunk_rows, self._members, own, self._shards)
        complete = store_attributes(given | self._codes | self._stated, self.features, layout)
        check_attributes(complete, "the attributes of the new store")
        self._put(FEATURE_KEY, feature_chunk(self.features))
        for key, document in store_documents(complete, layout).items():
            self._put(key, encode_document(document))
        manifest = make_manifest(self._entries, inputs, self._made_by)
        self._partial.commit(manifest.entries, MANIFEST, manifest.encode())

    def _columns(self, name: str) -> list[str]:
        return self._dense if name == "X" else [name]

    def _given(self, start: int, **given: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
        return check_given(self._members, given, start, f"store {str(self.path)!r}")

    def _check_chunks(self) -> None:
        check_chunks(self._written, self.chunk_rows, str(self.path))
        if len(self._written) == 1:
            self.chunk_rows, self._shards = self._single(self.n_rows)

    def _single(self, rows: int) -> tuple[int, Shards | None]:
        """Return the rows per chunk of a store of one chunk, and its pieces: little padding."""
        if self._shards is None:
            return rows, None
        pieces = replace(self._shards, piece_rows=min(self._shards.piece_rows, rows))
        return -(-rows // pieces.piece_rows) * pieces.piece_rows, pieces

    def _flush(self) -> None:
        """Write the appended rows in the buffers as one chunk."""
        chunk, rows = len(self._written), self._filled
        for buffer in self._buffers.values():
            buffer[rows:] = 0
        length = self.chunk_rows if chunk else rows  # a single chunk is not padded
        arrays = {name: buffer[:length] for name, buffer in self._buffers.items()}
        self._written[chunk] = rows
        self._write_chunk(chunk, arrays)
        self._filled = 0

    def _write_chunk(self, chunk: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write one chunk file for each member from checked arrays of the file's length."""
        for member in self._members:
            raw = arrays[member.name].reshape(-1).view(np.uint8)
            if self._shards is not None:
                raw = self._shard(chunk, member, raw)
            self._put(member.key(chunk), raw, self._cached)

    def _shard(self, chunk: int, member: Member, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a chunk as a shard; a first chunk that is not whole is the only one."""
        rows, length, shards = self._written[chunk], self.chunk_rows, self._shards
        if chunk == 0 and rows < length:
            length, shards = self._single(rows)
        assert shards is not None
        whole = np.zeros(length * member.row_bytes, np.uint8)
        whole[: len(raw)] = raw
        used = rows * member.row_bytes
        return encode_shard(whole, used, shards.piece_rows * member.row_bytes, shards.zstd)

    def _put(self, key: str, content: bytes | NDArray[np.uint8], cached: bool = True) -> None:
        self._partial.write(key, content, cached=cached)
        self._entries[key] = Entry(len(content), crc32c(content))


def described_crossed(
    crossed: Mapping[str, NDArray[Any]], effects: Mapping[str, Effects]
) -> dict[str, Any]:
    """Return the attribute of factors that cross, from their labels by column; none: no entry.

    ``effects`` are the terms of factors, and if they are correlated; a factor that is not among
    them has a random intercept.
    """
    stated: list[dict[str, Any]] = []
    for name, labels in crossed.items():
        terms, correlated = effects.get(name, (("1",), False))
        stated.append({"column": name, "levels": len(labels)})
        if terms != ("1",):
            stated[-1] |= {"terms": list(terms), "correlated": correlated and len(terms) > 1}
    return {CROSSED: stated} if stated else {}


def dense_names(attributes: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns that are stored as they are."""
    coded: set[int] = set()
    for each in attributes.get(CODES, ()):
        coded |= {*range(each["first"], each["first"] + each["columns"])}
    return [name for j, name in enumerate(attributes["features"]) if j not in coded]


_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)


class ExtendingWriter(StoreWriter):
    """Writer of an open store's next generation: append rows, then commit with all attributes.

    The new store is written beside the old one and takes its place in one step, so that a reader
    finds either generation, whole. Chunk files that stay as they are become further names of the
    same files (hard links; copies where the file system has no links); the last chunk or shard,
    which is filled up, and the documents are new files. A reader that has mapped the old files
    keeps them.

    Parameters
    ----------
    store
        The open store, on a local disk; it must not have groups.
    n_rows
        Rows that it will have.
    labels
        New labels of each factor that crosses others, by its column, behind those of the store.

    Raises
    ------
    ConfigError
        If the store would have too many chunks.
    BusyError
        If another process is writing the store, or replaced it since it was opened.
    StoreError
        If the last chunk is damaged, or the length of another one is wrong.
    OutputError, AccessError, StorageIOError
        If the new files cannot be written.
    """

    def __init__(
        self, store: Store, n_rows: int, labels: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        layout = store.layout
        shards = layout.shards
        crossed = {each.column: each.labels(0, each.n_groups) for each in store.crossed}
        for column, new in (labels or {}).items():
            crossed[column] = np.concatenate([crossed[column], new])
        dtypes: dict[str, Any] = {
            name: _dtype(layout.member(name)) for name in ("y", ROW_ID, ROW_GROUP)
        }
        super().__init__(
            store.address,
            features=store.feature_names,
            dtype=layout.members[0].dtype,
            y_dtype=dtypes["y"],
            offset=layout.member("offset") is not None,
            weight=layout.member("weight") is not None,
            row_id=dtypes[ROW_ID],
            row_group=dtypes[ROW_GROUP],
            crossed=crossed,
            effects={each.column: (each.terms, each.correlated) for each in store.crossed},
            chunk_rows=None if layout.n_chunks == 1 else layout.chunk_rows,
            n_rows=n_rows,
            codes=store.attributes.get(CODES, ()),
            overwrite=True,
            cloud=None if shards is None else "zstd" if shards.zstd else "raw",
        )
        self._made_by = store.manifest.made_by  # the store keeps its receipt
        try:
            if layout.n_chunks == 1:
                # Written again, unless the default has the same length.
                rows = max(self.chunk_rows, layout.n_rows)
                self.chunk_rows = settle_chunk_rows(self._members, rows, None, 0, self._shards)
            else:
                self.chunk_rows, self._shards = layout.chunk_rows, shards
            _refuse_many(layout, self.chunk_rows, n_rows)
            if read_manifest(self.path).fingerprint != store.fingerprint:
                raise BusyError(
                    f"expected store {store.address!r} as it was opened, found another in its "
                    "place: give the same command again"
                )
            self._take_over(store)
        except BaseException:
            self._partial.discard()
            raise

    def _take_over(self, store: Store) -> None:
        """Link the whole chunks of the old generation, and read the rows of its last one."""
        layout, entries = store.layout, store.manifest.entries
        whole = layout.n_rows // layout.chunk_rows if layout.chunk_rows == self.chunk_rows else 0
        for member in layout.members:
            for chunk in range(whole):
                key = member.key(chunk)
                self._link(key, entries[key].size, store)
                self._entries[key] = entries[key]
        self._written = dict.fromkeys(range(whole), self.chunk_rows)
        self.n_rows = whole * self.chunk_rows
        rest = layout.n_rows - self.n_rows
        if not rest:
            return
        self._buffers = {
            member.name: page_aligned(member.shape(self.chunk_rows), member.dtype)
            for member in self._members
        }
        for member in layout.members:
            key = member.key(whole)
            old = np.empty(member.shape(layout.chunk_rows), member.dtype)
            read_chunk((self._old, member, whole), entries[key], old, rest, layout.shards)
            self._buffers[member.name][:rest] = old[:rest]
        self.n_rows += rest
        self._filled = rest
        if rest == self.chunk_rows:
            self._flush()

    @property
    def _directory(self) -> PartialDirectory:
        """The new generation as it is written: beside the store, which is on a local disk."""
        assert isinstance(self._partial, PartialDirectory)
        return self._partial

    @property
    def _old(self) -> Path:
        assert isinstance(self.path, Path)
        return self.path

    def _link(self, key: str, size: int, store: Store) -> None:
        """Give a file of the old generation a name in the new one, or copy and check it."""
        old, new = self._old / key, self._directory.root / key
        try:
            os.link(old, new, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise self._directory.write_error(error) from error
            try:
                shutil.copyfile(old, new, follow_symlinks=False)
            except OSError as failed:
                raise self._directory.write_error(failed) from failed
            check_object(self._directory.root, key, store.manifest.entries[key])
            return
        found = os.stat(new, follow_symlinks=False)
        if found.st_size != size:
            check_object(self._directory.root, key, store.manifest.entries[key])


def _refuse_many(layout: Layout, chunk_rows: int, n_rows: int) -> None:
    """Raise ConfigError if a store would have more chunk files than a reader can map."""
    files = -(-n_rows // chunk_rows) * len(layout.members)
    if files > MAX_CHUNKS and layout.shards is None:
        raise ConfigError(
            f"expected at most {MAX_CHUNKS} chunk files, found {files} of {chunk_rows} rows each: "
            "make the store again from all tables, with a larger --chunk-rows"
        )


def _dtype(member: Member | None) -> str | None:
    """Return the dtype of an array as ``StoreWriter`` takes it; texts as ``S`` and a length."""
    if member is None:
        return None
    return member.dtype if member.columns is None else f"S{member.columns}"


def check_given(
    members: Sequence[Member], given: Mapping[str, NDArray[Any] | None], start: int, where: str
) -> dict[str, NDArray[Any]]:
    """Check that a block of rows has exactly the arrays of the store; return them by name.

    Parameters
    ----------
    members
        The row arrays of the store, ``X`` among them.
    given
        Arrays by name; ``None`` for an absent array.
    start
        Number of the first row, for messages.
    where
        The store, for messages.

    Raises
    ------
    ConfigError
        If an array is missing, not in the store, or of another length.
    DataError
        If a weight is negative or above 2**53.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for member in members:
        texts = found.get(member.name)
        if texts is not None and texts.dtype.kind == "S":
            found[member.name] = label_bytes(texts, member)
    count = found["X"].shape[0]
    shapes = {member.name: member.shape(count) for member in members}
    for name in given:
        if (name in found) != (name in shapes):
            expected, given_ = ("no ", "some") if name in found else ("", "none")
            raise ConfigError(
                f"expected {expected}{name} in a block of rows of {where}, found {given_}: "
                "pass the arrays that it has"
            )
        if name in found and found[name].shape != shapes[name]:
            raise ConfigError(
                f"expected {count} rows of {name}, found shape {found[name].shape}"
                ": pass as many rows of every column"
            )
    if "weight" in found:
        faults = Faults()
        find_weight_faults(faults, "weight", start, found["weight"])
        faults.refuse(lambda row: f"row {row} of {where}, counted from 0")
    return found


def check_chunks(written: Mapping[int, int], chunk_rows: int, path: str) -> None:
    """Raise ConfigError unless all chunks were written, all but the last whole.

    ``written`` has the rows of each chunk.
    """
    last = len(written) - 1
    for chunk in range(last + 1):
        rows = written.get(chunk, 0)
        if rows == 0 or (chunk < last and rows < chunk_rows):
            raise ConfigError(
                f"expected {chunk_rows} rows in chunk {chunk} of {path!r}, "
                f"found {rows}: put every chunk once, all but the last whole"
            )


def label_bytes(texts: NDArray[Any], member: Member) -> NDArray[np.uint8]:
    """Return texts (m,), such as row ids, as the (m, width) bytes of the stored array.

    Raises
    ------
    ConfigError
        If a text is longer than ``width``, or the store has integers there.
    """
    width = member.columns
    if width is None or texts.dtype.itemsize > width:
        raise ConfigError(
            f"expected {member.name} of {width or 0} bytes, found {texts.dtype.itemsize}"
            ": use texts of that length"
        )
    wide = np.ascontiguousarray(texts, f"S{width}")
    return wide.view(np.uint8).reshape(len(texts), width)


def convert(values: NDArray[Any], into: NDArray[Any], names: Sequence[str], start: int) -> None:
    """Copy ``values`` into ``into``; check that no value changes in the dtype of ``into``.

    Parameters
    ----------
    values, into
        (m, q) or (m,) of the same shape.
    names
        Names of the columns.
    start
        Number of the first row, for messages.

    Raises
    ------
    DataError
        If a value is not finite or not representable in the dtype of ``into``.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        into[...] = values
    if into.dtype.kind == "f":
        check_finite(into.reshape(len(into), -1), names, start)
    elif values.dtype.kind != "b" and not np.array_equal(into, values):
        row = int(np.flatnonzero(into != values)[0])
        raise DataError(
            f"expected {into.dtype} in column {names[0]!r}, found {values[row]} in row "
            f"{start + row}: choose a wider dtype"
        )


def whole(
    values: NDArray[Any], member: Member, length: int, names: Sequence[str], start: int
) -> NDArray[Any]:
    """Return ``values`` padded with zeros to a chunk of ``length`` rows, checked by `convert`.

    An array that already has this length and the dtype of the member is returned uncopied.
    """
    ready = values.dtype == member.dtype and len(values) == length and values.flags.c_contiguous
    if not ready:
        chunk = page_aligned(member.shape(length), member.dtype)
        convert(values, chunk[: len(values)], names, start)
        return chunk
    if values.dtype.kind == "f":
        check_finite(values.reshape(length, -1), names, start)
    return values


def page_aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return a page-aligned array of zeros, as direct writes (``O_DIRECT``) need."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + mmap.PAGESIZE, np.uint8)
    start = -raw.ctypes.data % mmap.PAGESIZE
    return raw[start : start + size].view(dtype).reshape(shape)
