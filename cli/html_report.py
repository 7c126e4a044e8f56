"""``streammc report``: one HTML page about a run, for a reader who was not there."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from streammc.cli.command_settings import ReportSettings
from streammc.cli.options import command
from streammc.cli.output import Output, fields

if TYPE_CHECKING:
    import xarray as xr

    from streammc.trace.run_directory import RunDirectory

_PACKAGES: Final = ("streammc", "numpy", "scipy", "numba", "zarr", "xarray", "matplotlib")


@command("report", ReportSettings, configurable=True)
def report(ctx: click.Context, settings: ReportSettings) -> None:
    """Write one self-contained HTML page about RUN: answer, data, model, trust, cost.

    The same command again leaves a page that is up to date, and renews one that is not.

    STORE is the store of the run, if it has moved. Numbers are those of diagnose, comparisons
    and info; a page without the store lacks the description of the data, and comparisons.
    """
    from streammc.cli.diagnose import diagnosis, with_interval
    from streammc.cli.inspect import model_text
    from streammc.cli.receipt import made_from, page_fingerprint, page_receipt, renewable, with_mark
    from streammc.cli.report import run_document
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    run, store, output = settings.run, settings.store, settings.output
    predictions, overwrite = settings.predictions, settings.overwrite
    receipt = page_receipt(output, run, predictions)
    kept = None if overwrite else renewable(receipt)
    shows = made_from(run, store, predictions, settings.interval)
    if kept is not None and kept.get("made_from") == shows:
        printer.note(f"{output} is already there, and up to date: nothing to do")
        _show(printer, output, kept)
        return
    from streammc.report.html_page import ReportRequest, check_place, page, write_page
    from streammc.stores.store import open_store
    from streammc.trace.addresses import named
    from streammc.verdict import verdict

    check_place(output, overwrite=overwrite or kept is not None)
    opened = RunDirectory.open(run, verify=False)  # the diagnosis checks every byte
    described = store_document(opened, store)
    shown = {path: _predictions(opened, path) for path in predictions}
    document = with_interval(run_document(run, diagnosis(run)), run, settings.interval)
    compared, why = average_comparisons(opened, described, settings.interval)
    together = frozenset[str]()
    if described is not None:
        together = frozenset(open_store(described["path"]).only_together())
    request = ReportRequest(
        run=opened,
        document=document,
        store=described,
        model=model_text(opened.identity.get("model", {})) or "unknown",
        commands=commands(opened, described),
        versions=_versions(),
        predictions=shown,
        interval=settings.interval,
        comparisons=compared,
        only_together=together,
        not_compared=why,
    )
    trust, text = verdict(document), named(page(request))

    def make() -> dict[str, Any]:
        return {
            "report": os.path.abspath(output),
            "run": document["run"],
            "verdict": trust.level,
            "sentence": trust.sentence,
            "reasons": list(trust.reasons),
            "bytes": write_page(with_mark(text, receipt.mark), output),
            "fingerprint": page_fingerprint(output),
            "made_from": shows,
        }

    _show(printer, output, receipt.renew(make))


def _show(printer: Output, output: str, result: Mapping[str, Any]) -> None:
    """Print what there is of a page."""
    facts = {"report": output, "kilobytes": result["bytes"] / 1e3, "verdict": result["sentence"]}
    printer.result({name: result[name] for name in result if name != "made_from"}, fields(facts))


_MOST_ROWS: Final = 10**7
_MOST_COLUMNS: Final = 50
"""Largest sizes whose average comparisons are made for a page, in some seconds."""


def average_comparisons(
    run: RunDirectory, store: dict[str, Any] | None, interval: float
) -> tuple[list[dict[str, Any]], str]:
    """Return the average comparison of every variable of a run, from the rows of its store.

    Numbers move by about one standard deviation, to two digits. The second value says which are
    left out, and why.
    """
    from streammc.averages import Columns, comparisons
    from streammc.cli.build import model_of_run
    from streammc.errors import StreammcError
    from streammc.stores.store import open_store

    table = "TABLE" if store is None else store["path"]
    command = shlex.join(["streammc", "comparisons", str(run.path), table])
    advice, refused = f"{command} makes them", list[str]()
    if store is None:
        return [], f"No average comparisons: the rows of the run are not there. {advice}."
    try:
        model = model_of_run(run.identity, run.attributes.get("settings"))
        of_row = (1 + model.n_covariance) ** 2  # pairs of what a row is expanded in
        if store["n_rows"] * of_row > _MOST_ROWS or len(store["features"]) > _MOST_COLUMNS:
            return [], f"Average comparisons of so large a table take a while: {advice}."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            rows = open_store(store["path"])
            columns, scaled = Columns(rows.attributes), rows.attributes.get("standardization")
            steps: dict[str, float | None] = {}
            for name in columns.names:
                try:
                    columns.require([name], changed=True)
                except StreammcError as error:
                    refused.append(f"{name}: {error}.")
                    continue
                number = name in columns.numbers and not columns.is_boolean(name)
                steps[name] = float(f"{columns.sd(name):.2g}") if scaled and number else None
            if not steps:
                return [], " ".join(["No average comparisons.", *refused])
            found = comparisons(run.path, rows, steps, model=model, interval=interval)
    except StreammcError as error:
        return [], f"No average comparisons: {error}"
    return found.to_pylist(), " ".join(["Not compared:", *refused] if refused else [])


def store_document(run: RunDirectory, path: str | None) -> dict[str, Any] | None:
    """Return what ``info`` says of the store of a run; ``None`` if it is not at its place.

    Raises
    ------
    IdentityError
        If ``path`` is given and holds another store.
    """
    from streammc.cli.inspect import describe_store
    from streammc.errors import IdentityError, StreammcError

    address = path or run.attributes.get("store")
    if not isinstance(address, str) or address == "memory":
        return None
    try:
        found = describe_store(address)
    except StreammcError:
        if path is not None:
            raise
        return None
    if found["fingerprint"] == run.identity["store"]:
        return found
    if path is None:
        return None
    raise IdentityError(
        f"expected the store of {str(run.path)!r} at {path!r} (fingerprint "
        f"{run.identity['store'][:12]}), found {found['fingerprint'][:12]}: give the store that "
        "the run was sampled from, as it was before rows were appended, or none"
    )


def _predictions(run: RunDirectory, path: str) -> xr.Dataset:
    """Open predictions; refuse those of another run."""
    from streammc.errors import IdentityError
    from streammc.trace.datatree import open_rows

    found = open_rows(path, verify=True)
    made_from, here = str(found.attrs["run"]), os.path.abspath(run.path)
    other = os.path.realpath(made_from) != os.path.realpath(here)
    if other and os.path.lexists(made_from):  # a run that has moved left nothing there
        raise IdentityError(
            f"expected predictions of the run {here!r} at {path!r}, found those of {made_from!r}: "
            "give predictions of this run"
        )
    return found


def commands(run: RunDirectory, store: dict[str, Any] | None) -> list[str]:
    """Return the command lines that sample and check the run again, as far as they are known."""
    from streammc.cli.execute import sample_command

    settings = run.attributes.get("settings")
    if not settings:
        return ["# sampled from Python: streammc.sample with the settings above"]
    address = str(run.attributes.get("store")) if store is None else store["path"]
    return [
        sample_command(run, address),
        shlex.join(["streammc", "verify", address]),
        shlex.join(["streammc", "diagnose", str(run.path)]),
    ]


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
