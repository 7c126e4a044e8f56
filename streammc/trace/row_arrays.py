"""Arrays with one value per row, written chunk by chunk, and further small arrays.

An ordinary zarr v3 group: every chunk has its crc32c, and the group document lists all
arrays. It is built in a hidden directory beside its final path and renamed on commit.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    AccessError,
    BusyError,
    IdentityError,
    OutputError,
    StorageIOError,
    StreammcError,
)
from streammc.trace.codec import (
    STRING,
    ArraySpec,
    check_name,
    chunk_key,
    consolidated,
    document,
    document_bytes,
    dtype_name,
    encode,
)
from streammc.trace.durable import collect_debris, swap, sync_directory, write_file
from streammc.trace.local_path import given_path
from streammc.trace.row_reading import COORDINATES, FORMAT, KIND, read_meta
from streammc.trace.sealed import plain, seal

ROW: Final = "row"
ROW_ID: Final = "row_id"


class RowArrays:
    """Writer of arrays by row: write chunks in any order and thread, then :meth:`commit`.

    A context manager: its exit without a commit removes everything. The next writer of the
    same path removes the files of a killed process.

    Parameters
    ----------
    path
        Path of the new group.
    names
        Names of the float64 arrays of dimension ``row``.
    n_rows, chunk_rows
        Length of these arrays, and of a chunk.
    ids
        dtype of the coordinate ``row_id``, ``int64`` or ``string``, which :meth:`write_ids`
        writes; ``None`` for no coordinate.
    overwrite
        Replace such a group at ``path``, once the new one is complete.

    Raises
    ------
    IdentityError
        If ``path`` exists; with ``overwrite``, if it is not such a group.
    BusyError
        If another process is writing it.
    OutputError, AccessError
        If it cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str],
        n_rows: int,
        chunk_rows: int,
        ids: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(os.path.abspath(given_path(path)))
        self._overwrite = overwrite
        self._refuse_existing()
        self.chunk_rows = min(chunk_rows, n_rows)
        dtypes = dict.fromkeys(names, "float64") | ({} if ids is None else {ROW_ID: ids})
        self._specs = {
            name: ArraySpec((n_rows,), (self.chunk_rows,), dtype, (ROW,))
            for name, dtype in dtypes.items()
        }
        self.folder = self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")
        self._lock = -1
        try:
            collect_debris(self.path, f".{self.path.name}.partial-")
            self.folder.mkdir()
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in dtypes:
                check_name(name)
                (self.folder / name).mkdir()
        except OSError as error:
            self._discard()
            if isinstance(error, BusyError):
                raise
            kind = AccessError if isinstance(error, PermissionError) else OutputError
            raise kind(
                f"cannot create {str(self.path)!r}: {error.strerror or error}; give a path in an "
                "existing, writable folder"
            ) from error

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

    def write_ids(self, start: int, ids: NDArray[Any]) -> None:
        """Write the chunk of row ids that starts at row ``start``; see :meth:`RowTarget.write`."""
        whole = np.zeros(self.chunk_rows, ids.dtype)
        whole[: len(ids)] = ids
        key = chunk_key((start // self.chunk_rows,))
        write_file(self.folder / ROW_ID / key, encode(whole, self._specs[ROW_ID].dtype))

    def commit(
        self,
        meta: Mapping[str, Any],
        arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]] | None = None,
    ) -> None:
        """Add small arrays and attributes, and rename the group to its final path.

        Parameters
        ----------
        meta
            JSON attributes; NaN and infinities become null.
        arrays
            ``(dims, values)`` by name.

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
            for chunk in range(-(-spec.shape[0] // self.chunk_rows)):
                where = self.folder / name / chunk_key((chunk,))
                sized = spec.dtype == STRING or (
                    where.is_file() and where.stat().st_size == spec.chunk_bytes()
                )
                if not (where.is_file() and sized):
                    raise StorageIOError(
                        f"expected chunk {chunk} of {name!r} in {self.folder}, found none: "
                        "choose a folder that every worker shares"
                    )
        for name, (dims, values) in (arrays or {}).items():
            check_name(name)
            array = np.asarray(values)
            specs[name] = ArraySpec(array.shape, array.shape, dtype_name(array.dtype), tuple(dims))
            (self.folder / name).mkdir()
            content = encode(array, specs[name].dtype)
            write_file(self.folder / name / chunk_key((0,) * array.ndim), content)
        for name, spec in specs.items():
            write_file(self.folder / name / "zarr.json", document_bytes(spec))
            sync_directory(self.folder / name)
        listed = {name: document(spec) for name, spec in specs.items()}
        own = {"format": FORMAT, "kind": KIND, "arrays": sorted(specs)}
        # xarray recognises a coordinate by this attribute of the CF convention.
        coordinates = {COORDINATES: ROW_ID} if ROW_ID in specs else {}
        attributes = plain(meta) | coordinates
        write_file(self.folder / "zarr.json", seal(attributes, own, consolidated(listed)))
        sync_directory(self.folder)
        self._refuse_existing()
        swap(self.folder, self.path)

    def _refuse_existing(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not self._overwrite:
            raise IdentityError(
                f"expected nothing at {str(self.path)!r}, but it exists: choose another path, "
                "delete it, or replace predictions there with overwrite=True"
            )
        try:
            read_meta(self.path)
        except StreammcError as error:
            raise IdentityError(
                f"expected predictions to overwrite at {str(self.path)!r}, found something else: "
                "choose another path or delete it yourself"
            ) from error

    def _discard(self) -> None:
        if self._lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


class RowTarget:
    """Writer of chunks into the folder of a :class:`RowArrays`, for the tasks of a pass."""

    def __init__(self, folder: str, chunk_rows: int) -> None:
        self._folder = folder
        self._chunk_rows = chunk_rows

    def write(self, start: int, columns: Mapping[str, NDArray[np.float64]]) -> None:
        """Write one chunk of each given array, from row ``start`` on.

        Parameters
        ----------
        start
            First row; a multiple of the rows of a chunk.
        columns
            Values (m,) by array name; only the last chunk may have fewer rows.
        """
        for name, values in columns.items():
            whole = values
            if len(values) < self._chunk_rows:
                whole = np.full(self._chunk_rows, np.nan)
                whole[: len(values)] = values
            key = chunk_key((start // self._chunk_rows,))
            write_file(Path(self._folder) / name / key, encode(whole, "float64"))
