"""Options of every command as a table, from the declarations of the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from streammc.cli.app import COMMANDS, application

MARK: Final = re.compile(r"^<!-- options: ([\w-]+) -->$", re.M)
EVERYWHERE: Final = ("--json", "--quiet", "--log-format", "--heartbeat", "--debug")
"""Options of every command: the page describes them once."""


def commands() -> dict[str, click.Command]:
    """Return every command by its name, in the order of ``streammc --help``."""
    with application.make_context("streammc", ["models"], resilient_parsing=True) as context:
        found = {name: application.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def with_options(markdown: str) -> str:
    """Return the page of the command line with the table of each command at its mark."""
    known = commands()
    marked = MARK.findall(markdown)
    if sorted(marked) != sorted(known):
        raise ValueError(
            f"expected a mark <!-- options: NAME --> for each of {', '.join(known)}, "
            f"found {', '.join(marked)}: add or remove marks in docs/reference/command-line.md"
        )
    return MARK.sub(lambda found: options_table(known[found.group(1)]), markdown)


def options_table(command: click.Command) -> str:
    """Return the usage of a command, its description and the table of its own options."""
    context = click.Context(command, info_name=f"streammc {command.name}")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"    streammc {command.name} {usage}", ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [_text(paragraph), ""]
    if rows := list(_rows(command, context)):
        lines += ["| option | meaning |", "|---|---|", *rows]
    return "\n".join(lines)


def _rows(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and not set(option.opts) & set(EVERYWHERE):
            names = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
            value = "" if option.is_flag else f" {option.make_metavar(context)}"
            notes = [note for note, holds in _notes(option) if holds]
            text = _text(" ".join([option.help or "", *notes]))
            yield f"| `{names}{value}` | {text} |"


def _notes(option: click.Option) -> Iterator[tuple[str, bool]]:
    yield "Required.", option.required
    yield "Repeatable.", option.multiple and "repeat" not in (option.help or "")


def _text(text: str) -> str:
    """Return a help text as the cell of a table shows it; code between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    for i in range(0, len(parts), 2):
        for mark in ("\\", "*", "_", "[", "|"):
            parts[i] = parts[i].replace(mark, "\\" + mark)
        parts[i] = parts[i].replace("<", "&lt;")
    return "".join(parts)
