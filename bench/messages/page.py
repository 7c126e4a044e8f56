"""The pages of error messages: ``docs/reference/messages.md``, and a table for each area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.messages.outcome import Outcome
from bench.messages.sites import ROOT

PAGE: Final = ROOT / "docs/reference/messages.md"
FOLDER: Final = ROOT / "docs/reference/messages"

_HEAD: Final = """# Error messages

Every error message of the command line and of the public Python functions, with an input that
provokes it. Each has three parts: what was expected, what was found and where, what to do. The
[exit code](exit-codes.md) is that of the command; of Python code the class of the error is named.
Written by `python -m bench.messages --write`, which runs every input on these pages; `/data` is the
folder of the inputs.

| about | inputs |
|---|---|
"""


def pages(areas: Mapping[str, Sequence[Outcome]]) -> dict[Path, str]:
    """Return the text of every page by its path."""
    rows = [
        f"| [{_title(area)}](messages/{_name(area)}) | {len(outcomes)} |\n"
        for area, outcomes in areas.items()
    ]
    found = {PAGE: _HEAD + "".join(rows)}
    for area, outcomes in areas.items():
        found[FOLDER / _name(area)] = _table(_title(area), outcomes)
    return found


def write(areas: Mapping[str, Sequence[Outcome]]) -> None:
    """Renew every page, and remove those of areas that are no more."""
    written = pages(areas)
    FOLDER.mkdir(exist_ok=True)
    for path in set(FOLDER.glob("*.md")) - set(written):
        path.unlink()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


def cell(case: str) -> str:
    """Return an input as code in the cell of a table; its lines are separated by spaces."""
    text = " ".join(case.split("\n")).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _title(area: str) -> str:
    return f"Messages: {area.replace('_', ' ')}"


def _name(area: str) -> str:
    return f"{area.replace('_', '-')}.md"


def _table(title: str, outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"# {title}",
        "",
        "[All areas](../messages.md).",
        "",
        "| input | message |",
        "|---|---|",
    ]
    for each in outcomes:
        kind = f"exit {each.kind}" if each.kind.isdigit() else each.kind
        lines.append(f"| {cell(each.case)} | {kind}: {_escaped(each.message)} |")
    return "\n".join(lines) + "\n"


def _escaped(message: str) -> str:
    """Return a message as the cell of a table shows it."""
    for mark in ("\\", "`", "*", "_", "[", "|"):
        message = message.replace(mark, "\\" + mark)
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), ("~", "&#126;")):
        message = message.replace(mark, entity)  # Markdown dialects differ in whether these escape
    return " ".join(message.split("\n"))
