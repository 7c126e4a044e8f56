"""Store format 1: the files of a store, their lengths, and the chunks of rows.

Every row array is cut into the same chunks of whole rows, and a chunk file is the
raw little-endian block, the last one padded with zeros to full length (zarr's
regular grid). ``chunk_rows`` is a multiple of 4096 unless there is one chunk, so
that a chunk file is whole pages whatever the element size and all files of an
array can be mapped one after the other into one address range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.stores.format.shards import SHARD_BYTES, SHARD_ROWS, Shards
from streammc.trace.kinds import STORE_MANIFEST
from streammc.trace.zarr_files import DOCUMENT, chunk_key

FORMAT: Final = 1
MANIFEST: Final = STORE_MANIFEST
METADATA: Final = DOCUMENT

ROW_MULTIPLE: Final = 4096
TARGET_CHUNK_BYTES: Final = 8 << 20
MAX_CHUNK_BYTES: Final = 256 << 20
MAX_ROWS: Final = 1 << 48
MAX_FEATURES: Final = 1 << 16
MAX_LEVELS: Final = 1 << 30
"""Largest table; a document of a store that says more is refused."""
# Each chunk file is one mapping and Linux allows 65,530 of them in a process.
MAX_CHUNKS: Final = 60_000

X_DTYPES: Final = ("float32", "float64")
Y_DTYPES: Final = ("uint8", "int32", "int64", "float32", "float64")
VECTOR_DTYPES: Final = ("float64",)
MEMBER_DTYPES: Final[dict[str, tuple[str, ...]]] = {
    "X": X_DTYPES,
    "codes": ("uint16",),
    "y": Y_DTYPES,
    "offset": VECTOR_DTYPES,
    "weight": VECTOR_DTYPES,
    "row_id": ("int64", "uint8"),
    "row_group": ("int64", "uint8"),
    "level": ("uint32",),
}
GROUP: Final = "group"
GROUP_OFFSET: Final = "group_offset"
GROUP_DTYPES: Final[dict[str, tuple[str, ...]]] = {
    GROUP_OFFSET: ("int64",),
    GROUP: ("int64", "uint8"),
}
"""Arrays with one entry for each group of rows, of stores that have groups."""
CODES: Final = "codes"
"""Codes of factors whose columns are not in ``X``; see ``format.codes``."""
DENSE_FEATURE: Final = "dense_feature"
"""Dimension of the columns of ``X`` beside codes; ``feature`` without."""
CELLS: Final = "cells"
"""Attribute of a store whose rows are cells: ``{"rows": N}``, the rows of the table."""
ROW_ID: Final = "row_id"
ROW_GROUP: Final = "row_group"
"""Label of the group of each row, of stores that keep the order of the table."""
LEVEL: Final = "level"
"""Levels of each row (F,) of F factors that cross, of stores that have such."""
CROSSED: Final = "crossed"
Effects = tuple[tuple[str, ...], bool]
"""Terms of a factor that crosses others, ``("1", "x")``, and whether their effects are
correlated."""


def described_effects(stated: Mapping[str, Any]) -> Effects:
    """Return the effects of a factor from its entry in the attribute ``crossed``."""
    return tuple(stated.get("terms", ("1",))), bool(stated.get("correlated", False))


"""Attribute of a store with factors that cross: ``column`` and number of ``levels`` of each."""
LABEL_MEMBERS: Final = (ROW_ID, ROW_GROUP, LEVEL)
"""Row arrays that full passes do not read."""
LEVEL_LABEL: Final = "level_label"
"""Array ``level_label_f`` has the labels of the levels of factor number f."""
TEXT_MEMBERS: Final = (ROW_ID, ROW_GROUP, GROUP)
"""Arrays that hold texts as the bytes (.., width) of one width, if their dtype is uint8."""
MAX_ID_BYTES: Final = 256
FEATURE_KEY: Final = "feature/c.0"


@dataclass(frozen=True, slots=True)
class Member:
    """A row array of a store: one value, or one row of values, for each row of the table."""

    name: str
    dtype: str
    columns: int | None = None
    """Columns of a matrix, factors of the codes, bytes of a text row id; ``None``: a vector."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return np.dtype(self.dtype).itemsize * (self.columns or 1)

    def key(self, chunk: int) -> str:
        """Return the key, a relative path, of chunk number ``chunk``."""
        return f"{self.name}/{chunk_key((chunk,) if self.columns is None else (chunk, 0))}"

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of this array for ``rows`` rows."""
        return (rows,) if self.columns is None else (rows, self.columns)


def holds_texts(member: Member) -> bool:
    """Return whether an array holds texts as bytes."""
    own = member.name in TEXT_MEMBERS or member.name.startswith(LEVEL_LABEL)
    return own and member.columns is not None


def make_members(
    columns: int, dtypes: Mapping[str, str | None], n_codes: int = 0, n_crossed: int = 0
) -> tuple[Member, ...]:
    """Return the row arrays of a new store; ``dtypes`` has ``None`` for an absent array.

    ``columns`` are those of ``X``, ``n_codes`` those of ``codes``, ``n_crossed`` of ``level``.

    Raises
    ------
    ConfigError
        If the format does not allow a dtype for its array.
    """
    members = []
    for name, wanted in dtypes.items():
        if wanted is None:
            continue
        kind = np.dtype(wanted).name
        if name in TEXT_MEMBERS and np.dtype(wanted).kind == "S":
            members.append(Member(name, "uint8", np.dtype(wanted).itemsize))
            continue
        if kind not in MEMBER_DTYPES[name]:
            allowed = ", ".join(MEMBER_DTYPES[name])
            raise ConfigError(
                f"expected the dtype of {name} among {allowed}, found {kind}: choose one of them"
            )
        members.append(
            Member(name, kind, {"X": columns, CODES: n_codes, LEVEL: n_crossed}.get(name))
        )
    return tuple(members)


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of a store and their common chunks."""

    n_rows: int
    chunk_rows: int
    members: tuple[Member, ...]
    groups: tuple[Layout, ...] = ()
    """The layouts of ``group_offset`` and ``group``, one array each, if there are groups; and of
    the labels of each factor that crosses others."""
    shards: Shards | None = None
    """How chunks are cut into pieces; ``None`` for raw chunks, which can be mapped."""
    later_rows: int = 0
    """Rows in the same files behind ``n_rows``: of a store as it was before rows were appended,
    the appended rows."""

    @property
    def all_members(self) -> tuple[tuple[Member, Layout], ...]:
        """The arrays of rows and of groups, each with its layout."""
        layouts = (self, *self.groups)
        return tuple((member, layout) for layout in layouts for member in layout.members)

    @property
    def n_chunks(self) -> int:
        """Chunks of each row array."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row on disk, summed over all arrays."""
        return sum(member.row_bytes for member in self.members)

    @property
    def data_members(self) -> tuple[Member, ...]:
        """The arrays that a pass reads: all but row ids and labels of groups."""
        return tuple(member for member in self.members if member.name not in LABEL_MEMBERS)

    def member(self, name: str) -> Member | None:
        """Return the array called ``name``, or ``None``."""
        return next((member for member in self.members if member.name == name), None)

    def chunk_bytes(self, member: Member) -> int:
        """Return the bytes of one chunk of ``member``: the length of its file, unless sharded."""
        return member.row_bytes * self.chunk_rows

    def chunk_sizes(self) -> dict[str, int | None]:
        """Return the length of every chunk file by key; ``None`` for shards."""
        return {
            member.key(chunk): None if layout.shards else layout.chunk_bytes(member)
            for member, layout in self.all_members
            for chunk in range(layout.n_chunks)
        }

    def metadata_keys(self) -> tuple[str, ...]:
        """Return the keys of the ``zarr.json`` documents and of the feature names."""
        arrays = (*(member.name for member, _ in self.all_members), "feature")
        return (METADATA, *(f"{name}/{METADATA}" for name in arrays), FEATURE_KEY)


