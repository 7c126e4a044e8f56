"""The mark of the command that made an output, which the output carries.

A receipt beside an output says what was asked. Until the receipt has a result, as after a kill, the
mark alone tells the output of that command from another one at its path. It is a digest of what was
asked, so that the same command makes the same bytes; fingerprints do not contain it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

MADE_BY: Final = "made_by"
"""Key of the mark in the document of an output."""

_mark: ContextVar[str | None] = ContextVar("mark of the command", default=None)
_announced: ContextVar[Callable[[Mapping[str, Any]], None] | None] = ContextVar(
    "listener of the command", default=None
)


def command_digest(asked: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings and inputs of a command, which are JSON types."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def making(
    digest: str, announced: Callable[[Mapping[str, Any]], None] | None = None
) -> Iterator[None]:
    """Let outputs that are committed in the block carry the mark of a command.

    An output that cannot carry it, a CSV file, is announced just before it appears: ``announced``
    gets its facts, with its ``fingerprint``.
    """
    tokens = _mark.set(digest), _announced.set(announced)
    try:
        yield
    finally:
        _mark.reset(tokens[0])
        _announced.reset(tokens[1])


def announce(facts: Mapping[str, Any]) -> None:
    """Tell the command that an output without a mark is about to appear."""
    listener = _announced.get()
    if listener is not None:
        listener(facts)


def current_mark() -> str | None:
    """Return the mark of the command that makes outputs at present, if there is one."""
    return _mark.get()


def mark_entry(mark: str | None) -> dict[str, str]:
    """Return the entry of a document with a mark; empty without one."""
    return {} if mark is None else {MADE_BY: mark}
