"""The row source of a store: mapped files, or a cache of decoded pieces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.coded_matrix import CodedColumns
from streammc.stores.cloud.address import Root
from streammc.stores.format.codes import with_codes
from streammc.stores.format.layout import CODES, Layout
from streammc.stores.format.manifest import Manifest
from streammc.stores.format.object_access import statuses
from streammc.stores.rows.mapping import map_member
from streammc.stores.rows.piece_cache import CachedRows
from streammc.stores.rows.piece_reading import StorePieces, stamp_tag
from streammc.stores.rows.row_source import MappedRows


def open_rows(
    root: Root, layout: Layout, manifest: Manifest, coded: CodedColumns | None = None
) -> MappedRows | CachedRows:
    """Return the rows of a store: mapped if its chunks are raw files, else through a cache.

    ``coded`` are the columns of a design with codes.

    Raises
    ------
    StoreError
        If a chunk file contradicts the layout.
    OutOfMemoryError
        If the system allows no further mapping.
    """
    if isinstance(root, Path) and layout.shards is None:
        return _mapped(root, layout, coded)
    tags: dict[str, str | None]
    if isinstance(root, Path):
        tags = {key: stamp_tag(root / key) for key in layout.chunk_sizes()}
    else:
        found = statuses(root, layout.chunk_sizes())
        tags = {key: status.tag for key, status in found.items()}
    return CachedRows(StorePieces(root, layout, manifest, tags, coded))


def _mapped(root: Path, layout: Layout, coded: CodedColumns | None) -> MappedRows:
    def mapped(name: str) -> NDArray[Any]:
        member = layout.member(name)
        return np.empty(0) if member is None else map_member(root, layout, member)

    observable = os.access(root / layout.members[0].key(0), os.W_OK)
    design = with_codes(mapped("X"), mapped(CODES), coded)
    others = mapped("y"), mapped("offset"), mapped("weight")
    return MappedRows(design, *others, layout.n_rows, observable=observable)
