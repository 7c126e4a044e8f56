"""The page ``docs/reference/messages.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.messages.outcome import Outcome
from bench.messages.sites import ROOT

PAGE: Final = ROOT / "docs/reference/messages.md"

_HEAD: Final = """# Error messages

Every error message of the command line and of the public Python functions, with an input that
provokes it. Each has three parts: what was expected, what was found and where, what to do. The
[exit code](exit-codes.md) is that of the command; of Python code the class of the error is named.
Written by `python -m bench.messages --write`, which runs every input on this page; `/data` is the
folder of the inputs.
"""


def page_text(areas: Mapping[str, Sequence[Outcome]]) -> str:
    """Return the page."""
    parts = [_HEAD]
    for area, outcomes in areas.items():
        parts.append(f"\n## {area.replace('_', ' ').capitalize()}\n")
        for each in outcomes:
            kind = f"exit {each.kind}" if each.kind.isdigit() else each.kind
            parts.append(f"\n    {each.case}\n\n{kind}: {_escaped(each.message)}\n")
    return "".join(parts)


def _escaped(message: str) -> str:
    """Return a message as Markdown shows it."""
    for mark in ("\\", "`", "*", "_", "<", "[", "~", "|"):
        message = message.replace(mark, "\\" + mark)
    return message
