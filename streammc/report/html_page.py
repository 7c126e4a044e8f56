"""The page of a report: its parts in the template, written in one piece."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from streammc.errors import AccessError, IdentityError, OutputError
from streammc.plots.axes import require_packages
from streammc.report.asked import (
    ReportRequest,
    cost_facts,
    cost_rows,
    data_facts,
    draw_versions,
    prior_rows,
    run_facts,
)
from streammc.report.predicted import predicted
from streammc.report.results import Table, tables
from streammc.report.results import figures as result_figures
from streammc.report.trust import checks
from streammc.report.trust import figures as trust_figures
from streammc.unfinished import refuse_reserved_name, unfinished
from streammc.verdict import verdict

GENERATOR: Final = "streammc"
_MARK: Final = f'<meta name="generator" content="{GENERATOR}'.encode()
_HEAD_BYTES: Final = 2048


def check_place(output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Check, before any work, that a report can be written and its packages are installed.

    Raises
    ------
    ConfigError
        If matplotlib or Jinja2 is missing, or ``output`` has the name of something unfinished.
    IdentityError
        If ``output`` exists; with ``overwrite``, if it is not a report.
    OutputError
        If its folder does not exist.
    AccessError
        If the folder may not be written to.
    """
    require_packages("a report", "jinja2", "matplotlib")
    path = Path(output)
    refuse_reserved_name(path)
    if not path.parent.is_dir():
        raise OutputError(
            f"expected an existing folder for {str(path)!r}, found none: make {str(path.parent)!r}"
        )
    if os.path.lexists(path):
        if not overwrite:
            raise IdentityError(
                f"expected nothing at {str(path)!r}, but it exists: choose another path",
                ", or replace a report with --overwrite",
            )
        if not _is_report(path):
            raise IdentityError(
                f"expected a report to overwrite at {str(path)!r}, found something else: choose "
                "another path or delete it yourself"
            )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise AccessError(
            f"expected to create {str(path)!r}, found no permission to write in "
            f"{str(path.parent)!r}: change its permissions, or choose another path"
        )


def _is_report(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return _MARK in file.read(_HEAD_BYTES)
    except OSError:
        return False


def page(request: ReportRequest) -> str:
    """Return the report of a run as HTML; everything from the data is escaped."""
    from jinja2 import Environment, StrictUndefined

    files = resources.files("streammc.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(
        (files / "page.html.jinja").read_text(encoding="utf-8"),
    )
    style = (files / "style.css").read_text(encoding="utf-8")
    return template.render({"style": style, **contents(request)}) + "\n"


def contents(request: ReportRequest) -> Mapping[str, Any]:
    """Return the values of the template by name."""
    document, run = request.document, request.run
    shown_tables, store_table = tables(request)
    shown_checks = checks(document)
    stages = ("stage", "seconds", "share", "evaluations of rows")
    return {
        "name": run.path.name,
        "generator": f"{GENERATOR} {request.versions[GENERATOR]}",
        "verdict": verdict(document),
        "data": data_facts(request),
        "run": run_facts(request),
        "priors": Table("Priors", ("parameter", "prior", "origin"), prior_rows(request), words=3),
        "result_figures": result_figures(request),
        "result_tables": shown_tables,
        "store_table": store_table,
        "checks": shown_checks,
        "trust_figures": trust_figures(request, shown_checks),
        "predictions": [
            predicted(place, path, opened)
            for place, (path, opened) in enumerate(request.predictions.items())
        ],
        "stages": Table("Time and work by stage", stages, cost_rows(request)),
        "cost": cost_facts(request),
        "commands": request.commands,
        "digests": {"draws (SHA-256)": run.digest(), "store (fingerprint)": run.identity["store"]},
        "draw_versions": draw_versions(request),
        "versions": request.versions,
    }


def write_page(text: str, output: str | os.PathLike[str]) -> int:
    """Write a page in one piece, in place of an old one; return its bytes.

    Raises
    ------
    StorageIOError
        If the file system refuses it; nothing is left behind.
    """
    from streammc.trace.disk import reporting

    path, data = Path(output), text.encode()
    partial = unfinished(path)
    with reporting("write", path):
        try:
            with open(partial, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    return len(data)
