"""The kind of data at a path: a store, a run, control variates, predictions, or another.

Every function that opens a path calls :func:`refuse_other_kind` first, so that a user who
passed a folder of another kind reads its kind and what to pass instead. A folder that may be a
damaged one of the expected kind passes this check: the function that opens it reports the
damage.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Final, NamedTuple

from streammc.errors import StoreError, StreammcError
from streammc.trace.disk import read_file
from streammc.trace.zarr_files import DOCUMENT_LIMIT, is_sealed, unseal

STORE_MANIFEST: Final = "streammc-manifest.json"
STORE: Final = "store"
RUN: Final = "run"
CONTROL_VARIATES: Final = "control variates"
PREDICTIONS: Final = "predictions"
GROUP_EFFECTS: Final = "group effects"
OURS: Final = (STORE, RUN, CONTROL_VARIATES, PREDICTIONS, GROUP_EFFECTS)

FILE: Final = "file"
EMPTY: Final = "empty folder"
FOREIGN: Final = "zarr group of another program"
FOREIGN_V2: Final = "zarr group of version 2"
ZARR_GROUPS: Final = (FOREIGN, FOREIGN_V2)
FOREIGN_ARRAY: Final = "zarr array"
FOLDER: Final = "folder without zarr.json"

_SEALED: Final = {
    "run": RUN,
    "rows": PREDICTIONS,
    "groups": GROUP_EFFECTS,
    "arrays": CONTROL_VARIATES,
}
_REMEDIES: Final = {
    STORE: "make one with 'streammc ingest'",
    RUN: "give the output of 'streammc sample'",
    CONTROL_VARIATES: "make them with 'streammc summarize'",
    PREDICTIONS: "make them with 'streammc predict'",
    GROUP_EFFECTS: "make them with 'streammc effects'",
}


class Found(NamedTuple):
    """The kind of data at a path, and the store that they name."""

    kind: str
    store: str | None = None


def found_at(path: str | os.PathLike[str]) -> Found | None:
    """Return the kind of data at ``path``; ``None`` if absent, unreadable or in doubt.

    A folder is in doubt if it could be a damaged store, run or result.
    """
    root = Path(path)
    try:
        if root.is_file():
            return Found(FILE)
        if not root.is_dir():
            return None
        if os.path.lexists(root / STORE_MANIFEST):
            return Found(STORE)
        if os.path.lexists(root / ".zgroup") or os.path.lexists(root / ".zarray"):
            return Found(FOREIGN_V2)
        if not os.path.lexists(root / "zarr.json"):
            return Found(FOLDER if any(root.iterdir()) else EMPTY)
        return _of_document(root / "zarr.json")
    except (OSError, StreammcError):
        return None


def _of_document(path: Path) -> Found | None:
    data = read_file(path, limit=DOCUMENT_LIMIT)
    if is_sealed(data):
        attributes, own = unseal(data, path)
        kind = _SEALED.get(str(own.get("kind")))
        store = attributes.get("store")
        named = store if isinstance(store, str) else None
        return None if kind is None else Found(kind, named)
    try:
        document = json.loads(data)
        attributes = document.get("attributes") or {}
    except (ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(attributes, dict) or document.get("zarr_format") != 3:
        return None
    if "streammc" in attributes:
        own = attributes["streammc"]
        return Found(STORE) if isinstance(own, dict) and "n_rows" in own else None
    return Found(FOREIGN_ARRAY if document.get("node_type") == "array" else FOREIGN)


def refuse_other_kind(path: str | os.PathLike[str], *wanted: str) -> None:
    """Refuse a path whose data are of none of the kinds ``wanted``.

    Raises
    ------
    StoreError
        If the kind is another; the message names it and says what to give instead.
    """
    found = found_at(path)
    if found is None or found.kind in wanted:
        return
    place = str(path)
    raise StoreError(
        f"expected {listed(wanted)} at {place!r}, found {with_article(found.kind)}: "
        f"{_remedy(wanted, found, place)}"
    )


def _remedy(wanted: tuple[str, ...], found: Found, place: str) -> str:
    """Return the advice on what to give instead of ``found``."""
    quoted = shlex.quote(place)
    if len(wanted) > 1:
        return "check the path, or make a store with 'streammc ingest'"
    (kind,) = wanted
    if kind == STORE:
        if found.kind == FILE:
            return f"make a store of it with 'streammc ingest {quoted} NAME.zarr'"
        if found.kind == RUN and found.store not in (None, "memory"):
            return f"give the store that was sampled (it was {found.store!r})"
        if found.kind == PREDICTIONS and found.store not in (None, "memory"):
            return f"give the store of the rows that were predicted (it was {found.store!r})"
        if found.kind in OURS:
            return "give the store that was used"
        if found.kind in ZARR_GROUPS:
            ingest = f"not a streammc store; {_REMEDIES[STORE]}"
            return f"{ingest}, or name its arrays, as '{place}#X=NAME&y=NAME'"
    elif kind == RUN:
        if found.kind == STORE:
            return f"sample it first: streammc sample {quoted} -o RUN --model NAME"
        if found.kind in (PREDICTIONS, GROUP_EFFECTS):
            return "give the run that they were made from"
    elif kind == CONTROL_VARIATES and found.kind == RUN:
        return f"give those of the run, {os.path.join(place, 'control-variates.zarr')!r}"
    not_ours = "" if found.kind in OURS else f"not {with_article('streammc ' + kind)}; "
    return not_ours + _REMEDIES[kind]


def listed(kinds: tuple[str, ...]) -> str:
    """Return several kinds as text for a sentence: ``a store or a run``."""
    *first, last = (with_article(kind) for kind in kinds)
    return f"{', '.join(first)} or {last}" if first else last


def with_article(kind: str) -> str:
    """Return a kind with its article, if it has one: ``a store``, ``control variates``."""
    if kind.endswith((CONTROL_VARIATES, PREDICTIONS, GROUP_EFFECTS)):
        return kind
    return f"an {kind}" if kind[0] in "ae" else f"a {kind}"
