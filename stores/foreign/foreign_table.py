"""A zarr group of another program as a data set: rows identical to those of an ingested copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.protocols import RowBlock
from streammc.stores.cloud.address import Root
from streammc.stores.foreign.zarr_arrays import (
    ArrayFacts,
    check_shard,
    chunk_keys,
    numbers,
    open_array,
    read_array_facts,
)
from streammc.stores.format.layout import FORMAT, Layout, Member, choose_chunk_rows
from streammc.stores.format.manifest import Entry, Manifest, make_manifest
from streammc.stores.format.object_access import (
    absent_objects,
    at_once,
    exists,
    object_stamps,
)
from streammc.stores.full_pass.row_blocks import Block
from streammc.stores.packed_values import StoredNumbers
from streammc.stores.rows.piece_cache import CachedRows, Pieces
from streammc.stores.rows.row_weights import MAX_WEIGHT

_PIECE_BYTES: Final = 256 << 10
_NAMES: Final = ("X", "y", "offset", "weight")
_ADVICE: Final = (
    "open the group with xarray, which decodes it, and ingest it with streammc.from_xarray"
)


class ForeignTable:
    """Arrays of a zarr group that streammc did not make; the rows of a ``Store``.

    There is no manifest: the fingerprint is that of the metadata, with the attributes that say
    whether the numbers are the values, and of the length, the time and the tag of every chunk, so
    that a copy is another data set.

    Parameters
    ----------
    root
        The group.
    arrays
        Names of the arrays in the group, by ``X``, ``y``, ``offset`` and ``weight``.
    """

    def __init__(self, root: Root, arrays: Mapping[str, str]) -> None:
        self.root, self._names = root, tuple(arrays.items())
        self._facts = {
            name: read_array_facts(root, arrays[name], 2 if name == "X" else 1)
            for name in _NAMES
            if name in arrays
        }
        X = self._facts["X"]
        n_rows = X.shape[0]
        for facts in self._facts.values():
            if facts.shape[0] != n_rows:
                raise StoreError(
                    f"expected {n_rows} rows in {facts.path!r} of {str(root)!r}, as "
                    f"{X.path!r} has, found {facts.shape[0]}: name arrays of one table"
                )
        self._numbers = {
            name: StoredNumbers(
                facts.attributes, facts.dtype, self._where(facts), _ADVICE, StoreError
            )
            for name, facts in self._facts.items()
        }
        self._arrays = {name: open_array(root, facts) for name, facts in self._facts.items()}
        self._chunk_keys = {
            name: chunk_keys(array, self._facts[name]) for name, array in self._arrays.items()
        }
        members = tuple(
            Member(name, _dtype(facts, name), X.shape[1] if name == "X" else None)
            for name, facts in self._facts.items()
        )
        self.layout = Layout(n_rows, _pass_rows(X, members[0].row_bytes), members)
        fragment = "&".join(f"{name}={facts.path}" for name, facts in self._facts.items())
        self.address = f"{root}#{fragment}"
        self.attributes: dict[str, Any] = {
            "format": FORMAT,
            "n_rows": n_rows,
            "response": arrays.get("y"),
            "features": [f"x{column}" for column in range(X.shape[1])],
            "intercept": False,
            "standardization": None,
            "formula": None,
            "shuffle_seed": False,
            "sources": [str(root)],
            "dtype": members[0].dtype,
        }
        self.manifest = self._manifest_now()
        self._checked: set[str] = set()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Return how a worker of a cluster opens the same arrays again."""
        return _opened_again, (self.root, self._names, self.manifest.fingerprint)

    def _manifest_now(self) -> Manifest:
        """Return the metadata, and lengths, times and tags of the chunks, as a manifest."""
        entries = {}
        for facts in self._facts.values():
            now = read_array_facts(self.root, facts.path, len(facts.shape))
            for key, content in now.documents.items():
                entries[key] = Entry(len(content), crc32(content))
        for name, keys in self._chunk_keys.items():
            for key, (size, *rest) in zip(keys, self._stamps(name), strict=True):
                entries[key] = Entry(int(size), crc32(repr(rest).encode()))
        return make_manifest(entries)

    def _where(self, facts: ArrayFacts) -> str:
        return f"{facts.path!r} of {str(self.root)!r}"

    def _stamps(self, name: str) -> Any:
        """Return size, time and tag of every chunk of an array; refuse one without a chunk."""
        keys = self._chunk_keys[name]
        try:
            found = object_stamps(self.root, keys).tolist()
        except StoreError as error:
            absent = absent_objects(self.root, keys)
            if not absent:
                raise
            raise StoreError(
                f"expected {len(keys)} chunks of {self._where(self._facts[name])}, found "
                f"{len(absent)} absent, {absent[0]!r} first: zarr leaves out chunks of nothing but "
                "the fill value, and lost ones look the same; write them with "
                "write_empty_chunks=True, or ingest the table"
            ) from error
        # An inode number says nothing of the content, and differs on another mount.
        return [[*each[:2], 0] for each in found] if isinstance(self.root, Path) else found

    def rows(self) -> CachedRows:
        """Return the rows, read through a new cache of decoded chunks."""
        own, row_bytes = self._facts["X"].read_rows, self.layout.members[0].row_bytes
        size = own * max(_PIECE_BYTES // (own * row_bytes), 1)
        return CachedRows(_ForeignPieces(self, size))

    def blocks(self, size: int) -> Sequence[Block]:
        """Return the row blocks of a full pass, of ``size`` rows each, in the order of the rows."""
        self.require_unchanged()
        n_rows = self.layout.n_rows
        return [
            _ForeignBlock(index, self, start, min(size, n_rows - start))
            for index, start in enumerate(range(0, n_rows, size))
        ]

    def require_unchanged(self) -> None:
        """Refuse a group that has changed since it was opened.

        Raises
        ------
        StoreError
            If metadata differ, or a chunk has another length, time or tag.
        """
        if self._manifest_now() != self.manifest:
            raise StoreError(
                f"expected {self.address!r} as it was, found changed chunks or metadata: open it "
                "again"
            )

    def read_rows(self, start: int, stop: int) -> Pieces:
        """Return the rows ``start`` to ``stop``; an array that the group lacks is empty.

        Raises
        ------
        StoreError
            If a chunk is missing or damaged, or holds values that cannot be used.
        """
        found: dict[str, NDArray[Any]] = {}
        for name, array in self._arrays.items():
            facts = self._facts[name]
            where = self._where(facts)
            if facts.inner is not None:
                self._check_shards(name, start, stop)
            try:
                values = array[start:stop]
            except StoreError:
                raise
            except (ValueError, RuntimeError, TypeError, EOFError) as error:
                reason = type(error).__name__
                raise StoreError(
                    f"expected rows {start} to {stop} of {where}, found chunks that cannot be "
                    f"decoded ({reason}): copy or make the group again"
                ) from error
            self._numbers[name].refuse_marked(np.asarray(values), start)
            found[name] = numbers(values, self.layout.members[len(found)].dtype, where, start)
        weight = found.get("weight", np.empty(0))
        if weight.size and (weight.min() < 0.0 or weight.max() > MAX_WEIGHT):
            raise StoreError(
                f"expected weights from 0 to 2**53 in rows {start} to {stop} of "
                f"{self.address!r}, found others: correct them"
            )
        return Pieces(*(found.get(name, np.empty(0)) for name in _NAMES))

    def _check_shards(self, name: str, start: int, stop: int) -> None:
        facts = self._facts[name]
        grid = [-(-n // chunk) for n, chunk in zip(facts.shape, facts.chunks, strict=True)]
        for at, place in enumerate(np.ndindex(*grid)):
            key, rows = self._chunk_keys[name][at], facts.chunks[0]
            inside = place[0] * rows < stop and (place[0] + 1) * rows > start
            if inside and key not in self._checked:
                check_shard(self.root, facts, key, place, self.manifest.entries[key].size)
                self._checked.add(key)


@lru_cache(maxsize=4)
def _opened_again(root: Root, names: tuple[tuple[str, str], ...], fingerprint: str) -> ForeignTable:
    """Return the arrays in another process; raise StoreError if they have changed."""
    table = ForeignTable(root, dict(names))
    if table.manifest.fingerprint != fingerprint:
        raise StoreError(
            f"expected {table.address!r} as it was, found changed chunks: give every worker the "
            "same group"
        )
    return table


def open_foreign(root: Root, arrays: Mapping[str, str]) -> ForeignTable:
    """Open arrays of a zarr group; without names ``X``, and ``y`` where there is one.

    Raises
    ------
    StoreError
        If there are no such arrays, or they cannot be used.
    """
    names = dict(arrays)
    if not names:
        names = {
            name: name
            for name in _NAMES
            if name == "X" or exists(root, f"{name}/zarr.json") or exists(root, f"{name}/.zarray")
        }
    if "X" not in names:
        raise StoreError(
            f"expected the array of the design, as '{root}#X=NAME&y=NAME', found others: name it"
        )
    return ForeignTable(root, names)


class _ForeignPieces:
    """Reader of the pieces of a foreign table; see ``piece_cache.PieceReader``."""

    def __init__(self, table: ForeignTable, piece_rows: int) -> None:
        X, y, offset, weight = (table.layout.member(name) for name in _NAMES)
        assert X is not None
        self._table = table
        self.n_rows, self.columns, self.where = table.layout.n_rows, X.columns or 0, table.address
        self.piece_rows = piece_rows
        dtype = None if y is None else y.dtype
        self.dtypes = X.dtype, dtype, offset is not None, weight is not None

    def read(self, pieces: Sequence[int]) -> list[Pieces]:
        """Return some pieces."""
        size = self.piece_rows
        return at_once(
            self._table.root,
            [
                lambda piece=piece: self._table.read_rows(  # type: ignore[misc]
                    piece * size, min((piece + 1) * size, self.n_rows)
                )
                for piece in pieces
            ],
        )


@dataclass(frozen=True)
class _ForeignBlock:
    """A block of rows of a full pass; a worker of a cluster opens the arrays again."""

    index: int
    table: ForeignTable
    start: int
    rows: int

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows piece by piece, in order."""
        step = self.table.layout.chunk_rows
        for start in range(self.start, self.start + self.rows, step):
            m = min(step, self.start + self.rows - start)
            X, y, offset, weight = self.table.read_rows(start, start + m)
            yield RowBlock(
                self.index,
                start,
                X,
                y if y.size else np.zeros(m),
                offset if offset.size else np.zeros(m),
                weight if weight.size else np.ones(m),
            )


def _dtype(facts: ArrayFacts, name: str) -> str:
    """Return float32 if it holds every number of the design exactly, else float64."""
    kind, size = facts.dtype.kind, facts.dtype.itemsize
    narrow = kind == "b" or (kind in "iu" and size <= 2) or (kind == "f" and size <= 4)
    return "float32" if name == "X" and narrow else "float64"


def _pass_rows(X: ArrayFacts, row_bytes: int) -> int:
    """Return the rows of a piece of a full pass: as a store has them, in whole chunks."""
    wanted = choose_chunk_rows(row_bytes, X.shape[0])
    rows = max(wanted // X.read_rows, 1) * X.read_rows
    return min(rows, X.shape[0])
