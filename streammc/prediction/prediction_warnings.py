"""Warnings of predictions."""

from __future__ import annotations


def without_ids(address: str) -> str:
    """Return the warning of a store whose rows were moved without row ids."""
    return (
        f"the rows of {address} were moved when it was made, and no row ids kept: predictions "
        "cannot be joined with its table; ingest it again"
    )
