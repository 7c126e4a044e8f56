"""First part of a report: what was asked, of which data, by which sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streammc.diagnostics.text import number
from streammc.runs.record import recorded_versions
from streammc.samplers.common.sampler import TARGETS
from streammc.shown import value_text

if TYPE_CHECKING:
    import xarray as xr

    from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """Run, documents and predictions of a report."""

    run: RunDirectory
    """The opened run."""
    document: Mapping[str, Any]
    """As ``diagnose --json`` prints it."""
    store: Mapping[str, Any] | None
    """As ``info STORE --json`` prints it; ``None`` if the store is not there."""
    model: str
    """Model in words, as ``info RUN`` prints it."""
    commands: Sequence[str]
    """Command lines that make the run and its outputs again."""
    versions: Mapping[str, str]
    """Package -> version of those that wrote the page."""
    predictions: Mapping[str, xr.Dataset]
    """Path -> opened predictions of the run."""


_MEGABYTE: Final = 1e6


def data_facts(request: ReportRequest) -> dict[str, str]:
    """Return the facts about the data of a run: name -> text."""
    address, store = request.document.get("store"), request.store
    if store is None:
        return {
            "store": str(address),
            "note": "the store is not at its place any more, or has grown since: this page cannot "
            "describe it",
        }
    groups = store.get("groups")
    response = store.get("response")
    compared = request.document.get("references") or {}
    levels = dict.fromkeys(each for several in compared.values() for each in several)
    facts: dict[str, Any] = {
        "store": store["path"],
        "rows": store["n_rows"],
        "response": response or "none",
        "columns of the design": list(store["features"]),
        "formula": (store.get("formula") or {}).get("text"),
        "reference levels": ", ".join(levels) or None,
        "groups": groups and f"{groups['n_groups']:,} of {groups['column']}",
        "made from": _sources(store),
        "size": f"{store['bytes'] / _MEGABYTE:,.4g} MB, {store['row_bytes']} bytes a row",
        "columns are standardised": store.get("standardization") is not None,
    }
    return {name: value_text(value) for name, value in facts.items() if value is not None}


def _sources(store: Mapping[str, Any]) -> str | None:
    """Return the files or the simulation that a store was made from."""
    if store.get("simulation"):
        return f"a simulation: {store['simulation']['kind']}, seed {store['simulation']['seed']}"
    found = [str(source) for source in store.get("sources") or ()]
    return value_text(found) if found else None


def run_facts(request: ReportRequest) -> dict[str, str]:
    """Return the facts about model and sampler of a run: name -> text."""
    document = request.document
    sampling = document["sampling"]
    target = sampling.get("target")
    facts: dict[str, Any] = {
        "model": request.model,
        "sampler": document["sampler"],
        "it targets": target and f"{target}: {TARGETS.get(target, '')}",
        "chosen because": sampling.get("reason"),
        "draws": f"{document['draws']:,} of each of {document['chains']} chains, "
        f"after {document['warmup']:,} of warm-up",
        "temperature": None if document["temperature"] == 1.0 else document["temperature"],
        "rows of a subsample": sampling.get("subsample_size"),
        "rows always evaluated": sampling.get("certainty_rows"),
        "seed": str(document["seed"]),
    }
    return {name: value_text(value) for name, value in facts.items() if value not in (None, "")}


def draw_versions(request: ReportRequest) -> dict[str, str]:
    """Return versions and processor that made the draws: name -> text."""
    kept = recorded_versions(request.run.attributes)
    if not kept:
        return {"unknown": "the run is of a version of streammc that did not record them"}
    found: dict[str, str] = {}
    for each in kept:
        first = each["iteration"]
        since = f", from iteration {first:,} on" if first else ""
        found |= {f"{name}{since}": str(x) for name, x in each.items() if name != "iteration"}
    return found


def prior_rows(request: ReportRequest) -> list[list[str]]:
    """Return the prior of every parameter as text, and whether it was scaled with the data."""
    priors = request.document.get("priors") or {"parameters": {}, "scaled_with_data": []}
    scaled = set(priors["scaled_with_data"])
    return [
        [label, text, "default, scaled with the data" if label in scaled else "asked for, or fixed"]
        for label, text in priors["parameters"].items()
    ]


def cost_rows(request: ReportRequest) -> list[list[str]]:
    """Return the stages of a run: name, seconds, share of the time, evaluations of rows."""
    sampling = request.document["sampling"]
    counted = (request.document.get("cost") or {}).get("evaluations", {})
    stages = (
        ("passes over all rows", "pass_seconds", "passes"),
        ("warm-up", "warmup_seconds", "warmup"),
        ("draws", "seconds", "draws"),
    )
    seconds = [sampling.get(name) for _, name, _ in stages]
    total = sum(value or 0.0 for value in seconds)
    return [
        [
            words,
            number(value, 3),
            "-" if value is None or not total else f"{value / total:.0%}",
            f"{counted[name]:,}" if name in counted else "-",
        ]
        for (words, _, name), value in zip(stages, seconds, strict=True)
    ]


def cost_facts(request: ReportRequest) -> dict[str, str]:
    """Return rows and bytes read, and what an independent draw costs: name -> text."""
    sampling, cost = request.document["sampling"], request.document.get("cost") or {}
    facts: dict[str, Any] = {
        "rows read": sampling.get("rows_read"),
        "megabytes read": sampling.get("bytes_read") and sampling["bytes_read"] / _MEGABYTE,
        "rows of an iteration": sampling.get("rows_per_iteration"),
    }
    if cost:
        facts["draws worth one independent draw"] = _spread(cost["if"])
        facts["row evaluations for one independent draw"] = _spread(cost["ct"])
    return {name: value_text(value) for name, value in facts.items() if value is not None}


def _spread(found: Mapping[str, float | None]) -> str:
    low, median, high = (number(found[end], 3) for end in ("min", "median", "max"))
    return f"{median} in the median over parameters ({low} to {high})"
