"""What data sets show of themselves: a line of text, and a table in a notebook."""

from __future__ import annotations

from typing import Any

from streammc.html_repr import Shown
from streammc.protocols import Dataset

_MEGABYTE = 1e6


def dataset_facts(dataset: Dataset, **layout: Any) -> dict[str, Any]:
    """Return the facts of a data set to show: name -> value.

    Parameters
    ----------
    dataset
        A store on disk or in memory.
    layout
        Facts about its arrays, by name.
    """
    attributes = dataset.attributes
    groups, formula = attributes.get("groups"), attributes.get("formula")
    references: dict[str, list[str]] = getattr(dataset, "references", dict)()
    levels = dict.fromkeys(each for several in references.values() for each in several)
    return {
        "place": dataset.address,
        "rows": dataset.n_rows,
        "response": dataset.response or "none",
        "features": list(dataset.feature_names),
        "formula": formula and formula.get("text"),
        "reference levels": list(levels) or None,
        "groups": groups and f"{groups['n_groups']:,} of {groups['column']}",
        "standardised": attributes.get("standardization") is not None,
        **layout,
        "fingerprint": dataset.fingerprint[:12],
    }


class ShownStore(Shown):
    """What a store on disk shows; nothing of it is read."""

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        store: Any = self
        return f"<Store {store.address!r}: {store.n_rows} rows, {store.n_features} features>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        store: Any = self
        chunks = store.layout.chunk_rows
        size = sum(entry.size for entry in store.manifest.entries.values())
        layout = {
            "layout": f"{store.layout.member('X').dtype} columns, chunks of {chunks:,} rows",
            "megabytes": size / _MEGABYTE,
        }
        return "Store", dataset_facts(store, **layout)


class ShownArrays(Shown):
    """What a data set in memory shows."""

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        store: Any = self
        return f"<MemoryStore: {store.n_rows} rows, {store.n_features} features>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        store: Any = self
        arrays = store._plain_arrays()
        layout = {
            "layout": f"{arrays[0].dtype} columns in memory",
            "megabytes": sum(array.nbytes for array in arrays) / _MEGABYTE,
        }
        return "MemoryStore", dataset_facts(store, **layout)
