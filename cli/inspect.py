"""``streammc info`` and ``streammc verify``: describe the data at a path, and check its bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streammc.cli.design_words import (
    codes_text,
    factors_text,
    generations_text,
    groups_text,
    references_text,
    rows_text,
)
from streammc.cli.options import command, store_argument
from streammc.cli.output import Output, fields, number, table
from streammc.cli.progress import Progress
from streammc.diagnostics.text import formula_text, missing_text
from streammc.errors import one_line
from streammc.models.mixed.effect_terms import formula_term

if TYPE_CHECKING:
    from streammc.trace.row_arrays import RowKind


def run_or_store(path: str) -> str:
    """Return ``path``, or the local folder of a run that is at an address."""
    from streammc.stores.cloud.address import CloudFolder, split_arrays, store_root
    from streammc.stores.cloud.requests import head
    from streammc.stores.cloud.staged_run import POINTER
    from streammc.trace.addresses import is_address
    from streammc.trace.places import run_folder

    if not is_address(path) or split_arrays(path)[1]:
        return path
    root = store_root(path)
    if isinstance(root, CloudFolder) and head(root, POINTER) is not None:
        return str(run_folder(path))
    return path


_SHOWN: Final = 20
"""Largest number of features in the table of ``info``."""


@command("info")
@store_argument("path")
@click.pass_obj
def info(output: Output, path: str) -> None:
    """Describe the store, run or control variates at PATH without reading the rows."""
    path = run_or_store(path)
    kind = kind_of(path)
    document = {"kind": kind, **_DESCRIBE[kind](path)}
    shown = {
        name: value
        for name, value in document.items()
        if not isinstance(value, dict) and value is not None
    }
    if kind == "store" and document["formula"] is not None:
        shown["formula"] = formula_text(document)
        shown.pop("designs", None)
        shown["missing values"] = missing_text(document["formula"])
    if kind == "run":
        from streammc.runs.record import versions_text

        shown["model"] = model_text(document["identity"].get("model", {}))
        shown["versions"] = versions_text(document) or "not recorded"
        shown["reference levels"] = references_text(document["references"])
    human = fields(shown)
    if kind == "store":
        shown["reference levels"] = references_text(document["references"])
        shown["groups"] = groups_text(document.get("groups"))
        shown["crossed"] = factors_text(document.get("crossed"))
        shown["factors"] = factors_text(document.get("factors"))
        shown["codes"] = codes_text(document.get("codes"))
        shown["n_rows"] = rows_text(document["n_rows"], document.get("cells"))
        shown["generations"] = generations_text(document.get("generations"))
        shown["standardized"] = document["standardization"] is not None
        human = fields(shown) + _scales(document["features"], document["standardization"])
    output.result(document, human)


@command("verify")
@store_argument("path")
@click.pass_obj
def verify(output: Output, path: str) -> int:
    """Compare every byte at PATH with its checksums; exit 65 if one differs."""
    path = run_or_store(path)
    kind = kind_of(path)
    with Progress(output) as progress:
        document = {"kind": kind, **_VERIFY[kind](path, progress)}
    if document["ok"]:
        human = f"{path}: {kind}, every byte as written"
    else:
        rows = [[fault["key"], fault["kind"], fault["detail"]] for fault in document["faults"]]
        human = table(["file", "fault", "detail"], rows, words=True)
    output.result(document, human)
    if document["ok"]:
        return 0
    output.log("error", f"{path}: {len(document['faults'])} faults; copy or make it again")
    return 65


def kind_of(path: str) -> str:
    """Return the kind of data at ``path``: ``store``, ``run``, ``predictions`` or such.

    It is ``store`` if the kind is in doubt, ``control-variates`` for control variates.

    Raises
    ------
    MissingError, StoreError
        If there is nothing at ``path``, or data of another kind.
    """
    from streammc.errors import MissingError
    from streammc.stores.cloud.address import split_arrays
    from streammc.stores.store import has_design
    from streammc.trace import kinds
    from streammc.trace.addresses import is_address

    if is_address(path) or split_arrays(path)[1]:
        return kinds.STORE
    if not os.path.lexists(path):
        wanted = kinds.listed(kinds.OURS)
        raise MissingError(f"expected {wanted} at {path!r}, found nothing: check the path")
    found = kinds.found_at(path)
    if found is not None and found.kind in kinds.ZARR_GROUPS and has_design(Path(path)):
        return kinds.STORE
    kinds.refuse_other_kind(path, *kinds.OURS)
    return (kinds.STORE if found is None else found.kind).replace(" ", "-")


def model_text(described: Mapping[str, Any]) -> str | None:
    """Return the model of a run in words, as ``logistic, effects of g (1 | g)``."""
    if described.get("name") == "crossed":
        names = described["crossed"]
        effects = described.get("terms") or [["1"]] * len(names)
        correlated = described.get("correlated") or [False] * len(names)
        terms = map(formula_term, names, effects, correlated)
        return f"{described['inner']['name']}, effects of {' + '.join(terms)}"
    if described.get("name") != "mixed":
        return described.get("name")
    term = formula_term(described["group"], described["effects"], described["correlated"])
    return f"{described['inner']['name']}, effects of {described['group']} {term}"


def _scales(features: Sequence[str], standardization: Mapping[str, Any] | None) -> str:
    """Return means and scales of the first features as a table; "" without standardisation."""
    if standardization is None:
        return ""
    columns = features, standardization["mean"], standardization["scale"]
    rows = [
        [one_line(name), number(mean), number(scale)]
        for name, mean, scale in zip(*columns, strict=True)
    ]
    more = f"\n... {len(rows)} in all" if len(rows) > _SHOWN else ""
    return f"\n\n{table(['feature', 'mean', 'scale'], rows[:_SHOWN])}{more}"


def describe_store(path: str) -> dict[str, Any]:
    """Return the description of a store, without reading its rows."""
    from streammc.stores.store import info as describe

    return describe(path)


def describe_run(path: str) -> dict[str, Any]:
    """Return the description of a run, from its root document only."""
    from streammc.runs.record import REFERENCES, recorded_versions
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    attributes = run.attributes
    return {
        "path": os.path.abspath(path),
        "finished": run.finished() and "summary" in attributes,
        "store": attributes.get("store"),
        "model": run.identity.get("model", {}).get("name"),
        "sampler": attributes.get("sampler", {}).get("name"),
        "chains": run.chains,
        "draws": run.committed_draws,
        "draws_planned": run.draws,
        "warmup": run.committed_warmup,
        "warmup_planned": run.warmup,
        "seed": run.identity.get("seed"),
        "temperature": run.identity.get("temperature", 1.0),
        "parameters": list(run.labels),
        "references": attributes.get(REFERENCES, {}),
        "identity": run.identity,
        "plan": attributes.get("plan"),
        "versions": recorded_versions(attributes),
    }


def describe_control_variates(path: str) -> dict[str, Any]:
    """Return the description of the control variates at a path."""
    from streammc.control_variates.expansion import ControlVariates

    cv = ControlVariates.open(path)
    return {"path": os.path.abspath(path), **control_variates_document(cv)}


def describe_predictions(path: str) -> dict[str, Any]:
    """Return the attributes of predictions and the names of their arrays."""
    from streammc.trace.row_arrays import ROWS

    return _describe_rows(path, ROWS)


def describe_effects(path: str) -> dict[str, Any]:
    """Return the attributes of group effects and the names of their arrays."""
    from streammc.trace.row_arrays import GROUPS

    return _describe_rows(path, GROUPS)


def _describe_rows(path: str, of: RowKind) -> dict[str, Any]:
    from streammc.trace.row_arrays import read_meta

    meta, names = read_meta(path, of)
    return {"path": os.path.abspath(path), **meta, "arrays": names}


def control_variates_document(cv: Any) -> dict[str, Any]:
    """Return the description of control variates: centre, Laplace sd, certificate."""
    logarithms = cv.certificate.logarithms
    names = [f"log {label}" if label in logarithms else label for label in cv.labels]
    return {
        "order": cv.order,
        "n_rows": cv.n_rows,
        "log_lik": cv.log_lik,
        "theta_star": dict(zip(names, cv.theta_star.tolist(), strict=True)),
        "laplace_sd": dict(zip(names, cv.posterior_sd().tolist(), strict=True)),
        "certificate": cv.certificate.to_json(),
        "candidates": len(cv.candidates),
        "row_order": cv.row_order,
        "store_fingerprint": cv.fingerprint,
        "temperature": cv.temperature,
        "fingerprint": fingerprint_of(cv),
    }


def fingerprint_of(cv: Any) -> str:
    """Return a digest of control variates."""
    return str(cv.digest())


def _verify_store(path: str, progress: Progress) -> dict[str, Any]:
    from streammc.stores.store import verify as check

    return check(path, progress.of("verify"))


def _verify_run(path: str, progress: Progress) -> dict[str, Any]:
    from streammc.errors import StoreError
    from streammc.trace.run_directory import RunDirectory

    report: dict[str, Any] = {"path": os.path.abspath(path), "ok": True, "faults": []}
    try:
        run = RunDirectory.open(path)
        run.checkpoint()
    except StoreError as error:
        report["ok"] = False
        report["faults"].append({"key": "", "kind": "changed", "detail": str(error)})
    else:
        report["digest"] = run.digest()
    return report


def _verify_control_variates(path: str, progress: Progress) -> dict[str, Any]:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.errors import StoreError

    report: dict[str, Any] = {"path": os.path.abspath(path), "ok": True, "faults": []}
    try:
        ControlVariates.open(path)
    except StoreError as error:
        report["ok"] = False
        report["faults"].append({"key": "", "kind": "changed", "detail": str(error)})
    return report


def _verify_predictions(path: str, progress: Progress) -> dict[str, Any]:
    from streammc.trace.row_arrays import ROWS

    return _verify_rows(path, ROWS)


def _verify_effects(path: str, progress: Progress) -> dict[str, Any]:
    from streammc.trace.row_arrays import GROUPS

    return _verify_rows(path, GROUPS)


def _verify_rows(path: str, of: RowKind) -> dict[str, Any]:
    from streammc.errors import StoreError
    from streammc.trace.row_arrays import check_chunks

    report: dict[str, Any] = {"path": os.path.abspath(path), "ok": True, "faults": []}
    try:
        report["objects"] = sum(1 for _ in check_chunks(path, of))
    except StoreError as error:
        report["ok"] = False
        report["faults"].append({"key": "", "kind": "changed", "detail": str(error)})
    return report


_DESCRIBE = {
    "store": describe_store,
    "run": describe_run,
    "control-variates": describe_control_variates,
    "predictions": describe_predictions,
    "group-effects": describe_effects,
}
_VERIFY = {
    "store": _verify_store,
    "run": _verify_run,
    "control-variates": _verify_control_variates,
    "predictions": _verify_predictions,
    "group-effects": _verify_effects,
}
