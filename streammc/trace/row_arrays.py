"""Arrays with values per row or group, written chunk by chunk, and further small arrays.

An ordinary zarr v3 group: every chunk has its crc32c, and the group document lists all
arrays. It is built in a hidden directory beside its final path and renamed on commit. A path that
ends in .csv or .parquet becomes a table of the values per row, made of the same chunks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    BusyError,
    IdentityError,
    MissingError,
    StorageIOError,
    StoreError,
    StreammcError,
)
from streammc.trace.addresses import given_path
from streammc.trace.debris import collect_debris, marked_partial
from streammc.trace.disk import (
    creation_error,
    read_file,
    reporting,
    swap,
    sync_directory,
    write_file,
    write_files,
)
from streammc.trace.kinds import GROUP_EFFECTS, PREDICTIONS, refuse_other_kind
from streammc.trace.row_tables import ZARR, is_row_table, long_columns, output_format, write_table
from streammc.trace.zarr_files import (
    DOCUMENT,
    DOCUMENT_LIMIT,
    STRING,
    ArraySpec,
    check_name,
    checked_body,
    chunk_key,
    dtype_name,
    encode,
    plain,
    read_chunk,
    seal,
    store_array,
    unseal,
)
from streammc.unfinished import (
    announce,
    current_mark,
    mark_entry,
    refuse_reserved_name,
    remove,
    unmark,
)

FORMAT: Final = 1
COORDINATES: Final = "coordinates"


class RowKind(NamedTuple):
    """What the rows of a group of arrays are."""

    kind: str
    """The kind of its data, one of ``trace.kinds``."""
    sealed: str
    """The kind in its document."""
    dim: str
    """Dimension of the rows."""
    label: str
    """Coordinate that identifies a row."""


ROWS: Final = RowKind(PREDICTIONS, "rows", "row", "row_id")
GROUPS: Final = RowKind(GROUP_EFFECTS, "groups", "group", "group")


def read_meta(path: str | os.PathLike[str], of: RowKind = ROWS) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes of a committed group and the names of its arrays.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If it is not such a group, or damaged.
    """
    source = given_path(path)
    if not source.exists():
        raise MissingError(
            f"expected a result of streammc at {source}, found nothing: check the path"
        )
    refuse_other_kind(source, of.kind)
    where = source / DOCUMENT
    try:
        meta, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a zarr group at {source}, found no zarr.json: choose another path"
        ) from None
    if own.get("kind") != of.sealed or own.get("format") != FORMAT:
        raise StoreError(
            f"expected values by {of.dim} of format {FORMAT} in {where}, found kind "
            f"{own.get('kind')!r}, format {own.get('format')!r}: choose another path, or update "
            "streammc"
        )
    meta.pop(COORDINATES, None)
    return meta, list(own["arrays"])


