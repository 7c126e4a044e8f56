"""``streammc score``: leave-one-out and in-sample scores of a run on its own rows."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from streammc.cli.command_settings import ScoreSettings
from streammc.cli.options import command, parse_scheduler
from streammc.cli.output import Output, fields, number, table
from streammc.cli.progress import Progress
from streammc.cli.receipt import (
    COMMITTED,
    DRAWS,
    DrawsReceipt,
    made_by,
    make_output,
    page_fingerprint,
)
from streammc.cli.signals import Interruption
from streammc.errors import IdentityError
from streammc.unfinished import MADE_BY, current_mark, mark_entry


@command("score", ScoreSettings, configurable=True)
def score(ctx: click.Context, settings: ScoreSettings) -> None:
    """Score the model of RUN on the rows it was fitted to: leave-one-out, WAIC, in-sample.

    STORE is the store of the run, if it has moved. Of a mixed model a group is left out. Of a
    large table a sample of rows is evaluated at every draw, and one pass supplies the rest.
    """
    from streammc.checks.scoring import score_run
    from streammc.cli.configuration import write_json

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    request, output = settings.request(parse_scheduler(settings.scheduler)), settings.output
    if output is not None:
        require_folder(output)
        if settings.overwrite and os.path.lexists(output) and made_by(output) is None:
            raise IdentityError(
                f"expected scores to overwrite at {output!r}, found something else: choose another "
                "path, or delete it"
            )
    candidate = opened_candidate(settings.run, settings.allow_code, settings.store, "STORE")

    def scored() -> Any:
        with Progress(printer, interruption) as progress:
            asked = replace(request, progress=progress.of("score"))
            return score_run(candidate.run, candidate.model, candidate.store, asked)

    if output is None:
        result: dict[str, Any] | None = dict(scored().facts)
    else:
        receipt = score_receipt(output, candidate.run, request)

        def make(_: bool) -> dict[str, Any]:
            scores = scored()
            document = {**mark_entry(current_mark()), **scores.facts, "terms": scores.pointwise()}
            save(receipt.output, document, write_json)
            return {**scores.facts, "fingerprint": page_fingerprint(receipt.output)}

        result = make_output(
            printer,
            receipt,
            lambda: written_facts(receipt.output),
            make,
            overwrite=settings.overwrite,
        )
    if result is None:
        return
    facts = {name: each for name, each in result.items() if name != "fingerprint"}
    for line in facts["warnings"]:
        printer.warn(line)
    printer.result(facts, human(facts, output))


def score_receipt(output: str, run: Any, request: Any) -> DrawsReceipt:
    """Return the receipt of the scores of a run, as a ``ScoreRequest`` asks for them."""
    asked = {
        "command": "score",
        "run": run.identity,
        COMMITTED: run.committed_draws,
        DRAWS: run.digest(),
        "draws": request.draws,
        "rows": request.rows,
        "seed": request.seed,
    }
    return DrawsReceipt(output, asked)


def written_facts(path: Path) -> dict[str, Any]:
    """Return the facts in a file of scores, with its fingerprint; of another file that alone."""
    fingerprint = {"fingerprint": page_fingerprint(path)}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return fingerprint
    facts = found if isinstance(found, dict) else {}
    kept = {name: each for name, each in facts.items() if name not in ("terms", MADE_BY)}
    return {**kept, **fingerprint}


def opened_candidate(
    path: str, allow_code: bool, store: str | None = None, option: str | None = None
) -> Any:
    """Return a run with its model and store, as ``streammc.checks.ranking.Candidate``.

    ``option`` is the argument of the command that takes the store's new place, for messages.
    """
    from streammc.checks.ranking import Candidate
    from streammc.cli.build import model_of_run
    from streammc.cli.execute import store_of_run
    from streammc.frames import data_set
    from streammc.trace.run_directory import RunDirectory

    opened = RunDirectory.open(path)
    model = model_of_run(opened.identity, opened.attributes.get("settings"), allow_code)
    data = store_of_run(opened, option) if store is None else data_set(opened, store, fitted=True)
    return Candidate(path, opened, model, data)


def require_folder(path: str) -> None:
    """Refuse a path in no folder, before any work."""
    from streammc.errors import OutputError

    folder = Path(os.path.abspath(path)).parent
    if not folder.is_dir():
        raise OutputError(
            f"expected an existing folder for {path!r}, found none: make {str(folder)!r}"
        )


def save(path: Path, document: dict[str, Any], write: Any) -> None:
    """Write a JSON file; report what the file system refuses."""
    from streammc.errors import OutputError

    try:
        write(path, document)
    except OSError as error:
        raise OutputError(
            f"expected to write {str(path)!r}, found {error.strerror or error}: check the folder's "
            "permissions and free space"
        ) from None


def estimate_texts(found: dict[str, float]) -> list[str]:
    """Return estimate, standard error and sampling standard error as text."""
    sampling = number(found["sampling_se"], 2) if found["sampling_se"] else "-"
    return [f"{found['estimate']:.2f}", f"{found['se']:.2f}", sampling]


def unit_of_score(result: dict[str, Any]) -> str:
    """Return what a score evaluates, ``row`` or ``group``."""
    return "group" if result["left_out"] == "group" else "row"


def human(result: dict[str, Any], output: str | None = None) -> str:
    """Return a score as text."""
    unit = unit_of_score(result)
    left_out = f"one {unit}"
    if result["left_out"] == "observation":
        left_out = "one observation; a row of weight w counts as w of them"
    elif unit == "row" and result.get("weight", result["n"]) > result["n"]:
        left_out = "one row with all its trials"
    elif result["group"] is not None:
        left_out = f"one {unit} of {result['group']} with all its rows, its effects integrated out"
    evaluated = f"all {result['n']:,} {unit}s"
    if result["method"] != "exact":
        evaluated = (
            f"{result['evaluated']:,} of {result['n']:,} {unit}s ({100 * result['share']:.2g} %), "
            "the others by a surrogate in one pass"
        )
    pareto = result["pareto_k"]
    facts = {
        "left out": left_out,
        "evaluated": evaluated,
        "draws": result["draws"],
        f"per {result['left_out']}": _per_unit(result),
        "Pareto k": f"{pareto['good']:,} good (up to {pareto['good_below']:.2f}), "
        f"{pareto['bad']:,} bad, {pareto['very_bad']:,} very bad (above 1)",
        "written": output,
        "seconds": result["seconds"],
    }
    names = {
        "elpd_loo": "elpd_loo",
        "p_loo": "p_loo",
        "elpd_waic": "elpd_waic",
        "p_waic": "p_waic",
        "lpd": "lpd (in-sample)",
    }
    rows = [[text, *estimate_texts(result[name])] for name, text in names.items()]
    return f"{table(['', 'estimate', 'se', 'sampling se'], rows)}\n\n{fields(facts)}"


def _per_unit(result: dict[str, Any]) -> str:
    """Return the score of an observation or group; a row of weight w counts as w observations."""
    weight = result.get("weight", result["n"])  # a file of an earlier version has no weight
    divisor = "n" if weight == result["n"] else "sum of weights"
    share = result["elpd_loo"]["estimate"] / weight if weight else None
    return f"{number(share)} (elpd_loo / {divisor})"
