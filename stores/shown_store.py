"""What a data set shows of itself in a notebook."""

from __future__ import annotations

from typing import Any

from streammc.protocols import Dataset


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
    return {
        "place": dataset.address,
        "rows": dataset.n_rows,
        "response": dataset.response or "none",
        "features": list(dataset.feature_names),
        "formula": formula and formula.get("text"),
        "groups": groups and f"{groups['n_groups']:,} of {groups['column']}",
        "standardised": attributes.get("standardization") is not None,
        **layout,
        "fingerprint": dataset.fingerprint[:12],
    }
