"""``streammc models`` and ``streammc samplers``: lists of the registered models and samplers."""

from __future__ import annotations

import click

from streammc.cli.options import command
from streammc.cli.output import Output, table


@command("models", short_help="List the models.")
@click.pass_obj
def models(output: Output) -> None:
    """List the models: the names that --model takes."""
    from streammc import registry

    rows = []
    for name in registry.MODELS:
        text = (registry.model(name).__doc__ or "").strip().splitlines()[0]
        text = text.removeprefix("Return ").replace("``", "").rstrip(".")
        rows.append({"name": name, "description": text})
    human = table(
        ["model", "what it is"], [[row["name"], row["description"]] for row in rows], words=True
    )
    output.result({"models": rows}, human)


@command("samplers", short_help="List the samplers and what they target.")
@click.pass_obj
def samplers(output: Output) -> None:
    """List the samplers with their targets and papers."""
    from streammc import registry

    rows = []
    for name in registry.SAMPLERS:
        made = registry.sampler(name)()
        rows.append({"name": name, "target": made.target, "paper": made.paper})
    human = table(
        ["sampler", "target", "paper"],
        [[row["name"], row["target"], row["paper"]] for row in rows],
        words=True,
    )
    output.result({"samplers": rows}, human)
