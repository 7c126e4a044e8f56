"""Names of what is unfinished: found by ``streammc gc``, and refused for what a user makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from streammc.errors import ConfigError
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


def refuse_reserved_name(path: Path) -> None:
    """Refuse an output that ``streammc gc`` could take for what a killed process left.

    A temporary folder is known by its mark, so that a name like one is no danger.

    Raises
    ------
    ConfigError
        If the name is that of an unfinished or replaced output.
    """
    kind = kind_of_name(path.name)
    if kind not in (None, "temporary folder"):
        article = "an" if kind.startswith("u") else "a"
        raise ConfigError(
            f"expected a name of its own for the output {str(path)!r}, found that of {article} "
            f"{kind}, which 'streammc gc' and later commands remove: choose another name"
        )