def check_chunks(path: str | os.PathLike[str], of: RowKind = ROWS) -> Iterator[str]:
    """Verify the checksum of every chunk of a group; yield the path of each verified file.

    Raises
    ------
    StoreError
        If a file is missing or damaged; the message names it.
    """
    import json

    source = given_path(path)
    _, names = read_meta(source, of)
    for name in names:
        check_name(name, StoreError)
        where = source / name / DOCUMENT
        try:
            found = json.loads(read_file(where, limit=2**20))
            counts = [
                -(-length // chunk) if length else 1
                for length, chunk in zip(
                    found["shape"], found["chunk_grid"]["configuration"]["chunk_shape"], strict=True
                )
            ]
            for index in np.ndindex(*counts):
                key = source / name / chunk_key(index)
                checked_body(read_file(key, limit=2**31), key)
                yield str(key)
        except (MissingError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"expected {where} and its chunks, found {error}"
                ": delete the result and compute it again"
            ) from error


_TABLE: Final = "table"
"""Name of an unfinished table, in the folder of its chunks."""


class Column(NamedTuple):
    """An array with a value, or several, per row."""

    dtype: str = "float64"
    dims: tuple[str, ...] = ()
    """Dimensions after that of the rows."""
    sizes: tuple[int, ...] = ()


class RowArrays:
    """Writer of arrays by row: write chunks in any order and thread, then :meth:`commit`.

    A context manager: its exit without a commit removes everything. The next writer of the
    same path removes the files of a killed process.

    Parameters
    ----------
    path
        Path of the new group, or of the table that its suffix names.
    names
        Names of the float64 arrays with a value per row; or arrays by name.
    n_rows, chunk_rows
        Length of these arrays, and of a chunk.
    ids
        dtype of the labels of the rows, ``int64`` or ``string``, which :meth:`write_ids`
        writes; ``None`` for no coordinate.
    overwrite
        Replace such a group at ``path``, once the new one is complete.
    of
        What the rows are.

    Raises
    ------
    ConfigError
        If ``path`` has the name of something unfinished, or another suffix.
    IdentityError
        If ``path`` exists; with ``overwrite``, if it is not such a group or table.
    BusyError
        If another process is writing it.
    OutputError, AccessError
        If it cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str] | Mapping[str, Column],
        n_rows: int,
        chunk_rows: int,
        ids: str | None = None,
        overwrite: bool = False,
        of: RowKind = ROWS,
    ) -> None:
        self.path = Path(os.path.abspath(given_path(path)))
        self._overwrite, self._of = overwrite, of
        self._format = output_format(self.path)
        self._refuse_existing()
        self.chunk_rows = min(chunk_rows, n_rows)
        columns = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, Column())
        columns |= {} if ids is None else {of.label: Column(ids)}
        self._specs = {
            name: ArraySpec((n_rows, *sizes), (self.chunk_rows, *sizes), dtype, (of.dim, *dims))
            for name, (dtype, dims, sizes) in columns.items()
        }
        self.folder = self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")
        self._lock = -1
        try:
            collect_debris(self.path, f".{self.path.name}.partial-")
            self._lock = marked_partial(self.folder)
            for name in columns:
                check_name(name)
                (self.folder / name).mkdir()
        except OSError as error:
            self._discard()
            if isinstance(error, BusyError):
                raise
            raise creation_error(error, self.path) from error

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
        self._discard()

    @property
    def target(self) -> RowTarget:
        """Small picklable object with which the tasks of a pass write chunks."""
        return RowTarget(str(self.folder), self.chunk_rows)

    def write_ids(self, start: int, ids: NDArray[Any], name: str | None = None) -> None:
        """Write the chunk of row ids that starts at row ``start``; see :meth:`RowTarget.write`.

        With ``name`` the labels are those of another array.
        """
        name = self._of.label if name is None else name
        whole = np.zeros(self.chunk_rows, ids.dtype)
        whole[: len(ids)] = ids
        spec = self._specs[name]
        where = self.folder / name / spec.key(start // self.chunk_rows)
        write_file(where, encode(whole, spec.dtype))

    def commit(
        self,
        meta: Mapping[str, Any],
        arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]] | None = None,
    ) -> dict[str, str]:
        """Add small arrays and attributes, and rename the group to its final path.

        A table has the values per row alone, with a line for each of their coordinates.

        Parameters
        ----------
        meta
            JSON attributes; NaN and infinities become null.
        arrays
            ``(dims, values)`` by name.

        Returns
        -------
        dict
            Of a table its ``fingerprint``, the SHA-256 of the file; else empty.

        Raises
        ------
        StorageIOError
            If the disk is full or refuses, or a chunk is missing: written by a process
            that does not share this file system.
        IdentityError
            If the path was created in the meantime.
        """
        specs = dict(self._specs)
        for name, spec in specs.items():
            for chunk in range(spec.n_chunks):
                where = self.folder / name / spec.key(chunk)
                sized = spec.dtype == STRING or (
                    where.is_file() and where.stat().st_size == spec.chunk_bytes()
                )
                if not (where.is_file() and sized):
                    raise StorageIOError(
                        f"expected chunk {chunk} of {name!r} in {self.folder}, found none: "
                        "choose a folder that every worker shares"
                    )
        if self._format != ZARR:
            return self._commit_table(plain(meta), arrays or {})
        for name, (dims, values) in (arrays or {}).items():
            check_name(name)
            (self.folder / name).mkdir()
            stored, files = store_array(self.folder / name, dims, np.asarray(values))
            specs[name] = stored.spec
            write_files(files)
        for name, spec in specs.items():
            write_file(self.folder / name / DOCUMENT, spec.document_bytes())
            sync_directory(self.folder / name)
        nodes = {name: spec.document() for name, spec in specs.items()}
        own = {
            "format": FORMAT,
            "kind": self._of.sealed,
            "arrays": sorted(specs),
            **mark_entry(current_mark()),
        }
        # xarray recognises a coordinate by this attribute of the CF convention.
        label, dim = self._of.label, self._of.dim
        coordinates = {COORDINATES: label} if label in specs and label != dim else {}
        attributes = plain(meta) | coordinates
        write_file(self.folder / DOCUMENT, seal(attributes, own, nodes))
        self._refuse_existing()
        unmark(self.folder)
        sync_directory(self.folder)
        swap(self.folder, self.path)
        return {}

    def _commit_table(
        self, meta: Mapping[str, Any], arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]]
    ) -> dict[str, str]:
        """Make the table of all rows, and rename it to its final path."""
        table = self.folder / _TABLE
        made = {"fingerprint": write_table(table, self._format, self._parts(arrays), meta)}
        announce({**meta, **made})
        self._refuse_existing()
        with reporting("replace", self.path):
            os.replace(table, self.path)
        sync_directory(self.path.parent)
        return made

    def _parts(
        self, arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]]
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the columns of the table, for the rows of a chunk at a time."""
        specs = self._specs
        dims = max((spec.dims[1:] for spec in specs.values()), key=len)
        coordinates = {dim: arrays[dim][1] for dim in dims}
        for chunk in range(next(iter(specs.values())).n_chunks):
            columns = {
                name: read_chunk(self.folder / name, spec, chunk) for name, spec in specs.items()
            }
            yield long_columns(columns, self._of.label, dims, coordinates)

    def _refuse_existing(self) -> None:
        refuse_reserved_name(self.path)
        if not os.path.lexists(self.path):
            return
        if not self._overwrite:
            raise IdentityError(
                f"expected nothing at {str(self.path)!r}, but it exists: choose another path or "
                "delete it",
                f", or replace {self._of.kind} there with overwrite=True",
            )
        try:
            if self._format != ZARR:
                ours = is_row_table(self.path)
            else:
                ours = bool(read_meta(self.path, self._of))
            why = None
        except StreammcError as error:
            ours, why = False, error
        if not ours:
            raise IdentityError(
                f"expected {self._of.kind} to overwrite at {str(self.path)!r}, found something "
                "else: choose another path or delete it yourself"
            ) from why

    def _discard(self) -> None:
        if self._lock >= 0:
            with suppress(OSError):
                remove(self.folder)
            os.close(self._lock)
            self._lock = -1


class RowTarget:
    """Writer of chunks into the folder of a :class:`RowArrays`, for the tasks of a pass."""

    def __init__(self, folder: str, chunk_rows: int) -> None:
        self._folder = folder
        self._chunk_rows = chunk_rows

    def write(self, start: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Write one chunk of each given array, from row ``start`` on.

        Parameters
        ----------
        start
            First row; a multiple of the rows of a chunk.
        columns
            Values (m, ...) by array name; only the last chunk may have fewer rows.
        """
        for name, values in columns.items():
            whole = values
            if len(values) < self._chunk_rows:
                fill = np.nan if values.dtype.kind == "f" else 0
                whole = np.full((self._chunk_rows, *values.shape[1:]), fill, values.dtype)
                whole[: len(values)] = values
            key = chunk_key((start // self._chunk_rows, *(0,) * (values.ndim - 1)))
            write_file(Path(self._folder) / name / key, encode(whole, dtype_name(values.dtype)))
