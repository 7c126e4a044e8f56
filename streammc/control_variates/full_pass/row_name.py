"""Name of a row in a message: its id, by which it is found in the user's table."""

from __future__ import annotations

from streammc.protocols import Dataset


def row_name(dataset: Dataset, row: int) -> str:
    """Return words for row number ``row`` of a store, such as ``the row with row_id 17231``.

    A store is shuffled, so that the number itself says nothing about the table. Without ids
    it is named as a row of the store.
    """
    ids = dataset.row_ids(row, row + 1)
    if ids is None:
        return f"row {row} of the store, counted from 0"
    found = ids[0]
    shown = repr(found.decode("utf-8", "replace")) if isinstance(found, bytes) else str(found)
    column = dataset.attributes.get("row_id")
    source = "its place in the table, from 0" if column is None else f"column {column!r}"
    return f"the row with row_id {shown} ({source})"
