"""``streammc compare``: what an independent draw costs in several runs of one posterior."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.options import command, path_argument
from streammc.cli.output import Output, number, table


@command("compare", short_help="Compare the cost of runs of one posterior.")
@path_argument("runs", nargs=-1, required=True)
@click.pass_obj
def compare(output: Output, runs: tuple[str, ...]) -> None:
    """Print what an independent draw costs in each of RUNS, relative to the first."""
    document = comparison(runs)
    output.result(document, human(document))


def comparison(paths: tuple[str, ...]) -> dict[str, Any]:
    """Return cost and acceptance of every run, and RCT against the first.

    Raises
    ------
    IdentityError
        If a run is of another store or model than the first.
    DataError
        If one has no draws yet.
    """
    from streammc.diagnostics.cost import relative
    from streammc.errors import DataError, IdentityError
    from streammc.likelihood.temperature import (
        temperature_of,
    )
    from streammc.runs.cost import run_cost
    from streammc.trace.run_directory import RunDirectory

    found: list[dict[str, Any]] = []
    first = None
    for path in paths:
        run = RunDirectory.open(path)
        first = first or run
        for key in ("store", "model"):
            if run.identity[key] != first.identity[key]:
                raise IdentityError(
                    f"expected runs of one store and model, found another {key} in {path!r} than "
                    f"in {paths[0]!r}: compare runs of the same posterior"
                )
        ends = [temperature_of(some.identity, some.attributes) for some in (first, run)]
        if ends[0] != ends[1]:
            raise IdentityError(
                f"expected runs at one temperature, found {ends[1]:g} in {path!r} and {ends[0]:g} "
                f"in {paths[0]!r}: compare runs of the same posterior"
            )
        if not run.committed_draws:
            raise DataError(f"expected draws in {path!r}, found a run in its warm-up: resume it")
        stats = run.read_group("sample_stats")
        sampler = run.attributes.get("sampler", {}).get("name")
        entry = {
            "run": path,
            "sampler": sampler,
            "target": target_of(sampler),
            "chains": run.chains,
            "draws": run.committed_draws,
            **{
                name: float(stats[name].mean()) if name in stats else None
                for name in ("acceptance_rate", "subsample_accepted", "n_steps", "n_rows")
            },
            **run_cost(run),
        }
        entry["subsample_acceptance_rate"] = entry.pop("subsample_accepted")
        entry["rows_per_iteration"] = entry.pop("n_rows")
        found.append(entry)
    for entry in found:
        entry["rct"] = relative(found[0], entry)
        entry["rct_draws"] = relative(found[0], entry, "ct_draws")
    return {"base": paths[0], "runs": found}


def target_of(sampler: str | None) -> str | None:
    """Return what a registered sampler targets: exact, perturbed, signed or biased."""
    from streammc import registry

    if sampler not in registry.SAMPLERS:
        return None
    return str(registry.sampler(sampler)().target)


def human(document: dict[str, Any]) -> str:
    """Return one line a run."""
    header = ["run", "sampler", "target", "sign", "accept", "accept u", "rows/iteration"]
    header += ["IF", "RCT min", "median", "max"]
    rows = []
    for entry in document["runs"]:
        words = [entry["run"], entry["sampler"] or "-", entry["target"] or "-"]
        numbers = [
            entry["mean_sign"],
            entry["acceptance_rate"],
            entry["subsample_acceptance_rate"],
            entry["rows_per_iteration"],
            entry["if"]["median"],
            *(entry["rct"][name] for name in ("min", "median", "max")),
        ]
        rows.append([*words, *(number(value, 3) for value in numbers)])
    base = document["base"]
    return (
        f"{table(header, rows)}\n\nRCT: evaluations of rows per independent draw, passes and "
        f"warm-up included, relative to {base}"
    )
