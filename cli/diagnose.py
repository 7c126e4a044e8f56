"""``streammc diagnose``: summary and convergence statistics of the draws of a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streammc.cli.options import ShowOptions, argument, command
from streammc.settings import INTERVAL

if TYPE_CHECKING:
    from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class DiagnoseSettings(ShowOptions):
    """Settings of ``streammc diagnose``."""

    run: str = argument("run")


@command("diagnose", DiagnoseSettings)
def diagnose(ctx: click.Context, settings: DiagnoseSettings) -> int:
    """Summarise the committed draws of RUN, finished or not, after verifying every checksum."""
    from streammc.cli.report import run_document, show_run

    document = run_document(settings.run, diagnosis(settings.run))
    document = with_interval(document, settings.run, settings.interval)
    return show_run(ctx.obj, document, settings.check, interval=settings.interval)


def with_interval(document: Mapping[str, Any], path: str, interval: float) -> dict[str, Any]:
    """Return the statistics of a run with the ends of an interval, from its draws.

    The ends are in every entry under their names, such as ``q2.5`` and ``q97.5``, beside those of
    90 %, and ``interval`` is in the document. With 90 % nothing changes.
    """
    if interval == INTERVAL:
        return dict(document)
    import numpy as np

    from streammc.diagnostics.derived import derived, exponentials
    from streammc.diagnostics.summary import draws_and_labels, interval_statistics, negative_signs
    from streammc.runs.record import blocks_of_run
    from streammc.trace.datatree import open_run
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    sign = negative_signs(run.statistics("sign").get("sign"))
    theta, labels = run.draws_matrix(), list(run.labels)
    original, names = draws_and_labels(open_run(path, verify=False))
    ends = {
        "parameters": interval_statistics(theta, labels, interval, sign),
        "parameters_original": interval_statistics(original, names, interval, sign),
        "derived": interval_statistics(
            *derived(original, names, run.identity["model"]), interval, sign
        ),
    }
    changed: dict[str, Any] = {"interval": interval}
    for key, found in ends.items():
        if document.get(key):
            entries = document[key].items()
            changed[key] = {label: {**entry, **found[label]} for label, entry in entries}
    if ratios := document.get("ratios"):
        features = run.state.layout.features
        triples = exponentials(blocks_of_run(run, features), features)
        columns = [names.index(label) for _, label, _ in triples]
        with np.errstate(over="ignore"):
            factors = np.exp(original[:, :, columns])
        found = interval_statistics(factors, [shown for shown, *_ in triples], interval, sign)
        entries = ratios["parameters"].items()
        merged = {label: {**entry, **found[label]} for label, entry in entries}
        changed["ratios"] = {**ratios, "parameters": merged}
    return {**document, **changed}


def diagnosis(path: str) -> dict[str, Any]:
    """Return the summary of a run, computed from its draws if the run has no current one.

    Raises
    ------
    DataError
        If the run has no draws yet.
    """
    from streammc.errors import DataError, MissingError
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path)
    kept = run.attributes.get("summary")
    if kept is not None and kept["sampling"]["draws"] == run.committed_draws:
        return dict(kept) if "cost" in kept else {**kept, "cost": _cost(run)}
    if not run.committed_draws:
        raise DataError(
            f"expected draws in {path!r}, found a run still in its warm-up "
            f"({run.committed_warmup} of {run.warmup} iterations): resume it"
        )
    # Not imported for a run that has its summary: the models and the passes.
    from streammc.cli.execute import store_of_run
    from streammc.likelihood.temperature import schedule_of
    from streammc.runs.run_summary import (
        draw_statistics,
        mean_statistics,
        mixing_warnings,
        run_cost,
    )
    from streammc.runs.setup import load

    dataset: Any = None
    with suppress(MissingError, DataError):
        dataset = store_of_run(run)
    statistics = draw_statistics(run, run.draws_matrix(), dataset)
    spent, setup = run_cost(run), load(run)
    return {
        **statistics,
        "audit": None,
        "sampling": {
            "sampler": run.attributes.get("sampler", {}).get("name"),
            "temperature": schedule_of(run.identity).describe(),
            "chains": run.chains,
            "warmup": run.warmup,
            **mean_statistics(run),
            "evaluations": spent["evaluations"],
            **setup.sampler.facts(run, setup),
        },
        "cost": spent,
        "warnings": [
            _unfinished(run.committed_draws, run.draws),
            *mixing_warnings(statistics["parameters"], run.chains, setup.sampler),
        ],
    }


def _cost(run: RunDirectory) -> dict[str, Any]:
    """Return the cost of a run of an earlier version, whose summary lacks it."""
    from streammc.runs.run_summary import run_cost

    return run_cost(run)


def _unfinished(committed: int, asked: int) -> str:
    """Return the warning about an unfinished run: its missing draws or summary, and the remedy."""
    if committed >= asked:
        return f"the run has all its {asked} draws per chain, its summary is missing: resume it"
    return f"the run is unfinished: {committed} of {asked} draws; resume it"
