"""``streammc export``: a run as one JSON file that predicts without its store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from streammc.cli.options import argument, command
from streammc.cli.output import Output, fields
from streammc.settings import OverwriteOption, setting


@dataclass(frozen=True, kw_only=True)
class ExportSettings(OverwriteOption):
    """Settings of ``streammc export``."""

    run: str = argument("run")
    output: str = argument("path")
    draws: int | None = setting(
        None,
        "Draws to keep, thinned from all chains; without it 200, or as many as fit in 1 MB. Where "
        "a number that is given does not fit, the file has mean and covariance of the "
        "coefficients.",
        minimum=2,
    )


@command("export", ExportSettings, configurable=True)
def export(ctx: click.Context, settings: ExportSettings) -> None:
    """Write RUN as a model file, OUTPUT, of at most 1 MB.

    The file is JSON. It has the fitted formula and draws of the coefficients, and predicts in
    Python by NumPy alone: streammc.scorer.load(OUTPUT).predict(frame). Effects of known groups of
    a mixed model are not in it: its rows are predicted as those of new groups.
    """
    from streammc import scorer
    from streammc.cli.receipt import COMMITTED, DRAWS, make_output, of_draws, page_fingerprint
    from streammc.cli.score import require_folder
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    output, overwrite = settings.output, settings.overwrite
    require_folder(output)
    opened = RunDirectory.open(settings.run)
    asked = {
        "command": "export",
        "run": opened.identity,
        COMMITTED: opened.committed_draws,
        DRAWS: opened.digest(),
        "draws": settings.draws,
    }

    def make(replace: bool) -> dict[str, Any]:
        facts = scorer.export(settings.run, output, draws=settings.draws, overwrite=replace)
        return {**facts, "fingerprint": page_fingerprint(Path(output))}

    def describe() -> dict[str, Any]:
        return {"fingerprint": page_fingerprint(Path(output))}

    receipt = of_draws(output, asked, overwrite=overwrite)
    result = make_output(printer, receipt, describe, make, overwrite=overwrite)
    if result is None:
        return
    if result["groups"] is not None:
        printer.warn(
            f"the effects of known groups of {result['groups']!r} are not in the file: it predicts "
            "all rows as those of new groups"
        )
    facts = {name: each for name, each in result.items() if name != "fingerprint"}
    printer.result({"output": output, **facts}, human(output, facts))


def human(output: str, result: dict[str, Any]) -> str:
    """Return the facts about a model file as text."""
    kept = f"{result['draws']} draws"
    if result["kind"] == "normal":
        kept = f"mean and covariance of {result['draws']:,} draws, for which there is no room"
    return fields(
        {
            "model file": output,
            "family": f"{result['family']}, link {result['link']}",
            "needs": ", ".join(result["columns"]),
            "has": kept,
            "bytes": result["bytes"],
        }
    )
