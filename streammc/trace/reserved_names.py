"""Names of what is unfinished, by which ``streammc gc`` finds it."""

from __future__ import annotations

import re
from typing import Final

from streammc.owner_mark import PREFIXES, SUFFIX

PARTIAL: Final = re.compile(r"(?P<output>.+)\.partial-(?P<pid>\d+)")
RESULT: Final = re.compile(r"\.(?P<output>.+)\.[0-9a-f]{8}\.partial")
FILE: Final = re.compile(rf"\.(?P<output>.+)\.(?P<pid>\d+){re.escape(SUFFIX)}")
_PULLING: Final = re.compile(r"(?P<output>.+)\.pulling")
# What tempfile adds to a prefix.
_TEMPORARY: Final = re.compile(rf"(?:{'|'.join(map(re.escape, PREFIXES))})[a-z0-9_]{{8}}")


def kind_of_name(name: str) -> str | None:
    """Return what a path of this name could be, if a process of streammc left it."""
    if FILE.fullmatch(name):
        return "unfinished file"
    if _PULLING.fullmatch(name):
        return "unfinished copy"
    if _TEMPORARY.fullmatch(name):
        return "temporary folder"
    stem = name.removesuffix(".old")
    if PARTIAL.fullmatch(stem) or RESULT.fullmatch(stem):
        return "unfinished result" if stem == name else "replaced result"
    return None
