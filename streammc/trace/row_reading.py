"""Reads of the arrays by row or group that :mod:`streammc.trace.row_arrays` writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.errors import MissingError, StoreError
from streammc.trace.codec import check_name, checked_body, chunk_key
from streammc.trace.durable import read_file
from streammc.trace.kinds import GROUP_EFFECTS, PREDICTIONS, refuse_other_kind
from streammc.trace.local_path import given_path
from streammc.trace.sealed import DOCUMENT_LIMIT, unseal

FORMAT: Final = 1
COORDINATES: Final = "coordinates"


class RowKind(NamedTuple):
    """What the rows of a group of arrays are."""

    kind: str
    """The kind of its data, one of ``trace.kinds``."""
    sealed: str
    """The kind in its document."""
    dim: str
    """Dimension of the rows."""
    label: str
    """Coordinate that identifies a row."""


ROWS: Final = RowKind(PREDICTIONS, "rows", "row", "row_id")
GROUPS: Final = RowKind(GROUP_EFFECTS, "groups", "group", "group")


def read_meta(path: str | os.PathLike[str], of: RowKind = ROWS) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes of a committed group and the names of its arrays.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If it is not such a group, or damaged.
    """
    source = given_path(path)
    if not source.exists():
        raise MissingError(
            f"expected a result of streammc at {source}, found nothing: check the path"
        )
    refuse_other_kind(source, of.kind)
    where = source / "zarr.json"
    try:
        meta, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a zarr group at {source}, found no zarr.json: choose another path"
        ) from None
    if own.get("kind") != of.sealed or own.get("format") != FORMAT:
        raise StoreError(
            f"expected values by {of.dim} of format {FORMAT} in {where}, found kind "
            f"{own.get('kind')!r}, format {own.get('format')!r}: choose another path, or update "
            "streammc"
        )
    meta.pop(COORDINATES, None)
    return meta, list(own["arrays"])


def check_chunks(path: str | os.PathLike[str], of: RowKind = ROWS) -> Iterator[str]:
    """Verify the checksum of every chunk of a group; yield the path of each verified file.

    Raises
    ------
    StoreError
        If a file is missing or damaged; the message names it.
    """
    import json

    source = given_path(path)
    _, names = read_meta(source, of)
    for name in names:
        check_name(name, StoreError)
        where = source / name / "zarr.json"
        try:
            found = json.loads(read_file(where, limit=2**20))
            counts = [
                -(-length // chunk) if length else 1
                for length, chunk in zip(
                    found["shape"], found["chunk_grid"]["configuration"]["chunk_shape"], strict=True
                )
            ]
            for index in np.ndindex(*counts):
                key = source / name / chunk_key(index)
                checked_body(read_file(key, limit=2**31), key)
                yield str(key)
        except (MissingError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"expected {where} and its chunks, found {error}"
                ": delete the result and compute it again"
            ) from error
