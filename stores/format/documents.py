"""The ``zarr.json`` documents of a store, made from its layout."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from streammc.errors import StoreError
from streammc.stores.format.layout import (
    CODES,
    DENSE_FEATURE,
    FORMAT,
    GROUP,
    GROUP_OFFSET,
    METADATA,
    Layout,
    Member,
)

ATTRIBUTE: Final = "streammc"
_DIMENSIONS: Final = {GROUP: "group", GROUP_OFFSET: "group_bound"}
"""Dimension of an array; all others have the dimension ``row``."""


def store_attributes(given: dict[str, Any], features: list[str], layout: Layout) -> dict[str, Any]:
    """Return the group attribute ``streammc`` of a new store: ``given``, sizes and defaults."""
    return {
        "format": FORMAT,
        "n_rows": layout.n_rows,
        "response": None,
        "features": features,
        "intercept": False,
        "standardization": None,
        "formula": None,
        "shuffle_seed": False,
        "sources": [],
        **given,
        "dtype": layout.members[0].dtype,
    }


def store_documents(attributes: dict[str, Any], layout: Layout) -> dict[str, dict[str, Any]]:
    """Return every ``zarr.json`` of a store by key, the root last."""
    arrays = {
        f"{member.name}/{METADATA}": array_document(member, own)
        for member, own in layout.all_members
    }
    feature = feature_document(len(attributes["features"]))
    return {**arrays, f"feature/{METADATA}": feature, METADATA: group_document(attributes, layout)}


def array_document(member: Member, layout: Layout) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array of rows or of groups."""
    dtype = np.dtype(member.dtype)
    codec: dict[str, Any] = {"name": "bytes"}
    if dtype.itemsize > 1:
        codec["configuration"] = {"endian": "little"}
    codecs = [codec]
    if layout.shards is not None:
        codecs = layout.shards.codecs(codecs, member.columns)
    names = [_DIMENSIONS.get(member.name, "row")]
    if member.name == "X":
        names.append("feature" if layout.member(CODES) is None else DENSE_FEATURE)
    elif member.columns is not None:
        names.append("coded_factor" if member.name == CODES else f"{member.name}_byte")
    return _document(
        shape=list(member.shape(layout.n_rows)),
        chunk=list(member.shape(layout.chunk_rows)),
        data_type=member.dtype,
        fill=0.0 if dtype.kind == "f" else 0,
        codecs=codecs,
        names=names,
    )


def feature_document(n_features: int) -> dict[str, Any]:
    """Return the ``zarr.json`` of the coordinate ``feature``."""
    return _document(
        shape=[n_features],
        chunk=[n_features],
        data_type="string",
        fill="",
        codecs=[{"name": "vlen-utf8", "configuration": {}}, {"name": "crc32c"}],
        names=["feature"],
    )


def group_document(attributes: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the root ``zarr.json`` with the other documents consolidated into it."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {ATTRIBUTE: attributes},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {
                **{member.name: array_document(member, own) for member, own in layout.all_members},
                "feature": feature_document(len(attributes["features"])),
            },
        },
    }


def encode_document(document: dict[str, Any]) -> bytes:
    """Return a ``zarr.json`` as text.

    Raises
    ------
    StoreError
        If an attribute is no JSON.
    """
    try:
        text = json.dumps(document, allow_nan=False, indent=1, ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"expected JSON as attributes of a store: {error}"
            "; pass numbers, text, lists and mappings"
        ) from error
    return text.encode() + b"\n"


def _document(
    shape: list[int],
    chunk: list[int],
    data_type: str,
    fill: Any,
    codecs: list[dict[str, Any]],
    names: list[str],
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        # One folder per array: a folder per chunk would double the directory entries.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": names,
        "storage_transformers": [],
    }
