"""Files whose rows a store has, and files to append that are among them.

A file is known by its place, size and times, or by its contents: under another name, or at another
time, it has the same rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc.errors import IdentityError
from streammc.stores.format.generations import with_inputs
from streammc.stores.sources.input_record import equal_input, same_input
from streammc.trace.local_path import real_place

if TYPE_CHECKING:
    from streammc.stores.store import Store

Record = Mapping[str, Any]
AGAIN: Final = "leave it out, or append its rows once more with --again"
"""Advice about a file whose rows a store has."""


def recorded_generations(store: Store) -> list[dict[str, Any]]:
    """Return the generations of a store, each with ``inputs``: the records of its files, or null.

    An earlier version kept none of the first generation: they are those of the receipt beside the
    store, if it has one that names files alone.
    """
    kept = with_inputs(store.attributes, store.manifest.inputs)
    if kept[0]["inputs"] is None:
        kept[0]["inputs"] = _records_of_receipt(Path(store.address))
    return kept


def generation_of(kept: Sequence[Mapping[str, Any]], inputs: Sequence[Record]) -> int | None:
    """Return the number of the generation of exactly these files, unchanged; else ``None``."""
    given = {str(each["path"]) for each in inputs}
    for number, each in enumerate(kept, 1):
        files = {real_place(file["path"]): file for file in each["inputs"] or ()}
        if files.keys() == given and all(same_input(files[path], path) for path in given):
            return number
    return None


def refuse_known(
    kept: Sequence[Mapping[str, Any]], inputs: Sequence[Record], names: Sequence[str], store: str
) -> None:
    """Refuse files of which a store has the rows of some.

    Parameters
    ----------
    kept
        See :func:`recorded_generations`.
    inputs, names
        Records of the files to append, and their names for messages.
    store
        Path of the store.

    Raises
    ------
    IdentityError
        If a file is unchanged, or another one has its contents.
    """
    there = {
        real_place(file["path"]): (file, number)
        for number, each in enumerate(kept, 1)
        for file in each["inputs"] or ()
    }
    for name, record in zip(names, inputs, strict=True):
        before, number = there.get(record["path"], (None, 0))
        if before is not None and same_input(before, record["path"]):
            raise IdentityError(
                f"expected files that are not in {store!r} yet, found {name!r} among others, "
                f"which {_origin(number)}: name the new ones alone"
            )
    refuse_equal(kept, inputs, names, store)


def refuse_equal(
    kept: Sequence[Mapping[str, Any]],
    inputs: Sequence[Record],
    names: Sequence[str],
    store: str,
    *,
    advice: str = AGAIN,
) -> None:
    """Refuse a file with the contents of another one, whose rows a store has.

    Raises
    ------
    IdentityError
        If there is one; names both files. Otherwise see :func:`refuse_known`.
    """
    there: dict[int, list[tuple[Record, int]]] = {}
    for number, each in enumerate(kept, 1):
        for file in each["inputs"] or ():
            there.setdefault(file["bytes"], []).append((file, number))
    for name, record in zip(names, inputs, strict=True):
        alike = there.get(record["bytes"], [])
        equal = equal_input(record, [file for file, _ in alike])
        if equal is None:
            continue
        origin = next(_origin(number) for file, number in alike if file is equal)
        same = real_place(equal["path"]) == record["path"]
        found = "another time and the same contents" if same else f"those of {equal['path']!r}"
        raise IdentityError(
            f"expected files with other contents than those in {store!r}, found {name!r} with "
            f"{found}, which {origin}: {advice}"
        )


def refuse_twice(inputs: Sequence[Record], names: Sequence[str]) -> None:
    """Refuse two files to append with the same contents; files without rows may be equal.

    Raises
    ------
    IdentityError
        If there are two; names both.
    """
    there: dict[int, list[Record]] = {}
    for name, record in zip(names, inputs, strict=True):
        alike = there.setdefault(record["bytes"], [])
        equal = equal_input(record, alike)
        if equal is not None:
            other = next(name for name, each in zip(names, inputs, strict=True) if each is equal)
            raise IdentityError(
                f"expected files with rows of their own, found {name!r} with the contents of "
                f"{other!r}: {AGAIN}"
            )
        alike.append(record)


def _origin(number: int) -> str:
    """Return how the rows of a file came into a store, by the number of their generation."""
    return "it was made of" if number == 1 else "was appended before"


def _records_of_receipt(store: Path) -> list[dict[str, Any]] | None:
    """Return the records of the tables that a store was made of, from the receipt beside it."""
    try:
        text = store.with_name(f"{store.name}.config.json").read_text(encoding="utf-8")
        asked = json.loads(text)["asked"]["sources"]
        found: list[dict[str, Any]] = [
            {
                "path": real_place(str(each["path"])),
                "bytes": int(each["bytes"]),
                "modified_ns": int(each["modified_ns"]),
            }
            for each in asked
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A pattern or a folder does not say which files it found.
    return found if found and all(os.path.isfile(each["path"]) for each in found) else None
