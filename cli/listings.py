"""``streammc models`` and ``streammc samplers``: lists of the registered models and samplers."""

from __future__ import annotations

import click

from streammc import registry
from streammc.cli.declarations import first_line, sampler_text
from streammc.cli.options import command
from streammc.cli.output import Output, table


@command("models", short_help="List the models.")
@click.pass_obj
def models(output: Output) -> None:
    """List the models: the names that --model takes."""
    rows = []
    for name, address in registry.MODELS.items():
        text = first_line(address).removeprefix("Return ").replace("``", "").rstrip(".")
        rows.append({"name": name, "description": text})
    human = table(
        ["model", "what it is"], [[row["name"], row["description"]] for row in rows], words=True
    )
    output.result({"models": rows}, human)


@command("samplers", short_help="List the samplers and what they target.")
@click.pass_obj
def samplers(output: Output) -> None:
    """List the samplers with their targets and papers."""
    rows = []
    for name, address in registry.SAMPLERS.items():
        target, paper = (sampler_text(address, attribute) for attribute in ("target", "paper"))
        rows.append({"name": name, "target": target, "paper": paper})
    human = table(
        ["sampler", "target", "paper"],
        [[row["name"], row["target"], row["paper"]] for row in rows],
        words=True,
    )
    output.result({"samplers": rows}, human)
