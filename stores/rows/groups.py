"""The groups of a store: their first rows, mapped, and their labels, read at need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.group_table import GroupTable
from streammc.stores.cloud.address import Root
from streammc.stores.format.layout import GROUP_OFFSET, Layout
from streammc.stores.format.manifest import Manifest, read_values
from streammc.stores.rows.mapping import map_member


def read_groups(
    root: Root, layout: Layout, manifest: Manifest, attribute: Mapping[str, Any]
) -> GroupTable:
    """Return the groups of a store; every chunk of their first rows is checked."""
    offset, labels = layout.groups
    fault = _find_fault(root, layout, manifest, attribute["largest"])
    if fault is not None:
        raise StoreError(
            f"expected {fault[0]} in {GROUP_OFFSET!r} of store {str(root)!r}, found {fault[1]}: "
            "copy or make the store again"
        )
    if isinstance(root, Path):
        first_rows = map_member(root, offset, offset.members[0])
    else:
        first_rows = read_values(root, offset, offset.members[0], manifest, 0, offset.n_rows)

    def read(start: int, stop: int) -> NDArray[Any]:
        stop = min(stop, labels.n_rows)
        return read_values(root, labels, labels.members[0], manifest, start, stop)

    return GroupTable(
        attribute["column"],
        tuple(attribute["terms"]),
        attribute["correlated"],
        first_rows[: offset.n_rows],
        read,
        attribute["largest"],
    )


def _find_fault(
    root: Root, layout: Layout, manifest: Manifest, expected_largest: int
) -> tuple[str, str] | None:
    """Return what was expected of the first rows and what was found, or ``None``."""
    offset = layout.groups[0]
    member, size = offset.members[0], offset.chunk_rows
    last = np.empty(0, np.int64)
    largest = 0
    for start in range(0, offset.n_rows, size):
        stop = min(start + size, offset.n_rows)
        values = read_values(root, offset, member, manifest, start, stop)
        if start == 0 and values[0] != 0:
            return "0 first", f"{values[0]}"
        sizes = np.diff(values, prepend=last)
        if sizes.size and sizes.min() < 1:
            group = int(sizes.argmin()) + max(start - 1, 0)
            return "increasing numbers", f"no row in group {group}"
        largest = max(largest, int(sizes.max(initial=0)))
        last = values[-1:]
    if last[0] != layout.n_rows:
        return f"{layout.n_rows} rows", f"{last[0]}"
    if largest != expected_largest:
        return f"a largest group of {expected_largest} rows", f"{largest}"
    return None
