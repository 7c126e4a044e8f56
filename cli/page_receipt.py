"""The receipt of a page about a run: whether the page is up to date, and may be renewed.

A page follows from its run, so that one of the same run is renewed where the run has changed since:
more draws, an audit. A page that was edited, or is of another run, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streammc
from streammc.cli.input_description import describe_inputs
from streammc.cli.receipt import Receipt


def page_receipt(output: str, run: str, predictions: Sequence[str]) -> Receipt:
    """Return the receipt of the page of a run with some predictions."""
    shown = [os.path.abspath(path) for path in predictions]
    asked = {"command": "report", "run": os.path.abspath(run), "predictions": shown}
    return Receipt(output, asked)


def renewable(receipt: Receipt) -> dict[str, Any] | None:
    """Return the result of the page that is there; ``None`` if none is, or none with a receipt.

    Raises
    ------
    IdentityError
        If it is of another run, or was changed since it was made.
    """
    if not receipt.path.exists():
        return None
    return receipt.kept(lambda: {"fingerprint": page_fingerprint(receipt.output)})


def page_fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a page."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _fingerprint(store: str) -> str | None:
    """Return the fingerprint of the store at a place; ``None`` if there is none."""
    from streammc.errors import StreammcError
    from streammc.stores.cloud.address import store_root
    from streammc.stores.format.manifest import read_manifest

    try:
        return read_manifest(store_root(store)).fingerprint
    except StreammcError:
        return None


def made_from(run: str, store: str | None, predictions: Sequence[str]) -> dict[str, Any]:
    """Return what a page shows: draws, summary, place of the store, predictions, version.

    Raises
    ------
    MissingError, StoreError
        If there is no run, or it is damaged.
    """
    from streammc.trace.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    attributes = json.dumps(dict(opened.attributes), sort_keys=True, default=str)
    place = store or opened.attributes.get("store")
    return {
        "draws": opened.digest(),
        "attributes": hashlib.sha256(attributes.encode()).hexdigest(),
        "store": os.path.abspath(str(place)) if place else None,
        "found": _fingerprint(str(place)) if place else None,
        "predictions": describe_inputs([os.path.join(path, "zarr.json") for path in predictions]),
        "version": streammc.__version__,
    }
