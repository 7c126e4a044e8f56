"""Generations of a store: the rows of its ingestion, then those that were appended, each time.

Appended rows follow the earlier ones, which keep their numbers. The store as it was is therefore a
first part of the store as it is, and can still be read: a run that was sampled from it can be
audited, resumed and used for predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streammc.stores.format.layout import CROSSED
from streammc.stores.format.manifest import Inputs, are_records

GENERATIONS: Final = "generations"
"""Attribute of a store: a mapping for each generation, if rows were appended."""
LEVELS: Final = "levels"


def generations(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the generations of a store, at least one.

    Each has ``n_rows``, the number of its own rows, ``n_dropped``, ``shuffle_seed``, ``sources``,
    and ``fingerprint``, that of the store when it was the last generation; null in the last. Where
    factors cross ``levels`` has the number of labels of each that came with the generation. In
    stores of an earlier version also ``inputs``, see :func:`with_inputs`.
    """
    kept = attributes.get(GENERATIONS)
    if kept is not None:
        return list(kept)
    crossed = attributes.get(CROSSED)
    return [
        {
            "n_rows": attributes["n_rows"],
            "n_dropped": attributes.get("n_dropped", 0),
            "shuffle_seed": attributes["shuffle_seed"],
            "sources": list(attributes["sources"]),
            "fingerprint": None,
            **({LEVELS: [each[LEVELS] for each in crossed]} if crossed else {}),
        }
    ]


def with_inputs(attributes: Mapping[str, Any], inputs: Inputs) -> list[dict[str, Any]]:
    """Return the generations of a store, each with ``inputs``: the records of its files, or null.

    ``sources`` of an appended one are the paths of these files.

    Parameters
    ----------
    attributes
        Those of the store.
    inputs
        Those of its manifest; an earlier version kept them in the attributes.
    """
    kept = generations(attributes)
    given = [*inputs, *[None] * len(kept)]
    found = []
    for each, files in zip(kept, given, strict=False):
        files = each.get("inputs") if files is None else files
        files = files if are_records(files) else None
        names = each.get("sources") or [file["path"] for file in files or ()]
        found.append({**each, "sources": names, "inputs": files})
    return found


def without_places(kept: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return generations as in the attributes of a store, of which the fingerprint is.

    Which files were appended, where and when, is no part of the rows: manifests have it.
    """
    first, *later = [{**each} for each in kept]
    for each in (first, *later):
        each.pop("inputs", None)
    return [first, *({**each, "sources": []} for each in later)]


def good_generations(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``generations`` fits the rows and the levels of the store."""
    kept = attributes[GENERATIONS]
    if not isinstance(kept, list) or not kept or not all(isinstance(each, dict) for each in kept):
        return False
    rows = [each.get("n_rows") for each in kept]
    texts = [each.get("fingerprint") for each in kept]
    stated = attributes.get(CROSSED, [])
    levels = [each.get(LEVELS, []) for each in kept]
    if not all(isinstance(own, list) and len(own) == len(stated) for own in levels):
        return False
    counts = [count for own in levels for count in own]
    if not all(type(count) is int and count >= 0 for count in counts) or 0 in levels[0]:
        return False
    return (
        all(type(count) is int and count > 0 for count in rows)
        and sum(rows) == attributes["n_rows"]
        and all(isinstance(text, str) for text in texts[:-1])
        and texts[-1] is None
        and _levels(kept) == [each[LEVELS] for each in stated]
    )


def earlier_attributes(attributes: Mapping[str, Any], fingerprint: str) -> dict[str, Any] | None:
    """Return the attributes of a store as they were when it had this fingerprint, or ``None``."""
    every = generations(attributes)
    for number, each in enumerate(every[:-1], 1):
        if each["fingerprint"] == fingerprint:
            kept = [*every[: number - 1], {**each, "fingerprint": None}]
            before = dict(attributes) | described(kept)
            if number == 1:
                del before[GENERATIONS]
            if CROSSED in before:
                counts = zip(before[CROSSED], _levels(kept), strict=True)
                before[CROSSED] = [{**stated, LEVELS: count} for stated, count in counts]
            return before
    return None


def _levels(kept: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the number of levels of each factor that crosses others, after some generations."""
    return [sum(counts) for counts in zip(*(each.get(LEVELS, []) for each in kept), strict=True)]


def described(kept: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the attributes of a store that follow from its generations."""
    return {
        "n_rows": sum(int(each["n_rows"]) for each in kept),
        "n_dropped": sum(int(each["n_dropped"] or 0) for each in kept),
        "sources": [name for each in kept for name in each["sources"]],
        GENERATIONS: kept,
    }