def check_row_bytes(columns: int, dtype: str) -> None:
    """Refuse rows so wide that even the smallest chunk exceeds the limit.

    Raises
    ------
    ConfigError
        With the largest number of columns that a store of this dtype can have.
    """
    itemsize = np.dtype(dtype).itemsize
    most = MAX_CHUNK_BYTES // (ROW_MULTIPLE * itemsize)
    if columns > most:
        also = f", or --dtype float32 for up to {2 * most:,}" if itemsize == 8 else ""
        raise ConfigError(
            f"expected at most {most:,} columns of {dtype}, found {columns:,}: choose some with "
            f"--features{also}"
        )


def round_chunk_rows(rows: int) -> int:
    """Return ``rows`` rounded up to a multiple of 4096: whole pages in every array.

    Raises
    ------
    ConfigError
        If ``rows`` is not positive.
    """
    if isinstance(rows, bool) or not isinstance(rows, Integral) or rows < 1:
        raise ConfigError(
            f"expected a whole number of rows per chunk, at least 1, found {rows!r}: "
            "omit chunk_rows"
        )
    return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE


def choose_chunk_rows(row_bytes: int, n_rows: int | None = None, n_members: int = 2) -> int:
    """Return the rows per chunk: about 8 MB, or more if there would be too many files.

    Parameters
    ----------
    row_bytes
        Bytes of one row of the widest array.
    n_rows
        Rows of the table, if known.
    n_members
        Number of row arrays of the store.
    """
    rows = max(1, TARGET_CHUNK_BYTES // row_bytes // ROW_MULTIPLE) * ROW_MULTIPLE
    if n_rows is not None:
        rows = max(rows, round_chunk_rows(-(-n_rows * n_members // MAX_CHUNKS) or 1))
    return rows


def settle_chunk_rows(
    members: Sequence[Member],
    chunk_rows: int | None,
    n_rows: int | None,
    n_features: int = 0,
    shards: Shards | None = None,
) -> int:
    """Return the rows per chunk of a new store: ``chunk_rows`` rounded up, or the default.

    With codes the default is that of a store of ``n_features`` dense columns: the blocks of a full
    pass are then the same, and a chunk with all columns fits into memory. Shards have whole pieces,
    by default about a million rows in at most 64 MB.

    Raises
    ------
    ConfigError
        If a chunk would be too large.
    """
    X = members[0]
    check_row_bytes(X.columns or 0, X.dtype)
    # Row ids that are texts can be wider than the design.
    widest = max(member.row_bytes for member in members if member.columns is not None)
    if chunk_rows is None and shards is not None:
        chunk_rows = min(SHARD_ROWS, SHARD_BYTES // widest)
    elif chunk_rows is None:
        expanded = n_features * np.dtype(X.dtype).itemsize
        chunk_rows = choose_chunk_rows(max(widest, expanded), n_rows, len(members))
    chunk_rows = round_chunk_rows(chunk_rows)
    if shards is not None:
        chunk_rows = -(-chunk_rows // shards.piece_rows) * shards.piece_rows
    if chunk_rows * widest > MAX_CHUNK_BYTES:
        raise ConfigError(
            f"expected chunks of at most {MAX_CHUNK_BYTES >> 20} MB, found {chunk_rows} "
            f"rows of {widest} bytes: lower chunk_rows"
        )
    return chunk_rows


BLOCK_ROWS: Final = 2_500_000
"""Most rows of a task of a full pass, unless one chunk has more."""
BLOCKS_WANTED: Final = 8
"""Tasks into which a smaller table is cut."""


def chunks_per_block(n_rows: int, chunk_rows: int) -> int:
    """Return the number of chunks that one task of a full pass reads, one after the other.

    A task reads about 2.5 million rows, so that a billion rows make under 1000 tasks; a
    smaller table is cut into about 8 tasks, to keep two cores busy. The number depends on
    the data alone, so that the blocks, and with them every bit of a sum, are the same for
    any number of workers.
    """
    wanted = min(BLOCK_ROWS, -(-n_rows // BLOCKS_WANTED))
    return max(1, min(BLOCK_ROWS // chunk_rows, -(-wanted // chunk_rows)))
