"""``streammc diagnose``: summary and convergence statistics of the draws of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streammc.cli.options import CheckOption, argument, command

if TYPE_CHECKING:
    from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class DiagnoseSettings(CheckOption):
    """Settings of ``streammc diagnose``."""

    run: str = argument("run")


@command("diagnose", DiagnoseSettings)
def diagnose(ctx: click.Context, settings: DiagnoseSettings) -> int:
    """Summarise the committed draws of RUN, finished or not, after verifying every checksum."""
    from streammc.cli.report import run_document, show_run

    document = run_document(settings.run, diagnosis(settings.run))
    return show_run(ctx.obj, document, settings.check)


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
    from streammc.diagnostics.derived import derived, ratios
    from streammc.diagnostics.summary import negative_signs, summarize_draws
    from streammc.likelihood.temperature import schedule_of
    from streammc.models.table_scale import transform
    from streammc.runs.record import REFERENCES, blocks_of_run, label_references
    from streammc.runs.run_summary import mean_statistics, mixing_warnings, run_cost
    from streammc.runs.setup import load

    theta, names = run.draws_matrix(), list(run.labels)
    sign = negative_signs(run.statistics("sign").get("sign"))
    parameters = summarize_draws(theta, names, sign)
    original, factors, compared = None, None, None
    references = run.attributes.get(REFERENCES)
    try:
        dataset = store_of_run(run)
        blocks = blocks_of_run(run, dataset.feature_names)
        moved, labels = transform(theta, names, dict(dataset.attributes), blocks)
        original = summarize_draws(moved, labels, sign)
        factors = ratios(
            moved,
            labels,
            blocks,
            dataset.feature_names,
            sign,
            formula=bool(dataset.attributes.get("formula")),
            references=references,
        )
        compared = label_references(references, blocks, dataset.feature_names) or None
    except (MissingError, DataError):
        pass
    spent, setup = run_cost(run), load(run)
    return {
        "parameters": parameters,
        "parameters_original": original,
        "derived": summarize_draws(*derived(theta, names, run.identity["model"]), sign) or None,
        "ratios": factors,
        "references": compared,
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
            *mixing_warnings(parameters, run.chains),
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
