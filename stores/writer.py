"""Writing a store: whole chunk files by one writer, visible only when complete.

Everything goes to a sibling directory ``<name>.partial-<pid>``. When the last row is
in, files and directories are synced, the manifest is written last, and one rename
makes the store appear. A failure, or leaving without :meth:`StoreWriter.commit`,
removes the directory; one left behind by a killed process is removed by the next
writer of the same path, which knows it by its free lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError, StoreError
from streammc.stores.faults import Faults
from streammc.stores.layout import (
    FEATURE_KEY,
    FORMAT,
    MANIFEST,
    MAX_CHUNK_BYTES,
    MEMBER_DTYPES,
    METADATA,
    Layout,
    Member,
    array_document,
    check_row_bytes,
    choose_chunk_rows,
    feature_document,
    group_document,
    round_chunk_rows,
)
from streammc.stores.manifest import Entry, make_manifest
from streammc.stores.memory import check_finite
from streammc.stores.objects import local_path
from streammc.stores.partial import PartialDirectory, refuse_existing
from streammc.stores.row_weights import find_weight_faults
from streammc.stores.schema import check_attributes, encode_features


class StoreWriter:
    """Append rows, then :meth:`commit`; use it as a context manager.

    Parameters
    ----------
    path
        The new store; must not exist.
    features
        Names of the columns of ``X``, the intercept included.
    dtype
        ``float32`` or ``float64``: how ``X`` is stored.
    y_dtype
        ``uint8``, ``int32``, ``int64``, ``float32`` or ``float64``; ``None`` without a
        response.
    offset, weight
        Whether the store has them; float64.
    chunk_rows
        Rows per chunk, rounded up to 4096; about 8 MB of ``X`` by default.
    n_rows
        Rows to come, where known: only used to choose ``chunk_rows``.

    Raises
    ------
    IdentityError
        If ``path`` exists.
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
        chunk_rows: int | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.path = local_path(path)
        self.features = list(features)
        wanted = {
            "X": dtype,
            "y": y_dtype,
            "offset": "float64" if offset else None,
            "weight": "float64" if weight else None,
        }
        members = []
        for name, kind in wanted.items():
            if kind is None:
                continue
            kind = np.dtype(kind).name
            if kind not in MEMBER_DTYPES[name]:
                allowed = ", ".join(MEMBER_DTYPES[name])
                raise ConfigError(f"expected the dtype of {name} among {allowed}, found {kind}")
            members.append(Member(name, kind, len(self.features) if name == "X" else None))
        self._members = tuple(members)
        check_row_bytes(len(self.features), members[0].dtype)
        if chunk_rows is None:
            chunk_rows = choose_chunk_rows(members[0].row_bytes, n_rows, len(members))
        self.chunk_rows = round_chunk_rows(chunk_rows)
        if self.chunk_rows * members[0].row_bytes > MAX_CHUNK_BYTES:
            raise ConfigError(
                f"expected chunks of at most {MAX_CHUNK_BYTES >> 20} MB, found {self.chunk_rows} "
                f"rows of {members[0].row_bytes} bytes: lower chunk_rows"
            )
        refuse_existing(self.path)
        self.n_rows = 0
        self._filled = 0
        self._chunks = 0
        self._entries: dict[str, Entry] = {}
        self._buffers = {
            member.name: np.zeros(member.shape(self.chunk_rows), member.dtype) for member in members
        }
        self._partial = PartialDirectory(self.path, [*(m.name for m in members), "feature"])

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
    ) -> None:
        """Append rows; values are converted to the store's dtypes.

        Parameters
        ----------
        X
            (m, q) numbers.
        y, offset, weight
            (m,) numbers, for the arrays that the store has.

        Raises
        ------
        DataError
            If a value is not finite or not representable in the store's dtype, or a
            weight is negative or above 2**53.
        StorageIOError
            If the disk is full or refuses.
        """
        given = {"X": X, "y": y, "offset": offset, "weight": weight}
        count = X.shape[0]
        for name, value in given.items():
            if (value is None) == (name in self._buffers):
                state = "no" if value is None else "unexpected"
                raise ConfigError(f"{state} {name} in a block of rows of store {str(self.path)!r}")
            if value is not None and value.shape != (count, *self._buffers[name].shape[1:]):
                raise ConfigError(f"expected {count} rows of {name}, found shape {value.shape}")
        if weight is not None:
            faults = Faults()
            find_weight_faults(faults, "weight", self.n_rows, weight)
            faults.refuse(lambda row: f"row {row} of store {str(self.path)!r}, counted from 0")
        done = 0
        while done < count:
            step = min(count - done, self.chunk_rows - self._filled)
            for name, buffer in self._buffers.items():
                value = given[name]
                assert value is not None
                part = buffer[self._filled : self._filled + step]
                _convert(value[done : done + step], part, self._columns(name), self.n_rows)
            done += step
            self.n_rows += step
            self._filled += step
            if self._filled == self.chunk_rows:
                self._flush(self.chunk_rows)

    def commit(self, attributes: Mapping[str, Any]) -> None:
        """Finish the store and make it appear at its path.

        Parameters
        ----------
        attributes
            The group attribute ``streammc``: ``response``, ``intercept``,
            ``standardization``, ``formula``, ``shuffle_seed``, ``sources`` and what
            else is to be kept; JSON. Format, rows, features and dtype are filled in.

        Raises
        ------
        DataError
            If there are no rows.
        IdentityError
            If the path has come to exist.
        StorageIOError
            If the disk is full or refuses.
        """
        if self.n_rows == 0:
            raise DataError(f"expected at least one row for store {str(self.path)!r}, found none")
        if self._chunks == 0:
            self.chunk_rows = self.n_rows  # one chunk: no padding
        if self._filled:
            for buffer in self._buffers.values():
                buffer[self._filled :] = 0
            self._flush(self.chunk_rows)
        layout = Layout(self.n_rows, self.chunk_rows, self._members)
        complete = {
            "format": FORMAT,
            "n_rows": self.n_rows,
            "response": None,
            "features": self.features,
            "intercept": False,
            "standardization": None,
            "formula": None,
            "shuffle_seed": False,
            "sources": [],
            **attributes,
            "dtype": self._members[0].dtype,
        }
        check_attributes(complete, "the attributes of the new store")
        for member in self._members:
            self._put_json(f"{member.name}/{METADATA}", array_document(member, layout))
        self._put_json(f"feature/{METADATA}", feature_document(len(self.features)))
        names = encode_features(self.features)
        self._put(FEATURE_KEY, names + google_crc32c.value(names).to_bytes(4, "little"))
        self._put_json(METADATA, group_document(complete, layout))
        manifest = make_manifest(self._entries)
        self._partial.commit(manifest.entries, MANIFEST, manifest.encode())

    def _columns(self, name: str) -> list[str]:
        return self.features if name == "X" else [name]

    def _flush(self, rows: int) -> None:
        """Write the buffers as one chunk file each."""
        for member in self._members:
            raw = self._buffers[member.name][:rows].reshape(-1).view(np.uint8)
            self._put(member.key(self._chunks), raw)
        self._chunks += 1
        self._filled = 0

    def _put_json(self, key: str, document: dict[str, Any]) -> None:
        try:
            text = json.dumps(document, allow_nan=False, indent=1, ensure_ascii=True)
        except (TypeError, ValueError) as error:
            raise StoreError(f"expected JSON as attributes of a store: {error}") from error
        self._put(key, text.encode() + b"\n")

    def _put(self, key: str, content: bytes | NDArray[np.uint8]) -> None:
        self._partial.write(key, content)
        self._entries[key] = Entry(len(content), int(google_crc32c.value(content)))


def _convert(values: NDArray[Any], into: NDArray[Any], names: list[str], start: int) -> None:
    """Copy ``values`` into the store's dtype, refusing what does not fit."""
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
