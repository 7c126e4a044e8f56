"""Name of a row in messages: its id in the user's table."""

from __future__ import annotations

from streammc.protocols import Dataset


def row_name(dataset: Dataset, row: int) -> str:
    """Return the name of row ``row`` of a store, such as ``the row with row_id 17231``.

    The index in a shuffled store does not identify a row of the table. It is used only where
    the store has no ids.
    """
    ids = dataset.row_ids(row, row + 1)
    if ids is None:
        return f"row {row} of the store, counted from 0"
    found = ids[0]
    shown = repr(found.decode("utf-8", "replace")) if isinstance(found, bytes) else str(found)
    column = dataset.attributes.get("row_id")
    source = "its place in the table, from 0" if column is None else f"column {column!r}"
    return f"the row with row_id {shown} ({source})"
