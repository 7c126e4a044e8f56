"""The three parts of a message: what was expected, what was found and where, what to do."""

from __future__ import annotations

import re
from typing import Final

EXPECTED: Final = re.compile(
    r"\b(expected|must|needs?|cannot|can only|unknown|no option|no memory|should"
    # The words of click.
    r"|is not ('|one of|a valid|in the range)|No such|Missing|Got unexpected"
    r"|requires an argument|does not take a value)"
)
"""Words that state what was expected, or what could not be done."""

FOUND: Final = re.compile(r"\bfound\b|'[^']*'|\"[^\"]*\"|\(os error|: [A-Z]")
"""The word itself, or the name, value or path in quotes."""

VERBS: Final = (
    "add", "ask", "begin", "calculate", "call", "cast", "change", "check", "choose", "close", "combine", "compare", "compute",
    "continue",
    "convert", "copy", "correct", "delete", "encode", "evaluate", "export", "free", "give", "group",
    "ingest", "install", "keep", "leave", "list", "lower", "make", "mend", "move", "name", "omit", "open",
    "pass", "pip install", "put", "raise", "read", "recode", "remove", "rename", "report",
    "rerun", "rescale", "reshape", "restore", "resume", "run", "sample", "save", "see", "set", "simulate",
    "start", "stop", "take", "try", "update", "use", "verify", "wait", "write",
)  # fmt: skip
"""Imperatives that begin an instruction."""

_VERB: Final = "|".join(VERBS)
INSTRUCTION: Final = re.compile(rf"[:;,(] ?(?:[a-z{{}}' ]+, )?(?:{_VERB}|did you mean)\b")
"""A clause after a colon, semicolon, comma or parenthesis that begins with an imperative."""


def missing_parts(message: str) -> list[str]:
    """Return what a message lacks of its three parts; nothing of a complete one."""
    lacks = []
    if "\n" in message or not message.strip():
        lacks.append("is not one line")
    if not EXPECTED.search(message):
        lacks.append("does not say what was expected")
    if not FOUND.search(message):
        lacks.append("does not say what was found")
    if not INSTRUCTION.search(message):
        lacks.append("does not say what to do")
    return lacks
