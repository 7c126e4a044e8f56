"""Reads of the arrays by row that :mod:`streammc.trace.row_arrays` writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from streammc.errors import MissingError, StoreError
from streammc.trace.codec import check_name, checked_body, chunk_key
from streammc.trace.durable import read_file
from streammc.trace.kinds import PREDICTIONS, refuse_other_kind
from streammc.trace.local_path import given_path
from streammc.trace.sealed import DOCUMENT_LIMIT, unseal

KIND: Final = "rows"
FORMAT: Final = 1
COORDINATES: Final = "coordinates"


def read_meta(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[str]]:
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
    refuse_other_kind(source, PREDICTIONS)
    where = source / "zarr.json"
    try:
        meta, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a zarr group at {source}, found no zarr.json: choose another path"
        ) from None
    if own.get("kind") != KIND or own.get("format") != FORMAT:
        raise StoreError(
            f"expected values by row in {where}, found kind {own.get('kind')!r}"
            ": choose another path"
        )
    meta.pop(COORDINATES, None)
    return meta, list(own["arrays"])


def check_chunks(path: str | os.PathLike[str]) -> Iterator[str]:
    """Verify the checksum of every chunk of a group; yield the path of each verified file.

    Raises
    ------
    StoreError
        If a file is missing or damaged; the message names it.
    """
    import json

    source = given_path(path)
    _, names = read_meta(source)
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
