"""``streammc compare``: several runs of one posterior by cost, several models by score."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import click

from streammc.cli.command_settings import ScoreOptions
from streammc.cli.options import CodeOption, argument, command, parse_scheduler
from streammc.cli.output import Output, number, table
from streammc.cli.progress import Progress
from streammc.cli.score import estimate_texts, opened_candidate, unit_of_score
from streammc.settings import PassOptions, setting


@dataclass(frozen=True, kw_only=True)
class CompareSettings(ScoreOptions, PassOptions, CodeOption):
    """Settings of ``streammc compare``."""

    runs: tuple[str, ...] = argument("run", several=True)
    loo: bool = setting(False, "Rank models of the same rows by leave-one-out.", environment=False)


@command("compare", CompareSettings, configurable=True)
def compare(ctx: click.Context, settings: CompareSettings) -> None:
    """Print the cost of an independent draw in each of RUNS, relative to the first.

    With --loo: rank the models of RUNS, on the same rows, by their leave-one-out scores, with
    standard errors of the differences.
    """
    output: Output = ctx.obj
    if not settings.loo:
        scored = [each.name for each in fields(ScoreOptions)]
        typed = click.core.ParameterSource.COMMANDLINE
        given = [name for name in scored if ctx.get_parameter_source(name) is typed]
        if given:
            raise click.UsageError(
                f"expected --loo beside --{given[0].replace('_', '-')}, found none: add it, or "
                "leave that out"
            )
        from streammc.comparison import costs
        from streammc.trace.run_directory import RunDirectory

        document = costs([(path, RunDirectory.open(path)) for path in settings.runs])
        output.result(document, human(document))
        return
    from streammc.checks.ranking import ranked

    request = settings.request(parse_scheduler(settings.scheduler))
    candidates = [opened_candidate(run, settings.allow_code) for run in settings.runs]
    with Progress(output, ctx.find_root().obj) as progress:
        found = ranked(candidates, replace(request, progress=progress.of("score")))
    for each in found:
        for line in each["warnings"]:
            output.warn(f"{each['run']}: {line}")
    output.result({"best": found[0]["run"], "runs": found}, human_ranking(found))


def human(document: dict[str, Any]) -> str:
    """Return the comparison as text, one line per run."""
    unit = document["runs"][0]["unit"]
    header = ["run", "sampler", "target", "sign", "accept", "accept u", f"{unit}s/iteration"]
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
    return (
        f"{table(header, rows)}\n\nRCT: evaluations of {unit}s per independent draw, passes and "
        f"warm-up included, relative to {base}"
    )


def human_ranking(found: list[dict[str, Any]]) -> str:
    """Return models ranked by their scores as text, one line per run."""
    header = ["run", "model", "elpd_loo", "difference", "se", "sampling se", "p_loo", "bad k"]
    rows = []
    for each in found:
        away, pareto = each["difference"], each["pareto_k"]
        elpd, p_loo = (f"{each[name]['estimate']:.2f}" for name in ("elpd_loo", "p_loo"))
        counts = f"{pareto['bad'] + pareto['very_bad']:,}"
        rows.append([each["run"], each["model"], elpd, *estimate_texts(away), p_loo, counts])
    first = found[0]
    unit, left_out = unit_of_score(first), first["left_out"]
    evaluated = f"all {first['n']:,} {unit}s"
    if first["method"] != "exact":
        evaluated = f"the same {first['evaluated']:,} of {first['n']:,} {unit}s"
    return (
        f"{table(header, rows)}\n\ndifference: elpd_loo less that of the best, one {left_out} "
        f"left out, with its standard error over new {left_out}s, from {evaluated}"
    )
