"""``streammc compare``: the cost of an independent draw in several runs of one posterior."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.options import command, path_argument
from streammc.cli.output import Output, number, table


@command("compare", short_help="Compare the cost of runs of one posterior.")
@path_argument("runs", nargs=-1, required=True)
@click.pass_obj
def compare(output: Output, runs: tuple[str, ...]) -> None:
    """Print the cost of an independent draw in each of RUNS, relative to the first."""
    document = comparison(runs)
    output.result(document, human(document))


def comparison(paths: tuple[str, ...]) -> dict[str, Any]:
    """Return cost and acceptance rates of every run, and its RCT relative to the first run.

    Raises
    ------
    IdentityError
        If a run is of another store or model than the first.
    DataError
        If a run has no draws yet.
    """
    from streammc.diagnostics.cost import relative
    from streammc.errors import DataError, IdentityError
    from streammc.likelihood.temperature import temperature_of
    from streammc.likelihood.unit_words import unit_of_model
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
        base, other = (temperature_of(each.identity, each.attributes) for each in (first, run))
        if base != other:
            raise IdentityError(
                f"expected runs at one temperature, found {other:g} in {path!r} and {base:g} "
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
            "unit": unit_of_model(run.identity["model"]),
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
    """Return the target of a registered sampler: exact, perturbed, signed, tempered or biased."""
    from streammc import registry

    if sampler not in registry.SAMPLERS:
        return None
    return str(registry.sampler(sampler)().target)


def human(document: dict[str, Any]) -> str:
    """Return the comparison as text, one line per run."""
    from streammc.likelihood.unit_words import in_units

    header = ["run", "sampler", "target", "sign", "accept", "accept u", "rows/iteration"]
    header += ["IF", "RCT min", "median", "max"]
    rows = []
    for entry in document["runs"]:
        texts = [entry["run"], entry["sampler"] or "-", entry["target"] or "-"]
        numbers = [
            entry["mean_sign"],
            entry["acceptance_rate"],
            entry["subsample_acceptance_rate"],
            entry["rows_per_iteration"],
            entry["if"]["median"],
            *(entry["rct"][name] for name in ("min", "median", "max")),
        ]
        rows.append([*texts, *(number(value, 3) for value in numbers)])
    base = document["base"]
    unit = document["runs"][0]["unit"]
    header = [in_units(name, unit) for name in header]
    return (
        f"{table(header, rows)}\n\nRCT: evaluations of {unit}s per independent draw, passes and "
        f"warm-up included, relative to {base}"
    )
